//! The datagrams of the sealed mode: handshakes of fixed sizes, and the frame of records.

use crate::spec_text::{self, Entry};
use cistern_wire::limits::{DATAGRAM_MAX, HEADER_LEN, LABEL_MAX, TAG_LEN};
use cistern_wire::sealed::{
    OpenPayload, OpenStatus, PROLOGUE_LEN, SEALED_HEAD_LEN, SealedDatagram, SealedHead, SealedKind, SealedRefusal, WelcomePayload, prologue,
};
use cistern_wire::{
    Bytes8, Datagram, Direction, DropReason, Envelope, Fault, Field as _, Form, Header, KeepAlive, Malformed, Message, Packer, SessionId,
    Shape, open_payload_sample, sealed_samples, welcome_payload_sample,
};

fn written(datagram: &SealedDatagram) -> Vec<u8> {
    let mut bytes = b"what was in the buffer before".to_vec();
    datagram.write(&mut bytes);
    bytes
}

/// What its receiver makes of it.
fn read(kind: SealedKind, bytes: &[u8]) -> Result<SealedDatagram, DropReason> {
    match kind.direction() {
        Direction::Agent => SealedDatagram::at_server(bytes),
        Direction::Server => SealedDatagram::at_agent(bytes),
    }
}

//= docs/sealed.md#who-has-which-key
//= type=test
//# A side that has no key MUST drop datagrams of forms 1 and 2 as `unknown_form`.
#[test]
fn every_kind_has_a_sample_of_its_length_that_is_read_as_it_was_written() {
    let samples = sealed_samples();
    assert!(samples.iter().map(|sample| sample.body.kind()).eq(SealedKind::ALL.iter().copied()));
    for sample in samples {
        let (kind, bytes) = (sample.body.kind(), written(&sample));
        assert_eq!(bytes.len(), kind.datagram_len());
        assert_eq!(read(kind, &bytes), Ok(sample));
        assert_eq!(SealedKind::of(bytes[HEADER_LEN]), Some(kind));
        assert_eq!(Datagram::seen(&bytes).err(), Some(DropReason::UnknownForm(2)), "a side without keys");
    }
}

#[test]
fn answers_are_smaller_than_what_they_answer() {
    let len = |kind: SealedKind| kind.datagram_len();
    assert!(len(SealedKind::Challenge) < len(SealedKind::Ask) && len(SealedKind::Refuse) < len(SealedKind::Ask));
    for opening in [SealedKind::Open, SealedKind::Resume] {
        assert!([SealedKind::Welcome, SealedKind::Challenge, SealedKind::Refuse].into_iter().all(|kind| len(kind) < len(opening)));
    }
    let mut smallest = Vec::new();
    let header = Header { from_server: false, session: SessionId(7), packet: 1 };
    let mut packer = Packer::of_form(&mut smallest, header, 548, Form::Record);
    assert!(packer.push(&KeepAlive { serial: 1, clock_us: 1 }.into()));
    assert!(len(SealedKind::Hint) < packer.used());
}

