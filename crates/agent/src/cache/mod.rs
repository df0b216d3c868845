//! What the agent holds and knows of objects: of each its cache lock, and the state that is current under it.
//!
//! Decides whether a grant and an answer are installed, what a demand takes away (at once: nothing that waits for the server keeps a cache
//! lock), and what goes when there is no room. A hit is one hash look-up: an object is answered from if it has state here, is not fenced,
//! and the lease lets it ([`View`]).
//! Invariants: state is there only under the lock that it was installed under, or one that followed it without a break; attributes and body
//! are of one version, which never goes back while the lock is held; nothing is answered of an object between the first transmission of a
//! mutation that affects it and its outcome; a refused generation is never installed (`refused`); the table is never iterated where its
//! order would show. Implements `wire-spec.md` sections 11.4 and 11.5.

mod body;
mod refused;

use crate::config::CacheLimits;
use crate::eviction::{EvictionQueue, Place};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
pub(crate) use body::{Body, Contents, Directory, Known};
use cistern_link::bugs::{self, Bug};
use cistern_wire::{
    Attr, CacheGrant, Effect, Generation, Keep, LockClass, LockId, Mode, ObjectId, ObjectKind, ReceiptAnswer, ReclaimItem, ReleaseItem,
    ReleasedItem,
};
use hashbrown::HashMap;
use refused::RefusedGenerations;

/// What an object costs beside its body: attributes, lock, its shares of the table and of the queue.
const OBJECT_COST: usize = 192;

/// The cached state of one object: everything in it is of the version in `attr`.
#[derive(Debug)]
pub(crate) struct Cached {
    pub(crate) attr: Attr,
    pub(crate) body: Body,
}

/// A cache lock, and what is known under it.
#[derive(Debug)]
struct CacheEntry {
    generation: Generation,
    mode: Mode,
    /// A downgrade was not answered yet.
    converting: bool,
    /// `None`: it was dropped, and the lock is of no use.
    state: Option<Box<Cached>>,
    /// While there is no state, none of an older version is taken in.
    floor: u64,
    place: Place,
}

/// The cache of one session, and the locks that make it current.
#[derive(Debug)]
pub(crate) struct Cache {
    /// There is a session whose grants count.
    open: bool,
    entries: HashMap<ObjectId, CacheEntry>,
    /// Those with state, fenced ones perhaps excepted.
    order: EvictionQueue,
    /// Those without.
    unused: BTreeSet<ObjectId>,
    /// Objects that mutations under way affect, held or not, and by how many of them.
    fences: BTreeMap<ObjectId, u32>,
    refused: RefusedGenerations,
    /// To be given back; they are gone here, and refused.
    releases: VecDeque<ReleaseItem>,
    bytes: usize,
    limits: CacheLimits,
}

impl Cache {
    /// Nothing, and no session.
    pub(crate) fn new(limits: CacheLimits) -> Self {
        Self {
            open: false,
            entries: HashMap::new(),
            order: EvictionQueue::default(),
            unused: BTreeSet::new(),
            fences: BTreeMap::new(),
            refused: RefusedGenerations::new(),
            releases: VecDeque::new(),
            bytes: 0,
            limits,
        }
    }

    /// A session is open; it holds nothing yet.
    pub(crate) const fn session_opened(&mut self) {
        self.open = true;
    }

    /// The session is over: nothing that was held, known or under way counts any more.
    pub(crate) fn session_over(&mut self) {
        if !bugs::is(Bug::M11) {
            *self = Self::new(self.limits);
        }
    }

    /// Another session takes over what is held as it stands; its numbers begin anew.
    pub(crate) fn change_session(&mut self) {
        self.refused = RefusedGenerations::new();
        let converting: BTreeSet<_> = self.entries.iter().filter(|(_, entry)| entry.converting).map(|(object, _)| *object).collect();
        converting.into_iter().for_each(|object| self.lose(object));
    }

    /// The next lock to be given back.
    pub(crate) fn poll_release(&mut self) -> Option<ReleaseItem> {
        self.releases.pop_front()
    }

