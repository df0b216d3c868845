//! Metrics and figures: what was done is what is told, in the format that is promised; nobody can hold the port.

use cistern_testkit::{Agent, PATIENCE, Server, said};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;

/// Sends bytes to the port, and gives all that comes back.
pub(crate) fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    String::from_utf8(response).unwrap()
}

pub(crate) fn scrape(address: SocketAddr) -> String {
    let response = exchange(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n");
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    body.to_owned()
}

/// Samples by name and labels as they stand. Panics at anything that the text format does not allow.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let name_of = |text: &str| {
        let valid = |at: usize, c: char| c.is_ascii_alphabetic() || c == '_' || c == ':' || (at > 0 && c.is_ascii_digit());
        assert!(!text.is_empty() && text.chars().enumerate().all(|(at, c)| valid(at, c)), "no name: {text:?}");
        text.to_owned()
    };
    let (mut samples, mut types, mut helps, mut current) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new(), String::new());
    assert!(text.ends_with('\n'), "the last line has an end");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(helps.insert(name_of(name)) && !help.is_empty(), "{line}");
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(name, current, "TYPE stands below the HELP of its family");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        } else {
            let (key, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = key.split_once('{').map_or((key, ""), |(name, rest)| (name, rest.strip_suffix('}').unwrap()));
            name_of(name);
            check_labels(labels);
            let kind = &types[&current];
            let parts: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(parts.iter().any(|part| name == format!("{current}{part}")), "{name} stands among the samples of {current}");
            let value: f64 = value.parse().unwrap_or_else(|e| panic!("{line}: {e}"));
            assert!(value >= 0.0 && value.is_finite(), "{line}");
            assert!(samples.insert(key.to_owned(), value).is_none(), "{key} twice");
        }
    }
    assert_eq!(types.len(), helps.len());
    check_histograms(&samples, &types);
    samples
}

/// `name="value",...`, with `\\`, `\"` and `\n` as the only escapes.
fn check_labels(labels: &str) {
    let mut rest = labels;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{labels}"));
        assert!(
            !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !name.starts_with(|c: char| c.is_ascii_digit()),
            "{labels}"
        );
        let (mut end, mut escaped) = (None, false);
        for (at, c) in after.char_indices() {
            match (escaped, c) {
                (true, '\\' | '"' | 'n') => escaped = false,
                (true, _) => panic!("{labels}"),
                (false, '\\') => escaped = true,
                (false, '"') => {
                    end = Some(at);
                    break;
                }
                (false, _) => {}
            }
        }
        rest = &after[end.unwrap() + 1..];
        rest = rest.strip_prefix(',').unwrap_or_else(|| {
            assert!(rest.is_empty(), "{labels}");
            rest
        });
    }
}

/// The parts of each histogram grow with their bounds, and the last is the count.
fn check_histograms(samples: &BTreeMap<String, f64>, types: &BTreeMap<String, String>) {
    for name in types.iter().filter(|(_, kind)| *kind == "histogram").map(|(name, _)| name) {
        let mut sets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (key, value) in samples.iter().filter(|(key, _)| key.starts_with(&format!("{name}_bucket"))) {
            let labels = key.split_once('{').unwrap().1.strip_suffix('}').unwrap();
            let (others, bound) = labels.rsplit_once("le=\"").unwrap();
            let bound = bound.strip_suffix('"').unwrap();
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
            sets.entry(others.trim_end_matches(',').to_owned()).or_default().push((bound, *value));
        }
        for (labels, mut parts) in sets {
            parts.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(parts.windows(2).all(|two| two[0].1 <= two[1].1), "{name} {labels}");
            let around = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
            let (bound, most) = parts[parts.len() - 1];
            assert!(bound.is_infinite() && samples[&format!("{name}_count{around}")] == most, "{name} {labels}");
            assert!(samples.contains_key(&format!("{name}_sum{around}")));
        }
    }
}

