//! The metadata server's core: all its state, and the calls by which a driver turns it.
//!
//! Decides the order within a turn: what has arrived, then (the socket being empty) what is due, deadlines about silence, a slice of the work
//! that is left; then what is to be sent. The only folder that sees more than one part; each `impl Server` of another file here is one
//! decision.
//! Invariants, asserted after every step: there is a lease timer for each session timing out and no other; time does not go back. An idle
//! server has no timer and no work that grows with its tables.

pub(crate) mod admin;
mod answers;
mod calls;
mod delivery;
mod durability;
mod execute;
mod group;
mod handshake;
mod idle;
pub(crate) mod join_session;
pub(crate) mod joining;
mod leases;
mod lifecycle;
mod long;
mod opening;
pub mod overview;
mod presence;
mod receive;
mod recovery;
mod requests;
mod rights;
mod sealed;
mod starting;
pub mod status;
mod strangers;
#[cfg(test)]
mod tests;
mod transmit;
mod warnings;
mod work;

use crate::config::{Config, ConfigError};
use crate::failovers::Failovers;
use crate::gate::Gate;
use crate::invites::Invites;
use crate::leases::NamedLeases;
use crate::lines::Lines;
use crate::locks::{LockTable, Tokens};
use crate::namespace::Namespace;
use crate::namespace::staging::Stages;
use crate::presence::{Ephemerals, Watches};
use crate::principals::Principals;
use crate::requests::Tasks;
use crate::scheduler::Scheduler;
use crate::server::calls::Calls;
use crate::server::durability::OnDurable;
use crate::server::group::ServersGroup;
use crate::server::idle::IdleSessions;
use crate::server::join_session::ServerRoster;
use crate::server::lifecycle::Pending;
use crate::server::long::LongSessions;
use crate::server::presence::Removals;
use crate::server::rights::Withdrawals;
use crate::server::warnings::Warnings;
use crate::sessions::grace::Grace;
use crate::sessions::half_open::{HalfOpen, HalfOpens};
use crate::sessions::notices::DeliveryDeadlines;
use crate::sessions::start_keys::StartKeys;
use crate::sessions::{SessionKey, Sessions};
use crate::stats::{Dropped, Stats};
use crate::store::{AfterCommit, StoreCache};
use crate::tenure::Tenure;
use crate::transport::Transport;
use crate::transport::validation::{AnswerRate, Cookies};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{DeliveryClock, Instant, Machine, Path, Rate, ReplyBuffers, Rng, TimerQueue};
use cistern_seal::Cipher;
use cistern_seal::work::JobId;
use cistern_wire::{Form, ReleasedItem, StoreId};
use core::time::Duration;
use log::warn;

/// Who this server is, durably; from its store. Epoch and incarnation are 0 until the store has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The store.
    pub store: StoreId,
    /// The store's epoch: how often it was restored; the top 8 bits of every generation.
    pub epoch: u8,
    /// How often a server was started on it, this start included; durable before the first datagram is answered (section 11.7).
    pub incarnation: u64,
}

/// Why the server wakes, besides leases and silence.
#[derive(Clone, Copy, Debug)]
enum Timer {
    /// Grace can be over.
    GraceEnd,
    /// A stage with which nobody went on may be dropped.
    StageExpiry,
    /// A removal that has failed is tried again.
    OrphanRetry,
    /// Agents of before are called.
    Calls,
}

/// How far the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Reads from the store what it needs to start.
    Starting,
    /// Waits until its start is durable.
    Recording,
    /// Serves.
    Serving,
    /// Its store has failed: it answers nothing (section 11.7).
    Failed,
    /// Its lease of the group is over: it answers nothing, and another core comes after it (section 11.10).
    Lapsed,
}

/// The wall clock, for the times of files; leases never use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wall {
    read_at: Instant,
    unix_ns: i64,
}

impl Wall {
    /// Seconds since 1970 at `now`; 0 before.
    pub(crate) fn seconds(self, now: Instant) -> u64 {
        u64::try_from(self.at(now) / 1_000_000_000).unwrap_or(0)
    }

    /// Nanoseconds since 1970 at `now`.
    pub(crate) fn at(self, now: Instant) -> i64 {
        let since = i64::try_from(now.boot_ns.saturating_sub(self.read_at.boot_ns)).unwrap_or(i64::MAX);
        self.unix_ns.saturating_add(since)
    }
}

