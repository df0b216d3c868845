//! What the agent knows of objects, and when it may answer from that with no message.
//!
//! Decides: whether cached state is usable (its lock is still the one it was installed under, and no mutation of the agent's own
//! affects it), whether an answer may be installed, and what goes when the cache is full.
//! Place in the walk: asked first by every command (`walk`, `ops`); filled by the answers. Implements `wire-spec.md` section 11.5.
//! Invariants: attributes and body of an object are of one version, and that version never goes back while the lock is held (R79);
//! nothing is answered of an object between the first transmission of a mutation that affects it and its outcome (R70).
//! Leaves to others: which locks are held (`locks`), the lease (`lease`), what an operation makes of the answers (`ops`).

mod contents;
mod directory;
mod recency;
mod view;

pub(crate) use contents::Contents;
pub(crate) use directory::{Directory, Known};
pub(crate) use view::View;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Attr, Generation, Keep, ObjectId, ObjectKind};
use recency::Recency;

/// Bounds of an agent's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Most objects whose state is kept; each of them needs a cache lock, so the server's bound on locks is one of this, too.
    pub objects: usize,
    /// Most bytes of names, contents and attributes, as the cache counts them.
    pub bytes: usize,
}

impl Default for CacheLimits {
    /// 65,536 objects in 64 MiB: 1 KiB an object on average, small beside what a host has.
    fn default() -> Self {
        Self { objects: 65_536, bytes: 64 << 20 }
    }
}

/// What an object costs beside its body: attributes, links of the list, its share of the hash table.
const OBJECT_COST: usize = 192;

/// The state of an object beyond its attributes.
#[derive(Debug, Default)]
pub(crate) enum Body {
    /// Not known.
    #[default]
    Unknown,
    /// Names of a directory.
    Directory(Directory),
    /// Contents of a file.
    File(Contents),
    /// Target of a symbolic link.
    Link(Bytes),
}

impl Body {
    fn bytes(&self) -> usize {
        match self {
            Self::Unknown => 0,
            Self::Directory(directory) => directory.bytes(),
            Self::File(contents) => contents.bytes(),
            Self::Link(target) => target.len(),
        }
    }
}

/// The cached state of one object: everything in it is of the version in `attr`.
#[derive(Debug)]
pub(crate) struct Cached {
    /// The cache lock under which it is current.
    generation: Generation,
    /// Its attributes.
    pub(crate) attr: Attr,
    /// The rest.
    pub(crate) body: Body,
}

/// The cache lock under which an answer is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The one held until the answer came, if any.
    pub(crate) before: Option<Generation>,
    /// The one held now: the same, or the grant in the answer.
    pub(crate) now: Generation,
}

/// The cache of one session.
#[derive(Debug)]
pub(crate) struct Cache {
    objects: Recency<Cached>,
    bytes: usize,
    limits: CacheLimits,
    /// Objects that mutations under way affect, and how many of them.
    suspended: BTreeMap<ObjectId, u32>,
    /// Objects whose state was dropped while their lock is held: the version last known, below which nothing may come back (R79).
    unwanted: BTreeMap<ObjectId, u64>,
}

impl Cache {
    pub(crate) fn new(limits: CacheLimits) -> Self {
        Self { objects: Recency::new(), bytes: 0, limits, suspended: BTreeMap::new(), unwanted: BTreeMap::new() }
    }

    /// The state of an object if it may be answered from: `held` is the cache lock that the agent holds on it now. A use.
    pub(crate) fn get(&mut self, object: ObjectId, held: Option<Generation>) -> Option<&Cached> {
        //= wire-spec.md#11-5-caching-and-metadata
        //# As long as a mutation may be under way, from its first transmission on, the agent MUST answer nothing from cache about the
        //# objects affected.
        if !self.suspended.is_empty() && self.suspended.contains_key(&object) {
            return None;
        }
        let uncovered = |cached: &Cached| bugs::is(Bug::M26) && cached.attr.kind == ObjectKind::Directory;
        self.objects.use_if(object, |cached| Some(cached.generation) == held || uncovered(cached))
    }

