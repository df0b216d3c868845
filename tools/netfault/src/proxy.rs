//! The proxy: sockets, the clock, the script, and what is held for later.
//!
//! Decides when sockets are read and written and when scripted commands run: whatever is due at a time is done before datagrams of that
//! time are taken. One thread. Invariants: what is held is bounded; a socket that floods holds up no other for long; datagrams that are due
//! at the same time leave in the order in which they came.
//! Leaves to others: the fate of a datagram (`network`), who the agents are (`agents`), counting (`stats`), commands from outside
//! (`control` for other programs, [`Handle`] for this one).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cistern_capture::{Recorded, Recorder};
use cistern_driver::{ControlLimits, ControlServer, stamp};
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::agents::Agents;
use crate::command::Command;
use crate::network::{Fate, Network, Passing};
use crate::script::Event;
use crate::stats::{Lost, RuleStats, Stats};

const FRONT: Token = Token(0);
const WAKER: Token = Token(1);
const CONTROL: usize = 2;
/// Agents' sockets have the tokens from here on.
const AGENTS: usize = 1 << 20;

/// Most datagrams read from one socket before the others have their turn.
const READ_AT_ONCE: usize = 64;
/// How often silent agents are looked for.
const LOOK: u64 = 1_000_000_000;
/// Largest UDP datagram.
const DATAGRAM_MAX: usize = 65_536;

/// What a proxy is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where agents send to; port 0 lets the system choose. Must be an address of this machine, not all of them.
    pub listen: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// What all draws come from.
    pub seed: u64,
    /// Commands with their times, in order.
    pub script: Vec<Event>,
    /// Most agents at a time.
    pub agents_max: usize,
    /// After how long a silence an agent is forgotten.
    pub idle: Duration,
    /// Most bytes that are held for later.
    pub held_max: usize,
    /// Where other programs can give commands.
    pub control: Option<PathBuf>,
    /// A capture of both sides, one of the agents' side, one of the server's.
    pub captures: [Option<PathBuf>; 3],
}

impl Options {
    /// A proxy without script, control socket and captures, on a port that the system chooses.
    #[must_use]
    pub fn between(listen: SocketAddr, server: SocketAddr) -> Self {
        Self {
            listen,
            server,
            seed: 0,
            script: Vec::new(),
            agents_max: 1_024,
            idle: Duration::from_secs(300),
            held_max: 64 << 20,
            control: None,
            captures: [None, None, None],
        }
    }
}

