//! What users are told: outputs, errors, events, and how the lease stands.
//!
//! Decides: the vocabulary of what is told. Place in the walk: the end of a command comes back at once ([`Submitted`]) or as [`Event::Done`];
//! what happens to locks, watches and the session comes as other events.
//! Invariant: every command ends exactly once, with an output or an error that says what is known of its outcome.
//! Leaves to others: what users ask ([`super::command`]), when it is told (`tasks`, `locks`, `agent`).

use super::command::{HolderId, OpId, WatchId};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_link::Instant;
use cistern_wire::{
    Attr, Generation, Handle, ItemResult, LockClass, Mode, ObjectId, ObjectKind, RefuseReason, RowState, SessionId, Standing, Status,
};
use core::time::Duration;

/// One name in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: Bytes,
    /// The object.
    pub object: ObjectId,
    /// What it is.
    pub kind: ObjectKind,
    /// Its attributes, when asked for.
    pub attr: Option<Attr>,
}

/// An advisory lock as a user sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locked {
    /// The hold; give it to [`Command::Unlock`](super::Command::Unlock).
    pub holder: HolderId,
    /// The locked object.
    pub object: ObjectId,
    /// The mode.
    pub mode: Mode,
    /// The agent's grant; guards name it.
    pub generation: Generation,
    /// The fencing token of this hold: larger than every token shown before to any holder of this lock, wherever.
    pub token: u64,
    /// The lock is certain until this instant on the agent's lease clock; renewals move it on.
    pub valid_until: Instant,
}

/// A holder or waiter of an advisory lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The object.
    pub object: ObjectId,
    /// A path of it, as far as the server told; empty where none was asked for.
    pub place: Bytes,
    /// What about it is locked.
    pub class: LockClass,
    /// Holds or waits.
    pub state: RowState,
    /// The mode.
    pub mode: Mode,
    /// The grant, for a holder.
    pub generation: Generation,
    /// The agent's label.
    pub label: Bytes,
    /// The handle of the agent's session: the same for all that it holds and waits for.
    pub handle: Handle,
    /// Since when, in milliseconds before the answer.
    pub since_ms: u64,
    /// Its session's standing.
    pub standing: Standing,
    /// When it ends at the latest if the agent is gone, in milliseconds; 0: not known.
    pub bound_ms: u64,
}

/// What a command brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Done.
    Done,
    /// Attributes after the operation.
    Attr(Attr),
    /// Bytes, with the attributes of the version they belong to.
    Data {
        /// Attributes.
        attr: Attr,
        /// Where the bytes begin.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// A directory.
    Listing {
        /// Its attributes.
        dir: Attr,
        /// Its entries in byte order of their names.
        entries: Vec<Listed>,
    },
    /// The value of an extended attribute.
    Xattr {
        /// The object.
        object: ObjectId,
        /// Its version.
        version: u64,
        /// The value.
        value: Bytes,
    },
    /// Names of extended attributes.
    XattrNames {
        /// The object.
        object: ObjectId,
        /// Its version.
        version: u64,
        /// The names, in byte order.
        names: Vec<Bytes>,
    },
    /// What the items of a batch were about, in order.
    Batched(Vec<ItemResult>),
    /// A lock.
    Locked(Locked),
    /// A watch that has begun; nothing is certain before its first event.
    Watching(WatchId),
    /// Locks.
    Locks(Vec<LockInfo>),
    /// The server's report.
    Server(cistern_wire::ServerReport),
    /// A round trip.
    Pong {
        /// How long it took on the agent's clock.
        round_trip: Duration,
    },
}

/// Why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpError {
    /// The server's application said so; or the agent itself, with the same meaning, before asking.
    Status(Status),
    /// An item of a batch could not be done, so nothing of the batch was.
    Item {
        /// Which, counted from 0.
        item: u16,
        /// Why.
        status: Status,
    },
    /// A lock request waited as long as it was allowed to.
    TimedOut,
    /// The server did not answer in the time that commands have; nothing was changed by this command.
    Unreachable,
    /// The session ended before the outcome of a mutation was known: it was done once, or not at all.
    OutcomeUnknown,
    /// The lease ran out while the operation was running, or the lock was lost.
    LeaseLost,
    /// The server refused a session.
    Refused(RefuseReason),
    /// The server at this address is not the one that the agent knows.
    AnotherServer,
    /// The agent is closing.
    Closed,
    /// A bound of the agent is reached: too many commands at once.
    Overloaded,
}

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

/// Where the lease stands (`wire-spec.md` section 11.1): fractions of τ since the send time of the newest renewing transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No session is open.
    NoSession,
    /// Renewed not long ago.
    Valid,
    /// Keep-alives are sent if it is worth it.
    Renewing,
    /// No new operation starts.
    Suspect,
    /// What is owed to external storage is written.
    Flush,
    /// Over: nothing of the cache or the locks may be used until an ACK revives it.
    Expired,
}

/// A look at the agent's lease, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// Its phase.
    pub phase: Phase,
    /// The session, if one is open.
    pub session: Option<SessionId>,
    /// The former session whose locks are being taken over into this one; until that is done the lease shown is the former one's.
    pub reclaiming: Option<SessionId>,
    /// Lease period τ.
    pub lease: Duration,
    /// Time until the lease is over; zero when it is.
    pub left: Duration,
    /// When it is over, on the agent's clock.
    pub valid_until: Option<Instant>,
    /// Renewals by ACKs of ordinary requests and control messages.
    pub renewals_opportunistic: u64,
    /// Renewals by keep-alives.
    pub renewals_explicit: u64,
    /// Demands received (each counted once).
    pub demands: u64,
    /// NACKs accepted: sessions lost.
    pub nacks: u64,
    /// Cache locks held, shared and exclusive.
    pub cache_locks: u64,
    /// Advisory locks held by the agent.
    pub advisory_locks: u64,
    /// Of these, how many local users hold.
    pub holders: u64,
    /// Objects watched.
    pub watches: u64,
    /// Ephemeral files that go with the session.
    pub ephemerals: u64,
    /// Requests sent (first transmissions).
    pub requests: u64,
    /// Datagrams sent and received.
    pub datagrams_out: u64,
    /// Datagrams received.
    pub datagrams_in: u64,
    /// Retransmissions.
    pub retransmissions: u64,
    /// Commands answered from cache, with no message.
    pub cache_hits: u64,
    /// Smoothed round trip.
    pub round_trip: Option<Duration>,
}
