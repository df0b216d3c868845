//! What renewing cost, beside what it should have cost; and how requests arrive.
//!
//! Decides: an explicit renewal is a KEEPALIVE, each counted once however often it is sent; whatever else an agent sends that can be
//! answered so that its lease is renewed is opportunistic, and counts as a request. Of requests that arrive at random (a Poisson
//! process of rate ρ), an agent that begins to renew at the fraction f of its lease period τ sends 1/(e^(fτρ) − 1) explicit renewals a
//! request: gaps are exponential, and a gap x holds ⌊x/fτ⌋ of them. For the gaps that were really there the same floor is summed up as
//! well, so that a difference shows whether arrivals were not random, or agents did not renew when they should.
//! Leaves to others: whether an agent had anything to renew for; one that holds nothing sends nothing.

use crate::notes::{Note, Notes};
use cistern_wire::Kind;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most sessions that are told apart; the rest is one.
const SESSIONS: usize = 65_536;
/// What is not told apart.
const OTHERS: u64 = 0;

/// Renewals and arrivals of all sessions.
#[derive(Debug)]
pub(super) struct Renewals {
    renewing_at: f64,
    sessions: BTreeMap<u64, Arrivals>,
}

/// Those of one session.
#[derive(Clone, Debug, Default)]
struct Arrivals {
    agent: Option<String>,
    /// The lease period, if it is known.
    tau: Option<Duration>,
    first: Option<Duration>,
    last: Duration,
    requests: u64,
    last_request: Option<Duration>,
    explicit: u64,
    /// Gaps between requests: how many, their mean and the sum of squared differences from it (Welford), in seconds.
    gaps: u64,
    mean: f64,
    squares: f64,
    /// How many explicit renewals the gaps have room for.
    room: u64,
}

/// Figures of a session, or of all.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cost {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tau_s: Option<f64>,
    pub(super) seconds: f64,
    pub(super) requests: u64,
    pub(super) explicit: u64,
    /// Explicit renewals per request; none without requests.
    pub(super) per_request: Option<f64>,
    /// As many as arrivals at random would need; none if no lease period is known.
    pub(super) expected_explicit: Option<f64>,
    pub(super) expected_per_request: Option<f64>,
    /// As many as these very arrivals need.
    pub(super) expected_of_gaps: Option<u64>,
    /// Mean arrivals a second.
    pub(super) rate: Option<f64>,
    /// Coefficient of variation of the gaps: 1 at random, above it in bursts, below it like a clock.
    pub(super) variation: Option<f64>,
}

impl Renewals {
    pub(super) const fn new(renewing_at: f64) -> Self {
        Self { renewing_at, sessions: BTreeMap::new() }
    }

    /// The fraction of the lease period at which agents are taken to begin to renew.
    pub(super) const fn renewing_at(&self) -> f64 {
        self.renewing_at
    }

    pub(super) fn message(&mut self, at: Duration, kind: Kind, note: &Note, notes: &Notes) {
        let session = notes.session.0;
        if session == 0 {
            return;
        }
        let full = self.sessions.len() >= SESSIONS && !self.sessions.contains_key(&session);
        let arrivals = self.sessions.entry(if full { OTHERS } else { session }).or_default();
        arrivals.tau = notes.tau.or(arrivals.tau);
        if arrivals.agent.is_none() {
            arrivals.agent.clone_from(&notes.label);
        }
        arrivals.first.get_or_insert(at);
        arrivals.last = arrivals.last.max(at);
        if note.again.is_some() {
            return;
        }
        match kind {
            Kind::KeepAlive => arrivals.explicit += 1,
            kind if kind.is_renewing() => arrivals.request(at, self.renewing_at),
            _ => {}
        }
    }

    /// The figures of each session.
    pub(super) fn sessions(&self) -> impl Iterator<Item = Cost> {
        self.sessions.iter().map(|(session, arrivals)| {
            let session = if *session == OTHERS { "others".to_owned() } else { format!("{session:016x}") };
            arrivals.cost(self.renewing_at, Some(session))
        })
    }

    /// The figures of all: the rate is that of a session, and the variation the mean over sessions, weighted by requests.
    pub(super) fn all(&self) -> Cost {
        let costs: Vec<_> = self.sessions().collect();
        let requests: u64 = costs.iter().map(|cost| cost.requests).sum();
        let explicit = costs.iter().map(|cost| cost.explicit).sum();
        let seconds: f64 = costs.iter().map(|cost| cost.seconds).sum();
        let expected_explicit = costs.iter().map(|cost| cost.expected_explicit).sum::<Option<f64>>();
        let weighted = |value: fn(&Cost) -> Option<f64>| {
            let known: Vec<_> = costs.iter().filter_map(|cost| Some((cost.requests, value(cost)?))).collect();
            let weight: u64 = known.iter().map(|(weight, _)| weight).sum();
            (weight > 0).then(|| known.iter().map(|(weight, value)| float(*weight) * value).sum::<f64>() / float(weight))
        };
        Cost {
            session: None,
            agent: None,
            tau_s: None,
            seconds,
            requests,
            explicit,
            per_request: per(explicit, requests),
            expected_explicit,
            expected_per_request: expected_explicit.filter(|_| requests > 0).map(|expected| expected / float(requests)),
            expected_of_gaps: costs.iter().map(|cost| cost.expected_of_gaps).sum(),
            rate: (seconds > 0.0).then(|| float(requests) / seconds),
            variation: weighted(|cost| cost.variation),
        }
    }
}

