//! The family of named leases: MKLEASE, ATTACH, KEEP_LEASE, LIST_LEASES.
//!
//! Decides: their layout. Implements `wire-spec.md` sections 6.2 and 6.5.
//! Leaves to others: when a named lease ends, and what goes with it (`server::leases`).

use crate::field::{Bytes8, Bytes16, List};
use crate::ids::{Ask, Handle, ObjectId};
use crate::shape::Shown;

mutation! {
    /// Agent to server: a new file that is a named lease.
    pub struct MakeLease<'a> {
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
        /// Its time to live.
        pub ttl_ms: u32,
        /// Hash of its secret.
        pub verifier: [u8; 32],
    }
}

mutation! {
    /// Agent to server: a file goes when a named lease ends.
    pub struct Attach<'a> {
        /// The file or symbolic link.
        pub object: ObjectId,
        /// The lease.
        pub lease: ObjectId,
        /// The lease's secret.
        pub secret: [u8; 16],
    }
}

body! {
    /// Agent to server: a named lease has its full time again.
    pub struct KeepLease {
        /// The request.
        pub ask: Ask,
        /// The lease.
        pub lease: ObjectId,
        /// Its secret.
        pub secret: [u8; 16],
    }
}

body! {
    /// Agent to server: named leases, or what is attached to one.
    pub struct ListLeases {
        /// The request.
        pub ask: Ask,
        /// The lease whose files are listed, itself among them; 0: all leases are.
        pub lease: ObjectId,
        /// Goes on after this object; 0: from the start.
        pub after: ObjectId,
    }
}

body! {
    /// Answers KEEP_LEASE.
    pub struct LeaseKept {
        /// For how long the lease lasts, from when the request was executed.
        pub ttl_ms: u32,
    }
}

body! {
    /// One file of a named lease; the lease's own or one that is attached.
    pub struct LeaseRow<'a> {
        /// The file.
        pub object: ObjectId,
        /// The lease.
        pub lease: ObjectId,
        /// The lease's time to live.
        pub ttl_ms: u32,
        /// What is left of it.
        pub left_ms: u32,
        /// How many files go with the lease, its own included.
        pub files: u32,
        /// A path of the file, as far as it fits.
        pub place: Bytes16<'a> as Shown::Text,
    }
}

body! {
    /// Answers LIST_LEASES.
    pub struct LeaseRows<'a> {
        /// Whether this page is the last.
        pub end: bool,
        /// The files, by number.
        pub rows: List<'a, LeaseRow<'a>>,
    }
}

impl ObjectId {
    /// As which a named lease stands for itself: the `owner` of all that goes with it.
    #[must_use]
    pub const fn as_owner(self) -> Handle {
        Handle(self.0)
    }
}
