//! The program as its users run it: captures of the real stack in, text out.
//!
//! `tests/captures` were made by the program itself on the server's host, three network namespaces on one bridge, stock settings:
//! `normal` (one agent reads, writes, is idle, gives its cache back), `contended` (two hosts want one lock), `partition` (the holder is cut
//! off and stolen from), `healed` (the holder comes back before that; one packet holds several datagrams, as segmentation offload makes
//! them). What is shown of them is in `tests/golden`; `UPDATE_EXPECT=1 cargo test -p cistern-dump` writes it anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that does nothing says why")]

mod audit;
mod golden;
mod input;
mod live;
mod select;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A capture that is committed.
fn capture(name: &str) -> String {
    format!("{}/tests/captures/{name}.pcap", env!("CARGO_MANIFEST_DIR"))
}

/// The program, not started yet.
fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cistern-dump"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs it to its end.
fn run(args: &[&str]) -> Output {
    program(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What it prints, when all is well.
fn shown(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    text(&output.stdout)
}

fn lines(args: &[&str]) -> Vec<String> {
    shown(args).lines().map(str::to_owned).collect()
}

/// Writes a capture of these datagrams, a millisecond apart.
fn write_capture(dir: &Path, name: &str, datagrams: &[(&str, &str, Vec<u8>)]) -> PathBuf {
    let path = dir.join(name);
    let mut writer = cistern_capture::Writer::create(&path).unwrap();
    for (ms, (from, to, payload)) in (0..).zip(datagrams) {
        writer.write(std::time::Duration::from_millis(ms), from.parse().unwrap(), to.parse().unwrap(), payload).unwrap();
    }
    writer.flush().unwrap();
    path
}

/// A datagram of an agent that asks how the server is.
fn question(packet: u64) -> Vec<u8> {
    use cistern_wire::{Ask, Header, Message, Packer, ServerStatus, SessionId};
    let mut bytes = Vec::new();
    let header = Header { from_server: false, session: SessionId(0x1122_3344_5566_7788), packet };
    let mut packer = Packer::new(&mut bytes, header, 1_232);
    assert!(packer.push(&Message::ServerStatus(ServerStatus { ask: Ask { nonce: packet, back: 0, limit: 548 } })));
    packer.finish();
    bytes
}
