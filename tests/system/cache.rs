//! Caches: what is answered with no message, and that it is never stale (sections 11.4 and 11.5).

use crate::relay::Relay;
use cistern_testkit::{Agent, Server, base64};
use serde_json::json;

#[test]
fn what_was_read_once_is_answered_from_cache_until_somebody_changes_it() {
    let server = Server::start();
    let mut a = Agent::start(&server, "A");
    let mut b = Agent::start(&server, "B");
    a.ok(json!({ "op": "mkdir", "path": "/d", "mode": "0755" }));
    a.put("/d/f", "one");
    assert_eq!(b.read("/d/f").unwrap(), base64(b"one"));
    // The first read after a change may come without a lock, so as not to let a lock go to and fro.
    cistern_testkit::eventually("B has it in its cache", || {
        let requests = b.count("requests");
        b.read("/d/f").unwrap();
        (b.count("requests") == requests).then_some(())
    });
    for turn in 0..50 {
        let text = format!("turn {turn}");
        a.put("/d/f", &text);
        assert_eq!(b.read("/d/f").unwrap(), base64(text.as_bytes()), "a stale read");
    }
}

#[test]
fn names_that_are_not_there_are_cached_and_appear_when_they_are_made() {
    let server = Server::start();
    let mut a = Agent::start(&server, "A");
    let mut b = Agent::start(&server, "B");
    let stat = json!({ "op": "stat", "path": "/new", "follow": true });
    cistern_testkit::eventually("B knows from its cache that there is no such name", || {
        assert_eq!(b.ask(&stat).unwrap_err()["code"], "ENOENT");
        let requests = b.count("requests");
        assert_eq!(b.ask(&stat).unwrap_err()["code"], "ENOENT");
        (b.count("requests") == requests).then_some(())
    });
    a.put("/new", "");
    b.ok(stat);
}

#[test]
fn the_writer_of_a_file_reads_it_back_from_its_cache() {
    let server = Server::start();
    let mut a = Agent::start(&server, "A");
    a.put("/f", "text");
    let requests = a.count("requests");
    assert_eq!(a.read("/f").unwrap(), base64(b"text"));
    assert_eq!(a.count("requests"), requests);
}

#[test]
fn large_contents_come_whole_and_of_one_version() {
    let server = Server::start();
    let mut a = Agent::start(&server, "A");
    let b = Agent::start(&server, "B");
    let large = |digit: u8| String::from_utf8(vec![digit; 1 << 20]).unwrap();
    a.put("/large", &large(b'0'));
    let writer = std::thread::spawn(move || {
        for digit in b'1'..=b'5' {
            a.put("/large", &large(digit));
        }
    });
    let mut reader = b.line();
    for _ in 0..10 {
        let text = reader.read("/large").unwrap();
        let whole = (b'0'..=b'5').any(|digit| text == base64(large(digit).as_bytes()));
        assert!(whole, "{} bytes of several versions", text.len());
    }
    writer.join().unwrap();
}

#[test]
fn every_change_is_made_once_over_a_network_that_loses_and_repeats() {
    let server = Server::with(&["--lease", "4s"]);
    let relay = Relay::start(server.address);
    let mut a = Agent::by(&server, relay.address, "A");
    a.ok(json!({ "op": "mkdir", "path": "/d", "mode": "0755" }));
    relay.disturb(20, 20);
    for name in 0..60 {
        // Exclusive: a second execution would fail, and so would a lost first one.
        a.ok(json!({ "op": "create", "path": format!("/d/{name}"), "exclusive": true }));
        a.ok(
            json!({ "op": "rename", "from": format!("/d/{name}"), "to": format!("/d/{name}.done"), "rule": "no_replace", "force": false }),
        );
    }
    relay.disturb(0, 0);
    assert_eq!(server.ok(&["ls", "/d"]).lines().count(), 60);
    assert_eq!(a.count("nacks"), 0);
}
