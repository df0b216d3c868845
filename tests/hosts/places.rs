//! Addresses: hosts with IPv6 only, and a server that has several addresses (`wire-spec.md` section 3.7).

use crate::cast::{Trace, agent, agent_by, timer, waiter};
use cistern_testkit::network::{Network, PORT};
use cistern_testkit::{Server, eventually, said};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

#[test]
fn hosts_without_ipv4_do_all_that_others_do() {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    for name in ["server", "a", "b"] {
        network.host(name).namespace.ip("-4 addr flush dev eth0");
        network.host(name).namespace.ip("-4 addr flush dev lo");
    }
    let (host, a, b) = (network.host("server"), network.host("a"), network.host("b"));
    let server = Server::at(&host.place(), &[host.server_v6()], &["--lease", "2s"]);
    let mut first = agent_by(&server, a, &[host.server_v6()]);
    let contents = "x".repeat(100_000);
    first.put("/f", &contents);
    let mut other = agent_by(&server, b, &[host.server_v6()]);
    assert_eq!(other.read("/f").unwrap(), cistern_testkit::base64(contents.as_bytes()));
    let trace = Trace::new(&server);
    let job = trace.job(&server, a);
    let token = trace.runs_on(a, 0);
    network.isolate("a");
    let asked = Instant::now();
    let _next = trace.job(&server, b);
    trace.runs_on(b, token);
    assert!(asked.elapsed() >= timer(&server));
    assert_eq!(job.ended().0, Some(79));
    trace.is_in_order();
    assert_eq!(server.status()["driver"]["dropped_no_port"], 0);
}

#[test]
fn whose_network_has_its_share_of_sessions_is_told_so() {
    let Some(network) = Network::of(&["server", "a", "b"]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let settings = dir.path().join("cistern.toml");
    std::fs::write(&settings, "[server]\nnetwork-sessions-max = 1\n").unwrap();
    let host = network.host("server");
    let listen = [host.server(), SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))];
    let server = Server::at(&host.place(), &listen, &["--lease", "2s", "--config", settings.to_str().unwrap()]);
    let mut first = agent(&server, network.host("a"));
    first.put("/f", "");
    let ask = |name: &str, server_is: SocketAddr| {
        let mut command = server.prepared(&["ls", "/", "--timeout", "5s", "--server", &server_is.to_string()]);
        network.host(name).place().run(move || command.output().unwrap())
    };
    let refused = ask("b", listen[0]);
    let told = said(&refused);
    assert!(refused.status.code() == Some(69) && told.contains("the agent's network has as many sessions"), "{told}");
    let own = ask("server", listen[1]);
    assert!(own.status.success(), "the server's own host is no network: {}", said(&own));
    let figures = server.ask(&json!({ "op": "stats" })).unwrap();
    let counted = figures["cistern_handshakes_refused_total"]["samples"].as_array().unwrap().iter();
    assert!(counted.filter(|sample| sample["labels"]["reason"] == "crowded").all(|sample| sample["value"].as_u64() > Some(0)), "{figures}");
    first.put("/f", "goes on");
}

/// The server's addresses besides those that every host has.
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 100);
const SECOND_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 0x100);

/// What leaves the server for a host, from the address that the host asks, and from any other.
fn count_answers(network: &Network, name: &str, asked: IpAddr) {
    let host = network.host(name);
    let to = match asked {
        IpAddr::V4(_) => format!("ip daddr {} udp sport {PORT} ip saddr", host.v4),
        IpAddr::V6(_) => format!("ip6 daddr {} udp sport {PORT} ip6 saddr", host.v6),
    };
    network.count(&format!("{name}_right"), &format!("iifname server {to} {asked}"));
    network.count(&format!("{name}_wrong"), &format!("iifname server {to} != {asked}"));
}

fn answers_are_right(network: &Network, name: &str) {
    let (right, wrong) = (network.counted(&format!("{name}_right")), network.counted(&format!("{name}_wrong")));
    assert!(right > 0 && wrong == 0, "{name} was sent {right} datagrams from the address that it asked, and {wrong} from others");
}

//= wire-spec.md#3-7-sizes-and-paths
//= type=test
//# A server MUST answer a datagram from the address and port to which it was sent.
#[test]
fn each_agent_hears_the_server_from_the_address_that_it_asked() {
    let Some(network) = Network::of(&["server", "a", "b", "c", "d"]) else { return };
    let host = network.host("server");
    host.namespace.ip(&format!("addr add {SECOND}/24 dev eth0"));
    host.namespace.ip(&format!("addr add {SECOND_V6}/64 dev eth0 nodad"));
    let any: [SocketAddr; 2] = [(Ipv4Addr::UNSPECIFIED, PORT).into(), (Ipv6Addr::UNSPECIFIED, PORT).into()];
    let server = Server::at(&host.place(), &any, &["--lease", "1s"]);
    let asked: [(&str, IpAddr); 4] = [("a", host.v4.into()), ("b", SECOND.into()), ("c", host.v6.into()), ("d", SECOND_V6.into())];
    let [mut a, mut b, mut c, mut d] = asked.map(|(name, address)| {
        count_answers(&network, name, address);
        agent_by(&server, network.host(name), &[(address, PORT).into()])
    });
    a.put("/job", "");
    // Demands, and grants to who waited: what the server says by itself.
    let mut got = waiter(&a).join().unwrap();
    for next in [&b, &c, &d, &a, &c, &b, &d] {
        let waiting = waiter(next);
        eventually("somebody waits", || (server.count("waiting") == 1).then_some(()));
        got.line.unlock(got.hold);
        got = waiting.join().unwrap();
    }
    for (name, agent) in [("a", &mut a), ("b", &mut b), ("c", &mut c), ("d", &mut d)] {
        assert!(agent.count("demands") > 0, "{name}");
        answers_are_right(&network, name);
    }
}

#[test]
fn an_agent_goes_on_by_the_server_s_other_address_with_its_lock_and_its_session() {
    let Some(network) = Network::of(&["server", "a"]) else { return };
    let host = network.host("server");
    host.namespace.ip(&format!("addr add {SECOND}/24 dev eth0"));
    let any: SocketAddr = (Ipv4Addr::UNSPECIFIED, PORT).into();
    let server = Server::at(&host.place(), &[any], &["--lease", "4s"]);
    let mut a = agent_by(&server, network.host("a"), &[host.server(), (SECOND, PORT).into()]);
    a.put("/job", "");
    let session = a.lease()["session"].clone();
    let mut user = a.line();
    let (hold, _) = user.lock("/job");
    // The first address is gone; the host is not.
    network.drop_address(host.v4);
    let explicit = a.count("renewals_explicit");
    eventually("A renews by the other address", || {
        assert_eq!(user.hold(hold), "certain");
        (a.count("renewals_explicit") > explicit + 1).then_some(())
    });
    a.ok(json!({ "op": "ping" }));
    assert_eq!((a.lease()["session"].clone(), a.count("nacks"), server.count("delivery_failures")), (session, 0, 0));
}
