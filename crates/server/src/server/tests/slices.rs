//! The end of a session with many locks: freed a slice in a turn, while everybody else is served as ever.
//!
//! What a turn does is counted, not timed.

use super::restart::held;
use super::world::{Peer, ROOT, World, cache_lock, lock};
use crate::Config;
use crate::principals::Rights;
use crate::store::Key;
use alloc::vec::Vec;
use cistern_link::Machine as _;
use cistern_wire::{
    Ask, Claim, EndReason, EndSession, Generation, GetAttr, LockWait, Message, ObjectId, Realm, ReclaimComplete, Reply, SessionFate,
    Status, Want,
};
use core::time::Duration;

const LOCKS: usize = 100;
const SLICE: u32 = 7;

/// A world with an agent that holds many locks and another that holds none, and the files with the generations of those locks.
fn many() -> (World, Peer, Peer, Vec<(ObjectId, Generation)>) {
    let mut world = World::with(Config { freed_per_turn: SLICE, volatile: true, ..Config::default() });
    let (mut peer, mut other) = (world.open(1), world.open(2));
    // Made by the other one: outcomes of mutations are kept, and deleted, besides; as many as a window at most.
    let files: Vec<_> = (0..LOCKS).map(|n| world.create(&mut other, &alloc::format!("file {n}")).object).collect();
    let locks = files.into_iter().map(|file| (file, world.lock(&mut peer, file))).collect();
    assert_eq!(world.server.status(world.now).locks, LOCKS);
    (world, peer, other, locks)
}

/// The agent ends its session; its end is durable, and nobody has had a turn since.
fn end(world: &mut World, peer: &mut Peer) {
    let end = EndSession { serial: peer.serial(), reason: EndReason::Close };
    world.post(peer, &[end.into()]);
    world.serve_store();
}

/// Whether the other agent is answered in the turn in which it asks.
fn is_served(world: &mut World, other: &mut Peer) -> bool {
    let ask = other.ask_only();
    world.send(other, &[GetAttr { ask, object: ROOT, want: Want::Nothing }.into()]);
    matches!(world.got(other).as_slice(), [got] if matches!(got.message(), Message::Ack(_)))
}

#[test]
fn no_turn_frees_more_than_a_slice_and_others_are_served_in_every_turn_until_all_is_freed() {
    let (mut world, mut peer, mut other, _) = many();
    end(&mut world, &mut peer);
    let (mut left, mut turns) = (world.server.status(world.now).locks, 0);
    assert!(left >= LOCKS - SLICE as usize, "a slice goes with the word of the store");
    while left > 0 {
        assert_eq!(world.server.wake_after(world.now), Some(Duration::ZERO), "the loop comes again at once");
        assert!(is_served(&mut world, &mut other));
        let now = world.server.status(world.now).locks;
        assert!(now < left && left - now <= SLICE as usize, "{left} locks, then {now}");
        (left, turns) = (now, turns + 1);
    }
    assert!(turns >= LOCKS / SLICE as usize - 1);
    world.got(&peer);
    assert!(is_served(&mut world, &mut other));
    assert_eq!(world.server.wake_after(world.now), None, "nothing is left to be done");
}

#[test]
fn what_an_ended_session_held_is_freed_although_the_socket_is_never_empty() {
    let (mut world, mut peer, _, _) = many();
    end(&mut world, &mut peer);
    for _ in 0..LOCKS {
        world.server.work(world.now);
    }
    assert_eq!(world.server.status(world.now).locks, 0);
    world.got(&peer);
}

#[test]
fn lock_that_no_slice_has_reached_goes_to_the_first_who_asks_and_to_nobody_else() {
    let (mut world, mut peer, mut other, locks) = many();
    let mut third = world.open(3);
    end(&mut world, &mut peer);
    let last = locks[LOCKS - 1].0;
    let granted = world.lock(&mut other, last);
    let ask = third.ask_only();
    world.send(&mut third, &[lock(ask, last, LockWait::Try).into()]);
    assert!(matches!(world.got_one(&third).reply(), Reply::LockRefused(_)));
    assert!(world.server.status(world.now).locks > LOCKS / 2, "most locks have not been reached");
    world.got(&other);
    world.attend(&other);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.server.status(world.now).locks, 1, "the sweep takes nothing away that was granted meanwhile");
    let slot = world.server.sessions.slot(world.server.sessions.find(other.session).unwrap());
    assert_eq!(world.server.locks.held(slot, super::world::advisory(last)), Some(granted));
    world.got(&peer);
    world.got(&other);
}

#[test]
fn those_who_wait_for_a_lock_of_an_ended_session_come_in_the_first_slice_wherever_it_stands() {
    let (mut world, mut peer, mut other, locks) = many();
    world.attend(&other);
    for at in [LOCKS - 1, LOCKS / 2, 3] {
        let ask = Ask { back: 0, ..other.ask() };
        world.send(&mut other, &[lock(ask, locks[at].0, LockWait::Queue).into()]);
    }
    world.got(&other);
    world.got(&peer);
    end(&mut world, &mut peer);
    world.turn();
    let granted = world.got(&other).iter().filter(|got| matches!(got.message(), Message::Grant(_))).count();
    assert_eq!(granted, 3);
    assert!(world.server.status(world.now).locks > LOCKS / 2);
    world.got(&peer);
}

