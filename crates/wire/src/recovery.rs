//! The recovery family: RECLAIM, RECLAIM_COMPLETE, OUTCOME, and their replies.
//!
//! Decides: the layout of what an agent asks about a former session of its own in its present one, after a restart of the server or
//! the end of that session. Implements `wire-spec.md` sections 6.2 and 11.7.
//! Leaves to others: which session may be reclaimed from (`server::grace`), what is asked for (`agent::reclaim`).

use crate::field::{Bytes16, List};
use crate::ids::{Ask, Generation, LockId, Mode, SessionId};
use crate::{Fate, Status};

body! {
    /// A lock that the agent held under a former session, and what it has cached under it.
    pub struct ReclaimItem {
        /// The lock.
        pub lock: LockId,
        /// The mode held.
        pub mode: Mode,
        /// The generation held.
        pub generation: Generation,
        /// The generation with which the agent began to hold it, without a break and without a downgrade since; at most `generation`.
        pub first: Generation,
        /// How many tokens its run has; 0 for a cache lock.
        pub run: u32,
        /// Version of the object as cached; 0: nothing is cached.
        pub version: u64,
    }
}

body! {
    /// What became of a lock after a RECLAIM.
    pub struct ReclaimedItem {
        /// The lock.
        pub lock: LockId,
        /// The generation, which the agent keeps if the status is OK.
        pub generation: Generation,
        /// OK: held as before. NOT_HELD: nothing of that session may be reclaimed any more. ESTALE: the object is gone. Others: refused.
        pub status: Status,
        /// Version of the object now; 0 if it is not OK.
        pub version: u64,
    }
}

body! {
    /// Agent to server: gives locks of a former session to the present one.
    pub struct Reclaim<'a> {
        /// The request.
        pub ask: Ask,
        /// The former session.
        pub from: SessionId,
        /// The locks; at most 12.
        pub items: List<'a, ReclaimItem>,
    }
}

body! {
    /// Agent to server: nothing more will be reclaimed from a former session, and nothing of it is used any more but what was.
    pub struct ReclaimComplete {
        /// The request.
        pub ask: Ask,
        /// The former session.
        pub from: SessionId,
    }
}

body! {
    /// Agent to server: what became of a mutation under a former session. Asking makes sure that it is not executed later.
    pub struct Outcome {
        /// The request.
        pub ask: Ask,
        /// The former session.
        pub session: SessionId,
        /// The mutation's nonce there.
        pub nonce: u64,
    }
}

body! {
    /// Answers RECLAIM.
    pub struct Reclaimed<'a> {
        /// What became of each lock, in the order of the request.
        pub items: List<'a, ReclaimedItem>,
    }
}

body! {
    /// Answers OUTCOME.
    pub struct OutcomeTold<'a> {
        /// What became of it.
        pub fate: Fate,
        /// The reply that it got, encoded, without grants; empty: not kept, or too large for the datagram.
        pub reply: Bytes16<'a>,
    }
}
