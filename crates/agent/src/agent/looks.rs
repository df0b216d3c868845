//! Looks at the agent from outside: its lease, the certainty of a hold, what it counted.
//!
//! A look changes nothing, needs no timer, and is right at the moment at which it is taken. What is shown as certain is covered by the lease
//! that covers the lock, which is the old one while locks are being taken over after a restart of the server.

use crate::agent::Agent;
use crate::api::{HolderId, LeaseView};
use crate::stats::Drops;
use crate::transport::Channel;
use cistern_link::Instant;
use cistern_wire::ObjectId;
use core::time::Duration;

/// A look at a hold of an advisory lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderView {
    /// Whether nobody else can hold the lock now.
    pub certain: bool,
    /// Until when that is so, as things stand; in the past when it is not.
    pub valid_until: Instant,
    /// When operations under it should be ending, unless the lease is renewed before.
    pub suspect_at: Instant,
}

impl Agent {
    /// The lease and what it covers, for people.
    #[must_use]
    pub fn view(&self, now: Instant) -> LeaseView {
        let now = self.now.max(now);
        let counts = self.locks.counts();
        let valid_until = self.lease.valid_until();
        let (renewals_opportunistic, renewals_explicit) = self.lease.renewals();
        LeaseView {
            phase: self.lease.phase(now),
            session: self.sessions.present(),
            reclaiming: self.sessions.sources().last().map(|source| source.0),
            lease: self.lease.tau(),
            left: valid_until.map_or(Duration::ZERO, |until| now.until_lease_over(until)),
            valid_until,
            renewals_opportunistic,
            renewals_explicit,
            demands: self.stats.demands,
            nacks: self.stats.nacks,
            cache_locks: self.cache.len() as u64,
            advisory_locks: counts.held as u64,
            holders: counts.holders as u64,
            watches: self.watches.len() as u64,
            ephemerals: self.sessions.ephemerals() as u64,
            requests: self.stats.requests,
            datagrams_out: self.stats.datagrams_out,
            datagrams_in: self.stats.datagrams_in,
            retransmissions: self.stats.retransmissions,
            cache_hits: self.tasks.hits(),
            round_trip: self.sessions.channel().and_then(Channel::round_trip),
        }
    }

    /// Whether an ephemeral file goes with this agent's session, as far as is known.
    #[must_use]
    pub fn owns_ephemeral(&self, object: ObjectId) -> bool {
        self.sessions.owns_ephemeral(object)
    }

    /// How many changes were given up whose outcome the agent still waits for: what they make may come later, and be this agent's.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.tasks.unsettled()
    }

    /// How certain a hold is now; `None` when it is gone. This is the check to make at the moment of use: it needs no timer.
    #[must_use]
    pub fn holder_view(&self, now: Instant, holder: HolderId) -> Option<HolderView> {
        let now = self.now.max(now);
        if !self.locks.is_held(holder) {
            return None;
        }
        let (valid_until, suspect_at) = (self.lease.valid_until()?, self.lease.suspect_at()?);
        //= wire-spec.md#11-1-lease
        //# The end of the lease, as told to users, MUST be an instant on a named clock, not a span.
        Some(HolderView { certain: self.lease.certain(now), valid_until, suspect_at })
    }

    /// Datagrams and messages dropped, by reason.
    #[must_use]
    pub const fn drops(&self) -> &Drops {
        &self.stats.drops
    }
}
