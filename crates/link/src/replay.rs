//! The replay window: which arriving packet numbers are new.
//!
//! Decides fresh, duplicate or stale, right after decoding and before anything acts. It is not at-most-once:
//! a *retransmission* is a fresh packet with an old nonce, which `reply_cache` recognises; the two layers stay
//! apart (`wire-spec.md` section 3.2; sealed mode: the packet number is the AEAD nonce).
//! Invariants: the window begins where the peer said in the handshake that it begins, so no number is believed because it is the first;
//! a number passes at most once, and only what was authenticated moves the window: [`classify`] asks before the check of the datagram,
//! [`note`] tells after it, so garbage cannot push real packets out.
//! Leaves to the session: one window per session, direction and key.
//!
//! [`classify`]: ReplayWindow::classify
//! [`note`]: ReplayWindow::note

use crate::bugs::{self, Bug};
use alloc::boxed::Box;

/// The most by which a packet number may be above the highest that has arrived. Not every datagram arrives, but an agent at the highest
/// rate of requests (20,000 a second) would have sent for 52 seconds in vain, longer than its session can be of use, and one that only
/// sends again for three days. A larger jump would make the sender's own datagrams stale.
pub const AHEAD_MAX: u64 = 1 << 20;

/// How many numbers below the highest are still told apart.
pub const REPLAY_WINDOW: u64 = 1_024;

const WORDS: usize = 16;
/// The newest numbers, of which each is known by itself in any case.
const NEAR: u64 = 64;
const _: () = assert!(REPLAY_WINDOW == WORDS as u64 * 64, "one bit a number");

/// What a packet number is to a [`ReplayWindow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Not seen before: the datagram may be checked and, if it is sound, acted on.
    Fresh,
    /// Seen before: a copy made by the network or by an attacker, to be dropped.
    Duplicate,
    /// Too old to be told apart, or below the first number, which no one sends: to be dropped.
    Stale,
    /// More than [`AHEAD_MAX`] above the highest, or above where the peer begins: to be dropped, for it is not the peer's.
    Ahead,
}

/// The packet numbers that have arrived from one peer: the highest, and which of the 1,023 below it.
///
/// As long as nothing is missing but among the newest 64 numbers, which is nearly always so, it takes no memory besides its own.
#[derive(Debug)]
pub struct ReplayWindow {
    /// The number with which the peer begins.
    first: u64,
    /// One below the first as long as nothing has arrived.
    highest: u64,
    /// Bit `n` tells whether `highest - n` has arrived. There are no numbers below the first: none of them is missing.
    near: u64,
    /// Bit `n % 1,024` tells whether `n` has arrived, for all numbers within the window; `None`: all that are not in `near` have.
    far: Option<Box<[u64; WORDS]>>,
}

impl ReplayWindow {
    /// The window of a peer whose first number is `first`, which is above 0.
    #[must_use]
    pub const fn starting_at(first: u64) -> Self {
        assert!(first > 0, "0 names no transmission");
        Self { first, highest: first - 1, near: u64::MAX, far: None }
    }

    /// Whether nothing has arrived yet.
    #[must_use]
    pub const fn is_unused(&self) -> bool {
        self.highest < self.first
    }

    /// What `packet` is; changes nothing, so it may be asked about a datagram that is not authenticated yet.
    #[must_use]
    pub fn classify(&self, packet: u64) -> Freshness {
        //= wire-spec.md#3-2-packet-numbers
        //# A receiver MUST drop a packet number below the first of its sender.
        if packet < self.first {
            return Freshness::Stale;
        }
        //= wire-spec.md#3-2-packet-numbers
        //# A receiver MUST drop a packet number more than 2^20 above the highest received, or, before any, above the one before the first.
        if packet > self.highest.saturating_add(AHEAD_MAX) && !bugs::is(Bug::A7) {
            return Freshness::Ahead;
        }
        if packet > self.highest || bugs::is(Bug::M51) && packet == self.highest {
            return Freshness::Fresh;
        }
        let below = self.highest - packet;
        //= wire-spec.md#3-2-packet-numbers
        //# A receiver MUST drop a packet number that it has received before, or that is 1,024 or more below the highest received.
        if below >= REPLAY_WINDOW {
            return Freshness::Stale;
        }
        let arrived = if below < NEAR { self.near & (1 << below) != 0 } else { self.far.as_ref().is_none_or(|far| has(far, packet)) };
        if arrived { Freshness::Duplicate } else { Freshness::Fresh }
    }

