//! The codec triad over the whole registry: value to bytes to value, every truncation, every flipped bit, trailing bytes, dirty buffers.

use crate::{SESSION, datagram_of, header_for};
use cistern_wire::limits::{CHECKSUM_LEN, DATAGRAM_MIN, HEADER_LEN, MESSAGE_HEADER_LEN};
use cistern_wire::{
    Ack, Ask, Bytes8, Bytes16, Datagram, DropReason, Fault, Field, Header, Kind, Lane, List, Lookup, Malformed, Message, ObjectId, Packer,
    Raw, Reader, Reply, ReplyKind, SessionId, Stage, Want, reply_samples, samples,
};
use std::collections::BTreeSet;

fn body(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode_body(&mut bytes);
    bytes
}

#[test]
fn every_kind_of_message_and_reply_has_a_sample() {
    let kinds: BTreeSet<Kind> = samples().iter().map(Message::kind).collect();
    assert_eq!(kinds, Kind::ALL.iter().copied().collect());
    let replies: BTreeSet<ReplyKind> = reply_samples().iter().map(Reply::kind).collect();
    assert_eq!(replies, ReplyKind::ALL.iter().copied().collect());
}

#[test]
fn codes_of_kinds_are_unique_and_found_again() {
    for code in 0..=u8::MAX {
        let of_code: Vec<&Kind> = Kind::ALL.iter().filter(|kind| kind.code() == code).collect();
        assert!(of_code.len() <= 1, "{of_code:?} share {code:#04x}");
        assert_eq!(Kind::of(code), of_code.first().map(|kind| **kind));
    }
    let names: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), Kind::ALL.len(), "two kinds share a name");
}

#[test]
fn value_to_bytes_to_value() {
    for message in samples() {
        let bytes = body(&message);
        let decoded = Message::decode(message.kind(), &bytes);
        assert_eq!(decoded, Ok(message));
        assert_eq!(body(&decoded.unwrap()), bytes, "{:?} has two encodings", message.kind());
    }
}

#[test]
fn reply_to_bytes_to_reply() {
    for reply in reply_samples() {
        let mut bytes = Vec::new();
        reply.put(&mut bytes);
        assert_eq!(bytes.first(), Some(&(reply.kind() as u8)));
        let mut r = Reader::new(&bytes);
        assert_eq!(r.get::<Reply<'_>>(), Ok(reply));
        assert_eq!(r.rest(), b"");
    }
}

#[test]
fn every_truncation_of_a_body_fails_and_says_where() {
    for message in samples() {
        let bytes = body(&message);
        for len in 0..bytes.len() {
            let malformed = Message::decode(message.kind(), &bytes[..len]).expect_err("a truncated body was taken");
            assert_eq!(malformed.fault, Fault::Truncated, "{message:?} cut to {len} bytes");
            assert!(!malformed.part.is_empty() && !malformed.field.is_empty(), "{malformed:?} names no field");
        }
    }
}

#[test]
fn every_truncation_of_a_datagram_is_dropped() {
    for message in samples() {
        let bytes = datagram_of(header_for(&message), &[message]);
        for len in 0..bytes.len() {
            assert!(Datagram::seen(&bytes[..len]).is_err(), "{:?} cut to {len} bytes", message.kind());
        }
    }
}

#[test]
fn trailing_bytes_in_a_body_are_an_error() {
    for message in samples() {
        let mut bytes = body(&message);
        bytes.push(0);
        let malformed = Message::decode(message.kind(), &bytes).expect_err("a trailing byte was taken");
        assert_eq!(malformed, Malformed::new(Fault::Trailing).within(message.kind().name(), "end"));
    }
}

//= wire-spec.md#3-5-validation-and-drops
//= type=test
//# A receiver MUST validate a datagram to its last byte before any message in it acts.
#[test]
fn what_is_checked_is_what_is_decoded_whatever_the_body() {
    for message in samples() {
        let (kind, bytes) = (message.kind(), body(&message));
        let agrees = |body: &[u8]| assert_eq!(Message::check(kind, body), Message::decode(kind, body).map(drop), "{kind:?}: {body:02x?}");
        (0..=bytes.len()).for_each(|len| agrees(&bytes[..len]));
        agrees(&[&bytes[..], &[0]].concat());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            agrees(&flipped);
        }
    }
}

