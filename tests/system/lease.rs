//! The lease: how it is renewed, and what it costs when nothing happens (sections 11.1 and 11.3).

use crate::relay::Relay;
use cistern_testkit::{Agent, Server, eventually};
use serde_json::json;
use std::thread::sleep;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(1);

#[test]
fn ordinary_requests_renew_the_lease_and_keep_alives_are_sent_only_without_them() {
    let server = Server::start();
    let mut a = Agent::start(&server, "A");
    a.put("/f", "x");
    a.ok(json!({ "op": "read", "path": "/f" }));
    let before = a.lease();
    for _ in 0..40 {
        a.ok(json!({ "op": "ping" }));
        sleep(LEASE / 20);
    }
    let busy = a.lease();
    let grown = |name: &str| busy[name].as_u64().unwrap() - before[name].as_u64().unwrap();
    assert!(grown("renewals_opportunistic") >= 40, "{busy}");
    assert_eq!(grown("renewals_explicit"), 0, "{busy}");
    let explicit = busy["renewals_explicit"].as_u64().unwrap();
    eventually("an idle agent that holds locks sends a keep-alive", || (a.count("renewals_explicit") > explicit).then_some(()));
}

#[test]
fn an_idle_agent_that_holds_nothing_sends_nothing() {
    let server = Server::start();
    let relay = Relay::start(server.address);
    let mut a = Agent::by(&server, relay.address, "A");
    a.ok(json!({ "op": "ping" }));
    sleep(LEASE / 4);
    let passed = relay.passed();
    sleep(LEASE * 3);
    assert_eq!(relay.passed(), passed);
}

#[test]
fn an_idle_agent_of_automatic_policy_gives_everything_back_and_goes_silent() {
    let server = Server::start();
    let relay = Relay::start(server.address);
    let config = server.dir.path().join("settings.toml");
    std::fs::write(&config, "[agent]\nidle-after = \"1s\"\n").unwrap();
    let mut a = Agent::with(&server, relay.address, "A", &["--idle", "auto", "--config", config.to_str().unwrap()]);
    a.put("/f", "x");
    a.read("/f").unwrap();
    assert!(a.count("cache_locks") > 0);
    eventually("the cache locks are given back", || (a.count("cache_locks") == 0 && server.count("locks") == 0).then_some(()));
    sleep(LEASE / 2);
    let passed = relay.passed();
    sleep(LEASE * 2);
    assert_eq!(relay.passed(), passed);
}

//= wire-spec.md#11-1-lease
//= type=test
//# The server MUST keep no lease state of a session in good standing.
#[test]
fn the_server_keeps_no_lease_state_without_a_failure() {
    let server = Server::start();
    let mut agents: Vec<_> = ["A", "B", "C"].iter().map(|name| Agent::start(&server, name)).collect();
    for (turn, agent) in (0..30).flat_map(|turn| (0..3).map(move |agent| (turn, agent))) {
        agents[agent].put(&format!("/f{agent}"), &turn.to_string());
        assert_eq!((server.count("timing_out"), server.count("lease_timers")), (0, 0));
    }
    sleep(LEASE * 2);
    assert_eq!((server.count("timing_out"), server.count("lease_timers")), (0, 0));
}

//= wire-spec.md#11-1-lease
//= type=test
//# The agent MUST keep what it holds over the end of its lease until it learns that the session has ended.
#[test]
fn a_lease_that_lapsed_without_a_failure_is_revived_with_all_that_was_kept() {
    let server = Server::start();
    let relay = Relay::start(server.address);
    let mut a = Agent::by(&server, relay.address, "A");
    a.put("/f", "x");
    let mut user = a.line();
    let (hold, _) = user.lock("/f");
    let session = a.lease()["session"].clone();
    relay.cut();
    eventually("the lock is uncertain", || (user.hold(hold) == "uncertain").then_some(()));
    relay.heal();
    eventually("the lock is certain again", || (user.hold(hold) == "certain").then_some(()));
    let lease = a.lease();
    assert_eq!((&lease["session"], &lease["nacks"]), (&session, &json!(0)));
    assert_eq!(server.count("delivery_failures"), 0);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# An empty store MUST wait T of the longest lease that the server gives before its first grant, unless told to be a new cluster.
#[test]
fn a_server_that_is_not_the_first_of_its_cluster_waits_before_it_grants_and_programs_wait_with_it() {
    let server = Server::of_cluster(&["--lease", "2s"]);
    let grace = &server.status()["grace"];
    assert!(grace["left_ms"].as_u64().unwrap() <= 2_021 && grace["blind"] == true, "{grace}");
    server.ok(&["mkdir", "/jobs"]);
    let status = server.status();
    assert!(status["grace"].is_null() && status["uptime_ms"].as_u64().unwrap() >= 2_020, "{status}");
    assert!(Server::start().status()["grace"].is_null());
}

#[test]
fn a_lease_longer_than_is_believed_in_takes_the_flag_that_believes_in_it() {
    let server = Server::with(&["--lease", "90s"]);
    let refused = server.cistern(&["ls", "--timeout", "1s", "/"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("lease-max"), "{told}");
    let taken = server.cistern(&["ls", "--timeout", "5s", "--lease-max", "2m", "/"]);
    assert!(taken.status.success(), "{taken:?}");
}
