//! What users ask of an agent and what it tells them: commands, outputs, errors, events.
//!
//! Invariants: a command names all that it needs, none rests on one before it; every command ends exactly once, at once or as
//! [`Event::Done`], with an output or an error that says what is known of its outcome.

mod events;
mod rows;

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_link::Instant;
use cistern_seal::LeaseSecret;
use cistern_wire::sealed::OpenStatus;
use cistern_wire::{
    Attr, Expect, Generation, ItemResult, Limited, Mode, ObjectId, ObjectKind, Realm, RefuseReason, RenameRule, ServerReport, Status,
    XattrRule,
};
use core::time::Duration;

pub use self::events::{Event, LockEvent, Submitted, WatchEvent};
pub use self::rows::{LeaseInfo, LockInfo, RealmInfo};
pub use crate::lease::{HolderView, LeaseView, Phase};

/// Number of a command, chosen by the agent when it takes the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// One local user's hold of an advisory lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(pub u64);

/// One local user's watch of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// What a command is about: a path from the root, or an object known by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A path; `/` separates names, `.` and `..` and symbolic links are resolved as POSIX does.
    Path(Bytes),
    /// An object.
    Object(ObjectId),
}

/// The local hold of an advisory lock under which a mutation is done: it fails with STALE_GUARD when that hold is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The locked object.
    pub object: ObjectId,
    /// The holder's token: [`Locked::token`].
    pub token: u64,
}

/// How long a lock request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Try,
    /// At most so long, on the agent's clock.
    AtMost(Duration),
    /// Until it is granted or cancelled.
    Forever,
}

/// Attributes to set; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrChange {
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: truncates, or extends with zeros.
    pub size: Option<u64>,
    /// Access time, in nanoseconds since 1970.
    pub atime_ns: Option<i64>,
    /// Modification time, in nanoseconds since 1970.
    pub mtime_ns: Option<i64>,
}

