//! The end of sessions with ephemeral files: what goes with it, what goes after it, and what does not hold it up.

use super::ephemerals::{close, ephemeral, evict, exists, records};
use super::world::{Peer, ROOT, World, cache_lock, create, lock, ms};
use crate::Config;
use crate::presence::REMOVALS_MAX;
use crate::store::{Key, StoreEvent};
use alloc::vec::Vec;
use cistern_link::Machine as _;
use cistern_wire::{
    Bytes8, Claim, Create, EndReason, EndSession, GetAttr, Keep, List, LockWait, Message, Mkdir, ObjectId, Receipt, ReceiptAnswer, Release,
    ReleaseItem, Reply, SessionFate, SessionId, Status, Terms, Want,
};
use core::time::Duration;

/// What each batch that ends a session ends, and how many ephemeral files go by it; made durable one after the other.
fn ends(world: &World) -> Vec<(SessionId, usize)> {
    let mut ends = Vec::new();
    for batch in &world.disk.batches {
        let files = batch.writes.iter().filter(|(key, value)| matches!(key, Key::Ephemeral(..)) && value.is_none()).count();
        let ended = batch.writes.iter().filter_map(|(key, value)| match key {
            Key::Session(session) if value.is_none() => Some((*session, files)),
            _ => None,
        });
        ends.extend(ended);
    }
    ends
}

fn release(world: &mut World, peer: &mut Peer, generation: cistern_wire::Generation) {
    let items = [ReleaseItem { lock: cache_lock(ROOT), generation, keep: Keep::Nothing }];
    let serial = peer.serial();
    world.send(peer, &[Release { serial, items: List::of(&items) }.into()]);
    assert!(matches!(world.got_one(peer).message(), Message::Released(_)));
}

/// The peer is asked for the root directory, and says that it was told.
pub(super) fn demanded(world: &mut World, peer: &mut Peer, generation: cistern_wire::Generation) {
    let got = world.got_one(peer);
    let Message::Demand(demand) = got.message() else { panic!("{got:?}") };
    assert_eq!((demand.lock, demand.generation, demand.keep), (cache_lock(ROOT), generation, Keep::Nothing));
    world.send(peer, &[Receipt { seq: demand.seq, answer: ReceiptAnswer::Received }.into()]);
}

fn free(world: &mut World, peer: &mut Peer, object: ObjectId) -> bool {
    let ask = peer.ask_only();
    world.send(peer, &[lock(ask, object, LockWait::Try).into()]);
    matches!(world.got_one(peer).reply(), Reply::Granted(_))
}

#[test]
fn files_of_which_nothing_is_in_the_way_go_with_the_end_of_their_session_and_others_soon_after() {
    for forgotten in [false, true] {
        let mut world = World::new();
        let (mut owner, mut other) = (world.open(1), world.open(2));
        let named: Vec<alloc::string::String> = (0..5).map(|n| alloc::format!("m{n}")).collect();
        for name in &named {
            ephemeral(&mut world, &mut owner, name);
        }
        // Its own cache lock of the directory is not in the way: nothing of it can be used again.
        world.cache(&mut owner, ROOT);
        if forgotten {
            world.server.store.forget_everything();
        }
        let serial = owner.serial();
        world.stalled = true;
        world.send(&mut owner, &[EndSession { serial, reason: EndReason::Close }.into()]);
        assert_eq!(ends(&world), [(owner.session, if forgotten { 0 } else { 5 })]);
        assert!(world.got(&owner).is_empty(), "nobody is told before it is durable");
        world.stalled = false;
        world.turn();
        assert!(matches!(world.got_one(&owner).message(), Message::Ended(_)));
        assert!(named.iter().all(|name| !exists(&mut world, &mut other, name)));
    }
}

