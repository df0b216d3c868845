//! Whole-system tests of a server on three etcds: real processes on loopback. Skipped, with a printed reason, where etcd is not installed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod group;

use cistern_seal::PublicKey;
use cistern_seal::key::Role;
use cistern_testkit::{Agent, CISTERND, Etcds, Server, base64, command, eventually, said};
use nix::sys::signal::Signal;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Runs `cisternd`, which must end by itself.
fn cisternd(args: &[&str]) -> Output {
    command(CISTERND, args).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn files_and_locks_outlive_a_kill_of_the_server() {
    let Some(etcds) = Etcds::start(3, &[]) else { return };
    let mut server = Server::on_etcd(&etcds.store("a"), &["--lease", "20s"]);
    let mut agent = Agent::start(&server, "A");
    agent.put("/job", "what to do");
    // Larger than a transaction of etcd.
    let large = "0123456789abcdef".repeat(50_000);
    agent.put("/large", &large);
    let mut line = agent.line();
    let (hold, token) = line.lock("/job");
    server.process.kill();
    assert_eq!(line.hold(hold), "certain");
    server.start_again();
    agent.ok(json!({ "op": "ping" }));
    eventually("the grace is over", || server.status()["grace"].is_null().then_some(()));
    assert_eq!((line.hold(hold), server.count("steals"), server.count("incarnation")), ("certain".to_owned(), 0, 2));
    let mut other = Agent::start(&server, "B");
    assert_eq!(other.read("/job").unwrap(), base64(b"what to do"));
    assert_eq!(server.ok(&["cat", "/large"]), large);
    line.unlock(hold);
    let mut other = other.line();
    assert!(other.lock("/job").1 > token, "tokens grow over restarts");
}

#[test]
fn etcds_leader_may_die_with_changes_under_way() {
    let Some(mut etcds) = Etcds::start(3, &[]) else { return };
    let server = Server::on_etcd(&etcds.store("a"), &["--lease", "20s"]);
    let over = Arc::new(AtomicBool::new(false));
    let makers: Vec<_> = (0..3)
        .map(|n| {
            let (agent, over) = (Agent::start(&server, &format!("A{n}")), Arc::clone(&over));
            thread::spawn(move || {
                let mut line = agent.line();
                let mut made = 0;
                while !over.load(Ordering::Relaxed) {
                    line.put(&format!("/{n}-{made}"), "x");
                    made += 1;
                }
                (agent, made)
            })
        })
        .collect();
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(500));
        let leader = etcds.leader();
        etcds.kill(leader);
        thread::sleep(Duration::from_millis(1_500));
        etcds.run(leader);
    }
    over.store(true, Ordering::Relaxed);
    let made: Vec<usize> = makers.into_iter().map(|maker| maker.join().unwrap().1).collect();
    let listed = server.ok(&["ls", "/"]).lines().count();
    assert_eq!(listed, made.iter().sum::<usize>(), "{made:?}");
    assert!(made.iter().all(|made| *made > 0), "{made:?}");
}

#[test]
fn a_server_that_is_replaced_ends_at_once_and_says_by_whom() {
    let Some(etcds) = Etcds::start(3, &[]) else { return };
    let store = etcds.store("a");
    let mut first = Server::on_etcd(&store, &["--lease", "1s"]);
    first.ok(&["mkdir", "/first"]);
    let second = Server::on_store(Path::new(&store));
    assert_eq!(first.process.ended(), Some(75));
    second.ok(&["ls", "/first"]);
}

#[test]
fn a_server_that_stood_still_while_it_was_replaced_writes_nothing() {
    let Some(etcds) = Etcds::start(3, &[]) else { return };
    let store = etcds.store("a");
    let mut first = Server::on_etcd(&store, &["--lease", "5s"]);
    let agent = Agent::start(&first, "A");
    let mut line = agent.line();
    line.put("/file", "before");
    first.process.signal(Signal::SIGSTOP);
    // It waits in the server's socket, and its session's lease lasts: it is executed as soon as the server goes on.
    let late = thread::spawn(move || line.put("/late", "late"));
    thread::sleep(Duration::from_millis(200));
    let second = Server::on_store(Path::new(&store));
    first.process.signal(Signal::SIGCONT);
    assert_eq!(first.process.ended(), Some(75));
    assert!(!late.is_finished(), "nobody is told that it was done");
    assert_eq!(second.ok(&["ls", "/"]).trim(), "file");
}

