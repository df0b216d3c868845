//! What a local program asks of an agent.

use super::SecretText;
use crate::text::{Blob, Text};
use serde::{Deserialize, Serialize};

/// A request. Fields that are absent are as a program most often wants them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// The first of a connection: the version of the interface that the program was written to.
    Hello {
        api: u32,
    },
    /// Gives up a request of this connection that is not answered yet.
    Cancel {
        request: u64,
    },
    Stat {
        path: Text,
        #[serde(default = "yes")]
        follow: bool,
    },
    List {
        path: Text,
        #[serde(default)]
        detail: bool,
    },
    Read {
        path: Text,
    },
    ReadLink {
        path: Text,
    },
    Put {
        path: Text,
        data: Blob,
        #[serde(with = "crate::text::octal", default = "file_mode")]
        mode: u16,
        /// Only if the file has this version; 0: only if there is none.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        if_version: Option<u64>,
    },
    GetXattr {
        path: Text,
        name: Text,
    },
    ListXattr {
        path: Text,
    },
    SetXattr {
        path: Text,
        name: Text,
        value: Blob,
        #[serde(default)]
        rule: AttrRule,
    },
    RemoveXattr {
        path: Text,
        name: Text,
    },
    /// Does all of it or nothing.
    Batch {
        items: Vec<Item>,
        /// Versions that must be so, or nothing is done.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        if_versions: Vec<Version>,
    },
    Create {
        path: Text,
        #[serde(default)]
        exclusive: bool,
        #[serde(with = "crate::text::octal", default = "file_mode")]
        mode: u16,
    },
    Mkdir {
        path: Text,
        #[serde(with = "crate::text::octal", default = "directory_mode")]
        mode: u16,
        /// Whether it begins a realm.
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        realm: bool,
    },
    /// 0: no quota; absent: as it is.
    SetQuota {
        path: Text,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        objects: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        bytes: Option<u64>,
    },
    /// Makes a named lease: a file that ends when nobody keeps it.
    LeaseCreate {
        path: Text,
        ttl_ms: u32,
        /// Who has it keeps the lease; absent: a new one, which is answered.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        secret: Option<SecretText>,
        /// Contents of its file.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        data: Option<Blob>,
        #[serde(with = "crate::text::octal", default = "file_mode")]
        mode: u16,
    },
    /// Has a file go with a named lease.
    LeaseAttach {
        path: Text,
        lease: Text,
        secret: SecretText,
    },
    /// Gives a named lease its whole time again.
    LeaseKeep {
        lease: Text,
        secret: SecretText,
    },
    /// Ends a named lease, with all that goes with it.
    LeaseRevoke {
        lease: Text,
    },
    /// All named leases, or the files of one.
    Leases {
        #[serde(skip_serializing_if = "Option::is_none", default)]
        lease: Option<Text>,
    },
    /// One of them, or all.
    Realms {
        realm: Option<u32>,
    },
    Symlink {
        target: Text,
        path: Text,
    },
    Link {
        existing: Text,
        path: Text,
    },
    Unlink {
        path: Text,
        #[serde(default)]
        force: bool,
    },
    Rmdir {
        path: Text,
    },
    Rename {
        from: Text,
        to: Text,
        #[serde(default)]
        rule: Rule,
        #[serde(default)]
        force: bool,
    },
    SetAttr {
        path: Text,
        #[serde(with = "crate::text::octal::option", default)]
        mode: Option<u16>,
        mtime_ns: Option<i64>,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        atime_ns: Option<i64>,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        size: Option<u64>,
    },
    Locks {
        path: Option<Text>,
    },
    /// Watches an object; the watch belongs to this connection, which is told of it by events.
    Watch {
        object: u64,
    },
    Unwatch {
        object: u64,
    },
    Server,
    Ping,
    Lease,
    /// Takes a lock that belongs to this connection: it is given back when the connection ends.
    Lock {
        path: Text,
        #[serde(default)]
        shared: bool,
        /// The path is that of a semaphore with so many slots, of which one is taken.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        slots: Option<u32>,
        wait_ms: Option<u64>,
        /// Should the connection end without an unlock, the lock is kept until the last instant that `hold` has told: for a program that
        /// starts others, which end by that instant although it was killed.
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        linger: bool,
        /// What becomes of it is told by events.
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        events: bool,
    },
    /// Takes the first item of a queue that can be had: a lock on it, which belongs to this connection as that of `lock`.
    Take {
        path: Text,
        wait_ms: Option<u64>,
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        linger: bool,
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        events: bool,
    },
    /// Enters a round of a barrier, when so many are there; it is left when the connection ends.
    Enter {
        path: Text,
        parties: u32,
        wait_ms: Option<u64>,
    },
    /// Leaves a round of a barrier, and waits until the others have.
    Exit {
        hold: u64,
    },
    Unlock {
        hold: u64,
    },
    /// Makes an ephemeral file with its contents, whole or not at all; it must not exist. It belongs to this connection, and goes when the
    /// connection ends.
    Join {
        path: Text,
        data: Blob,
        #[serde(with = "crate::text::octal", default = "file_mode")]
        mode: u16,
    },
    /// Removes an ephemeral file that `join` has made.
    Leave {
        object: u64,
    },
    Hold {
        hold: u64,
    },
    /// Of a member of a group: what it knows of the group.
    Group,
}

