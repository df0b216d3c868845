//! One agent's part of a burst: its requests, made before the clock starts, sent many datagrams at a time and heard many at a time.
//!
//! Decides that the generator does as little as it can while the time runs: each LOCK is encoded beforehand, with the floor that is true
//! when its turn comes at the latest; datagrams of one size leave by one call (GSO), answers come joined (GRO). So the time is the server's.
//! Place: below `burst`. Invariants: no more is outstanding than the window lets; each lock is granted once; what is lost is sent again,
//! under a new packet number. Leaves to others: when the clock starts and ends (`burst`).

use crate::agent::Agent;
use crate::trouble::Trouble;
use cistern_wire::{
    Ask, Datagram, Generation, Keep, List, Lock, LockClass, LockId, LockWait, Message, Mode, ObjectId, Release, ReleaseItem, Reply,
};
use nix::time::{ClockId, clock_gettime};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// After how long what is not answered is sent again.
const RESEND: Duration = Duration::from_millis(50);
/// How long giving back may take, in seconds.
const SILENCE_S: u64 = 10;
/// Locks given back in one message.
const RELEASED_TOGETHER: usize = 32;
/// Most bytes in one call: below the largest UDP payload.
const TOGETHER_BYTES: usize = 65_000;
/// Largest run of datagrams that the kernel joins for one receive.
const JOINED_BYTES: usize = 65_536;

/// Where answers arrive, for all agents of a burst.
pub(super) struct Inbox {
    memory: Vec<u8>,
    meta: [RecvMeta; BATCH_SIZE],
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { memory: vec![0; JOINED_BYTES * BATCH_SIZE], meta: [RecvMeta::default(); BATCH_SIZE] }
    }

    /// Receives a batch; gives how many buffers were filled, none if nothing has come.
    fn fill(&mut self, socket: &UdpSocket, state: &UdpSocketState) -> Result<usize, Trouble> {
        let mut rest = self.memory.as_mut_slice();
        let mut buffers: [IoSliceMut<'_>; BATCH_SIZE] = std::array::from_fn(|_| {
            let (buffer, after) = std::mem::take(&mut rest).split_at_mut(JOINED_BYTES);
            rest = after;
            IoSliceMut::new(buffer)
        });
        match state.recv(socket.into(), &mut buffers, &mut self.meta) {
            Ok(filled) => Ok(filled),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(Trouble::at("receiving an answer")(error)),
        }
    }

    fn datagrams(&self, filled: usize) -> impl Iterator<Item = &[u8]> {
        let joined = self.meta[..filled].iter().zip(self.memory.chunks(JOINED_BYTES));
        joined.flat_map(|(meta, buffer)| buffer[..meta.len].chunks(meta.stride.max(1)))
    }
}

/// What was sent and heard in one burst.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Datagrams, both ways.
    pub(super) datagrams: u64,
    /// Requests sent again.
    pub(super) resent: u64,
    /// CPU time of this thread in sending, and in receiving what had come.
    pub(super) cpu: Duration,
}

/// One agent, its files, and its requests.
pub(super) struct Volley {
    socket: UdpSocket,
    state: UdpSocketState,
    server: SocketAddr,
    agent: Agent,
    window: usize,
    objects: Vec<ObjectId>,
    /// The requests, all of one length, and how many a datagram takes.
    requests: Vec<Vec<u8>>,
    each: usize,
    /// The nonce of the first.
    first: u64,
    /// The datagrams, all as long as the first but the last, and how many were sent.
    datagrams: Vec<u8>,
    segment: usize,
    sent: usize,
    /// The generation of each lock; 0 until it is granted. All below `floor` are.
    granted: Vec<u64>,
    floor: usize,
    left: usize,
    heard: Instant,
    buf: Vec<u8>,
    pub(super) tally: Tally,
}

