//! The congestion window: how many bulk transmissions may be unanswered at once.
//!
//! Decides whether one more request may go out now, so that an agent or a server never melts a network that
//! drops: slow start, additive increase, half on loss (`wire-spec.md` section 11.2).
//! Only requests ask here. Keep-alives, receipts of demands, releases, NACK and session messages never wait for
//! this window; they have their own small rate.
//! Invariant: the window stays within [2, max] and is halved at most once for what was in flight together.
//! Leaves to `rtt`: when a transmission counts as lost; to `nonces`: the window W of at-most-once.

use crate::time::Instant;

/// The smallest window: with one alone, one lost transmission would stop everything for an RTO.
pub const WINDOW_MIN: usize = 2;

/// The window of a new session, as RFC 6928 gives it to a new connection.
pub const WINDOW_INITIAL: usize = 10;

/// The bound on unanswered transmissions of one session.
#[derive(Debug)]
pub struct Window {
    size: usize,
    /// Below this size each answer adds one; from it on, a whole window of answers does.
    threshold: usize,
    max: usize,
    /// Answers since the last additive increase.
    answered: usize,
    /// When the window was last halved: what was sent by then belongs to that same loss.
    halved: Option<Instant>,
}

impl Window {
    /// A window that starts at [`WINDOW_INITIAL`] and never exceeds `max` transmissions (at least [`WINDOW_MIN`]).
    #[must_use]
    pub fn new(max: usize) -> Self {
        let max = max.max(WINDOW_MIN);
        Self { size: WINDOW_INITIAL.min(max), threshold: max, max, answered: 0, halved: None }
    }

    /// Whether one more may be sent while `in_flight` are unanswered.
    #[must_use]
    pub const fn can_send(&self, in_flight: usize) -> bool {
        in_flight < self.size
    }

    /// How many may be unanswered now.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Takes one answer; `in_flight` counts the transmissions unanswered just before it, that one included.
    ///
    /// A window that is not used does not grow: answers to a trickle say nothing about a flood.
    pub fn on_ack(&mut self, in_flight: usize) {
        if in_flight.saturating_mul(2) < self.size || self.size >= self.max {
            return;
        }
        if self.size < self.threshold {
            self.size += 1;
            return;
        }
        self.answered += 1;
        if self.answered >= self.size {
            self.answered = 0;
            self.size += 1;
        }
        debug_assert!(self.size >= WINDOW_MIN && self.size <= self.max);
    }

    /// Takes the loss, noticed `now`, of a transmission sent at `sent`: halves the window, unless it was sent
    /// before the last halving and so belongs to that loss: at most once per round trip.
    pub fn on_loss(&mut self, now: Instant, sent: Instant) {
        if self.halved.is_some_and(|halved| halved.waited(sent)) {
            return;
        }
        self.halved = Some(now);
        self.size = (self.size / 2).max(WINDOW_MIN);
        self.threshold = self.size;
        self.answered = 0;
        debug_assert!(self.size <= self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Instant {
        Instant::new(ms, ms)
    }

    fn answers(window: &mut Window, count: usize) {
        for _ in 0..count {
            window.on_ack(window.size());
        }
    }

    #[test]
    fn new_window_admits_ten() {
        let window = Window::new(64);
        assert!(window.can_send(9));
        assert!(!window.can_send(10));
        assert_eq!(Window::new(4).size(), 4);
        assert_eq!(Window::new(0).size(), WINDOW_MIN);
    }

    #[test]
    fn slow_start_doubles_within_a_round_trip() {
        let mut window = Window::new(64);
        answers(&mut window, 10);
        assert_eq!(window.size(), 20);
        answers(&mut window, 100);
        assert_eq!(window.size(), 64, "and ends at the maximum");
    }

    #[test]
    fn after_a_loss_growth_is_one_per_window_of_answers() {
        let mut window = Window::new(64);
        answers(&mut window, 22);
        window.on_loss(at(5), at(4));
        assert_eq!(window.size(), 16);
        answers(&mut window, 15);
        assert_eq!(window.size(), 16);
        answers(&mut window, 1);
        assert_eq!(window.size(), 17);
    }

    #[test]
    fn losses_of_one_flight_halve_once() {
        let mut window = Window::new(64);
        answers(&mut window, 54);
        window.on_loss(at(100), at(10));
        window.on_loss(at(101), at(20));
        window.on_loss(at(102), at(100));
        assert_eq!(window.size(), 32, "all three were sent by the first halving");
        window.on_loss(at(200), at(150));
        assert_eq!(window.size(), 16);
    }

    #[test]
    fn window_never_closes() {
        let mut window = Window::new(64);
        for round in 1..20 {
            window.on_loss(at(10 * round), at(10 * round - 1));
        }
        assert_eq!(window.size(), WINDOW_MIN);
        assert!(window.can_send(1));
    }

    #[test]
    fn unused_window_does_not_grow() {
        let mut window = Window::new(64);
        for _ in 0..1_000 {
            window.on_ack(1);
        }
        assert_eq!(window.size(), WINDOW_INITIAL);
    }

    proptest! {
        #[test]
        fn window_stays_within_its_bounds(
            max in 0usize..200,
            events in proptest::collection::vec((any::<bool>(), 0usize..200, 0u64..50), 0..300),
        ) {
            let mut window = Window::new(max);
            let mut now = 50;
            for (lost, in_flight, ago) in events {
                now += 1;
                let before = window.size();
                if lost {
                    window.on_loss(at(now), at(now - ago));
                    prop_assert!(window.size() == before || window.size() == (before / 2).max(WINDOW_MIN));
                } else {
                    window.on_ack(in_flight);
                    prop_assert!(window.size() - before <= 1);
                }
                prop_assert!(window.size() >= WINDOW_MIN && window.size() <= max.max(WINDOW_MIN));
            }
        }
    }
}
