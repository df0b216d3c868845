//! How an audit ends: its exit status, whatever the order of the captures and whoever reads what it prints.

use crate::{capture, program, run, text, write_capture};
use cistern_wire::{Alive, Fate, Header, KeepAlive, Message, Nack, NackReason, Packer, SessionId};
use std::path::Path;

fn datagram(from_server: bool, packet: u64, message: Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut packer = Packer::new(&mut bytes, Header { from_server, session: SessionId(5), packet }, 1_232);
    assert!(packer.push(&message));
    packer.finish();
    bytes
}

/// A capture of a lease that is renewed after it was refused.
fn violated(dir: &Path) -> String {
    let (agent, server) = ("10.0.0.1:40000", "10.0.255.1:7311");
    let nack = Nack { nonce: 0, echo: 1, reason: NackReason::TimingOut, fate: Fate::Unknown };
    let datagrams = [
        (agent, server, datagram(false, 1, KeepAlive { serial: 1, clock_us: 0 }.into())),
        (server, agent, datagram(true, 1, nack.into())),
        (server, agent, datagram(true, 2, Alive { serial: 1, echo: 1 }.into())),
    ];
    write_capture(dir, "violated.pcap", &datagrams).display().to_string()
}

#[test]
fn a_violation_is_told_whatever_becomes_of_the_other_captures() {
    let dir = tempfile::tempdir().unwrap();
    let (violated, cut) = (violated(dir.path()), dir.path().join("cut.pcap").display().to_string());
    let whole = std::fs::read(capture("contended")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 10]).unwrap();
    let (fine, missing) = (capture("contended"), dir.path().join("missing.pcap").display().to_string());
    let status = |files: &[&String]| {
        let output = run(&[&["audit"], &files.iter().map(|file| file.as_str()).collect::<Vec<_>>()[..]].concat());
        (output.status.code().unwrap(), text(&output.stdout).matches(", seen ").count(), output)
    };
    for files in [[&violated, &cut, &missing], [&missing, &cut, &violated], [&cut, &violated, &missing]] {
        let (exit, judged, output) = status(&files);
        assert_eq!((exit, judged), (1, 2), "{output:?}");
        assert!(text(&output.stderr).contains("cannot open"), "{output:?}");
    }
    assert_eq!(status(&[&missing, &cut, &fine]).0, 66);
    assert_eq!(status(&[&fine, &cut]).0, 65);
    assert_eq!(status(&[&fine]).0, 0);
}

#[test]
fn a_violation_is_told_although_nobody_reads_the_report() {
    let dir = tempfile::tempdir().unwrap();
    for (file, exit) in [(violated(dir.path()), 1), (capture("contended"), 0)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = program(&["audit", &file]).stdout(writer).status().unwrap();
        assert_eq!(status.code(), Some(exit), "{file}");
    }
}

#[test]
fn a_frame_that_cannot_be_read_is_no_damage_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("snapped.pcap");
    let mut file = std::fs::read(capture("contended")).unwrap();
    let first = file[24..24 + 16 + 20].to_vec();
    file.extend([&first[..8], &20_u32.to_le_bytes(), &first[12..]].concat());
    std::fs::write(&path, file).unwrap();
    let path = path.display().to_string();
    for args in [vec![path.as_str()], vec!["audit", &path]] {
        let output = run(&args);
        assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(0), false), "{output:?}");
    }
}
