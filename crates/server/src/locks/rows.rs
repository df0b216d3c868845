//! What the lock table tells about itself: holders, waiters, figures.
//!
//! Decides: the order of lists: by object, holders before waiters, each in the order in which they came. Place in the walk: LIST_LOCKS,
//! the answers "queued" and "refused", status, and the machine's questions about a session. Implements `wire-spec.md` section 6.5.
//! Invariant: nothing here changes anything; the order does not depend on memory addresses or hashing.
//! Leaves to others: names of agents, times relative to now.

use super::advisory::advisory;
use super::{LockCounts, LockTable, Row};
use crate::ids::LockSlot;
use alloc::vec::Vec;
use cistern_wire::{Generation, LockId, ObjectId, RowState};

impl LockTable {
    /// The generation under which a session holds a lock now; `None`: it does not hold it.
    pub(crate) fn held(&self, slot: LockSlot, lock: LockId) -> Option<Generation> {
        self.find(slot, lock).map(|at| self.table.holds[at].generation)
    }

    /// Whether a session holds the advisory lock of an object or waits for it.
    pub(crate) fn involves(&self, slot: LockSlot, object: ObjectId) -> bool {
        let found = self.table.session(slot).zip(self.table.entry(advisory(object)));
        found.is_some_and(|(slot, entry)| {
            self.table.hold_of(entry, slot).is_some() || self.waiters(entry).any(|waiter| waiter.session == slot)
        })
    }

    /// Whether somebody in good standing waits for this session to give a lock back (section 11.3).
    pub(crate) fn is_waited_for(&self, slot: LockSlot) -> bool {
        let slot = self.table.session(slot);
        slot.is_some_and(|slot| self.table.demanded_of(slot).any(|at| self.has_waiters(self.table.holds[at].entry)))
    }

    /// How many lock requests of a session wait (section 11.4).
    pub(crate) fn waits(&self, slot: LockSlot) -> usize {
        self.table.session(slot).map_or(0, |slot| self.table.sessions[slot].waits as usize)
    }

    /// Whether a request for a lock still waits, or has what it was granted.
    pub(crate) fn is_pending(&self, slot: LockSlot, nonce: u64) -> bool {
        self.table.session(slot).is_some_and(|slot| self.waits.contains_key(&(slot, nonce)) || self.granted(slot, nonce).is_some())
    }

    /// How many locks of both classes a session holds.
    pub(crate) fn holds(&self, slot: LockSlot) -> usize {
        self.table.session(slot).map_or(0, |slot| self.table.sessions[slot].held as usize)
    }

    /// One who holds the lock, or else waits for it longest, other than `asking`.
    pub(crate) fn holder_info(&self, lock: LockId, asking: LockSlot) -> Option<Row> {
        self.other_holder(self.table.entry(lock)?, asking.0)
    }

    pub(super) fn other_holder(&self, entry: u32, asking: u32) -> Option<Row> {
        let asking = self.table.sessions.get(asking).map(|session| session.key);
        self.rows_of(entry).find(|row| Some(row.session) != asking)
    }

    /// Advisory locks, for LIST_LOCKS: of `object` or of all, going on after so many rows of the object in `after`; at most `max` rows,
    /// and whether these are the last.
    pub(crate) fn rows(&self, object: Option<ObjectId>, after: (ObjectId, u32), max: usize) -> (Vec<Row>, bool) {
        let mut rows = Vec::new();
        let last = object.unwrap_or(ObjectId(u64::MAX));
        let first = object.unwrap_or_default().max(after.0);
        let objects = (first <= last).then(|| self.table.advisory.range(first..=last));
        for object in objects.into_iter().flatten() {
            let seen = if object == after.0 { after.1 as usize } else { 0 };
            let entry = self.table.entry(advisory(object));
            for row in entry.into_iter().flat_map(|entry| self.rows_of(entry)).skip(seen) {
                if rows.len() == max {
                    return (rows, false);
                }
                rows.push(row);
            }
        }
        (rows, true)
    }

    fn rows_of(&self, entry: u32) -> impl Iterator<Item = Row> {
        let lock = self.table.entries[entry].lock;
        let holders = self.table.holds_of(entry).map(move |at| {
            let hold = &self.table.holds[at];
            let session = self.table.sessions[hold.session].key;
            Row { lock, state: RowState::Holds, mode: hold.mode, generation: hold.generation, session, since: hold.since }
        });
        let waiters = self.waiters(entry).map(move |waiter| {
            let session = self.table.sessions[waiter.session].key;
            Row { lock, state: RowState::Waits, mode: waiter.mode, generation: Generation(0), session, since: waiter.since }
        });
        holders.chain(waiters)
    }

    /// Figures for status and bounds.
    pub(crate) fn counts(&self) -> LockCounts {
        LockCounts {
            held: self.table.holds.len(),
            waiters: self.waiting,
            mutations: self.mutations.len(),
            demands_outstanding: self.demands.outstanding,
            demands: self.demands.sent,
        }
    }
}
