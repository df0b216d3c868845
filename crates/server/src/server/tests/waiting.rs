//! Those who wait, and whom they wait for: dead ones fail side by side, nobody waits for one who waits, and how long all that takes.

use super::world::{Peer, World, advisory, cache_lock, lock, ms};
use crate::Config;
use crate::config::LockLimits;
use alloc::vec::Vec;
use cistern_link::Machine as _;
use cistern_wire::{
    Cancel, Keep, KeepAlive, Kind, List, LockWait, Message, ObjectId, PathResponse, Probe, Release, ReleaseItem, SetAttr, SetMask, Terms,
};
use core::time::Duration;

fn kinds(world: &mut World, peer: &Peer) -> Vec<Kind> {
    world.got(peer).iter().map(|got| got.message().kind()).collect()
}

fn queue(world: &mut World, peer: &mut Peer, object: ObjectId) -> u64 {
    let ask = peer.ask();
    world.send(peer, &[lock(ask, object, LockWait::Queue).into()]);
    assert_eq!(kinds(world, peer), [Kind::Queued]);
    ask.nonce
}

fn chmod(peer: &mut Peer, object: ObjectId) -> Message<'static> {
    let (ask, mask) = (peer.ask_only(), SetMask { bits: SetMask::MODE });
    SetAttr { ask, object, mask, mode: 0o600, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms: Terms::NONE }.into()
}

/// Time until the peer is sent a message of `kind`; whoever else was sent something is of no interest.
fn until(world: &mut World, peer: &Peer, kind: Kind, others: &[&Peer]) -> Duration {
    for waited in 0..60_000 {
        if kinds(world, peer).contains(&kind) {
            return ms(waited);
        }
        others.iter().for_each(|other| drop(world.got(other)));
        world.pass(ms(1));
    }
    panic!("never sent {}", kind.name());
}

//= wire-spec.md#11-4-locks
//= type=test
//# The server SHOULD probe the sessions that wait for a lock, so that those that are gone fail side by side.
//= wire-spec.md#11-4-locks
//= type=test
//# The server SHOULD pass over waiting sessions that are not in good standing.
#[test]
fn three_dead_waiters_behind_a_dead_holder_cost_no_more_than_the_holder() {
    let mut world = World::new();
    let (mut holder, mut dead) = (world.open(1), [world.open(2), world.open(3), world.open(4)]);
    let mut living = world.open(5);
    let file = world.create(&mut holder, "job").object;
    world.lock(&mut holder, file);
    for peer in &mut dead {
        queue(&mut world, peer, file);
    }
    queue(&mut world, &mut living, file);
    world.attend(&living);
    let [a, b, c] = &dead;
    let waited = until(&mut world, &living, Kind::Grant, &[&holder, a, b, c]);
    assert!(waited <= ms(500 + 2_021 + 1), "Td and T, once: {waited:?}");
    assert_eq!(world.server.stats().failures, 4);
    for peer in [&holder, a, b, c] {
        world.got(peer);
    }
}

//= wire-spec.md#11-4-locks
//= type=test
//# The server SHOULD pass over waiting sessions that are not in good standing.
#[test]
fn lock_given_back_goes_past_a_dead_waiter_to_the_next() {
    let mut world = World::new();
    let (mut holder, mut dead, mut living) = (world.open(1), world.open(2), world.open(3));
    let file = world.create(&mut holder, "job").object;
    let generation = world.lock(&mut holder, file);
    queue(&mut world, &mut dead, file);
    queue(&mut world, &mut living, file);
    world.send(&mut holder, &[cistern_wire::Receipt { seq: 1, answer: cistern_wire::ReceiptAnswer::InUse }.into()]);
    world.attend(&holder);
    world.attend(&living);
    world.pass(ms(1_600));
    assert_eq!(world.server.lease_timers(), 1, "only the dead one has failed");
    assert!(kinds(&mut world, &dead).iter().all(|kind| *kind == Kind::Probe));
    let items = [ReleaseItem { lock: advisory(file), generation, keep: Keep::Nothing }];
    let release = Release { serial: holder.serial(), items: List::of(&items) };
    world.send(&mut holder, &[release.into()]);
    assert_eq!(kinds(&mut world, &living), [Kind::Grant]);
    assert!(kinds(&mut world, &holder).contains(&Kind::Released));
    world.expect(&dead, &[]);
}

