//! `--pcap`: every program writes what it sends and receives, and what two programs say of the same datagrams agrees.

use cistern_capture::{Datagram, Reader};
use cistern_testkit::{Agent, CISTERN, Server, command, eventually, said};
use serde_json::json;
use std::fs::File;
use std::path::Path;

/// The datagrams of a capture, which must be whole.
fn datagrams(path: &Path) -> Vec<Datagram> {
    let mut reader = Reader::new(File::open(path).unwrap());
    let datagrams = reader.by_ref().map(|datagram| datagram.unwrap()).collect();
    assert!(reader.tally().is_clean(), "{}: {}", path.display(), reader.tally());
    datagrams
}

/// How many datagrams a capture that is being written has now.
fn so_far(path: &Path) -> usize {
    Reader::new(File::open(path).unwrap()).filter_map(Result::ok).count()
}

/// What the one capture has and the other does not: each end of a network sees another order.
fn beyond<'a>(one: &'a [Datagram], other: &[Datagram]) -> Vec<&'a Datagram> {
    let same = |a: &Datagram, b: &Datagram| (a.from, a.to, &a.payload) == (b.from, b.to, &b.payload);
    let mut other: Vec<_> = other.iter().collect();
    let mut is_missing = |datagram: &&Datagram| match other.iter().position(|known| same(known, datagram)) {
        Some(found) => {
            other.swap_remove(found);
            false
        }
        None => true,
    };
    one.iter().filter(|datagram| is_missing(datagram)).collect()
}

#[test]
fn server_and_agent_write_the_same_datagrams() {
    let mut server = Server::start();
    let mut agent = Agent::with(&server, server.address, "A", &[]);
    let [at_server, at_agent] = ["server", "agent-A"].map(|name| server.captures.file(name, 1));
    for n in 0..20 {
        agent.put(&format!("/f{n}"), "some text");
        agent.read(&format!("/f{n}")).unwrap();
    }
    let (hold, _) = agent.lock("/f0");
    agent.unlock(hold);
    agent.ok(json!({ "op": "ping" }));
    assert_eq!(agent.process.end(), Some(0));
    assert_eq!(server.process.end(), Some(0));
    let (at_server, at_agent) = (datagrams(&at_server), datagrams(&at_agent));
    assert!(at_server.len() > 80, "{} datagrams", at_server.len());
    assert!(at_server.iter().all(|datagram| [datagram.from, datagram.to].contains(&server.address)), "the server's address is its own");
    assert_eq!(beyond(&at_agent, &at_server), Vec::<&Datagram>::new());
    // What the server answers again to a slow agent may come when that has ended.
    let last_asked = at_server.iter().rposition(|datagram| datagram.to == server.address).unwrap();
    for late in beyond(&at_server, &at_agent) {
        assert!(late.number > at_server[last_asked].number, "{late:?} is missing at the agent");
    }
}

#[test]
fn commands_write_their_datagrams_wherever_the_flag_stands() {
    let server = Server::start();
    let file = server.dir.path().join("command.pcap");
    let pcap = file.to_str().unwrap();
    for args in [["--pcap", pcap, "mkdir", "-p", "/d"], ["mkdir", "-p", "/d", "--pcap", pcap]] {
        server.ok(&args);
        let all = datagrams(&file);
        let up = all.iter().filter(|datagram| datagram.to == server.address).count();
        assert!(up >= 2 && all.len() - up >= 2, "{up} of {} went to the server", all.len());
        assert!(all.iter().all(|datagram| datagram.from.ip().is_loopback() && datagram.to.ip().is_loopback()), "{all:?}");
        std::fs::remove_file(&file).unwrap();
    }
    let output = server.cistern(&["lock", "/d/lock", "--pcap", pcap, "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert!(datagrams(&file).len() >= 6);
}

#[test]
fn killed_server_leaves_a_readable_capture() {
    let mut server = Server::start();
    let file = server.captures.file("server", 1);
    server.ok(&["mkdir", "/d"]);
    // The file is behind the sockets by as much as a thread needs to be woken.
    eventually("the capture has the command's datagrams", || (so_far(&file) >= 6).then_some(()));
    server.process.kill();
    assert!(datagrams(&file).len() >= 6);
}

#[test]
fn capture_that_cannot_be_made_is_told_before_anything_else() {
    let server = Server::start();
    let nowhere = "/nowhere/at/all.pcap";
    for (args, status) in [(&["ls", "/"][..], 1), (&["lock", "/x", "--", "true"], 125)] {
        let output = server.cistern(&[&["--pcap", nowhere], args].concat());
        assert_eq!(output.status.code(), Some(status), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(&format!("cannot create the capture file {nowhere}")), "{}", said(&output));
    }
    let output = command(cistern_testkit::CISTERND, &["--volatile", "--listen", "127.0.0.1:0", "--pcap", nowhere]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains(nowhere));
}

#[test]
fn command_that_goes_through_the_hosts_agent_says_who_has_the_datagrams() {
    let server = Server::start();
    let agent = Agent::start(&server, "A");
    let file = server.dir.path().join("none.pcap");
    let output = command(CISTERN, &["ls", "/", "--agent", agent.socket(), "--pcap", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("cistern agent run"), "{}", said(&output));
    // The server's capture has a session in it only if the agent got so far before the server ends.
    let listed = command(CISTERN, &["ls", "/", "--agent", agent.socket()]).output().unwrap();
    assert!(listed.status.success(), "{}", said(&listed));
}

#[test]
fn captures_in_which_nothing_was_written_fail_their_test() {
    let server = Server::start();
    server.captures.of_agent("never-started");
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(server))).unwrap_err();
    let said = panic.downcast_ref::<String>().unwrap();
    assert!(said.contains("wrote nothing") && said.contains("no capture of the server has a session"), "{said}");
}
