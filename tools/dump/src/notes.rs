//! What the capture so far tells about a datagram: sent before, answering what, counting from when.
//!
//! Decides what of the story (`cistern-audit`) stands beside a message, as seen where the capture was made. Place in the walk: after the
//! decoder, before anything is shown; it sees all traffic, also what filters hide. Invariant: what was forgotten is never guessed at.
//! Leaves to others: what is remembered, and what it proves (`cistern-audit`).

use crate::packet::Packet;
use cistern_audit::{Event, Passage, Said, Session, Side, Story, Terms, Vantage, What};
use cistern_wire::{Kind, Message, Number, Numbers, SessionId};
use std::time::Duration;

/// A story that has not begun, in which times count as if they were the agents'; `tau` is the lease period of sessions whose WELCOME is not
/// seen, if somebody knows it.
#[must_use]
pub fn story(tau: Option<Duration>) -> Story {
    Story::new(Vantage { side: Side::Agent, ..Vantage::default() }, Terms { tau, ..Terms::default() })
}

/// What is known about one message beside what it says.
#[derive(Clone, Debug, Default)]
pub struct Note {
    /// The numbers in it.
    pub numbers: Numbers,
    /// Earlier transmissions of it.
    pub again: Option<Again>,
    /// Of an answer or a receipt, the kind of what it answers.
    pub about: Option<Kind>,
    /// Of an answer, when the transmission that it echoes was sent; of a receipt, when the notice was, if that was sent once only.
    pub sent: Option<Duration>,
    /// Of a renewing answer, until when the lease counts now.
    pub lease: Option<Lease>,
}

/// A message that was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// How often before this.
    pub times: u32,
    /// When first.
    pub first: Duration,
}

/// A lease as a renewing answer leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Until when it counts; not known without the session's WELCOME, or the sending of what is echoed, in the capture.
    pub until: Option<Duration>,
    /// Whether this answer moved the end.
    pub moved: bool,
}

/// The first packet numbers of a session, as far as its handshake was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beginning {
    agent: Option<u64>,
    server: Option<u64>,
}

impl Beginning {
    fn of(session: &Session) -> Self {
        Self { agent: session.first_packet(false), server: session.first_packet(true) }
    }

    /// A packet number counted from the first of its sender, which is 1; as it is if that is not known, or above it.
    #[must_use]
    pub fn counted(self, number: u64, from_server: bool) -> u64 {
        let first = if from_server { self.server } else { self.agent };
        first.and_then(|first| number.checked_sub(first)).map_or(number, |before| before + 1)
    }
}

/// What is known about one datagram beside what it says.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Whether the same datagram was seen before: the network, or a second capture, shows it twice.
    pub copy: bool,
    /// The session that it is of, or offers; 0 in other handshakes.
    pub session: SessionId,
    /// The lease period of that, if it is known.
    pub tau: Option<Duration>,
    /// Where the numbers of the session begin.
    pub first: Beginning,
    /// For each message, in order.
    pub messages: Vec<Note>,
    /// The label that the session's agent gave itself, if its HELLO was seen.
    pub label: Option<String>,
    /// What it did in the story.
    pub events: Vec<Event>,
}

impl Notes {
    /// Takes a datagram into the story, and tells what was known.
    #[must_use]
    pub fn take(story: &mut Story, packet: &Packet<'_>) -> Self {
        let session = packet.session();
        let mut until = story.session(session).and_then(Session::lease_until);
        let Packet { number: frame, at, from, to, bytes, .. } = *packet;
        story.take(Passage { frame, at, from, to, payload: bytes });
        let events = story.events().to_vec();
        let Ok(datagram) = &packet.content else { return Self { events, ..Self::default() } };
        let copy = events.iter().any(|event| matches!(event.what, What::Copy { .. }));
        let known = Known { story, session: story.session(datagram.header.session), packet, counts: !copy && !events.is_empty() };
        let mut renewals = events.iter().filter_map(|event| match &event.what {
            What::Answer(answer) if answer.kind.renews() => Some(answer.renewal),
            _ => None,
        });
        let mut messages = Vec::new();
        for message in datagram.messages() {
            let mut note = known.note(&message);
            if message.kind().renews() {
                let renewal = renewals.next().flatten();
                let moved = renewal.filter(|renewal| renewal.moved);
                until = moved.map_or(until, |renewal| Some(renewal.certain_until));
                // A copy renews what it has renewed before.
                let renews = renewal.is_some() || copy && note.sent.is_some();
                note.lease = Some(Lease { until: until.filter(|_| renews), moved: moved.is_some() });
            }
            messages.push(note);
        }
        let label = known.label(datagram.messages()).filter(|label| !label.is_empty()).map(str::to_owned);
        // A handshake's own numbers count from 1.
        let first = known.session.map_or_else(Beginning::default, Beginning::of);
        let tau = story.session(session).and_then(|session| session.promise).map(|promise| promise.tau);
        Self { copy, session, tau, first, messages, label, events }
    }
}

