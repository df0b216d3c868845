//! The objects whose advisory locks are in use, in order, for lists.
//!
//! Decides that objects made one after the other, as most are, share a node: 64 of them one bit each. Place in the walk: under `table`,
//! read by `rows`. Invariant: an object is in it while somebody holds its advisory lock or waits for it.
//! Leaves to others: who that is.

use alloc::collections::BTreeMap;
use cistern_wire::ObjectId;
use core::ops::RangeInclusive;

/// Objects of one node.
const NODE: u64 = 64;

/// A set of objects.
#[derive(Debug, Default)]
pub(super) struct ObjectSet {
    /// Under `n`: which of the objects from 64 n on are in it; never none of them.
    nodes: BTreeMap<u64, u64>,
}

impl ObjectSet {
    pub(super) fn insert(&mut self, object: ObjectId) {
        *self.nodes.entry(object.0 / NODE).or_default() |= 1 << (object.0 % NODE);
    }

    pub(super) fn remove(&mut self, object: ObjectId) {
        let node = object.0 / NODE;
        if let Some(bits) = self.nodes.get_mut(&node) {
            *bits &= !(1 << (object.0 % NODE));
            if *bits == 0 {
                self.nodes.remove(&node);
            }
        }
    }

    /// The objects of a range, in order.
    pub(super) fn range(&self, range: RangeInclusive<ObjectId>) -> impl Iterator<Item = ObjectId> {
        let nodes = self.nodes.range(range.start().0 / NODE..=range.end().0 / NODE);
        let all =
            nodes.flat_map(|(node, bits)| (0..NODE).filter(move |at| bits & (1 << at) != 0).map(move |at| ObjectId(node * NODE + at)));
        all.filter(move |object| range.contains(object))
    }

    /// Bytes of memory for one object of those that were made one after the other: a node's, half full, among 64.
    #[cfg(test)]
    pub(super) const fn size_of_one() -> usize {
        (2 * 2 * size_of::<u64>()).div_ceil(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn listed_agrees_with_a_plain_set(
            changes in proptest::collection::vec((0u64..400, any::<bool>()), 0..300),
            first in 0u64..400,
            len in 0u64..400,
        ) {
            let (mut listed, mut plain) = (ObjectSet::default(), BTreeSet::new());
            for (at, add) in changes {
                // Both ends of what an id may be.
                let object = ObjectId(if at < 200 { at } else { u64::MAX - (at - 200) });
                if add {
                    listed.insert(object);
                    plain.insert(object);
                } else {
                    listed.remove(object);
                    plain.remove(&object);
                }
            }
            for range in [ObjectId(first)..=ObjectId(first + len), ObjectId(0)..=ObjectId(u64::MAX)] {
                let found: Vec<_> = listed.range(range.clone()).collect();
                let wanted: Vec<_> = plain.range(range).copied().collect();
                prop_assert_eq!(found, wanted);
            }
        }
    }
}
