//! The machine: its public calls, and the order within each.
//!
//! Every call is one critical section at one instant, time does not go back, and all that a call leads to is done before it returns. Of the
//! parts below only this folder sees more than one; `ARCHITECTURE.md` shows them and the walks through them.

mod commands;
mod contact;
mod discard;
mod handshake;
mod incoming;
mod recovery;
pub(crate) mod roster;
mod sealed;
mod settle;

use crate::agent::recovery::Fates;
use crate::agent::roster::RosterWatch;
use crate::api::{Command, Event, HolderId, HolderView, LeaseView, OpError, OpId, Output, Submitted, Wait};
use crate::cache::Cache;
use crate::call::{Timer, Timers};
use crate::config::{Config, ConfigError};
use crate::keys::Keys;
use crate::lease::{Lease, Permit};
use crate::locks::Locks;
use crate::session::Sessions;
use crate::session::handshake::{Handshake, ServerIdentity};
use crate::session::reclaim::Reclaim;
use crate::stats::{Drops, Stats};
use crate::tasks::{Ctx, Tasks};
use crate::transport::{Channel, SendQueue};
use crate::users::{HoldersTold, Watches};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, Machine, Path, Question, Rng};
use cistern_seal::Cipher;
use cistern_wire::limits::LABEL_MAX;
use cistern_wire::{AgentId, ObjectId, SessionId, Status};
use core::net::SocketAddr;
use core::time::Duration;

/// Who the agent is; made durable by the client library before it is used.
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

/// A lock command that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Instant,
    limit: Option<Instant>,
    /// Its user waits for as long as it takes, or up to the limit.
    patient: bool,
}

/// How far closing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    /// The agent works.
    No,
    /// Everything is given up; the server is asked to end this session, if there was one.
    Asked(Option<SessionId>),
    /// There is nothing left.
    Done,
}

/// A client agent without sockets, clocks or threads: a [`Machine`] that a driver turns, with commands and events beside it.
///
/// Commands come by [`Agent::submit`] and end in what it returns or in an [`Event::Done`]; after each call of any function, take the
/// events by [`Agent::poll_event`] until it gives `None`. A driver turns it as [`Machine`] says.
#[derive(Debug)]
pub struct Agent {
    config: Config,
    identity: Identity,
    /// Who speaks, at the start of each line of the log.
    who: String,
    servers: Vec<SocketAddr>,
    rng: Rng,
    now: Instant,
    // The session.
    sessions: Sessions,
    handshake: Option<Handshake>,
    /// By which sealed sessions are opened; without them plain ones are.
    keys: Option<Keys>,
    cipher: Cipher,
    /// What is known of the cluster's roster; none: nobody keeps one.
    roster: Option<RosterWatch>,
    /// Room for the messages of a record.
    text: Vec<u8>,
    /// Locks of former sessions are being taken over into the present one.
    reclaim: Option<Reclaim>,
    /// The server as last seen: one that has opened a session.
    known: Option<ServerIdentity>,
    /// What the WELCOME of the present session said of the server: it is known once it has opened that.
    offered: Option<ServerIdentity>,
    /// Not before this a handshake begins.
    not_before: Option<Instant>,
    lease: Lease,
    // What users want and have.
    cache: Cache,
    locks: Locks,
    tasks: Tasks,
    /// Requests that were never sent.
    queue: SendQueue,
    waits: BTreeMap<OpId, Waiting>,
    watches: Watches,
    events: VecDeque<Event>,
    /// Something changed that [`Agent::upkeep`] has to look at before the call returns.
    dirty: bool,
    /// There may be something to send: set whenever anything has changed, cleared only by `poll_transmit` giving `None`.
    output_due: bool,
    // Time.
    timers: Timers,
    /// When a user last did something.
    used: Instant,
    holders_told: HoldersTold,
    closing: Closing,
    stats: Stats,
}

