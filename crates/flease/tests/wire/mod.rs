//! Datagrams: what is written is read, anything else is refused with its reason.

use cistern_flease::{Ballot, DATAGRAM_MAX, Datagram, DropReason, Group, Header, Lease, MemberSet, Message, Mismatch, Terms};
use std::fmt::Write as _;
use std::time::Duration;

const MANUAL: &str = include_str!("../../../../docs/flease.md");

/// What member 0 says of itself; the receiver is member 1.
fn sender() -> Header {
    let names = [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()];
    let group = Group {
        terms: Terms::default(),
        places: 3,
        members: MemberSet::first(3),
        me: 0,
        nonce: 0x0102_0304_0506_0708,
        renew_by_write: false,
        durable_tokens: false,
    };
    Header { list_number: 1, list_hash: Header::hash_of(&names), group, hears: false }
}

fn receiver() -> Header {
    let group = Group { me: 1, nonce: 9, ..sender().group };
    Header { group, ..sender() }
}

fn encoded(header: &Header, messages: &[(&[u8], Message)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert_eq!(Datagram::encode(&mut bytes, header, 1, messages.iter().copied()), messages.len());
    bytes
}

/// One message of each kind and form, as member 0 may send it to member 1.
fn samples() -> Vec<Message> {
    let mine = Ballot { round: 3, member: 0, nonce: sender().group.nonce };
    let tenure = Ballot { round: 2, ..mine };
    let theirs = Ballot { round: 5, member: 1, nonce: 9 };
    let raised = Ballot { round: 6, ..Ballot::NONE };
    vec![
        Message::Read { ballot: mine, base: None },
        Message::Read { ballot: mine, base: Some(tenure) },
        Message::Open { ballot: theirs, floor: 0 },
        Message::Own { ballot: theirs, tenure: theirs },
        Message::Held { ballot: theirs, tenure, rest_us: 400_000, floor: 8 },
        Message::Lower { ballot: theirs, promised: mine },
        Message::Lower { ballot: theirs, promised: raised },
        Message::Write { ballot: mine, tenure, token: 256, transmission: 1 },
        Message::Taken { ballot: theirs, transmission: 1 },
        Message::Release { tenure, successor: None },
        Message::Release { tenure, successor: Some(2) },
        Message::Released { tenure: theirs },
        Message::Value { ballot: theirs, written: Ballot::NONE, lease: None },
        Message::Value { ballot: theirs, written: mine, lease: Some(Lease { tenure: mine, ends_us: 9, token: 1 }) },
        Message::Put { ballot: mine, lease: Lease { tenure: theirs, ends_us: 0, token: 1 } },
    ]
}

#[test]
fn what_is_written_is_read() {
    let messages: Vec<(&[u8], Message)> = samples().into_iter().map(|message| (&b"disk"[..], message)).collect();
    // What the sender hears need not agree with what the receiver does.
    for hears in [false, true] {
        let bytes = encoded(&Header { hears, ..sender() }, &messages);
        let read = Datagram::decode(&bytes, &receiver(), 0).unwrap();
        assert_eq!(read, Datagram { nonce: sender().group.nonce, hears, messages: messages.clone() });
    }
}

#[test]
fn datagrams_are_filled_and_never_too_large() {
    let name = [b'n'; 200];
    let message = samples()[0];
    let mut bytes = Vec::new();
    let count = Datagram::encode(&mut bytes, &sender(), 1, std::iter::repeat_n((&name[..], message), 100));
    assert!(bytes.len() <= DATAGRAM_MAX && bytes.len() + 236 > DATAGRAM_MAX, "{}", bytes.len());
    assert_eq!(Datagram::decode(&bytes, &receiver(), 0).unwrap().messages.len(), count);
}

//= docs/flease.md#datagrams
//= type=test
//# A receiver MUST drop what does not parse to its last byte.
#[test]
fn every_changed_bit_and_every_truncation_is_refused() {
    for message in samples() {
        let bytes = encoded(&sender(), &[(b"disk", message)]);
        for length in 0..bytes.len() {
            assert!(Datagram::decode(&bytes[..length], &receiver(), 0).is_err(), "{message:?}, {length} bytes");
        }
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Datagram::decode(&changed, &receiver(), 0).is_err(), "{message:?}, bit {bit}");
        }
    }
}