fn with_metrics() -> (Server, SocketAddr) {
    let server = Server::with(&["--http", "0"]);
    let address: SocketAddr = server.process.ready["http"].as_str().unwrap().parse().unwrap();
    assert!(address.ip().is_loopback(), "a port alone is on loopback");
    (server, address)
}

#[test]
fn what_was_done_is_what_a_scrape_tells() {
    let (server, address) = with_metrics();
    let before = parse(&scrape(address));
    assert_eq!(before["cistern_stored_objects"], 1.0, "the root directory");
    let mut a = Agent::start(&server, "A");
    let mut b = Agent::start(&server, "B");
    for n in 0..5 {
        a.put(&format!("/f{n}"), "12345");
    }
    let mut user = a.line();
    let (hold, _) = user.lock("/f1");
    let refused = b.line().ask(&serde_json::json!({ "op": "lock", "path": "/f1", "shared": false, "wait_ms": 0 }));
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(b.read("/f1").unwrap(), cistern_testkit::base64(b"12345"));

    let after = parse(&scrape(address));
    let get = |name: &str| after.get(name).copied().unwrap_or_else(|| panic!("no {name} in {after:#?}"));
    assert_eq!((get("cistern_stored_objects"), get("cistern_stored_content_bytes")), (6.0, 25.0));
    assert_eq!(get("cistern_sessions{standing=\"good\"}"), 2.0);
    assert_eq!(get("cistern_sessions_opened_total"), 2.0);
    assert!(get("cistern_locks") >= 1.0);
    let results: f64 = after.iter().filter(|(key, _)| key.starts_with("cistern_requests_total{")).map(|(_, value)| value).sum();
    assert_eq!(results, get("cistern_requests_begun_total"), "each request that was begun has come to a result");
    assert_eq!(get("cistern_requests_total{kind=\"WRITE\",result=\"OK\"}"), 5.0);
    let locks: f64 = after.iter().filter(|(key, _)| key.starts_with("cistern_requests_total{kind=\"LOCK\"")).map(|(_, value)| value).sum();
    assert!(locks >= 2.0);
    let commits = get("cistern_commit_batches_count");
    assert!(commits > before["cistern_commit_batches_count"] && get("cistern_commit_batches_sum") == get("cistern_batches_total"));
    assert!(get("cistern_datagrams_received_total") > 0.0 && get("process_resident_memory_bytes") > 1e6);
    assert_eq!(get("cistern_sessions{standing=\"timing_out\"}"), 0.0);
    for (name, value) in before.iter().filter(|(key, _)| key.contains("_total")) {
        assert!(after[name] >= *value, "{name} went back from {value} to {}", after[name]);
    }
    user.unlock(hold);
}

#[test]
fn operators_are_told_the_same_figures_by_the_control_socket() {
    let (server, address) = with_metrics();
    Agent::start(&server, "A").put("/f", "text");
    let scraped = parse(&scrape(address));
    let control = server.control().to_str().unwrap().to_owned();
    let output = server.ok(&["admin", "stats", "--json", "--control", &control]);
    let stats: serde_json::Value = serde_json::from_str(&output).unwrap();
    for (key, value) in scraped.iter().filter(|(key, _)| key.starts_with("cistern_stored") || key.starts_with("cistern_requests_begun")) {
        assert_eq!(stats[key]["samples"][0]["value"].as_f64(), Some(*value), "{key}");
    }
    let table = server.ok(&["admin", "stats", "--control", &control]);
    assert!(table.lines().any(|line| line.starts_with("cistern_stored_objects ") && line.ends_with(" 2")), "{table}");
    let none = server.cistern(&["admin", "stats", "--control", "/nonexistent/control.sock"]);
    assert!(none.status.code() == Some(69) && said(&none).contains("/nonexistent/control.sock"), "{}", said(&none));
}

