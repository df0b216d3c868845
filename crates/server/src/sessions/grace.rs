//! Grace: the time after a start in which the sessions of before may take their locks back, and nobody else gets any.
//!
//! Decides how long it lasts: at least the largest lease that was promised, or the configured T where the store may not know of every lock;
//! less only when every session of before is accounted for; more, up to a bound, while reclaims go on.
//! Implements `wire-spec.md` section 11.7. Invariant: as long as there is a `Grace`, nothing is granted but what is reclaimed; it goes
//! away only when its end is durable.
//! Leaves to others: the sessions of before (`Standing::Recorded`), ending those who did not come back, and reclaims (`server::recovery`).

use crate::config::{Config, LEASE_MAX, micros_up};
use crate::ids::SessionKey;
use crate::store::SessionRecord;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{LockClass, LockId, ObjectId, SessionId};
use core::fmt;
use core::time::Duration;

/// Grace is extended to at most so many times its least length.
const LONGEST: u32 = 5;

/// How far the grace after a restart is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraceStatus {
    /// When it ends, in time from now, if nothing more is heard of anybody; zero: its end is on the way to the store.
    pub left: Duration,
    /// Sessions of before the restart that may still come back, or have to be waited for.
    pub awaited: usize,
    /// Those of them whose agents are back and reclaim.
    pub reclaiming: usize,
    /// Whether it lasts for its whole length because this store may not know of every lock: it is new, or was restored from a copy.
    pub blind: bool,
}

/// The grace that the server is in.
#[derive(Debug)]
pub(crate) struct Grace {
    pub(crate) started: Instant,
    /// How long it lasts at least, unless all are accounted for.
    wait: Duration,
    /// An earlier start gave longer leases than this one does, so that no wait that this one begins covers them.
    longer: bool,
    /// How long a claim without progress extends it.
    patience: Duration,
    /// Nobody can tell who held what: it lasts for its whole length.
    blind: bool,
    /// Sessions not accounted for, but for long ones.
    awaited: usize,
    /// T of each long session, and the objects of which it may hold advisory locks, ascending.
    records: BTreeMap<SessionId, (Duration, Vec<ObjectId>)>,
    /// Long sessions not accounted for, each with its T, shortest first.
    long: BTreeSet<(Duration, SessionId)>,
    /// How many of these may hold the advisory lock of an object.
    withheld: BTreeMap<ObjectId, u32>,
    /// Whether the common grace is over, and only long sessions are waited for.
    common_over: bool,
    /// Those from which somebody wants to reclaim, long ones included.
    claimed: BTreeSet<SessionId>,
    /// When the first agent could be answered.
    serving: Instant,
    /// When a claim or a reclaim was last heard of.
    progress: Instant,
    end: End,
}

/// How far its end is, or, after the common grace, that of the long sessions whose time is over.
#[derive(Debug)]
enum End {
    /// Its time is not over.
    Ahead,
    /// It is; these sessions are still to be ended, a slice in each turn.
    Closing(Vec<SessionKey>),
    /// All are, and the last of it is on the way to the store.
    Written,
}

impl Grace {
    /// A grace for `sessions`, from `started` on, where `stored` is the largest T by which leases of before have to be waited for;
    /// `blind`: it has to last for the configured T, whatever is known of sessions.
    pub(crate) fn new(started: Instant, config: &Config, stored: Duration, sessions: &[(SessionId, SessionRecord)], blind: bool) -> Self {
        let wait_of = |record: &SessionRecord| config.wait_for(Duration::from_micros(record.lease_us).min(LEASE_MAX));
        let common = sessions.iter().filter(|(_, record)| blind || record.locks.is_none() || bugs::is(Bug::T2));
        let longest = common.map(|(_, record)| wait_of(record)).max();
        //= wire-spec.md#11-7-restart-and-recovery
        //# Grace MUST last at least the largest T stored of a session that is not long, from when the store was held exclusively and no
        //# earlier process could send.
        //= wire-spec.md#11-1-lease
        //# The server MUST wait for each session by the largest τ that it gave it and has not got back.
        let stored = if bugs::is(Bug::T2) { stored } else { stored.max(longest.unwrap_or_default()) };
        let longer = micros_up(stored) > micros_up(config.wait());
        // Where nobody knows which sessions there were, any of them may have been long.
        let mut wait = if blind { stored.max(config.wait_for(config.longest_lease())) } else { stored };
        if bugs::is(Bug::M35) {
            wait /= 4;
        }
        let (mut long, mut withheld, mut awaited) = (BTreeSet::new(), BTreeMap::<ObjectId, u32>::new(), 0);
        let mut records = BTreeMap::new();
        for (id, record) in sessions {
            let Some(objects) = &record.locks else {
                awaited += 1;
                continue;
            };
            records.insert(*id, (wait_of(record), objects.clone()));
            if blind || bugs::is(Bug::T2) {
                awaited += 1;
            } else {
                long.insert((wait_of(record), *id));
                objects.iter().for_each(|object| *withheld.entry(*object).or_default() += 1);
            }
        }
        let (serving, progress) = (started, started);
        Self {
            started,
            wait,
            longer,
            patience: config.lease,
            blind,
            awaited,
            records,
            long,
            withheld,
            common_over: false,
            claimed: BTreeSet::new(),
            serving,
            progress,
            end: End::Ahead,
        }
    }

    /// Whether everybody waits, and not only whoever wants what a long session may hold.
    pub(crate) const fn is_common(&self) -> bool {
        !self.common_over
    }

