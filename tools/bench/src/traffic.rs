//! The loops: closed, so many requests in flight, each sent when an earlier one was answered; and open, one at every tick whatever the
//! answers do. One request in each datagram, or as many of one agent's as it has room for.
//!
//! Decides what is asked, in which order, and what counts as answered: for the server its ACK or RELEASED, for the echo the same
//! datagram. Both are sent the same requests with the same bytes. Place: between `agent` (one side of a session) and the sockets.
//! Invariants: a round begins and ends with nothing in flight, so that CPU read around it belongs to its exchanges; a lost datagram
//! is sent again and counted; no wait is without a bound. Leaves to others: CPU (`host`), figures (`figures`).

use crate::agent::Agent;
use crate::cores::Cores;
use crate::crowd::Crowd;
use crate::host::Role;
use crate::slot::{Awaited, Slot, Step, Taken};
use crate::trouble::Trouble;
use cistern_testkit::session::Addressee;
use cistern_wire::limits::DATAGRAM_MAX;
use cistern_wire::{Datagram, SessionId};
use hashbrown::HashMap;
use hdrhistogram::Histogram;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// After how long without an answer a request is sent again: far above every latency of loopback.
const RESEND: Duration = Duration::from_millis(100);
/// After how long without any answer a round is given up, in seconds.
const SILENCE_S: u64 = 5;
/// Longest sleep of a generator that sleeps, in milliseconds: less than [`RESEND`], for a lost datagram wakes nobody.
const SLEEP_MS: u8 = 20;
/// Most datagrams received from one socket before the others have their turn.
const RECEIVED_AT_ONCE: usize = 64;
/// Longest latency told apart, in nanoseconds: beyond `SILENCE_S` a round has failed anyway.
const LATENCY_MAX_NS: u64 = 10_000_000_000;

/// When the next requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Each as soon as an earlier one was answered.
    Each,
    /// All together, when all were answered: the server wakes once for all of them, and its CPU is work, not waking.
    Together,
    /// One at every tick, whether or not earlier ones were answered: latencies count from the tick, also of one that had to wait for a
    /// place in flight, so that a server that stands still is charged for all that would have come meanwhile.
    Every(Duration),
}

/// What one round brought.
#[derive(Debug)]
pub(crate) struct Traced {
    /// Requests answered.
    pub(crate) exchanges: u64,
    /// From the first request to the last answer.
    pub(crate) elapsed: Duration,
    /// From a request's first transmission to its answer.
    pub(crate) latency_ns: Histogram<u64>,
    /// From a LOCK's first transmission to the answer of its RELEASE.
    pub(crate) pair_ns: Histogram<u64>,
    /// Requests sent again.
    pub(crate) resent: u64,
    /// Datagrams sent, and their bytes of UDP payload.
    pub(crate) datagrams_out: u64,
    /// Bytes sent.
    pub(crate) bytes_out: u64,
    /// Datagrams received.
    pub(crate) datagrams_in: u64,
    /// Bytes received.
    pub(crate) bytes_in: u64,
}

impl Traced {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        let histogram = || Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("1 to 10^10 with three digits is a valid range");
        let (latency_ns, pair_ns) = (histogram(), histogram());
        Self {
            exchanges: 0,
            elapsed: Duration::ZERO,
            latency_ns,
            pair_ns,
            resent: 0,
            datagrams_out: 0,
            bytes_out: 0,
            datagrams_in: 0,
            bytes_in: 0,
        }
    }
}

/// One of the generator's sockets.
#[derive(Debug)]
struct Line {
    socket: UdpSocket,
    /// Requests sent by it and not answered.
    awaited: usize,
}

/// A load on one process under test.
#[derive(Debug)]
pub(crate) struct Traffic {
    peer: Role,
    pace: Pace,
    /// Whether requests of one agent that are sent at the same moment share datagrams.
    packed: bool,
    lines: Vec<Line>,
    agents: Vec<Agent>,
    slots: Vec<Slot>,
    /// The slot of everything awaited.
    index: HashMap<Awaited, usize>,
    /// The agent that asks next, where there are more of them than slots.
    next_agent: usize,
    /// Who asks what, if it is drawn.
    crowd: Option<Crowd>,
    /// What is done while nothing comes.
    idle: Idle,
    /// Slots that have begun and were not transmitted yet.
    fresh: Vec<usize>,
    datagram: Vec<u8>,
    buf: Vec<u8>,
    /// Which agent has a session, if sessions are sealed, and what was in the last datagram of one.
    sealed: HashMap<SessionId, usize>,
    text: Vec<u8>,
}

