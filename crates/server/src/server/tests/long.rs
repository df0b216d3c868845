//! Sessions with a lease period of their own: what WELCOME gives, how long a silent one is waited for, and what a restart costs whom.

use super::restart::{cached, held};
use super::world::{Peer, World, advisory, lock, ms, welcome};
use crate::Config;
use crate::store::{Key, SessionRecord};
use alloc::vec::Vec;
use cistern_wire::{
    Claim, GetAttr, Holder, Keep, List, LockWait, Message, Mode, ObjectId, Queued, Release, ReleaseItem, Reply, SessionFate, Status, Terms,
    Unlink, Want,
};
use core::time::Duration;

const LONG: Duration = Duration::from_secs(30);

fn peer(n: u8, lease: Duration) -> Peer {
    Peer { lease_us: u64::try_from(lease.as_micros()).unwrap(), ..Peer::new(n) }
}

fn open(world: &mut World, n: u8, lease: Duration) -> Peer {
    let mut peer = peer(n, lease);
    world.open_again(&mut peer, &[]);
    peer
}

/// A server of the defaults that began before this test.
fn world() -> World {
    World::with(Config::default())
}

/// The objects in the durable record of a session; `None`: it is not long.
fn recorded(world: &World, peer: &Peer) -> Option<Vec<ObjectId>> {
    let bytes = world.disk.values.get(&Key::Session(peer.session)).expect("a record");
    SessionRecord::from_bytes(bytes).unwrap().locks
}

fn ask(world: &mut World, peer: &mut Peer, object: ObjectId) -> Result<(), Status> {
    let ask = peer.ask_only();
    world.send(peer, &[lock(ask, object, LockWait::Try).into()]);
    match world.got_one(peer).reply() {
        Reply::Granted(_) => Ok(()),
        Reply::Failed(failed) => Err(failed.status),
        other => panic!("{other:?}"),
    }
}

fn unlink(world: &mut World, peer: &mut Peer, name: &str) -> Status {
    let ask = peer.ask_only();
    let message = Unlink { ask, dir: super::world::ROOT, name: cistern_wire::Bytes8(name.as_bytes()), force: false, terms: Terms::NONE };
    world.failed(peer, message.into()).0
}

/// A long session with the lock of a file, another one's agent, and a second file, when the server has died and started anew.
fn restarted() -> (World, Peer, Peer, [ObjectId; 2], cistern_wire::Generation) {
    let mut world = world();
    let (mut holder, mut other) = (open(&mut world, 1, LONG), open(&mut world, 2, Duration::ZERO));
    let files = ["job", "else"].map(|name| world.create(&mut other, name).object);
    let generation = world.lock(&mut holder, files[0]);
    world.crash();
    let from = world.come_back(&mut other);
    world.complete(&mut other, from);
    (world, holder, other, files, generation)
}

//= wire-spec.md#11-1-lease
//= type=test
//# WELCOME MUST give the lease period that HELLO asks for, within the server's bounds, but none shorter than that of a long session from
//# which the agent may reclaim.
#[test]
fn welcome_gives_the_lease_that_was_asked_for_within_the_bounds() {
    let (mut world, mut volatile) = (world(), World::new());
    let given = |n, asked, world: &mut World| {
        let mut peer = peer(n, asked);
        peer.handshake += 1;
        let cookie = world.cookie(&mut peer);
        world.hello(&mut peer, &cookie);
        let got = world.got_one(&peer);
        (welcome(&got).lease_us, welcome(&got).delivery_timeout_us)
    };
    assert_eq!(given(1, Duration::ZERO, &mut world), (2_000_000, 500_000));
    assert_eq!(given(2, ms(800), &mut world), (800_000, 200_000), "Td is in proportion");
    assert_eq!(given(3, ms(1), &mut world), (500_000, 125_000));
    assert_eq!(given(4, LONG, &mut world), (30_000_000, 500_000), "Td is no longer");
    assert_eq!(given(5, Duration::from_secs(3_600), &mut world).0, 60_000_000);
    assert_eq!(given(1, LONG, &mut volatile).0, 2_000_000, "what is not kept cannot be recorded");
}

