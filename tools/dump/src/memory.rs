//! What the capture so far tells about a datagram: sent before, answering what, counting from when.
//!
//! Decides: when a message counts as sent again (same number, another packet), when a datagram is a copy (same packet number), and from
//! and until when a renewing answer makes a lease count, as seen where the capture was made. Place in the walk: after the decoder, before
//! anything is shown; it sees all traffic, also what filters hide.
//! Invariant: memory is bounded however long the capture is; what was forgotten is never guessed at.
//! Leaves to others: the whole story of sessions and what it proves (`cistern-audit`).

use cistern_wire::limits::WINDOW_MAX;
use cistern_wire::{Datagram, Escaped, Kind, Message, Number, Numbers};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most numbers of a kind that are remembered of a session: more than a window can hold, so that any late answer still finds its request.
const REMEMBERED: usize = 2 * WINDOW_MAX as usize;
/// Most sessions and handshakes that are remembered; of those silent longest, a quarter is forgotten when there are more.
const LIVES: usize = 65_536;

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
    /// Whether a datagram of this packet number was seen before: the network, or a second capture, shows it twice.
    pub copy: bool,
    /// Where the numbers of the session begin.
    pub first: Beginning,
    /// For each message, in order.
    pub messages: Vec<Note>,
    /// The label that the session's agent gave itself, if its HELLO was seen.
    pub label: Option<String>,
}

/// Everything that is remembered.
#[derive(Debug, Default)]
pub struct Memory {
    lives: BTreeMap<Key, Life>,
    /// The lease period of sessions whose WELCOME was not seen, if somebody knows it.
    tau: Option<Duration>,
}

/// Whose numbers these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Session(u64),
    Handshake(u64),
}

/// One session, or one handshake.
#[derive(Debug, Default)]
struct Life {
    heard: Duration,
    /// When each transmission of the agent was sent.
    sent: BTreeMap<u64, Duration>,
    /// Packet numbers of the server.
    received: BTreeMap<u64, ()>,
    /// What was sent under each number, a table for each kind of number: one that runs fast does not push the others out.
    said: [BTreeMap<u64, Said>; 5],
    lease: Option<Duration>,
    until: Option<Duration>,
    label: Option<String>,
    first: Beginning,
}

#[derive(Clone, Copy, Debug)]
struct Said {
    kind: Kind,
    first: Duration,
    times: u32,
}

impl Memory {
    /// Nothing is remembered; `tau` is the lease period of sessions whose WELCOME is not seen, if somebody knows it.
    #[must_use]
    pub const fn new(tau: Option<Duration>) -> Self {
        Self { lives: BTreeMap::new(), tau }
    }

    /// Takes a datagram in, and tells what was known.
    pub fn note(&mut self, at: Duration, datagram: &Datagram<'_>) -> Notes {
        let header = &datagram.header;
        let of_handshake = |message: Message<'_>| match message.numbers().name {
            Some(Number::Handshake(handshake)) => Some(Key::Handshake(handshake)),
            _ => None,
        };
        let key = match header.session.0 {
            0 => datagram.messages().find_map(of_handshake),
            session => Some(Key::Session(session)),
        };
        // Every message of session 0 names its handshake.
        let Some(key) = key else { return Notes { messages: vec![Note::default(); datagram.messages().count()], ..Notes::default() } };
        self.forget();
        let tau = self.tau;
        let life = self.lives.entry(key).or_insert_with(|| Life { lease: tau, ..Life::default() });
        life.heard = at;
        let copy = life.transmission(at, header.from_server, header.packet, datagram);
        let messages = datagram.messages().map(|message| life.message(at, &message, copy)).collect();
        let label = life.label.clone();
        // A handshake's own numbers count from 1.
        let first = if header.session.0 == 0 { Beginning::default() } else { life.first };
        for message in datagram.messages() {
            if let Message::Welcome(welcome) = message {
                self.open(at, key, &welcome);
            }
        }
        Notes { copy, first, messages, label }
    }

    /// The label of a session's agent, if its HELLO was seen.
    #[must_use]
    pub fn label(&self, session: u64) -> Option<&str> {
        self.lives.get(&Key::Session(session))?.label.as_deref()
    }

    /// A handshake became a session: what is known goes with it.
    fn open(&mut self, at: Duration, key: Key, welcome: &cistern_wire::Welcome<'_>) {
        let Some(handshake) = self.lives.get(&key) else { return };
        let (label, lease, until, first) = (handshake.label.clone(), handshake.lease, handshake.until, handshake.first);
        let life = self.lives.entry(Key::Session(welcome.session.0)).or_default();
        life.heard = at;
        life.label = label;
        life.lease = lease;
        life.first = first;
        life.until = life.until.max(until);
    }

    fn forget(&mut self) {
        if self.lives.len() < LIVES {
            return;
        }
        let mut heard: Vec<_> = self.lives.values().map(|life| life.heard).collect();
        let (_, limit, _) = heard.select_nth_unstable(LIVES / 4);
        let limit = *limit;
        self.lives.retain(|_, life| life.heard > limit);
    }
}