//= wire-spec.md#11-4-locks
//= type=test
//# The server SHOULD probe the sessions that wait for a lock, so that those that are gone fail side by side.
#[test]
fn waiter_is_probed_every_period_for_as_long_as_it_waits() {
    let mut world = World::new();
    let (mut holder, mut waiter) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    world.lock(&mut holder, file);
    let nonce = queue(&mut world, &mut waiter, file);
    world.send(&mut holder, &[cistern_wire::Receipt { seq: 1, answer: cistern_wire::ReceiptAnswer::InUse }.into()]);
    world.attend(&holder);
    world.got(&holder);
    for seq in 1..4 {
        world.pass(ms(999));
        world.expect(&waiter, &[]);
        world.pass(ms(1));
        world.expect(&waiter, &[Probe { seq }.into()]);
        world.send(&mut waiter, &[cistern_wire::Receipt { seq, answer: cistern_wire::ReceiptAnswer::Received }.into()]);
    }
    let serial = waiter.serial();
    world.send(&mut waiter, &[Cancel { serial, nonce }.into()]);
    assert_eq!(kinds(&mut world, &waiter), [Kind::Cancelled]);
    world.pass(ms(3_000));
    assert_eq!((world.server.listening(), world.server.wake_after(world.now)), (0, None), "nobody waits any more");
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The server MUST have an unreceipted notice on its way to each session that somebody waits for, or send one within the probe period.
#[test]
fn session_whose_demand_is_held_back_by_the_bound_is_probed() {
    let locks = LockLimits { demands_outstanding: 1, ..LockLimits::default() };
    let mut world = World::with(Config { volatile: true, locks, ..Config::default() });
    let (mut slow, mut dead, mut writer) = (world.open(1), world.open(2), world.open(3));
    let file = world.create(&mut writer, "file").object;
    let generation = world.cache(&mut slow, file);
    world.cache(&mut dead, file);
    let message = chmod(&mut writer, file);
    world.send(&mut writer, &[message]);
    assert_eq!(kinds(&mut world, &writer), [Kind::Pending]);
    assert_eq!(kinds(&mut world, &slow), [Kind::Demand]);
    world.send(&mut slow, &[cistern_wire::Receipt { seq: 1, answer: cistern_wire::ReceiptAnswer::Received }.into()]);
    world.attend(&slow);
    world.expect(&dead, &[]);
    world.pass(ms(1_600));
    assert_eq!(world.server.lease_timers(), 1, "the second was probed and found dead, though nothing was demanded of it");
    assert!(kinds(&mut world, &dead).iter().all(|kind| *kind == Kind::Probe));
    let items = [ReleaseItem { lock: cache_lock(file), generation, keep: Keep::Nothing }];
    let release = Release { serial: slow.serial(), items: List::of(&items) };
    world.send(&mut slow, &[release.into()]);
    world.got(&slow);
    assert_eq!(until(&mut world, &writer, Kind::Ack, &[&dead]), ms(2_021 - 100), "one T in all");
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A session that is timing out MUST NOT hold up the grant of a lock that it does not hold.
#[test]
fn failure_of_one_session_delays_nobody_who_wants_nothing_of_it() {
    let mut world = World::new();
    let (mut failed, mut holder, mut other) = (world.open(1), world.open(2), world.open(3));
    let file = world.create(&mut holder, "job").object;
    let generation = world.lock(&mut holder, file);
    world.cache(&mut failed, file);
    queue(&mut world, &mut failed, file);
    queue(&mut world, &mut other, file);
    assert!(!world.server.evict(world.now, failed.agent).is_empty());
    world.got(&holder);
    let items = [ReleaseItem { lock: advisory(file), generation, keep: Keep::Nothing }];
    let release = Release { serial: holder.serial(), items: List::of(&items) };
    world.send(&mut holder, &[release.into()]);
    assert_eq!(kinds(&mut world, &other), [Kind::Grant]);
    assert_eq!(kinds(&mut world, &holder), [Kind::Released]);
    world.expect(&failed, &[]);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Of a session that is timing out the server MUST accept receipts, releases, END_SESSION and path responses, and nothing else.
#[test]
fn session_that_times_out_may_still_prove_a_new_address() {
    let mut world = World::new();
    let mut peer = world.open(1);
    assert!(!world.server.evict(world.now, peer.agent).is_empty());
    peer.path = Peer::new(9).path;
    let alive = KeepAlive { serial: peer.serial(), clock_us: 0 };
    world.send(&mut peer, &[alive.into()]);
    let got = world.got_one(&peer);
    let Message::PathChallenge(challenge) = got.message() else { panic!("{got:?}") };
    world.send(&mut peer, &[PathResponse { token: challenge.token }.into()]);
    assert_eq!(world.server.stats().moves, 1);
    world.send(&mut peer, &[alive.into()]);
    assert_eq!(kinds(&mut world, &peer), [Kind::Nack]);
    world.got(&Peer::new(1));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The bound on the wait behind holders that have failed MUST be documented as a formula.
#[test]
fn mutation_behind_an_agent_that_receipts_and_then_keeps_or_dies_waits_no_longer_than_the_bound() {
    for dies_after in [None, Some(0), Some(450), Some(700)] {
        let config = Config { volatile: true, compliance_time: ms(900), ..Config::default() };
        let bound = config.liveness_bound(0);
        let mut world = World::with(config);
        let (mut holder, mut writer) = (world.open(1), world.open(2));
        let file = world.create(&mut writer, "file").object;
        world.cache(&mut holder, file);
        let message = chmod(&mut writer, file);
        world.send(&mut writer, &[message]);
        world.got(&writer);
        let mut waited = ms(0);
        if let Some(after) = dies_after {
            world.pass(ms(after));
            waited = ms(after);
        } else {
            world.attend(&holder);
        }
        world.send(&mut holder, &[cistern_wire::Receipt { seq: 1, answer: cistern_wire::ReceiptAnswer::Received }.into()]);
        waited += until(&mut world, &writer, Kind::Ack, &[&holder]);
        assert!(waited <= bound && waited >= ms(2_021), "{waited:?} with {dies_after:?}, and at most {bound:?}");
        world.got(&holder);
    }
}

#[test]
fn waiters_that_die_each_in_its_turn_cost_one_bound_each() {
    let mut world = World::new();
    let bound = Config::default().liveness_bound(2);
    let (mut holder, mut second, mut third, mut living) = (world.open(1), world.open(2), world.open(3), world.open(4));
    let file = world.create(&mut holder, "job").object;
    world.lock(&mut holder, file);
    for peer in [&mut second, &mut third, &mut living] {
        queue(&mut world, peer, file);
        world.attend(peer);
    }
    let mut waited = Duration::ZERO;
    for (peer, dead) in [(&second, &holder), (&third, &second), (&living, &third)] {
        world.leave(dead);
        waited += until(&mut world, peer, Kind::Grant, &[dead]);
        world.send(&mut peer.clone(), &[cistern_wire::Receipt { seq: u64::MAX, answer: cistern_wire::ReceiptAnswer::Received }.into()]);
    }
    assert!(waited > 3 * ms(2_021) && waited <= bound, "{waited:?}, and at most {bound:?}");
    for peer in [&holder, &second, &third, &living] {
        world.got(peer);
    }
}

//= wire-spec.md#11-4-locks
//= type=test
//# Before the server grants a lock to a waiting session of which it has not heard lately, it SHOULD probe it and wait for the receipt.
#[test]
fn waiter_that_died_just_before_its_turn_delays_the_next_by_its_failed_delivery_alone_and_is_no_steal() {
    let mut world = World::new();
    let (mut holder, mut dead, mut living) = (world.open(1), world.open(2), world.open(3));
    let file = world.create(&mut holder, "job").object;
    let generation = world.lock(&mut holder, file);
    queue(&mut world, &mut dead, file);
    queue(&mut world, &mut living, file);
    world.attend(&living);
    world.pass(ms(20));
    kinds(&mut world, &holder);
    let items = [ReleaseItem { lock: advisory(file), generation, keep: Keep::Nothing }];
    world.send(&mut holder, &[Release { serial: 1, items: List::of(&items) }.into()]);
    let waited = until(&mut world, &living, Kind::Grant, &[&holder, &dead]);
    assert!(waited <= ms(500 + 20), "Td: {waited:?}");
    assert_eq!(world.server.stats().failures, 1);
    // The dead one's timer runs out, long before one that would begin now.
    world.pass(ms(2_100));
    assert_eq!(world.server.stats().steals, 0);
    for peer in [&holder, &dead, &living] {
        world.got(peer);
    }
}
