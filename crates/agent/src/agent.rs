//! The agent as its driver and its users see it.
//!
//! Decides: the order of things in one turn: what arrived, then time, then what is to be sent; and that every call leaves nothing
//! half done. Place in the walk: first step in for commands, and the `Machine` that a driver turns.
//! Implements `wire-spec.md` section 11, the agent's part, with its modules. Invariant R17: one call of any function here is one
//! critical section, at one instant; time never goes back.
//! Leaves to others: `incoming` what arrived, `transmit` what leaves, `renewal` the lease, `recovery` its end.

use crate::api::{Command, Event, HolderId, LeaseView, OpError, OpId, Output, Submitted};
use crate::config::{Config, IdlePolicy};
use crate::control::Control;
use crate::lease::Lease;
use crate::local::{Hall, Wish};
use crate::locks::Locks;
use crate::opening::{Known, Opening};
use crate::ops::Ops;
use crate::port::{Ctx, Outbound, TaskId};
use crate::requests::{Origin, Pending};
use crate::session::Session;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use cistern_link::{Instant, Machine, PacketCounter, Path, Question, Rng, SentLog, TimerQueue};
use cistern_wire::{AgentId, Ask, DropReason, EndReason, ExtendRun, FormerClaim, Lock, Message};
use core::net::SocketAddr;
use core::time::Duration;

/// Who the agent is; made by the client library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The identity, durable or used once.
    pub agent: AgentId,
    /// The durable count of its starts.
    pub incarnation: u64,
    /// The boot of its machine; all zero: not known.
    pub boot: [u8; 16],
    /// What people call it; at most 64 bytes.
    pub label: Vec<u8>,
}

/// A look at a hold of an advisory lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderView {
    /// Whether the lock is certain now.
    pub certain: bool,
    /// Until when it is, as things stand; in the past when it is not certain.
    pub valid_until: Instant,
    /// When operations under it should be ending unless the lease is renewed.
    pub suspect_at: Instant,
}

/// Why the agent wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// HELLO was not answered.
    Opening,
    /// A request was not answered.
    Request(u64),
    /// A control message was not answered.
    Control(u64),
    /// *valid* ends: renew, give back or let lapse.
    Renew,
    /// A phase ends that local holders are told of.
    Phase,
    /// A command has run for as long as a silent server is waited for.
    GiveUp(TaskId),
    /// Something to a silent server is outstanding for nobody.
    Silence,
}

/// What the agent counts, for people.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) opportunistic: u64,
    pub(crate) explicit: u64,
    pub(crate) demands: u64,
    pub(crate) nacks: u64,
    pub(crate) requests: u64,
    pub(crate) datagrams_out: u64,
    pub(crate) datagrams_in: u64,
    pub(crate) retransmissions: u64,
    pub(crate) drops: [u64; DropReason::NAMES.len()],
    /// Datagrams of another session, or seen before.
    pub(crate) strangers: u64,
}

/// A client agent: one identity, one session and one lease with a server.
pub struct Agent {
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
    pub(crate) now: Instant,
    pub(crate) lease: Lease,
    pub(crate) locks: Locks,
    pub(crate) ops: Ops,
    pub(crate) session: Option<Session>,
    pub(crate) opening: Option<Opening>,
    pub(crate) known: Known,
    pub(crate) former: Vec<FormerClaim>,
    pub(crate) packets: PacketCounter,
    pub(crate) sent: SentLog,
    pub(crate) timers: TimerQueue<Timer>,
    /// Requests of operations that have no number yet.
    pub(crate) out: VecDeque<Outbound>,
    /// Requests for locks that have no number yet.
    pub(crate) asks: VecDeque<(Origin, Vec<u8>)>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
    /// When the cache last answered, or an operation ran.
    pub(crate) used: Instant,
    pub(crate) closing: Closing,
    /// Why there is no session, when a server said so.
    pub(crate) trouble: Option<OpError>,
}

/// How far closing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    No,
    /// END_SESSION is out.
    Asked,
    Closed,
}

