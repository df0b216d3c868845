//! `cistern-lab`: what scripts read of it, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use cistern_capture::Writer;
use cistern_testkit::numbers::{self, Flags, NUMBERS, RATES, SHARES, TIMES, consoles, near, number, solved_or_refused};
use cistern_testkit::said;
use cistern_wire::{Ask, Header, Message, Packer, ServerStatus, SessionId};
use serde_json::Value;
use std::process::Output;
use std::time::Duration;

const LAB: &str = "cistern-lab";

fn run(line: &str) -> Output {
    numbers::run(LAB, line)
}

fn json(line: &str) -> Value {
    numbers::json(LAB, line)
}

#[test]
fn overhead_is_the_paper_s_in_each_of_its_forms() {
    let answer = json("overhead --tau-rho 10");
    near(number(&answer, "explicit"), 0.1);
    near(number(&answer, "closed_form"), 1.0 / (10f64.exp() - 1.0));
    near(number(&answer, "opportunistic"), 1.0 / ((1.0 + 10.0 / 676.0f64).powi(676) - 1.0));
    let slow = json("overhead --tau-rho 10 --k 20 --sigma 2");
    near(number(&slow, "explicit"), 1.0 / (10.0 + 0.5));
    assert!(number(&slow, "opportunistic") < number(&slow, "explicit"));
    let output = run("overhead --tau-rho 10 --csv");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().next(), Some("tau_rho,k,opportunistic,explicit,closed_form"));
    assert!(text.contains("0.000048852349398") && text.lines().count() == 2, "{text}");
}

#[test]
fn what_a_float_cannot_hold_is_printed_with_its_digits() {
    let output = run("overhead --tau-rho 1000 --json");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\"closed_form\":5.0759588975") && text.contains("e-435"), "{text}");
}

#[test]
fn states_are_counted_in_each_way() {
    let answer = json("choose-k --delta 0.1 --epsilon 0.01");
    assert_eq!([&answer["clt"], &answer["clt_paper"], &answer["chebyshev"]], [664, 676, 10_000]);
    assert_eq!(json("choose-k --delta 10% --epsilon 1%"), answer);
}

#[test]
fn unavailability_is_less_with_opportunistic_renewal_and_less_than_the_outages() {
    let answer = json("availability --lambda 1/h --mu 0.5/s --lease 2s --rho 10/s");
    let (opportunistic, explicit) = (number(&answer, "opportunistic"), number(&answer, "explicit"));
    assert!(0.0 < opportunistic && opportunistic < explicit && explicit < 2.0 / 3_602.0);
    near(number(&answer["available"], "explicit"), 1.0 - explicit);
    // The same in other units.
    assert_eq!(json("availability --lambda 24/d --mu 30/min --lease 2000ms --rho 600/m"), answer);
}

#[test]
fn figures_and_claims_have_their_data() {
    for line in ["figure 7", "figure 8", "gc-figure 1", "gc-figure 2", "gc-figure 3"] {
        let figure = json(line);
        let curves = figure["curves"].as_array().unwrap();
        assert!(curves.len() >= 4 && curves.iter().all(|curve| curve["points"].as_array().unwrap().len() > 100), "{line}");
        assert_eq!(run(line).status.code(), Some(0));
    }
    let claims = json("table");
    let claims = claims.as_array().unwrap();
    for claim in claims {
        assert!(claim["paper_value"].is_number() && claim["our_value"].is_number());
        assert!(claim["verdict"] == "reproduced" || claim["verdict"] == "differs" && claim["why"].is_string(), "{claim}");
    }
    assert!(claims.len() >= 30);
    assert_eq!(json("compare").as_array().unwrap().len(), 5);
}

#[test]
fn a_picture_is_the_same_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("figure.svg");
    let output = run(&format!("figure 7 --svg {}", path.display()));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let manual = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/models/figure-7.svg")).unwrap();
    assert!(std::fs::read(&path).unwrap() == manual);
    for line in ["overhead --tau-rho 5", "choose-k", "table", "compare", "gc-figure 3"] {
        let output = run(&format!("{line} --svg {}", path.display()));
        assert_eq!(output.status.code(), Some(0), "{line}: {}", said(&output));
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("<svg "), "{line}");
    }
    let output = run("table --svg /no/such/directory/x.svg");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("/no/such/directory/x.svg"));
}