impl Agent {
    /// An agent that has done nothing yet; it opens a session at one of `servers` (tried in turn) when a command needs one.
    ///
    /// `seed` must be one that nobody can guess.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn new(config: Config, mut identity: Identity, seed: [u8; 32], servers: Vec<SocketAddr>) -> Result<Self, ConfigError> {
        config.check()?;
        identity.label.truncate(LABEL_MAX);
        let start = Instant::new(0, 0);
        Ok(Self {
            who: alloc::format!("agent {}/{}", String::from_utf8_lossy(&identity.label), identity.incarnation),
            lease: Lease::new(config.phases),
            cache: Cache::new(config.cache),
            locks: Locks::new(config.advisory_max),
            tasks: Tasks::new(),
            config,
            identity,
            servers,
            rng: Rng::from_seed(seed),
            now: start,
            sessions: Sessions::default(),
            handshake: None,
            keys: None,
            cipher: Cipher::default(),
            roster: None,
            text: Vec::new(),
            reclaim: None,
            known: None,
            offered: None,
            not_before: None,
            queue: SendQueue::default(),
            waits: BTreeMap::new(),
            watches: Watches::default(),
            events: VecDeque::new(),
            dirty: false,
            output_due: false,
            timers: Timers::new(),
            used: start,
            holders_told: HoldersTold::nothing(),
            closing: Closing::No,
            stats: Stats::default(),
        })
    }

    /// The same agent in the sealed mode: it sends and takes nothing in clear.
    #[must_use]
    pub fn sealed(self, keys: Keys, cipher: Cipher) -> Self {
        Self { keys: Some(keys), cipher, ..self }
    }

    /// Takes a command. Answered from cache or by a local grant it ends here; otherwise its end comes as [`Event::Done`].
    pub fn submit(&mut self, now: Instant, command: Command) -> Submitted {
        self.enter(now, |agent| agent.begin(command))
    }

    fn begin(&mut self, command: Command) -> Submitted {
        if let Command::Unlock { holder } = command {
            return Submitted::Now(self.unlock(holder));
        }
        if self.closing != Closing::No {
            return Submitted::Now(Err(OpError::Closed));
        }
        self.used = self.now;
        if let Command::Watch { object } = command {
            self.dirty = true;
            return Submitted::Now(self.with_watches(|watches| watches.begin(object)).map(Output::Watching));
        }
        if let Command::Unwatch { watch } = command {
            self.dirty = true;
            let ended = self.with_watches(|watches| watches.end(watch));
            return Submitted::Now(if ended { Ok(Output::Done) } else { Err(OpError::Status(Status::NOT_HELD)) });
        }
        if self.tasks.count() + self.waits.len() >= self.config.commands_max {
            return Submitted::Now(Err(OpError::Overloaded));
        }
        //= wire-spec.md#11-4-locks
        //# An agent MUST refuse with STALE_GUARD a guarded mutation whose token is not that of a user who holds the lock now.
        if command.guard().is_some_and(|guard| !self.locks.holds_token(guard.object, guard.token)) && !bugs::is(Bug::G1) {
            return Submitted::Now(Err(OpError::Status(Status::STALE_GUARD)));
        }
        let submitted = match self.with_tasks(|tasks, ctx| tasks.at_once(ctx, &command)) {
            Some(result) => Submitted::Now(result),
            None => self.begin_task(command),
        };
        // The first user of a lock has to be told of the lease, which is from now on renewed for it.
        self.dirty |= self.holders_told.is_nobody() && self.locks.counts().holders > 0;
        submitted
    }

    fn begin_task(&mut self, command: Command) -> Submitted {
        let limit = match command {
            Command::Lock { wait: Wait::AtMost(span), .. } => Some(self.now.plus(span)),
            _ => None,
        };
        let submitted = self.with_tasks(|tasks, ctx| tasks.submit(ctx, command));
        if let Submitted::Later(op) = submitted {
            self.dirty = true;
            if let Some(limit) = limit {
                self.timers.set(Timer::Wait(op), limit, Question::Waited);
            }
        }
        submitted
    }

    /// A local user gives a lock back; one that it lost meanwhile says only that it has stopped.
    fn unlock(&mut self, holder: HolderId) -> Result<Output, OpError> {
        self.used = self.now;
        if self.locks.unlock(self.permit(), holder) {
            return Ok(Output::Done);
        }
        self.dirty = true;
        self.has_stopped(holder);
        Err(OpError::LeaseLost)
    }

    /// Ends a command that its user no longer wants; it ends as [`Status::ECANCELED`], or as [`OpError::OutcomeUnknown`] if it may
    /// already have changed something. A command that is over is no matter.
    pub fn cancel(&mut self, now: Instant, op: OpId) {
        self.enter(now, |agent| {
            agent.dirty = true;
            agent.end_command(op, OpError::Status(Status::ECANCELED));
        });
    }

    /// Gives everything up and asks the server to end the session. Locks that are still held are lost, commands end as
    /// [`OpError::Closed`]. [`Agent::is_closed`] tells when it is done: answered, or after `close_within`.
    pub fn close(&mut self, now: Instant) {
        self.enter(now, |agent| {
            if agent.closing == Closing::No {
                agent.dirty = true;
                agent.begin_close();
            }
        });
    }

    /// This process may be a copy of one that goes on, as in a machine that was resumed from a snapshot. All that is held is lost; in the
    /// sessions so far nothing more is sent, for the other one seals under the same numbers, and the next one names them lost. To be called
    /// before this agent is asked what to send (`docs/sealed.md`). `seed` must be one that the other copy has not.
    pub fn handle_copied(&mut self, now: Instant, seed: [u8; 32]) {
        self.enter(now, |agent| {
            agent.dirty = true;
            // Or both would number their handshakes alike.
            agent.rng = Rng::from_seed(seed);
            agent.session_over("this machine was resumed from a snapshot", &Fates::default());
            // What was asked the other one has asked, too, and is offered the same.
            agent.shake_anew();
            agent.sessions.abandon(&mut agent.timers);
        });
    }

    /// Whether closing is done.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closing == Closing::Done
    }

    /// Says that datagrams to the server may leave from another address from now on. A driver calls it when it has learned so; a call in
    /// vain costs a keep-alive at most.
    pub fn handle_moved(&mut self, now: Instant) {
        self.enter(now, |agent| {
            agent.dirty = true;
            agent.moved();
        });
    }

    /// How every session stands, oldest first.
    #[cfg(test)]
    pub(crate) fn session_states(&self) -> Vec<(SessionId, &'static str)> {
        self.sessions.states()
    }

    /// The next thing that users are to be told.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// Looks from outside: they change nothing, need no timer, and are right at the moment at which they are taken.
