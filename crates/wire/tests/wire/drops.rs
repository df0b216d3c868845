//! Every reason for which a datagram is dropped: what causes it, in which order, and that nothing else does.

use crate::{SESSION, datagram_of, datagram_of_bytes, drop_reason, header_bytes, header_for};
use cistern_wire::limits::{CHECKSUM_LEN, DATAGRAM_MAX, HEADER_LEN};
use cistern_wire::{
    Ask, Bytes16, Datagram, Direction, DropReason, Fault, Header, Kind, Lane, Malformed, Message, SessionId, Stage, samples,
};
use std::collections::BTreeSet;

const KEEPALIVE: [u8; 20] = [0x10, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2];

fn with_header(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut header = header_bytes();
    change(&mut header);
    datagram_of_bytes(&header, &KEEPALIVE)
}

#[test]
fn a_sound_datagram_is_not_dropped() {
    assert_eq!(drop_reason(&with_header(|_| {})), None);
}

#[test]
fn length_outside_the_format_is_dropped() {
    for len in 0..HEADER_LEN + CHECKSUM_LEN {
        assert_eq!(drop_reason(&vec![0xC5; len]), Some(DropReason::TooShort));
    }
    let staging = |fill: usize| {
        let data = vec![0; fill];
        let ask = Ask { nonce: 1, back: 0, limit: 1_232 };
        let piece = Message::Stage(Stage { ask, stage: 1, total: 1 << 20, offset: 0, data: Bytes16(&data) });
        datagram_of_bytes(&header_bytes(), &piece.to_bytes())
    };
    let most = DATAGRAM_MAX - staging(0).len();
    assert_eq!(staging(most).len(), DATAGRAM_MAX);
    assert_eq!(drop_reason(&staging(most)), None);
    assert_eq!(drop_reason(&staging(most + 1)), Some(DropReason::TooLong));
}

#[test]
fn other_magic_versions_and_forms_are_dropped() {
    for byte in 0..=u8::MAX {
        let magic = drop_reason(&with_header(|header| header[0] = byte));
        assert_eq!(magic, (byte != 0xC5).then_some(DropReason::BadMagic));
        let version = drop_reason(&with_header(|header| header[1] = byte));
        assert_eq!(version, (byte != 1).then_some(DropReason::UnknownVersion(byte)));
    }
}

//= wire-spec.md#3-6-sealed-forms
//= type=test
//# A receiver that has no sealed mode MUST drop datagrams of forms 1 and 2 as `unknown_form`.
#[test]
fn sealed_forms_are_dropped_by_name() {
    for form in 0..=u8::MAX {
        let reason = drop_reason(&with_header(|header| header[2] = form));
        assert_eq!(reason, (form != 0).then_some(DropReason::UnknownForm(form)));
    }
}

//= wire-spec.md#3-1-header
//= type=test
//# A sender MUST set reserved bits and reserved bytes to zero.
#[test]
fn reserved_bits_are_sent_as_zero_and_dropped_when_set() {
    for message in samples() {
        let bytes = datagram_of(header_for(&message), &[message]);
        assert_eq!((bytes[3] & 0xFE, bytes[HEADER_LEN + 1]), (0, 0), "{:?}", message.kind());
    }
    for bit in 1..8 {
        let reason = drop_reason(&with_header(|header| header[3] = 1 << bit));
        assert_eq!(reason, Some(DropReason::ReservedBits));
    }
    for byte in 1..=u8::MAX {
        let mut message = KEEPALIVE;
        message[1] = byte;
        assert_eq!(drop_reason(&datagram_of_bytes(&header_bytes(), &message)), Some(DropReason::ReservedBits));
    }
}

#[test]
fn wrong_checksum_is_dropped() {
    let mut bytes = with_header(|_| {});
    *bytes.last_mut().unwrap() ^= 0x80;
    assert_eq!(drop_reason(&bytes), Some(DropReason::BadChecksum));
}

#[test]
fn datagram_of_the_own_side_is_dropped() {
    for message in samples() {
        let bytes = datagram_of(header_for(&message), &[message]);
        let (agent, server) = (Datagram::at_agent(&bytes).err(), Datagram::at_server(&bytes).err());
        let expected = match message.kind().direction() {
            Direction::Server => (None, Some(DropReason::WrongDirection)),
            Direction::Agent => (Some(DropReason::WrongDirection), None),
        };
        assert_eq!((agent, server), expected, "{:?}", message.kind());
    }
}

#[test]
fn packet_number_zero_is_dropped() {
    let reason = drop_reason(&with_header(|header| header[12..20].fill(0)));
    assert_eq!(reason, Some(DropReason::BadPacketNumber));
}

