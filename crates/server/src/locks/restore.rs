//! Restoring: a lock that a session holds again as it was held before the server started anew.
//!
//! Decides whether such a lock can have been granted: its numbers were reserved before the start, and nobody holds it in a conflicting
//! mode. Place in the walk: RECLAIM comes here from execution, in grace. Implements `wire-spec.md` section 11.7.
//! Invariant: what is restored keeps its generation and its run, and every later grant is larger.
//! Leaves to others: who may reclaim from which session, what a conflict entails (`reclaim`).

use super::LockTable;
use crate::ids::{LockSlot, SessionKey};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Generation, LockClass, LockId, Mode, ObjectId, ReclaimItem, Status};

/// Longest run of tokens that was ever granted: the largest that can be set.
const RUN_MAX: u32 = 1 << 20;

/// What became of a lock to be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Restored {
    /// The session holds it, as it did.
    Held,
    /// It cannot have held it, or there is no room for it.
    Refused(Status),
    /// These sessions hold it in a mode that conflicts.
    Conflict(Vec<SessionKey>),
}

impl LockTable {
    /// Gives a session a lock under the generation and with the run that an earlier start of the server granted. Repeated, it is
    /// answered alike.
    pub(crate) fn restore(&mut self, now: Instant, slot: LockSlot, item: &ReclaimItem) -> Restored {
        let Some(slot) = self.table.good(slot) else { return Restored::Refused(Status::NOT_HELD) };
        let ReclaimItem { lock, mode, generation, first, .. } = *item;
        let run = if lock.class == LockClass::Cache { 1 } else { item.run };
        if !(1..=RUN_MAX).contains(&run)
            || !self.tokens.may_have_granted(generation, run) && !bugs::is(Bug::A6)
            || first > generation
            || !self.tokens.may_have_granted(first, 1) && !bugs::is(Bug::A6)
        {
            return Restored::Refused(Status::EINVAL);
        }
        if lock.class == LockClass::Cache && !self.table.sessions[slot].caches {
            return Restored::Refused(Status::NOT_HELD);
        }
        if let Some(entry) = self.table.entry(lock) {
            if let Some(at) = self.table.hold_of(entry, slot) {
                let hold = &self.table.holds[at];
                let same = hold.generation == generation && hold.mode == mode;
                return if same { Restored::Held } else { Restored::Refused(Status::NOT_HELD) };
            }
            let others = self.table.holds_of(entry).filter(|at| !self.table.holds[*at].mode.compatible(mode));
            let others: Vec<SessionKey> = others.map(|at| self.table.sessions[self.table.holds[at].session].key).collect();
            if !others.is_empty() {
                return Restored::Conflict(others);
            }
        }
        if !self.has_room(slot) {
            return Restored::Refused(Status::BUSY);
        }
        let entry = self.table.entry_or_new(lock);
        let at = self.table.add_hold(now, entry, slot, mode, generation, run);
        // A token of an earlier run is as good a guard as before.
        self.table.holds[at].before = first;
        Restored::Held
    }

    /// Whether a session holds the cache locks of all these objects exclusively.
    pub(crate) fn holds_all_exclusively(&self, slot: LockSlot, objects: &[ObjectId]) -> bool {
        objects.iter().all(|object| {
            let at = self.find(slot, LockId { object: *object, class: LockClass::Cache });
            at.is_some_and(|at| self.table.holds[at].mode == Mode::Exclusive)
        })
    }
}

impl super::Tokens {
    /// Whether a run may have been given out before the start, in this epoch.
    const fn may_have_granted(&self, generation: Generation, run: u32) -> bool {
        generation.0 > self.epoch_start() && generation.0.saturating_add(run as u64 - 1) <= self.started
    }
}
