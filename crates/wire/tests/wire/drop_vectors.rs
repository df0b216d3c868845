//! Datagrams that must be dropped: `tests/vectors/drops.txt`, made here for either receiver, and judged by the decoder from the file alone.

use crate::{datagram_of, header_for, seal};
use cistern_wire::limits::{CHECKSUM_LEN, DATAGRAM_MAX, HEADER_LEN};
use cistern_wire::{Datagram, DropReason, Kind, samples};
use expect_test::expect_file;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/drops.txt");
const HEAD: &str =
    "# Datagrams that a receiver must drop, each with the reason of wire-spec.md section 3.5 that it must count, and nothing else.
# receiver, reason, what is wrong; below it the datagram in hex. `N*XX` stands for N bytes XX, over which the checksum runs as well.
# Written by UPDATE_EXPECT=1 cargo test -p cistern-wire drop_vectors
";

/// Who receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiver {
    Server,
    Agent,
}

impl Receiver {
    const ALL: [(Self, &'static str); 2] = [(Self::Server, "server"), (Self::Agent, "agent")];

    fn reason(self, bytes: &[u8]) -> Option<DropReason> {
        match self {
            Self::Server => Datagram::at_server(bytes).err(),
            Self::Agent => Datagram::at_agent(bytes).err(),
        }
    }

    /// A sound datagram for this receiver: of the sample of `kind`.
    fn sound(self, kind: Kind) -> Vec<u8> {
        let message = samples().into_iter().find(|sample| sample.kind() == kind).expect("every kind has a sample");
        datagram_of(header_for(&message), &[message])
    }
}

/// Changes bytes before the checksum, and makes that anew.
fn changed(mut bytes: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    bytes.truncate(bytes.len() - CHECKSUM_LEN);
    change(&mut bytes);
    seal(&mut bytes);
    bytes
}

/// What is wrong, and the datagram.
fn wrong(receiver: Receiver) -> Vec<(&'static str, Vec<u8>)> {
    let (own, other, handshake) = match receiver {
        Receiver::Server => (Kind::KeepAlive, Kind::Alive, Kind::Hello),
        Receiver::Agent => (Kind::Alive, Kind::KeepAlive, Kind::Welcome),
    };
    let sound = || receiver.sound(own);
    let at = HEADER_LEN;
    let unsealed = |change: fn(&mut Vec<u8>)| {
        let mut bytes = sound();
        change(&mut bytes);
        bytes
    };
    vec![
        ("no byte at all", Vec::new()),
        ("23 bytes", sound()[..23].to_vec()),
        ("8,953 bytes", {
            let fill = DATAGRAM_MAX + 1 - HEADER_LEN - CHECKSUM_LEN - 6;
            changed(sound(), |bytes| {
                bytes.truncate(at);
                bytes.extend_from_slice(&[0x05, 0]);
                bytes.extend_from_slice(&u16::try_from(fill + 2).unwrap().to_be_bytes());
                bytes.extend_from_slice(&u16::try_from(fill).unwrap().to_be_bytes());
                bytes.resize(bytes.len() + fill, 0);
            })
        }),
        ("another magic byte", changed(sound(), |bytes| bytes[0] = 0xC4)),
        ("version 2", changed(sound(), |bytes| bytes[1] = 2)),
        ("version 0", changed(sound(), |bytes| bytes[1] = 0)),
        ("form 1", changed(sound(), |bytes| bytes[2] = 1)),
        ("form 255", changed(sound(), |bytes| bytes[2] = 255)),
        ("a wrong checksum", unsealed(|bytes| *bytes.last_mut().unwrap() ^= 1)),
        ("a changed byte under the checksum of before", unsealed(|bytes| bytes[HEADER_LEN + 4] ^= 0x80)),
        ("flag bit 1", changed(sound(), |bytes| bytes[3] |= 2)),
        ("flag bit 7", changed(sound(), |bytes| bytes[3] |= 0x80)),
        ("the reserved byte of a message", changed(sound(), |bytes| bytes[at + 1] = 1)),
        ("packet number 0", changed(sound(), |bytes| bytes[12..20].fill(0))),
        ("sent by the receiver's own side", receiver.sound(other)),
        ("no message", changed(sound(), |bytes| bytes.truncate(at))),
        ("3 bytes of a message header", changed(sound(), |bytes| bytes.extend_from_slice(&[own.code(), 0, 0]))),
        ("a body that is not there", changed(sound(), |bytes| bytes[at + 3] += 1)),
        ("kind 0", changed(sound(), |bytes| bytes[at] = 0)),
        ("a kind without meaning behind a sound message", changed(sound(), |bytes| bytes.extend_from_slice(&[0xC0, 0, 0, 0]))),
        ("a handshake message in a session", changed(receiver.sound(handshake), |bytes| bytes[11] = 1)),
        ("a session's message in session 0", changed(sound(), |bytes| bytes[4..12].fill(0))),
        ("a message of the other side", changed(receiver.sound(other), |bytes| bytes[3] ^= 1)),
        ("a body that ends inside a field", {
            changed(sound(), |bytes| {
                bytes.pop();
                bytes[at + 3] -= 1;
            })
        }),
        ("a byte behind the last field", {
            changed(sound(), |bytes| {
                bytes.push(0);
                bytes[at + 3] += 1;
            })
        }),
        ("a code without a name", {
            // The last byte: RECEIPT's answer, CANCELLED's outcome stands before its generation.
            match receiver {
                Receiver::Server => changed(receiver.sound(Kind::Receipt), |bytes| *bytes.last_mut().unwrap() = 9),
                Receiver::Agent => changed(receiver.sound(Kind::Cancelled), |bytes| bytes[at + 4 + 24] = 9),
            }
        }),
        ("a bool of 2", {
            match receiver {
                // What was asked last of UNLINK before its terms is `force`; of WATCH_EVENT, `gone`.
                Receiver::Server => changed(receiver.sound(Kind::ReadDir), |bytes| {
                    let last = bytes.len() - 2;
                    bytes[last] = 2;
                }),
                Receiver::Agent => changed(receiver.sound(Kind::WatchEvent), |bytes| *bytes.last_mut().unwrap() = 2),
            }
        }),
        ("a list of more items than there are bytes", {
            match receiver {
                Receiver::Server => changed(receiver.sound(Kind::Release), |bytes| bytes[at + 4 + 8] = 0xFF),
                Receiver::Agent => changed(receiver.sound(Kind::Released), |bytes| bytes[at + 4 + 16] = 0xFF),
            }
        }),
    ]
}

/// In hex; a long run of one byte is counted.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < bytes.len() {
        let run = bytes[at..].iter().take_while(|byte| **byte == bytes[at]).count();
        if run > 64 {
            write!(text, " {run}*{:02x} ", bytes[at]).unwrap();
            at += run;
        } else {
            write!(text, "{:02x}", bytes[at]).unwrap();
            at += 1;
        }
    }
    if text.is_empty() { "(nothing)".to_owned() } else { text }
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |pair: &str| u8::from_str_radix(pair, 16).unwrap();
    let part = |part: &str| match part.split_once('*') {
        Some((count, of)) => vec![byte(of); count.parse().unwrap()],
        None => (0..part.len() / 2).map(|at| byte(&part[2 * at..2 * at + 2])).collect(),
    };
    if text == "(nothing)" { Vec::new() } else { text.split_whitespace().flat_map(part).collect() }
}

