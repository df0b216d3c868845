//! What belongs together is linked: an answer and what it answers, a retransmission and the first, with the time between.

use crate::{Captured, PORT, Sent, datagram_of, header_for, simulated};
use cistern_sim::plan::Profile;
use cistern_wire::{
    Ack, Alive, Ask, Datagram, Demand, Done, Fate, Generation, GetAttr, Header, Keep, KeepAlive, LockClass, LockId, Message, Nack,
    NackReason, ObjectId, Pending, Receipt, ReceiptAnswer, Reply, SessionId, Want, samples,
};
use cistern_wireshark::view::pdml::{Frame, frames};
use std::collections::BTreeMap;

const SESSION: SessionId = SessionId(0xABCD_EF01_2345_6789);

fn get_attr(nonce: u64) -> Message<'static> {
    Message::GetAttr(GetAttr { ask: Ask { nonce, back: 0, limit: 1_232 }, object: ObjectId(3), want: Want::Nothing })
}

fn demand(seq: u64) -> Message<'static> {
    let lock = LockId { object: ObjectId(3), class: LockClass::Cache };
    Message::Demand(Demand { seq, lock, generation: Generation(4), keep: Keep::Nothing })
}

/// A capture of these datagrams: who sent each, its packet number, its messages.
fn capture(datagrams: &[(bool, u64, Vec<Message<'_>>)]) -> Vec<Sent> {
    let one = |(n, (from_server, packet, messages)): (usize, &(bool, u64, Vec<Message<'_>>))| {
        let header = Header { from_server: *from_server, session: SESSION, packet: *packet };
        Sent::nth(n, datagram_of(header, messages), *from_server)
    };
    datagrams.iter().enumerate().map(one).collect()
}

fn seen(datagrams: &[Sent]) -> Option<Vec<Frame>> {
    Some(frames(&Captured::of(datagrams).tshark(&["-2", "-T", "pdml"])?))
}

#[test]
fn answers_and_what_they_answer_point_at_each_other() {
    let ack = |nonce, echo| Message::Ack(Ack { nonce, echo, reply: Reply::Done(Done {}) });
    let datagrams = capture(&[
        (false, 1, vec![get_attr(1), get_attr(2)]),
        (true, 1, vec![Message::Pending(Pending { nonce: 1, echo: 1 }), demand(1)]),
        (false, 2, vec![get_attr(1)]),
        (true, 2, vec![ack(1, 2), ack(2, 1)]),
        (false, 3, vec![Message::Receipt(Receipt { seq: 1, answer: ReceiptAnswer::Received })]),
        (false, 4, vec![Message::KeepAlive(KeepAlive { serial: 1, clock_us: 5 })]),
        (true, 3, vec![Message::Alive(Alive { serial: 1, echo: 4 })]),
    ]);
    let Some(frames) = seen(&datagrams) else { return };
    let links = |name: &str| -> Vec<Vec<&str>> { frames.iter().map(|frame| frame.values(name)).collect() };
    assert_eq!(links("cistern.response_in"), [vec!["2", "4"], vec!["5"], vec!["4"], vec![], vec![], vec!["7"], vec![]]);
    assert_eq!(links("cistern.request_in"), [vec![], vec!["1"], vec![], vec!["3", "1"], vec!["2"], vec![], vec!["6"]]);
    let times = links("cistern.time");
    assert_eq!((&times[1], &times[3]), (&vec!["0.010000000"], &vec!["0.010000000", "0.030000000"]));
    assert_eq!(links("cistern.retransmission_of"), [vec![], vec![], vec!["1"], vec![], vec![], vec![], vec![]]);
    assert_eq!(links("cistern.nonce"), [vec!["1", "2"], vec!["1"], vec!["1"], vec!["1", "2"], vec![], vec![], vec![]]);
}

#[test]
fn refusals_retransmissions_and_copies_are_remarked() {
    let nack = Message::Nack(Nack { nonce: 0, echo: 2, reason: NackReason::TimingOut, fate: Fate::Unknown });
    let keep_alive = |serial| vec![Message::KeepAlive(KeepAlive { serial, clock_us: 5 })];
    let mut datagrams = capture(&[
        (false, 1, keep_alive(1)),
        (false, 2, keep_alive(1)),
        (false, 2, keep_alive(1)),
        (true, 1, vec![nack]),
        (true, 2, vec![demand(1)]),
        (true, 3, vec![demand(1)]),
    ]);
    let handshake = samples().into_iter().filter(|message| matches!(message, Message::Hello(_) | Message::Refuse(_)));
    datagrams.extend(handshake.map(|message| {
        let header = header_for(&message, 2);
        Sent::nth(9, datagram_of(header, &[message]), header.from_server)
    }));
    let Some(frames) = seen(&datagrams) else { return };
    let experts = |frame: &Frame| -> Vec<String> {
        frame.all().iter().filter_map(|field| field.name.strip_prefix("cistern.expert.").map(str::to_owned)).collect()
    };
    assert_eq!(experts(&frames[0]), [""; 0]);
    assert_eq!(experts(&frames[1]), ["retransmission"]);
    assert_eq!(experts(&frames[2]), ["duplicate"]);
    assert_eq!(frames[2].values("cistern.duplicate_of"), ["2"]);
    assert_eq!(experts(&frames[3]), ["nack"]);
    assert_eq!(frames[3].values("cistern.request_in"), ["2"]);
    assert_eq!(frames[1].values("cistern.response_in"), ["4"], "a NACK names no control message but by its echo");
    assert_eq!((experts(&frames[4]), experts(&frames[5])), (vec![], vec!["retransmission".to_owned()]));
    assert_eq!(frames.last().map(experts), Some(vec!["refuse".to_owned()]));
}

#[test]
fn one_line_tells_every_message_of_a_datagram() {
    let datagrams = capture(&[
        (false, 1, vec![Message::Receipt(Receipt { seq: 1, answer: ReceiptAnswer::InUse }), get_attr(1)]),
        (false, 2, vec![get_attr(1)]),
    ]);
    let Some(text) = Captured::of(&datagrams).tshark(&["-T", "fields", "-e", "_ws.col.Info"]) else { return };
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines, ["RECEIPT seq 1 in use | GETATTR n1 #3", "GETATTR n1 #3 [again]"]);
}

#[test]
fn a_damaged_datagram_of_a_known_conversation_is_shown_as_such() {
    let mut datagrams = capture(&[(false, 1, vec![get_attr(1)]), (false, 2, vec![get_attr(2)])]);
    for sent in &mut datagrams {
        sent.to.set_port(PORT + 1);
    }
    let last = datagrams[1].payload.len() - 1;
    datagrams[1].payload[last] ^= 1;
    let Some(frames) = seen(&datagrams) else { return };
    assert_eq!(frames[1].values("cistern.dropped"), ["bad_checksum"]);
    assert_eq!(frames[1].values("cistern.getattr.ask.nonce"), ["2"], "what is damaged is read nevertheless");
}

#[test]
fn a_port_can_be_chosen() {
    let mut datagrams = capture(&[(false, 1, vec![get_attr(1)])]);
    datagrams[0].to.set_port(9_000);
    datagrams[0].payload[9] ^= 1;
    let captured = Captured::of(&datagrams);
    let Some(unchosen) = captured.tshark(&["-T", "fields", "-e", "cistern.dropped"]) else { return };
    assert_eq!(unchosen.trim(), "", "a damaged datagram of some port is nothing of ours");
    let chosen = captured.tshark(&["-o", "cistern.ports:9000-9010", "-T", "fields", "-e", "cistern.dropped"]).unwrap();
    assert_eq!(chosen.trim(), "bad_checksum");
}

#[test]
fn in_a_simulated_run_every_answer_finds_its_transmission() {
    let datagrams = simulated(Profile::Partition, 5);
    let datagrams = &datagrams[..datagrams.len().min(2_000)];
    let Some(frames) = seen(datagrams) else { return };
    // Which frame had which packet number of an agent's session.
    let mut sent = BTreeMap::new();
    let mut found = 0;
    for (number, (frame, datagram)) in frames.iter().zip(datagrams).enumerate() {
        let decoded = Datagram::seen(&datagram.payload).unwrap();
        let header = decoded.header;
        if !header.from_server {
            sent.entry((header.session, header.packet)).or_insert(number + 1);
            continue;
        }
        let echoes = decoded.messages().filter_map(|message| match message {
            Message::Ack(Ack { echo, .. }) | Message::Pending(Pending { echo, .. }) | Message::Alive(Alive { echo, .. }) => Some(echo),
            _ => None,
        });
        let expected: Vec<String> = echoes.map(|echo| sent[&(header.session, echo)].to_string()).collect();
        let links = frame.values("cistern.request_in");
        assert!(expected.iter().all(|frame| links.contains(&frame.as_str())), "frame {}: {links:?}, not {expected:?}", number + 1);
        found += expected.len();
    }
    assert!(found > 100, "{found} answers are no run");
}
