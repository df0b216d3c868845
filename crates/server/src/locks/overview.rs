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
/// Most sessions that are looked at for demands of locks that nobody waits for.
const SESSIONS_LOOKED_AT: u32 = 1_024;
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

    /// The sessions that wait for advisory locks, by at most `requests` of their requests.
    pub(crate) fn who_wait(&self, requests: usize) -> impl Iterator<Item = SessionKey> {
        self.waits.keys().take(requests).map(|(session, _)| self.table.sessions[*session].key())
    }

    /// Locks of both classes that sessions are to give back, at most `max`: those first that a request or a change waits for.
    pub(crate) fn demands_in_sight(&self, max: usize) -> Vec<DemandInSight> {
        let changed = self.mutations.values().flat_map(|mutation| mutation.entries().iter().copied());
        let waited_for = self.waits.values().copied().take(WAITS_LOOKED_AT).chain(changed.take(WAITS_LOOKED_AT));
        let of_waits = waited_for.flat_map(|entry| self.table.holds_of(entry).take(OF_ONE_MAX));
        let sessions = (0..self.table.sessions.places().min(SESSIONS_LOOKED_AT)).filter(|at| self.table.sessions.get(*at).is_some());
        let of_sessions = sessions.flat_map(|at| self.table.demanded_of(at));
        let mut chosen = BTreeSet::new();
        let row = |at: u32| {
            let hold = &self.table.holds[at];
            let session = &self.table.sessions[hold.session];
            let is_live = matches!(session.access, LockAccess::Active | LockAccess::Suspended);
            let demand: Demand = hold.demand.filter(|_| is_live && chosen.insert(at))?;
            let (lock, since) = (self.table.entries[hold.entry].lock(), hold.since);
            Some(DemandInSight { lock, session: session.key(), mode: hold.mode, keep: demand.keep(), is_sent: !demand.is_due(), since })
        };
        of_waits.chain(of_sessions).filter_map(row).take(max).collect()
    }
}
