//! The vocabulary of requests: who asks, what an operation wants sent, and what it is told.
//!
//! An operation never sees a nonce, a packet number or a session; it is told once what became of each call.

use alloc::vec::Vec;
use cistern_wire::{Fate, ObjectId, Reply, SessionId};

/// Who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// An operation, with the number of its call.
    Op(TaskId, u32),
    /// An advisory lock.
    Lock(ObjectId),
    /// The reclaim, with the number of its message.
    Reclaim(u32),
    /// The end of the reclaim from a former session.
    Complete(SessionId),
    /// A watch.
    Watch(ObjectId),
    /// The end of a watch.
    Unwatch(ObjectId),
    /// The outcome of a mutation: its session, and its nonce there.
    Outcome(SessionId, u64),
}

/// An operation in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TaskId(pub(crate) u64);

/// A request that an operation wants sent.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// Whose.
    pub(crate) task: TaskId,
    /// Number of the call within the task; comes back with the answer.
    pub(crate) call: u32,
    /// The encoded message (`Message::to_bytes`); its `Ask` is filled in by the protocol half.
    pub(crate) message: Vec<u8>,
    /// Whether it changes server-held state: it is then never sent again in another session unless it is known not executed.
    pub(crate) mutation: bool,
}

/// What became of a call.
#[derive(Debug)]
pub(crate) enum Answer<'a> {
    /// An ACK: what it tells may be installed (subject to `Cache::install`).
    Reply(Reply<'a>),
    /// A RESULT, or a NACK that says executed: the outcome stands, but nothing in it may be installed or cached.
    Result(Option<Reply<'a>>),
    /// The session ended first. `NotExecuted`: do it again in the next session. `Unknown`: for a read, do it again; for a mutation
    /// the outcome is unknown. `Executed` without a result comes as `Result(None)`.
    SessionEnded(Fate),
}