#[test]
fn a_body_changed_under_a_right_checksum_is_refused_or_read_as_what_it_says() {
    for message in samples() {
        let bytes = encoded(&sender(), &[(b"disk", message)]);
        for bit in 44 * 8..(bytes.len() - 4) * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            seal(&mut changed);
            if let Ok(read) = Datagram::decode(&changed, &receiver(), 0) {
                assert_eq!(encoded(&sender(), &read.messages), changed, "{message:?}, bit {bit}");
            }
        }
        for length in 44..bytes.len() - 4 {
            let mut cut = bytes[..length + 4].to_vec();
            seal(&mut cut);
            assert!(Datagram::decode(&cut, &receiver(), 0).is_err(), "{message:?}, cut to {length}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        seal(&mut longer);
        assert!(Datagram::decode(&longer, &receiver(), 0).is_err(), "{message:?} with a byte behind it");
    }
}

//= docs/flease.md#datagrams
//= type=test
//# A datagram MUST come from the address of the member that it names as its sender.
//= docs/flease.md#rules
//= type=test
//# A member MUST refuse a datagram whose list of members or its number, L, δ, ε, mode of time, mode of renewal or keeping of tokens
//# differs from its own.
#[test]
fn what_differs_is_named() {
    let ours = sender();
    let of = |group: Group| Header { group, ..ours };
    let terms = ours.group.terms;
    let with = |terms: Terms| of(Group { terms, ..ours.group });
    let read = |header: &Header| Datagram::decode(&encoded(header, &[(b"disk", samples()[0])]), &receiver(), 0).map(drop);
    let rows = [
        (Header { list_number: 2, ..ours }, Mismatch::ListNumber),
        (Header { list_hash: 1, ..ours }, Mismatch::List),
        (of(Group { places: 4, members: MemberSet::first(4), ..ours.group }), Mismatch::List),
        (with(Terms { lease: Duration::from_millis(501), ..terms }), Mismatch::Lease),
        (with(Terms { drift_ppm: 10_001, ..terms }), Mismatch::Drift),
        (with(Terms { epsilon: Duration::from_millis(2), ..terms }), Mismatch::Epsilon),
        (of(Group { renew_by_write: true, ..ours.group }), Mismatch::RenewByWrite),
        (of(Group { durable_tokens: true, ..ours.group }), Mismatch::DurableTokens),
        (with(Terms { synchronised: true, ..terms }), Mismatch::Synchronised),
        (of(Group { me: 2, ..ours.group }), Mismatch::Sender),
    ];
    assert_eq!(read(&ours), Ok(()));
    for (header, mismatch) in rows {
        assert_eq!(read(&header), Err(DropReason::Mismatch(mismatch)));
    }
    let mut newer = encoded(&ours, &[(b"disk", samples()[0])]);
    newer[4] = 2;
    seal(&mut newer);
    assert_eq!(Datagram::decode(&newer, &receiver(), 0).map(drop), Err(DropReason::Mismatch(Mismatch::Version)));
    let other = Header { group: Group { me: 2, ..receiver().group }, ..receiver() };
    let bytes = encoded(&ours, &[(b"disk", samples()[0])]);
    assert_eq!(Datagram::decode(&bytes, &other, 0).map(drop), Err(DropReason::Mismatch(Mismatch::Receiver)));
}

//= docs/flease.md#messages
//= type=test
//# Ballot and base of READ, ballot and tenure of WRITE and tenure of RELEASE MUST have the sender's place and boot nonce; the ballots of
//# answers and the tenure of RELEASED the receiver's place.
//= docs/flease.md#rules
//= type=test
//# A member MUST NOT write the lease of another: the tenure of a WRITE is of the process of its ballot.
#[test]
fn nobody_writes_for_another_process() {
    let stranger = Ballot { round: 2, member: 2, nonce: 4 };
    let restarted = Ballot { round: 2, member: 0, nonce: 4 };
    let mine = Ballot { round: 3, member: 0, nonce: sender().group.nonce };
    for message in [
        Message::Write { ballot: mine, tenure: stranger, token: 1, transmission: 0 },
        Message::Write { ballot: mine, tenure: restarted, token: 1, transmission: 0 },
        Message::Read { ballot: stranger, base: None },
        Message::Release { tenure: restarted, successor: None },
        Message::Open { ballot: stranger, floor: 0 },
    ] {
        assert!(Datagram::decode(&encoded(&sender(), &[(b"disk", message)]), &receiver(), 0).is_err(), "{message:?}");
    }
}

#[test]
fn the_manual_shows_the_bytes() {
    let bytes = encoded(&sender(), &[(b"disk", samples()[0])]);
    let mut lines = String::new();
    for line in bytes.chunks(16) {
        let words: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(lines, "{}", words.join(" ")).unwrap();
    }
    assert!(MANUAL.contains(&lines), "docs/flease.md lacks:\n{lines}");
}

fn seal(bytes: &mut [u8]) {
    let covered = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..covered]);
    bytes[covered..].copy_from_slice(&checksum.to_be_bytes());
}
