//! An agent with very many locks in use: what it costs to take them, and what happens when their lease ends and when they are lost.
//!
//! Decides the story: one agent takes all locks, each for a local user, and its server falls silent; then it answers again; then it was
//! started anew and the locks are taken over; then it has ended the session. Time is virtual, CPU is real: the longest call of the agent's
//! core is what its users and its loop would have to wait for. Place: a part of `scale`.
//! Invariants: the server is a stand-in that keeps nothing, so memory that grows is the agent's; after the end of the lease no lock is
//! called certain, whoever has been told by then. Leaves to others: printing (`scale`).

use super::figures::{Held, Telling};
use super::memory;
use super::tables::{Tables, cpu};
use crate::trouble::Trouble;
use cistern_agent::api::{Command, Event, HolderId, LockEvent, Output, Submitted, Target, Wait};
use cistern_agent::config::Config;
use cistern_agent::{Agent, Identity};
use cistern_link::{Instant, Machine as _, Path};
use cistern_wire::limits::{DATAGRAM_DEFAULT, VERSION};
use cistern_wire::{
    Ack, AgentId, Alive, Bytes8, Confirm, Datagram, Done, Fate, FormerClaim, FormerFate, Generation, Granted, Handle, Header, Hello, Hint,
    List, LockClass, LockId, Message, Mode, Nack, NackReason, Opened, Packer, ReclaimItem, Reclaimed, ReclaimedItem, Reply, SessionFate,
    SessionId, Status, StoreId, Welcome,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The lease.
const TAU_US: u64 = 2_000_000;
const TAU: Duration = Duration::from_micros(TAU_US);
/// Lock commands that are under way at a time.
const TOGETHER: usize = 1_024;
/// Turns that must do for one part of the story.
const TURNS_MAX: usize = 1 << 20;
/// Holds that are looked at: one of so many.
const LOOKED_AT: usize = 997;
/// Tokens of a grant.
const RUN: u32 = 1_024;
const RUN_STEP: u64 = RUN as u64;
/// What a holder can be told, as places in a count.
const SUSPECT: usize = 0;
const UNCERTAIN: usize = 1;
const CERTAIN: usize = 2;
const LOST: usize = 3;
const KINDS: usize = 4;

/// Measures an agent with so many locks.
pub(super) fn measure(locks: usize) -> Result<Held, Trouble> {
    let mut world = HeldWorld::new(locks)?;
    // Written to, so that it has its memory before.
    world.holders = vec![HolderId(1); locks];
    world.holders.clear();
    let before = memory::resident()?;
    world.take(locks)?;
    let (longest_call_taking_us, held) = (world.longest_of_this(), memory::resident()?);
    let ended = world.lease_ends()?;
    let revived = world.lease_comes_back()?;
    let reclaimed = world.server_starts_anew()?;
    let lost = world.session_ends()?;
    Ok(Held { locks, lock_bytes: held.saturating_sub(before) / locks as u64, longest_call_taking_us, ended, revived, reclaimed, lost })
}

/// The agent, and a server that grants everything and keeps nothing.
struct HeldWorld {
    agent: Agent,
    now: Instant,
    session: SessionId,
    incarnation: u64,
    packet: u64,
    newest: u64,
    generation: u64,
    holders: Vec<HolderId>,
    /// Whether the server opens sessions.
    welcomes: bool,
    /// What the agent sent that the server has not heard.
    sent: Vec<Vec<u8>>,
    /// How many holders were told what.
    told: [usize; KINDS],
    /// Locks that another session has taken over.
    taken_over: u64,
    longest: Duration,
    buf: Vec<u8>,
}

impl HeldWorld {
    fn new(locks: usize) -> Result<Self, Trouble> {
        let config = Config { advisory_max: locks + 1, window: 4_096, ..Config::default() };
        let identity = Identity { agent: AgentId([0xA5; 16]), incarnation: 1, boot: [0; 16], label: b"holder".to_vec() };
        Ok(Self {
            agent: Agent::new(config, identity, [5; 32], vec![server()]).map_err(Trouble::starting("making the agent"))?,
            now: Instant::new(1_000_000_000, 1_000_000_000),
            session: SessionId(0),
            incarnation: 1,
            packet: 0,
            newest: 0,
            generation: 1,
            holders: Vec::new(),
            welcomes: true,
            sent: Vec::new(),
            told: [0; KINDS],
            taken_over: 0,
            longest: Duration::ZERO,
            buf: Vec::new(),
        })
    }

    /// A call of the agent; its CPU time counts.
    fn call<R>(&mut self, call: impl FnOnce(&mut Agent, Instant) -> R) -> R {
        let begun = cpu();
        let result = call(&mut self.agent, self.now);
        self.longest = self.longest.max(cpu().saturating_sub(begun));
        result
    }

    /// The longest call since this was asked last, in microseconds.
    fn longest_of_this(&mut self) -> f64 {
        std::mem::take(&mut self.longest).as_secs_f64() * 1e6
    }

    /// One turn of the agent's driver: the socket is empty, something may be sent, and users are told. Time goes on to when the agent
    /// wants to be woken, but not beyond `until`.
    fn turn(&mut self, until: Instant) {
        self.call(|agent, now| agent.handle_drained(now));
        let mut datagram = std::mem::take(&mut self.buf);
        while self.call(|agent, now| agent.poll_transmit(now, &mut datagram)).is_some() {
            self.sent.push(datagram.clone());
        }
        self.buf = datagram;
        while let Some(event) = self.agent.poll_event() {
            self.hear(&event);
        }
        let wake = self.call(|agent, now| agent.wake_after(now)).unwrap_or(TAU);
        self.now = self.now.plus(wake.min(self.now.until_waited(until)));
    }

    fn hear(&mut self, event: &Event) {
        match event {
            Event::Done { result: Ok(Output::Locked(locked)), .. } => self.holders.push(locked.holder),
            Event::Lock { what, .. } => {
                let kind = match what {
                    LockEvent::Suspect { .. } => SUSPECT,
                    LockEvent::Uncertain => UNCERTAIN,
                    LockEvent::Certain { .. } => CERTAIN,
                    LockEvent::Lost => LOST,
                };
                self.told[kind] += 1;
            }
            Event::SessionReclaimed { kept, .. } => self.taken_over += kept,
            _ => {}
        }
    }

    /// The server hears everything that was sent, and answers.
    fn answer(&mut self) {
        for datagram in std::mem::take(&mut self.sent) {
            let Ok(datagram) = Datagram::at_server(&datagram) else { continue };
            self.newest = datagram.header.packet;
            for message in datagram.messages() {
                self.answer_one(datagram.header, &message);
            }
        }
    }

    fn answer_one(&mut self, Header { session, packet: echo, .. }: Header, message: &Message<'_>) {
        let ack = |nonce, reply| Message::from(Ack { nonce, echo, reply });
        match message {
            Message::Hello(hello) if self.welcomes => self.welcome(hello, echo),
            Message::Confirm(confirm) => self.opened(session, confirm, echo),
            Message::Lock(lock) => {
                self.generation += RUN_STEP;
                let (lock_id, generation) = (LockId { object: lock.object, class: LockClass::Advisory }, Generation(self.generation));
                let granted = Granted { lock: lock_id, mode: lock.mode, generation, run: RUN };
                self.say(session, &ack(lock.ask.nonce, Reply::Granted(granted)));
            }
            Message::KeepAlive(keep) => self.say(session, &Alive { serial: keep.serial, echo }.into()),
            Message::Reclaim(reclaim) => {
                let told = |item: ReclaimItem| {
                    let ReclaimItem { lock, generation, .. } = item;
                    ReclaimedItem { lock, generation, status: Status::OK, version: 0 }
                };
                let items: Vec<_> = reclaim.items.into_iter().map(told).collect();
                self.say(session, &ack(reclaim.ask.nonce, Reply::Reclaimed(Reclaimed { items: List::of(&items) })));
            }
            Message::ReclaimComplete(complete) => self.say(session, &ack(complete.ask.nonce, Reply::Done(Done {}))),
            _ => {}
        }
    }

    /// Opens the session; the one before it, if there was one, can be taken over.
    fn opened(&mut self, session: SessionId, confirm: &Confirm<'_>, echo: u64) {
        let fate = |claim: FormerClaim| FormerFate { session: claim.session, fate: SessionFate::Reclaimable };
        let former: Vec<_> = confirm.former.into_iter().map(fate).collect();
        self.session = session;
        self.say(session, &Opened { serial: confirm.serial, echo, former: List::of(&former), resume: [0; 32], roster: 0 }.into());
    }

    /// Offers a session.
    fn welcome(&mut self, hello: &Hello<'_>, echo: u64) {
        self.incarnation += 1;
        self.packet = 0;
        let welcome = Welcome {
            handshake: hello.handshake,
            echo,
            version: VERSION,
            session: SessionId(self.incarnation),
            handle: Handle(self.incarnation),
            store: StoreId([0x5C; 16]),
            epoch: 1,
            server_incarnation: self.incarnation,
            features: 0,
            lease_us: TAU_US,
            delta_ppm: 10_000,
            epsilon_us: 1_000,
            delivery_timeout_us: 500_000,
            window: 4_096,
            max_datagram: 1_232,
            first_packet: 1,
        };
        self.say(SessionId(0), &welcome.into());
    }

    /// The server says something in a datagram of its own.
    fn say(&mut self, session: SessionId, message: &Message<'_>) {
        self.packet += 1;
        let mut bytes = Vec::new();
        let mut packer = Packer::new(&mut bytes, Header { from_server: true, session, packet: self.packet }, DATAGRAM_DEFAULT);
        packer.push(message);
        packer.finish();
        self.call(|agent, now| agent.handle_datagram(now, Path::to(server()), &bytes));
    }

    /// Turns, the server answering, until something is so.
    fn turn_until(&mut self, what: &'static str, is_so: impl Fn(&Self) -> bool) -> Result<usize, Trouble> {
        let until = self.now.plus(TAU * 4);
        for turns in 0..TURNS_MAX {
            if is_so(self) {
                return Ok(turns);
            }
            self.answer();
            self.turn(until);
        }
        Err(Tables::missing("holding locks", what))
    }
}

/// The story.
impl HeldWorld {
    /// Takes every lock, each for one local user.
    fn take(&mut self, locks: usize) -> Result<(), Trouble> {
        for begin in (0..locks).step_by(TOGETHER) {
            let end = locks.min(begin + TOGETHER);
            for n in begin..end {
                let command = Command::Lock { target: Target::Object(Tables::file(n)), mode: Mode::Exclusive, wait: Wait::Forever };
                if !matches!(self.call(|agent, now| agent.submit(now, command)), Submitted::Later(_)) {
                    return Err(Tables::missing("taking locks", "a request for each"));
                }
            }
            self.turn_until("a grant of each lock", |world| world.holders.len() == end)?;
        }
        Ok(())
    }

    /// The server falls silent, and the lease runs out.
    fn lease_ends(&mut self) -> Result<Telling, Trouble> {
        self.told = [0; KINDS];
        self.longest = Duration::ZERO;
        let (until, mut turns) = (self.now.plus(TAU), 0);
        while self.told[UNCERTAIN] < self.holders.len() {
            let over = self.lease_is_over();
            self.sent.clear();
            self.turn(until);
            turns += usize::from(over);
            if turns > TURNS_MAX || self.lease_is_over() && self.is_any_certain() {
                return Err(Tables::missing("waiting for the end of a lease", "no lock certain after it, and everybody told"));
            }
        }
        Ok(self.telling(turns))
    }

    /// The server answers again: everything is certain as it was.
    fn lease_comes_back(&mut self) -> Result<Telling, Trouble> {
        // It knows the session, whatever the agent may think by now.
        self.welcomes = false;
        let all = self.holders.len();
        let turns = self.turn_until("everybody told that all is certain again", |world| world.told[CERTAIN] >= all)?;
        if self.is_any_uncertain() {
            return Err(Tables::missing("renewing a lease", "every lock certain"));
        }
        Ok(self.telling(turns))
    }

    /// The server was started anew: another session takes the locks over.
    fn server_starts_anew(&mut self) -> Result<Telling, Trouble> {
        self.longest = Duration::ZERO;
        self.welcomes = true;
        // Something is asked, and the server does not know the session.
        drop(self.call(|agent, now| agent.submit(now, Command::Ping)));
        self.turn(self.now);
        let echo = self.sent.iter().filter_map(|sent| Datagram::at_server(sent).ok()).map(|sent| sent.header.packet).max().unwrap_or(0);
        self.sent.clear();
        let session = self.session;
        self.say(session, &Hint { echo, detail: Bytes8(b"") }.into());
        let turns = self.turn_until("all locks taken over", |world| world.taken_over > 0)?;
        if self.is_any_uncertain() {
            return Err(Tables::missing("taking locks over", "every lock certain"));
        }
        Ok(self.telling(turns))
    }

    /// The server says that the session has ended: all locks are lost.
    fn session_ends(&mut self) -> Result<Telling, Trouble> {
        self.told = [0; KINDS];
        self.longest = Duration::ZERO;
        let (session, echo) = (self.session, self.newest);
        self.say(session, &Nack { nonce: 0, echo, reason: NackReason::Ended, fate: Fate::Unknown }.into());
        if self.is_any_certain() {
            return Err(Tables::missing("ending a session", "no lock certain after it"));
        }
        let all = self.holders.len();
        let turns = self.turn_until("everybody told of the loss", |world| world.told[LOST] >= all)?;
        Ok(self.telling(turns))
    }

    fn telling(&mut self, turns: usize) -> Telling {
        Telling { longest_call_us: self.longest_of_this(), turns }
    }

    fn lease_is_over(&self) -> bool {
        self.agent.view(self.now).left.is_zero()
    }

    fn is_any_certain(&self) -> bool {
        self.looks().any(|certain| certain)
    }

    fn is_any_uncertain(&self) -> bool {
        self.looks().any(|certain| !certain)
    }

    /// What some of the users see who look at the moment of use.
    fn looks(&self) -> impl Iterator<Item = bool> + '_ {
        let look = |holder: &HolderId| self.agent.holder_view(self.now, *holder).is_some_and(|view| view.certain);
        self.holders.iter().step_by(LOOKED_AT).map(look)
    }
}

fn server() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 7_311))
}