    /// How many locks are held.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The locks that are held, in no order.
    pub(crate) fn locks(&self) -> impl Iterator<Item = LockId> + '_ {
        self.entries.keys().copied().map(cache_lock)
    }

    /// The generation of the lock that is held on an object; `None` if none is.
    pub(crate) fn generation(&self, object: ObjectId) -> Option<Generation> {
        self.entries.get(&object).map(|entry| entry.generation)
    }

    /// How a lock and what is cached under it are named in RECLAIM; `None` if it is not held, or is being converted.
    pub(crate) fn reclaim_item(&self, object: ObjectId) -> Option<ReclaimItem> {
        let &CacheEntry { generation, mode, ref state, .. } = self.entries.get(&object).filter(|entry| !entry.converting)?;
        //= wire-spec.md#11-7-restart-and-recovery
        //# A reclaim MUST name object, mode, generation and version cached, and be answered with the current version.
        let version = state.as_ref().map_or(0, |state| state.attr.version);
        Some(ReclaimItem { lock: cache_lock(object), mode, generation, first: generation, run: 0, version })
    }

    /// Requests with nonces from `floor` on are awaited, and `next` is the next one to be dealt out.
    pub(crate) fn awaited(&mut self, floor: u64, next: u64) {
        self.refused.awaited(floor, next);
    }

    /// Objects and bytes.
    #[cfg(test)]
    pub(crate) fn used(&self) -> (usize, usize) {
        (self.entries.len() - self.unused.len(), self.bytes)
    }
}

/// What is known.
impl Cache {
    /// The state of an object, if it may be answered from; the lease has been looked at.
    fn get(&mut self, object: ObjectId) -> Option<&Cached> {
        //= wire-spec.md#11-5-caching-and-metadata
        //# From the first transmission of a mutation until it cannot be under way any more, the agent MUST answer nothing from cache about
        //# the objects affected.
        if !self.fences.is_empty() && self.fences.contains_key(&object) {
            return None;
        }
        let entry = self.entries.get_mut(&object)?;
        entry.place.used();
        entry.state.as_deref()
    }

    fn state(&self, object: ObjectId) -> Option<&Cached> {
        self.entries.get(&object)?.state.as_deref()
    }

    fn state_mut(&mut self, object: ObjectId) -> Option<&mut Cached> {
        self.entries.get_mut(&object)?.state.as_deref_mut()
    }

    /// What the cache believes of a name, usable or not; for guessing which objects a mutation affects.
    pub(crate) fn guess(&self, dir: ObjectId, name: &[u8]) -> Option<ObjectId> {
        match &self.state(dir)?.body {
            Body::Directory(directory) => match directory.find(name)? {
                Known::Object(object, _) => Some(object),
                Known::Absent => None,
            },
            _ => None,
        }
    }

    /// Takes in attributes from an answer, if a lock makes them current: the grant that came with them, or the lock `covered` that was held
    /// when the request was made and still is. Whether the state is of exactly this version now, so that a body of it may be added.
    fn install(&mut self, attr: &Attr, grant: CacheGrant, covered: Option<Generation>) -> bool {
        self.is_current(attr.object, grant, covered) && self.set(attr)
    }

    /// Takes in attributes that are current under the lock held.
    fn set(&mut self, attr: &Attr) -> bool {
        let object = attr.object;
        let Some(entry) = self.entries.get_mut(&object) else { return false };
        //= wire-spec.md#11-5-caching-and-metadata
        //# The agent MUST NOT replace cached state of an object by state of an older version.
        if attr.version < entry.state.as_ref().map_or(entry.floor, |state| state.attr.version) {
            return false;
        }
        if let Some(state) = &mut entry.state {
            if attr.version > state.attr.version {
                self.bytes -= core::mem::take(&mut state.body).bytes();
            }
            state.attr = *attr;
            return true;
        }
        entry.state = Some(Box::new(Cached { attr: *attr, body: Body::Unknown }));
        self.unused.remove(&object);
        self.order.enter(object, &mut entry.place);
        self.bytes += OBJECT_COST;
        self.trim();
        self.state(object).is_some()
    }

