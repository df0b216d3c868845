//! Virtual clocks: what the two clocks of a machine read at each instant of true time.
//!
//! Decides readings and their inverse: the first true instant at which a question about a lease or a wait has the answer yes.
//! Rates are piecewise constant, in parts per billion of true time, in integers throughout, so that every run reads the same.
//! Invariant: the whole schedule is known when a run begins (it is part of its plan), so inverses are exact also for the future;
//! readings never go back. Implements the clocks of `wire-spec.md` section 11.1.
//! Leaves to others: which rates there are (`plan`), and what is done at which reading (the cores).

use crate::observe::True;
use cistern_link::Instant;
use serde::{Deserialize, Serialize};

/// A rate of one: as fast as true time.
pub const UNIT: u64 = 1_000_000_000;

/// How fast the clocks of a machine run, in parts per billion of true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// CLOCK_MONOTONIC_RAW; 0 while the machine sleeps.
    pub raw_ppb: u64,
    /// CLOCK_BOOTTIME.
    pub boot_ppb: u64,
}

impl Rates {
    /// Both as fast as true time.
    pub const TRUE: Self = Self { raw_ppb: UNIT, boot_ppb: UNIT };

    /// Both at one rate.
    #[must_use]
    pub const fn both(ppb: u64) -> Self {
        Self { raw_ppb: ppb, boot_ppb: ppb }
    }
}

/// From `from` on the clocks run at `rates`, beginning with these readings.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from: u64,
    raw: u64,
    boot: u64,
    rates: Rates,
}

/// The clocks of one machine over the whole run.
#[derive(Clone, Debug)]
pub struct NodeClock {
    /// In order of time; the first begins at 0.
    pieces: Vec<Piece>,
}

impl NodeClock {
    /// Clocks that read `start` when the run begins, and run at `rates`.
    #[must_use]
    pub fn new(start: Instant, rates: Rates) -> Self {
        Self { pieces: vec![Piece { from: 0, raw: start.raw_ns, boot: start.boot_ns, rates }] }
    }

    /// From `at` on they run at other rates; changes are told in order of time.
    pub fn change(&mut self, at: True, rates: Rates) {
        let reading = self.at(at);
        let piece = Piece { from: at.0, raw: reading.raw_ns, boot: reading.boot_ns, rates };
        match self.pieces.last_mut().filter(|last| last.from >= at.0) {
            Some(last) => last.rates = rates,
            None => self.pieces.push(piece),
        }
    }

    /// What the clocks read at true time `t`.
    #[must_use]
    pub fn at(&self, t: True) -> Instant {
        let after = self.pieces.partition_point(|piece| piece.from <= t.0);
        // The first piece begins at 0, so there is always one before.
        let piece = &self.pieces[after.max(1) - 1];
        let span = t.0 - piece.from;
        Instant::new(piece.raw + counted(span, piece.rates.raw_ppb), piece.boot + counted(span, piece.rates.boot_ppb))
    }

    /// The first true time at which `instant.lease_over(end)` holds on these clocks: at the earlier of the two.
    #[must_use]
    pub fn lease_over_at(&self, end: Instant) -> True {
        let (raw, boot) = self.inverse(end);
        True(raw.min(boot))
    }

    /// The first true time at which `instant.waited(until)` holds on these clocks: at the later of the two.
    #[must_use]
    pub fn waited_at(&self, until: Instant) -> True {
        let (raw, boot) = self.inverse(until);
        True(raw.max(boot))
    }

    /// First true times at which each clock reads at least so much.
    fn inverse(&self, reading: Instant) -> (u64, u64) {
        let raw = self.first(reading.raw_ns, |piece| (piece.raw, piece.rates.raw_ppb));
        let boot = self.first(reading.boot_ns, |piece| (piece.boot, piece.rates.boot_ppb));
        (raw, boot)
    }

    fn first(&self, target: u64, of: impl Fn(&Piece) -> (u64, u64)) -> u64 {
        // The piece in which it is reached is the last one that begins below it, or the first of all.
        let below = self.pieces.partition_point(|piece| of(piece).0 < target);
        let Some(piece) = below.checked_sub(1).map(|at| &self.pieces[at]) else {
            return self.pieces[0].from;
        };
        let (base, ppb) = of(piece);
        let reached = match ppb {
            0 => u64::MAX,
            _ => {
                let span = (u128::from(target - base) * u128::from(UNIT)).div_ceil(u128::from(ppb));
                u64::try_from(u128::from(piece.from) + span).unwrap_or(u64::MAX)
            }
        };
        // Readings are rounded down at a change, so the change itself may be the moment.
        self.pieces.get(below).map_or(reached, |next| reached.min(next.from))
    }
}

/// What a clock at this rate counts in a span of true time, rounded down.
fn counted(span: u64, ppb: u64) -> u64 {
    u64::try_from(u128::from(span) * u128::from(ppb) / u128::from(UNIT)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_clock() -> impl Strategy<Value = NodeClock> {
        let rate = prop_oneof![Just(0u64), 900_000_000..1_100_000_000u64, 1..10u64];
        let pieces = proptest::collection::vec((1..2_000_000u64, rate.clone(), rate), 0..6);
        (pieces, 0..1_000u64, 0..1_000u64).prop_map(|(pieces, raw, boot)| {
            let mut clock = NodeClock::new(Instant::new(raw, boot), Rates::TRUE);
            let mut at = 0;
            for (span, raw_ppb, boot_ppb) in pieces {
                at += span;
                clock.change(True(at), Rates { raw_ppb, boot_ppb });
            }
            clock
        })
    }

    proptest! {
        #[test]
        fn readings_never_go_back(clock in any_clock(), a in 0..10_000_000u64, b in 0..10_000_000u64) {
            let (early, late) = (clock.at(True(a.min(b))), clock.at(True(a.max(b))));
            prop_assert!(early.raw_ns <= late.raw_ns && early.boot_ns <= late.boot_ns);
        }

        #[test]
        fn inverses_give_the_first_instant_at_which_the_answer_is_yes(
            clock in any_clock(), raw in 0..8_000_000u64, boot in 0..8_000_000u64,
        ) {
            let end = Instant::new(raw, boot);
            let over = clock.lease_over_at(end);
            prop_assert!(over.0 == u64::MAX || clock.at(over).lease_over(end));
            prop_assert!(over.0 == 0 || over.0 > 1 << 62 || !clock.at(True(over.0 - 1)).lease_over(end));
            let waited = clock.waited_at(end);
            prop_assert!(waited.0 > 1 << 62 || clock.at(waited).waited(end));
            prop_assert!(waited.0 == 0 || waited.0 > 1 << 62 || !clock.at(True(waited.0 - 1)).waited(end));
        }
    }

    #[test]
    fn sleep_stops_the_raw_clock_alone() {
        let mut clock = NodeClock::new(Instant::new(5, 7), Rates::TRUE);
        clock.change(True(100), Rates { raw_ppb: 0, boot_ppb: UNIT });
        clock.change(True(200), Rates::TRUE);
        assert_eq!(clock.at(True(250)), Instant::new(155, 257));
        assert_eq!(clock.lease_over_at(Instant::new(150, 150)), True(143), "boot alone says so, in the sleep");
        assert_eq!(clock.waited_at(Instant::new(150, 150)), True(245), "raw must say so too");
    }
}
