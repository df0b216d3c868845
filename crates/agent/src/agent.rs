//! The agent as its users and its driver see it: commands in, events out, and the turns of a machine.
//!
//! Decides the order within a turn (what has arrived; then, the socket being empty, time; then what is to be sent), and that every
//! call leaves nothing half done: what a change of the locks leads to is carried out before the call returns.
//! Place in the walk: the first step in for commands and datagrams, the last one out. Implements `wire-spec.md` section 11, with its
//! modules: each `impl Agent` of another file is one decision.
//! Invariants: one call of any function here is one critical section at one instant (R17); time does not go back (R6).
//! Leaves to others: everything else.

use crate::api::{Command, Event, LockEvent, OpError, OpId, Output, Submitted, Wait};
use crate::cache::Cache;
use crate::config::Config;
use crate::lease::{Lease, Permit};
use crate::locks::{Effect, Locks};
use crate::opening::{Opening, ServerIdentity};
use crate::ops::Ops;
use crate::outcome::Questions;
use crate::port::{Ctx, Outbound, TaskId};
use crate::reclaim::Reclaim;
use crate::requests::Asker;
use crate::session::Session;
use crate::stats::Stats;
use crate::surrender::Remains;
use crate::telling::Told;
use crate::watches::Watches;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, Machine, Path, Question, Rng, TimerQueue};
use cistern_wire::limits::LABEL_MAX;
use cistern_wire::{AgentId, Ask, ExtendRun, Lock, LockClass, LockId, Message, ObjectId, SessionId, Status};
use core::net::SocketAddr;
use core::time::Duration;

/// Who the agent is; made durable by the client library before it is used (R41).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The identity, durable or used once.
    pub agent: AgentId,
    /// The durable count of its starts.
    pub incarnation: u64,
    /// The boot of its machine; all zero: not known.
    pub boot: [u8; 16],
    /// What people call it; what is beyond 64 bytes is cut off.
    pub label: Vec<u8>,
}

/// Why the agent wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// HELLO is to be sent, for the first time or again.
    Handshake,
    /// *Valid* has ended, or a renewal is overdue.
    Phase,
    /// Holders are to be told something.
    Holders,
    /// Watchers are to be told that nothing is certain.
    Watches,
    /// The oldest command has run for long enough.
    GiveUp,
    /// The end of the session has been waited for long enough.
    Closing,
    /// A lock command that is still on its way to the lock has taken as long as it may.
    Limit(OpId),
    /// A lock command has waited for long enough.
    Wait(OpId),
    /// A lock is asked for again after a busy answer.
    Rest(ObjectId),
    /// The old session's lease is over, and with it every use of what was not reclaimed.
    Reclaim,
    /// A request of recovery is made again after a busy answer.
    Again(Asker),
    /// A former session can be surrendered, or its surrender was not answered.
    Remains(SessionId),
}

/// A lock command that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) since: Instant,
    pub(crate) limit: Option<Instant>,
    /// Its user waits for as long as it takes, or up to the limit.
    pub(crate) patient: bool,
}

/// How far closing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The agent works.
    No,
    /// Everything is given up; the server is asked to end the session.
    Asked,
    /// There is nothing left.
    Done,
}

