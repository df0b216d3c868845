//! Round trips: how long to wait for an answer before asking again.
//!
//! Decides the retransmission timeout (RTO) and its back-off, by RFC 6298 in whole nanoseconds. Stands on the
//! way out of every message that is repeated until answered (`wire-spec.md` section 11.2).
//! Samples are unambiguous by construction: every answer echoes the one transmission that it answers, so the
//! caller subtracts that one's send time (Karn's problem does not arise).
//! Invariant: a wait is never shorter than the RTO and never longer than the cap, which is at most τ/8 while
//! locks are held, so that a healed network is noticed long before the lease ends.
//! Leaves to `congestion`: how many may be outstanding; to the caller: which message waits.

use crate::bugs::{self, Bug};
use core::time::Duration;

use crate::rng::Rng;
use crate::time::whole_ns;

const MS: u64 = 1_000_000;

/// The shortest timeout, unless the cap is shorter: below 20 ms the loop's own scheduling would look like loss.
pub const RTO_MIN: Duration = Duration::from_millis(20);

/// The timeout before anything was measured: longer than most round trips within a continent, shorter than
/// τ/8 of the default τ; a wrong guess costs one needless copy.
pub const RTO_INITIAL: Duration = Duration::from_millis(100);

/// The finest variation trusted: sleeping is done in whole milliseconds.
const GRANULARITY_NS: u64 = MS;

/// A longer sample tells of a stall, not of the network; it counts as this, so that one is soon outgrown.
const SAMPLE_MAX_NS: u64 = 10_000 * MS;

/// The estimate of one path's round trip.
#[derive(Clone, Debug)]
pub struct RoundTrip {
    measured: Option<Measured>,
    /// The timeout until something is measured.
    initial_ns: u64,
    cap_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    smoothed_ns: u64,
    variation_ns: u64,
}

impl Measured {
    /// RFC 6298, 2.2.
    const fn first(rtt_ns: u64) -> Self {
        Self { smoothed_ns: rtt_ns, variation_ns: rtt_ns / 2 }
    }

    /// Before the floor and the cap.
    fn timeout_ns(self) -> u64 {
        self.smoothed_ns + (4 * self.variation_ns).max(GRANULARITY_NS)
    }
}

impl RoundTrip {
    /// An estimate without samples, whose timeout is at most `cap` (above zero; τ/8 while locks are held, section 11.2).
    #[must_use]
    pub fn new(cap: Duration) -> Self {
        let mut estimate = Self { measured: None, initial_ns: whole_ns(RTO_INITIAL), cap_ns: 0 };
        estimate.set_cap(cap);
        estimate
    }

    /// An estimate without samples for a path on which another exchange took `rtt` or less, its retransmissions included: the first
    /// timeout is what RFC 6298 makes of that as a first sample. The first true sample replaces it.
    #[must_use]
    pub fn after(cap: Duration, rtt: Duration) -> Self {
        let mut estimate = Self::new(cap);
        estimate.initial_ns = Measured::first(whole_ns(rtt).min(SAMPLE_MAX_NS)).timeout_ns();
        estimate
    }

    /// Sets the longest timeout, above zero; called when the first lock comes, when the last goes, when τ changes.
    ///
    /// The cap wins over [`RTO_MIN`]: with τ below 160 ms the timeout is shorter than 20 ms.
    pub fn set_cap(&mut self, cap: Duration) {
        assert!(!cap.is_zero(), "without a wait nothing would stop retransmission");
        self.cap_ns = whole_ns(cap);
    }

    /// Takes one measured round trip: from the send time of the echoed transmission to the receipt of its answer.
    ///
    /// Give only answers that were made on receipt of what they echo: one that waited for a lock or a disk
    /// measures that wait.
    pub fn sample(&mut self, rtt: Duration) {
        let rtt_ns = whole_ns(rtt).min(SAMPLE_MAX_NS);
        self.measured = Some(match self.measured {
            None => Measured::first(rtt_ns),
            // RFC 6298, 2.3: the variation first, by the old mean; weights 1/4 and 1/8.
            Some(old) => Measured {
                variation_ns: (3 * old.variation_ns + old.smoothed_ns.abs_diff(rtt_ns)) / 4,
                smoothed_ns: (7 * old.smoothed_ns + rtt_ns) / 8,
            },
        });
    }

    /// The smoothed round trip; `None` before the first sample.
    #[must_use]
    pub fn smoothed(&self) -> Option<Duration> {
        self.measured.map(|m| Duration::from_nanos(m.smoothed_ns))
    }

    /// How long the first transmission of a message waits for its answer.
    #[must_use]
    pub fn rto(&self) -> Duration {
        Duration::from_nanos(self.rto_ns())
    }

    /// How long to wait after transmission number `attempt` of one message, the first being 0: the RTO, doubled
    /// for each attempt, spread upwards by up to a quarter, within the cap.
    ///
    /// Near the cap the spread goes downwards instead, but never below the RTO, so every transmission is given
    /// its RTO (section 11.3).
    #[must_use]
    pub fn backoff(&self, attempt: u32, rng: &mut Rng) -> Duration {
        let rto = self.rto_ns();
        if bugs::is(Bug::M49) {
            return Duration::from_nanos(rto);
        }
        let doubled = rto.checked_shl(attempt).filter(|ns| ns >> attempt == rto);
        let wait = doubled.unwrap_or(u64::MAX).min(self.cap_ns);
        let most = wait.saturating_add(wait / 4).min(self.cap_ns);
        let least = wait.min(self.cap_ns - self.cap_ns / 4).max(rto);
        let spread = rng.between(Duration::from_nanos(least), Duration::from_nanos(most));
        debug_assert!(whole_ns(spread) >= rto && whole_ns(spread) <= self.cap_ns);
        spread
    }