#[test]
fn datagram_without_messages_is_dropped() {
    assert_eq!(drop_reason(&datagram_of_bytes(&header_bytes(), &[])), Some(DropReason::Empty));
}

#[test]
fn unknown_kinds_are_dropped_alone_and_behind_others() {
    for code in (0..=u8::MAX).filter(|code| Kind::of(*code).is_none()) {
        let unknown = [code, 0, 0, 0];
        assert_eq!(drop_reason(&datagram_of_bytes(&header_bytes(), &unknown)), Some(DropReason::UnknownKind(code)));
        let behind = [&KEEPALIVE[..], &unknown].concat();
        assert_eq!(drop_reason(&datagram_of_bytes(&header_bytes(), &behind)), Some(DropReason::UnknownKind(code)));
    }
}

#[test]
fn lengths_that_do_not_add_up_are_dropped() {
    for cut in 1..4 {
        let bytes = datagram_of_bytes(&header_bytes(), &[&KEEPALIVE[..], &[0x10, 0, 0][..cut]].concat());
        assert_eq!(drop_reason(&bytes), Some(DropReason::BadLength), "{cut} bytes of a message header");
    }
    for len in [17_u16, 18, u16::MAX] {
        let mut message = KEEPALIVE;
        message[2..4].copy_from_slice(&len.to_be_bytes());
        assert_eq!(drop_reason(&datagram_of_bytes(&header_bytes(), &message)), Some(DropReason::BadLength));
    }
    let mut short = KEEPALIVE;
    short[3] = 15;
    let malformed = Malformed { part: "KeepAlive", field: "clock_us", fault: Fault::Truncated };
    assert_eq!(drop_reason(&datagram_of_bytes(&header_bytes(), &short)), Some(DropReason::Malformed(malformed)));
}

#[test]
fn bad_values_are_dropped_and_named() {
    let mut end_session = vec![0x14, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1];
    for value in 0..=u8::MAX {
        end_session.truncate(12);
        end_session.push(value);
        let reason = drop_reason(&datagram_of_bytes(&header_bytes(), &end_session));
        let malformed = Malformed { part: "EndSession", field: "reason", fault: Fault::BadValue };
        assert_eq!(reason, (value != 1 && value != 2).then_some(DropReason::Malformed(malformed)));
    }
    assert_eq!(
        DropReason::Malformed(Malformed { part: "EndSession", field: "reason", fault: Fault::BadValue }).to_string(),
        "malformed: EndSession.reason has a value that the format does not allow"
    );
}

#[test]
fn messages_stand_only_where_they_belong() {
    for message in samples() {
        let kind = message.kind();
        for from_server in [false, true] {
            for session in [SessionId(0), SESSION] {
                let bytes = datagram_of(Header { from_server, session, packet: 1 }, &[message]);
                let handshake = kind.lane() == Lane::Handshake;
                let placed = handshake == (session.0 == 0);
                let directed = (kind.direction() == Direction::Server) == from_server;
                let expected = (!placed || !directed).then_some(DropReason::Misplaced(kind));
                assert_eq!(Datagram::seen(&bytes).err(), expected, "{kind:?} in session {session} from server: {from_server}");
            }
        }
    }
}

#[test]
fn every_reason_has_a_name_and_a_counter_of_its_own() {
    let malformed = Malformed { part: "Hello", field: "label", fault: Fault::TooLong };
    let all = [
        DropReason::TooShort,
        DropReason::TooLong,
        DropReason::BadMagic,
        DropReason::UnknownVersion(2),
        DropReason::UnknownForm(1),
        DropReason::ReservedBits,
        DropReason::BadChecksum,
        DropReason::WrongDirection,
        DropReason::BadPacketNumber,
        DropReason::Empty,
        DropReason::UnknownKind(0),
        DropReason::BadLength,
        DropReason::Malformed(malformed),
        DropReason::Misplaced(Kind::Hello),
    ];
    let names: BTreeSet<&str> = all.iter().map(DropReason::name).collect();
    assert_eq!(names.len(), DropReason::NAMES.len());
    for (index, reason) in all.iter().enumerate() {
        assert_eq!(reason.index(), index);
        assert!(!reason.to_string().is_empty());
    }
}

#[test]
fn messages_of_a_dropped_datagram_are_never_seen() {
    let good = datagram_of_bytes(&header_bytes(), &KEEPALIVE);
    let datagram = Datagram::at_server(&good).unwrap();
    assert!(matches!(datagram.messages().next(), Some(Message::KeepAlive(alive)) if alive.serial == 1 && alive.clock_us == 2));
    let bad = datagram_of_bytes(&header_bytes(), &[&KEEPALIVE[..], &[0xFF, 0, 0, 0]].concat());
    assert!(Datagram::at_server(&bad).is_err(), "there is no Datagram to take a message from");
}
