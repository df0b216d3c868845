//! How often something may be done for whoever has proven nothing.
//!
//! Invariant: over any span no more is allowed than it has intervals, plus the burst.

use crate::time::Instant;
use core::time::Duration;

/// A token bucket in whole nanoseconds.
#[derive(Debug)]
pub struct Rate {
    interval: Duration,
    /// How much of a credit for several intervals may be saved up.
    burst: Duration,
    /// When the bucket was last looked at, and the credit that was left then.
    last: Instant,
    credit: Duration,
}

impl Rate {
    /// One per `interval`, `burst` at once.
    #[must_use]
    pub fn new(now: Instant, interval: Duration, burst: u32) -> Self {
        let burst = interval * burst.max(1);
        Self { interval, burst, last: now, credit: burst }
    }

    /// Takes the right to send one answer, if there is one.
    pub fn allow(&mut self, now: Instant) -> bool {
        self.refill(now);
        match self.credit.checked_sub(self.interval) {
            Some(left) => {
                self.credit = left;
                true
            }
            None => false,
        }
    }

    /// Whether half of what can be saved up is there.
    pub fn is_half_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.credit >= self.burst / 2
    }

    fn refill(&mut self, now: Instant) {
        self.credit = (self.credit + now.since(self.last)).min(self.burst);
        self.last = self.last.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::new(ms * 1_000_000, ms * 1_000_000)
    }

    #[test]
    fn burst_then_one_per_interval() {
        let mut rate = Rate::new(at(0), Duration::from_millis(20), 2);
        let allowed = |rate: &mut Rate, ms| rate.allow(at(ms));
        assert!(allowed(&mut rate, 0) && allowed(&mut rate, 0));
        assert!(!allowed(&mut rate, 19));
        assert!(allowed(&mut rate, 20));
        assert!(!allowed(&mut rate, 39));
        assert!(allowed(&mut rate, 1_000) && allowed(&mut rate, 1_000) && !allowed(&mut rate, 1_000), "what is saved up is bounded");
    }
}
