//! What can be seen and set of a running server: for SERVER_STATUS, for the operator's control socket, for tests.
//!
//! Decides which figures there are and what they are called, and which settings may change while sessions are open. Implements `wire-spec.md`
//! section 6.2 (SERVER_STATUS). Invariants: looking changes nothing; lists come in an order that depends on nothing but what happened; no law of
//! leases, no size of a table and nothing that an agent was told depends on a setting that may change.
//! Leaves to others: showing and reading them (`cistern-cli`).

pub use crate::sessions::grace::GraceStatus;

use crate::config::Config;
use crate::ids::Owner;
use crate::locks::{LockCounts, Struck};
use crate::principals::PrincipalId;
use crate::scheduler::WorkCounts;
use crate::server::{Identity, Phase, Server};
use crate::sessions::SessionKey;
use crate::sessions::grace::Grace;
use crate::sessions::session::Session;
pub use crate::share::Used;
use crate::stats::Stats;
use crate::store::{AccountRecord, Counter, Memory, PrincipalRecord};
use crate::transport::validation::AnswerRate;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{AgentId, Form, GroupMember, Handle, List, ServerReport, SessionId};
use core::net::SocketAddr;
use core::time::Duration;

/// What the server is and how it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Who it is.
    pub identity: Identity,
    /// Whether it serves; false before its store has answered its first questions, and after the store failed.
    pub serving: bool,
    /// Why its store failed, if it did.
    pub failure: Option<String>,
    /// Whether its store has room: without it only what takes something away is executed.
    pub room: bool,
    /// Since it started.
    pub uptime: Duration,
    /// Lease period τ.
    pub lease: Duration,
    /// T: how long a silent agent's locks are kept from others.
    pub wait: Duration,
    /// Sessions in good standing.
    pub sessions: usize,
    /// Sessions timing out: the only lease state there is.
    pub timing_out: usize,
    /// Locks held, of both classes.
    pub locks: usize,
    /// Lock requests and mutations that wait for locks.
    pub waiting: usize,
    /// Watches, those included of which only a receipt is awaited.
    pub watches: usize,
    /// Ephemeral files, those of named leases among them.
    pub ephemerals: usize,
    /// Named leases: each has a timer, by request.
    pub named_leases: usize,
    /// Operations that wait, for locks or for the store.
    pub parked: usize,
    /// Replies, new sessions and ends that wait for the store.
    pub held: usize,
    /// Time for which the server did not listen, since it started.
    pub stalled: Duration,
    /// The grace after a restart, as long as it lasts: no locks are granted.
    pub grace: Option<GraceStatus>,
    /// Objects whose advisory locks are withheld, during and after the grace, for long sessions that may still hold them.
    pub withheld: usize,
}

/// One session, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// The session.
    pub session: SessionId,
    /// Whose.
    pub agent: AgentId,
    /// Which start of the agent.
    pub incarnation: u64,
    /// Public name of the session, which other agents are told.
    pub handle: Handle,
    /// What people call the agent; any bytes.
    pub label: Box<[u8]>,
    /// The proven address.
    pub address: SocketAddr,
    /// Its standing, in words.
    pub standing: &'static str,
    /// What is left of T when it is timing out.
    pub left: Option<Duration>,
    /// Since it was opened.
    pub age: Duration,
    /// Locks that it holds, of both classes.
    pub locks: usize,
    /// Its lock requests that wait.
    pub waits: usize,
    /// Its lease period τ.
    pub lease: Duration,
    /// How long others wait at most for an advisory lock of it, from when they ask, if it is gone: probe period, Td' and T.
    pub failover: Duration,
    /// Whether somebody waits for it to give something back.
    pub waited_for: bool,
    /// Notices that it has not receipted.
    pub notices: usize,
}

/// A principal and what its sessions use, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalRow {
    /// Its number.
    pub id: PrincipalId,
    /// What the store keeps of it; `None`: it has no record, as who needs no key, or as a number that the settings name and nobody has.
    pub record: Option<PrincipalRecord>,
    /// Its sessions, those included that time out, or were not taken up after a restart.
    pub sessions: Used,
    /// Locks that they hold, of both classes.
    pub locks: Used,
    /// Their lock requests that wait.
    pub waits: Used,
    /// Objects that they watch.
    pub watches: Used,
    /// Bytes that they have staged.
    pub staged: Used,
    /// Whether it is given no cache locks; in clear, the host of a session of it.
    pub struck: Struck,
    /// What it has made that is still there, and how much may be.
    pub account: AccountRecord,
    /// When it was heard last, in seconds since 1970, to the minute; 0: not since the start; `None`: the setting `last-seen` is off.
    pub last_seen_s: Option<u64>,
}