/// Who owns what is created, and its permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Permission bits, 0 to 0o7777.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// What a user asks of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// An object's attributes → [`Output::Attr`].
    Stat {
        /// What.
        target: Target,
        /// Whether a symbolic link at the end of the path is followed.
        follow: bool,
    },
    /// Contents of a file → [`Output::Data`], all of one version.
    Read {
        /// What; symbolic links are followed.
        target: Target,
        /// First byte.
        offset: u64,
        /// Most bytes; `None`: to the end.
        length: Option<u64>,
    },
    /// Target of a symbolic link → [`Output::Data`].
    ReadLink {
        /// What.
        target: Target,
    },
    /// A directory, all of one version → [`Output::Listing`].
    List {
        /// What; symbolic links are followed.
        target: Target,
        /// Whether entries come with attributes.
        detail: bool,
    },
    /// Writes into an existing file → [`Output::Attr`].
    Write {
        /// What; symbolic links are followed.
        target: Target,
        /// Where.
        offset: u64,
        /// The bytes, at most 1 MiB less the offset.
        data: Bytes,
        /// Whether what was after them is cut off.
        truncate: bool,
    },
    /// Makes a file if it is missing, then replaces its contents → [`Output::Attr`].
    Put {
        /// Path of the file.
        path: Bytes,
        /// Its new contents, at most 1 MiB.
        data: Bytes,
        /// Who owns it, when it is new.
        owner: Ownership,
    },
    /// Makes an empty file → [`Output::Attr`].
    Create {
        /// Its path.
        path: Bytes,
        /// Whether an existing one is an error.
        exclusive: bool,
        /// Whether it goes with the agent's session; then it must be `exclusive`.
        ephemeral: bool,
        /// Who owns it.
        owner: Ownership,
    },
    /// Makes a directory → [`Output::Attr`].
    Mkdir {
        /// Its path.
        path: Bytes,
        /// Who owns it.
        owner: Ownership,
    },
    /// Makes a directory that begins a realm → [`Output::Attr`].
    MakeRealm {
        /// Its path.
        path: Bytes,
        /// Who owns it.
        owner: Ownership,
    },
    /// Sets quotas of the realm that a directory begins → [`Output::Attr`]. 0: no bound; `None`: as it is.
    SetQuota {
        /// The directory; symbolic links are followed.
        target: Target,
        /// Most objects.
        objects: Option<u64>,
        /// Most bytes.
        bytes: Option<u64>,
    },
    /// Makes a symbolic link → [`Output::Attr`].
    Symlink {
        /// Its path.
        path: Bytes,
        /// What it points to.
        points_to: Bytes,
        /// Who owns it; the mode is ignored.
        owner: Ownership,
    },
    /// Gives a file one more name → [`Output::Attr`].
    Link {
        /// The file; a symbolic link at the end is not followed.
        existing: Bytes,
        /// The new name.
        path: Bytes,
    },
    /// Takes a name of a file or symbolic link away → [`Output::Done`].
    Unlink {
        /// The name.
        path: Bytes,
        /// Although somebody holds an advisory lock on it.
        force: bool,
    },
    /// Takes an empty directory away → [`Output::Done`].
    Rmdir {
        /// The directory.
        path: Bytes,
    },
    /// Moves a name → [`Output::Done`].
    Rename {
        /// The old name.
        from: Bytes,
        /// The new name.
        to: Bytes,
        /// What happens when it exists.
        rule: RenameRule,
        /// Although somebody holds an advisory lock on what is moved, replaced or exchanged.
        force: bool,
    },
    /// Sets attributes → [`Output::Attr`].
    SetAttr {
        /// What.
        target: Target,
        /// Whether a symbolic link at the end of the path is followed.
        follow: bool,
        /// What to set.
        change: AttrChange,
    },
    /// The value of an extended attribute, all of one version → [`Output::Xattr`].
    GetXattr {
        /// Of what.
        target: Target,
        /// Whether a symbolic link at the end of the path is followed.
        follow: bool,
        /// The attribute's name.
        name: Bytes,
    },
    /// Names of all extended attributes, all of one version → [`Output::XattrNames`].
    ListXattr {
        /// Of what.
        target: Target,
        /// Whether a symbolic link at the end of the path is followed.
        follow: bool,
    },
    /// Sets an extended attribute → [`Output::Attr`].
    SetXattr {
        /// Of what.
        target: Target,
        /// Whether a symbolic link at the end of the path is followed.
        follow: bool,
        /// The attribute's name.
        name: Bytes,
        /// Its value, at most 64 KiB.
        value: Bytes,
        /// What happens when it exists, or does not.
        rule: XattrRule,
    },
    /// Takes an extended attribute away → [`Output::Attr`].
    RemoveXattr {
        /// Of what.
        target: Target,
        /// Whether a symbolic link at the end of the path is followed.
        follow: bool,
        /// The attribute's name.
        name: Bytes,
    },
    /// Several changes, all of them or none → [`Output::Batched`], or [`OpError::Item`].
    Batch {
        /// Create, Mkdir, MakeRealm, SetQuota, MakeLease, Attach, Symlink, Link, Unlink, Rmdir, Rename, SetAttr, Write, SetXattr and RemoveXattr; 1 to 16. A path means what it meant before the batch, unless an item before has made that very name: then it means what was made;
        /// one through a name that an item before has exchanged fails with EINVAL. All that is staged together: at most 4 MiB, or E2BIG.
        /// Create does not follow a symbolic link (EEXIST).
        items: Vec<Command>,
    },
    /// A change that is made only under a lock that is held, and only if objects have the versions expected; otherwise it fails with
    /// STALE_GUARD or VERSION_CHANGED and changes nothing → as the command. Of a command that makes several changes the first depends on
    /// the versions.
    Expecting {
        /// The lock that guards it.
        guard: Option<Guard>,
        /// Objects and versions; version 0: there must be no such object. At most 8.
        expect: Vec<Expect>,
        /// The command.
        command: Box<Command>,
    },
    /// An advisory lock → [`Output::Locked`].
    Lock {
        /// On what; symbolic links are followed.
        target: Target,
        /// Its mode.
        mode: Mode,
        /// How long to wait.
        wait: Wait,
    },
    /// Gives an advisory lock back → [`Output::Done`].
    Unlock {
        /// Whose.
        holder: HolderId,
    },
    /// Begins to watch an object → [`Output::Watching`], at once; what becomes of it comes as [`Event::Watch`].
    Watch {
        /// The object.
        object: ObjectId,
    },
    /// Ends a watch → [`Output::Done`], at once.
    Unwatch {
        /// Which.
        watch: WatchId,
    },
    /// Who holds and waits for advisory locks → [`Output::Locks`].
    ListLocks {
        /// On what; `None`: everywhere, and each row tells a path of its object.
        target: Option<Target>,
    },
    /// Makes a named lease: a file that goes when nobody keeps it → [`Output::Attr`].
    MakeLease {
        /// Its path.
        path: Bytes,
        /// Its time to live, in milliseconds: 500 to 2,592,000,000.
        ttl_ms: u32,
        /// Who has it keeps the lease.
        secret: LeaseSecret,
        /// Who owns the file.
        owner: Ownership,
    },
    /// Has a file or symbolic link go with a named lease → [`Output::Attr`].
    Attach {
        /// The file; a symbolic link at the end is not followed.
        path: Bytes,
        /// A path of the lease.
        lease: Bytes,
        /// The lease's secret.
        secret: LeaseSecret,
    },
    /// Gives a named lease its whole time again → [`Output::LeaseKept`].
    KeepLease {
        /// The lease.
        lease: Target,
        /// Its secret.
        secret: LeaseSecret,
    },
    /// Named leases, or the files of one → [`Output::Leases`].
    ListLeases {
        /// Whose files, its own among them; `None`: all leases, without what is attached.
        lease: Option<Target>,
    },
    /// Realms, with their quotas and use → [`Output::Realms`].
    ListRealms {
        /// Which; `None`: all.
        realm: Option<Realm>,
    },
    /// An operator's line for the server → [`Output::Line`]. It is executed at most once: after the loss of its session nobody says whether it
    /// was. E2BIG: it does not fit a datagram.
    Admin {
        /// A line of the control protocol, without its end.
        line: Bytes,
    },
    /// How the server is → [`Output::Server`].
    ServerStatus,
    /// One round trip to the server's application → [`Output::Pong`].
    Ping,
}

