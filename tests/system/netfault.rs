//! The fault proxy in front of the real server: several agents behind it, each with its own faults.

use crate::relay::Relay;
use cistern_netfault::stats::Lost;
use cistern_testkit::{Agent, Server, eventually};
use serde_json::json;
use std::thread;
use std::time::Duration;

/// A server, agents A and B behind one proxy.
fn both_behind_one(lease: &str) -> (Server, Relay, Agent, Agent) {
    let server = Server::with(&["--lease", lease]);
    let relay = Relay::start(server.address);
    let [a, b] = ["A", "B"].map(|label| Agent::by(&server, relay.address, label));
    (server, relay, a, b)
}

#[test]
fn agent_that_is_cut_in_one_direction_by_its_label_loses_its_lock_to_the_other_behind_the_same_proxy() {
    for direction in ["a->s", "s->a"] {
        let (server, relay, mut a, b) = both_behind_one("1s");
        a.put("/job", "");
        let mut user = a.line();
        let (hold, token) = user.lock("/job");
        relay.command(&format!("cut {direction} agent A"));
        let mut other = b.line();
        let (_, larger) = other.lock("/job");
        assert!(larger > token && server.count("steals") == 1, "{direction}");
        assert_ne!(user.hold(hold), "certain", "{direction}");
        let stats = relay.stats();
        let of = |label: &str| stats.agents.iter().find(|agent| agent.label == label).unwrap().counts.clone();
        let (up, down) = (of("A").up.lost.get(&Lost::Cut).copied(), of("A").down.lost.get(&Lost::Cut).copied());
        assert_eq!((up > Some(0), down > Some(0)), (direction == "a->s", direction == "s->a"), "{stats}");
        assert_eq!(of("B").up.lost_all() + of("B").down.lost_all(), 0, "{stats}");
        relay.heal();
        a.ok(json!({ "op": "stat", "path": "/job", "follow": true }));
        assert_eq!(user.hold(hold), "lost");
    }
}

#[test]
fn demands_that_never_arrive_cost_an_agent_its_lock_though_it_is_served_in_everything_else() {
    let (server, relay, mut a, b) = both_behind_one("1s");
    a.put("/job", "");
    let mut user = a.line();
    let (hold, token) = user.lock("/job");
    relay.command("loss 100% kind DEMAND agent A");
    let mut other = b.line();
    let waiter = thread::spawn(move || other.lock("/job"));
    eventually("the demand is not delivered", || (server.count("delivery_failures") == 1).then_some(()));
    let (_, larger) = waiter.join().unwrap();
    assert!(larger > token);
    eventually("A is told", || (user.hold(hold) == "lost").then_some(()));
    assert!(relay.stats().rules[0].touched >= 3, "{}", relay.stats());
}

#[test]
fn slow_narrow_lossy_and_shuffled_network_changes_no_answer() {
    // Long enough for every demand to be sent again often before it counts as failed.
    let (server, relay, mut a, mut b) = both_behind_one("8s");
    server.captures.have_hostile_datagrams();
    for rule in ["delay 2ms jitter 3ms", "loss 5%", "duplicate 5%", "reorder 10% by 10ms", "corrupt 2%", "rate 4mbit queue 500ms"] {
        relay.command(rule);
    }
    for n in 0..20 {
        let (path, text) = (format!("/f{n}"), format!("text {n}"));
        a.put(&path, &text);
        assert_eq!(b.read(&path).unwrap(), cistern_testkit::base64(text.as_bytes()));
    }
    let stats = relay.stats();
    let (up, down) = (&stats.total.up, &stats.total.down);
    assert!(up.lost_all() + down.lost_all() > 0 && up.corrupted + down.corrupted > 0 && down.delayed > 0, "{stats}");
}

#[test]
fn no_agent_loses_its_session_to_a_network_that_is_merely_bad() {
    let server = Server::with(&["--lease", "1s"]);
    let relay = Relay::start(server.address);
    let mut agents: Vec<Agent> = (0..6).map(|n| Agent::by(&server, relay.address, &format!("agent {n}"))).collect();
    let held: Vec<_> = agents
        .iter_mut()
        .enumerate()
        .map(|(n, agent)| {
            agent.put(&format!("/f{n}"), "");
            let mut user = agent.line();
            let (hold, _) = user.lock(&format!("/f{n}"));
            (user, hold, agent.lease()["session"].clone())
        })
        .collect();
    // Nobody waits for anybody, so no delivery can fail: whatever is lost here, its own agent has ended.
    for rules in [&["loss 40%"][..], &["loss 50% s->a"], &["delay 150ms jitter 100ms"], &["flap 300ms", "loss 10%"]] {
        for rule in rules {
            relay.command(rule);
        }
        thread::sleep(Duration::from_secs(5));
        relay.command("heal");
    }
    for ((mut user, hold, session), agent) in held.into_iter().zip(&mut agents) {
        eventually("the network is whole, and everything is valid again", || (user.hold(hold) == "certain").then_some(()));
        assert_eq!(agent.lease()["session"], session, "the same session goes on");
    }
    assert_eq!(server.count("delivery_failures"), 0);
}
