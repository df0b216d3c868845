//! The server at one moment, for people: what the page at the HTTP port and `cistern top` show.
//!
//! Decides what is told of it, and what of that names files, hosts and agents. Sessions are named by handle and label alone, never by id or by the
//! agent's identity: in clear, who knows these could act in an agent's name.
//! Leaves to others: which rows there are (`cistern_server::overview`), how they look (`metrics/page`, `commands::top`).

use crate::local::{LockRow, MemberRow, millis};
use crate::metrics::{Snapshot, StandbySnapshot};
use crate::server_control::who;
use crate::text::Text;
use cistern_server::stats::Histogram;
use cistern_server::{FailoverRow, LockUser, LockedObject, Overview, SessionRow, Stats};
use cistern_wire::RowState;
use serde::{Deserialize, Serialize};

/// The server at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OverviewReport {
    pub(crate) who: String,
    pub(crate) version: String,
    /// `starting`, `serving`, `grace`, `standby`, or why it stopped answering.
    pub(crate) state: String,
    /// What is left of the grace period.
    pub(crate) grace_left_ms: Option<u64>,
    pub(crate) room: bool,
    pub(crate) uptime_ms: u64,
    pub(crate) lease_ms: u64,
    /// Whether files, hosts and agents are named.
    pub(crate) named: bool,
    pub(crate) totals: Totals,
    pub(crate) counters: Counters,
    pub(crate) sessions: Vec<SessionShown>,
    pub(crate) locks: Vec<LockShown>,
    pub(crate) demands: Vec<DemandShown>,
    pub(crate) failovers: Vec<FailoverShown>,
    /// The group of servers, if there is one.
    pub(crate) group: Option<GroupShown>,
}

/// A group of servers, as one of them sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GroupShown {
    /// The member that tells.
    pub(crate) me: String,
    /// The one that has the group's lease, as far as it is known.
    pub(crate) serves: Option<String>,
    pub(crate) members: Vec<MemberRow>,
}

/// How long the tables are.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub(crate) sessions: usize,
    pub(crate) timing_out: usize,
    pub(crate) locks: usize,
    pub(crate) waiting: usize,
    pub(crate) demands: usize,
    pub(crate) watches: usize,
    pub(crate) ephemerals: usize,
    pub(crate) named_leases: usize,
    pub(crate) objects: u64,
    pub(crate) content_bytes: u64,
}

/// What only grows since the start; rates follow from two looks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub(crate) requests: u64,
    pub(crate) datagrams_in: u64,
    pub(crate) datagrams_out: u64,
    pub(crate) demands: u64,
    pub(crate) sessions_opened: u64,
    pub(crate) delivery_failures: u64,
    pub(crate) rescues: u64,
    pub(crate) steals: u64,
    pub(crate) drops: u64,
    /// From the hand-over of a batch until it is durable.
    pub(crate) commits: Spans,
    /// From the receipt of a request until its answer, as far as it waited for locks or the store.
    pub(crate) waits: Spans,
}

/// Spans that were measured: how many were at most each bound.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spans {
    pub(crate) bounds_us: Vec<u64>,
    pub(crate) up_to: Vec<u64>,
    pub(crate) count: u64,
}

/// A session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SessionShown {
    pub(crate) handle: String,
    pub(crate) label: Text,
    pub(crate) address: String,
    pub(crate) standing: String,
    pub(crate) left_ms: Option<u64>,
    pub(crate) age_ms: u64,
    pub(crate) locks: usize,
    pub(crate) waits: usize,
    pub(crate) lease_ms: u64,
    /// How long others wait for its locks at most if it is gone.
    pub(crate) failover_ms: u64,
    pub(crate) waited_for: bool,
}

/// A lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LockShown {
    pub(crate) object: u64,
    pub(crate) path: Text,
    /// Its holders, then its waiters; the first of each.
    pub(crate) users: Vec<LockRow>,
    pub(crate) more_holders: bool,
    pub(crate) waiters: usize,
}

/// A lock that a session is to give back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DemandShown {
    pub(crate) object: u64,
    pub(crate) path: Text,
    /// `cache` or `advisory`.
    pub(crate) class: String,
    pub(crate) mode: String,
    /// What may be kept: `nothing` or `shared`.
    pub(crate) keep: String,
    pub(crate) handle: String,
    pub(crate) label: Text,
    pub(crate) is_sent: bool,
    pub(crate) held_ms: u64,
}

/// A failover; spans in milliseconds after the failure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FailoverShown {
    pub(crate) handle: String,
    pub(crate) label: Text,
    pub(crate) cause: String,
    pub(crate) ago_ms: u64,
    pub(crate) locks: usize,
    pub(crate) wait_ms: u64,
    pub(crate) nacked_ms: Option<u64>,
    /// `rescued`, `waited` or `given up`; absent: the wait goes on.
    pub(crate) end: Option<String>,
    pub(crate) ended_ms: Option<u64>,
    pub(crate) freed_ms: Option<u64>,
}

