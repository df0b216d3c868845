//! Tests of pictures: on captures of the real stack, and on what a stranger may send.
//!
//! Leaves to others: how it looks, which nobody can assert; heights (`axis`).

use super::*;
use crate::notes;
use cistern_capture::{Datagram, Reader};
use cistern_wire::{Bytes8, Cancel, Header, Hello, KeepAlive, Message, Packer, SessionId, samples};
use std::net::SocketAddr;

fn captured(name: &str) -> Vec<Datagram> {
    let path = format!("{}/tests/captures/{name}.pcap", env!("CARGO_MANIFEST_DIR"));
    let mut reader = Reader::new(std::fs::File::open(&path).unwrap());
    std::iter::from_fn(|| reader.next_datagram().unwrap()).collect()
}

/// The picture of these datagrams, all of them shown.
fn drawn(name: &str, datagrams: &[Datagram]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    let mut ladder = Ladder::new(&path).unwrap();
    let (mut story, labels) = (notes::story(None).with_intervals(), Labels::default());
    for datagram in datagrams {
        let packet = Packet::new(0, datagram);
        let notes = Notes::take(&mut story, &packet);
        ladder.see(&story);
        let all = vec![true; packet.content.as_ref().map_or(0, |content| content.messages().count())];
        ladder.show(&story, &labels, &packet, &notes, &all).unwrap();
    }
    ladder.write(&story).unwrap();
    std::fs::read_to_string(&path).unwrap()
}

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

/// A datagram of an agent.
fn sent(at: Duration, session: u64, packet: u64, message: &Message<'_>) -> Datagram {
    let ends: [SocketAddr; 2] = ["10.0.0.5:9000".parse().unwrap(), "10.0.0.1:7311".parse().unwrap()];
    let header = Header { from_server: false, session: SessionId(session), packet };
    let mut bytes = Vec::new();
    let mut packer = Packer::new(&mut bytes, header, 1_232);
    assert!(packer.push(message));
    packer.finish();
    Datagram { number: packet, at, from: ends[0], to: ends[1], payload: bytes.into() }
}

#[test]
fn every_datagram_of_a_steal_has_an_arrow_and_the_steal_its_bars_and_its_remark() {
    let datagrams = captured("partition");
    let picture = drawn("steal.svg", &datagrams);
    assert_eq!(count(&picture, "class=\"arrow\""), datagrams.len());
    assert_eq!(count(&picture, "class=\"name\""), 3, "two agents and the server");
    // One in the legend each.
    assert_eq!(count(&picture, "class=\"lease\""), 1 + 2);
    assert_eq!(count(&picture, "class=\"timing\""), 1 + 1);
    assert!(picture.contains("#7/advisory of web-1:15547 goes to another: whose lease was over for"), "{picture}");
    assert!(picture.contains("exclusive advisory lock on #7"));
}

#[test]
fn page_has_the_same_arrows_and_needs_nothing_from_elsewhere() {
    let datagrams = captured("contended");
    let (page, picture) = (drawn("lock.html", &datagrams), drawn("lock.svg", &datagrams));
    assert_eq!(count(&page, "class=\"arrow\""), count(&picture, "class=\"arrow\""));
    let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!elsewhere.contains("://") && !elsewhere.contains("src=") && !elsewhere.contains("href="));
}

#[test]
fn label_that_looks_like_markup_stays_text() {
    let sample = samples().into_iter().find_map(|message| if let Message::Hello(hello) = message { Some(hello) } else { None });
    let hello = Hello { label: Bytes8(b"</text><script>alert(1)</script>\"'&"), ..sample.unwrap() };
    for name in ["label.svg", "label.html"] {
        let picture = drawn(name, &[sent(Duration::from_secs(1), 0, 1, &hello.into())]);
        assert!(!picture.contains("<script>alert") && picture.contains("&lt;script&gt;alert"), "{picture}");
    }
}

#[test]
fn long_run_of_idle_renewals_is_one_row_and_what_is_among_them_is_not_hidden() {
    let keep = |n: u64| sent(Duration::from_secs(n), 9, n, &KeepAlive { serial: n, clock_us: n }.into());
    let mut datagrams: Vec<_> = (1..=20).map(keep).collect();
    datagrams.push(sent(Duration::from_secs(21), 9, 21, &Cancel { serial: 21, nonce: 3 }.into()));
    datagrams.extend((22..=24).map(keep));
    let picture = drawn("idle.svg", &datagrams);
    assert!(picture.contains("20 datagrams of KEEPALIVE and ALIVE in 19 s"), "{picture}");
    assert_eq!(count(&picture, "class=\"arrow\""), 1 + 3, "three in a row are no run");
}

#[test]
fn datagram_that_was_held_back_keeps_its_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut ladder = Ladder::new(&dir.path().join("held.svg")).unwrap();
    let (mut story, labels) = (notes::story(None).with_intervals(), Labels::default());
    let datagrams = captured("normal");
    let taken: Vec<_> = datagrams.iter().take(2).map(|datagram| Packet::new(0, datagram)).collect();
    let taken: Vec<_> = taken.into_iter().map(|packet| (Notes::take(&mut story, &packet), packet)).collect();
    taken.iter().for_each(|(notes, packet)| ladder.show(&story, &labels, packet, notes, &[true]).unwrap());
    let [hello, challenge] = &ladder.rows[..] else { panic!("two rows") };
    assert_eq!((hello.from, hello.to), (challenge.to, challenge.from));
}

#[test]
fn picture_that_nobody_could_read_is_refused_and_so_is_one_of_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut ladder = Ladder::new(&dir.path().join("many.svg")).unwrap();
    let (mut story, labels) = (notes::story(None), Labels::default());
    assert!(ladder.write(&story).unwrap_err().text.contains("nothing to draw"));
    let mut told = None;
    for n in 1..=ROWS_MAX as u64 + 1 {
        let datagram = sent(Duration::from_millis(n), 9, n, &Cancel { serial: n, nonce: n }.into());
        let packet = Packet::new(0, &datagram);
        let notes = Notes::take(&mut story, &packet);
        ladder.see(&story);
        told = ladder.show(&story, &labels, &packet, &notes, &[true]).err();
        assert!(told.is_none() || n == ROWS_MAX as u64 + 1);
    }
    assert!(told.unwrap().text.contains("--from"), "it says how to choose");
    assert!(Ladder::new(Path::new("picture.png")).unwrap_err().text.contains(".svg or .html"));
}