#[test]
fn without_space_a_holder_keeps_its_lock_and_changes_wait_until_there_is_some() {
    let Some(etcds) = Etcds::start(1, &["--quota-backend-bytes", "4194304"]) else { return };
    // A server that does not know how little it is.
    let server = Server::on_etcd(&format!("{}?quota=1G", etcds.store("a")), &["--lease", "1s"]);
    let mut agent = Agent::start(&server, "A");
    agent.put("/job", "what to do");
    let mut line = agent.line();
    let (hold, _) = line.lock("/job");
    let (mut writer, text) = (agent.line(), "0123456789abcdef".repeat(6_000));
    let put = move |n: usize| writer.ask(&json!({ "op": "put", "path": "/file", "data": format!("{n} {text}") }));
    let over = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&over);
    let writing = thread::spawn(move || (0..).map(put).find(|done| done.is_err() || is_over.load(Ordering::Relaxed)));
    eventually("etcd has no space", || (server.status()["room"] == false).then_some(()));
    // Some leases long.
    thread::sleep(Duration::from_secs(4));
    assert_eq!((line.hold(hold), server.count("steals")), ("certain".to_owned(), 0));
    assert_eq!(agent.read("/job").unwrap(), base64(b"what to do"), "reads go on");
    over.store(true, Ordering::Relaxed);
    etcds.make_room();
    eventually("etcd has space", || (server.status()["room"] == true).then_some(()));
    // What the server had executed is done; what it was asked later is refused.
    if let Some(Err(refused)) = writing.join().unwrap() {
        assert_eq!(refused["code"], "ENOSPC", "{refused}");
    }
    agent.put("/file", "after");
    assert_eq!((line.hold(hold), server.ok(&["cat", "/file"])), ("certain".to_owned(), "after".to_owned()));
}

#[test]
fn without_a_quorum_a_holder_keeps_its_lock_and_changes_wait() {
    let Some(mut etcds) = Etcds::start(3, &[]) else { return };
    let server = Server::on_etcd(&etcds.store("a"), &["--lease", "1s"]);
    let mut agent = Agent::start(&server, "A");
    agent.put("/job", "before");
    let mut line = agent.line();
    let (hold, _) = line.lock("/job");
    for at in 0..2 {
        etcds.kill(at);
    }
    let mut writer = agent.line();
    let waiting = thread::spawn(move || writer.put("/job", "after"));
    // Some leases long.
    thread::sleep(Duration::from_secs(5));
    assert_eq!(line.hold(hold), "certain");
    assert!(!waiting.is_finished(), "nothing is acknowledged that no quorum has");
    for at in 0..2 {
        etcds.run(at);
    }
    waiting.join().unwrap();
    assert_eq!((line.hold(hold), server.count("steals")), ("certain".to_owned(), 0));
    assert_eq!(server.ok(&["cat", "/job"]), "after");
}

#[test]
fn a_restored_etcd_is_refused_until_it_is_adopted_and_commands_say_what_etcd_does() {
    let (Some(etcds), Some(other)) = (Etcds::start(1, &[]), Etcds::start(1, &[])) else { return };
    let (store, copy) = (etcds.store("a"), other.store("a"));
    let mut server = Server::on_etcd(&store, &["--lease", "1s"]);
    server.ok(&["mkdir", "/d"]);
    let checked = cisternd(&["check", &store]);
    assert!(checked.status.success(), "beside the server: {}", said(&checked));
    server.process.end();
    etcds.copy_to(&other);
    let state = tempfile::tempdir().unwrap();
    let serve = ["--store", &copy, "--listen", "127.0.0.1:0", "--insecure", "--state", state.path().to_str().unwrap()];
    let refused = cisternd(&serve);
    assert!(refused.status.code() == Some(65) && text(&refused).contains("cisternd restored"), "{}", said(&refused));
    let not_restored = cisternd(&["restored", &store]);
    assert!(not_restored.status.code() == Some(1) && text(&not_restored).contains("--same-cluster"), "{}", said(&not_restored));
    let (log, key) = (state.path().join("other.log"), PublicKey::from_bytes([7; 32]).to_text(Role::Agent));
    fs::write(&log, format!("1800000000 {key}\n")).unwrap();
    let restored = cisternd(&["restored", &copy, "--json", "--revoked", log.to_str().unwrap()]);
    let said_json: serde_json::Value = serde_json::from_slice(&restored.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&restored)));
    assert_eq!(said_json["epoch"], 2);
    let again = Server::on_store(Path::new(&copy));
    assert_eq!(again.status()["epoch"], 2);
    again.ok(&["ls", "/d"]);
    let added = again.cistern(&["admin", "add", "web", "--key", &key]);
    assert!(!added.status.success(), "a key that was revoked at another host: {}", said(&added));
    for (args, word) in [(&["compact", &copy][..], "etcdctl defrag"), (&["restore", "/nowhere", &copy], "etcdctl snapshot restore")] {
        let refused = cisternd(args);
        assert!(refused.status.code() == Some(2) && text(&refused).contains(word), "{args:?}: {}", said(&refused));
    }
    let existing =
        cisternd(&["init", &copy, "--state", state.path().to_str().unwrap(), "--credentials", state.path().join("own").to_str().unwrap()]);
    assert!(existing.status.code() == Some(65) && text(&existing).contains("already"), "{}", said(&existing));
}
