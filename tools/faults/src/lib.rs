//! What a bad network does to a datagram: one effect at a time, drawn without any state.
//!
//! Decides what each effect does to a datagram's way, and that every draw is a function of the seed, the effect, the link and the
//! datagram's number there. So a fault that is left out changes no other decision, and the same datagrams under the same seed meet the
//! same fate, in the simulator and in the fault proxy.
//! Invariant: an effect that is not drawn changes nothing. Spans are in nanoseconds, chances in parts per million.
//! Leaves to others: which effects are active, and when (the simulator's plans, the proxy's script); queues, which have state.

use bytes::Bytes;
use cistern_wire::{Datagram, Kind};

/// One datagram on one link, for drawing.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// Of the whole run.
    pub seed: u64,
    /// The link: its agent and its direction.
    pub link: u64,
    /// The how-many-eth datagram on that link it is.
    pub number: u64,
}

impl Draw {
    /// 64 random bits that belong to this datagram and to `what` is decided.
    #[must_use]
    pub fn bits(&self, what: u64) -> u64 {
        roll([self.seed, what, self.link, self.number])
    }

    /// Whether something with this chance happens.
    #[must_use]
    pub fn chance(&self, what: u64, ppm: u64) -> bool {
        ppm > 0 && scale(self.bits(what), 1_000_000) < ppm
    }

    /// A number in `0..bound`.
    #[must_use]
    pub fn below(&self, what: u64, bound: u64) -> u64 {
        scale(self.bits(what), bound)
    }
}

/// What becomes of a datagram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// How long it takes.
    pub delay: u64,
    /// Whether it never arrives.
    pub lost: bool,
    /// Whether a bit of it was flipped.
    pub corrupted: bool,
    /// Further arrivals, so much later than the first.
    pub again: Vec<u64>,
}

/// Something that a network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields say what they are, in the units above")]
pub enum Effect {
    /// It is lost.
    Lose { ppm: u64 },
    /// It arrives again, within `spread`.
    Repeat { ppm: u64, spread: u64 },
    /// It takes longer.
    Delay { extra: u64, jitter: u64 },
    /// Others overtake it: it takes up to `by` longer.
    Reorder { ppm: u64, by: u64 },
    /// Nothing passes.
    Cut,
    /// Nothing passes in the first half of each period.
    Flap { period: u64 },
    /// One bit is flipped.
    Corrupt { ppm: u64 },
}

/// Draws of effects begin here; what is drawn for every datagram apart from them is below.
const FIRST: u64 = 16;
/// How many draws one effect may make.
const STEP: u64 = 8;

impl Effect {
    /// Does what it does to a datagram; true if that was anything. `id` tells effects of one run apart, `age` is how long this one has
    /// been active.
    pub fn apply(&self, id: u32, age: u64, draw: &Draw, bytes: &mut Bytes, way: &mut Way) -> bool {
        let own = FIRST + u64::from(id) * STEP;
        match *self {
            Self::Lose { ppm } => {
                let lost = draw.chance(own, ppm);
                way.lost |= lost;
                lost
            }
            Self::Repeat { ppm, spread } if draw.chance(own, ppm) => {
                way.again.push(draw.below(own + 1, spread + 1));
                true
            }
            Self::Delay { extra, jitter } => {
                way.delay += extra + draw.below(own, jitter + 1);
                true
            }
            Self::Reorder { ppm, by } if draw.chance(own, ppm) => {
                way.delay += draw.below(own + 1, by + 1);
                true
            }
            Self::Cut => {
                way.lost = true;
                true
            }
            Self::Flap { period } => {
                let lost = age % period.max(1) < period / 2;
                way.lost |= lost;
                lost
            }
            Self::Corrupt { ppm } if draw.chance(own, ppm) => {
                *bytes = flipped(bytes, draw.below(own + 1, bytes.len() as u64 * 8));
                way.corrupted = true;
                true
            }
            Self::Repeat { .. } | Self::Reorder { .. } | Self::Corrupt { .. } => false,
        }
    }
}

/// The bytes with one bit flipped.
fn flipped(bytes: &[u8], bit: u64) -> Bytes {
    let mut damaged = bytes.to_vec();
    if let Some(byte) = damaged.get_mut(usize::try_from(bit / 8).unwrap_or(usize::MAX)) {
        *byte ^= 1 << (bit % 8);
    }
    damaged.into()
}

/// Whether a datagram has a message of this kind.
#[must_use]
pub fn has_kind(bytes: &[u8], kind: Kind) -> bool {
    Datagram::seen(bytes).is_ok_and(|datagram| datagram.messages().any(|message| message.kind() == kind))
}

/// A random number that belongs to these words: the same for the same words, without any state.
#[must_use]
pub fn roll(words: [u64; 4]) -> u64 {
    words.into_iter().fold(0x243F_6A88_85A3_08D3, |all, word| mix(all ^ word))
}

/// A number in `0..bound` from 64 random bits.
#[must_use]
pub fn scale(bits: u64, bound: u64) -> u64 {
    u64::try_from((u128::from(bits) * u128::from(bound)) >> 64).unwrap_or(0)
}

/// The finalizer of splitmix64: each bit of the word changes half of the bits of the result.
#[must_use]
pub fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(seed: u64, effect: Effect, id: u32) -> Vec<Way> {
        let one = |number| {
            let (mut way, mut bytes) = (Way::default(), Bytes::from_static(b"some datagram"));
            effect.apply(id, 0, &Draw { seed, link: 1, number }, &mut bytes, &mut way);
            way
        };
        (0..2_000).map(one).collect()
    }

    #[test]
    fn same_seed_has_the_same_fates_and_another_seed_or_effect_others() {
        let effect = Effect::Lose { ppm: 300_000 };
        let fate = fates(7, effect, 0);
        assert_eq!(fate, fates(7, effect, 0));
        assert_ne!(fate, fates(8, effect, 0));
        assert_ne!(fate, fates(7, effect, 1));
        let lost = fate.iter().filter(|way| way.lost).count();
        assert!((500..700).contains(&lost), "{lost} of 2000 at 30 %");
    }

    #[test]
    fn effects_stay_in_their_bounds_and_never_and_always_are_so() {
        let delays = fates(1, Effect::Delay { extra: 100, jitter: 50 }, 0);
        assert!(delays.iter().all(|way| (100..=150).contains(&way.delay)) && delays.iter().any(|way| way.delay > 140));
        assert!(fates(1, Effect::Lose { ppm: 1_000_000 }, 0).iter().all(|way| way.lost));
        assert!(fates(1, Effect::Lose { ppm: 0 }, 0).iter().all(|way| *way == Way::default()));
        assert!(fates(1, Effect::Repeat { ppm: 1_000_000, spread: 9 }, 0).iter().all(|way| way.again.len() == 1 && way.again[0] <= 9));
    }

    #[test]
    fn corrupt_flips_one_bit_and_an_empty_datagram_stays() {
        let draw = Draw { seed: 3, link: 0, number: 5 };
        for text in [&b"some datagram"[..], b""] {
            let mut bytes = Bytes::copy_from_slice(text);
            Effect::Corrupt { ppm: 1_000_000 }.apply(0, 0, &draw, &mut bytes, &mut Way::default());
            let flips: u32 = bytes.iter().zip(text).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!((bytes.len(), flips), (text.len(), u32::from(!text.is_empty())));
        }
    }
}
