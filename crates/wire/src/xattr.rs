//! Extended attributes: GETXATTR, LISTXATTR, SETXATTR, REMOVEXATTR.
//!
//! Decides: their layout. Implements `wire-spec.md` section 6.2.
//! Invariant: a value that needs several datagrams is read in pages of one version, and staged before it is set (section 11.5).
//! Leaves to others: bounds and meaning (`server::namespace`); nothing of them is cached.

use crate::field::{Bytes8, Bytes16};
use crate::ids::{Ask, ObjectId};

codes! {
    /// What SETXATTR does when the attribute exists, or does not.
    pub enum XattrRule {
        /// Sets it either way.
        Any = 0 "any",
        /// Fails with EEXIST when it exists.
        Create = 1 "create",
        /// Fails with ENODATA when it does not.
        Replace = 2 "replace",
    }
}

body! {
    /// Agent to server: a page of the value of an extended attribute.
    pub struct GetXattr<'a> {
        /// The request.
        pub ask: Ask,
        /// The object.
        pub object: ObjectId,
        /// The attribute's name.
        pub name: Bytes8<'a>,
        /// First byte wanted.
        pub offset: u32,
        /// Most bytes wanted; the answer has as many as fit its datagram.
        pub length: u32,
        /// Version that the earlier pages had; 0: any. Another one now: VERSION_CHANGED (section 11.5).
        pub version: u64,
    }
}

body! {
    /// Agent to server: a page of the names of an object's extended attributes.
    pub struct ListXattr<'a> {
        /// The request.
        pub ask: Ask,
        /// The object.
        pub object: ObjectId,
        /// Goes on after this name, in byte order; empty: from the start.
        pub after: Bytes8<'a>,
        /// Version that the earlier pages had; 0: any. Another one now: VERSION_CHANGED (section 11.5).
        pub version: u64,
    }
}

mutation! {
    /// Agent to server: sets an extended attribute, from the message itself or from a stage.
    pub struct SetXattr<'a> {
        /// The object.
        pub object: ObjectId,
        /// The attribute's name.
        pub name: Bytes8<'a>,
        /// What happens when it exists, or does not.
        pub rule: XattrRule,
        /// The stage that has the value; 0: `data` has it.
        pub stage: u64,
        /// The value; empty when staged.
        pub data: Bytes16<'a>,
    }
}

mutation! {
    /// Agent to server: takes an extended attribute away.
    pub struct RemoveXattr<'a> {
        /// The object.
        pub object: ObjectId,
        /// The attribute's name.
        pub name: Bytes8<'a>,
    }
}
