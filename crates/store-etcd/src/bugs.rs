//! Deliberate bugs: mistakes that writers to a replicated store are made with, and that the tests of this crate must find.
//!
//! Compiled in only with the feature `bugs`; without it [`is`] is the constant `false`. Each thread has its own, so that tests run side
//! by side.

/// A deliberate bug that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// A COMMIT does not compare the owner.
    OwnerNotCompared,
    /// A COMMIT does not compare the number of the one before.
    SequenceNotCompared,
    /// A second COMMIT is sent before the first is answered.
    TwoInFlight,
    /// The store is loaded before the fence is written.
    LoadedBeforeFence,
    /// What may have been executed counts as failed.
    UnknownIsFailed,
    /// What may have been executed counts as done.
    UnknownIsDone,
    /// What etcd says it has no space for counts as failed.
    NoSpaceIsFailed,
    /// The store is loaded before a committed journal is finished.
    JournalLoadedOver,
    /// The parts of a journal are applied without a compare.
    JournalNotCompared,
    /// The store is read while parts of the journal are not applied.
    ReadBesideJournal,
    /// Answers of another cluster are believed.
    ClusterNotCompared,
    /// A range of deletes leaves its last key.
    RangeTooShort,
}

impl Bug {
    /// Every bug.
    pub const ALL: &'static [Self] = &[
        Self::OwnerNotCompared,
        Self::SequenceNotCompared,
        Self::TwoInFlight,
        Self::LoadedBeforeFence,
        Self::UnknownIsFailed,
        Self::UnknownIsDone,
        Self::NoSpaceIsFailed,
        Self::JournalLoadedOver,
        Self::JournalNotCompared,
        Self::ReadBesideJournal,
        Self::ClusterNotCompared,
        Self::RangeTooShort,
    ];
}

#[cfg(feature = "bugs")]
mod chosen {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static CHOSEN: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Switches this bug on in this thread, and every other one off.
    pub fn choose(bug: Option<Bug>) {
        CHOSEN.set(bug);
    }

    /// Whether this bug is on.
    #[must_use]
    pub fn is(bug: Bug) -> bool {
        CHOSEN.get() == Some(bug)
    }
}

#[cfg(feature = "bugs")]
pub use chosen::{choose, is};

/// Whether this bug is on: never, for none is compiled in.
#[cfg(not(feature = "bugs"))]
#[must_use]
pub const fn is(_: Bug) -> bool {
    false
}
