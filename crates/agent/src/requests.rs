//! Requests on their way: numbered, sent, sent again, answered once.
//!
//! Decides: when a request is sent again and how large its answer may be (R22, R26, R28). Implements `wire-spec.md` section 11.2.
//! Place in the walk: `Agent::pump` numbers what `ops` and `local` want sent; `transmit` takes what is ready; `incoming` takes
//! answers. Invariant: a nonce is retired once, and its request is never sent after that.
//! Leaves to others: windows (`cistern-link`), packets and send times (`transmit`), what the answers mean (`ops`, `local`).

use crate::port::TaskId;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::ObjectId;
use cistern_wire::limits::{DATAGRAM_DEFAULT, DATAGRAM_MIN};

/// Who wants the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A call of an operation.
    Task { task: TaskId, call: u32 },
    /// LOCK.
    Lock(ObjectId),
    /// EXTEND_RUN.
    Extend(ObjectId),
}

/// A request that is not answered yet.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) origin: Origin,
    /// The whole message; its `Ask` is filled in anew at every transmission.
    pub(crate) message: Vec<u8>,
    pub(crate) mutation: bool,
    /// Transmissions so far.
    pub(crate) sent: u32,
    pub(crate) last_sent: Instant,
    /// Whether PENDING was the last word on it: the server has it, nothing is lost.
    pub(crate) executing: bool,
    /// Largest answer datagram asked for.
    pub(crate) limit: u16,
}

/// Offset of `Ask` in an encoded request: after the message header.
const ASK_AT: usize = cistern_wire::limits::MESSAGE_HEADER_LEN;

impl Pending {
    /// Writes the `Ask` of the next transmission into the message.
    pub(crate) fn patch(&mut self, nonce: u64, back: u16) {
        self.message[ASK_AT..ASK_AT + 8].copy_from_slice(&nonce.to_be_bytes());
        self.message[ASK_AT + 8..ASK_AT + 10].copy_from_slice(&back.to_be_bytes());
        self.message[ASK_AT + 10..ASK_AT + 12].copy_from_slice(&self.limit.to_be_bytes());
    }

    /// A transmission was given up for lost: after two, the next asks for what an ordinary path carries, after two more for what
    /// every path does (R28).
    //= wire-spec.md#11.2
    pub(crate) fn lost(&mut self) {
        let fallback = match self.sent {
            0..2 => return,
            2..4 => DATAGRAM_DEFAULT,
            _ => DATAGRAM_MIN,
        };
        self.limit = self.limit.min(u16::try_from(fallback).unwrap_or(u16::MAX));
    }
}

/// All requests of a session that are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pending: BTreeMap<u64, Pending>,
    /// Nonces whose requests are to be sent now, first transmissions or not.
    ready: VecDeque<u64>,
    /// Requests out of which a transmission is neither answered nor given up for lost.
    in_flight: usize,
}

impl Requests {
    pub(crate) fn insert(&mut self, nonce: u64, pending: Pending) {
        self.pending.insert(nonce, pending);
        self.ready.push_back(nonce);
    }

    pub(crate) fn get_mut(&mut self, nonce: u64) -> Option<&mut Pending> {
        self.pending.get_mut(&nonce)
    }

    /// The answer came, or is not awaited any more.
    pub(crate) fn remove(&mut self, nonce: u64) -> Option<Pending> {
        let pending = self.pending.remove(&nonce)?;
        let waiting = self.ready.iter().position(|ready| *ready == nonce).and_then(|at| self.ready.remove(at));
        if waiting.is_none() {
            self.in_flight -= 1;
        }
        Some(pending)
    }

    /// The next request to send, unless the congestion window is full.
    pub(crate) fn next_ready(&self) -> Option<u64> {
        self.ready.front().copied()
    }

    /// The first of those ready is being sent.
    pub(crate) fn sent(&mut self, now: Instant) -> Option<&mut Pending> {
        let nonce = self.ready.pop_front()?;
        self.in_flight += 1;
        let pending = self.pending.get_mut(&nonce)?;
        pending.sent += 1;
        pending.last_sent = now;
        Some(pending)
    }

    /// The time of a transmission is over: the request is to be sent again.
    pub(crate) fn expired(&mut self, nonce: u64) -> Option<&mut Pending> {
        let pending = self.pending.get_mut(&nonce)?;
        if !self.ready.contains(&nonce) {
            self.in_flight -= 1;
            self.ready.push_back(nonce);
        }
        Some(pending)
    }

    pub(crate) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Nonces of the requests of a task that change nothing: nobody waits for their answers any more.
    pub(crate) fn abandoned(&self, of: TaskId) -> Vec<u64> {
        let its = |pending: &Pending| matches!(pending.origin, Origin::Task { task, .. } if task == of) && !pending.mutation;
        self.pending.iter().filter(|(_, pending)| its(pending)).map(|(nonce, _)| *nonce).collect()
    }

    /// Everything that was not answered, in the order in which it was asked.
    pub(crate) fn take_all(&mut self) -> BTreeMap<u64, Pending> {
        self.ready.clear();
        self.in_flight = 0;
        core::mem::take(&mut self.pending)
    }
}
