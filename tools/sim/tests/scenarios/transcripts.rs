//! Whole sessions as they look on the wire: `tests/vectors/*.txt`, made by running the cores from a fixed seed, and compared byte for byte.
//!
//! Decides what a transcript shows: each datagram between agents and server in the order of sending, in hex and in words, and which were lost.
//! Renewed by `UPDATE_EXPECT=1 cargo test -p cistern-sim --test scenarios transcripts`.
//! Invariant: what is decoded from a transcript encodes to the same bytes.

use cistern_sim::script::{Agent, Script, Setting, from, to};
use cistern_wire::limits::DATAGRAM_MAX;
use cistern_wire::{Datagram, Kind, Packer};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Machines without a file on the server, which serves.
fn machines<const N: usize>(names: [&'static str; N]) -> (Script, [Agent; N]) {
    let (s, agents) = Setting::default().in_clear().machines(names);
    s.server.start();
    s.pass(10);
    agents.iter().for_each(Agent::start);
    (s, agents)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes what is written");
        text
    })
}

/// A transcript of all that was sent so far.
fn transcript(s: &Script, about: &str, names: &[&str]) -> String {
    let mut text = format!("# {about}\n# Each datagram: who sends it to whom, its bytes, and each of its messages.\n");
    for sent in s.datagrams() {
        let name = names[sent.agent];
        let (from, to) = if sent.up { (name, "server") } else { ("server", name) };
        let datagram = Datagram::seen(&sent.bytes).expect("the cores send sound datagrams");
        let lost = if sent.lost { ", lost" } else { "" };
        let header = datagram.header;
        writeln!(text, "\n{from} to {to}, session {}, packet {}{lost}\n{}", header.session, header.packet, hex(&sent.bytes))
            .expect("a string takes what is written");
        for message in datagram.messages() {
            writeln!(text, "{message:?}").expect("a string takes what is written");
        }
    }
    text
}

/// Whether each datagram of a transcript is what its messages encode to.
fn encodes_to_itself(text: &str) {
    let mut datagrams = 0;
    for line in text.lines().filter(|line| line.starts_with("c5")) {
        let bytes: Vec<u8> = (0..line.len() / 2).map(|at| u8::from_str_radix(&line[2 * at..2 * at + 2], 16).expect("hex")).collect();
        let datagram = Datagram::seen(&bytes).expect("a datagram");
        let mut again = Vec::new();
        let mut packer = Packer::new(&mut again, datagram.header, DATAGRAM_MAX);
        assert!(datagram.messages().all(|message| packer.push(&message)));
        packer.finish();
        assert_eq!(again, bytes);
        datagrams += 1;
    }
    assert!(datagrams > 10, "{datagrams} datagrams");
}

/// The transcript in the file is that of the run.
fn compare(file: &str, text: &str) {
    expect_test::expect_file![PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors").join(file)].assert_eq(text);
    encodes_to_itself(text);
}

/// An agent opens a session, makes a file, locks it, writes under the lock, renews while nothing happens, gives the lock back, and closes.
#[test]
fn normal_session_is_that_of_the_file() {
    let (s, [a]) = machines(["a"]);
    a.mkdir("/jobs").done();
    a.create("/jobs/nightly").done();
    let held = a.lock("/jobs/nightly").exclusive().granted();
    a.put_under(&held, "/jobs/output", "done").done();
    s.until_received(Kind::Alive, to(&a));
    held.unlock();
    a.close();
    s.pass(100);
    let about = "A session: handshake, a file made and locked, a change under the lock, a renewal, the lock given back, the end.";
    compare("session.txt", &transcript(&s, about, &["a"]));
    s.finish();
}

/// The holder of a lock is cut off while another agent waits for it: demand, D, T, the steal and the grant; then the holder comes back, is told,
/// opens another session, and locks the file anew under a larger token.
#[test]
fn session_that_fails_is_that_of_the_file() {
    let (s, [a, b]) = machines(["a", "b"]);
    a.create("/nightly").done();
    let of_a = a.lock("/nightly").exclusive().granted();
    s.cut(&a);
    let for_b = b.lock("/nightly").exclusive();
    let of_b = for_b.granted();
    s.heal();
    s.pass(1_000);
    assert!(of_a.is_lost());
    of_b.unlock();
    let again = a.lock("/nightly").exclusive().granted();
    assert!(again.token() > of_b.token());
    assert!(s.sent(Kind::Nack, to(&a)) > 0 && s.sent(Kind::Hello, from(&a)) > 2);
    let about =
        "A failure: the holder is cut off, the other waits out T and is granted the lock; the holder comes back, is told, and begins anew.";
    compare("failure.txt", &transcript(&s, about, &["a", "b"]));
}