#[test]
fn datagram_says_whether_its_messages_act_in_the_order_in_which_they_stand() {
    let of = |code: Kind| samples().into_iter().find(|message| message.kind() == code).unwrap();
    let (request, control, first) = (of(Kind::GetAttr), of(Kind::KeepAlive), of(Kind::Release));
    for (messages, in_order) in [(vec![request, control], true), (vec![request, first], false), (vec![first], false)] {
        let bytes = datagram_of(header_for(&request), &messages);
        assert_eq!(Datagram::at_server(&bytes).unwrap().is_in_order(), in_order, "{messages:?}");
    }
}

//= wire-spec.md#3-5-validation-and-drops
//= type=test
//# A receiver MUST validate a datagram to its last byte before any message in it acts.
#[test]
fn a_bad_message_at_the_end_drops_the_whole_datagram() {
    for message in samples() {
        let header = header_for(&message);
        let mut bytes = datagram_of(header, &[message, message]);
        bytes.truncate(bytes.len() - CHECKSUM_LEN);
        let second = HEADER_LEN + (bytes.len() - HEADER_LEN) / 2;
        // The second message claims one byte more than is there.
        let len = u16::from_be_bytes([bytes[second + 2], bytes[second + 3]]) + 1;
        bytes[second + 2..second + 4].copy_from_slice(&len.to_be_bytes());
        crate::seal(&mut bytes);
        assert_eq!(Datagram::seen(&bytes).unwrap_err(), DropReason::BadLength, "{:?}", message.kind());
    }
}

#[test]
fn every_flipped_bit_of_a_datagram_is_rejected() {
    for message in samples() {
        let bytes = datagram_of(header_for(&message), &[message]);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let reason = Datagram::seen(&flipped).expect_err("a flipped bit went unnoticed");
            let expected = match bit / 8 {
                0 => DropReason::BadMagic,
                1 => DropReason::UnknownVersion(flipped[1]),
                2 => DropReason::UnknownForm(flipped[2]),
                _ => DropReason::BadChecksum,
            };
            assert_eq!(reason, expected, "{:?}, bit {bit}", message.kind());
        }
    }
}

#[test]
fn a_flipped_bit_of_a_bare_body_is_rejected_or_is_another_value() {
    for message in samples() {
        let bytes = body(&message);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(other) = Message::decode(message.kind(), &flipped) {
                assert_eq!(body(&other), flipped, "{:?}, bit {bit}: not encoded as it was read", message.kind());
                assert!(other != message, "{:?}, bit {bit} is read by nobody", message.kind());
            }
        }
    }
}

#[test]
fn a_dirty_buffer_does_not_shine_through() {
    for message in samples() {
        let clean = message.to_bytes();
        let mut dirty = vec![0xEE; 7];
        message.encode(&mut dirty);
        assert_eq!(dirty, [&[0xEE; 7][..], &clean].concat(), "encode appends");
        let (first, second) = (datagram_of(header_for(&message), &[message]), datagram_of(header_for(&message), &[message]));
        assert_eq!(first, second);
        let datagram = Datagram::seen(&first).unwrap();
        assert_eq!(datagram.header, header_for(&message));
        assert!(datagram.messages().eq([message]));
    }
}

#[test]
fn one_datagram_carries_several_messages_in_order() {
    let answers: Vec<Message<'_>> = samples().into_iter().filter(|m| m.kind().name() != "WELCOME").filter(|m| m.kind().renews()).collect();
    let header = header_for(&answers[0]);
    let bytes = datagram_of(header, &answers);
    let datagram = Datagram::at_agent(&bytes).unwrap();
    assert_eq!(datagram.messages().collect::<Vec<_>>(), answers);
}

#[test]
fn messages_that_do_not_fit_leave_the_datagram_as_it_was() {
    let message = samples().pop().unwrap();
    let need = HEADER_LEN + message.to_bytes().len() + CHECKSUM_LEN;
    for limit in [need - 1, need] {
        let mut buf = Vec::new();
        let mut packer = Packer::new(&mut buf, header_for(&message), limit);
        assert!(packer.is_empty());
        assert_eq!(packer.room(), limit - HEADER_LEN - CHECKSUM_LEN);
        assert_eq!(packer.push(&message), limit == need);
        assert_eq!(packer.is_empty(), limit < need);
        assert!(!packer.push(&message), "there is no room for a second");
        packer.finish();
        assert_eq!(buf.len(), if limit == need { need } else { HEADER_LEN + CHECKSUM_LEN });
    }
}