/// A client agent without sockets, clocks or threads: a [`Machine`] that a driver turns, with commands and events beside it.
///
/// Commands come by [`Agent::submit`] and end in what it returns or in an [`Event::Done`]; after each call of any function, take the
/// events by [`Agent::poll_event`] until it gives `None`. A driver turns it as [`Machine`] says.
#[derive(Debug)]
pub struct Agent {
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    /// Who speaks, at the start of each line of the log.
    pub(crate) who: String,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
    pub(crate) now: Instant,
    // The session.
    pub(crate) session: Option<Session>,
    pub(crate) opening: Option<Opening>,
    /// Former sessions that are not known to have ended, oldest first.
    pub(crate) former: Vec<Remains>,
    /// Locks of former sessions are being taken over into the present one.
    pub(crate) reclaim: Option<Reclaim>,
    /// Mutations of former sessions whose outcome is not known.
    pub(crate) questions: Questions,
    /// The server as last seen.
    pub(crate) known: Option<ServerIdentity>,
    /// What the WELCOME of the newest session said of the server: it is known once it has answered something in that session.
    pub(crate) offered: Option<ServerIdentity>,
    /// Not before this a handshake begins (R59, R86).
    pub(crate) not_before: Option<Instant>,
    pub(crate) lease: Lease,
    // What users want and have.
    pub(crate) cache: Cache,
    pub(crate) locks: Locks,
    pub(crate) ops: Ops,
    /// Requests of operations that were never sent.
    pub(crate) out: VecDeque<Outbound>,
    /// Requests of recovery that were never sent; they go before all others.
    pub(crate) recovery: VecDeque<(Asker, Vec<u8>)>,
    /// Requests for locks that were never sent.
    pub(crate) asks: VecDeque<(Asker, Vec<u8>)>,
    pub(crate) waits: BTreeMap<OpId, Waiting>,
    pub(crate) watches: Watches,
    /// Files that go with the session.
    pub(crate) own_ephemerals: BTreeSet<ObjectId>,
    pub(crate) events: VecDeque<Event>,
    /// Something was done that may have given the driver something to do, or another time to wake.
    pub(crate) stirred: bool,
    // Time.
    pub(crate) timers: TimerQueue<Timer>,
    /// When a user last did something.
    pub(crate) used: Instant,
    /// What the holders of locks were told last of the lease.
    pub(crate) told: Told,
    pub(crate) closing: Closing,
    /// The session that is being closed, while somebody here may act under it or its surrender is not answered.
    pub(crate) leaving: Option<SessionId>,
    pub(crate) stats: Stats,
}

impl Agent {
    /// An agent that has done nothing yet; it opens a session at one of `servers` (tried in turn) when a command needs one.
    ///
    /// `config` must have passed [`Config::check`]; `seed` must be one that nobody can guess.
    #[must_use]
    pub fn new(config: Config, mut identity: Identity, seed: [u8; 32], servers: Vec<SocketAddr>) -> Self {
        identity.label.truncate(LABEL_MAX);
        let start = Instant::new(0, 0);
        Self {
            who: alloc::format!("agent {}/{}", String::from_utf8_lossy(&identity.label), identity.incarnation),
            lease: Lease::new(config.phases),
            cache: Cache::new(config.cache),
            locks: Locks::new(config.advisory_max),
            ops: Ops::new(),
            config,
            identity,
            servers,
            rng: Rng::from_seed(seed),
            now: start,
            session: None,
            opening: None,
            former: Vec::new(),
            reclaim: None,
            questions: Questions::new(),
            known: None,
            offered: None,
            not_before: None,
            out: VecDeque::new(),
            recovery: VecDeque::new(),
            asks: VecDeque::new(),
            waits: BTreeMap::new(),
            watches: Watches::default(),
            own_ephemerals: BTreeSet::new(),
            events: VecDeque::new(),
            stirred: false,
            timers: TimerQueue::new(),
            used: start,
            told: Told::Nobody,
            closing: Closing::No,
            leaving: None,
            stats: Stats::default(),
        }
    }

