//! What waits until a batch is durable.

use super::BatchId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Items by the batch for which they wait; those of one batch leave in order of arrival.
#[derive(Debug)]
pub(crate) struct AfterCommit<T>(BTreeMap<BatchId, Vec<T>>);

impl<T> AfterCommit<T> {
    /// Nothing waits.
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Keeps an item until `batch` is durable.
    pub(crate) fn push(&mut self, batch: BatchId, item: T) {
        self.0.entry(batch).or_default().push(item);
    }

    /// Takes what waits for the oldest batch, if that is not above `durable`.
    pub(crate) fn pop(&mut self, durable: BatchId) -> Option<Vec<T>> {
        self.0.first_entry().filter(|first| *first.key() <= durable).map(|first| first.remove())
    }

    /// How many wait; a gauge.
    pub(crate) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}
