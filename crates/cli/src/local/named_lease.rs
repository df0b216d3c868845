//! Named leases in requests and answers.

use super::Until;
use crate::text::Text;
use cistern_client::{Instant, LeaseFile, LeaseSecret};
use cistern_trust::TextForm as _;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// A secret, as its text. Where it is shown for a log it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretText(pub(crate) LeaseSecret);

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0.to_text())
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(from)?;
        LeaseSecret::from_text(&text).map(Self).map_err(|e| D::Error::custom(format!("the secret of a lease {e}")))
    }
}

/// A named lease that was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NewLease {
    pub(crate) object: u64,
    pub(crate) secret: SecretText,
}

/// A named lease that was kept.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct KeptLease {
    /// Until when it lasts at least; `None` for a program whose clocks have another origin than the agent's.
    pub(crate) until: Option<Until>,
    /// How long that is from the answer on.
    pub(crate) left_ms: u64,
}

impl KeptLease {
    pub(crate) fn of(until: Instant, now: Instant) -> Self {
        let until = Until { clock_monotonic_raw_ns: until.raw_ns, clock_boottime_ns: until.boot_ns };
        // Whole milliseconds, rounded down: what is promised is there.
        let left_ms = u64::try_from(until.left_least(now).as_millis()).unwrap_or(u64::MAX);
        Self { until: Some(until), left_ms }
    }
}

/// A file of a named lease as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LeaseFileRow {
    pub(crate) object: u64,
    pub(crate) path: Text,
    /// The lease's own file.
    pub(crate) lease: u64,
    pub(crate) ttl_ms: u64,
    pub(crate) left_ms: u64,
    /// How many files go with the lease, its own among them.
    pub(crate) files: u32,
}

impl From<LeaseFile> for LeaseFileRow {
    fn from(f: LeaseFile) -> Self {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self {
            object: f.file.0,
            path: f.path.into_os_string().into(),
            lease: f.lease.0,
            ttl_ms: ms(f.ttl),
            left_ms: ms(f.left),
            files: f.files,
        }
    }
}
