//! A plan for a person: the answer, what it costs, why, and what else there would be.
//!
//! Decides: words. Leaves to others: numbers.

use super::{PlanAnswer, PlanArgs};
use crate::local::Failure;
use crate::show::{line, table};
use cistern_model::capture::Seen;
use cistern_model::plan::{Bound, Choice, Costs, OwnLease, Setting};
use cistern_model::{Magnitude, schemes};
use cistern_text::row;

pub(super) fn say(args: &PlanArgs, setting: &Setting, answer: &PlanAnswer) -> Result<(), Failure> {
    if let Some(seen) = &answer.capture {
        captured(seen)?;
    }
    match &answer.plan.best {
        Some(best) => recommended(args, setting, answer, best)?,
        None => impossible(&answer.plan.bounds)?,
    }
    line("\nBeside it:\n")?;
    let mut rows = vec![row([&"", &"τ", &"renewals/request", &"(explicit)", &"without data", &"(explicit)", &"failover"])];
    let of = |what: &str, costs: &Costs| {
        let Costs { overhead, overhead_explicit, unavailable, unavailable_explicit, .. } = costs;
        row([
            &what as &dyn ToString,
            &time(costs.tau),
            overhead,
            overhead_explicit,
            unavailable,
            unavailable_explicit,
            &time(costs.failover),
        ])
    };
    rows.extend(answer.plan.best.iter().map(|best| of("recommended", best)));
    rows.extend(answer.others.iter().map(|other| of(&other.what, &other.costs)));
    table(&rows)?;
    let tau = answer.tau.map_or_else(|| "the default τ".to_owned(), |tau| format!("τ = {}", time(tau)));
    own_leases(args, &answer.own_leases, &tau)?;
    line(format!(
        "\nOther protocols at {tau}, {} agents with 100 objects each, which they read as often, all together, as they send requests:\n",
        args.agents
    ))?;
    table(&schemes::columns(&answer.alternatives))
}

/// What it costs whom that agents ask for a period of their own.
fn own_leases(args: &PlanArgs, leases: &[OwnLease], tau: &str) -> Result<(), Failure> {
    if leases.is_empty() {
        return Ok(());
    }
    line(format!("\nAgents that ask for a lease of their own, beside the server's {tau}:\n"))?;
    let head = row([&"asked for", &"given", &"renewals/request", &"without data", &"failover", &"others wait at most", &"outage outlived"]);
    let of = |own: &OwnLease| {
        let Costs { tau, overhead, unavailable, failover, .. } = own.costs;
        row([&time(own.asked), &time(tau), &overhead, &unavailable, &time(failover), &time(own.others_wait), &time(own.outlives)])
    };
    table(&std::iter::once(head).chain(leases.iter().map(of)).collect::<Vec<_>>())?;
    line(
        "\nOthers wait so long only for a lock of such an agent, and only if it is gone. All else goes by the server's period, the grace after",
    )?;
    line("a restart too. A lease above that costs its agent its cache, and a commit for each lock; a volatile server gives none.")?;
    for own in leases.iter().filter(|own| args.recover_within.is_some_and(|within| own.costs.failover > within)) {
        let within = time(args.recover_within.unwrap_or_default());
        line(format!("The locks of an agent with {} are not recovered within {within}.", time(own.costs.tau)))?;
    }
    Ok(())
}

fn captured(seen: &Seen) -> Result<(), Failure> {
    if let Some(unread) = &seen.unread {
        line(format!("Not all of the capture could be read: {}.", unread.replace('\n', "; ")))?;
    }
    let number = |n: Option<f64>| n.map_or_else(|| "?".to_owned(), |n| Magnitude::new(n).to_string());
    line(format!(
        "In the capture: {} requests and {} keep-alives in {} sessions, {} a second each; {:.1} % of what was sent was sent again.",
        seen.requests,
        seen.keep_alives,
        seen.sessions,
        number(seen.rate),
        seen.loss * 100.0
    ))?;
    let kind = match seen.burstiness {
        Some(b) if b < 0.5 => "more regular than random ones, so they renew better than their rate says",
        Some(b) if b > 2.0 => "in bursts, so they leave longer gaps than random ones of that rate",
        _ => "nearly random",
    };
    line(format!(
        "The gaps between them vary by {} (random: 1): requests come {kind}. 99 of 100 gaps are at most {} s.\n",
        number(seen.burstiness),
        number(seen.gap_99)
    ))
}

