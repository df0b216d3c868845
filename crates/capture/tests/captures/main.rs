//! Captures of every kind, made byte by byte: what is read, what is named, and that nothing panics.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod damage;
mod files;
mod links;
mod writing;

use std::io::Read;
use std::time::Duration;

use cistern_capture::{Datagram, Reader, Skip, Tally};
use etherparse::PacketBuilder;

/// Everything that a capture gives; an error ends the test.
fn read(bytes: &[u8]) -> (Vec<Datagram>, Tally) {
    read_from(bytes)
}

fn read_from(source: impl Read) -> (Vec<Datagram>, Tally) {
    let mut reader = Reader::new(source);
    let datagrams = reader.by_ref().collect::<Result<Vec<_>, _>>().expect("a capture");
    (datagrams, reader.tally().clone())
}

fn skipped(tally: &Tally) -> Vec<(Skip, u64)> {
    tally.skipped().collect()
}

/// An IPv4 packet with a UDP datagram from 10.0.0.1:4000 to 10.0.0.2:7311.
fn packet(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(4_000, 7_311).write(&mut out, payload).unwrap();
    out
}

/// How a file is laid out.
#[derive(Clone, Copy, Debug)]
struct Layout {
    big_endian: bool,
    nanoseconds: bool,
    link: u32,
}

const LITTLE: Layout = Layout { big_endian: false, nanoseconds: true, link: 101 };

impl Layout {
    fn word(self, word: u32) -> [u8; 4] {
        if self.big_endian { word.to_be_bytes() } else { word.to_le_bytes() }
    }

    fn half(self, half: u16) -> [u8; 2] {
        if self.big_endian { half.to_be_bytes() } else { half.to_le_bytes() }
    }

    /// The header of a pcap file.
    fn header(self) -> Vec<u8> {
        let magic = if self.nanoseconds { 0xA1B2_3C4D } else { 0xA1B2_C3D4 };
        let version = [self.half(2), self.half(4)].concat();
        [self.word(magic).to_vec(), version, vec![0; 8], self.word(65_535).to_vec(), self.word(self.link).to_vec()].concat()
    }

    /// A record of a pcap file with a frame that was `original` bytes long.
    fn record(self, at: Duration, frame: &[u8], original: usize) -> Vec<u8> {
        let fraction = if self.nanoseconds { at.subsec_nanos() } else { at.subsec_micros() };
        let words = [u32::try_from(at.as_secs()).unwrap(), fraction, length(frame), u32::try_from(original).unwrap()];
        [words.map(|word| self.word(word)).concat(), frame.to_vec()].concat()
    }

    /// A block of a pcapng file.
    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let padded = body.len().next_multiple_of(4);
        let length = self.word(u32::try_from(padded).unwrap() + 12);
        [self.word(kind).to_vec(), length.to_vec(), body.to_vec(), vec![0; padded - body.len()], length.to_vec()].concat()
    }

    fn section(self) -> Vec<u8> {
        let body = [self.word(0x1A2B_3C4D).to_vec(), self.half(1).to_vec(), self.half(0).to_vec(), vec![0xFF; 8]].concat();
        self.block(0x0A0D_0D0A, &body)
    }

    /// An interface with these options.
    fn interface(self, link: u16, snapped_at: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = [self.half(link).to_vec(), vec![0; 2], self.word(snapped_at).to_vec()].concat();
        for (code, value) in options {
            body.extend(self.half(*code));
            body.extend(self.half(u16::try_from(value.len()).unwrap()));
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        body.extend([0; 4]);
        self.block(1, &body)
    }

    fn enhanced(self, interface: u32, ticks: u64, frame: &[u8]) -> Vec<u8> {
        let halves = [u32::try_from(ticks >> 32).unwrap(), u32::try_from(ticks & 0xFFFF_FFFF).unwrap()];
        let words = [interface, halves[0], halves[1], length(frame), length(frame)];
        self.block(6, &[words.map(|word| self.word(word)).concat(), frame.to_vec()].concat())
    }
}

fn length(frame: &[u8]) -> u32 {
    u32::try_from(frame.len()).unwrap()
}

/// A pcap file of these payloads, a second apart from second 1,700,000,000 on.
fn pcap(payloads: &[&[u8]]) -> Vec<u8> {
    let mut file = LITTLE.header();
    for (second, payload) in (1_700_000_000..).zip(payloads) {
        let frame = packet(payload);
        file.extend(LITTLE.record(Duration::from_secs(second), &frame, frame.len()));
    }
    file
}

/// A pcapng file of these payloads, a second apart from second 1,700,000,000 on.
fn pcapng(payloads: &[&[u8]]) -> Vec<u8> {
    let mut file = [LITTLE.section(), LITTLE.interface(101, 0, &[])].concat();
    for (second, payload) in (1_700_000_000..).zip(payloads) {
        file.extend(LITTLE.enhanced(0, second * 1_000_000, &packet(payload)));
    }
    file
}

fn payloads(datagrams: &[Datagram]) -> Vec<&[u8]> {
    datagrams.iter().map(|datagram| &datagram.payload[..]).collect()
}
