//! Attributes of objects, the cache lock that may come with them, GETATTR and SETATTR.
//!
//! Decides: their layout. Implements `wire-spec.md` section 6.2.
//! Leaves to others: what each operation changes (`server::namespace`).

use crate::ids::{Ask, Generation, Handle, ObjectId, Realm, Want};
use crate::shape::Shown;

codes! {
    /// What an object is.
    pub enum ObjectKind {
        /// A regular file.
        File = 1 "file",
        /// A directory.
        Directory = 2 "directory",
        /// A symbolic link.
        Symlink = 3 "symlink",
    }
}

body! {
    /// An object's attributes. Times are nanoseconds since 1970 on the server's wall clock; they never decide about leases.
    pub struct Attr {
        /// The object.
        pub object: ObjectId,
        /// Grows with every change of the object, contents and entries included.
        pub version: u64,
        /// What it is.
        pub kind: ObjectKind,
        /// Permission bits, 0 to 0o7777.
        pub mode: u16 as Shown::Octal,
        /// Names that it has.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Bytes of contents, entries of a directory, or bytes of a link's target.
        pub size: u64,
        /// Time of last access as somebody set it; reading does not change it (section 11.5).
        pub atime_ns: i64,
        /// Time of the last change of contents.
        pub mtime_ns: i64,
        /// Time of the last change of anything.
        pub ctime_ns: i64,
        /// Of an ephemeral file, the handle of the session that made it; 0: it is not ephemeral. It goes with that session, or with the
        /// one that has reclaimed from it after a restart.
        pub owner: Handle,
        /// The realm to which it belongs; of a directory that begins one, that one. It never changes.
        pub realm: Realm,
    }
}

impl Attr {
    /// Those of an empty file: where any will do, and for tests, which set what they are about.
    pub const FILE: Self = Self {
        object: ObjectId(0),
        version: 1,
        kind: ObjectKind::File,
        mode: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        owner: Handle(0),
        realm: Realm::TREE,
    };

    /// Whether the object goes when its owner ends: the session that made it, or a named lease.
    #[must_use]
    pub fn is_ephemeral(&self) -> bool {
        self.owner != Handle(0)
    }

    /// Whether it is the file of a named lease.
    #[must_use]
    pub fn is_lease(&self) -> bool {
        self.owner == self.object.as_owner()
    }
}

body! {
    /// A cache lock that comes with data, or none.
    pub struct CacheGrant {
        /// Its mode; nothing: the data must not be cached.
        pub mode: Want,
        /// The grant; 0: none.
        pub generation: Generation,
    }
}

impl CacheGrant {
    /// No grant.
    pub const NONE: Self = Self { mode: Want::Nothing, generation: Generation(0) };
}

body! {
    /// What a mutation did to one object.
    pub struct Effect {
        /// The object's version before; 0: it did not exist.
        pub before: u64,
        /// Its attributes after; a link count of 0: it is gone.
        pub attr: Attr,
        /// The cache lock that the requester now has on it, if that is new.
        pub grant: CacheGrant,
    }
}

impl Effect {
    /// Of nothing: for lists of which the rest is empty.
    pub const NONE: Self = Self { before: 0, attr: Attr::FILE, grant: CacheGrant::NONE };
}

body! {
    /// Agent to server: an object's attributes.
    pub struct GetAttr {
        /// The request.
        pub ask: Ask,
        /// The object.
        pub object: ObjectId,
        /// The cache lock wanted with them.
        pub want: Want,
    }
}

body! {
    /// Which attributes SETATTR sets: bit 0 mode, 1 uid, 2 gid, 3 size, 4 atime, 5 mtime, 6 atime to now, 7 mtime to now.
    pub struct SetMask {
        /// The bits.
        pub bits: u8 as SET_BITS,
    }
}

const SET_BITS: Shown = Shown::Bits(&[
    (SetMask::MODE as u64, "mode"),
    (SetMask::UID as u64, "uid"),
    (SetMask::GID as u64, "gid"),
    (SetMask::SIZE as u64, "size"),
    (SetMask::ATIME as u64, "atime"),
    (SetMask::MTIME as u64, "mtime"),
    (SetMask::ATIME_NOW as u64, "atime_now"),
    (SetMask::MTIME_NOW as u64, "mtime_now"),
]);

impl SetMask {
    /// Permission bits.
    pub const MODE: u8 = 1;
    /// Owner.
    pub const UID: u8 = 2;
    /// Group.
    pub const GID: u8 = 4;
    /// Size: truncates or extends with zeros.
    pub const SIZE: u8 = 8;
    /// Access time to the value given.
    pub const ATIME: u8 = 16;
    /// Modification time to the value given.
    pub const MTIME: u8 = 32;
    /// Access time to the server's time.
    pub const ATIME_NOW: u8 = 64;
    /// Modification time to the server's time.
    pub const MTIME_NOW: u8 = 128;

    /// Whether all of `bits` are set.
    #[must_use]
    pub const fn has(self, bits: u8) -> bool {
        self.bits & bits == bits
    }
}

mutation! {
    /// Agent to server: sets attributes.
    pub struct SetAttr<'a> {
        /// The object.
        pub object: ObjectId,
        /// Which are set; the values of the others are ignored.
        pub mask: SetMask,
        /// Permission bits.
        pub mode: u16 as Shown::Octal,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Size.
        pub size: u64,
        /// Access time.
        pub atime_ns: i64,
        /// Modification time.
        pub mtime_ns: i64,
    }
}