    /// Whether a long session that is not accounted for may hold the advisory lock of an object.
    pub(crate) fn withholds(&self, object: ObjectId) -> bool {
        self.withheld.contains_key(&object)
    }

    /// How many objects are withheld for long sessions.
    pub(crate) fn withheld(&self) -> usize {
        self.withheld.len()
    }

    /// Whether a session of before may have held a lock: by its record, if that names what it may hold and is the newest; without one of
    /// which nothing is known, in the common grace.
    pub(crate) fn may_have_held(&self, id: SessionId, lock: LockId) -> bool {
        match self.objects(id) {
            Some(objects) if !self.blind => lock.class == LockClass::Advisory && objects.binary_search(&lock.object).is_ok(),
            _ => self.is_common(),
        }
    }

    /// The objects in the record of a long session of before; `None`: it is not long.
    pub(crate) fn objects(&self, id: SessionId) -> Option<&[ObjectId]> {
        self.records.get(&id).map(|record| record.1.as_slice())
    }

    /// The long sessions not accounted for whose T has passed.
    pub(crate) fn long_over(&self, now: Instant) -> impl Iterator<Item = SessionId> {
        let over = self.long.iter().take_while(move |(wait, _)| now.waited(self.started.plus(*wait)));
        over.map(|(_, id)| *id)
    }

    /// Whether a session is a long one not accounted for whose T has not passed.
    pub(crate) fn awaits(&self, now: Instant, id: SessionId) -> bool {
        let wait = self.records.get(&id).map(|record| record.0).filter(|wait| self.long.contains(&(*wait, id)));
        wait.is_some_and(|wait| !now.waited(self.started.plus(wait)))
    }

    /// Its time is over: nothing can be reclaimed any more from `lost`, who did not come back; they are ended in slices.
    pub(crate) fn close(&mut self, lost: Vec<SessionKey>) {
        self.end = End::Closing(lost);
    }

    /// Whether sessions are to be ended, or what comes after them is to be written, with the next turn.
    pub(crate) const fn is_closing(&self) -> bool {
        matches!(self.end, End::Closing(_))
    }

    /// The next session to be ended. `None`: all are, and what follows them is written now.
    pub(crate) fn next_lost(&mut self) -> Option<SessionKey> {
        let End::Closing(lost) = &mut self.end else { return None };
        let next = lost.pop();
        if next.is_none() {
            self.end = End::Written;
        }
        next
    }

    /// Its end, or that of those whose time was over, is durable. False: long sessions are still waited for.
    pub(crate) fn ended(&mut self) -> bool {
        (self.common_over, self.end) = (true, End::Ahead);
        self.long.is_empty()
    }

    /// An agent opens a session to reclaim from one of before.
    pub(crate) fn claim(&mut self, now: Instant, id: SessionId) {
        self.claimed.insert(id);
        self.progress = now;
    }

    /// From now on agents are answered. Those who have to reclaim get the time for it also where the start took long.
    pub(crate) const fn serving(&mut self, now: Instant) {
        (self.serving, self.progress) = (now, now);
    }

    /// Something was reclaimed, or somebody can begin to.
    pub(crate) const fn progressed(&mut self, now: Instant) {
        self.progress = now;
    }

    /// When it can be over, as things are; `None`: it is being ended.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if !matches!(self.end, End::Ahead) {
            return None;
        }
        if self.common_over {
            // Until the next long session has not come back in its time.
            let Some((wait, _)) = self.long.first() else { return Some(self.started) };
            let least = self.started.plus(*wait);
            return Some(if self.claimed.is_empty() { least } else { self.extended(*wait) });
        }
        //= wire-spec.md#11-7-restart-and-recovery
        //# Grace MAY end early once every session recorded as open has completed its reclaim or ended.
        //
        // Not if an agent that has not heard that its reclaim is complete may use its old lease for longer than T of this start.
        if self.awaited == 0 && !self.blind && !self.longer {
            return Some(self.started);
        }
        Some(if self.awaited == 0 { self.started.plus(self.wait) } else { self.extended(self.wait) })
    }

    /// When it can be over if it would last for `wait`, did nobody reclaim.
    fn extended(&self, wait: Duration) -> Instant {
        //= wire-spec.md#11-7-restart-and-recovery
        //# Grace SHOULD be extended, up to a bound, while reclaims go on.
        let progress = if self.claimed.is_empty() { self.serving } else { self.progress };
        self.started.plus(wait).max(progress.plus(self.patience).min(self.started.plus(wait * LONGEST)))
    }

    /// How long it lasts from now at least, as things are; `None`: it is being ended.
    pub(crate) fn rest(&self, now: Instant) -> Option<Duration> {
        self.deadline().map(|at| now.until_waited(at))
    }

    /// How far it is.
    pub(crate) fn status(&self, now: Instant) -> GraceStatus {
        let left = self.rest(now).unwrap_or_default();
        GraceStatus { left, awaited: self.awaited + self.long.len(), reclaiming: self.claimed.len(), blind: self.blind }
    }

    /// The end of a session of before is durable: nobody waits for it any more.
    pub(crate) fn accounted(&mut self, id: SessionId) {
        self.claimed.remove(&id);
        let record = self.records.get(&id);
        let Some((_, objects)) = record.filter(|record| self.long.remove(&(record.0, id))) else {
            self.awaited -= 1;
            return;
        };
        for object in objects {
            if let Entry::Occupied(mut count) = self.withheld.entry(*object) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }
}

impl fmt::Display for Grace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.blind {
            write!(f, "for {:?}: agents may hold locks that this store does not know of", self.wait)
        } else {
            write!(f, "for at most {:?}, or longer while reclaims go on", self.wait)
        }
    }
}
