//! The server's core in this process, with as many sessions and locks as are asked for, and the agents that go with them.
//!
//! Decides that the core is turned as the driver turns it, on virtual time, without sockets: a datagram costs the kernel the same however
//! many sessions there are, and would only hide what grows. Requests are encoded before and answers decoded after what is measured: the
//! CPU time of this thread within the core's calls. Place: under the parts of `scale`.
//! Invariant: agents cost this process a few words each, taken before the first is opened, so that what grows is the core's.
//! Leaves to others: what is asked (`cost`, `steal`), figures (`scale`).

use super::store::{FIRST, Store};
use crate::trouble::Trouble;
use cistern_link::{Instant, Machine as _, Path};
use cistern_server::config::{CacheLimits, LockLimits, WorkLimits};
use cistern_server::{Config, Server};
use cistern_wire::limits::{DATAGRAM_DEFAULT, ROOT};
use cistern_wire::{
    AgentId, Ask, Bytes8, Confirm, Create, Datagram, Header, Hello, List, Message, ObjectId, Packer, Reply, SessionId, StoreId, Terms,
};
use nix::time::{ClockId, clock_gettime};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Datagrams that arrive before the core is told that its socket is empty, as after one wake-up of a busy server.
pub(super) const TOGETHER: usize = 64;
/// Virtual time between two turns.
const TURN: Duration = Duration::from_millis(10);
#[expect(clippy::cast_possible_truncation, reason = "1,232 fits")]
const LIMIT: u16 = DATAGRAM_DEFAULT as u16;
const STORE: StoreId = StoreId([0x5C; 16]);
/// Memory of the core for one file that it knows of, generously: it must not forget any, or it would be the store that is measured.
pub(crate) const FILE_BYTES: usize = 256;

/// An agent, as far as a server can tell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KnownAgent {
    pub(super) session: SessionId,
    packet: u32,
    nonce: u32,
    serial: u32,
}

/// The core, its store, its agents.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) server: Server,
    store: Store,
    pub(super) now: Instant,
    pub(super) agents: Vec<KnownAgent>,
    /// The generation of each lock.
    pub(super) locks: Vec<u64>,
    /// Whether agent 0 holds all locks; otherwise they go round.
    pub(super) one_holder: bool,
    /// Datagrams that are to arrive: whose, and up to where in `bytes`.
    arriving: Vec<(usize, usize)>,
    bytes: Vec<u8>,
    /// Datagrams that the core sent: up to where in `sent`.
    leaving: Vec<usize>,
    sent: Vec<u8>,
    buf: Vec<u8>,
    /// CPU time of the last turn.
    pub(super) last: Duration,
    /// CPU time of the longest turn.
    pub(super) longest: Duration,
}

impl Tables {
    /// A core without sessions, with room for so many of each.
    pub(super) fn new(sessions: usize, locks: usize, spare: usize) -> Result<Self, Trouble> {
        let most = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let limits = LockLimits { locks_max: locks + locks / 4 + spare + 256, locks_per_session: locks.max(1), ..LockLimits::default() };
        let config = Config {
            volatile: true,
            new_cluster: true,
            sessions_max: most(sessions + sessions / 4 + 8_192),
            opening_max: most(8_192),
            locks: limits,
            // Whatever comes in one turn is answered in it.
            work: WorkLimits { slice: Duration::from_millis(100), ..WorkLimits::default() },
            cache: CacheLimits { bytes_max: (64 << 20) + locks * FILE_BYTES },
            ..Config::default()
        };
        let now = Instant::new(1_000_000_000, 1_000_000_000);
        let server = Server::new(now, 1_700_000_000_000_000_000, STORE, config, [7; 32]).map_err(Trouble::starting("making the core"))?;
        let mut tables = Self {
            server,
            store: Store::default(),
            now,
            // Not zeros: what was never written to takes no memory yet.
            agents: vec![KnownAgent { session: SessionId(1), ..KnownAgent::default() }; sessions],
            locks: vec![1; locks],
            one_holder: false,
            arriving: Vec::new(),
            bytes: Vec::new(),
            leaving: Vec::new(),
            sent: Vec::new(),
            buf: Vec::with_capacity(DATAGRAM_DEFAULT),
            last: Duration::ZERO,
            longest: Duration::ZERO,
        };
        tables.agents.fill(KnownAgent::default());
        tables.turn();
        Ok(tables)
    }

    /// Opens every session, by real handshakes, and makes the file that stands for all.
    pub(super) fn open(&mut self) -> Result<(), Trouble> {
        let count = self.agents.len();
        for start in (0..count).step_by(TOGETHER) {
            let numbers = start..count.min(start + TOGETHER);
            let mut cookies = vec![Vec::new(); numbers.len()];
            for challenged in [false, true] {
                for number in numbers.clone() {
                    self.say_hello(number, &cookies[number - start]);
                }
                let mut offered = Vec::new();
                self.exchange(|_, message| match message {
                    Message::Challenge(challenge) => cookies[usize_of(challenge.handshake) - 1 - start] = challenge.cookie.0.to_vec(),
                    Message::Welcome(welcome) => offered.push((usize_of(welcome.handshake) - 1, welcome.session)),
                    _ => {}
                });
                for (number, session) in &offered {
                    self.agents[*number] = KnownAgent { session: *session, serial: 1, ..KnownAgent::default() };
                }
                if challenged && offered.len() != numbers.len() {
                    return Err(Self::missing("opening sessions", "a WELCOME for each"));
                }
            }
            for number in numbers.clone() {
                self.post(number, &[Confirm { serial: 1, former: List::of(&[]) }.into()]);
            }
            let mut opened = 0;
            self.exchange(|_, message| opened += usize::from(matches!(message, Message::Opened(_))));
            if opened != numbers.len() {
                return Err(Self::missing("opening sessions", "OPENED for each"));
            }
        }
        self.make_model()
    }