/// What the generator does while nothing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Looks again at once: it has a core of its own.
    Spin,
    /// Gives the core away: the process under test may need it.
    Yield,
    /// Sleeps until something comes: the process under test has use for every core. Its waking is part of the latency then.
    Sleep,
}

impl Idle {
    /// On these cores.
    pub(crate) const fn of(cores: Cores) -> Self {
        if cores.pinned.is_none() { Self::Yield } else { Self::Spin }
    }
}

/// How requests are sent and by whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// When the next ones are sent.
    pub(crate) pace: Pace,
    /// Whether requests of one agent that are sent at the same moment share datagrams.
    pub(crate) packed: bool,
    /// What is done while nothing comes.
    pub(crate) idle: Idle,
}

impl Traffic {
    /// Sends by `sockets`, which are connected to the process under test.
    pub(crate) fn new(peer: Role, manner: Manner, sockets: Vec<UdpSocket>, agents: Vec<Agent>, slots: Vec<Slot>) -> Result<Self, Trouble> {
        for socket in &sockets {
            socket.set_nonblocking(true).map_err(Trouble::at("making a socket non-blocking"))?;
        }
        let lines = sockets.into_iter().map(|socket| Line { socket, awaited: 0 }).collect();
        let (fresh, datagram, buf) = (Vec::new(), Vec::new(), vec![0; DATAGRAM_MAX]);
        let Manner { pace, packed, idle } = manner;
        let (index, crowd, text) = (HashMap::with_capacity(slots.len()), None, Vec::new());
        let sealed = agents.iter().enumerate().filter(|(_, agent)| agent.wire.is_sealed()).map(|(at, agent)| (agent.session(), at));
        let sealed = sealed.collect();
        Ok(Self { peer, pace, packed, lines, agents, slots, index, next_agent: 0, crowd, idle, fresh, datagram, buf, sealed, text })
    }

    /// From now on requests are sent so.
    pub(crate) const fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// From now on nothing to do is spent so.
    pub(crate) const fn set_idle(&mut self, idle: Idle) {
        self.idle = idle;
    }

    /// From now on `crowd` says who asks what, in so many slots, several of an agent in a datagram or one.
    pub(crate) fn draw_from(&mut self, crowd: Crowd, slots: usize, packed: bool) {
        self.slots = (0..slots).map(|_| Slot::new(Crowd::FIRST)).collect();
        (self.crowd, self.packed) = (Some(crowd), packed);
    }

    /// Who is drawn from.
    pub(crate) const fn crowd(&self) -> Option<&Crowd> {
        self.crowd.as_ref()
    }

    /// Who was drawn from until now.
    pub(crate) const fn take_crowd(&mut self) -> Option<Crowd> {
        self.crowd.take()
    }

    /// Runs for `span`, then waits for what is in flight.
    pub(crate) fn run(&mut self, span: Duration) -> Result<Traced, Trouble> {
        let mut traced = Traced::new();
        let begin = Instant::now();
        let (mut now, mut heard, mut looked, mut tick) = (begin, begin, begin, begin);
        loop {
            let asks = match self.pace {
                Pace::Each => now - begin < span,
                Pace::Together => now - begin < span && self.is_quiet(),
                // What was due within the span is asked, however late.
                Pace::Every(_) => tick - begin < span,
            } && !self.crowd.as_ref().is_some_and(Crowd::is_over);
            if let (Pace::Every(gap), true) = (self.pace, asks) {
                self.ask_due(&mut tick, gap, now.min(begin + span), &mut traced)?;
            } else if asks {
                self.ask_all(&mut traced)?;
            } else if self.is_quiet() {
                break;
            }
            let received = self.receive(&mut traced)?;
            now = Instant::now();
            if received > 0 || self.is_quiet() {
                heard = now;
            } else if now - heard >= Duration::from_secs(SILENCE_S) {
                return Err(Trouble::Silence { while_doing: "measuring", seconds: SILENCE_S });
            } else if now - looked >= RESEND / 4 {
                looked = now;
                self.resend(now, &mut traced)?;
            } else {
                self.pause()?;
            }
        }
        traced.elapsed = now - begin;
        Ok(traced)
    }