#[test]
fn reply_that_was_encoded_before_travels_in_an_ack() {
    for reply in reply_samples() {
        let mut encoded = Vec::new();
        reply.put(&mut encoded);
        let mut buf = Vec::new();
        let header = Header { from_server: true, session: SESSION, packet: 3 };
        let mut packer = Packer::new(&mut buf, header, 1_232);
        let mut message = Vec::new();
        Ack::put_around(7, 19, &encoded, &mut message);
        assert_eq!(message, Message::Ack(Ack { nonce: 7, echo: 19, reply }).to_bytes());
        assert!(packer.push_encoded(&message));
        packer.finish();
        assert_eq!(buf.len(), Ack::around(cistern_wire::Form::Plain) + encoded.len());
    }
}

#[test]
fn object_that_a_message_names_first_is_found_by_its_layout() {
    for message in samples() {
        let bytes = message.to_bytes();
        let raw = Raw { kind: message.kind(), body: &bytes[4..] };
        // Whatever stands in `samples` names an object as `#n` before any other.
        let shown = format!("{message:?}");
        let first = shown.split_once('#').map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
        if let Some(object) = raw.object() {
            assert_eq!(Some(object.0.to_string()), first, "{shown}");
        } else {
            let none = matches!(message.kind().lane(), Lane::Renewal | Lane::Answer | Lane::Handshake)
                || first.is_none()
                || message.kind() == Kind::Batch;
            assert!(none, "{shown}");
        }
        let cut = Raw { kind: message.kind(), body: &[] };
        assert_eq!(cut.object(), None);
    }
}

#[test]
fn only_requests_begin_with_an_ask() {
    for message in samples() {
        let request = message.kind().lane() == Lane::Request;
        assert_eq!(message.ask().is_some(), request, "{:?}", message.kind());
        assert_eq!(message.kind().fields().first().is_some_and(|field| field.ty == "Ask"), request);
    }
    assert_eq!(Ask { nonce: 7, back: 2, limit: 548 }.floor(), 5);
    assert_eq!(Ask { nonce: 1, back: 9, limit: 548 }.floor(), 0, "an impossible floor does not wrap");
}

//= wire-spec.md#7-the-table-of-answers
//= type=test
//# An agent MUST NOT renew its lease on a message that this table does not mark as renewing.
#[test]
fn what_renews_echoes_and_what_notifies_does_not() {
    for kind in Kind::ALL {
        let echoes = kind.fields().iter().any(|field| field.name == "echo" && field.ty == "u64");
        assert!(echoes || !kind.renews(), "{} renews from nothing", kind.name());
        assert!(!echoes || kind.lane() != Lane::Notice, "{} echoes of its own accord", kind.name());
    }
}

