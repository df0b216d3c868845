//! Whose sessions hold and ask: what one owner may have of the table, and whether it is given cache locks.
//!
//! Decides the shares of locks, waiters and demands, and what follows when a session keeps what it was asked for: its owner gets no cache
//! locks for a time that doubles each time and is halved by a quiet time as long. It reads and changes as before, and holds advisory locks.
//! Invariants: an owner that had to be struck is remembered when its sessions are gone, the last 4,096 of them; whom a demand names is known as
//! long as that demand stands.

use super::LockTable;
use crate::config::LockLimits;
use crate::ids::{LockSlot, Owner};
use crate::share::{Owners, RETRY_MS, Shared, used_up};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Limit, Limited, LockClass, Whose};
use core::time::Duration;

/// Locks that every owner may have.
const LOCKS_RESERVE: usize = 256;
/// Lock requests that wait, of all, and of every owner.
const WAITERS_MAX: usize = 65_536;
const WAITERS_RESERVE: usize = 16;
/// Demands not complied with that every owner may have asked for.
const DEMANDS_RESERVE: usize = 64;
/// At the first strike an owner gets no cache locks for so many times what one failure costs others: they wait for it a thirtieth of the time.
const FIRST_TIMES: u32 = 32;
/// Most strikes that count.
const STRIKES_MAX: u32 = 16;
/// Longest time without cache locks.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Owners without sessions that are remembered for their strikes; the oldest is forgotten.
const REMEMBERED_MAX: usize = 4_096;

/// What is kept of an owner.
#[derive(Debug)]
pub(super) struct Standings {
    /// Locks that its sessions hold, live or not.
    pub(super) held: u32,
    /// Lock requests of its sessions that wait.
    pub(super) waits: u32,
    /// Demands that its requests have caused, sent and not complied with.
    pub(super) asked: u32,
    strikes: Strikes,
    /// Whether it is among those that are remembered.
    remembered: bool,
}

/// How often an owner has kept cache locks that it was asked for, but for what a quiet time has taken away.
#[derive(Clone, Copy, Debug)]
struct Strikes {
    count: u32,
    /// It gets no cache locks until then, and loses a strike after each further span.
    until: Instant,
    span: Duration,
}

/// An owner is given no cache locks, because it kept some that it was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Struck {
    /// For how long yet; zero: it is given some again.
    pub left: Duration,
    /// How many times that counts: the next one lasts twice as long as the last, and a quiet time as long takes one away.
    pub strikes: u32,
}

impl Standings {
    /// Nothing is known against it.
    const fn new() -> Self {
        let strikes = Strikes { count: 0, until: Instant::new(0, 0), span: Duration::ZERO };
        Self { held: 0, waits: 0, asked: 0, strikes, remembered: false }
    }
}

impl Strikes {
    /// For how long its owner gets no cache locks yet.
    const fn left(self, now: Instant) -> Duration {
        if self.count == 0 { Duration::ZERO } else { now.until_waited(self.until) }
    }

    /// What quiet times have left of them.
    fn forgiven(mut self, now: Instant) -> Self {
        while self.count > 0 && now.waited(self.until.plus(self.span)) {
            self.count -= 1;
            self.until = self.until.plus(self.span);
            self.span /= 2;
        }
        self
    }

    fn shown(self, now: Instant) -> Struck {
        let strikes = self.forgiven(now);
        Struck { left: strikes.left(now), strikes: strikes.count }
    }
}

/// The owners of the lock table's sessions.
#[derive(Debug, Default)]
pub(super) struct LockOwners {
    pub(super) all: Owners<Standings>,
    /// Those that are remembered when they have no sessions, each once; the first to have left stands first.
    remembered: VecDeque<u32>,
}

impl LockOwners {
    pub(super) fn join(&mut self, owner: Owner) -> u32 {
        self.all.join(owner, Standings::new)
    }

    /// Whether one more demand may be on its way on account of an owner.
    pub(super) fn may_ask(&self, owner: u32, outstanding: usize, limits: &LockLimits) -> bool {
        let shared = Shared { capacity: limits.demands_outstanding, reserve: DEMANDS_RESERVE };
        shared.admits_by(outstanding, 1, || self.asked(owner) as usize)
    }

    /// How many demands are on their way on account of an owner.
    pub(super) fn asked(&self, owner: u32) -> u32 {
        self.all.get(owner).map_or(0, |owner| owner.asked)
    }

    /// How many are remembered.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.remembered.len()
    }

    /// A session of an owner is forgotten, or a demand on its account settled.
    pub(super) fn leave(&mut self, at: u32) {
        if !self.all.leave(at) {
            return;
        }
        let owner = &mut self.all[at];
        if owner.remembered {
            return;
        }
        if owner.strikes.count == 0 || bugs::is(Bug::B2) {
            return self.all.remove(at);
        }
        owner.remembered = true;
        self.remembered.push_back(at);
        if self.remembered.len() > REMEMBERED_MAX
            && let Some(oldest) = self.remembered.pop_front()
        {
            self.all[oldest].remembered = false;
            self.all.remove(oldest);
        }
    }
}