    /// Spends a moment in which nothing has come.
    fn pause(&self) -> Result<(), Trouble> {
        match self.idle {
            Idle::Spin => Ok(()),
            Idle::Yield => {
                std::thread::yield_now();
                Ok(())
            }
            Idle::Sleep => {
                let mut lines: Vec<_> = self.lines.iter().map(|line| PollFd::new(line.socket.as_fd(), PollFlags::POLLIN)).collect();
                match poll(&mut lines, SLEEP_MS) {
                    Ok(_) | Err(Errno::EINTR) => Ok(()),
                    Err(e) => Err(Trouble::at("waiting for an answer")(e)),
                }
            }
        }
    }

    /// Asks what was due up to `now`, as far as there are places for it.
    fn ask_due(&mut self, tick: &mut Instant, gap: Duration, now: Instant, traced: &mut Traced) -> Result<(), Trouble> {
        for at in 0..self.slots.len() {
            if *tick > now {
                break;
            }
            if !self.slots[at].in_flight() && self.begin(at) {
                self.slots[at].intend(*tick);
                *tick += gap;
            }
        }
        self.transmit_fresh(traced)
    }

    /// Whether nothing is in flight.
    fn is_quiet(&self) -> bool {
        self.index.is_empty()
    }

    /// Gives every slot without a request its next one.
    fn ask_all(&mut self, traced: &mut Traced) -> Result<(), Trouble> {
        for at in 0..self.slots.len() {
            if !self.slots[at].in_flight() {
                self.begin(at);
            }
        }
        self.transmit_fresh(traced)
    }

    /// Begins the next request of a slot; false if its agent's window is full.
    fn begin(&mut self, at: usize) -> bool {
        let by = match &mut self.crowd {
            Some(crowd) => {
                let Some((by, step)) = crowd.draw(at, self.slots[at].step()) else { return false };
                self.slots[at].ask_next(step);
                by
            }
            None if self.agents.len() > self.slots.len() => self.next_agent,
            None => at % self.agents.len(),
        };
        self.next_agent = (by + 1) % self.agents.len();
        let begun = self.slots[at].begin(by, &mut self.agents[by]);
        if begun {
            self.lines[self.agents[by].line].awaited += 1;
            self.fresh.push(at);
            if let (Some(awaited), false) = (self.slots[at].awaited(), self.peer == Role::Echo) {
                self.index.insert(awaited, at);
            }
        }
        begun
    }

    /// Sends what has begun: each request by itself, or those of one agent together.
    fn transmit_fresh(&mut self, traced: &mut Traced) -> Result<(), Trouble> {
        let mut fresh = std::mem::take(&mut self.fresh);
        if self.packed {
            // Stable: of one agent in the order in which they began.
            fresh.sort_by_key(|at| self.slots[*at].agent);
        }
        let mut rest = &fresh[..];
        while let Some(first) = rest.first() {
            let agent = self.slots[*first].agent;
            let together = if self.packed { rest.iter().take_while(|at| self.slots[**at].agent == agent).count() } else { 1 };
            let sent = self.transmit(&rest[..together], traced)?;
            rest = &rest[sent..];
        }
        fresh.clear();
        self.fresh = fresh;
        Ok(())
    }

    /// Sends requests of one agent, for the first time or again, as many as a datagram takes; gives how many.
    fn transmit(&mut self, which: &[usize], traced: &mut Traced) -> Result<usize, Trouble> {
        let agent = &mut self.agents[self.slots[which[0]].agent];
        let messages = which.iter().map(|at| self.slots[*at].message.as_slice());
        let (packet, packed) = agent.pack_first(messages, &mut self.datagram);
        let socket = &self.lines[agent.line].socket;
        let now = Instant::now();
        for at in &which[..packed] {
            let before = self.slots[*at].echo();
            self.slots[*at].sent(packet, now);
            if self.peer == Role::Echo {
                self.index.remove(&before);
                self.index.insert(self.slots[*at].echo(), *at);
            }
        }
        match socket.send(&self.datagram) {
            Ok(bytes) => {
                traced.datagrams_out += 1;
                traced.bytes_out += bytes as u64;
            }
            // As good as lost: it is sent again after a while.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(Trouble::at("sending a request")(error)),
        }
        Ok(packed)
    }