/// Every figure that there is, at one moment, for those who watch the server over time.
#[derive(Clone, Debug)]
pub struct Figures {
    /// What the server is and how it is.
    pub status: Status,
    /// The counters.
    pub stats: Stats,
    /// The lock table.
    pub locks: LockCounts,
    /// Half-open sessions, and those that are over and not freed yet.
    pub half_open_and_over: (usize, usize),
    /// What is in memory of the store.
    pub memory: Memory,
    /// What waits for its owner's turn, and what everything was charged.
    pub work: WorkCounts,
    /// Objects in the namespace.
    pub objects: u64,
    /// Bytes of contents in it.
    pub content_bytes: u64,
    /// How many deadlines about silence there are.
    pub listening: usize,
}

impl Server {
    /// Every figure that there is; costs a copy of some tens of kilobytes, however large the tables are.
    #[must_use]
    pub fn figures(&self, now: Instant) -> Figures {
        let counts = self.sessions.counts();
        Figures {
            status: self.status(now),
            stats: self.stats.clone(),
            locks: self.locks.counts(),
            half_open_and_over: (self.half_open.len(), counts.ending),
            memory: self.store.memory(),
            work: self.scheduler.counts(),
            objects: self.store.count_of(Counter::Objects),
            content_bytes: self.store.count_of(Counter::Bytes),
            listening: self.listening.len(),
        }
    }

    /// What the server is and how it is.
    #[must_use]
    pub fn status(&self, now: Instant) -> Status {
        let now = self.now.max(now);
        let (counts, locks) = (self.sessions.counts(), self.locks.counts());
        Status {
            identity: self.identity,
            serving: self.phase == Phase::Serving,
            failure: self.failure.clone(),
            room: self.namespace.has_room(),
            uptime: now.since(self.started),
            lease: self.config.lease,
            wait: self.config.wait(),
            sessions: counts.good,
            timing_out: counts.timing_out,
            locks: locks.held,
            waiting: locks.waiters + locks.mutations,
            watches: self.watches.len(),
            ephemerals: self.ephemerals.len(),
            named_leases: self.leases.len(),
            parked: self.tasks.len(),
            held: self.after_commit.len(),
            stalled: self.delivery.stalled(),
            grace: self.grace.as_ref().filter(|grace| grace.is_common()).map(|grace| grace.status(now)),
            withheld: self.grace.as_ref().map_or(0, Grace::withheld),
        }
    }

    /// All sessions.
    #[must_use]
    pub fn sessions(&self, now: Instant) -> Vec<SessionRow> {
        let now = self.now.max(now);
        self.sessions.iter().map(|session| self.session_row(session, now)).collect()
    }

    /// One session, in lists.
    pub(super) fn session_row(&self, session: &Session, now: Instant) -> SessionRow {
        SessionRow {
            session: session.id,
            agent: session.agent,
            incarnation: session.incarnation,
            handle: session.handle,
            label: session.label.clone(),
            address: session.path.remote,
            standing: session.standing().name(),
            left: session.standing().bound(now),
            age: Duration::from_nanos(now.boot_ns.saturating_sub(session.opened_ns)),
            locks: self.locks.holds(session.slot),
            waits: self.locks.waits(session.slot),
            lease: session.lease(),
            failover: self.config.failover_bound(session.lease()),
            waited_for: self.locks.is_waited_for(session.slot),
            notices: session.notices.as_ref().map_or(0, |notices| notices.len()),
        }
    }