impl Agent {
    /// The lease and what it covers, for people.
    #[must_use]
    pub fn view(&self, now: Instant) -> LeaseView {
        let now = self.now.max(now);
        let counts = self.locks.counts();
        let valid_until = self.lease.valid_until();
        let (renewals_opportunistic, renewals_explicit) = self.lease.renewals();
        LeaseView {
            phase: self.lease.phase(now),
            session: self.sessions.present(),
            reclaiming: self.sessions.sources().last().map(|source| source.0),
            lease: self.lease.tau(),
            left: valid_until.map_or(Duration::ZERO, |until| now.until_lease_over(until)),
            valid_until,
            renewals_opportunistic,
            renewals_explicit,
            demands: self.stats.demands,
            nacks: self.stats.nacks,
            cache_locks: self.cache.len() as u64,
            advisory_locks: counts.held as u64,
            holders: counts.holders as u64,
            watches: self.watches.len() as u64,
            ephemerals: self.sessions.ephemerals() as u64,
            requests: self.stats.requests,
            datagrams_out: self.stats.datagrams_out,
            datagrams_in: self.stats.datagrams_in,
            retransmissions: self.stats.retransmissions,
            cache_hits: self.tasks.hits(),
            round_trip: self.sessions.channel().and_then(Channel::round_trip),
        }
    }

