//! How an input is made from others: a few changes at random places, and pieces of another.

use rand::RngExt as _;
use rand::rngs::ChaCha12Rng;

/// Numbers at which lengths and counts change their meaning.
const EDGES: [u64; 10] = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, u64::MAX];

/// No input is longer: a datagram and more, some lines, a small capture.
const LONGEST: usize = 16 << 10;

/// Changes `input` in one to eight places; `other` lends pieces.
pub(crate) fn mutate(rng: &mut ChaCha12Rng, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=rng.random_range(0..8) {
        change(rng, input, other);
    }
    input.truncate(LONGEST);
}

fn change(rng: &mut ChaCha12Rng, input: &mut Vec<u8>, other: &[u8]) {
    let at = rng.random_range(0..=input.len());
    let len = rng.random_range(0..=(input.len() - at).min(32));
    match rng.random_range(0..8) {
        0 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8),
        1 if at < input.len() => input[at] = rng.random(),
        2 => drop(input.drain(at..at + len)),
        3 => {
            let again = input[at..at + len].to_vec();
            drop(input.splice(at..at, again));
        }
        4 => {
            let width = 1 << rng.random_range(0..4);
            let edge = EDGES[rng.random_range(0..EDGES.len())].to_be_bytes();
            let end = (at + width).min(input.len());
            drop(input.splice(at..end, edge[8 - width..].iter().copied()));
        }
        5 => {
            let from = rng.random_range(0..=other.len());
            let piece = &other[from..from + rng.random_range(0..=(other.len() - from).min(256))];
            drop(input.splice(at..at + len, piece.iter().copied()));
        }
        6 => input.truncate(at),
        _ => input.insert(at, rng.random()),
    }
}
