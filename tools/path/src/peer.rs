//! The agent's side of one session, as far as its datagrams go: it asks what it is told to, and remembers nothing but its numbers.
//!
//! Decides how a session is opened by the real handshake. Leaves to others: carrying its datagrams (`rig`, a test's socket), what is
//! asked (`kind`).

use cistern_wire::limits::DATAGRAM_DEFAULT;
use cistern_wire::{AgentId, Ask, Bytes8, Confirm, Datagram, Header, Hello, List, Message, Packer, SessionId};

/// Largest datagram of the agent.
#[expect(clippy::cast_possible_truncation, reason = "1,232 fits")]
const LIMIT: u16 = DATAGRAM_DEFAULT as u16;

/// One side of a session.
#[derive(Debug)]
pub struct Peer {
    session: SessionId,
    packet: u64,
    nonce: u64,
    serial: u64,
    /// How many requests are awaited together, and the nonce before the first of them.
    burst: (u64, u64),
}

impl Peer {
    /// Opens the session: `exchange` carries a datagram to the server and gives its answer.
    ///
    /// # Panics
    /// If the server does not open it: it is broken.
    #[must_use]
    pub fn open(mut exchange: impl FnMut(&[u8]) -> Vec<u8>) -> Self {
        let mut peer = Self { session: SessionId(0), packet: 0, nonce: 0, serial: 0, burst: (1, 0) };
        let answer = exchange(&peer.hello(&[]));
        let cookie = match message(&answer) {
            Some(Message::Challenge(challenge)) => challenge.cookie.0.to_vec(),
            other => panic!("HELLO was answered by {other:?}, not by CHALLENGE"),
        };
        let answer = exchange(&peer.hello(&cookie));
        match message(&answer) {
            Some(Message::Welcome(welcome)) => (peer.session, peer.packet) = (welcome.session, 0),
            other => panic!("HELLO with its cookie was answered by {other:?}, not by WELCOME"),
        }
        let confirm = Confirm { serial: peer.serial(), former: List::of(&[]) };
        let answer = exchange(&peer.datagram(&confirm.into()));
        match message(&answer) {
            Some(Message::Opened(_)) => peer,
            other => panic!("CONFIRM was answered by {other:?}, not by OPENED"),
        }
    }

    /// From now on requests come in bursts of so many: the first of each is asked when all before it were answered.
    pub const fn ask_in_bursts(&mut self, of: usize) {
        self.burst = (of as u64, self.nonce);
    }

    /// The beginning of the next request; unless bursts were asked for, the only one outstanding.
    pub fn ask(&mut self) -> Ask {
        let (burst, before) = self.burst;
        let place = (self.nonce - before) % burst;
        self.ask_among(u16::try_from(place + 1).unwrap_or(u16::MAX))
    }

    /// The beginning of the next request, one of `in_flight` outstanding: the one that many before it is not awaited any more.
    pub fn ask_among(&mut self, in_flight: u16) -> Ask {
        self.nonce += 1;
        let back = u64::from(in_flight - 1).min(self.nonce - 1);
        Ask { nonce: self.nonce, back: u16::try_from(back).unwrap_or(u16::MAX), limit: LIMIT }
    }

    /// The number of the next control message.
    pub const fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// A datagram of one message.
    ///
    /// # Panics
    /// If it does not fit: no request of this package is that long.
    pub fn datagram(&mut self, message: &Message<'_>) -> Vec<u8> {
        self.datagram_of(&[message.to_bytes()])
    }

    /// A datagram of encoded messages.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn datagram_of(&mut self, messages: &[Vec<u8>]) -> Vec<u8> {
        self.packet += 1;
        let header = Header { from_server: false, session: self.session, packet: self.packet };
        let mut bytes = Vec::new();
        let mut packer = Packer::new(&mut bytes, header, DATAGRAM_DEFAULT);
        assert!(messages.iter().all(|message| packer.push_encoded(message)), "the requests fit a datagram");
        packer.finish();
        bytes
    }

    fn hello(&mut self, cookie: &[u8]) -> Vec<u8> {
        let hello = Hello { label: Bytes8(b"counted"), cookie: Bytes8(cookie), ..Hello::new(AgentId([0xA7; 16]), 1) };
        self.datagram(&hello.into())
    }
}

/// The first message of a datagram of the server.
#[must_use]
pub fn message(datagram: &[u8]) -> Option<Message<'_>> {
    Datagram::at_agent(datagram).ok()?.messages().next()
}
