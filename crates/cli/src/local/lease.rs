//! An agent's lease in answers.

use super::{micros, millis};
use cistern_client::{LeaseView, Phase};
use serde::{Deserialize, Serialize};

/// An agent's lease as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) phase: String,
    pub(crate) session: Option<String>,
    /// The former session whose locks are being taken over; until that is done the lease is that one's.
    pub(crate) reclaiming: Option<String>,
    pub(crate) lease_ms: u64,
    pub(crate) left_ms: u64,
    pub(crate) renewals_opportunistic: u64,
    pub(crate) renewals_explicit: u64,
    pub(crate) demands: u64,
    pub(crate) nacks: u64,
    pub(crate) cache_locks: u64,
    pub(crate) advisory_locks: u64,
    pub(crate) holders: u64,
    #[serde(default)]
    pub(crate) watches: u64,
    #[serde(default)]
    pub(crate) ephemerals: u64,
    pub(crate) requests: u64,
    pub(crate) datagrams_out: u64,
    pub(crate) datagrams_in: u64,
    pub(crate) retransmissions: u64,
    pub(crate) cache_hits: u64,
    pub(crate) round_trip_us: Option<u64>,
}

impl From<LeaseView> for Lease {
    fn from(v: LeaseView) -> Self {
        Self {
            phase: phase_name(v.phase).to_owned(),
            session: v.session,
            reclaiming: v.reclaiming,
            lease_ms: millis(v.lease),
            left_ms: millis(v.left),
            renewals_opportunistic: v.renewals_opportunistic,
            renewals_explicit: v.renewals_explicit,
            demands: v.demands,
            nacks: v.nacks,
            cache_locks: v.cache_locks,
            advisory_locks: v.advisory_locks,
            holders: v.holders,
            watches: v.watches,
            ephemerals: v.ephemerals,
            requests: v.requests,
            datagrams_out: v.datagrams_out,
            datagrams_in: v.datagrams_in,
            retransmissions: v.retransmissions,
            cache_hits: v.cache_hits,
            round_trip_us: v.round_trip.map(micros),
        }
    }
}

const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::NoSession => "no session",
        Phase::Valid => "valid",
        Phase::Renewing => "renewing",
        Phase::Suspect => "suspect",
        Phase::Flush => "flush",
        _ => "expired",
    }
}
