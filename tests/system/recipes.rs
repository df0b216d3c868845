//! Recipes on real processes: what they promise when participants are killed, stopped and cut off.

use crate::relay::Relay;
use cistern_testkit::{Agent, PATIENCE, Process, Server, eventually};
use nix::sys::signal::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A file to which commands write what they do, each line at once.
struct Trace(tempfile::TempDir);

impl Trace {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("trace")
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(self.path()).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn count(&self, first: &str) -> usize {
        self.lines().iter().filter(|line| line.starts_with(first)).count()
    }

    /// A command that says its name, its token, and every 50 ms that it goes on. It outlives SIGTERM.
    fn beats(&self, name: &str) -> String {
        let to = self.path();
        format!("trap '' TERM; while :; do echo {name} $CISTERN_TOKEN >> {}; sleep 0.05; done", to.display())
    }

    /// A command that says its name, and ends when it is allowed to.
    fn once(&self, name: &str) -> String {
        let (to, may) = (self.path(), self.may_end(name));
        format!("echo {name} $CISTERN_TOKEN >> {}; until [ -e {} ]; do sleep 0.02; done", to.display(), may.display())
    }

    fn may_end(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn let_end(&self, name: &str) {
        fs::write(self.may_end(name), "").unwrap();
    }
}

fn spawn(command: &mut Command) -> Process {
    Process::spawn(command.stdout(Stdio::null()).stderr(Stdio::inherit())).unwrap()
}

/// `cistern` beside a server, by an agent of its own at this address.
fn by(server: &Server, address: impl ToString, args: &[&str]) -> Process {
    spawn(server.prepared(args).env("CISTERN_SERVER", address.to_string()))
}

fn through(server: &Server, agent: &Agent, args: &[&str]) -> Process {
    spawn(server.prepared(args).env("CISTERN_AGENT", agent.socket()))
}

/// Of lines NAME TOKEN: the tokens never become smaller, and each name that comes has another token.
fn assert_ordered(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    let rows: Vec<(&str, u64)> =
        text.lines().filter_map(|line| line.split_once(' ')).map(|(name, token)| (name, token.parse().unwrap())).collect();
    for pair in rows.windows(2) {
        let ((name, token), (next, later)) = (pair[0], pair[1]);
        assert!(later >= token, "{name} under {token} acts before {next} under {later}");
        assert!(name == next || later > token, "{name} and {next} act under the same token {token}");
    }
}

#[test]
fn no_more_commands_run_than_there_are_slots_although_one_is_killed() {
    let server = Server::start();
    let (trace, host) = (Trace::new(), Agent::start(&server, "host"));
    let lock = |name: &str| {
        [String::from("lock"), "--slots".into(), "2".into(), "/s".into(), "--".into(), "sh".into(), "-c".into(), trace.once(name)]
    };
    let run = |name: &str, via_host: bool| {
        let args = lock(name);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        if via_host { through(&server, &host, &args) } else { by(&server, server.address, &args) }
    };
    let mut a = run("a", false);
    eventually("a runs", || (trace.count("a") == 1).then_some(()));
    let mut b = run("b", true);
    eventually("b runs", || (trace.count("b") == 1).then_some(()));
    let mut c = run("c", false);
    eventually("c waits for both slots", || {
        let rows = server.ok(&["locks", "--json"]);
        (rows.matches("\"waits\"").count() == 2).then_some(())
    });
    let mut d = run("d", true);
    // Neither of both goes on; whoever only tries is told.
    let tried = server.cistern(&["lock", "--slots", "2", "--try", "/s", "--", "true"]);
    assert_eq!(tried.status.code(), Some(75));
    assert_eq!((trace.count("c"), trace.count("d")), (0, 0));
    // Killed with its agent, and killed beside its agent: what it started is gone before the next runs.
    a.kill();
    eventually("c runs", || (trace.count("c") == 1).then_some(()));
    assert_eq!(trace.count("d"), 0);
    b.kill();
    eventually("d runs", || (trace.count("d") == 1).then_some(()));
    trace.let_end("c");
    trace.let_end("d");
    assert_eq!((c.ended(), d.ended()), (Some(0), Some(0)));
}

#[test]
fn a_holder_of_a_slot_that_is_cut_off_is_stopped_before_the_slot_is_anothers() {
    let server = Server::start();
    let (trace, relay) = (Trace::new(), Relay::start(server.address));
    let args = |name| ["lock", "--slots", "1", "/s", "--", "sh", "-c", name];
    let (first, second) = (trace.beats("first"), trace.beats("second"));
    let mut cut_off = by(&server, relay.address, &args(&first));
    eventually("it runs", || (trace.count("first") > 0).then_some(()));
    let _waits = by(&server, server.address, &args(&second));
    relay.cut();
    assert_eq!(cut_off.ended(), Some(79));
    eventually("the other runs", || (trace.count("second") > 5).then_some(()));
    assert_ordered(&trace.path());
}

#[test]
fn a_leader_that_is_killed_is_followed_by_the_next_and_everybody_is_told() {
    let server = Server::start();
    let (trace, host) = (Trace::new(), Agent::start(&server, "host"));
    let scripts = [trace.beats("a"), trace.beats("b"), trace.once("c")];
    let elect = |at: usize, name: &'static str| -> Vec<String> {
        ["elect", "--data", name, "/e", "--", "sh", "-c", &scripts[at]].map(str::to_owned).into()
    };
    let run = |args: &[String], via_host: bool| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        if via_host { through(&server, &host, &args) } else { by(&server, server.address, &args) }
    };
    assert_eq!(server.cistern(&["leader", "/e"]).status.code(), Some(1), "nobody leads yet");
    let leads = |name: &str| {
        eventually(&format!("{name} leads"), || {
            let said = server.cistern(&["leader", "/e"]).stdout;
            (String::from_utf8_lossy(&said).trim() == name && trace.count(name) > 0).then_some(())
        });
    };
    let mut a = run(&elect(0, "a"), true);
    leads("a");
    let mut follower = Process::spawn(server.prepared(&["leader", "--follow", "/e"]).stdout(Stdio::piped())).unwrap();
    let mut b = run(&elect(1, "b"), false);
    eventually("b waits", || server.ok(&["locks", "/e/lock"]).contains("waits").then_some(()));
    // Through the host's agent: the agent goes on, and so does the session.
    a.kill();
    leads("b");
    // With the agent of its own: the session has to be over.
    let mut c = run(&elect(2, "c"), true);
    b.kill();
    leads("c");
    // Asked to end, it stops its command, and nobody leads.
    c.signal(Signal::SIGTERM);
    assert!(c.ended().is_some());
    eventually("nobody leads", || (server.cistern(&["leader", "/e"]).status.code() == Some(1)).then_some(()));
    assert_ordered(&trace.path());
    // Between two leaders there may be nobody for a moment.
    let mut led = Vec::new();
    while led.len() < 3 {
        let line = follower.line().expect("the follower goes on");
        led.extend(line.strip_prefix("leader").map(|name| name.trim().to_owned()));
    }
    assert_eq!((led, follower.line().as_deref()), (vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], Some("nobody")));
    assert_eq!(follower.end(), Some(0));
}

