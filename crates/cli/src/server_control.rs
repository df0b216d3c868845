//! The server's control socket: what an operator can ask, and the commands that ask it.
//!
//! Decides: the lines on it. A request is `{"op": "status"}`, `{"op": "sessions"}`, `{"op": "stats"}`, `{"op": "overview"}`, `{"op": "settings"}`, `{"op": "backup", "dir": "…"}` or with a `name`,
//! `{"op": "hand_over", "to": "…"}` or `{"op": "evict", "agent": "…"}`; of principals `agents`, `add`, `rename`, `revoke`, `quota` and `grant` (`principals`), of joining `invite`, `invites`, `withdraw_invite` and `admit` (`invites`). The answer is `{"ok": …}`
//! or `{"error": {"code", "message", "exit"}}`; of a change that is kept, when it is durable. Who may ask is who may open the socket (mode 0600): an operator is told from an agent by the file system, not by the wire.
//! Place in the walk: a guest of the server's loop (`serve`), so an answer shows one instant.
//! Leaves to others: the figures (`cistern_server::status`), the socket (`cistern_driver::control`), eviction (`cistern_server`).

mod ask;
mod invites;
mod own_key;
mod principals;

pub(crate) use ask::{ask, ask_at_leisure, ask_sealed, settings};
pub(crate) use own_key::of_own_key;
pub(crate) use principals::of_grant;

use crate::execute::{EXIT_FAILED, EXIT_UNAVAILABLE};
use crate::local::{Failure, micros, millis};
use crate::metrics::{self, Snapshot};
use crate::overview::OverviewReport;
use crate::text::{Blob, Text};
use cistern_driver::stats::Counts;
use cistern_link::Instant;
use cistern_server::store::BatchId;
use cistern_server::{Identity, Server, SessionRow};
use cistern_store::CommitStats;
use cistern_wire::{AgentId, Kind, Printable};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Most sessions listed at once: a line of some 3 MB, made in a few milliseconds in which no agent is served.
const ROWS_MAX: usize = 10_000;

/// Most agents named when several are meant.
const NAMED_MAX: usize = 5;

/// What an operator asks.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum ControlRequest {
    /// Everything about the server.
    Status {},
    /// The sessions.
    Sessions {},
    /// Every figure, as the metrics have it.
    Stats {},
    /// Some rows of each table, as the page has them.
    Overview {},
    /// The settings in force, with their sources.
    Settings {},
    /// A copy of the store in this directory, or under this name where those are; answered when it is whole.
    Backup {
        #[serde(default)]
        dir: Option<Text>,
        #[serde(default)]
        name: Option<String>,
    },
    /// Another server of the group is to serve: this one, or any; answered when it does.
    HandOver {
        #[serde(default)]
        to: Option<String>,
    },
    /// One more server of the group, or one less; answered when that is agreed on.
    AddServer {
        name: String,
    },
    RemoveServer {
        name: String,
    },
    /// The end of an agent's session, by the agent's id or the beginning of it, or its label or the beginning of that.
    Evict {
        agent: String,
    },
    /// The principals, with their rights.
    Agents {},
    /// A new principal, without rights; its public key, if it has one yet.
    Add {
        name: String,
        #[serde(default)]
        key: Option<String>,
        #[serde(default)]
        operator: bool,
    },
    /// Another name of a principal.
    Rename {
        name: String,
        to: String,
    },
    /// The end of a principal's key, for ever.
    Revoke {
        name: String,
    },
    /// How much of what a principal makes there may be; 0: no bound.
    Quota {
        name: String,
        #[serde(default)]
        objects: Option<u64>,
        #[serde(default)]
        bytes: Option<u64>,
    },
    /// An invite, with the id and secret of its line.
    Invite {
        id: Blob,
        secret: Blob,
        name: String,
        operator: bool,
        rights: Vec<(u32, String)>,
        uses: u16,
        within_s: u64,
    },
    /// The invites that are good.
    Invites {},
    /// The end of the invites of a name.
    WithdrawInvite {
        name: String,
    },
    /// A principal by its key, with rights; known already, it stays what it is.
    Admit {
        name: String,
        key: Blob,
        operator: bool,
        rights: Vec<(u32, String)>,
    },
    /// An invite for the next key of who asks; over the sealed wire alone.
    Rotate {},
    /// The end of the former key of who asks; over the sealed wire alone.
    Retire {},
    /// What a principal may do in a realm from now on: letters out of `rwlo`; none: nothing.
    Grant {
        name: String,
        realm: u32,
        rights: String,
    },
}

