//! The agent's locks as the protocol sees them: what it holds under which generation, and what it has disowned.
//!
//! Decides: which grants are installed. A grant is installed only if its generation is above everything that the agent has held,
//! given back or disowned of that lock in this session (R64, R65, R79). Implements `wire-spec.md` section 11.4, the agent's part.
//! Place in the walk: answers install cache grants through `install_cache`; demands and the bounds of the cache take them away;
//! advisory locks and their local holders are in `local`.
//! Invariant: what is not in these tables is not used, and every lock belongs to the session that is open (R57).
//! Leaves to others: cached data (`cache`), sending (`control`, `requests`), the lease.

use crate::local::Local;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use cistern_wire::{CacheGrant, Generation, Keep, LockClass, LockId, ObjectId, ReleaseItem};
use hashbrown::HashMap;

/// What is known of one cache lock that the agent holds.
#[derive(Clone, Copy, Debug)]
struct Hold {
    generation: Generation,
    exclusive: bool,
}

/// What a demand for a cache lock came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Complied {
    /// The lock goes back, or is kept only shared: the release is to be sent, the cached data to be dropped or kept.
    Release(ReleaseItem),
    /// What may be kept is what is held.
    Nothing,
    /// No generation up to the one named is held, nor will one ever be installed.
    NotHeld,
}

/// All locks of the agent in the session that is open.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    cache: HashMap<ObjectId, Hold>,
    exclusive: usize,
    /// Highest generation given back or disowned, as long as something outstanding could still install an older one.
    disowned: BTreeMap<LockId, Generation>,
    /// When entries of `disowned` can be forgotten: once the floor is above the nonce noted, nothing outstanding is that old.
    fading: VecDeque<(u64, LockId, Generation)>,
    /// The next nonce of the session: whatever could install an old grant was asked before it.
    horizon: u64,
    /// The newest generation seen.
    newest: Generation,
    /// Advisory locks and their local holders.
    pub(crate) local: Local,
}

const fn cache_lock(object: ObjectId) -> LockId {
    LockId { object, class: LockClass::Cache }
}

impl Locks {
    /// The generation under which a cache lock is held, if it is.
    pub(crate) fn cache_generation(&self, object: ObjectId) -> Option<Generation> {
        self.cache.get(&object).map(|hold| hold.generation)
    }

    /// Takes in a cache lock that came with an answer. False: it must not be used, nor what came with it.
    pub(crate) fn install_cache(&mut self, object: ObjectId, grant: CacheGrant) -> bool {
        let Some(mode) = grant.mode.mode() else { return false };
        if grant.generation == Generation(0) || !self.installable(cache_lock(object), grant.generation) {
            return false;
        }
        let held = self.cache.get(&object);
        if held.is_some_and(|hold| hold.generation >= grant.generation) {
            // A newer grant of the same lock came first; what this one brought is older.
            return false;
        }
        let exclusive = !mode.compatible(mode);
        self.exclusive -= usize::from(held.is_some_and(|hold| hold.exclusive));
        self.exclusive += usize::from(exclusive);
        self.cache.insert(object, Hold { generation: grant.generation, exclusive });
        self.newest = self.newest.max(grant.generation);
        true
    }

    /// Whether a grant of a lock may still be installed (R65).
    pub(crate) fn installable(&self, lock: LockId, generation: Generation) -> bool {
        self.disowned.get(&lock).is_none_or(|disowned| generation > *disowned)
    }

    /// No grant of a lock up to a generation will be installed from now on.
    pub(crate) fn disown(&mut self, lock: LockId, generation: Generation) {
        let entry = self.disowned.entry(lock).or_default();
        if *entry < generation {
            *entry = generation;
            self.fading.push_back((self.horizon, lock, generation));
        }
        self.newest = self.newest.max(generation);
    }

    /// A demand for a cache lock: complied with at once, because nothing that waits is in hand (R68).
    pub(crate) fn demand_cache(&mut self, object: ObjectId, generation: Generation, keep: Keep) -> Complied {
        let lock = cache_lock(object);
        match self.cache.get_mut(&object) {
            // A demand covers every generation up to the one named.
            Some(hold) if hold.generation <= generation => {
                let item = ReleaseItem { lock, generation: hold.generation, keep };
                if keep == Keep::Shared && !hold.exclusive {
                    // Only an older, exclusive generation was meant; a newer answer has overtaken it.
                    return Complied::Nothing;
                }
                if keep == Keep::Shared {
                    hold.exclusive = false;
                    self.exclusive -= 1;
                } else {
                    self.drop_cache(object);
                    self.disown(lock, generation);
                }
                Complied::Release(item)
            }
            Some(_) => Complied::NotHeld,
            None => {
                self.disown(lock, generation);
                Complied::NotHeld
            }
        }
    }

    /// Gives a cache lock back of the agent's own will; the release is to be sent.
    pub(crate) fn give_back_cache(&mut self, object: ObjectId) -> Option<ReleaseItem> {
        let generation = self.cache_generation(object)?;
        self.drop_cache(object);
        self.disown(cache_lock(object), generation);
        Some(ReleaseItem { lock: cache_lock(object), generation, keep: Keep::Nothing })
    }

    fn drop_cache(&mut self, object: ObjectId) {
        if let Some(hold) = self.cache.remove(&object) {
            self.exclusive -= usize::from(hold.exclusive);
        }
    }

