//! What all members must agree on, and the spans that follow from it.

use crate::ballot::{Member, MemberSet};
use crate::bugs::{self, Bug};
use alloc::borrow::Cow;
use alloc::format;
use cistern_link::ConfigError;
use cistern_link::setting::{counts, spans};
use core::time::Duration;

/// Most members of a group.
pub const MEMBERS_MAX: u8 = 15;

/// The spans of the group; the same at every member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// L: the length of a lease on its owner's clock.
    pub lease: Duration,
    /// δ: how much faster one member's clock may run than another's, in parts per million.
    pub drift_ppm: u32,
    /// ε: what reading and rounding of clocks may add. In the synchronised mode: how far any two members' clocks may differ.
    pub epsilon: Duration,
    /// Whether the mode is the synchronised one.
    pub synchronised: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self { lease: Duration::from_millis(500), drift_ppm: 10_000, epsilon: Duration::from_millis(1), synchronised: false }
    }
}

impl Terms {
    /// E: how long an acceptor keeps a record on its own clock, from the receipt of the WRITE: L(1+δ)+ε, rounded up.
    #[must_use]
    pub fn record_wait(&self) -> Duration {
        match () {
            () if cistern_link::bugs::is(cistern_link::bugs::Bug::C1) => Duration::ZERO,
            () if bugs::is(Bug::RecordForLease) => self.lease,
            () => self.longest_lease(),
        }
    }

    /// W: how long a process that starts takes no part. As long as what it may have forgotten can matter: L(1+δ)+ε; in the synchronised mode
    /// t_max(1+δ)+2ε.
    #[must_use]
    pub fn restart_wait(&self) -> Duration {
        match () {
            () if self.synchronised && bugs::is(Bug::PaperWait) => self.lease,
            () if self.synchronised && bugs::is(Bug::PaperWaitPlusEpsilon) => self.lease + self.epsilon,
            // The owner's clock may be ε ahead when it writes, and ε behind when its lease ends; and each is measured on a clock that drifts.
            () if self.synchronised => self.lease + 2 * self.epsilon + self.drift(self.lease),
            () if bugs::is(Bug::NoRestartWait) => Duration::ZERO,
            () if bugs::is(Bug::RestartWaitsLease) => self.lease,
            () => self.longest_lease(),
        }
    }

    /// The longest that a lease can last on the clock of another member.
    fn longest_lease(&self) -> Duration {
        self.lease + self.drift(self.lease) + self.epsilon
    }

    /// In the synchronised mode: how long a lease lasts at most by its owner's lease clocks, which do not jump as the synchronised one may.
    pub(crate) fn owners_lease(&self) -> Duration {
        self.lease - self.drift(self.lease)
    }

    /// By how much two clocks may differ after a span.
    fn drift(&self, span: Duration) -> Duration {
        let margin_ns = (span.as_nanos() * u128::from(self.drift_ppm)).div_ceil(1_000_000);
        Duration::from_nanos(u64::try_from(margin_ns).unwrap_or(u64::MAX))
    }

    /// Checks the bounds.
    ///
    /// # Errors
    /// A span is outside; whoever wrote the configuration is at fault.
    pub fn check(&self) -> Result<(), ConfigError> {
        spans("lease", self.lease, Duration::from_millis(300), Duration::from_secs(60), "300 ms to 60 s")?;
        counts("drift", self.drift_ppm, 3_000, 200_000, "3,000 to 200,000 ppm")?;
        spans("epsilon", self.epsilon, Duration::from_micros(1), self.lease, "1 µs to the length of the lease")?;
        if self.synchronised {
            spans(
                "epsilon",
                self.epsilon,
                Duration::from_micros(1),
                self.lease / 4,
                "1 µs to a quarter of the lease, where clocks are synchronised",
            )?;
        }
        let whole = |span: Duration| span.subsec_nanos().is_multiple_of(1_000);
        match whole(self.lease) && whole(self.epsilon) {
            true => Ok(()),
            false => Err(ConfigError {
                setting: "lease and epsilon",
                value: format!("{:?}, {:?}", self.lease, self.epsilon),
                rule: Cow::Borrowed("whole microseconds"),
            }),
        }
    }
}

/// A member's place in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The spans.
    pub terms: Terms,
    /// How many places the list has: 1 to [`MEMBERS_MAX`].
    pub places: u8,
    /// The places that have a member: who was removed leaves its own empty, so that the others keep theirs.
    pub members: MemberSet,
    /// This one.
    pub me: Member,
    /// Its boot nonce: never 0, new with each start.
    pub nonce: u64,
    /// Whether an owner renews by WRITE alone.
    pub renew_by_write: bool,
    /// Whether members keep tokens on disk.
    pub durable_tokens: bool,
}

impl Group {
    /// How many are more than half.
    #[must_use]
    pub const fn majority(&self) -> u8 {
        self.members.count() / 2 + 1
    }

    /// All members but this one.
    #[must_use]
    pub const fn others(&self) -> MemberSet {
        self.members.without(MemberSet::one(self.me))
    }
}