impl Life {
    /// Notes the datagram itself; whether it was there before.
    fn transmission(&mut self, at: Duration, from_server: bool, packet: u64, datagram: &Datagram<'_>) -> bool {
        if !from_server {
            let copy = self.sent.contains_key(&packet);
            if !copy {
                insert(&mut self.sent, packet, at);
            }
            return copy;
        }
        // In a handshake the server's numbers mean nothing, nor does that of a HINT.
        if datagram.header.session.0 == 0 || datagram.messages().any(|message| message.kind() == Kind::Hint) {
            return false;
        }
        let copy = self.received.contains_key(&packet);
        insert(&mut self.received, packet, ());
        copy
    }

    fn message(&mut self, at: Duration, message: &Message<'_>, copy: bool) -> Note {
        let kind = message.kind();
        let numbers = message.numbers();
        let mut note = Note { numbers, ..Note::default() };
        if let Message::Hello(hello) = message {
            self.label = Some(Escaped(hello.label.0).to_string()).filter(|label| !label.is_empty());
            self.first.agent = Some(hello.first_packet);
        }
        if let Message::Welcome(welcome) = message {
            self.lease = Some(Duration::from_micros(welcome.lease_us));
            self.first.server = Some(welcome.first_packet);
        }
        if kind.is_answer() || kind == Kind::Receipt {
            self.answer(&mut note, kind);
            // A receipt is sent once for each copy of its notice that arrives; that is no retransmission of its own.
            return note;
        }
        let Some(name) = numbers.name.filter(|_| !copy) else { return note };
        // A HELLO with the cookie is another message than the one without.
        let with_cookie = matches!(message, Message::Hello(hello) if !hello.cookie.0.is_empty());
        let (table, number) = place(name, with_cookie);
        match self.said[table].get_mut(&number) {
            Some(said) => {
                note.again = Some(Again { times: said.times, first: said.first });
                said.times = said.times.saturating_add(1);
            }
            None => insert(&mut self.said[table], number, Said { kind, first: at, times: 1 }),
        }
        note
    }

    /// What an answer or a receipt is about, and what it does to the lease.
    fn answer(&mut self, note: &mut Note, kind: Kind) {
        let said_as = |name, with_cookie| {
            let (table, number) = place(name, with_cookie);
            self.said[table].get(&number)
        };
        let said = note.numbers.name.and_then(|name| said_as(name, false).or_else(|| said_as(name, true)));
        note.about = said.map(|said| said.kind);
        if kind == Kind::Receipt {
            note.sent = said.filter(|said| said.times == 1).map(|said| said.first);
            return;
        }
        note.sent = note.numbers.echo.and_then(|echo| self.sent.get(&echo)).copied();
        if kind.renews() {
            let until = note.sent.and_then(|sent| Some(sent.saturating_add(self.lease?)));
            let moved = until > self.until;
            self.until = self.until.max(until);
            note.lease = Some(Lease { until: self.until.filter(|_| until.is_some()), moved });
        }
    }
}

/// Where a number stands among the tables.
const fn place(name: Number, with_cookie: bool) -> (usize, u64) {
    match name {
        Number::Nonce(nonce) => (0, nonce),
        Number::Serial(serial) => (1, serial),
        Number::Seq(seq) => (2, seq),
        Number::Handshake(handshake) => (if with_cookie { 4 } else { 3 }, handshake),
    }
}

