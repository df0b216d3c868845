//! A table of objects that knows which of them was used least recently.
//!
//! Decides: order of use, kept as a doubly linked list through a slab, so that a look-up, a use and a removal each cost one hash
//! look-up however many objects there are.
//! Place in the walk: under `Cache`, which decides what is kept.
//! Invariant: the hash table is never iterated; order comes from the list alone, so the same inputs give the same evictions.
//! Leaves to others: what is stored, and when something is dropped (`cache/mod.rs`).

use alloc::vec::Vec;
use cistern_wire::ObjectId;
use hashbrown::HashMap;

/// No slot.
const NONE: usize = usize::MAX;

/// Values by object, in order of use.
#[derive(Debug)]
pub(super) struct Recency<T> {
    index: HashMap<ObjectId, usize>,
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
    newest: usize,
    oldest: usize,
}

#[derive(Debug)]
struct Slot<T> {
    object: ObjectId,
    newer: usize,
    older: usize,
    /// `None` while the slot is free.
    value: Option<T>,
}

impl<T> Recency<T> {
    pub(super) fn new() -> Self {
        Self { index: HashMap::new(), slots: Vec::new(), free: Vec::new(), newest: NONE, oldest: NONE }
    }

    /// How many objects there are.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// The value of an object; not a use.
    pub(super) fn peek(&self, object: ObjectId) -> Option<&T> {
        self.slots[*self.index.get(&object)?].value.as_ref()
    }

    /// The value of an object, to be changed; not a use.
    pub(super) fn peek_mut(&mut self, object: ObjectId) -> Option<&mut T> {
        self.slots[*self.index.get(&object)?].value.as_mut()
    }

    /// The value of an object if `wanted` says so of it; that makes the object the most recently used one.
    pub(super) fn use_if(&mut self, object: ObjectId, wanted: impl FnOnce(&T) -> bool) -> Option<&T> {
        let at = *self.index.get(&object)?;
        if !self.slots[at].value.as_ref().is_some_and(wanted) {
            return None;
        }
        self.move_to_front(at);
        self.slots[at].value.as_ref()
    }

    /// Stores a value as the most recently used one; the object must not be there yet.
    pub(super) fn insert(&mut self, object: ObjectId, value: T) {
        debug_assert!(!self.index.contains_key(&object), "an object has one slot");
        let slot = Slot { object, newer: NONE, older: NONE, value: Some(value) };
        let at = if let Some(at) = self.free.pop() {
            self.slots[at] = slot;
            at
        } else {
            self.slots.push(slot);
            self.slots.len() - 1
        };
        self.index.insert(object, at);
        self.link_front(at);
    }

    /// Takes an object out.
    pub(super) fn remove(&mut self, object: ObjectId) -> Option<T> {
        let at = self.index.remove(&object)?;
        self.unlink(at);
        self.free.push(at);
        self.slots[at].value.take()
    }

    /// The objects, least recently used first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let mut at = self.oldest;
        core::iter::from_fn(move || {
            let slot = self.slots.get(at)?;
            at = slot.newer;
            Some(slot.object)
        })
    }

    /// Takes everything out.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    fn move_to_front(&mut self, at: usize) {
        if self.newest != at {
            self.unlink(at);
            self.link_front(at);
        }
    }

    fn link_front(&mut self, at: usize) {
        self.slots[at].newer = NONE;
        self.slots[at].older = self.newest;
        match self.slots.get_mut(self.newest) {
            Some(second) => second.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }

    fn unlink(&mut self, at: usize) {
        let (newer, older) = (self.slots[at].newer, self.slots[at].older);
        match self.slots.get_mut(newer) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(table: &Recency<u8>) -> Vec<u64> {
        table.oldest_first().map(|object| object.0).collect()
    }

    #[test]
    fn order_is_that_of_use_and_survives_removals() {
        let mut table = Recency::new();
        for n in 1..=4 {
            table.insert(ObjectId(n), 0_u8);
        }
        assert_eq!(order(&table), [1, 2, 3, 4]);
        assert_eq!(table.use_if(ObjectId(2), |_| true), Some(&0));
        assert_eq!(table.use_if(ObjectId(2), |_| true), Some(&0));
        assert_eq!(table.use_if(ObjectId(1), |_| false), None, "what was not wanted was not used");
        assert_eq!(table.use_if(ObjectId(9), |_| true), None);
        assert_eq!(order(&table), [1, 3, 4, 2]);
        assert_eq!(table.remove(ObjectId(3)), Some(0));
        assert_eq!(table.remove(ObjectId(3)), None);
        assert_eq!(table.remove(ObjectId(1)), Some(0));
        assert_eq!(order(&table), [4, 2]);
        table.insert(ObjectId(5), 7);
        assert_eq!((order(&table), table.len()), (alloc::vec![4, 2, 5], 3));
        assert_eq!(table.peek(ObjectId(5)), Some(&7));
        table.remove(ObjectId(5));
        table.remove(ObjectId(2));
        table.remove(ObjectId(4));
        assert!(order(&table).is_empty());
    }

    #[test]
    fn peeking_is_not_a_use() {
        let mut table = Recency::new();
        table.insert(ObjectId(1), 1_u8);
        table.insert(ObjectId(2), 2);
        *table.peek_mut(ObjectId(1)).unwrap() = 9;
        assert_eq!((table.peek(ObjectId(1)), order(&table)), (Some(&9), alloc::vec![1, 2]));
    }
}
