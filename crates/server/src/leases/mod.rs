//! Named leases: which there are, and until when each lasts.
//!
//! Decides when the time of one is over: not before its wait has passed by both clocks. Each has a timer, because somebody asked for it; nothing
//! that a session's lease rests on is here. The times are in memory alone: while grace lasts none runs, and then each has its whole time again.
//! Invariant: a lease is in the table from the batch that makes it to the batch that ends it.
//! Leaves to others: what goes with a lease (`presence`), what its end does (the machine).

use crate::ids::PrincipalId;
use crate::share::{RETRY_MS, Shared, used_up};
use crate::store::LeaseRecord;
use alloc::collections::BTreeMap;
use cistern_link::Instant;
use cistern_link::timers::{Question, TimerQueue};
use cistern_wire::{Limit, Limited, ObjectId, Whose};
use core::ops::Bound::{Excluded, Unbounded};
use core::time::Duration;

/// Named leases that every principal may make.
const RESERVE: usize = 64;

/// All named leases.
#[derive(Debug, Default)]
pub(crate) struct NamedLeases {
    rows: BTreeMap<ObjectId, LeaseRecord>,
    timers: TimerQueue<ObjectId>,
    /// How many each principal has made; without those that need no key.
    by_creator: BTreeMap<PrincipalId, usize>,
}

impl NamedLeases {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The record of one that has not ended.
    pub(crate) fn get(&self, lease: ObjectId) -> Option<&LeaseRecord> {
        self.rows.get(&lease)
    }

    /// Those after one, by number.
    pub(crate) fn after(&self, lease: ObjectId) -> impl Iterator<Item = ObjectId> {
        self.rows.range((Excluded(lease), Unbounded)).map(|row| *row.0)
    }

    /// Why a principal may not make so many more; `None`: it may.
    pub(crate) fn limit(&self, who: PrincipalId, more: usize, leases_max: usize) -> Option<Limited> {
        let (all, own) = (self.rows.len(), self.by_creator.get(&who).copied().unwrap_or(0));
        if all + more > leases_max {
            return Some(Limited { retry_ms: RETRY_MS, ..used_up(Limit::Leases, Whose::Server, all, leases_max) });
        }
        let shared = Shared { capacity: leases_max, reserve: RESERVE };
        let refused = who != PrincipalId::ANYBODY && !shared.admits(all, own, more);
        refused.then(|| Limited { whose: Whose::Principal, ..shared.limited(Limit::Leases, all, own, more) })
    }

    /// One is there; its time does not run yet.
    pub(crate) fn add(&mut self, lease: ObjectId, record: LeaseRecord) {
        if record.creator != PrincipalId::ANYBODY {
            *self.by_creator.entry(record.creator).or_default() += 1;
        }
        self.rows.insert(lease, record);
    }

    /// The time of one runs until `end`, which takes the place of what it had.
    pub(crate) fn run_until(&mut self, lease: ObjectId, end: Instant) {
        self.timers.set(lease, end, Question::Waited);
    }

    /// What is left of the time of one; `None`: it does not run yet.
    pub(crate) fn left(&self, lease: ObjectId, now: Instant) -> Option<Duration> {
        self.timers.get(lease).map(|end| now.until_waited(end))
    }

    /// One whose time is over; call it until it gives `None`, and end each.
    pub(crate) fn due(&mut self, now: Instant) -> Option<ObjectId> {
        self.timers.due(now)
    }

    /// How long none becomes due.
    pub(crate) fn wake_after(&self, now: Instant) -> Option<Duration> {
        self.timers.wake_after(now).map(|next| next.0)
    }

    /// One ends. False: there is none.
    pub(crate) fn end(&mut self, lease: ObjectId) -> bool {
        self.timers.cancel(lease);
        let Some(record) = self.rows.remove(&lease) else { return false };
        if let Some(own) = self.by_creator.get_mut(&record.creator) {
            *own -= 1;
            if *own == 0 {
                self.by_creator.remove(&record.creator);
            }
        }
        true
    }
}
