//! Hosts that stand still: every process of one stopped past the lease, and let go on (sections 11.1, 11.3 and 11.6).

use crate::cast::{Trace, agent, server, waiter};
use cistern_testkit::eventually;
use cistern_testkit::network::Network;
use nix::sys::signal::{Signal, kill};
use serde_json::json;
use std::thread::sleep;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(1);

/// Stops every process of a host, or lets all go on.
fn signal(network: &Network, host: &str, signal: Signal) {
    for process in network.host(host).namespace.processes() {
        // One that has just ended needs no signal.
        let _ = kill(process, signal);
    }
}

#[test]
fn a_host_that_stood_still_past_its_lease_finds_its_lock_lost_and_stops_what_ran_under_it() {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    let (a, b) = (network.host("a"), network.host("b"));
    let server = server(&network, &["--lease", "2s"]);
    let mut agent_of_a = agent(&server, a);
    agent_of_a.put("/other", "");
    let session = agent_of_a.lease()["session"].clone();
    let mut user = agent_of_a.line();
    let (hold, other) = user.lock("/other");
    let trace = Trace::new(&server);
    let first = trace.job(&server, a);
    let token = trace.runs_on(a, 0);
    signal(&network, "a", Signal::SIGSTOP);
    let second = trace.job(&server, b);
    let larger = trace.runs_on(b, token);
    let agent_of_b = agent(&server, b);
    let mut line = agent_of_b.line();
    let (_, other_larger) = line.lock("/other");
    assert!(other_larger > other);
    assert_eq!(server.count("steals"), 2);
    signal(&network, "a", Signal::SIGCONT);
    let (code, said) = first.ended();
    // Nothing that stands still can stop in time, and it says so.
    assert_eq!(code, Some(71), "{said}");
    assert_eq!(said.matches("/job: killing the command: ").count(), 1, "{said}");
    assert!(said.contains("/job: the command was gone only after its lock had ceased to be certain"), "{said}");
    eventually("A's user is told that the lock is lost", || (user.hold(hold) == "lost").then_some(()));
    agent_of_a.ok(json!({ "op": "stat", "path": "/other", "follow": true }));
    assert_ne!(agent_of_a.lease()["session"], session);
    // For a moment after it went on the command may have acted: its token says that it was too late.
    let late: Vec<_> = trace.lines().into_iter().skip_while(|line| line.1 != larger).filter(|line| line.0 == a.name).collect();
    assert!(late.iter().all(|line| line.1 == token && line.1 < larger), "{late:?}");
    let lines = trace.lines().len();
    eventually("B's job goes on alone", || (trace.lines().len() > lines + 3).then_some(()));
    assert!(trace.lines()[lines..].iter().all(|line| line.0 == b.name));
    second.end();
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Time in which the server stood still MUST NOT count towards a delivery timeout.
#[test]
fn a_server_host_that_stood_still_takes_no_lock_from_any_of_many_agents() {
    let Some(network) = Network::of(&["server", "a", "b", "c"]) else { return };
    let server = server(&network, &["--lease", "1s"]);
    let mut holders: Vec<_> = ["a", "b"].map(|name| agent(&server, network.host(name))).into();
    let waiting = agent(&server, network.host("c"));
    let mut held = Vec::new();
    for (at, holder) in holders.iter_mut().enumerate() {
        for n in 0..10 {
            let path = format!("/job-{at}-{n}");
            holder.put(&path, "");
            let mut user = holder.line();
            let (hold, _) = user.lock(&path);
            held.push((user, hold));
        }
        holder.put("/job", "");
    }
    let mut last = holders[0].line();
    let (hold, token) = last.lock("/job");
    let waiter = waiter(&waiting);
    eventually("C waits", || (server.count("waiting") == 1).then_some(()));
    signal(&network, "server", Signal::SIGSTOP);
    sleep(LEASE * 5 / 2);
    signal(&network, "server", Signal::SIGCONT);
    for (user, hold) in &mut held {
        eventually("a lock is certain again", || (user.hold(*hold) == "certain").then_some(()));
    }
    eventually("the lock that is waited for is certain again", || (last.hold(hold) == "certain").then_some(()));
    assert_eq!((server.count("delivery_failures"), server.count("steals"), server.count("lease_timers")), (0, 0, 0));
    assert_eq!(holders.iter_mut().map(|holder| holder.count("nacks")).sum::<u64>(), 0);
    last.unlock(hold);
    assert!(waiter.join().unwrap().token > token);
}
