//! Cache locks: by which generation each is held, and which grants count for nothing.
//!
//! Decides whether a grant that came with an answer is installed (R65, R79), and how a demand is complied with: at once, for nothing
//! that waits for the server is in hand (R68). Place in the walk: one hash look-up on every answer from cache.
//! Implements `wire-spec.md` section 11.4. Invariant: a generation that was released, or said not to be held, is never installed in
//! that session; it is remembered until no request that was out at the time can bring it any more.
//! Leaves to others: what is cached (`cache`), sending releases (`control`).

use super::Effect;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use cistern_link::bugs::{self, Bug};
use cistern_wire::{CacheGrant, Generation, Keep, LockClass, LockId, Mode, ObjectId, ReceiptAnswer, ReleaseItem, ReleasedItem};
use hashbrown::HashMap;

/// Most disowned generations that are remembered one by one, 48 bytes each; more come only while one request is out for very long.
const DISOWNED_MAX: usize = 16_384;

#[derive(Clone, Copy, Debug)]
struct CacheLock {
    generation: Generation,
    mode: Mode,
    /// A downgrade was not answered yet.
    converting: bool,
}

impl CacheLock {
    const fn new(generation: Generation, mode: Mode) -> Self {
        Self { generation, mode, converting: false }
    }
}

/// A generation that must not be installed, and the nonce below which a request could still bring it.
#[derive(Clone, Copy, Debug)]
struct Disowned {
    up_to: Generation,
    barrier: u64,
}

/// The cache locks of one session.
#[derive(Debug)]
pub(super) struct CacheLocks {
    open: bool,
    held: HashMap<ObjectId, CacheLock>,
    disowned: BTreeMap<ObjectId, Disowned>,
    /// The same in order of barrier, so that forgetting costs nothing on the way.
    order: VecDeque<(u64, ObjectId)>,
    /// Nothing up to here is ever installed: all was given back at once.
    floor: Generation,
    /// Newest generation of a cache lock seen.
    newest: Generation,
    lowest_awaited: u64,
    next_nonce: u64,
    max: usize,
}

impl CacheLocks {
    pub(super) fn new(max: usize) -> Self {
        Self {
            open: false,
            held: HashMap::new(),
            disowned: BTreeMap::new(),
            order: VecDeque::new(),
            floor: Generation(0),
            newest: Generation(0),
            lowest_awaited: 1,
            next_nonce: 1,
            max,
        }
    }

    pub(super) fn open(&mut self) {
        *self = Self { open: true, ..Self::new(self.max) };
    }

    pub(super) fn close(&mut self) {
        *self = Self::new(self.max);
    }

    /// Another session takes over what is held as it stands; its numbers begin anew.
    pub(super) fn change_session(&mut self, effects: &mut VecDeque<Effect>) {
        self.disowned.clear();
        self.order.clear();
        (self.lowest_awaited, self.next_nonce) = (1, 1);
        for object in self.objects().collect::<BTreeSet<_>>() {
            if self.terms_of(object).is_none() {
                self.lose(object, effects);
            }
        }
    }

