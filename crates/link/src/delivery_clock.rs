//! The clock of delivery timeouts: it counts only time in which this side could have heard an answer.
//!
//! Decides how much of a stretch of time counts against a peer that is silent. A server whose loop stood still
//! (stopped, starved, waiting for a disk, its machine asleep) has not listened; if its timers then ran at once,
//! thousands of live sessions would fail together. Implements `wire-spec.md` section 11.3.
//! Stands at the start of `handle_drained`: the socket was just found empty, so what had arrived has been heard.
//! Invariant: in each turn at most the sleep that was planned, plus a slack for the work itself, is counted, so
//! one stall, however long, is never worth more than one planned sleep.
//! Leaves to the server: three transmissions, each given its RTO on this clock. Leases and T never use it: they
//! run on [`Instant`], whoever stood still.

use crate::bugs::{self, Bug};
use core::time::Duration;

use crate::time::Instant;

/// Counts the time in which the loop ran and read, since the clock was made.
///
/// Deadlines of deliveries are spans on this clock: one is over when [`elapsed`](Self::elapsed) reaches it.
#[derive(Debug)]
pub struct DeliveryClock {
    last_turn: Instant,
    slack: Duration,
    elapsed: Duration,
    stalled: Duration,
}

impl DeliveryClock {
    /// The slack where nobody set another: the work of a full batch and the rounding of a sleep, and no longer than
    /// the shortest RTO, so that a stall cannot pass for an answerless RTO.
    pub const DEFAULT_SLACK: Duration = Duration::from_millis(20);

    /// A clock that shows zero `now` and counts, per turn, at most `slack` beyond the planned sleep.
    #[must_use]
    pub const fn new(now: Instant, slack: Duration) -> Self {
        Self { last_turn: now, slack, elapsed: Duration::ZERO, stalled: Duration::ZERO }
    }

    /// Counts one turn; called when the socket was found empty, before timers run, and at no other time.
    ///
    /// `planned_wake` is the sleep that was asked of the driver at the end of the turn before. `None`, a sleep
    /// without end, was asked because no answer was awaited, so only the slack counts. Each planned sleep is given
    /// to one turn; a turn that follows another without a sleep between gives zero.
    pub fn turn(&mut self, now: Instant, planned_wake: Option<Duration>) {
        let gap = now.since(self.last_turn);
        let heard = planned_wake.unwrap_or(Duration::ZERO).saturating_add(self.slack);
        //= wire-spec.md#11-3-failure-and-ending
        //# Time in which the server stood still MUST NOT count towards a delivery timeout.
        let counted = if bugs::is(Bug::M43) { gap } else { gap.min(heard) };
        self.elapsed = self.elapsed.saturating_add(counted);
        // A sleep without end is nobody's stall: how long it was to be is not known.
        if planned_wake.is_some() {
            self.stalled = self.stalled.saturating_add(gap - counted);
        }
        self.last_turn = self.last_turn.max(now);
    }

    /// The time counted since the clock was made.
    #[must_use]
    pub const fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// What the clock shows at most when the turn in which it is `now` has been counted. Spans that begin between two turns are counted from
    /// there: from [`elapsed`](Self::elapsed) they would be shorter by what was slept before.
    #[must_use]
    pub fn at(&self, now: Instant) -> Duration {
        self.elapsed.saturating_add(now.since(self.last_turn))
    }

    /// The time by which turns came later than planned since the clock was made, and which was not counted. For displays.
    #[must_use]
    pub const fn stalled(&self) -> Duration {
        self.stalled
    }

