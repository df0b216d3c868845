//! Delivery failure, timing out, steal, recovery (sections 11.3 and 11.6).

use crate::relay::Relay;
use cistern_testkit::{Agent, PATIENCE, Server, eventually};
use nix::sys::signal::Signal;
use serde_json::json;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# T MUST NOT be shortened by any evidence of failure.
#[test]
fn a_silent_agent_stops_before_its_lock_is_anyone_elses_and_recovers_when_it_is_heard_again() {
    let server = Server::start();
    let relay = Relay::start(server.address);
    let mut a = Agent::by(&server, relay.address, "A");
    let b = Agent::start(&server, "B");
    a.put("/job", "");
    let session = a.lease()["session"].clone();
    let mut user = a.line();
    let (hold, token) = user.lock("/job");
    relay.cut();
    let mut other = b.line();
    let waiter = thread::spawn(move || {
        let (_, token) = other.lock("/job");
        (Instant::now(), token, other)
    });
    eventually("the server sees the delivery fail", || (server.count("timing_out") == 1).then_some(()));
    let decided = Instant::now();
    assert_eq!(server.count("lease_timers"), 1);
    eventually("A stops by its own clock", || (user.hold(hold) != "certain").then_some(()));
    let stopped = Instant::now();
    let (stolen, larger, _other) = waiter.join().unwrap();
    assert!(stopped < stolen, "A stopped after B had the lock");
    assert!(larger > token);
    // The decision was seen after it was made, so the wait seen is shorter than the wait kept by as much.
    assert!(stolen - decided + Duration::from_millis(200) >= Duration::from_micros(server.count("timer_us")));

    relay.heal();
    a.ok(json!({ "op": "stat", "path": "/job", "follow": true }));
    assert_eq!(user.hold(hold), "lost");
    let lease = a.lease();
    assert_eq!(lease["nacks"], 1);
    assert_ne!(lease["session"], session);
    assert_eq!((server.count("steals"), server.count("lease_timers")), (1, 0));
}

#[test]
fn an_agent_that_is_heard_while_it_is_timed_out_is_refused_and_nothing_of_it_executes() {
    // Long enough that the timer still runs when a busy machine comes to look at it.
    let server = Server::with(&["--lease", "8s"]);
    let relay = Relay::start(server.address);
    let mut a = Agent::by(&server, relay.address, "A");
    let b = Agent::start(&server, "B");
    a.put("/job", "");
    let mut user = a.line();
    let (hold, _) = user.lock("/job");
    relay.cut();
    let mut other = b.line();
    let waiter = thread::spawn(move || other.lock("/job"));
    eventually("the server sees the delivery fail", || (server.count("timing_out") == 1).then_some(()));
    relay.heal();
    eventually("A is refused while the timer runs", || (a.count("nacks") == 1).then_some(()));
    assert_eq!(server.count("steals"), 0, "a NACK is the end of the session, not of the wait");
    assert_eq!(user.hold(hold), "lost");
    // Recovered in a new session while the old one is still timed out; what the old one holds still keeps changes waiting.
    a.ok(json!({ "op": "ping" }));
    assert_eq!((server.count("timing_out"), server.count("waiting")), (1, 1));
    // Whichever is first: A gives the old session up once its lease is over, or the timer ends.
    waiter.join().unwrap();
    assert_eq!(server.count("timing_out"), 0);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Time in which the server stood still MUST NOT count towards a delivery timeout.
#[test]
fn a_server_that_stood_still_fails_nobody() {
    let server = Server::start();
    let mut a = Agent::start(&server, "A");
    let b = Agent::start(&server, "B");
    a.put("/job", "");
    let mut user = a.line();
    let (hold, _) = user.lock("/job");
    let mut other = b.line();
    let waiter = thread::spawn(move || other.lock("/job"));
    eventually("B waits", || (server.count("waiting") == 1).then_some(()));
    server.process.signal(Signal::SIGSTOP);
    // Longer than lease and delivery timeout together.
    sleep(Duration::from_secs(3));
    server.process.signal(Signal::SIGCONT);
    eventually("A's lock is certain again", || (user.hold(hold) == "certain").then_some(()));
    assert_eq!(server.count("delivery_failures"), 0);
    user.unlock(hold);
    waiter.join().unwrap();
    assert_eq!(a.count("nacks"), 0);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A session that is timing out MUST NOT hold up the grant of a lock that it does not hold.
#[test]
fn a_dead_agent_in_line_does_not_delay_the_locks_of_others() {
    let server = Server::with(&["--lease", "4s"]);
    let mut a = Agent::start(&server, "A");
    let mut dead = Agent::start(&server, "dead");
    let b = Agent::start(&server, "B");
    a.put("/one", "");
    a.put("/two", "");
    let mut held = dead.line();
    held.lock("/one");
    dead.process.kill();
    let mut other = b.line();
    let waiter = thread::spawn(move || other.lock("/one"));
    eventually("the dead agent is being timed out", || (server.count("timing_out") == 1).then_some(()));
    let mut quick = b.line();
    let (hold, _) = a.line().lock("/two");
    assert!(hold > 0);
    quick.lock("/two");
    assert_eq!(server.count("timing_out"), 1, "the lock of the living was granted while the dead was timed out");
    waiter.join().unwrap();
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# The locks of a superseded session MUST NOT go to others before T without proof that no user of them can still act.
#[test]
fn a_restarted_agent_does_not_free_what_its_former_users_may_still_use() {
    let server = Server::with(&["--lease", "2s"]);
    let mut first = Agent::start(&server, "A");
    first.put("/job", "");
    let mut user = first.line();
    let (_, token) = user.lock("/job");
    first.process.kill();
    let killed = Instant::now();
    let second = Agent::start(&server, "A");
    let mut again = second.line();
    let (_, larger) = again.lock("/job");
    assert!(killed.elapsed() >= Duration::from_millis(1_500), "the former session's lock was free after {:?}", killed.elapsed());
    assert!(larger > token);
    assert_eq!(server.count("steals"), 1);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Eviction by an operator MUST be D, without rescue, and MUST NOT free anything before T.
#[test]
fn an_evicted_agent_keeps_its_locks_for_the_whole_wait() {
    let server = Server::with(&["--lease", "2s"]);
    let mut a = Agent::start(&server, "A");
    let b = Agent::start(&server, "B");
    a.put("/job", "");
    let mut user = a.line();
    let granted = Instant::now();
    let (hold, token) = user.lock("/job");
    let output =
        cistern_testkit::command(cistern_testkit::CISTERN, &["admin", "evict", "A", "--control", server.control().to_str().unwrap()])
            .output()
            .unwrap();
    assert!(output.status.success(), "{}", cistern_testkit::said(&output));
    let mut other = b.line();
    let (_, larger) = other.lock("/job");
    // Not before A's lease is over by A's own clock: then it surrenders, if the timer has not ended before.
    assert!(granted.elapsed() >= Duration::from_millis(2_000), "freed after {:?}", granted.elapsed());
    assert!(larger > token);
    eventually("A's user is told", || (user.hold(hold) == "lost").then_some(()));
    assert!(granted.elapsed() < PATIENCE);
}
