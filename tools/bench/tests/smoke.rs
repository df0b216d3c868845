//! Short runs of the real thing: processes started, sessions opened, every workload measured.
//!
//! Asserts that the figures are there, belong to operations that took place, and agree with one another, never how large they are.

use serde_json::Value;
use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cistern-bench")).args(args).output().expect("the bench starts")
}

/// One short round of a workload.
fn short(workload: &str, more: &[&str]) -> Value {
    let seconds: &[&str] = if more.contains(&"--duration") { &[] } else { &["--duration", "30ms"] };
    let output = bench(&[&[workload, "--rounds", "1", "--json"], seconds, more].concat());
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The rows of the one section of a report.
fn rows<'r>(report: &'r Value, workload: &str) -> &'r Vec<Value> {
    let sections = report["sections"].as_array().expect("a list");
    assert_eq!(sections.len(), 1);
    assert_eq!(sections[0]["name"], workload);
    sections[0]["rows"].as_array().expect("a list")
}

/// The figure of that name, of a spread its median.
fn number(row: &Value, key: &str) -> f64 {
    let figure = &row[key];
    figure.as_f64().or_else(|| figure["median"].as_f64()).unwrap_or_else(|| panic!("no {key}: {row}"))
}

fn load(row: &Value) -> &str {
    row["load"].as_str().expect("a load")
}

fn aims<'r>(report: &'r Value, id: &str) -> Vec<&'r Value> {
    report["aims"].as_array().expect("a list").iter().filter(|aim| aim["aim"] == id).collect()
}

#[test]
fn every_request_is_measured_beside_its_echo_and_packing_saves_datagrams() {
    let report = short("echo", &["--in-flight", "4"]);
    let rows = rows(&report, "echo");
    assert_eq!(rows.len(), 31);
    for row in rows {
        assert!(number(row, "operations") > 0.0 && number(row, "cpu_us") > 0.0, "{row}");
        assert!(number(row, "p50_us") <= number(row, "p99_us") && number(row, "p99_us") <= number(row, "p999_us"), "{row}");
        // A message sent again makes more of them.
        let alone =
            number(row, "datagrams") >= 1.999 || load(row).contains(" 4 ") || load(row).contains("echo") || number(row, "resent") > 0.0;
        assert!(alone, "{row}");
    }
    let packed = rows.iter().find(|row| load(row).starts_with("getattr, 1 agent, packed")).expect("a row");
    assert!(number(packed, "datagrams") <= 1.0, "four requests share a datagram, and so do their answers: {packed}");
    for id in ["P1", "P3"] {
        assert!(aims(&report, id)[0]["reached"].is_boolean(), "{id}");
    }
    assert!(aims(&report, "P5")[0]["reached"].is_null(), "what was not measured has no verdict");
}

#[test]
fn closed_and_open_loops_are_measured_and_the_open_one_keeps_its_rate() {
    let report = short("loads", &["--rate", "2000"]);
    let rows = rows(&report, "loads");
    let closed = rows.iter().filter(|row| load(row).starts_with("closed")).count();
    assert_eq!((closed, rows.len()), (9, 10));
    assert!(rows.iter().all(|row| number(row, "operations") > 0.0));
    // 2,000 a second for 0.03 s: neither more nor fewer than were due.
    assert!((number(&rows[9], "operations") - 60.0).abs() <= 1.0, "{}", rows[9]);
}

#[test]
fn server_that_spins_is_measured_beside_one_that_sleeps() {
    let report = short("spin", &[]);
    let rows = rows(&report, "spin");
    assert_eq!(rows.len(), 4);
    for pair in rows.chunks(2) {
        assert!(number(&pair[0], "p50_over_sleeping") > 0.0 && number(&pair[0], "cpu_over_sleeping") > 0.0, "{}", pair[0]);
        assert!(number(&pair[1], "sleeps") > 0.0, "{}", pair[1]);
    }
}

#[test]
fn requests_among_many_sessions_and_their_locks_are_measured_beside_few() {
    let report = short("sessions", &["--most-sessions", "1000", "--locks", "16000"]);
    let rows = rows(&report, "sessions");
    let of = |size: &str| rows[..8].iter().filter(|row| load(row).ends_with(size) && number(row, "operations") > 0.0).collect::<Vec<_>>();
    let (few, many) = (of(", 100 sessions, 2,048 locks"), of(", 1,000 sessions, 16,000 locks"));
    assert_eq!((few.len(), many.len(), rows.len()), (4, 4, 9), "{rows:?}");
    assert!(many.iter().all(|row| number(row, "many_over_few") > 0.0));
    let datagrams = |at: usize| number(many[at], "datagrams");
    assert!(datagrams(0) >= 1.999 && datagrams(1) >= 1.999, "a datagram each way: {many:?}");
    assert!(datagrams(2) < 0.5 && datagrams(3) < 0.5, "sixteen share them: {many:?}");
    let memory = rows.iter().find(|row| load(row).starts_with("memory")).expect("a row");
    assert!(number(memory, "session_bytes") > 0.0 && number(memory, "lock_bytes") > 0.0, "{memory}");
    assert!(aims(&report, "P6").iter().all(|aim| aim["reached"].is_null()), "these are no million");
}

