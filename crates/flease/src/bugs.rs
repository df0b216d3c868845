//! Deliberate bugs: mistakes that lease protocols without a server are made with, and that the tests of this crate must find.
//!
//! Compiled in only with the feature `bugs`; without it [`is`] is the constant `false`. Several may be on at once, because some rules
//! are each other's second defence: leaving one out alone breaks nothing that an outsider sees.

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A deliberate bug that is built in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Bug { $($(#[$doc])* $name),* }

        impl Bug {
            /// Every bug.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

bugs! {
    /// An acceptor keeps a record for the length of the lease by its own clock, without the drift.
    RecordForLease,
    /// The restart wait is the length of the lease, without the drift.
    RestartWaitsLease,
    /// A process takes part as soon as it has started.
    NoRestartWait,
    /// The lease counts from the WRITE.
    LeaseFromWrite,
    /// Answers are counted, not processes.
    AnswersCounted,
    /// What a process recorded in another tenure counts as open for its fresh attempt.
    OwnCountsAsOpen,
    /// A promise is not kept when a WRITE of a lower ballot comes.
    PromiseNotKept,
    /// A WRITE replaces the live record of another tenure.
    LiveRecordReplaced,
    /// A READ raises the promise although the live record of another tenure refuses it.
    PromiseUnderRecord,
    /// A RELEASE frees whatever tenure its sender has on record.
    ReleaseOfAnyTenure,
    /// The owner sends RELEASE and goes on until its lease is over.
    ReleaseBeforeStopping,
    /// Who is refused by a record writes it back, as the paper does.
    WriteBack,
    /// A TAKEN that echoes an earlier transmission counts for the newest.
    EarlierEchoCounts,
    /// Synchronised: a process that starts waits t_max, as the paper says.
    PaperWait,
    /// Synchronised: a process that starts waits t_max + ε.
    PaperWaitPlusEpsilon,
    /// Synchronised: a lease is over when ε has passed exactly, although its owner may still read its last instant.
    PaperEdge,
    /// Synchronised: a lease is over as soon as the own clock says so.
    NoClockWait,
    /// The end of an ownership is not looked at when an answer renews it, nor by who asks for it.
    LapseIgnored,
    /// Promises and records are forgotten when the list of members changes.
    ForgottenWithList,
    /// The list is changed again before a majority of it has agreed to anything.
    ListChangedAtOnce,
    /// What was sent under another list is answered.
    OtherListHeard,
}

#[cfg(feature = "bugs")]
mod chosen {
    use super::Bug;
    use core::sync::atomic::{AtomicU32, Ordering};

    static CHOSEN: AtomicU32 = AtomicU32::new(0);

    /// Switches these bugs on in the whole process, and every other one off.
    pub fn choose(bugs: &[Bug]) {
        CHOSEN.store(bugs.iter().fold(0, |set, bug| set | 1 << *bug as u8), Ordering::SeqCst);
    }

    /// Whether this bug is on.
    #[must_use]
    pub fn is(bug: Bug) -> bool {
        CHOSEN.load(Ordering::Relaxed) & 1 << bug as u8 != 0
    }
}

#[cfg(feature = "bugs")]
pub use chosen::{choose, is};

/// Whether deliberate bugs can be switched on in this build.
pub const COMPILED_IN: bool = cfg!(feature = "bugs");

/// Whether this bug is on: never, for none is compiled in.
#[cfg(not(feature = "bugs"))]
#[must_use]
pub const fn is(_: Bug) -> bool {
    false
}
