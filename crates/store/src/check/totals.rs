//! The counters, against what they count.
//!
//! Decides: which numbers a store must have, and between which bounds. Place in the walk: last, when every record was seen.
//! Invariant: a store without any record, or with the marks of `cisternd init` alone, is a new one, and clean. What cannot be counted,
//! because a record is unreadable, is not held against its counter.
//! Leaves to others: what the server makes of them at its start (`starting`).

use super::Fault;
use super::walk::Walk;
use cistern_server::store::Counter;
use cistern_server::store::{ID_BITS, NEW_CLUSTER, RESTORED, WAIT_MAX_US};
use cistern_wire::limits::ROOT;

impl Walk {
    /// Compares all counters.
    pub(super) fn totals(&mut self) {
        let marks = match (self.report.counter(Counter::Restored), self.report.counter(Counter::Epoch)) {
            (Some(NEW_CLUSTER), None) => 1,
            (Some(RESTORED), Some(1..=254)) => 2,
            _ => 0,
        };
        if self.report.records == marks {
            return;
        }
        if self.table.get(ROOT).is_none() {
            self.find(Fault::BadRoot, Self::object_place(ROOT), "there is no root directory");
        }
        let (objects, bytes, known) = (self.report.objects(), self.report.content_bytes, self.bytes_known);
        self.expect(Counter::Objects, |n| (n != objects).then(|| format!("it says {n}, and there are {objects} objects")));
        self.expect(Counter::Bytes, |n| {
            (n != bytes && known).then(|| format!("it says {n}, and files, links and extended attributes make {bytes}"))
        });
        let last = self.table.last().unwrap_or(0);
        self.expect(Counter::NextObject, |n| {
            (n <= last).then(|| format!("it says {n}, and there is an object #{last}: its id could be given again"))
        });
        self.expect(Counter::Incarnation, |n| (n == 0).then(|| String::from("it says 0, and a server has been started on this store")));
        self.expect(Counter::Epoch, |n| (!(1..=255).contains(&n)).then(|| format!("it says {n}; there are epochs 1 to 255")));
        self.expect(Counter::Restored, |n| (n > 2).then(|| format!("it says {n}; there are 0, 1 and 2")));
        self.expect(Counter::Wait, |n| {
            (!(1..=WAIT_MAX_US).contains(&n)).then(|| format!("it says {n} µs; leases are waited for 1 to {WAIT_MAX_US}"))
        });
        self.numbers_of_the_epoch();
    }

    /// Tokens and ids are of the epoch or an earlier one. A store that was restored, and not started since, begins the next.
    fn numbers_of_the_epoch(&mut self) {
        let Some(epoch) = self.report.counter(Counter::Epoch) else { return };
        let last = epoch.saturating_add(u64::from(self.report.counter(Counter::Restored) == Some(RESTORED)));
        // A server that has given out no token has written none.
        for (counter, what) in [(Counter::Tokens, "tokens"), (Counter::NextObject, "ids")] {
            if let Some(of) = self.report.counter(counter).map(|value| value >> ID_BITS).filter(|of| *of > last) {
                let what = format!("{what} of epoch {of} were given out, and the store is in epoch {epoch}");
                self.find(Fault::WrongCounter, Self::counter_place(counter), what);
            }
        }
    }

    /// A counter must be there, and `wrong` has nothing to say against its value.
    fn expect(&mut self, counter: Counter, wrong: impl FnOnce(u64) -> Option<String>) {
        let unreadable = self.report.findings.iter().any(|finding| finding.place == Self::counter_place(counter));
        let what = match self.report.counter(counter) {
            Some(value) => wrong(value),
            None if unreadable => None,
            None => Some(String::from("it is missing")),
        };
        if let Some(what) = what {
            self.find(Fault::WrongCounter, Self::counter_place(counter), what);
        }
    }
}