#[test]
fn no_turn_takes_more_files_away_than_it_may_however_many_sessions_end_in_it() {
    const SLICE: usize = 7;
    let mut world = World::with(Config { freed_per_turn: 7, volatile: true, ..Config::default() });
    let mut owners: Vec<Peer> = (1..=3).map(|n| world.open(n)).collect();
    for owner in &mut owners {
        for n in 0..10 {
            ephemeral(&mut world, owner, &alloc::format!("m{n} of {}", owner.session));
        }
    }
    world.stalled = true;
    for owner in &mut owners {
        let serial = owner.serial();
        world.post(owner, &[EndSession { serial, reason: EndReason::Close }.into()]);
    }
    world.serve_store();
    assert_eq!(ends(&world).iter().map(|end| end.1).collect::<Vec<_>>(), [SLICE; 3], "together, with the ends of all three");
    world.stalled = false;
    // The store is as fast as can be: that the ends are durable within the turn lets no more begin in it.
    world.serve_store();
    let mut left = records(&world).len();
    assert_eq!(left, 30 - SLICE);
    while left > 0 {
        assert_eq!(world.server.wake_after(world.now), Some(Duration::ZERO));
        world.turn();
        let now = records(&world).len();
        assert!(now < left && left - now <= SLICE, "{left} files, then {now}");
        left = now;
    }
    for owner in &owners {
        assert!(matches!(world.got_one(owner).message(), Message::Ended(_)));
    }
}

#[test]
fn files_go_also_while_the_socket_never_empties() {
    let mut world = World::with(Config { freed_per_turn: 7, volatile: true, ..Config::default() });
    let (mut owner, mut busy) = (world.open(1), world.open(2));
    for n in 0..20 {
        ephemeral(&mut world, &mut owner, &alloc::format!("m{n}"));
    }
    let serial = owner.serial();
    world.post(&mut owner, &[EndSession { serial, reason: EndReason::Close }.into()]);
    let mut left = Vec::new();
    for _ in 0..4 {
        let ask = busy.ask_only();
        world.post(&mut busy, &[GetAttr { ask, object: ROOT, want: Want::Nothing }.into()]);
        world.serve_store();
        world.transmit();
        left.push(records(&world).len());
        world.tick(ms(5));
    }
    assert_eq!(left, [13, 6, 0, 0], "a slice in each period");
    assert!(matches!(world.got_one(&owner).message(), Message::Ended(_)));
    assert_eq!(world.got(&busy).len(), 4);
}

