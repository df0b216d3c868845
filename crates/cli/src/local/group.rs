//! What a member of a group tells of it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What makes the token of a lock of a group larger than those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TokenBasis {
    /// Every member keeps tokens on disk: larger for ever.
    Durable,
    /// Each member of the majority that opened remembered one: larger, as long as one of each majority has not restarted.
    Remembered,
    /// A member of that majority had restarted: larger, if the wall clocks of the hosts differ by less than the restart wait.
    Clock,
}

impl TokenBasis {
    /// As it is written.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Remembered => "remembered",
            Self::Clock => "clock",
        }
    }
}

impl fmt::Display for TokenBasis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A group as one of its members sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GroupReport {
    /// The list of members.
    pub(crate) group: String,
    /// Its number.
    pub(crate) number: u32,
    /// The member that tells.
    pub(crate) me: String,
    /// How long it takes no part yet; 0: it does.
    pub(crate) starts_in_ms: u64,
    pub(crate) lease_ms: u64,
    /// How long a record is kept, and how long a process that starts takes no part, in microseconds.
    pub(crate) wait_us: u64,
    pub(crate) drift_ppm: u32,
    pub(crate) epsilon_us: u64,
    /// Whether owners renew in one round trip.
    pub(crate) renews_by_write: bool,
    /// Whether every member keeps tokens on disk.
    pub(crate) durable_tokens: bool,
    /// Resources that it knows of, and that it owns.
    pub(crate) resources: u64,
    pub(crate) owned: u64,
    pub(crate) members: Vec<MemberRow>,
    pub(crate) datagrams_in: u64,
    pub(crate) datagrams_out: u64,
    /// Datagrams that changed nothing, by reason.
    pub(crate) drops: serde_json::Map<String, serde_json::Value>,
}

/// A member as another one sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MemberRow {
    pub(crate) name: String,
    /// Where its name leads; absent: not found yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) address: Option<String>,
    /// Time since something of it was believed; absent: never, or it is the one that tells.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) heard_ms: Option<u64>,
    /// Why nothing of it is believed, or what is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) trouble: Option<String>,
}
