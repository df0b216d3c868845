//! The service of an agent to local programs: what can be asked, what is answered, as one line of JSON each.
//!
//! Decides: the names in that JSON, and that a command line does the same things in the same way whether it has an agent of its
//! own or goes through the host's. docs/api.md has these names for people: what is changed here is changed there, and for those who wrote
//! programs to it.
//! Leaves to others: sockets (`agent::run`, `backend`), what is shown to people (`show`).

mod answers;
mod group;
mod lease;
mod line;
mod named_lease;
mod request;
mod rows;

pub(crate) use group::{GroupReport, MemberRow, TokenBasis};
pub(crate) use lease::Lease;
pub(crate) use line::{API, Event, Greeting, LINE_MAX, News, RequestLine, Said, Unread, What};
pub(crate) use named_lease::{KeptLease, LeaseFileRow, NewLease, SecretText};
pub(crate) use request::{AttrRule, Item, Request, Rule, Version};
pub(crate) use rows::{Hold, RealmRow, TakenItem, Until};

use crate::text::{Blob, Text};
use cistern_client::{Contents, DirEntry, FileType, LockInfo, Metadata, ServerMember, ServerStatus, Standing, Version as FileVersion};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    Done {},
    Hello(Greeting),
    Attr(Attributes),
    Listing(Vec<EntryRow>),
    Data {
        attr: Attributes,
        data: Blob,
    },
    /// Target of a symbolic link.
    Link(Text),
    Locks(Vec<LockRow>),
    Realms(Vec<RealmRow>),
    NewLease(NewLease),
    KeptLease(KeptLease),
    Leases(Vec<LeaseFileRow>),
    Server(Report),
    Pong {
        round_trip_us: u64,
    },
    Lease(Lease),
    Xattr {
        object: u64,
        version: u64,
        value: Blob,
    },
    Xattrs {
        object: u64,
        version: u64,
        names: Vec<Text>,
    },
    /// What each item was about, and its version after the batch; 0: it is gone.
    Batched(Vec<Done>),
    Locked {
        hold: u64,
        token: u64,
        object: u64,
        /// By a member of a group: what the token rests on.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        basis: Option<TokenBasis>,
        /// Of a semaphore: which slot it is, from 0.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        slot: Option<u32>,
        /// Of a queue: which item it is on.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        item: Option<TakenItem>,
    },
    Hold(Hold),
    Entered {
        hold: u64,
        round: u64,
    },
    Joined {
        object: u64,
    },
    Group(Box<GroupReport>),
}

/// What an item of a batch was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) object: u64,
    pub(crate) version: u64,
}

/// Why it did not work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The symbolic result code (`ENOENT`, `BUSY`, ...) or a word of this program's own.
    pub(crate) code: String,
    /// For a person.
    pub(crate) message: String,
    /// The path at the server, if it was about one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) path: Option<Text>,
    /// Of a batch: the item that failed, counted from 0.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) item: Option<u16>,
    /// Exit status of a command that fails with it.
    pub(crate) exit: u8,
}

impl From<FileVersion> for Done {
    fn from(version: FileVersion) -> Self {
        Self { object: version.file.0, version: version.number }
    }
}

/// Attributes as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attributes {
    pub(crate) object: u64,
    pub(crate) version: u64,
    pub(crate) kind: String,
    /// Octal.
    #[serde(with = "crate::text::octal")]
    pub(crate) mode: u16,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) atime_ns: i64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
    pub(crate) realm: u32,
    /// Of an ephemeral file, the session that made it; absent: it is not ephemeral.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) made_by: Option<String>,
}

impl From<Metadata> for Attributes {
    fn from(m: Metadata) -> Self {
        Self {
            object: m.id().0,
            version: m.version().number,
            kind: m.file_type().name().to_owned(),
            mode: u16::try_from(m.mode()).unwrap_or(0),
            nlink: m.nlink(),
            uid: m.uid(),
            gid: m.gid(),
            size: m.len(),
            atime_ns: nanos(m.accessed()),
            mtime_ns: nanos(m.modified()),
            ctime_ns: nanos(m.changed()),
            realm: m.realm(),
            made_by: m.made_by(),
        }
    }
}

