//! Partitions: a host cut off from the server in both directions or in one, and the lock that it holds (sections 11.1, 11.3 and 11.6).

use crate::cast::{Trace, agent, certain_until, server, timer, waiter};
use cistern_client::Client;
use cistern_testkit::eventually;
use cistern_testkit::network::Network;
use serde_json::json;
use std::time::{Duration, Instant};

/// Long enough that a busy machine kills a command in the time that there is for it, an eighth of the lease.
const LEASE: &[&str] = &["--lease", "2s"];
/// Td by default: a quarter of the lease.
const DELIVERY_TIMEOUT: Duration = Duration::from_millis(500);

/// A job runs on A, which is cut off; B wants to run it, too.
fn cut_off(cut: impl Fn(&Network), heal: impl Fn(&Network)) {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    let (a, b) = (network.host("a"), network.host("b"));
    let server = server(&network, LEASE);
    let trace = Trace::new(&server);
    let first = trace.job(&server, a);
    let token = trace.runs_on(a, 0);
    cut(&network);
    let asked = Instant::now();
    let second = trace.job(&server, b);
    let larger = trace.runs_on(b, token);
    //= wire-spec.md#11-3-failure-and-ending
    //= type=test
    //# T MUST NOT be shortened by any evidence of failure.
    let waited = asked.elapsed();
    assert!(waited >= DELIVERY_TIMEOUT + timer(&server), "B had the lock after {waited:?}");
    let (code, said) = first.ended();
    assert_eq!(code, Some(79), "{said}");
    assert_eq!((server.count("delivery_failures"), server.count("steals"), server.count("lease_timers")), (1, 1, 0));
    heal(&network);
    second.end();
    let _third = trace.job(&server, a);
    trace.runs_on(a, larger);
    trace.is_in_order();
}

#[test]
fn a_job_on_a_host_that_is_cut_off_has_ended_before_it_runs_on_another() {
    cut_off(|network| network.isolate("a"), Network::heal);
}

#[test]
fn a_job_on_a_host_whose_link_is_down_has_ended_before_it_runs_on_another() {
    let link = |network: &Network, state| network.host("a").namespace.ip(&format!("link set eth0 {state}"));
    cut_off(|network| link(network, "down"), |network| link(network, "up"));
}

/// A holds a lock, and one direction is cut; `cut_off` tells what the server still hears of A until B has the lock.
fn one_way(from: &str, to: &str, heard: bool) {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    let server = server(&network, LEASE);
    let mut a = agent(&server, network.host("a"));
    let b = agent(&server, network.host("b"));
    a.put("/job", "");
    let session = a.lease()["session"].clone();
    let mut user = a.line();
    let (hold, token) = user.lock("/job");
    network.cut(from, to);
    let waiting = waiter(&b);
    eventually("the server sees the delivery fail", || (server.count("timing_out") == 1).then_some(()));
    let nacks = || server.status()["messages_out"]["NACK"].as_u64().unwrap_or(0);
    // The last that A was told, while the server's decision stands.
    let until = certain_until(&mut user, hold);
    eventually("A stops by its own clock", || (user.hold(hold) != "certain").then_some(()));
    let got = waiting.join().unwrap();
    assert!(until.is_none_or(|until| until <= got.raw_ns), "B had the lock while A's lease ran");
    assert!(got.token > token && got.after >= DELIVERY_TIMEOUT + timer(&server));
    assert_eq!(nacks() > 0, heard, "the server refuses what it hears");
    assert_eq!((a.count("nacks"), server.count("rescues")), (0, 0));
    network.heal();
    a.ok(json!({ "op": "stat", "path": "/job", "follow": true }));
    assert_eq!(user.hold(hold), "lost");
    assert_ne!(a.lease()["session"], session);
    assert_eq!((server.count("steals"), server.count("lease_timers")), (1, 0));
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# From D on the server MUST NOT produce or release a message that renews the session's lease.
#[test]
fn an_agent_that_hears_nothing_loses_its_lock_although_the_server_hears_it_all_along() {
    one_way("server", "a", true);
}

//= wire-spec.md#6-4-notices
//= type=test
//# A notice MUST NOT renew a lease.
#[test]
fn an_agent_that_is_not_heard_stops_in_time_although_it_hears_every_demand() {
    one_way("a", "server", false);
}

#[test]
fn a_cut_that_nobody_waited_through_costs_nothing() {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    let server = server(&network, LEASE);
    let mut a = agent(&server, network.host("a"));
    a.put("/job", "");
    let session = a.lease()["session"].clone();
    let mut user = a.line();
    let (hold, token) = user.lock("/job");
    network.isolate("a");
    eventually("A's lease is over", || (user.hold(hold) == "uncertain").then_some(()));
    network.heal();
    eventually("A's lock is certain again", || (user.hold(hold) == "certain").then_some(()));
    assert_eq!((a.lease()["session"].clone(), a.count("nacks"), server.count("delivery_failures")), (session, 0, 0));
    user.unlock(hold);
    let b = agent(&server, network.host("b"));
    assert!(waiter(&b).join().unwrap().token > token);
}

#[test]
fn what_a_holder_writes_after_its_lock_was_taken_is_refused() {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    let server = server(&network, LEASE);
    // An agent in this very process: its sockets are on host A.
    let address = server.address.to_string();
    let client = network.host("a").place().run(|| Client::builder().insecure().server(address).start().unwrap());
    let mut b = agent(&server, network.host("b"));
    b.put("/job", "");
    let guard = client.lock("/job").wait().unwrap();
    client.write("/job", "by A").guarded_by(&guard).wait().unwrap();
    network.isolate("a");
    let got = waiter(&b).join().unwrap();
    assert!(got.token > guard.token().0);
    b.put("/job", "by B");
    network.heal();
    let late = client.write("/job", "by A, late").guarded_by(&guard).wait();
    assert!(late.is_err(), "{late:?}");
    assert_eq!(b.read("/job").unwrap(), cistern_testkit::base64(b"by B"));
    // The client goes on by itself.
    client.write("/other", "by A").wait().unwrap();
}
