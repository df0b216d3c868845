//! `cistern-lab simulate`: solved and simulated beside each other, in a table and on one picture.
//!
//! Decides: which policies, periods and arrivals are run, and how far the two are apart. Each is run twice over: by agents that follow the
//! papers' policies and nothing else, and, where the agent of this project has such a policy, by its real core against the real server.
//! Leaves to others: the simulations (`simulated`, `real`), the solutions.

use crate::args::Simulate;
use crate::real;
use crate::requests::{Arrivals, number};
use crate::show::{Failure, line, refused, show, table};
use crate::simulated::{self, Policy, Scene};
use cistern_model::capture;
use cistern_model::renewal::{Explicit, Lease, Parts, Stages};
use cistern_model::{Invalid, Magnitude};
use cistern_picture::{Axis, Curve, Figure, Mark};
use cistern_text::{Progress, row};
use serde::Serialize;

/// Lease periods that are run, in mean gaps between requests.
const PERIODS: [f64; 7] = [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

/// For the share of time without data: outages every 20 periods, with mean lengths of 2, 1, 1/2 and 1/3 of a period, 5 requests a period.
const REPAIRS: [f64; 4] = [0.5, 1.0, 2.0, 3.0];
const FAILURES: f64 = 0.05;
const REQUESTS: f64 = 5.0;

/// Bursts: one gap in ten is long, twenty times as long as the others.
pub(crate) const BURSTS: Arrivals = Arrivals::Bursts { long: 0.1, times: 20.0 };

/// One quantity of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Pair {
    quantity: &'static str,
    policy: &'static str,
    arrivals: &'static str,
    /// τρ, or μτ for the share of time without data.
    x: f64,
    pub(crate) solved: f64,
    pub(crate) simulated: f64,
    /// simulated/solved − 1.
    pub(crate) off: f64,
    /// Why the two are further apart than [`OFF_MAX`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

/// How far simulated and solved may be apart at any point.
const OFF_MAX: f64 = 0.15;

impl Pair {
    pub(crate) fn new(quantity: &'static str, policy: &'static str, arrivals: &'static str, x: f64, solved: f64, simulated: f64) -> Self {
        Self { quantity, policy, arrivals, x, solved, simulated, off: simulated / solved - 1.0, why: None }
    }

    /// Says why the two are far apart, if they are: `lost` sessions, or too few of the `events` that make the quantity.
    pub(crate) fn explained(mut self, lost: u64, events: f64) -> Self {
        if self.off.abs() <= OFF_MAX {
            return self;
        }
        self.why = Some(if lost > 0 {
            format!("the agent lost its session, and its lock, {lost} times; what follows is not the cost of a lease")
        } else if 5.0 / events.sqrt() > OFF_MAX {
            format!("only about {events:.0} renewals or outages count in this run; --requests 10 times as many")
        } else {
            "not by chance: a fault of the simulation or of the solution; please report it".to_owned()
        });
        self
    }
}

/// A policy that is run.
struct Run {
    name: &'static str,
    policy: Policy,
    parts: Parts,
}

const RUNS: [Run; 4] = [
    Run { name: "explicit, renewed when over", policy: Policy::Heartbeat(Parts::PAPER), parts: Parts::PAPER },
    Run { name: "explicit, renewed from 0.6 τ", policy: Policy::Heartbeat(Parts::AGENT), parts: Parts::AGENT },
    Run { name: "opportunistic, renewed from 0.6 τ", policy: Policy::Opportunistic(Parts::AGENT), parts: Parts::AGENT },
    Run { name: "opportunistic, renewed when over", policy: Policy::Opportunistic(Parts::PAPER), parts: Parts::PAPER },
];

pub(crate) fn simulate(args: &Simulate) -> Result<(), Failure> {
    let trace =
        args.capture.as_deref().map(capture::read).transpose().map_err(Failure::failed)?.map(|seen| Arrivals::Traced(seen.in_order));
    let pairs = run(args, trace.as_ref()).map_err(refused)?;
    let mut rows = vec![row([&"quantity", &"policy", &"arrivals", &"x", &"solved", &"simulated", &"off"])];
    rows.extend(pairs.iter().map(|p| row([&p.quantity, &p.policy, &p.arrivals, &p.x, &p.solved, &p.simulated, &p.off])));
    show(&args.shown, &pairs, &rows, || picture(&pairs, trace.as_ref()), || in_words(args, &pairs))?;
    match pairs.iter().filter(|pair| pair.why.is_some()).count() {
        0 => Ok(()),
        far => Err(Failure::failed(format!("{far} of {} points are more than {:.0} % off", pairs.len(), OFF_MAX * 100.0))),
    }
}

/// A point at which simulated and solved are far apart, in words.
fn said(pair: &Pair) -> Option<String> {
    let Pair { quantity, policy, arrivals, x, off, why, .. } = pair;
    let off = off * 100.0;
    why.as_ref().map(|why| format!("{quantity}, {policy}, {arrivals} requests, x = {x}: {off:+.0} % off: {why}"))
}

/// Requests of a run of real cores, each of which takes some hundred times as long as one of a simulated policy: as many as lead to about
/// 1,200 renewals where `--requests` is the default, so that chance makes 3 % of difference, and not 15 %.
fn real_requests(args: &Simulate, solved: f64, arrivals: &Arrivals) -> u64 {
    let renewals = number(args.requests) / 250.0;
    // Of the gaps between bursts, which make nearly all renewals, there is one in ten requests; their number and their lengths both vary, so
    // 2,500 of them make 3 % of difference.
    let fewest = if matches!(arrivals, Arrivals::Poisson) { args.requests.div_ceil(300) } else { args.requests.div_ceil(12) };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and `as` saturates")]
    let needed = (renewals / solved).ceil() as u64;
    needed.min(args.requests).max(fewest)
}

/// Requests of a policy's run with outages. What is measured there comes from the few of them that outlive the lease: at the default of
/// `--requests` from 270 where they are shortest, whose lengths alone make 9 % of difference by chance; ten times as many make 3 %.
const fn requests_with_outages(args: &Simulate) -> u64 {
    args.requests.saturating_mul(10)
}

/// For the share of time without data, which comes from the few outages that outlive the lease.
const fn real_requests_with_outages(args: &Simulate) -> u64 {
    args.requests.div_ceil(3)
}

fn run(args: &Simulate, trace: Option<&Arrivals>) -> Result<Vec<Pair>, Invalid> {
    let mut progress = Progress::default();
    let mut pairs = overheads(args, trace, true, &mut progress)?;
    for run in &RUNS {
        for mu in REPAIRS {
            progress.tell(&format!("{}, μτ = {mu}", run.name));
            pairs.push(unavailability(args, run, mu)?);
        }
    }
    for (opportunistic, mu) in [false, true].into_iter().flat_map(|opportunistic| REPAIRS.map(|mu| (opportunistic, mu))) {
        progress.tell(&format!("real cores, μτ = {mu}"));
        pairs.push(real::unavailability(opportunistic, mu, real_requests_with_outages(args), args.seed)?);
    }
    progress.done();
    Ok(pairs)
}

/// `all`: also what has no place on the picture.
fn overheads(args: &Simulate, trace: Option<&Arrivals>, all: bool, progress: &mut Progress) -> Result<Vec<Pair>, Invalid> {
    let mut pairs = Vec::new();
    // Heartbeats are sent whatever comes, so bursts and traces are for opportunistic renewal only.
    let of = |opportunistic: bool| {
        let others = [("bursts", Some(&BURSTS)), ("traced", trace)].into_iter().filter(move |_| opportunistic);
        [("random", Some(&Arrivals::Poisson))].into_iter().chain(others).filter_map(|(name, arrivals)| Some((name, arrivals?)))
    };
    for run in &RUNS {
        for (name, arrivals) in of(matches!(run.policy, Policy::Opportunistic(_))) {
            for x in PERIODS {
                progress.tell(&format!("{}, {name} requests, τρ = {x}", run.name));
                pairs.push(overhead(args, run, name, arrivals, x)?);
            }
        }
    }
    for opportunistic in [false, true] {
        for (name, arrivals) in of(opportunistic && all) {
            for x in PERIODS {
                progress.tell(&format!("real cores, {name} requests, τρ = {x}"));
                let requests = real_requests(args, real::solved(opportunistic, arrivals, x), arrivals);
                pairs.push(real::overhead(opportunistic, name, arrivals, x, requests, args.seed)?);
            }
        }
    }
    Ok(pairs)
}

fn overhead(args: &Simulate, run: &Run, name: &'static str, arrivals: &Arrivals, x: f64) -> Result<Pair, Invalid> {
    let scene = Scene { policy: run.policy, arrivals: arrivals.clone(), rho: 1.0, tau: x, lambda: 0.0, mu: 0.0 };
    let counted = simulated::simulate(&scene, args.requests, args.seed)?;
    let solved = solved(run, arrivals, x);
    Ok(Pair::new("overhead", run.name, name, x, solved, counted.overhead()).explained(0, events(args.requests, arrivals, solved)))
}

fn solved(run: &Run, arrivals: &Arrivals, x: f64) -> f64 {
    let after = run.parts.renew_from * x;
    if matches!(run.policy, Policy::Opportunistic(_)) { arrivals.overhead(after) } else { 1.0 / after }
}

fn unavailability(args: &Simulate, run: &Run, mu: f64) -> Result<Pair, Invalid> {
    let scene = Scene { policy: run.policy, arrivals: Arrivals::Poisson, rho: REQUESTS, tau: 1.0, lambda: FAILURES, mu };
    let requests = requests_with_outages(args);
    let simulated = simulated::simulate(&scene, requests, args.seed)?.unavailability();
    let lease = Lease { tau: 1.0, rho: REQUESTS, lambda: FAILURES, mu, sigma: Explicit::AtOnce, stages: Stages::Sharp };
    let lease = if matches!(run.policy, Policy::Opportunistic(_)) { lease } else { lease.explicit() };
    let solved = lease.solve_early(run.parts)?.unavailability().rounded();
    let outages = number(requests) / REQUESTS * FAILURES * outlive(mu);
    Ok(Pair::new("unavailable", run.name, "random", mu, solved, simulated).explained(0, outages))
}

/// The share of outages, mended at the rate `mu`, that last so long that an agent of this project stops to use a lease just renewed.
pub(crate) fn outlive(mu: f64) -> f64 {
    (-mu * Parts::AGENT.use_until).exp()
}

/// How many independent events make the overhead of a run: renewals, or, where they come in bursts, the long gaps that make them.
pub(crate) fn events(requests: u64, arrivals: &Arrivals, solved: f64) -> f64 {
    let share = if matches!(arrivals, Arrivals::Poisson) { solved } else { solved.min(0.1) };
    number(requests) * share
}

fn in_words(args: &Simulate, pairs: &[Pair]) -> Result<(), Failure> {
    let of_outages = requests_with_outages(args);
    line(format!("{} requests in each run, {of_outages} with outages, seed {}; nothing is solved in it.", args.requests, args.seed))?;
    let real = real_requests_with_outages(args);
    line(format!("Real cores: this project's agent and server in virtual time, {real} requests in each run with outages, fewer without."))?;
    for (quantity, x, what) in [
        ("overhead", "τρ", "Renewal messages per request, without failures:"),
        ("unavailable", "μτ", "Share of time without data, λτ = 0.05, ρτ = 5 (real cores: λτ = 0.5, ρτ = 2):"),
    ] {
        line(format!("\n{what}\n"))?;
        let head = row([&x, &"policy", &"requests", &"solved", &"simulated", &"off"]);
        let number = |n: f64| Magnitude::new(n).to_string();
        let cells = pairs.iter().filter(|pair| pair.quantity == quantity).map(|pair| {
            let off = format!("{:+.1} %", pair.off * 100.0);
            row([&pair.x, &pair.policy, &pair.arrivals, &number(pair.solved), &number(pair.simulated), &off])
        });
        table(&std::iter::once(head).chain(cells).collect::<Vec<_>>())?;
    }
    for far in pairs.iter().filter_map(said) {
        line(format!("\n{far}"))?;
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
    // Of what the real cores do, only what has a curve: bursts and traces are drawn for renewal at the end of the period.
    let drawn = pairs.iter().filter(|pair| pair.quantity == "overhead");
    let marks = drawn.filter_map(|pair| {
        let of = match (pair.policy.ends_with("real cores"), pair.arrivals) {
            (true, "random") => "simulated, real cores".to_owned(),
            (false, arrivals) if arrivals == "random" || pair.policy == "opportunistic, renewed when over" => {
                format!("simulated, {arrivals}")
            }
            _ => return None,
        };
        Some(Mark { of, x: pair.x, y: pair.simulated })
    });
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
pub(crate) fn drawn(args: &Simulate) -> Figure {
    picture(&overheads(args, None, false, &mut Progress::default()).unwrap(), None).unwrap()
}
