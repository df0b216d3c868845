//! Suspicions.

use super::world::{Peer, ROOT, World, advisory, cache_lock, create, lock, ms};
use crate::Config;
use crate::store::{StoreEvent, StoreWork};
use crate::store::disk::Disk;
use alloc::vec::Vec;
use alloc::vec;
use cistern_link::Machine as _;
use cistern_wire::*;

fn chmod(ask: Ask, object: ObjectId) -> Message<'static> {
    let mask = SetMask { bits: SetMask::MODE };
    SetAttr { ask, object, mask, mode: 0o600, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms: Terms::NONE }.into()
}

#[test]
fn a_tokens_after_restart() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    let before = world.lock(&mut peer, file);
    let disk = core::mem::take(&mut world.disk);
    drop(world);
    let mut world = World::on(disk, 8, Config { volatile: true, ..Config::default() }, 9);
    let mut peer = world.open(1);
    let after = world.lock(&mut peer, file);
    assert!(after.0 > before.0 + 1023, "{before} then {after}");
}

#[test]
fn a2_tokens_slow_disk() {
    let identity = crate::Identity { store: super::world::STORE, epoch: 1, incarnation: 7 };
    let now = cistern_link::Instant::new(1, 1);
    let mut server = crate::Server::new(now, 0, identity, Config::default(), [1; 32]).unwrap();
    let mut disk = Disk::default();
    let mut batches = vec![];
    while let Some(work) = server.poll_effect() {
        match work { StoreWork::Load(q) => disk.ask(q), StoreWork::Persist(b) => { batches.push(b.clone()); disk.batches.push_back(b) } }
    }
    assert!(batches.is_empty(), "nothing is written before the counters were read: {batches:?}");
    while !disk.asked.is_empty() {
        let loaded = disk.give(0);
        server.store_event(now, StoreEvent::Loaded(loaded));
    }
    while let Some(batch) = disk.sync() {
        server.store_event(now, StoreEvent::Durable(batch));
    }
}

#[test]
fn c_release_of_never_granted_generation() {
    let mut world = World::new();
    let (mut holder, mut other) = (world.open(1), world.open(2));
    let file = world.create(&mut other, "f").object;
    world.cache(&mut holder, file);
    let ask = other.ask_only();
    world.send(&mut other, &[chmod(ask, file)]);
    world.got(&other);
    world.got(&holder);
    for round in 0..40 {
        let serial = holder.serial();
        let item = ReleaseItem { lock: cache_lock(file), generation: Generation(u64::MAX), keep: Keep::Nothing };
        world.send(&mut holder, &[Release { serial, items: List::of(&[item]) }.into()]);
        for got in world.got(&holder) {
            if let Message::Probe(p) = got.message() {
                world.send(&mut holder, &[Receipt { seq: p.seq, answer: ReceiptAnswer::Received }.into()]);
            }
            if let Message::Demand(p) = got.message() {
                world.send(&mut holder, &[Receipt { seq: p.seq, answer: ReceiptAnswer::Received }.into()]);
            }
        }
        world.pass(ms(500));
        let acked = world.got(&other).iter().any(|got| matches!(got.message(), Message::Ack(_)));
        if acked { world.got(&holder); return; }
        let _ = round;
    }
    world.got(&holder);
    panic!("the mutation waits for ever");
}

#[test]
fn d_parked_unbounded() {
    let mut world = World::new();
    let (mut holder, mut other) = (world.open(1), world.open(2));
    let file = world.create(&mut other, "f").object;
    world.cache(&mut holder, file);
    for _ in 0..300 {
        let ask = other.ask_only();
        world.send(&mut other, &[chmod(ask, file)]);
    }
    world.got(&holder);
    world.got(&other);
    let parked = world.server.status(world.now).parked;
    assert!(parked <= 64, "{parked}");
}

#[test]
fn k_lock_on_a_busy_file() {
    let mut world = World::new();
    let (mut writer, mut locker) = (world.open(1), world.open(2));
    let file = world.create(&mut writer, "f").object;
    world.stalled = true;
    let ask = writer.ask_only();
    world.send(&mut writer, &[chmod(ask, file)]);
    let ask = locker.ask_only();
    world.send(&mut locker, &[lock(ask, file, LockWait::Queue).into()]);
    for round in 0..20 {
        // A batch is under way, and the file is written again before it is durable.
        let ask = writer.ask_only();
        world.send(&mut writer, &[chmod(ask, file)]);
        let batch = world.disk.sync().unwrap();
        world.server.store_event(world.now, StoreEvent::Durable(batch));
        world.turn();
        world.got(&writer);
        if world.got(&locker).iter().any(|got| matches!(got.message(), Message::Ack(_))) { return; }
        let _ = round;
    }
    panic!("never granted");
}

#[test]
fn e_release_all_of_the_future() {
    let mut world = World::new();
    let (mut holder, mut other) = (world.open(1), world.open(2));
    let file = world.create(&mut other, "f").object;
    let serial = holder.serial();
    world.send(&mut holder, &[ReleaseAll { serial, up_to: Generation(u64::MAX) }.into()]);
    world.got(&holder);
    world.cache(&mut holder, file);
    let ask = other.ask_only();
    world.send(&mut other, &[chmod(ask, file)]);
    let kinds: Vec<_> = world.got(&other).iter().map(|g| g.message().kind()).collect();
    world.got(&holder);
    assert_eq!(kinds, [Kind::Pending], "a mutation was executed beside a cache lock");
}

#[test]
fn f_absent_names() {
    let mut world = World::new();
    let mut peer = world.open(1);
    for n in 0..500 {
        let name = alloc::format!("f{n}");
        world.create(&mut peer, &name);
        let ask = peer.ask_only();
        let m = Unlink { ask, dir: ROOT, name: Bytes8(name.as_bytes()), force: false, terms: Terms::NONE };
        world.send(&mut peer, &[m.into()]);
        world.got(&peer);
    }
    let bytes = world.server.overlay.bytes();
    assert!(bytes < 20_000, "{bytes}");
}

#[test]
fn g_duplicate_with_smaller_limit() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let ask = peer.ask();
    world.send(&mut peer, &[create(ask, "x", Want::Exclusive).into()]);
    world.got(&peer);
    let ask = Ask { limit: 0, ..ask };
    world.send(&mut peer, &[create(ask, "x", Want::Exclusive).into()]);
    assert_eq!(world.got(&peer).len(), 1);
    let _ = (advisory(ROOT), Peer::new(1));
}

#[test]
fn h_every_request_at_the_smallest_limits() {
    // All samples of agent messages, with odd asks, in a lived-in world.
    let mut world = World::new();
    let mut peer = world.open(1);
    world.create(&mut peer, "file");
    for _ in 0..3 {
        for message in samples() {
            if message.kind().direction() == Direction::Server || message.kind().lane() == Lane::Handshake || message.kind() == Kind::EndSession { continue; }
            let bytes_fit = core::panic::AssertUnwindSafe(());
            let _ = bytes_fit;
            world.send(&mut peer, &[message]);
            world.got(&peer);
        }
    }
}