    /// Changes the body of an object if its state is of this version.
    pub(crate) fn fill(&mut self, object: ObjectId, version: u64, change: impl FnOnce(&mut Body)) {
        let Some(state) = self.state_mut(object).filter(|state| state.attr.version == version) else { return };
        let before = state.body.bytes();
        change(&mut state.body);
        let after = state.body.bytes();
        self.bytes = self.bytes - before + after;
        self.trim();
    }

    /// Takes in what a mutation of the agent's own did to an object, if a lock makes that current. `change` makes the body what it is after;
    /// it is given what was cached only if that was the state before, and [`Body::Unknown`] otherwise.
    fn update(&mut self, effect: &Effect, covered: Option<Generation>, change: impl FnOnce(&mut Body)) {
        let (attr, object) = (&effect.attr, effect.attr.object);
        let is_current = self.is_current(object, effect.grant, covered);
        if attr.nlink == 0 {
            // Nobody can name it any more; a lock on it is of no use.
            self.drop_state(object);
            self.raise_floor(object, attr.version);
            return;
        }
        if !is_current {
            if self.state(object).is_some_and(|state| state.attr.version < attr.version) {
                self.drop_state(object);
            }
            return;
        }
        //= wire-spec.md#11-5-caching-and-metadata
        //# The agent MUST apply an effect to its cache only to the version `before`, and else drop what it has of the object.
        let body = match self.state_mut(object) {
            // A later answer has told of this change already.
            Some(state) if attr.version <= state.attr.version => return,
            Some(state) if state.attr.version == effect.before => core::mem::take(&mut state.body),
            _ => Body::Unknown,
        };
        self.bytes -= body.bytes();
        if self.set(attr) {
            self.fill(object, attr.version, |place| {
                *place = body;
                change(place);
            });
        }
    }

    /// Mutations that affect these objects are about to be sent: nothing is answered of them until [`Self::unfence`].
    pub(crate) fn fence(&mut self, objects: &[ObjectId]) {
        for object in objects {
            *self.fences.entry(*object).or_insert(0) += 1;
        }
    }

    /// The outcome of that mutation is known.
    pub(crate) fn unfence(&mut self, objects: &[ObjectId]) {
        for object in objects {
            let Some(count) = self.fences.get_mut(object) else { continue };
            *count -= 1;
            if *count == 0 {
                self.fences.remove(object);
                if let Some(entry) = self.entries.get_mut(object).filter(|entry| entry.state.is_some()) {
                    self.order.enter(*object, &mut entry.place);
                }
            }
        }
    }

    /// Drops the state of an object that has changed, or may have: what an answer tells of this version or an earlier one is not taken in
    /// any more under the same lock.
    pub(crate) fn drop_changed(&mut self, object: ObjectId) {
        self.drop_state(object);
        if let Some(entry) = self.entries.get_mut(&object) {
            entry.floor = entry.floor.saturating_add(1);
        }
    }

    /// The state of an object goes unless it is of this version; its lock stays.
    pub(crate) fn keep_version(&mut self, object: ObjectId, version: u64) {
        if self.state(object).is_some_and(|state| state.attr.version != version) {
            self.drop_state(object);
        }
    }

    /// Drops the state of an object; its lock is of no use any more.
    pub(crate) fn drop_state(&mut self, object: ObjectId) {
        let Some(entry) = self.entries.get_mut(&object) else { return };
        let Some(state) = entry.state.take() else { return };
        entry.floor = state.attr.version;
        self.order.leave(&mut entry.place);
        self.unused.insert(object);
        self.bytes -= OBJECT_COST + state.body.bytes();
    }

    fn raise_floor(&mut self, object: ObjectId, version: u64) {
        if let Some(entry) = self.entries.get_mut(&object) {
            entry.floor = version;
            self.unused.insert(object);
        }
    }

    /// Drops state until the bounds hold.
    fn trim(&mut self) {
        while self.bytes > self.limits.bytes {
            let Some(object) = self.next_evicted() else { return };
            self.drop_state(object);
        }
    }

