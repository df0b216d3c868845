//! What is read of a datagram's bytes beside its decoded messages: bodies, checksums, what an answer may name.
//!
//! Decides which number a message is found by. Invariant: only called for datagrams that decode whole.
//! Leaves to others: meaning.

use super::session::Carried;
use cistern_wire::{Kind, Lane, Message, Raw};

/// The messages of a datagram with their bodies.
pub(crate) fn messages(payload: &[u8]) -> impl Iterator<Item = (Message<'_>, &[u8])> {
    Raw::all(payload).filter_map(|raw| Some((raw.decode()?, raw.body)))
}

/// Whether a datagram carries a HINT, which stands alone and outside the numbers of its session.
pub(super) fn is_hint(payload: &[u8]) -> bool {
    Raw::all(payload).next().is_some_and(|raw| raw.kind == Kind::Hint)
}

/// Bytes in short: two that differ are told apart, by chance and by whoever chooses them with the checksum of a datagram in mind.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

fn be64(body: &[u8], at: usize) -> u64 {
    body.get(at..at + 8).map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap_or_default()))
}

/// What answers may name of a datagram's messages.
pub(super) fn carried(payload: &[u8]) -> Vec<Carried> {
    let one = |Raw { kind, body }: Raw<'_>| {
        let limit = match kind.lane() {
            Lane::Request => body.get(10..12).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]])),
            Lane::Control | Lane::Notice => 0,
            _ => return None,
        };
        Some(Carried { kind, number: be64(body, 0), limit })
    };
    Raw::all(payload).filter_map(one).collect()
}
