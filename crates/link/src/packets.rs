//! Packet numbers: each names one transmission, and the agent remembers when each was sent.
//!
//! Decides with which number a session begins, which number the next datagram carries, and from which send time an echo may renew the
//! lease. Last step on the way out (number, then send time), first on the agent's way in (the echo is looked up here).
//! Implements `wire-spec.md` sections 3.2 and 11.1.
//! Invariant: a number is used once per session and direction, and an echo of any number that this log does
//! not hold renews nothing: forgetting too much is unkind, never unsafe.
//! Leaves to the agent: what a renewal then does; to `replay`: numbers that arrive.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::bugs::{self, Bug};
use crate::rng::Rng;
use crate::time::Instant;

/// The largest packet number that is ever sent, 2^60: at a million datagrams a second reached after 36,000 years, wherever a session began.
///
/// A session that came so far must be replaced by a new one; in the sealed mode its key would long have been.
pub const PACKET_MAX: u64 = 1 << 60;

/// The largest number with which a session begins, 2^48−1: who cannot see its datagrams has to guess 28 bits to be within the bound
/// on jumps, beside the 64 of the session's id, and every number of a session can be written exactly wherever numbers are doubles.
pub const FIRST_PACKET_MAX: u64 = (1 << 48) - 1;
const _: () = assert!(FIRST_PACKET_MAX < PACKET_MAX >> 11, "where a session began takes nothing from its numbers");

/// Draws the first packet number of one direction of a session.
pub fn first_packet(rng: &mut Rng) -> u64 {
    //= wire-spec.md#3-2-packet-numbers
    //# The first packet number of each direction MUST be drawn at random from 1 to 2^48−1.
    if bugs::is(Bug::U1) { 1 } else { 1 + rng.below(FIRST_PACKET_MAX) }
}

/// Whether a session may begin with this number.
#[must_use]
pub const fn is_first_packet(number: u64) -> bool {
    number > 0 && number <= FIRST_PACKET_MAX
}

/// Deals out the packet numbers of one direction of one session, or of one handshake: upwards from the first, up to [`PACKET_MAX`].
#[derive(Debug)]
pub struct PacketCounter {
    first: u64,
    /// The newest; one below the first as long as there is none.
    last: u64,
}

impl PacketCounter {
    /// A counter that begins with `first`, which is above 0: that never names a transmission.
    #[must_use]
    pub const fn starting_at(first: u64) -> Self {
        assert!(first > 0, "0 names no transmission");
        Self { first, last: first - 1 }
    }

    /// The number with which it began, or will.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The number of the next transmission; `None`, for ever, once [`PACKET_MAX`] was dealt out: the session
    /// must then send nothing more (section 3.2).
    pub const fn take(&mut self) -> Option<u64> {
        //= wire-spec.md#8-1-limits-of-the-format
        //# A side that has used packet number 2^60 in a session MUST send nothing more in it.
        if self.last >= PACKET_MAX {
            return None;
        }
        //= wire-spec.md#3-2-packet-numbers
        //# A packet number MUST NOT be used twice in one session and direction.
        self.last += 1;
        Some(self.last)
    }

    /// The newest number dealt out, one below the first if none was.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// How many were dealt out.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.last + 1 - self.first
    }

    /// Whether this number was dealt out.
    #[must_use]
    pub const fn has_dealt(&self, number: u64) -> bool {
        self.first <= number && number <= self.last
    }
}

/// When each recent transmission of one session was sent, by its exact packet number (section 11.1). The agent's.
///
/// One log per session: an echo from another session, or another server incarnation, is looked up elsewhere and
/// so finds nothing. Its memory is bounded by the number given to [`new`](Self::new), 24 bytes each.
#[derive(Debug)]
pub struct SentLog {
    /// Ascending by packet number, and by send time, for time given to a core does not go back.
    sent: VecDeque<(u64, Instant)>,
    /// The newest number ever recorded: kept when its entry is forgotten, so that none is taken twice.
    newest: u64,
    max: usize,
}

impl SentLog {
    /// Room for what an agent at the default request limit (20,000 a second) sends in the default τ of 2 s,
    /// with half as much again for keep-alives and releases: 65,536 entries, 1.5 MiB when full.
    pub const DEFAULT_MAX: usize = 65_536;

