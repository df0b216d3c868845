//! The cache as operations see it, at one instant.

use super::{Body, Cache, Cached};
use cistern_wire::{Attr, CacheGrant, Effect, Generation, ObjectId};

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
