//! Commits: how many batches became durable together, and how long that took.
//!
//! Decides: that a commit is one word of the store, whatever the engine made of it. Place in the walk: beside `durability`, which hands
//! batches over and hears of them. Invariant: a batch is in flight, or counted in exactly one commit.
//! Leaves to others: the engine's own figures (`cistern-store`).

use super::histogram::Histogram;
use super::served::WAIT_BOUNDS_NS;
use alloc::vec::Vec;

/// What the store has made durable.
#[derive(Clone, Debug)]
pub struct Commits {
    /// Batches handed over and not known to be durable: number and time of handing over.
    flying: Vec<(u64, u64)>,
    /// Batches handed over.
    pub batches: u64,
    /// Keys that they wrote.
    pub writes: u64,
    /// Bytes of keys and values that they wrote.
    pub bytes: u64,
    /// How many batches became durable together.
    sizes: Histogram<{ SIZE_BOUNDS.len() }>,
    /// From the handing over of the oldest of them until the word that they are durable, in nanoseconds.
    times: Histogram<{ WAIT_BOUNDS_NS.len() }>,
}

/// Bounds of the number of batches in a commit.
pub const SIZE_BOUNDS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

impl Default for Commits {
    fn default() -> Self {
        Self {
            flying: Vec::new(),
            batches: 0,
            writes: 0,
            bytes: 0,
            sizes: Histogram::new(&SIZE_BOUNDS),
            times: Histogram::new(&WAIT_BOUNDS_NS),
        }
    }
}

impl Commits {
    pub(crate) fn handed_over(&mut self, batch: u64, now_ns: u64, writes: usize, bytes: usize) {
        self.flying.push((batch, now_ns));
        self.batches += 1;
        self.writes += writes as u64;
        self.bytes += bytes as u64;
    }

    pub(crate) fn durable(&mut self, batch: u64, now_ns: u64) {
        let done = self.flying.partition_point(|flying| flying.0 <= batch);
        if let Some((_, since)) = self.flying.drain(..done).next() {
            self.sizes.add(done as u64);
            self.times.add(now_ns.saturating_sub(since));
        }
    }

    /// Batches that the store has and has not made durable.
    #[must_use]
    pub fn flying(&self) -> usize {
        self.flying.len()
    }

    /// How many batches became durable together, each time.
    #[must_use]
    pub const fn sizes(&self) -> &Histogram<{ SIZE_BOUNDS.len() }> {
        &self.sizes
    }

    /// How long it took each time, in nanoseconds.
    #[must_use]
    pub const fn times(&self) -> &Histogram<{ WAIT_BOUNDS_NS.len() }> {
        &self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_become_durable_at_once_are_one_commit_timed_from_the_oldest() {
        let mut commits = Commits::default();
        for (batch, at) in [(1, 100), (2, 200), (3, 300)] {
            commits.handed_over(batch, at, 2, 50);
        }
        commits.durable(2, 1_100);
        assert_eq!((commits.flying(), commits.sizes().count(), commits.sizes().sum(), commits.times().sum()), (1, 1, 2, 1_000));
        commits.durable(2, 1_200);
        assert_eq!(commits.sizes().count(), 1, "said twice is one");
        commits.durable(u64::MAX, 1_300);
        assert_eq!((commits.flying(), commits.sizes().sum(), commits.batches, commits.writes, commits.bytes), (0, 3, 3, 6, 150));
    }
}