#[test]
fn sealed_sessions_are_opened_beside_plain_ones_and_cost_the_loop_less_than_all_threads() {
    let report = short("handshakes", &[]);
    let rows = rows(&report, "handshakes");
    assert_eq!(rows.iter().map(load).collect::<Vec<_>>(), ["plain", "sealed"]);
    for row in rows {
        assert!(number(row, "sessions") > 0.0 && number(row, "loop_us") > 0.0, "{row}");
    }
    assert!(number(&rows[1], "all_us") > number(&rows[1], "loop_us"), "workers compute the handshakes: {}", rows[1]);
    assert_eq!(aims(&report, "P10").iter().filter(|aim| aim["reached"].is_boolean()).count(), 2);
}

#[test]
fn idle_sessions_cause_no_datagram() {
    let report = short("idle", &["--sessions", "100"]);
    let rows = rows(&report, "idle");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!((number(row, "sessions"), number(row, "datagrams")), (100.0, 0.0), "{row}");
    }
}

#[test]
fn contended_lock_goes_round_by_demands_and_everybody_gets_it() {
    let report = short("contended", &[]);
    let rows = rows(&report, "contended");
    assert_eq!(rows.len(), 4);
    assert!(number(&rows[0], "grants") > 0.0 && number(&rows[0], "demands") < 1.0, "nobody else wants it: {}", rows[0]);
    for row in &rows[1..] {
        let (grants, demands) = (number(row, "grants"), number(row, "demands"));
        assert!(demands > 0.0 && number(row, "fewest") > 0.0, "{row}");
        // A holder is asked at most once for each time it was given the lock; one more may be under way when counting begins.
        assert!(demands <= grants + 32.0, "{row}");
    }
}

#[test]
fn what_the_host_has_is_answered_without_a_datagram() {
    let report = short("cached", &[]);
    let rows = rows(&report, "cached");
    for row in rows.iter().filter(|row| !load(row).starts_with('(')) {
        assert!(number(row, "ns") > 0.0 && number(row, "calls") >= 20_000.0, "{row}");
        assert!(number(row, "datagrams").abs() < 0.5, "{row}");
    }
    for aim in [aims(&report, "P3"), aims(&report, "P4")].concat().iter().filter(|aim| aim["by"] == "cistern-bench cached") {
        assert!(aim["reached"].is_boolean(), "{aim}");
    }
}

#[test]
fn mixed_work_succeeds_and_its_kinds_add_up() {
    let report = short("mixed", &[]);
    let rows = rows(&report, "mixed");
    let parts: f64 = rows[1..].iter().map(|row| number(row, "operations")).sum();
    assert!(parts > 0.0 && (parts - number(&rows[0], "operations")).abs() < 0.5, "{rows:?}");
    for row in rows {
        assert!((0.0..=1.0).contains(&number(row, "cached")), "{row}");
    }
    let change = rows.iter().find(|row| load(row) == "set attributes").expect("a row");
    assert!(number(change, "cached").abs() < f64::EPSILON, "no change is made without the server: {change}");
}

#[test]
fn burst_ends_with_every_lock_granted_once() {
    let report = short("burst", &["--locks", "500"]);
    let rows = rows(&report, "burst");
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert!((number(row, "granted") - 500.0).abs() < 0.5 && number(row, "ms") > 0.0, "{row}");
        assert!(number(row, "cpu_us") > 0.0 && number(row, "generator_us") > 0.0, "{row}");
        assert!(number(row, "datagrams") < 2.0, "requests share datagrams: {row}");
    }
}

#[test]
fn failover_never_comes_before_the_holder_s_lease_is_over() {
    let report = short("failover", &["--lease", "200ms"]);
    let rows = rows(&report, "failover");
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert!((number(row, "rounds") - 1.0).abs() < 0.5, "{row}");
        let waits = load(row).starts_with("stopped") || load(row).starts_with("waiter");
        // The lease runs from before the stop; the server waits for it from when it finds the failure.
        assert!(!waits || number(row, "shortest_ms") >= 200.0, "{row}");
    }
}

