//! Loss: packets vanish at random, and nobody is cut off (sections 11.1, 11.2 and 11.3).

use crate::cast::{agent, server, waiter};
use cistern_testkit::network::Network;
use cistern_testkit::{Agent, Line, eventually};
use serde_json::json;
use std::thread;
use std::time::Duration;

/// How often each agent counts on.
const ROUNDS: usize = 15;

/// Adds one to the number in /count, under the lock of /job; gives the token.
fn count_on(line: &mut Line) -> u64 {
    let (hold, token) = line.lock("/job");
    let count = counted(line);
    line.put("/count", &"x".repeat(count + 1));
    line.unlock(hold);
    token
}

/// The number in /count: how long it is.
fn counted(line: &mut Line) -> usize {
    let stat = line.ok(json!({ "op": "stat", "path": "/count", "follow": true }));
    stat["attr"]["size"].as_u64().unwrap().try_into().unwrap()
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Before D the server MUST have sent the notice at least three times, and listened for an RTO after each, its receive queue empty at the
//# end.
#[test]
fn mere_loss_takes_no_lock_and_no_answered_change_from_anybody() {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    // Td has room for some nine transmissions of a demand: of fifteen in a hundred lost each way, all nine are lost in one of 100,000.
    let server = server(&network, &["--lease", "2s", "--delivery-timeout", "1s"]);
    let mut agents: Vec<Agent> = ["a", "b"].map(|name| agent(&server, network.host(name))).into();
    agents[0].put("/job", "");
    agents[0].put("/count", "");
    network.lose(15);
    let work = |agent: &Agent| {
        let mut line = agent.line();
        thread::spawn(move || (0..ROUNDS).map(|_| count_on(&mut line)).collect::<Vec<_>>())
    };
    let mut tokens: Vec<_> = agents.iter().map(work).collect::<Vec<_>>().into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let lost: u64 = agents.iter_mut().map(|agent| agent.count("retransmissions")).sum();
    assert!(lost > 0, "nothing was lost");
    network.heal();
    assert_eq!(counted(&mut agents[0]), 2 * ROUNDS, "an answered change is lost, or was done twice");
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 2 * ROUNDS, "a token was given twice");
    assert_eq!((server.count("delivery_failures"), server.count("steals")), (0, 0));
    assert_eq!(agents.iter_mut().map(|agent| agent.count("nacks")).sum::<u64>(), 0);
}

#[test]
fn a_wire_that_comes_and_goes_for_less_than_td_takes_no_lock() {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    let server = server(&network, &["--lease", "2s"]);
    let mut a = agent(&server, network.host("a"));
    let b = agent(&server, network.host("b"));
    a.put("/job", "");
    let mut user = a.line();
    let (hold, token) = user.lock("/job");
    let waiting = waiter(&b);
    eventually("B waits", || (server.count("waiting") == 1).then_some(()));
    for _ in 0..8 {
        network.isolate("a");
        thread::sleep(Duration::from_millis(120));
        network.heal();
        thread::sleep(Duration::from_millis(200));
        assert_eq!(user.hold(hold), "certain");
    }
    assert_eq!((server.count("delivery_failures"), a.count("nacks")), (0, 0));
    user.unlock(hold);
    assert!(waiting.join().unwrap().token > token);
}
