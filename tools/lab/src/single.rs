//! One lease with the parameters that are given: `cistern-lab overhead`, `availability` and `choose-k`.
//!
//! Decides: what a person is told beside the numbers: what they mean, and why two of them differ. Leaves to others: the models.

use crate::args::{Availability, ChooseK, Overhead};
use crate::show::{Failure, line, refused, refused_for, show, table};
use cistern_model::renewal::{Explicit, Lease, Stages, closed_form};
use cistern_model::{Invalid, Magnitude, stages};
use cistern_picture::{Axis, Curve, Figure, Mark};
use cistern_text::{digits, row};
use serde::Serialize;

#[derive(Serialize)]
struct OverheadAnswer {
    tau_rho: f64,
    k: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    sigma: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lambda: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mu: Option<f64>,
    opportunistic: Magnitude,
    explicit: Magnitude,
    closed_form: Magnitude,
}

/// Which flags make the quantities that a chain refuses.
const OVERHEAD_FLAGS: &[(&str, &str)] =
    &[("ρτ", "--tau-rho"), ("λτ", "--lambda, --tau-rho"), ("μτ", "--mu, --tau-rho"), ("στ", "--sigma, --tau-rho")];
const AVAILABILITY_FLAGS: &[(&str, &str)] =
    &[("ρτ", "--rho, --lease"), ("λτ", "--lambda, --lease"), ("μτ", "--mu, --lease"), ("στ", "--sigma, --lease")];

pub(crate) fn overhead(args: &Overhead) -> Result<(), Failure> {
    let answer = overhead_of(args, args.tau_rho).map_err(refused_for(OVERHEAD_FLAGS))?;
    let rows = [
        row([&"tau_rho", &"k", &"opportunistic", &"explicit", &"closed_form"]),
        row([&answer.tau_rho, &answer.k, &digits(&answer.opportunistic), &digits(&answer.explicit), &digits(&answer.closed_form)]),
    ];
    show(&args.shown, &answer, &rows, || overhead_picture(args), || overhead_in_words(&answer))
}

fn overhead_of(args: &Overhead, tau_rho: f64) -> Result<OverheadAnswer, Invalid> {
    // In units of 1/ρ.
    let lease = Lease {
        tau: tau_rho,
        rho: 1.0,
        lambda: args.lambda.unwrap_or(0.0),
        mu: args.mu.unwrap_or(0.0),
        sigma: args.sigma.map_or(Explicit::AtOnce, Explicit::Rate),
        stages: Stages::Erlang(args.k),
    };
    Ok(OverheadAnswer {
        tau_rho,
        k: args.k,
        sigma: args.sigma,
        lambda: args.lambda,
        mu: args.mu,
        opportunistic: lease.solve()?.overhead(1.0),
        explicit: lease.explicit().solve()?.overhead(1.0),
        closed_form: closed_form(tau_rho)?,
    })
}

fn overhead_in_words(answer: &OverheadAnswer) -> Result<(), Failure> {
    let one_for = |overhead: Magnitude| {
        if overhead.is_zero() { "never".to_owned() } else { format!("one for {} requests", Magnitude::new(1.0) / overhead) }
    };
    line(format!("A lease period of {} mean times between requests, as a chain of {} stages.", answer.tau_rho, answer.k))?;
    line("Renewals that are sent only to renew, for each ordinary request:\n")?;
    table(&[
        row([&"  renewed by every request", &answer.opportunistic, &one_for(answer.opportunistic)]),
        row([&"  renewed only on purpose", &answer.explicit, &one_for(answer.explicit)]),
        row([&"  1/(e^τρ − 1)", &answer.closed_form, &"the first, for a period of exactly τ, without failures"]),
    ])?;
    let factor = answer.explicit / answer.opportunistic;
    line(format!("\nRenewing by every request saves a factor of {factor}."))?;
    let off = (answer.opportunistic / answer.closed_form).rounded() - 1.0;
    if answer.lambda.is_some() || answer.sigma.is_some() {
        line("The closed form knows neither failures nor renewals that take time; the chain does.")
    } else if off.abs() >= 0.000_5 {
        line(format!(
            "The chain gives {:.1} % more than the closed form because its period varies: by 1/√k, here {:.1} %.",
            off * 100.0,
            100.0 / f64::from(answer.k).sqrt()
        ))
    } else {
        Ok(())
    }
}