impl Agent {
    /// An agent that knows the server's addresses; it sends nothing before a command needs a session.
    ///
    /// `config` has passed its `check`, and `seed` is never used twice.
    #[must_use]
    pub fn new(config: Config, identity: Identity, seed: [u8; 32], servers: Vec<SocketAddr>) -> Self {
        let (start, cache) = (Instant::new(0, 0), config.cache);
        Self {
            lease: Lease::new(config.phases),
            identity,
            config,
            servers,
            rng: Rng::from_seed(seed),
            now: start,
            locks: Locks::default(),
            ops: Ops::new(cache),
            session: None,
            opening: None,
            known: Known::default(),
            former: Vec::new(),
            packets: PacketCounter::new(),
            sent: SentLog::new(SentLog::DEFAULT_MAX),
            timers: TimerQueue::new(),
            out: VecDeque::new(),
            asks: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            used: start,
            closing: Closing::No,
            trouble: None,
        }
    }

    /// Takes a command: it is answered from cache at once, or runs.
    pub fn submit(&mut self, now: Instant, command: Command) -> Submitted {
        self.tick(now);
        if self.closing != Closing::No {
            return Submitted::Now(Err(OpError::Closed));
        }
        self.used = self.now;
        if let Command::Unlock { holder } = command {
            let known = self.with_hall(|local, hall| local.unlock(hall, holder));
            self.pump();
            let gone = OpError::Status(cistern_wire::Status::NOT_HELD);
            return Submitted::Now(if known { Ok(Output::Done) } else { Err(gone) });
        }
        let submitted = self.with_ops(|ops, ctx| ops.submit(ctx, command));
        if let Submitted::Later(op) = submitted {
            self.timers.set(Timer::GiveUp(TaskId(op.0)), self.now.plus(self.config.give_up_after), Question::Waited);
        }
        self.pump();
        submitted
    }

    /// Ends a command whose user does not wait any more; what was sent of it may still be done.
    pub fn cancel(&mut self, now: Instant, op: OpId) {
        self.tick(now);
        let cancelled = OpError::Status(cistern_wire::Status::ECANCELED);
        self.end_command(TaskId(op.0), cancelled);
        self.pump();
    }

    /// Gives everything back and ends the session; every command and every hold ends now.
    pub fn close(&mut self, now: Instant) {
        self.tick(now);
        if self.closing != Closing::No {
            return;
        }
        for task in self.ops.running().collect::<Vec<_>>() {
            self.with_ops(|ops, ctx| ops.give_up(ctx, task, OpError::Closed));
        }
        self.locks.local.close(&mut self.events);
        self.locks.discard();
        self.ops.discard_all();
        self.out.clear();
        self.asks.clear();
        self.opening = None;
        self.timers = TimerQueue::new();
        self.closing = Closing::Closed;
        if let Some(session) = &mut self.session {
            // Everything of it has been discarded, so whatever is still outstanding in it is of no use (R21).
            let end = session.controls.push(Control::End(EndReason::Close));
            session.controls.keep_only(end);
            session.requests.take_all();
            self.closing = Closing::Asked;
        }
    }

