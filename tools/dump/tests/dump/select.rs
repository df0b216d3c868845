//! Which traffic is shown, and under which names.

use crate::{capture, lines, question, run, shown, text, write_capture};

#[test]
fn kinds_are_chosen_and_left_out() {
    let contended = capture("contended");
    let chosen = lines(&["--kind", "demand,RECEIPT,RELEASE", &contended]);
    assert_eq!(chosen.len(), 4, "{chosen:#?}");
    assert!(chosen.iter().all(|line| ["DEMAND ", "RECEIPT ", "RELEASE "].iter().any(|kind| line.contains(kind))));
    let rest = lines(&["--kind", "!DEMAND,RECEIPT,RELEASE", &contended]);
    assert_eq!(rest.len() + chosen.len(), lines(&[&contended]).len());
    let wrong = run(&["--kind", "DEMANT", &contended]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("DEMAND, perhaps?"), "{wrong:?}");
}

#[test]
fn an_object_is_found_wherever_it_is_in_a_message() {
    let found = lines(&["--object", "7", &capture("contended")]);
    assert!(found.iter().all(|line| line.contains("#7")), "{found:#?}");
    let named = lines(&[&capture("contended")]).iter().filter(|line| line.contains("#7")).count();
    assert_eq!(found.len(), named);
    assert_eq!(found, lines(&["--object", "#7", &capture("contended")]));
    assert_eq!(found, lines(&["--object", "0x7", &capture("contended")]));
}

#[test]
fn a_nonce_brings_request_answer_and_grant_together() {
    let found = lines(&["--session", "2d05ef66", "--nonce", "3", &capture("contended")]);
    let kinds = ["LOCK n3", "QUEUED n3", "GRANT q1: n3"];
    assert_eq!(found.len(), kinds.len());
    assert!(found.iter().zip(kinds).all(|(line, kind)| line.contains(kind)), "{found:#?}");
}

#[test]
fn hosts_ports_and_sessions_are_chosen() {
    let all = lines(&[&capture("contended")]);
    let of = |option: &str, value: &str| lines(&[option, value, &capture("contended")]);
    let both = [of("--host", "10.77.0.11"), of("--host", "10.77.0.12")];
    assert!(both[0].iter().all(|line| line.contains("10.77.0.11:")) && both[0].len() + both[1].len() == all.len());
    assert_eq!(of("--host", "10.77.0.1"), all);
    assert_eq!(of("--host", "10.77.0.11,10.77.0.12"), all);
    assert_eq!(of("--port", "7311"), all);
    assert!(shown(&["--port", "9", &capture("contended")]).is_empty());
    assert!(of("--session", "b918").iter().all(|line| line.contains("b91802a1")));
}

#[test]
fn leases_of_one_session_read_as_they_do_among_all() {
    for name in ["contended", "partition", "healed"] {
        let all = shown(&["--leases", &capture(name)]);
        for part in all.trim_end().split("\n\n") {
            let session = &part["session ".len()..][..16];
            assert_eq!(shown(&["--leases", "--session", session, &capture(name)]).trim_end(), part);
        }
    }
}

#[test]
fn times_and_counts_bound_what_is_shown() {
    let all = lines(&["-ttttt", &capture("contended")]);
    let after: Vec<_> = lines(&["--since", "+1", "--until", "+1.25", &capture("contended")]);
    let within = |line: &&String| line.starts_with("+1.0") || line.starts_with("+1.1") || line.starts_with("+1.2");
    assert!(!after.is_empty());
    assert_eq!(after.len(), all.iter().filter(within).filter(|line| line[..9] <= *"+1.250000").count(), "{all:#?}");
    assert_eq!(lines(&["--since", "05:34:39.889", &capture("contended")]).len(), 2);
    assert_eq!(lines(&["--since", "2026-11-22T05:34:39.889Z", &capture("contended")]).len(), 2);
    assert_eq!(lines(&["-c", "5", &capture("contended")]).len(), 5);
    assert_eq!(run(&["--since", "noon", &capture("contended")]).status.code(), Some(2));
}

#[test]
fn addresses_are_shown_by_the_labels_that_they_have() {
    let given = shown(&["--name", "10.77.0.1:7311=server", "--name", "10.77.0.11=web", &capture("contended")]);
    assert!(given.contains(" web:38154 > server  ") && !given.contains("10.77.0.1:7311") && given.contains("10.77.0.12:46804"));
    let own = shown(&["--labels", &capture("contended")]);
    assert!(own.contains(" web-1:15308 > 10.77.0.1:7311  ") && own.contains(" > web-2:15354  "), "{own}");
}

#[test]
fn what_is_shown_is_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.pcap").display().to_string();
    let written = lines(&["--session", "b918", "-w", &out, &capture("contended")]);
    // What was left out is not there to be remembered: when a HELLO was sent, say. The messages are.
    let kinds =
        |lines: &[String]| lines.iter().map(|line| line.split("  ").nth(2).unwrap_or("").to_owned()[..8].to_owned()).collect::<Vec<_>>();
    assert_eq!(kinds(&lines(&[&out])), kinds(&written));
}

#[test]
fn packet_numbers_are_counted_from_the_first_or_shown_as_they_are() {
    let counted = lines(&["--kind", "KEEPALIVE,ALIVE", &capture("normal")]);
    assert!(counted[0].contains(" p9  KEEPALIVE c2") && counted[1].contains("renews the lease from p9 on"), "{counted:?}");
    let absolute = lines(&["-S", "--kind", "KEEPALIVE,ALIVE", &capture("normal")]);
    let records = lines(&["--json", "--kind", "KEEPALIVE,ALIVE", &capture("normal")]);
    let number = records[0].split("\"packet\":").nth(1).unwrap().split(',').next().unwrap();
    assert!(number.len() > 10, "they begin at random: {number}");
    assert!(absolute[0].contains(&format!(" p{number}  KEEPALIVE c2")), "{absolute:?}");
    assert!(absolute[1].contains(&format!("renews the lease from p{number} on")), "{absolute:?}");
}

#[test]
fn a_datagram_seen_twice_is_a_copy_and_one_that_repeats_a_request_is_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let (agent, server) = ("10.0.0.2:9", "10.0.0.1:7311");
    let mut again = question(1);
    // Nonce 1 in packet 2: the same request in another transmission.
    again[19] = 2;
    let body = again.len() - 4;
    let sum = crc32(&again[..body]);
    again[body..].copy_from_slice(&sum.to_be_bytes());
    let path = write_capture(dir.path(), "c.pcap", &[(agent, server, question(1)), (agent, server, question(1)), (agent, server, again)]);
    let lines = lines(&[&path.display().to_string()]);
    assert!(lines[1].contains("p1 (copy)") && !lines[1].contains("sent again"), "{lines:#?}");
    assert!(lines[2].contains("p2  SERVER_STATUS n1") && lines[2].contains("[sent again: 2 times now, first 2 ms ago]"), "{lines:#?}");
}

/// CRC-32 as `wire-spec.md` section 3.3 has it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xEDB8_8320 } else { sum >> 1 })
    })
}
