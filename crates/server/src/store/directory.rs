//! What is known of the entries of one directory.
//!
//! Decides: whether a name is known to be there, known to be absent, or not known. Place in the walk: held by the cache.
//! A name is known by itself (it was asked for or written), or because it lies in a range that was scanned whole.
//! Invariant: in a known range, every name that has no slot does not exist in the store; so absence needs no slot of its own,
//! and a page of a directory is read from memory only if it lies in one known range.
//! Leaves to others: asking the store, batches (`cache`).

use super::cache::{Known, Slot};
use super::{BatchId, EntryRecord};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use core::cell::Cell;
use core::ops::Bound::{Excluded, Unbounded};

/// Memory that one entry takes beside its name, in bytes: slot, key, and its share of a tree node.
const ENTRY_WEIGHT: usize = 80;
/// Memory that one range takes beside its names, in bytes.
const RANGE_WEIGHT: usize = 32;
/// Most entries that one step of the clock's hand lets go of: bounds the time of a step.
const SWEEP: usize = 64;
/// Most names that are looked at for one directory that is gone.
const LOOK_MAX: usize = 1_024;

/// Every name `n` with `after < n`, and `n <= to` if there is an end, is known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    after: Box<[u8]>,
    to: Option<Box<[u8]>>,
}

impl Range {
    fn weight(&self) -> usize {
        RANGE_WEIGHT + self.after.len() + self.to.as_ref().map_or(0, |to| to.len())
    }

    fn reaches(&self, name: &[u8]) -> bool {
        self.to.as_ref().is_none_or(|to| **to >= *name)
    }
}

/// The known entries of one directory.
#[derive(Debug, Default)]
pub(super) struct Directory {
    names: BTreeMap<Box<[u8]>, Slot<EntryRecord>>,
    /// Disjoint, not adjacent, in order.
    known: Vec<Range>,
    /// Questions about this directory that the store has not answered: until then nothing of it may be forgotten, or an old
    /// answer could take the place of a newer value.
    pub(super) pins: u32,
    /// Whether a scan came back unreadable.
    pub(super) broken: bool,
    used: Cell<bool>,
    weight: usize,
}

/// What a look at a page found.
pub(super) enum Page {
    /// The first entries wanted, or all to the end, are known; `newest` is the newest batch that wrote any name among them.
    Known { newest: BatchId },
    /// The names after this one have to be scanned first.
    After(Box<[u8]>),
}

impl Directory {
    /// The directory has just been made: all of it is known, and it is empty. Questions about it may have been asked before.
    pub(super) fn make(&mut self) {
        *self = Self { pins: self.pins, ..Self::default() };
        self.learn(Range { after: Box::from([]), to: None });
    }

    /// Memory that it takes, in bytes.
    pub(super) const fn weight(&self) -> usize {
        self.weight
    }

    /// What is known of a name; `None`: nothing.
    pub(super) fn get(&self, name: &[u8]) -> Option<(Known<EntryRecord>, BatchId)> {
        self.used.set(true);
        match self.names.get(name) {
            Some(slot) => Some((slot.known.clone(), slot.batch)),
            None if self.range_of(name).is_some_and(|range| range.reaches(name)) => Some((Known::Absent, 0)),
            None => None,
        }
    }

    /// The last range that begins before `name`.
    fn range_of(&self, name: &[u8]) -> Option<&Range> {
        let next = self.known.partition_point(|range| *range.after < *name);
        self.known.get(next.checked_sub(1)?)
    }

    /// Whether the first `max` entries after `after`, or all to the end, are known.
    pub(super) fn page(&self, after: &[u8], max: usize) -> Page {
        self.used.set(true);
        let mut newest = 0;
        let next = self.known.partition_point(|range| *range.after <= *after);
        let Some(range) = next.checked_sub(1).map(|at| &self.known[at]).filter(|range| range.reaches(after)) else {
            return Page::After(after.into());
        };
        let mut left = max;
        for (name, slot) in self.names.range::<[u8], _>((Excluded(after), Unbounded)) {
            if left == 0 {
                break;
            }
            if !range.reaches(name) {
                break;
            }
            newest = newest.max(slot.batch);
            if matches!(slot.known, Known::Present(_)) {
                left -= 1;
            }
        }
        match &range.to {
            Some(to) if left > 0 => Page::After(to.clone()),
            _ => Page::Known { newest },
        }
    }

    /// The entries after a name, in byte order, as far as they are known.
    pub(super) fn entries(&self, after: &[u8]) -> impl Iterator<Item = (&[u8], EntryRecord)> {
        let slots = self.names.range::<[u8], _>((Excluded(after), Unbounded));
        slots.filter_map(|(name, slot)| match &slot.known {
            Known::Present(entry) => Some((&**name, *entry)),
            _ => None,
        })
    }