#[test]
fn datagrams_of_other_lengths_and_sides_are_dropped() {
    for sample in sealed_samples() {
        let (kind, bytes) = (sample.body.kind(), written(&sample));
        for len in 0..bytes.len() {
            let reason = if len < SEALED_HEAD_LEN { DropReason::TooShort } else { DropReason::BadLength };
            assert_eq!(read(kind, &bytes[..len]), Err(reason), "{} of {len} bytes", kind.name());
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(read(kind, &longer), Err(DropReason::BadLength));
        let wrong = match kind.direction() {
            Direction::Agent => SealedDatagram::at_agent(&bytes),
            Direction::Server => SealedDatagram::at_server(&bytes),
        };
        assert_eq!(wrong, Err(DropReason::WrongDirection));
        for (at, reason) in [
            (0, DropReason::BadMagic),
            (1, DropReason::UnknownVersion(9)),
            (2, DropReason::UnknownForm(9)),
            (3, DropReason::ReservedBits),
            (HEADER_LEN, DropReason::UnknownKind(9)),
        ] {
            let mut changed = bytes.clone();
            changed[at] = if at == 3 { changed[at] | 2 } else { 9 };
            assert_eq!(read(kind, &changed), Err(reason), "byte {at} of {}", kind.name());
        }
        let mut changed = bytes.clone();
        changed[3] ^= 1;
        assert_eq!(read(kind, &changed), Err(DropReason::WrongDirection));
        let mut changed = bytes.clone();
        changed[12..20].fill(0);
        assert_eq!(read(kind, &changed), Err(DropReason::BadPacketNumber));
        let mut changed = bytes;
        changed[4..12].fill(u8::from(kind != SealedKind::Hint));
        let malformed = Malformed { part: kind.name(), field: "session", fault: Fault::BadValue };
        assert_eq!(read(kind, &changed), Err(DropReason::Malformed(malformed)));
    }
}

#[test]
fn reserved_bytes_are_zero_and_all_others_are_anything() {
    for sample in sealed_samples() {
        let (kind, bytes) = (sample.body.kind(), written(&sample));
        let Shape::Structure { fields, .. } = kind.shape() else { unreachable!() };
        let mut at = SEALED_HEAD_LEN;
        for field in *fields {
            let len = match field.shape {
                Shape::Fixed { bytes, .. } | Shape::Number { bytes, .. } => usize::from(*bytes),
                _ => 1,
            };
            for place in at..at + len {
                let mut changed = bytes.clone();
                changed[place] = 0xFF;
                let read = read(kind, &changed);
                let strict = field.ty == "zeros" || field.name == "reason";
                assert_eq!(read.is_err(), strict, "byte {place} of {}, {}", kind.name(), field.name);
                if let Ok(datagram) = read {
                    assert_eq!(written(&datagram), changed);
                }
            }
            at += len;
        }
        assert_eq!(at, kind.datagram_len());
    }
}

#[test]
fn the_prologue_has_all_that_steers_and_not_the_packet_number() {
    for sample in sealed_samples().into_iter().filter(|sample| matches!(sample.body.kind(), SealedKind::Open | SealedKind::Resume)) {
        let bytes = written(&sample);
        let all = prologue(&bytes).unwrap();
        assert_eq!((&all[..16], &all[16..20], all.len()), (&b"Cistern sealed 1"[..], &bytes[..4], PROLOGUE_LEN));
        assert_eq!(all[20..], bytes[HEADER_LEN..72]);
        let mut again = bytes.clone();
        again[19] += 1;
        assert_eq!(prologue(&again), Some(all), "a retransmission is the same message");
    }
    assert_eq!(prologue(&[0; 71]), None);
}

#[test]
fn payloads_are_padded_with_zeros_to_one_length() {
    for label in [&b""[..], b"host-a:4711", &[b'x'; LABEL_MAX]] {
        let payload = OpenPayload { label: Bytes8(label), ..open_payload_sample() };
        let (open, resume): ([u8; OpenPayload::OPEN_LEN], [u8; OpenPayload::RESUME_LEN]) = (payload.padded(), payload.padded());
        assert_eq!((OpenPayload::of(&open), OpenPayload::of(&resume)), (Ok(payload), Ok(payload)));
        for byte in 0..OpenPayload::OPEN_LEN {
            let mut changed = open;
            changed[byte] ^= 0x80;
            // Either another payload, or none.
            assert_ne!(OpenPayload::of(&changed), Ok(payload));
        }
    }
    let longest = OpenPayload { label: Bytes8(&[b'x'; LABEL_MAX + 1]), ..open_payload_sample() };
    let cut: [u8; OpenPayload::OPEN_LEN] = longest.padded();
    assert_eq!(OpenPayload::of(&cut).unwrap().label.0.len(), LABEL_MAX);
    let mut too_long = cut;
    too_long[89] = 65;
    let malformed = |part, field, fault| Malformed { part, field, fault };
    assert_eq!(OpenPayload::of(&too_long), Err(malformed("OpenPayload", "label", Fault::TooLong)));
    let mut behind = cut;
    behind[OpenPayload::OPEN_LEN - 1] = 1;
    assert_eq!(OpenPayload::of(&behind), Err(malformed("OpenPayload", "end", Fault::Trailing)));

    let welcome = welcome_payload_sample();
    assert_eq!(WelcomePayload::of(&welcome.padded()), Ok(welcome));
    let mut behind = welcome.padded();
    behind[WelcomePayload::WELCOME_LEN - 1] = 1;
    assert_eq!(WelcomePayload::of(&behind), Err(malformed("WelcomePayload", "end", Fault::Trailing)));
}

/// A record as the packer leaves it, with a tag of any bytes.
fn record(limit: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header { from_server: false, session: SessionId(7), packet: 9 };
    let mut packer = Packer::of_form(&mut bytes, header, limit, Form::Record);
    while packer.push(&KeepAlive { serial: 1, clock_us: 1 }.into()) {}
    packer.finish();
    bytes.extend_from_slice(&[0xAA; TAG_LEN]);
    bytes
}

#[test]
fn a_record_leaves_room_for_its_tag() {
    for limit in [60, 548, 1_232] {
        let bytes = record(limit);
        assert!(bytes.len() <= limit && bytes.len() + 20 > limit, "{} of {limit}", bytes.len());
        let envelope = Envelope::of_record(&bytes, Direction::Agent).unwrap();
        assert_eq!((envelope.form, envelope.header.session, envelope.header.packet), (Form::Record, SessionId(7), 9));
        let datagram = envelope.decode_messages(&bytes[HEADER_LEN..bytes.len() - TAG_LEN]).unwrap();
        assert!(datagram.messages().all(|message| matches!(message, Message::KeepAlive(_))));
        assert_eq!(datagram.messages().count(), (bytes.len() - HEADER_LEN - TAG_LEN) / 20);
    }
}

#[test]
fn the_frame_of_a_record_is_checked_before_any_key_is_looked_for() {
    let good = record(548);
    let reason = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        Envelope::of_record(&bytes, Direction::Agent).err()
    };
    assert_eq!(reason(&|_| {}), None);
    assert_eq!(reason(&|b| b[3] = 2), None, "the key phase");
    assert_eq!(reason(&|b| b.truncate(40)), None);
    assert_eq!(reason(&|b| b.truncate(39)), Some(DropReason::TooShort));
    assert_eq!(reason(&|b| b.resize(DATAGRAM_MAX + 1, 0)), Some(DropReason::TooLong));
    assert_eq!(reason(&|b| b[0] = 0), Some(DropReason::BadMagic));
    assert_eq!(reason(&|b| b[1] = 2), Some(DropReason::UnknownVersion(2)));
    assert_eq!(reason(&|b| b[2] = 0), Some(DropReason::UnknownForm(0)), "a side with keys takes no plain datagram");
    assert_eq!(reason(&|b| b[3] = 4), Some(DropReason::ReservedBits));
    assert_eq!(reason(&|b| b[3] = 1), Some(DropReason::WrongDirection));
    assert_eq!(reason(&|b| b[12..20].fill(0)), Some(DropReason::BadPacketNumber));
    assert_eq!(Datagram::seen(&good).err(), Some(DropReason::UnknownForm(1)), "a side without keys");
}