#[test]
fn renewals_on_purpose_are_counted_at_every_load_and_fewer_with_more_requests() {
    let report = short("renewals", &["--duration", "300ms"]);
    let rows = rows(&report, "renewals");
    let loads: Vec<&Value> = rows.iter().filter(|row| load(row).starts_with('f')).collect();
    assert_eq!(loads.len(), 6);
    let measured: Vec<f64> = loads.iter().map(|row| number(row, "measured")).collect();
    assert!(measured[0] > measured[1] && measured[1] > measured[2], "{measured:?}");
    for row in loads {
        let measured = number(row, "renewals") / number(row, "requests");
        assert!((number(row, "measured") - measured).abs() <= 1e-9, "{row}");
    }
}

#[test]
fn durable_changes_are_measured_at_every_load() {
    let report = short("durable", &["--dir", env!("CARGO_TARGET_TMPDIR")]);
    let rows = rows(&report, "durable");
    let kinds = ["setattr", "write", "create"].map(|kind| rows.iter().filter(|row| load(row).starts_with(kind)).count());
    assert_eq!(kinds, [4, 2, 2]);
    for row in rows {
        assert!(number(row, "exchanges") > 0.0 && number(row, "per_second") > 0.0, "{row}");
        let ratio = number(row, "durable_p50_us") / (number(row, "fdatasync_p50_us") + number(row, "echo_p50_us"));
        assert!((number(row, "ratio") - ratio).abs() < 0.01 * ratio, "{row}");
    }
}