    /// What the cache believes of a name, usable or not; for guessing which objects a mutation affects.
    pub(crate) fn guess(&self, dir: ObjectId, name: &[u8]) -> Option<ObjectId> {
        match &self.objects.peek(dir)?.body {
            Body::Directory(directory) => match directory.find(name)? {
                Known::Object(object, _) => Some(object),
                Known::Absent => None,
            },
            _ => None,
        }
    }

    /// Takes in attributes that are current under the lock held. Returns whether the object's cached state is of exactly this
    /// version now, so that a body of it may be added.
    pub(crate) fn install(&mut self, attr: &Attr, hold: Hold) -> bool {
        let Some(cached) = self.objects.peek_mut(attr.object) else {
            return self.install_anew(attr, hold.now);
        };
        let unbroken = Some(cached.generation) == hold.before;
        //= wire-spec.md#11-5-caching-and-metadata
        //# The agent MUST NOT replace cached state of an object by state of an older version.
        if attr.version < cached.attr.version {
            // An answer that was overtaken. What is cached stays current if the lock never went away.
            if unbroken {
                cached.generation = hold.now;
            }
            return false;
        }
        if attr.version > cached.attr.version || !unbroken {
            self.bytes -= cached.body.bytes();
            cached.body = Body::Unknown;
        }
        cached.attr = *attr;
        cached.generation = hold.now;
        true
    }

    fn install_anew(&mut self, attr: &Attr, generation: Generation) -> bool {
        if self.unwanted.get(&attr.object).is_some_and(|floor| attr.version < *floor) {
            return false;
        }
        self.unwanted.remove(&attr.object);
        self.bytes += OBJECT_COST;
        self.objects.insert(attr.object, Cached { generation, attr: *attr, body: Body::Unknown });
        self.trim();
        self.objects.peek(attr.object).is_some()
    }

    /// Changes the body of an object if its state is of this version; tells whether it was.
    pub(crate) fn fill(&mut self, object: ObjectId, version: u64, change: impl FnOnce(&mut Body)) -> bool {
        let Some(cached) = self.objects.peek_mut(object).filter(|cached| cached.attr.version == version) else {
            return false;
        };
        let before = cached.body.bytes();
        change(&mut cached.body);
        self.bytes = self.bytes - before + cached.body.bytes();
        self.trim();
        true
    }

    /// Takes in what a mutation of the agent's own did to an object. `change` makes the body what it is after; it is given what was
    /// cached only if that was the state before, and [`Body::Unknown`] otherwise (R79).
    pub(crate) fn update(&mut self, before: u64, attr: &Attr, hold: Hold, change: impl FnOnce(&mut Body)) {
        //= wire-spec.md#11-5-caching-and-metadata
        //# The agent MUST apply an effect to its cache only where it has the version `before`, and else drop what it has of the object.
        let known = self.objects.peek(attr.object).is_some_and(|c| Some(c.generation) == hold.before && c.attr.version == before);
        if self.objects.peek(attr.object).is_some_and(|cached| attr.version <= cached.attr.version) {
            // A later answer has told of this change already.
            return;
        }
        let body = match self.objects.peek_mut(attr.object) {
            Some(cached) if known => core::mem::take(&mut cached.body),
            _ => Body::Unknown,
        };
        self.bytes -= body.bytes();
        if self.install(attr, hold) {
            self.fill(attr.object, attr.version, |place| {
                *place = body;
                change(place);
            });
        }
    }

    /// The state under lock `from` is current under lock `to`, too: a re-grant or a downgrade with no break between them.
    pub(crate) fn carry(&mut self, object: ObjectId, from: Generation, to: Generation) {
        if let Some(cached) = self.objects.peek_mut(object).filter(|cached| cached.generation == from) {
            cached.generation = to;
        }
    }

    /// A mutation that affects these objects is about to be sent: nothing is answered of them until [`Self::resume`] (R70).
    pub(crate) fn suspend(&mut self, objects: &[ObjectId]) {
        for object in objects {
            *self.suspended.entry(*object).or_insert(0) += 1;
        }
    }

    /// The outcome of that mutation is known.
    pub(crate) fn resume(&mut self, objects: &[ObjectId]) {
        for object in objects {
            if let Some(count) = self.suspended.get_mut(object) {
                *count -= 1;
                if *count == 0 {
                    self.suspended.remove(object);
                }
            }
        }
    }

