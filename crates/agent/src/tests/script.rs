//! The harness of the packet scripts: the agent under test, the clock, and the server's side of the wire.
//!
//! Decides: how a session is opened before a script begins, and that whatever the agent sends must be expected, whole.
//! Invariant: at the end of a script the agent has dropped nothing that the script did not announce.

use crate::api::{Command, Event, LockEvent, Locked, OpError, OpId, Output, Submitted, Target, Wait};
use crate::config::Config;
use crate::{Agent, Identity};
use alloc::vec::Vec;
use cistern_link::{Instant, Machine, Path};
use cistern_wire::limits::{DATAGRAM_DEFAULT, VERSION};
use cistern_wire::{
    Ack, AgentId, Attr, Bytes8, CacheGrant, Challenge, Claim, Datagram, FormerFate, Generation, GetAttr, Granted, Handle, Header, Hello,
    Hint, Holder, KeepAlive, List, Lock, LockClass, LockId, LockWait, Message, Mode, ObjectId, Opened, Packer, Queued, Reply, SessionFate,
    SessionId, Standing, Stated, StoreId, Want, Welcome,
};
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

/// τ of every session.
pub(super) const TAU_MS: u64 = 2_000;
pub(super) const SESSION: SessionId = SessionId(0xAB);
pub(super) const HANDLE: Handle = Handle(0x5E);
pub(super) const STORE: StoreId = StoreId([7; 16]);

/// One datagram of the agent.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) bytes: Vec<u8>,
    pub(super) to: SocketAddr,
}

impl Sent {
    pub(super) fn datagram(&self) -> Datagram<'_> {
        Datagram::at_server(&self.bytes).expect("the agent sends sound datagrams")
    }

    pub(super) fn packet(&self) -> u64 {
        self.datagram().header.packet
    }

    /// What is in it besides CONFIRM.
    pub(super) fn messages(&self) -> Vec<Message<'_>> {
        self.datagram().messages().filter(|message| !matches!(message, Message::Confirm(_))).collect()
    }

    /// What its CONFIRM claims, which is its first message.
    pub(super) fn claims(&self) -> Option<Vec<(SessionId, Claim)>> {
        let Some(Message::Confirm(confirm)) = self.datagram().messages().next() else { return None };
        assert_eq!(confirm.serial, 1);
        Some(confirm.former.into_iter().map(|claim| (claim.session, claim.claim)).collect())
    }
}

pub(super) struct Script {
    pub(super) agent: Agent,
    now_ms: u64,
    boot_ahead_ms: u64,
    /// Packet numbers of the server.
    pub(super) packet: u64,
    /// Number of the agent's first datagram in its session.
    pub(super) first: u64,
    pub(super) session: SessionId,
    /// The version of the roster that OPENED names.
    pub(super) roster: u32,
    /// Restarts of the server.
    incarnation: u64,
    /// Drops that the script has announced.
    pub(super) drops: u64,
    /// What the agent has sent with CONFIRM, as what it sends next.
    held: Vec<Sent>,
}

pub(super) fn server(nth: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, nth), 7_311))
}

pub(super) fn object(id: u64) -> LockId {
    LockId { object: ObjectId(id), class: LockClass::Advisory }
}

pub(super) fn cached(id: u64) -> LockId {
    LockId { object: ObjectId(id), class: LockClass::Cache }
}

pub(super) fn attr(id: u64, version: u64) -> Attr {
    Attr { object: ObjectId(id), version, mode: 0o644, size: 5, ..Attr::FILE }
}

/// What is asked first and last of an object.
pub(super) fn stat(id: u64) -> Command {
    Command::Stat { target: Target::Object(ObjectId(id)), follow: true }
}

pub(super) fn lock(id: u64, mode: Mode, wait: Wait) -> Command {
    Command::Lock { target: Target::Object(ObjectId(id)), mode, wait }
}

