//! The lease: from when until when the agent may act on its locks and its cache.
//!
//! Decides: the one question `usable`, by comparing now with one stored instant, and the phases. Implements `wire-spec.md` section
//! 11.1. Place in the walk: `incoming` renews it by the echo of an answer; everything that serves or grants asks it.
//! Invariant I3: the lease ends no later than the send time of a transmission that the server's application answered, plus τ; it
//! is renewed by `renew` and by nothing else, and never shortened by a late answer.
//! Leaves to others: finding that send time (`session`), what is done in each phase (`renewal`).

use crate::api::Phase;
use crate::config::Phases;
use cistern_link::Instant;
use core::time::Duration;

/// The lease of one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    /// τ.
    period: Duration,
    /// Where the phases end, in parts per million of τ.
    phases: [u32; 4],
    /// Send time of the newest transmission that was answered; `None`: there is no lease.
    from: Option<Instant>,
}

impl Lease {
    /// No lease yet.
    pub(crate) const fn new(phases: Phases) -> Self {
        let phases = [phases.valid_ppm, phases.renewing_ppm, phases.suspect_ppm, phases.flush_ppm];
        Self { period: Duration::ZERO, phases, from: None }
    }

    /// A session with lease period `period` is open; the lease begins with the first renewal.
    pub(crate) const fn begin(&mut self, period: Duration) {
        self.period = period;
        self.from = None;
    }

    /// The session is over, and the lease with it.
    pub(crate) const fn end(&mut self) {
        self.from = None;
    }

    /// The server's application has answered the transmission sent at `sent_at`: expiry := max(expiry, sent_at + τ).
    //= wire-spec.md#11.1
    pub(crate) fn renew(&mut self, sent_at: Instant) {
        self.from = Some(self.from.map_or(sent_at, |from| from.max(sent_at)));
    }

    /// τ; zero without a session.
    pub(crate) const fn period(&self) -> Duration {
        self.period
    }

    /// The first instant that is not in the lease any more.
    pub(crate) fn expiry(&self) -> Option<Instant> {
        self.from.map(|from| from.plus(self.period))
    }

    /// Where the `n`th phase ends, 0 for *valid*.
    pub(crate) fn phase_end(&self, n: usize) -> Option<Instant> {
        // Rounded down: a phase that ends early is safe (R13).
        let span = self.period * *self.phases.get(n)? / 1_000_000;
        self.from.map(|from| from.plus(span))
    }

    /// Whether the agent may use its cache and its locks now. The check to make at the moment of use.
    pub(crate) fn usable(&self, now: Instant) -> bool {
        self.expiry().is_some_and(|expiry| !now.lease_over(expiry))
    }

    /// Whether an operation or a local grant may start under the lease now: not in *suspect* or later (R19).
    pub(crate) fn starts(&self, now: Instant) -> bool {
        self.phase_end(1).is_some_and(|end| !now.lease_over(end))
    }

    /// The phase at an instant.
    pub(crate) fn phase(&self, now: Instant) -> Phase {
        let over = |n| self.phase_end(n).is_none_or(|end| now.lease_over(end));
        match () {
            () if self.from.is_none() => Phase::NoSession,
            () if !self.usable(now) => Phase::Expired,
            () if !over(0) => Phase::Valid,
            () if !over(1) => Phase::Renewing,
            () if !over(2) => Phase::Suspect,
            () => Phase::Flush,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAU: Duration = Duration::from_secs(2);

    fn at(ms: u64) -> Instant {
        Instant::new(ms * 1_000_000, ms * 1_000_000)
    }

    fn lease() -> Lease {
        let mut lease = Lease::new(Phases::default());
        lease.begin(TAU);
        lease
    }

    #[test]
    fn the_lease_is_from_the_send_time_to_tau_later_and_not_at_its_end() {
        let mut lease = lease();
        assert!(!lease.usable(at(0)), "there is no lease before an answer");
        lease.renew(at(100));
        assert!(lease.usable(at(2_099)));
        assert!(!lease.usable(at(2_100)));
    }

    #[test]
    fn a_late_answer_to_an_early_transmission_does_not_shorten_the_lease() {
        let mut lease = lease();
        lease.renew(at(500));
        lease.renew(at(100));
        assert_eq!(lease.expiry(), Some(at(2_500)));
    }

    #[test]
    fn a_machine_that_slept_finds_its_lease_over_although_its_raw_clock_stood_still() {
        let mut lease = lease();
        lease.renew(at(0));
        assert!(!lease.usable(Instant::new(1_000_000, 2_000_000_000)));
    }

    #[test]
    fn the_phases_follow_each_other_and_only_the_first_two_let_operations_start() {
        let mut lease = lease();
        assert_eq!(lease.phase(at(0)), Phase::NoSession);
        lease.renew(at(0));
        for (ms, phase, starts) in [
            (0, Phase::Valid, true),
            (1_199, Phase::Valid, true),
            (1_200, Phase::Renewing, true),
            (1_600, Phase::Suspect, false),
            (1_760, Phase::Flush, false),
            (1_999, Phase::Flush, false),
            (2_000, Phase::Expired, false),
        ] {
            assert_eq!((lease.phase(at(ms)), lease.starts(at(ms))), (phase, starts), "{ms} ms");
        }
    }
}
