//! The seam between the agent's two halves: the protocol (session, lease, delivery, locks) and the operations (walks, cache, pages).
//!
//! Decides: what an operation can ask of the protocol half ([`Outbound`]) and what it is told ([`Answer`]).
//! Place in the walk: `ops` fills `Ctx::out`; the protocol half numbers, sends and retransmits, and calls `Ops::answer` back.
//! Invariant: an operation never sees a nonce, a packet number or a session; it is told once what became of each call.
//! Leaves to others: everything else.

use crate::api::Event;
use crate::cache::Cache;
use crate::lease::Permit;
use crate::locks::Locks;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{Fate, Reply};

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
    /// Whether it changes server-held state: it is then never sent again in another session unless it is known not executed (R23).
    pub(crate) mutation: bool,
}

/// What became of a call.
#[derive(Debug)]
pub(crate) enum Answer<'a> {
    /// An ACK: what it tells may be installed (subject to `Cache::install`).
    Reply(Reply<'a>),
    /// A RESULT, or a NACK that says executed: the outcome stands, but nothing in it may be installed or cached (R4, R8).
    Result(Option<Reply<'a>>),
    /// The session ended first. `NotExecuted`: do it again in the next session. `Unknown`: for a read, do it again; for a mutation
    /// the outcome is unknown (R23). `Executed` without a result comes as `Result(None)`.
    SessionEnded(Fate),
}

/// What an operation may look at and touch while it runs.
pub(crate) struct Ctx<'a> {
    /// Now.
    pub(crate) now: Instant,
    /// What the lease allows now.
    pub(crate) permit: Permit,
    /// What is known, and the locks that make it current.
    pub(crate) cache: &'a mut Cache,
    /// Advisory locks.
    pub(crate) locks: &'a mut Locks,
    /// Requests to send.
    pub(crate) out: &'a mut VecDeque<Outbound>,
    /// What users are told.
    pub(crate) events: &'a mut VecDeque<Event>,
}
