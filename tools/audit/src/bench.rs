//! Captures made by hand, for tests: datagrams between one server and its agents, at times that a test chooses.
//!
//! Decides addresses and packet numbers. Leaves to others: what is said.
#![allow(dead_code, reason = "the rules' tests use it")]

use crate::event::Passage;
use cistern_wire::{
    Ack, AgentId, Alive, Ask, Bytes8, Challenge, Confirm, FormerClaim, FormerFate, Generation, Granted, Handle, Header, Hello, KeepAlive,
    List, Lock, LockClass, LockId, LockWait, Message, Mode, ObjectId, Opened, Packer, Reply, SessionId, StoreId, Welcome,
};
use std::net::SocketAddr;
use std::time::Duration;

/// τ of every session of the bench.
pub(crate) const TAU: Duration = Duration::from_secs(2);

/// T of every session of the bench: δ is 1 %, ε 1 ms.
pub(crate) const WAIT: Duration = Duration::from_millis(2_021);

/// The lock that tests are about.
pub(crate) const LOCK: LockId = LockId { object: ObjectId(7), class: LockClass::Advisory };

/// A capture on its way.
pub(crate) struct Bench<T> {
    pub(crate) frame: u64,
    pub(crate) now: Duration,
    pub(crate) taker: T,
    take: fn(&mut T, Passage<'_>),
}

/// The address of an agent.
pub(crate) fn agent(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number + 10], 40_000))
}

/// The server's address.
pub(crate) fn server() -> SocketAddr {
    SocketAddr::from(([10, 0, 255, 1], 6_737))
}

/// One datagram's bytes. In a session the packets of a test begin with 1, after those of the handshake.
pub(crate) fn datagram(from_server: bool, session: u64, packet: u64, messages: &[Message<'_>]) -> Vec<u8> {
    let mut buf = Vec::new();
    let mut packer = Packer::new(&mut buf, Header { from_server, session: SessionId(session), packet: in_session(session, packet) }, 8_952);
    messages.iter().for_each(|message| assert!(packer.push(&echoing(session, message))));
    packer.finish();
    buf
}

pub(crate) const fn ask(nonce: u64) -> Ask {
    Ask { nonce, back: 0, limit: 1_232 }
}

pub(crate) fn keep_alive(serial: u64) -> Message<'static> {
    KeepAlive { serial, clock_us: 0 }.into()
}

pub(crate) fn alive(serial: u64, echo: u64) -> Message<'static> {
    Alive { serial, echo }.into()
}

pub(crate) fn lock(nonce: u64) -> Message<'static> {
    Lock { ask: ask(nonce), object: LOCK.object, mode: Mode::Exclusive, wait: LockWait::Queue }.into()
}

pub(crate) fn granted(nonce: u64, echo: u64, generation: u64) -> Message<'static> {
    let granted = Granted { lock: LOCK, mode: Mode::Exclusive, generation: Generation(generation), run: 10 };
    Ack { nonce, echo, reply: Reply::Granted(granted) }.into()
}

pub(crate) fn hello(number: u8, handshake: u64, cookie: &'static [u8]) -> Message<'static> {
    hello_of(number, handshake, 1, cookie)
}

/// A HELLO of a start of an agent.
pub(crate) fn hello_of(number: u8, handshake: u64, incarnation: u64, cookie: &[u8]) -> Message<'_> {
    let agent = AgentId([number + 1; 16]);
    Hello { incarnation, label: Bytes8(b"bench"), cookie: Bytes8(cookie), ..Hello::new(agent, handshake) }.into()
}

pub(crate) fn challenge(handshake: u64, echo: u64) -> Message<'static> {
    Challenge { handshake, echo, cookie: Bytes8(b"0123456789abcdef") }.into()
}

/// CONFIRM with what it says of former sessions. Its serial is one that no other message of a test has.
pub(crate) fn confirm(former: &[FormerClaim]) -> Message<'_> {
    Confirm { serial: 0, former: List::of(former) }.into()
}

