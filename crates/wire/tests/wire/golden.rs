//! The golden file: every sample as bytes and as text. A difference is a change of the wire format.

use crate::regenerate;
use cistern_wire::{Kind, Message, samples};
use std::fmt::Write as _;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/messages.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn messages_are_encoded_as_they_always_were() {
    let mut text =
        String::from("# Every sample message: bytes with header, and value. Written by CISTERN_REGENERATE=1 cargo test -p cistern-wire\n");
    for message in samples() {
        writeln!(text, "\n{}\n{message:?}", hex(&message.to_bytes())).unwrap();
    }
    if regenerate() {
        std::fs::write(PATH, &text).unwrap();
    }
    let golden = std::fs::read_to_string(PATH).unwrap();
    for (line, (is, was)) in text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(is, was, "{PATH}:{}: the wire format has changed", line + 1);
    }
    assert_eq!(text.lines().count(), golden.lines().count(), "{PATH} has another number of messages");
}

#[test]
fn golden_bytes_are_decoded_to_the_golden_values() {
    if regenerate() {
        return;
    }
    let golden = std::fs::read_to_string(PATH).unwrap();
    let mut lines = golden.lines().skip(1).filter(|line| !line.is_empty());
    let mut count = 0;
    while let (Some(hex), Some(value)) = (lines.next(), lines.next()) {
        let bytes: Vec<u8> = (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
        let kind = Kind::of(bytes[0]).unwrap();
        let message = Message::decode(kind, &bytes[4..]).unwrap();
        assert_eq!(format!("{message:?}"), value);
        count += 1;
    }
    assert_eq!(count, samples().len());
}
