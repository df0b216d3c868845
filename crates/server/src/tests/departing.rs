//! The end of sessions with ephemeral files: by one transaction, and what it waits for.

use super::ephemerals::{close, ephemeral, evict, exists, records};
use super::world::{Peer, ROOT, World, cache_lock, create, lock, ms};
use crate::Config;
use crate::store::{Key, StoreEvent};
use alloc::vec::Vec;
use cistern_wire::{
    Bytes8, Create, EndReason, EndSession, Keep, List, LockWait, Lookup, Message, Mkdir, ObjectId, Receipt, ReceiptAnswer, Release,
    ReleaseItem, Reply, SessionId, Status, Terms, Want,
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

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The transaction that ends a session MUST take its ephemeral files away, but for those that another session's cache lock still
//# protects, that another mutation is to change first, or that cannot be read.
#[test]
fn session_and_its_ephemeral_files_end_by_one_transaction() {
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
            world.server.overlay.forget_everything();
        }
        let serial = owner.serial();
        world.stalled = true;
        world.send(&mut owner, &[EndSession { serial, reason: EndReason::Close }.into()]);
        if forgotten {
            assert_eq!(ends(&world), [], "what they are is not known yet");
            while !world.disk.asked.is_empty() {
                let loaded = world.disk.give(0);
                world.server.store_event(world.now, StoreEvent::Loaded(loaded));
                world.turn();
            }
        }
        assert_eq!(ends(&world), [(owner.session, 5)], "forgotten: {forgotten}");
        assert!(world.got(&owner).is_empty(), "nobody is told before it is durable");
        world.stalled = false;
        world.turn();
        assert!(matches!(world.got_one(&owner).message(), Message::Ended(_)));
        assert!(named.iter().all(|name| !exists(&mut world, &mut other, name)));
    }
}