    /// Takes a command. Answered from cache or by a local grant it ends here; otherwise its end comes as [`Event::Done`].
    pub fn submit(&mut self, now: Instant, command: Command) -> Submitted {
        self.advance(now);
        if let Command::Unlock { holder } = command {
            return Submitted::Now(self.unlock(holder));
        }
        if self.closing != Closing::No {
            return Submitted::Now(Err(OpError::Closed));
        }
        self.used = self.now;
        if let Command::Watch { object } = command {
            self.stirred = true;
            let result = self.begin_watch(object);
            self.tend();
            return Submitted::Now(result);
        }
        if let Command::Unwatch { watch } = command {
            self.stirred = true;
            let ended = self.end_watch(watch);
            self.tend();
            return Submitted::Now(if ended { Ok(Output::Done) } else { Err(OpError::Status(Status::NOT_HELD)) });
        }
        if self.ops.count() + self.waits.len() >= self.config.commands_max {
            return Submitted::Now(Err(OpError::Overloaded));
        }
        //= wire-spec.md#11-4-locks
        //# An agent MUST refuse with STALE_GUARD a guarded mutation whose token is not that of a user who holds the lock now.
        if command.guard().is_some_and(|guard| !self.locks.holds_token(guard.object, guard.token)) && !bugs::is(Bug::G1) {
            return Submitted::Now(Err(OpError::Status(Status::STALE_GUARD)));
        }
        if let Some(result) = self.at_once(&command) {
            return Submitted::Now(result);
        }
        self.stirred = true;
        let limit = match command {
            Command::Lock { wait: Wait::AtMost(span), .. } => Some(self.now.plus(span)),
            _ => None,
        };
        let submitted = self.with_ops(|ops, ctx| ops.submit(ctx, command));
        self.settle();
        if let (Some(limit), Submitted::Later(op)) = (limit, &submitted)
            && !self.waits.contains_key(op)
        {
            self.timers.set(Timer::Limit(*op), limit, Question::Waited);
        }
        // What was answered from cache has changed nothing; a local grant has a holder to be told of the lease.
        let untold = self.told == Told::Nobody && self.locks.counts().holders > 0;
        if untold || !matches!(submitted, Submitted::Now(_)) {
            self.tend();
        }
        submitted
    }

    /// Ends a command that its user no longer wants; it ends as [`Status::ECANCELED`], or as [`OpError::OutcomeUnknown`] if it may
    /// already have changed something. A command that is over is no matter.
    pub fn cancel(&mut self, now: Instant, op: OpId) {
        self.advance(now);
        self.stirred = true;
        self.end_command(op, OpError::Status(Status::ECANCELED));
        self.settle();
        self.tend();
    }

    /// Gives everything up and asks the server to end the session. Locks that are still held are lost, commands end as
    /// [`OpError::Closed`]. [`Agent::is_closed`] tells when it is done: answered, or after `close_within`.
    pub fn close(&mut self, now: Instant) {
        self.advance(now);
        self.stirred = true;
        if self.closing == Closing::No {
            self.begin_close();
            self.settle();
        }
    }

    /// Whether closing is done.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closing == Closing::Done
    }

    /// The next thing that users are to be told.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Done { op, .. } = event {
            self.timers.cancel(Timer::Limit(op));
        }
        Some(event)
    }
}

