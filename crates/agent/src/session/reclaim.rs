//! A reclaim under way: what is left to be named of each source, what was named and not answered.

use super::Sessions;
use crate::api::HolderId;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_wire::limits::RECLAIM_MAX;
use cistern_wire::{LockId, ReclaimItem, SessionId};

/// Messages of locks that are out at once; the congestion window lets so many go only on a path that carries them.
const BATCHES_MAX: usize = 32;

/// How far the end of a source is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Completion {
    /// Locks are still being moved.
    #[default]
    Open,
    /// RECLAIM_COMPLETE was handed over.
    Asked,
    /// Answered.
    Done,
}

/// A former session whose locks are taken over.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// Its locks that were not named in the present session yet.
    pub(crate) unnamed: BTreeSet<LockId>,
    pub(crate) completion: Completion,
    /// Its end was said in a session that is over, and was not seen to have had no effect.
    pub(crate) may_have_ended: bool,
    pub(crate) kept: u64,
    pub(crate) lost: u64,
}

impl Source {
    /// Whether locks of it wait to be named.
    pub(crate) fn has_unnamed(&self) -> bool {
        !self.unnamed.is_empty()
    }
}

/// Locks named in one RECLAIM that was not answered yet.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) from: SessionId,
    pub(crate) items: Vec<ReclaimItem>,
}

/// A reclaim under way.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    batches: BTreeMap<u32, Batch>,
    last_batch: u32,
    /// Local users who were told meanwhile that their locks are lost, and have not said that they stopped.
    pub(crate) stopping: BTreeSet<HolderId>,
}

impl Reclaim {
    /// The session is not the one any more in which this reclaim was made: what was named and not answered counts as not moved.
    pub(crate) fn restart(&mut self, sessions: &mut Sessions) {
        for (_, Batch { from, items }) in core::mem::take(&mut self.batches) {
            if let Some(source) = sessions.source_mut(from) {
                source.unnamed.extend(items.iter().map(|item| item.lock));
            }
        }
        sessions.reopen_sources();
    }

    /// The next locks to be named; those that were given back meanwhile are not among them, and those that cannot be are given too.
    pub(crate) fn take_unnamed(&self, sessions: &mut Sessions) -> Option<(SessionId, Vec<LockId>)> {
        if self.batches.len() >= BATCHES_MAX {
            return None;
        }
        let (from, source) = sessions.sources_mut().find(|(_, source)| source.has_unnamed())?;
        let mut locks = Vec::with_capacity(RECLAIM_MAX);
        while locks.len() < RECLAIM_MAX
            && let Some(lock) = source.unnamed.pop_first()
        {
            locks.push(lock);
        }
        Some((from, locks))
    }

    /// These locks are named in one message; gives its number.
    pub(crate) fn name(&mut self, from: SessionId, items: Vec<ReclaimItem>) -> u32 {
        self.last_batch += 1;
        self.batches.insert(self.last_batch, Batch { from, items });
        self.last_batch
    }

    pub(crate) fn batch(&self, number: u32) -> Option<&Batch> {
        self.batches.get(&number)
    }

    pub(crate) fn take_batch(&mut self, number: u32) -> Option<Batch> {
        self.batches.remove(&number)
    }

    /// Whether a message of locks is unanswered.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.batches.is_empty()
    }
}
