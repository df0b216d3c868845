//! Random bytes and mutated datagrams: nothing panics, and whatever is accepted is encoded to the very bytes that were accepted.

use crate::{SESSION, datagram_of, datagram_of_bytes, header_bytes, header_for};
use cistern_wire::limits::CHECKSUM_LEN;
use cistern_wire::{Datagram, Header, Kind, Message, Packer, Reply, samples};
use proptest::collection::vec;
use proptest::prelude::*;

/// Everything that can be asked of an accepted datagram gives back its bytes.
fn encodes_to_itself(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(datagram) = Datagram::seen(bytes) else {
        return Ok(());
    };
    let mut again = vec![0xEE; 3];
    let mut packer = Packer::new(&mut again, datagram.header, bytes.len());
    for message in datagram.messages() {
        prop_assert!(packer.push(&message));
        let printed = format!("{message:?}");
        prop_assert!(!printed.is_empty());
    }
    packer.finish();
    prop_assert_eq!(&again[..], bytes);
    Ok(())
}

/// Bytes that begin like a datagram and end with a right checksum, so that they get past the first checks.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let headers = prop_oneof![Just(header_bytes()), Just([0xC5, 1, 0, 1].into_iter().chain([7; 16]).collect())];
    let message = (prop::sample::select(Kind::ALL), vec(any::<u8>(), 0..80)).prop_map(|(kind, body)| {
        let mut bytes = vec![kind.code(), 0];
        bytes.extend_from_slice(&u16::try_from(body.len()).unwrap_or(0).to_be_bytes());
        bytes.extend_from_slice(&body);
        bytes
    });
    (headers, vec(message, 0..4)).prop_map(|(header, messages)| datagram_of_bytes(&header, &messages.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..1_300)) {
        encodes_to_itself(&bytes)?;
        let mut sealed = bytes;
        crate::seal(&mut sealed);
        encodes_to_itself(&sealed)?;
    }

    #[test]
    fn random_bodies_never_panic(kind in prop::sample::select(Kind::ALL), body in vec(any::<u8>(), 0..300)) {
        if let Ok(message) = Message::decode(kind, &body) {
            let mut again = Vec::new();
            message.encode_body(&mut again);
            prop_assert_eq!(again, body);
        }
    }

    #[test]
    fn plausible_datagrams_are_dropped_or_encode_to_themselves(bytes in plausible()) {
        encodes_to_itself(&bytes)?;
    }

    #[test]
    fn mutated_datagrams_are_dropped_or_encode_to_themselves(
        index in any::<prop::sample::Index>(),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        insert in vec(any::<u8>(), 0..4),
    ) {
        let all = samples();
        let message = all[index.index(all.len())];
        let mut bytes = datagram_of(header_for(&message), &[message, message]);
        bytes.truncate(bytes.len() - CHECKSUM_LEN);
        let at = cut.index(bytes.len());
        bytes.splice(at..at, insert);
        for (place, value) in flips {
            let at = place.index(bytes.len());
            bytes[at] = value;
        }
        // With the old checksum it is dropped unless nothing changed; with a right one it is judged by its messages.
        crate::seal(&mut bytes);
        encodes_to_itself(&bytes)?;
    }

    #[test]
    fn random_replies_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        let mut r = cistern_wire::Reader::new(&bytes);
        if let Ok(reply) = r.get::<Reply<'_>>() {
            let mut buf = Vec::new();
            let header = Header { from_server: true, session: SESSION, packet: 1 };
            let mut packer = Packer::new(&mut buf, header, 1_232);
            let ack = Message::Ack(cistern_wire::Ack { nonce: 1, echo: 1, reply });
            prop_assert!(packer.push(&ack));
        }
    }
}
