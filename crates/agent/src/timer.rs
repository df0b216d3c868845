//! The timers of an agent: one queue, and a key for each reason to wake.

use crate::api::OpId;
use crate::call::{Origin, TaskId};
use cistern_link::TimerQueue;
use cistern_wire::{ObjectId, SessionId};

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
    /// A former session can be surrendered, or END_SESSION was not answered.
    Former(SessionId),
}

impl Timer {
    /// Whether it is about what was asked in the present session, and is nothing any more when that is over.
    pub(crate) const fn is_of_session(self) -> bool {
        matches!(self, Self::Request(_) | Self::Control(_) | Self::LockRetry(_) | Self::Again(_))
    }
}
