//! The lease and the locks of the bench: how they are made, and how a lock is given back.
//!
//! Decides: nothing; the one place in these tests that knows how the protocol half is put together.

use crate::api::{HolderId, Locked, OpId};
use crate::config::Phases;
pub(super) use crate::lease::Lease;
use crate::lease::Renewal;
use crate::locks::Effect;
pub(super) use crate::locks::Locks;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{Demand, Generation, Granted, Keep, LockClass, LockId, Mode, ObjectId, ReceiptAnswer, ReleasedItem, Reply};
use core::time::Duration;

pub(super) const NOW: Instant = Instant::new(1_000_000_000, 1_000_000_000);

/// A lease so long that a test that does not mean to outlasts it.
const TAU: Duration = Duration::from_secs(1_000);

pub(super) fn lease() -> Lease {
    let mut lease = Lease::new(Phases::default());
    lease.open(TAU, TAU);
    lease.renew(NOW, Renewal::Opening);
    lease
}

pub(super) fn renew(lease: &mut Lease, now: Instant) {
    lease.renew(now, Renewal::Opportunistic);
}

/// An instant in *suspect*, and one after the end of the lease.
pub(super) fn suspect_and_over() -> (Instant, Instant) {
    (NOW.plus(TAU * 84 / 100), NOW.plus(TAU))
}

/// Locks of an open session in which some request is always out, so that nothing disowned is ever forgotten.
pub(super) fn locks(cache_max: usize) -> Locks {
    let mut locks = Locks::new(cache_max, 1_000);
    open(&mut locks);
    locks
}

fn open(locks: &mut Locks) {
    locks.session_opened();
    locks.horizon(1, 2);
}

/// What the agent gave back by its own choice since the last look: objects and generations.
pub(super) fn given_back(locks: &mut Locks) -> Vec<(u64, u64)> {
    let mut items = Vec::new();
    while let Some(effect) = locks.poll_effect() {
        if let Effect::Release(item) = effect {
            items.push((item.lock.object.0, item.generation.0));
        }
    }
    items
}

/// The server demands a lock; the bench tells the cache and the toy.
pub(super) fn disown(locks: &mut Locks, lease: &Lease, object: ObjectId, generation: u64) {
    demand(locks, lease, object, generation, Keep::Nothing);
}

fn demand(locks: &mut Locks, lease: &Lease, object: ObjectId, generation: u64, keep: Keep) -> ReceiptAnswer {
    let lock = LockId { object, class: LockClass::Cache };
    let said = locks.demanded(NOW, lease, &Demand { seq: 1, lock, generation: Generation(generation), keep });
    while locks.poll_effect().is_some() {}
    said
}

/// A demand leaves a shared lock.
pub(super) fn downgrade(locks: &mut Locks, lease: &Lease, object: ObjectId, generation: u64) {
    assert_eq!(demand(locks, lease, object, generation, Keep::Shared), ReceiptAnswer::Received);
}

/// The downgrade was answered: what the cache has to be told of it.
pub(super) fn downgraded(locks: &mut Locks, lease: &Lease, object: ObjectId, from: u64, now: u64) -> Option<Effect> {
    let lock = LockId { object, class: LockClass::Cache };
    locks.released(NOW, lease, &ReleasedItem { lock, generation: Generation(from), keep: Keep::Shared, now: Generation(now) });
    locks.poll_effect()
}

/// The server grants an advisory lock that was asked for: who got it here.
pub(super) fn grant(locks: &mut Locks, lease: &Lease, object: ObjectId, generation: u64) -> Option<(OpId, Locked)> {
    let lock = LockId { object, class: LockClass::Advisory };
    let granted = Granted { lock, mode: Mode::Exclusive, generation: Generation(generation), run: 16 };
    locks.answered(NOW, lease, object, &Reply::Granted(granted));
    let mut got = None;
    while let Some(effect) = locks.poll_effect() {
        if let Effect::Done { op, result: Ok(locked) } = effect {
            got = Some((op, locked));
        }
    }
    got
}

/// A local user gives its hold back.
pub(super) fn unlock(locks: &mut Locks, lease: &Lease, holder: HolderId) {
    assert!(locks.unlock(NOW, lease, holder));
}

/// The session ended, and another is open.
pub(super) fn forget(locks: &mut Locks, lease: &Lease) {
    locks.session_over(NOW, lease);
    open(locks);
}