impl Volley {
    /// The part of an agent whose session is open by `socket`, connected to `server`.
    pub(super) fn new(socket: UdpSocket, server: SocketAddr, agent: Agent, window: u16, objects: Vec<ObjectId>) -> Result<Self, Trouble> {
        socket.set_nonblocking(true).map_err(Trouble::at("making a socket non-blocking"))?;
        let state = UdpSocketState::new((&socket).into()).map_err(Trouble::at("setting UDP options"))?;
        let (requests, datagrams, granted, buf) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (window, heard, tally) = (usize::from(window), Instant::now(), Tally::default());
        let (each, first, segment, sent, floor, left) = (1, 0, 1, 0, 0, 0);
        Ok(Self {
            socket,
            state,
            server,
            agent,
            window,
            objects,
            requests,
            each,
            first,
            datagrams,
            segment,
            sent,
            granted,
            floor,
            left,
            heard,
            buf,
            tally,
        })
    }

    /// Makes all requests and their datagrams.
    pub(super) fn prepare(&mut self) {
        let count = self.objects.len();
        self.first = self.agent.reserve(count as u64);
        let window = self.window;
        let request = |(at, object): (usize, &ObjectId)| {
            // The floor that the window asks for when this one is sent; it may be higher by then, which costs nothing.
            let back = u16::try_from(at.min(window - 1)).unwrap_or(u16::MAX);
            let ask = Ask { nonce: self.first + at as u64, back, limit: crate::agent::LIMIT };
            Message::from(Lock { ask, object: *object, mode: Mode::Exclusive, wait: LockWait::Try }).to_bytes()
        };
        self.requests = self.objects.iter().enumerate().map(request).collect();
        self.datagrams.clear();
        (self.each, self.segment) = (0, 0);
        // At least two datagrams under way, so that the server has one while the answers to the other are heard.
        let most = (window / 2).max(1);
        let mut rest = &self.requests[..];
        while !rest.is_empty() {
            let (_, packed) = self.agent.pack_first(rest.iter().take(most).map(Vec::as_slice), &mut self.buf);
            (self.each, self.segment) = (self.each.max(packed), self.segment.max(self.buf.len()));
            self.datagrams.extend_from_slice(&self.buf);
            rest = &rest[packed..];
        }
        self.granted.clear();
        self.granted.resize(count, 0);
        (self.sent, self.floor, self.left, self.heard, self.tally) = (0, 0, count, Instant::now(), Tally::default());
    }

    /// How many locks are not granted yet.
    pub(super) const fn left(&self) -> usize {
        self.left
    }

    /// Sends what the window lets.
    pub(super) fn ask(&mut self) -> Result<(), Trouble> {
        let count = self.requests.len();
        let all = count.div_ceil(self.each);
        // The last request of the datagram after these must be less than a window above the floor.
        let open = if self.floor + self.window >= count { all } else { (self.floor + self.window) / self.each };
        let together = (TOGETHER_BYTES / self.segment).min(self.state.max_gso_segments()).max(1);
        while self.sent < open {
            let begun = cpu();
            let end = open.min(self.sent + together);
            let contents = &self.datagrams[self.sent * self.segment..self.datagrams.len().min(end * self.segment)];
            if !transmit(&self.state, &self.socket, self.server, contents, Some(self.segment))? {
                return Ok(());
            }
            self.tally.datagrams += (end - self.sent) as u64;
            self.sent = end;
            self.tally.cpu += cpu().saturating_sub(begun);
        }
        Ok(())
    }

    /// Takes what has come.
    pub(super) fn hear(&mut self, inbox: &mut Inbox) -> Result<(), Trouble> {
        loop {
            let begun = cpu();
            let filled = inbox.fill(&self.socket, &self.state)?;
            if filled == 0 {
                return Ok(());
            }
            self.heard = Instant::now();
            for bytes in inbox.datagrams(filled) {
                self.tally.datagrams += 1;
                let datagram = Datagram::at_agent(bytes).map_err(|reason| wrong(&reason))?;
                datagram.messages().try_for_each(|message| self.take(&message))?;
            }
            self.tally.cpu += cpu().saturating_sub(begun);
        }
    }

