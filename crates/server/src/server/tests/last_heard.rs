//! Last heard: what is noted, and that the wait for a failed session counts from it where that is switched on.

use super::world::{Peer, ROOT, World, advisory, create, lock, ms};
use crate::Config;
use alloc::vec::Vec;
use cistern_link::{Instant, Machine as _};
use cistern_wire::{Cancel, GetAttr, Keep, KeepAlive, Kind, List, LockWait, Message, Receipt, ReceiptAnswer, Release, ReleaseItem, Want};
use core::time::Duration;

fn world(last_heard: bool) -> World {
    World::with(Config { volatile: true, last_heard, ..Config::default() })
}

fn kinds(world: &mut World, peer: &Peer) -> Vec<Kind> {
    world.got(peer).iter().map(|got| got.message().kind()).collect()
}

fn heard(world: &World, peer: &Peer) -> Instant {
    let key = world.server.sessions.find(peer.session).unwrap();
    world.server.sessions.get(key).unwrap().heard().unwrap()
}

/// How long after `since` the second agent is granted what the first, silent, holds; and how long the server waited from D.
fn granted_after(world: &mut World, holder: &mut Peer, waiter: &mut Peer, since: Instant) -> (Duration, Duration) {
    let mut failed = None;
    for _ in 0..10_000 {
        if failed.is_none() && world.server.lease_timers() == 1 {
            failed = Some(world.now);
        }
        if world.got(waiter).iter().any(|got| matches!(got.message(), Message::Grant(_))) {
            return (world.now.since(since), world.now.since(failed.unwrap_or(world.now)));
        }
        world.pass(ms(1));
    }
    world.got(holder);
    panic!("never granted");
}

