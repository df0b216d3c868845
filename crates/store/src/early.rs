//! When a first part of what a turn writes is worth handing over before the turn ends.
//!
//! Two parts in turn, one executed and answered while the other is written and synced, need two syncs for one: they are faster than all
//! at once only where a sync takes less time than executing what is in flight. On a slower disk a turn ends first.

use std::time::{Duration, Instant};

/// Fewest keys that are handed over early: those of some 16 mutations. Below that a sync is most of what a batch costs on any disk, and one
/// for all is cheapest.
const WRITES_MIN: usize = 32;

/// The writes that are pending in this turn.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// When the first of them was seen.
    since: Option<Instant>,
}

impl Gathering {
    /// Whether `writes` pending keys have been gathered for half the time that the last commit took.
    pub(crate) fn is_enough(&mut self, writes: usize, commit: Duration, now: impl FnOnce() -> Instant) -> bool {
        if writes == 0 {
            return false;
        }
        let now = now();
        let since = *self.since.get_or_insert(now);
        writes >= WRITES_MIN && now.duration_since(since) >= commit / 2
    }

    /// They were handed over.
    pub(crate) const fn over(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_writes_are_handed_over_early_when_they_took_half_a_commit_to_gather() {
        let (begin, ms) = (Instant::now(), Duration::from_millis);
        let later = begin + ms(1);
        let mut gathering = Gathering::default();
        assert!(!gathering.is_enough(0, ms(0), || unreachable!("nothing is gathered")));
        assert!(!gathering.is_enough(1, ms(0), || begin), "what is little waits for the end of the turn");
        assert!(!gathering.is_enough(80, ms(2), || begin));
        assert!(!gathering.is_enough(80, ms(3), || later), "nothing was gathered for as long as half of 3 ms");
        assert!(gathering.is_enough(80, ms(2), || later));
        gathering.over();
        assert!(!gathering.is_enough(80, ms(2), || later));
    }
}
