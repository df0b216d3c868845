//! Forgetting: keeps what is in memory of the store within its bound.
//!
//! Decides: which values go when memory is short: those not read since the hand of a clock passed them last. Place in the walk:
//! called once at the end of every turn.
//! Invariant: a value is forgotten only when the store has it and no question about it is under way, so an old answer never
//! takes the place of a newer value.
//! Leaves to others: everything that depends on the value (it is asked for again).

use super::directory::Directory;
use super::overlay::{BLOCK_WEIGHT, DIRECTORY_WEIGHT, OBJECT_WEIGHT, Overlay, Unit, block_key, block_len, name_len};
use super::slot::Known;
use super::{Key, Query};

/// Most steps of the clock's hand in one turn: bounds the time that a turn takes.
const TRIM_STEPS: usize = 4_096;

impl Overlay {
    /// Forgets clean values that were not used lately until memory is within its bound, in a bounded number of steps; and all that
    /// could not be read, so that it is asked for again. To be called at the end of every turn.
    pub fn trim(&mut self) {
        self.outcomes.clear();
        for unit in core::mem::take(&mut self.broken) {
            self.forget_broken(unit);
        }
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
                self.bytes -= slot.map_or(0, |slot| OBJECT_WEIGHT + name_len(&slot));
                true
            }
            Unit::Block(id, n) => {
                let pinned = self.asked.contains(&Query::Get(block_key(id, n)));
                if pinned || !self.blocks.get(&(id, n)).is_none_or(|slot| slot.idle(self.durable)) {
                    return false;
                }
                let slot = self.blocks.remove(&(id, n));
                self.bytes -= slot.map_or(0, |slot| BLOCK_WEIGHT + block_len(&slot));
                true
            }
            Unit::Directory(dir) => {
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
                }
            }
            Unit::Block(id, n) => {
                if self.blocks.get(&(id, n)).is_some_and(|slot| slot.known == Known::Broken) {
                    self.blocks.remove(&(id, n));
                    self.bytes -= BLOCK_WEIGHT;
                }
            }
            Unit::Directory(dir) => self.change_directory(dir, Directory::forget_broken),
        }
    }
}