    /// Up to this capacity an empty log keeps its memory, 6 KiB.
    const KEPT_WHEN_EMPTY: usize = 256;

    /// An empty log of at most `max` transmissions (at least 1); allocates nothing yet.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        assert!(max > 0, "a log without room would let no lease be renewed");
        Self { sent: VecDeque::new(), newest: 0, max }
    }

    /// Notes that `packet` goes out now; `now` is read before the send call (section 11.1).
    ///
    /// When the log is full the oldest transmission is forgotten: its echo will renew nothing.
    ///
    /// # Panics
    /// If `packet` is not above every number recorded before: a number that repeats would let an answer to the
    /// one transmission renew from the send time of the other.
    pub fn record(&mut self, packet: u64, now: Instant) {
        assert!(packet > self.newest, "packet {packet} was sent after {}", self.newest);
        self.newest = packet;
        if self.sent.len() >= self.max {
            self.sent.pop_front();
        }
        //= wire-spec.md#11-1-lease
        //# The agent MUST remember the send time of each transmission whose answer could still renew, by 64-bit packet number.
        self.sent.push_back((packet, now));
        debug_assert!(self.sent.len() <= self.max);
    }

    /// When `packet` was sent; `None` for a number that was never sent or is forgotten: such an echo renews nothing.
    #[must_use]
    pub fn sent_at(&self, packet: u64) -> Option<Instant> {
        //= wire-spec.md#11-1-lease
        //# An echo that the agent did not send in this session, or has forgotten, MUST NOT renew.
        let found = self.sent.binary_search_by_key(&packet, |entry| entry.0);
        found.ok().and_then(|at| self.sent.get(at)).map(|entry| entry.1)
    }

    /// Forgets the transmissions whose echo could no longer renew: those sent τ or longer ago, by either clock.
    pub fn forget_older(&mut self, now: Instant, tau: Duration) {
        while let Some(&(_, sent)) = self.sent.front() {
            if !now.lease_over(sent.plus(tau)) {
                break;
            }
            self.sent.pop_front();
        }
        // A burst must not cost memory for ever.
        if self.sent.is_empty() && self.sent.capacity() > Self::KEPT_WHEN_EMPTY {
            self.sent = VecDeque::new();
        }
    }

    /// How many transmissions are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// Whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    const TAU: Duration = Duration::from_secs(2);

    fn at(ms: u64) -> Instant {
        Instant::new(ms * 1_000_000, ms * 1_000_000)
    }

    //= wire-spec.md#3-2-packet-numbers
    //= type=test
    //# A packet number MUST NOT be used twice in one session and direction.
    #[test]
    fn numbers_start_at_the_first_and_follow_one_another() {
        let mut counter = PacketCounter::starting_at(70);
        assert_eq!((counter.count(), counter.has_dealt(69), counter.has_dealt(70)), (0, false, false));
        assert_eq!([counter.take(), counter.take(), counter.take()], [Some(70), Some(71), Some(72)]);
        assert_eq!((counter.first(), counter.last(), counter.count()), (70, 72, 3));
        assert_eq!([69, 70, 72, 73].map(|number| counter.has_dealt(number)), [false, true, true, false]);
    }

    //= wire-spec.md#3-2-packet-numbers
    //= type=test
    //# The first packet number of each direction MUST be drawn at random from 1 to 2^48−1.
    #[test]
    fn first_numbers_are_spread_over_48_bits() {
        let mut rng = Rng::from_seed([5; 32]);
        let drawn: std::vec::Vec<u64> = (0..1_000).map(|_| first_packet(&mut rng)).collect();
        assert!(drawn.iter().all(|first| is_first_packet(*first)));
        for bit in 0..48 {
            let set = drawn.iter().filter(|first| **first & (1 << bit) != 0).count();
            assert!((400..600).contains(&set), "bit {bit} is set in {set} of 1000");
        }
        assert!(!is_first_packet(0) && is_first_packet(1) && is_first_packet((1 << 48) - 1) && !is_first_packet(1 << 48));
    }

    //= wire-spec.md#8-1-limits-of-the-format
    //= type=test
    //# A side that has used packet number 2^60 in a session MUST send nothing more in it.
    #[test]
    fn counter_stops_hard_at_its_end() {
        let mut counter = PacketCounter { first: FIRST_PACKET_MAX, last: PACKET_MAX - 1 };
        assert_eq!(counter.take(), Some(PACKET_MAX));
        assert_eq!(counter.take(), None);
        assert_eq!(counter.take(), None, "and does not begin anew");
        assert_eq!(counter.last(), PACKET_MAX);
    }

    //= wire-spec.md#11-1-lease
    //= type=test
    //# An echo that the agent did not send in this session, or has forgotten, MUST NOT renew.
    #[test]
    fn echo_of_a_number_never_sent_has_no_send_time() {
        let mut log = SentLog::new(8);
        assert_eq!(log.sent_at(1), None);
        log.record(5, at(10));
        log.record(7, at(11));
        assert_eq!(log.sent_at(5), Some(at(10)));
        assert_eq!(log.sent_at(7), Some(at(11)));
        for stranger in [0, 4, 6, 8, u64::MAX] {
            assert_eq!(log.sent_at(stranger), None);
        }
    }

    //= wire-spec.md#11-1-lease
    //= type=test
    //# The agent MUST remember the send time of each transmission whose answer could still renew, by 64-bit packet number.
    #[test]
    fn transmission_is_forgotten_exactly_when_its_echo_could_renew_nothing() {
        let mut log = SentLog::new(8);
        log.record(1, at(0));
        log.record(2, at(1));
        log.forget_older(at(1_999), TAU);
        assert_eq!(log.len(), 2);
        log.forget_older(at(2_000), TAU);
        assert_eq!((log.sent_at(1), log.sent_at(2)), (None, Some(at(1))));
        log.forget_older(at(2_001), TAU);
        assert!(log.is_empty());
    }

    #[test]
    fn one_clock_is_enough_to_forget() {
        let mut log = SentLog::new(8);
        log.record(1, at(0));
        // The machine slept for three seconds: only BOOTTIME went on.
        log.forget_older(Instant::new(0, 3_000_000_000), TAU);
        assert!(log.is_empty());
    }

    #[test]
    fn full_log_forgets_the_oldest_and_stays_bounded() {
        let mut log = SentLog::new(3);
        for packet in 1..=5 {
            log.record(packet, at(packet));
        }
        assert_eq!(log.len(), 3);
        assert_eq!((log.sent_at(2), log.sent_at(3)), (None, Some(at(3))));
    }

    #[test]
    fn memory_of_a_burst_is_given_back() {
        let mut log = SentLog::new(SentLog::DEFAULT_MAX);
        for packet in 1..=10_000 {
            log.record(packet, at(0));
        }
        log.forget_older(at(5_000), TAU);
        assert!(log.sent.capacity() <= SentLog::KEPT_WHEN_EMPTY);
    }

    #[test]
    #[should_panic(expected = "was sent after")]
    fn repeated_number_is_a_broken_invariant_even_after_it_was_forgotten() {
        let mut log = SentLog::new(8);
        log.record(9, at(0));
        log.forget_older(at(9_000), TAU);
        log.record(9, at(9_000));
    }

    proptest! {
        #[test]
        fn log_agrees_with_the_list_of_all_transmissions(
            steps in proptest::collection::vec((1u64..4, 0u64..900), 1..60),
            max in 1usize..12,
        ) {
            let mut log = SentLog::new(max);
            let (mut packet, mut ms) = (0, 0);
            let mut all = std::vec::Vec::new();
            for (gap, pause) in steps {
                packet += gap;
                ms += pause;
                log.forget_older(at(ms), TAU);
                log.record(packet, at(ms));
                all.push((packet, ms));
                prop_assert!(log.len() <= max);
            }
            for number in 0..packet + 2 {
                let truth = all.iter().find(|entry| entry.0 == number).map(|entry| at(entry.1));
                match log.sent_at(number) {
                    Some(sent) => prop_assert_eq!(Some(sent), truth),
                    None => {
                        let rank = all.iter().filter(|entry| entry.0 >= number).count();
                        prop_assert!(
                            truth.is_none_or(|sent| rank > max || at(ms).lease_over(sent.plus(TAU))),
                            "packet {} is forgotten too early", number
                        );
                    }
                }
            }
        }
    }
}