#[test]
fn a_leader_that_is_cut_off_stops_before_the_next_and_is_a_candidate_again() {
    let server = Server::start();
    let (trace, relay) = (Trace::new(), Relay::start(server.address));
    let (a, b) = (trace.beats("a"), trace.once("b"));
    let mut first = by(&server, relay.address, &["elect", "--data", "a", "/e", "--", "sh", "-c", &a]);
    eventually("a leads", || (trace.count("a") > 0).then_some(()));
    let mut second = by(&server, server.address, &["elect", "--data", "b", "/e", "--", "sh", "-c", &b]);
    eventually("b waits", || server.ok(&["locks", "/e/lock"]).contains("waits").then_some(()));
    relay.cut();
    eventually("b leads", || (trace.count("b") > 0).then_some(()));
    let beats = trace.count("a");
    assert_eq!(server.ok(&["leader", "/e"]), "b\n");
    relay.heal();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(trace.count("a"), beats, "it was stopped");
    trace.let_end("b");
    assert_eq!(second.ended(), Some(0));
    eventually("a leads again", || (trace.count("a") > beats).then_some(()));
    assert_eq!(server.ok(&["leader", "/e"]), "a\n");
    assert_ordered(&trace.path());
    first.signal(Signal::SIGKILL);
    assert!(first.ended_within(PATIENCE).is_some());
}