/// Where the formats are described.
const SPEC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sealed.md");

fn assert_fields(name: &str, entry: &Entry, shape: &Shape) {
    let Shape::Structure { fields, .. } = shape else { panic!("{name} is no structure") };
    let said: Vec<(&str, &str)> = entry.fields.iter().map(|row| (row.name.as_str(), row.ty.as_str())).collect();
    assert_eq!(said, fields.iter().map(|field| (field.name, field.ty)).collect::<Vec<_>>(), "fields of {name}");
}

#[test]
fn formats_are_those_that_are_described() {
    let spec = spec_text::formats(&std::fs::read_to_string(SPEC).unwrap());
    assert_eq!(spec.messages.len(), SealedKind::ALL.len());
    for kind in SealedKind::ALL {
        let Shape::Structure { ty, .. } = kind.shape() else { unreachable!() };
        let entry = &spec.messages[*ty];
        let sender = if kind.direction() == Direction::Agent { "agent" } else { "server" };
        assert_eq!((entry.code, &entry.line), (*kind as u8, &format!("{sender}, {} bytes", kind.datagram_len())));
        assert_fields(ty, entry, kind.shape());
    }
    assert_eq!(spec.structures.len(), 3);
    assert_fields("SealedHead", &spec.structures["SealedHead"], SealedHead::SHAPE);
    assert_fields("OpenPayload", &spec.structures["OpenPayload"], OpenPayload::SHAPE);
    assert_fields("WelcomePayload", &spec.structures["WelcomePayload"], WelcomePayload::SHAPE);
    let lengths = ["OpenPayload", "WelcomePayload"].map(|name| spec.structures[name].line.clone());
    let [open, resume, welcome] = [OpenPayload::OPEN_LEN, OpenPayload::RESUME_LEN, WelcomePayload::WELCOME_LEN];
    assert_eq!(lengths, [format!("{open} or {resume} bytes"), format!("{welcome} bytes")]);
    let codes = |name: &str| -> Vec<(u16, String)> { spec.codes[name].clone() };
    let in_code = |values: Vec<(u8, String)>| values.into_iter().map(|(code, name)| (u16::from(code), name)).collect::<Vec<_>>();
    assert_eq!(codes("SealedRefusal"), in_code(SealedRefusal::ALL.iter().map(|code| (*code as u8, format!("{code:?}"))).collect()));
    assert_eq!(codes("OpenStatus"), in_code(OpenStatus::ALL.iter().map(|code| (*code as u8, format!("{code:?}"))).collect()));
    assert_eq!(spec.codes.len(), 2);
}
