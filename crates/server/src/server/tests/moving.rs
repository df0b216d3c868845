//! Addresses: an agent that moves, and others that only claim so.

use super::world::{Peer, ROOT, World, lock, ms};
use crate::Dropped;
use alloc::vec;
use alloc::vec::Vec;
use cistern_wire::{GetAttr, KeepAlive, Kind, LockWait, Message, PathResponse, Want};

fn get(peer: &mut Peer) -> Message<'static> {
    GetAttr { ask: peer.ask_only(), object: ROOT, want: Want::Nothing }.into()
}

/// The token of the one challenge sent to the peer's address.
fn challenged(world: &mut World, peer: &Peer) -> u64 {
    let got = world.got_one(peer);
    match got.message() {
        Message::PathChallenge(challenge) => challenge.token,
        other => panic!("not a challenge: {other:?}"),
    }
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A session's address MUST change only for its highest packet number, and only after a PATH_CHALLENGE was answered from the new address.
#[test]
fn address_changes_when_the_new_one_answers_a_challenge_and_not_before() {
    let mut world = World::new();
    let home = world.open(1);
    let mut away = Peer { path: Peer::new(9).path, ..home.clone() };
    let request = get(&mut away);
    world.send(&mut away, &[request]);
    world.expect(&home, &[]);
    let token = challenged(&mut world, &away);
    assert_eq!(world.server.stats().dropped(Dropped::UnprovenAddress), 1, "the request does not act");
    world.send(&mut away, &[PathResponse { token: token ^ 1 }.into()]);
    assert_eq!(world.server.stats().dropped(Dropped::StrayPathResponse), 1);
    world.got(&away);
    let request = get(&mut away);
    world.send(&mut away, &[request, PathResponse { token }.into()]);
    assert_eq!(world.got_one(&away).message().kind(), Kind::Ack, "what came with the proof acts");
    world.expect(&home, &[]);
    assert_eq!(world.server.stats().moves, 1);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A session's address MUST change only for its highest packet number, and only after a PATH_CHALLENGE was answered from the new address.
#[test]
fn response_from_elsewhere_or_out_of_order_moves_nothing() {
    let mut world = World::new();
    let mut home = world.open(1);
    let mut away = Peer { path: Peer::new(9).path, packet: 10, ..home.clone() };
    let request = get(&mut away);
    world.send(&mut away, &[request]);
    world.expect(&home, &[]);
    let token = challenged(&mut world, &away);
    let mut third = Peer { path: Peer::new(8).path, ..away.clone() };
    world.send(&mut third, &[PathResponse { token }.into()]);
    world.expect(&third, &[]);
    home.packet = 20;
    let request = get(&mut home);
    world.send(&mut home, &[request]);
    assert_eq!(world.got_one(&home).message().kind(), Kind::Ack);
    let late = world.encode(away.session, 15, &[PathResponse { token }.into()]);
    world.deliver(away.path, &late);
    world.turn();
    let request = get(&mut home);
    world.send(&mut home, &[request]);
    assert_eq!(world.got_one(&home).message().kind(), Kind::Ack);
    world.expect(&away, &[]);
    assert_eq!(world.server.stats().moves, 0);
}

#[test]
fn copied_datagram_from_another_address_moves_nothing() {
    let mut world = World::new();
    let mut home = world.open(1);
    let request = get(&mut home);
    let bytes = world.encode(home.session, 1, &[request]);
    world.deliver(home.path, &bytes);
    world.turn();
    world.got(&home);
    let thief = Peer::new(9);
    world.deliver(thief.path, &bytes);
    world.turn();
    world.expect(&thief, &[]);
    world.expect(&home, &[]);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# Until then the server MUST send to the address proven last, and to the new one fewer bytes than came from it.
//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A server MUST NOT send more than one PATH_CHALLENGE for a session in a round trip, to however many addresses.
#[test]
fn unproven_address_is_sent_fewer_bytes_than_came_from_it() {
    let mut world = World::new();
    let home = world.open(1);
    let mut away = Peer { path: Peer::new(9).path, ..home.clone() };
    // It has 36 bytes, as a challenge would have.
    world.send(&mut away, &[PathResponse { token: 0 }.into()]);
    world.expect(&away, &[]);
    for _ in 0..10 {
        let serial = away.serial();
        world.send(&mut away, &[KeepAlive { serial, clock_us: 0 }.into()]);
    }
    assert_eq!(world.got_one(&away).datagram, 36, "one challenge a round trip, for 44 bytes");
    assert_eq!(world.got(&home).len(), 0);
    // Nor does it help to come from many.
    for n in 10..20 {
        let mut other = Peer { path: Peer::new(n).path, ..away.clone() };
        let serial = other.serial();
        world.send(&mut other, &[KeepAlive { serial, clock_us: 0 }.into()]);
        world.expect(&other, &[]);
    }
    assert!(world.server.stats().dropped(Dropped::RateLimited) > 0);
    world.tick(ms(20));
    world.send(&mut away, &[PathResponse { token: 0 }.into()]);
    world.expect(&away, &[]);
}

//= wire-spec.md#3-7-sizes-and-paths
//= type=test
//# A server MUST answer a datagram from the address and port to which it was sent.
//= wire-spec.md#3-7-sizes-and-paths
//= type=test
//# An answer without a session MUST go to the address and port from which its cause came.
#[test]
fn answers_leave_from_the_address_that_was_asked() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    for n in [1, 2] {
        peer.path.local = Some([10, 0, 0, n].into());
        let cookie = world.cookie(&mut peer);
        world.hello(&mut peer, &cookie);
        let got = world.got_one(&peer);
        assert_eq!(got.from, peer.path.local);
    }
    peer = Peer { path: peer.path, ..world.open(2) };
    peer.path = Peer::new(2).path;
    for n in [3, 4] {
        peer.path.local = Some([10, 0, 0, n].into());
        let request = get(&mut peer);
        world.send(&mut peer, &[request]);
        assert_eq!(world.got_one(&peer).from, peer.path.local);
    }
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# Before D the server MUST have sent the notice to the four addresses that the session has left last, too.
#[test]
fn demand_is_tried_at_each_address_proven_lately() {
    let mut world = World::new();
    let (home, mut waiter) = (world.open(1), world.open(2));
    let mut holder = home.clone();
    let file = world.create(&mut holder, "job").object;
    world.lock(&mut holder, file);
    holder.path = Peer::new(9).path;
    world.send(&mut holder, &[KeepAlive { serial: 1, clock_us: 0 }.into()]);
    world.got(&home);
    let token = challenged(&mut world, &holder);
    world.send(&mut holder, &[PathResponse { token }.into()]);
    let ask = waiter.ask();
    world.send(&mut waiter, &[lock(ask, file, LockWait::Queue).into()]);
    world.got(&waiter);
    world.attend(&waiter);
    assert_eq!(world.got_one(&home).message(), world.got_one(&holder).message());
    world.pass(ms(2_000));
    let (there, here) = (world.got(&home).len(), world.got(&holder).len());
    assert!(there >= 2 && here >= 2, "{there} and {here} transmissions before D");
    assert_eq!(world.server.lease_timers(), 1);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# Before D the server MUST have sent the notice to the four addresses that the session has left last, too.
#[test]
fn agent_that_moves_often_is_tried_at_the_four_addresses_that_it_left_last() {
    let mut world = World::new();
    let (home, mut waiter) = (world.open(1), world.open(2));
    let mut holder = home.clone();
    let file = world.create(&mut holder, "job").object;
    world.lock(&mut holder, file);
    let mut places = vec![home];
    for n in 10..16 {
        holder.path = Peer::new(n).path;
        let serial = holder.serial();
        world.send(&mut holder, &[KeepAlive { serial, clock_us: 0 }.into()]);
        places.iter().for_each(|place| drop(world.got(place)));
        let token = challenged(&mut world, &holder);
        world.send(&mut holder, &[PathResponse { token }.into()]);
        places.push(holder.clone());
    }
    // However long ago it left them.
    world.pass(ms(10_000));
    let ask = waiter.ask();
    world.send(&mut waiter, &[lock(ask, file, LockWait::Queue).into()]);
    world.got(&waiter);
    let demands: Vec<usize> = places.iter().map(|place| world.got(place).len()).collect();
    assert_eq!(demands, [0, 0, 1, 1, 1, 1, 1]);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# The first RTO for notices after a move SHOULD follow from the time between PATH_CHALLENGE and its answer.
#[test]
fn challenge_of_an_address_measures_its_round_trip_for_the_notices_that_follow() {
    for (round_trip, demands) in [(ms(10), 2..=4), (ms(80), 1..=1)] {
        let mut world = World::new();
        let mut home = world.open(1);
        let file = world.create(&mut home, "job").object;
        world.lock(&mut home, file);
        let mut away = Peer { path: Peer::new(9).path, ..home.clone() };
        let request = get(&mut away);
        world.send(&mut away, &[request]);
        let token = challenged(&mut world, &away);
        world.tick(round_trip);
        world.send(&mut away, &[PathResponse { token }.into()]);
        assert_eq!(world.server.stats().moves, 1);
        let mut other = world.open(2);
        let ask = other.ask_only();
        world.send(&mut other, &[lock(ask, file, LockWait::Queue).into()]);
        world.got(&other);
        world.pass(ms(100));
        let sent = world.got(&away).iter().filter(|got| got.message().kind() == Kind::Demand).count();
        assert!(demands.contains(&sent), "{sent} transmissions in 100 ms with a round trip of {round_trip:?}");
        world.got(&home);
        world.got(&other);
    }
}
