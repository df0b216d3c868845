//! Storage for many values of one size, named by small numbers.
//!
//! Decides: that it grows by pieces, so no growth copies a million values while agents wait, and that memory a value is what the
//! value needs.
//! Invariant: a number names one value from `insert` to `remove`; numbers are used again in a fixed order.
//! Leaves to others: what the values are, and how they are found ([`crate::index`]).

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// Names no value.
pub const NONE: u32 = u32::MAX;
/// Values in a piece.
const PIECE: usize = 1_024;

#[derive(Debug)]
enum Place<T> {
    Used(T),
    /// The next free one.
    Free(u32),
}

/// Values, by number.
#[derive(Debug)]
pub struct Slab<T> {
    pieces: Vec<Vec<Place<T>>>,
    free: u32,
    len: usize,
}

impl<T> Slab<T> {
    /// No values; allocates nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { pieces: Vec::new(), free: NONE, len: 0 }
    }

    /// How many values there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One more than the largest number that ever named a value.
    #[must_use]
    pub fn places(&self) -> u32 {
        let last = self.pieces.last().map_or(0, Vec::len);
        u32::try_from(self.pieces.len().saturating_sub(1) * PIECE + last).unwrap_or(NONE)
    }

    /// What the next value will be named.
    #[must_use]
    pub fn next_name(&self) -> u32 {
        if self.free == NONE { self.places() } else { self.free }
    }

    /// Takes a value in and names it.
    ///
    /// # Panics
    /// With 2^32 - 1 values, which the bounds of the tables exclude.
    #[inline]
    pub fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        let at = self.free;
        if at == NONE {
            return self.append(value);
        }
        let place = core::mem::replace(self.place(at), Place::Used(value));
        let Place::Free(next) = place else { unreachable!("a number on the free list names no value") };
        self.free = next;
        at
    }

    fn append(&mut self, value: T) -> u32 {
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        let full = (self.pieces.len() - 1) * PIECE;
        let piece = self.pieces.last_mut().expect("a piece with room was just made sure of");
        let at = u32::try_from(full + piece.len()).expect("the bounds of the tables are far below 2^32");
        piece.push(Place::Used(value));
        at
    }

    /// Gives a value back.
    ///
    /// # Panics
    /// If the number names none.
    pub fn remove(&mut self, at: u32) -> T {
        let next = self.free;
        let place = core::mem::replace(self.place(at), Place::Free(next));
        let Place::Used(value) = place else { unreachable!("removed twice") };
        self.free = at;
        self.len -= 1;
        value
    }

    /// The value of a number that may have been given back.
    #[inline]
    #[must_use]
    pub fn get(&self, at: u32) -> Option<&T> {
        let at = at as usize;
        match self.pieces.get(at / PIECE)?.get(at % PIECE)? {
            Place::Used(value) => Some(value),
            Place::Free(_) => None,
        }
    }

    /// The value of a number that may have been given back.
    #[inline]
    pub fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        let at = at as usize;
        match self.pieces.get_mut(at / PIECE)?.get_mut(at % PIECE)? {
            Place::Used(value) => Some(value),
            Place::Free(_) => None,
        }
    }

    fn place(&mut self, at: u32) -> &mut Place<T> {
        let at = at as usize;
        &mut self.pieces[at / PIECE][at % PIECE]
    }

    /// Memory of one value, in bytes.
    #[must_use]
    pub const fn size_of_one() -> usize {
        size_of::<Place<T>>()
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        self.get(at).expect("a number that is kept names a value")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        match self.place(at) {
            Place::Used(value) => value,
            Place::Free(_) => unreachable!("a number that is kept names a value"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_last_given_back_first() {
        let mut slab = Slab::new();
        let names: Vec<_> = (0..3_000).map(|n| slab.insert(n)).collect();
        assert_eq!(slab[names[2_500]], 2_500);
        assert_eq!((slab.remove(names[7]), slab.remove(names[2_000])), (7, 2_000));
        assert_eq!((slab.get(names[7]), slab.len()), (None, 2_998));
        assert_eq!(slab.next_name(), names[2_000]);
        assert_eq!((slab.insert(1), slab.insert(2)), (names[2_000], names[7]));
        assert_eq!(slab.next_name(), slab.insert(3));
        slab[names[7]] = 9;
        assert_eq!(slab[names[7]], 9);
    }
}
