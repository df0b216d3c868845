//! The contents family: READ, STAGE, WRITE.
//!
//! Decides: their layout. Implements `wire-spec.md` section 6.2.
//! Invariant: contents that need several datagrams are staged first and written once, whole (section 11.5).
//! Leaves to others: staging, bounds and versions (`server::stage`, `server::namespace`).

use crate::field::Bytes16;
use crate::ids::{Ask, ObjectId, Want};

body! {
    /// Agent to server: a page of a file's contents, or of a symbolic link's target.
    pub struct Read {
        /// The request.
        pub ask: Ask,
        /// The file.
        pub object: ObjectId,
        /// First byte wanted.
        pub offset: u64,
        /// Most bytes wanted; the answer has as many as fit its datagram.
        pub length: u32,
        /// Version that the earlier pages had; 0: any. Another one now: VERSION_CHANGED (section 11.5).
        pub version: u64,
        /// The cache lock wanted.
        pub want: Want,
    }
}

body! {
    /// Agent to server: a piece of contents, or of the value of an attribute, for a later mutation that names the stage.
    pub struct Stage<'a> {
        /// The request.
        pub ask: Ask,
        /// The stage: a number that the agent chooses, unique in its session, not 0.
        pub stage: u64,
        /// Bytes of the whole, up to 1 MiB; the same in every piece.
        pub total: u32,
        /// Where this piece begins.
        pub offset: u32,
        /// The piece.
        pub data: Bytes16<'a>,
    }
}

mutation! {
    /// Agent to server: writes contents, from the message itself or from a stage.
    pub struct Write<'a> {
        /// The file.
        pub object: ObjectId,
        /// Where the contents begin.
        pub offset: u64,
        /// Whether what was in the file after the bytes written is cut off.
        pub truncate: bool,
        /// The stage that has the contents; 0: `data` has them.
        pub stage: u64,
        /// The contents; empty when staged.
        pub data: Bytes16<'a>,
    }
}