    /// Notes that the authentic datagram `packet` has arrived; a number that is not fresh changes nothing.
    pub fn note(&mut self, packet: u64) {
        self.receive(packet);
    }

    /// [`Self::classify`] and [`Self::note`] at once, for a datagram that is known to be authentic.
    pub fn receive(&mut self, packet: u64) -> Freshness {
        let known = self.classify(packet);
        if known != Freshness::Fresh {
            return known;
        }
        if packet > self.highest {
            self.advance_to(packet);
        }
        let below = self.highest - packet;
        if below < NEAR {
            self.near |= 1 << below;
        }
        if let Some(far) = &mut self.far {
            let (word, bit) = place(packet);
            far[word] |= bit;
            // What was missing has come, or is too old to come.
            self.far.take_if(|far| far.iter().all(|word| *word == u64::MAX));
        }
        debug_assert!(bugs::is(Bug::M51) || self.classify(packet) == Freshness::Duplicate);
        known
    }

    /// The highest number noted, one below the first if none: only that one may move a session to another address (section 11.6).
    #[must_use]
    pub const fn highest(&self) -> u64 {
        self.highest
    }

    /// Makes `packet` the highest; the numbers that come into the window by this have not been seen.
    fn advance_to(&mut self, packet: u64) {
        let ahead = packet - self.highest;
        // Whether all those have arrived that stay in the window and are no longer near.
        let complete = match ahead {
            0..NEAR => u64::from(self.near.leading_ones()) >= ahead,
            NEAR => self.near == u64::MAX,
            _ => false,
        };
        if !complete && self.far.is_none() {
            self.far = Some(self.spelled_out());
        }
        if let Some(far) = &mut self.far {
            if ahead >= REPLAY_WINDOW {
                **far = [0; WORDS];
            } else {
                for newcomer in self.highest + 1..=packet {
                    let (word, bit) = place(newcomer);
                    far[word] &= !bit;
                }
            }
        }
        self.near = if ahead < NEAR { self.near << ahead } else { 0 };
        self.highest = packet;
    }

    /// The whole window, when nothing is missing but in `near`.
    fn spelled_out(&self) -> Box<[u64; WORDS]> {
        let mut far = Box::new([u64::MAX; WORDS]);
        for below in 0..NEAR.min(self.highest) {
            if self.near & (1 << below) == 0 {
                let (word, bit) = place(self.highest - below);
                far[word] &= !bit;
            }
        }
        far
    }
}

/// The word and the bit of a number.
const fn place(packet: u64) -> (usize, u64) {
    let slot = (packet % REPLAY_WINDOW) as usize;
    (slot / 64, 1 << (slot % 64))
}

