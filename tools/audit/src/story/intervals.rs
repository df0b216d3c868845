//! Stretches of time, for pictures: leases, refusals, holds.
//!
//! Decides how renewals that follow each other are joined into one stretch. Place in the walk: under `story`, only when asked for.
//! Invariant: stretches of one kind and session do not overlap; there are at most so many.
//! Leaves to others: drawing.

use super::session::Mark;
use crate::event::{HostId, Interval, IntervalKind, Renewal};
use cistern_wire::{LockClass, LockId, ObjectId, SessionId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most stretches kept; the oldest that have ended go first.
const KEPT_MAX: usize = 200_000;

/// Most stretches that go on, of each kind; what begins beyond them is left out.
const OPEN_MAX: usize = 200_000;

/// All stretches.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    done: Vec<Interval>,
    leases: BTreeMap<(SessionId, bool), Interval>,
    refusals: BTreeMap<SessionId, Interval>,
    holds: BTreeMap<(SessionId, LockId), Interval>,
    /// Stretches that were left out since the last look.
    left_out: u64,
}

impl Intervals {
    pub(super) fn all(&self) -> Vec<Interval> {
        let open = self.leases.values().chain(self.refusals.values()).chain(self.holds.values());
        let mut all: Vec<Interval> = self.done.iter().chain(open).copied().collect();
        all.sort_by_key(|interval| (interval.from, interval.begun_by));
        all
    }

    /// A lease is renewed by the answer in this frame.
    pub(super) fn renewed(&mut self, session: SessionId, host: HostId, frame: u64, renewal: &Renewal) {
        let spans = [
            (false, IntervalKind::Lease, renewal.from_latest, renewal.certain_until),
            (true, IntervalKind::PossibleLease, renewal.from_earliest, renewal.possible_until),
        ];
        for (possible, kind, from, until) in spans {
            let fresh = Interval { kind, session, host, from, until: Some(until), begun_by: frame, ended_by: None };
            if self.leases.len() >= OPEN_MAX && !self.leases.contains_key(&(session, possible)) {
                self.left_out += 1;
                continue;
            }
            let known = self.leases.entry((session, possible)).or_insert(fresh);
            if known.until.is_some_and(|end| end < from) {
                self.done.push(std::mem::replace(known, fresh));
            } else {
                known.until = known.until.max(Some(until));
            }
        }
    }

    /// A session is refused for the first time.
    pub(super) fn refused(&mut self, session: SessionId, host: HostId, mark: Mark, until: Option<Duration>) {
        let kind = IntervalKind::TimingOut;
        let fresh = Interval { kind, session, host, from: mark.at, until, begun_by: mark.frame, ended_by: None };
        if self.refusals.len() >= OPEN_MAX {
            self.left_out += 1;
            return;
        }
        self.refusals.entry(session).or_insert(fresh);
    }

    pub(super) fn hold_begins(&mut self, kind: IntervalKind, session: SessionId, host: HostId, from: Duration, frame: u64) {
        let IntervalKind::Hold { lock, .. } = kind else { return };
        let fresh = Interval { kind, session, host, from, until: None, begun_by: frame, ended_by: None };
        if self.holds.len() >= OPEN_MAX && !self.holds.contains_key(&(session, lock)) {
            self.left_out += 1;
            return;
        }
        if let Some(before) = self.holds.insert((session, lock), fresh) {
            self.done.push(Interval { until: Some(from), ended_by: Some(frame), ..before });
        }
    }

    pub(super) fn hold_ends(&mut self, session: SessionId, lock: LockId, mark: Mark) {
        if let Some(hold) = self.holds.remove(&(session, lock)) {
            self.done.push(Interval { until: Some(mark.at), ended_by: Some(mark.frame), ..hold });
        }
    }

    /// The session is given up, or its end was told: nothing of it goes on.
    pub(super) fn session_ends(&mut self, session: SessionId, mark: Mark) {
        let end = |interval: Interval| Interval { until: Some(mark.at), ended_by: Some(mark.frame), ..interval };
        for possible in [false, true] {
            if let Some(lease) = self.leases.remove(&(session, possible)) {
                self.done.push(Interval { until: lease.until.map(|until| until.min(mark.at)), ended_by: Some(mark.frame), ..lease });
            }
        }
        self.done.extend(self.refusals.remove(&session).map(end));
        for key in self.held_by(session) {
            self.done.extend(self.holds.remove(&key).map(end));
        }
    }

    fn held_by(&self, session: SessionId) -> Vec<(SessionId, LockId)> {
        // No object has the number 0.
        let first = LockId { object: ObjectId(0), class: LockClass::Advisory };
        self.holds.range((session, first)..).map(|(key, _)| *key).take_while(|(of, _)| *of == session).collect()
    }

    /// A session is forgotten: what goes on of it stays as it was seen last.
    pub(super) fn forget(&mut self, session: SessionId) {
        for possible in [false, true] {
            self.done.extend(self.leases.remove(&(session, possible)));
        }
        self.done.extend(self.refusals.remove(&session));
        for key in self.held_by(session) {
            self.done.extend(self.holds.remove(&key));
        }
    }

    /// Keeps the newest that have ended; gives how many were dropped or left out since the last time.
    pub(super) fn trim(&mut self) -> u64 {
        let beyond = self.done.len().saturating_sub(KEPT_MAX);
        self.done.drain(..beyond);
        std::mem::take(&mut self.left_out) + beyond as u64
    }
}