#[test]
fn whoever_sends_nonsense_or_nothing_to_the_port_is_refused_and_the_next_is_served() {
    let (server, address) = with_metrics();
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    for (request, status) in [
        (&b"GET /elsewhere HTTP/1.1\r\n\r\n"[..], "404"),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", "400"),
        (b"GET /metrics HTTP/9\r\n\r\n", "400"),
    ] {
        let response = exchange(address, request);
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
    }
    // The rest of a head that is too long may be reset away together with the answer to it.
    let mut stream = TcpStream::connect(address).unwrap();
    let _ = stream.write_all(long.as_bytes());
    drop(stream);
    // Nothing at all is sent: it is let go after its time, which is bounded.
    let silent = TcpStream::connect(address).unwrap();
    let gone = TcpStream::connect(address).unwrap();
    gone.shutdown(Shutdown::Write).unwrap();
    parse(&scrape(address));
    drop(silent);
    Agent::start(&server, "A").put("/f", "served all the while");
}

#[test]
fn many_silent_connections_keep_nobody_from_a_scrape() {
    let (_server, address) = with_metrics();
    // If each were waited for in turn, all of them would take longer than anything here waits.
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    for _ in 0..3 {
        parse(&scrape(address));
    }
    drop(silent);
}

#[test]
fn a_head_that_is_too_long_is_refused_also_when_it_comes_with_its_end() {
    let (_server, address) = with_metrics();
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(8_300));
    // It is read to its end, so that the answer is not reset away.
    let response = exchange(address, long.as_bytes());
    assert!(response.starts_with("HTTP/1.1 431 "), "{response}");
}

#[test]
fn idle_time_is_no_stall() {
    let (_server, address) = with_metrics();
    let look = || {
        let all = parse(&scrape(address));
        (all["cistern_uptime_seconds"], all["cistern_stalled_seconds_total"])
    };
    let (began, stalled) = look();
    let (uptime, now) = cistern_testkit::eventually("some idle seconds have passed", || {
        std::thread::sleep(std::time::Duration::from_secs(1));
        let (uptime, now) = look();
        (uptime - began > 4.0).then_some((uptime - began, now - stalled))
    });
    assert!(now < uptime / 2.0, "of {uptime} idle seconds {now} count as stalled");
}

#[test]
fn the_format_is_what_promtool_takes() {
    if Command::new("promtool").arg("--version").output().is_err() {
        eprintln!("skipped: promtool is not installed");
        return;
    }
    let (_server, address) = with_metrics();
    let mut check = Command::new("promtool").args(["check", "metrics"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(scrape(address).as_bytes()).unwrap();
    assert!(check.wait().unwrap().success());
}

#[test]
fn an_address_in_use_is_told_by_name() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("server");
    let args = ["--volatile", "--insecure", "--listen", "127.0.0.1:0", "--state", state.to_str().unwrap(), "--http", &address];
    let output = cistern_testkit::command(cistern_testkit::CISTERND, &args).output().unwrap();
    assert!(output.status.code() == Some(1) && said(&output).contains(&address) && said(&output).contains("--http"), "{}", said(&output));
}

#[test]
fn what_was_removed_is_not_counted_as_memory() {
    let server = Server::with(&["--http", "0"]);
    let agent = Agent::start(&server, "A");
    let mut line = agent.line();
    for n in 0..300 {
        line.ok(serde_json::json!({ "op": "mkdir", "path": format!("/d{n}"), "mode": "0755" }));
        line.ok(serde_json::json!({ "op": "put", "path": format!("/f{n}"), "data": "dGV4dA==" }));
    }
    for n in 0..300 {
        line.ok(serde_json::json!({ "op": "rmdir", "path": format!("/d{n}") }));
        line.ok(serde_json::json!({ "op": "unlink", "path": format!("/f{n}"), "force": false }));
    }
    let address = server.process.ready["http"].as_str().unwrap().parse().unwrap();
    let samples = parse(&scrape(address));
    assert!(samples["cistern_memory_objects"] < 20.0, "{} objects", samples["cistern_memory_objects"]);
    assert!(samples["cistern_memory_blocks"] < 20.0, "{} blocks", samples["cistern_memory_blocks"]);
}