impl Command {
    /// The same, under the lock that guards it.
    #[must_use]
    pub fn guarded(self, guard: Guard) -> Self {
        Self::Expecting { guard: Some(guard), expect: Vec::new(), command: Box::new(self) }
    }

    /// The guard that it is under, if there is one.
    #[must_use]
    pub const fn guard(&self) -> Option<Guard> {
        match self {
            Self::Expecting { guard, .. } => *guard,
            _ => None,
        }
    }

    /// The command without what it depends on.
    #[must_use]
    pub fn unconditional(&self) -> &Self {
        match self {
            Self::Expecting { command, .. } => command,
            command => command,
        }
    }
}

/// One name in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: Bytes,
    /// The object.
    pub object: ObjectId,
    /// What it is.
    pub kind: ObjectKind,
    /// Its attributes, when asked for.
    pub attr: Option<Attr>,
}

/// An advisory lock as a user sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locked {
    /// The hold; give it to [`Command::Unlock`].
    pub holder: HolderId,
    /// The locked object.
    pub object: ObjectId,
    /// The mode.
    pub mode: Mode,
    /// The agent's grant; guards name it.
    pub generation: Generation,
    /// The fencing token of this hold: larger than every token shown before to any holder of this lock, wherever.
    pub token: u64,
    /// The lock is certain until this instant on the agent's lease clock; renewals move it on.
    pub valid_until: Instant,
}

/// What a command brought.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Done.
    Done,
    /// Attributes after the operation.
    Attr(Attr),
    /// Bytes, with the attributes of the version they belong to.
    Data {
        /// Attributes.
        attr: Attr,
        /// Where the bytes begin.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// A directory.
    Listing {
        /// Its attributes.
        dir: Attr,
        /// Its entries in byte order of their names.
        entries: Vec<Listed>,
    },
    /// The value of an extended attribute.
    Xattr {
        /// The object.
        object: ObjectId,
        /// Its version.
        version: u64,
        /// The value.
        value: Bytes,
    },
    /// Names of extended attributes.
    XattrNames {
        /// The object.
        object: ObjectId,
        /// Its version.
        version: u64,
        /// The names, in byte order.
        names: Vec<Bytes>,
    },
    /// What the items of a batch were about, in order.
    Batched(Vec<ItemResult>),
    /// A lock.
    Locked(Locked),
    /// A watch that has begun; nothing is certain before its first event.
    Watching(WatchId),
    /// Locks.
    Locks(Vec<LockInfo>),
    /// Realms, by number.
    Realms(Vec<RealmInfo>),
    /// A named lease was kept.
    LeaseKept {
        /// It lasts until then on the agent's lease clock, at least: its time counts from when the command was given.
        until: Instant,
    },
    /// Files of named leases, by number.
    Leases(Vec<LeaseInfo>),
    /// What an operator's line was answered.
    Line(Bytes),
    /// The server's report, and the servers of its group in the order of their list. In a box, for every output is as large as the largest.
    Server(Box<ServerReport<'static>>, Vec<ServerHeard>),
    /// A round trip.
    Pong {
        /// How long it took on the agent's clock.
        round_trip: Duration,
    },
}

/// A server of a group, as the one that serves knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHeard {
    /// As the group's list has it.
    pub name: Vec<u8>,
    /// How long ago the serving one has heard it; `None`: not yet.
    pub heard: Option<Duration>,
}

/// Why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpError {
    /// The server's application said so; or the agent itself, with the same meaning, before asking.
    Status(Status),
    /// An item of a batch could not be done, so nothing of the batch was.
    Item {
        /// Which, counted from 0.
        item: u16,
        /// Why.
        status: Status,
    },
    /// A quota, or a share of something that is bounded, is used up.
    Limited(Limited),
    /// A lock request waited as long as it was allowed to.
    TimedOut,
    /// The server did not answer in the time that commands have; nothing was changed by this command.
    Unreachable,
    /// The session ended, or the command did, before the outcome of a mutation was known: it was done once, or not at all. As long as the
    /// session goes on it may still be done.
    OutcomeUnknown,
    /// The lease ran out while the operation was running, or the lock was lost.
    LeaseLost,
    /// The server refused a session.
    Refused(RefuseReason),
    /// The server does not take this agent's key.
    NotAdmitted(OpenStatus),
    /// The server at this address is not the one that the agent knows.
    AnotherServer,
    /// The agent is closing.
    Closed,
    /// A bound of the agent is reached: too many commands at once.
    Overloaded,
}
