//! Many real agents in one thread: each with an address of its own, all with one socket.
//!
//! Decides how they are turned: what has come in and what goes out of that, and of timers those that are due. An agent is told by the address to
//! which a datagram went, so there are as many hosts of loopback as agents, and one socket to look at. Place: below `restart`. Invariant:
//! every wait has a bound. Leaves to others: the server, and when it is killed.

use crate::trouble::Trouble;
use cistern_agent::api::{Command, Event, HolderId, LockEvent, OpError, Output, Ownership, Submitted, Target, Wait};
use cistern_agent::config::Config;
use cistern_agent::{Agent, Identity, Keys};
use cistern_driver::Clock;
use cistern_link::{Machine as _, Path};
use cistern_seal::Cipher;
use cistern_wire::{AgentId, Mode};
use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use std::array;
use std::collections::{BTreeSet, VecDeque};
use std::io::{ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// Agents of one thread that open a session and take their lock at once.
const TOGETHER: usize = 200;
/// How long nothing may happen, in seconds.
const SILENCE_S: u64 = 60;
/// Sleep of a thread that has nothing to do: an agent's share of the host is not spent on looking.
const NAP: Duration = Duration::from_micros(200);

/// How long all are watched after the last is back.
const AFTER: Duration = Duration::from_secs(1);

/// Bytes of datagrams that the kernel gives joined at most.
const JOINED_MAX: usize = 1 << 16;

/// What an agent is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begins,
    Makes,
    Locks,
    /// By this hold.
    Holds(HolderId),
}

/// What an agent has learnt of its session and its lock since the restart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Back {
    pub(super) at: Instant,
    /// Whether its session was taken over by the new one.
    pub(super) has_session: bool,
    /// Whether its lock was, too.
    pub(super) has_lock: bool,
    /// Whether it held its lock when it began to wait.
    pub(super) held: bool,
}

struct Returner {
    agent: Agent,
    address: Ipv4Addr,
    stage: Stage,
    /// When its timers want to be looked at, as it stands in the queue.
    due: Option<Instant>,
    /// What the socket would not take, oldest first.
    unsent: VecDeque<Vec<u8>>,
    /// Since the server is waited for.
    back: Option<Back>,
}

/// The agents of one thread.
pub(super) struct Agents {
    server: SocketAddr,
    socket: UdpSocket,
    state: UdpSocketState,
    clock: Clock,
    /// Number of the first.
    first: usize,
    members: Vec<Returner>,
    /// Whose timers are due when.
    timers: BTreeSet<(Instant, usize)>,
    /// Who has something that the socket would not take.
    blocked: BTreeSet<usize>,
    /// How often the socket would not take something.
    refusals: u64,
    memory: Vec<u8>,
    out: Vec<u8>,
}