    /// Drops the state of an object whose lock is held, and offers the lock for release.
    pub(crate) fn drop_object(&mut self, object: ObjectId) {
        if let Some(cached) = self.objects.remove(object) {
            self.bytes -= OBJECT_COST + cached.body.bytes();
            self.unwanted.insert(object, cached.attr.version);
        }
    }

    /// Drops the state of an object that has changed, or may have: what an answer tells of this version or an earlier one is not taken in
    /// any more under the same lock.
    pub(crate) fn drop_changed(&mut self, object: ObjectId) {
        self.drop_object(object);
        if let Some(floor) = self.unwanted.get_mut(&object) {
            *floor += 1;
        }
    }

    /// The object is gone from the namespace; if its lock is `held`, that is offered for release.
    pub(crate) fn gone(&mut self, object: ObjectId, version: u64, held: bool) {
        self.drop_object(object);
        if held {
            self.unwanted.insert(object, version);
        }
    }

    /// The object is known to have reached this version, but no lock makes what was told of it current: what is older goes.
    pub(crate) fn outdated(&mut self, object: ObjectId, version: u64) {
        if self.objects.peek(object).is_some_and(|cached| cached.attr.version < version) {
            self.drop_object(object);
        }
    }

    /// The version of an object that is cached under this lock.
    pub(crate) fn version_of(&self, object: ObjectId, generation: Generation) -> Option<u64> {
        self.objects.peek(object).filter(|cached| cached.generation == generation).map(|cached| cached.attr.version)
    }

    /// The state of an object goes unless it is of this version.
    pub(crate) fn keep_version(&mut self, object: ObjectId, version: u64) {
        if self.objects.peek(object).is_some_and(|cached| cached.attr.version != version) {
            self.drop_object(object);
        }
    }

    /// The lock of an object is given back, or only a shared one is kept (which keeps what is known).
    pub(crate) fn revoke(&mut self, object: ObjectId, keep: Keep) {
        let kept = bugs::is(Bug::M26) && self.objects.peek(object).is_some_and(|cached| cached.attr.kind == ObjectKind::Directory);
        if keep == Keep::Nothing && !kept {
            self.drop_object(object);
            self.unwanted.remove(&object);
        }
    }

    /// All cache locks are given back; mutations under way stay under way.
    pub(crate) fn forget(&mut self) {
        self.objects.clear();
        self.bytes = 0;
        self.unwanted.clear();
    }

    /// The session ended: nothing that was known or under way counts any more.
    pub(crate) fn discard(&mut self) {
        self.forget();
        self.suspended.clear();
    }

    /// Up to `count` objects whose cache locks are of least use: first those whose state was dropped already, then the least
    /// recently used. Their state is gone when this returns, and the locks must be disowned before any answer is taken in.
    pub(crate) fn release_candidates(&mut self, count: usize) -> Vec<ObjectId> {
        let mut objects: Vec<ObjectId> = self.unwanted.keys().copied().take(count).collect();
        let oldest: Vec<ObjectId> =
            self.objects.oldest_first().filter(|object| !self.suspended.contains_key(object)).take(count - objects.len()).collect();
        objects.extend(oldest);
        for object in &objects {
            self.revoke(*object, Keep::Nothing);
        }
        objects
    }

    /// Whether one more object needs the lock of another to go: those kept and those offered together are as many as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.objects.len() + self.unwanted.len() >= self.limits.objects
    }

    /// How many objects' locks are held for nothing, because their state was dropped.
    pub(crate) fn unwanted(&self) -> usize {
        self.unwanted.len()
    }

    /// How many objects are known.
    #[cfg(test)]
    pub(crate) fn objects(&self) -> usize {
        self.objects.len()
    }

    /// Bytes in use, as the limits count them.
    #[cfg(test)]
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops the least recently used objects until the bounds hold. Suspended ones stay: their mutation's answer is about to
    /// update them, and there are no more of them than mutations can be under way.
    fn trim(&mut self) {
        while self.objects.len() > self.limits.objects || self.bytes > self.limits.bytes {
            let Some(oldest) = self.objects.oldest_first().find(|object| !self.suspended.contains_key(object)) else { return };
            self.drop_object(oldest);
        }
    }
}

#[cfg(test)]
mod tests;
