//! The vocabulary of requests: who asks, what an operation wants sent, what it is told, and why the agent wakes.
//!
//! An operation never sees a nonce, a packet number or a session; it is told once what became of each call.

use crate::api::OpId;
use alloc::vec::Vec;
use cistern_link::TimerQueue;
use cistern_wire::{Fate, ObjectId, Reply, SessionId};
use core::time::Duration;

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

/// All deadlines of the agent.
pub(crate) type Timers = TimerQueue<Timer>;

/// Why the agent wakes. Deadlines that pass together are acted on in the order of their instants, then in this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// This request of the session was not answered in time, or is to be asked about again.
    Request(u64),
    /// This control message of the session was not answered in time.
    Control(u64),
    /// HELLO is to be sent, for the first time or again.
    Handshake,
    /// *Valid* has ended, or a renewal is overdue.
    Phase,
    /// The lease that covers all locks comes to the next end of which somebody is to be told, or for which somebody waits.
    Lease,
    /// The oldest command has run for long enough.
    GiveUp,
    /// The end of the session has been waited for long enough.
    Closing,
    /// A lock command has waited for long enough, on the way to its lock or there.
    Wait(OpId),
    /// A lock is asked for again after a busy answer.
    LockRetry(ObjectId),
    /// A call of an operation is made again after a busy answer.
    CallRetry(TaskId, u32),
    /// A request of recovery, or for a watch, is made again after a busy answer.
    Again(Origin),
    /// The session is to be asked whether there is a newer roster.
    Roster,
    /// A former session can be surrendered, or END_SESSION was not answered.
    Former(SessionId),
}

impl Timer {
    /// Whether it is about what was asked in the present session, and is nothing any more when that is over.
    pub(crate) const fn is_of_session(self) -> bool {
        matches!(self, Self::Request(_) | Self::Control(_) | Self::Roster | Self::LockRetry(_) | Self::Again(_))
    }
}

/// Longest time for which a server can make an agent wait before it asks again. Servers ask for a second, and in the grace of a long lease
/// for a quarter of that: asking sooner costs them a datagram in 10 s.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// How long to wait before asking again.
pub(crate) fn pause(retry_ms: u32) -> Duration {
    //= wire-spec.md#11-6-sessions-handshake-and-paths
    //# An agent MUST NOT wait longer than 10 s because of a `retry_ms`.
    Duration::from_millis(retry_ms.into()).min(RETRY_MAX)
}
