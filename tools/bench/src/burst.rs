//! Ten thousand locks at once: from the first request to the last grant.
//!
//! Decides the load: files that exist, sessions that are open, then a LOCK for each file, as many in a datagram as it takes and as many
//! in flight as the window lets. Place: a workload, over `agent`. Invariant: a burst has ended when every lock was granted, each once; a
//! request whose datagram was lost is sent again.
//! Leaves to others: locks one after the other (`beside_echo`).

use crate::agent::Agent;
use crate::cases::{Plan, connected};
use crate::figures::{Spread, count, per};
use crate::host::{Host, Role, Setup};
use crate::opening;
use crate::progress::Progress;
use crate::section::{Row, Section, digits};
use crate::trouble::Trouble;
use cistern_wire::limits::DATAGRAM_MAX;
use cistern_wire::{
    Datagram, Generation, Keep, List, Lock, LockClass, LockId, LockWait, Message, Mode, ObjectId, Release, ReleaseItem, Reply,
};
use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// After how long what is not answered is sent again.
const RESEND: Duration = Duration::from_millis(50);
/// How long a burst may take, in seconds.
const SILENCE_S: u64 = 10;
/// Locks given back in one message.
const RELEASED_TOGETHER: usize = 32;
/// Agents and their windows: the window of the defaults, and one as large as the protocol allows.
const SHAPES: [(usize, u16); 3] = [(1, 4_096), (1, 64), (16, 64)];

/// Takes `locks` locks at once, again and again.
pub(crate) fn run(locks: usize, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let mut section = Section::new("burst", "locks on files that nobody has locked, all at once: from the first request to the last grant");
    for (agents, window) in SHAPES {
        let name = format!("{} locks, {agents} agents, window {window}", digits(count(locks as u64)));
        progress.say(&name);
        let mut burst = Burst::new(locks, agents, window, plan)?;
        section.rows.push(burst.measure(name, plan)?);
    }
    Ok(section)
}

/// One agent's part.
struct Part {
    socket: UdpSocket,
    agent: Agent,
    objects: Vec<ObjectId>,
    /// How many were asked for.
    asked: usize,
    /// Requests without an answer, by nonce, encoded.
    open: BTreeMap<u64, Vec<u8>>,
    granted: BTreeMap<ObjectId, Generation>,
    heard: Instant,
}

struct Burst {
    host: Host,
    parts: Vec<Part>,
    datagrams: u64,
    resent: u64,
    datagram: Vec<u8>,
    buf: Vec<u8>,
}

impl Burst {
    fn new(locks: usize, agents: usize, window: u16, plan: &Plan) -> Result<Self, Trouble> {
        let host = Host::start_with(Role::Server, plan.cores, &Setup { window: Some(window), ..Setup::default() })?;
        let mut parts = Vec::with_capacity(agents);
        for number in 0..agents {
            let socket = connected(&host)?;
            let mut agent = opening::open_with_window(&socket, number, window)?;
            let of_this = (number..locks).step_by(agents);
            let objects = of_this.map(|lock| opening::create(&socket, &mut agent, &format!("burst-{lock}"))).collect::<Result<_, _>>()?;
            socket.set_nonblocking(true).map_err(Trouble::at("making a socket non-blocking"))?;
            let (open, granted) = (BTreeMap::new(), BTreeMap::new());
            parts.push(Part { socket, agent, objects, asked: 0, open, granted, heard: Instant::now() });
        }
        Ok(Self { host, parts, datagrams: 0, resent: 0, datagram: Vec::new(), buf: vec![0; DATAGRAM_MAX] })
    }

    fn measure(&mut self, name: String, plan: &Plan) -> Result<Row, Trouble> {
        let (mut ms, mut cpu_us, mut datagrams, mut granted) = (Vec::new(), Vec::new(), 0, 0);
        for round in 0..=plan.rounds {
            let (used, sent, begin) = (self.host.usage()?, self.datagrams, Instant::now());
            self.take_all()?;
            let elapsed = begin.elapsed();
            let locks = self.parts.iter().map(|part| part.granted.len() as u64).sum::<u64>();
            // The first does not count.
            if round > 0 {
                ms.push(elapsed.as_secs_f64() * 1e3);
                cpu_us.push(per(self.host.usage()?.since(used).cpu_ns, locks) / 1e3);
                datagrams += self.datagrams - sent;
                granted += locks;
            }
            self.give_all_back()?;
        }
        let spread = |values: Vec<f64>| Spread::of(values).expect("the command line lets no plan without rounds through");
        Ok(Row::new(name)
            .with("ms", "ms", spread(ms))
            .with("cpu_us", "server µs/lock", spread(cpu_us))
            .with("datagrams", "datagrams/lock", per(datagrams, granted))
            .with("granted", "granted", granted)
            .with("resent", "resent", self.resent))
    }