impl Arrivals {
    fn request(&mut self, at: Duration, renewing_at: f64) {
        self.requests += 1;
        let Some(last) = self.last_request.replace(at) else { return };
        let gap = at.saturating_sub(last).as_secs_f64();
        self.gaps += 1;
        let off = gap - self.mean;
        self.mean += off / float(self.gaps);
        self.squares += off * (gap - self.mean);
        if let Some(tau) = self.tau {
            self.room += floor(gap / (tau.as_secs_f64() * renewing_at));
        }
    }

    fn cost(&self, renewing_at: f64, session: Option<String>) -> Cost {
        let seconds = self.first.map_or(Duration::ZERO, |first| self.last.saturating_sub(first)).as_secs_f64();
        let rate = (seconds > 0.0).then(|| float(self.requests) / seconds);
        let expected_explicit = self.tau.map(|tau| {
            let fraction = tau.as_secs_f64() * renewing_at;
            match rate.filter(|rate| *rate > 0.0) {
                Some(rate) => float(self.requests) / (fraction * rate).exp_m1(),
                None => seconds / fraction,
            }
        });
        let deviation = (self.gaps > 1).then(|| (self.squares / float(self.gaps - 1)).sqrt());
        Cost {
            session,
            agent: self.agent.clone(),
            tau_s: self.tau.map(|tau| tau.as_secs_f64()),
            seconds,
            requests: self.requests,
            explicit: self.explicit,
            per_request: per(self.explicit, self.requests),
            expected_explicit,
            expected_per_request: expected_explicit.filter(|_| self.requests > 0).map(|expected| expected / float(self.requests)),
            expected_of_gaps: self.tau.map(|_| self.room),
            rate,
            variation: deviation.filter(|_| self.mean > 0.0).map(|deviation| deviation / self.mean),
        }
    }
}

fn per(count: u64, requests: u64) -> Option<f64> {
    (requests > 0).then(|| float(count) / float(requests))
}

#[allow(clippy::cast_precision_loss, reason = "a count beyond 2^53 would need centuries of traffic")]
const fn float(count: u64) -> f64 {
    count as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a ratio of spans: not negative, and casts saturate")]
fn floor(ratio: f64) -> u64 {
    ratio as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::SessionId;

    /// A session (τ = 2 s) whose requests come after these gaps, in milliseconds.
    fn after(gaps: &[u64]) -> Cost {
        let notes = Notes { session: SessionId(7), tau: Some(Duration::from_secs(2)), ..Notes::default() };
        let (mut renewals, note) = (Renewals::new(0.6), Note::default());
        let mut at = Duration::ZERO;
        for gap in [&[0], gaps].concat() {
            at += Duration::from_millis(gap);
            renewals.message(at, Kind::ServerStatus, &note, &notes);
        }
        renewals.message(at, Kind::KeepAlive, &note, &notes);
        let again = Note { again: Some(crate::notes::Again { times: 1, first: at }), ..Note::default() };
        renewals.message(at, Kind::KeepAlive, &again, &notes);
        renewals.all()
    }

    #[test]
    fn a_keep_alive_counts_once_and_the_expectation_is_that_of_the_paper() {
        let cost = after(&[1_000; 10]);
        assert_eq!((cost.requests, cost.explicit, cost.expected_of_gaps), (11, 1, Some(0)));
        // ρ = 11 requests in 10 s, fτ = 1.2 s.
        let expected = 1.0 / ((1.2_f64 * 1.1).exp() - 1.0);
        assert!((cost.expected_per_request.unwrap() - expected).abs() < 1e-9, "{cost:?}");
    }

    #[test]
    fn gaps_tell_how_many_renewals_they_need() {
        assert_eq!(after(&[1_199, 1_201, 2_401, 10]).expected_of_gaps, Some(3));
    }

    #[test]
    fn variation_is_none_of_a_clock_and_large_in_bursts() {
        assert!(after(&[500; 20]).variation.unwrap() < 1e-9);
        let bursts: Vec<u64> = (0..10).flat_map(|_| [1, 1, 1, 1, 4_000]).collect();
        assert!(after(&bursts).variation.unwrap() > 1.5);
    }
}