    /// Whether the agent has closed: nothing is sent or waited for any more.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.closing, Closing::Closed)
    }

    /// The next thing that users are to be told.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The lease as it stands.
    #[must_use]
    pub fn view(&self, now: Instant) -> LeaseView {
        let now = now.max(self.now);
        let expiry = self.lease.expiry();
        LeaseView {
            phase: self.lease.phase(now),
            session: self.session.as_ref().map(|session| session.id),
            lease: self.lease.period(),
            left: expiry.map_or(Duration::ZERO, |end| now.until_lease_over(end)),
            valid_until: expiry,
            renewals_opportunistic: self.counters.opportunistic,
            renewals_explicit: self.counters.explicit,
            demands: self.counters.demands,
            nacks: self.counters.nacks,
            cache_locks: self.locks.cache_count() as u64,
            advisory_locks: self.locks.local.granted() as u64,
            holders: self.locks.local.holders() as u64,
            requests: self.counters.requests,
            datagrams_out: self.counters.datagrams_out,
            datagrams_in: self.counters.datagrams_in,
            retransmissions: self.counters.retransmissions,
            cache_hits: self.ops.hits(),
            round_trip: self.session.as_ref().and_then(|session| session.round_trip.smoothed()),
        }
    }

    /// A hold as it stands; `None`: it is lost, or was given up.
    #[must_use]
    pub fn holder_view(&self, now: Instant, holder: HolderId) -> Option<HolderView> {
        self.locks.local.is_holder(holder).then_some(())?;
        let now = now.max(self.now);
        let valid_until = self.lease.expiry()?;
        let suspect_at = self.lease.phase_end(1)?;
        Some(HolderView { certain: self.lease.usable(now), valid_until, suspect_at })
    }

    /// How many datagrams were dropped, by reason.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        DropReason::NAMES.into_iter().zip(self.counters.drops)
    }

    /// Takes the time in; it never goes back (R6).
    pub(crate) fn tick(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Runs something of the operations' half.
    pub(crate) fn with_ops<R>(&mut self, f: impl FnOnce(&mut Ops, &mut Ctx<'_>) -> R) -> R {
        let mut ctx =
            Ctx { now: self.now, lease: &self.lease, locks: &mut self.locks, out: &mut self.out, events: &mut self.events };
        f(&mut self.ops, &mut ctx)
    }

    /// Runs something of the local locks.
    pub(crate) fn with_hall<R>(&mut self, f: impl FnOnce(&mut crate::local::Local, &mut Hall<'_>) -> R) -> R {
        let mut hall = Hall { now: self.now, lease: &self.lease, events: &mut self.events };
        f(&mut self.locks.local, &mut hall)
    }

    /// Ends a command, wherever it is; what it asked and nobody else needs is not asked again.
    pub(crate) fn end_command(&mut self, task: TaskId, why: OpError) {
        self.timers.cancel(Timer::GiveUp(task));
        if !self.with_hall(|local, hall| local.stop_waiting(hall, OpId(task.0), why)) {
            self.with_ops(|ops, ctx| ops.give_up(ctx, task, why));
        }
        self.out.retain(|out| out.task != task || out.mutation);
        let Some(session) = &mut self.session else { return };
        for nonce in session.requests.abandoned(task) {
            session.requests.remove(nonce);
            session.nonces.retire(nonce);
            self.timers.cancel(Timer::Request(nonce));
        }
    }

    /// Whether something waits for the server: then a session is needed.
    pub(crate) fn needs_session(&self) -> bool {
        !self.out.is_empty() || !self.asks.is_empty()
    }

    /// Moves everything on as far as it goes without time: wishes become messages, messages get numbers, a session is opened if
    /// something needs one. Called at the end of every turn.
    pub(crate) fn pump(&mut self) {
        while let Some(wish) = self.locks.local.poll() {
            self.grant_wish(wish);
        }
        self.give_back_unwanted();
        self.number_requests();
        if let Some(session) = &mut self.session {
            session.controls.gather();
            if !session.requests.is_empty() || !session.controls.is_empty() {
                let silence = session.heard.plus(self.config.give_up_after * 2);
                if self.timers.get(Timer::Silence).is_none() {
                    self.timers.set(Timer::Silence, silence, Question::Waited);
                }
            }
        }
        if self.session.is_none() && self.opening.is_none() && self.closing == Closing::No && self.needs_session() {
            self.open();
        }
        self.plan_renewal();
    }

    fn grant_wish(&mut self, wish: Wish) {
        let ask = Ask { nonce: 0, back: 0, limit: 0 };
        match wish {
            Wish::Ask { object, mode, wait } => {
                let message: Message<'_> = Lock { ask, object, mode, wait }.into();
                self.asks.push_back((Origin::Lock(object), message.to_bytes()));
            }
            Wish::Extend { lock, generation } => {
                let message: Message<'_> = ExtendRun { ask, lock, generation }.into();
                self.asks.push_back((Origin::Extend(lock.object), message.to_bytes()));
            }
            Wish::Release(item) => {
                self.locks.disown(item.lock, item.generation);
                if let Some(session) = &mut self.session {
                    session.controls.release(item);
                }
            }
            Wish::Cancel { nonce } => {
                if let Some(session) = &mut self.session {
                    session.controls.push(Control::Cancel(nonce));
                }
            }
        }
    }

    /// Cache locks over objects of which nothing is known any more are given back, a message's worth at a time.
    fn give_back_unwanted(&mut self) {
        let Some(session) = &mut self.session else { return };
        if self.ops.unwanted() < crate::control::RELEASE_ITEMS_MAX {
            return;
        }
        for object in self.ops.release_candidates(crate::control::RELEASE_ITEMS_MAX) {
            if let Some(item) = self.locks.give_back_cache(object) {
                session.controls.release(item);
            }
        }
    }

    fn number_requests(&mut self) {
        if self.opening.is_some() {
            return;
        }
        let Some(session) = &mut self.session else { return };
        while !(self.asks.is_empty() && self.out.is_empty()) && session.nonces.can_start(session.window) {
            // Locks first: users wait for them in line.
            let (origin, message, mutation) = match self.asks.pop_front() {
                Some((origin, message)) => (origin, message, false),
                None => match self.out.pop_front() {
                    Some(out) => (Origin::Task { task: out.task, call: out.call }, out.message, out.mutation),
                    None => break,
                },
            };
            let Some(nonce) = session.nonces.start(session.window) else { break };
            session.next_nonce = nonce + 1;
            let limit = session.path_limit;
            session.requests.insert(
                nonce,
                Pending { origin, message, mutation, sent: 0, last_sent: self.now, executing: false, limit },
            );
            self.counters.requests += 1;
        }
        self.locks.window_moved(session.nonces.floor(), session.next_nonce);
    }

    /// Commands and waits that run.
    pub(crate) fn busy(&self) -> bool {
        let requests = self.session.as_ref().is_some_and(|session| !session.requests.is_empty());
        requests || self.locks.local.waiting() > 0 || self.ops.running().next().is_some() || self.needs_session()
    }

    /// What users hold or wait for right now.
    pub(crate) fn in_use(&self) -> bool {
        self.locks.local.holders() > 0 || self.busy()
    }

    /// Whether the lease is worth a message of its own at the end of *valid* (R21, DESIGN of the idle policies in `config`).
    pub(crate) fn worth_renewing(&self) -> bool {
        let recently = !self.now.waited(self.used.plus(self.config.idle_after));
        self.in_use()
            || match self.config.idle {
                IdlePolicy::Eager => self.locks.any(),
                IdlePolicy::Lazy => false,
                IdlePolicy::Auto => self.locks.any() && recently,
            }
    }
}

impl Machine for Agent {
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &[u8]) {
        self.tick(now);
        self.take_in(path, datagram);
        self.pump();
    }

    fn handle_drained(&mut self, now: Instant) {
        self.tick(now);
        while let Some(timer) = self.timers.due(self.now) {
            self.fire(timer);
        }
        self.with_ops(Ops::handle_time);
        self.with_hall(|local, hall| local.handle_time(hall));
        self.with_hall(|local, hall| local.look_at_lease(hall));
        self.sent.forget_older(self.now, self.lease.period().max(crate::opening::RETRY_MAX));
        self.pump();
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        self.tick(now);
        self.next_datagram(buf)
    }

    fn wake_after(&mut self, now: Instant) -> Option<Duration> {
        self.tick(now);
        let timers = self.timers.wake_after(self.now).map(|(span, _)| span);
        [timers, self.ops.wake_after(self.now), self.locks.local.wake_after(self.now)].into_iter().flatten().min()
    }

    fn max_datagram(&self) -> usize {
        usize::from(self.config.max_datagram)
    }
}

/// What NACKs said of requests, by nonce.
pub(crate) type Fates = BTreeMap<u64, cistern_wire::Fate>;