/// A session, in lists.
#[derive(Debug, Serialize)]
struct ListedSession {
    agent: String,
    incarnation: u64,
    label: Text,
    session: String,
    address: String,
    standing: &'static str,
    /// When it is over at the latest, in milliseconds; only of one that is timing out.
    left_ms: Option<u64>,
    age_ms: u64,
    /// Locks that it holds, of both classes.
    locks: usize,
    /// Its lock requests that wait.
    waits: usize,
    /// Its lease period.
    lease_ms: u64,
    /// How long others wait for its locks at most if it is gone.
    failover_ms: u64,
    /// Whether somebody waits for it.
    waited_for: bool,
    /// Messages of the server's own that it has not receipted.
    notices: usize,
}

impl From<SessionRow> for ListedSession {
    fn from(row: SessionRow) -> Self {
        Self {
            agent: row.agent.to_string(),
            incarnation: row.incarnation,
            label: Text(row.label.into_vec()),
            session: row.session.to_string(),
            address: row.address.to_string(),
            standing: row.standing,
            left_ms: row.left.map(millis),
            age_ms: millis(row.age),
            locks: row.locks,
            waits: row.waits,
            lease_ms: millis(row.lease),
            failover_ms: millis(row.failover),
            waited_for: row.waited_for,
            notices: row.notices,
        }
    }
}

/// Who the server is, at the beginning of lines of the log.
pub(crate) fn who(identity: &Identity) -> String {
    format!("server {:.8}/{}", identity.store.to_string(), identity.incarnation)
}

/// Whether a line is a request.
pub(crate) fn understood(line: &str) -> Result<(), String> {
    serde_json::from_str::<ControlRequest>(line).map(drop).map_err(|e| e.to_string())
}

/// Where a backup is wanted.
#[derive(Debug)]
pub(crate) enum BackupPlace {
    Dir(Text),
    /// In the server's own directory for them.
    Named(String),
}

/// Where a backup is wanted, if a line asks for one: that is answered later.
pub(crate) fn backup_wanted(line: &str) -> Option<Result<BackupPlace, Failure>> {
    match serde_json::from_str(line) {
        Ok(ControlRequest::Backup { dir: Some(dir), name: None }) => Some(Ok(BackupPlace::Dir(dir))),
        Ok(ControlRequest::Backup { dir: None, name: Some(name) }) => Some(Ok(BackupPlace::Named(name))),
        Ok(ControlRequest::Backup { .. }) => Some(Err(Failure::usage("a backup has a directory, `dir`, or a name, `name`"))),
        _ => None,
    }
}

/// What an operator wants of a server's group.
#[derive(Debug)]
pub(crate) enum GroupRequest {
    /// That another server serves: this one, or any.
    HandOver(Option<String>),
    /// One more server.
    Add(String),
    /// One less.
    Remove(String),
}

/// What is wanted of the group, if a line asks for that: this is answered later.
pub(crate) fn group_wanted(line: &str) -> Option<GroupRequest> {
    match serde_json::from_str(line) {
        Ok(ControlRequest::HandOver { to }) => Some(GroupRequest::HandOver(to)),
        Ok(ControlRequest::AddServer { name }) => Some(GroupRequest::Add(name)),
        Ok(ControlRequest::RemoveServer { name }) => Some(GroupRequest::Remove(name)),
        _ => None,
    }
}

