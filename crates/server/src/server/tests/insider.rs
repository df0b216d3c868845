//! An insider who has learnt a session's id, and sends from an address of its own.

use super::world::{Peer, ROOT, World, advisory, create, lock, ms, welcome};
use crate::Dropped;
use alloc::vec::Vec;
use cistern_wire::{
    Ask, Cancel, EndReason, EndSession, Generation, GetAttr, Keep, KeepAlive, Kind, List, LockWait, Message, ObjectId, Release,
    ReleaseItem, Reply, Want,
};

/// An agent that holds an advisory lock, and one who sends in its session from elsewhere.
fn insider(world: &mut World) -> (Peer, Peer, Generation, Message<'static>) {
    let mut holder = world.open(1);
    let file = world.create(&mut holder, "job").object;
    assert_eq!(file, ObjectId(2));
    let generation = world.lock(&mut holder, file);
    let thief = Peer { path: Peer::new(9).path, ..holder.clone() };
    (holder, thief, generation, lock(Ask { nonce: 1, back: 0, limit: 1_232 }, file, LockWait::Try).into())
}

/// Whether another agent is refused the lock, and the holder's session goes on.
fn holds(world: &mut World, holder: &mut Peer, asks: &Message<'static>) {
    let mut other = world.open(2);
    other.nonce = 1;
    world.send(&mut other, core::slice::from_ref(asks));
    let got = world.got_one(&other);
    assert!(matches!(got.reply(), Reply::LockRefused(_)), "{got:?}");
    let serial = holder.serial();
    world.send(holder, &[KeepAlive { serial, clock_us: 0 }.into()]);
    let kinds: Vec<Kind> = world.got(holder).iter().map(|got| got.message().kind()).collect();
    assert_eq!(kinds, [Kind::Demand, Kind::Alive], "it is asked for the lock, and its lease is renewed as before");
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A server MUST NOT act on a datagram of a session, nor note its packet number, from an address not proven for that session, unless it has
//# the PATH_RESPONSE that proves it.
#[test]
fn nothing_that_comes_from_an_unproven_address_acts() {
    let mut world = World::new();
    let (mut holder, mut thief, generation, asks) = insider(&mut world);
    let items = [ReleaseItem { lock: advisory(ObjectId(2)), generation, keep: Keep::Nothing }];
    let far = Ask { nonce: 100_000, back: 0, limit: 1_232 };
    let forged: [Message<'_>; 5] = [
        EndSession { serial: 9, reason: EndReason::Surrender }.into(),
        EndSession { serial: 9, reason: EndReason::Close }.into(),
        Release { serial: 9, items: List::of(&items) }.into(),
        create(far, "forged", Want::Nothing).into(),
        Cancel { serial: 9, nonce: 1 }.into(),
    ];
    let count = forged.len() as u64;
    for message in forged {
        world.send(&mut thief, &[message]);
        assert!(world.got(&thief).iter().all(|got| got.message().kind() == Kind::PathChallenge));
        world.expect(&holder, &[]);
        world.tick(ms(20));
    }
    thief.packet = 1 << 19;
    let serial = thief.serial();
    world.send(&mut thief, &[KeepAlive { serial, clock_us: 0 }.into()]);
    world.got(&thief);
    assert_eq!(world.server.stats().dropped(Dropped::UnprovenAddress), count + 1);
    holds(&mut world, &mut holder, &asks);
}

//= wire-spec.md#3-2-packet-numbers
//= type=test
//# A receiver MUST drop a packet number more than 2^20 above the highest received, or, before any, above the one before the first.
//= wire-spec.md#11-2-delivery
//= type=test
//# The server MUST NOT act on a message that announces a floor more than W above the one it keeps.
#[test]
fn jumps_that_no_agent_makes_are_dropped_even_from_the_proven_address() {
    let mut world = World::new();
    let (mut holder, _, _, asks) = insider(&mut world);
    let mut forger = holder.clone();
    forger.packet = 1 << 60;
    let serial = forger.serial();
    world.send(&mut forger, &[KeepAlive { serial, clock_us: 0 }.into()]);
    assert_eq!(world.server.stats().dropped(Dropped::PacketAhead), 1);
    let far = Ask { nonce: 100_000, back: 0, limit: 1_232 };
    let serial = holder.serial();
    world.send(&mut holder, &[create(far, "forged", Want::Nothing).into(), Cancel { serial, nonce: 100_000 }.into()]);
    assert_eq!(world.server.stats().dropped(Dropped::NonceAhead), 2);
    world.expect(&holder, &[]);
    let request = GetAttr { ask: holder.ask_only(), object: ROOT, want: Want::Nothing };
    world.send(&mut holder, &[request.into()]);
    assert_eq!(world.got_one(&holder).message().kind(), Kind::Ack, "its next request is answered");
    holds(&mut world, &mut holder, &asks);
}

//= wire-spec.md#3-2-packet-numbers
//= type=test
//# The first packet number of each direction MUST be drawn at random from 1 to 2^48−1.
//= wire-spec.md#3-2-packet-numbers
//= type=test
//# A receiver MUST drop a packet number below the first of its sender.
//= wire-spec.md#3-2-packet-numbers
//= type=test
//# A receiver MUST drop a packet number more than 2^20 above the highest received, or, before any, above the one before the first.
#[test]
fn session_without_a_datagram_yet_believes_no_number_but_those_of_its_agent() {
    const FIRST: u64 = 0x7777_0000_0001;
    let mut world = World::new();
    let mut peer = Peer::new(1);
    peer.first_packet = FIRST;
    let cookie = world.cookie(&mut peer);
    world.hello(&mut peer, &cookie);
    let opened = world.got_one(&peer);
    let told = welcome(&opened).first_packet;
    world.hello(&mut peer, &cookie);
    let again = world.got_one(&peer);
    assert_eq!(welcome(&again).first_packet, told, "the session is the same");
    assert!((1 << 20..1 << 48).contains(&told), "{told} is drawn, and small ones are too rare to be met here");
    peer.session = welcome(&opened).session;
    // Whoever has the session's id, and forges the agent's address, still has to guess.
    for (number, reason) in [
        (1, Dropped::StalePacket),
        (FIRST - 1, Dropped::StalePacket),
        (FIRST + (1 << 20), Dropped::PacketAhead),
        (1 << 60, Dropped::PacketAhead),
    ] {
        let before = world.server.stats().dropped(reason);
        peer.packet = number - 1;
        world.confirm(&mut peer, &[]);
        world.expect(&peer, &[]);
        assert_eq!(world.server.stats().dropped(reason), before + 1, "{number}");
    }
    peer.packet = FIRST - 1;
    world.confirm(&mut peer, &[]);
    let got = world.got_one(&peer);
    assert!(matches!(got.message(), Message::Opened(opened) if opened.echo == FIRST), "{got:?}");
    assert_eq!(got.packet, told, "the server begins where WELCOME said");
    let mut other = world.open(2);
    let serial = other.serial();
    world.send(&mut other, &[KeepAlive { serial, clock_us: 0 }.into()]);
    assert!(world.got_one(&other).packet.abs_diff(told) > 1 << 20, "each session has a beginning of its own");
}
