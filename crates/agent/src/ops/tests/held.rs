//! The lease and the locks of the bench: how they are made, and how a lock is given back.
//!
//! Decides: nothing; the one place in these tests that knows how the protocol half is put together.

pub(super) use crate::lease::Lease;
pub(super) use crate::locks::Locks;
use cistern_link::Instant;
use cistern_wire::{Generation, ObjectId};

pub(super) const NOW: Instant = Instant::new(1_000_000_000, 1_000_000_000);

pub(super) fn lease() -> Lease {
    Lease { usable: true, starts: true }
}

pub(super) fn set(lease: &mut Lease, starts: bool, usable: bool) {
    lease.starts = starts;
    lease.usable = usable;
}

pub(super) fn locks() -> Locks {
    Locks::default()
}

pub(super) fn disown(locks: &mut Locks, object: ObjectId, generation: u64) {
    locks.held.remove(&object);
    locks.disowned.insert(object, Generation(generation));
}

pub(super) fn forget(locks: &mut Locks) {
    locks.held.clear();
}
