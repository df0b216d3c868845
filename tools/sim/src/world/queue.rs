//! What will happen, in order.
//!
//! Decides a total order: by true time, and at one instant in the order in which things were planned. Invariant: the order depends on
//! nothing but what was planned when, so every replay has the same.
//! Leaves to others: what is planned and what it does (`world`).

use crate::host::Work;
use crate::observe::Node;
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

/// Something that will happen.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    /// A machine takes a turn, if it still has one planned for then.
    Turn(Node),
    /// A datagram reaches the machine that has this address then.
    Arrive {
        /// The machine for which it was sent.
        node: Node,
        /// The sender's address.
        from: SocketAddr,
        /// The address to which it was sent.
        to: SocketAddr,
        /// The datagram.
        bytes: Bytes,
    },
    /// The disk has done something for the server's start of this number.
    Disk(u64, Work),
    /// The worker of that start has done what has this number.
    Sealed(u64, u64),
    /// The fault at this place of the plan begins.
    Begin(usize),
    /// It is over.
    End(usize),
    /// It is due again (replays; the stop before a restore).
    Again(usize, u32),
    /// A process is started, if nothing keeps it from running.
    Start(Node),
    /// The liveness phase begins.
    Heal,
    /// The liveness phase has lasted as long as it may.
    Deadline,
}

#[derive(Debug)]
struct Planned {
    at: u64,
    number: u64,
    next: Next,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    /// The one that comes first is the greatest, as the heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// Everything that is planned.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Planned>,
    planned: u64,
}

impl Queue {
    /// Plans something.
    pub(crate) fn push(&mut self, at: u64, next: Next) {
        self.planned += 1;
        self.heap.push(Planned { at, number: self.planned, next });
    }

    /// What comes next, and when.
    pub(crate) fn pop(&mut self) -> Option<(u64, Next)> {
        self.heap.pop().map(|planned| (planned.at, planned.next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_by_time_and_then_by_planning() {
        let mut queue = Queue::default();
        for (at, fault) in [(5, 0), (3, 1), (5, 2), (3, 3), (1, 4)] {
            queue.push(at, Next::Begin(fault));
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(at, next)| (at, format!("{next:?}"))).collect();
        assert_eq!(order.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1, 3, 3, 5, 5]);
        assert_eq!(order.iter().map(|(_, next)| &next[6..7]).collect::<String>(), "41302");
    }
}
