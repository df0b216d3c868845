//! The records of ephemeral files that the store has when the server starts.
//!
//! Decides: in which pages they are read, and that each of them is understood: one that is not known of would never be removed.
//! Place in the walk: read once, while the server starts; never again. Nothing of it is on the wire.
//! Invariant: what is taken out is all that there was, in order of the keys.
//! Leaves to others: what they are good for (`presence::ephemerals`).

use super::cache::StoreCache;
use super::{Answer, EphemeralRecord, Query, ReadError};
use alloc::vec;
use alloc::vec::Vec;
use cistern_wire::{Handle, ObjectId, Status};

/// Records in a page: some 100 KiB of them.
const PAGE: u32 = 4_096;

/// What was read so far.
#[derive(Debug, Default)]
pub(super) struct FoundEphemerals {
    records: Vec<((Handle, ObjectId), EphemeralRecord)>,
    /// Whether there are no more.
    end: bool,
    /// Whether something could not be read.
    broken: bool,
}

impl FoundEphemerals {
    fn last(&self) -> (Handle, ObjectId) {
        self.records.last().map_or((Handle(0), ObjectId(0)), |found| found.0)
    }

    /// Takes in what the store said of those after `after`. False: it cannot be read.
    pub(super) fn loaded(&mut self, after: (Handle, ObjectId), answer: Answer) -> bool {
        if self.end || after != self.last() {
            return true;
        }
        let read = match answer {
            Answer::Ephemerals { records, end } => self.take(records, end),
            _ => None,
        };
        self.broken |= read.is_none();
        read.is_some()
    }

    fn take(&mut self, records: Vec<((Handle, ObjectId), bytes::Bytes)>, end: bool) -> Option<()> {
        if records.is_empty() && !end {
            return None;
        }
        for (key, bytes) in records {
            let record = EphemeralRecord::from_bytes(&bytes).ok().filter(|_| key > self.last())?;
            self.records.push((key, record));
        }
        self.end = end;
        Some(())
    }
}

impl StoreCache {
    /// Makes sure that [`Self::take_ephemerals`] has all records of ephemeral files that the store had at the start.
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    pub fn know_ephemerals(&self) -> Result<(), ReadError> {
        match &self.ephemerals {
            FoundEphemerals { broken: true, .. } => Err(ReadError::Failed(Status::EIO)),
            FoundEphemerals { end: true, .. } => Ok(()),
            found => Err(ReadError::NotCached(vec![Query::Ephemerals { after: found.last(), limit: PAGE }])),
        }
    }

    /// The records of ephemeral files that the store had at the start, in order of their keys; empty the second time.
    pub fn take_ephemerals(&mut self) -> Vec<((Handle, ObjectId), EphemeralRecord)> {
        core::mem::take(&mut self.ephemerals.records)
    }
}