#[test]
fn those_who_begin_to_wait_while_the_store_writes_the_end_come_in_the_first_slice_too() {
    let (mut world, mut peer, mut other, locks) = many();
    world.attend(&other);
    world.stalled = true;
    let end = EndSession { serial: peer.serial(), reason: EndReason::Close };
    world.send(&mut peer, &[end.into()]);
    let ask = Ask { back: 0, ..other.ask() };
    world.send(&mut other, &[lock(ask, locks[LOCKS - 1].0, LockWait::Queue).into()]);
    world.got(&other);
    world.stalled = false;
    world.turn();
    let granted = world.got(&other).iter().filter(|got| matches!(got.message(), Message::Grant(_))).count();
    assert_eq!(granted, 1);
    assert!(world.server.status(world.now).locks > LOCKS / 2);
    world.got(&peer);
}

#[test]
fn end_is_one_write_however_many_locks_there_are_and_a_crash_within_the_slices_brings_none_back() {
    let (mut world, mut peer, mut other, locks) = many();
    world.stalled = true;
    let serial = peer.serial();
    world.send(&mut peer, &[EndSession { serial, reason: EndReason::Close }.into()]);
    let written: Vec<_> = world.disk.batches.iter().flat_map(|batch| batch.writes.clone()).collect();
    assert_eq!(written, [(Key::Session(peer.session), None)]);
    world.stalled = false;
    world.turn();
    assert!(world.server.status(world.now).locks > 0, "not all is freed");
    world.got(&peer);
    world.crash();
    let former = peer.session;
    peer.incarnation += 1;
    let fates = world.open_again(&mut peer, &[(former, Claim::Reclaiming)]);
    assert_eq!(fates[0].fate, SessionFate::Ended);
    world.open_again(&mut other, &[]);
    let told = world.reclaim(&mut peer, former, &[held(locks[0].0, locks[0].1)]);
    assert_ne!(told[0].status, Status::OK);
    assert_eq!(world.server.status(world.now).locks, 0);
}

#[test]
fn completion_that_no_slice_of_the_end_of_grace_has_reached_is_answered_when_it_is_durable() {
    const PEERS: u8 = 6;
    let mut world = World::with(Config { freed_per_turn: 1, volatile: true, ..Config::default() });
    let mut peers: Vec<Peer> = (1..=PEERS).map(|n| world.open(n)).collect();
    world.crash();
    let former: Vec<_> = peers.iter_mut().map(|peer| world.come_back(peer)).collect();
    world.tick(world.server.config.wait());
    world.server.handle_drained(world.now);
    world.stalled = true;
    world.serve_store();
    let written = world.disk.batches.iter().flat_map(|batch| &batch.writes);
    let ended = written.filter(|write| matches!(write, (Key::Session(_), None))).count();
    assert_eq!(ended, 1, "a slice is one session");
    for (peer, from) in peers.iter_mut().zip(&former) {
        let ask = peer.ask_only();
        world.post(peer, &[ReclaimComplete { ask, from: *from }.into()]);
    }
    world.transmit();
    for peer in &peers {
        world.expect(peer, &[]);
    }
    world.stalled = false;
    world.serve_store();
    world.transmit();
    for (peer, from) in peers.iter().zip(former) {
        let got = world.got_one(peer);
        assert!(matches!(got.reply(), Reply::Failed(failed) if failed.status == Status::NOT_HELD), "{got:?}");
        assert!(!world.disk.values.contains_key(&Key::Session(from)));
    }
    world.pass(Duration::from_millis(1));
    assert!(!world.in_grace());
}

#[test]
fn caches_of_withdrawn_rights_are_demanded_a_slice_in_a_turn_and_nobody_else_s() {
    let (mut world, _, mut other, locks) = many();
    let who = world.principal("web", &[(Realm::TREE, "r")]);
    let mut reader = world.open_as(3, who);
    for (file, _) in &locks {
        world.cache(&mut reader, *file);
    }
    let kept = world.cache(&mut other, locks[0].0);
    let before = world.server.locks.asked();
    world.server.grant(world.now, who, Realm::TREE, Rights::NONE).unwrap();
    let mut asked = world.server.locks.asked();
    assert!(asked - before <= u64::from(SLICE), "{asked} after {before}");
    let mut turns = 0;
    while world.server.wake_after(world.now) == Some(Duration::ZERO) {
        world.turn();
        let now = world.server.locks.asked();
        assert!(now - asked <= u64::from(SLICE), "{now} after {asked}");
        (asked, turns) = (now, turns + 1);
    }
    assert_eq!(asked - before, LOCKS as u64, "each of its caches, and no other lock");
    assert!(turns >= 2 * LOCKS / SLICE as usize - 2, "{turns} turns for twice as many locks");
    let slot = world.server.sessions.slot(world.server.sessions.find(other.session).unwrap());
    assert_eq!(world.server.locks.held(slot, cache_lock(locks[0].0)), Some(kept));
    drop(world.got(&reader));
}

#[test]
fn sessions_of_a_withdrawn_key_end_a_slice_in_a_turn() {
    let mut world = World::with(Config { freed_per_turn: 3, volatile: true, ..Config::default() });
    let who = world.principal("web", &[(Realm::TREE, "rwl")]);
    let stays = world.open(1);
    let peers: Vec<Peer> = (2..=21).map(|n| world.open_as(n, who)).collect();
    world.stalled = true;
    world.server.revoke(world.now, who).unwrap();
    world.turn();
    world.stalled = false;
    world.serve_store();
    let (mut ended, mut turns) = (world.server.status(world.now).timing_out, 0);
    assert!(ended <= 3, "{ended}");
    while ended < peers.len() {
        world.turn();
        let now = world.server.status(world.now).timing_out;
        assert!(now - ended <= 3, "{now} after {ended}");
        (ended, turns) = (now, turns + 1);
        assert!(turns < 10);
    }
    assert_eq!(world.server.status(world.now).sessions, 1);
    peers.iter().chain([&stays]).for_each(|peer| drop(world.got(peer)));
}