fn demanded(world: &mut World, silent: Duration) -> (Peer, Peer, Instant) {
    let (mut holder, mut waiter) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    world.lock(&mut holder, file);
    let since = world.now;
    world.pass(silent);
    let ask = waiter.ask();
    world.send(&mut waiter, &[lock(ask, file, LockWait::Queue).into()]);
    assert_eq!(kinds(world, &waiter), [Kind::Queued]);
    world.attend(&waiter);
    (holder, waiter, since)
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Last heard: the server MUST note the receipt of every packet that it echoes, and wait no less than until D and until the newest note
//# plus T.
#[test]
fn agent_long_silent_is_stolen_from_as_soon_as_it_has_failed() {
    for (last_heard, waits) in [(true, ms(0)), (false, ms(2_021))] {
        let mut world = world(last_heard);
        let (mut holder, mut waiter, since) = demanded(&mut world, ms(10_000));
        let (after, waited) = granted_after(&mut world, &mut holder, &mut waiter, since);
        // Looked at every millisecond.
        assert!(after >= ms(10_500) + waits && after <= ms(10_501) + waits, "{after:?}");
        assert!(waited >= waits && waited <= waits + ms(1), "{waited:?}");
        world.got(&holder);
        assert_eq!(world.server.stats().steals, 1);
    }
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Last heard: the server MUST note the receipt of every packet that it echoes, and wait no less than until D and until the newest note
//# plus T.
#[test]
fn wait_ends_t_after_the_last_answer_that_renewed_by_both_clocks() {
    for boot_lag in [0, 100] {
        let mut world = world(true);
        let (mut holder, mut waiter, since) = demanded(&mut world, ms(300));
        world.boot_lag = boot_lag;
        let (after, waited) = granted_after(&mut world, &mut holder, &mut waiter, since);
        assert!(world.now.waited(since.plus(Config::default().wait())), "{after:?}");
        assert!(after < ms(2_023) && waited < ms(1_300), "not from D: {after:?}, {waited:?}");
        world.got(&holder);
    }
}

#[test]
fn receipt_renews_nothing_and_moves_no_note() {
    let mut world = world(true);
    let (mut holder, waiter, since) = demanded(&mut world, ms(300));
    world.send(&mut holder, &[Receipt { seq: 1, answer: ReceiptAnswer::InUse }.into()]);
    assert_eq!(heard(&world, &holder), since);
    world.got(&holder);
    world.got(&waiter);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Last heard: the server MUST note the receipt of every packet that it echoes, and wait no less than until D and until the newest note
//# plus T.
#[test]
fn every_answer_that_renews_is_noted_when_it_is_produced_at_the_latest() {
    let mut world = world(true);
    let (mut other, mut peer) = (world.open(1), world.open(2));
    assert_eq!(heard(&world, &peer), world.now, "WELCOME");
    let file = world.create(&mut other, "job").object;
    let generation = world.lock(&mut other, file);
    let own = world.cache(&mut peer, file);
    let dir = world.cache(&mut other, ROOT);
    let get = GetAttr { ask: peer.ask(), object: file, want: Want::Nothing };
    let queue = lock(peer.ask(), file, LockWait::Queue);
    let parked = create(peer.ask(), "parked", Want::Nothing);
    let items = [ReleaseItem { lock: super::world::cache_lock(file), generation: own, keep: Keep::Nothing }];
    let said: [(Message<'_>, Kind); 9] = [
        (get.into(), Kind::Ack),
        (get.into(), Kind::Ack),
        (queue.into(), Kind::Queued),
        (queue.into(), Kind::Queued),
        (parked.into(), Kind::Pending),
        (parked.into(), Kind::Pending),
        (KeepAlive { serial: 1, clock_us: 0 }.into(), Kind::Alive),
        (Release { serial: 2, items: List::of(&items) }.into(), Kind::Released),
        (Cancel { serial: 3, nonce: queue.ask.nonce }.into(), Kind::Cancelled),
    ];
    for (message, kind) in said {
        world.tick(ms(10));
        world.send(&mut peer, &[message]);
        assert_eq!(kinds(&mut world, &peer), [kind]);
        assert!(kind.renews());
        assert_eq!(heard(&world, &peer), world.now, "{}", kind.name());
    }
    // An answer that waits for the disk is noted when it is produced, which is later than the receipt of what it echoes.
    world.got(&other);
    world.stalled = true;
    let give = [
        ReleaseItem { lock: super::world::cache_lock(ROOT), generation: dir, keep: Keep::Nothing },
        ReleaseItem { lock: advisory(file), generation, keep: Keep::Nothing },
    ];
    world.send(&mut other, &[Release { serial: 1, items: List::of(&give) }.into()]);
    let before = heard(&world, &peer);
    world.tick(ms(10));
    assert_eq!((kinds(&mut world, &peer), heard(&world, &peer)), (Vec::new(), before));
    world.stalled = false;
    world.turn();
    assert_eq!((kinds(&mut world, &peer), heard(&world, &peer)), (Vec::from([Kind::Ack]), world.now));
    world.got(&other);
}

#[test]
fn rescued_session_that_fails_again_waits_from_what_was_heard_since() {
    let mut world = world(true);
    let (mut holder, mut waiter, _) = demanded(&mut world, ms(100));
    while world.server.lease_timers() == 0 {
        world.pass(ms(1));
    }
    world.got(&holder);
    let alive = KeepAlive { serial: holder.serial(), clock_us: 0 };
    world.send(&mut holder, &[alive.into(), Receipt { seq: 1, answer: ReceiptAnswer::InUse }.into()]);
    assert_eq!(kinds(&mut world, &holder), [Kind::Alive]);
    let since = world.now;
    let (after, _) = granted_after(&mut world, &mut holder, &mut waiter, since);
    assert_eq!(after, ms(2_021));
    world.got(&holder);
}

//= wire-spec.md#11-1-lease
//= type=test
//# The server MUST keep no lease state of a session in good standing.
#[test]
fn note_wakes_nobody() {
    let mut world = world(true);
    let mut peer = world.open(1);
    world.send(&mut peer, &[KeepAlive { serial: 1, clock_us: 0 }.into()]);
    assert_eq!(kinds(&mut world, &peer), [Kind::Alive]);
    assert_eq!((world.server.lease_timers(), world.server.listening(), world.server.wake_after(world.now)), (0, 0, None));
}
