//! The structural check of a store: reads every record once, in the order of the keys, and says what is wrong and where.
//!
//! Decides: which invariants the records of a store keep among each other. Place in the walk: beside it, on a store that nobody uses:
//! `cisternd check`, the tests of everything that writes, the simulator. Knows no engine: it sees keys and values as bytes.
//!
//! | file | decides |
//! |---|---|
//! | `walk` | each record by itself, and beside those before it |
//! | `tree` | directories as a whole: lost objects, links, loops |
//! | `realms` | what is in which realm, and how much that is |
//! | `totals` | the counters, when everything was seen |
//! | `table` | what is kept of each object meanwhile |
//! | `places` | paths, by a second look at the objects, only if something was found |
//! | `finding` | kinds of faults, and their words |
//!
//! Invariant: one pass over the store and a bounded number of findings; memory grows only by one row for each object and session.
//! A record of a new kind is one arm in `walk`, what has to be known of its object a mark in `table`.
//! Leaves to others: the engine's own integrity (checksums, pages), repair.

mod accounts;
mod finding;
mod places;
mod realms;
mod table;
#[cfg(test)]
mod tests;
mod totals;
mod tree;
mod walk;

pub use finding::{Fault, Finding, Place, Severity};

use cistern_server::store::Counter;

/// How far a check is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Records read so far.
    pub records: u64,
    /// Objects among them.
    pub objects: u64,
    /// Objects there should be, as the store's counter says; 0: not known.
    pub objects_expected: u64,
}

/// What a check has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records, and the bytes of their keys and values.
    pub records: u64,
    /// Bytes of all keys and values.
    pub record_bytes: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Objects whose records cannot be read.
    pub unreadable: u64,
    /// Names in directories.
    pub entries: u64,
    /// Blocks of contents.
    pub blocks: u64,
    /// Sum of the sizes of all files and symbolic links.
    pub content_bytes: u64,
    /// Realms within that of the tree.
    pub realms: u64,
    /// Sessions that had not ended.
    pub sessions: u64,
    /// Outcomes kept for them.
    pub outcomes: u64,
    /// The counters, in the order of [`Counter::ALL`]; `None`: never written, or unreadable.
    pub counters: [Option<u64>; Counter::ALL.len()],
    /// What is wrong, in the order in which it was found: the first of them, up to the bound.
    pub findings: Vec<Finding>,
    /// How many more there are.
    pub more: u64,
    /// How grave the gravest is, of those listed and not.
    gravest: Option<Severity>,
    /// Memory that the check has used for what it keeps of objects and sessions, in bytes.
    pub memory: usize,
}

impl Report {
    /// Objects of all kinds.
    #[must_use]
    pub const fn objects(&self) -> u64 {
        self.directories + self.files + self.symlinks + self.unreadable
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.more == 0
    }

    /// How grave the gravest finding is; `None`: nothing is wrong.
    #[must_use]
    pub const fn gravest(&self) -> Option<Severity> {
        self.gravest
    }

    /// A counter; `None`: never written, or unreadable.
    #[must_use]
    pub const fn counter(&self, counter: Counter) -> Option<u64> {
        self.counters[counter.index()]
    }
}

/// A check, and how much of what it finds is listed.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Most findings listed; the others are counted.
    pub findings_max: usize,
}

impl Default for Check {
    /// A thousand findings.
    fn default() -> Self {
        Self { findings_max: 1_000 }
    }
}

impl Check {
    /// Checks a store. `scan` begins to give all its records, as (key, value), in the order of the bytes of the keys; it is called once,
    /// and once more if findings need paths. `tell` is called every few thousand records.
    ///
    /// # Errors
    /// The engine's own, as `scan` or a step of it gave it: the rest could not be read, and nothing is known of it.
    pub fn run<K, V, E, I>(self, mut scan: impl FnMut() -> Result<I, E>, mut tell: impl FnMut(Progress)) -> Result<Report, E>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
        I: Iterator<Item = Result<(K, V), E>>,
    {
        let mut walk = walk::Walk::new(self.findings_max);
        for record in scan()? {
            let (key, value) = record?;
            walk.record(key.as_ref(), value.as_ref());
            if walk.report.records.is_multiple_of(4_096) {
                tell(walk.progress());
            }
        }
        walk.end_directory();
        walk.end_ephemerals();
        walk.tree();
        walk.realms();
        walk.accounts();
        walk.totals();
        walk.report.memory = walk.memory();
        let wanted = walk.wanted();
        if !wanted.is_empty() {
            let mut names = places::Names::new(wanted);
            for record in scan()? {
                let (key, value) = record?;
                if !names.take(key.as_ref(), value.as_ref()) {
                    break;
                }
            }
            names.tell(&mut walk.report.findings);
        }
        Ok(walk.report)
    }
}

/// The findings of a report under construction: the first ones listed, the others counted.
impl Report {
    fn find(&mut self, max: usize, fault: Fault, place: Place, what: String) {
        self.gravest = self.gravest.max(Some(fault.severity()));
        if self.findings.len() < max {
            self.findings.push(Finding { fault, place, path: None, what });
        } else {
            self.more += 1;
        }
    }
}