#[test]
fn end_waits_until_the_directory_of_its_files_is_given_back() {
    let mut world = World::new();
    let (mut owner, mut reader) = (world.open(1), world.open(2));
    let job = world.create(&mut owner, "job").object;
    ephemeral(&mut world, &mut owner, "m");
    world.lock(&mut owner, job);
    let generation = world.cache(&mut reader, ROOT);
    let serial = owner.serial();
    world.send(&mut owner, &[EndSession { serial, reason: EndReason::Close }.into()]);
    demanded(&mut world, &mut reader, generation);
    assert_eq!((world.server.status(world.now).parked, world.got(&owner).len()), (1, 0));
    assert!(!free(&mut world, &mut reader, job), "it has not ended");
    world.stalled = true;
    let items = [ReleaseItem { lock: cache_lock(ROOT), generation, keep: Keep::Nothing }];
    let serial = reader.serial();
    world.send(&mut reader, &[Release { serial, items: List::of(&items) }.into()]);
    assert_eq!(ends(&world), [(owner.session, 1)]);
    world.stalled = false;
    world.turn();
    assert!(matches!(world.got_one(&reader).message(), Message::Released(_)));
    assert!(matches!(world.got_one(&owner).message(), Message::Ended(_)));
    assert!(!exists(&mut world, &mut reader, "m") && free(&mut world, &mut reader, job));
    assert_eq!(world.server.status(world.now).parked, 0);
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
fn end_waits_for_each_of_its_files_also_for_those_that_were_taken_anew() {
    let mut world = World::new();
    let mut owner = world.open(1);
    let dirs = ["a", "b", "c"].map(|name| dir_with_ephemeral(&mut world, &mut owner, name));
    let mut readers = [2, 3, 4].map(|n| world.open(n));
    for (reader, dir) in readers.iter_mut().zip(dirs) {
        world.cache(reader, dir);
    }
    let serial = owner.serial();
    world.send(&mut owner, &[EndSession { serial, reason: EndReason::Close }.into()]);
    comply(&mut world, &mut readers[0]);
    world.pass(ms(10));
    // The end has its place with the second directory now, so that the first is granted.
    world.cache(&mut readers[0], dirs[0]);
    comply(&mut world, &mut readers[2]);
    assert_eq!(ends(&world), []);
    comply(&mut world, &mut readers[1]);
    assert_eq!(ends(&world), [], "the first is asked back once more");
    world.stalled = true;
    let got = world.got_one(&readers[0]);
    let Message::Demand(demand) = got.message() else { panic!("{got:?}") };
    let items = [ReleaseItem { lock: demand.lock, generation: demand.generation, keep: Keep::Nothing }];
    let serial = readers[0].serial();
    world.send(&mut readers[0], &[Release { serial, items: List::of(&items) }.into()]);
    assert_eq!(ends(&world), [(owner.session, 3)]);
    world.stalled = false;
    world.turn();
    assert!(matches!(world.got_one(&readers[0]).message(), Message::Released(_)));
    assert!(matches!(world.got_one(&owner).message(), Message::Ended(_)));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The end of a session MUST NOT wait longer than Td for cache locks that protect its ephemeral files, nor at all for those of a session
//# that is timing out.
#[test]
fn end_does_not_wait_longer_than_a_delivery_for_a_directory_that_is_not_given_back() {
    let mut world = World::new();
    let (mut owner, mut reader, mut other) = (world.open(1), world.open(2), world.open(3));
    let job = world.create(&mut owner, "job").object;
    ephemeral(&mut world, &mut owner, "m");
    world.lock(&mut owner, job);
    let generation = world.cache(&mut reader, ROOT);
    world.attend(&reader);
    let serial = owner.serial();
    world.send(&mut owner, &[EndSession { serial, reason: EndReason::Close }.into()]);
    demanded(&mut world, &mut reader, generation);
    world.pass(Config::default().delivery_timeout - ms(1));
    assert!(!free(&mut world, &mut other, job));
    world.pass(ms(1));
    assert!(matches!(world.got_one(&owner).message(), Message::Ended(_)));
    assert!(free(&mut world, &mut other, job), "its locks are free");
    assert_eq!((records(&world).len(), world.server.status(world.now).parked), (1, 1), "the reader may still go by what it caches");
    release(&mut world, &mut reader, generation);
    assert_eq!((records(&world).len(), world.server.status(world.now).parked), (0, 0));
    assert!(!exists(&mut world, &mut other, "m"));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The end of a session MUST NOT wait longer than Td for cache locks that protect its ephemeral files, nor at all for those of a session
//# that is timing out.
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
    assert!(world.server.sessions.find(a.session).is_none(), "it has ended");
    world.pass(ms(10));
    assert_eq!(["a", "b"].map(|name| exists(&mut world, &mut other, name)), [false, false]);
    assert_eq!((records(&world).len(), world.server.status(world.now).parked), (0, 0));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The end of a session MUST NOT wait longer than Td for cache locks that protect its ephemeral files, nor at all for those of a session
//# that is timing out.
#[test]
fn end_waits_no_longer_when_the_session_that_holds_the_directory_fails() {
    let mut world = World::new();
    let (mut owner, mut reader, mut other) = (world.open(1), world.open(2), world.open(3));
    let job = world.create(&mut owner, "job").object;
    ephemeral(&mut world, &mut owner, "m");
    world.lock(&mut owner, job);
    let generation = world.cache(&mut reader, ROOT);
    let serial = owner.serial();
    world.send(&mut owner, &[EndSession { serial, reason: EndReason::Close }.into()]);
    demanded(&mut world, &mut reader, generation);
    assert!(!free(&mut world, &mut other, job));
    evict(&mut world, &reader);
    world.pass(Duration::ZERO);
    assert!(matches!(world.got_one(&owner).message(), Message::Ended(_)));
    assert!(free(&mut world, &mut other, job), "its locks are free");
}

#[test]
fn removal_that_fails_is_tried_again() {
    let mut world = World::new();
    let (mut owner, mut other) = (world.open(1), world.open(2));
    let object = ephemeral(&mut world, &mut owner, "m").object;
    world.server.overlay.forget_everything();
    let record = world.disk.values.insert(Key::Object(object), bytes::Bytes::from_static(b"cannot be read")).unwrap();
    close(&mut world, &mut owner);
    assert_eq!(records(&world).len(), 1, "nobody knows where it is");
    world.disk.values.insert(Key::Object(object), record);
    world.pass(Duration::from_secs(10));
    assert_eq!(records(&world), []);
    assert!(!exists(&mut world, &mut other, "m"));
}

/// The store answers one question after the other, with a turn after each, in which what could not be read is forgotten.
pub(super) fn answer_one_by_one(world: &mut World) {
    for _ in 0..1_000 {
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
    world.server.overlay.forget_everything();
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

#[test]
fn end_of_grace_that_has_to_read_a_file_again_leaves_its_directory_free() {
    let mut world = World::with(Config { freed_per_turn: 1, volatile: true, ..Config::default() });
    let mut lost = [1, 2].map(|n| world.open(n));
    let mut back = world.open(3);
    for (peer, names) in lost.iter_mut().zip([["a", "b"], ["c", "d"]]) {
        for name in names {
            ephemeral(&mut world, peer, name);
        }
    }
    world.crash();
    world.open_again(&mut back, &[]);
    world.tick(Config::default().wait());
    for _ in 0..20 {
        world.turn();
        if world.server.has_grace_to_end() {
            break;
        }
    }
    assert!(world.server.has_grace_to_end(), "the first session is ended, the second is not");
    // Of the files of the second only the first is still in memory when its turn comes.
    world.server.overlay.forget_everything();
    let name = if lost[0].session > lost[1].session { "a" } else { "c" };
    let names = [Bytes8(name.as_bytes())];
    let lookup = Lookup { ask: back.ask_only(), start: ROOT, names: List::of(&names), want: Want::Nothing };
    world.post(&mut back, &[lookup.into()]);
    world.serve_store();
    world.pass(ms(10));
    assert!(!world.in_grace());
    assert_eq!(records(&world), []);
    world.got(&back);
    world.create(&mut back, "new");
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# The first ordinary grant or mutation MUST come after one transaction that ends grace and with it all sessions that did not come back,
//# but for long ones whose T has not passed, and their ephemeral files.
#[test]
fn grace_ends_by_one_transaction_however_many_slices_it_is_written_in() {
    let mut world = World::with(Config { freed_per_turn: 10, volatile: true, ..Config::default() });
    let mut lost: Vec<Peer> = (1..=5).map(|n| world.open(n)).collect();
    for (peer, name) in lost.iter_mut().zip(["a", "b", "c", "d", "e"]) {
        ephemeral(&mut world, peer, name);
    }
    world.crash();
    let mut back = world.open(9);
    world.pass(Config::default().wait() - ms(1));
    world.tick(ms(1));
    // The files are looked for first.
    let mut slices = 0;
    world.stalled = true;
    while world.disk.batches.is_empty() {
        slices += 1;
        world.turn();
        while !world.disk.asked.is_empty() {
            let loaded = world.disk.give(0);
            world.server.store_event(world.now, StoreEvent::Loaded(loaded));
        }
        assert!(world.disk.batches.is_empty() || slices > 5, "no turn writes more than a slice and one session");
    }
    let of = |peer: &Peer| peer.session;
    let mut ended = ends(&world);
    ended.sort_unstable();
    let mut expected: Vec<_> = lost.iter().map(of).map(|session| (session, 5)).collect();
    expected.sort_unstable();
    assert_eq!((world.disk.batches.len(), ended), (1, expected));
    assert!(world.in_grace());
    world.stalled = false;
    world.turn();
    assert!(!world.in_grace() && records(&world).is_empty());
    assert!(!exists(&mut world, &mut back, "a"));
}

#[test]
fn end_of_grace_asks_back_first_what_its_files_are_in() {
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
    world.pass(Config::default().wait());
    demanded(&mut world, &mut back, generation);
    assert!(world.in_grace(), "until it is given back, or was not in time");
    world.pass(ms(100));
    let ask = other.ask_only();
    let refusal = world.failed(&mut other, lock(ask, ROOT, LockWait::Try).into());
    let left = u32::try_from(Config::default().delivery_timeout.as_millis()).unwrap() - 100;
    assert_eq!(refusal, (Status::IN_GRACE, left), "when it is not waited for any longer");
    world.stalled = true;
    let items = [ReleaseItem { lock: cache_lock(ROOT), generation, keep: Keep::Nothing }];
    let serial = back.serial();
    world.send(&mut back, &[Release { serial, items: List::of(&items) }.into()]);
    assert_eq!(ends(&world).iter().find(|end| end.0 == lost.session), Some(&(lost.session, 1)));
    let ask = other.ask_only();
    let refusal = world.failed(&mut other, lock(ask, ROOT, LockWait::Try).into());
    assert!(matches!(refusal, (Status::IN_GRACE, 20..=500)), "{refusal:?}");
    world.stalled = false;
    world.turn();
    assert!(matches!(world.got_one(&back).message(), Message::Released(_)));
    assert!(!world.in_grace() && records(&world).is_empty());
}

#[test]
fn session_with_files_that_is_closed_in_grace_ends_after_it() {
    let mut world = World::new();
    let (mut owner, mut other) = (world.open(1), world.open(2));
    ephemeral(&mut world, &mut owner, "m");
    world.crash();
    let from = world.come_back(&mut owner);
    world.complete(&mut owner, from);
    close(&mut world, &mut owner);
    world.open_again(&mut other, &[]);
    assert!(world.in_grace() && exists(&mut world, &mut other, "m"));
    world.pass(Config::default().wait());
    assert!(matches!(world.got_one(&owner).message(), Message::Ended(_)));
    assert!(!exists(&mut world, &mut other, "m"));
    assert_eq!(records(&world), []);
}