    /// The next whose state is to go: not one that is fenced, for the answer to its mutation is about to update it, and there are no more of
    /// them than mutations can be under way.
    fn next_evicted(&mut self) -> Option<ObjectId> {
        let fences = &self.fences;
        self.order.evict(&mut self.entries, |entry| &mut entry.place, |object, _| !fences.contains_key(&object))
    }
}

/// What is held.
impl Cache {
    /// Whether what an answer tells of an object is current under the lock held now: the grant in the answer, or the one that was held all
    /// the time. Late answers are not: their grant was refused, or a newer one is held.
    fn is_current(&mut self, object: ObjectId, grant: CacheGrant, covered: Option<Generation>) -> bool {
        let held = self.generation(object);
        if grant.generation == Generation(0) {
            return held.is_some() && held == covered;
        }
        //= wire-spec.md#11-5-caching-and-metadata
        //# The agent MUST NOT cache data under a generation that it does not hold.
        held == Some(grant.generation) || self.take(object, grant)
    }

    /// Takes a grant that came with an answer; one beyond the bound goes back.
    fn take(&mut self, object: ObjectId, CacheGrant { mode, generation }: CacheGrant) -> bool {
        let Some(mode) = mode.mode().filter(|_| self.open) else { return false };
        self.refused.seen(generation);
        //= wire-spec.md#11-4-locks
        //# An agent that answered "not held" to a demand for g, or released g, MUST NOT install a grant of that lock of generation g or
        //# less in that session.
        if self.refused.is_refused(object, generation) && !bugs::is(Bug::M16) {
            return false;
        }
        if let Some(entry) = self.entries.get_mut(&object) {
            let newer = generation > entry.generation;
            if newer {
                (entry.generation, entry.mode, entry.converting) = (generation, mode, false);
            }
            return newer;
        }
        if self.entries.len() >= self.limits.objects && !self.make_room() {
            self.refuse(object, generation);
            self.push_release(object, generation, Keep::Nothing);
            return false;
        }
        let entry = CacheEntry { generation, mode, converting: false, state: None, floor: 0, place: Place::default() };
        self.entries.insert(object, entry);
        true
    }

    /// Gives a lock back that is of little use.
    pub(crate) fn make_room(&mut self) -> bool {
        let object = self.unused.first().copied().or_else(|| self.next_evicted());
        object.is_some_and(|object| self.release(object))
    }

    /// Gives back the locks that are of no use.
    pub(crate) fn release_unused(&mut self) {
        while let Some(object) = self.unused.first().copied() {
            self.release(object);
        }
    }

    /// Gives a lock back, by the agent's own choice.
    pub(crate) fn release(&mut self, object: ObjectId) -> bool {
        let generation = self.generation(object);
        if let Some(generation) = generation {
            self.lose(object);
            self.refuse(object, generation);
            self.push_release(object, generation, Keep::Nothing);
        }
        generation.is_some()
    }

    fn push_release(&mut self, object: ObjectId, generation: Generation, keep: Keep) {
        self.releases.push_back(ReleaseItem { lock: cache_lock(object), generation, keep });
    }

    /// A lock is gone, with what is known under it.
    pub(crate) fn lose(&mut self, object: ObjectId) {
        if let Some(mut entry) = self.entries.remove(&object) {
            self.order.leave(&mut entry.place);
            self.unused.remove(&object);
            self.bytes -= entry.state.map_or(0, |state| OBJECT_COST + state.body.bytes());
        }
    }

    fn refuse(&mut self, object: ObjectId, up_to: Generation) {
        self.refused.refuse(object, up_to);
    }

