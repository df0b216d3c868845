//! Paths that carry only small packets: nothing is fragmented, and what does not fit goes in smaller pieces (R28, R80).

use crate::cast::{agent, waiter};
use crate::network::Network;
use crate::world::{Agent, Server, base64};
use serde_json::json;
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
    let (mut a, mut b) = (agent(&server, network.host("a")), agent(&server, network.host("b")));
    everything_passes(&server, &mut a, &mut b);
    none_was_fragmented(&network);
    if mtu >= 1280 {
        assert_eq!(server.status()["driver"]["dropped_send_too_big"], 0);
    }
}

#[test]
fn by_default_every_datagram_fits_a_path_of_1280_bytes() {
    black_hole(1_280, true);
}

#[test]
fn a_path_that_swallows_all_above_576_bytes_carries_everything_in_small_pieces() {
    black_hole(576, false);
}
