//! Where captures come from, whole and broken.

use crate::{capture, lines, program, question, run, shown, text, write_capture};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;

#[test]
fn standard_input_is_a_capture_like_any_file() {
    let mut child = program(&["-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&std::fs::read(capture("contended")).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), shown(&[&capture("contended")]));
}

#[test]
fn several_captures_are_one_story_in_order_of_time() {
    let merged = lines(&["-tttt", &capture("partition"), &capture("contended")]);
    let times: Vec<_> = merged.iter().map(|line| line.split(": ").nth(1).unwrap()[..26].to_owned()).collect();
    assert!(times.is_sorted(), "{times:#?}");
    assert_eq!(merged.len(), lines(&[&capture("partition")]).len() + lines(&[&capture("contended")]).len());
    assert!(merged[0].contains("contended.pcap: "));
}

#[test]
fn the_same_traffic_seen_at_two_places_is_told_once_and_marked_once() {
    let twice = lines(&[&capture("contended"), &capture("contended")]);
    let copies = twice.iter().filter(|line| line.contains("(copy)")).count();
    // Numbers of the server mean nothing in handshakes, so its two answers to each agent there are not known to be copies.
    assert_eq!(copies, twice.len() / 2 - 4, "{twice:#?}");
    let stats = shown(&["--stats", &capture("contended"), &capture("contended")]);
    assert!(stats.contains(&format!("copies        {copies:>8} datagrams")), "{stats}");
}

#[test]
fn what_a_cut_capture_holds_is_shown_and_the_cut_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let cut = dir.path().join("cut.pcap");
    let whole = std::fs::read(capture("contended")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 7]).unwrap();
    let output = run(&[&cut.display().to_string()]);
    assert_eq!(output.status.code(), Some(65));
    assert_eq!(text(&output.stdout).lines().count(), lines(&[&capture("contended")]).len() - 1);
    let error = text(&output.stderr);
    assert!(error.contains("cut.pcap") && error.contains("the file was cut"), "{error}");
    // Whoever wanted no more than this has missed nothing.
    assert_eq!(run(&["-c", "3", &cut.display().to_string()]).status.code(), Some(0));
}

#[test]
fn what_is_no_capture_is_named_and_the_others_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let garbage = dir.path().join("notes.txt");
    std::fs::write(&garbage, "this is not a capture at all, but long enough to be one").unwrap();
    let output = run(&[&garbage.display().to_string(), &capture("contended")]);
    assert_eq!(output.status.code(), Some(65));
    assert_eq!(text(&output.stdout).lines().count(), lines(&[&capture("contended")]).len());
    let error = text(&output.stderr);
    assert!(error.contains("notes.txt") && error.contains("no capture") && error.lines().count() == 1, "{error}");
}

/// A pcapng file of the frames of a pcap file, all at the latest time that a clock of whole seconds can say.
fn at_the_end_of_time(pcap: &[u8]) -> Vec<u8> {
    let word = |length: usize| u32::try_from(length).unwrap().to_le_bytes();
    let block = |kind: usize, body: &[u8]| [&word(kind)[..], &word(body.len() + 12), body, &word(body.len() + 12)].concat();
    let link = pcap[20..22].to_vec();
    let section = block(0x0A0D_0D0A, &[&word(0x1A2B_3C4D)[..], &[1, 0, 0, 0], &[0xFF; 8]].concat());
    let interface = block(1, &[link, vec![0; 6], vec![9, 0, 1, 0, 0, 0, 0, 0], vec![0; 4]].concat());
    let mut file = [section, interface].concat();
    let mut rest = &pcap[24..];
    while let Some((record, frames)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes(record[8..12].try_into().unwrap()) as usize;
        let (frame, next) = frames.split_at(length);
        let padding = vec![0; length.next_multiple_of(4) - length];
        file.extend(block(6, &[&word(0)[..], &[0xFF; 8], &record[8..16], frame, &padding].concat()));
        rest = next;
    }
    file
}

#[test]
fn times_that_no_calendar_has_are_cut_and_leases_from_then_on_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let all = cistern_wire::samples();
    let of = |wanted: cistern_wire::Kind| all.iter().find(|message| message.kind() == wanted).copied().unwrap();
    // The samples' WELCOME is of handshake 1 and echoes its packet 2.
    let cistern_wire::Message::Hello(hello) = of(cistern_wire::Kind::Hello) else { panic!() };
    let hello = cistern_wire::Message::Hello(cistern_wire::Hello { handshake: 1, ..hello });
    let datagram = |from_server, packet, message| {
        let mut bytes = Vec::new();
        let header = cistern_wire::Header { from_server, session: cistern_wire::SessionId(0), packet };
        let mut packer = cistern_wire::Packer::new(&mut bytes, header, 1_232);
        assert!(packer.push(&message));
        packer.finish();
        bytes
    };
    let (agent, server) = ("10.0.0.1:40000", "10.0.255.1:7311");
    let datagrams = [(agent, server, datagram(false, 2, hello)), (server, agent, datagram(true, 1, of(cistern_wire::Kind::Welcome)))];
    let pcap = std::fs::read(write_capture(dir.path(), "now.pcap", &datagrams)).unwrap();
    let path = dir.path().join("late.pcapng");
    std::fs::write(&path, at_the_end_of_time(&pcap)).unwrap();
    let path = path.to_str().unwrap();
    let picture = dir.path().join("late.svg");
    let shown = shown(&["-tttt", path]);
    assert!(shown.starts_with("9999-12-29 23:59:59") && shown.contains("WELCOME"), "{shown}");
    let modes: [&[&str]; 6] = [&["--json"], &["-v"], &["--leases"], &["--stats"], &["--ladder", picture.to_str().unwrap()], &["audit"]];
    for mode in modes {
        let output = run(&[mode, &[path]].concat());
        assert_eq!(output.status.code(), Some(0), "{mode:?}: {output:?}");
    }
}