    /// How long from now a deadline on this clock lies ahead at least, zero when it is over: what to sleep for.
    #[must_use]
    pub const fn until(&self, deadline: Duration) -> Duration {
        deadline.saturating_sub(self.elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLACK: Duration = DeliveryClock::DEFAULT_SLACK;

    fn at(ms: u64) -> Instant {
        Instant::new(ms * 1_000_000, ms * 1_000_000)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn time_of_a_running_loop_counts_in_full() {
        let mut clock = DeliveryClock::new(at(0), SLACK);
        clock.turn(at(5), Some(ms(150)));
        clock.turn(at(155), Some(ms(150)));
        clock.turn(at(160), Some(Duration::ZERO));
        assert_eq!(clock.elapsed(), ms(160));
        assert_eq!(clock.stalled(), Duration::ZERO);
    }

    //= wire-spec.md#11-3-failure-and-ending
    //= type=test
    //# Time in which the server stood still MUST NOT count towards a delivery timeout.
    #[test]
    fn stall_counts_no_more_than_the_planned_sleep_and_the_slack() {
        let mut clock = DeliveryClock::new(at(0), SLACK);
        clock.turn(at(60_000), Some(ms(100)));
        assert_eq!(clock.elapsed(), ms(120));
        assert_eq!(clock.stalled(), ms(59_880));
    }

    #[test]
    fn stall_in_the_middle_of_work_counts_only_the_slack() {
        let mut clock = DeliveryClock::new(at(0), SLACK);
        clock.turn(at(3_000), Some(Duration::ZERO));
        assert_eq!(clock.elapsed(), SLACK);
    }

    #[test]
    fn sleep_without_end_counts_only_the_slack_and_is_no_stall() {
        let mut clock = DeliveryClock::new(at(0), SLACK);
        clock.turn(at(3_600_000), None);
        assert_eq!(clock.elapsed(), SLACK);
        assert_eq!(clock.stalled(), Duration::ZERO);
    }

    #[test]
    fn span_that_begins_before_a_turn_is_counted_is_whole() {
        let mut clock = DeliveryClock::new(at(0), SLACK);
        clock.turn(at(10), Some(ms(150)));
        let deadline = clock.at(at(150)) + ms(100);
        clock.turn(at(155), Some(ms(150)));
        assert_eq!(clock.until(deadline), ms(95));
        assert_eq!(clock.at(at(155)), clock.elapsed());
    }

    #[test]
    fn sleep_of_the_machine_does_not_count() {
        let mut clock = DeliveryClock::new(Instant::new(0, 0), SLACK);
        // Suspended for an hour within a planned sleep of an hour: only boot time went on.
        clock.turn(Instant::new(1_000_000, 3_600_000_000_000), Some(ms(3_600_000)));
        assert_eq!(clock.elapsed(), ms(1));
    }

    #[test]
    fn three_round_trips_must_each_be_lived_through() {
        // Three RTOs of 100 ms; the loop is stopped for a minute in the second.
        let mut clock = DeliveryClock::new(at(0), SLACK);
        let deadline = clock.elapsed() + ms(300);
        clock.turn(at(100), Some(ms(100)));
        clock.turn(at(60_100), Some(ms(100)));
        assert!(clock.elapsed() < deadline);
        assert_eq!(clock.until(deadline), ms(80), "what a stopped loop slept through is still owed");
        clock.turn(at(60_180), Some(ms(80)));
        assert_eq!(clock.until(deadline), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn counted_time_never_exceeds_real_time_nor_the_plan(
            turns in proptest::collection::vec((0u64..5_000, proptest::option::of(0u64..500)), 0..50),
        ) {
            let mut clock = DeliveryClock::new(at(0), SLACK);
            let (mut now, mut plan, mut idle) = (0, Duration::ZERO, Duration::ZERO);
            for (gap, planned) in turns {
                now += gap;
                plan += ms(planned.unwrap_or(0)) + SLACK;
                let before = clock.elapsed();
                clock.turn(at(now), planned.map(ms));
                prop_assert!(clock.elapsed() >= before);
                if planned.is_none() {
                    idle += ms(gap) - (clock.elapsed() - before);
                }
                prop_assert!(clock.elapsed() <= ms(now) && clock.elapsed() <= plan);
                prop_assert_eq!(clock.elapsed() + clock.stalled() + idle, ms(now));
            }
        }
    }
}