    /// The server demands a lock, under every generation up to the one named; what the agent says is about all of them.
    pub(crate) fn demanded(&mut self, object: ObjectId, up_to: Generation, keep: Keep) -> ReceiptAnswer {
        self.refused.seen(up_to);
        let Some(entry) = self.entries.get_mut(&object) else {
            self.refuse(object, up_to);
            return ReceiptAnswer::NotHeld;
        };
        //= wire-spec.md#11-3-failure-and-ending
        //# An agent MUST receipt a demand for a generation that it does not know or no longer holds, without effect.
        if entry.generation > up_to {
            // It was overtaken by a newer grant.
            return ReceiptAnswer::NotHeld;
        }
        if entry.generation < up_to {
            // It has overtaken the grant that it is about, which is refused unseen, with the lock that it would have followed.
            self.lose(object);
            self.refuse(object, up_to);
            return ReceiptAnswer::NotHeld;
        }
        if keep == Keep::Shared {
            if entry.mode == Mode::Exclusive {
                // What is known stays: it is held without a break, as a shared lock from now on.
                (entry.mode, entry.converting) = (Mode::Shared, true);
                self.push_release(object, up_to, keep);
            }
            return ReceiptAnswer::Received;
        }
        //= wire-spec.md#11-4-locks
        //# The agent MUST give a cache lock back on demand as soon as the operation in hand under it ends.
        //= wire-spec.md#11-4-locks
        //# An operation that waits for the server or another lock MUST NOT keep a cache lock from being given back.
        //= wire-spec.md#11-4-locks
        //# An agent whose shared cache lock is demanded while its mutation of the object waits MUST give it up.
        if !bugs::is(Bug::M26) || self.state(object).is_none_or(|state| state.attr.kind != ObjectKind::Directory) {
            self.lose(object);
        }
        self.refuse(object, up_to);
        self.push_release(object, up_to, keep);
        ReceiptAnswer::Received
    }

    /// A release was answered.
    pub(crate) fn released(&mut self, item: &ReleasedItem) {
        let object = item.lock.object;
        self.refused.seen(item.now);
        // Only the answer to a downgrade says anything about a lock still held under the generation that was named.
        let held = self.entries.get_mut(&object).filter(|entry| item.keep == Keep::Shared && entry.generation == item.generation);
        let Some(entry) = held else { return };
        if item.now > item.generation {
            (entry.generation, entry.mode, entry.converting) = (item.now, Mode::Shared, false);
        } else {
            // The server had given it a newer generation, or had it back already: nothing is known of it here.
            self.lose(object);
            self.refuse(object, item.generation);
        }
    }
}

const fn cache_lock(object: ObjectId) -> LockId {
    LockId { object, class: LockClass::Cache }
}

#[cfg(test)]
mod tests;

/// What is known at one instant: it lives within one call of the agent, in which no demand can come, so everything that is read through it
/// is of one instant.
#[derive(Debug)]
pub(crate) struct View<'a> {
    /// What is known.
    pub(crate) cache: &'a mut Cache,
    /// Whether the lease lets anything be answered from cache at this instant, and the operation wants it.
    pub(crate) open: bool,
    /// Whether answers may be taken in: not what was executed in a session that has failed.
    pub(crate) taking: bool,
}

impl View<'_> {
    /// The state of an object, if it may be answered from now.
    pub(crate) fn get(&mut self, object: ObjectId) -> Option<&Cached> {
        if self.open { self.cache.get(object) } else { None }
    }

    /// Whether an object is still as it was when this version of it was read from cache, and may still be answered from.
    ///
    /// The version stands for the generation here: a lock that went away and came back over an object that did not change does no
    /// harm, a re-grant under which the agent itself changed the object does.
    pub(crate) fn unchanged(&mut self, object: ObjectId, version: u64) -> bool {
        self.get(object).is_some_and(|cached| cached.attr.version == version)
    }

    /// Takes in attributes from an answer, if a lock makes them current: the grant that came with them, or the lock `covered` that
    /// was held when the request was made and still is. Returns whether a body of this version may be added.
    pub(crate) fn install(&mut self, attr: &Attr, grant: CacheGrant, covered: Option<Generation>) -> bool {
        self.taking && self.cache.install(attr, grant, covered)
    }

    /// Takes in what a mutation of the agent's own did to one object, if a lock makes that current.
    pub(crate) fn update(&mut self, effect: &Effect, covered: Option<Generation>, change: impl FnOnce(&mut Body)) {
        self.cache.update(effect, covered, change);
    }
}
