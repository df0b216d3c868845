//! Time as the lease protocol needs it: one instant of two clocks, and the only safe questions to ask it.
//!
//! Decides when a lease is over and when a wait is over. MONOTONIC_RAW is never slewed by a time daemon but
//! stops while the machine sleeps; BOOTTIME goes on in sleep but may be slewed. Neither alone is a lease clock;
//! together they are: the agent's lease is over when *either* says so, the server has waited when *both* say so.
//! Invariant: every answer errs to the safe side of the one who asks, so δ covers oscillators only
//! (`wire-spec.md` section 11.1). An [`Instant`] has no order of its own, for the two readings may
//! disagree, and a comparison that does not say which question it asks would be wrong for one side.
//! Leaves to the driver: reading the clocks. Core code never does; it is given `now`.

use crate::bugs::{self, Bug};
use core::time::Duration;

/// One moment on this machine, as its two lease clocks read it.
///
/// Made by the driver's clock, by the simulator and by tests, nowhere else: protocol code only derives instants
/// from those it was given, by [`plus`](Self::plus) and [`max`](Self::max). Instants of different machines, or of
/// different boots of one machine, must never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant {
    /// CLOCK_MONOTONIC_RAW, in nanoseconds: never slewed, stands still while the machine sleeps.
    pub raw_ns: u64,
    /// CLOCK_BOOTTIME, in nanoseconds: goes on while the machine sleeps, may be slewed.
    pub boot_ns: u64,
}

impl Instant {
    /// The moment at which the two clocks read `raw_ns` and `boot_ns` nanoseconds; for drivers, simulator and tests.
    #[must_use]
    pub const fn new(raw_ns: u64, boot_ns: u64) -> Self {
        Self { raw_ns, boot_ns }
    }

    /// What the boot clock reads: for what only has to count time, and rests nothing on it.
    #[must_use]
    pub const fn uptime(self) -> Duration {
        Duration::from_nanos(self.boot_ns)
    }

    /// The moment `span` later by both clocks; saturates after 584 years of uptime, which is never reached.
    #[must_use]
    pub const fn plus(self, span: Duration) -> Self {
        let ns = whole_ns(span);
        Self { raw_ns: self.raw_ns.saturating_add(ns), boot_ns: self.boot_ns.saturating_add(ns) }
    }

    /// The later of two moments, reading by reading; keeps time given to a core from going back (section 11.1) and a
    /// renewed expiry from shrinking.
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        Self { raw_ns: larger(self.raw_ns, other.raw_ns), boot_ns: larger(self.boot_ns, other.boot_ns) }
    }

    /// The earlier of two moments, reading by reading.
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        Self { raw_ns: smaller(self.raw_ns, other.raw_ns), boot_ns: smaller(self.boot_ns, other.boot_ns) }
    }

    /// Whether a lease that ends at `end` is over now: true when *either* clock says so. The agent's question.
    ///
    /// At `end` itself the lease is over: it is good for `[send time, send time + τ)`.
    #[must_use]
    pub fn lease_over(self, end: Self) -> bool {
        self.raw_ns >= end.raw_ns || self.boot_ns >= end.boot_ns && !bugs::is(Bug::M10)
    }

    /// Whether a wait that lasts to `until` is over now: true only when *both* clocks say so. The server's question.
    #[must_use]
    pub const fn waited(self, until: Self) -> bool {
        self.raw_ns >= until.raw_ns && self.boot_ns >= until.boot_ns
    }

    /// How long from now a lease that ends at `end` can still be good: the smaller of the two remaining spans,
    /// zero when it is over.
    #[must_use]
    pub const fn until_lease_over(self, end: Self) -> Duration {
        let (raw, boot) = self.remaining(end);
        Duration::from_nanos(smaller(raw, boot))
    }

    /// How long from now a wait to `until` lasts at least: the larger of the two remaining spans, zero when it is over.
    #[must_use]
    pub const fn until_waited(self, until: Self) -> Duration {
        let (raw, boot) = self.remaining(until);
        Duration::from_nanos(larger(raw, boot))
    }

    /// The span since `earlier`: the smaller of the two differences, zero if either clock shows none. For round
    /// trips and displays, never for a lease.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        let (raw, boot) = earlier.remaining(self);
        Duration::from_nanos(smaller(raw, boot))
    }

    /// What each clock still has to count from here to `end`, in nanoseconds: raw, boot.
    const fn remaining(self, end: Self) -> (u64, u64) {
        (end.raw_ns.saturating_sub(self.raw_ns), end.boot_ns.saturating_sub(self.boot_ns))
    }
}