/// A metadata server without sockets, clocks or disk: a [`Machine`] that a driver turns, with work for a store beside it.
///
/// In each turn: [`Machine::handle_datagram`] for what has arrived, [`Machine::handle_drained`] when the socket is empty, then
/// [`Server::poll_effect`] until it gives `None`, [`Server::store_event`] for what the store has said, then
/// [`Machine::poll_transmit`] until it gives `None`, and sleep for [`Machine::wake_after`].
#[derive(Debug)]
pub struct Server {
    config: Config,
    identity: Identity,
    /// Who speaks, at the start of each line of the log.
    who: String,
    phase: Phase,
    failure: Option<String>,
    /// Until when it may answer.
    tenure: Tenure,
    /// The group in which it is elected, for displays.
    group: Option<Box<ServersGroup>>,
    now: Instant,
    started: Instant,
    wall: Wall,
    rng: Rng,
    // Handshakes and strangers.
    cookies: Cookies,
    challenges: AnswerRate,
    /// How often the fullness of the table of sessions makes the server ask who is still there.
    probes: Rate,
    hints: AnswerRate,
    warnings: Warnings,
    /// Before the handshakes of the sealed mode; none: plain mode.
    gate: Option<Box<Gate>>,
    cipher: Cipher,
    /// What is offered when a worker has written WELCOME.
    offers: BTreeMap<JobId, HalfOpen>,
    /// Room for the messages of a record.
    text: Vec<u8>,
    // Sessions.
    half_open: HalfOpens,
    sessions: Sessions,
    long: LongSessions,
    idle: IdleSessions,
    calls: Calls,
    /// From which resume secrets follow.
    start_keys: StartKeys,
    /// What their agents are told when the store has their records, or has them no more.
    pending: BTreeMap<SessionKey, Pending>,
    // Time.
    /// The grace after a restart, as long as it lasts.
    grace: Option<Grace>,
    lease_timers: TimerQueue<SessionKey>,
    /// What became of those that ran, for people.
    failovers: Failovers,
    listening: DeliveryDeadlines,
    delivery: DeliveryClock,
    planned_wake: Option<Duration>,
    // Operations.
    scheduler: Scheduler,
    /// The socket was found empty in this turn.
    drained: bool,
    tasks: Tasks,
    locks: LockTable,
    namespace: Namespace,
    principals: Principals,
    invites: Invites,
    lines: Lines,
    /// What hosts that join are told of the cluster; none: nothing.
    roster: Option<Box<ServerRoster>>,
    /// Keys that are revoked whatever the store says.
    revoked_elsewhere: Vec<[u8; 32]>,
    withdrawals: Withdrawals,
    stages: Stages,
    leases: NamedLeases,
    ephemerals: Ephemerals,
    removals: Removals,
    watches: Watches,
    reply_buffer: Vec<u8>,
    /// Where what became of the locks of a RELEASE is gathered.
    released_buffer: Vec<ReleasedItem>,
    /// The memory of kept replies.
    replies: ReplyBuffers,
    // The store.
    store: StoreCache,
    /// What waits for a batch to be durable.
    after_commit: AfterCommit<OnDurable>,
    // The way out.
    transport: Transport,
    stats: Stats,
}

