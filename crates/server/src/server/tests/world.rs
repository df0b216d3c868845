//! What the packet scripts stand on: a server with a store and virtual clocks ([`World`]), and peers that say what a script tells
//! them to ([`Peer`]).
//!
//! Every datagram that the server sends is decoded as an agent would, checked for size and packet number, and kept until the script
//! has looked at its messages; a script that ends with messages nobody looked at has failed.

use crate::store::Counter;
use crate::store::StoreEvent;
use crate::store::StoreWork;
use crate::store::tests::disk::Disk;
use crate::{Config, Server};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use cistern_link::{Instant, Machine, Path};
use cistern_wire::limits::{CALL, DATAGRAM_MIN};
use cistern_wire::{
    AgentId, Ask, Attr, Bytes8, CacheGrant, Claim, Confirm, Create, Datagram, FormerClaim, FormerFate, Generation, Handle, Header, Hello,
    List, Lock, LockClass, LockId, LockWait, Message, Mode, ObjectId, Opened, Packer, Receipt, ReceiptAnswer, Reply, SessionId, StoreId,
    Terms, Want, Welcome,
};
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::println;

pub(super) const STORE: StoreId = StoreId([0xC1; 16]);
pub(super) const ROOT: ObjectId = ObjectId(1);
/// Packet number 0, which no datagram has: in an expected message it stands for "whatever".
pub(super) const LIMIT: u16 = 1_232;

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One message that the server sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) session: SessionId,
    pub(super) packet: u64,
    /// When it left.
    pub(super) at: Instant,
    /// Length of the datagram in which it came.
    pub(super) datagram: usize,
    /// The server's address from which that left.
    pub(super) from: Option<IpAddr>,
    /// The message with its header.
    pub(super) bytes: Vec<u8>,
}

impl Got {
    pub(super) fn message(&self) -> Message<'_> {
        let kind = cistern_wire::Kind::of(self.bytes[0]).unwrap();
        Message::decode(kind, &self.bytes[4..]).unwrap()
    }

    /// The ACK's reply.
    pub(super) fn reply(&self) -> Reply<'_> {
        match self.message() {
            Message::Ack(ack) => ack.reply,
            other => panic!("not an ACK: {other:?}"),
        }
    }
}

/// A scripted agent.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) path: Path,
    pub(super) agent: AgentId,
    pub(super) incarnation: u64,
    pub(super) handshake: u64,
    pub(super) session: SessionId,
    /// That session's handle, by which others are told of it.
    pub(super) handle: Handle,
    /// Last packet number used.
    pub(super) packet: u64,
    pub(super) nonce: u64,
    pub(super) serial: u64,
    /// The lease period that it asks for, in microseconds.
    pub(super) lease_us: u64,
    /// Number of its first datagram in a session.
    pub(super) first_packet: u64,
}

impl Peer {
    pub(super) fn new(n: u8) -> Self {
        Self {
            path: Path::to(SocketAddr::from(([192, 0, 2, n], 4_000))),
            agent: AgentId([n; 16]),
            incarnation: 1,
            handshake: 1_000 * u64::from(n),
            session: SessionId(0),
            handle: Handle(0),
            packet: 0,
            nonce: 0,
            serial: 0,
            lease_us: 0,
            first_packet: 1,
        }
    }

    /// What the next request begins with; every former one is still awaited.
    pub(super) fn ask(&mut self) -> Ask {
        self.nonce += 1;
        Ask { nonce: self.nonce, back: u16::try_from(self.nonce - 1).unwrap(), limit: LIMIT }
    }

    /// As `ask`; no former request is awaited any more.
    pub(super) fn ask_only(&mut self) -> Ask {
        Ask { back: 0, ..self.ask() }
    }

    pub(super) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(super) fn hello<'a>(&self, cookie: &'a [u8]) -> Hello<'a> {
        Hello {
            incarnation: self.incarnation,
            lease_us: self.lease_us,
            first_packet: self.first_packet,
            label: Bytes8(LABELS[usize::from(self.agent.0[0]) % LABELS.len()]),
            cookie: Bytes8(cookie),
            ..Hello::new(self.agent, self.handshake)
        }
    }
}

const LABELS: [&[u8]; 4] = [b"zero", b"alpha", b"beta", b"alphabet"];