#[test]
fn no_setting_lets_a_turn_take_away_more_files_than_it_has_time_for() {
    let mut world = World::with(Config { freed_per_turn: u32::MAX, volatile: true, ..Config::default() });
    let mut owner = world.open(1);
    for n in 0..300 {
        ephemeral(&mut world, &mut owner, &alloc::format!("m{n}"));
    }
    world.stalled = true;
    let serial = owner.serial();
    world.send(&mut owner, &[EndSession { serial, reason: EndReason::Close }.into()]);
    assert_eq!(ends(&world), [(owner.session, REMOVALS_MAX)]);
    world.stalled = false;
    world.turn();
    assert_eq!(records(&world).len(), 300 - 2 * REMOVALS_MAX, "as many when it is durable, for the turn has begun anew");
    world.pass(ms(1));
    assert_eq!(records(&world), []);
    assert!(matches!(world.got_one(&owner).message(), Message::Ended(_)));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The end of a session MUST NOT wait for cache locks that protect its ephemeral files.
#[test]
fn end_does_not_wait_for_a_directory_that_another_session_caches_and_the_file_goes_when_it_is_given_back() {
    let mut world = World::new();
    let (mut owner, mut reader, mut other) = (world.open(1), world.open(2), world.open(3));
    let job = world.create(&mut owner, "job").object;
    ephemeral(&mut world, &mut owner, "m");
    world.lock(&mut owner, job);
    let generation = world.cache(&mut reader, ROOT);
    let serial = owner.serial();
    world.send(&mut owner, &[EndSession { serial, reason: EndReason::Close }.into()]);
    assert!(matches!(world.got_one(&owner).message(), Message::Ended(_)));
    assert!(free(&mut world, &mut other, job), "its locks are free");
    demanded(&mut world, &mut reader, generation);
    assert_eq!((records(&world).len(), world.server.status(world.now).parked), (1, 1), "the reader may still go by what it caches");
    release(&mut world, &mut reader, generation);
    assert_eq!((records(&world).len(), world.server.status(world.now).parked), (0, 0));
    assert!(!exists(&mut world, &mut other, "m"));
}

/// The peer gives back what it is asked for.
fn comply(world: &mut World, peer: &mut Peer) {
    let got = world.got_one(peer);
    let Message::Demand(demand) = got.message() else { panic!("{got:?}") };
    let items = [ReleaseItem { lock: demand.lock, generation: demand.generation, keep: Keep::Nothing }];
    let serial = peer.serial();
    world.send(peer, &[Release { serial, items: List::of(&items) }.into()]);
    assert!(matches!(world.got_one(peer).message(), Message::Released(_)));
}

/// A directory with an ephemeral file.
fn dir_with_ephemeral(world: &mut World, owner: &mut Peer, name: &'static str) -> ObjectId {
    let made = |got: super::world::Got| match got.reply() {
        Reply::Changed(changed) => changed.effects.iter().find(|effect| effect.before == 0).unwrap().attr.object,
        other => panic!("{other:?}"),
    };
    let (mode, uid, gid, terms) = (0o755, 0, 0, Terms::NONE);
    let mkdir = Mkdir { ask: owner.ask_only(), dir: ROOT, name: Bytes8(name.as_bytes()), mode, uid, gid, terms };
    world.send(owner, &[mkdir.into()]);
    let dir = made(world.got_one(owner));
    let file = Create { dir, ephemeral: true, ..create(owner.ask_only(), "m", Want::Nothing) };
    world.send(owner, &[file.into()]);
    made(world.got_one(owner));
    dir
}

#[test]
fn each_file_goes_when_its_directory_is_given_back() {
    let mut world = World::new();
    let mut owner = world.open(1);
    let dirs = ["a", "b", "c"].map(|name| dir_with_ephemeral(&mut world, &mut owner, name));
    let mut readers = [2, 3, 4].map(|n| world.open(n));
    for (reader, dir) in readers.iter_mut().zip(dirs) {
        world.cache(reader, dir);
    }
    close(&mut world, &mut owner);
    for (at, left) in [(0, 2), (2, 1), (1, 0)] {
        comply(&mut world, &mut readers[at]);
        assert_eq!((records(&world).len(), world.server.status(world.now).parked), (left, left));
    }
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The end of a session MUST NOT wait for cache locks that protect its ephemeral files.
#[test]
fn end_does_not_wait_for_a_directory_that_is_held_by_a_session_timing_out() {
    let mut world = World::new();
    let (mut a, mut b) = (world.open(1), world.open(2));
    let mut other = world.open(3);
    ephemeral(&mut world, &mut a, "a");
    ephemeral(&mut world, &mut b, "b");
    world.cache(&mut a, ROOT);
    world.cache(&mut b, ROOT);
    evict(&mut world, &a);
    world.pass(ms(10));
    evict(&mut world, &b);
    world.pass(Config::default().wait() - ms(10));
    assert_eq!(world.server.stats().steals, 1);
    assert_eq!(world.server.kept(a.session), None, "it has ended");
    world.pass(ms(10));
    assert_eq!(["a", "b"].map(|name| exists(&mut world, &mut other, name)), [false, false]);
    assert_eq!((records(&world).len(), world.server.status(world.now).parked), (0, 0));
}

#[test]
fn removal_that_fails_is_tried_again() {
    let mut world = World::new();
    let (mut owner, mut other) = (world.open(1), world.open(2));
    let object = ephemeral(&mut world, &mut owner, "m").object;
    world.server.store.forget_everything();
    let record = world.disk.values.insert(Key::Object(object), bytes::Bytes::from_static(b"cannot be read")).unwrap();
    close(&mut world, &mut owner);
    assert_eq!(records(&world).len(), 1, "nobody knows where it is");
    world.disk.values.insert(Key::Object(object), record);
    // What could not be read is forgotten by the next turn.
    world.turn();
    world.pass(Duration::from_secs(10));
    assert_eq!(records(&world), []);
    assert!(!exists(&mut world, &mut other, "m"));
}

/// The store answers one question after the other, with a turn after each, in which what could not be read is forgotten.
pub(super) fn answer_one_by_one(world: &mut World) {
    for _ in 0..100_000 {
        if world.disk.asked.is_empty() && world.disk.batches.is_empty() {
            return;
        }
        if let Some(batch) = world.disk.sync() {
            world.server.store_event(world.now, StoreEvent::Durable(batch));
        }
        if !world.disk.asked.is_empty() {
            let loaded = world.disk.give(0);
            world.server.store_event(world.now, StoreEvent::Loaded(loaded));
        }
        world.turn();
    }
    panic!("it goes on for ever: {:?}", world.disk.asked);
}

/// Makes unreadable the record of one file and the entry of the other one.
fn break_both(world: &mut World, record: ObjectId, entry: &str) {
    let keys = [Key::Object(record), Key::Entry(ROOT, entry.as_bytes().into())];
    for key in keys {
        assert!(world.disk.values.insert(key, bytes::Bytes::from_static(b"cannot be read")).is_some());
    }
}

#[test]
fn session_ends_although_two_of_its_files_cannot_be_read() {
    let mut world = World::new();
    let (mut owner, mut other) = (world.open(1), world.open(2));
    let job = world.create(&mut owner, "job").object;
    world.lock(&mut owner, job);
    let a = ephemeral(&mut world, &mut owner, "a").object;
    ephemeral(&mut world, &mut owner, "b");
    ephemeral(&mut world, &mut owner, "c");
    break_both(&mut world, a, "b");
    world.server.store.forget_everything();
    world.stalled = true;
    let serial = owner.serial();
    world.send(&mut owner, &[EndSession { serial, reason: EndReason::Close }.into()]);
    answer_one_by_one(&mut world);
    world.stalled = false;
    world.turn();
    assert!(matches!(world.got_one(&owner).message(), Message::Ended(_)));
    assert!(free(&mut world, &mut other, job), "its locks are free");
    assert!(!exists(&mut world, &mut other, "c"), "what can be read is gone");
    assert_eq!(records(&world).len(), 2, "the others are tried again later");
}

#[test]
fn grace_ends_although_two_files_of_a_session_cannot_be_read() {
    let mut world = World::new();
    let (mut lost, mut back) = (world.open(1), world.open(2));
    let a = ephemeral(&mut world, &mut lost, "a").object;
    ephemeral(&mut world, &mut lost, "b");
    ephemeral(&mut world, &mut lost, "c");
    break_both(&mut world, a, "b");
    world.crash();
    world.open_again(&mut back, &[]);
    world.stalled = true;
    world.pass(Config::default().wait());
    answer_one_by_one(&mut world);
    world.stalled = false;
    world.turn();
    assert!(!world.in_grace());
    assert!(!exists(&mut world, &mut back, "c"));
    assert_eq!(records(&world).len(), 2, "the others are tried again later");
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# The first ordinary grant or mutation MUST come after the ends of all sessions that did not come back, but for long ones whose T has not
//# passed, are durable.
#[test]
fn grace_ends_in_slices_and_nothing_is_granted_before_the_last_of_them_is_durable() {
    let mut world = World::with(Config { freed_per_turn: 1, volatile: true, ..Config::default() });
    let mut lost: Vec<Peer> = (1..=5).map(|n| world.open(n)).collect();
    for (peer, name) in lost.iter_mut().zip(["a", "b", "c", "d", "e"]) {
        ephemeral(&mut world, peer, name);
    }
    world.crash();
    let mut back = world.open(9);
    world.tick(Config::default().wait());
    world.stalled = true;
    for slices in 1..=5 {
        world.turn();
        assert_eq!(ends(&world).len(), slices, "a session in each turn");
    }
    assert_eq!(world.server.wake_after(world.now), Some(Duration::ZERO), "what ends the grace is still to be written");
    world.turn();
    let (batches, ended) = (world.disk.batches.len(), ends(&world));
    assert_eq!((batches, ended.iter().map(|end| end.1).sum::<usize>()), (6, 0), "the files stay until grace is over");
    for _ in 0..batches {
        assert!(world.in_grace() && !free(&mut world, &mut back, ROOT));
        let batch = world.disk.sync().unwrap();
        world.server.store_event(world.now, StoreEvent::Durable(batch));
    }
    assert!(!world.in_grace());
    world.stalled = false;
    // A file goes in each turn.
    world.pass(ms(1));
    assert!(free(&mut world, &mut back, ROOT));
    assert!(records(&world).is_empty() && !exists(&mut world, &mut back, "a"));
}

#[test]
fn crash_within_the_end_of_grace_leaves_those_to_reclaim_whose_end_was_not_durable() {
    let mut world = World::with(Config { freed_per_turn: 1, volatile: true, ..Config::default() });
    let mut lost = [1, 2].map(|n| world.open(n));
    world.crash();
    world.open(9);
    world.tick(Config::default().wait());
    world.stalled = true;
    world.turn();
    let ended = ends(&world)[0].0;
    let still = lost.iter().position(|peer| peer.session != ended).unwrap();
    let batch = world.disk.sync().unwrap();
    world.server.store_event(world.now, StoreEvent::Durable(batch));
    world.crash();
    for (n, fate) in [(still, SessionFate::Reclaimable), (1 - still, SessionFate::Ended)] {
        let former = [(lost[n].session, Claim::Reclaiming)];
        assert_eq!(world.open_again(&mut lost[n], &former)[0].fate, fate);
    }
}

#[test]
fn files_of_the_lost_go_after_the_grace_when_their_directory_is_given_back() {
    let mut world = World::new();
    let (mut lost, mut back, mut other) = (world.open(1), world.open(2), world.open(3));
    ephemeral(&mut world, &mut lost, "m");
    let generation = world.cache(&mut back, ROOT);
    world.crash();
    let from = world.come_back(&mut back);
    let reclaimed = world.reclaim(&mut back, from, &[super::restart::cached(ROOT, cistern_wire::Mode::Shared, generation)]);
    assert_eq!(reclaimed[0].status, Status::OK);
    world.complete(&mut back, from);
    world.open_again(&mut other, &[]);
    world.stalled = true;
    world.pass(Config::default().wait());
    let ask = other.ask_only();
    let refusal = world.failed(&mut other, lock(ask, ROOT, LockWait::Try).into());
    assert!(matches!(refusal, (Status::IN_GRACE, 20..=500)), "its end is on the way to the store: {refusal:?}");
    world.stalled = false;
    world.turn();
    assert!(!world.in_grace());
    demanded(&mut world, &mut back, generation);
    assert!(exists(&mut world, &mut back, "m"));
    release(&mut world, &mut back, generation);
    assert_eq!(records(&world), []);
}

#[test]
fn session_with_files_that_is_closed_in_grace_ends_at_once_and_its_files_go_after_it() {
    let mut world = World::new();
    let (mut owner, mut other) = (world.open(1), world.open(2));
    ephemeral(&mut world, &mut owner, "m");
    world.crash();
    let from = world.come_back(&mut owner);
    world.complete(&mut owner, from);
    let serial = owner.serial();
    world.send(&mut owner, &[EndSession { serial, reason: EndReason::Close }.into()]);
    assert!(matches!(world.got_one(&owner).message(), Message::Ended(_)));
    world.open_again(&mut other, &[]);
    assert!(world.in_grace() && exists(&mut world, &mut other, "m"));
    world.pass(Config::default().wait());
    assert!(!exists(&mut world, &mut other, "m"));
    assert_eq!(records(&world), []);
}
