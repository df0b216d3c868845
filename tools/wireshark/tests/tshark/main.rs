//! The dissector in tshark, on captures of the real stack: that it is the one made from the registry, that it reads what the inspector
//! reads, field by field, that no bytes make it fail, and that it finds what belongs together.
//!
//! Tests that need tshark are skipped where it is not installed, and say so. A changed registry: `CISTERN_REGENERATE=1 cargo test -p
//! cistern-wireshark` writes the dissector anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod agree;
mod broken;
mod links;
mod pdml;

use cistern_capture::Writer;
use cistern_sim::plan::{Plan, Profile};
use cistern_sim::trace::Trace;
use cistern_wire::{Direction, Header, Kind, Lane, Message, Packer, SessionId, limits::DATAGRAM_MAX};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const DISSECTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cistern.lua");

/// The port that the dissector has by default.
const PORT: u16 = 7_311;

#[test]
fn the_dissector_is_the_one_made_from_the_registry() {
    let made = cistern_wireshark::dissector();
    if std::env::var_os("CISTERN_REGENERATE").is_some() {
        std::fs::write(DISSECTOR, &made).unwrap();
    }
    let kept = std::fs::read_to_string(DISSECTOR).unwrap();
    for (line, (made, kept)) in made.lines().zip(kept.lines()).enumerate() {
        assert_eq!(made, kept, "{DISSECTOR}:{}: not as it is made; CISTERN_REGENERATE=1 writes it anew", line + 1);
    }
    assert_eq!(made.len(), kept.len(), "{DISSECTOR} is not as it is made; CISTERN_REGENERATE=1 writes it anew");
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

/// A capture in a folder of its own, which is also tshark's folder of settings, so that no settings of a person take part.
struct Captured {
    folder: tempfile::TempDir,
}

impl Captured {
    fn of(datagrams: &[Sent]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(&folder.path().join("capture.pcap")).unwrap();
        for sent in datagrams {
            writer.write(sent.at, sent.from, sent.to, &sent.payload).unwrap();
        }
        writer.flush().unwrap();
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("capture.pcap")
    }

    /// What tshark prints for the capture; `None` where there is no tshark. Anything that looks like a failure of the dissector fails.
    fn tshark(&self, args: &[&str]) -> Option<String> {
        self.tshark_of(&self.path(), args)
    }

    /// The same for another capture.
    fn tshark_of(&self, capture: &Path, args: &[&str]) -> Option<String> {
        run(self.folder.path(), [OsStr::new("-r"), capture.as_os_str()], args)
    }
}

fn run<'o>(settings: &Path, first: impl IntoIterator<Item = &'o OsStr>, args: &[&str]) -> Option<String> {
    let script = format!("lua_script:{DISSECTOR}");
    let output = Command::new("tshark").env("WIRESHARK_CONFIG_DIR", settings).args(first).args(["-X", &script]).args(args).output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: tshark is not installed");
            return None;
        }
        other => other.unwrap(),
    };
    let (text, errors) = (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "tshark failed: {errors}");
    // A failure of a script is an item of the tree, or a word on standard error; `-G` lists that item among the fields.
    assert!(!errors.contains("Lua") && !errors.contains("lua"), "{errors}");
    for bad in ["[Lua Error", "dissector failed, please report"] {
        assert!(!text.contains(bad), "tshark's output tells of a failure: {}", text.lines().find(|line| line.contains(bad)).unwrap());
    }
    Some(text)
}

/// A header with which `message` is sound.
fn header_for(message: &Message<'_>, packet: u64) -> Header {
    let kind = message.kind();
    let handshake = kind.lane() == Lane::Handshake || kind == Kind::Welcome;
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
