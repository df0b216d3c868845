//! Tests of the report: verdicts, exit statuses, and what a capture that is not whole does to both.

use super::*;
use cistern_audit::Rule;
use cistern_capture::Writer;
use cistern_wire::{Alive, Fate, Header, KeepAlive, Message, Nack, NackReason, Packer, SessionId};

fn datagram(from_server: bool, packet: u64, message: &Message<'_>) -> Vec<u8> {
    let mut buf = Vec::new();
    let mut packer = Packer::new(&mut buf, Header { from_server, session: SessionId(5), packet }, 1_232);
    assert!(packer.push(message));
    packer.finish();
    buf
}

fn capture(path: &Path, down: &[Message<'_>]) {
    let (agent, server) = ("10.0.0.1:40000".parse().unwrap(), "10.0.255.1:6737".parse().unwrap());
    let mut writer = Writer::create(path).unwrap();
    let up = datagram(false, 1, &KeepAlive { serial: 1, clock_us: 0 }.into());
    writer.write(Duration::from_secs(1), agent, server, &up).unwrap();
    for (packet, message) in (1..).zip(down) {
        writer.write(Duration::from_secs(1 + packet), server, agent, &datagram(true, packet, message)).unwrap();
    }
    writer.flush().unwrap();
}

#[test]
fn capture_is_judged_from_its_file_by_frame_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.pcap");
    let alive = Message::from(Alive { serial: 1, echo: 1 });
    let nack = Message::from(Nack { nonce: 0, echo: 1, reason: NackReason::TimingOut, fate: Fate::Unknown });
    capture(&path, &[alive, nack]);
    let Judged { report, unread, .. } = judge(&path, Vantage::default(), Terms::default(), KeyLog::default()).unwrap();
    assert!(report.is_clean() && unread.is_none(), "{report}");
    capture(&path, &[nack, alive]);
    let Judged { report, .. } = judge(&path, Vantage::default(), Terms::default(), KeyLog::default()).unwrap();
    let found: Vec<_> = report.violations.iter().map(|one| (one.rule, one.frame, one.other)).collect();
    assert_eq!(found, [(Rule::NoRenewal, 3, Some(2))]);
    assert!(report.to_string().ends_with("VIOLATED\n"));
    assert_eq!(report.json()["violations"][0]["rule"], "no-renewal-after-refusal");
}

#[test]
fn what_is_no_capture_and_what_is_not_there_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    std::fs::write(&path, "these are notes, and no capture of anything").unwrap();
    assert_eq!(judge(&path, Vantage::default(), Terms::default(), KeyLog::default()).unwrap_err().exit, EXIT_DAMAGED);
    assert_eq!(
        judge(&dir.path().join("nothing"), Vantage::default(), Terms::default(), KeyLog::default()).unwrap_err().exit,
        EXIT_NO_INPUT
    );
}

#[test]
fn page_of_rules_is_made_from_them() {
    let rows = Rule::ALL.iter().map(|rule| format!("| `{}` | {} | {} |\n", rule.id(), rule.statement(), rule.section()));
    let page = "# Rules of the audit

The rules of the protocol that `cistern-dump audit` judges a capture by ([how](inspecting.md#auditing)), with their sections of
[wire-spec.md](../wire-spec.md). This page is made from `tools/audit/src/rule.rs` by `UPDATE_EXPECT=1 cargo test -p cistern-dump rules`.

| rule | statement | section |
|---|---|---|
"
    .to_owned();
    expect_test::expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/audit-rules.md")]
        .assert_eq(&rows.fold(page, |page, row| page + &row));
}

#[test]
fn vantages_are_read() {
    assert!(vantage("moon").is_err());
    assert_eq!(vantage("server-process"), Ok((Side::Server, true)));
}

#[test]
fn datagrams_that_a_capture_shows_as_one_packet_are_judged_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.pcap");
    let (agent, server) = ("10.0.0.1:40000".parse().unwrap(), "10.0.255.1:6737".parse().unwrap());
    let mut writer = Writer::create(&path).unwrap();
    writer.write(Duration::from_secs(1), agent, server, &datagram(false, 1, &KeepAlive { serial: 1, clock_us: 0 }.into())).unwrap();
    let nack = datagram(true, 1, &Nack { nonce: 0, echo: 1, reason: NackReason::TimingOut, fate: Fate::Unknown }.into());
    let alive = datagram(true, 2, &Alive { serial: 1, echo: 1 }.into());
    writer.write(Duration::from_secs(2), server, agent, &[nack, alive].concat()).unwrap();
    writer.flush().unwrap();
    let Judged { report, .. } = judge(&path, Vantage::default(), Terms::default(), KeyLog::default()).unwrap();
    assert_eq!(report.violations.iter().map(|one| (one.rule, one.frame)).collect::<Vec<_>>(), [(Rule::NoRenewal, 2)]);
}

/// Adds a record of a frame of which only the beginning was captured.
fn snap(path: &Path) {
    let mut file = std::fs::read(path).unwrap();
    let first = file[24..24 + 16 + 20].to_vec();
    file.extend([&first[..8], &20_u32.to_le_bytes(), &first[12..]].concat());
    std::fs::write(path, file).unwrap();
}

#[test]
fn a_capture_that_could_not_all_be_read_is_not_judged_as_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.pcap");
    let message = |kind| cistern_wire::samples().into_iter().find(|message| message.kind() == kind).unwrap();
    let Message::Hello(hello) = message(cistern_wire::Kind::Hello) else { panic!() };
    let hello = cistern_wire::Hello { handshake: 1, ..hello };
    let (agent, server) = ("10.0.0.1:40000".parse().unwrap(), "10.0.255.1:6737".parse().unwrap());
    let of = |session, from_server, packet, message: &Message<'_>| {
        let mut buf = Vec::new();
        let mut packer = Packer::new(&mut buf, Header { from_server, session: SessionId(session), packet }, 1_232);
        assert!(packer.push(message));
        packer.finish();
        buf
    };
    let mut writer = Writer::create(&path).unwrap();
    let at = Duration::from_secs;
    writer.write(at(1), agent, server, &of(0, false, 2, &hello.into())).unwrap();
    writer.write(at(2), server, agent, &of(0, true, 1, &message(cistern_wire::Kind::Welcome))).unwrap();
    // It echoes a packet that is not there.
    writer.write(at(3), server, agent, &of(0x1122_3344_5566_7788, true, 0x6655_4433_2211, &Alive { serial: 9, echo: 9 }.into())).unwrap();
    writer.flush().unwrap();
    let accused = |judged: &Judged| judged.report.violations.iter().any(|violation| violation.rule == Rule::HasCause);
    let vantage = Vantage { side: Side::Server, inside: true, complete: true, clock_ppm: 0 };
    let judged = judge(&path, vantage, Terms::default(), KeyLog::default()).unwrap();
    assert!(judged.complete && judged.unread.is_none() && accused(&judged), "{judged:?}");
    snap(&path);
    let judged = judge(&path, vantage, Terms::default(), KeyLog::default()).unwrap();
    assert!(!judged.complete && !judged.damaged && judged.unread.is_some() && !accused(&judged), "{judged:?}");
}