#[test]
fn inputs_that_are_not_there_are_named() {
    for (args, exit, named) in [
        (&["/nowhere/x.pcap"][..], 66, "/nowhere/x.pcap"),
        (&["/"], 66, "is a directory"),
        (&["-i", "no-such-if"], 66, "there is no interface \"no-such-if\"; there are"),
        (&[], 2, "FILE"),
        (&["--tail", "a.pcap", "b.pcap"], 2, "one file"),
        (&["--follow", "xyz", "x.pcap"], 2, "is no session"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(exit), "{args:?}: {output:?}");
        assert!(text(&output.stderr).contains(named), "{args:?}: {output:?}");
    }
}

#[test]
fn foreign_traffic_is_counted_and_broken_traffic_is_shown_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (agent, server) = ("10.0.0.2:9", "10.0.0.1:7311");
    let mut broken = question(2);
    broken[25] ^= 1;
    let path = write_capture(
        dir.path(),
        "mixed.pcap",
        &[
            ("10.0.0.3:53", "10.0.0.4:53", b"not one of ours".to_vec()),
            (agent, server, question(1)),
            (agent, server, broken),
            (agent, server, b"short".to_vec()),
        ],
    );
    let path = path.display().to_string();
    let output = run(&[&path]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(shown.lines().count(), 3, "{shown}");
    assert!(shown.contains("MALFORMED: bad_checksum; ") && shown.contains("MALFORMED: too_short; 5 bytes"), "{shown}");
    assert!(text(&output.stderr).contains("1 UDP datagrams are not Cistern's"), "{output:?}");
    let only = text(&run(&["--kind", "MALFORMED", "--json", &path]).stdout);
    assert_eq!(only.lines().count(), 2, "{only}");
    let first: serde_json::Value = serde_json::from_str(only.lines().next().unwrap()).unwrap();
    assert_eq!(first["malformed"]["reason"], "bad_checksum");
    assert_eq!(first["cistern"]["packet"], 2);
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let captures = vec![capture("healed"); 40];
    let args: Vec<_> = ["-vv"].into_iter().chain(captures.iter().map(String::as_str)).collect();
    let mut child = program(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("HELLO"));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_file_that_grows_is_shown_as_it_grows_until_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("growing.pcap");
    let whole = std::fs::read(capture("contended")).unwrap();
    let (now, later) = whole.split_at(whole.len() / 2);
    std::fs::write(&path, now).unwrap();
    let mut child = program(&["--tail", &path.display().to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let expected = lines(&[&capture("contended")]);
    let mut next = || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    assert_eq!(next(), expected[0]);
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(later).unwrap();
    for line in &expected[1..] {
        assert_eq!(next(), *line);
    }
    interrupt(&child);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && rest.is_empty(), "{output:?}");
    assert!(text(&output.stderr).contains("36 datagrams captured, 36 shown, 0 not Cistern"), "{output:?}");
}

/// As Ctrl-C does.
pub(crate) fn interrupt(child: &std::process::Child) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
}

#[test]
fn a_key_log_opens_the_records_of_its_sessions() {
    use cistern_seal::record::Chain;
    use cistern_seal::{Cipher, SessionKeys};
    use cistern_wire::{Ask, Direction, Form, Header, Message, Packer, ServerStatus, SessionId};
    let dir = tempfile::tempdir().unwrap();
    let (session, chain) = (SessionId(0x1122_3344_5566_7788), Chain::from_bytes([7; 32]));
    let mut record = Vec::new();
    let mut packer = Packer::of_form(&mut record, Header { from_server: false, session, packet: 5 }, 1_232, Form::Record);
    assert!(packer.push(&Message::ServerStatus(ServerStatus { ask: Ask { nonce: 5, back: 0, limit: 548 } })));
    packer.finish();
    SessionKeys::new(&chain, Direction::Agent, std::time::Duration::ZERO).seal(
        &mut Cipher::default(),
        std::time::Duration::ZERO,
        &mut record,
    );
    let sealed = write_capture(dir.path(), "sealed.pcap", &[("10.0.0.1:40000", "10.0.0.2:7311", record)]).display().to_string();
    let at = |name: &str| dir.path().join(name).display().to_string();
    assert!(!text(&run(&[&sealed]).stdout).contains("SERVER_STATUS"));
    std::fs::write(at("keys"), format!("{}\n", cistern_seal::log::line(session, &chain))).unwrap();
    assert!(shown(&["--key-log", &at("keys"), "-w", &at("plain.pcap"), &sealed]).contains("SERVER_STATUS"));
    let judged = shown(&["audit", "--key-log", &at("keys"), "--json", &sealed]);
    assert!(judged.contains("\"sessions\":1") && judged.contains("\"unreadable\":{}"), "{judged}");
    // As a plain capture, for whatever reads no key log.
    assert!(shown(&[&at("plain.pcap")]).contains("SERVER_STATUS"));
    std::fs::write(at("keys"), "CISTERN1_CHAIN 1 2\n").unwrap();
    let damaged = run(&["--key-log", &at("keys"), &sealed]);
    assert!(damaged.status.code() == Some(65) && text(&damaged.stderr).contains("line 1 is damaged"), "{damaged:?}");
}
