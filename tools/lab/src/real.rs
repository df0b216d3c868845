//! The real cores of agent and server, in virtual time, beside what is solved for their policy.
//!
//! Decides: what they are driven with (the same arrivals as the simulated policies), and which solution is theirs: renewal from 0.6 τ on,
//! and nothing begun from 0.8 τ on. Leaves to others: the run itself (`cistern_sim::script::costs`), the solutions (`cistern_model`).

use crate::requests::{Arrivals, number, outages};
use crate::simulate::{Pair, events, outlive};
use cistern_model::Invalid;
use cistern_model::renewal::{Explicit, Lease, Parts, Stages};
use cistern_sim::script::{Load, costs, lease};
use std::time::Duration;

/// A span of the models, in lease periods; one that is too long for a run counts as no end.
fn span(periods: f64) -> Duration {
    Duration::try_from_secs_f64(periods * lease().as_secs_f64()).unwrap_or(Duration::from_secs(1 << 32))
}

const fn name(opportunistic: bool) -> &'static str {
    if opportunistic { "opportunistic, real cores" } else { "explicit, real cores" }
}

/// Keep-alives per request by the models.
pub(crate) fn solved(opportunistic: bool, arrivals: &Arrivals, x: f64) -> f64 {
    let after = Parts::AGENT.renew_from * x;
    if opportunistic { arrivals.overhead(after) } else { 1.0 / after }
}

/// Keep-alives per request, at `x` requests a lease period.
pub(crate) fn overhead(
    opportunistic: bool,
    named: &'static str,
    arrivals: &Arrivals,
    x: f64,
    requests: u64,
    seed: u64,
) -> Result<Pair, Invalid> {
    let counted = costs(Load { opportunistic, requests }, arrivals.draw(x, seed)?.map(span), []);
    let solved = solved(opportunistic, arrivals, x);
    let renewals = events(requests, arrivals, solved);
    Ok(Pair::new("overhead", name(opportunistic), named, x, solved, counted.overhead()).explained(counted.sessions_lost, renewals))
}

/// Requests and outages in a lease period, for the share of time without data: as outages make all of it, there are many of them, and few
/// requests between them.
pub(crate) const REQUESTS: f64 = 2.0;
pub(crate) const FAILURES: f64 = 0.5;

/// Until the agent finds a mended network, on average, in lease periods: it asks every τ/8 at least. The models know no such delay. What an
/// outage adds to the time without data is 1/μ on average, however long the lease outlived its beginning, so the delay d adds d to each 1/μ.
const FOUND_AFTER: f64 = 1.0 / 16.0;

/// Share of time without data, with outages that are mended at the rate `mu`, in a lease period.
pub(crate) fn unavailability(opportunistic: bool, mu: f64, requests: u64, seed: u64) -> Result<Pair, Invalid> {
    let (rho, lambda) = (REQUESTS, FAILURES);
    let outages = outages(lambda, mu, !seed)?.map(|(works, fails)| (span(works), span(fails)));
    let counted = costs(Load { opportunistic, requests }, Arrivals::Poisson.draw(rho, seed)?.map(span), outages);
    let lease = Lease { tau: 1.0, rho, lambda, mu, sigma: Explicit::AtOnce, stages: Stages::Sharp };
    let lease = if opportunistic { lease } else { lease.explicit() };
    let solved = lease.solve_early(Parts::AGENT)?.unavailability().rounded() * (1.0 + mu * FOUND_AFTER);
    let outlived = number(requests) / rho * lambda * outlive(mu);
    Ok(Pair::new("unavailable", name(opportunistic), "random", mu, solved, counted.unavailable())
        .explained(counted.sessions_lost, outlived))
}
