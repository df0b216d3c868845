//! The realm family: MKREALM, SETQUOTA, LIST_REALMS, and what says that a bound is reached.
//!
//! Decides: their layout. Implements `wire-spec.md` sections 6.2 and 6.5.
//! Leaves to others: what belongs to which realm, and how use is counted (`server::namespace`).

use crate::field::{Bytes8, Bytes16, List};
use crate::ids::{Ask, ObjectId, Realm};
use crate::shape::Shown;

mutation! {
    /// Agent to server: a new directory, which begins a realm.
    pub struct MakeRealm<'a> {
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
    /// Agent to server: bounds on what a realm and those in it hold together.
    pub struct SetQuota<'a> {
        /// The directory that begins the realm.
        pub root: ObjectId,
        /// Most objects; 0: no bound; none: as it is.
        pub objects: Option<u64>,
        /// Most bytes; 0: no bound; none: as it is.
        pub bytes: Option<u64>,
    }
}

body! {
    /// Agent to server: realms and their use.
    pub struct ListRealms {
        /// The request.
        pub ask: Ask,
        /// The realm; 0: all.
        pub realm: Realm,
        /// Goes on after this one; 0: from the start.
        pub after: Realm,
    }
}

codes! {
    /// What a quota or a share bounds.
    pub enum Limit {
        /// Objects.
        Objects = 1 "objects",
        /// Bytes of contents, of targets of symbolic links, and of values of extended attributes.
        Bytes = 2 "bytes",
        /// Locks held, of both classes.
        Locks = 3 "locks",
        /// Lock requests that wait.
        Waiters = 4 "waiting lock requests",
        /// Watches.
        Watches = 5 "watches",
        /// Bytes staged.
        Staged = 6 "staged bytes",
        /// Ephemeral files.
        Ephemerals = 7 "ephemeral files",
        /// Sessions.
        Sessions = 8 "sessions",
        /// Named leases.
        Leases = 9 "named leases",
    }
}

codes! {
    /// Whose use a bound is about.
    pub enum Whose {
        /// All that is in a realm.
        Realm = 1 "realm",
        /// What a principal has made.
        Principal = 2 "principal",
        /// All sessions of a key; in plain mode of a host.
        Host = 3 "host",
        /// One session.
        Session = 4 "session",
        /// One object.
        Object = 5 "object",
        /// Everybody.
        Server = 6 "server",
    }
}

body! {
    /// Answers a request that fails with EDQUOT: it would use more than somebody may.
    pub struct Limited {
        /// What would be too much.
        pub limit: Limit,
        /// Whose.
        pub whose: Whose,
        /// Which realm: the object's own, or one around it; 0: it is no realm's.
        pub realm: Realm,
        /// How much of it is used.
        pub used: u64,
        /// How much may be.
        pub bound: u64,
        /// When to try again, in milliseconds; 0: not before something is given back.
        pub retry_ms: u32,
    }
}

body! {
    /// One realm. What is in the realms within it counts as its own, too.
    pub struct RealmRow<'a> {
        /// The realm.
        pub realm: Realm,
        /// The one around it; 0: none.
        pub parent: Realm,
        /// The directory that begins it.
        pub root: ObjectId,
        /// Objects in it.
        pub objects: u64,
        /// Most objects; 0: no quota.
        pub objects_max: u64,
        /// Bytes in it.
        pub bytes: u64,
        /// Most bytes; 0: no quota.
        pub bytes_max: u64,
        /// A path of the directory, as far as it fits.
        pub place: Bytes16<'a> as Shown::Text,
    }
}

body! {
    /// Answers LIST_REALMS.
    pub struct RealmRows<'a> {
        /// Whether this page is the last.
        pub end: bool,
        /// The realms, by number.
        pub rows: List<'a, RealmRow<'a>>,
    }
}