impl Server {
    /// A server that starts now on `store`, which its driver has opened and holds exclusively: what an earlier server promised is waited
    /// for from now on (section 11.7). `unix_ns` is the wall clock, for the times of files; `seed` must be one that nobody can guess.
    ///
    /// It answers nothing until the store has answered the questions that [`Server::poll_effect`] gives, and made its start durable.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting that cannot be used; whoever wrote the configuration is at fault.
    pub fn new(now: Instant, unix_ns: i64, store: StoreId, config: Config, seed: [u8; 32]) -> Result<Self, ConfigError> {
        config.check()?;
        let mut rng = Rng::from_seed(seed);
        let who = format!("server {:.8}", format!("{store}"));
        let mut server = Self {
            who,
            phase: Phase::Starting,
            failure: None,
            tenure: Tenure::UNLIMITED,
            group: None,
            now,
            started: now,
            wall: Wall { read_at: now, unix_ns },
            cookies: Cookies::new(&mut rng, config.cookie_life),
            probes: Rate::new(now, config.rto_floor(), 1),
            challenges: AnswerRate::of_challenges(now, config.challenges_per_second),
            hints: AnswerRate::of_hints(now, config.hint_interval),
            warnings: Warnings::default(),
            gate: None,
            cipher: Cipher::default(),
            offers: BTreeMap::new(),
            text: Vec::new(),
            half_open: HalfOpens::default(),
            sessions: Sessions::new(config.tombstones_max),
            long: LongSessions::default(),
            idle: IdleSessions::default(),
            calls: Calls::default(),
            pending: BTreeMap::new(),
            start_keys: StartKeys::default(),
            grace: None,
            lease_timers: TimerQueue::new(),
            failovers: Failovers::default(),
            listening: DeliveryDeadlines::default(),
            delivery: DeliveryClock::new(now, config.loop_slack()),
            planned_wake: None,
            scheduler: Scheduler::new(config.work),
            drained: false,
            tasks: Tasks::default(),
            // Made anew when the store has told how far tokens were given out; until then nothing is granted.
            locks: LockTable::new(config.locks, Tokens::new(0, 0)),
            namespace: Namespace::new(config.namespace),
            principals: Principals::default(),
            invites: Invites::new(now),
            lines: Lines::default(),
            roster: None,
            revoked_elsewhere: Vec::new(),
            withdrawals: Withdrawals::default(),
            stages: Stages::new(config.stages),
            leases: NamedLeases::default(),
            ephemerals: Ephemerals::default(),
            removals: Removals::none(now),
            watches: Watches::default(),
            reply_buffer: Vec::new(),
            released_buffer: Vec::new(),
            replies: ReplyBuffers::default(),
            store: StoreCache::new(config.cache),
            after_commit: AfterCommit::new(),
            transport: Transport::default(),
            stats: Stats::default(),
            rng,
            identity: Identity { store, epoch: 0, incarnation: 0 },
            config,
        };
        server.boot();
        Ok(server)
    }

    /// Tells the wall clock anew: at start it was told to [`Server::new`]; after that once a minute or so, since it may be set.
    pub fn set_wall_clock(&mut self, now: Instant, unix_ns: i64) {
        self.step(now, |server| {
            server.wall = Wall { read_at: server.now, unix_ns };
            server.tend_invites();
            for line in server.warnings.expire(server.now) {
                warn!("{}: {line}", server.who);
            }
        });
    }

    /// Who this server is; epoch and incarnation are 0 until the store has told.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        self.identity
    }

    /// One step, behind every entry point that can decide something: takes the time, runs `body`, carries out what it has decided, and
    /// checks what must hold.
    #[inline]
    pub(crate) fn step<R>(&mut self, now: Instant, body: impl FnOnce(&mut Self) -> R) -> R {
        self.advance(now);
        let result = body(self);
        if self.ephemerals.has_orphans() {
            self.remove_orphans();
        }
        self.carry_out();
        self.store.close_if_large();
        self.check();
        result
    }

    /// Takes the time; it never goes back.
    fn advance(&mut self, now: Instant) {
        //= wire-spec.md#11-1-lease
        //# Time, as one side acts by it, MUST NOT go back.
        self.now = self.now.max(now);
        if self.tenure.certain(self.now).is_none() {
            self.lapse();
        }
    }

    /// The next deadline of each kind, but for leases, which are many, and silence, which runs on the delivery clock. Each is kept by its
    /// part alone, so nothing has to be armed.
    fn timers(&self) -> [(Timer, Option<Instant>); 4] {
        let in_grace = self.in_grace();
        [
            (Timer::GraceEnd, self.grace.as_ref().and_then(Grace::deadline)),
            (Timer::StageExpiry, self.stages.next_expiry()),
            (Timer::OrphanRetry, self.ephemerals.next_try().filter(|_| !in_grace)),
            (Timer::Calls, self.calls.due()),
        ]
    }

    /// Does what is due.
    fn run_timers(&mut self) {
        self.run_lease_timers();
        self.run_idle_timers();
        self.run_named_leases();
        for (timer, at) in self.timers() {
            if at.is_some_and(|at| self.now.waited(at)) {
                match timer {
                    Timer::GraceEnd => self.close_grace(),
                    Timer::StageExpiry => self.stages.expire(self.now),
                    Timer::OrphanRetry => self.ephemerals.retry(self.now),
                    Timer::Calls => self.call_agents(),
                }
            }
        }
    }

    /// Whether a slice of work is left for the next turn.
    fn has_work(&self) -> bool {
        self.scheduler.has_work()
            || self.locks.is_sweeping()
            || self.is_closing_grace()
            || self.withdrawals.is_left()
            || self.ephemerals.has_orphans() && !self.in_grace()
    }

    /// Whether something is to be taken away that follows from no silence.
    fn is_taking_away(&self) -> bool {
        self.phase == Phase::Serving && (self.withdrawals.is_left() || self.locks.is_sweeping())
    }

    /// How the datagrams of sessions are protected.
    pub(crate) const fn form(&self) -> Form {
        if self.gate.is_some() { Form::Record } else { Form::Plain }
    }

    /// Whether the session is in good standing.
    pub(crate) fn is_good(&self, key: SessionKey) -> bool {
        self.sessions.get(key).is_some_and(|session| session.standing().is_good())
    }

    /// What holds after every step, in every build.
    fn check(&self) {
        let timing_out = self.sessions.counts().timing_out;
        //= wire-spec.md#11-1-lease
        //# The server MUST keep no lease state of a session in good standing.
        assert_eq!(self.lease_timers.len(), timing_out, "there is a lease timer for each session timing out and no other (section 11.3)");
    }
}

