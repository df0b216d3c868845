//! Forgetting: keeps what is in memory of the store within its bound.
//!
//! Decides: which values go when memory is short: those not read since the hand of a clock passed them last; and that what was taken away
//! goes as soon as that is durable. Place in the walk: called once at the end of every turn, and when a batch is durable.
//! Invariant: a value is forgotten only when the store has it and no question about it is under way, so an old answer never
//! takes the place of a newer value.
//! Leaves to others: everything that depends on the value (it is asked for again).

use super::cache::{BLOCK_WEIGHT, DIRECTORY_WEIGHT, Deleted, OBJECT_WEIGHT, StoreCache, Unit, block_key, block_len, name_len};
use super::directory::Directory;
use super::slot::{Known, Slot};
use super::{Key, Query};
use cistern_wire::ObjectId;

/// Most steps of the clock's hand in one turn: bounds the time that a turn takes.
const TRIM_STEPS: usize = 4_096;
/// Most steps in one turn on which the hand looks for what is in memory no more.
const CLEAR_STEPS: usize = 256;

impl StoreCache {
    /// Forgets clean values that were not used lately until memory is within its bound, in a bounded number of steps; and all that
    /// could not be read, so that it is asked for again. To be called at the end of every turn.
    pub fn trim(&mut self) {
        self.outcomes.clear();
        for unit in core::mem::take(&mut self.broken) {
            self.forget_broken(unit);
        }
        self.clear_ring();
        for _ in 0..TRIM_STEPS {
            if self.bytes <= self.limits.bytes_max {
                return;
            }
            let Some(unit) = self.ring.pop_front() else { return };
            if !self.forget(unit) {
                self.ring.push_back(unit);
            }
        }
    }

    /// Moves the hand on while half of the ring is left behind: each step has an even chance to take a place away.
    fn clear_ring(&mut self) {
        for _ in 0..CLEAR_STEPS {
            if self.left_behind * 2 <= self.ring.len() {
                return;
            }
            let Some(unit) = self.ring.pop_front() else { return };
            let there = match unit {
                Unit::Object(id) => self.objects.contains_key(id),
                Unit::Block(id, n) => self.blocks.contains_key(&(id, n)),
                Unit::Directory(dir) => self.directories.contains_key(&dir),
            };
            if there {
                self.ring.push_back(unit);
            } else {
                self.left_behind -= 1;
            }
        }
    }

    /// What was taken away is durably so: the store knows, and memory need not. While a question about it is under way an old answer could
    /// bring it back.
    pub(super) fn forget_deleted(&mut self, deleted: Deleted) {
        let durable = self.durable;
        match deleted {
            Deleted::Name(dir, name) => {
                if self.directories.contains_key(&dir) {
                    self.change_directory(dir, |directory| directory.forget_absent(&name, durable));
                }
            }
            Deleted::Object(id) => {
                if self.objects.get(id).is_some_and(|slot| is_gone(slot, durable)) && !self.asked.contains(&Query::Get(Key::Object(id))) {
                    self.objects.remove(id);
                    self.bytes -= OBJECT_WEIGHT;
                    self.left_behind += 1;
                    self.forget_directory(id);
                }
            }
            Deleted::Block(id, n) => {
                let gone = self.blocks.get(&(id, n)).is_some_and(|slot| is_gone(slot, durable));
                if gone && !self.asked.contains(&Query::Get(block_key(id, n))) {
                    self.blocks.remove(&(id, n));
                    self.bytes -= BLOCK_WEIGHT;
                    self.left_behind += 1;
                }
            }
        }
    }

    /// The directory itself is gone: nobody asks for a name in it.
    fn forget_directory(&mut self, dir: ObjectId) {
        let durable = self.durable;
        if self.directories.get(&dir).is_some_and(|directory| directory.is_over(durable))
            && let Some(directory) = self.directories.remove(&dir)
        {
            self.bytes -= DIRECTORY_WEIGHT + directory.weight();
            self.left_behind += 1;
        }
    }

    /// Forgets all that is clean, for tests.
    #[cfg(test)]
    pub(crate) fn forget_everything(&mut self) {
        let bound = core::mem::take(&mut self.limits.bytes_max);
        for _ in 0..3 {
            self.trim();
        }
        self.limits.bytes_max = bound;
    }

    /// Forgets a unit if it may be; a directory perhaps only in part. False: something of it is left.
    fn forget(&mut self, unit: Unit) -> bool {
        match unit {
            Unit::Object(id) => {
                let pinned = self.asked.contains(&Query::Get(Key::Object(id)));
                if pinned || !self.objects.get(id).is_none_or(|slot| slot.idle(self.durable)) {
                    return false;
                }
                let slot = self.objects.remove(id);
                self.left_behind -= usize::from(slot.is_none()).min(self.left_behind);
                self.bytes -= slot.map_or(0, |slot| OBJECT_WEIGHT + name_len(&slot));
                true
            }
            Unit::Block(id, n) => {
                let pinned = self.asked.contains(&Query::Get(block_key(id, n)));
                if pinned || !self.blocks.get(&(id, n)).is_none_or(|slot| slot.idle(self.durable)) {
                    return false;
                }
                let slot = self.blocks.remove(&(id, n));
                self.left_behind -= usize::from(slot.is_none()).min(self.left_behind);
                self.bytes -= slot.map_or(0, |slot| BLOCK_WEIGHT + block_len(&slot));
                true
            }
            Unit::Directory(dir) => {
                if !self.directories.contains_key(&dir) {
                    self.left_behind -= 1.min(self.left_behind);
                    return true;
                }
                let durable = self.durable;
                let gone = self.change_directory(dir, |directory| directory.sweep(durable));
                if gone {
                    self.directories.remove(&dir);
                    self.bytes -= DIRECTORY_WEIGHT;
                }
                gone
            }
        }
    }

    /// A place in the ring may be left behind; the hand passes it without effect.
    fn forget_broken(&mut self, unit: Unit) {
        match unit {
            Unit::Object(id) => {
                if self.objects.get(id).is_some_and(|slot| slot.known == Known::Broken) {
                    self.objects.remove(id);
                    self.bytes -= OBJECT_WEIGHT;
                    self.left_behind += 1;
                }
            }
            Unit::Block(id, n) => {
                if self.blocks.get(&(id, n)).is_some_and(|slot| slot.known == Known::Broken) {
                    self.blocks.remove(&(id, n));
                    self.bytes -= BLOCK_WEIGHT;
                    self.left_behind += 1;
                }
            }
            Unit::Directory(dir) => self.change_directory(dir, Directory::forget_broken),
        }
    }
}

/// Whether the store knows, too, that there is none.
fn is_gone<T: PartialEq>(slot: &Slot<T>, durable: super::BatchId) -> bool {
    slot.known == Known::Absent && slot.clean(durable)
}
