//! Calls of a server that has taken over: to whom, once, and in which order.

use super::idle::{TAU, pass, take_over};
use super::tenure::elected;
use super::world::{Got, Peer, World, ms};
use crate::Config;
use crate::store::tests::disk::Disk;
use crate::store::{Key, SessionRecord};
use cistern_link::Path;
use cistern_wire::limits::CALL;
use cistern_wire::{AgentId, Bytes8, Hint, KeepAlive, Message, PathResponse, SessionId};
use core::net::SocketAddr;
use std::collections::BTreeMap;
use std::vec::Vec;

/// What came to a peer: nothing but calls.
fn calls(world: &mut World, peer: &Peer) -> Vec<Got> {
    let got = world.got(peer);
    for got in &got {
        assert_eq!(got.message(), Message::Hint(Hint { echo: CALL, detail: Bytes8(b"") }));
    }
    got
}

//= wire-spec.md#11-10-groups-of-servers
//= type=test
//# A server MUST NOT send more than one call for a session in one tenure, nor all of them at once; those of sessions that may hold something
//# go first.
#[test]
fn each_recorded_agent_is_called_once_and_who_may_hold_something_first() {
    let mut world = elected(Config::default());
    let idle: Vec<Peer> = (1..=60).map(|n| world.open(n)).collect();
    pass(&mut world, TAU + ms(100));
    let late: Vec<Peer> = (61..=120).map(|n| world.open(n)).collect();
    let mut world = take_over(world);
    pass(&mut world, ms(500));
    let mut at_once: BTreeMap<_, usize> = BTreeMap::new();
    let mut called = |world: &mut World, peers: &[Peer]| -> Vec<_> {
        let called = peers.iter().map(|peer| match &calls(world, peer)[..] {
            [call] => (call.session == peer.session).then_some(call.at.raw_ns).expect("the session by which its agent knows itself"),
            more => panic!("{} calls", more.len()),
        });
        let called: Vec<_> = called.collect();
        called.iter().for_each(|at| *at_once.entry(*at).or_default() += 1);
        called
    };
    let (may_hold, holds_nothing) = (called(&mut world, &late), called(&mut world, &idle));
    assert!(may_hold.iter().max() <= holds_nothing.iter().min(), "who may hold something is waited for by others");
    assert_eq!(at_once.into_values().collect::<Vec<_>>(), [50, 50, 20]);
}

#[test]
fn agent_is_called_where_it_has_moved_to() {
    let mut world = elected(Config::default());
    let mut peer = world.open(1);
    let former = peer.clone();
    peer.path = Path::to(SocketAddr::from(([192, 0, 2, 200], 4_001)));
    let serial = peer.serial();
    world.send(&mut peer, &[KeepAlive { serial, clock_us: 0 }.into()]);
    let got = world.got_one(&peer);
    let Message::PathChallenge(challenge) = got.message() else { panic!("{got:?}") };
    world.send(&mut peer, &[PathResponse { token: challenge.token }.into()]);
    let mut world = take_over(world);
    world.turn();
    assert_eq!((calls(&mut world, &peer).len(), calls(&mut world, &former).len()), (1, 0));
}

#[test]
fn server_without_a_group_calls_nobody() {
    let mut disk = Disk::default();
    disk.set_counter(crate::store::Counter::Incarnation, 1);
    let address = Some(SocketAddr::from(([192, 0, 2, 1], 4_000)));
    let record = SessionRecord {
        principal: crate::ids::PrincipalId::ANYBODY,
        agent: AgentId([1; 16]),
        incarnation: 1,
        boot: [0; 16],
        lease_us: 2_000_000,
        window: 1,
        unreclaimable: false,
        locks: None,
        start: 0,
        address,
        label: (*b"x").into(),
    };
    disk.values.insert(Key::Session(SessionId(7)), record.to_bytes().into());
    let mut world = World::on(disk, Config::default(), 7);
    world.pass(ms(500));
    assert!(world.got(&Peer::new(1)).is_empty());
}
