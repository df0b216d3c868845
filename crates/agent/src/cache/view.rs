//! The cache seen together with the locks and the lease: the only way in which operations touch it.
//!
//! Decides: that nothing is read from cache without a usable lease and the lock it was installed under, and nothing is installed
//! before the locks have said that the grant counts (R65, R79).
//! Place in the walk: made anew for each command and each answer, so everything read through one view is of one instant (R77).
//! Implements `wire-spec.md` section 11.5. Invariant: a view lives within one call of the agent, in which no demand can come.
//! Leaves to others: what is kept (`cache/mod.rs`), what a grant is worth (`locks`).

use super::{Body, Cache, Cached, Hold};
use crate::locks::Locks;
use cistern_wire::{Attr, CacheGrant, Effect, Generation, ObjectId};

/// Cache and locks at one instant.
#[derive(Debug)]
pub(crate) struct View<'a> {
    /// What is known.
    pub(crate) cache: &'a mut Cache,
    /// What is held.
    pub(crate) locks: &'a mut Locks,
    /// Whether the lease lets anything be answered from cache at this instant, and the operation wants it.
    pub(crate) open: bool,
    /// Whether answers may be taken in: not what was executed in a session that has failed (R4, R8).
    pub(crate) taking: bool,
}

impl View<'_> {
    /// The state of an object, if it may be answered from now.
    pub(crate) fn get(&mut self, object: ObjectId) -> Option<&Cached> {
        if !self.open {
            return None;
        }
        self.cache.get(object, self.locks.cache_generation(object))
    }

    /// Whether an object is still as it was when this version of it was read from cache, and may still be answered from (R77).
    ///
    /// The version stands for the generation here: a lock that went away and came back over an object that did not change does no
    /// harm, a re-grant under which the agent itself changed the object does.
    pub(crate) fn unchanged(&mut self, object: ObjectId, version: u64) -> bool {
        self.get(object).is_some_and(|cached| cached.attr.version == version)
    }

    /// Takes in attributes from an answer, if a lock makes them current: the grant that came with them, or the lock `covered` that
    /// was held when the request was made and still is. Returns whether a body of this version may be added.
    pub(crate) fn install(&mut self, attr: &Attr, grant: CacheGrant, covered: Option<Generation>) -> bool {
        self.hold(attr.object, grant, covered).is_some_and(|hold| self.cache.install(attr, hold))
    }

    /// Takes in what a mutation of the agent's own did to one object, if a lock makes that current.
    pub(crate) fn update(&mut self, effect: &Effect, covered: Option<Generation>, change: impl FnOnce(&mut Body)) {
        let object = effect.attr.object;
        match self.hold(object, effect.grant, covered) {
            // Nobody can name it any more; a lock on it is of no use.
            _ if effect.attr.nlink == 0 => {
                let held = self.locks.cache_generation(object).is_some();
                self.cache.gone(object, effect.attr.version, held);
            }
            Some(hold) => self.cache.update(effect.before, &effect.attr, hold, change),
            None => self.cache.outdated(object, effect.attr.version),
        }
    }

    /// The lock under which an answer about an object counts. Late answers count under no lock: their grant was disowned, or a newer
    /// one is held; an answer without a grant counts only if the lock was there all the time.
    fn hold(&mut self, object: ObjectId, grant: CacheGrant, covered: Option<Generation>) -> Option<Hold> {
        if !self.taking {
            return None;
        }
        let before = self.locks.cache_generation(object);
        if grant.generation == Generation(0) {
            return before.filter(|_| before == covered).map(|now| Hold { before, now });
        }
        if before.is_none() && self.cache.is_full() {
            // Room is made before the grant comes: the table of locks has the same bound.
            let unneeded = self.cache.release_candidates(1);
            self.locks.give_back_cache(unneeded);
        }
        if before == Some(grant.generation) {
            // Told again of the grant that is held.
            return Some(Hold { before, now: grant.generation });
        }
        //= wire-spec.md#11-5-caching-and-metadata
        //# The agent MUST NOT cache data under a generation that it does not hold.
        if !self.locks.install_cache(object, grant) {
            return None;
        }
        let now = self.locks.cache_generation(object).filter(|now| *now == grant.generation)?;
        Some(Hold { before, now })
    }
}