    /// Whether an ephemeral file goes with this agent's session, as far as is known.
    #[must_use]
    pub fn owns_ephemeral(&self, object: ObjectId) -> bool {
        self.sessions.owns_ephemeral(object)
    }

    /// How many changes were given up whose outcome the agent still waits for: what they make may come later, and be this agent's.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.tasks.unsettled()
    }

    /// How certain a hold is now; `None` when it is gone. This is the check to make at the moment of use: it needs no timer.
    #[must_use]
    pub fn holder_view(&self, now: Instant, holder: HolderId) -> Option<HolderView> {
        let now = self.now.max(now);
        if !self.locks.is_held(holder) {
            return None;
        }
        let (valid_until, suspect_at) = (self.lease.valid_until()?, self.lease.suspect_at()?);
        //= wire-spec.md#11-1-lease
        //# The end of the lease, as told to users, MUST be an instant on a named clock, not a span.
        Some(HolderView { certain: self.lease.certain(now), valid_until, suspect_at })
    }

    /// Datagrams and messages dropped, by reason.
    #[must_use]
    pub const fn drops(&self) -> &Drops {
        &self.stats.drops
    }
}

/// What every call has in common.
impl Agent {
    /// One public call: time goes on, holders hear of the end of their lease before anything else happens, and all that the call leads to
    /// is done before it returns.
    fn enter<R>(&mut self, now: Instant, call: impl FnOnce(&mut Self) -> R) -> R {
        let result = self.act(now, call);
        if core::mem::take(&mut self.dirty) {
            self.upkeep();
            self.settle();
            // Whatever has changed may have made something to send, or room for it.
            self.output_due = true;
        }
        debug_assert_eq!(self.stuck(), None, "{}: nothing would make it go on", self.who);
        result
    }

    /// The same without the upkeep: what a datagram changes is looked after when the socket was found empty, once for all of a turn.
    fn act<R>(&mut self, now: Instant, call: impl FnOnce(&mut Self) -> R) -> R {
        self.now = self.now.max(now);
        if !self.holders_told.is_uncertain() && !self.lease.certain(self.now) && self.locks.counts().holders > 0 {
            self.tell_holders();
        }
        let result = call(self);
        self.dirty |= self.settle();
        result
    }

    /// What the lease that covers all locks allows now.
    fn permit(&self) -> Permit {
        self.lease.permit(self.now)
    }

    /// Calls the operations with everything that they may look at and touch.
    fn with_tasks<R>(&mut self, call: impl FnOnce(&mut Tasks, &mut Ctx<'_>) -> R) -> R {
        let permit = self.permit();
        let Self { tasks, cache, locks, queue: SendQueue { tasks: out, .. }, events, now, timers, .. } = self;
        call(tasks, &mut Ctx { now: *now, permit, cache, locks, out, events, timers })
    }
}

impl Machine for Agent {
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &[u8]) {
        self.act(now, |agent| {
            agent.stats.datagrams_in += 1;
            agent.incoming(path, datagram);
        });
    }

    fn handle_drained(&mut self, now: Instant) {
        self.enter(now, |agent| {
            agent.run_timers();
            agent.dirty = true;
        });
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        let path = self.act(now, |agent| {
            let path = if agent.output_due { agent.next_datagram(buf) } else { None };
            agent.output_due = path.is_some();
            agent.stats.datagrams_out += u64::from(path.is_some());
            path
        });
        debug_assert_eq!(self.stuck(), None, "{}: nothing would make it go on", self.who);
        path
    }

    fn wake_after(&mut self, now: Instant) -> Option<Duration> {
        if self.output_due {
            return Some(Duration::ZERO);
        }
        self.timers.wake_after(self.now.max(now)).map(|next| next.0)
    }

    fn max_datagram(&self) -> usize {
        self.config.max_datagram.into()
    }
}