/// A line, as the log shows it.
#[derive(Debug)]
pub(crate) struct Logged {
    /// Without the secret of an invite, and so that it can be printed.
    pub(crate) line: String,
    /// It changes nothing.
    pub(crate) reads: bool,
}

/// A line, if it is a request.
pub(crate) fn logged(line: &str) -> Option<Logged> {
    use ControlRequest::{Agents, Invites, Overview, Sessions, Settings, Stats, Status};
    let request = serde_json::from_str::<ControlRequest>(line).ok()?;
    let reads = matches!(request, Status {} | Sessions {} | Stats {} | Overview {} | Settings {} | Agents {} | Invites {});
    let mut fields: Map<String, Value> = serde_json::from_str(line).ok()?;
    fields.remove("secret");
    let line = Printable(&Value::Object(fields).to_string()).to_string();
    Some(Logged { line, reads })
}

/// Whether a line asks for the settings in force, which the server's process knows.
pub(crate) fn settings_wanted(line: &str) -> bool {
    matches!(serde_json::from_str(line), Ok(ControlRequest::Settings {}))
}

/// An answer, and the batch that must be durable before it is given.
pub(crate) type Answered = (String, Option<BatchId>);

/// What is known beside the server.
pub(crate) struct Beside<'a> {
    pub(crate) driver: &'a Counts,
    pub(crate) store: Option<CommitStats>,
    /// What there is to say of its group, if it has one.
    pub(crate) group: Option<&'a dyn Fn() -> Value>,
    /// Whether who asks is on the server's host, and may open its files anyway.
    pub(crate) is_local: bool,
}

/// Answers one line; called by the server's loop.
pub(crate) fn answer(server: &mut Server, now: Instant, beside: &Beside<'_>, line: &str) -> Answered {
    let mut batch = None;
    let result = match serde_json::from_str(line) {
        Ok(ControlRequest::Status {}) => {
            let mut status = status_of(server, now, beside.driver);
            status["group"] = beside.group.map_or(Value::Null, |group| group());
            Ok(status)
        }
        Ok(ControlRequest::Sessions {}) => Ok(sessions_of(server, now)),
        Ok(ControlRequest::Stats {}) => {
            let (figures, group) = (server.figures(now), beside.group.map(|group| group()));
            let snapshot = Snapshot { figures, driver: *beside.driver, store: beside.store, overview: None, group };
            Ok(metrics::as_json(&metrics::all(&snapshot)))
        }
        Ok(ControlRequest::Overview {}) => {
            let (figures, group) = (server.figures(now), beside.group.map(|group| group()));
            let snapshot = Snapshot { figures, driver: *beside.driver, store: beside.store, overview: None, group };
            let report = OverviewReport::new(&snapshot, server.overview(now));
            //= wire-spec.md#11-9-realms-and-rights
            //# An answer to ADMIN MUST NOT show contents, names or locks of objects.
            Ok(json!(if beside.is_local { report } else { report.without_objects() }))
        }
        Ok(
            ControlRequest::Backup { .. }
            | ControlRequest::HandOver { .. }
            | ControlRequest::AddServer { .. }
            | ControlRequest::RemoveServer { .. }
            | ControlRequest::Settings {},
        ) => Err(Failure::usage("this is not answered here")),
        Ok(ControlRequest::Evict { agent }) => evict_from(server, now, &agent),
        Ok(request) => changed(server, now, request).map(|(value, change)| {
            batch = change;
            value
        }),
        Err(e) => Err(Failure::usage(format!(
            "not a request: {e}; there are status, sessions, stats, overview, settings, backup, hand_over, add_server, remove_server, evict, agents, add, rename, revoke, quota, grant, invite, \
             invites, withdraw_invite, admit"
        ))),
    };
    let line = match result {
        Ok(value) => json!({ "ok": value }),
        Err(failure) => json!({ "error": failure }),
    };
    (line.to_string(), batch)
}