fn recommended(args: &PlanArgs, setting: &Setting, answer: &PlanAnswer, best: &Costs) -> Result<(), Failure> {
    line(format!("Lease period τ = {}.\n", time(best.tau)))?;
    if !setting.opportunistic {
        line("  Opportunistic renewal is off in the settings, so keep-alives are sent however many requests there are.")?;
    }
    if let Some((low, high)) = answer.plan.range {
        line(format!("  Any from {} to {} fulfils what was asked for; {}.", time(low), time(high), why(answer, setting)))?;
    }
    line(format!(
        "  Messages   {} renewals per request, {} a second for {} agents; explicit renewal would be {}.",
        best.overhead,
        best.overhead * answer.rate * args.agents,
        args.agents,
        best.overhead_explicit
    ))?;
    line(format!(
        "  Data       An agent is without them for {} of the time, {} s a day; with explicit renewal for {}.",
        best.unavailable,
        best.unavailable * 86_400.0,
        best.unavailable_explicit
    ))?;
    line(format!(
        "  Failover   {}: failure found {} + τ(1+δ) {} + ε {}, from the first demand that a dead agent leaves unanswered.",
        time(best.failover),
        time(best.failure_found),
        time(best.tau * (1.0 + setting.delta)),
        time(setting.epsilon)
    ))?;
    line("             Whoever waited in line before the agent died waits for a probe first: at most τ/2 more.")?;
    line(format!(
        "\nAgents renew by themselves from {:.0} % of τ on, and begin nothing under a lease from {:.0} % on.",
        setting.parts.renew_from * 100.0,
        setting.parts.use_until * 100.0
    ))?;
    line(format!("Set it with `cisternd --lease {}`, or `lease` in the settings file.", time(best.tau).replace(' ', "")))
}

/// Why this period of all those in the range.
fn why(answer: &PlanAnswer, setting: &Setting) -> String {
    let longer = "Longer ones cost less, and make failovers longer: --recover-within bounds them";
    match answer.plan.chosen {
        Some(Choice::Usual) => format!("this one is the default. {longer}"),
        Some(Choice::Nearest) => format!("this one is the nearest to the default of {}. {longer}", time(setting.usual)),
        Some(Choice::Longest) | None => "the longest is as quick, and costs least".to_owned(),
    }
}

fn impossible(bounds: &[Bound]) -> Result<(), Failure> {
    line("No lease period fulfils all that was asked for.\n")?;
    for bound in bounds {
        line(match (bound.at_least, bound.at_most) {
            (Some(tau), _) => format!("  --{} {} needs a period of at least {}.", bound.wish, bound.asked, time(tau)),
            (_, Some(tau)) => format!("  --{} {} needs a period of at most {}.", bound.wish, bound.asked, time(tau)),
            _ => format!("  --{} {} is out of reach with every period from 100 ms to 1 h.", bound.wish, bound.asked),
        })?;
    }
    line("\nRelax one of them. Requests that come more often make short periods cheaper, and a shorter delivery timeout failovers quicker.")
}

/// A span of seconds as a person, and the command line, writes it.
fn time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{} ms", digits(seconds * 1e3)) } else { format!("{} s", digits(seconds)) }
}

/// Three digits, more before the point.
fn digits(number: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 3")]
    let places = (2.0 - number.abs().max(1e-3).log10().floor()).clamp(0.0, 3.0) as usize;
    let text = format!("{number:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
