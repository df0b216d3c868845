//! Locks and realms in answers.

use crate::text::{Blob, Text};
use cistern_client::{Instant, Realm};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A hold of a lock as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hold {
    /// `certain`, `uncertain` or `lost`.
    pub(crate) state: String,
    /// Until when it is certain as things stand; `None` when it is not, and for a program whose clocks have another origin than the
    /// agent's.
    pub(crate) until: Option<Until>,
    /// The lease period, in milliseconds: of what part of it is left, a program can tell when to end.
    pub(crate) lease_ms: u64,
}

/// An instant, as readings of this machine's two lease clocks: it has come as soon as either clock says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Until {
    pub(crate) clock_monotonic_raw_ns: u64,
    pub(crate) clock_boottime_ns: u64,
}

impl Until {
    /// The time until the first clock reaches it, when they show `now`: for as long something lasts at least.
    pub(crate) fn left_least(self, now: Instant) -> Duration {
        let raw = self.clock_monotonic_raw_ns.saturating_sub(now.raw_ns);
        let boot = self.clock_boottime_ns.saturating_sub(now.boot_ns);
        Duration::from_nanos(raw.min(boot))
    }

    /// The time until both clocks have passed it, when they show `now`.
    pub(crate) fn left(self, now: Instant) -> Duration {
        let raw = self.clock_monotonic_raw_ns.saturating_sub(now.raw_ns);
        let boot = self.clock_boottime_ns.saturating_sub(now.boot_ns);
        Duration::from_nanos(raw.max(boot))
    }
}

/// An item of a queue that was taken, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TakenItem {
    pub(crate) name: Text,
    /// Of its file, when it was taken.
    pub(crate) version: u64,
    pub(crate) data: Blob,
}

/// A realm as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RealmRow {
    pub(crate) realm: u32,
    /// The realm around it.
    pub(crate) parent: Option<u32>,
    /// The directory that begins it.
    pub(crate) path: Text,
    pub(crate) root: u64,
    pub(crate) objects: u64,
    /// Most objects; absent: no quota.
    pub(crate) objects_max: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) bytes_max: Option<u64>,
}

impl From<Realm> for RealmRow {
    fn from(r: Realm) -> Self {
        Self {
            realm: r.number,
            parent: r.parent,
            path: r.path.into_os_string().into(),
            root: r.root.0,
            objects: r.objects,
            objects_max: r.objects_max,
            bytes: r.bytes,
            bytes_max: r.bytes_max,
        }
    }
}