/// Answers one line for a server that stands by.
pub(crate) fn standby_answer(group: Option<Value>, driver: &Counts, line: &str) -> String {
    let group = group.unwrap_or_default();
    let (me, serves) = (group["me"].as_str().unwrap_or("?").to_owned(), group["serves"].as_str().map(ToOwned::to_owned));
    let result = match serde_json::from_str(line) {
        Ok(ControlRequest::Status {}) => Ok(json!({
            "who": format!("server {me}"),
            "serving": false,
            "group": group,
            "driver": driver.entries().into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect::<Map<String, Value>>(),
        })),
        Ok(_) => {
            let who = serves.map_or_else(|| "no server of the group serves now".to_owned(), |serves| format!("{serves} serves: ask there"));
            Err(Failure::new("NOT_SERVING", EXIT_UNAVAILABLE, format!("{me} stands by; {who}")))
        }
        Err(e) => Err(Failure::usage(format!("not a request: {e}"))),
    };
    match result {
        Ok(value) => json!({ "ok": value }),
        Err(failure) => json!({ "error": failure }),
    }
    .to_string()
}

fn changed(server: &mut Server, now: Instant, request: ControlRequest) -> Result<(Value, Option<BatchId>), Failure> {
    use ControlRequest::{Admit, Invite, Invites, WithdrawInvite};
    match request {
        Invite { .. } | Invites {} | WithdrawInvite { .. } | Admit { .. } => invites::answer(server, now, request),
        request => principals::answer(server, now, request),
    }
}

fn status_of(server: &Server, now: Instant, driver: &Counts) -> Value {
    let (status, stats) = (server.status(now), server.stats());
    let (received, transmitted) = (stats.received(), stats.transmitted());
    let by_kind = |count: &dyn Fn(Kind) -> u64| -> Map<String, Value> {
        Kind::ALL.iter().map(|kind| (kind.name().to_owned(), count(*kind).into())).filter(|(_, n)| *n != json!(0)).collect()
    };
    json!({
        "who": who(&status.identity),
        "store": status.identity.store.to_string(),
        "epoch": status.identity.epoch,
        "incarnation": status.identity.incarnation,
        "serving": status.serving,
        "grace": status.grace.map(|grace| json!({
            "left_ms": millis(grace.left),
            "awaited": grace.awaited,
            "reclaiming": grace.reclaiming,
            "blind": grace.blind,
        })),
        "failure": status.failure,
        "room": status.room,
        "uptime_ms": millis(status.uptime),
        "lease_us": micros(status.lease),
        "timer_us": micros(status.wait),
        "sessions": status.sessions,
        "timing_out": status.timing_out,
        "lease_timers": server.lease_timers(),
        "listening_for": server.listening(),
        "locks": status.locks,
        "waiting": status.waiting,
        "parked": status.parked,
        "withheld": status.withheld,
        "watches": status.watches,
        "ephemerals": status.ephemerals,
        "named_leases": status.named_leases,
        "held": status.held,
        "uncounted_ms": millis(status.stalled),
        "opened": stats.opened,
        "requests": stats.requests,
        "repeated": stats.repeated,
        "delivery_failures": stats.failures,
        "rescues": stats.rescues,
        "steals": stats.steals,
        "moves": stats.moves,
        "datagrams_in": received.0,
        "bytes_in": received.1,
        "datagrams_out": transmitted.0,
        "bytes_out": transmitted.1,
        "drops": stats.drops_total(),
        "drops_by_reason": stats.drops().map(|(reason, count)| (reason.to_owned(), count.into())).collect::<Map<String, Value>>(),
        "messages_in": by_kind(&|kind| stats.messages_in(kind)),
        "messages_out": by_kind(&|kind| stats.messages_out(kind)),
        "driver": driver.entries().into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect::<Map<String, Value>>(),
    })
}

fn sessions_of(server: &Server, now: Instant) -> Value {
    let mut rows = server.sessions(now);
    let more = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    json!({ "sessions": rows.into_iter().map(ListedSession::from).collect::<Vec<_>>(), "more": more })
}