    /// All principals, those that were revoked included, and everybody who needs no key, by their numbers.
    #[must_use]
    pub fn principals(&self) -> Vec<PrincipalRow> {
        let row = |id, record| PrincipalRow {
            id,
            record,
            sessions: Used::default(),
            locks: Used::default(),
            waits: Used::default(),
            watches: Used::default(),
            staged: Used::default(),
            struck: self.locks.struck(self.now, Owner::Key(id)),
            account: AccountRecord::default(),
            last_seen_s: self.config.last_seen.then(|| self.principals.seen_s(id)),
        };
        let known = self.principals.iter().map(|(id, record)| (id, row(id, Some(record.clone()))));
        let mut rows: BTreeMap<PrincipalId, PrincipalRow> = known.collect();
        rows.insert(PrincipalId::ANYBODY, row(PrincipalId::ANYBODY, None));
        for session in self.sessions.iter() {
            let row = rows.entry(session.principal).or_insert_with_key(|id| row(*id, None));
            row.sessions.now += 1;
            row.locks.now += self.locks.holds(session.slot);
            row.waits.now += self.locks.waits(session.slot);
            row.watches.now += self.watches.count_of(session.id);
            row.staged.now += self.stages.bytes_of(session.id);
            row.struck = row.struck.max(self.locks.session_struck(self.now, session.slot));
        }
        rows.values_mut().for_each(|row| row.account = self.store.account(row.id));
        // In clear it is hosts that have shares.
        for row in rows.values_mut().filter(|row| self.form() == Form::Record && row.id != PrincipalId::ANYBODY) {
            let [(sessions, all), (locks, held), (waits, waiting)] =
                [self.shared_sessions(), self.locks.shared(), self.locks.shared_waits()];
            let ((watches, watched), (staged, bytes)) = (self.watches.shared(self.config.presence), self.stages.shared());
            row.sessions = sessions.used(all, row.sessions.now);
            row.sessions.most = row.sessions.most.min(self.config.network_sessions_max as usize).max(row.sessions.now);
            row.locks = locks.used(held, row.locks.now);
            row.waits = waits.used(waiting, row.waits.now);
            row.watches = watches.used(watched, row.watches.now);
            row.staged = staged.used(bytes, row.staged.now);
        }
        rows.into_values().collect()
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// How many lease timers run: one for each session timing out, none without a failure (section 11.3).
    #[must_use]
    pub fn lease_timers(&self) -> usize {
        self.lease_timers.len()
    }

    /// All that is kept of a session but what its requests and notices leave behind, as text, for comparison: no renewal may change it
    /// while `last-heard` is off (section 11.3). `None` if there is no such session.
    #[must_use]
    pub fn kept(&self, session: SessionId) -> Option<String> {
        Some(self.sessions.get(self.sessions.find(session)?).filter(|session| session.is_live())?.kept())
    }

    /// How many deadlines about silence there are: none while nobody waits for anybody.
    #[must_use]
    pub fn listening(&self) -> usize {
        self.listening.len()
    }

    /// The answer to SERVER_STATUS.
    pub(crate) fn report<'a>(&self, asking: SessionKey, objects: u64, uptime_ms: u64, members: &'a [GroupMember<'a>]) -> ServerReport<'a> {
        let (counts, locks) = (self.sessions.counts(), self.locks.counts());
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        ServerReport {
            store: self.identity.store,
            epoch: self.identity.epoch,
            incarnation: self.identity.incarnation,
            uptime_ms,
            agent: self.sessions.get(asking).map_or(AgentId([0; 16]), |session| session.agent),
            sessions: count(counts.good),
            timing_out: count(counts.timing_out),
            locks: locks.held as u64,
            waiters: count(locks.waiters),
            objects,
            requests: self.stats.requests,
            demands: locks.demands,
            delivery_failures: self.stats.failures,
            steals: self.stats.steals,
            drops: self.stats.drops_total(),
            place: self.group.as_ref().map_or(0, |group| group.me + 1),
            members: List::of(members),
        }
    }
}

/// The settings that [`Server::adopt`] takes up, by the names of [`Config::check`].
pub const LIVE: [&str; 9] = [
    "plain-principal",
    "sessions-max",
    "network-sessions-max",
    "opening-max",
    "challenges-per-second",
    "hint-interval",
    "notices-in-flight",
    "answer-bytes-max",
    "freed-per-turn",
];

impl Server {
    /// Takes up what is [`LIVE`] of `config`, which has passed [`Config::check`]; everything else stays as it was.
    pub fn adopt(&mut self, now: Instant, config: &Config) {
        self.step(now, |server| {
            server.config.plain_principal = config.plain_principal;
            server.config.sessions_max = config.sessions_max;
            server.config.network_sessions_max = config.network_sessions_max;
            server.config.opening_max = config.opening_max;
            server.config.notices_in_flight = config.notices_in_flight;
            server.config.answer_bytes_max = config.answer_bytes_max;
            server.config.freed_per_turn = config.freed_per_turn;
            if server.config.challenges_per_second != config.challenges_per_second {
                server.config.challenges_per_second = config.challenges_per_second;
                server.challenges = AnswerRate::of_challenges(now, config.challenges_per_second);
            }
            if server.config.hint_interval != config.hint_interval {
                server.config.hint_interval = config.hint_interval;
                server.hints = AnswerRate::of_hints(now, config.hint_interval);
            }
        });
    }
}
