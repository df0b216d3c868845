//! How the agent's lease and its server are.
//!
//! The agent and the wire have views of the same shape: these are the client's own, so that those can change without its users' code.

use cistern_agent::api;
use cistern_agent::api::ServerHeard;
use cistern_link::Instant;
use cistern_wire::ServerReport;
use std::time::Duration;

/// Where the lease stands: parts of its period since it was renewed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// No session is open.
    NoSession,
    /// Renewed not long ago.
    Valid,
    /// Keep-alives are sent if it is worth it.
    Renewing,
    /// No new operation starts.
    Suspect,
    /// What is owed to external storage is written.
    Flush,
    /// Over: nothing of the cache or the locks may be used until the server renews it.
    Expired,
}

impl Phase {
    const fn of(phase: api::Phase) -> Self {
        match phase {
            api::Phase::NoSession => Self::NoSession,
            api::Phase::Valid => Self::Valid,
            api::Phase::Renewing => Self::Renewing,
            api::Phase::Suspect => Self::Suspect,
            api::Phase::Flush => Self::Flush,
            api::Phase::Expired => Self::Expired,
        }
    }
}

/// The agent's lease as it stands, and what the agent holds and has done under it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseView {
    /// Its phase.
    pub phase: Phase,
    /// The session, in hexadecimal digits, if one is open.
    pub session: Option<String>,
    /// The former session whose locks are being taken over into this one; until that is done the lease shown is the former one's.
    pub reclaiming: Option<String>,
    /// The lease period.
    pub lease: Duration,
    /// Time until the lease is over; zero when it is.
    pub left: Duration,
    /// When it is over, on this machine's lease clock.
    pub valid_until: Option<Instant>,
    /// Renewals by answers to ordinary requests and control messages.
    pub renewals_opportunistic: u64,
    /// Renewals by keep-alives.
    pub renewals_explicit: u64,
    /// Demands received (each counted once).
    pub demands: u64,
    /// Sessions lost because the server said so.
    pub nacks: u64,
    /// Cache locks held, shared and exclusive.
    pub cache_locks: u64,
    /// Advisory locks held by the agent.
    pub advisory_locks: u64,
    /// Of these, how many guards hold.
    pub holders: u64,
    /// Files watched.
    pub watches: u64,
    /// Ephemeral files that go with the session.
    pub ephemerals: u64,
    /// Requests sent (first transmissions).
    pub requests: u64,
    /// Datagrams sent.
    pub datagrams_out: u64,
    /// Datagrams received.
    pub datagrams_in: u64,
    /// Retransmissions.
    pub retransmissions: u64,
    /// Operations answered from cache, with no message.
    pub cache_hits: u64,
    /// Smoothed round trip.
    pub round_trip: Option<Duration>,
}

impl LeaseView {
    pub(crate) fn of(view: &api::LeaseView) -> Self {
        Self {
            phase: Phase::of(view.phase),
            session: view.session.map(|session| session.to_string()),
            reclaiming: view.reclaiming.map(|session| session.to_string()),
            lease: view.lease,
            left: view.left,
            valid_until: view.valid_until,
            renewals_opportunistic: view.renewals_opportunistic,
            renewals_explicit: view.renewals_explicit,
            demands: view.demands,
            nacks: view.nacks,
            cache_locks: view.cache_locks,
            advisory_locks: view.advisory_locks,
            holders: view.holders,
            watches: view.watches,
            ephemerals: view.ephemerals,
            requests: view.requests,
            datagrams_out: view.datagrams_out,
            datagrams_in: view.datagrams_in,
            retransmissions: view.retransmissions,
            cache_hits: view.cache_hits,
            round_trip: view.round_trip,
        }
    }
}

/// What a server is, and how it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// The store's id, in hexadecimal digits.
    pub store: String,
    /// How often the store was restored from a backup.
    pub epoch: u8,
    /// Which start of the server this is.
    pub incarnation: u64,
    /// Since it was started.
    pub uptime: Duration,
    /// Sessions in good standing.
    pub sessions: u32,
    /// Sessions that are timing out.
    pub timing_out: u32,
    /// Locks held, on contents and by applications.
    pub locks: u64,
    /// Requests that wait for a lock.
    pub waiters: u32,
    /// Files, directories and symbolic links.
    pub objects: u64,
    /// Requests carried out since the start.
    pub requests: u64,
    /// Locks demanded back since the start.
    pub demands: u64,
    /// Messages to agents that nobody confirmed in time, since the start.
    pub delivery_failures: u64,
    /// Sessions whose locks were given to others, since the start.
    pub steals: u64,
    /// Datagrams dropped since the start, for whatever reason.
    pub drops: u64,
    /// The servers of its group, in the order of their list; none: it is the only one of its store.
    pub group: Vec<ServerMember>,
}

/// A server of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerMember {
    /// As the group's list has it.
    pub name: String,
    /// Whether it serves; the others stand by.
    pub serves: bool,
    /// How long ago the one that serves has heard it; `None`: not yet.
    pub heard: Option<Duration>,
}

impl ServerStatus {
    pub(crate) fn of(report: &ServerReport<'_>, group: Vec<ServerHeard>) -> Self {
        let member = |(place, member): (usize, ServerHeard)| ServerMember {
            name: String::from_utf8_lossy(&member.name).into_owned(),
            serves: place + 1 == usize::from(report.place),
            heard: member.heard,
        };
        Self {
            store: report.store.to_string(),
            epoch: report.epoch,
            incarnation: report.incarnation,
            uptime: Duration::from_millis(report.uptime_ms),
            sessions: report.sessions,
            timing_out: report.timing_out,
            locks: report.locks,
            waiters: report.waiters,
            objects: report.objects,
            requests: report.requests,
            demands: report.demands,
            delivery_failures: report.delivery_failures,
            steals: report.steals,
            drops: report.drops,
            group: group.into_iter().enumerate().map(member).collect(),
        }
    }
}