//= wire-spec.md#11-1-lease
//= type=test
//# The server MUST wait for each session by the largest τ that it gave it and has not got back.
#[test]
fn each_session_is_waited_for_by_its_own_lease() {
    for (lease, wait) in [(ms(500), ms(506)), (ms(2_000), ms(2_021)), (LONG, ms(30_301))] {
        let mut world = world();
        let peer = open(&mut world, 1, lease);
        assert!(!world.server.evict(world.now, peer.agent).is_empty());
        world.pass(wait - ms(1));
        assert_eq!(world.server.status(world.now).timing_out, 1, "{lease:?}");
        world.pass(ms(1));
        assert_eq!(world.server.status(world.now).timing_out, 0, "{lease:?}");
    }
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Whoever is told of a holder MUST be told when its locks are freed at the latest if it is gone: what is left of its wait if it is timing
//# out, else the probe period, Td' and T.
#[test]
fn silent_holder_fails_within_what_its_waiter_was_told_sooner_the_shorter_its_lease_is() {
    let mut found = Vec::new();
    for lease in [ms(500), ms(2_000), LONG] {
        let mut world = world();
        let (mut holder, mut waiter) = (open(&mut world, 1, lease), open(&mut world, 2, Duration::ZERO));
        let file = world.create(&mut waiter, "job").object;
        world.lock(&mut holder, file);
        let before = world.now;
        let ask = waiter.ask_only();
        world.send(&mut waiter, &[lock(ask, file, LockWait::Queue).into()]);
        let told = world.got_one(&waiter);
        let Message::Queued(Queued { holder: Holder { bound_ms, .. }, .. }) = told.message() else { panic!("{told:?}") };
        world.attend(&waiter);
        while world.server.status(world.now).locks > 0 && world.server.status(world.now).waiting > 0 {
            world.pass(ms(10));
        }
        found.push(world.now.since(before));
        let bound = ms(bound_ms);
        assert!(*found.last().unwrap() <= bound && bound < lease * 2, "{found:?}, {bound:?} was told");
        world.got(&holder);
        world.got(&waiter);
    }
    assert!(found[0] < ms(800) && found[1] > ms(2_500) && found[2] > LONG, "{found:?}");
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# An advisory lock MUST NOT be granted in a long session before its record names the object durably.
#[test]
fn lock_of_a_long_session_is_granted_when_it_is_recorded_and_recorded_until_it_is_given_back() {
    let mut world = world();
    let (mut long, mut other) = (open(&mut world, 1, LONG), open(&mut world, 2, Duration::ZERO));
    let file = world.create(&mut other, "job").object;
    assert_eq!((recorded(&world, &long), recorded(&world, &other)), (Some(Vec::new()), None));
    world.stalled = true;
    let ask = long.ask_only();
    world.send(&mut long, &[lock(ask, file, LockWait::Try).into()]);
    world.pass(ms(50));
    world.expect(&long, &[]);
    assert_eq!(world.server.status(world.now).locks, 0);
    world.stalled = false;
    world.turn();
    let Reply::Granted(granted) = world.got_one(&long).reply() else { panic!("not granted") };
    assert_eq!(recorded(&world, &long), Some(alloc::vec![file]));
    // Another run, or another try, needs no record of its own.
    world.stalled = true;
    let ask = long.ask_only();
    world.send(&mut long, &[lock(ask, file, LockWait::Try).into()]);
    let Reply::Granted(again) = world.got_one(&long).reply() else { panic!("not granted again") };
    assert!(again.generation > granted.generation);
    world.stalled = false;
    let item = ReleaseItem { lock: advisory(file), generation: again.generation, keep: Keep::Nothing };
    let serial = long.serial();
    world.send(&mut long, &[Release { serial, items: List::of(&[item]) }.into()]);
    assert!(matches!(world.got_one(&long).message(), Message::Released(_)));
    assert_eq!(recorded(&world, &long), Some(Vec::new()));
    world.lock(&mut other, file);
    assert_eq!(recorded(&world, &other), None);
}

#[test]
fn wait_of_a_long_session_is_recorded_until_it_ends() {
    let mut world = world();
    let (mut long, mut other) = (open(&mut world, 1, LONG), open(&mut world, 2, Duration::ZERO));
    let file = world.create(&mut other, "job").object;
    world.lock(&mut other, file);
    world.attend(&long);
    world.attend(&other);
    let ask = long.ask_only();
    world.send(&mut long, &[lock(ask, file, LockWait::Queue).into()]);
    assert!(matches!(world.got_one(&long).message(), Message::Queued(_)));
    assert_eq!(recorded(&world, &long), Some(alloc::vec![file]));
    let serial = long.serial();
    world.send(&mut long, &[cistern_wire::Cancel { serial, nonce: ask.nonce }.into()]);
    assert!(matches!(world.got_one(&long).message(), Message::Cancelled(_)));
    assert_eq!(recorded(&world, &long), Some(Vec::new()));
    world.got(&other);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A long session MUST NOT be given a cache lock.
#[test]
fn long_session_caches_nothing() {
    let mut world = world();
    let mut long = open(&mut world, 1, LONG);
    let file = world.create(&mut long, "job").object;
    let get = GetAttr { ask: long.ask_only(), object: file, want: Want::Shared };
    world.send(&mut long, &[get.into()]);
    let Reply::Stated(stated) = world.got_one(&long).reply() else { panic!("not stated") };
    assert_eq!((stated.grant, world.server.status(world.now).locks), (cistern_wire::CacheGrant::NONE, 0));
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# Grace MUST last at least the largest T stored of a session that is not long, from when the store was held exclusively and no earlier
//# process could send.
//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# After the common grace the server MUST NOT grant an advisory lock that the record of a long session names, nor take the object's name
//# away unforced, before the session is accounted for or its T has passed.
#[test]
fn only_what_a_long_session_may_hold_is_withheld_after_the_common_grace() {
    let (mut world, _, mut other, [job, free], _) = restarted();
    assert!(!world.in_grace(), "nobody else is awaited");
    assert_eq!(ask(&mut world, &mut other, free), Ok(()));
    assert_eq!(ask(&mut world, &mut other, job), Err(Status::IN_GRACE));
    assert_eq!(unlink(&mut world, &mut other, "job"), Status::EBUSY);
    world.attend(&other);
    world.pass(Config::default().wait_for(LONG) - ms(1));
    assert_eq!(ask(&mut world, &mut other, job), Err(Status::IN_GRACE));
    assert_eq!(world.server.status(world.now).withheld, 1);
    world.pass(ms(1));
    assert_eq!(world.server.status(world.now).withheld, 0);
    assert_eq!(ask(&mut world, &mut other, job), Ok(()));
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# After the common grace only advisory locks whose objects the former session's record names MUST be reclaimable.
#[test]
fn long_session_takes_back_after_the_common_grace_what_was_recorded_and_nothing_else() {
    let (mut world, mut holder, mut other, [job, free], generation) = restarted();
    world.pass(Duration::from_secs(20));
    let from = world.come_back(&mut holder);
    let statuses: Vec<_> =
        world.reclaim(&mut holder, from, &[held(job, generation), held(free, generation)]).iter().map(|i| i.status).collect();
    assert_eq!(statuses, [Status::OK, Status::NOT_HELD]);
    assert_eq!(recorded(&world, &holder), Some(alloc::vec![job]), "it is recorded before it is answered");
    world.complete(&mut holder, from);
    assert_eq!(world.server.status(world.now).withheld, 0);
    let ask = other.ask_only();
    world.send(&mut other, &[lock(ask, job, LockWait::Try).into()]);
    assert!(matches!(world.got_one(&other).reply(), Reply::LockRefused(_)), "it is held");
    world.got(&holder);
}

#[test]
fn long_session_that_is_not_reclaimed_in_its_time_is_gone() {
    let (mut world, mut holder, _, _, _) = restarted();
    world.pass(Config::default().wait_for(LONG));
    let from = holder.session;
    let told = world.open_again(&mut holder, &[(from, Claim::Reclaiming)]);
    assert_eq!(told[0].fate, SessionFate::Ended);
    assert!(!world.disk.values.contains_key(&Key::Session(from)));
}

#[test]
fn second_restart_withholds_anew_and_a_session_that_reclaims_is_as_long_as_the_former() {
    let (mut world, mut holder, mut other, [job, _], generation) = restarted();
    world.pass(Duration::from_secs(20));
    // It asks for less now: as long as its agent may go by the former session, the new one has to be waited for as long.
    holder.lease_us = 0;
    let from = world.come_back(&mut holder);
    assert_eq!(world.reclaim(&mut holder, from, &[held(job, generation)])[0].status, Status::OK);
    world.complete(&mut holder, from);
    world.crash();
    let from = world.come_back(&mut other);
    world.complete(&mut other, from);
    assert!(!world.in_grace());
    world.attend(&other);
    world.pass(Config::default().wait_for(LONG) - ms(1));
    assert_eq!(ask(&mut world, &mut other, job), Err(Status::IN_GRACE));
    world.pass(ms(1));
    assert_eq!(ask(&mut world, &mut other, job), Ok(()));
}

#[test]
fn long_session_that_was_superseded_before_the_restart_is_waited_for_and_gives_nothing_back() {
    let mut world = world();
    let (mut holder, mut other) = (open(&mut world, 1, LONG), open(&mut world, 2, Duration::ZERO));
    let job = world.create(&mut other, "job").object;
    world.lock(&mut holder, job);
    let from = holder.session;
    holder.incarnation += 1;
    world.open_again(&mut holder, &[]);
    world.crash();
    let mine = world.come_back(&mut other);
    world.complete(&mut other, mine);
    let told = world.open_again(&mut holder, &[(from, Claim::Reclaiming)]);
    assert_eq!(told[0].fate, SessionFate::TimingOut);
    assert_eq!(ask(&mut world, &mut other, job), Err(Status::IN_GRACE));
    world.attend(&other);
    world.pass(Config::default().wait_for(LONG));
    assert_eq!(ask(&mut world, &mut other, job), Ok(()));
}

#[test]
fn who_records_many_locks_pays_for_the_record_that_each_change_writes() {
    let mut world = world();
    let mut peer = open(&mut world, 1, LONG);
    let mut price = |world: &mut World, name: &str| {
        let file = world.create(&mut peer, name).object;
        let before = world.server.figures(world.now).work.charged_ns;
        let generation = world.lock(&mut peer, file);
        (file, generation, world.server.figures(world.now).work.charged_ns - before)
    };
    let first = price(&mut world, "first");
    let many: Vec<_> = (0..400).map(|n| price(&mut world, &alloc::format!("f{n}"))).collect();
    let (.., last) = many[399];
    // 8 bytes of each of 400 more, at 12 ns for 16.
    assert!(last >= first.2 + 2_000, "{last} ns, and {} for the first", first.2);
    // Given back one by one, each leaves the record, and no other does.
    for (object, generation, _) in &many[..3] {
        let items = [ReleaseItem { lock: advisory(*object), generation: *generation, keep: Keep::Nothing }];
        let serial = peer.serial();
        world.send(&mut peer, &[Release { serial, items: List::of(&items) }.into()]);
        drop(world.got(&peer));
        assert!(!recorded(&world, &peer).unwrap().contains(object));
    }
    assert_eq!(recorded(&world, &peer).unwrap().len(), 398);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# Of a session whose record names what it may hold nothing else MUST be reclaimable in the common grace either, unless the store may be older
//# than the record.
#[test]
fn a_long_session_reclaims_nothing_in_the_common_grace_that_its_record_does_not_name() {
    let mut world = world();
    let (mut holder, mut other) = (open(&mut world, 1, LONG), open(&mut world, 2, Duration::ZERO));
    let files = ["job", "else"].map(|name| world.create(&mut other, name).object);
    let generation = world.lock(&mut holder, files[0]);
    let mine = world.lock(&mut other, files[1]);
    world.crash();
    let from = world.come_back(&mut holder);
    let claims = [held(files[0], generation), held(files[1], mine), cached(files[0], Mode::Shared, generation)];
    let told: Vec<Status> = world.reclaim(&mut holder, from, &claims).iter().map(|item| item.status).collect();
    assert_eq!(told, [Status::OK, Status::NOT_HELD, Status::NOT_HELD]);
    let from = world.come_back(&mut other);
    assert_eq!(world.reclaim(&mut other, from, &[held(files[1], mine)])[0].status, Status::OK);
}