    /// The slot of a name that a batch writes.
    pub(super) fn write(&mut self, name: &[u8], value: Option<EntryRecord>, batch: BatchId) -> BatchId {
        let slot = Slot::written(value, batch);
        match self.names.get_mut(name) {
            Some(old) => core::mem::replace(old, slot).batch,
            None => {
                self.insert(name.into(), slot);
                0
            }
        }
    }

    /// Takes in what the store said of one name, unless more is known already.
    pub(super) fn loaded(&mut self, name: &[u8], known: Known<EntryRecord>) {
        if self.get(name).is_none() {
            self.insert(name.into(), Slot::loaded(known));
        }
    }

    /// Takes in what the store said of the names after `after`. False: the answer cannot be right.
    pub(super) fn scanned(&mut self, after: &[u8], entries: Vec<(Box<[u8]>, Bytes)>, end: bool) -> bool {
        let mut last = Box::from(after);
        for (name, value) in entries {
            let Ok(entry) = EntryRecord::from_bytes(&value) else { return false };
            if name <= last {
                return false;
            }
            match self.names.get_mut(&name) {
                Some(slot) if slot.known == Known::Broken => slot.known = Known::Present(entry),
                Some(_) => {}
                None => self.insert(name.clone(), Slot::loaded(Known::Present(entry))),
            }
            last = name;
        }
        if *last == *after && !end {
            return false;
        }
        self.learn(Range { after: after.into(), to: (!end).then_some(last) });
        true
    }

    fn insert(&mut self, name: Box<[u8]>, slot: Slot<EntryRecord>) {
        self.weight += ENTRY_WEIGHT + name.len();
        self.names.insert(name, slot);
    }

    /// Adds a range, joined with those that it overlaps or touches.
    fn learn(&mut self, mut new: Range) {
        let first = self.known.partition_point(|range| !range.reaches(&new.after));
        let count = self.known[first..].partition_point(|range| new.reaches(&range.after));
        for old in self.known.drain(first..first + count) {
            self.weight -= old.weight();
            new.after = new.after.min(old.after);
            new.to = new.to.zip(old.to).map(|(a, b)| a.max(b));
        }
        self.weight += new.weight();
        self.known.insert(first, new);
    }

    /// A name was taken away, durably: where the range tells that it is absent, its slot need not. Otherwise a directory in which files
    /// come and go would be read past all that ever went. While a question is under way an old answer could bring it back.
    pub(super) fn forget_absent(&mut self, name: &[u8], durable: BatchId) {
        let gone = |slot: &Slot<EntryRecord>| slot.known == Known::Absent && slot.clean(durable);
        let told = self.pins == 0 && self.range_of(name).is_some_and(|range| range.reaches(name));
        if told && self.names.get(name).is_some_and(gone) {
            self.names.remove(name);
            self.weight -= ENTRY_WEIGHT + name.len();
        }
    }

    /// Whether nothing of a directory that is gone has to be known any more. One of which very many names are known is left to the hand.
    pub(super) fn is_over(&self, durable: BatchId) -> bool {
        self.pins == 0 && self.names.len() <= LOOK_MAX && self.names.values().all(|slot| slot.clean(durable))
    }

    /// What is written for a name when a batch is sealed.
    pub(super) fn sealed(&self, name: &[u8]) -> Option<Bytes> {
        match &self.names.get(name)?.known {
            Known::Present(entry) => Some(entry.to_bytes().into()),
            _ => None,
        }
    }

    /// Lets go of some clean names, if nothing used the directory since the last time. True: nothing is left of it.
    pub(super) fn sweep(&mut self, durable: BatchId) -> bool {
        if self.used.take() || self.pins > 0 {
            return false;
        }
        // Names are about to be missing from every range.
        self.weight -= self.known.drain(..).map(|range| range.weight()).sum::<usize>();
        let clean = self.names.iter().filter(|(_, slot)| slot.clean(durable)).take(SWEEP);
        let names: Vec<_> = clean.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.weight -= ENTRY_WEIGHT + name.len();
            self.names.remove(&name);
        }
        self.names.is_empty()
    }

    /// Forgets names that could not be read, so that they are asked for again.
    pub(super) fn forget_broken(&mut self) {
        self.broken = false;
        self.weight -= self.known.drain(..).map(|range| range.weight()).sum::<usize>();
        let weight = &mut self.weight;
        self.names.retain(|name, slot| {
            let keep = slot.known != Known::Broken;
            if !keep {
                *weight -= ENTRY_WEIGHT + name.len();
            }
            keep
        });
    }
}