/// What the parts have in common.
impl Agent {
    /// Takes the time, which never goes back (R6), and tells holders that their locks are uncertain before anything else happens.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.told != Told::Uncertain && !self.lease.certain(self.now) && self.locks.counts().holders > 0 {
            self.tend_holders();
        }
    }

    /// What the lease that covers all locks allows now.
    pub(crate) fn permit(&self) -> Permit {
        self.lease.permit(self.now)
    }

    /// Calls the operations with everything that they may look at and touch.
    pub(crate) fn with_ops<R>(&mut self, call: impl FnOnce(&mut Ops, &mut Ctx<'_>) -> R) -> R {
        let permit = self.permit();
        let Self { ops, cache, locks, out, events, now, .. } = self;
        call(ops, &mut Ctx { now: *now, permit, cache, locks, out, events })
    }

    /// Carries out what changes of the locks lead to, until they lead to nothing more.
    pub(crate) fn settle(&mut self) {
        while let Some(effect) = self.cache.poll_release().map(Effect::Release).or_else(|| self.locks.poll_effect()) {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        let controls = self.session.as_mut().map(|session| &mut session.controls);
        match effect {
            Effect::Release(item) => {
                if let Some(controls) = controls {
                    controls.release(item);
                }
            }
            Effect::Ask { object, mode, wait } => {
                self.asks.push_back((Asker::Lock(object), Message::from(Lock { ask: UNASKED, object, mode, wait }).to_bytes()));
            }
            Effect::Extend { object, generation } => {
                let lock = LockId { object, class: LockClass::Advisory };
                self.asks.push_back((Asker::Run(object), Message::from(ExtendRun { ask: UNASKED, lock, generation }).to_bytes()));
            }
            Effect::Cancel { object } => self.take_back(object),
            Effect::Rest { object, span } => {
                self.timers.set(Timer::Rest(object), self.now.plus(span), Question::Waited);
                self.wait_on(object);
            }
            Effect::Waits { op, wait } => self.wait(op, wait),
            Effect::Done { op, result } => {
                self.waits.remove(&op);
                self.timers.cancel(Timer::Wait(op));
                self.events.push_back(Event::Done { op, result: result.map(Output::Locked) });
            }
            Effect::Tell { holder, object, what } => {
                if let (Some(reclaim), LockEvent::Lost) = (&mut self.reclaim, what) {
                    reclaim.stopping.insert(holder);
                }
                self.events.push_back(Event::Lock { holder, object, what });
            }
        }
    }

    /// A request for a lock is taken back: before it was sent without a message, afterwards by CANCEL.
    fn take_back(&mut self, object: ObjectId) {
        let unsent = self.asks.iter().position(|(asker, _)| *asker == Asker::Lock(object));
        if let Some(place) = unsent {
            self.asks.remove(place);
            self.locks.unasked(self.permit(), object);
        } else if let (Some(nonce), Some(session)) = (self.locks.nonce_of(object), &mut self.session) {
            session.cancels.insert(nonce, object);
            session.controls.cancel(nonce);
        }
    }

    fn wait(&mut self, op: OpId, wait: Wait) {
        let limit = match wait {
            // It began with the command, which may have been on its way to the lock since.
            Wait::AtMost(span) => self.timers.get(Timer::Limit(op)).or_else(|| Some(self.now.plus(span))),
            Wait::Try | Wait::Forever => None,
        };
        self.timers.cancel(Timer::Limit(op));
        self.waits.entry(op).or_insert(Waiting { since: self.now, limit, patient: wait != Wait::Try });
        self.time_wait(op);
    }

    /// The requests of the session have changed: what was disowned is remembered as long as any of them could bring it.
    pub(crate) fn note_horizon(&mut self) {
        if let Some(session) = &self.session {
            let (floor, next) = session.requests.horizon();
            self.cache.awaited(floor, next);
        }
    }

    /// The identity of a running command as the operations know it.
    pub(crate) const fn task(op: OpId) -> TaskId {
        TaskId(op.0)
    }
}

/// The request's nonce and floor are filled in when it is sent.
pub(crate) const UNASKED: Ask = Ask { nonce: 0, back: 0, limit: 0 };

impl Machine for Agent {
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &[u8]) {
        self.advance(now);
        self.stats.datagrams_in += 1;
        self.incoming(path, datagram);
        self.settle();
    }

    fn handle_drained(&mut self, now: Instant) {
        self.advance(now);
        self.run_timers();
        self.settle();
        self.tend();
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        self.advance(now);
        let path = self.next_datagram(buf)?;
        self.stats.datagrams_out += 1;
        Some(path)
    }

    fn wake_after(&mut self, now: Instant) -> Option<Duration> {
        self.advance(now);
        if self.has_datagram() {
            return Some(Duration::ZERO);
        }
        let own = self.timers.wake_after(self.now).map(|next| next.0);
        let session = self.session.as_ref().and_then(|session| session.timers.wake_after(self.now)).map(|next| next.0);
        let operations = self.ops.wake_after(self.now);
        [own, session, operations].into_iter().flatten().min()
    }

    fn max_datagram(&self) -> usize {
        self.config.max_datagram.into()
    }
}