    fn take_all(&mut self) -> Result<(), Trouble> {
        let begin = Instant::now();
        let Self { parts, datagrams, resent, datagram, buf, .. } = self;
        loop {
            let mut left = 0;
            for part in parts.iter_mut() {
                *datagrams += part.ask(datagram)?;
                *datagrams += part.hear(buf)?;
                let again = part.ask_again(datagram)?;
                *resent += again;
                *datagrams += again;
                left += part.objects.len() - part.granted.len();
            }
            if left == 0 {
                return Ok(());
            }
            if begin.elapsed() >= Duration::from_secs(SILENCE_S) {
                return Err(Trouble::Silence { while_doing: "taking many locks at once", seconds: SILENCE_S });
            }
        }
    }

    fn give_all_back(&mut self) -> Result<(), Trouble> {
        for part in &mut self.parts {
            part.give_back(&mut self.datagram, &mut self.buf)?;
        }
        Ok(())
    }
}

impl Part {
    /// Asks for as many of the locks as the window lets; gives how many datagrams that took.
    fn ask(&mut self, datagram: &mut Vec<u8>) -> Result<u64, Trouble> {
        let mut fresh: Vec<u64> = Vec::new();
        while let Some(object) = self.objects.get(self.asked) {
            let Some(ask) = self.agent.ask() else { break };
            let lock = Lock { ask, object: *object, mode: Mode::Exclusive, wait: LockWait::Try };
            self.open.insert(ask.nonce, Message::from(lock).to_bytes());
            fresh.push(ask.nonce);
            self.asked += 1;
        }
        self.send(&fresh, datagram)
    }

    /// Sends everything again of which nothing was heard for long.
    fn ask_again(&mut self, datagram: &mut Vec<u8>) -> Result<u64, Trouble> {
        if self.open.is_empty() || self.heard.elapsed() < RESEND {
            return Ok(0);
        }
        self.heard = Instant::now();
        let open: Vec<u64> = self.open.keys().copied().collect();
        self.send(&open, datagram)
    }

    fn send(&mut self, nonces: &[u64], datagram: &mut Vec<u8>) -> Result<u64, Trouble> {
        let (mut rest, mut datagrams) = (nonces, 0);
        while !rest.is_empty() {
            let messages = rest.iter().map(|nonce| self.open[nonce].as_slice());
            let (_, packed) = self.agent.pack_first(messages, datagram);
            rest = &rest[packed..];
            datagrams += 1;
            match self.socket.send(datagram) {
                Ok(_) => {}
                // As good as lost.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Trouble::at("sending a request")(error)),
            }
        }
        Ok(datagrams)
    }

    /// Takes what has come; gives how many datagrams.
    fn hear(&mut self, buf: &mut [u8]) -> Result<u64, Trouble> {
        let mut datagrams = 0;
        while let Some(len) = receive(&self.socket, buf)? {
            datagrams += 1;
            self.heard = Instant::now();
            let datagram = Datagram::at_agent(&buf[..len]).map_err(|reason| wrong(&reason))?;
            for message in datagram.messages() {
                let Message::Ack(ack) = message else { continue };
                if self.open.remove(&ack.nonce).is_none() {
                    continue;
                }
                self.agent.answered(ack.nonce);
                match ack.reply {
                    Reply::Granted(granted) if self.granted.insert(granted.lock.object, granted.generation).is_none() => {}
                    other => return Err(wrong(&other)),
                }
            }
        }
        Ok(datagrams)
    }

    /// Gives all locks back, some in a datagram, each datagram until it is answered.
    fn give_back(&mut self, datagram: &mut Vec<u8>, buf: &mut [u8]) -> Result<(), Trouble> {
        let class = LockClass::Advisory;
        let item = |(object, generation)| ReleaseItem { lock: LockId { object, class }, generation, keep: Keep::Nothing };
        let items: Vec<_> = std::mem::take(&mut self.granted).into_iter().map(item).collect();
        for items in items.chunks(RELEASED_TOGETHER) {
            let serial = self.agent.next_serial();
            let release = Message::from(Release { serial, items: List::of(items) }).to_bytes();
            let begin = Instant::now();
            let (mut released, mut sent) = (false, None::<Instant>);
            while !released {
                if sent.is_none_or(|at| at.elapsed() >= RESEND) {
                    self.agent.pack(&release, datagram);
                    self.socket.send(datagram).map_err(Trouble::at("giving locks back"))?;
                    sent = Some(Instant::now());
                }
                if let Some(len) = receive(&self.socket, buf)? {
                    let answer = Datagram::at_agent(&buf[..len]).map_err(|reason| wrong(&reason))?;
                    released = answer.messages().any(|message| matches!(message, Message::Released(done) if done.serial == serial));
                }
                if begin.elapsed() >= Duration::from_secs(SILENCE_S) {
                    return Err(Trouble::Silence { while_doing: "giving locks back", seconds: SILENCE_S });
                }
            }
        }
        self.asked = 0;
        Ok(())
    }
}

fn receive(socket: &UdpSocket, buf: &mut [u8]) -> Result<Option<usize>, Trouble> {
    match socket.recv(buf) {
        Ok(len) => Ok(Some(len)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(Trouble::at("receiving an answer")(error)),
    }
}

fn wrong(got: &dyn std::fmt::Debug) -> Trouble {
    Trouble::Answer { while_doing: "taking many locks at once", expected: "GRANTED, once for each", got: format!("{got:?}") }
}
