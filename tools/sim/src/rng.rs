//! The simulator's randomness: one seed chooses everything of a run, and parts that have nothing to do with each other draw apart.
//!
//! Decides how a seed becomes streams: each part forks its own by a label, and single decisions about datagrams come from
//! [`cistern_faults::roll`],
//! which has no state at all. Invariant: leaving one fault out of a plan changes nothing that the others draw, which is what makes
//! shrinking work; no other random source exists in this crate.
//! Leaves to others: what is drawn (`plan`, `net`, `host`, `users`).

use cistern_faults::{mix, scale};
use rand::rngs::ChaCha12Rng;
use rand::{Rng as _, SeedableRng};

/// A stream of random numbers that belongs to one part of a run.
#[derive(Debug)]
pub struct SimRng {
    key: u64,
    stream: ChaCha12Rng,
}

impl SimRng {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { key: seed, stream: ChaCha12Rng::seed_from_u64(seed) }
    }

    /// A stream for a part of its own; depends on this stream's seed and the label only, never on what was drawn.
    #[must_use]
    pub fn fork(&self, label: &str) -> Self {
        let key = label.bytes().fold(mix(self.key ^ 0x51E5), |key, byte| mix(key ^ u64::from(byte)));
        Self::new(key)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.stream.next_u64()
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        scale(self.next_u64(), bound)
    }

    /// A place in a list of `len`; 0 if it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// Whether something with this chance, in parts per million, happens.
    pub fn chance(&mut self, p_per_million: u64) -> bool {
        self.below(1_000_000) < p_per_million
    }

    /// A number in `least..=most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least).saturating_add(1))
    }

    /// A number in `least..=most`, small ones likelier: each order of magnitude as likely as any other.
    pub fn spread(&mut self, least: u64, most: u64) -> u64 {
        let (low, high) = (least.max(1).ilog2(), most.max(1).ilog2());
        let top = 1u64.checked_shl(u32::try_from(self.between(low.into(), high.into())).unwrap_or(0)).unwrap_or(u64::MAX);
        self.between(top, top.saturating_mul(2)).clamp(least, most)
    }

    /// One of a list, which must not be empty.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    /// A seed for a core.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.stream.fill_bytes(&mut seed);
        seed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fork_depends_on_the_label_and_not_on_what_was_drawn() {
        let mut rng = SimRng::new(7);
        let before = rng.fork("net").next_u64();
        rng.next_u64();
        assert_eq!(rng.fork("net").next_u64(), before);
        assert_ne!(rng.fork("disk").next_u64(), before);
        assert_ne!(SimRng::new(8).fork("net").next_u64(), before);
    }

    #[test]
    fn draws_stay_in_their_ranges_and_reach_both_ends() {
        let mut rng = SimRng::new(1);
        let drawn: Vec<u64> = (0..200).map(|_| rng.between(3, 5)).collect();
        assert!(drawn.iter().all(|n| (3..=5).contains(n)) && drawn.contains(&3) && drawn.contains(&5));
        assert!((0..1_000).all(|_| (10..=10_000).contains(&rng.spread(10, 10_000))));
        assert_eq!(rng.below(0), 0);
        assert!(!rng.chance(0) && rng.chance(1_000_000));
    }
}