impl LockTable {
    /// What is kept of the owner of a session.
    pub(super) fn owner_mut(&mut self, session: u32) -> &mut Standings {
        &mut self.owners.all[self.table.sessions[session].owner]
    }

    fn owner(&self, session: u32) -> &Standings {
        &self.owners.all[self.table.sessions[session].owner]
    }

    /// Whether the owner of a session may have one lock more.
    pub(super) fn share_has_room(&self, session: u32) -> bool {
        let (shared, all) = self.shared();
        shared.admits_by(all, 1, || self.owner(session).held as usize)
    }

    /// Why a session may not have one lock more.
    pub(super) fn locks_limit(&self, session: u32) -> Limited {
        let (held, bound) = (self.table.sessions[session].held as usize, self.limits.locks_per_session);
        if held >= bound {
            return used_up(Limit::Locks, Whose::Session, held, bound);
        }
        let (shared, all) = self.shared();
        shared.limited(Limit::Locks, all, self.owner(session).held as usize, 1)
    }

    /// The table of locks, and how much of it is used.
    pub(crate) const fn shared(&self) -> (Shared, usize) {
        (Shared { capacity: self.limits.locks_max, reserve: LOCKS_RESERVE }, self.table.holds.len())
    }

    /// The places of lock requests that wait, and how many are taken.
    pub(crate) const fn shared_waits(&self) -> (Shared, usize) {
        (Shared { capacity: WAITERS_MAX, reserve: WAITERS_RESERVE }, self.waiting)
    }

    /// Why a session may not wait for a lock with one request more; `None`: it may. Whoever waits already is served in time.
    pub(super) fn waiters_limit(&self, session: u32, entry: u32) -> Option<Limited> {
        let (here, own) = (self.waiters(entry).count(), self.table.sessions[session].waits as usize);
        let LockLimits { waiters_per_object, waiters_per_session, .. } = self.limits;
        let (shared, waiting) = self.shared_waits();
        let of_all = || self.owner(session).waits as usize;
        let limited = if here >= waiters_per_object {
            used_up(Limit::Waiters, Whose::Object, here, waiters_per_object)
        } else if own >= waiters_per_session {
            used_up(Limit::Waiters, Whose::Session, own, waiters_per_session)
        } else if !shared.admits_by(waiting, 1, of_all) {
            shared.limited(Limit::Waiters, waiting, of_all(), 1)
        } else {
            return None;
        };
        Some(Limited { retry_ms: RETRY_MS, ..limited })
    }

    /// A session has kept a cache lock that it was asked for, or did not receipt the demand, for which others wait as long as `cost`: its owner
    /// gets none for twice as long as the last time, and nobody gets that of these objects for a while.
    pub(crate) fn strike(&mut self, now: Instant, slot: LockSlot, cost: Duration) {
        let Some(session) = self.table.session(slot) else { return };
        let strikes = &mut self.owners.all[self.table.sessions[session].owner].strikes;
        *strikes = strikes.forgiven(now);
        // What its other sessions keep meanwhile is the same failure: a partition of a host with many of them is one.
        if strikes.count == 0 || now.waited(strikes.until) {
            strikes.count = (strikes.count + 1).min(STRIKES_MAX);
            strikes.span = cost.saturating_mul(FIRST_TIMES << (strikes.count - 1)).min(LONGEST);
            strikes.until = now.plus(strikes.span);
        }
        let kept = self.table.demanded_of(session).map(|at| self.table.entries[self.table.holds[at].entry].lock());
        let kept = kept.filter(|lock| lock.class == LockClass::Cache);
        let objects: Vec<_> = kept.take(super::ASKED_FOR_ROOM).map(|lock| lock.object).collect();
        objects.into_iter().for_each(|object| self.cool(now, object, cost * 2));
    }

    /// Whether the owner of a session is given no cache locks now.
    pub(super) fn is_struck(&mut self, now: Instant, session: u32) -> bool {
        let Some(owner) = self.owners.all.get_mut(self.table.sessions[session].owner) else { return false };
        owner.strikes = owner.strikes.forgiven(now);
        !owner.strikes.left(now).is_zero()
    }

    /// Whether an owner is given no cache locks, with sessions or without.
    pub(crate) fn struck(&self, now: Instant, owner: Owner) -> Struck {
        let kept = self.owners.all.find(owner).and_then(|(at, _)| self.owners.all.get(at));
        kept.map_or_else(Struck::default, |owner| owner.strikes.shown(now))
    }

    /// The same of the owner of a session.
    pub(crate) fn session_struck(&self, now: Instant, slot: LockSlot) -> Struck {
        self.table.session(slot).map_or_else(Struck::default, |session| self.owner(session).strikes.shown(now))
    }
}
