//! One value of the store as the core knows it: what it is, and on which batch that knowledge rests.
//!
//! Decides: when a value is clean. Place in the walk: held by the cache and its directories.
//! Invariant: `batch` is the newest batch that wrote the value, 0 if it is as the store had it.
//! Leaves to others: which values are kept (`cache`).

use super::BatchId;
use core::cell::Cell;

/// What is known of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known<T> {
    /// It is this.
    Present(T),
    /// There is none.
    Absent,
    /// The store has something that cannot be read.
    Broken,
}

/// A value in memory.
#[derive(Debug)]
pub(super) struct Slot<T> {
    pub(super) known: Known<T>,
    pub(super) batch: BatchId,
    /// Whether it was read since the clock's hand passed it; a read needs no exclusive access to say so.
    pub(super) used: Cell<bool>,
}

impl<T> Slot<T> {
    /// As the store has it.
    pub(super) const fn loaded(known: Known<T>) -> Self {
        Self { known, batch: 0, used: Cell::new(true) }
    }

    /// As `batch` writes it; `None`: deleted.
    pub(super) fn written(value: Option<T>, batch: BatchId) -> Self {
        let known = value.map_or(Known::Absent, Known::Present);
        Self { known, batch, used: Cell::new(true) }
    }

    /// Whether the store has it, too, so that it may be forgotten.
    pub(super) const fn clean(&self, durable: BatchId) -> bool {
        self.batch <= durable
    }

    /// Whether it may be forgotten now; if it was used, that is noted as used up.
    pub(super) fn idle(&self, durable: BatchId) -> bool {
        !self.used.take() && self.clean(durable)
    }
}
