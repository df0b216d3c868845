//! Whether etcd has room, by the size of its database and by what it refuses.
//!
//! Decides: from 80 % of the quota on only what takes something away is executed, and everything again below 75 %. etcd that has refused
//! once takes nothing, removals included, until its alarm is disarmed: there is room again when it has taken something.

use std::fmt;

/// Parts of a hundred of the quota from which on there is no room, and below which there is again.
const FULL: u64 = 80;
const AGAIN: u64 = 75;

/// The space of an etcd.
#[derive(Debug)]
pub(super) struct Space {
    quota: u64,
    size: u64,
    has_refused: bool,
    room: bool,
}

impl Space {
    /// Of an etcd with this quota, in bytes; it has room.
    pub(super) const fn new(quota: u64) -> Self {
        Self { quota, size: 0, has_refused: false, room: true }
    }

    /// Its database has this size; whether there is room, if that has changed.
    pub(super) fn is(&mut self, size: u64) -> Option<bool> {
        self.size = size;
        self.judged()
    }

    /// It has refused a transaction.
    pub(super) fn refused(&mut self) -> Option<bool> {
        self.has_refused = true;
        self.judged()
    }

    /// It has taken one.
    pub(super) fn written(&mut self) -> Option<bool> {
        self.has_refused = false;
        self.judged()
    }

    /// Bytes taken, bytes left, and whether there is room.
    pub(super) const fn figures(&self) -> (u64, u64, bool) {
        (self.size, self.quota.saturating_sub(self.size), self.room)
    }

    fn judged(&mut self) -> Option<bool> {
        let bound = self.quota / 100 * if self.room { FULL } else { AGAIN };
        let room = !self.has_refused && self.size < bound;
        let changed = room != self.room;
        self.room = room;
        changed.then_some(room)
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_refused {
            // Its size was read before.
            return f.write_str("etcd has no space");
        }
        write!(f, "etcd's database has {} bytes of {}", self.size, self.quota)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_room_from_80_percent_on_until_it_is_below_75() {
        let mut space = Space::new(1_000);
        let said: Vec<_> = [799, 800, 900, 760, 750, 749, 799].into_iter().map(|size| space.is(size)).collect();
        assert_eq!(said, [None, Some(false), None, None, None, Some(true), None]);
    }

    #[test]
    fn an_etcd_that_has_refused_has_room_when_it_has_taken_something() {
        let mut space = Space::new(1_000);
        assert_eq!((space.refused(), space.is(10), space.refused()), (Some(false), None, None));
        assert_eq!(space.written(), Some(true));
    }
}