fn evict_from(server: &mut Server, now: Instant, whom: &str) -> Result<Value, Failure> {
    let agent = find_agent(&server.sessions(now), whom)?;
    let evicted = server.evict(now, agent);
    let rows: Vec<_> = server.sessions(now).into_iter().filter(|row| evicted.contains(&row.session)).collect();
    let free_in = rows.iter().filter_map(|row| row.left).max();
    let Some(last) = rows.into_iter().next_back() else {
        return Err(Failure::new("NOT_EVICTED", EXIT_FAILED, format!("every session of agent {agent} has ended, or is ending, already")));
    };
    Ok(json!({
        "agent": agent.to_string(),
        "label": Text(last.label.into_vec()),
        "sessions": evicted.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "locks_free_in_ms": free_in.map(millis),
    }))
}

/// The one agent that is meant: an id, which agents cannot choose to be another's, before a label, and both before what only begins so.
fn find_agent(rows: &[SessionRow], whom: &str) -> Result<AgentId, Failure> {
    let lower = whom.to_ascii_lowercase();
    let has_id = |row: &SessionRow| row.agent.to_string() == lower;
    let has_label = |row: &SessionRow| *row.label == *whom.as_bytes();
    let begins = |row: &SessionRow| row.agent.to_string().starts_with(&lower) || row.label.starts_with(whom.as_bytes());
    // A label that is the beginning of somebody's id would keep an operator from that one.
    let may_be = |row: &SessionRow| has_label(row) || row.agent.to_string().starts_with(&lower);
    let ways: [&dyn Fn(&SessionRow) -> bool; 3] = [&has_id, &may_be, &begins];
    let found = ways.iter().map(|is_meant| rows.iter().filter(|row| is_meant(row)).collect::<Vec<_>>());
    let mut meant = found.into_iter().find(|rows| !rows.is_empty() && !whom.is_empty()).unwrap_or_default();
    meant.sort_by_key(|row| row.agent);
    meant.dedup_by_key(|row| row.agent);
    match meant.as_slice() {
        [] => Err(Failure::new(
            "UNKNOWN_AGENT",
            EXIT_FAILED,
            format!("no session is of an agent whose id or label is {whom:?} or begins so; `cistern admin sessions` lists them"),
        )),
        [one] => Ok(one.agent),
        several => {
            let named = several.iter().take(NAMED_MAX).map(|row| format!("{} ({})", row.agent, Text(row.label.to_vec())));
            let rest = several.len().saturating_sub(NAMED_MAX);
            let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            let message = format!("{whom:?} may be {}{more}; name one by its id", named.collect::<Vec<_>>().join(", "));
            Err(Failure::new("AMBIGUOUS", EXIT_FAILED, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::{Handle, SessionId};
    use std::net::SocketAddr;
    use std::time::Duration;

    fn row(agent: u8, label: &str) -> SessionRow {
        SessionRow {
            session: SessionId(u64::from(agent)),
            agent: AgentId([agent; 16]),
            incarnation: 1,
            handle: Handle(1),
            label: label.as_bytes().into(),
            address: SocketAddr::from(([127, 0, 0, 1], 4_000)),
            standing: "good",
            left: None,
            age: Duration::from_millis(1_500),
            locks: 0,
            waits: 0,
            lease: Duration::from_secs(2),
            failover: Duration::from_secs(4),
            waited_for: false,
            notices: 0,
        }
    }

    fn rows() -> Vec<SessionRow> {
        vec![row(0xab, "web"), row(0xac, "web-2"), row(0xcd, "db"), row(0xcd, "db")]
    }

    #[test]
    fn an_agent_is_meant_by_id_or_label_or_the_beginning_of_either() {
        let full = "cd".repeat(16);
        for (whom, agent) in [("db", 0xcd), ("d", 0xcd), ("cd", 0xcd), ("AB", 0xab), (&full, 0xcd), ("web-", 0xac)] {
            assert_eq!(find_agent(&rows(), whom).unwrap(), AgentId([agent; 16]), "{whom}");
        }
    }

    #[test]
    fn nobody_is_out_of_reach_because_another_has_his_id_for_a_label() {
        let [ab, cd] = ["ab", "cd"].map(|byte| byte.repeat(16));
        let rows = [row(0xab, &cd), row(0xcd, &ab)];
        assert_eq!(find_agent(&rows, &ab).unwrap(), AgentId([0xab; 16]));
        assert_eq!(find_agent(&rows, &cd).unwrap(), AgentId([0xcd; 16]));
    }

    #[test]
    fn nobody_is_spared_because_another_has_the_beginning_of_his_id_for_a_label() {
        let rows = [row(0xab, "web"), row(0xcd, "abab")];
        assert_eq!(find_agent(&rows, "abab").unwrap_err().code, "AMBIGUOUS");
    }

    #[test]
    fn a_label_that_another_one_begins_with_can_still_be_meant() {
        assert_eq!(find_agent(&rows(), "web").unwrap(), AgentId([0xab; 16]));
    }

    #[test]
    fn who_is_not_meant_by_one_name_is_not_evicted() {
        let failure = find_agent(&rows(), "we").unwrap_err();
        assert!(failure.code == "AMBIGUOUS" && failure.message.contains("abababab") && failure.message.contains("(web-2)"), "{failure:?}");
        for whom in ["", "x", "abb"] {
            assert_eq!(find_agent(&rows(), whom).unwrap_err().code, "UNKNOWN_AGENT", "{whom}");
        }
        let many: Vec<_> = (0..20).map(|n| row(n, "same")).collect();
        assert!(find_agent(&many, "same").unwrap_err().message.contains("and 15 more"));
    }

    #[test]
    fn what_is_no_request_is_told_what_requests_there_are() {
        for line in
            ["", "{}", "{\"op\":\"reboot\"}", "[]", "{\"op\":\"evict\"}", "{\"op\":\"status\",\"x\":1}", "{\"op\":\"evict\",\"agent\":1}"]
        {
            assert!(serde_json::from_str::<ControlRequest>(line).is_err(), "{line}");
        }
        assert!(matches!(serde_json::from_str("{\"op\":\"status\"}"), Ok(ControlRequest::Status {})));
        assert!(matches!(serde_json::from_str("{\"op\":\"evict\",\"agent\":\"a\"}"), Ok(ControlRequest::Evict { agent }) if agent == "a"));
    }

    #[test]
    fn the_log_shows_no_secret_and_nothing_that_cannot_be_printed() {
        let invite = format!(
            r#"{{"op":"invite","id":{},"secret":{},"name":"w\u0085eb","operator":false,"rights":[],"uses":1,"within_s":60}}"#,
            json!(Blob(vec![1; 8])),
            json!(Blob(vec![77; 16])),
        );
        let shown = logged(&invite).unwrap();
        assert!(!shown.reads && shown.line.contains(r#""op":"invite""#) && shown.line.contains("w\\xc2\\x85eb"), "{shown:?}");
        assert!(
            !shown.line.contains("secret") && !shown.line.contains(json!(Blob(vec![77; 16])).to_string().trim_matches('"')),
            "{shown:?}"
        );
        assert!(logged(r#"{"op":"agents"}"#).unwrap().reads && logged(r#"{"op":"secret"}"#).is_none());
    }

    #[test]
    fn a_session_as_json_survives_any_label() {
        let mut session = row(1, "");
        session.label = Box::from(&b"\xff\n"[..]);
        let value = serde_json::to_value(ListedSession::from(session)).unwrap();
        assert_eq!(
            (value["label"]["b64"].as_str(), value["age_ms"].as_u64(), value["left_ms"].is_null()),
            (Some("/wo="), Some(1_500), true)
        );
    }
}
