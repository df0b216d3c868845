//! Bounds of a session: an agent that says it no longer awaits what it has asked gets no more than one that waits.

use super::world::{Peer, ROOT, World, create, lock};
use crate::config::LockLimits;
use alloc::format;
use cistern_wire::{Ask, Bytes8, Kind, LockWait, Message, ObjectId, Reply, SetAttr, SetMask, Status, Terms, Unlink, Want};

/// The window of a session of [`World::open`].
const WINDOW: usize = 64;

fn chmod(ask: Ask, object: ObjectId) -> Message<'static> {
    let mask = SetMask { bits: SetMask::MODE };
    SetAttr { ask, object, mask, mode: 0o600, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms: Terms::NONE }.into()
}

#[test]
fn request_no_longer_awaited_is_not_kept_waiting() {
    let mut world = World::new();
    let (mut holder, mut other) = (world.open(1), world.open(2));
    let file = world.create(&mut other, "file").object;
    world.cache(&mut holder, file);
    for _ in 0..3 * WINDOW {
        let ask = other.ask_only();
        world.send(&mut other, &[chmod(ask, file)]);
        assert_eq!(world.server.status(world.now).parked, 1, "only the newest is awaited");
    }
    world.got(&holder);
    world.got(&other);
}

/// Statuses of the replies sent to the peer.
fn busy(world: &mut World, peer: &Peer) -> usize {
    let got = world.got(peer);
    got.iter().filter(|got| matches!(got.reply(), Reply::Failed(failed) if failed.status == Status::BUSY)).count()
}

#[test]
fn replies_held_for_a_session_are_bounded_although_it_awaits_none() {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.stalled = true;
    for n in 0..3 * WINDOW {
        let ask = peer.ask_only();
        let name = format!("file {n}");
        world.send(&mut peer, &[create(ask, &name, Want::Nothing).into()]);
    }
    assert_eq!(world.server.status(world.now).held, WINDOW);
    assert_eq!(busy(&mut world, &peer), 2 * WINDOW);
    world.stalled = false;
    world.turn();
    assert_eq!(busy(&mut world, &peer), 0);
    world.create(&mut peer, "one more");
}

#[test]
fn outcomes_of_waits_that_an_agent_does_not_receipt_are_bounded() {
    let mut world = World::new();
    let (mut holder, mut waiter) = (world.open(1), world.open(2));
    let most = LockLimits::default().waiters_per_session;
    let mut refused = 0;
    for n in 0..most / 8 {
        let name = format!("job {n}");
        let file = world.create(&mut holder, &name).object;
        world.lock(&mut holder, file);
        for _ in 0..16 {
            let ask = waiter.ask_only();
            world.send(&mut waiter, &[lock(ask, file, LockWait::Queue).into()]);
        }
        let terms = Terms::NONE;
        let removed = Unlink { ask: holder.ask_only(), dir: ROOT, name: Bytes8(name.as_bytes()), force: true, terms };
        world.send(&mut holder, &[removed.into()]);
        world.got(&holder);
        refused += world.got(&waiter).iter().filter(|got| got.message().kind() == Kind::Ack).count();
        let notices = world.server.sessions(world.now).iter().map(|row| row.notices).max();
        assert!(notices <= Some(2 * most), "{notices:?}");
    }
    assert!(refused > 0, "BUSY");
}
