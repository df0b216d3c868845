//! The advisory lock family: LOCK; and the two questions about the server itself: LIST_LOCKS, SERVER_STATUS.
//!
//! Decides: their layout. Implements `wire-spec.md` section 6.2.
//! Leaves to others: who gets a lock when (`server::locks`).

use crate::field::{Bytes8, Bytes16};
use crate::ids::{Ask, Generation, Handle, LockId, Mode, ObjectId};
use crate::shape::Shown;

codes! {
    /// What happens when a lock cannot be granted at once.
    pub enum LockWait {
        /// The answer is LOCK_REFUSED.
        Try = 0 "try",
        /// The answer is QUEUED, and the request waits in line until it is granted or cancelled.
        Queue = 1 "queue",
    }
}

codes! {
    /// Standing of a session with the server.
    pub enum Standing {
        /// In good standing: no lease state is kept for it.
        Good = 0 "good",
        /// A delivery failed; its timer runs.
        TimingOut = 1 "timing out",
        /// A delivery failed for good (evicted or superseded); its timer runs.
        Evicted = 2 "evicted",
    }
}

codes! {
    /// What a row of LIST_LOCKS says.
    pub enum RowState {
        /// The agent holds the lock.
        Holds = 1 "holds",
        /// The agent waits for it.
        Waits = 2 "waits",
    }
}

body! {
    /// Agent to server: an advisory lock on a whole object.
    pub struct Lock {
        /// The request.
        pub ask: Ask,
        /// The object.
        pub object: ObjectId,
        /// The mode.
        pub mode: Mode,
        /// What happens when it is held.
        pub wait: LockWait,
    }
}

body! {
    /// Agent to server: who holds and waits for advisory locks.
    pub struct ListLocks {
        /// The request.
        pub ask: Ask,
        /// The object; 0: all objects.
        pub object: ObjectId,
        /// Goes on after this object; 0: from the start.
        pub after_object: ObjectId,
        /// Rows of `after_object` that were seen already.
        pub after_row: u32,
        /// Whether each row tells a path of its object, which costs more than the rest of the row.
        pub places: bool,
    }
}

body! {
    /// Agent to server: what the server is and how it is.
    pub struct ServerStatus {
        /// The request.
        pub ask: Ask,
    }
}

body! {
    /// One who holds a lock.
    pub struct Holder<'a> {
        /// The agent's label.
        pub label: Bytes8<'a>,
        /// Its session's handle.
        pub handle: Handle,
        /// How it holds it.
        pub mode: Mode,
        /// For how long, in milliseconds of the server's clock.
        pub since_ms: u64,
        /// Its session's standing.
        pub standing: Standing,
        /// When its locks are freed at the latest if it is gone, in milliseconds from now; 0: not known.
        pub bound_ms: u64,
    }
}

body! {
    /// One who holds or waits for a lock.
    pub struct LockRow<'a> {
        /// The lock.
        pub lock: LockId,
        /// Holds or waits.
        pub state: RowState,
        /// The mode held or asked for.
        pub mode: Mode,
        /// The grant held; 0 for one who waits.
        pub generation: Generation,
        /// The agent's label.
        pub label: Bytes8<'a>,
        /// Its session's handle.
        pub handle: Handle,
        /// Since when, in milliseconds before now on the server's clock.
        pub since_ms: u64,
        /// The session's standing.
        pub standing: Standing,
        /// When this ends at the latest if the agent is gone, in milliseconds from now; 0: not known.
        pub bound_ms: u64,
        /// A path of the object, as far as it fits; empty: not known, or not asked for.
        pub place: Bytes16<'a> as Shown::Text,
    }
}