#[test]
fn a_count_beyond_the_bytes_is_an_error_not_an_allocation() {
    let names = [Bytes8(b"a"), Bytes8(b"b")];
    let lookup = Lookup { ask: Ask { nonce: 1, back: 0, limit: 548 }, start: ObjectId(1), want: Want::Nothing, names: List::of(&names) };
    let mut bytes = body(&Message::Lookup(lookup));
    let count_at = 21;
    assert_eq!(bytes[count_at..count_at + 2], [0, 2]);
    for count in [3_u16, 4, 255, u16::MAX] {
        bytes[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
        let fault = Message::decode(Kind::Lookup, &bytes).map_err(|e| (e.part, e.field, e.fault));
        assert_eq!(fault, Err(("Lookup", "names", Fault::Truncated)), "count {count}");
    }
    for count in [0_u16, 1] {
        bytes[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
        let fault = Message::decode(Kind::Lookup, &bytes).map_err(|e| e.fault);
        assert_eq!(fault, Err(Fault::Trailing), "count {count}");
    }
}

#[test]
fn strings_and_lists_at_their_limits() {
    let long = vec![b'x'; 70_000];
    for len in [0, 1, 255] {
        let mut bytes = Vec::new();
        Bytes8(&long[..len]).put(&mut bytes);
        assert_eq!(Reader::new(&bytes).get::<Bytes8<'_>>(), Ok(Bytes8(&long[..len])));
    }
    for len in [0, 1, 65_535] {
        let mut bytes = Vec::new();
        Bytes16(&long[..len]).put(&mut bytes);
        assert_eq!(Reader::new(&bytes).get::<Bytes16<'_>>(), Ok(Bytes16(&long[..len])));
    }
    // What is too long for its length field is cut, so that the encoder never writes what it would not read.
    let mut bytes = Vec::new();
    Bytes8(&long[..256]).put(&mut bytes);
    assert_eq!(bytes.len(), 256);
    bytes.clear();
    Bytes16(&long).put(&mut bytes);
    assert_eq!(bytes.len(), 2 + 65_535);
    let many = vec![1_u8; 65_536];
    bytes.clear();
    List::of(&many).put(&mut bytes);
    assert_eq!(Reader::new(&bytes).get::<List<'_, u8>>().map(|list| list.len()), Ok(65_535));
}

//= wire-spec.md#3-7-sizes-and-paths
//= type=test
//# Every handshake message, control message, notice, receipt and NACK MUST fit a datagram of 548 bytes.
#[test]
fn small_messages_fit_the_smallest_datagram_at_their_largest() {
    use cistern_wire::limits::{COOKIE_MAX, FORMER_MAX, LABEL_MAX};
    let longest = [0x5A; 255];
    for message in samples() {
        let largest = match message {
            Message::Hello(hello) => Message::Hello(cistern_wire::Hello {
                label: Bytes8(&longest[..LABEL_MAX]),
                cookie: Bytes8(&longest[..COOKIE_MAX]),
                ..hello
            }),
            Message::Challenge(challenge) => {
                Message::Challenge(cistern_wire::Challenge { cookie: Bytes8(&longest[..COOKIE_MAX]), ..challenge })
            }
            Message::Confirm(confirm) => Message::Confirm(cistern_wire::Confirm {
                former: List::of(&[cistern_wire::FormerClaim { session: SessionId(1), claim: cistern_wire::Claim::Lost }; FORMER_MAX]),
                ..confirm
            }),
            Message::Opened(opened) => Message::Opened(cistern_wire::Opened {
                former: List::of(&[cistern_wire::FormerFate { session: SessionId(1), fate: cistern_wire::SessionFate::Ended }; FORMER_MAX]),
                ..opened
            }),
            other => other,
        };
        let lane = message.kind().lane();
        if matches!(lane, Lane::Handshake | Lane::Control | Lane::Notice)
            || matches!(message.kind(), Kind::Opened | Kind::Known | Kind::Nack)
        {
            let bytes = datagram_of(header_for(&largest), &[largest]);
            assert!(bytes.len() <= DATAGRAM_MIN, "{:?}: {} bytes", message.kind(), bytes.len());
        }
    }
    // A RELEASE has as many items as fit; there is room for this many.
    let items = (DATAGRAM_MIN - HEADER_LEN - CHECKSUM_LEN - MESSAGE_HEADER_LEN - 10) / 18;
    assert_eq!(items, 28);
}

#[test]
fn message_of_the_right_size_fills_a_datagram_to_the_byte() {
    let zeros = [0; 600];
    for limit in [548, 600] {
        let mut buf = Vec::new();
        let mut packer = Packer::new(&mut buf, Header { from_server: false, session: SESSION, packet: 1 }, limit);
        let ask = Ask { nonce: 1, back: 0, limit: 1_232 };
        let piece = |len: usize| Message::Stage(Stage { ask, stage: 1, total: 600, offset: 0, data: Bytes16(&zeros[..len]) });
        let fill = packer.room() - piece(0).to_bytes().len();
        assert!(!packer.push(&piece(fill + 1)));
        assert!(packer.push(&piece(fill)));
        assert_eq!(packer.room(), 0);
        packer.finish();
        assert_eq!(buf.len(), limit);
        assert!(Datagram::at_server(&buf).is_ok());
    }
}
