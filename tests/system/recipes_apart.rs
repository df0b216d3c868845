//! Recipes whose participants are killed or cut off, where that is not the recipe's first test (`recipes`): what each promises then.

use crate::recipes::{Trace, by, put, through};
use crate::relay::Relay;
use cistern_testkit::{Agent, Process, Server, eventually};
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;

/// Positions of the lines that begin so.
fn places(trace: &Trace, first: &str) -> Vec<usize> {
    trace.lines().iter().enumerate().filter(|(_, line)| line.starts_with(first)).map(|(at, _)| at).collect()
}

fn waits(server: &Server, count: usize) {
    eventually("so many wait", || (server.ok(&["locks", "--json"]).matches("\"waits\"").count() == count).then_some(()));
}

#[test]
fn a_writer_comes_after_the_last_of_readers_that_are_killed_and_cut_off_and_readers_after_a_writer() {
    let server = Server::start();
    let (trace, relay) = (Trace::new(), Relay::start(server.address));
    server.ok(&["touch", "/site"]);
    let [killed, cut, writer, reader] = ["killed", "cut", "writer", "reader"].map(|name| trace.beats(name));
    let mut killed = by(&server, server.address, &["lock", "--shared", "/site", "--", "sh", "-c", &killed]);
    let mut cut_off = by(&server, relay.address, &["lock", "--shared", "/site", "--", "sh", "-c", &cut]);
    eventually("both read", || (trace.count("killed") > 0 && trace.count("cut") > 0).then_some(()));
    let host = Agent::start(&server, "host");
    let mut writes = through(&server, &host, &["lock", "/site", "--", "sh", "-c", &writer]);
    waits(&server, 1);
    killed.kill();
    relay.cut();
    assert_eq!(cut_off.ended(), Some(79), "it is stopped");
    eventually("it is written", || (trace.count("writer") > 0).then_some(()));
    let readers = [places(&trace, "killed"), places(&trace, "cut")].concat();
    assert!(readers.iter().max() < places(&trace, "writer").first(), "{:?}", trace.lines());
    relay.heal();
    // One that is killed beside its agent gives way at once, with all that it started.
    let mut reads = by(&server, server.address, &["lock", "--shared", "/site", "--", "sh", "-c", &reader]);
    waits(&server, 1);
    writes.kill();
    eventually("it is read", || (trace.count("reader") > 0).then_some(()));
    assert!(places(&trace, "writer").last() < places(&trace, "reader").first(), "{:?}", trace.lines());
    reads.kill();
}

#[test]
fn a_change_of_a_counter_that_was_cut_off_or_killed_is_made_once_or_not_at_all() {
    let server = Server::start();
    let relay = Relay::start(server.address);
    let evict = || server.ok(&["admin", "evict", "host", "--control", server.control().to_str().unwrap()]);
    let number = || server.ok(&["counter", "get", "/n"]).trim().parse::<i64>().unwrap();
    server.ok(&["counter", "set", "/n", "0"]);
    let host = Agent::by(&server, relay.address, "host");
    let add = || through(&server, &host, &["counter", "add", "/n", "5"]);
    // Read before, so that the change is all that is asked.
    assert_eq!(through(&server, &host, &["counter", "get", "/n"]).ended(), Some(0));
    // It was made, and its answer never came: the session ends meanwhile, as after a long cut.
    relay.command("cut s->a");
    let mut made = add();
    eventually("it is made", || (number() == 5).then_some(()));
    evict();
    relay.heal();
    let status = made.ended();
    assert!(status == Some(0) || status == Some(74), "{status:?}");
    assert_eq!(number(), 5);
    // The host is cut off, and whoever asked is killed: nobody asks again.
    relay.command("cut a->s");
    let mut asked = add();
    std::thread::sleep(Duration::from_millis(300));
    asked.kill();
    relay.heal();
    let mut again = add();
    assert_eq!(again.ended(), Some(0));
    let total = number();
    assert!(total == 10 || total == 15, "{total}");
    // By an agent of its own, which is killed with it.
    relay.command("cut s->a");
    let mut gone = by(&server, relay.address, &["counter", "add", "/n", "100"]);
    std::thread::sleep(Duration::from_millis(300));
    gone.kill();
    relay.heal();
    std::thread::sleep(Duration::from_millis(300));
    let later = number();
    assert!(later == total || later == total + 100, "{later}");
    assert_eq!(server.ok(&["counter", "add", "/n", "0"]).trim(), later.to_string());
}

