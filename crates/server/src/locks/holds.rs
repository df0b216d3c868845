//! What a session holds: cache locks that come with answers, what it gives back, what it holds again after a restart.
//!
//! Implements `wire-spec.md` sections 11.4 and 11.7. Invariants: nobody waits for a cache lock: if none can be granted at once the data come
//! without one, which is always right, for the server's state is current. A release acts on the generation that it names and on no other;
//! repeated, it is answered alike. What is restored keeps its generation and its run, and every later grant is larger.
//! Leaves to others: asking locks back for mutations (`mutation`), who gets a lock next (`advisory`, `mutation`), who may reclaim.

use super::LockTable;
use super::table::{Hold, LockAccess};
use crate::ids::{Located, LockSlot, SessionKey};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use cistern_link::index::hash;
use cistern_wire::{
    CacheGrant, Generation, Keep, LockClass, LockId, Mode, ObjectId, Realm, ReclaimItem, ReleaseItem, ReleasedItem, Status, Want,
};

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
    /// The cache lock that comes with an object's data to a session that would like `want`; less than that, or none, if others are in
    /// the way. Every grant has a new generation, also when the session holds the lock already.
    ///
    /// None when a mutation waits or executes, when another session holds it exclusively (which is then asked to keep a shared one,
    /// so that the next reader may cache), when the object is demanded all the time, when the session is not in good standing or
    /// is long, and when a bound is reached.
    #[inline]
    pub(crate) fn cache_grant(&mut self, now: Instant, slot: LockSlot, of: Located, want: Want) -> CacheGrant {
        want.mode().map_or(CacheGrant::NONE, |mode| self.grant_cache_lock(now, slot, of, mode))
    }

    fn grant_cache_lock(&mut self, now: Instant, slot: LockSlot, of: Located, mode: Mode) -> CacheGrant {
        //= wire-spec.md#11-7-restart-and-recovery
        //# A long session MUST NOT be given a cache lock.
        let Some(session) = self.table.good(slot).filter(|slot| self.table.sessions[*slot].caches) else { return CacheGrant::NONE };
        let entry = self.table.entry(LockId { object: of.object, class: LockClass::Cache });
        let (mut own, mut other) = (None, None);
        if let Some(entry) = entry {
            //= wire-spec.md#11-4-locks
            //# Once a mutation waits for an object, the server MUST NOT grant a shared lock on it before.
            if self.has_waiters(entry) {
                return CacheGrant::NONE;
            }
            own = self.table.hold_of(entry, session);
            other = self.table.other(entry, session);
            //= wire-spec.md#11-4-locks
            //# A read MUST NOT wait for a cache lock.
            if let Some(at) = other.filter(|at| self.table.holds[*at].mode == Mode::Exclusive) {
                if self.table.sessions[self.table.holds[at].session].access == LockAccess::Active {
                    self.demand(now, session, at, Keep::Shared);
                }
                return CacheGrant::NONE;
            }
        }
        //= wire-spec.md#11-4-locks
        //# An object whose cache locks are demanded more often than used SHOULD be given none for a while.
        // What is being asked back is not granted anew.
        if own.is_some_and(|at| self.table.holds[at].demand.is_some()) || self.is_hot(now, of.object) || self.is_struck(now, session) {
            return CacheGrant::NONE;
        }
        let mode = match own.map(|at| self.table.holds[at].mode) {
            Some(Mode::Exclusive) => Mode::Exclusive,
            _ if other.is_some() => Mode::Shared,
            _ => mode,
        };
        //= wire-spec.md#8-2-limits-of-a-server
        //# A bound MUST be met by a refusal or a demand, never by forgetting a lock, a session or a reply that is still owed.
        if own.is_none() && !self.has_room(session) {
            return CacheGrant::NONE;
        }
        let Some(generation) = self.tokens.take(1) else { return CacheGrant::NONE };
        match own {
            Some(at) => self.grant_again(now, at, mode, generation, 1),
            None => {
                let entry = self.table.entry_of(of, LockClass::Cache);
                self.add_hold(now, entry, session, mode, generation, 1);
            }
        }
        let mode = if mode == Mode::Exclusive { Want::Exclusive } else { Want::Shared };
        CacheGrant { mode, generation }
    }

    /// A session gives a lock back, or keeps a shared one of it.
    pub(crate) fn release(&mut self, now: Instant, slot: LockSlot, item: ReleaseItem) -> ReleasedItem {
        let ReleaseItem { lock, generation, keep } = item;
        let nothing = ReleasedItem { lock, generation, keep: Keep::Nothing, now: Generation(0) };
        let Some(at) = self.find(slot, lock) else { return nothing };
        let hold = &self.table.holds[at];
        //= wire-spec.md#11-4-locks
        //# A release MUST act on no other generation than the one it names.
        if hold.generation != generation && !bugs::is(Bug::M19) {
            //= wire-spec.md#11-4-locks
            //# A repeated release MUST be answered as the first was.
            let repeated = hold.downgraded && hold.before == generation && keep == Keep::Shared;
            return if repeated { ReleasedItem { keep, now: hold.generation, ..nothing } } else { nothing };
        }
        if keep == Keep::Nothing {
            self.free(now, at);
            return nothing;
        }
        let run = if lock.class == LockClass::Advisory { self.limits.run.max(1) } else { 1 };
        let Some(kept) = self.tokens.take_reserved(run) else {
            // Only with a store that has been stuck for ages. The lock stands as it was, the agent believes that it has none.
            return nothing;
        };
        self.grant_again(now, at, Mode::Shared, kept, run);
        let hold = &mut self.table.holds[at];
        hold.downgraded = true;
        hold.before = generation;
        let entry = hold.entry;
        match lock.class {
            LockClass::Cache => self.demand_for_mutations(now, at),
            LockClass::Advisory => {
                self.grant_waiters(now, entry);
                self.demand_for_waiters(now, at);
            }
        }
        ReleasedItem { keep, now: kept, ..nothing }
    }

    /// The agent said NOT_HELD to a demand for `up_to`: it has no generation up to that, and will install none (section 11.4).
    pub(crate) fn on_not_held(&mut self, now: Instant, slot: LockSlot, lock: LockId, up_to: Generation) {
        if let Some(at) = self.find(slot, lock).filter(|at| self.table.holds[*at].generation <= up_to) {
            self.free(now, at);
        }
    }

    /// Adds a hold.
    pub(super) fn add_hold(&mut self, now: Instant, entry: u32, session: u32, mode: Mode, generation: Generation, run: u32) -> u32 {
        self.owner_mut(session).held += 1;
        self.table.add_hold(now, entry, session, mode, generation, run)
    }

    /// Takes a hold away, and lets come whoever waited for that.
    pub(super) fn free(&mut self, now: Instant, at: u32) {
        self.forget_request(at);
        let Hold { entry, session, demand, .. } = self.table.remove_hold(at);
        self.owner_mut(session).held -= 1;
        if let Some(demand) = demand {
            self.demand_settled(at, entry, session, demand);
        }
        match self.table.entries[entry].class {
            LockClass::Cache => self.retry_mutations(entry),
            LockClass::Advisory => self.grant_waiters(now, entry),
        }
    }

    /// Gives a hold a new generation: what was demanded of the old one is settled (section 11.4).
    pub(super) fn grant_again(&mut self, now: Instant, at: u32, mode: Mode, generation: Generation, run: u32) {
        self.forget_request(at);
        let hold = &mut self.table.holds[at];
        let (entry, session, demand) = (hold.entry, hold.session, hold.demand.take());
        if hold.downgraded {
            // It was held in this mode since the downgrade.
            hold.before = hold.generation;
            hold.downgraded = false;
        }
        hold.generation = generation;
        hold.mode = mode;
        hold.run = run;
        hold.since = now;
        if let Some(demand) = demand {
            self.demand_settled(at, entry, session, demand);
            self.table.move_in_session(at, false);
        }
    }

    /// The request that a grant answered can no longer be cancelled as this grant.
    fn forget_request(&mut self, at: u32) {
        let hold = &mut self.table.holds[at];
        let nonce = core::mem::take(&mut hold.nonce);
        if nonce != 0 {
            self.granted.remove(hash(hold.session.into(), nonce), at);
        }
    }

    /// Gives a session a lock of an object in `realm` under the generation and with the run that an earlier start of the server granted.
    /// Repeated, it is answered alike.
    pub(crate) fn restore(&mut self, now: Instant, slot: LockSlot, item: &ReclaimItem, realm: Realm) -> Restored {
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
            let others: Vec<SessionKey> = others.map(|at| self.table.sessions[self.table.holds[at].session].key()).collect();
            if !others.is_empty() {
                return Restored::Conflict(others);
            }
        }
        if !self.is_within_bounds(slot) {
            return Restored::Refused(Status::BUSY);
        }
        let entry = self.table.entry_of(Located { object: lock.object, realm }, lock.class);
        let at = self.add_hold(now, entry, slot, mode, generation, run);
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