    fn rto_ns(&self) -> u64 {
        let wanted = self.measured.map_or(self.initial_ns, Measured::timeout_ns);
        wanted.max(whole_ns(RTO_MIN)).min(self.cap_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn without_samples_the_timeout_is_the_initial_one_within_the_cap() {
        assert_eq!(RoundTrip::new(ms(250)).rto(), RTO_INITIAL);
        assert_eq!(RoundTrip::new(ms(50)).rto(), ms(50));
        assert_eq!(RoundTrip::new(ms(250)).smoothed(), None);
    }

    #[test]
    fn exchange_of_another_kind_sets_the_timeout_until_the_first_sample() {
        let mut path = RoundTrip::after(ms(250), ms(30));
        assert_eq!((path.rto(), path.smoothed()), (ms(30 + 4 * 15), None));
        path.sample(ms(8));
        assert_eq!((path.rto(), path.smoothed()), (ms(8 + 4 * 4), Some(ms(8))));
        assert_eq!(RoundTrip::after(ms(250), Duration::from_micros(40)).rto(), RTO_MIN);
        assert_eq!(RoundTrip::after(ms(250), ms(400)).rto(), ms(250));
    }

    #[test]
    fn first_sample_sets_mean_and_half_of_it_as_variation() {
        let mut path = RoundTrip::new(ms(1_000));
        path.sample(ms(40));
        assert_eq!(path.smoothed(), Some(ms(40)));
        assert_eq!(path.rto(), ms(40 + 4 * 20));
    }

    #[test]
    fn further_samples_weigh_an_eighth_and_a_quarter() {
        let mut path = RoundTrip::new(ms(1_000));
        path.sample(ms(40));
        path.sample(ms(80));
        // Variation (3*20 + |40-80|)/4 = 25 ms, mean (7*40 + 80)/8 = 45 ms.
        assert_eq!(path.smoothed(), Some(ms(45)));
        assert_eq!(path.rto(), ms(45 + 4 * 25));
    }

    #[test]
    fn steady_path_comes_down_to_the_floor_and_keeps_the_granularity() {
        let mut fast = RoundTrip::new(ms(250));
        let mut slow = RoundTrip::new(ms(250));
        for _ in 0..200 {
            fast.sample(Duration::from_micros(50));
            slow.sample(ms(60));
        }
        assert_eq!(fast.rto(), RTO_MIN);
        assert!(slow.rto() >= ms(60) + Duration::from_millis(1), "above the round trip itself");
        assert!(slow.rto() < ms(62));
    }

    #[test]
    fn cap_wins_over_floor_and_samples() {
        let mut path = RoundTrip::new(ms(250));
        path.sample(ms(900));
        assert_eq!(path.rto(), ms(250));
        path.set_cap(ms(12));
        assert_eq!(path.rto(), ms(12), "a lease of 100 ms asks every 12.5 ms at least");
    }

    #[test]
    fn one_absurd_sample_is_outgrown() {
        let mut path = RoundTrip::new(ms(250));
        path.sample(Duration::MAX);
        for _ in 0..100 {
            path.sample(ms(1));
        }
        assert_eq!(path.rto(), RTO_MIN);
    }

    #[test]
    fn waits_double_until_the_cap() {
        let path = RoundTrip::new(ms(1_000));
        let mut rng = Rng::from_seed([1; 32]);
        for (attempt, least, most) in [(0, 100, 125), (1, 200, 250), (2, 400, 500), (3, 750, 1_000)] {
            for _ in 0..50 {
                let wait = path.backoff(attempt, &mut rng);
                assert!(wait >= ms(least) && wait <= ms(most), "attempt {attempt}: {wait:?}");
            }
        }
    }

    #[test]
    fn wait_is_never_shorter_than_the_rto_though_the_cap_is_near() {
        let mut path = RoundTrip::new(ms(250));
        path.sample(ms(75));
        assert_eq!(path.rto(), ms(225));
        let mut rng = Rng::from_seed([1; 32]);
        for attempt in 0..100 {
            assert!(path.backoff(attempt, &mut rng) >= ms(225));
        }
    }

    #[test]
    fn waits_at_the_cap_are_still_spread() {
        let path = RoundTrip::new(ms(400));
        let mut rng = Rng::from_seed([1; 32]);
        assert_ne!(path.backoff(9, &mut rng), path.backoff(9, &mut rng));
    }

    proptest! {
        #[test]
        fn every_wait_is_between_the_rto_and_the_cap(
            cap in 1u64..,
            samples in proptest::collection::vec(any::<u64>(), 0..20),
            attempt: u32,
            seed: [u8; 32],
        ) {
            let mut path = RoundTrip::new(Duration::from_nanos(cap));
            for rtt in samples {
                path.sample(Duration::from_nanos(rtt));
            }
            let wait = path.backoff(attempt, &mut Rng::from_seed(seed));
            prop_assert!(path.rto() <= wait && wait <= Duration::from_nanos(cap));
            prop_assert!(!path.rto().is_zero());
        }
    }
}
