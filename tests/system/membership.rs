//! Membership: who is there is told, who has gone is found out, by real processes (R63, R82, R83).

use crate::relay::Relay;
use crate::world::{Agent, CISTERN, PATIENCE, Server, command, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// A command that prints a line of JSON for each thing that happens.
struct Telling {
    child: Child,
    lines: Receiver<Value>,
}

impl Telling {
    fn start(server: &str, args: &[&str]) -> Self {
        let mut command = command(CISTERN, args);
        let mut child = command.env("CISTERN_SERVER", server).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
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
    let member = Telling::start(address, &["member", "--json", path]);
    member.says("joined", path);
    member
}

#[test]
fn who_joins_leaves_and_dies_is_told_to_who_watches_the_group() {
    let (server, address) = group();
    let mut a = member(&address, "/group/a");
    let mut watcher = Telling::start(&address, &["watch", "--json", "/group"]);
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
    let watcher = Telling::start(&address, &["watch", "--json", "/group"]);
    watcher.says("watching", "/group");
    watcher.says("present", "/group/a");
    watcher.says("removed", "/group/a");
}

#[test]
fn a_name_is_taken_over_when_its_owner_has_gone() {
    let (_server, address) = group();
    let mut first = member(&address, "/group/leader");
    let second = Telling::start(&address, &["member", "--json", "--data", "second", "/group/leader"]);
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
    let mut watcher = Telling::start(&address, &["watch", "--json", "--agent", agent.socket(), "/group/f"]);
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
    let watcher = Telling::start(&relay.address.to_string(), &["watch", "--json", "/group"]);
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
    let output = server.cistern(&["member", "/group/plain"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no ephemeral file"));
    assert_eq!(server.cistern(&["member", "--agent", "/nowhere", "/group/m"]).status.code(), Some(2));
    assert_eq!(server.cistern(&["watch", "/group/none"]).status.code(), Some(1));
}