/// What is known when a datagram has been taken into the story.
struct Known<'a> {
    story: &'a Story,
    /// The session in its header.
    session: Option<&'a Session>,
    packet: &'a Packet<'a>,
    /// Whether it is a transmission of its own, and none that everybody drops.
    counts: bool,
}

impl<'a> Known<'a> {
    fn note(&self, message: &Message<'_>) -> Note {
        let (kind, numbers) = (message.kind(), message.numbers());
        let mut note = Note { numbers, ..Note::default() };
        let said = numbers.name.and_then(|name| self.said(message, name));
        if kind == Kind::Receipt {
            // It is sent once for each copy of its notice that arrives; that is no retransmission of its own.
            note.about = said.map(|said| said.kind);
            note.sent = said.filter(|said| said.transmissions == 1).map(|said| said.first);
        } else if kind.is_answer() {
            note.about = said.map(|said| said.kind);
            note.sent = numbers.echo.and_then(|echo| self.sent(numbers.name, echo));
        } else {
            let before = said.filter(|said| self.counts && said.transmissions > 1);
            note.again = before.map(|said| Again { times: said.transmissions - 1, first: said.first });
        }
        note
    }

    fn said(&self, message: &Message<'_>, name: Number) -> Option<Said> {
        let Number::Handshake(handshake) = name else { return self.session?.said(name) };
        let opening = self.story.opening(handshake)?;
        match message {
            Message::Hello(hello) => opening.said(!hello.cookie.0.is_empty()),
            _ => opening.said(false).or_else(|| opening.said(true)),
        }
    }

    fn sent(&self, name: Option<Number>, echo: u64) -> Option<Duration> {
        match name {
            Some(Number::Handshake(handshake)) => self.story.opening(handshake)?.sent(echo, self.packet.to),
            _ => self.session?.sent(echo),
        }
    }