impl OverviewReport {
    /// What is told of a snapshot and of what was seen at the same moment.
    pub(crate) fn new(snapshot: &Snapshot, overview: Overview) -> Self {
        let Overview { status, sessions, locks, demands, demands_outstanding, failovers } = overview;
        let (figures, stats) = (&snapshot.figures, &snapshot.figures.stats);
        let state = match (&status.failure, status.serving, &status.grace) {
            (Some(why), ..) => why.clone(),
            (None, false, _) => "starting".to_owned(),
            (None, true, Some(_)) => "grace".to_owned(),
            (None, true, None) => "serving".to_owned(),
        };
        Self {
            who: who(&status.identity),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state,
            grace_left_ms: status.grace.map(|grace| millis(grace.left)),
            room: status.room,
            uptime_ms: millis(status.uptime),
            lease_ms: millis(status.lease),
            named: true,
            totals: Totals {
                sessions: status.sessions,
                timing_out: status.timing_out,
                locks: status.locks,
                waiting: status.waiting,
                demands: demands_outstanding,
                watches: status.watches,
                ephemerals: status.ephemerals,
                named_leases: status.named_leases,
                objects: figures.objects,
                content_bytes: figures.content_bytes,
            },
            counters: Counters::of(stats, figures.locks.demands),
            sessions: sessions.into_iter().map(SessionShown::from).collect(),
            locks: locks.into_iter().map(LockShown::from).collect(),
            demands: demands.into_iter().map(DemandShown::from).collect(),
            failovers: failovers.into_iter().map(FailoverShown::from).collect(),
            group: snapshot.group.clone().and_then(|group| serde_json::from_value(group).ok()),
        }
    }

    /// What is told of a server that stands by: which one serves, as far as it knows.
    pub(crate) fn of_standby(snapshot: &StandbySnapshot) -> Self {
        let stats = Stats::default();
        Self {
            who: "server".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: "standby".to_owned(),
            grace_left_ms: None,
            room: true,
            uptime_ms: 0,
            lease_ms: snapshot.group["lease_ms"].as_u64().unwrap_or(0),
            named: true,
            totals: Totals::default(),
            counters: Counters::of(&stats, 0),
            sessions: Vec::new(),
            locks: Vec::new(),
            demands: Vec::new(),
            failovers: Vec::new(),
            group: serde_json::from_value(snapshot.group.clone()).ok(),
        }
    }

    /// The same without names: agents are handles, files are numbers, and hosts have no addresses.
    pub(crate) fn without_names(mut self) -> Self {
        self.named = false;
        let nameless = || Text(Vec::new());
        for session in &mut self.sessions {
            session.label = nameless();
            session.address.clear();
        }
        for lock in &mut self.locks {
            lock.path = nameless();
            lock.users.iter_mut().for_each(|user| user.label = nameless());
        }
        for demand in &mut self.demands {
            (demand.path, demand.label) = (nameless(), nameless());
        }
        self.failovers.iter_mut().for_each(|failover| failover.label = nameless());
        self.group = self.group.map(GroupShown::without_names);
        self
    }

    /// For an operator elsewhere, who need have no right to any object.
    #[must_use]
    pub(crate) fn without_objects(mut self) -> Self {
        self.locks.clear();
        self.demands.clear();
        self
    }
}

impl Counters {
    fn of(stats: &Stats, demands: u64) -> Self {
        Self {
            requests: stats.requests,
            datagrams_in: stats.received().0,
            datagrams_out: stats.transmitted().0,
            demands,
            sessions_opened: stats.opened,
            delivery_failures: stats.failures,
            rescues: stats.rescues,
            steals: stats.steals,
            drops: stats.drops_total(),
            commits: spans([stats.commits.times()]),
            waits: spans(stats.served.kinds().iter().map(|kind| kind.waits())),
        }
    }
}

impl GroupShown {
    fn without_names(self) -> Self {
        let place = |name: &String| self.members.iter().position(|member| member.name == *name);
        let numbered = |place: usize| format!("member {}", place + 1);
        let me = place(&self.me).map(numbered).unwrap_or_default();
        let serves = self.serves.as_ref().and_then(place).map(numbered);
        let row = |(place, member): (usize, &MemberRow)| MemberRow {
            name: numbered(place),
            address: None,
            heard_ms: member.heard_ms,
            trouble: member.trouble.as_ref().map(|_| "in trouble".to_owned()),
        };
        let members = self.members.iter().enumerate().map(row).collect();
        Self { me, serves, members }
    }
}

impl From<SessionRow> for SessionShown {
    fn from(row: SessionRow) -> Self {
        Self {
            handle: row.handle.to_string(),
            label: Text(row.label.into_vec()),
            address: row.address.to_string(),
            standing: row.standing.to_owned(),
            left_ms: row.left.map(millis),
            age_ms: millis(row.age),
            locks: row.locks,
            waits: row.waits,
            lease_ms: millis(row.lease),
            failover_ms: millis(row.failover),
            waited_for: row.waited_for,
        }
    }
}