#[test]
fn one_term_is_solved_with_any_approval_and_with_installed_files() {
    let by = |approval: &str| json(&format!("gc --term 10s --sharing 10 --approval {approval}"));
    for (approval, messages) in [("multicast", 10.0), ("unicast", 18.0), ("demand", 28.0)] {
        near(number(&by(approval), "approval_messages"), messages);
    }
    assert!(number(&by("demand"), "load_per_s") > number(&by("multicast"), "load_per_s"));
    // The paper's own point: a term of 10 s has a tenth of the load.
    let alone = json("gc");
    assert!((number(&alone, "load_per_s") / number(&alone, "load_without_per_s") - 0.1).abs() < 0.005 && alone["benefit"].is_null());
    // One multicast each 10 s, for one cache and for a thousand.
    let installed = |clients: u32| number(&json(&format!("gc --clients {clients} --writes 1e-9/s --installed 99.9999999%")), "load_per_s");
    assert!((installed(1_000) - 0.1).abs() < 1e-3 && (installed(1) - 0.1).abs() < 1e-6);
    assert_eq!(run("gc --every 1s").status.code(), Some(2), "without --installed there is nothing to send");
}

#[test]
fn what_is_available_has_its_own_digits() {
    let answer = json("availability --lambda 1e12/s --mu 1e-9/s --lease 2s --rho 10/s");
    let available = number(&answer["available"], "opportunistic");
    // Of the balance equations with 80 digits, stage by stage; 1 less the rest has seven.
    assert!((available / 1.999_999_996e-9 - 1.0).abs() < 1e-11, "{available:e}");
}

#[test]
fn consoles_in_the_manual_show_what_the_commands_print() {
    let manual = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/models.md")).unwrap();
    assert!(consoles(&manual, LAB) > 0);
}

#[test]
fn simulated_and_solved_are_near() {
    // Exits with 0 only if all points are within 15 %.
    let pairs = json("simulate --requests 40000 --seed 1");
    let pairs = pairs.as_array().unwrap();
    assert!(pairs.len() > 50);
    assert!(pairs.iter().all(|pair| number(pair, "off").abs() <= 0.15 && number(pair, "solved") > 0.0 && pair["why"].is_null()));
    let of = |quantity: &str| pairs.iter().filter(|pair| pair["quantity"] == quantity).count();
    assert!(of("overhead") > 0 && of("unavailable") > 0);
}

#[test]
fn points_that_are_far_off_say_why_and_end_in_a_failure() {
    let output = run("simulate --requests 1000 --seed 3 --json");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("points are more than 15 % off"), "{}", said(&output));
    let pairs: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for pair in &pairs {
        assert_eq!(number(pair, "off").abs() > 0.15, pair["why"].is_string(), "{pair}");
    }
    let reasons = pairs.iter().filter_map(|pair| pair["why"].as_str());
    assert!(
        reasons.clone().count() > 0 && reasons.clone().all(|why| why.contains("renewals or outages")),
        "{:?}",
        reasons.collect::<Vec<_>>()
    );
}

/// Counts what real processes sent; how near it is to the solution depends on how busy the machine is, so only the order is claimed.
#[test]
fn measured_overhead_is_less_with_opportunistic_renewal() {
    let points = json("measure --lease 200ms --duration 4s --agents 2");
    let points = points.as_array().unwrap();
    assert_eq!(points.len(), 10);
    let of = |policy: &str, field: &str| points.iter().filter(|p| p["policy"] == policy).map(|p| number(p, field)).collect::<Vec<_>>();
    let (opportunistic, explicit) = (of("opportunistic", "measured"), of("explicit", "measured"));
    assert!(of("opportunistic", "requests").iter().all(|requests| *requests > 0.0) && explicit.iter().all(|overhead| *overhead > 0.0));
    assert!(opportunistic[4] < explicit[4], "{points:?}");
    let refused = run("measure --lease 10s --duration 20s");
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
}