    /// A downgrade was answered: the shared lock has a new generation, or is gone (0). Gives whether it is still held.
    pub(crate) fn downgraded(&mut self, object: ObjectId, from: Generation, now: Generation) -> bool {
        match self.cache.get_mut(&object) {
            Some(hold) if hold.generation == from && now > from => {
                hold.generation = now;
                self.newest = self.newest.max(now);
                true
            }
            Some(hold) if hold.generation == from => {
                self.drop_cache(object);
                self.disown(cache_lock(object), from);
                false
            }
            // A newer grant has come meanwhile.
            Some(_) => true,
            None => false,
        }
    }

    /// Gives all cache locks back; the generation up to which they are.
    pub(crate) fn give_back_all_cache(&mut self) -> Generation {
        let mut objects: Vec<_> = self.cache.keys().copied().collect();
        // The order has no effect but on the order of `fading`; sorted, it is the same in every run.
        objects.sort_unstable();
        for object in objects {
            self.give_back_cache(object);
        }
        self.newest
    }

    /// The session ended: nothing of it is held any more.
    pub(crate) fn discard(&mut self) {
        self.cache.clear();
        self.exclusive = 0;
        self.disowned.clear();
        self.fading.clear();
        self.newest = Generation(0);
        self.horizon = 0;
    }

    /// The window has moved: everything asked before `floor` is answered, the next nonce is `next`.
    pub(crate) fn window_moved(&mut self, floor: u64, next: u64) {
        self.horizon = next;
        while let Some((nonce, lock, generation)) = self.fading.front().copied() {
            // A deferred grant answers a request whose nonce was retired long ago, so a waited-for lock keeps its mark.
            if nonce > floor || (lock.class == LockClass::Advisory && self.local.awaits(lock.object)) {
                break;
            }
            self.fading.pop_front();
            if self.disowned.get(&lock) == Some(&generation) {
                self.disowned.remove(&lock);
            }
        }
    }

    /// Cache locks held, shared and exclusive together.
    pub(crate) fn cache_count(&self) -> usize {
        self.cache.len()
    }

    /// Whether anything is held at all.
    pub(crate) fn any(&self) -> bool {
        !self.cache.is_empty() || self.local.granted() > 0
    }

    /// A generation was seen on an advisory lock.
    pub(crate) fn saw(&mut self, generation: Generation) {
        self.newest = self.newest.max(generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: ObjectId = ObjectId(7);

    fn grant(mode: Want, generation: u64) -> CacheGrant {
        CacheGrant { mode, generation: Generation(generation) }
    }

    #[test]
    fn a_demand_that_overtakes_its_grant_keeps_the_grant_from_being_installed() {
        let mut locks = Locks::default();
        assert_eq!(locks.demand_cache(X, Generation(5), Keep::Nothing), Complied::NotHeld);
        assert!(!locks.install_cache(X, grant(Want::Shared, 5)));
        assert!(!locks.install_cache(X, grant(Want::Shared, 4)), "a demand covers the older generations");
        assert!(locks.install_cache(X, grant(Want::Shared, 6)));
    }

    #[test]
    fn a_lock_that_was_given_back_is_not_installed_again_by_a_late_answer() {
        let mut locks = Locks::default();
        assert!(locks.install_cache(X, grant(Want::Exclusive, 5)));
        assert!(locks.give_back_cache(X).is_some());
        assert!(!locks.install_cache(X, grant(Want::Exclusive, 5)));
    }

    #[test]
    fn a_demand_for_an_older_generation_does_not_touch_a_newer_one() {
        let mut locks = Locks::default();
        assert!(locks.install_cache(X, grant(Want::Shared, 9)));
        assert_eq!(locks.demand_cache(X, Generation(8), Keep::Nothing), Complied::NotHeld);
        assert_eq!(locks.cache_generation(X), Some(Generation(9)));
    }

    #[test]
    fn a_downgrade_keeps_the_lock_under_the_generation_that_the_server_answers() {
        let mut locks = Locks::default();
        assert!(locks.install_cache(X, grant(Want::Exclusive, 5)));
        assert!(matches!(locks.demand_cache(X, Generation(5), Keep::Shared), Complied::Release(item) if item.keep == Keep::Shared));
        assert!(locks.downgraded(X, Generation(5), Generation(6)));
        assert_eq!(locks.cache_generation(X), Some(Generation(6)));
        assert_eq!(locks.demand_cache(X, Generation(6), Keep::Shared), Complied::Nothing);
    }

    #[test]
    fn what_was_disowned_is_forgotten_only_when_nothing_older_is_outstanding() {
        let mut locks = Locks::default();
        locks.window_moved(3, 10);
        locks.demand_cache(X, Generation(5), Keep::Nothing);
        locks.window_moved(9, 12);
        assert!(!locks.install_cache(X, grant(Want::Shared, 5)), "request 9 is still awaited");
        locks.window_moved(10, 12);
        assert!(locks.disowned.is_empty());
    }

    #[test]
    fn the_older_of_two_grants_of_one_lock_is_not_used() {
        let mut locks = Locks::default();
        assert!(locks.install_cache(X, grant(Want::Shared, 6)));
        assert!(!locks.install_cache(X, grant(Want::Shared, 5)));
    }
}
