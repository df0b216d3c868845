//! What a store on etcd has done, in the figures of every store.

use super::space::Space;
use bytes::Bytes;
use cistern_server::store::{Batch, BatchId};
use cistern_store::CommitStats;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts, for the server's loop and the store's thread.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    stats: CommitStats,
    /// Batches that are not durable.
    waiting: VecDeque<BatchId>,
}

impl Counts {
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn handed_over(&self, batch: &Batch) {
        let mut counted = self.lock();
        counted.waiting.push_back(batch.id);
        counted.stats.writes += batch.writes.len() as u64;
        counted.stats.bytes +=
            batch.writes.iter().map(|(key, value)| key.encoded_len() + value.as_ref().map_or(0, Bytes::len)).sum::<usize>() as u64;
    }

    /// Batches up to this one are durable by one commit, of which the last transaction took so long.
    pub(super) fn durable(&self, up_to: BatchId, took: Duration) {
        let mut counted = self.lock();
        let before = counted.waiting.len();
        counted.waiting.retain(|batch| *batch > up_to);
        let batches = before - counted.waiting.len();
        counted.stats.commit(took, batches as u64);
    }

    pub(super) fn read(&self, failed: bool) {
        let mut counted = self.lock();
        counted.stats.reads += 1;
        counted.stats.failed_reads += u64::from(failed);
    }

    pub(super) fn space(&self, space: &Space) {
        let mut counted = self.lock();
        (counted.stats.used, counted.stats.free, counted.stats.room) = space.figures();
    }

    pub(super) fn stats(&self) -> CommitStats {
        self.lock().stats
    }
}
