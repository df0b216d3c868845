//! The search for what goes on behind damage, in a window that grows while it is searched.
//!
//! Decides which places have to be looked at again when more has come: those alone that could not be judged before. Place: where a frame
//! says that it is longer than what there is (`blocks`, `classic`). Invariant: a place is judged once when it comes into the window, and once
//! for each end that it was waiting for, so that a source which gives its bytes one by one costs no more than one that gives them at once.
//! Leaves to others: what makes a place good.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What can be said of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Something whole begins here.
    Good,
    /// Nothing does, whatever comes.
    Bad,
    /// It can be said when the window has so many bytes.
    Later(usize),
    /// The window ends before anything can be said of it, or of what comes after it.
    Short,
}

/// A search, of which is remembered how far it came.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// Where in the source the window begins that is searched.
    offset: u64,
    /// The first place that was not judged.
    next: usize,
    /// Places that wait for the window to be so long.
    waiting: BinaryHeap<Reverse<(usize, usize)>>,
}

impl Search {
    /// The first good place behind the beginning of a window of `length` bytes that begins at `offset` of the source.
    pub(crate) fn find(&mut self, offset: u64, length: usize, judge: impl Fn(usize) -> Place) -> Option<usize> {
        if self.offset != offset {
            *self = Self { offset, ..Self::default() };
        }
        let mut found: Option<usize> = None;
        while let Some(Reverse((_, place))) = self.waiting.peek().copied().filter(|Reverse((needs, _))| *needs <= length) {
            self.waiting.pop();
            match judge(place) {
                Place::Good => found = Some(found.map_or(place, |found| found.min(place))),
                Place::Later(needs) => self.waiting.push(Reverse((needs.max(length + 1), place))),
                Place::Bad | Place::Short => {}
            }
        }
        for place in self.next.max(1)..length {
            match judge(place) {
                Place::Short => break,
                Place::Good => found = Some(found.map_or(place, |found| found.min(place))),
                Place::Later(needs) => self.waiting.push(Reverse((needs.max(length + 1), place))),
                Place::Bad => {}
            }
            self.next = place + 1;
            if found.is_some() {
                break;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn each_place_is_judged_once_however_often_the_window_grows() {
        let judged = Cell::new(0_usize);
        let mut search = Search::default();
        for length in 1..=10_000 {
            let place = |at: usize| {
                judged.set(judged.get() + 1);
                if at + 4 > length { Place::Short } else { Place::Bad }
            };
            assert_eq!(search.find(7, length, place), None);
        }
        assert!(judged.get() <= 20_000, "{} looks", judged.get());
    }

    #[test]
    fn place_that_waits_is_found_when_its_end_has_come_and_before_later_ones() {
        let mut search = Search::default();
        let place = |length: usize| {
            move |at: usize| match at {
                3 | 5 if length >= 20 => Place::Good,
                3 => Place::Later(20),
                5 => Place::Later(10),
                _ => Place::Bad,
            }
        };
        assert_eq!(search.find(0, 8, place(8)), None);
        assert_eq!(search.find(0, 12, place(12)), None);
        assert_eq!(search.find(0, 30, place(30)), Some(3));
        // Another window is another search.
        assert_eq!(search.find(9, 30, place(30)), Some(3));
    }
}
