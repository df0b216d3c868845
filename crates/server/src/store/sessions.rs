//! The records of sessions that the store has when the server starts.
//!
//! Decides: in which pages they are read, and that each of them is understood: a session that is not known of could lose its locks to
//! others before its time. Place in the walk: read once, while the server starts; never again.
//! Nothing of it is on the wire.
//! Invariant: what is taken out is all that there was, in order of the ids.
//! Leaves to others: what they are good for (`grace`).

use super::cache::StoreCache;
use super::{Answer, Query, ReadError, SessionRecord};
use alloc::vec;
use alloc::vec::Vec;
use cistern_wire::{SessionId, Status};

/// Records in a page: some 150 KiB of them.
const PAGE: u32 = 1_024;

/// What was read so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    records: Vec<(SessionId, SessionRecord)>,
    /// Whether there are no more.
    end: bool,
    /// Whether something could not be read.
    broken: bool,
}

impl Found {
    fn last(&self) -> SessionId {
        self.records.last().map_or(SessionId(0), |found| found.0)
    }

    /// Takes in what the store said of the sessions above `after`. False: it cannot be read.
    pub(super) fn loaded(&mut self, after: SessionId, answer: Answer) -> bool {
        if self.end || after != self.last() {
            return true;
        }
        let read = match answer {
            Answer::Sessions { records, end } => self.take(records, end),
            Answer::Value(_) | Answer::Entries { .. } | Answer::Ephemerals { .. } | Answer::Failed => None,
        };
        self.broken |= read.is_none();
        read.is_some()
    }

    fn take(&mut self, records: Vec<(SessionId, bytes::Bytes)>, end: bool) -> Option<()> {
        if records.is_empty() && !end {
            return None;
        }
        for (id, bytes) in records {
            let record = SessionRecord::from_bytes(&bytes).ok().filter(|_| id > self.last())?;
            self.records.push((id, record));
        }
        self.end = end;
        Some(())
    }
}

impl StoreCache {
    /// Makes sure that [`Self::take_sessions`] has all records of sessions that the store had at the start.
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    pub fn know_sessions(&self) -> Result<(), ReadError> {
        match &self.sessions {
            Found { broken: true, .. } => Err(ReadError::Failed(Status::EIO)),
            Found { end: true, .. } => Ok(()),
            found => Err(ReadError::NotCached(vec![Query::Sessions { after: found.last(), limit: PAGE }])),
        }
    }

    /// The records of sessions that the store had at the start, in order of the ids; empty the second time.
    pub fn take_sessions(&mut self) -> Vec<(SessionId, SessionRecord)> {
        core::mem::take(&mut self.sessions.records)
    }
}
