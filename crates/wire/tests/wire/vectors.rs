//! The test vectors of `tests/vectors/messages.txt`: made from the samples, read back by the crate and by the formats of the specification.

use crate::spec_reader::{hex, read_message};
use crate::spec_text::{self, Spec};
use crate::{SESSION, header_for};
use cistern_wire::limits::{CHECKSUM_LEN, HEADER_LEN};
use cistern_wire::{Datagram, Direction, Header, Kind, Message, Packer, SessionId, samples};
use expect_test::expect_file;
use std::fmt::Write as _;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/messages.txt");
const HEAD: &str =
    "# Whole datagrams, then every message with its header of 4 bytes: in hex, one group of digits per field, and below it what it means,
# in the notation of wire-spec.md section 12.
# Written by UPDATE_EXPECT=1 cargo test -p cistern-wire vectors

";

/// Widest line of hex.
const WIDTH: usize = 120;

fn wrapped(groups: &[String]) -> String {
    let mut text = String::new();
    let mut width = 0;
    for group in groups {
        // A field longer than a line is broken at a byte.
        for part in group.as_bytes().chunks(WIDTH) {
            let part = std::str::from_utf8(part).unwrap();
            if width > 0 && width + 1 + part.len() > WIDTH {
                text.push('\n');
                width = 0;
            } else if width > 0 {
                text.push(' ');
                width += 1;
            }
            text.push_str(part);
            width += part.len();
        }
    }
    text
}

fn message_vector(spec: &Spec, message: &Message<'_>) -> String {
    let reading = read_message(spec, &message.to_bytes());
    format!("message: {}\n{}\n{}\n", message.kind().name(), wrapped(&reading.groups), reading.value)
}

/// The datagrams shown: what each shows, its header, and the kinds of the samples in it.
fn shown() -> Vec<(&'static str, Header, Vec<Kind>)> {
    let agent = |session, packet| Header { from_server: false, session, packet };
    let server = |session, packet| Header { from_server: true, session, packet };
    vec![
        ("HELLO, the second transmission of a handshake", agent(SessionId(0), 2), vec![Kind::Hello]),
        ("WELCOME, which echoes that transmission", server(SessionId(0), 1), vec![Kind::Welcome]),
        ("CONFIRM with the first request beside it", agent(SESSION, 18), vec![Kind::Confirm, Kind::GetAttr]),
        ("OPENED", server(SESSION, 11), vec![Kind::Opened]),
        ("LOOKUP", agent(SESSION, 19), vec![Kind::Lookup]),
        ("ACK with DONE, which echoes packet 19", server(SESSION, 12), vec![Kind::Ack]),
        ("DEMAND", server(SESSION, 13), vec![Kind::Demand]),
        ("RECEIPT, RELEASE and KEEPALIVE in one datagram", agent(SESSION, 20), vec![Kind::Receipt, Kind::Release, Kind::KeepAlive]),
        ("NACK", server(SESSION, 14), vec![Kind::Nack]),
        ("HINT: the server does not know the session", server(SESSION, 1), vec![Kind::Hint]),
    ]
}

fn datagram_vector(spec: &Spec, title: &str, header: Header, kinds: &[Kind]) -> String {
    let messages: Vec<Message<'_>> =
        kinds.iter().map(|kind| samples().into_iter().find(|sample| sample.kind() == *kind).unwrap()).collect();
    let mut bytes = Vec::new();
    let mut packer = Packer::new(&mut bytes, header, 1_232);
    assert!(messages.iter().all(|message| packer.push(message)));
    packer.finish();
    let head: Vec<String> = [0..1, 1..2, 2..3, 3..4, 4..12, 12..20].into_iter().map(|range| hex(&bytes[range])).collect();
    let mut text = format!("datagram: {title}\n{}\n", head.join(" "));
    let readings: Vec<_> = messages.iter().map(|message| read_message(spec, &message.to_bytes())).collect();
    for reading in &readings {
        writeln!(text, "{}", wrapped(&reading.groups)).unwrap();
    }
    writeln!(text, "{}", hex(&bytes[bytes.len() - CHECKSUM_LEN..])).unwrap();
    let sender = if header.from_server { "server" } else { "agent" };
    writeln!(text, "from the {sender}, session {}, packet {}", header.session, header.packet).unwrap();
    for reading in &readings {
        writeln!(text, "{}", reading.value).unwrap();
    }
    text
}

