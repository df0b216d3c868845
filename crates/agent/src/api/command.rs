//! What users ask: commands, and what they are about.
//!
//! Decides: the vocabulary of what is asked, with the defaults and limits of each command. Place in the walk: `Agent::submit` takes a [`Command`].
//! Invariant: a command names all that it needs; none rests on one before it.
//! Leaves to others: what users are told ([`super::told`]), carrying it out (`tasks`).

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{Expect, Mode, ObjectId, RenameRule, XattrRule};
use core::time::Duration;

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
    /// The holder's token: [`Locked::token`](super::Locked::token).
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
pub enum Command {
    /// An object's attributes → [`Output::Attr`](super::Output::Attr).
    Stat {
        /// What.
        target: Target,
        /// Whether a symbolic link at the end of the path is followed.
        follow: bool,
    },
    /// Contents of a file → [`Output::Data`](super::Output::Data), all of one version.
    Read {
        /// What; symbolic links are followed.
        target: Target,
        /// First byte.
        offset: u64,
        /// Most bytes; `None`: to the end.
        length: Option<u64>,
    },
    /// Target of a symbolic link → [`Output::Data`](super::Output::Data).
    ReadLink {
        /// What.
        target: Target,
    },
    /// A directory, all of one version → [`Output::Listing`](super::Output::Listing).
    List {
        /// What; symbolic links are followed.
        target: Target,
        /// Whether entries come with attributes.
        detail: bool,
    },
    /// Writes into an existing file → [`Output::Attr`](super::Output::Attr).
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
    /// Makes a file if it is missing, then replaces its contents → [`Output::Attr`](super::Output::Attr).
    Put {
        /// Path of the file.
        path: Bytes,
        /// Its new contents, at most 1 MiB.
        data: Bytes,
        /// Who owns it, when it is new.
        owner: Ownership,
    },
    /// Makes an empty file → [`Output::Attr`](super::Output::Attr).
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
    /// Makes a directory → [`Output::Attr`](super::Output::Attr).
    Mkdir {
        /// Its path.
        path: Bytes,
        /// Who owns it.
        owner: Ownership,
    },
    /// Makes a symbolic link → [`Output::Attr`](super::Output::Attr).
    Symlink {
        /// Its path.
        path: Bytes,
        /// What it points to.
        points_to: Bytes,
        /// Who owns it; the mode is ignored.
        owner: Ownership,
    },
    /// Gives a file one more name → [`Output::Attr`](super::Output::Attr).
    Link {
        /// The file; a symbolic link at the end is not followed.
        existing: Bytes,
        /// The new name.
        path: Bytes,
    },
    /// Takes a name of a file or symbolic link away → [`Output::Done`](super::Output::Done).
    Unlink {
        /// The name.
        path: Bytes,
        /// Although somebody holds an advisory lock on it.
        force: bool,
    },
    /// Takes an empty directory away → [`Output::Done`](super::Output::Done).
    Rmdir {
        /// The directory.
        path: Bytes,
    },
    /// Moves a name → [`Output::Done`](super::Output::Done).
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
    /// Sets attributes → [`Output::Attr`](super::Output::Attr).
    SetAttr {
        /// What.
        target: Target,
        /// Whether a symbolic link at the end of the path is followed.
        follow: bool,
        /// What to set.
        change: AttrChange,
    },
    /// The value of an extended attribute, all of one version → [`Output::Xattr`](super::Output::Xattr).
    GetXattr {
        /// Of what.
        target: Target,
        /// Whether a symbolic link at the end of the path is followed.
        follow: bool,
        /// The attribute's name.
        name: Bytes,
    },
    /// Names of all extended attributes, all of one version → [`Output::XattrNames`](super::Output::XattrNames).
    ListXattr {
        /// Of what.
        target: Target,
        /// Whether a symbolic link at the end of the path is followed.
        follow: bool,
    },
    /// Sets an extended attribute → [`Output::Attr`](super::Output::Attr).
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
    /// Takes an extended attribute away → [`Output::Attr`](super::Output::Attr).
    RemoveXattr {
        /// Of what.
        target: Target,
        /// Whether a symbolic link at the end of the path is followed.
        follow: bool,
        /// The attribute's name.
        name: Bytes,
    },
    /// Several changes, all of them or none → [`Output::Batched`](super::Output::Batched), or [`OpError::Item`](super::OpError::Item).
    Batch {
        /// Create, Mkdir, Symlink, Link, Unlink, Rmdir, Rename, SetAttr, Write, SetXattr and RemoveXattr; 1 to 16. A path means what it meant before the batch, unless an item before has made that very name: then it means what was made;
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
    /// An advisory lock → [`Output::Locked`](super::Output::Locked).
    Lock {
        /// On what; symbolic links are followed.
        target: Target,
        /// Its mode.
        mode: Mode,
        /// How long to wait.
        wait: Wait,
    },
    /// Gives an advisory lock back → [`Output::Done`](super::Output::Done).
    Unlock {
        /// Whose.
        holder: HolderId,
    },
    /// Begins to watch an object → [`Output::Watching`](super::Output::Watching), at once; what becomes of it comes as [`Event::Watch`](super::Event::Watch).
    Watch {
        /// The object.
        object: ObjectId,
    },
    /// Ends a watch → [`Output::Done`](super::Output::Done), at once.
    Unwatch {
        /// Which.
        watch: WatchId,
    },
    /// Who holds and waits for advisory locks → [`Output::Locks`](super::Output::Locks).
    ListLocks {
        /// On what; `None`: everywhere, and each row tells a path of its object.
        target: Option<Target>,
    },
    /// How the server is → [`Output::Server`](super::Output::Server).
    ServerStatus,
    /// One round trip to the server's application → [`Output::Pong`](super::Output::Pong).
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