    fn label<'m>(&self, mut messages: impl Iterator<Item = Message<'m>>) -> Option<&'a str> {
        if let Some(session) = self.session {
            return Some(&session.label);
        }
        messages.find_map(|message| match message.numbers().name {
            Some(Number::Handshake(handshake)) => Some(self.story.opening(handshake)?.label()),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_capture::Datagram;
    use cistern_wire::{Ack, Ask, Done, GetAttr, Header, ObjectId, Packer, Reply, Want, samples};

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn note(story: &mut Story, at: Duration, from_server: bool, session: u64, packet: u64, message: Message<'_>) -> Notes {
        let mut bytes = Vec::new();
        let mut packer = Packer::new(&mut bytes, Header { from_server, session: SessionId(session), packet }, 1_232);
        assert!(packer.push(&message));
        packer.finish();
        let ends = ["10.0.0.5:9000", "10.0.0.1:7311"].map(|text| text.parse().unwrap());
        let [from, to] = if from_server { [ends[1], ends[0]] } else { ends };
        let datagram = Datagram { number: 1, at, from, to, payload: bytes.into() };
        Notes::take(story, &Packet::new(0, &datagram))
    }

    fn ask(nonce: u64) -> Message<'static> {
        Message::GetAttr(GetAttr { ask: Ask { nonce, back: 0, limit: 548 }, object: ObjectId(1), want: Want::Nothing })
    }

    fn ack(nonce: u64, echo: u64) -> Message<'static> {
        Message::Ack(Ack { nonce, echo, reply: Reply::Done(Done {}) })
    }

    fn sample(kind: Kind) -> Message<'static> {
        samples().into_iter().find(|message| message.kind() == kind).unwrap()
    }

    #[test]
    fn a_lease_counts_from_the_transmission_that_is_echoed() {
        let mut story = story(None);
        // The samples' WELCOME offers this session for 2 s, and echoes packet 2 of its handshake; it is handshake 1.
        let Message::Hello(hello) = sample(Kind::Hello) else { panic!() };
        let hello = Message::Hello(cistern_wire::Hello { handshake: 1, ..hello });
        note(&mut story, ms(10), false, 0, 2, hello);
        let welcome = note(&mut story, ms(15), true, 0, 1, sample(Kind::Welcome));
        assert_eq!((welcome.messages[0].sent, welcome.messages[0].lease), (Some(ms(10)), None), "it renews nothing");
        assert_eq!(welcome.first.counted(2, false), 2, "the numbers of a handshake begin with 1");
        let session = 0x1122_3344_5566_7788;
        let (agent, server) = (0x1122_3344_5566, 0x6655_4433_2211);
        let Notes { first, label, .. } = note(&mut story, ms(100), false, session, agent, ask(1));
        assert_eq!(label.as_deref(), Some("host-a:4711"));
        assert_eq!([agent, agent + 9, 5].map(|number| first.counted(number, false)), [1, 10, 5]);
        assert_eq!([server, server + 9, 5].map(|number| first.counted(number, true)), [1, 10, 5]);
        let again = note(&mut story, ms(300), false, session, agent + 1, ask(1));
        assert_eq!(again.messages[0].again, Some(Again { times: 1, first: ms(100) }));
        let late = note(&mut story, ms(400), true, session, server, ack(1, agent + 1));
        let Note { about, sent, lease, .. } = late.messages[0];
        assert_eq!((about, sent), (Some(Kind::GetAttr), Some(ms(300))));
        assert_eq!(lease, Some(Lease { until: Some(ms(2_300)), moved: true }));
        let early = note(&mut story, ms(410), true, session, server + 1, ack(1, agent));
        assert_eq!(early.messages[0].lease, Some(Lease { until: Some(ms(2_300)), moved: false }));
    }

    #[test]
    fn without_its_beginning_nothing_is_guessed_of_a_lease() {
        let mut story = story(None);
        let unseen = note(&mut story, ms(1), true, 7, 1, ack(1, 1));
        let Note { about, sent, lease, .. } = unseen.messages[0];
        assert_eq!((about, sent, lease), (None, None, Some(Lease { until: None, moved: false })));
        note(&mut story, ms(2), false, 7, 2, ask(2));
        let seen = note(&mut story, ms(3), true, 7, 2, ack(2, 2));
        assert_eq!((seen.messages[0].sent, seen.messages[0].lease.unwrap().until), (Some(ms(2)), None));
        let mut told = super::story(Some(ms(2_000)));
        note(&mut told, ms(2), false, 7, 2, ask(2));
        assert_eq!(note(&mut told, ms(3), true, 7, 2, ack(2, 2)).messages[0].lease.unwrap().until, Some(ms(2_002)));
    }

    #[test]
    fn a_copy_is_no_second_transmission() {
        let mut story = story(None);
        note(&mut story, ms(1), false, 7, 1, ask(1));
        let copy = note(&mut story, ms(2), false, 7, 1, ask(1));
        assert!(copy.copy && copy.messages[0].again.is_none());
        let again = note(&mut story, ms(3), false, 7, 2, ask(1));
        assert_eq!(again.messages[0].again, Some(Again { times: 1, first: ms(1) }));
        note(&mut story, ms(4), true, 7, 1, ack(1, 2));
        let copy = note(&mut story, ms(5), true, 7, 1, ack(1, 2));
        assert_eq!((copy.copy, copy.messages[0].about, copy.messages[0].sent), (true, Some(Kind::GetAttr), Some(ms(3))));
    }

    #[test]
    fn a_hello_is_sent_again_under_another_number_and_is_another_message_with_the_cookie() {
        let mut story = story(None);
        let Message::Hello(hello) = sample(Kind::Hello) else { panic!() };
        let bare = cistern_wire::Hello { cookie: cistern_wire::Bytes8(b""), ..hello };
        let notes: Vec<_> = [(1, bare), (1, bare), (2, bare), (3, hello)]
            .into_iter()
            .map(|(packet, hello)| note(&mut story, ms(packet), false, 0, packet, hello.into()))
            .map(|notes| (notes.copy, notes.messages[0].again))
            .collect();
        assert_eq!(notes, [(false, None), (true, None), (false, Some(Again { times: 1, first: ms(1) })), (false, None)]);
    }
}
