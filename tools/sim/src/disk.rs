//! The server's disk: what is durable, what is on its way there, and what a crash leaves.
//!
//! Decides the contents at every moment, and crash images: of the batches not yet durable a prefix may have reached the disk, since
//! a store makes batches durable in their order and each whole or not at all. Invariant: what was reported durable is never lost,
//! except by restoring an older copy, which is told to judges.
//! It reads and writes a map as a store in memory does (`cistern_server::store`), and is none: judges look at both sides of a crash.
//! Leaves to others: when a batch becomes durable and a question is answered (`host::server`), and which crash comes (`plan`).

use bytes::Bytes;
use cistern_server::store::{Answer, Batch, BatchId, Counter, Key, Query};
use cistern_wire::SessionId;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::Included;

/// The store's epoch; its bytes are in network order, so they compare as numbers do.
const EPOCH: Key = Key::Counter(Counter::Epoch);

/// What a disk holds.
type Values = BTreeMap<Key, Bytes>;

/// The disk under the server's store.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    durable: Values,
    pending: VecDeque<Batch>,
    copy: Option<Values>,
}

impl Disk {
    /// What a crash now would certainly leave.
    #[must_use]
    pub fn durable(&self, key: &Key) -> Option<&Bytes> {
        self.durable.get(key)
    }

    /// The value with batches that are not durable yet.
    #[must_use]
    pub fn latest(&self, key: &Key) -> Option<&Bytes> {
        let written = self.pending.iter().rev().find_map(|batch| batch.writes.iter().find(|(of, _)| of == key));
        match written {
            Some((_, value)) => value.as_ref(),
            None => self.durable.get(key),
        }
    }

    /// The records of sessions that are durable.
    pub fn durable_sessions(&self) -> impl Iterator<Item = (SessionId, &Bytes)> {
        let (first, last) = (Key::Session(SessionId(0)), Key::Session(SessionId(u64::MAX)));
        self.durable.range((Included(first), Included(last))).filter_map(|(key, value)| match key {
            Key::Session(session) => Some((*session, value)),
            _ => None,
        })
    }

    /// Every durable key and value, in order of keys.
    pub fn durable_values(&self) -> impl Iterator<Item = (&Key, &Bytes)> {
        self.durable.iter()
    }

    /// Batches that are not durable.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether nothing was ever made durable.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.durable.is_empty()
    }

    pub(crate) fn write(&mut self, batch: Batch) {
        self.pending.push_back(batch);
    }

    /// Makes the oldest batch durable.
    pub(crate) fn sync(&mut self) -> Option<BatchId> {
        let batch = self.pending.pop_front()?;
        let id = batch.id;
        batch.write_to(&mut self.durable);
        Some(id)
    }

    /// The power goes: the oldest `kept` of the batches not durable had reached the disk although nobody was told.
    pub(crate) fn crash(&mut self, kept: usize) {
        for _ in 0..kept {
            self.sync();
        }
        self.pending.clear();
    }

    /// Somebody copies the disk as it is.
    pub(crate) fn keep_copy(&mut self) {
        self.copy = Some(self.durable.clone());
    }

    /// The copy comes in the place of what is there, marked as restored, as whoever restores a store must mark it; false if there is
    /// none. The highest epoch that was ever durable is kept: a copy that is restored twice must not give the same epoch twice.
    pub(crate) fn restore_copy(&mut self) -> bool {
        let Some((mark, copy)) = self.copy.as_ref().and_then(|copy| Some((counter_of(copy, 1)?, copy.clone()))) else { return false };
        let epoch = self.durable.get(&EPOCH).max(copy.get(&EPOCH)).cloned();
        self.pending.clear();
        self.durable = copy;
        self.durable.insert(Key::Counter(Counter::Restored), mark);
        if let Some(epoch) = epoch {
            self.durable.insert(EPOCH, epoch);
        }
        true
    }

    /// The answer to a question from what is durable now.
    pub(crate) fn answer(&self, query: &Query) -> Answer {
        query.answer_from(&self.durable)
    }
}

/// A counter's record with this value, made like one that is there: its last eight bytes are the value. `None`: there is none, so
/// nothing was ever kept here.
fn counter_of(values: &Values, value: u64) -> Option<Bytes> {
    let mut record = Counter::ALL.iter().find_map(|counter| values.get(&Key::Counter(*counter)))?.to_vec();
    let at = record.len().checked_sub(8)?;
    record[at..].copy_from_slice(&value.to_be_bytes());
    Some(record.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key::Counter(Counter::Objects);

    #[test]
    fn restored_mark_is_a_record_like_the_others() {
        let values = Values::from([(KEY, Bytes::from_static(b"\x01\0\0\0\0\0\0\0\x09"))]);
        assert_eq!(counter_of(&values, 1).as_deref(), Some(&b"\x01\0\0\0\0\0\0\0\x01"[..]));
        assert_eq!(counter_of(&Values::new(), 1), None);
    }

    fn batch(id: BatchId, value: &'static [u8]) -> Batch {
        Batch { id, writes: vec![(KEY, Some(Bytes::from_static(value)))] }
    }

    fn written(disk: &Disk) -> Option<&[u8]> {
        disk.durable(&KEY).map(|value| &value[..])
    }

    #[test]
    fn crash_keeps_what_was_durable_and_a_prefix_of_the_rest() {
        for (kept, left) in [(0, &b"number one"[..]), (1, b"number two"), (2, b"number three"), (9, b"number three")] {
            let mut disk = Disk::default();
            disk.write(batch(1, b"number one"));
            disk.sync();
            disk.write(batch(2, b"number two"));
            disk.write(batch(3, b"number three"));
            assert_eq!((written(&disk), disk.latest(&KEY).unwrap().as_ref()), (Some(&b"number one"[..]), &b"number three"[..]));
            disk.crash(kept);
            assert_eq!(written(&disk), Some(left));
            assert_eq!((disk.pending(), disk.latest(&KEY)), (0, disk.durable(&KEY)));
            assert_eq!(disk.sync(), None);
        }
    }

    #[test]
    fn restoring_brings_back_the_copy_whole() {
        let mut disk = Disk::default();
        assert!(!disk.restore_copy());
        disk.write(batch(1, b"number one"));
        disk.sync();
        disk.keep_copy();
        disk.write(batch(2, b"number two"));
        disk.sync();
        disk.write(batch(3, b"number three"));
        assert!(disk.restore_copy());
        assert_eq!((written(&disk), disk.pending()), (Some(&b"number one"[..]), 0));
        assert!(disk.durable(&Key::Counter(Counter::Restored)).is_some());
    }
}