const fn has(far: &[u64; WORDS], packet: u64) -> bool {
    let (word, bit) = place(packet);
    far[word] & bit != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use Freshness::{Ahead, Duplicate, Fresh, Stale};
    use proptest::prelude::*;

    fn noted(packets: &[u64]) -> ReplayWindow {
        let mut window = ReplayWindow::starting_at(1);
        for &packet in packets {
            window.note(packet);
        }
        window
    }

    #[test]
    fn first_packet_is_fresh_and_its_repeat_a_duplicate() {
        let mut window = ReplayWindow::starting_at(1);
        assert_eq!((window.classify(1), window.is_unused()), (Fresh, true));
        window.note(1);
        assert_eq!((window.classify(1), window.is_unused()), (Duplicate, false));
        assert_eq!(window.highest(), 1);
    }

    //= wire-spec.md#3-2-packet-numbers
    //= type=test
    //# A receiver MUST drop a packet number below the first of its sender.
    //= wire-spec.md#3-2-packet-numbers
    //= type=test
    //# A receiver MUST drop a packet number more than 2^20 above the highest received, or, before any, above the one before the first.
    #[test]
    fn no_number_is_believed_because_it_is_the_first() {
        let first = (1 << 48) - 1;
        let mut window = ReplayWindow::starting_at(first);
        for packet in [0, 1, first - 1_024, first - 1] {
            assert_eq!(window.receive(packet), Stale, "{packet}");
        }
        for packet in [first + AHEAD_MAX, 1 << 60, u64::MAX] {
            assert_eq!(window.receive(packet), Ahead, "{packet}");
        }
        assert!(window.is_unused());
        // The first datagrams overtake one another.
        assert_eq!([first + 3, first, first + 1, first + 3, first - 1].map(|n| window.receive(n)), [Fresh, Fresh, Fresh, Duplicate, Stale]);
        assert_eq!((window.highest(), window.classify(first + 2)), (first + 3, Fresh));
        assert_eq!(ReplayWindow::starting_at(first).receive(first - 1 + AHEAD_MAX), Fresh, "so many may be lost");
    }

    #[test]
    fn asking_changes_nothing_so_garbage_cannot_move_the_window() {
        let window = noted(&[10]);
        assert_eq!(window.classify(10 + AHEAD_MAX), Fresh);
        assert_eq!(window.classify(9), Fresh);
        assert_eq!(window.highest(), 10);
    }

    //= wire-spec.md#3-2-packet-numbers
    //= type=test
    //# A receiver MUST drop a packet number that it has received before, or that is 1,024 or more below the highest received.
    #[test]
    fn window_edge_is_exactly_1024_numbers() {
        let window = noted(&[5_000]);
        assert_eq!(window.classify(5_000 - 1_022), Fresh);
        assert_eq!(window.classify(5_000 - 1_023), Fresh, "the last one inside");
        assert_eq!(window.classify(5_000 - 1_024), Stale, "the first one outside");
        assert_eq!(window.classify(5_000 - 1_025), Stale);
        assert_eq!(window.classify(5_001), Fresh);
    }

    #[test]
    fn edge_moves_with_the_highest_number() {
        let mut window = noted(&[1]);
        window.note(1_024);
        assert_eq!(window.classify(1), Duplicate);
        window.note(1_025);
        assert_eq!(window.classify(1), Stale);
        assert_eq!(window.classify(2), Fresh);
    }

    #[test]
    fn jump_past_the_window_forgets_what_was_seen_and_admits_none_of_it_again() {
        for jump in [1_023, 1_024, 1_025, 4_096] {
            let window = noted(&[100, 101, 101 + jump]);
            assert_eq!(window.classify(101 + jump), Duplicate);
            assert_eq!(window.classify(101 + jump - 1), Fresh, "bits of old numbers are gone");
            assert_eq!(window.classify(100), Stale);
            assert_eq!(window.classify(101), if jump == 1_023 { Duplicate } else { Stale });
        }
    }

    #[test]
    fn zero_is_never_fresh() {
        let mut window = ReplayWindow::starting_at(1);
        assert_eq!(window.classify(0), Stale);
        window.note(0);
        assert_eq!(window.highest(), 0);
        assert_eq!(noted(&[3]).classify(0), Stale);
    }

    #[test]
    fn largest_number_neither_wraps_nor_readmits() {
        let mut window = ReplayWindow::starting_at(u64::MAX - 5_000);
        window.note(u64::MAX);
        assert_eq!(window.classify(u64::MAX), Duplicate);
        assert_eq!(window.classify(u64::MAX - 1), Fresh);
        assert_eq!(window.classify(u64::MAX - 1_023), Fresh);
        assert_eq!(window.classify(u64::MAX - 1_024), Stale);
        for old in [0, 1, 7] {
            assert_eq!(window.classify(old), Stale);
        }
    }

    //= wire-spec.md#3-2-packet-numbers
    //= type=test
    //# A receiver MUST drop a packet number more than 2^20 above the highest received, or, before any, above the one before the first.
    #[test]
    fn number_that_no_peer_can_have_reached_moves_nothing() {
        let mut window = noted(&[5]);
        for packet in [5 + AHEAD_MAX + 1, 1 << 60, u64::MAX] {
            assert_eq!(window.receive(packet), Ahead);
            assert_eq!((window.highest(), window.classify(6)), (5, Fresh), "the session goes on");
        }
        assert_eq!(window.receive(5 + AHEAD_MAX), Fresh, "so many may be lost");
    }

    #[test]
    fn late_packet_inside_the_window_passes_once() {
        let mut window = noted(&[1, 2, 5]);
        assert_eq!(window.classify(3), Fresh);
        window.note(3);
        assert_eq!(window.classify(3), Duplicate);
        assert_eq!(window.classify(4), Fresh);
        assert_eq!(window.highest(), 5);
    }

    #[test]
    fn number_that_was_skipped_is_fresh_in_whatever_place_it_comes() {
        // Every place of the window was taken by an older number before.
        let mut window = noted(&(1..=3_000).collect::<std::vec::Vec<_>>());
        for skipped in 1..=20 {
            let highest = window.highest();
            window.note(highest + skipped + 1);
            for packet in highest + 1..=highest + skipped {
                assert_eq!(window.classify(packet), Fresh);
                window.note(packet);
            }
        }
    }

    #[test]
    fn memory_is_taken_only_while_a_number_is_missing_that_is_not_near() {
        let mut window = noted(&(1..=100).filter(|packet| *packet != 30).collect::<std::vec::Vec<_>>());
        assert!(window.far.is_some());
        window.note(30);
        assert!(window.far.is_none(), "it has come");
        window.note(102);
        assert!(window.far.is_none(), "101 may come soon");
        (103..=101 + 64).for_each(|packet| window.note(packet));
        assert!(window.far.is_some() && window.classify(101) == Fresh);
        (101 + 65..=101 + 1_024).for_each(|packet| window.note(packet));
        assert!(window.far.is_none() && window.classify(101) == Stale, "it is too old to come");
        assert!(noted(&[64]).far.is_none() && noted(&[65]).far.is_some(), "1 is missing, and not near");
    }

    #[test]
    fn noting_a_stale_number_changes_nothing() {
        let mut window = noted(&[5_000]);
        window.note(5_000 - 2_048);
        assert_eq!(window.classify(5_000 - 1_000), Fresh, "no bit was set in its place");
    }

    proptest! {
        #[test]
        fn window_agrees_with_a_set_of_all_numbers(
            first in 1u64..3_000,
            start in 0u64..4_000,
            hops in proptest::collection::vec(-1_100i64..1_100, 1..200),
        ) {
            let mut window = ReplayWindow::starting_at(first);
            let mut seen = std::collections::BTreeSet::new();
            let mut packet = start;
            for hop in hops {
                packet = packet.saturating_add_signed(hop);
                let highest = seen.last().copied().unwrap_or(0);
                let truth = if packet < first || packet + REPLAY_WINDOW <= highest {
                    Stale
                } else if seen.contains(&packet) {
                    Duplicate
                } else {
                    Fresh
                };
                prop_assert_eq!(window.classify(packet), truth);
                if truth == Fresh {
                    window.note(packet);
                    seen.insert(packet);
                }
                prop_assert_eq!(window.highest(), seen.last().copied().unwrap_or(first - 1));
                prop_assert_eq!(window.is_unused(), seen.is_empty());
            }
        }
    }
}
