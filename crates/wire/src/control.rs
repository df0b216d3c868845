//! The control family: KEEPALIVE, RELEASE, CANCEL, END_SESSION, PATH_CHALLENGE, PATH_RESPONSE.
//!
//! Decides: their layout. Implements `wire-spec.md` section 6.3.
//! Invariant: each is idempotent by construction (it names a generation, a nonce or a session), so it needs no nonce and no slot
//! of the window, and waits for nothing (section 11.2).
//! Leaves to others: their effect (`server::control`).

use crate::field::List;
use crate::ids::{Generation, LockId};
use crate::notice::Keep;
use crate::shape::Shown;

codes! {
    /// Why the agent ends its session.
    pub enum EndReason {
        /// It closes in good standing: nothing is in use any more.
        Close = 1 "close",
        /// It was NACKed, has discarded everything, and no user of it can act any more (section 11.3).
        Surrender = 2 "surrender",
    }
}

body! {
    /// Agent to server: renews the lease and does nothing else; sent only when nothing else has renewed it.
    pub struct KeepAlive {
        /// Number of the control message in its session, from 1.
        pub serial: u64,
        /// The agent's raw clock at sending, in microseconds from an arbitrary start; for the watch on clock rates.
        pub clock_us: u64,
    }
}

body! {
    /// One lock given back.
    pub struct ReleaseItem {
        /// The lock.
        pub lock: LockId,
        /// The generation given back; a release acts on no other.
        pub generation: Generation,
        /// What the agent keeps: a shared lock makes this a downgrade.
        pub keep: Keep,
    }
}

body! {
    /// Agent to server: gives locks back. Also an ACK of every demand for a generation up to the one named (section 11.3).
    pub struct Release<'a> {
        /// Number of the control message in its session, from 1.
        pub serial: u64,
        /// The locks.
        pub items: List<'a, ReleaseItem>,
    }
}

body! {
    /// Agent to server: ends the wait of a queued lock request; works before the request arrives, too (section 11.4).
    pub struct Cancel {
        /// Number of the control message in its session, from 1.
        pub serial: u64,
        /// The request.
        pub nonce: u64,
    }
}

body! {
    /// Agent to server: the session in the header is over; nothing of it can be used again.
    pub struct EndSession {
        /// Number of the control message in its session, from 1.
        pub serial: u64,
        /// Why.
        pub reason: EndReason,
    }
}

body! {
    /// Server to agent: proves that the agent is reached at the address to which this goes (section 11.6).
    pub struct PathChallenge {
        /// A random number.
        pub token: u64 as Shown::Hex,
    }
}

body! {
    /// Agent to server: sent back from the address that was challenged.
    pub struct PathResponse {
        /// The number of the challenge.
        pub token: u64 as Shown::Hex,
    }
}
