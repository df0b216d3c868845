//! What people are shown of the lock table at one look.
//!
//! Decides which locks come first where there are more than are shown: those that somebody waits for. Invariants: looking changes nothing,
//! and its cost has a bound that does not grow with the number of locks, holders and waiters.

use super::demand::Demand;
use super::{LockAccess, LockTable, Row, advisory};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{Keep, LockId, Mode, ObjectId, RowState};

use crate::ids::SessionKey;

/// Most waiting requests that are looked at for locks that somebody waits for.
const WAITS_LOOKED_AT: usize = 1_000;
/// Most holders and most waiters shown of one lock.
const OF_ONE_MAX: usize = 8;

/// An advisory lock, the first of its holders and of its waiters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockInSight {
    pub(crate) object: ObjectId,
    pub(crate) rows: Vec<Row>,
    /// Whether more hold it than `rows` has.
    pub(crate) more_holders: bool,
    /// How many wait for it.
    pub(crate) waiters: usize,
}

/// A lock that a session is to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DemandInSight {
    pub(crate) lock: LockId,
    pub(crate) session: SessionKey,
    pub(crate) mode: Mode,
    pub(crate) keep: Keep,
    pub(crate) is_sent: bool,
    /// Since when the lock is held.
    pub(crate) since: Instant,
}

impl LockTable {
    /// Advisory locks, those that somebody waits for before the others: of at most `objects` objects, with at most about `rows` rows.
    pub(crate) fn in_sight(&self, objects: usize, rows: usize) -> Vec<LockInSight> {
        let mut chosen = BTreeSet::new();
        let waited_for = self.waits.values().take(WAITS_LOOKED_AT).copied();
        let others = self.table.advisory.range(ObjectId(0)..=ObjectId(u64::MAX)).filter_map(|object| self.table.entry(advisory(object)));
        let mut left = rows;
        let mut found = Vec::new();
        for entry in waited_for.chain(others) {
            if found.len() >= objects || left == 0 {
                break;
            }
            if chosen.insert(entry) {
                let lock = self.lock_in_sight(entry);
                left = left.saturating_sub(lock.rows.len());
                found.push(lock);
            }
        }
        found
    }

    fn lock_in_sight(&self, entry: u32) -> LockInSight {
        let mut rows: Vec<Row> = self.rows_of(entry).take_while(|row| row.state == RowState::Holds).take(OF_ONE_MAX + 1).collect();
        let more_holders = rows.len() > OF_ONE_MAX;
        rows.truncate(OF_ONE_MAX);
        let queue = self.table.entries[entry].queue.as_ref();
        let waiting = self.waiters(entry).take(OF_ONE_MAX);
        rows.extend(waiting.map(|waiter| self.waiting_row(entry, waiter)));
        LockInSight { object: self.table.entries[entry].object, rows, more_holders, waiters: queue.map_or(0, |queue| queue.waiters.len()) }
    }

    /// Locks of both classes that sessions are to give back, at most `max`.
    pub(crate) fn demands_in_sight(&self, max: usize) -> Vec<DemandInSight> {
        let sessions = (0..self.table.sessions.places()).filter_map(|at| Some((at, self.table.sessions.get(at)?)));
        let live = sessions.filter(|(_, session)| matches!(session.access, LockAccess::Active | LockAccess::Suspended));
        let demanded = live.flat_map(|(at, session)| self.table.demanded_of(at).map(move |hold| (session.key(), hold)));
        let row = |(session, at): (SessionKey, u32)| {
            let hold = &self.table.holds[at];
            let demand: Demand = hold.demand?;
            let lock = self.table.entries[hold.entry].lock();
            Some(DemandInSight { lock, session, mode: hold.mode, keep: demand.keep(), is_sent: !demand.is_due(), since: hold.since })
        };
        demanded.filter_map(row).take(max).collect()
    }
}