/// A server, its store, and virtual clocks.
pub(super) struct World {
    pub(super) server: Server,
    pub(super) disk: Disk,
    /// The disk answers nothing and makes nothing durable.
    pub(super) stalled: bool,
    pub(super) now: Instant,
    /// How much slower the boot clock runs than the raw one, as a fraction of 1,024.
    pub(super) boot_lag: u64,
    /// Sessions whose agents receipt each PROBE at once, and the packet numbers last used for that.
    attending: BTreeMap<SessionId, (Path, u64)>,
    sent: BTreeMap<SocketAddr, VecDeque<Got>>,
    /// Highest packet number of each session.
    pub(super) packets: BTreeMap<SessionId, u64>,
    transmitted: u64,
    /// Seed of the server that was started last.
    pub(super) seed: u8,
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.quiet();
        }
    }
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(Config { volatile: true, ..Config::default() })
    }

    pub(super) fn with(config: Config) -> Self {
        Self::seeded(config, 7)
    }

    pub(super) fn seeded(config: Config, seed: u8) -> Self {
        let mut disk = Disk::default();
        disk.set_counter(Counter::Incarnation, 6);
        Self::on(disk, config, seed)
    }

    /// A server on what an earlier one left on its disk.
    pub(super) fn on(disk: Disk, config: Config, seed: u8) -> Self {
        let mut world = Self::starting(disk, config, seed);
        world.turn();
        assert!(world.server.status(world.now).serving);
        world
    }

    /// As `on`; the server has not had a turn.
    pub(super) fn starting(disk: Disk, config: Config, seed: u8) -> Self {
        Self::starting_at(disk, config, seed, Instant::new(1_000_000_000, 5_000_000_000))
    }

    /// As `starting`, at this instant.
    pub(super) fn starting_at(disk: Disk, config: Config, seed: u8, now: Instant) -> Self {
        let server = Server::new(now, 1_700_000_000_000_000_000, STORE, config, [seed; 32]).unwrap();
        Self {
            server,
            disk,
            stalled: false,
            now,
            boot_lag: 0,
            attending: BTreeMap::new(),
            sent: BTreeMap::new(),
            packets: BTreeMap::new(),
            transmitted: 0,
            seed,
        }
    }

    /// Delivers a datagram without a turn.
    pub(super) fn deliver(&mut self, path: Path, bytes: &[u8]) {
        self.server.handle_datagram(self.now, path, bytes);
    }

    /// One turn of the driver: the socket is empty, the store is served, all is sent.
    pub(super) fn turn(&mut self) {
        self.server.handle_drained(self.now);
        self.server.work(self.now);
        self.serve_store();
        self.transmit();
    }

    /// The store takes its work, and does it unless it is stalled.
    pub(super) fn serve_store(&mut self) {
        loop {
            let mut idle = true;
            while let Some(work) = self.server.poll_effect() {
                idle = false;
                match work {
                    StoreWork::Load(queries) => self.disk.ask(queries),
                    StoreWork::Persist(batch) => self.disk.batches.push_back(batch),
                }
            }
            if self.stalled {
                return;
            }
            while let Some(batch) = self.disk.sync() {
                idle = false;
                self.server.store_event(self.now, StoreEvent::Durable(batch));
            }
            while !self.disk.asked.is_empty() {
                idle = false;
                let loaded = self.disk.give(0);
                self.server.store_event(self.now, StoreEvent::Loaded(loaded));
            }
            if idle {
                return;
            }
        }
    }

    /// All is sent.
    pub(super) fn transmit(&mut self) {
        let mut buf = Vec::from(*b"dirty");
        while let Some(path) = self.server.poll_transmit(self.now, &mut buf) {
            self.transmitted += 1;
            for (session, seq) in self.take_in(path, &buf) {
                let Some((path, packet)) = self.attending.get_mut(&session) else { continue };
                *packet += 1;
                let (path, packet) = (*path, *packet);
                let receipt = Receipt { seq, answer: ReceiptAnswer::Received };
                let bytes = self.encode(session, packet, &[receipt.into()]);
                self.deliver(path, &bytes);
            }
        }
    }

    /// The peer's agent is there from now on: it receipts every PROBE, which the script is not shown.
    pub(super) fn attend(&mut self, peer: &Peer) {
        // Numbers that no script comes to, within the replay window.
        self.attending.insert(peer.session, (peer.path, 500));
    }

    /// Its agent is gone.
    pub(super) fn leave(&mut self, peer: &Peer) {
        self.attending.remove(&peer.session);
    }

    fn take_in(&mut self, path: Path, bytes: &[u8]) -> Vec<(SessionId, u64)> {
        assert!(bytes.len() <= self.server.max_datagram());
        let datagram = Datagram::at_agent(bytes).unwrap();
        let Header { session, packet, .. } = datagram.header;
        let to = self.sent.entry(path.remote).or_default();
        let (mut small, mut probes) = (false, Vec::new());
        for message in datagram.messages() {
            small |= !matches!(message.kind(), cistern_wire::Kind::Ack | cistern_wire::Kind::Result);
            if let Message::Probe(probe) = message
                && self.attending.contains_key(&session)
            {
                probes.push((session, probe.seq));
                continue;
            }
            to.push_back(Got { session, packet, at: self.now, datagram: bytes.len(), from: path.local, bytes: message.to_bytes() });
        }
        assert!(!small || bytes.len() <= DATAGRAM_MIN, "what must always arrive fits every path (section 3.7)");
        let hint = datagram.messages().any(|message| message.kind() == cistern_wire::Kind::Hint);
        let highest = self.packets.entry(session).or_default();
        assert!(hint || packet > *highest, "packet number {packet} of session {session} repeats");
        *highest = packet.max(*highest);
        probes
    }

    /// Lets time pass as a driver would: it sleeps for as long as the server allows, and turns it.
    pub(super) fn pass(&mut self, span: Duration) {
        let mut left = span;
        loop {
            let wake = self.server.wake_after(self.now).unwrap_or(Duration::MAX);
            let sleep = wake.min(left);
            self.tick(sleep);
            left -= sleep;
            self.turn();
            if left.is_zero() {
                return;
            }
        }
    }

    /// Moves the clocks.
    pub(super) fn tick(&mut self, span: Duration) {
        let ns = u64::try_from(span.as_nanos()).unwrap();
        self.now = Instant::new(self.now.raw_ns + ns, self.now.boot_ns + ns - ns / 1_024 * self.boot_lag);
    }

    /// Encodes a datagram of the peer's session.
    pub(super) fn encode(&self, session: SessionId, packet: u64, messages: &[Message<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut packer = Packer::new(&mut bytes, Header { from_server: false, session, packet }, usize::from(LIMIT));
        for message in messages {
            assert!(packer.push(message), "the script's datagram is too long");
        }
        packer.finish();
        bytes
    }

    /// The peer sends one datagram, without a turn; gives its packet number.
    pub(super) fn post(&mut self, peer: &mut Peer, messages: &[Message<'_>]) -> u64 {
        peer.packet += 1;
        let bytes = self.encode(peer.session, peer.packet, messages);
        self.deliver(peer.path, &bytes);
        peer.packet
    }

    /// The peer sends one datagram, and the server has its turn.
    pub(super) fn send(&mut self, peer: &mut Peer, messages: &[Message<'_>]) -> u64 {
        let packet = self.post(peer, messages);
        self.turn();
        packet
    }

    /// The messages sent to the peer that nobody has looked at.
    pub(super) fn got(&mut self, peer: &Peer) -> Vec<Got> {
        self.sent.remove(&peer.path.remote).unwrap_or_default().into()
    }

    /// The one message sent to the peer.
    pub(super) fn got_one(&mut self, peer: &Peer) -> Got {
        let mut got = self.got(peer);
        assert_eq!(got.len(), 1, "{got:?}");
        got.remove(0)
    }

    /// Insists that exactly these messages were sent to the peer.
    pub(super) fn expect(&mut self, peer: &Peer, expected: &[Message<'_>]) {
        let got = self.got(peer);
        let messages: Vec<Message<'_>> = got.iter().map(Got::message).collect();
        assert_eq!(messages, expected);
    }

    /// Takes the calls that were sent, which the script is not shown.
    pub(super) fn forget_calls(&mut self) {
        let is_call = |got: &Got| matches!(got.message(), Message::Hint(hint) if hint.echo == CALL);
        self.sent.values_mut().for_each(|got| got.retain(|got| !is_call(got)));
    }

    /// Insists that nobody was sent anything that was not looked at.
    pub(super) fn quiet(&self) {
        let left: Vec<_> = self.sent.iter().flat_map(|(to, got)| got.iter().map(move |got| (to, got.message()))).collect();
        assert!(left.is_empty(), "sent, and not expected: {left:#?}");
    }

    /// How many datagrams were sent so far.
    pub(super) const fn transmitted(&self) -> u64 {
        self.transmitted
    }

    /// The cookie that the peer gets for its HELLO.
    pub(super) fn cookie(&mut self, peer: &mut Peer) -> Vec<u8> {
        // No two cookies are made at one instant.
        self.now = self.now.plus(Duration::from_nanos(1));
        let hello = peer.hello(&[]);
        let session = core::mem::take(&mut peer.session);
        let packet = self.send(peer, &[hello.into()]);
        peer.session = session;
        let got = self.got_one(peer);
        match got.message() {
            Message::Challenge(challenge) => {
                assert_eq!((challenge.handshake, challenge.echo), (peer.handshake, packet));
                challenge.cookie.0.to_vec()
            }
            other => panic!("not a CHALLENGE: {other:?}"),
        }
    }

    /// The peer sends a HELLO with a cookie; gives the packet number.
    pub(super) fn hello(&mut self, peer: &mut Peer, cookie: &[u8]) -> u64 {
        let hello = peer.hello(cookie);
        let session = core::mem::take(&mut peer.session);
        let packet = self.send(peer, &[hello.into()]);
        peer.session = session;
        packet
    }

    /// A peer with an open session.
    pub(super) fn open(&mut self, n: u8) -> Peer {
        let mut peer = Peer::new(n);
        self.open_again(&mut peer, &[]);
        peer
    }

    /// The peer is offered a session by a fresh handshake, and sends nothing in it.
    pub(super) fn offer(&mut self, peer: &mut Peer) {
        peer.handshake += 1;
        let cookie = self.cookie(peer);
        let packet = self.hello(peer, &cookie);
        let got = self.got_one(peer);
        let welcome = welcome(&got);
        assert_eq!((welcome.handshake, welcome.echo), (peer.handshake, packet));
        *peer =
            Peer { session: welcome.session, handle: welcome.handle, packet: peer.first_packet - 1, nonce: 0, serial: 1, ..peer.clone() };
    }

    /// The peer sends CONFIRM, and the server has its turn; gives the packet number.
    pub(super) fn confirm(&mut self, peer: &mut Peer, former: &[(SessionId, Claim)]) -> u64 {
        let former: Vec<_> = former.iter().map(|(session, claim)| FormerClaim { session: *session, claim: *claim }).collect();
        self.send(peer, &[Confirm { serial: 1, former: List::of(&former) }.into()])
    }

    /// The peer opens a session by a fresh handshake; gives what is said of its former ones.
    pub(super) fn open_again(&mut self, peer: &mut Peer, former: &[(SessionId, Claim)]) -> Vec<FormerFate> {
        self.offer(peer);
        let echo = self.confirm(peer, former);
        let got = self.got_one(peer);
        let opened = opened(&got);
        assert_eq!((opened.serial, opened.echo, opened.resume, got.session), (1, echo, [0; 32], peer.session));
        opened.former.iter().collect()
    }

    /// The peer makes a file in the root directory; gives its attributes. Nothing else is sent.
    pub(super) fn create(&mut self, peer: &mut Peer, name: &str) -> Attr {
        let ask = peer.ask_only();
        let packet = self.send(peer, &[create(ask, name, Want::Nothing).into()]);
        let got = self.got_one(peer);
        let Message::Ack(ack) = got.message() else { panic!("{got:?}") };
        assert_eq!((ack.nonce, ack.echo), (ask.nonce, packet));
        let Reply::Changed(changed) = ack.reply else { panic!("{got:?}") };
        println!("{name}: {:?}", changed.effects);
        changed.effects.iter().find(|effect| effect.before == 0).unwrap().attr
    }

    /// The peer takes an exclusive advisory lock that is free; gives its generation.
    pub(super) fn lock(&mut self, peer: &mut Peer, object: ObjectId) -> Generation {
        let ask = peer.ask_only();
        self.send(peer, &[lock(ask, object, LockWait::Try).into()]);
        let got = self.got_one(peer);
        match got.reply() {
            Reply::Granted(granted) => granted.generation,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// The peer takes a shared cache lock by reading attributes; gives its generation.
    pub(super) fn cache(&mut self, peer: &mut Peer, object: ObjectId) -> Generation {
        let ask = peer.ask_only();
        let get = cistern_wire::GetAttr { ask, object, want: Want::Shared };
        self.send(peer, &[get.into()]);
        let got = self.got_one(peer);
        match got.reply() {
            Reply::Stated(stated) => {
                assert_ne!(stated.grant, CacheGrant::NONE);
                stated.grant.generation
            }
            other => panic!("not stated: {other:?}"),
        }
    }
}

pub(super) fn opened(got: &Got) -> Opened<'_> {
    match got.message() {
        Message::Opened(opened) => opened,
        other => panic!("not OPENED: {other:?}"),
    }
}

pub(super) fn welcome(got: &Got) -> Welcome {
    match got.message() {
        Message::Welcome(welcome) => welcome,
        other => panic!("not a WELCOME: {other:?}"),
    }
}

pub(super) fn create(ask: Ask, name: &str, want: Want) -> Create<'_> {
    let terms = Terms { want, ..Terms::NONE };
    Create { ask, dir: ROOT, name: Bytes8(name.as_bytes()), exclusive: true, mode: 0o644, uid: 1, gid: 1, ephemeral: false, terms }
}

pub(super) const fn lock(ask: Ask, object: ObjectId, wait: LockWait) -> Lock {
    Lock { ask, object, mode: Mode::Exclusive, wait }
}

pub(super) const fn advisory(object: ObjectId) -> LockId {
    LockId { object, class: LockClass::Advisory }
}

pub(super) const fn cache_lock(object: ObjectId) -> LockId {
    LockId { object, class: LockClass::Cache }
}
