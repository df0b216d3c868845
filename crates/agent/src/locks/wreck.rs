//! Advisory locks of a session that is over: which of their holders are still to be told, and which have not said that they stopped.
//!
//! Decides how a million holders hear that their locks are lost without one call that does it all: a piece of the table at a time. Nothing
//! waits for that: with the session the table was put aside whole, so no look and no use of a lock finds any of them. Only where somebody
//! here wants the lock anew its holders are told at once, before that can be granted.
//! Place in the walk: made by `Locks::session_over`, swept in the turns that follow (`recovery`). Implements `wire-spec.md` section 11.3.
//! Invariant: who says that it has stopped before it was told is not told; who was told is known until it says so (R36).
//! Leaves to others: when the session may be surrendered (`surrender`).

use super::parts::Parts;
use super::queue::Queue;
use super::table::{Place, Table};
use crate::api::HolderId;
use alloc::vec::Vec;
use cistern_wire::ObjectId;

/// What is left of the locks of one session.
#[derive(Debug)]
pub(super) struct Wreck {
    /// Counts the sessions that ended.
    pub(super) number: u32,
    entries: Table,
    /// Local users who have not said that they stopped.
    holders: Parts<Place>,
}

impl Wreck {
    pub(super) const fn new(number: u32, entries: Table, holders: Parts<Place>) -> Self {
        Self { number, entries, holders }
    }

    /// Those who wait for the lock of an object go on waiting, elsewhere.
    pub(super) fn take_queue(&mut self, object: ObjectId) -> Option<Queue> {
        let place = self.entries.find(object)?;
        self.entries.get_mut(place).map(|entry| core::mem::take(&mut entry.queue))
    }

    /// The holders of the lock of an object who have not been told, nor said that they stopped; they count as told from now on.
    pub(super) fn holders_of(&mut self, object: ObjectId) -> Vec<HolderId> {
        let entry = self.entries.find(object).and_then(|place| self.entries.get_mut(place));
        let holders = entry.map(|entry| core::mem::take(&mut entry.holders)).unwrap_or_default();
        holders.into_iter().map(|holder| holder.id).filter(|holder| self.holders.get(holder.0).is_some()).collect()
    }

    /// The next holders to be told, a piece of the table's; `None`: all have been.
    pub(super) fn sweep(&mut self) -> Option<Vec<(HolderId, ObjectId)>> {
        let entries = self.entries.break_off()?;
        let mut told = Vec::new();
        for entry in entries {
            let holders = entry.holders.iter().filter(|holder| self.holders.get(holder.id.0).is_some());
            told.extend(holders.map(|holder| (holder.id, entry.object)));
        }
        Some(told)
    }

    /// Whether all have been told.
    pub(super) const fn is_swept(&self) -> bool {
        self.entries.is_broken_up()
    }

    /// A local user has stopped.
    pub(super) fn has_stopped(&mut self, holder: HolderId) {
        self.holders.remove(holder.0);
    }

    /// Whether a local user may still act under one of the locks, as far as has been said.
    pub(super) fn is_in_use(&self) -> bool {
        self.holders.len() > 0
    }
}