pub(super) fn ask(nonce: u64, back: u16) -> cistern_wire::Ask {
    cistern_wire::Ask { nonce, back, limit: u16::try_from(DATAGRAM_DEFAULT).unwrap() }
}

pub(super) fn get_attr(nonce: u64, back: u16, id: u64) -> Message<'static> {
    GetAttr { ask: ask(nonce, back), object: ObjectId(id), want: Want::Shared }.into()
}

pub(super) fn ping(nonce: u64, back: u16) -> Message<'static> {
    GetAttr { ask: ask(nonce, back), object: ObjectId(1), want: Want::Nothing }.into()
}

pub(super) fn lock_request(nonce: u64, back: u16, id: u64, mode: Mode, wait: LockWait) -> Message<'static> {
    Lock { ask: ask(nonce, back), object: ObjectId(id), mode, wait }.into()
}

pub(super) fn stated(nonce: u64, echo: u64, attr: Attr, generation: u64) -> Message<'static> {
    let mode = if generation == 0 { Want::Nothing } else { Want::Shared };
    let grant = CacheGrant { mode, generation: Generation(generation) };
    Ack { nonce, echo, reply: Reply::Stated(Stated { attr, grant }) }.into()
}

pub(super) fn granted(nonce: u64, echo: u64, id: u64, mode: Mode, generation: u64, run: u32) -> Message<'static> {
    let reply = Reply::Granted(Granted { lock: object(id), mode, generation: Generation(generation), run });
    Ack { nonce, echo, reply }.into()
}

pub(super) const SOMEBODY: Holder<'static> =
    Holder { label: Bytes8(b"somebody"), handle: Handle(0x4A), mode: Mode::Exclusive, since_ms: 5, standing: Standing::Good, bound_ms: 0 };

pub(super) fn queued(nonce: u64, echo: u64, id: u64) -> Message<'static> {
    Queued { nonce, echo, lock: object(id), ahead: 0, holder: SOMEBODY }.into()
}

pub(super) fn released(serial: u64, echo: u64, items: &[cistern_wire::ReleasedItem]) -> Message<'_> {
    cistern_wire::Released { serial, echo, items: List::of(items) }.into()
}

pub(super) fn welcome(hello: &Hello<'_>, echo: u64) -> Welcome {
    Welcome {
        handshake: hello.handshake,
        echo,
        version: VERSION,
        session: SESSION,
        handle: HANDLE,
        store: STORE,
        epoch: 1,
        server_incarnation: 3,
        features: 0,
        lease_us: TAU_MS * 1_000,
        delta_ppm: 10_000,
        epsilon_us: 1_000,
        delivery_timeout_us: 500_000,
        window: 64,
        max_datagram: 1_232,
        first_packet: 1,
    }
}

pub(super) fn opened(echo: u64, former: &[FormerFate]) -> Message<'_> {
    Opened { serial: 1, echo, former: List::of(former), resume: [0; 32], roster: 0 }.into()
}

/// The agent's HELLO, as the only message of one datagram.
pub(super) fn hello_of(sent: &Sent) -> (Hello<'_>, u64) {
    let messages = sent.messages();
    let [Message::Hello(hello)] = messages[..] else { panic!("not a HELLO: {messages:?}") };
    assert_eq!(sent.datagram().header.session, SessionId(0));
    (hello, sent.packet())
}

impl Script {
    pub(super) fn new(config: Config) -> Self {
        Self::with_servers(config, 1)
    }

    pub(super) fn with_servers(config: Config, servers: u8) -> Self {
        let identity = Identity { agent: AgentId([1; 16]), incarnation: 1, boot: [2; 16], label: b"test".to_vec() };
        let agent = Agent::new(config, identity, [3; 32], (1..=servers).map(server).collect()).unwrap();
        Self {
            agent,
            now_ms: 10_000,
            boot_ahead_ms: 0,
            packet: 0,
            first: 0,
            session: SESSION,
            roster: 0,
            incarnation: 3,
            drops: 0,
            held: Vec::new(),
        }
    }