const fn yes() -> bool {
    true
}

const fn file_mode() -> u16 {
    0o644
}

const fn directory_mode() -> u16 {
    0o755
}

impl Request {
    /// Whether it changes something: without an answer its outcome is unknown.
    pub(crate) const fn is_change(&self) -> bool {
        match self {
            Self::Stat { .. } | Self::List { .. } | Self::Read { .. } | Self::ReadLink { .. } | Self::GetXattr { .. } => false,
            Self::ListXattr { .. } | Self::Locks { .. } | Self::Server | Self::Ping | Self::Lease | Self::Hold { .. } => false,
            Self::Realms { .. } | Self::Group | Self::Hello { .. } | Self::Cancel { .. } => false,
            Self::Watch { .. } | Self::Unwatch { .. } => false,
            // To keep a lease once more does no harm.
            Self::LeaseKeep { .. } | Self::Leases { .. } => false,
            Self::LeaseCreate { .. } | Self::LeaseAttach { .. } | Self::LeaseRevoke { .. } => true,
            Self::Put { .. } | Self::SetXattr { .. } | Self::RemoveXattr { .. } | Self::Batch { .. } | Self::Create { .. } => true,
            Self::SetQuota { .. } => true,
            Self::Mkdir { .. } | Self::Symlink { .. } | Self::Link { .. } | Self::Unlink { .. } | Self::Rmdir { .. } => true,
            Self::Rename { .. } | Self::SetAttr { .. } | Self::Lock { .. } | Self::Take { .. } | Self::Unlock { .. } => true,
            Self::Join { .. } | Self::Leave { .. } | Self::Enter { .. } | Self::Exit { .. } => true,
        }
    }

    /// Whether it changes files, and so can be made under a lock of its connection.
    pub(crate) const fn takes_guard(&self) -> bool {
        let is_of_connection = matches!(self, Self::Lock { .. } | Self::Take { .. } | Self::Unlock { .. } | Self::Leave { .. });
        self.is_change() && !is_of_connection && !matches!(self, Self::Enter { .. } | Self::Exit { .. })
    }
}

/// A version that something must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Version {
    pub(crate) path: Text,
    pub(crate) version: u64,
}

/// One change of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Item {
    LeaseAttach {
        path: Text,
        lease: Text,
        secret: SecretText,
    },
    Create {
        path: Text,
        #[serde(default)]
        exclusive: bool,
        #[serde(with = "crate::text::octal", default = "file_mode")]
        mode: u16,
    },
    Mkdir {
        path: Text,
        #[serde(with = "crate::text::octal", default = "directory_mode")]
        mode: u16,
    },
    Symlink {
        target: Text,
        path: Text,
    },
    Link {
        existing: Text,
        path: Text,
    },
    Unlink {
        path: Text,
        #[serde(default)]
        force: bool,
    },
    Rmdir {
        path: Text,
    },
    Rename {
        from: Text,
        to: Text,
        #[serde(default)]
        rule: Rule,
        #[serde(default)]
        force: bool,
    },
    SetAttr {
        path: Text,
        #[serde(with = "crate::text::octal::option", default)]
        mode: Option<u16>,
        size: Option<u64>,
    },
    Write {
        path: Text,
        #[serde(default)]
        offset: u64,
        data: Blob,
        #[serde(default)]
        truncate: bool,
    },
    SetXattr {
        path: Text,
        name: Text,
        value: Blob,
        #[serde(default)]
        rule: AttrRule,
    },
    RemoveXattr {
        path: Text,
        name: Text,
    },
}

/// What setting an extended attribute does when it exists, or does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AttrRule {
    #[default]
    Any,
    Create,
    Replace,
}

/// What a rename does when the new name exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rule {
    #[default]
    Replace,
    NoReplace,
    Exchange,
}
