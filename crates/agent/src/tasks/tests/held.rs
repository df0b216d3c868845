//! The lease and the locks of the bench: how they are made, and how a lock is given back.
//!
//! Decides: nothing; the one place in these tests that knows how the protocol half is put together.

use crate::api::{HolderId, Locked, OpId};
use crate::cache::Cache;
use crate::config::CacheLimits;
use crate::config::Phases;
pub(super) use crate::lease::Lease;
use crate::lease::{Permit, Renewal};
use crate::locks::Effect;
pub(super) use crate::locks::Locks;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{Generation, Granted, Keep, LockClass, LockId, Mode, ObjectId, ReceiptAnswer, ReleasedItem, Reply};
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

/// The cache of an open session in which some request is always out, so that nothing refused is ever forgotten.
pub(super) fn cache(limits: CacheLimits) -> Cache {
    let mut cache = Cache::new(limits);
    open(&mut cache);
    cache
}

fn open(cache: &mut Cache) {
    cache.session_opened();
    cache.awaited(1, 2);
}

/// Advisory locks.
pub(super) fn locks() -> Locks {
    Locks::new(1_000)
}

/// What the agent gave back since the last look: objects and generations.
pub(super) fn given_back(cache: &mut Cache) -> Vec<(u64, u64)> {
    core::iter::from_fn(|| cache.poll_release()).map(|item| (item.lock.object.0, item.generation.0)).collect()
}

/// The server demands a lock; the bench tells the toy.
pub(super) fn demand(cache: &mut Cache, object: ObjectId, generation: u64) {
    cache.demanded(object, Generation(generation), Keep::Nothing);
    while cache.poll_release().is_some() {}
}

/// A demand leaves a shared lock.
pub(super) fn downgrade(cache: &mut Cache, object: ObjectId, generation: u64) {
    assert_eq!(cache.demanded(object, Generation(generation), Keep::Shared), ReceiptAnswer::Received);
    assert_eq!(given_back(cache), [(object.0, generation)]);
}

/// The downgrade was answered.
pub(super) fn downgraded(cache: &mut Cache, object: ObjectId, from: u64, now: u64) {
    let lock = LockId { object, class: LockClass::Cache };
    cache.released(&ReleasedItem { lock, generation: Generation(from), keep: Keep::Shared, now: Generation(now) });
}

/// The server grants an advisory lock that was asked for: who got it here.
pub(super) fn grant(locks: &mut Locks, permit: Permit, object: ObjectId, generation: u64) -> Option<(OpId, Locked)> {
    let lock = LockId { object, class: LockClass::Advisory };
    let granted = Granted { lock, mode: Mode::Exclusive, generation: Generation(generation), run: 16 };
    locks.answered(permit, object, &Reply::Granted(granted));
    let mut got = None;
    while let Some(effect) = locks.poll_effect() {
        if let Effect::Done { op, result: Ok(locked) } = effect {
            got = Some((op, locked));
        }
    }
    got
}

/// A local user gives its hold back.
pub(super) fn unlock(locks: &mut Locks, permit: Permit, holder: HolderId) {
    assert!(locks.unlock(permit, holder));
}

/// The session ended, and another is open.
pub(super) fn forget(cache: &mut Cache, locks: &mut Locks, permit: Permit) {
    cache.session_over();
    locks.session_over(permit);
    open(cache);
}
