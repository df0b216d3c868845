//! An index by hash: finds the places of values that are kept elsewhere.
//!
//! Decides how a table of millions is searched and how it grows: in parts, each of which doubles by itself, so that no turn of the loop
//! moves more than a small share of it. A place costs 8 bytes and one of control; growing looks at no value, for the hash is kept.
//! Place in the walk: under the server's tables of sessions, locks and objects; nothing of it is on the wire.
//! Invariant: a place is in it from `insert` to `remove`. Leaves to others: the values, and whether two of them are the same.

use alloc::boxed::Box;
use alloc::vec::Vec;
use hashbrown::HashTable;

/// Parts. With ten million places one of them has forty thousand, which are moved in less than a millisecond.
const PARTS: usize = 256;

/// A place, and enough of the hash to move it without looking at what is there.
#[derive(Debug)]
struct Indexed {
    hash: u32,
    at: u32,
}

/// Places by hash; for tables that may grow to millions while agents wait for answers.
#[derive(Debug)]
pub struct Index {
    parts: Box<[HashTable<Indexed>]>,
}

impl Default for Index {
    fn default() -> Self {
        // With room for a place or two each: what comes and goes all the time allocates nothing.
        Self { parts: (0..PARTS).map(|_| HashTable::with_capacity(1)).collect::<Vec<_>>().into() }
    }
}

impl Index {
    /// The place under `hash` that `is_it` knows, if there is one.
    #[inline]
    pub fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let found = self.parts[part(hash)].find(spread(hash), |place| place.hash == hash && is_it(place.at));
        found.map(|place| place.at)
    }

    /// Takes in a place that is not in it.
    pub fn insert(&mut self, hash: u32, at: u32) {
        self.parts[part(hash)].insert_unique(spread(hash), Indexed { hash, at }, |place| spread(place.hash));
    }

    /// Takes a place out, if it is in it.
    pub fn remove(&mut self, hash: u32, at: u32) {
        if let Ok(found) = self.parts[part(hash)].find_entry(spread(hash), |place| place.at == at) {
            found.remove();
        }
    }

    /// Bytes of memory for one place, when the index is as full as it is on the average: a part that has just doubled is 7/16 full, one
    /// that is about to double 7/8.
    #[must_use]
    pub const fn size_of_one() -> usize {
        (size_of::<Indexed>() + 1) * 32 / 21
    }
}

const fn part(hash: u32) -> usize {
    (hash >> 24) as usize
}

/// The 64 bits that a part wants, of which it uses the highest and the lowest.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// A hash of numbers that are given out one after the other: the mixing of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
#[must_use]
pub const fn hash(a: u64, b: u64) -> u32 {
    let mut x = a ^ b.rotate_right(8);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (x >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_found_from_its_insertion_to_its_removal_also_beside_others_of_the_same_hash() {
        let mut index = Index::default();
        for at in 0..10_000 {
            index.insert(hash(u64::from(at) / 2, 0), at);
        }
        for at in 0..10_000 {
            assert_eq!(index.find(hash(u64::from(at) / 2, 0), |found| found == at), Some(at));
        }
        index.remove(hash(21, 0), 42);
        assert_eq!(index.find(hash(21, 0), |found| found == 42), None);
        assert_eq!(index.find(hash(21, 0), |_| true), Some(43));
    }

    #[test]
    fn numbers_given_out_one_after_the_other_come_into_all_parts_alike() {
        let mut index = Index::default();
        for at in 0..256_000 {
            index.insert(hash(u64::from(at), 1), at);
        }
        let sizes: Vec<_> = index.parts.iter().map(HashTable::len).collect();
        assert!(sizes.iter().all(|size| (800..1_200).contains(size)), "{sizes:?}");
    }
}