fn unhex(line: &str) -> Option<Vec<u8>> {
    let digits: String = line.split(' ').collect();
    let hex =
        !digits.is_empty() && digits.len().is_multiple_of(2) && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    hex.then(|| (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect())
}

/// The vectors of a kind in the file: their lines of hex as bytes, and the other lines.
fn vectors<'t>(text: &'t str, kind: &str) -> Vec<(Vec<u8>, Vec<&'t str>)> {
    let blocks = text.split("\n\n").filter(|block| block.starts_with(&format!("{kind}: ")));
    blocks
        .map(|block| {
            let lines: Vec<&str> = block.lines().skip(1).collect();
            let bytes: Vec<u8> = lines.iter().map_while(|line| unhex(line)).flatten().collect();
            let meaning = lines.into_iter().skip_while(|line| unhex(line).is_some()).collect();
            (bytes, meaning)
        })
        .collect()
}

/// The file, which is that of the samples.
fn kept() -> String {
    let spec = spec_text::spec(&spec_text::text());
    let datagrams = shown().into_iter().map(|(title, header, kinds)| datagram_vector(&spec, title, header, &kinds));
    let messages = samples().into_iter().map(|message| message_vector(&spec, &message));
    let made = format!("{HEAD}{}", datagrams.chain(messages).collect::<Vec<_>>().join("\n"));
    expect_file![PATH].assert_eq(&made);
    made
}

#[test]
fn vectors_are_read_alike_by_the_code_and_by_the_formats_of_the_specification() {
    let spec = spec_text::spec(&spec_text::text());
    let text = kept();
    let found = vectors(&text, "message");
    assert_eq!(found.len(), samples().len());
    for ((bytes, meaning), sample) in found.iter().zip(samples()) {
        let decoded = Message::decode(Kind::of(bytes[0]).unwrap(), &bytes[4..]).unwrap();
        assert_eq!(decoded, sample);
        assert_eq!(&decoded.to_bytes(), bytes);
        let reading = read_message(&spec, bytes);
        assert_eq!(meaning, &[reading.value.as_str()]);
        // Each single value is the one that the code has in the field of that name.
        let debug = format!("{decoded:?}");
        for leaf in &reading.leaves {
            assert!(debug.contains(leaf.as_str()), "the formats read {leaf}, the code {debug}");
        }
    }
}

#[test]
fn whole_datagrams_are_sound() {
    let text = kept();
    let found = vectors(&text, "datagram");
    assert_eq!(found.len(), shown().len());
    for ((bytes, meaning), (_, header, kinds)) in found.iter().zip(shown()) {
        let datagram = Datagram::seen(bytes).unwrap();
        assert_eq!(datagram.header, header);
        assert!(datagram.messages().map(|message| message.kind()).eq(kinds.iter().copied()));
        assert_eq!(meaning.len(), 1 + kinds.len());
        let (covered, checksum) = bytes.split_at(bytes.len() - CHECKSUM_LEN);
        assert_eq!(bitwise_crc(covered).to_be_bytes(), *checksum);
    }
}

/// CRC-32 as section 3.3 describes it, bit by bit.
fn bitwise_crc(bytes: &[u8]) -> u32 {
    let mut crc = 0xFFFF_FFFF_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
        }
    }
    crc ^ 0xFFFF_FFFF
}

#[test]
fn checksum_is_the_one_described() {
    assert_eq!(bitwise_crc(b"123456789"), 0xCBF4_3926);
    assert_eq!(crc32fast::hash(b"123456789"), 0xCBF4_3926);
}

#[test]
fn header_fields_stand_where_the_table_says() {
    let text = spec_text::text();
    let tables = spec_text::tables(spec_text::section(&text, "### 3.1 "), "| at | bytes | field | value |");
    let at = |name: &str| -> std::ops::Range<usize> {
        let row = tables[0].iter().find(|row| row[2] == format!("`{name}`")).unwrap();
        let (at, bytes): (usize, usize) = (row[0].parse().unwrap(), row[1].parse().unwrap());
        at..at + bytes
    };
    let probe = samples().into_iter().find(|message| message.kind() == Kind::Probe).unwrap();
    let header = Header { from_server: true, session: SESSION, packet: 0x0102_0304_0506_0708 };
    let bytes = crate::datagram_of(header, &[probe]);
    assert_eq!(bytes[at("magic")], [0xC5]);
    assert_eq!(bytes[at("version")], [1]);
    assert_eq!(bytes[at("form")], [0]);
    assert_eq!(bytes[at("flags")], [1]);
    assert_eq!(bytes[at("session")], SESSION.0.to_be_bytes());
    assert_eq!(bytes[at("packet")], header.packet.to_be_bytes());
    assert_eq!(at("packet").end, HEADER_LEN);
    assert_eq!(probe.kind().direction(), Direction::Server);
    assert_eq!(header_for(&probe).session, SESSION);
}
