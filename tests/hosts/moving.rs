//! Agents that move: another address on their host, another port on a NAT (R85).

use crate::cast::{agent, server, waiter};
use crate::network::{Host, Namespace, Network};
use crate::world::{Agent, Server, eventually};
use serde_json::json;
use std::net::SocketAddr;

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
    //# A session's address MUST change only for a datagram with its highest packet number, and only after a PATH_CHALLENGE was
    //# answered from the new address.
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
    let (from, to) = moves_and_keeps(&server, &mut a, &b, "a", || readdress(host));
    assert_eq!((from.ip(), to.ip()), (host.v4.into(), NEW_ADDRESS.into()));
}

const NEW_ADDRESS: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 77, 0, 200);

fn readdress(host: &Host) {
    host.namespace.ip(&format!("addr del {}/24 dev eth0", host.v4));
    host.namespace.ip(&format!("addr add {NEW_ADDRESS}/24 dev eth0"));
}

/// A home behind a router that translates addresses, and what the router does it with.
struct Home<'n> {
    router: &'n Host,
    inside: Namespace,
}

impl<'n> Home<'n> {
    fn behind(network: &'n Network, router: &'static str) -> Self {
        let router = network.host(router);
        let inside = network.beside("home");
        router.namespace.ip(&format!("link add inside type veth peer name eth0 netns {}", inside.name()));
        router.namespace.ip("addr add 192.168.77.1/24 dev inside");
        router.namespace.ip("link set inside up");
        router.namespace.set("ipv4/ip_forward", "1");
        inside.ip("addr add 192.168.77.2/24 dev eth0");
        inside.ip("link set eth0 up");
        inside.ip("route add default via 192.168.77.1");
        router.namespace.nft("add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }");
        let home = Self { router, inside };
        home.map_to("20000-20999");
        home
    }

    /// From now on datagrams from inside come from one of these ports, those of old flows, too.
    fn map_to(&self, ports: &str) {
        let rule = format!("flush chain ip nat post; add rule ip nat post oifname eth0 meta l4proto udp masquerade to :{ports}");
        self.router.namespace.nft(&rule);
        self.router.namespace.exec("conntrack -F");
    }
}

#[test]
fn an_agent_whose_nat_gives_it_another_port_keeps_its_locks() {
    let Some(network) = Network::of(&["server", "router", "b"]) else { return };
    let server = server(&network, &["--lease", "2s"]);
    let home = Home::behind(&network, "router");
    let mut a = Agent::at(&home.inside.place(), &server, &[server.address], "home", &["--idle", "eager"]);
    let b = agent(&server, network.host("b"));
    let (from, to) = moves_and_keeps(&server, &mut a, &b, "home", || home.map_to("30000-30999"));
    assert_eq!((from.ip(), to.ip()), (home.router.v4.into(), home.router.v4.into()));
    assert!((20_000..21_000).contains(&from.port()) && (30_000..31_000).contains(&to.port()), "from {from} to {to}");
}