fn overhead_picture(args: &Overhead) -> Result<Figure, Invalid> {
    let to = (args.tau_rho * 1.5).max(1.0);
    let xs = Axis::linear("", to / 240.0, to).places(240);
    let curve = |name, of: fn(&OverheadAnswer) -> Magnitude| Curve::of(name, &xs, |x| Ok(of(&overhead_of(args, x)?).rounded()));
    let here = overhead_of(args, args.tau_rho)?;
    let mark = |y: Magnitude| Mark { of: "asked for".to_owned(), x: args.tau_rho, y: y.rounded() };
    let curves = vec![
        curve("explicit", |answer| answer.explicit)?,
        curve("opportunistic", |answer| answer.opportunistic)?,
        curve("1/(e^τρ − 1)", |answer| answer.closed_form)?,
    ];
    Ok(Figure {
        title: format!("Renewal messages per request at τρ = {}", args.tau_rho),
        x: Axis::linear("lease period τρ, in mean times between requests", 0.0, to),
        y: decades("explicit renewals per request", &curves),
        curves,
        marks: vec![mark(here.explicit), mark(here.opportunistic)],
        notes: vec![],
    })
}

/// A logarithmic axis with whole decades around what is drawn, of which the lowest are left out when there are more than 20.
pub(crate) fn decades(label: &str, curves: &[Curve]) -> Axis {
    let values = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.1).filter(|y| *y > 0.0);
    let top = values().fold(1e-300, f64::max).log10().ceil();
    let bottom = values().fold(1e300, f64::min).log10().floor().clamp(top - 20.0, top - 1.0);
    Axis::log(label, 10f64.powf(bottom), 10f64.powf(top))
}

#[derive(Serialize)]
struct Both {
    opportunistic: Magnitude,
    explicit: Magnitude,
}

#[derive(Serialize)]
struct AvailabilityAnswer {
    /// What the two numbers are: the paper's Pr(S_x) + Pr(F_x).
    quantity: &'static str,
    opportunistic: Magnitude,
    explicit: Magnitude,
    /// What is left of 1, solved for and not subtracted.
    available: Both,
    lambda_per_s: f64,
    mu_per_s: f64,
    tau_s: f64,
    rho_per_s: f64,
    k: u32,
}

pub(crate) fn availability(args: &Availability) -> Result<(), Failure> {
    let solve = |lease: Lease| lease.solve().map_err(refused_for(AVAILABILITY_FLAGS));
    let lease = availability_lease(args);
    let (by_requests, on_purpose) = (solve(lease)?, solve(lease.explicit())?);
    let (opportunistic, explicit) = (by_requests.unavailability(), on_purpose.unavailability());
    let answer = AvailabilityAnswer {
        quantity: "unavailable",
        opportunistic,
        explicit,
        available: Both { opportunistic: by_requests.valid, explicit: on_purpose.valid },
        lambda_per_s: args.lambda,
        mu_per_s: args.mu,
        tau_s: args.lease,
        rho_per_s: args.rho,
        k: args.k,
    };
    let rows = [
        row([&"lambda_per_s", &"mu_per_s", &"tau_s", &"rho_per_s", &"k", &"opportunistic", &"explicit"]),
        row([&args.lambda, &args.mu, &args.lease, &args.rho, &args.k, &digits(&opportunistic), &digits(&explicit)]),
    ];
    show(
        &args.shown,
        &answer,
        &rows,
        || availability_picture(args),
        || {
            line(format!(
                "A network that fails every {} s and is mended in {} s, on average: it is out for {} of the time.",
                Magnitude::new(1.0 / args.lambda),
                Magnitude::new(1.0 / args.mu),
                Magnitude::new(args.lambda / (args.lambda + args.mu))
            ))?;
            line(format!("Share of the time for which an agent with a lease of {} s is without its data:\n", args.lease))?;
            table(&[
                row([&"  renewed by every request", &opportunistic, &format!("{} s a day", opportunistic * 86_400.0)]),
                row([&"  renewed only on purpose", &explicit, &format!("{} s a day", explicit * 86_400.0)]),
            ])?;
            let saved = explicit / opportunistic;
            line(format!("\nRenewing by every request saves a factor of {saved}: when the network fails, more of the lease is left."))?;
            line(format!(
                "An outage is bridged if it is shorter than what is left; {} of them are shorter than a whole period.",
                bridged(args)
            ))
        },
    )
}

/// Share of outages shorter than τ.
fn bridged(args: &Availability) -> String {
    format!("{:.1} %", -(-args.mu * args.lease).exp_m1() * 100.0)
}

fn availability_lease(args: &Availability) -> Lease {
    Lease {
        tau: args.lease,
        rho: args.rho,
        lambda: args.lambda,
        mu: args.mu,
        sigma: args.sigma.map_or(Explicit::AtOnce, Explicit::Rate),
        stages: Stages::Erlang(args.k),
    }
}

