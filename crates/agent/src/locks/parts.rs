//! A map of numbers that grows in parts, so that no call moves more than a small share of it.
//!
//! Decides how many parts there are. Place in the walk: under the table of advisory locks and that of their holders.
//! Invariant: it is never iterated, so the same inputs give the same order. Leaves to others: what the numbers are.

use alloc::vec::Vec;
use hashbrown::HashMap;

/// Parts, as a power of two. With a million numbers one of them has sixteen thousand, which are moved in a fraction of a millisecond.
const PARTS_BITS: u32 = 6;
/// Numbers in a row that are in one part, as a power of two.
const RUN_BITS: u32 = 14;

/// Values by number.
#[derive(Debug)]
pub(super) struct Parts<V> {
    parts: Vec<HashMap<u64, V>>,
    len: usize,
}

impl<V: Copy> Parts<V> {
    pub(super) fn new() -> Self {
        Self { parts: (0..1 << PARTS_BITS).map(|_| HashMap::new()).collect(), len: 0 }
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The value of a number.
    pub(super) fn get(&self, number: u64) -> Option<V> {
        self.parts.get(part(number))?.get(&number).copied()
    }

    /// Sets the value of a number; gives the one that it had.
    pub(super) fn insert(&mut self, number: u64, value: V) -> Option<V> {
        let former = self.parts.get_mut(part(number))?.insert(number, value);
        self.len += usize::from(former.is_none());
        former
    }

    /// Takes a number out.
    pub(super) fn remove(&mut self, number: u64) -> Option<V> {
        let value = self.parts.get_mut(part(number))?.remove(&number)?;
        self.len -= 1;
        Some(value)
    }

    /// Frees one part of a map that is not asked any more, and those beside it that were never used.
    pub(super) fn let_go(&mut self) {
        let mut freed = false;
        while let Some(part) = self.parts.last() {
            let used = part.capacity() > 0;
            if used && freed {
                return;
            }
            freed |= used;
            self.parts.pop();
        }
    }

    /// Whether all of it is freed.
    pub(super) const fn is_gone(&self) -> bool {
        self.parts.is_empty()
    }
}

/// Numbers that follow one another share a part, so that what comes and goes uses memory that is there; a million of them fill all parts.
const fn part(number: u64) -> usize {
    (number >> RUN_BITS) as usize % (1 << PARTS_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_there_from_its_insertion_to_its_removal() {
        let mut parts = Parts::new();
        let all = 1 << (RUN_BITS + PARTS_BITS);
        assert!((0..all).step_by(8).all(|number| parts.insert(number, number * 3).is_none()));
        assert_eq!((parts.insert(8, 1), parts.len()), (Some(24), 131_072));
        assert_eq!((parts.remove(8), parts.remove(8), parts.get(8), parts.get(16)), (Some(1), None, None, Some(48)));
        assert_eq!(parts.len(), 131_071);
        let sizes: Vec<_> = parts.parts.iter().map(HashMap::len).collect();
        assert!(sizes.iter().all(|size| (2_047..=2_048).contains(size)), "{sizes:?}");
    }

    #[test]
    fn map_that_is_over_is_freed_a_used_part_at_a_time() {
        let mut parts = Parts::new();
        for number in [3 << RUN_BITS, 40 << RUN_BITS] {
            parts.insert(number, ());
        }
        parts.let_go();
        assert!(!parts.is_gone());
        assert_eq!((parts.get(3 << RUN_BITS), parts.get(40 << RUN_BITS)), (Some(()), None));
        parts.let_go();
        assert!(parts.is_gone());
    }
}
