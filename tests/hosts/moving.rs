//! Agents that move: another address on their host, another port on a NAT (section 11.6).

use crate::cast::{agent, server, waiter};
use cistern_testkit::network::{Home, Host, Network};
use cistern_testkit::{Agent, Server, eventually};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};

/// Where the server sends what it has to say to an agent.
fn address_of(server: &Server, label: &str) -> SocketAddr {
    let listed = server.ask(&json!({ "op": "sessions" })).unwrap();
    let rows = listed["sessions"].as_array().unwrap();
    let row = rows.iter().find(|row| row["label"] == label).unwrap_or_else(|| panic!("{label} is not in {listed}"));
    row["address"].as_str().unwrap().parse().unwrap()
}

/// Takes /job for a user of A, moves A, and sees that the lock stays with it until it is given back.
fn moves_and_keeps(server: &Server, a: &mut Agent, b: &Agent, label: &str, moving: impl FnOnce()) -> (SocketAddr, SocketAddr) {
    a.put("/job", "");
    let session = a.lease()["session"].clone();
    let mut user = a.line();
    let (hold, token) = user.lock("/job");
    let from = address_of(server, label);
    moving();
    let to = eventually("the server sends to the new address", || {
        assert_eq!(user.hold(hold), "certain");
        Some(address_of(server, label)).filter(|to| *to != from)
    });
    assert_eq!(server.count("moves"), 1);
    //= wire-spec.md#11-6-sessions-handshake-and-paths
    //= type=test
    //# A session's address MUST change only for its highest packet number, and only after a PATH_CHALLENGE was answered from the new
    //# address.
    let status = server.status();
    assert!(status["messages_out"]["PATH_CHALLENGE"].as_u64() >= Some(1) && status["messages_in"]["PATH_RESPONSE"].as_u64() >= Some(1));
    // Demanded at the new address, and still in use there.
    let waiting = waiter(b);
    eventually("A hears the demand", || (a.count("demands") > 0).then_some(()));
    assert_eq!(user.hold(hold), "certain");
    user.unlock(hold);
    assert!(waiting.join().unwrap().token > token);
    assert_eq!((server.count("delivery_failures"), a.count("nacks"), a.lease()["session"].clone()), (0, 0, session));
    (from, to)
}

#[test]
fn an_agent_whose_host_gets_another_address_keeps_its_locks() {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    let server = server(&network, &["--lease", "2s"]);
    let host = network.host("a");
    let (mut a, b) = (agent(&server, host), agent(&server, network.host("b")));
    let (from, to) = moves_and_keeps(&server, &mut a, &b, "a", || readdress(host, host.v4, SECOND));
    assert_eq!((from.ip(), to.ip()), (host.v4.into(), SECOND.into()));
}

/// Addresses that hosts get besides those they begin with.
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 200);
const THIRD: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 201);

fn readdress(host: &Host, from: Ipv4Addr, to: Ipv4Addr) {
    host.namespace.ip(&format!("addr del {from}/24 dev eth0"));
    host.namespace.ip(&format!("addr add {to}/24 dev eth0"));
}

#[test]
fn an_agent_that_somebody_waits_for_is_found_at_each_new_address_before_its_delivery_fails() {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    let server = server(&network, &["--lease", "3s", "--delivery-timeout", "400ms"]);
    let host = network.host("a");
    let (mut a, b) = (agent(&server, host), agent(&server, network.host("b")));
    a.put("/job", "");
    let mut user = a.line();
    let (hold, token) = user.lock("/job");
    let waiting = waiter(&b);
    eventually("B waits", || (server.count("waiting") == 1).then_some(()));
    // Right after a renewal: the next keep-alive would be due in 1.8 s, and by then a probe, of which there is one in 1.5 s, has failed.
    for (moves, (from, to)) in (1..).zip([(host.v4, SECOND), (SECOND, THIRD), (THIRD, SECOND)]) {
        let renewed = a.count("renewals_explicit");
        eventually("A has just renewed", || (a.count("renewals_explicit") > renewed).then_some(()));
        readdress(host, from, to);
        eventually("the server sends to the new address", || (address_of(&server, "a").ip() == to).then_some(()));
        assert_eq!((user.hold(hold), server.count("delivery_failures")), ("certain".to_owned(), 0));
        assert_eq!(server.count("moves"), moves);
    }
    user.unlock(hold);
    assert!(waiting.join().unwrap().token > token);
    assert_eq!((server.count("delivery_failures"), a.count("nacks")), (0, 0));
}

#[test]
fn an_agent_whose_nat_gives_it_another_port_keeps_its_locks() {
    let Some(network) = Network::of(&["server", "router", "b"]) else { return };
    let server = server(&network, &["--lease", "2s"]);
    let home = Home::behind(&network, "router");
    let mut a = Agent::at(&home.place(), &server, &[server.address], "home", &["--idle", "eager"]);
    let b = agent(&server, network.host("b"));
    let (from, to) = moves_and_keeps(&server, &mut a, &b, "home", || home.map_to("30000-30999"));
    assert_eq!((from.ip(), to.ip()), (home.router.v4.into(), home.router.v4.into()));
    assert!((20_000..21_000).contains(&from.port()) && (30_000..31_000).contains(&to.port()), "from {from} to {to}");
}
