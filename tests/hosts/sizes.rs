//! Paths that carry only small packets: nothing is fragmented, and what does not fit goes in smaller pieces (sections 3.7 and 11.5).

use crate::cast::{agent, waiter};
use cistern_testkit::network::{Home, Network};
use cistern_testkit::{Agent, Server, base64};
use serde_json::json;
use std::fs;
use std::net::SocketAddr;

/// Counts datagrams that may be fragmented, or are fragments.
fn count_fragments(network: &Network) {
    network.count("fragments_v4", "meta l4proto udp ip frag-off != 0x4000");
    network.count("fragments_v6", "exthdr frag exists");
}

fn none_was_fragmented(network: &Network) {
    //= wire-spec.md#3-7-sizes-and-paths
    //= type=test
    //# A sender SHOULD forbid IP fragmentation of its datagrams.
    assert_eq!((network.counted("fragments_v4"), network.counted("fragments_v6")), (0, 0));
}

/// Does with a pair of agents what needs large datagrams, where there are any: contents and directories both ways, and a lock that is
/// handed on meanwhile.
fn everything_passes(server: &Server, a: &mut Agent, b: &mut Agent) {
    let contents = "0123456789abcdef".repeat(3_000);
    a.put("/job", "");
    let mut user = a.line();
    let (hold, token) = user.lock("/job");
    let waiting = waiter(b);
    a.put("/large", &contents);
    assert_eq!(b.read("/large").unwrap(), base64(contents.as_bytes()));
    b.put("/large", &contents[1..]);
    assert_eq!(a.read("/large").unwrap(), base64(&contents.as_bytes()[1..]));
    let name = |n: u32| format!("/{}-{n}", "name".repeat(20));
    for n in 0..30 {
        b.put(&name(n), "");
    }
    let listed = a.ok(json!({ "op": "list", "path": "/", "detail": true }))["listing"].as_array().unwrap().len();
    assert_eq!(listed, 32);
    assert_eq!(user.hold(hold), "certain");
    user.unlock(hold);
    assert!(waiting.join().unwrap().token > token);
    assert_eq!((server.count("delivery_failures"), a.count("nacks"), b.count("nacks")), (0, 0, 0));
}

/// Agents on both sides of a wire that carries packets of `mtu` bytes at most, and says nothing of what it drops.
fn black_hole(mtu: u32, v6: bool) {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    let host = network.host("server");
    let address: SocketAddr = if v6 { host.server_v6() } else { host.server() };
    let server = Server::at(&host.place(), &[address], &["--lease", "2s"]);
    network.switch_port("a", &format!("mtu {mtu}"));
    count_fragments(&network);
    // Beside the payload a datagram has 8 bytes of UDP, and 20 of IPv4 or 40 of IPv6.
    network.count("too_large", &format!("udp length > {}", mtu - if v6 { 40 } else { 20 }));
    let (mut a, mut b) = (agent(&server, network.host("a")), agent(&server, network.host("b")));
    everything_passes(&server, &mut a, &mut b);
    none_was_fragmented(&network);
    assert_eq!(network.counted("too_large") > 0, mtu < 1_280, "only what does not fit the least IPv6 path is tried in vain");
}

/// Every host's wire and the switch carry packets of 9,000 bytes, and the settings let datagrams be as large as they can be.
fn large_datagrams(network: &Network) -> (Server, [Agent; 2]) {
    network.switch_port("bridge", "mtu 9000");
    for name in ["server", "a", "b"] {
        network.switch_port(name, "mtu 9000");
        network.host(name).namespace.ip("link set eth0 mtu 9000");
    }
    let dir = tempfile::tempdir().unwrap();
    let settings = dir.path().join("settings.toml");
    fs::write(&settings, "[server]\nmax-datagram = 8952\n[agent]\nmax-datagram = 8952\n").unwrap();
    let settings = settings.to_str().unwrap();
    let host = network.host("server");
    let server = Server::at(&host.place(), &[host.server()], &["--lease", "2s", "--config", settings]);
    let args = ["--idle", "eager", "--config", settings];
    let agents = ["a", "b"].map(|name| Agent::at(&network.host(name).place(), &server, &[server.address], name, &args));
    (server, agents)
}

#[test]
fn large_datagrams_are_used_where_every_wire_carries_them() {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    let (server, [mut a, mut b]) = large_datagrams(&network);
    network.count("large", "udp length > 4000");
    count_fragments(&network);
    everything_passes(&server, &mut a, &mut b);
    none_was_fragmented(&network);
    assert!(network.counted("large") > 0);
}

#[test]
fn large_datagrams_that_one_wire_swallows_are_given_up_for_small_ones() {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    let (server, [mut a, mut b]) = large_datagrams(&network);
    network.switch_port("a", "mtu 1280");
    count_fragments(&network);
    everything_passes(&server, &mut a, &mut b);
    none_was_fragmented(&network);
}

#[test]
fn an_agent_on_a_host_whose_own_wire_takes_576_bytes_works_with_small_datagrams() {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    let host = network.host("server");
    let server = Server::at(&host.place(), &[host.server()], &["--lease", "2s"]);
    network.switch_port("a", "mtu 576");
    network.host("a").namespace.ip("link set eth0 mtu 576");
    count_fragments(&network);
    let (mut a, mut b) = (agent(&server, network.host("a")), agent(&server, network.host("b")));
    everything_passes(&server, &mut a, &mut b);
    none_was_fragmented(&network);
}

#[test]
fn a_router_that_refuses_large_packets_by_icmp_is_believed_by_nobody_and_small_ones_pass() {
    let Some(network) = Network::of(&["server", "router", "b"]) else { return };
    let host = network.host("server");
    let server = Server::at(&host.place(), &[host.server()], &["--lease", "2s"]);
    let home = Home::behind(&network, "router");
    home.wire("mtu 576");
    count_fragments(&network);
    let mut a = Agent::at(&home.place(), &server, &[server.address], "home", &["--idle", "eager"]);
    let mut b = agent(&server, network.host("b"));
    // What A asks for first comes in large datagrams.
    everything_passes(&server, &mut b, &mut a);
    none_was_fragmented(&network);
    assert!(server.status()["driver"]["icmp_too_big"].as_u64() > Some(0), "the router said nothing");
}

#[test]
fn by_default_every_datagram_fits_a_path_of_1280_bytes() {
    black_hole(1_280, true);
}

#[test]
fn a_path_that_swallows_all_above_576_bytes_carries_everything_in_small_pieces() {
    black_hole(576, false);
}