/// Why a proxy could not be started or go on.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The address for agents cannot be had.
    #[error("cannot listen on UDP {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Answers could leave from another address than the one that was asked.
    #[error("will not listen on {0}: answers must come from the address that was asked; name one address of this machine")]
    Wildcard(SocketAddr),
    /// A capture file cannot be made.
    #[error(transparent)]
    Capture(#[from] cistern_capture::CreateError),
    /// The control socket cannot be made.
    #[error(transparent)]
    Control(#[from] cistern_driver::ControlError),
    /// The loop failed.
    #[error("the proxy's loop failed: {0}")]
    Io(#[from] io::Error),
}

/// A question to a running proxy, and where its answer goes.
struct Asked {
    what: Question,
    answer: Sender<Result<Stats, String>>,
}

enum Question {
    Command(Command),
    Stats,
}

/// Commands a proxy from other threads of its process.
#[derive(Clone, Debug)]
pub struct Handle {
    ask: Sender<Asked>,
    waker: Arc<Waker>,
}

impl Handle {
    /// Carries a command out; gives the counts after it. The command has taken effect when this returns.
    ///
    /// # Errors
    /// The proxy has ended.
    pub fn command(&self, command: Command) -> Result<Stats, String> {
        self.put(Question::Command(command))
    }

    /// The counts.
    ///
    /// # Errors
    /// The proxy has ended.
    pub fn stats(&self) -> Result<Stats, String> {
        self.put(Question::Stats)
    }

    /// Ends the proxy.
    pub fn end(&self) {
        // One that has ended already is as good.
        let _ = self.put(Question::Command(Command::End));
    }

    fn put(&self, what: Question) -> Result<Stats, String> {
        let (answer, answered) = channel();
        let gone = || "the proxy has ended".to_owned();
        self.ask.send(Asked { what, answer }).map_err(|_| gone())?;
        self.waker.wake().map_err(|error| error.to_string())?;
        answered.recv().map_err(|_| gone())?
    }
}

/// What is held: when it leaves, in which order, to whom.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    at: u64,
    order: u64,
    agent: u32,
    up: bool,
    bytes: Bytes,
}

/// How a proxy ended.
#[derive(Debug)]
pub struct Ended {
    /// The counts at the end.
    pub stats: Stats,
    /// What became of the captures, by file.
    pub captures: BTreeMap<PathBuf, Recorded>,
}

/// A proxy that is set up.
pub struct Proxy {
    options: Options,
    poll: Poll,
    front: UdpSocket,
    address: SocketAddr,
    agents: Agents,
    network: Network,
    control: Option<ControlServer>,
    asked: Receiver<Asked>,
    handle: Handle,
    /// Both sides, the agents', the server's.
    recorders: [Option<Recorder>; 3],
    start: Instant,
    next_event: usize,
    held: BinaryHeap<Reverse<Held>>,
    held_bytes: usize,
    order: u64,
    /// Sockets that may have more to read: the front one, and those of agents.
    front_ready: bool,
    agents_ready: BTreeSet<u32>,
    looked: u64,
    ended: bool,
    buffer: Vec<u8>,
}

impl Proxy {
    /// Opens everything; nothing passes before [`run`](Self::run).
    ///
    /// # Errors
    /// [`ProxyError`] names what cannot be had.
    pub fn open(options: Options) -> Result<Self, ProxyError> {
        if options.listen.ip().is_unspecified() {
            return Err(ProxyError::Wildcard(options.listen));
        }
        let listen = |source| ProxyError::Listen { address: options.listen, source };
        let mut front = UdpSocket::bind(options.listen).map_err(listen)?;
        let address = front.local_addr().map_err(listen)?;
        let recorders = options.captures.clone().map(|path| path.map(|path| Recorder::create(&path)).transpose());
        let [both, agents, server] = recorders;
        let recorders = [both?, agents?, server?];
        let poll = Poll::new()?;
        poll.registry().register(&mut front, FRONT, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let mut control = options.control.as_ref().map(|path| ControlServer::bind(path, ControlLimits::default())).transpose()?;
        if let Some(control) = &mut control {
            control.register(poll.registry(), CONTROL)?;
        }
        let (ask, asked) = channel();
        Ok(Self {
            agents: Agents::new(options.server, options.agents_max, AGENTS),
            network: Network::new(options.seed),
            options,
            poll,
            front,
            address,
            control,
            asked,
            handle: Handle { ask, waker },
            recorders,
            start: Instant::now(),
            next_event: 0,
            held: BinaryHeap::new(),
            held_bytes: 0,
            order: 0,
            front_ready: true,
            agents_ready: BTreeSet::new(),
            looked: 0,
            ended: false,
            buffer: vec![0; DATAGRAM_MAX],
        })
    }

    /// Where agents send to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// For commands from other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Passes datagrams until it is told to end; the script's times count from here.
    ///
    /// # Errors
    /// [`ProxyError::Io`]: the system's poll failed.
    pub fn run(mut self) -> Result<Ended, ProxyError> {
        let mut events = Events::with_capacity(256);
        self.start = Instant::now();
        while !self.ended {
            match self.poll.poll(&mut events, self.timeout()) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
            let ready: Vec<Token> = events.iter().map(mio::event::Event::token).collect();
            // First what is due, so that a datagram that came after a cut's time meets the cut.
            self.run_script();
            self.take_questions();
            for token in ready {
                match token {
                    FRONT => self.front_ready = true,
                    WAKER => {}
                    token if token.0 < AGENTS => self.serve_control(token),
                    token => self.agents_ready.extend(self.agents.of(token)),
                }
            }
            self.read_sockets();
            self.send_due();
            self.forget();
        }
        let stats = self.stats();
        let finished = self.recorders.iter().flatten().map(|recorder| (recorder.path().to_owned(), recorder.finish()));
        Ok(Ended { stats, captures: finished.collect() })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn timeout(&self) -> Option<Duration> {
        if self.front_ready || !self.agents_ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let held = self.held.peek().map(|Reverse(held)| held.at);
        let event = self.options.script.get(self.next_event).map(|event| event.at);
        let due = [held, event, Some(self.looked + LOOK)].into_iter().flatten().min()?;
        Some(Duration::from_nanos(due.saturating_sub(self.now())))
    }

    fn run_script(&mut self) {
        let now = self.now();
        while let Some(event) = self.options.script.get(self.next_event).filter(|event| event.at <= now).cloned() {
            self.next_event += 1;
            // Counted from the time written, so that it does not matter how late the thread was.
            self.carry_out(event.at, event.until, event.command);
        }
    }

    fn carry_out(&mut self, now: u64, until: Option<u64>, command: Command) {
        match command {
            Command::Set(action, scope) => {
                log::info!("netfault: {action}{scope}");
                if scope.reads() {
                    log::warn!(
                        "netfault: sealed datagrams show no kinds of messages and no labels: to them `{action}{scope}` does nothing"
                    );
                }
                self.network.set(now, until, action, scope);
            }
            Command::Heal(which) => {
                let healed = self.network.heal(&which);
                log::info!("netfault: {healed} rules are over");
            }
            Command::End => self.ended = true,
        }
    }

    fn take_questions(&mut self) {
        while let Ok(Asked { what, answer }) = self.asked.try_recv() {
            if let Question::Command(command) = what {
                self.carry_out(self.now(), None, command);
            }
            // Who does not wait for the answer does not want it.
            let _ = answer.send(Ok(self.stats()));
        }
    }

    fn serve_control(&mut self, token: Token) {
        let Some(mut control) = self.control.take() else { return };
        control.on_ready(token, &mut |_, line: &str| crate::control::answer(self, line));
        self.control = Some(control);
    }

    /// Carries a command of another program out.
    pub(crate) fn obey(&mut self, command: Command) {
        self.carry_out(self.now(), None, command);
    }

    pub(crate) fn stats(&mut self) -> Stats {
        let now = self.now();
        let rules = self.network.rules(now).iter();
        let rules = rules.map(|rule| RuleStats {
            number: rule.number,
            rule: format!("{}{}", rule.action, rule.scope),
            touched: rule.touched,
            untold: rule.untold,
        });
        Stats {
            rules: rules.collect(),
            elapsed_ms: now / 1_000_000,
            seed: self.options.seed,
            held: self.held.len() as u64,
            total: self.agents.total(),
            agents: self.agents.stats(),
        }
    }

    fn read_sockets(&mut self) {
        if self.front_ready {
            self.front_ready = self.read_front();
        }
        for number in std::mem::take(&mut self.agents_ready) {
            if self.read_agent(number) {
                self.agents_ready.insert(number);
            }
        }
    }

    /// Takes what agents have sent; true if there may be more.
    fn read_front(&mut self) -> bool {
        for _ in 0..READ_AT_ONCE {
            match self.front.recv_from(&mut self.buffer) {
                Ok((length, from)) => self.come_up(from, length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // What the network says of something sent before.
                Err(error) => log::debug!("netfault: {}: {error}", self.address),
            }
        }
        true
    }

    /// Takes what the server has sent to an agent; true if there may be more.
    fn read_agent(&mut self, number: u32) -> bool {
        for _ in 0..READ_AT_ONCE {
            let Some(agent) = self.agents.get(number) else { return false };
            match agent.socket.recv(&mut self.buffer) {
                Ok(length) => self.come_down(number, length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => log::debug!("netfault: the server at {}: {error}", self.options.server),
            }
        }
        true
    }

    fn come_up(&mut self, from: SocketAddr, length: usize) {
        let (now, bytes) = (self.now(), Bytes::copy_from_slice(&self.buffer[..length]));
        self.record(true, from, self.address, &bytes);
        let number = match self.agents.at(from, now, self.poll.registry()) {
            Ok(Some(agent)) => {
                agent.learn(&bytes);
                Some(agent.number)
            }
            Ok(None) => None,
            Err(error) => {
                log::warn!("netfault: no socket for agent {from}: {error}");
                None
            }
        };
        let Some(number) = number else {
            let counts = self.agents.gone.of(true);
            counts.received += 1;
            counts.bytes += length as u64;
            *counts.lost.entry(Lost::Agents).or_default() += 1;
            return;
        };
        self.pass(number, true, now, bytes);
    }

    fn come_down(&mut self, number: u32, length: usize) {
        let (now, bytes) = (self.now(), Bytes::copy_from_slice(&self.buffer[..length]));
        self.agents.heard(number, now);
        if let Some(local) = self.agents.get(number).map(|agent| agent.local) {
            self.record(false, self.options.server, local, &bytes);
        }
        self.pass(number, false, now, bytes);
    }

    /// Asks the network what becomes of a datagram, and counts it.
    fn pass(&mut self, number: u32, up: bool, now: u64, bytes: Bytes) {
        let Some(agent) = self.agents.get(number) else { return };
        agent.seen[usize::from(up)] += 1;
        let length = bytes.len();
        let passing = Passing { agent: number, address: agent.address, label: &agent.label, up, number: agent.seen[usize::from(up)] };
        let mut fate = self.network.pass(now, &passing, bytes);
        if let Fate::Passes { again, bytes, .. } = &fate
            && self.held_bytes + bytes.len() * (1 + again.len()) > self.options.held_max
        {
            fate = Fate::Lost(Lost::Room);
        }
        let counts = agent.counts.of(up);
        counts.received += 1;
        counts.bytes += length as u64;
        match fate {
            Fate::Lost(cause) => *counts.lost.entry(cause).or_default() += 1,
            Fate::Passes { at, again, bytes, corrupted } => {
                counts.passed += 1;
                counts.duplicated += again.len() as u64;
                counts.delayed += u64::from(at > now);
                counts.corrupted += u64::from(corrupted);
                agent.held += 1 + again.len() as u64;
                for at in std::iter::once(at).chain(again) {
                    self.order += 1;
                    self.held_bytes += bytes.len();
                    self.held.push(Reverse(Held { at, order: self.order, agent: number, up, bytes: bytes.clone() }));
                }
            }
        }
    }

    fn send_due(&mut self) {
        while self.held.peek().is_some_and(|Reverse(held)| held.at <= self.now()) {
            let Some(Reverse(held)) = self.held.pop() else { return };
            self.held_bytes -= held.bytes.len();
            let Some(agent) = self.agents.get(held.agent) else { continue };
            agent.held = agent.held.saturating_sub(1);
            let (from, to) = if held.up { (agent.local, self.options.server) } else { (self.address, agent.address) };
            let sent = if held.up { agent.socket.send(&held.bytes) } else { self.front.send_to(&held.bytes, to) };
            let counts = agent.counts.of(held.up);
            match sent {
                Ok(_) => {
                    counts.sent += 1;
                    self.record(!held.up, from, to, &held.bytes);
                }
                Err(error) => {
                    counts.unsent += 1;
                    log::debug!("netfault: cannot send to {to}: {error}");
                }
            }
        }
    }

    fn forget(&mut self) {
        let now = self.now();
        if now >= self.looked + LOOK {
            self.looked = now;
            self.agents.forget(now, u64::try_from(self.options.idle.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Writes a datagram to the captures that it belongs to.
    fn record(&self, agents_side: bool, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let [both, agents, server] = &self.recorders;
        let side = if agents_side { agents } else { server };
        let at = stamp();
        for recorder in [both, side].into_iter().flatten() {
            recorder.record(at, from, to, bytes);
        }
    }
}

/// A proxy in a thread of its own, which ends with this value.
#[derive(Debug)]
pub struct Running {
    /// Where agents send to.
    pub address: SocketAddr,
    handle: Handle,
    thread: OnceLock<std::thread::JoinHandle<Result<Ended, ProxyError>>>,
}

impl Running {
    /// Starts one.
    ///
    /// # Errors
    /// Those of [`Proxy::open`].
    pub fn start(options: Options) -> Result<Self, ProxyError> {
        let proxy = Proxy::open(options)?;
        let (address, handle) = (proxy.address(), proxy.handle());
        let thread = std::thread::Builder::new().name("cistern-netfault".to_owned()).spawn(move || proxy.run())?;
        Ok(Self { address, handle, thread: OnceLock::from(thread) })
    }

    /// For commands.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends it; gives how it ended.
    ///
    /// # Errors
    /// Those of [`Proxy::run`].
    pub fn end(mut self) -> Result<Ended, ProxyError> {
        self.handle.end();
        let thread = self.thread.take();
        let joined = thread.map(std::thread::JoinHandle::join);
        match joined {
            Some(Ok(ended)) => ended,
            _ => Err(ProxyError::Io(io::Error::other("its thread panicked"))),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.end();
        if let Some(thread) = self.thread.take() {
            // Its end is nobody's concern any more.
            let _ = thread.join();
        }
    }
}