impl Attributes {
    pub(crate) fn is(&self, kind: FileType) -> bool {
        self.kind == kind.name()
    }
}

/// A directory entry as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EntryRow {
    pub(crate) name: Text,
    pub(crate) object: u64,
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) attr: Option<Attributes>,
}

impl From<DirEntry> for EntryRow {
    fn from(e: DirEntry) -> Self {
        Self { name: e.file_name.into(), object: e.id.0, kind: e.file_type.name().to_owned(), attr: e.metadata.map(Into::into) }
    }
}

impl From<Contents> for Response {
    fn from(c: Contents) -> Self {
        Self::Data { attr: c.metadata.into(), data: Blob(c.bytes.to_vec()) }
    }
}

/// A lock's holder or waiter as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LockRow {
    pub(crate) object: u64,
    pub(crate) path: Text,
    pub(crate) state: String,
    pub(crate) mode: String,
    pub(crate) token: u64,
    /// Public name of the agent's session.
    pub(crate) handle: String,
    pub(crate) label: Text,
    pub(crate) since_ms: u64,
    pub(crate) standing: String,
    /// When this ends at the latest if the agent is gone, in milliseconds; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) bound_ms: Option<u64>,
}

impl LockRow {
    /// The standing of a session whose agent answers.
    pub(crate) const GOOD: &str = "good";

    /// Whether no message to its agent has failed.
    pub(crate) fn is_in_good_standing(&self) -> bool {
        self.standing == Self::GOOD
    }
}

impl From<LockInfo> for LockRow {
    fn from(l: LockInfo) -> Self {
        let standing = match l.standing {
            Standing::TimingOut => "timing out",
            Standing::Evicted => "evicted",
            _ => Self::GOOD,
        };
        Self {
            object: l.file.0,
            path: l.path.into_os_string().into(),
            state: if l.is_holder { "holds" } else { "waits" }.to_owned(),
            mode: if l.is_shared { "shared" } else { "exclusive" }.to_owned(),
            token: l.token.0,
            handle: l.session,
            label: l.label.into(),
            since_ms: millis(l.since),
            standing: standing.to_owned(),
            bound_ms: l.ends_within.map(millis),
        }
    }
}

/// The server's report as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) store: String,
    pub(crate) epoch: u8,
    pub(crate) incarnation: u64,
    pub(crate) uptime_ms: u64,
    pub(crate) sessions: u32,
    pub(crate) timing_out: u32,
    pub(crate) locks: u64,
    pub(crate) waiters: u32,
    pub(crate) objects: u64,
    pub(crate) requests: u64,
    pub(crate) demands: u64,
    pub(crate) delivery_failures: u64,
    pub(crate) steals: u64,
    pub(crate) drops: u64,
    /// The servers of a group, in the order of their list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) group: Vec<ServerRow>,
}

/// A server of a group as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ServerRow {
    pub(crate) name: String,
    pub(crate) serves: bool,
    /// How long ago the one that serves has heard it.
    pub(crate) heard_ms: Option<u64>,
}

impl From<ServerStatus> for Report {
    fn from(r: ServerStatus) -> Self {
        Self {
            store: r.store,
            epoch: r.epoch,
            incarnation: r.incarnation,
            uptime_ms: millis(r.uptime),
            sessions: r.sessions,
            timing_out: r.timing_out,
            locks: r.locks,
            waiters: r.waiters,
            objects: r.objects,
            requests: r.requests,
            demands: r.demands,
            delivery_failures: r.delivery_failures,
            steals: r.steals,
            drops: r.drops,
            group: r.group.into_iter().map(ServerRow::from).collect(),
        }
    }
}

impl From<ServerMember> for ServerRow {
    fn from(member: ServerMember) -> Self {
        Self { name: member.name, serves: member.serves, heard_ms: member.heard.map(millis) }
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Nanoseconds since 1970; what cannot be shown so is the nearest that can.
pub(crate) fn nanos(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(span) => i64::try_from(span.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

/// The time so many nanoseconds after 1970.
pub(crate) fn time(ns: i64) -> SystemTime {
    let span = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { UNIX_EPOCH - span } else { UNIX_EPOCH + span }
}

pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
