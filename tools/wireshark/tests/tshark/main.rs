//! The dissector in tshark, on captures of the real stack: that it is the one made from the registry, that it reads what the inspector
//! reads, field by field, that no bytes make it fail, and that it finds what belongs together.
//!
//! Tests that need tshark are skipped where it is not installed, and say so. A changed registry: `UPDATE_EXPECT=1 cargo test -p
//! cistern-wireshark` writes the dissector anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod agree;
mod broken;
mod links;

use cistern_capture::{Datagram, Reader, Writer};
use cistern_sim::plan::{Plan, Profile};
use cistern_sim::trace::Trace;
use cistern_wire::{Direction, Header, Lane, Message, Packer, SessionId, limits::DATAGRAM_MAX};
use cistern_wireshark::{DISSECTOR, view};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The port that the dissector has by default.
const PORT: u16 = 7_311;

#[test]
fn the_dissector_is_the_one_made_from_the_registry() {
    expect_test::expect_file![DISSECTOR].assert_eq(&cistern_wireshark::dissector());
}

/// A datagram of a capture: when, from where to where, what.
struct Sent {
    at: Duration,
    from: SocketAddr,
    to: SocketAddr,
    payload: Vec<u8>,
}

impl Sent {
    /// The `n`th datagram of a capture, from the agent's or from the server's port.
    fn nth(n: usize, payload: Vec<u8>, from_server: bool) -> Self {
        let (agent, server) = (SocketAddr::from(([10, 0, 0, 2], 40_000)), SocketAddr::from(([10, 0, 0, 1], PORT)));
        let (from, to) = if from_server { (server, agent) } else { (agent, server) };
        Self { at: Duration::from_millis(10 * n as u64), from, to, payload }
    }
}

/// A capture in a folder of its own.
struct Captured {
    folder: tempfile::TempDir,
}

impl Captured {
    fn of(datagrams: &[Sent]) -> Self {
        let captured = Self { folder: tempfile::tempdir().unwrap() };
        let mut writer = Writer::create(&captured.path()).unwrap();
        for sent in datagrams {
            writer.write(sent.at, sent.from, sent.to, &sent.payload).unwrap();
        }
        writer.flush().unwrap();
        captured
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("capture.pcap")
    }

    /// The datagrams as they are read from it.
    fn datagrams(&self) -> Vec<Datagram> {
        Reader::new(File::open(self.path()).unwrap()).map(Result::unwrap).collect()
    }

    /// What tshark prints for the capture; `None` where there is no tshark.
    fn tshark(&self, args: &[&str]) -> Option<String> {
        Self::tshark_of(&self.path(), args)
    }

    /// The same for another capture.
    fn tshark_of(capture: &Path, args: &[&str]) -> Option<String> {
        view::tshark(&[&["-r", capture.to_str().unwrap()], args].concat())
    }
}

/// A header with which `message` is sound.
fn header_for(message: &Message<'_>, packet: u64) -> Header {
    let kind = message.kind();
    let handshake = kind.lane() == Lane::Handshake;
    let session = SessionId(if handshake { 0 } else { 0x1122_3344_5566_7788 });
    Header { from_server: kind.direction() == Direction::Server, session, packet }
}

fn datagram_of(header: Header, messages: &[Message<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut packer = Packer::new(&mut bytes, header, DATAGRAM_MAX);
    for message in messages {
        assert!(packer.push(message), "{:?} does not fit", message.kind());
    }
    packer.finish();
    bytes
}

/// Every datagram that the cores of agents and server sent in a simulated run.
fn simulated(profile: Profile, seed: u64) -> Vec<Sent> {
    let mut trace = Trace::new(0, true);
    let outcome = cistern_sim::run::run(&Plan::draw(profile, seed), Some(&mut trace));
    assert!(outcome.violation.is_none());
    trace.packets().iter().map(|d| Sent { at: d.at, from: d.from, to: d.to, payload: d.payload.to_vec() }).collect()
}