impl Machine for Server {
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &[u8]) {
        self.step(now, |server| {
            server.stats.count_received(datagram.len());
            if bugs::is(Bug::M43) && server.phase == Phase::Serving {
                server.delivery.turn(server.now, server.planned_wake.take());
                server.run_deadlines();
            }
            match server.phase {
                Phase::Serving => server.dispatch(path, datagram),
                Phase::Starting | Phase::Recording => server.drop_datagram(path, Dropped::Starting),
                Phase::Failed | Phase::Lapsed => server.drop_datagram(path, Dropped::Failed),
            }
        });
    }

    fn handle_drained(&mut self, now: Instant) {
        self.step(now, |server| {
            //= wire-spec.md#11-3-failure-and-ending
            //# Time in which the server stood still MUST NOT count towards a delivery timeout.
            server.delivery.turn(server.now, server.planned_wake.take());
            if server.phase != Phase::Serving {
                return;
            }
            //= wire-spec.md#11-3-failure-and-ending
            //# The server MUST empty its socket before it acts on a timeout.
            server.removals.allow(server.now, server.config.freed_per_turn);
            server.drained = true;
            server.run_timers();
            server.run_deadlines();
            server.end_lost();
            server.store.trim();
        });
    }

    fn work(&mut self, now: Instant) {
        self.advance(now);
        if self.is_over() {
            return;
        }
        if self.scheduler.begin_work(core::mem::take(&mut self.drained)) {
            self.step(now, Self::run_queued);
        }
        // That waits for no empty socket, which there may not be for long.
        if self.is_taking_away() {
            self.step(now, |server| {
                server.end_withdrawn();
                server.free_some();
            });
        }
        self.scheduler.end_slice();
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        self.advance(now);
        if self.is_over() {
            return None;
        }
        self.next_datagram(self.now, buf)
    }

    fn wake_after(&mut self, now: Instant) -> Option<Duration> {
        self.advance(now);
        let span = match self.phase {
            Phase::Serving if self.has_work() => Some(Duration::ZERO),
            Phase::Serving => {
                let lease = self.lease_timers.wake_after(self.now).map(|next| next.0);
                let silence = self.listening.next().map(|deadline| self.delivery.until(deadline));
                let timers = self.timers().into_iter().filter_map(|(_, at)| at).map(|at| self.now.until_waited(at)).min();
                let named = self.leases.wake_after(self.now);
                [lease, silence, timers, named, self.idle.wake_after(self.now)].into_iter().flatten().min()
            }
            Phase::Starting | Phase::Recording | Phase::Failed | Phase::Lapsed => None,
        };
        self.planned_wake = span;
        span
    }

    fn max_datagram(&self) -> usize {
        usize::from(self.config.max_datagram)
    }
}