fn availability_picture(args: &Availability) -> Result<Figure, Invalid> {
    let x = Axis::log("lease period τ, s", args.lease / 20.0, args.lease * 5.0);
    let at = |tau: f64, explicit: bool| {
        let lease = Lease { tau, ..availability_lease(args) };
        Ok(if explicit { lease.explicit() } else { lease }.solve()?.unavailability().rounded())
    };
    let xs = x.places(200);
    let curves = vec![Curve::of("explicit", &xs, |tau| at(tau, true))?, Curve::of("opportunistic", &xs, |tau| at(tau, false))?];
    let mark = |y| Mark { of: "asked for".to_owned(), x: args.lease, y };
    Ok(Figure {
        title: format!("Share of time without data, λ = {}/s, μ = {}/s, ρ = {}/s", short(args.lambda), short(args.mu), short(args.rho)),
        x,
        y: decades("data unavailable, Pr(Sx) + Pr(Fx)", &curves),
        curves,
        marks: vec![mark(at(args.lease, true)?), mark(at(args.lease, false)?)],
        notes: vec![],
    })
}

fn short(number: f64) -> String {
    Magnitude::new(number).to_string()
}

pub(crate) fn choose_k(args: &ChooseK) -> Result<(), Failure> {
    let choice = stages::choose(args.delta, args.epsilon).map_err(refused)?;
    let erlang = choice.erlang.map_or_else(|| "more than a million".to_owned(), |k| k.to_string());
    let rows = [
        row([&"delta", &"epsilon", &"clt", &"clt_paper", &"chebyshev", &"erlang"]),
        row([
            &args.delta,
            &args.epsilon,
            &choice.clt,
            &choice.clt_paper,
            &choice.chebyshev,
            &choice.erlang.map_or_else(String::new, |k| k.to_string()),
        ]),
    ];
    show(
        &args.shown,
        &choice,
        &rows,
        || stages_picture(args),
        || {
            let z = stages::normal_quantile(args.epsilon);
            line(format!(
                "States that a modelled lease period needs, to be within {} % of τ with confidence {} %:\n",
                args.delta * 100.0,
                (1.0 - args.epsilon) * 100.0
            ))?;
            table(&[
                row([&"  by Chebyshev", &choice.chebyshev, &"1/(δ²ε): holds for any distribution, so it asks for too many"]),
                row([&"  by the central limit theorem", &choice.clt, &format!("(z/δ)² with z = Φ⁻¹(1 − ε/2) = {z:.6}")]),
                row([
                    &"  the same as in the paper",
                    &choice.clt_paper,
                    &format!("z rounded up to {:.1}, the first decimal", (z * 10.0).ceil() / 10.0),
                ]),
                row([&"  by the Erlang distribution", &erlang, &"what the modelled period really is; the theorem is an approximation"]),
            ])?;
            line("\nA real lease is exactly τ: more states are nearer to it, and cost nothing here (--k takes up to 1,000,000).")
        },
    )
}

fn stages_picture(args: &ChooseK) -> Result<Figure, Invalid> {
    let choice = stages::choose(args.delta, args.epsilon)?;
    #[expect(clippy::cast_precision_loss, reason = "for a picture")]
    let [clt, paper, chebyshev] = [choice.clt, choice.clt_paper, choice.chebyshev].map(|k| k as f64);
    let x = Axis::log("stages k", 1.0, 10f64.powf(chebyshev.log10().ceil()).min(1e6));
    let xs = x.places(160);
    let delta = args.delta;
    let curves = vec![
        Curve::of("Chebyshev's bound 1/(kδ²)", &xs, |k| Ok((1.0 / (k * delta * delta)).min(1.0)))?,
        Curve::of("central limit theorem", &xs, |k| Ok(stages::normal_outside(k, delta)))?,
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 10⁶")]
        Curve::of("Erlang distribution", &xs, |k| Ok(stages::outside(k.round() as u64, delta)))?,
    ];
    let mark = |of: &str, x| Mark { of: of.to_owned(), x, y: args.epsilon };
    Ok(Figure {
        title: format!("Probability that a period of k stages misses τ by {} %", delta * 100.0),
        x,
        y: Axis::log("probability", (args.epsilon / 100.0).max(1e-12), 1.0),
        curves,
        marks: vec![mark("chosen", chebyshev), mark("chosen", clt), mark("in the paper", paper)],
        notes: vec![],
    })
}
