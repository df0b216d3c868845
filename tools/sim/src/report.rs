//! What people are told: plans, campaigns, failures; in words and as JSON.
//!
//! Decides the words, and the command that replays a failing run. Invariant: what is printed as a command gives the same run again.
//! Leaves to others: what is true (`run`, `campaign`, `shrink`).

use crate::campaign::{Failure, Summary};
use crate::observe::Violation;
use crate::plan::fault::seconds;
use crate::plan::{MS, Plan};
use crate::world::Outcome;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// One line of progress.
#[must_use]
pub fn progress(summary: &Summary, of: u64) -> String {
    let wall = summary.wall.as_secs_f64().max(0.001);
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = summary.seeds as f64 / wall;
    format!("{}/{of} seeds, {rate:.0}/s, {} simulated", summary.seeds, simulated(summary.sim_ns))
}

/// A campaign in words.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "rates for people")]
pub fn summary(summary: &Summary) -> String {
    let wall = summary.wall.as_secs_f64().max(0.001);
    let mut text = String::new();
    let mut line = |name: &str, what: String| {
        // Words are written into a string: that does not fail.
        let _ = writeln!(text, "{name:<12} {what}");
    };
    line("seeds", format!("{} ({} run twice), {:.1}/s", summary.seeds, summary.twice, summary.seeds as f64 / wall));
    let simulated_s = summary.sim_ns as f64 / 1e9;
    line("time", format!("{} simulated in {wall:.1} s, {:.0} times as fast as true time", simulated(summary.sim_ns), simulated_s / wall));
    line("commands", format!("{} by users, {:.0}/s", summary.commands, summary.commands as f64 / wall));
    let net = summary.net;
    line("datagrams", format!("{} sent, {} lost, {} duplicated, {} damaged", net.sent, net.lost, net.duplicated, net.corrupted));
    line("steps", format!("{}, {:.0}/s", summary.steps, summary.steps as f64 / wall));
    line("liveness", format!("at most {}.{:02} % of the bound", summary.heal_ppm / 10_000, summary.heal_ppm % 10_000 / 100));
    let faults: Vec<String> = summary.faults.iter().map(|(name, count)| format!("{name} {count}")).collect();
    line("faults", if faults.is_empty() { "none".to_owned() } else { faults.join(", ") });
    text
}

/// A campaign as JSON.
#[must_use]
pub fn summary_json(summary: &Summary, missing: &[&str], failure: Option<Value>) -> Value {
    json!({
        "seeds": summary.seeds,
        "twice": summary.twice,
        "wall_s": summary.wall.as_secs_f64(),
        "simulated_s": u64::try_from(summary.sim_ns / 1_000_000_000).unwrap_or(u64::MAX),
        "commands": summary.commands,
        "steps": summary.steps,
        "datagrams": {
            "sent": summary.net.sent,
            "lost": summary.net.lost,
            "duplicated": summary.net.duplicated,
            "damaged": summary.net.corrupted,
        },
        "liveness_ppm": summary.heal_ppm,
        "faults": summary.faults,
        "sometimes": counters_json(summary),
        "missing": missing,
        "failure": failure,
    })
}

fn counters_json(summary: &Summary) -> Value {
    Value::Object(summary.counters.rows().map(|(name, count)| (name.to_owned(), json!(count))).collect())
}

/// The "sometimes" counters, in a table.
#[must_use]
pub fn counters(summary: &Summary) -> String {
    let rows: Vec<_> = summary.counters.rows().collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, count)| format!("  {name:<width$} {count:>12}\n")).collect()
}

/// A plan in words.
#[must_use]
pub fn plan(plan: &Plan) -> String {
    let server = &plan.server;
    let mut text = format!(
        "seed {} of profile {}: {} agents, faults until {}, {} faults\n",
        plan.seed,
        plan.profile,
        plan.agents,
        seconds(plan.heal_ns),
        plan.faults.len()
    );
    let us = |us: u64| seconds(us * 1_000);
    let _ = writeln!(
        text,
        "  lease {}, delta {} ppm, epsilon {}, T {}, Td {}, probe {}, compliance {}, window {}, datagrams {}",
        us(server.lease_us),
        server.delta_ppm,
        us(server.epsilon_us),
        seconds(server.wait_ns()),
        us(server.delivery_timeout_us),
        us(server.probe_period_us),
        us(server.compliance_time_us),
        server.window,
        server.max_datagram
    );
    let _ = writeln!(
        text,
        "  network {} to {}, {} ppm lost, {} ppm duplicated; disk {} a sync; {} users an agent",
        seconds(plan.net.delay_ns),
        seconds(plan.net.delay_ns + plan.net.jitter_ns),
        plan.net.loss_ppm,
        plan.net.duplicate_ppm,
        seconds(plan.disk.sync_ns),
        plan.workload.users
    );
    for fault in &plan.faults {
        let _ = writeln!(text, "  {fault}");
    }
    text
}

