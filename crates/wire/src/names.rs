//! The names family: LOOKUP, READDIR, CREATE, MKDIR, SYMLINK, LINK, UNLINK, RMDIR, RENAME.
//!
//! Decides: their layout. Implements `wire-spec.md` section 6.2.
//! Invariant: a name here is a single component; `.`, `..` and symbolic links are the agent's to resolve.
//! Leaves to others: what they do (`server::namespace`).

use crate::attr::ObjectKind;
use crate::field::{Bytes8, Bytes16, List};
use crate::ids::{Ask, ObjectId, Want};
use crate::limits::NAME_MAX;
use crate::reply::Stated;
use crate::shape::Shown;

/// Whether a directory can have an entry of this name: one component of a path, 1 to 255 bytes, without NUL and `/`, neither `.` nor `..`.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    let taken = name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, 0 | b'/'));
    !taken && name.len() <= NAME_MAX
}

codes! {
    /// What RENAME does when the new name exists.
    pub enum RenameRule {
        /// Replaces it.
        Replace = 0 "replace",
        /// Fails with EEXIST.
        NoReplace = 1 "no-replace",
        /// Exchanges the two; the new name must exist.
        Exchange = 2 "exchange",
    }
}

body! {
    /// Agent to server: walks several components in one round trip.
    pub struct Lookup<'a> {
        /// The request.
        pub ask: Ask,
        /// The directory in which the first name is looked up.
        pub start: ObjectId,
        /// The cache lock wanted on every object on the way.
        pub want: Want,
        /// The names, first to last.
        pub names: List<'a, Bytes8<'a>>,
    }
}

body! {
    /// Agent to server: a page of a directory.
    pub struct ReadDir<'a> {
        /// The request.
        pub ask: Ask,
        /// The directory.
        pub dir: ObjectId,
        /// Goes on after this name, in byte order; empty: from the start. Stable under every change of the directory.
        pub after: Bytes8<'a>,
        /// Version that the earlier pages had; 0: any. Another one now: VERSION_CHANGED (section 11.5).
        pub version: u64,
        /// Whether entries come with attributes.
        pub detail: bool,
        /// The cache lock wanted on the directory, and on the entries when they come with attributes.
        pub want: Want,
    }
}

body! {
    /// One name of a directory.
    pub struct Entry<'a> {
        /// The name.
        pub name: Bytes8<'a>,
        /// What it names.
        pub object: ObjectId,
        /// What that is.
        pub kind: ObjectKind,
        /// Its attributes, when asked for.
        pub detail: Option<Stated>,
    }
}

mutation! {
    /// Agent to server: a new empty file.
    pub struct Create<'a> {
        /// The directory.
        pub dir: ObjectId,
        /// The new name.
        pub name: Bytes8<'a>,
        /// Whether an existing file is an error (EEXIST); otherwise it is opened as it is.
        pub exclusive: bool,
        /// Permission bits.
        pub mode: u16 as Shown::Octal,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Whether it goes when its session ends, or the one that has reclaimed from that.
        pub ephemeral: bool,
    }
}

mutation! {
    /// Agent to server: a new directory.
    pub struct Mkdir<'a> {
        /// The directory in which it is made.
        pub dir: ObjectId,
        /// The new name.
        pub name: Bytes8<'a>,
        /// Permission bits.
        pub mode: u16 as Shown::Octal,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
    }
}

mutation! {
    /// Agent to server: a new symbolic link.
    pub struct Symlink<'a> {
        /// The directory.
        pub dir: ObjectId,
        /// The new name.
        pub name: Bytes8<'a>,
        /// What it points to; at most 400 bytes.
        pub target: Bytes16<'a> as Shown::Text,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
    }
}

mutation! {
    /// Agent to server: one more name for a file.
    pub struct Link<'a> {
        /// The file.
        pub object: ObjectId,
        /// The directory.
        pub dir: ObjectId,
        /// The new name.
        pub name: Bytes8<'a>,
    }
}

mutation! {
    /// Agent to server: takes a name of a file or symbolic link away; with its last name the object goes.
    pub struct Unlink<'a> {
        /// The directory.
        pub dir: ObjectId,
        /// The name.
        pub name: Bytes8<'a>,
        /// Goes on although another session holds an advisory lock on it (section 11.4).
        pub force: bool,
    }
}

mutation! {
    /// Agent to server: takes an empty directory away.
    pub struct Rmdir<'a> {
        /// The directory in which it is.
        pub dir: ObjectId,
        /// Its name.
        pub name: Bytes8<'a>,
    }
}

mutation! {
    /// Agent to server: moves a name.
    pub struct Rename<'a> {
        /// Directory of the old name.
        pub from_dir: ObjectId,
        /// The old name.
        pub from_name: Bytes8<'a>,
        /// Directory of the new name.
        pub to_dir: ObjectId,
        /// The new name.
        pub to_name: Bytes8<'a>,
        /// What happens when it exists.
        pub rule: RenameRule,
        /// Goes on although another session holds an advisory lock on what is moved, replaced or exchanged (section 11.4).
        pub force: bool,
    }
}