    fn say_hello(&mut self, number: usize, cookie: &[u8]) {
        let handshake = number as u64 + 1;
        let mut agent = [0xA9; 16];
        agent[..8].copy_from_slice(&handshake.to_be_bytes());
        let hello = Hello { label: Bytes8(b"host-1234"), cookie: Bytes8(cookie), ..Hello::new(AgentId(agent), handshake) };
        self.arrive(number, SessionId(0), 1, &[Message::from(hello)]);
    }

    fn make_model(&mut self) -> Result<(), Trouble> {
        let create = Create {
            ask: self.ask(0),
            dir: ObjectId(ROOT),
            name: Bytes8(b"file-123456.dat"),
            exclusive: true,
            mode: 0o600,
            uid: 0,
            gid: 0,
            ephemeral: false,
            terms: Terms::NONE,
        };
        self.post(0, &[Message::from(create)]);
        let mut made = false;
        self.exchange(|_, message| made |= matches!(message, Message::Ack(ack) if matches!(ack.reply, Reply::Changed(_))));
        if made && self.store.has_model() { Ok(()) } else { Err(Self::missing("making a file", "CHANGED")) }
    }

    /// The file of lock `n`.
    pub(super) const fn file(n: usize) -> ObjectId {
        ObjectId(FIRST + n as u64)
    }

    /// The agent that holds lock `n`.
    pub(super) const fn holder(&self, n: usize) -> usize {
        if self.one_holder { 0 } else { n % self.agents.len() }
    }

    /// What the next request of an agent begins with; it waits for no earlier one.
    pub(super) fn ask(&mut self, agent: usize) -> Ask {
        let agent = &mut self.agents[agent];
        agent.nonce += 1;
        Ask { nonce: agent.nonce.into(), back: 0, limit: LIMIT }
    }

    /// The number of an agent's next control message.
    pub(super) fn serial(&mut self, agent: usize) -> u64 {
        let agent = &mut self.agents[agent];
        agent.serial += 1;
        agent.serial.into()
    }

    /// A datagram of an agent is to arrive.
    pub(super) fn post(&mut self, agent: usize, messages: &[Message<'_>]) {
        let sender = &mut self.agents[agent];
        sender.packet += 1;
        let (session, packet) = (sender.session, sender.packet.into());
        self.arrive(agent, session, packet, messages);
    }

    fn arrive(&mut self, agent: usize, session: SessionId, packet: u64, messages: &[Message<'_>]) {
        let mut packer = Packer::new(&mut self.buf, Header { from_server: false, session, packet }, DATAGRAM_DEFAULT);
        for message in messages {
            packer.push(message);
        }
        packer.finish();
        self.bytes.extend_from_slice(&self.buf);
        self.arriving.push((agent, self.bytes.len()));
    }

    /// Delivers what is to arrive, turns the core, and shows each message that it sent, with the session it is for.
    pub(super) fn exchange(&mut self, shown: impl FnMut(SessionId, Message<'_>)) {
        self.turn();
        self.show(shown);
    }

    /// Shows each message that the core sent in its last turn.
    pub(super) fn show(&self, mut shown: impl FnMut(SessionId, Message<'_>)) {
        let mut start = 0;
        for end in &self.leaving {
            if let Ok(datagram) = Datagram::at_agent(&self.sent[start..*end]) {
                datagram.messages().for_each(|message| shown(datagram.header.session, message));
            }
            start = *end;
        }
    }

    /// One turn of the core, as a driver turns it; its CPU time is kept.
    pub(super) fn turn(&mut self) {
        self.now = self.now.plus(TURN);
        self.turn_now();
    }

    /// One turn at the instant that it is.
    pub(super) fn turn_now(&mut self) {
        let (now, mut start) = (self.now, 0);
        self.leaving.clear();
        self.sent.clear();
        let begun = cpu();
        for (agent, end) in &self.arriving {
            self.server.handle_datagram(now, path(*agent), &self.bytes[start..*end]);
            start = *end;
        }
        self.server.handle_drained(now);
        self.server.work(now);
        while let Some(work) = self.server.poll_effect() {
            for event in self.store.take(work) {
                self.server.store_event(now, event);
            }
        }
        while self.server.poll_transmit(now, &mut self.buf).is_some() {
            self.sent.extend_from_slice(&self.buf);
            self.leaving.push(self.sent.len());
        }
        self.last = cpu().saturating_sub(begun);
        self.longest = self.longest.max(self.last);
        self.arriving.clear();
        self.bytes.clear();
    }

    /// What did not come.
    pub(super) fn missing(while_doing: &'static str, expected: &'static str) -> Trouble {
        Trouble::Answer { while_doing, expected, got: "something else".to_owned() }
    }
}

/// Where an agent sends from: hosts of a private network, some agents on each.
fn path(agent: usize) -> Path {
    let [_, a, b, c] = u32::try_from(agent / 8).unwrap_or(u32::MAX).to_be_bytes();
    let port = 40_000 + u16::try_from(agent % 8).unwrap_or(0);
    Path { remote: SocketAddr::from((Ipv4Addr::new(10, a, b, c), port)), local: Some(Ipv4Addr::new(10, 255, 0, 1).into()) }
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// CPU time of this thread.
pub(super) fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
