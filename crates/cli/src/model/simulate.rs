//! `cistern model simulate`: solved and simulated beside each other, in a table and on one picture.
//!
//! Decides: which policies, periods and arrivals are run, and how far the two are apart. Leaves to others: the simulation
//! (`cistern_model::simulated`), the solutions.

use super::shown::{refused, row, show};
use crate::args::model::Simulate;
use crate::local::Failure;
use crate::plan::capture;
use crate::show::{Progress, line};
use cistern_model::figures::{AGENT, Axis, Curve, Figure, Mark};
use cistern_model::renewal::{Explicit, Lease, Parts, Stages};
use cistern_model::simulated::{self, Arrivals, Policy, Scene};
use cistern_model::{Invalid, Magnitude};
use serde::Serialize;

/// Lease periods that are run, in mean gaps between requests.
const PERIODS: [f64; 7] = [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

/// For the share of time without data: outages every 20 periods, with mean lengths of 2, 1, 1/2 and 1/3 of a period, 5 requests a period.
const REPAIRS: [f64; 4] = [0.5, 1.0, 2.0, 3.0];
const FAILURES: f64 = 0.05;
const REQUESTS: f64 = 5.0;

/// Bursts: one gap in ten is long, twenty times as long as the others.
const BURSTS: Arrivals = Arrivals::Bursts { long: 0.1, times: 20.0 };

/// One quantity of one run.
#[derive(Debug, Serialize)]
struct Pair {
    quantity: &'static str,
    policy: &'static str,
    arrivals: &'static str,
    /// τρ, or μτ for the share of time without data.
    x: f64,
    solved: f64,
    simulated: f64,
    /// simulated/solved − 1.
    off: f64,
}

/// A policy that is run.
struct Run {
    name: &'static str,
    policy: Policy,
    parts: Parts,
}

const RUNS: [Run; 4] = [
    Run { name: "explicit, renewed when over", policy: Policy::Heartbeat(Parts::PAPER), parts: Parts::PAPER },
    Run { name: "explicit, renewed from 0.6 τ", policy: Policy::Heartbeat(AGENT), parts: AGENT },
    Run { name: "opportunistic, renewed from 0.6 τ", policy: Policy::Opportunistic(AGENT), parts: AGENT },
    Run { name: "opportunistic, renewed when over", policy: Policy::Opportunistic(Parts::PAPER), parts: Parts::PAPER },
];

pub(super) fn simulate(args: &Simulate) -> Result<(), Failure> {
    let trace = args.from.as_deref().map(capture::read).transpose()?.map(|seen| Arrivals::Traced(seen.in_order));
    let pairs = run(args, trace.as_ref()).map_err(refused)?;
    let mut rows = vec![row([&"quantity", &"policy", &"arrivals", &"x", &"solved", &"simulated", &"off"])];
    rows.extend(pairs.iter().map(|p| row([&p.quantity, &p.policy, &p.arrivals, &p.x, &p.solved, &p.simulated, &p.off])));
    show(&args.shown, &pairs, &rows, || picture(&pairs, trace.as_ref()), || in_words(args, &pairs))
}

fn run(args: &Simulate, trace: Option<&Arrivals>) -> Result<Vec<Pair>, Invalid> {
    let mut progress = Progress::new();
    let mut pairs = Vec::new();
    for run in &RUNS {
        // Heartbeats are sent whatever comes.
        let opportunistic = matches!(run.policy, Policy::Opportunistic(_));
        let others = [("bursts", Some(&BURSTS)), ("traced", trace)].into_iter().filter(|_| opportunistic);
        for (name, arrivals) in [("random", Some(&Arrivals::Poisson))].into_iter().chain(others) {
            let Some(arrivals) = arrivals else { continue };
            for x in PERIODS {
                progress.tell(&format!("{}, {name} requests, τρ = {x}", run.name));
                pairs.push(overhead(args, run, name, arrivals, x)?);
            }
        }
        for mu in REPAIRS {
            progress.tell(&format!("{}, μτ = {mu}", run.name));
            pairs.push(unavailability(args, run, mu)?);
        }
    }
    progress.done();
    Ok(pairs)
}

fn overhead(args: &Simulate, run: &Run, name: &'static str, arrivals: &Arrivals, x: f64) -> Result<Pair, Invalid> {
    let scene = Scene { policy: run.policy, arrivals: arrivals.clone(), rho: 1.0, tau: x, lambda: 0.0, mu: 0.0 };
    let simulated = simulated::simulate(&scene, args.requests, args.seed)?.overhead();
    let solved = solved(run, arrivals, x);
    Ok(Pair { quantity: "overhead", policy: run.name, arrivals: name, x, solved, simulated, off: simulated / solved - 1.0 })
}

fn solved(run: &Run, arrivals: &Arrivals, x: f64) -> f64 {
    let after = run.parts.renew_from * x;
    if matches!(run.policy, Policy::Opportunistic(_)) { arrivals.overhead(after) } else { 1.0 / after }
}

fn unavailability(args: &Simulate, run: &Run, mu: f64) -> Result<Pair, Invalid> {
    let scene = Scene { policy: run.policy, arrivals: Arrivals::Poisson, rho: REQUESTS, tau: 1.0, lambda: FAILURES, mu };
    let simulated = simulated::simulate(&scene, args.requests, args.seed)?.unavailability();
    let lease = Lease { tau: 1.0, rho: REQUESTS, lambda: FAILURES, mu, sigma: Explicit::AtOnce, stages: Stages::Sharp };
    let lease = if matches!(run.policy, Policy::Opportunistic(_)) { lease } else { lease.explicit() };
    let solved = lease.solve_early(run.parts)?.unavailability().rounded();
    Ok(Pair { quantity: "unavailable", policy: run.name, arrivals: "random", x: mu, solved, simulated, off: simulated / solved - 1.0 })
}

fn in_words(args: &Simulate, pairs: &[Pair]) -> Result<(), Failure> {
    line(format!("{} requests in each run, seed {}; nothing is solved in the simulation.", args.requests, args.seed))?;
    for (quantity, x, what) in [
        ("overhead", "τρ", "Renewal messages per request, without failures:"),
        ("unavailable", "μτ", "Share of time without data, λτ = 0.05, ρτ = 5:"),
    ] {
        line(format!("\n{what}\n"))?;
        let head = row([&x, &"policy", &"requests", &"solved", &"simulated", &"off"]);
        let number = |n: f64| Magnitude::new(n).to_string();
        let cells = pairs.iter().filter(|pair| pair.quantity == quantity).map(|pair| {
            let off = format!("{:+.1} %", pair.off * 100.0);
            row([&pair.x, &pair.policy, &pair.arrivals, &number(pair.solved), &number(pair.simulated), &off])
        });
        crate::show::table(&std::iter::once(head).chain(cells).collect::<Vec<_>>())?;
    }
    line("\nA run with n renewals or outages is off by about 1/√n: more --requests bring the two nearer.")
}

fn picture(pairs: &[Pair], trace: Option<&Arrivals>) -> Result<Figure, Invalid> {
    let xs = Axis::linear("", 0.1, 7.0).places(240);
    let mut curves = Vec::new();
    for run in &RUNS {
        curves.push(Curve::of(run.name, &xs, |x| Ok(solved(run, &Arrivals::Poisson, x)))?);
    }
    curves.push(Curve::of("opportunistic, renewed when over, bursts", &xs, |x| Ok(BURSTS.overhead(x)))?);
    if let Some(trace) = trace {
        curves.push(Curve::of("opportunistic, renewed when over, traced", &xs, |x| Ok(trace.overhead(x)))?);
    }
    // Bursts and traces only for renewal at the end of the period, or there would be too many points.
    let drawn = pairs
        .iter()
        .filter(|pair| pair.quantity == "overhead" && (pair.arrivals == "random" || pair.policy == "opportunistic, renewed when over"));
    let marks = drawn.map(|pair| Mark { of: format!("simulated, {}", pair.arrivals), x: pair.x, y: pair.simulated });
    Ok(Figure {
        title: "Renewal messages per request: solved and simulated".to_owned(),
        x: Axis::linear("lease period τρ, in mean times between requests", 0.0, 7.0),
        y: Axis::log("explicit renewals per request", 1e-4, 1e3),
        curves,
        marks: marks.collect(),
        notes: vec![
            "Curves are solved for a period of exactly τ; bursts have one gap in ten twenty times as long as the others.".to_owned(),
        ],
    })
}

/// The manual's picture.
#[cfg(test)]
pub(super) fn drawn(args: &Simulate) -> Figure {
    picture(&run(args, None).unwrap(), None).unwrap()
}
