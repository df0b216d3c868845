//! The one source of randomness of a core: a ChaCha12 stream from a seed that the driver gives.
//!
//! Decides how random bits become ids, cookies' keys and jitter. Same seed, same stream, for ever: a failing
//! simulation is replayed by its seed alone, so the derivations below are part of what must not change and
//! are pinned by golden tests. Invariant: no core draws randomness from anywhere else.
//! Stands beside the walk: whoever spreads a retransmission or names a session asks here.
//! Leaves to the driver: a seed that nobody can guess (from the system), which makes session ids
//! unguessable too (`wire-spec.md` section 11.6).

use crate::bugs::{self, Bug};
use core::num::NonZeroU64;
use core::time::Duration;

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng as _, SeedableRng};

use crate::time::whole_ns;

/// A seeded random stream; not `Clone`, for two copies would name two things alike.
#[derive(Debug)]
pub struct Rng(ChaCha12Rng);

impl Rng {
    /// The stream that belongs to `seed`; the driver calls it once, at start.
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(ChaCha12Rng::from_seed(seed))
    }

    /// The next 64 bits, each value as likely as any other.
    pub fn next_u64(&mut self) -> u64 {
        if bugs::is(Bug::M55) && bugs::calls().is_multiple_of(64) {
            self.0.next_u64();
        }
        self.0.next_u64()
    }

    /// Fills `bytes` with random bytes, as for the key of the server's cookies.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// A random number that is not 0, for ids where 0 means "none" (session ids, section 11.6).
    pub fn nonzero_u64(&mut self) -> NonZeroU64 {
        loop {
            if let Some(id) = NonZeroU64::new(self.next_u64()) {
                return id;
            }
        }
    }

    /// A number in `0..bound`, without bias; `bound` must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below 0");
        // Values below this remainder of 2^64 would make some results likelier; they are drawn again.
        let unfair = bound.wrapping_neg() % bound;
        loop {
            let drawn = self.next_u64();
            if drawn >= unfair {
                return drawn % bound;
            }
        }
    }

    /// A span spread uniformly over `[span/2, span)`, so that what starts together does not stay together
    /// (handshakes after a restart, probes; section 11.7). Zero stays zero; one nanosecond stays zero.
    pub fn jitter(&mut self, span: Duration) -> Duration {
        let ns = whole_ns(span);
        let half = ns / 2;
        if ns == half {
            return Duration::ZERO;
        }
        Duration::from_nanos(half + self.below(ns - half))
    }

    /// A span in `[least, most]`, both ends possible; `least` must not be above `most`.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let (least, most) = (whole_ns(least), whole_ns(most));
        assert!(least <= most, "an empty range of spans");
        match (most - least).checked_add(1) {
            Some(bound) => Duration::from_nanos(least + self.below(bound)),
            None => Duration::from_nanos(self.next_u64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    #[test]
    fn stream_is_chacha12_as_published() {
        // First keystream bytes of ChaCha12, key and nonce all zero (draft-strombergson-chacha-test-vectors, TC1).
        let published = [
            0x9b, 0xf4, 0x9a, 0x6a, 0x07, 0x55, 0xf9, 0x53, 0x81, 0x1f, 0xce, 0x12, 0x5f, 0x26, 0x83, 0xd5, 0x04, 0x29, 0xc3, 0xbb, 0x49,
            0xe0, 0x74, 0x14, 0x7e, 0x00, 0x89, 0xa5, 0x2e, 0xae, 0x15, 0x5f,
        ];
        let mut bytes = [0; 32];
        Rng::from_seed([0; 32]).fill(&mut bytes);
        assert_eq!(bytes, published);
        assert_eq!(Rng::from_seed([0; 32]).next_u64(), 0x53f9_5507_6a9a_f49b);
    }

    #[test]
    fn derivations_from_a_seed_never_change() {
        let mut rng = Rng::from_seed([7; 32]);
        let drawn = [
            rng.next_u64(),
            rng.nonzero_u64().get(),
            rng.below(1_000),
            whole_ns(rng.jitter(Duration::from_secs(1))),
            whole_ns(rng.between(Duration::from_millis(20), Duration::from_millis(25))),
        ];
        assert_eq!(drawn, GOLDEN);
    }

    const GOLDEN: [u64; 5] = [2_363_194_108_971_422_454, 13_552_751_203_817_743_523, 894, 718_822_409, 22_397_886];

    #[test]
    fn streams_of_two_seeds_differ() {
        let (mut a, mut b) = (Rng::from_seed([1; 32]), Rng::from_seed([2; 32]));
        assert_ne!(a.next_u64(), b.next_u64());
    }

    #[test]
    fn tiny_and_huge_spans_are_spread_without_a_panic() {
        let mut rng = Rng::from_seed([3; 32]);
        assert_eq!(rng.jitter(Duration::ZERO), Duration::ZERO);
        assert_eq!(rng.jitter(Duration::from_nanos(1)), Duration::ZERO);
        assert_eq!(rng.jitter(Duration::from_nanos(2)), Duration::from_nanos(1));
        assert!(rng.jitter(Duration::MAX) >= Duration::from_nanos(u64::MAX / 2));
        let _any = rng.between(Duration::ZERO, Duration::MAX);
    }

    proptest! {
        #[test]
        fn jitter_stays_in_its_upper_half(seed: [u8; 32], ns in 2u64..) {
            let span = Duration::from_nanos(ns);
            let spread = Rng::from_seed(seed).jitter(span);
            prop_assert!(spread >= Duration::from_nanos(ns / 2) && spread < span);
        }

        #[test]
        fn below_and_between_stay_in_their_ranges(seed: [u8; 32], a: u64, b: u64) {
            let mut rng = Rng::from_seed(seed);
            prop_assert!(a == 0 || rng.below(a) < a);
            let (least, most) = (Duration::from_nanos(a.min(b)), Duration::from_nanos(a.max(b)));
            let span = rng.between(least, most);
            prop_assert!(least <= span && span <= most);
        }
    }
}
