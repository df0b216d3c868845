//! The simulator's program: what it prints, what it writes, and its exit codes.

#![allow(clippy::unwrap_used, reason = "helpers of tests end the test by a panic")]

use cistern_sim::plan::{Plan, Profile};
use std::path::Path;
use std::process::{Command, Output};

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cistern-sim")).args(args).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A plan under which nothing ever arrives, so that nobody gets what they want.
fn deaf(dir: &Path) -> String {
    let mut plan = Plan::draw(Profile::Calm, 3).until(2_000_000_000).with_agents(2);
    plan.net.socket_max = 0;
    let path = dir.join("deaf.json");
    std::fs::write(&path, serde_json::to_string(&plan).unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn clean_campaign_ends_with_0_and_its_figures() {
    let output = sim(&["run", "--profile", "calm", "--seeds", "2"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output).starts_with("seeds        2 "), "{output:?}");
    let json = sim(&["run", "--profile", "calm", "--seeds", "2", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((value["seeds"].as_u64(), value["failure"].is_null()), (Some(2), true));
}

#[test]
fn violation_ends_with_1_a_replay_command_a_plan_and_a_capture() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, small) = (deaf(dir.path()), dir.path().join("small.json"));
    let pcap = dir.path().join("run.pcap");
    let (small, pcap) = (small.to_str().unwrap(), pcap.to_str().unwrap());
    let output = sim(&["run", "--plan", &plan, "--save-plan", small, "--pcap", pcap]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = text(&output);
    assert!(told.contains("I15") && told.contains(&format!("replay: cistern-sim run --plan {small}")), "{told}");
    let mut captured = cistern_capture::Reader::new(std::fs::File::open(pcap).unwrap());
    assert!(captured.by_ref().filter_map(Result::ok).count() > 0 && captured.tally().is_clean(), "{}", captured.tally());
    assert_eq!(sim(&["run", "--plan", small, "--no-shrink"]).status.code(), Some(1));
}

#[test]
fn one_seed_is_shown_with_its_trace_and_the_same_hash_each_time() {
    let args = ["run", "--profile", "calm", "--seed", "5", "--until", "1s", "--trace", "--log", "info", "--twice"];
    let (first, second) = (sim(&args), sim(&args));
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    assert_eq!(text(&first), text(&second));
    for part in ["seed 5 of profile calm", "WELCOME", "HELLO", "hash ", "serves; lease"] {
        assert!(text(&first).contains(part), "{part}");
    }
}

#[test]
fn what_cannot_be_carried_out_ends_with_2_and_says_why() {
    for args in [&["run", "--profile", "nonsense"][..], &["run", "--plan", "/nowhere/plan.json"], &["run", "--seed", "1", "--seeds", "2"]] {
        let output = sim(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}
