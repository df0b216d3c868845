//! Recipes on real processes: what they promise when participants are killed, stopped and cut off.

use crate::relay::Relay;
use cistern_testkit::{Agent, CISTERN, PATIENCE, Process, Server, eventually, program, said};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A file to which commands write what they do, each line at once.
pub(crate) struct Trace(tempfile::TempDir);

impl Trace {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("trace")
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        fs::read_to_string(self.path()).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    pub(crate) fn count(&self, first: &str) -> usize {
        self.lines().iter().filter(|line| line.starts_with(first)).count()
    }

    /// A command that says its name, its token, and every 50 ms that it goes on. It outlives SIGTERM.
    pub(crate) fn beats(&self, name: &str) -> String {
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
pub(crate) fn by(server: &Server, address: impl ToString, args: &[&str]) -> Process {
    spawn(server.prepared(args).env("CISTERN_SERVER", address.to_string()))
}

pub(crate) fn through(server: &Server, agent: &Agent, args: &[&str]) -> Process {
    spawn(server.prepared(args).env("CISTERN_AGENT", agent.socket()))
}

/// Of lines NAME TOKEN: the tokens never become smaller, and each name that comes has another token.
pub(crate) fn assert_ordered(path: &Path) {
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

#[test]
fn a_command_is_run_for_each_state_of_what_is_watched_also_after_being_cut_off() {
    let server = Server::start();
    let (trace, relay) = (Trace::new(), Relay::start(server.address));
    server.ok(&["mkdir", "/cfg"]);
    put(&server, "/cfg/a", "one");
    let script = format!("cistern --server {} cat /cfg/a >> {}", server.address, trace.path().display());
    let path = format!("{}:{}", program(CISTERN).parent().unwrap().display(), std::env::var("PATH").unwrap());
    let args = ["watch", "/cfg", "--", "sh", "-c", &script];
    let mut watch = spawn(server.prepared(&args).env("CISTERN_SERVER", relay.address.to_string()).env("PATH", path));
    let sees = |text: &str| eventually(text, || (trace.lines().last().map(String::as_str) == Some(text)).then_some(()));
    sees("one");
    put(&server, "/cfg/a", "two");
    sees("two");
    // Replaced by another file; then removed, and there again.
    put(&server, "/cfg/b", "three");
    server.ok(&["mv", "/cfg/b", "/cfg/a"]);
    sees("three");
    relay.cut();
    put(&server, "/cfg/a", "four");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(trace.count("four"), 0, "it is cut off");
    relay.heal();
    sees("four");
    assert_eq!(watch.end(), Some(0));
}

#[test]
fn a_command_that_fails_is_run_again_and_a_watch_outlives_its_agent() {
    let server = Server::start();
    let trace = Trace::new();
    put(&server, "/f", "one");
    let mut host = Agent::start(&server, "host");
    // It fails until it is allowed to succeed.
    let script = format!("echo run >> {}; [ -e {} ]", trace.path().display(), trace.may_end("ok").display());
    let mut watch = through(&server, &host, &["watch", "--changes", "/f", "--", "sh", "-c", &script]);
    eventually("it is watched", || (host.count("watches") == 2).then_some(()));
    assert_eq!(trace.lines().len(), 0, "nothing has changed");
    put(&server, "/f", "two");
    eventually("it is run again", || (trace.lines().len() > 1).then_some(()));
    trace.let_end("ok");
    host.process.kill();
    put(&server, "/f", "three");
    let runs = trace.lines().len();
    let mut host = Agent::start(&server, "host");
    eventually("the change is seen", || (trace.lines().len() > runs).then_some(()));
    eventually("it is watched", || (host.count("watches") == 2).then_some(()));
    assert_eq!(watch.end(), Some(0));
}

#[test]
fn a_period_is_run_once_on_many_hosts_whatever_their_clocks_say() {
    let server = Server::start();
    let trace = Trace::new();
    let host = Agent::start(&server, "host");
    let script = format!("echo $CISTERN_PERIOD >> {}; sleep 0.3", trace.path().display());
    let once = |period: &str| ["once", "--period", period, "/daily", "--", "sh", "-c", &script].map(str::to_owned);
    let run = |period: &str, via_host: bool| {
        let args = once(period);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        if via_host { through(&server, &host, &args) } else { by(&server, server.address, &args) }
    };
    let mut all: Vec<Process> = (0..6).map(|n| run("2026-11-28", n % 2 == 0)).collect();
    for one in &mut all {
        assert_eq!(one.ended(), Some(0));
    }
    assert_eq!(trace.lines(), ["2026-11-28"]);
    let record = |name: &str| serde_json::from_str::<Value>(&server.ok(&["cat", "/daily"])).unwrap()[name].clone();
    assert_eq!((record("period"), record("status")), ("2026-11-28".into(), 0.into()));
    // One whose clock is behind; one that is ahead, after which the others find that done.
    assert_eq!(run("2026-11-27", false).ended(), Some(3));
    assert_eq!(run("2026-11-29", true).ended(), Some(0));
    assert_eq!(run("2026-11-29", false).ended(), Some(0));
    assert_eq!(trace.lines(), ["2026-11-28", "2026-11-29"]);
    // By this host's clock: at most two periods pass.
    let every =
        || server.cistern(&["once", "--every", "1d", "/clock", "--", "sh", "-c", &format!("echo day >> {}", trace.path().display())]);
    for _ in 0..4 {
        assert_eq!(every().status.code(), Some(0));
    }
    assert!((1..=2).contains(&trace.count("day")));
}

#[test]
fn a_run_that_was_lost_is_on_record_and_is_run_again_only_if_asked_for() {
    let server = Server::start();
    let trace = Trace::new();
    let first = trace.beats("first");
    let mut lost = by(&server, server.address, &["once", "--period", "1", "/job", "--", "sh", "-c", &first]);
    eventually("it runs", || (trace.count("first") > 0).then_some(()));
    lost.kill();
    let second = format!("echo second $CISTERN_TOKEN >> {}", trace.path().display());
    let again = |more: &[&str]| server.cistern(&[&["once", "--period", "1"], more, &["/job", "--", "sh", "-c", &second]].concat());
    assert_eq!(again(&[]).status.code(), Some(0));
    assert_eq!(trace.count("second"), 0);
    let record = || serde_json::from_str::<Value>(&server.ok(&["cat", "/job"])).unwrap();
    assert!(record()["ended"].is_null());
    // It waits until nothing of the first is left.
    assert_eq!(again(&["--rerun-lost"]).status.code(), Some(0));
    assert_eq!((trace.count("second"), record()["status"].clone()), (1, 0.into()));
    assert_ordered(&trace.path());
    assert_eq!(again(&["--rerun-lost"]).status.code(), Some(0));
    assert_eq!(trace.count("second"), 1, "it has ended");
}

#[test]
fn an_item_whose_taker_is_killed_stopped_or_cut_off_is_delivered_again_and_none_is_lost() {
    let server = Server::start();
    let (trace, relay) = (Trace::new(), Relay::start(server.address));
    let host = Agent::start(&server, "host");
    for item in ["a", "b", "c"] {
        let mut put = Process::spawn(server.prepared(&["queue", "put", "--name", item, "/q"]).stdin(Stdio::piped())).unwrap();
        put.tell(item).unwrap();
        put.end_input();
        assert_eq!(put.ended(), Some(0));
    }
    assert_eq!(server.cistern(&["queue", "put", "--name", "a", "/q", "/dev/null"]).status.code(), Some(3), "it is there");
    // Each takes an item, says so, and goes on until it is ended.
    let hang = format!("read item; echo took $item $CISTERN_ITEM >> {}; while :; do sleep 0.05; done", trace.path().display());
    let args = ["queue", "take", "/q", "--", "sh", "-c", &hang];
    let mut killed = by(&server, server.address, &args);
    eventually("one is taken", || (trace.count("took") == 1).then_some(()));
    let mut beside = through(&server, &host, &args);
    eventually("two are taken", || (trace.count("took") == 2).then_some(()));
    let mut cut_off = by(&server, relay.address, &args);
    eventually("three are taken", || (trace.count("took") == 3).then_some(()));
    assert_eq!(server.cistern(&["queue", "take", "--try", "/q"]).status.code(), Some(75), "there is no other");
    assert_eq!(server.cistern(&["queue", "take", "--wait", "0.3", "/q"]).status.code(), Some(124), "nor does one come");
    killed.kill();
    beside.kill();
    relay.cut();
    assert_eq!(cut_off.ended(), Some(79));
    // One that fails gives its item back; then they are done one by one.
    let done = format!("read item; echo done $item >> {}", trace.path().display());
    let fails = server.cistern(&["queue", "take", "/q", "--", "false"]);
    assert_eq!(fails.status.code(), Some(1));
    for _ in 0..3 {
        let output = server.cistern(&["queue", "take", "/q", "--", "sh", "-c", &done]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    }
    let mut seen: Vec<String> = trace.lines().into_iter().filter(|line| line.starts_with("done")).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["done a", "done b", "done c"]);
    assert_eq!(server.ok(&["ls", "/q"]), ".take\n");
    // Printed, and removed only then; at most once it is removed before.
    put(&server, "/q/d", "dee");
    assert_eq!(server.ok(&["queue", "take", "/q"]), "dee\n");
    put(&server, "/q/e", "eee");
    assert_eq!(server.cistern(&["queue", "take", "--at-most-once", "/q", "--", "false"]).status.code(), Some(1));
    assert_eq!(server.cistern(&["queue", "take", "--try", "/q"]).status.code(), Some(75), "it is gone");
}

#[test]
fn a_counter_is_changed_by_many_and_by_each_at_most_once() {
    let server = Server::start();
    let relay = Relay::start(server.address);
    relay.disturb(20, 20);
    let host = Agent::with(&server, relay.address, "host", &[]);
    let mut all: Vec<Process> = (0..4).map(|_| through(&server, &host, &["counter", "add", "/n", "5"])).collect();
    for one in &mut all {
        assert_eq!(one.ended(), Some(0));
    }
    assert_eq!(server.ok(&["counter", "get", "/n"]), "20\n", "no copy of a message is counted");
    assert_eq!(server.cistern(&["counter", "set", "--if", "19", "/n", "1"]).status.code(), Some(3));
    assert_eq!(server.ok(&["counter", "set", "--if", "20", "/n", "-4"]), "-4\n");
    assert_eq!(server.ok(&["counter", "add", "/n", "-1"]), "-5\n");
    assert_eq!(server.cistern(&["counter", "add", "/nowhere/n"]).status.code(), Some(1));
}

#[test]
fn all_enter_a_barrier_together_and_nobody_waits_for_one_that_is_gone() {
    let server = Server::start();
    let (trace, relay) = (Trace::new(), Relay::start(server.address));
    let host = Agent::start(&server, "host");
    let to = trace.path();
    let enter = |name: &str, then: &str| {
        let script = format!("echo in-{name} >> {}; {then}; echo out-{name} >> {}", to.display(), to.display());
        ["barrier", "enter", "--parties", "3", "/b", "--", "sh", "-c", &script].map(str::to_owned)
    };
    let (a, b, c) = (enter("a", "true"), enter("b", "sleep 30"), enter("c", "sleep 30"));
    let start = |args: &[String], how: &str| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        match how {
            "host" => through(&server, &host, &args),
            "relay" => by(&server, relay.address, &args),
            _ => by(&server, server.address, &args),
        }
    };
    let there = |count: usize| {
        eventually("so many wait", || {
            let listed = server.cistern(&["ls", "/b"]).stdout;
            (String::from_utf8_lossy(&listed).lines().filter(|name| *name != "round").count() == count).then_some(())
        });
    };
    // One that waits is killed, and is counted no more.
    let mut gone = start(&b, "own");
    there(1);
    let mut first = start(&a, "own");
    there(2);
    gone.kill();
    there(1);
    let mut beside = start(&b, "host");
    there(2);
    assert_eq!(trace.lines().len(), 0, "nobody has entered");
    let mut cut_off = start(&c, "relay");
    eventually("all have entered", || (trace.count("in-") == 3).then_some(()));
    // One has ended, and waits for the others: of whom one is killed beside its agent, and one cut off.
    eventually("one is through", || (trace.count("out-a") == 1).then_some(()));
    assert!(first.try_wait().is_none());
    beside.kill();
    relay.cut();
    assert_eq!(first.ended(), Some(0));
    cut_off.kill();
    assert_eq!(server.cistern(&["barrier", "enter", "--parties", "3", "--wait", "0.3", "/b", "--", "true"]).status.code(), Some(124));
}

#[test]
fn a_gate_lets_all_go_on_when_it_is_opened() {
    let server = Server::start();
    let host = Agent::start(&server, "host");
    server.ok(&["touch", "/gate"]);
    let mut waiting = [by(&server, server.address, &["barrier", "wait", "/gate"]), through(&server, &host, &["barrier", "wait", "/gate"])];
    assert_eq!(server.cistern(&["barrier", "wait", "--wait", "0.3", "/gate"]).status.code(), Some(124));
    assert!(waiting.iter_mut().all(|one| one.try_wait().is_none()));
    server.ok(&["rm", "/gate"]);
    for one in &mut waiting {
        assert_eq!(one.ended(), Some(0));
    }
    server.ok(&["barrier", "wait", "/gate"]);
}

pub(crate) fn put(server: &Server, path: &str, text: &str) {
    let mut put = Process::spawn(server.prepared(&["put", "-", path]).stdin(Stdio::piped())).unwrap();
    put.tell(text).unwrap();
    put.end_input();
    assert_eq!(put.ended(), Some(0));
}
