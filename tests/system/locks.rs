//! Advisory locks between agents and inside one (sections 11.2 and 11.4).

use cistern_testkit::{Agent, Server, eventually};
use nix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::thread;
use std::time::Duration;

fn world() -> (Server, Agent, Agent) {
    let server = Server::start();
    let mut a = Agent::start(&server, "A");
    let b = Agent::start(&server, "B");
    a.put("/job", "");
    (server, a, b)
}

#[test]
fn a_lock_that_the_agent_still_has_is_taken_again_with_no_message_and_a_larger_token() {
    let (_server, mut a, _b) = world();
    let mut user = a.line();
    let (hold, first) = user.lock("/job");
    user.unlock(hold);
    let requests = a.count("requests");
    let (_, second) = user.lock("/job");
    assert!(second > first);
    assert_eq!(a.count("requests"), requests);
}

#[test]
fn a_lock_passes_by_demand_as_soon_as_its_user_ends() {
    let (server, mut a, b) = world();
    let mut user = a.line();
    let (hold, token) = user.lock("/job");
    let mut other = b.line();
    let waiter = thread::spawn(move || other.lock("/job"));
    eventually("B waits", || (server.count("waiting") == 1).then_some(()));
    eventually("A is demanded", || (a.count("demands") > 0).then_some(()));
    assert_eq!(user.hold(hold), "certain", "a demand does not take a lock that is in use");
    user.unlock(hold);
    let (_, larger) = waiter.join().unwrap();
    assert!(larger > token);
    assert_eq!(server.count("delivery_failures"), 0);
}

#[test]
fn trying_does_not_wait_and_waiting_ends_in_time() {
    let (server, a, b) = world();
    let mut user = a.line();
    user.lock("/job");
    let mut other = b.line();
    let tried = other.ask(&json!({ "op": "lock", "path": "/job", "shared": false, "wait_ms": 0 })).unwrap_err();
    assert_eq!(tried["code"], "EAGAIN", "{tried}");
    let waited = other.ask(&json!({ "op": "lock", "path": "/job", "shared": true, "wait_ms": 100 })).unwrap_err();
    assert_eq!(waited["code"], "TIMED_OUT", "{waited}");
    eventually("nobody waits any more", || (server.count("waiting") == 0).then_some(()));
}

#[test]
fn shared_holders_hold_together_and_a_writer_is_not_starved_by_readers() {
    let (server, a, b) = world();
    let shared = json!({ "op": "lock", "path": "/job", "shared": true, "wait_ms": 20_000 });
    let (mut one, mut two) = (a.line(), b.line());
    let first = one.ok(shared.clone())["locked"]["hold"].as_u64().unwrap();
    let second = two.ok(shared.clone())["locked"]["hold"].as_u64().unwrap();
    let c = Agent::start(&server, "C");
    let mut writer = c.line();
    let writing = thread::spawn(move || {
        let (_, token) = writer.lock("/job");
        (token, writer)
    });
    eventually("the writer waits", || (server.count("waiting") == 1).then_some(()));
    let d = Agent::start(&server, "D");
    let mut reader = d.line();
    let request = shared;
    let reading = thread::spawn(move || reader.ok(request)["locked"]["token"].as_u64().unwrap());
    eventually("the late reader waits behind the writer", || (server.count("waiting") == 2).then_some(()));
    one.unlock(first);
    two.unlock(second);
    let (written, writer) = writing.join().unwrap();
    drop(writer);
    assert!(reading.join().unwrap() > written, "the reader was served before the writer");
}

#[test]
fn a_lock_belongs_to_its_connection_and_a_waiter_that_goes_is_forgotten() {
    let (server, a, b) = world();
    let mut user = a.line();
    user.lock("/job");
    let mut gone = b.line();
    let waiting = thread::spawn(move || {
        let _ = gone.ask(&json!({ "op": "lock", "path": "/job", "shared": false, "wait_ms": 300 }));
    });
    eventually("B waits", || (server.count("waiting") == 1).then_some(()));
    waiting.join().unwrap();
    eventually("nobody waits", || (server.count("waiting") == 0).then_some(()));
    drop(user);
    let mut other = b.line();
    other.lock("/job");
}

#[test]
fn locks_shows_who_holds_and_who_waits() {
    let (server, a, b) = world();
    let mut user = a.line();
    let (_, token) = user.lock("/job");
    let mut other = b.line();
    let waiter = thread::spawn(move || other.lock("/job"));
    eventually("B waits", || (server.count("waiting") == 1).then_some(()));
    let rows: Vec<serde_json::Value> = server.ok(&["locks", "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |state: &str| rows.iter().find(|row| row["state"] == state).unwrap_or_else(|| panic!("nobody {state} in {rows:?}"));
    assert_eq!((&find("holds")["label"], &find("holds")["path"]), (&json!("A"), &json!("/job")));
    assert!(find("holds")["token"].as_u64().unwrap() <= token);
    assert_eq!(find("waits")["label"], "B");
    assert_eq!(server.ok(&["locks", "/job", "--json"]).lines().count(), 2);
    drop(user);
    waiter.join().unwrap();
}

//= wire-spec.md#11-1-lease
//= type=test
//# The end of the lease, as told to users, MUST be an instant on a named clock, not a span.
#[test]
fn until_when_a_lock_is_certain_is_told_as_an_instant_on_this_machines_clocks() {
    let (_server, mut a, _b) = world();
    let mut user = a.line();
    let (hold, _) = user.lock("/job");
    let lease = a.lease()["lease_ms"].as_u64().unwrap() * 1_000_000;
    let read = |clock| u64::try_from(Duration::from(clock_gettime(clock).unwrap()).as_nanos()).unwrap();
    for (name, clock) in [("clock_monotonic_raw_ns", ClockId::CLOCK_MONOTONIC_RAW), ("clock_boottime_ns", ClockId::CLOCK_BOOTTIME)] {
        let before = read(clock);
        let told = user.ok(json!({ "op": "hold", "hold": hold }));
        let until = told["hold"]["until"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {told}"));
        assert!(before < until && until <= read(clock) + lease, "{until} was told at {before}");
    }
}