/// The outcome of one run.
#[must_use]
pub fn outcome(outcome: &Outcome) -> String {
    let verdict = outcome.violation.as_ref().map_or_else(|| "nothing failed".to_owned(), Violation::to_string);
    format!(
        "hash {:016x}, {} simulated, {} commands, {} datagrams, {} steps, {}.{:02} % of the liveness bound\n{verdict}\n",
        outcome.hash,
        seconds(outcome.sim_ns),
        outcome.commands,
        outcome.net.sent,
        outcome.steps,
        outcome.heal_ppm / 10_000,
        outcome.heal_ppm % 10_000 / 100
    )
}

/// The command that makes this plan from its seed again; `None`: no options do, so it must come from a file.
#[must_use]
pub fn replay(shrunk: &Plan) -> Option<String> {
    let mut plan = Plan::draw(shrunk.profile, shrunk.seed);
    let mut command = format!("cistern-sim run --profile {} --seed {}", shrunk.profile, shrunk.seed);
    if shrunk.agents < plan.agents {
        let _ = write!(command, " --agents {}", shrunk.agents);
        plan = plan.with_agents(shrunk.agents);
    }
    if shrunk.heal_ns < plan.heal_ns {
        let _ = write!(command, " --until {}ms", shrunk.heal_ns / MS);
        plan = plan.until(shrunk.heal_ns / MS * MS);
    }
    if shrunk.faults.len() < plan.faults.len() {
        let ids: Vec<u32> = shrunk.faults.iter().map(|fault| fault.id).collect();
        let list: Vec<String> = ids.iter().map(u32::to_string).collect();
        let _ = write!(command, " --keep-faults {}", if list.is_empty() { "none".to_owned() } else { list.join(",") });
        plan = plan.keeping(&ids);
    }
    (plan == *shrunk).then_some(command)
}

/// A failure, as its campaign found it.
#[must_use]
pub fn failure(failure: &Failure) -> String {
    let Failure { plan, violation } = failure;
    let replay = replay(plan).unwrap_or_else(|| "from its plan".to_owned());
    format!("seed {} of profile {} fails\n  {violation}\n  replay: {replay}\n", plan.seed, plan.profile)
}

/// A failure as JSON.
#[must_use]
pub fn failure_json(plan: &Plan, violation: &Violation) -> Value {
    json!({
        "seed": plan.seed,
        "profile": plan.profile,
        "invariant": violation.invariant,
        "check": violation.check,
        "what": violation.what,
        "faults": plan.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "replay": replay(plan),
    })
}

fn simulated(ns: u128) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..600 => format!("{seconds} s"),
        600..36_000 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::plan::Profile;
    use clap::Parser as _;

    #[test]
    fn replay_command_gives_the_shrunk_plan_again() {
        let whole = Plan::draw(Profile::Swarm, 11);
        let ids: Vec<u32> = whole.faults.iter().map(|fault| fault.id).step_by(2).collect();
        let shrunk = whole.clone().until(whole.heal_ns / 2 / MS * MS).with_agents(2).keeping(&ids);
        let command = replay(&shrunk).unwrap();
        let Command::Run(args) = Cli::try_parse_from(command.split(' ')).unwrap().command else { panic!("{command}") };
        let mut again = Plan::draw(args.profile, args.seed.unwrap());
        if let Some(agents) = args.agents {
            again = again.with_agents(agents);
        }
        if let Some(heal_ns) = args.until {
            again = again.until(heal_ns);
        }
        if let Some(list) = &args.keep_faults {
            again = again.keeping(&list.0);
        }
        assert_eq!(again, shrunk, "{command}");
        assert_eq!(replay(&Plan { fence_only: true, ..shrunk }), None, "no option does that");
    }
}