/// Inserts, and forgets the lowest numbers when there are too many.
fn insert<V>(map: &mut BTreeMap<u64, V>, number: u64, value: V) {
    map.insert(number, value);
    while map.len() > REMEMBERED {
        map.pop_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::{Ack, Ask, Done, GetAttr, Header, ObjectId, Packer, Reply, SessionId, Want, samples};

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn note(memory: &mut Memory, at: Duration, from_server: bool, session: u64, packet: u64, message: Message<'_>) -> Notes {
        let mut bytes = Vec::new();
        let mut packer = Packer::new(&mut bytes, Header { from_server, session: SessionId(session), packet }, 1_232);
        assert!(packer.push(&message));
        packer.finish();
        memory.note(at, &Datagram::seen(&bytes).unwrap())
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
        let mut memory = Memory::default();
        // The samples' WELCOME opens this session for 2 s, and echoes packet 2 of its handshake; it is handshake 1.
        let Message::Hello(hello) = sample(Kind::Hello) else { panic!() };
        let hello = Message::Hello(cistern_wire::Hello { handshake: 1, ..hello });
        note(&mut memory, ms(10), false, 0, 2, hello);
        let welcome = note(&mut memory, ms(15), true, 0, 1, sample(Kind::Welcome));
        assert_eq!(welcome.messages[0].lease, Some(Lease { until: Some(ms(2_010)), moved: true }));
        assert_eq!(welcome.first.counted(2, false), 2, "the numbers of a handshake begin with 1");
        let session = 0x1122_3344_5566_7788;
        assert_eq!(memory.label(session), Some("host-a:4711"));
        let first = note(&mut memory, ms(100), false, session, 1, ask(1)).first;
        let (agent, server) = (0x1122_3344_5566, 0x6655_4433_2211);
        assert_eq!([agent, agent + 9, 5].map(|number| first.counted(number, false)), [1, 10, 5]);
        assert_eq!([server, server + 9, 5].map(|number| first.counted(number, true)), [1, 10, 5]);
        let again = note(&mut memory, ms(300), false, session, 2, ask(1));
        assert_eq!(again.messages[0].again, Some(Again { times: 1, first: ms(100) }));
        let late = note(&mut memory, ms(400), true, session, 1, ack(1, 2));
        let Note { about, sent, lease, .. } = late.messages[0];
        assert_eq!((about, sent), (Some(Kind::GetAttr), Some(ms(300))));
        assert_eq!(lease, Some(Lease { until: Some(ms(2_300)), moved: true }));
        let early = note(&mut memory, ms(410), true, session, 2, ack(1, 1));
        assert_eq!(early.messages[0].lease, Some(Lease { until: Some(ms(2_300)), moved: false }));
    }

    #[test]
    fn without_its_beginning_nothing_is_guessed_of_a_lease() {
        let mut memory = Memory::default();
        let unseen = note(&mut memory, ms(1), true, 7, 1, ack(1, 1));
        let Note { about, sent, lease, .. } = unseen.messages[0];
        assert_eq!((about, sent, lease), (None, None, Some(Lease { until: None, moved: false })));
        note(&mut memory, ms(2), false, 7, 2, ask(2));
        let seen = note(&mut memory, ms(3), true, 7, 2, ack(2, 2));
        assert_eq!((seen.messages[0].sent, seen.messages[0].lease.unwrap().until), (Some(ms(2)), None));
        let mut told = Memory::new(Some(ms(2_000)));
        note(&mut told, ms(2), false, 7, 2, ask(2));
        assert_eq!(note(&mut told, ms(3), true, 7, 2, ack(2, 2)).messages[0].lease.unwrap().until, Some(ms(2_002)));
    }

    #[test]
    fn a_copy_is_no_second_transmission() {
        let mut memory = Memory::default();
        note(&mut memory, ms(1), false, 7, 1, ask(1));
        let copy = note(&mut memory, ms(2), false, 7, 1, ask(1));
        assert!(copy.copy && copy.messages[0].again.is_none());
        let again = note(&mut memory, ms(3), false, 7, 2, ask(1));
        assert_eq!(again.messages[0].again, Some(Again { times: 1, first: ms(1) }));
    }

    #[test]
    fn memory_is_bounded_and_fast_numbers_do_not_push_slow_ones_out() {
        let mut memory = Memory::default();
        note(&mut memory, ms(1), false, 7, 1, sample(Kind::KeepAlive));
        for nonce in 1..=REMEMBERED as u64 + 10 {
            note(&mut memory, ms(2), false, 7, nonce + 1, ask(nonce));
        }
        let life = &memory.lives[&Key::Session(7)];
        assert_eq!((life.said[0].len(), life.said[1].len(), life.sent.len()), (REMEMBERED, 1, REMEMBERED));
        for session in 1..=LIVES as u64 + 10 {
            note(&mut memory, ms(10 + session), false, session << 32, 1, ask(1));
        }
        assert!(memory.lives.len() <= LIVES, "{}", memory.lives.len());
        assert!(memory.lives.contains_key(&Key::Session((LIVES as u64 + 10) << 32)));
    }
}
