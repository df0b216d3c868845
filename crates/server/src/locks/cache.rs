//! Cache locks: which one comes with an answer.
//!
//! Decides: whether the data of an answer may be cached, and how. Place in the walk: asked once for each object in an answer, at the
//! instant at which the data are read. Implements `wire-spec.md` section 11.4.
//! Invariant: nobody waits for a cache lock: if none can be granted at once the data come without one, which is always right, for the
//! server's state is current.
//! Leaves to others: asking locks back for mutations (`mutation`).

use super::LockTable;
use super::table::LockAccess;
use crate::ids::LockSlot;
use cistern_link::Instant;
use cistern_wire::{CacheGrant, Keep, LockClass, LockId, Mode, ObjectId, Want};

impl LockTable {
    /// The cache lock that comes with an object's data to a session that would like `want`; less than that, or none, if others are in
    /// the way. Every grant has a new generation, also when the session holds the lock already.
    ///
    /// None when a mutation waits or executes, when another session holds it exclusively (which is then asked to keep a shared one,
    /// so that the next reader may cache), when the object is demanded all the time, when the session is not in good standing or
    /// is long, and when a bound is reached.
    pub(crate) fn cache_grant(&mut self, now: Instant, slot: LockSlot, object: ObjectId, want: Want) -> CacheGrant {
        let Some(mode) = want.mode() else { return CacheGrant::NONE };
        //= wire-spec.md#11-7-restart-and-recovery
        //# A long session MUST NOT be given a cache lock.
        let Some(session) = self.table.good(slot).filter(|slot| self.table.sessions[*slot].caches) else { return CacheGrant::NONE };
        let lock = LockId { object, class: LockClass::Cache };
        let entry = self.table.entry(lock);
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
                    self.demand(now, at, Keep::Shared);
                }
                return CacheGrant::NONE;
            }
        }
        //= wire-spec.md#11-4-locks
        //# An object whose cache locks are demanded more often than used SHOULD be given none for a while.
        // What is being asked back is not granted anew.
        if own.is_some_and(|at| self.table.holds[at].demand.is_some()) || self.is_hot(now, object) {
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
                let entry = self.table.entry_or_new(lock);
                self.table.add_hold(now, entry, session, mode, generation, 1);
            }
        }
        let mode = if mode == Mode::Exclusive { Want::Exclusive } else { Want::Shared };
        CacheGrant { mode, generation }
    }
}
