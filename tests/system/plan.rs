//! `cistern plan`: what scripts read of them, and what they refuse.

use cistern_testkit::numbers::{self, NUMBERS, RATES, SHARES, TIMES, consoles, near, number, solved_or_refused};
use cistern_testkit::{CISTERN, Server, said};
use serde_json::Value;
use std::process::Output;

fn run(line: &str) -> Output {
    numbers::run(CISTERN, line)
}

fn json(line: &str) -> Value {
    numbers::json(CISTERN, line)
}

#[test]
fn a_plan_keeps_to_what_was_asked_or_says_that_nothing_does() {
    let plan = json("plan --rate 10/s --fail-every 1d --repair 2s --overhead 1% --recover-within 2s");
    assert_eq!(plan["tau"], 1.5);
    let best = &plan["best"];
    assert!(number(best, "overhead") <= 0.01 && number(best, "failover") <= 2.0);
    // Td + τ(1+δ) + ε with the defaults of the server.
    near(number(best, "failover"), 1.5 / 4.0 + 1.5 * 1.01 + 0.001);
    let alternatives = plan["alternatives"].as_array().unwrap();
    assert_eq!(alternatives.len(), 5);
    // As many reads of its 100 objects, all together, as an agent sends requests: 2 · 100 agents · 10/s / (1 + ρτ) with ρ = 0.1/s.
    let per_object = alternatives.iter().find(|other| other["name"] == "per-object").unwrap();
    near(number(per_object, "messages"), 2_000.0 / 1.15);
    let output = run("plan --rate 1/m --overhead 1% --recover-within 2s --json");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["tau"].is_null());
    assert!(String::from_utf8(run("plan --rate 1/m --overhead 1% --recover-within 2s").stdout).unwrap().contains("No lease period"));
}

#[test]
fn a_plan_says_what_a_lease_that_agents_ask_for_costs_them_and_others() {
    let line = "plan --rate 10/s --recover-within 2s --lease 60s --lease 500ms --lease 5m";
    let plan = json(line);
    assert_eq!(plan["tau"], json("plan --rate 10/s --recover-within 2s")["tau"], "the server's own is planned as ever");
    let own = plan["own_leases"].as_array().unwrap();
    assert_eq!([60.0, 0.5, 60.0], [0, 1, 2].map(|i| number(&own[i], "tau")), "within the server's bounds");
    // Wire-spec 11.3, with the period of the holder.
    near(number(&own[0], "others_wait"), 30.0 + 1.5 / 4.0 + 60.6 + 0.001);
    near(number(&own[0], "outlives"), 60.0 * 0.8 - 60.0 / 8.0);
    assert!(number(&own[1], "others_wait") < 1.0);
    let said = String::from_utf8(run(line).stdout).unwrap();
    for words in
        ["an agent with 60 s are not recovered within 2 s", "the grace after\na restart too", "Others wait so long only for a lock"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(json("plan --rate 10/s")["own_leases"].as_array().unwrap().is_empty());
}

#[test]
fn consoles_in_the_manual_show_what_the_commands_print() {
    let manual = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/models.md")).unwrap();
    assert!(consoles(&manual, CISTERN) >= 2);
}

#[test]
fn a_plan_from_a_capture_of_the_real_stack_counts_its_requests() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("seen.pcap");
    let path = path.to_str().unwrap();
    let output = server.cistern(&["ping", "--pcap", path, "-c", "8", "-i", "0.05"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let plan = json(&format!("plan --capture {path} --recover-within 2s"));
    let seen = &plan["capture"];
    assert_eq!((seen["sessions"].as_u64(), seen["foreign"].as_u64()), (Some(1), Some(0)));
    assert!(number(seen, "requests") >= 8.0, "{seen}");
    assert!(number(seen, "rate") > 1.0 && number(&plan, "rate") == number(seen, "rate"));
}

#[test]
fn a_plan_takes_delta_and_timeouts_from_the_settings() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("settings.toml");
    std::fs::write(&path, "[server]\ndelivery-timeout = \"1s\"\ndelta = 0.1\n[agent]\nphase-valid = 0.5\n").unwrap();
    let plan = json(&format!("plan --rate 10/s --recover-within 4s --config {}", path.display()));
    let tau = number(&plan, "tau");
    near(number(&plan["best"], "failover"), 1.0 + tau * 1.1 + 0.001);
    let flag = json(&format!("plan --rate 10/s --recover-within 4s --delivery-timeout 2s --config {}", path.display()));
    near(number(&flag["best"], "failover"), 2.0 + number(&flag, "tau") * 1.1 + 0.001);
}

#[test]
fn what_no_plan_can_be_made_of_is_refused_in_words() {
    for (line, words) in [
        ("plan --rate 10/s --agents 1e308", "between 1e-30 and 1e30"),
        ("plan", "--rate"),
        ("plan --rate 10/s --capture x.pcap", "cannot be used with"),
        ("plan --rate 10/s --json --csv", "cannot be used with"),
        ("plan --rate 10/s --config /no/such/file", "/no/such/file"),
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", said(&output));
        assert!(said(&output).contains(words) && output.stdout.is_empty(), "{line}: {}", said(&output));
    }
    let output = run("plan --capture /no/such/capture");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

/// What the command lines take at their utmost is solved or refused: no program ends in a panic.
#[test]
fn extreme_quantities_are_solved_or_refused() {
    let flags: [(&str, &[&str]); 8] = [
        ("--rate", &RATES),
        ("--agents", &NUMBERS),
        ("--fail-every", &TIMES),
        ("--repair", &TIMES),
        ("--overhead", &SHARES),
        ("--unavailable", &SHARES),
        ("--recover-within", &TIMES),
        ("--delivery-timeout", &TIMES),
    ];
    solved_or_refused(CISTERN, "plan --rate 10/s", &flags, &["", " --json", " --csv"]);
}
