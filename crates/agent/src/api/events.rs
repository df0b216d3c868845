//! What the agent tells unasked, and how commands end.

use super::{HolderId, OpError, OpId, Output, WatchId};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{ObjectId, SessionId};

/// What happens to a lock that a user holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockEvent {
    /// Operations under it should end: the lease was not renewed in time and ends soon.
    Suspect {
        /// When it ends.
        valid_until: Instant,
    },
    /// The lease is over: stop using it. It may become certain again.
    Uncertain,
    /// It is held after all, under the same token.
    Certain {
        /// Until when.
        valid_until: Instant,
    },
    /// It is gone for good.
    Lost,
}

/// What a watcher is told of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The object has this version, and every change from now on is told as long as nothing else is said. Whoever knows another version
    /// looks again: while nothing was certain it has changed.
    Certain {
        /// Its version.
        version: u64,
    },
    /// It has changed.
    Changed {
        /// Its version now.
        version: u64,
    },
    /// Nobody would tell of a change now: the lease is over, or the session; the agent goes on trying.
    Uncertain,
    /// It is gone; the watch is over.
    Gone,
}

/// What the agent tells its users unasked, and how commands end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A command ended.
    Done {
        /// Which.
        op: OpId,
        /// How.
        result: Result<Output, OpError>,
    },
    /// Something happened to a lock.
    Lock {
        /// Whose.
        holder: HolderId,
        /// On what.
        object: ObjectId,
        /// What.
        what: LockEvent,
    },
    /// Something is known of a watched object.
    Watch {
        /// Whose.
        watch: WatchId,
        /// The object.
        object: ObjectId,
        /// What.
        what: WatchEvent,
    },
    /// A session is open.
    SessionOpened {
        /// Which.
        session: SessionId,
    },
    /// After a restart of the server a session has taken over the locks of a former one; those lost were told as lost before.
    SessionReclaimed {
        /// The former session.
        from: SessionId,
        /// The present one.
        to: SessionId,
        /// Locks that are held as before.
        kept: u64,
        /// Locks that are not.
        lost: u64,
    },
    /// A session is over, and every lock in it lost. Holders were told so before, or, of very many, are in the turns that follow.
    SessionEnded {
        /// Which.
        session: SessionId,
        /// Why, in words for a log.
        why: &'static str,
    },
    /// The server has a newer roster of the cluster's servers: whoever keeps the roster judges it, and gives what it says to
    /// [`Agent::set_servers`](crate::Agent::set_servers).
    Roster {
        /// With its signature.
        signed: Vec<u8>,
    },
    /// The agent cannot get a session for now and goes on trying; told once per attempt series.
    NoSession {
        /// Why.
        error: OpError,
    },
}

/// How a command was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It ended at once: answered from cache under a valid lease, with no message; or refused.
    Now(Result<Output, OpError>),
    /// It runs; its end comes as [`Event::Done`].
    Later(OpId),
}
