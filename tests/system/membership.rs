//! Membership: who is there is told, who has gone is found out, by real processes (sections 11.5 and 11.7).

use crate::relay::Relay;
use cistern_testkit::{Agent, CISTERN, PATIENCE, Server, command, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A command that prints a line of JSON for each thing that happens.
struct Telling {
    child: Child,
    lines: Receiver<Value>,
}

impl Telling {
    fn start(server: &str, args: &[&str]) -> Self {
        Self::of(command(CISTERN, args).env("CISTERN_SERVER", server))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (tell, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line:?}: {e}"));
                if tell.send(value).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// The next line: its event and path.
    fn next(&self) -> (String, String) {
        let line = self.lines.recv_timeout(PATIENCE).expect("a line comes");
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        (text("event"), text("path"))
    }

    fn says(&self, event: &str, path: &str) {
        assert_eq!(self.next(), (event.to_owned(), path.to_owned()));
    }

    /// What comes next of these events; others are passed over.
    fn until(&self, event: &str, path: &str) {
        while self.next() != (event.to_owned(), path.to_owned()) {}
    }

    fn silent(&self) {
        assert_eq!(self.lines.recv_timeout(Duration::from_millis(300)).ok(), None);
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Asks it to end; gives its exit status.
    fn end(&mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        self.ended()
    }

    fn ended(&mut self) -> Option<i32> {
        eventually("the command ends", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn group() -> (Server, String) {
    let server = Server::start();
    server.ok(&["mkdir", "/group"]);
    let address = server.address.to_string();
    (server, address)
}

fn member(address: &str, path: &str) -> Telling {
    let member = Telling::start(address, &["member", "join", "--json", path]);
    member.says("joined", path);
    member
}

#[test]
fn who_joins_leaves_and_dies_is_told_to_who_watches_the_group() {
    let (server, address) = group();
    let mut a = member(&address, "/group/a");
    let mut watcher = Telling::start(&address, &["member", "watch", "--json", "/group"]);
    watcher.says("watching", "/group");
    watcher.says("present", "/group/a");
    let mut b = member(&address, "/group/b");
    watcher.says("added", "/group/b");
    // Asked to end, a member leaves at once: no session has to be timed out for it.
    assert_eq!(b.end(Signal::SIGTERM), Some(0));
    watcher.says("removed", "/group/b");
    assert_eq!(server.count("delivery_failures"), 0);
    // Killed, it is found out by the probes of its session.
    a.signal(Signal::SIGKILL);
    a.ended();
    watcher.says("removed", "/group/a");
    assert_eq!((server.count("delivery_failures"), server.count("steals")), (1, 1));
    // SIGINT would be ignored where the tests run in the background of a shell.
    assert_eq!(watcher.end(Signal::SIGTERM), Some(0));
}

#[test]
fn nobody_is_probed_while_nobody_watches() {
    let (server, address) = group();
    let relay = Relay::start(server.address);
    let mut a = member(&relay.address.to_string(), "/group/a");
    a.signal(Signal::SIGKILL);
    a.ended();
    // What was under way when it died arrives first.
    thread::sleep(Duration::from_millis(500));
    let passed = relay.passed();
    thread::sleep(Duration::from_secs(3));
    assert_eq!((relay.passed(), server.count("delivery_failures")), (passed, 0));
    assert!(server.ok(&["ls", "/group"]).contains('a'), "nobody has asked whether it is there");
    let watcher = Telling::start(&address, &["member", "watch", "--json", "/group"]);
    watcher.says("watching", "/group");
    watcher.says("present", "/group/a");
    watcher.says("removed", "/group/a");
}

#[test]
fn a_dead_member_leaves_what_somebody_looks_at_with_attributes() {
    for look in [&["ls", "-l", "/group"][..], &["stat", "/group/a"]] {
        let (server, address) = group();
        let mut a = member(&address, "/group/a");
        assert!(!server.ok(look).is_empty());
        a.signal(Signal::SIGKILL);
        a.ended();
        // Nobody watches: it is found out because of the looks alone.
        eventually("the member is gone", || server.cistern(look).stdout.is_empty().then_some(()));
        assert_eq!((server.count("delivery_failures"), server.count("steals")), (1, 1));
    }
}

#[test]
fn a_name_is_taken_over_when_its_owner_has_gone() {
    let (_server, address) = group();
    let mut first = member(&address, "/group/leader");
    let second = Telling::start(&address, &["member", "join", "--json", "--data", "second", "/group/leader"]);
    second.says("waiting", "/group/leader");
    second.silent();
    first.signal(Signal::SIGKILL);
    first.ended();
    second.says("joined", "/group/leader");
}

#[test]
fn changes_of_files_are_told_to_programs_of_a_host_agent_too() {
    let (server, address) = group();
    let mut agent = Agent::start(&server, "A");
    agent.put("/group/f", "one");
    let mut watcher = Telling::start(&address, &["member", "watch", "--json", "--agent", agent.socket(), "/group/f"]);
    watcher.says("watching", "/group/f");
    agent.put("/group/f", "two");
    watcher.says("changed", "/group/f");
    server.ok(&["rm", "/group/f"]);
    watcher.says("gone", "/group/f");
    assert_eq!(watcher.ended(), Some(0), "there is nothing left to watch");
    eventually("the agent has no watch any more", || (agent.count("watches") == 0).then_some(()));
}

#[test]
fn a_watcher_that_is_cut_off_says_so_and_then_what_it_missed() {
    let (server, address) = group();
    let relay = Relay::start(server.address);
    server.ok(&["put", "/dev/null", "/group/f"]);
    let watcher = Telling::start(&relay.address.to_string(), &["member", "watch", "--json", "/group"]);
    watcher.says("watching", "/group");
    watcher.says("present", "/group/f");
    relay.cut();
    watcher.says("uncertain", "/group");
    let _member = member(&address, "/group/a");
    watcher.silent();
    relay.heal();
    watcher.until("added", "/group/a");
}

#[test]
fn wrong_usage_is_told() {
    let (server, _) = group();
    server.ok(&["put", "/dev/null", "/group/plain"]);
    let output = server.cistern(&["member", "join", "/group/plain"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no ephemeral file"));
    // What can never succeed ends a member that has not joined yet.
    for path in ["/nowhere/m", "/group/plain/m"] {
        assert_eq!(server.cistern(&["member", "join", path]).status.code(), Some(1), "{path}");
    }
    assert_eq!(server.cistern(&["member", "watch", "/group/none"]).status.code(), Some(1));
}

#[test]
fn a_members_file_appears_with_its_contents_or_not_at_all() {
    let (server, address) = group();
    let relay = Relay::start(server.address);
    let mut watcher = Telling::start(&address, &["member", "watch", "--json", "/group"]);
    watcher.says("watching", "/group");
    // What would be written after the file is there never arrives.
    relay.command("loss 100% kind WRITE");
    let member = Telling::start(&relay.address.to_string(), &["member", "join", "--json", "--data", "10.0.0.1", "/group/a"]);
    watcher.says("added", "/group/a");
    assert_eq!(server.ok(&["cat", "/group/a"]), "10.0.0.1");
    member.says("joined", "/group/a");
    watcher.end(Signal::SIGTERM);
}

#[test]
fn a_member_with_contents_keeps_its_file_although_nothing_else_renews_its_lease() {
    let (server, address) = group();
    let member = Telling::start(&address, &["member", "join", "--json", "--data", "x", "/group/a"]);
    member.says("joined", "/group/a");
    let watcher = Telling::start(&address, &["member", "watch", "--json", "/group"]);
    watcher.says("watching", "/group");
    watcher.says("present", "/group/a");
    thread::sleep(Duration::from_secs(3));
    assert!(member.lines.try_recv().is_err(), "nothing has happened to it");
    assert_eq!(server.ok(&["cat", "/group/a"]), "x");
}

#[test]
fn a_member_joins_again_whatever_joining_meets() {
    let (server, address) = group();
    let mut a = member(&address, "/group/a");
    // As one change, so that it cannot join in between.
    let batch = |text: &str| {
        let file = server.dir.path().join("batch");
        std::fs::write(&file, text).unwrap();
        server.ok(&["batch", file.to_str().unwrap()]);
    };
    batch("rm /group/a\nrmdir /group\n");
    a.says("lost", "/group/a");
    // No such directory; then a file in its place, and a directory in the place of the member's file.
    a.silent();
    server.ok(&["put", "/dev/null", "/group"]);
    thread::sleep(Duration::from_millis(700));
    batch("rm /group\nmkdir /group2\nmkdir /group2/a\nmv /group2 /group\n");
    thread::sleep(Duration::from_millis(700));
    server.ok(&["rm", "-r", "/group/a"]);
    a.until("joined", "/group/a");
    assert_eq!(a.end(Signal::SIGTERM), Some(0));
}

#[test]
fn a_member_joins_although_the_server_comes_only_later_than_operations_wait() {
    let mut server = Server::durable(&["--lease", "1s"]);
    server.ok(&["mkdir", "/group"]);
    server.process.kill();
    let mut a = Telling::start(&server.address.to_string(), &["member", "join", "--json", "--timeout", "500ms", "/group/a"]);
    thread::sleep(Duration::from_secs(2));
    assert!(a.child.try_wait().unwrap().is_none(), "it gave up");
    server.start_again();
    // An operation that took longer than it may was perhaps carried out: then the file that it made is waited for first.
    a.until("joined", "/group/a");
    // The same in the middle of joining again: the file's making does not arrive until it has been given up.
    let relay = Relay::start(server.address);
    let mut b = Telling::start(&relay.address.to_string(), &["member", "join", "--json", "--timeout", "500ms", "/group/b"]);
    b.until("joined", "/group/b");
    relay.command("loss 100% kind CREATE");
    server.ok(&["rm", "/group/b"]);
    b.until("lost", "/group/b");
    thread::sleep(Duration::from_secs(2));
    assert!(b.child.try_wait().unwrap().is_none(), "it gave up");
    relay.command("heal");
    b.until("joined", "/group/b");
    for member in [&mut a, &mut b] {
        assert_eq!(member.end(Signal::SIGTERM), Some(0));
    }
    eventually("both are gone", || server.ok(&["ls", "/group"]).is_empty().then_some(()));
}

#[test]
fn members_of_a_host_agent_go_one_by_one_as_they_end() {
    let (server, _) = group();
    let mut host = Agent::start(&server, "host");
    host.put("/group/f", "");
    server.ok(&["rm", "/group/f"]);
    let sessions = server.count("sessions");
    let join = |path: &str, data: &str| {
        let mut command = server.prepared(&["member", "join", "--json", "--data", data, path]);
        Telling::of(command.env("CISTERN_AGENT", host.socket()))
    };
    let mut a = join("/group/a", "A");
    a.says("joined", "/group/a");
    let mut b = join("/group/b", "B");
    b.says("joined", "/group/b");
    let second = join("/group/a", "second");
    second.says("waiting", "/group/a");
    assert_eq!(server.count("sessions"), sessions, "nobody has a session of its own");
    assert_eq!(server.ok(&["cat", "/group/a"]), "A");
    // Asked to end; killed: the agent removes the file at once in both cases, and no delivery fails.
    assert_eq!(b.end(Signal::SIGTERM), Some(0));
    assert_eq!(server.ok(&["ls", "/group"]), "a\n");
    a.signal(Signal::SIGKILL);
    a.ended();
    second.says("joined", "/group/a");
    assert_eq!(server.ok(&["cat", "/group/a"]), "second");
    assert_eq!(server.count("delivery_failures"), 0);
}

#[test]
fn a_member_joins_again_by_the_host_agent_that_comes_after_the_one_that_was_killed() {
    let (server, _) = group();
    let mut host = Agent::start(&server, "host");
    let mut a = Telling::of(server.prepared(&["member", "join", "--json", "/group/a"]).env("CISTERN_AGENT", host.socket()));
    a.says("joined", "/group/a");
    host.process.kill();
    a.until("lost", "/group/a");
    let host = Agent::start(&server, "host");
    a.until("joined", "/group/a");
    assert_eq!(a.end(Signal::SIGTERM), Some(0));
    eventually("it is gone", || server.ok(&["ls", "/group"]).is_empty().then_some(()));
    drop(host);
}

#[test]
fn a_file_that_the_host_agent_makes_when_its_member_has_gone_already_goes_too() {
    let (server, _) = group();
    let relay = Relay::start(server.address);
    let host = Agent::with(&server, relay.address, "host", &["--idle", "eager", "--timeout", "500ms"]);
    for (kind, data) in [("CREATE", ""), ("BATCH", "data")] {
        let version = || serde_json::from_str::<Value>(&server.ok(&["stat", "--json", "/group"])).unwrap()["attr"]["version"].clone();
        let before = version();
        // What makes the file arrives when nobody waits for it any more.
        relay.command(&format!("loss 100% kind {kind}"));
        let mut command = server.prepared(&["member", "join", "--json", "--data", data, "/group/a"]);
        let mut member = Telling::of(command.env("CISTERN_AGENT", host.socket()));
        let lost = relay.stats().total.up.lost_all();
        eventually("the file is to be made", || (relay.stats().total.up.lost_all() > lost).then_some(()));
        thread::sleep(Duration::from_secs(1));
        member.signal(Signal::SIGKILL);
        member.ended();
        thread::sleep(Duration::from_secs(1));
        relay.command("heal");
        eventually("it is made, and removed", || (version() != before && server.ok(&["ls", "/group"]).is_empty()).then_some(()));
    }
}

#[test]
fn a_member_that_is_asked_to_end_waits_for_no_answer() {
    let (server, address) = group();
    let host = Agent::start(&server, "host");
    let relay = Relay::start(server.address);
    relay.cut();
    let cut_off = Agent::with(&server, relay.address, "cut-off", &[]);
    server.process.signal(Signal::SIGSTOP);
    let joins = |args: &[&str]| Telling::start(&address, &[&["member", "join", "--json", "--timeout", "60s", "/group/a"], args].concat());
    let mut members = [joins(&[]), joins(&["--agent", host.socket()]), joins(&["--agent", cut_off.socket()])];
    thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    for member in &mut members {
        assert_eq!(member.end(Signal::SIGTERM), Some(0));
    }
    // Each has two seconds for a clean end.
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    server.process.signal(Signal::SIGCONT);
}
