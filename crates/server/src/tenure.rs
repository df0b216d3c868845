//! For how long a server may answer: as long as the lease of its group is certain; for ever, if it is the only server of its store.
//!
//! Decides whether this moment is within that time. Every message in a session comes into being with a [`Certain`], which nothing else
//! makes, so no path to an agent can leave the question out. Place in the walk: asked at each step, and where messages are produced.
//! Invariant: a tenure that is over is never extended; what follows it is another server core.
//! Leaves to others: whose the lease is (`cistern-flease`), what is done when it is over (`server`).

use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};

/// Until when the server may answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenure {
    until: Instant,
}

/// That the lease of the group was certain at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Certain {
    now: Instant,
}

impl Tenure {
    /// Of a server without a group.
    pub(crate) const UNLIMITED: Self = Self { until: Instant::new(u64::MAX, u64::MAX) };

    /// Of a server whose lease is over when either clock reaches `until`, unless it is renewed.
    pub(crate) const fn until(until: Instant) -> Self {
        Self { until }
    }

    /// Whether it ends: the server is one of a group.
    pub(crate) const fn is_limited(self) -> bool {
        self.until.raw_ns != Self::UNLIMITED.until.raw_ns
    }

    /// The proof that the server may answer now; `None`: it may not.
    #[inline]
    pub(crate) fn certain(self, now: Instant) -> Option<Certain> {
        //= wire-spec.md#11-10-groups-of-servers
        //# A server of a group MUST NOT answer, renew, grant, demand or execute unless its lease of the group is certain by a time read after
        //# what it acts on was received.
        (!now.lease_over(self.until) || bugs::is(Bug::C2)).then_some(Certain { now })
    }
}

impl Certain {
    /// When it was certain.
    #[inline]
    pub(crate) const fn now(self) -> Instant {
        self.now
    }
}
