//! The program: its exit status, its control socket, its end by a signal.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;

use cistern_testkit::{Daemon, Place, command};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::passing::{echo, socket};

const PROGRAM: &str = "cistern-netfault";

fn run(args: &[&str]) -> Output {
    command(PROGRAM, args).env("CISTERN_LOG", "off").output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A running proxy.
struct Running(Daemon);

impl Running {
    fn start(args: &[&str]) -> Self {
        Self(Daemon::of(&Place::default(), command(PROGRAM, args).arg("--json").env("CISTERN_LOG", "off")))
    }

    fn address(&self) -> SocketAddr {
        self.0.ready["listen"].as_str().unwrap().parse().unwrap()
    }

    /// Sends a signal, and gives the exit status and the counts.
    fn end(&mut self, signal: Signal) -> (Option<i32>, Value) {
        self.0.signal(signal);
        self.ended()
    }

    fn ended(&mut self) -> (Option<i32>, Value) {
        let line = self.0.line().unwrap_or_default();
        (self.0.ended(), serde_json::from_str(&line).unwrap_or(Value::Null))
    }
}

fn ctl(control: &Path, words: &[&str]) -> Output {
    run(&[&["ctl", "--control", control.to_str().unwrap()], words].concat())
}

#[test]
fn second_command_cuts_heals_and_counts_while_the_proxy_runs() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("fault.sock");
    let server = echo().to_string();
    let mut proxy = Running::start(&["--server", &server, "--control", control.to_str().unwrap(), "--seed", "7"]);
    assert_eq!(proxy.0.ready["seed"], 7);
    let (agent, address) = (socket(), proxy.address());
    let cut = ctl(&control, &["cut", "s→a"]);
    assert_eq!((cut.status.code(), said(&cut).as_str()), (Some(0), "#1 cut s->a\n"));
    agent.send_to(b"lost on its way back", address).unwrap();
    let mut stats = Value::Null;
    for _ in 0..500 {
        stats = serde_json::from_slice(&ctl(&control, &["stats", "--json"]).stdout).unwrap();
        if stats["total"]["down"]["lost"]["cut"] == 1 {
            break;
        }
    }
    assert_eq!(stats["total"]["down"]["lost"]["cut"], 1, "{stats}");
    assert_eq!(said(&ctl(&control, &["heal"])), "");
    agent.send_to(b"passes", address).unwrap();
    assert_eq!(agent.recv(&mut [0; 100]).unwrap(), 6);
    let text = said(&ctl(&control, &["stats"]));
    assert!(text.contains("a->s  2 received, 2 passed, 0 lost") && text.contains("1 lost (1 cut)"), "{text}");
    let wrong = ctl(&control, &["loss", "10"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(said(&wrong).contains("column 6"), "{}", said(&wrong));
    assert_eq!(ctl(&control, &["end"]).status.code(), Some(0));
    let (status, stats) = proxy.ended();
    assert_eq!((status, &stats["total"]["up"]["received"]), (Some(0), &Value::from(2)));
    assert!(!control.exists(), "the socket goes with the proxy");
}

#[test]
fn signals_end_it_with_the_counts_and_status_zero() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut proxy = Running::start(&["--server", &echo().to_string(), "--with", "delay 1ms", "--with", "loss 0%"]);
        let agent = socket();
        agent.send_to(b"x", proxy.address()).unwrap();
        agent.recv(&mut [0; 10]).unwrap();
        let (status, stats) = proxy.end(signal);
        assert_eq!((status, &stats["total"]["down"]["sent"]), (Some(0), &Value::from(1)), "{signal:?}");
        assert_eq!(stats["rules"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn what_cannot_be_done_is_told_with_its_status() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("night.fault");
    std::fs::write(&script, "0s cut\n1s losss 10%\n").unwrap();
    let (script, nowhere) = (script.to_str().unwrap(), dir.path().join("nowhere/x"));
    let nowhere = nowhere.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 9] = [
        (&[], 2, "--server"),
        (&["--server", "127.0.0.1:9", "--script", script], 2, "line 2, column 4"),
        (&["check", script], 2, "line 2, column 4"),
        (&["check", nowhere], 1, "nowhere"),
        (&["--server", "127.0.0.1:9", "--with", "cut sideways"], 2, "column 5"),
        (&["--server", "127.0.0.1:9", "--listen", "0.0.0.0:0"], 1, "0.0.0.0:0"),
        (&["--server", "127.0.0.1:9", "--pcap", nowhere], 1, nowhere),
        (&["--server", "127.0.0.1:9", "--control", nowhere], 1, nowhere),
        (&["ctl", "--control", nowhere, "heal"], 1, nowhere),
    ];
    for (args, status, word) in cases {
        let output = run(args);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(word), "{args:?}: {}", said(&output));
    }
}

#[test]
fn addresses_may_be_names_and_without_a_port() {
    let mut proxy = Running::start(&["--server", "localhost", "--listen", "localhost"]);
    assert!(proxy.address().ip().is_loopback() && proxy.address().port() != 0, "{}", proxy.0.ready);
    assert!(proxy.0.ready["server"].as_str().unwrap().ends_with(":7311"), "{}", proxy.0.ready);
    proxy.end(Signal::SIGTERM);
    for (address, status, wrong) in [("http://x", 2, "host:port"), ("nowhere.invalid", 1, "cannot find the host")] {
        let output = run(&["--server", address]);
        assert!(output.status.code() == Some(status) && said(&output).contains(wrong), "{address}: {}", said(&output));
    }
}

#[test]
fn wrong_usage_is_quoted_without_control_characters() {
    let output = run(&["--none\u{202e}\u{7}"]);
    let told = said(&output);
    assert!(output.status.code() == Some(2) && told.contains("--none\\xe2\\x80\\xae") && !told.contains(['\u{202e}', '\u{7}']), "{told:?}");
}

#[test]
fn the_log_has_no_control_characters_of_commands() {
    let dir = tempfile::tempdir().unwrap();
    let (control, log) = (dir.path().join("fault.sock"), dir.path().join("log"));
    let mut command = command(PROGRAM, &["--server", "127.0.0.1:9", "--json", "--control", control.to_str().unwrap()]);
    let mut proxy = Running(Daemon::of(&Place::default(), command.env("CISTERN_LOG", "info").stderr(std::fs::File::create(&log).unwrap())));
    assert!(ctl(&control, &["cut", "agent", "w\u{202e}\u{1b}eb"]).status.success());
    assert_eq!(proxy.end(Signal::SIGTERM).0, Some(0));
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("w\\xe2\\x80\\xae\\x1beb") && !text.contains(['\u{202e}', '\u{1b}']), "{text:?}");
}