    fn take(&mut self, message: &Message<'_>) -> Result<(), Trouble> {
        let Message::Ack(ack) = message else { return Ok(()) };
        let at = ack.nonce.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        // The second answer to a request that was sent twice, or one of an earlier burst.
        let Some(at) = at.filter(|at| self.granted.get(*at) == Some(&0)) else { return Ok(()) };
        match ack.reply {
            Reply::Granted(granted) if granted.lock.object == self.objects[at] => self.granted[at] = granted.generation.0,
            ref other => return Err(wrong(other)),
        }
        self.left -= 1;
        while self.granted.get(self.floor).is_some_and(|generation| *generation != 0) {
            self.floor += 1;
        }
        Ok(())
    }

    /// Sends again what was sent and is not answered, if nothing was heard for long.
    pub(super) fn ask_again(&mut self) -> Result<(), Trouble> {
        if self.left == 0 || self.heard.elapsed() < RESEND {
            return Ok(());
        }
        self.heard = Instant::now();
        let asked = self.requests.len().min(self.sent * self.each);
        let lost: Vec<usize> = (self.floor..asked).filter(|at| self.granted[*at] == 0).collect();
        let mut rest = &lost[..];
        while !rest.is_empty() {
            let (_, packed) = self.agent.pack_first(rest.iter().map(|at| self.requests[*at].as_slice()), &mut self.buf);
            rest = &rest[packed..];
            self.tally.datagrams += 1;
            self.tally.resent += packed as u64;
            transmit(&self.state, &self.socket, self.server, &self.buf, None)?;
        }
        Ok(())
    }

    /// Gives all locks back, some in a datagram, each datagram until it is answered.
    pub(super) fn give_back(&mut self, inbox: &mut Inbox) -> Result<(), Trouble> {
        let class = LockClass::Advisory;
        let item = |(object, generation): (&ObjectId, &u64)| ReleaseItem {
            lock: LockId { object: *object, class },
            generation: Generation(*generation),
            keep: Keep::Nothing,
        };
        let items: Vec<_> = self.objects.iter().zip(&self.granted).map(item).collect();
        for items in items.chunks(RELEASED_TOGETHER) {
            let serial = self.agent.next_serial();
            let release = Message::from(Release { serial, items: List::of(items) }).to_bytes();
            let begin = Instant::now();
            let (mut released, mut sent) = (false, None::<Instant>);
            while !released {
                if sent.is_none_or(|at| at.elapsed() >= RESEND) {
                    self.agent.pack(&release, &mut self.buf);
                    transmit(&self.state, &self.socket, self.server, &self.buf, None)?;
                    sent = Some(Instant::now());
                }
                let filled = inbox.fill(&self.socket, &self.state)?;
                for bytes in inbox.datagrams(filled) {
                    let answer = Datagram::at_agent(bytes).map_err(|reason| wrong(&reason))?;
                    released |= answer.messages().any(|message| matches!(message, Message::Released(done) if done.serial == serial));
                }
                if begin.elapsed() >= Duration::from_secs(SILENCE_S) {
                    return Err(Trouble::Silence { while_doing: "giving locks back", seconds: SILENCE_S });
                }
            }
        }
        Ok(())
    }
}

/// Sends datagrams by one call, or one by one where the system refuses that; false while there is no room for them.
fn transmit(
    state: &UdpSocketState,
    socket: &UdpSocket,
    server: SocketAddr,
    contents: &[u8],
    segment: Option<usize>,
) -> Result<bool, Trouble> {
    let transmit = Transmit { destination: server, ecn: None, contents, segment_size: segment, src_ip: None };
    match (state.try_send(socket.into(), &transmit), segment) {
        (Ok(()), _) => Ok(true),
        (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        (Err(_), Some(segment)) if contents.len() > segment => {
            contents.chunks(segment).try_for_each(|one| transmit_one(state, socket, server, one)).map(|()| true)
        }
        (Err(error), _) => Err(Trouble::at("sending a request")(error)),
    }
}

fn transmit_one(state: &UdpSocketState, socket: &UdpSocket, server: SocketAddr, one: &[u8]) -> Result<(), Trouble> {
    // One for which there is no room is as good as lost, and sent again.
    transmit(state, socket, server, one, None).map(drop)
}

/// CPU time of this thread.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn wrong(got: &dyn std::fmt::Debug) -> Trouble {
    Trouble::Answer { while_doing: "taking many locks at once", expected: "GRANTED, once for each", got: format!("{got:?}") }
}
