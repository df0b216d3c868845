//! A short run of the real thing: processes started, sessions opened, every case measured on both sides.
//!
//! Asserts that the figures are there and belong to exchanges that took place, never how large they are.

use serde_json::Value;
use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cistern-bench")).args(args).output().expect("the bench starts")
}

const SHORT: [&str; 6] = ["--seconds", "0.03", "--rounds", "1", "--sessions", "300"];

#[test]
fn half_second_run_measures_every_case_on_both_sides() {
    let output = bench(&[&SHORT[..], &["--in-flight", "4", "--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cases = report["beside_echo"].as_array().expect("a list");
    assert_eq!(cases.len(), 5);
    for case in cases.iter().chain([&report["control"], &report["sessions"]]) {
        for side in ["base", "other"] {
            assert!(case[side]["exchanges"].as_u64() > Some(0), "{case}");
            assert!(case[side]["cpu_us"]["median"].as_f64() > Some(0.0), "{case}");
        }
        let asked = |side: &str| case[side]["bytes_asked"].as_f64().expect("a number");
        assert!((asked("base") - asked("other")).abs() < 4.0, "both sides are asked the same: {case}");
        assert!(case["ratio"]["median"].as_f64() > Some(0.0), "{case}");
    }
}

#[test]
fn durable_mutations_are_measured_at_every_load() {
    let output = bench(&["--seconds", "0.05", "--rounds", "1", "--json", "durable", "--dir", env!("CARGO_TARGET_TMPDIR")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let loads: Vec<_> = rows.as_array().expect("a list").iter().map(|row| row["in_flight"].as_u64()).collect();
    assert_eq!(loads, [Some(1), Some(16), Some(64), Some(256)]);
    for row in rows.as_array().expect("a list") {
        assert!(row["exchanges"].as_u64() > Some(0), "{row}");
        for figure in ["durable_p50_us", "echo_p50_us", "fdatasync_p50_us", "ratio", "per_second"] {
            assert!(row[figure].as_f64() > Some(0.0), "{figure}: {row}");
        }
    }
}

#[test]
fn impossible_option_is_refused_in_one_clear_line() {
    let output = bench(&["--rounds", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--rounds"), "{output:?}");
}
