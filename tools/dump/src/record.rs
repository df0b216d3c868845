//! Lines for programs: a message a line, as JSON (`docs/inspecting.md` has the schema).
//!
//! Decides: what stands beside the fields of a message: where it was seen, what it means, what was seen before. Keys that have nothing to
//! say are left out. Leaves to others: the fields (`json`), the words (`words`), what was seen before (`notes`).

use crate::follow::Aside;
use crate::json::{DatagramFields, MessageFields};
use crate::labels::Labels;
use crate::notes::{Note, Notes};
use crate::packet::Packet;
use crate::words::words;
use cistern_wire::{DatagramTree, DropReason, Message, Number};
use serde::Serialize;
use std::io::{self, Write};
use std::time::Duration;

#[derive(Serialize)]
struct Record<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a str>,
    frame: u64,
    time: String,
    from: String,
    to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_label: Option<String>,
    /// Of the UDP payload.
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Place>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(flatten)]
    said: Option<MessageRecord<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    malformed: Option<Malformed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    moved_from: Option<String>,
    cistern: Fields<'a>,
}

/// How the lease of a followed session stands.
#[derive(Serialize)]
struct LeaseRecord {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_s: Option<f64>,
}

/// Which message of its datagram.
#[derive(Serialize)]
struct Place {
    number: usize,
    of: usize,
}

/// What a sound message says, and what was seen before it.
#[derive(Serialize)]
struct MessageRecord<'a> {
    session: String,
    packet: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    copy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serial: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handshake: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_again: Option<AgainRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    echo: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answered_sent: Option<String>,
    renews: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until: Option<String>,
    words: String,
}

#[derive(Serialize)]
struct AgainRecord {
    times: u32,
    first: String,
}

#[derive(Serialize)]
struct Malformed {
    reason: &'static str,
    text: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Fields<'a> {
    Message(MessageFields<'a>),
    Datagram(DatagramFields<'a>),
}

/// Writes a datagram: a line for each of its messages that are to be shown, or one that says why it has none.
///
/// # Errors
/// Those of `out`.
pub fn datagram(
    out: &mut impl Write,
    input: Option<&str>,
    labels: &Labels,
    packet: &Packet<'_>,
    notes: &Notes,
    aside: Option<&Aside>,
    shown: &[bool],
) -> io::Result<()> {
    let tree = DatagramTree::of(packet.bytes);
    let sound: Vec<_> = packet.content.iter().flat_map(|datagram| datagram.messages()).collect();
    let record = |message, kind, said, cistern| Record {
        input,
        frame: packet.number,
        time: time(packet.at),
        from: packet.from.to_string(),
        to: packet.to.to_string(),
        from_label: labels.label(packet.from),
        to_label: labels.label(packet.to),
        bytes: packet.bytes.len(),
        message,
        kind,
        said,
        malformed: packet.content.as_ref().err().map(malformed),
        lease: aside.map(|aside| {
            let (state, left_s) = aside.lease.parts();
            LeaseRecord { state, left_s }
        }),
        moved_from: aside.and_then(|aside| aside.moved_from).map(|from| from.to_string()),
        cistern,
    };
    if packet.content.is_err() && tree.messages.is_empty() {
        return write(out, &record(None, None, None, Fields::Datagram(DatagramFields(&tree))));
    }
    for (at, message) in tree.messages.iter().enumerate() {
        // What does not decode is shown with all that looks like a message.
        if packet.content.is_ok() && shown.get(at) != Some(&true) {
            continue;
        }
        let place = Place { number: at + 1, of: tree.messages.len() };
        let said = sound.get(at).zip(notes.messages.get(at)).map(|(message, note)| said(packet, message, note, notes));
        let fields = Fields::Message(MessageFields { datagram: &tree, message });
        write(out, &record(Some(place), message.kind.map(|kind| kind.name()), said, fields))?;
    }
    Ok(())
}

fn write(out: &mut impl Write, record: &Record<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut *out, record).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

fn said<'a>(packet: &Packet<'_>, message: &Message<'_>, note: &Note, notes: &'a Notes) -> MessageRecord<'a> {
    let header = packet.content.as_ref().ok().map(|datagram| datagram.header);
    let (mut serial, mut seq, mut handshake) = (None, None, None);
    match note.numbers.name {
        Some(Number::Serial(number)) => serial = Some(number),
        Some(Number::Seq(number)) => seq = Some(number),
        Some(Number::Handshake(number)) => handshake = Some(format!("{number:016x}")),
        Some(Number::Nonce(_)) | None => {}
    }
    MessageRecord {
        session: header.map_or(String::new(), |header| header.session.to_string()),
        packet: header.map_or(0, |header| header.packet),
        copy: notes.copy,
        agent: notes.label.as_deref(),
        nonce: note.numbers.nonce,
        serial,
        seq,
        handshake,
        answers: note.about.map(|kind| kind.name()),
        sent_again: note.again.map(|again| AgainRecord { times: again.times + 1, first: time(again.first) }),
        echo: note.numbers.echo,
        answered_sent: note.sent.map(time),
        renews: message.kind().renews(),
        lease_until: note.lease.and_then(|lease| lease.until).map(time),
        words: words(message),
    }
}

fn malformed(reason: &DropReason) -> Malformed {
    Malformed { reason: reason.name(), text: reason.to_string() }
}

/// Seconds since 1970, exact to the nanosecond; a string, for most readers of JSON numbers are less exact.
fn time(at: Duration) -> String {
    format!("{}.{:09}", at.as_secs(), at.subsec_nanos())
}