/// The file, which has the datagrams made here.
fn kept() -> String {
    let mut text = HEAD.to_owned();
    for (receiver, name) in Receiver::ALL {
        for (what, bytes) in wrong(receiver) {
            let reason = receiver.reason(&bytes).unwrap_or_else(|| panic!("{name}: {what} is not dropped"));
            writeln!(text, "\n{name}, {}, {what}\n{}", reason.name(), hex(&bytes)).unwrap();
        }
    }
    expect_file![PATH].assert_eq(&text);
    text
}

//= wire-spec.md#3-5-validation-and-drops
//= type=test
//# A receiver MUST validate a datagram to its last byte before any message in it acts.
#[test]
fn each_datagram_of_the_file_is_dropped_for_its_reason_and_every_reason_has_one_at_either_side() {
    let text = kept();
    let mut met = BTreeSet::new();
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    while let (Some(head), Some(bytes)) = (lines.next(), lines.next()) {
        let [name, reason, what] = head.splitn(3, ", ").collect::<Vec<_>>()[..] else { panic!("{head}") };
        let (receiver, _) = Receiver::ALL.into_iter().find(|(_, of)| *of == name).unwrap();
        assert_eq!(receiver.reason(&unhex(bytes)).map(|reason| reason.name()), Some(reason), "{name}: {what}");
        met.insert((name.to_owned(), reason.to_owned()));
    }
    assert_eq!(met.len(), 2 * DropReason::NAMES.len(), "{met:?}");
}