/// OPENED with what it says of former sessions.
pub(crate) fn opened(echo: u64, former: &[FormerFate]) -> Message<'_> {
    Opened { serial: 0, echo, former: List::of(former), resume: [0; 32], roster: 0 }.into()
}

pub(crate) fn welcome(handshake: u64, echo: u64, session: u64, incarnation: u64) -> Message<'static> {
    Welcome {
        handshake,
        echo,
        version: 1,
        session: SessionId(session),
        handle: Handle(session),
        store: StoreId([0xC1; 16]),
        epoch: 0,
        server_incarnation: incarnation,
        features: 0,
        lease_us: 2_000_000,
        delta_ppm: 10_000,
        epsilon_us: 1_000,
        delivery_timeout_us: 500_000,
        window: 64,
        max_datagram: 1_232,
        first_packet: 1,
    }
    .into()
}

impl<T> Bench<T> {
    pub(crate) fn new(taker: T, take: fn(&mut T, Passage<'_>)) -> Self {
        Self { frame: 0, now: Duration::from_secs(1_000), taker, take }
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// An agent's datagram passes.
    pub(crate) fn up(&mut self, number: u8, session: u64, packet: u64, messages: &[Message<'_>]) {
        let bytes = datagram(false, session, packet, messages);
        self.bytes(agent(number), server(), &bytes);
    }

    /// A server's datagram passes.
    pub(crate) fn down(&mut self, number: u8, session: u64, packet: u64, messages: &[Message<'_>]) {
        let bytes = datagram(true, session, packet, messages);
        self.bytes(server(), agent(number), &bytes);
    }

    /// Bytes pass.
    pub(crate) fn bytes(&mut self, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        self.frame += 1;
        (self.take)(&mut self.taker, Passage { frame: self.frame, at: self.now, from, to, payload });
    }

    /// An agent opens a session, whose number is also its handshake's, with the first start of the server.
    pub(crate) fn open(&mut self, number: u8, session: u64) {
        self.open_at(number, session, 1);
    }

    /// An agent opens a session with a start of the server.
    pub(crate) fn open_at(&mut self, number: u8, session: u64, incarnation: u64) {
        self.up(number, 0, 1, &[hello(number, session, b"")]);
        self.down(number, 0, 1, &[challenge(session, 1)]);
        self.up(number, 0, 2, &[hello(number, session, b"0123456789abcdef")]);
        self.down(number, 0, 1, &[welcome(session, 2, session, incarnation)]);
        self.confirm(number, session, &[], &[]);
    }

    /// CONFIRM and OPENED go before packet 1 of either side.
    pub(crate) fn confirm(&mut self, number: u8, session: u64, claims: &[FormerClaim], fates: &[FormerFate]) {
        self.up(number, session, 0, &[confirm(claims)]);
        self.down(number, session, 0, &[opened(0, fates)]);
    }
}

/// Its number on the wire.
const fn in_session(session: u64, packet: u64) -> u64 {
    if session == 0 { packet } else { packet.saturating_add(1) }
}

/// An answer echoes what its test calls so.
fn echoing<'a>(session: u64, message: &Message<'a>) -> Message<'a> {
    let mut message = *message;
    if session != 0 {
        match &mut message {
            Message::Ack(m) => m.echo = in_session(session, m.echo),
            Message::Pending(m) => m.echo = in_session(session, m.echo),
            Message::Queued(m) => m.echo = in_session(session, m.echo),
            Message::Nack(m) => m.echo = in_session(session, m.echo),
            Message::Alive(m) => m.echo = in_session(session, m.echo),
            Message::Released(m) => m.echo = in_session(session, m.echo),
            Message::Cancelled(m) => m.echo = in_session(session, m.echo),
            Message::Ended(m) => m.echo = in_session(session, m.echo),
            Message::Hint(m) => m.echo = in_session(session, m.echo),
            Message::Opened(m) => m.echo = in_session(session, m.echo),
            Message::Known(m) => m.echo = in_session(session, m.echo),
            _ => {}
        }
    }
    message
}