impl From<LockedObject> for LockShown {
    fn from(lock: LockedObject) -> Self {
        let user = |user: LockUser| LockRow {
            object: lock.object.0,
            path: Text(Vec::new()),
            state: if user.state == RowState::Holds { "holds" } else { "waits" }.to_owned(),
            mode: user.mode.to_string(),
            token: user.token,
            handle: user.handle.to_string(),
            label: Text(user.label.into_vec()),
            since_ms: user.since_ms,
            standing: user.standing.to_string(),
            bound_ms: Some(user.bound_ms).filter(|ms| *ms > 0),
        };
        Self {
            object: lock.object.0,
            path: Text(lock.place.into_vec()),
            users: lock.rows.into_iter().map(user).collect(),
            more_holders: lock.more_holders,
            waiters: lock.waiters,
        }
    }
}

impl From<cistern_server::DemandRow> for DemandShown {
    fn from(demand: cistern_server::DemandRow) -> Self {
        Self {
            object: demand.object.0,
            path: Text(demand.place.into_vec()),
            class: demand.class.to_string(),
            mode: demand.mode.to_string(),
            keep: demand.keep.to_string(),
            handle: demand.handle.to_string(),
            label: Text(demand.label.into_vec()),
            is_sent: demand.is_sent,
            held_ms: millis(demand.held),
        }
    }
}

impl From<FailoverRow> for FailoverShown {
    fn from(row: FailoverRow) -> Self {
        Self {
            handle: row.handle.to_string(),
            label: Text(row.label.into_vec()),
            cause: row.cause.to_string(),
            ago_ms: millis(row.ago),
            locks: row.locks,
            wait_ms: millis(row.wait),
            nacked_ms: row.nacked.map(millis),
            end: row.end.map(|(end, _)| end.name().to_owned()),
            ended_ms: row.end.map(|(_, after)| millis(after)),
            freed_ms: row.freed.map(millis),
        }
    }
}

/// The sum of histograms with the same bounds.
fn spans<'a, const N: usize>(all: impl IntoIterator<Item = &'a Histogram<N>>) -> Spans {
    let mut spans = Spans { bounds_us: Vec::new(), up_to: Vec::new(), count: 0 };
    for histogram in all {
        if spans.bounds_us.is_empty() {
            spans.bounds_us = histogram.up_to().map(|(bound, _)| bound / 1_000).collect();
            spans.up_to = vec![0; N];
        }
        for (sum, (_, count)) in spans.up_to.iter_mut().zip(histogram.up_to()) {
            *sum += count;
        }
        spans.count += histogram.count();
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_driver::stats::Counts;
    use cistern_link::Instant;
    use cistern_server::{Config, Server};
    use cistern_wire::StoreId;
    use serde_json::json;

    fn report() -> OverviewReport {
        let now = Instant::new(1, 1);
        let mut server = Server::new(now, 0, StoreId([1; 16]), Config::default(), [1; 32]).unwrap();
        let members = json!([
            { "name": "meta1:7311", "address": "10.0.0.1:7311" },
            { "name": "meta2:7311", "address": "10.0.0.2:7311", "heard_ms": 40, "trouble": "10.0.0.2 has another list" },
        ]);
        let group = json!({ "me": "meta1:7311", "role": "serving", "serves": "meta1:7311", "lease_ms": 1_000, "members": members });
        let snapshot =
            Snapshot { figures: server.figures(now), driver: Counts::default(), store: None, overview: None, group: Some(group) };
        OverviewReport::new(&snapshot, server.overview(now))
    }

    #[test]
    fn what_is_told_is_read_as_it_was() {
        let told = serde_json::to_value(report()).unwrap();
        let read: OverviewReport = serde_json::from_value(told.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), told);
        assert_eq!((told["state"].as_str(), told["group"]["members"][1]["heard_ms"].as_u64()), (Some("starting"), Some(40)));
    }

    #[test]
    fn standby_is_shown_with_who_serves_and_without_a_name_where_nothing_is_named() {
        let group = serde_json::to_value(report().group).unwrap();
        let told = OverviewReport::of_standby(&StandbySnapshot { driver: Counts::default(), group }).without_names();
        let told = serde_json::to_value(told).unwrap();
        assert_eq!((told["state"].as_str(), told["group"]["serves"].as_str()), (Some("standby"), Some("member 1")));
        assert!(!told.to_string().contains("meta"), "{told}");
    }

    #[test]
    fn members_of_a_group_are_numbered_where_nothing_is_named() {
        let told = serde_json::to_string(&report().without_names()).unwrap();
        assert!(!told.contains("meta") && !told.contains("10.0.0"), "{told}");
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&told["group"]["serves"], &told["group"]["members"][1]["name"]), (&json!("member 1"), &json!("member 2")));
        assert_eq!(told["group"]["members"][1]["trouble"], "in trouble");
    }
}
