//! Why a writer is over for good, and what whoever reads it is to do.

use crate::record::ServerList;
use std::fmt;

/// Why a writer is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no store under the prefix.
    Missing,
    /// What is there cannot be used, in words.
    Foreign(String),
    /// Another server has taken the store: who, in its own words.
    Superseded(String),
    /// etcd is another than that in which the store was written: it was restored.
    Restored,
    /// etcd has gone back to an earlier revision.
    WentBack,
    /// This server may not take the store any more: its lease of the group was over first.
    TooLate,
    /// It was elected by other servers than those that the store has.
    OtherServers(ServerList),
    /// Something that cannot be, in words.
    Broken(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no store under this prefix; `cisternd init` makes it"),
            Self::Foreign(what) => write!(f, "{what}; nothing was changed"),
            Self::Superseded(by) => write!(f, "another server has taken the store ({by}), so this one ends; nothing acknowledged is lost"),
            Self::Restored => f.write_str(
                "this etcd is another cluster than the one in which the store was written, as after a restore from a snapshot; if it \
                 is to take its place, run `cisternd restored` on it first",
            ),
            Self::WentBack => f.write_str(
                "etcd has gone back to an earlier revision, as after a restore from a snapshot; if that was wanted, run `cisternd restored` on it first",
            ),
            Self::TooLate => f.write_str("the lease of the group was over before the store was taken"),
            Self::OtherServers(ServerList { number, servers }) => {
                write!(f, "this server was elected by others than the servers of the store, which are {servers} (list number {number}): name these")
            }
            Self::Broken(what) => write!(f, "{what}; nothing acknowledged is lost"),
        }
    }
}
