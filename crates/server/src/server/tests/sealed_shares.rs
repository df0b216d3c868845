//! Shares in the sealed mode: a key counts, wherever its sessions come from.

use super::sealed::{Peer, Sealed};
use crate::{Config, Used};
use alloc::vec::Vec;
use cistern_link::Path;
use cistern_wire::sealed::{OpenStatus, WelcomePayload};
use cistern_wire::{AgentId, Confirm, List};
use core::net::SocketAddr;

/// Another instance of a key, at an address of another network.
fn on(key: u8, n: u8) -> Peer {
    let path = Path::to(SocketAddr::from(([198, 51, n, 1], 4_000)));
    let mut peer = Peer::new(key);
    (peer.instance, peer.path, peer.handshake) = (AgentId([n; 16]), path, 1_000 * u64::from(n) + u64::from(key));
    peer
}

/// How WELCOME answers it.
fn asks(server: &mut Sealed, peer: &mut Peer) -> WelcomePayload {
    let cookie = peer.cookie(server);
    let open = peer.open(cookie);
    let answers = server.say(peer.path, &open);
    peer.welcome(answers.last().unwrap())
}

#[test]
fn all_sessions_of_a_key_count_for_it_wherever_they_come_from() {
    let mut server = Sealed::with(Config { sessions_max: 40, challenges_per_second: 1_000_000, ..Config::default() });
    for n in 1..=32 {
        server.open(&mut on(1, n));
    }
    let WelcomePayload { status, used, bound, .. } = asks(&mut server, &mut on(1, 33));
    assert_eq!((status, used, bound), (OpenStatus::Limit, 32, 32), "its share, from an address of its own");
    let rows = server.world.server.principals();
    let told: Vec<_> = rows.iter().map(|row| row.sessions).take(3).collect();
    assert_eq!(told, [Used { now: 0, most: 0 }, Used { now: 32, most: 32 }, Used { now: 0, most: 8 }], "all that is left");
    // Another key at an address of the first one.
    server.open(&mut on(2, 1));
    assert_eq!(server.world.server.figures(server.world.now).work.owners, 2);
}

#[test]
fn a_network_bounds_no_keys_and_a_key_is_bounded_in_all_networks() {
    let mut server = Sealed::with(Config { network_sessions_max: 2, challenges_per_second: 1_000_000, ..Config::default() });
    // Three keys in one network.
    for key in 1..=3 {
        server.open(&mut Peer::new(key));
    }
    server.open(&mut on(1, 1));
    let WelcomePayload { status, used, bound, retry_ms, .. } = asks(&mut server, &mut on(1, 2));
    assert_eq!((status, used, bound), (OpenStatus::Limit, 2, 2));
    assert!(retry_ms > 0);
    assert_eq!(asks(&mut server, &mut on(2, 3)).status, OpenStatus::Opened);
}

#[test]
fn a_key_with_many_offers_pushes_out_its_own_wherever_it_asks_from() {
    let config = Config { opening_max: 4, challenges_per_second: 1_000_000, ..Config::default() };
    let (mut server, mut other) = (Sealed::with(config), Peer::new(2));
    assert_eq!(asks(&mut server, &mut other).status, OpenStatus::Opened);
    for n in 1..=9 {
        assert_eq!(asks(&mut server, &mut on(1, n)).status, OpenStatus::Opened);
    }
    let record = other.record(&[Confirm { serial: 1, former: List::of(&[]) }.into()]);
    let opened = server.say(other.path, &record).pop().expect("its offer stands");
    assert!(!other.opened(&opened).is_empty());
}