#[test]
fn what_no_model_can_be_solved_for_is_refused_in_words() {
    for (line, words) in [
        ("overhead --tau-rho 0", "above zero"),
        ("overhead --tau-rho -3", "above zero"),
        ("overhead --tau-rho nan", "above zero"),
        ("overhead --tau-rho inf", "above zero"),
        ("overhead --tau-rho ten", "not a number"),
        ("overhead --tau-rho 1e29", "no digits are promised"),
        ("overhead --tau-rho 10 --k 0", "1..=1000000"),
        ("overhead --tau-rho 10 --k 10000000", "1..=1000000"),
        ("availability --lambda 0 --mu 1 --lease 1s --rho 1", "above zero"),
        ("availability --lambda 1 --mu 1e-17 --lease 1s --rho 1", "no digits are promised"),
        ("availability --lambda 1 --mu 1 --lease 1w --rho 1", "no unit of time"),
        ("choose-k --delta 2", "below 1"),
        ("figure 9", "7..=8"),
        ("availability --lambda 1e-320/d --mu 1/s --lease 2s --rho 10/s", "between 1e-30 and 1e30"),
        ("compare --agents 1e308", "between 1e-30 and 1e30"),
        ("compare --objects 1e13", "at most 1e12"),
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", said(&output));
        assert!(said(&output).contains(words) && output.stdout.is_empty(), "{line}: {}", said(&output));
    }
    let output = run("simulate --capture /no/such/capture");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

/// What the command lines take at their utmost is solved or refused: no program ends in a panic.
#[test]
fn extreme_quantities_are_solved_or_refused() {
    let flags: [(&str, &Flags<'_>); 4] = [
        (
            "overhead --tau-rho 10",
            &[
                ("--tau-rho", &NUMBERS),
                ("--sigma", &NUMBERS),
                ("--mu 1 --lambda", &NUMBERS),
                ("--lambda 1 --mu", &NUMBERS),
                ("--k", &["1", "1000000"]),
            ],
        ),
        (
            "availability --lambda 1/h --mu 0.5/s --lease 2s --rho 10/s",
            &[
                ("--lambda", &RATES),
                ("--mu", &RATES),
                ("--lease", &TIMES),
                ("--rho", &RATES),
                ("--sigma", &RATES),
                ("--k", &["1", "1000000"]),
            ],
        ),
        ("choose-k", &[("--delta", &SHARES), ("--epsilon", &SHARES)]),
        (
            "compare",
            &[
                ("--agents", &NUMBERS),
                ("--objects", &NUMBERS),
                ("--volumes", &NUMBERS),
                ("--agents 1e12 --volumes 1e12 --objects", &NUMBERS),
                ("--reads", &RATES),
                ("--rate", &RATES),
                ("--lease", &TIMES),
                ("--long-term", &TIMES),
                ("--fail-every", &TIMES),
                ("--repair", &TIMES),
            ],
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    let picture = format!(" --svg {}", dir.path().join("picture.svg").display());
    for (base, flags) in flags {
        solved_or_refused(LAB, base, flags, &["", &picture, " --json", " --csv"]);
    }
    for line in
        ["measure --lease 1e9", "measure --duration 1e9", "measure --lease 1ns", "simulate --requests 1000 --seed 18446744073709551615"]
    {
        let output = run(line);
        assert!(matches!(output.status.code(), Some(0..=2)), "{line}: {}", said(&output));
    }
}

#[test]
fn requests_of_a_capture_are_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("seen.pcap");
    let mut writer = Writer::create(&path).unwrap();
    let (agent, server) = ("127.0.0.1:1000".parse().unwrap(), "127.0.0.1:7311".parse().unwrap());
    for nonce in 1..=8 {
        let mut buf = Vec::new();
        let mut packer = Packer::new(&mut buf, Header { from_server: false, session: SessionId(1), packet: nonce }, 1_232);
        assert!(packer.push(&Message::ServerStatus(ServerStatus { ask: Ask { nonce, back: 0, limit: 1_232 } })));
        packer.finish();
        writer.write(Duration::from_millis(50 * nonce), agent, server, &buf).unwrap();
    }
    writer.flush().unwrap();
    // So few requests that some points are far off.
    let output = run(&format!("simulate --requests 1000 --capture {} --json", path.display()));
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", said(&output));
    let traced: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(traced.as_array().unwrap().iter().any(|pair| pair["arrivals"] == "traced"));
}