#[test]
fn a_service_that_is_cut_off_is_listed_no_more_and_comes_back() {
    let server = Server::start();
    let relay = Relay::start(server.address);
    server.ok(&["mkdir", "/services"]);
    let join = |address: &dyn ToString, name: &str| {
        by(&server, address.to_string(), &["member", "join", "--data", name, &format!("/services/{name}")])
    };
    let listed = |names: &[&str]| {
        let so = || {
            let said = server.ok(&["member", "ls", "/services"]);
            (said.lines().count() == names.len() && names.iter().all(|name| said.contains(name))).then_some(())
        };
        eventually(&format!("{names:?} are listed"), so);
    };
    let mut killed = join(&server.address, "killed");
    let mut cut_off = join(&relay.address, "cut-off");
    listed(&["killed", "cut-off"]);
    killed.kill();
    relay.cut();
    listed(&[]);
    relay.heal();
    listed(&["cut-off"]);
    assert_eq!(cut_off.end(), Some(0));
    listed(&[]);
}

#[test]
fn a_gate_that_was_opened_lets_through_who_was_cut_off_and_forgets_who_was_killed() {
    let server = Server::start();
    let relay = Relay::start(server.address);
    server.ok(&["touch", "/gate"]);
    let mut killed = by(&server, server.address, &["barrier", "wait", "/gate"]);
    let mut cut_off = by(&server, relay.address, &["barrier", "wait", "/gate"]);
    eventually("both wait", || (server.count("sessions") == 2).then_some(()));
    std::thread::sleep(Duration::from_millis(300));
    relay.cut();
    killed.kill();
    server.ok(&["rm", "/gate"]);
    std::thread::sleep(Duration::from_secs(2));
    assert!(cut_off.try_wait().is_none(), "it is not told");
    relay.heal();
    assert_eq!(cut_off.ended(), Some(0));
    eventually("nobody is left", || (server.count("sessions") == 0).then_some(()));
}

#[test]
fn a_run_that_is_cut_off_has_ended_before_it_is_run_again() {
    let server = Server::start();
    let (trace, relay) = (Trace::new(), Relay::start(server.address));
    let (first, second) = (trace.beats("first"), format!("echo second $CISTERN_TOKEN >> {}", trace.path().display()));
    let mut cut_off = by(&server, relay.address, &["once", "--period", "1", "/job", "--", "sh", "-c", &first]);
    eventually("it runs", || (trace.count("first") > 0).then_some(()));
    relay.cut();
    let again = ["once", "--period", "1", "--rerun-lost", "/job", "--", "sh", "-c", &second];
    let mut again = by(&server, server.address, &again);
    assert_eq!(cut_off.ended(), Some(79));
    assert_eq!(again.ended(), Some(0));
    relay.heal();
    assert!(places(&trace, "first").last() < places(&trace, "second").first(), "{:?}", trace.lines());
    crate::recipes::assert_ordered(&trace.path());
    let record: Value = serde_json::from_str(&server.ok(&["cat", "/job"])).unwrap();
    assert_eq!(record["status"], 0);
}

#[test]
fn an_item_that_is_taken_at_most_once_is_gone_with_its_taker() {
    let server = Server::start();
    let (trace, relay) = (Trace::new(), Relay::start(server.address));
    for item in ["a", "b"] {
        let mut put = Process::spawn(server.prepared(&["queue", "put", "--name", item, "/q"]).stdin(Stdio::piped())).unwrap();
        put.tell(item).unwrap();
        put.end_input();
        assert_eq!(put.ended(), Some(0));
    }
    let hang = format!("read item; echo took $item >> {}; while :; do sleep 0.05; done", trace.path().display());
    let args = ["queue", "take", "--at-most-once", "/q", "--", "sh", "-c", &hang];
    let mut killed = by(&server, server.address, &args);
    eventually("one is taken", || (trace.count("took") == 1).then_some(()));
    let mut cut_off = by(&server, relay.address, &args);
    eventually("both are taken", || (trace.count("took") == 2).then_some(()));
    killed.kill();
    relay.cut();
    assert_eq!(cut_off.ended(), Some(79));
    assert_eq!(server.cistern(&["queue", "take", "--try", "/q"]).status.code(), Some(75), "neither is delivered again");
    put(&server, "/q/c", "cee");
    assert_eq!(server.ok(&["queue", "take", "/q"]), "cee\n");
}