    /// Objects whose locks are held, in no order.
    pub(super) fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.held.keys().copied()
    }

    /// Mode and generation, if it is held as it stands.
    pub(super) fn terms_of(&self, object: ObjectId) -> Option<(Mode, Generation)> {
        self.held.get(&object).filter(|held| !held.converting).map(|held| (held.mode, held.generation))
    }

    /// The lock is gone, with what is cached under it.
    pub(super) fn lose(&mut self, object: ObjectId, effects: &mut VecDeque<Effect>) {
        if self.held.remove(&object).is_some() {
            effects.push_back(Effect::Revoked { object, keep: Keep::Nothing });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn generation(&self, object: ObjectId) -> Option<Generation> {
        self.held.get(&object).map(|lock| lock.generation)
    }

    pub(super) fn horizon(&mut self, lowest_awaited: u64, next_nonce: u64) {
        self.lowest_awaited = lowest_awaited;
        self.next_nonce = next_nonce;
        while let Some(&(barrier, object)) = self.order.front()
            && barrier <= lowest_awaited
        {
            self.order.pop_front();
            if self.disowned.get(&object).is_some_and(|disowned| disowned.barrier <= barrier) {
                self.disowned.remove(&object);
            }
        }
    }

    pub(super) fn install(&mut self, object: ObjectId, grant: CacheGrant, effects: &mut VecDeque<Effect>) -> bool {
        let Some(mode) = grant.mode.mode().filter(|_| self.open && grant.generation != Generation(0)) else {
            return false;
        };
        self.newest = self.newest.max(grant.generation);
        let disowned = self.disowned.get(&object).map_or(self.floor, |disowned| disowned.up_to.max(self.floor));
        //= wire-spec.md#11-4-locks
        //# An agent that answered "not held" to a demand for g, or released g, MUST NOT install a grant of that lock with a generation of g
        //# or less in that session.
        if grant.generation <= disowned && !bugs::is(Bug::M16) {
            return false;
        }
        let full = self.held.len() >= self.max;
        match self.held.get_mut(&object) {
            Some(held) if grant.generation < held.generation => false,
            Some(held) => {
                // A repeat of the one held says nothing new: it may have been downgraded since.
                if grant.generation > held.generation {
                    *held = CacheLock::new(grant.generation, mode);
                }
                true
            }
            None if full => {
                self.let_go(object, grant.generation, effects);
                false
            }
            None => {
                self.held.insert(object, CacheLock::new(grant.generation, mode));
                true
            }
        }
    }

    pub(super) fn disown(&mut self, object: ObjectId, up_to: Generation) {
        if self.held.get(&object).is_some_and(|held| held.generation <= up_to) {
            self.held.remove(&object);
        }
        if self.lowest_awaited == self.next_nonce {
            // No request is out, so none can bring it.
            return;
        }
        let barrier = self.next_nonce;
        let disowned = self.disowned.entry(object).or_insert(Disowned { up_to, barrier });
        disowned.up_to = disowned.up_to.max(up_to);
        disowned.barrier = barrier;
        self.order.push_back((barrier, object));
        if self.order.len() > DISOWNED_MAX {
            // To install nothing that was granted up to now is always right: the server demands what it needs back.
            self.floor = self.newest;
            self.disowned.clear();
            self.order.clear();
        }
    }

    pub(super) fn give_back(&mut self, object: ObjectId, effects: &mut VecDeque<Effect>) {
        if let Some(generation) = self.generation(object) {
            self.let_go(object, generation, effects);
        }
    }

    fn let_go(&mut self, object: ObjectId, generation: Generation, effects: &mut VecDeque<Effect>) {
        self.disown(object, generation);
        effects.push_back(Effect::Release(ReleaseItem { lock: cache_lock(object), generation, keep: Keep::Nothing }));
    }

    pub(super) fn give_all_back(&mut self, effects: &mut VecDeque<Effect>) {
        if self.held.is_empty() {
            return;
        }
        self.held.clear();
        self.floor = self.newest;
        effects.push_back(Effect::ReleaseAll(self.newest));
    }

    /// The demand covers every generation up to the one named; what the receipt says is about all of them.
    pub(super) fn demanded(&mut self, object: ObjectId, up_to: Generation, keep: Keep, effects: &mut VecDeque<Effect>) -> ReceiptAnswer {
        self.newest = self.newest.max(up_to);
        match self.held.get_mut(&object) {
            Some(held) if held.generation == up_to && keep == Keep::Shared => {
                if held.mode == Mode::Exclusive {
                    // What is cached stays: it is held without a break, as a shared lock from now on.
                    held.mode = Mode::Shared;
                    held.converting = true;
                    effects.push_back(Effect::Release(ReleaseItem { lock: cache_lock(object), generation: up_to, keep }));
                }
                ReceiptAnswer::Received
            }
            //= wire-spec.md#11-4-locks
            //# The agent MUST give a cache lock back on demand as soon as the operation in hand under it has ended.
            //= wire-spec.md#11-4-locks
            //# An agent whose shared cache lock is demanded while its mutation of the object waits MUST give the shared lock up.
            Some(held) if held.generation == up_to => {
                effects.push_back(Effect::Revoked { object, keep: Keep::Nothing });
                self.let_go(object, up_to, effects);
                ReceiptAnswer::Received
            }
            // A newer one is held: the demand was overtaken.
            //= wire-spec.md#11-3-failure-and-ending
            //# An agent MUST receipt a demand for a generation that it does not know or no longer holds, and change nothing by it.
            Some(held) if held.generation > up_to => ReceiptAnswer::NotHeld,
            // The grant has been overtaken by its demand: it is refused unseen, with what it would have replaced.
            Some(_) => {
                effects.push_back(Effect::Revoked { object, keep: Keep::Nothing });
                self.disown(object, up_to);
                ReceiptAnswer::NotHeld
            }
            None => {
                self.disown(object, up_to);
                ReceiptAnswer::NotHeld
            }
        }
    }

    pub(super) fn released(&mut self, item: &ReleasedItem, effects: &mut VecDeque<Effect>) {
        let object = item.lock.object;
        self.newest = self.newest.max(item.now);
        if item.keep != Keep::Shared {
            return;
        }
        // Only the answer to a downgrade says anything about a lock still held under the generation that was named.
        let Some(held) = self.held.get_mut(&object).filter(|held| held.generation == item.generation) else { return };
        if item.now > item.generation {
            *held = CacheLock::new(item.now, Mode::Shared);
            effects.push_back(Effect::Regenerated { object, from: item.generation, to: item.now });
        } else {
            // The server had given it a newer generation, or had it back already: nothing is known of it here.
            effects.push_back(Effect::Revoked { object, keep: Keep::Nothing });
            self.disown(object, item.generation);
        }
    }
}

const fn cache_lock(object: ObjectId) -> LockId {
    LockId { object, class: LockClass::Cache }
}