    fn resend(&mut self, now: Instant, traced: &mut Traced) -> Result<(), Trouble> {
        for at in 0..self.slots.len() {
            if self.slots[at].is_overdue(now, RESEND) {
                traced.resent += 1;
                self.transmit(&[at], traced)?;
            }
        }
        Ok(())
    }

    /// Takes what has arrived; gives how many datagrams.
    fn receive(&mut self, traced: &mut Traced) -> Result<usize, Trouble> {
        let mut received = 0;
        for line in 0..self.lines.len() {
            for _ in 0..RECEIVED_AT_ONCE {
                if self.lines[line].awaited == 0 {
                    break;
                }
                let len = match self.lines[line].socket.recv(&mut self.buf) {
                    Ok(len) => len,
                    Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => break,
                    Err(error) => return Err(Trouble::at("receiving an answer")(error)),
                };
                received += 1;
                traced.datagrams_in += 1;
                traced.bytes_in += len as u64;
                self.take(len, traced)?;
            }
        }
        Ok(received)
    }

    /// Takes one datagram: every answer in it ends the exchange of a slot.
    fn take(&mut self, len: usize, traced: &mut Traced) -> Result<(), Trouble> {
        let Self { peer, lines, agents, slots, index, crowd, buf, sealed, text, .. } = self;
        let bytes = &buf[..len];
        let wrong = |got: String| Trouble::Answer { while_doing: "measuring", expected: "an answer", got };
        let datagram = match peer {
            Role::Server | Role::Durable if sealed.is_empty() => Datagram::at_agent(bytes),
            Role::Server | Role::Durable => {
                let Some(Addressee::Session(session)) = Addressee::of(bytes) else { return Ok(()) };
                // The repeated answer to a part of a handshake is in no session.
                let Some(at) = sealed.get(&session) else { return Ok(()) };
                agents[*at].wire.open(bytes, text)
            }
            Role::Echo => Datagram::at_server(bytes),
        };
        let datagram = datagram.map_err(|reason| wrong(reason.to_string()))?;
        let now = Instant::now();
        let mut done = |at: usize, slot: &mut Slot| {
            if let Some(crowd) = crowd.as_mut() {
                crowd.answered(at, slot.step());
            }
            let agent = &mut agents[slot.agent];
            lines[agent.line].awaited -= 1;
            traced.exchanges += 1;
            let ns = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(LATENCY_MAX_NS);
            if let Some(pair) = slot.pair(now) {
                traced.pair_ns.saturating_record(ns(pair));
            }
            traced.latency_ns.saturating_record(ns(slot.end(agent, now)));
        };
        let session = datagram.header.session;
        match peer {
            Role::Echo => {
                if let Some(at) = index.remove(&Awaited::Packet(session.0, datagram.header.packet)) {
                    slots[at].echoed();
                    done(at, &mut slots[at]);
                }
            }
            Role::Server | Role::Durable => {
                for message in datagram.messages() {
                    // An answer that no slot awaits is the second one to a request that was sent twice.
                    let awaited = Awaited::answered_by(session, &message);
                    let Some((awaited, at)) = awaited.and_then(|awaited| index.get(&awaited).map(|at| (awaited, *at))) else {
                        if Slot::may_come(&message) {
                            continue;
                        }
                        return Err(wrong(format!("{message:?}")));
                    };
                    let slot = &mut slots[at];
                    match slot.take(&message) {
                        Taken::Answer => {
                            index.remove(&awaited);
                            done(at, slot);
                        }
                        Taken::Later => {}
                        Taken::Wrong => return Err(slot.wrong(&message)),
                    }
                }
            }
        }
        Ok(())
    }
}

/// What the slots of a load begin with.
pub(crate) fn slots(first: &[Step]) -> Vec<Slot> {
    first.iter().map(|step| Slot::new(*step)).collect()
}