impl Agents {
    /// Those of these numbers, of the server at this address; `keys`: what each seals with, if it does.
    pub(super) fn new(server: SocketAddr, numbers: std::ops::Range<usize>, keys: impl Fn(usize) -> Option<Keys>) -> Result<Self, Trouble> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(Trouble::at("opening the socket of agents"))?;
        // As much as the system lets a program have.
        let _less = setsockopt(&socket, sockopt::RcvBuf, &(4 << 20));
        let state = UdpSocketState::new((&socket).into()).map_err(Trouble::at("preparing the socket of agents"))?;
        let clock = Clock::new().map_err(Trouble::starting("reading the clocks"))?;
        let first = numbers.start;
        let member = |number: usize| -> Result<Returner, Trouble> {
            let mut id = [0xC8; 16];
            id[..8].copy_from_slice(&(number as u64 + 1).to_be_bytes());
            let identity = Identity { agent: AgentId(id), incarnation: 1, boot: [0; 16], label: b"bench".to_vec() };
            let seed = cistern_driver::seed().map_err(Trouble::starting("drawing a seed"))?;
            let agent = Agent::new(Config::default(), identity, *seed, vec![server]).map_err(Trouble::starting("making an agent"))?;
            let agent = match keys(number) {
                Some(keys) => agent.sealed(keys, Cipher::default()),
                None => agent,
            };
            let [.., high, low] = (number as u64).to_be_bytes();
            Ok(Returner {
                agent,
                address: Ipv4Addr::new(127, 1, high, low),
                stage: Stage::Begins,
                due: None,
                unsent: VecDeque::new(),
                back: None,
            })
        };
        let members = numbers.map(member).collect::<Result<_, _>>()?;
        let (timers, blocked, memory) = (BTreeSet::new(), BTreeSet::new(), vec![0; BATCH_SIZE * JOINED_MAX]);
        Ok(Self { server, socket, state, clock, first, members, timers, blocked, refusals: 0, memory, out: Vec::new() })
    }

    /// Has each that holds no lock open a session and lock a file of its own.
    pub(super) fn open(&mut self) -> Result<(), Trouble> {
        let mut waiting: Vec<usize> = (0..self.members.len()).filter(|at| !matches!(self.members[*at].stage, Stage::Holds(_))).collect();
        let (mut under_way, mut last) = (0, Instant::now());
        while under_way > 0 || !waiting.is_empty() {
            for at in waiting.drain(waiting.len().saturating_sub(TOGETHER.saturating_sub(under_way))..) {
                self.go_on(at, Stage::Makes)?;
            }
            self.turn()?;
            let still = self.members.iter().filter(|member| matches!(member.stage, Stage::Makes | Stage::Locks)).count();
            if still != under_way {
                (under_way, last) = (still, Instant::now());
            }
            silent_since(last, "opening sessions and locking")?;
        }
        Ok(())
    }

    /// Turns them for so long.
    pub(super) fn pass(&mut self, span: Duration) -> Result<(), Trouble> {
        let begin = Instant::now();
        while begin.elapsed() < span {
            self.turn()?;
        }
        Ok(())
    }

    /// Turns them until each that holds its lock has learnt what became of it; gives what each has.
    pub(super) fn come_back(&mut self) -> Result<Vec<Back>, Trouble> {
        // Who lost its lock before has nothing to come back to: it is lost from the beginning.
        let nothing = Back { at: Instant::now(), has_session: false, has_lock: false, held: false };
        self.members.iter_mut().for_each(|member| member.back = (!matches!(member.stage, Stage::Holds(_))).then_some(nothing));
        let begin = Instant::now();
        loop {
            self.turn()?;
            if self.members.iter().all(|member| member.back.is_some()) {
                // Who is told only now that its lock is gone has lost it as well.
                self.pass(AFTER)?;
                return Ok(self.members.iter().filter_map(|member| member.back).collect());
            }
            silent_since(begin, "waiting for agents to come back")?;
        }
    }

    /// How often the socket would not take a datagram, which was sent later.
    pub(super) const fn refusals(&self) -> u64 {
        self.refusals
    }

    /// An agent is asked for what comes next.
    fn go_on(&mut self, at: usize, stage: Stage) -> Result<(), Trouble> {
        let path = || format!("/lock-{}", self.first + at).into_bytes().into();
        let owner = Ownership { mode: 0o600, uid: 0, gid: 0 };
        let command = match stage {
            Stage::Makes => Command::Create { path: path(), exclusive: false, ephemeral: false, owner },
            Stage::Locks => Command::Lock { target: Target::Path(path()), mode: Mode::Exclusive, wait: Wait::Forever },
            Stage::Begins | Stage::Holds(_) => return Ok(()),
        };
        let now = self.clock.now();
        let member = &mut self.members[at];
        member.stage = stage;
        let submitted = member.agent.submit(now, command);
        self.flush(at)?;
        if let Submitted::Now(result) = submitted { self.ended(at, &result) } else { Ok(()) }
    }

    fn ended(&mut self, at: usize, result: &Result<Output, OpError>) -> Result<(), Trouble> {
        let next = match (self.members[at].stage, result) {
            (Stage::Makes, Ok(_)) => Stage::Locks,
            (Stage::Locks, Ok(Output::Locked(locked))) => {
                self.members[at].stage = Stage::Holds(locked.holder);
                return Ok(());
            }
            (_, other) => {
                let got = format!("{other:?}");
                return Err(Trouble::Answer { while_doing: "locking a file for each agent", expected: "success", got });
            }
        };
        self.go_on(at, next)
    }

    /// One turn of all.
    fn turn(&mut self) -> Result<(), Trouble> {
        let (mut touched, now) = (self.receive()?, Instant::now());
        let came = !touched.is_empty();
        touched.append(&mut self.blocked);
        while let Some((_, at)) = self.timers.first().copied().filter(|(due, _)| *due <= now) {
            self.timers.pop_first();
            self.members[at].due = None;
            touched.insert(at);
        }
        for at in touched {
            self.members[at].agent.handle_drained(self.clock.now());
            self.flush(at)?;
        }
        if !came {
            thread::sleep(NAP);
        }
        Ok(())
    }

    /// Takes what has come; gives for whom something came.
    fn receive(&mut self) -> Result<BTreeSet<usize>, Trouble> {
        let (mut touched, mut meta) = (BTreeSet::new(), [RecvMeta::default(); BATCH_SIZE]);
        let Self { socket, state, memory, members, clock, server, first, .. } = self;
        let filled = {
            let mut buffers = memory.chunks_mut(JOINED_MAX);
            let mut slices: [IoSliceMut<'_>; BATCH_SIZE] = array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or(&mut [])));
            match state.recv((&*socket).into(), &mut slices, &mut meta) {
                Ok(filled) => filled,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionRefused) => 0,
                Err(error) => return Err(Trouble::at("receiving for agents")(error)),
            }
        };
        for (meta, buffer) in meta[..filled].iter().zip(memory.chunks(JOINED_MAX)) {
            let Some(IpAddr::V4(to)) = meta.dst_ip else { continue };
            let [_, _, high, low] = to.octets();
            let at = usize::from(u16::from_be_bytes([high, low])).checked_sub(*first);
            let Some((at, member)) = at.and_then(|at| Some((at, members.get_mut(at)?))) else { continue };
            for datagram in buffer[..meta.len].chunks(meta.stride.max(1)) {
                member.agent.handle_datagram(clock.now(), Path::to(*server), datagram);
            }
            touched.insert(at);
        }
        Ok(touched)
    }

    /// What an agent has to send and to tell.
    fn flush(&mut self, at: usize) -> Result<(), Trouble> {
        let Self { socket, state, members, clock, server, out, timers, blocked, refusals, .. } = self;
        let member = &mut members[at];
        while member.agent.poll_transmit(clock.now(), out).is_some() {
            member.unsent.push_back(out.clone());
        }
        while let Some(contents) = member.unsent.front() {
            let transmit = Transmit { destination: *server, ecn: None, contents, segment_size: None, src_ip: Some(member.address.into()) };
            match state.try_send((&*socket).into(), &transmit) {
                Ok(()) => {}
                // Nobody listens while the server is down: it is lost, as on a network.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    *refusals += 1;
                    blocked.insert(at);
                    break;
                }
                Err(error) => return Err(Trouble::at("sending for agents")(error)),
            }
            member.unsent.pop_front();
        }
        let mut done = None;
        while let Some(event) = member.agent.poll_event() {
            match event {
                Event::SessionReclaimed { kept, .. } => {
                    let held = matches!(member.stage, Stage::Holds(_));
                    member.back.get_or_insert(Back { at: Instant::now(), has_session: true, has_lock: held && kept > 0, held });
                }
                Event::Lock { holder, what: LockEvent::Lost, .. } if member.stage == Stage::Holds(holder) => {
                    member.stage = Stage::Begins;
                    let has_session = member.back.is_some_and(|back| back.has_session);
                    member.back = Some(Back { at: Instant::now(), has_session, has_lock: false, held: true });
                }
                Event::Done { result, .. } => done = Some(result),
                _ => {}
            }
        }
        let due = member.agent.wake_after(clock.now()).map(|span| Instant::now() + span);
        if let Some(former) = std::mem::replace(&mut member.due, due) {
            timers.remove(&(former, at));
        }
        timers.extend(due.map(|due| (due, at)));
        done.map_or(Ok(()), |result| self.ended(at, &result))
    }
}

fn silent_since(since: Instant, while_doing: &'static str) -> Result<(), Trouble> {
    let is_silent = since.elapsed() > Duration::from_secs(SILENCE_S);
    if is_silent { Err(Trouble::Silence { while_doing, seconds: SILENCE_S }) } else { Ok(()) }
}
