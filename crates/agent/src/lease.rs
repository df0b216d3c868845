//! The lease: until when the agent may use what it holds, and in which phase it is (`wire-spec.md` 11.1).
//!
//! Decided by comparing now with stored instants at the moment of use; no timer need fire for the answer to be right. The end never goes back
//! while the session lives, and moves only by [`Lease::renew`]; without a session nothing is usable, whatever arrives.

use crate::config::Phases;
use cistern_link::Instant;
use cistern_wire::SessionId;
use core::time::Duration;

/// Where the lease stands (`wire-spec.md` section 11.1): fractions of τ since the send time of the newest renewing transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No session is open.
    NoSession,
    /// Renewed not long ago.
    Valid,
    /// Keep-alives are sent if it is worth it.
    Renewing,
    /// No new operation starts.
    Suspect,
    /// What is owed to external storage is written.
    Flush,
    /// Over: nothing of the cache or the locks may be used until an ACK revives it.
    Expired,
}

/// A look at the agent's lease, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// Its phase.
    pub phase: Phase,
    /// The session, if one is open.
    pub session: Option<SessionId>,
    /// The former session whose locks are being taken over into this one; until that is done the lease shown is the former one's.
    pub reclaiming: Option<SessionId>,
    /// Lease period τ.
    pub lease: Duration,
    /// Time until the lease is over; zero when it is.
    pub left: Duration,
    /// When it is over, on the agent's clock.
    pub valid_until: Option<Instant>,
    /// Renewals by ACKs of ordinary requests and control messages.
    pub renewals_opportunistic: u64,
    /// Renewals by keep-alives.
    pub renewals_explicit: u64,
    /// Demands received (each counted once).
    pub demands: u64,
    /// NACKs accepted: sessions lost.
    pub nacks: u64,
    /// Cache locks held, shared and exclusive.
    pub cache_locks: u64,
    /// Advisory locks held by the agent.
    pub advisory_locks: u64,
    /// Of these, how many local users hold.
    pub holders: u64,
    /// Objects watched.
    pub watches: u64,
    /// Ephemeral files that go with the session.
    pub ephemerals: u64,
    /// Requests sent (first transmissions).
    pub requests: u64,
    /// Datagrams sent and received.
    pub datagrams_out: u64,
    /// Datagrams received.
    pub datagrams_in: u64,
    /// Retransmissions.
    pub retransmissions: u64,
    /// Commands answered from cache, with no message.
    pub cache_hits: u64,
    /// Smoothed round trip.
    pub round_trip: Option<Duration>,
}

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

/// What renewed a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The answer to the handshake.
    Opening,
    /// An answer to something that was asked for its own sake.
    Opportunistic,
    /// The answer to a keep-alive.
    Explicit,
}

/// What a lease allows at one instant: all that locks, cache and operations know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permit {
    /// What is held may be used: read from cache.
    pub(crate) may_use: bool,
    /// An operation or a local grant may start.
    pub(crate) may_start: bool,
    /// The end of the lease, until which nobody else can hold what is held here; `None`: nothing was ever renewed.
    pub(crate) certain_until: Option<Instant>,
}

impl Permit {
    /// There is no lease.
    const NONE: Self = Self { may_use: false, may_start: false, certain_until: None };
}

/// Where each phase ends, for one renewal.
#[derive(Clone, Copy, Debug)]
struct Ends {
    valid: Instant,
    renewing: Instant,
    suspect: Instant,
    flush: Instant,
    over: Instant,
}

/// A session's lease.
#[derive(Clone, Copy, Debug)]
struct Open {
    tau: Duration,
    /// *Valid* ends no later than so long after the send time of what renewed.
    renew_within: Duration,
    /// None until the first renewal.
    ends: Option<Ends>,
}

/// The agent's lease: of the present session, and while what was held in a former one is reclaimed into that, the former lease, which covers
/// all that is held until then and which nothing renews any more.
///
/// ```text
///              renew: every end := max(end, sent(echo) + its fraction of τ)
///              ┌────────────────────────────────────────────────────┐
///              ▼                                                    │
///  open ──▶ Valid ──▶ Renewing ──▶ Suspect ──▶ Flush ──▶ Expired ───┤
///              └──────────┴────────────┴──────────┴──────────┴──▶ NoSession (close)
/// ```
#[derive(Debug)]
pub(crate) struct Lease {
    phases: Phases,
    open: Option<Open>,
    former: Option<Open>,
    opportunistic: u64,
    explicit: u64,
}

impl Lease {
    /// No session, so no lease.
    pub(crate) const fn new(phases: Phases) -> Self {
        Self { phases, open: None, former: None, opportunistic: 0, explicit: 0 }
    }

    /// A session with lease period `tau` is open; nothing is usable before the first renewal. *Valid* ends after its part of τ, or after
    /// `renew_within` if that is shorter.
    pub(crate) const fn open(&mut self, tau: Duration, renew_within: Duration) {
        //= wire-spec.md#11-1-lease
        //# The agent MUST NOT use locks or cache before it received the answer that made them usable.
        self.open = Some(Open { tau, renew_within, ends: None });
    }

    /// The session is over: nothing renews from now on.
    pub(crate) const fn close(&mut self) {
        (self.open, self.former) = (None, None);
    }