    /// An agent whose session is open, and which has been answered one PING; its lease began at this moment.
    pub(super) fn open(config: Config) -> Self {
        let mut script = Self::new(config);
        script.open_now();
        script
    }

    pub(super) fn open_now(&mut self) {
        let op = self.start(Command::Ping);
        self.shake(&[]);
        let [sent] = &self.turn()[..] else { panic!("one datagram") };
        assert_eq!(sent.messages(), [ping(1, 0)]);
        let echo = sent.packet();
        self.say(&[stated(1, echo, attr(1, 1), 0)]);
        let [.., Event::SessionOpened { .. }, Event::Done { op: done, result: Ok(Output::Pong { .. }) }] = self.events()[..] else {
            panic!("the session did not open")
        };
        assert_eq!(done, op);
        self.quiet();
    }

    /// Goes through the handshake that is due, up to OPENED; what came with CONFIRM is sent again as if it came after that.
    pub(super) fn shake(&mut self, former: &[FormerFate]) {
        let first = self.one();
        let (hello, echo) = hello_of(&first);
        assert!(hello.cookie.0.is_empty());
        self.say_outside(&[Challenge { handshake: hello.handshake, echo, cookie: Bytes8(b"cookie") }.into()]);
        let second = self.one();
        let (hello, echo) = hello_of(&second);
        assert_eq!(hello.cookie.0, b"cookie");
        (self.packet, self.first) = (0, hello.first_packet);
        self.say_outside(&[Welcome { session: self.session, ..welcome(&hello, echo) }.into()]);
        self.confirmed(former);
    }

    /// CONFIRM, which is due, is answered.
    pub(super) fn confirmed(&mut self, former: &[FormerFate]) {
        let sent = self.one();
        assert!(sent.claims().is_some() && sent.datagram().header.session == self.session, "not CONFIRM: {:?}", sent.messages());
        let resume = [0; 32];
        self.say(&[Opened { serial: 1, echo: sent.packet(), former: List::of(former), resume, roster: self.roster }.into()]);
        self.held.extend(Some(sent).filter(|sent| !sent.messages().is_empty()));
    }

    /// The agent asks whether the server is there, and hears a hint that its session is not known.
    pub(super) fn hint(&mut self) {
        self.start(Command::Ping);
        let echo = self.turn().last().expect("PING").packet();
        self.say(&[Hint { echo, detail: Bytes8(b"") }.into()]);
    }

    /// Goes through a handshake, up to WELCOME, while other messages, all of them lost, may be on their way.
    pub(super) fn offer_amid(&mut self, next: SessionId) {
        for _ in 0..2_000 {
            for sent in self.turn() {
                if sent.datagram().header.session != SessionId(0) {
                    continue;
                }
                let (hello, echo) = hello_of(&sent);
                if hello.cookie.0.is_empty() {
                    self.say_outside(&[Challenge { handshake: hello.handshake, echo, cookie: Bytes8(b"cookie") }.into()]);
                    continue;
                }
                self.packet = 0;
                self.session = next;
                self.incarnation += 1;
                let server_incarnation = self.incarnation;
                let welcome = Welcome { session: next, server_incarnation, ..welcome(&hello, echo) };
                return self.say_outside(&[welcome.into()]);
            }
            self.sleep(1);
        }
        panic!("no handshake");
    }

    /// Goes through a handshake while other messages, all of them lost, may be on their way; gives what CONFIRM claimed.
    pub(super) fn shake_amid(&mut self, next: SessionId, former: &[(SessionId, SessionFate)]) -> Vec<(SessionId, Claim)> {
        let fates: Vec<FormerFate> = former.iter().map(|(session, fate)| FormerFate { session: *session, fate: *fate }).collect();
        self.offer_amid(next);
        for sent in self.turn() {
            if let Some(claims) = sent.claims().filter(|_| sent.datagram().header.session == next) {
                self.say(&[opened(sent.packet(), &fates)]);
                self.held.extend(Some(sent).filter(|sent| !sent.messages().is_empty()));
                return claims;
            }
        }
        panic!("no CONFIRM");
    }

