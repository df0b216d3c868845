//! The notice family: DEMAND, GRANT, WAIT_OVER, PROBE, WATCH_EVENT from the server, and RECEIPT, the agent application's ACK of each.
//!
//! Decides: their layout. Implements `wire-spec.md` section 6.4.
//! Invariant: a notice carries no `echo` and renews nothing (section 11.1); it is retransmitted until its `seq` is receipted or delivery
//! fails.
//! Leaves to others: retransmission and delivery failure (`server::outbox`), compliance (`agent::locks`).

use crate::ids::{Generation, LockId, Mode, ObjectId};
use crate::status::Status;

codes! {
    /// What may be kept of a lock.
    pub enum Keep {
        /// Nothing.
        Nothing = 0 "nothing",
        /// A shared lock.
        Shared = 1 "shared",
    }
}

codes! {
    /// What the agent's application says to a notice.
    pub enum ReceiptAnswer {
        /// Taken in. To a DEMAND: the agent complies as soon as the operation in hand ends.
        Received = 0 "received",
        /// A local user holds the lock; it goes back when that user ends.
        InUse = 1 "in use",
        /// The agent holds no generation up to the one named, and will never install one (section 11.4).
        NotHeld = 2 "not held",
        /// The grant has not arrived yet; the agent complies after it came.
        Awaited = 3 "awaited",
    }
}

body! {
    /// Server to agent: give a lock back, or keep only a shared one. Covers every generation up to the one named.
    pub struct Demand {
        /// Number of the notice in its session, from 1.
        pub seq: u64,
        /// The lock.
        pub lock: LockId,
        /// The newest generation that the server has granted to this session.
        pub generation: Generation,
        /// What may be kept.
        pub keep: Keep,
    }
}

body! {
    /// Server to agent: the lock for which a request was queued.
    pub struct Grant {
        /// Number of the notice in its session, from 1.
        pub seq: u64,
        /// The request that was answered QUEUED.
        pub nonce: u64,
        /// The lock.
        pub lock: LockId,
        /// Its mode.
        pub mode: Mode,
        /// The grant.
        pub generation: Generation,
        /// How many consecutive tokens the grant reserves, from its generation on.
        pub run: u32,
    }
}

body! {
    /// Server to agent: a queued request ended without a grant.
    pub struct WaitOver {
        /// Number of the notice in its session, from 1.
        pub seq: u64,
        /// The request that was answered QUEUED.
        pub nonce: u64,
        /// The lock.
        pub lock: LockId,
        /// Why.
        pub status: Status,
    }
}

body! {
    /// Server to agent: is your application there? Sent while somebody waits for the agent to act (section 11.3).
    pub struct Probe {
        /// Number of the notice in its session, from 1.
        pub seq: u64,
    }
}

body! {
    /// Server to agent: a watched object has changed since the agent was told last, or is gone.
    pub struct WatchEvent {
        /// Number of the notice in its session, from 1.
        pub seq: u64,
        /// The object.
        pub object: ObjectId,
        /// Its version now; of one that is gone, the last that it had.
        pub version: u64,
        /// Whether it is gone; then the watch is over.
        pub gone: bool,
    }
}

body! {
    /// Agent to server: the agent application's ACK of one notice. Never answered.
    pub struct Receipt {
        /// The notice.
        pub seq: u64,
        /// What the application says.
        pub answer: ReceiptAnswer,
    }
}
