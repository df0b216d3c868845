//! Generations of cache locks that must not be installed any more, although a late answer may still bring them.
//!
//! A generation that was released, or said not to be held, is remembered until no request that was out at the time can bring it.

use alloc::collections::{BTreeMap, VecDeque};
use cistern_wire::{Generation, ObjectId};

/// Most that are remembered one by one, 48 bytes each; more come only while one request is out for very long.
const REFUSED_MAX: usize = 16_384;

#[derive(Clone, Copy, Debug)]
struct Refusal {
    up_to: Generation,
    /// The nonce below which a request could still bring it.
    barrier: u64,
}

/// What is refused in one session.
#[derive(Debug)]
pub(super) struct RefusedGenerations {
    by_object: BTreeMap<ObjectId, Refusal>,
    /// The same in order of barrier, so that forgetting needs no search.
    order: VecDeque<(u64, ObjectId)>,
    /// Nothing up to here is installed, whatever the object.
    floor: Generation,
    newest: Generation,
    lowest_awaited: u64,
    next_nonce: u64,
}

impl RefusedGenerations {
    pub(super) const fn new() -> Self {
        let (floor, newest) = (Generation(0), Generation(0));
        Self { by_object: BTreeMap::new(), order: VecDeque::new(), floor, newest, lowest_awaited: 1, next_nonce: 1 }
    }

    /// There is a generation of a cache lock that is as new as this.
    pub(super) fn seen(&mut self, generation: Generation) {
        self.newest = self.newest.max(generation);
    }

    pub(super) fn is_refused(&self, object: ObjectId, generation: Generation) -> bool {
        generation <= self.floor || self.by_object.get(&object).is_some_and(|refusal| generation <= refusal.up_to)
    }

    /// Requests with nonces from `lowest` on are awaited, and `next` is the next one to be dealt out.
    pub(super) fn awaited(&mut self, lowest: u64, next: u64) {
        (self.lowest_awaited, self.next_nonce) = (lowest, next);
        while let Some(&(barrier, object)) = self.order.front()
            && barrier <= lowest
        {
            self.order.pop_front();
            if self.by_object.get(&object).is_some_and(|refusal| refusal.barrier <= barrier) {
                self.by_object.remove(&object);
            }
        }
    }

    pub(super) fn refuse(&mut self, object: ObjectId, up_to: Generation) {
        if self.lowest_awaited == self.next_nonce {
            // No request is out, so none can bring it.
            return;
        }
        let barrier = self.next_nonce;
        let refusal = self.by_object.entry(object).or_insert(Refusal { up_to, barrier });
        *refusal = Refusal { up_to: refusal.up_to.max(up_to), barrier };
        self.order.push_back((barrier, object));
        if self.order.len() > REFUSED_MAX {
            // To install nothing that was granted up to now is always right: the server demands what it needs back.
            self.floor = self.newest;
            self.by_object.clear();
            self.order.clear();
        }
    }
}