/// A span in nanoseconds, at most `u64::MAX`.
#[expect(clippy::cast_possible_truncation, reason = "the branch above leaves only values that fit")]
pub(crate) const fn whole_ns(span: Duration) -> u64 {
    let ns = span.as_nanos();
    if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 }
}

const fn larger(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

const fn smaller(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn at(raw_ms: u64, boot_ms: u64) -> Instant {
        Instant::new(raw_ms * MS, boot_ms * MS)
    }

    #[test]
    fn lease_is_over_when_either_clock_says_so() {
        let end = at(100, 100);
        assert!(!at(99, 99).lease_over(end));
        assert!(at(100, 0).lease_over(end), "raw alone");
        assert!(at(0, 100).lease_over(end), "boot alone: the machine slept");
        assert!(at(100, 100).lease_over(end), "the end itself no longer belongs to the lease");
    }

    #[test]
    fn wait_is_over_only_when_both_clocks_say_so() {
        let until = at(100, 100);
        assert!(!at(100, 99).waited(until));
        assert!(!at(99, 100).waited(until));
        assert!(at(100, 100).waited(until));
    }

    #[test]
    fn remaining_spans_err_to_the_safe_side_of_each_role() {
        let now = at(40, 70);
        let end = at(100, 100);
        assert_eq!(now.until_lease_over(end), Duration::from_millis(30));
        assert_eq!(now.until_waited(end), Duration::from_millis(60));
        assert_eq!(at(0, 200).until_lease_over(end), Duration::ZERO);
        assert_eq!(at(0, 200).until_waited(end), Duration::from_millis(100));
    }

    #[test]
    fn since_is_the_smaller_difference_and_never_negative() {
        assert_eq!(at(30, 90).since(at(10, 20)), Duration::from_millis(20));
        assert_eq!(at(30, 90).since(at(40, 20)), Duration::ZERO);
    }

    #[test]
    fn plus_saturates_instead_of_wrapping() {
        let late = Instant::new(u64::MAX - 5, 3);
        assert_eq!(late.plus(Duration::from_nanos(10)), Instant::new(u64::MAX, 13));
        assert_eq!(late.plus(Duration::MAX), Instant::new(u64::MAX, u64::MAX));
    }

    proptest! {
        #[test]
        fn a_wait_that_is_over_implies_a_lease_that_is_over(a: (u64, u64), b: (u64, u64)) {
            let (now, end) = (Instant::new(a.0, a.1), Instant::new(b.0, b.1));
            prop_assert!(!now.waited(end) || now.lease_over(end));
        }

        #[test]
        fn spans_are_zero_exactly_when_their_question_is_answered_yes(a: (u64, u64), b: (u64, u64)) {
            let (now, end) = (Instant::new(a.0, a.1), Instant::new(b.0, b.1));
            prop_assert_eq!(now.until_lease_over(end).is_zero(), now.lease_over(end));
            prop_assert_eq!(now.until_waited(end).is_zero(), now.waited(end));
        }

        #[test]
        fn sleeping_for_the_span_answers_the_question(a: (u32, u32), b: (u32, u32)) {
            let now = Instant::new(a.0.into(), a.1.into());
            let end = Instant::new(b.0.into(), b.1.into());
            prop_assert!(now.plus(now.until_lease_over(end)).lease_over(end));
            prop_assert!(now.plus(now.until_waited(end)).waited(end));
        }

        #[test]
        fn max_is_at_or_after_both(a: (u64, u64), b: (u64, u64)) {
            let (x, y) = (Instant::new(a.0, a.1), Instant::new(b.0, b.1));
            prop_assert!(x.max(y).waited(x) && x.max(y).waited(y));
            prop_assert_eq!(x.max(y), y.max(x));
        }
    }
}
