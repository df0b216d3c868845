//! Tests of the wire format over the whole registry of messages, and of `wire-spec.md` against the code.
//!
//! `codec`, `drops` and `random` test the bytes; `shapes` tests the walk by shapes against the decoder; `spec_tables` and `vectors`
//! test that the specification says the same as the code, by a reader (`spec_reader`) that knows nothing but the formats of the specification
//! (`spec_text`); `citations` that sections cited by number are there; `sealed` tests the handshake datagrams and records of the sealed mode.
//! What is generated (`tests/vectors`) is written anew with `UPDATE_EXPECT=1 cargo test -p cistern-wire`; a vector that changes is a
//! change of the wire format, and is reviewed as one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod citations;
mod codec;
mod drop_vectors;
mod drops;
mod random;
mod sealed;
mod shapes;
mod spec_reader;
mod spec_tables;
mod spec_text;
mod vectors;

use cistern_wire::{Datagram, DropReason, Header, Lane, Message, Packer, SessionId};

/// The session of datagrams that are made here for messages that belong in one.
const SESSION: SessionId = SessionId(0x1122_3344_5566_7788);

/// A header with which `message` is sound: right session, right direction.
fn header_for(message: &Message<'_>) -> Header {
    let kind = message.kind();
    let handshake = kind.lane() == Lane::Handshake;
    let session = if handshake { SessionId(0) } else { SESSION };
    Header { from_server: kind.direction() == cistern_wire::Direction::Server, session, packet: 9 }
}

/// A datagram of the given messages, in a buffer that was not empty before.
fn datagram_of(header: Header, messages: &[Message<'_>]) -> Vec<u8> {
    let mut buf = b"what was in the buffer before".to_vec();
    let mut packer = Packer::new(&mut buf, header, cistern_wire::limits::DATAGRAM_MAX);
    for message in messages {
        assert!(packer.push(message), "{:?} does not fit", message.kind());
    }
    packer.finish();
    buf
}

/// A datagram with any bytes between the header and a right checksum.
fn datagram_of_bytes(header: &[u8], messages: &[u8]) -> Vec<u8> {
    let mut bytes = [header, messages].concat();
    seal(&mut bytes);
    bytes
}

/// Appends the checksum.
fn seal(bytes: &mut Vec<u8>) {
    let checksum = crc32fast::hash(bytes);
    bytes.extend_from_slice(&checksum.to_be_bytes());
}

/// The header of a datagram of `SESSION` from the agent, packet 9, as bytes.
fn header_bytes() -> Vec<u8> {
    let mut bytes = vec![0xC5, 1, 0, 0];
    bytes.extend_from_slice(&SESSION.0.to_be_bytes());
    bytes.extend_from_slice(&9_u64.to_be_bytes());
    bytes
}

/// Why `bytes` is dropped, whoever receives it; all receivers that take its direction must agree.
fn drop_reason(bytes: &[u8]) -> Option<DropReason> {
    let seen = Datagram::seen(bytes).err();
    for at in [Datagram::at_agent(bytes).err(), Datagram::at_server(bytes).err()] {
        assert!(at == seen || at == Some(DropReason::WrongDirection), "{at:?}, but seen as {seen:?}");
    }
    seen
}
