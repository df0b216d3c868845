//! What a walk has gone by, so that its end can be shown to be of one instant.
//!
//! Decides: whether everything on which the end of a walk rests was so at one instant. Place in the walk: under `walk`; asked when a
//! walk ends, and again when an operation has waited after that. Implements `wire-spec.md` section 11.5.
//! What was read from cache is so now; what an answer tells was so when the server made it. The two go together if the cached part
//! was so already then, that is, from before the answer was asked for until now, without a break.
//! Invariant: what was told under a lock that is gone counts for nothing but the instant of its answer.
//! Leaves to others: the order of versions, locks and the lease (`cache`).

use crate::cache::View;
use alloc::vec::Vec;
use cistern_wire::{Generation, ObjectId, Stated};

/// The trace of one walk.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// What was read from cache or cached on the way: object and version.
    used: Vec<(ObjectId, u64)>,
    /// How much of it there was before the newest answer, and with that answer's own.
    before_answer: usize,
    with_answer: usize,
    /// Whether the newest answer told something under a lock that was gone when it came; and whether an earlier one did.
    slipped: bool,
    slipped_before: bool,
    /// Whether the walk has waited for an answer, so that what was read from cache before may have changed meanwhile.
    waited: bool,
}

impl Trace {
    pub(super) fn begin(&mut self) {
        self.used.clear();
        self.before_answer = 0;
        self.with_answer = 0;
        self.slipped = false;
        self.slipped_before = false;
        self.waited = false;
    }

    /// An object was read from cache at this version.
    pub(super) fn read(&mut self, object: ObjectId, version: u64) {
        self.used.push((object, version));
    }

    /// An answer has come: what was known so far must outlast the wait for it.
    pub(super) fn hear(&mut self) {
        self.waited = true;
        self.before_answer = self.used.len();
        self.with_answer = self.used.len();
        self.slipped_before |= self.slipped;
        self.slipped = false;
    }

    /// The answer tells an object: if the walk goes on from there, its end is of one instant only if the object is the same then.
    /// `kept`: a lock makes it current.
    pub(super) fn told(&mut self, view: &View<'_>, step: &Stated, kept: bool) {
        if view.open && kept {
            self.used.push((step.attr.object, step.attr.version));
            self.with_answer = self.used.len();
        } else if view.open {
            self.slipped |= step.grant.generation != Generation(0);
        }
    }

    /// Whether the end of the walk is of one instant, now that it is reached. A walk that never waited read all of it in this very call
    /// of the agent, in which nothing else can happen. One that ends with an answer is of the instant of that answer, if what it
    /// went by before is still so; what the answer told needs no lock for that, unless the walk has gone on from it.
    ///
    /// What was told without a lock, because the server gives none, cannot be checked: there a path through links or `..` is resolved
    /// name by name, each at its own instant, as POSIX has it.
    pub(super) fn holds(&self, view: &mut View<'_>) -> bool {
        //= wire-spec.md#11-5-caching-and-metadata
        //# An answer made from several cached objects MUST be true at one instant: when the last was read, all locks used are held, and the
        //# objects have the versions read.
        if !self.waited {
            true
        } else if self.used.len() == self.with_answer {
            !self.slipped_before && unchanged(&self.used[..self.before_answer], view)
        } else {
            self.unchanged(view)
        }
    }

    /// Whether the end of the walk is of this very instant, too, so that something cached can be told together with it.
    pub(super) fn is_current(&self, view: &mut View<'_>) -> bool {
        !self.waited || self.unchanged(view)
    }

    /// The same, for an operation that has waited since the walk ended.
    pub(super) fn unchanged(&self, view: &mut View<'_>) -> bool {
        !self.slipped && !self.slipped_before && unchanged(&self.used, view)
    }
}

fn unchanged(used: &[(ObjectId, u64)], view: &mut View<'_>) -> bool {
    used.iter().all(|(object, version)| view.unchanged(*object, *version))
}