    /// The session is left, and what is held in it is to be reclaimed into another.
    pub(crate) fn hold_over(&mut self) {
        let open = self.open.take();
        self.former = self.former.or(open);
    }

    /// All that is held belongs to the present session from now on, and is covered by its lease.
    pub(crate) const fn take_over(&mut self) {
        self.former = None;
    }

    /// Takes an answer in the present session that renews: its lease runs from the send time of the transmission answered, if that is later than what it
    /// runs from already. Whether it moved.
    pub(crate) fn renew(&mut self, sent: Instant, by: Renewal) -> bool {
        let Some(open) = &mut self.open else { return false };
        let after = |ppm: u32| sent.plus(part(open.tau, ppm));
        let fresh = Ends {
            valid: sent.plus(part(open.tau, self.phases.valid_ppm).min(open.renew_within)),
            renewing: after(self.phases.renewing_ppm),
            suspect: after(self.phases.suspect_ppm),
            flush: after(self.phases.flush_ppm),
            over: sent.plus(open.tau),
        };
        //= wire-spec.md#11-1-lease
        //# A renewing answer MUST set the end of the lease to the later of its end so far and the send time of the echoed transmission plus
        //# τ.
        let ends = open.ends.map_or(fresh, |old| Ends {
            valid: old.valid.max(fresh.valid),
            renewing: old.renewing.max(fresh.renewing),
            suspect: old.suspect.max(fresh.suspect),
            flush: old.flush.max(fresh.flush),
            over: old.over.max(fresh.over),
        });
        let moved = open.ends.is_none_or(|old| old.over != ends.over);
        open.ends = Some(ends);
        match by {
            Renewal::Opening => {}
            Renewal::Opportunistic => self.opportunistic += u64::from(moved),
            Renewal::Explicit => self.explicit += u64::from(moved),
        }
        moved
    }

    /// What it allows now, as a value for those who hold and use locks. The guard between the end of *flush* and that of the lease is left
    /// unused.
    pub(crate) fn permit(&self, now: Instant) -> Permit {
        //= wire-spec.md#11-1-lease
        //# A renewing answer whose lease is over when it arrives MUST NOT make anything usable.
        self.ends().map_or(Permit::NONE, |ends| Permit {
            may_use: !now.lease_over(ends.flush),
            may_start: !now.lease_over(ends.renewing),
            certain_until: Some(ends.over),
        })
    }

    /// Whether nobody else can hold now what is held here: the lease is not over.
    pub(crate) fn certain(&self, now: Instant) -> bool {
        self.ends().is_some_and(|ends| !now.lease_over(ends.over))
    }

    /// The phase of what covers all that is held.
    pub(crate) fn phase(&self, now: Instant) -> Phase {
        self.covering().map_or(Phase::NoSession, |open| open.phase(now))
    }

    /// The phase of the present session's lease.
    pub(crate) fn session_phase(&self, now: Instant) -> Phase {
        self.open.map_or(Phase::NoSession, |open| open.phase(now))
    }

    /// When *valid* ends in the present session: the moment to renew on purpose.
    pub(crate) fn valid_ends(&self) -> Option<Instant> {
        self.open?.ends.map(|ends| ends.valid)
    }

    /// When the present session's lease is over.
    pub(crate) fn session_until(&self) -> Option<Instant> {
        self.open?.ends.map(|ends| ends.over)
    }

    /// When *suspect* begins.
    pub(crate) fn suspect_at(&self) -> Option<Instant> {
        self.ends().map(|ends| ends.renewing)
    }

    /// When the lease is over.
    pub(crate) fn valid_until(&self) -> Option<Instant> {
        self.ends().map(|ends| ends.over)
    }

    /// The next of these two to come.
    pub(crate) fn next_end(&self, now: Instant) -> Option<Instant> {
        [self.suspect_at()?, self.valid_until()?].into_iter().find(|end| !now.lease_over(*end))
    }

    /// The lease period; zero without a session.
    pub(crate) fn tau(&self) -> Duration {
        self.covering().map_or(Duration::ZERO, |open| open.tau)
    }

    /// Renewals so far: opportunistic, explicit.
    pub(crate) const fn renewals(&self) -> (u64, u64) {
        (self.opportunistic, self.explicit)
    }

    const fn covering(&self) -> Option<&Open> {
        if let Some(former) = &self.former { Some(former) } else { self.open.as_ref() }
    }

    fn ends(&self) -> Option<&Ends> {
        self.covering()?.ends.as_ref()
    }
}

impl Open {
    fn phase(&self, now: Instant) -> Phase {
        let Some(ends) = self.ends else { return Phase::Expired };
        let phases =
            [(ends.valid, Phase::Valid), (ends.renewing, Phase::Renewing), (ends.suspect, Phase::Suspect), (ends.flush, Phase::Flush)];
        phases.into_iter().find(|(end, _)| !now.lease_over(*end)).map_or(Phase::Expired, |(_, phase)| phase)
    }
}

/// A part of a span, rounded down.
pub(crate) fn part(tau: Duration, ppm: u32) -> Duration {
    //= wire-spec.md#11-1-lease
    //# The agent MUST round the end of its lease down.
    let ns = tau.as_nanos() * u128::from(ppm) / 1_000_000;
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