    pub(super) fn now(&self) -> Instant {
        let raw = self.now_ms * 1_000_000;
        Instant::new(raw, raw + self.boot_ahead_ms * 1_000_000)
    }

    /// The instant so many milliseconds from now.
    pub(super) fn after(&self, ms: u64) -> Instant {
        self.now().plus(Duration::from_millis(ms))
    }

    /// Lets time pass, in which nothing is done.
    pub(super) fn sleep(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    /// The machine sleeps: only the boot clock goes on.
    pub(super) fn suspend(&mut self, ms: u64) {
        self.boot_ahead_ms += ms;
    }

    /// One turn of the driver; gives what was sent.
    pub(super) fn turn(&mut self) -> Vec<Sent> {
        self.agent.handle_drained(self.now());
        let mut sent = core::mem::take(&mut self.held);
        sent.extend(self.transmit());
        sent
    }

    pub(super) fn transmit(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        let mut bytes = Vec::new();
        while let Some(path) = self.agent.poll_transmit(self.now(), &mut bytes) {
            sent.push(Sent { bytes: bytes.clone(), to: path.remote });
            assert!(sent.len() < 1_000, "the agent does not stop sending");
        }
        sent
    }

    /// The one datagram that the agent sends now.
    pub(super) fn one(&mut self) -> Sent {
        let mut sent = self.turn();
        assert_eq!(sent.len(), 1, "one datagram: {:?}", sent.iter().map(Sent::messages).collect::<Vec<_>>());
        sent.remove(0)
    }

    /// The agent sends exactly these messages, in one datagram; gives its number.
    pub(super) fn sends(&mut self, expected: &[Message<'_>]) -> u64 {
        let sent = self.one();
        assert_eq!(sent.messages(), expected);
        assert_eq!(sent.datagram().header.session, self.session);
        sent.packet()
    }

    /// The agent sends nothing now.
    pub(super) fn quiet(&mut self) {
        let sent = self.turn();
        assert!(sent.is_empty(), "nothing was expected: {:?}", sent.iter().map(Sent::messages).collect::<Vec<_>>());
    }

    /// Turns the agent whenever it wants, for so long; gives what it sent and when, in milliseconds from the start.
    pub(super) fn run(&mut self, ms: u64) -> Vec<(u64, Sent)> {
        let (start, end) = (self.now_ms, self.now_ms + ms);
        let mut all = Vec::new();
        loop {
            let at = self.now_ms - start;
            all.extend(self.turn().into_iter().map(|sent| (at, sent)));
            let Some(wake) = self.agent.wake_after(self.now()) else { break };
            assert!(!wake.is_zero(), "the agent spins");
            let next = self.now_ms + u64::try_from(wake.as_nanos().div_ceil(1_000_000)).unwrap();
            if next > end {
                break;
            }
            self.now_ms = next;
        }
        self.now_ms = end;
        all
    }

    /// Nothing is sent for so long.
    pub(super) fn silence(&mut self, ms: u64) {
        let sent = self.run(ms);
        assert!(sent.is_empty(), "silence was expected: {:?}", sent.iter().map(|(at, sent)| (at, sent.messages())).collect::<Vec<_>>());
    }

    /// The agent waits for nothing.
    pub(super) fn asleep(&mut self) {
        self.quiet();
        assert_eq!(self.agent.wake_after(self.now()), None);
    }

    pub(super) fn datagram(session: SessionId, packet: u64, messages: &[Message<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut packer = Packer::new(&mut bytes, Header { from_server: true, session, packet }, DATAGRAM_DEFAULT);
        messages.iter().for_each(|message| assert!(packer.push(message)));
        packer.finish();
        bytes
    }

    /// A datagram of the session as it would come from the server; kept by tests that deliver it late, or twice.
    pub(super) fn make(&mut self, messages: &[Message<'_>]) -> Vec<u8> {
        self.packet += 1;
        Self::datagram(self.session, self.packet, messages)
    }

    pub(super) fn deliver(&mut self, bytes: &[u8]) {
        self.agent.handle_datagram(self.now(), Path::to(server(1)), bytes);
    }

    /// The server says this in the session.
    pub(super) fn say(&mut self, messages: &[Message<'_>]) {
        let bytes = self.make(messages);
        self.deliver(&bytes);
    }

    /// The server says this in session 0.
    pub(super) fn say_outside(&mut self, messages: &[Message<'_>]) {
        let bytes = Self::datagram(SessionId(0), 1, messages);
        self.deliver(&bytes);
    }

    /// Somebody says this in another session.
    pub(super) fn say_in(&mut self, session: SessionId, messages: &[Message<'_>]) {
        let bytes = Self::datagram(session, 1_000_000, messages);
        self.deliver(&bytes);
    }

    pub(super) fn submit(&mut self, command: Command) -> Submitted {
        self.agent.submit(self.now(), command)
    }

    /// A command that does not end at once.
    pub(super) fn start(&mut self, command: Command) -> OpId {
        match self.submit(command) {
            Submitted::Later(op) => op,
            Submitted::Now(result) => panic!("ended at once: {result:?}"),
        }
    }

    pub(super) fn events(&mut self) -> Vec<Event> {
        core::iter::from_fn(|| self.agent.poll_event()).collect()
    }

    /// Exactly these events have come.
    pub(super) fn hears(&mut self, expected: &[Event]) {
        assert_eq!(self.events(), expected);
    }

    /// The lock that the only event tells of.
    pub(super) fn locked(&mut self, op: OpId) -> Locked {
        match &self.events()[..] {
            [Event::Done { op: done, result: Ok(Output::Locked(locked)) }] if *done == op => *locked,
            other => panic!("no lock: {other:?}"),
        }
    }

    /// A lock granted at once by the server, exclusive, with this generation and run.
    pub(super) fn hold(&mut self, id: u64, nonce: u64, generation: u64, run: u32) -> Locked {
        self.hold_as(Mode::Exclusive, id, nonce, (generation, run))
    }

    /// The same in this mode.
    pub(super) fn hold_as(&mut self, mode: Mode, id: u64, nonce: u64, (generation, run): (u64, u32)) -> Locked {
        let op = self.start(lock(id, mode, Wait::Forever));
        let echo = self.sends(&[lock_request(nonce, 0, id, mode, LockWait::Queue)]);
        self.say(&[granted(nonce, echo, id, mode, generation, run)]);
        let locked = self.locked(op);
        self.quiet();
        locked
    }

    /// Caches the attributes of an object under this generation.
    pub(super) fn cache(&mut self, id: u64, nonce: u64, generation: u64) {
        let op = self.start(stat(id));
        let echo = self.sends(&[get_attr(nonce, 0, id)]);
        self.say(&[stated(nonce, echo, attr(id, 1), generation)]);
        self.hears(&[Event::Done { op, result: Ok(Output::Attr(attr(id, 1))) }]);
        self.quiet();
        self.is_cached(id);
    }

    pub(super) fn is_cached(&mut self, id: u64) {
        assert!(matches!(self.submit(stat(id)), Submitted::Now(Ok(Output::Attr(_)))), "answered from cache");
    }

    pub(super) fn keep_alive(&self, serial: u64) -> Message<'static> {
        KeepAlive { serial, clock_us: self.now().raw_ns / 1_000 }.into()
    }

    pub(super) fn told(locked: &Locked, what: LockEvent) -> Event {
        Event::Lock { holder: locked.holder, object: locked.object, what }
    }

    pub(super) fn failed(op: OpId, error: OpError) -> Event {
        Event::Done { op, result: Err(error) }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(
                self.agent.drops().total(),
                self.drops,
                "drops: {:?}",
                self.agent.drops().iter().filter(|d| d.1 > 0).collect::<Vec<_>>()
            );
        }
    }
}
