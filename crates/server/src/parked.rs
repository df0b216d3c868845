//! Operations that could not go on: each waits for the store, for locks, or for its session's standing, and runs again from its start.
//!
//! Decides what is kept of such an operation (an owned copy of its message) and which of them a loaded value wakes. Place in the
//! walk: between `requests` and `execute`. Implements `wire-spec.md` section 10.2.
//! Invariant: an operation here has had no effect; so it can be dropped at any time, and its nonce fenced (R5).
//! An operation's number is its ticket in the lock table too: numbers grow in order of arrival.
//! Leaves to others: running it (`execute`), standing.

use crate::locks::Ticket;
use crate::sessions::Key;
use crate::store::{BatchId, Query};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cistern_wire::Kind;

/// Number of an operation since the server started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpId(pub(crate) u64);

impl OpId {
    /// Not an operation of a session: the server's own start.
    pub(crate) const BOOT: Self = Self(0);

    /// Its place in the queues of the lock table.
    pub(crate) const fn ticket(self) -> Ticket {
        Ticket(self.0)
    }
}

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// So many values that the store was asked for.
    Store(usize),
    /// Its turn among the mutations.
    Locks,
    /// The durability of what it would reveal.
    Durable(BatchId),
    /// Its session's standing: it could run, but D was decided.
    Standing,
}

/// How an operation's answer goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answering {
    /// As the one execution of its nonce.
    First,
    /// As an answer to a duplicate, received in this packet, of a read whose reply was too large to keep.
    Again {
        /// Newest packet that carried it.
        packet: u64,
    },
}

/// An operation, without its message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Its number.
    pub(crate) id: OpId,
    /// Whose it is.
    pub(crate) key: Key,
    /// What kind of request it is.
    pub(crate) asked: Kind,
    /// When it came, in nanoseconds of the boot clock.
    pub(crate) came_ns: u64,
    /// Its nonce.
    pub(crate) nonce: u64,
    /// Largest datagram in which its answer may travel.
    pub(crate) limit: u16,
    /// How its answer goes out.
    pub(crate) answering: Answering,
    /// Whether it has a place in the queues of the lock table.
    pub(crate) entered: bool,
    /// Whether that its object exists was waited for until it was durable.
    pub(crate) settled: bool,
    /// How often values were loaded for it. What cannot be read is forgotten with every turn, so an operation that looks at several values
    /// at once would ask for each of two such values again when the other one has failed, for ever, if it did not count.
    pub(crate) loads: u16,
}

/// An operation that waits.
#[derive(Debug)]
pub(crate) struct Parked {
    /// The operation.
    pub(crate) job: Job,
    /// Body of its message.
    pub(crate) body: Box<[u8]>,
    /// What it waits for.
    pub(crate) wait: Wait,
}

/// All operations that wait, and for which values.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    ops: BTreeMap<OpId, Parked>,
    by_query: BTreeMap<Query, Vec<OpId>>,
    last: u64,
}

impl Parking {
    /// The number of a new operation.
    pub(crate) fn next_id(&mut self) -> OpId {
        self.last += 1;
        OpId(self.last)
    }

    /// Takes an operation in.
    pub(crate) fn park(&mut self, parked: Parked) {
        self.ops.insert(parked.job.id, parked);
    }

    /// Wakes `id` when every one of `queries` is answered.
    pub(crate) fn await_queries(&mut self, id: OpId, queries: &[Query]) {
        for query in queries {
            self.by_query.entry(query.clone()).or_default().push(id);
        }
    }

    /// An answer has come: the operations that have now all they waited for. The boot is always among them if it waited.
    pub(crate) fn answered(&mut self, query: &Query) -> Vec<OpId> {
        let mut waiting = self.by_query.remove(query).unwrap_or_default();
        waiting.retain(|id| match self.ops.get_mut(id) {
            Some(Parked { wait: Wait::Store(left), .. }) => {
                *left -= 1;
                *left == 0
            }
            // Dropped meanwhile, or waiting for something else by now.
            Some(_) => false,
            None => *id == OpId::BOOT,
        });
        waiting
    }

    /// An operation that waits.
    pub(crate) fn get(&self, id: OpId) -> Option<&Parked> {
        self.ops.get(&id)
    }

    /// An operation that waits.
    pub(crate) fn get_mut(&mut self, id: OpId) -> Option<&mut Parked> {
        self.ops.get_mut(&id)
    }

    /// Takes an operation out, to run it or to drop it.
    pub(crate) fn take(&mut self, id: OpId) -> Option<Parked> {
        self.ops.remove(&id)
    }

    /// How many wait; a gauge.
    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Counter;
    use alloc::vec;

    fn query(counter: Counter) -> Query {
        Query::Get(crate::store::Key::Counter(counter))
    }

    fn parked(id: OpId, wait: Wait) -> Parked {
        let (key, asked, answering) = (Key::for_test(1), Kind::GetAttr, Answering::First);
        let job = Job { id, key, asked, came_ns: 0, nonce: 1, limit: 548, answering, entered: false, settled: false, loads: 0 };
        Parked { job, body: Box::default(), wait }
    }

    #[test]
    fn operation_is_woken_by_the_last_of_the_values_it_waits_for() {
        let mut parking = Parking::default();
        let (a, b) = (parking.next_id(), parking.next_id());
        assert!(a < b && a > OpId::BOOT);
        let both = vec![query(Counter::Objects), query(Counter::Bytes)];
        parking.park(parked(a, Wait::Store(2)));
        parking.park(parked(b, Wait::Store(1)));
        parking.await_queries(a, &both);
        parking.await_queries(b, &both[1..]);
        assert_eq!(parking.answered(&both[1]), [b]);
        assert_eq!(parking.answered(&both[0]), [a]);
        assert_eq!(parking.answered(&both[0]), [], "answered once");
    }

    #[test]
    fn dropped_operation_is_not_woken() {
        let mut parking = Parking::default();
        let id = parking.next_id();
        parking.park(parked(id, Wait::Store(1)));
        parking.await_queries(id, &[query(Counter::Bytes)]);
        assert!(parking.take(id).is_some());
        assert_eq!((parking.answered(&query(Counter::Bytes)), parking.len()), (vec![], 0));
    }
}