#[test]
fn large_tables_are_measured_beside_small_ones_and_an_idle_core_wants_nothing() {
    let output = bench(&["--json", "--rounds", "1", "scale", "--most-sessions", "2000", "--most-locks", "10000"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let costs = report["costs"].as_array().expect("a list");
    assert_eq!(costs.iter().map(|cost| cost["sessions"].as_u64()).collect::<Vec<_>>(), [Some(1_000), Some(2_000)]);
    for cost in costs {
        assert_eq!((cost["idle_timers"].as_u64(), cost["idle_wakes"].as_bool()), (Some(0), Some(false)), "{cost}");
        for figure in ["getattr_ns", "getattr_ratio", "lock_ns", "lock_ratio"] {
            assert!(cost[figure].as_f64() > Some(0.0), "{figure}: {cost}");
        }
    }
    let steal = &report["steals"][0];
    let (turns, answered) = (steal["turns"].as_u64().expect("a number"), steal["others_answered"].as_u64());
    assert!(turns > 1 && answered >= Some(turns * 64), "others are served in every turn: {steal}");
    let finds = report["finds"].as_array().expect("a list");
    assert_eq!(finds.len(), 10, "five ways at two sizes");
    assert!(finds.iter().all(|find| find["ns"].as_f64() > Some(0.0) && find["ratio"].as_f64() > Some(0.0)), "{finds:?}");
}

#[cfg(feature = "peers")]
#[test]
fn services_that_are_installed_are_measured_and_others_are_named() {
    let report = short("peers", &["--dir", env!("CARGO_TARGET_TMPDIR"), "--sessions", "64", "--warm-up", "50ms"]);
    let section = |name: &str| {
        let found = report["sections"].as_array().expect("a list").iter().find(|section| section["name"] == name);
        found.unwrap_or_else(|| panic!("no section {name}"))
    };
    let rows = |name: &str| section(name)["rows"].as_array().expect("a list");
    for (section_name, figure) in [("peers", "operations"), ("peers idle", "sessions"), ("peers failover", "p50_ms")] {
        let ours = rows(section_name).iter().filter(|row| load(row).contains("Cistern")).count();
        assert!(ours >= 2, "{section_name}: {:?}", rows(section_name));
        for service in ["etcd", "ZooKeeper", "Redis"] {
            let measured = rows(section_name).iter().filter(|row| load(row).contains(service)).collect::<Vec<_>>();
            let notes = section(section_name)["notes"].to_string();
            let skipped = notes.contains(&format!("{service} is not installed"));
            if skipped {
                println!("{section_name}: {service} is not installed, and was skipped");
            }
            assert_eq!(measured.is_empty(), skipped, "{section_name}, {service}: {notes}");
            assert!(measured.iter().all(|row| row[figure].is_null() || number(row, figure) > 0.0), "{measured:?}");
        }
    }
    for row in rows("peers idle").iter().filter(|row| load(row).contains("Cistern")) {
        assert!((number(row, "sessions") - 64.0).abs() < 0.5, "{row}");
    }
}

#[cfg(feature = "peers")]
#[test]
fn writes_with_the_store_on_etcd_are_measured_beside_etcd_s_own() {
    let report = short("on-etcd", &["--dir", env!("CARGO_TARGET_TMPDIR")]);
    let rows = rows(&report, "on-etcd");
    let skipped = report["sections"][0]["notes"].to_string().contains("etcd is not installed");
    assert_eq!(rows.len(), if skipped { 0 } else { 2 }, "{report}");
    for row in rows {
        for figure in ["durable_p50_us", "put_p50_us", "echo_p50_us", "ratio", "per_second", "put_per_second", "rate_ratio"] {
            assert!(number(row, figure) > 0.0, "{figure}: {row}");
        }
    }
}

#[test]
fn agents_are_back_with_their_locks_after_a_restart() {
    let report = short("restart", &["--agents", "8"]);
    let rows = report["sections"][0]["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 3, "{rows:?}");
    for row in rows {
        for (figure, wanted) in [("agents", 8.0), ("without_lock", 0.0), ("locks_lost", 0.0), ("sessions_lost", 0.0)] {
            assert!((number(row, figure) - wanted).abs() < 0.5, "{figure}: {row}");
        }
        assert!(number(row, "all_s") > 0.0 && number(row, "all_killed_s") > number(row, "all_s"), "{row}");
    }
    assert!(number(&rows[2], "resumed") > 7.5, "{:?}", rows[2]);
}

#[test]
fn locks_without_a_server_take_the_messages_and_round_trips_of_the_paper() {
    let report = short("flease", &[]);
    let rows = |section: usize| report["sections"][section]["rows"].as_array().expect("a list");
    for (members, acquire, renew) in [(3, 8.0, [8.0, 4.0]), (5, 16.0, [16.0, 8.0]), (15, 56.0, [56.0, 28.0])] {
        for (by, renew) in ["", ", renewed by WRITE alone"].into_iter().zip(renew) {
            let name = format!("{members} members, link 10 ms{by}");
            let row = rows(0).iter().find(|row| load(row) == name).expect("it was measured");
            for (figure, wanted) in [("acquire_messages", acquire), ("renew_messages", renew), ("acquire_ms", 20.0)] {
                assert!((number(row, figure) - wanted).abs() < 0.5, "{figure}: {row}");
            }
        }
    }
    assert!(rows(0).iter().filter(|row| load(row).contains("nodes")).all(|row| number(row, "leases_s") > 0.0));
    let ours: Vec<_> = rows(1).iter().filter(|row| load(row).starts_with("three members")).collect();
    assert!(ours.len() == 2 && ours.iter().all(|row| number(row, "locks") > 0.0), "{:?}", rows(1));
}

#[test]
fn holders_of_a_group_are_certain_again_after_each_fate_of_their_server() {
    let report = short("group", &["--agents", "4", "--loss", "1s", "--dir", env!("CARGO_TARGET_TMPDIR")]);
    let notes = report["sections"][0]["notes"].to_string();
    let (no_etcd, no_hosts) = (notes.contains("etcd is not installed") || notes.contains("not built"), notes.contains("No hosts"));
    let (of_hosts, rows): (Vec<_>, Vec<_>) = rows(&report, "group").iter().partition(|row| row.get("take_overs").is_some());
    assert_eq!(of_hosts.len(), usize::from(!no_etcd && !no_hosts), "{report}");
    assert!(of_hosts.iter().all(|row| number(row, "lost") < 0.5), "{report}");
    let (peers, rows): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| load(row).contains("its leader killed") || load(row).contains("the same"));
    assert!(peers.iter().all(|row| number(row, "lock_p50_ms") > 0.0), "{report}");
    assert_eq!(
        rows.len(),
        match (no_etcd, no_hosts) {
            (true, _) => 0,
            (_, true) => 3,
            _ => 5,
        },
        "{report}"
    );
    for row in rows {
        assert!(number(row, "certain_p50_ms") > 0.0 && number(row, "certain_p50_ms") <= number(row, "last_max_ms") * 1.01, "{row}");
        assert!(number(row, "lock_p50_ms") > 0.0 && number(row, "lost") < 0.5, "{row}");
    }
}

#[test]
fn impossible_option_is_refused_in_one_clear_line() {
    let output = bench(&["--rounds", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--rounds"), "{output:?}");
}

#[test]
fn workload_that_cannot_be_measured_is_named_with_the_reason() {
    let output = bench(&["durable", "--dir", "/nonexistent", "--duration", "30ms", "--rounds", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("durable could not be measured"), "{output:?}");
}

#[cfg(feature = "peers")]
#[test]
fn service_of_a_bench_that_is_killed_is_ended_and_its_data_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("a directory");
    std::fs::write(data.join("log"), "some").expect("a file");
    let mut service = Command::new("sleep").arg("600").spawn().expect("sleep starts");
    let mut guard = Command::new(env!("CARGO_BIN_EXE_cistern-bench"));
    let guard = guard.arg("end-with").arg(service.id().to_string()).arg(&data).stdin(std::process::Stdio::piped());
    let mut guard = guard.spawn().expect("the bench starts");
    assert!(service.try_wait().expect("it is ours").is_none(), "it runs as long as the bench does");
    // As the kernel does when the bench is gone.
    drop(guard.stdin.take());
    assert!(guard.wait().expect("it is ours").success());
    assert!(!service.wait().expect("it is ours").success() && !data.exists());
}
