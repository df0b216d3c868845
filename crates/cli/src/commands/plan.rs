//! `cistern plan`: which lease period for what is known of a system and asked of it.
//!
//! Decides: what is assumed when nothing is said (the settings' δ, ε, Td and phases; 1 % of overhead), and the words.
//! Leaves to others: the choice (`cistern_model::plan`), captures (`cistern_model::capture`), alternatives (`cistern_model::schemes`).

mod words;

use super::{OUTPUT, Run};
use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::{settings, show};
use cistern_model::Invalid;
use cistern_model::capture::{self, Seen};
use cistern_model::plan::{Costs, OwnLease, Plan, Requests, Setting, Timeout, Wishes};
use cistern_model::renewal::Parts;
use cistern_model::schemes::{Cluster, Cost};
use cistern_text::duration;
use cistern_text::quantity::{count, fraction, rate, share, time};
use cistern_text::{digits, row};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

const PLAN_HELP: &str = "\
Each wish (--overhead, --recover-within, --unavailable) bounds the lease period τ from one side; without any, 1 % of overhead is asked for. \
With --recover-within the longest τ that fulfils all is recommended: a failover is then as quick as was asked for, and messages are fewest. \
Without it nothing bounds a failover, and the default τ is recommended, or the nearest to it that fulfils the rest.

δ, ε, Td and the phases of the agent are those of the settings file (--config), else the defaults.

The period is the server's own, which agents have that ask for none. With --lease, what one costs is told that some agents ask for: \
themselves, and those who wait for their locks. Nobody else pays for it.

With --capture, requests are those in a capture of one server's traffic: overhead is computed from the gaps between them, agent by agent, \
so bursts count as they are. What was sent again counts as lost.

Examples:
  cistern plan --rate 10/s --fail-every 1d --repair 2s --overhead 1% --recover-within 2s
  cistern plan --rate 10/s --unavailable 0.0001%
  cistern plan --rate 10/s --lease 60s --lease 500ms
  cistern plan --capture capture.pcap --recover-within 2s

Exit status:
  0  a period was found
  1  no period fulfils all wishes, or the capture cannot be read
  2  wrong usage or settings";

/// Choose a lease period: what each costs in messages and availability, and how long a failover takes
#[derive(Args, Debug)]
#[command(after_help = PLAN_HELP)]
pub(crate) struct PlanArgs {
    /// Requests of one agent
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "capture", allow_hyphen_values = true)]
    pub(crate) rate: Option<f64>,
    /// A capture (pcap or pcapng) of a server's traffic, from which the requests are taken
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    /// Mean time between failures of an agent's network
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "1d", allow_hyphen_values = true)]
    pub(crate) fail_every: f64,
    /// Mean time until it is mended
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "2s", allow_hyphen_values = true)]
    pub(crate) repair: f64,
    /// At most so many renewal messages per request
    #[arg(long, value_name = "SHARE", value_parser = share, allow_hyphen_values = true)]
    pub(crate) overhead: Option<f64>,
    /// Others must have what a dead agent held within this time
    #[arg(long, value_name = "DURATION", value_parser = time, allow_hyphen_values = true)]
    pub(crate) recover_within: Option<f64>,
    /// At most such a share of the time may an agent be without its data
    #[arg(long, value_name = "SHARE", value_parser = fraction, allow_hyphen_values = true)]
    pub(crate) unavailable: Option<f64>,
    /// Delivery timeout Td, instead of the settings'
    #[arg(long, value_name = "DURATION", value_parser = time, allow_hyphen_values = true)]
    pub(crate) delivery_timeout: Option<f64>,
    /// Round trip between the server and an agent: failovers take longer where three transmissions do not fit into Td
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "1ms", allow_hyphen_values = true)]
    pub(crate) round_trip: f64,
    /// Agents, for the messages at the server
    #[arg(long, value_name = "COUNT", value_parser = count, default_value = "100", allow_hyphen_values = true)]
    pub(crate) agents: f64,
    /// Lease period that some agents ask for (their `--lease`), beside the server's own; repeatable
    // Takes the place, and has the type, of the one that every command has.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) lease: Vec<Duration>,
    /// Settings file (TOML)
    #[arg(long, env = "CISTERN_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print comma-separated values, with a line of names first
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct PlanAnswer {
    /// The recommended period, s; `null`: no period fulfils all wishes.
    tau: Option<f64>,
    #[serde(flatten)]
    plan: Plan,
    /// Other periods, with what each costs.
    others: Vec<Other>,
    /// Periods that agents ask for, beside the recommended one.
    own_leases: Vec<OwnLease>,
    /// Other protocols at the recommended period.
    alternatives: Vec<Cost>,
    /// Requests of one agent, 1/s.
    rate: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    capture: Option<Seen>,
}

/// A period that was not chosen.
#[derive(Debug, Serialize)]
struct Other {
    /// Why it is shown.
    what: String,
    #[serde(flatten)]
    costs: Costs,
}

/// Which flags make the quantities that models refuse, at some period that a server takes.
const FLAGS: &[(&str, &str)] = &[("ρτ", "--rate or --capture"), ("λτ", "--fail-every"), ("μτ", "--repair"), ("στ", "--rate or --capture")];

fn refused(e: Invalid) -> Failure {
    Failure::usage(e.in_flags(FLAGS))
}

impl Run for PlanArgs {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OUTPUT
    }

    /// The exit status is 1 when no period fulfils all wishes.
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        plan(self, ctx)
    }
}

fn plan(args: &PlanArgs, ctx: &Ctx) -> Result<(), Failure> {
    let seen = args.capture.as_deref().map(capture::read).transpose().map_err(Failure::failed)?;
    if let (Some(seen), Some(path)) = (&seen, &args.capture)
        && seen.rate.is_none()
    {
        let what = format!("{} has {} requests in {} datagrams of this protocol", path.display(), seen.requests, seen.datagrams);
        return Err(Failure::failed(format!("{what}: a rate needs two requests of one session; capture the server's port for longer")));
    }
    let setting = setting(args, seen.as_ref())?;
    let wishes = wishes(args);
    let plan = setting.plan(&wishes).map_err(refused)?;
    let answer = PlanAnswer {
        tau: plan.best.map(|best| best.tau),
        others: others(&setting, &plan).map_err(refused)?,
        own_leases: own_leases(args, &setting, &plan)?,
        alternatives: alternatives(args, &setting, &plan).map_err(refused)?,
        plan,
        rate: setting.rate().map_err(refused)?,
        capture: seen,
    };
    let found = answer.tau.is_some();
    match (ctx.is_json(), args.csv) {
        (true, _) => show::json(&answer)?,
        (false, true) => show::bytes(cistern_text::csv(&rows(&answer)).as_bytes())?,
        (false, false) => words::say(args, &setting, &answer)?,
    }
    Failure::of_status(if found { 0 } else { EXIT_FAILED })
}

fn wishes(args: &PlanArgs) -> Wishes {
    let none = args.overhead.is_none() && args.recover_within.is_none() && args.unavailable.is_none();
    Wishes { overhead: args.overhead.or(none.then_some(0.01)), recover_within: args.recover_within, unavailable: args.unavailable }
}

fn setting(args: &PlanArgs, seen: Option<&Seen>) -> Result<Setting, Failure> {
    let settings = settings::load(args.config.as_deref())?;
    let (server, agent) = (settings.server_config_alone()?, settings.agent_config()?);
    let requests = match (seen, args.rate) {
        (Some(seen), _) => Requests::Measured(seen.gaps.clone()),
        (None, Some(rate)) => Requests::Rate(rate),
        (None, None) => {
            return Err(Failure::usage(
                "how often does an agent send a request? Give --rate, such as 10/s, or --capture, a capture".to_owned(),
            ));
        }
    };
    let fixed = args.delivery_timeout.or_else(|| settings.sets_delivery_timeout().then_some(server.delivery_timeout.as_secs_f64()));
    Ok(Setting {
        requests,
        fail_every: args.fail_every,
        repair: args.repair,
        opportunistic: agent.opportunistic,
        parts: Parts { renew_from: part(agent.phases.valid_ppm), use_until: part(agent.phases.renewing_ppm) },
        timeout: fixed.map_or(FOLLOWS, Timeout::Fixed),
        round_trip: args.round_trip,
        delta: part(server.delta_ppm),
        epsilon: server.epsilon.as_secs_f64(),
        allowed: ALLOWED,
        usual: usual(),
    })
}

fn part(ppm: u32) -> f64 {
    f64::from(ppm) / 1e6
}

/// The delivery timeout of a server that is not told another: `Config::for_lease`.
const FOLLOWS: Timeout = Timeout::Part { of_tau: 0.25, least: 0.1 };

/// The lease periods that a server takes, s.
const ALLOWED: (f64, f64) = (0.1, 3_600.0);

/// The default lease period, s.
fn usual() -> f64 {
    cistern_server::Config::default().lease.as_secs_f64()
}

/// Periods to look at beside the best one: the ends of the range, or what each wish alone would need, and the default.
fn others(setting: &Setting, plan: &Plan) -> Result<Vec<Other>, Invalid> {
    let mut others = Vec::new();
    let mut add = |what: String, tau: f64| {
        let costs = setting.costs(tau)?;
        others.push(Other { what, costs });
        Ok(())
    };
    for bound in &plan.bounds {
        match (bound.at_least, bound.at_most) {
            (Some(tau), _) => add(format!("shortest for {}", bound.wish), tau)?,
            (_, Some(tau)) => add(format!("longest for {}", bound.wish), tau)?,
            _ => {}
        }
    }
    add("the default".to_owned(), usual())?;
    others.sort_by(|a, b| a.costs.tau.total_cmp(&b.costs.tau));
    Ok(others)
}

/// The periods that agents ask for: on the command line, or by the settings' `lease` of agents.
fn own_leases(args: &PlanArgs, setting: &Setting, plan: &Plan) -> Result<Vec<OwnLease>, Failure> {
    let settings = settings::load(args.config.as_deref())?;
    let (server, agent) = (settings.server_config_alone()?, settings.agent_config()?);
    let tau = plan.best.map_or_else(usual, |best| best.tau);
    // These bounds are moved by a τ beyond them, as the server does.
    let given = (server.lease_min.as_secs_f64().min(tau), server.lease_max.as_secs_f64().max(tau));
    let asked = if args.lease.is_empty() { &[agent.lease][..] } else { &args.lease };
    let asked = asked.iter().filter(|asked| !asked.is_zero());
    asked.map(|asked| setting.own_lease(asked.as_secs_f64(), tau, given)).collect::<Result<_, _>>().map_err(refused)
}

/// Objects that each agent holds, where protocols are compared.
const OBJECTS: f64 = 100.0;

/// The other protocols at the recommended period, or at the default one.
fn alternatives(args: &PlanArgs, setting: &Setting, plan: &Plan) -> Result<Vec<Cost>, Invalid> {
    let tau = plan.best.map_or_else(usual, |best| best.tau);
    // Each agent reads its objects as often, all together, as it sends requests.
    let requests = setting.rate()?;
    Cluster {
        agents: args.agents,
        objects: OBJECTS,
        volumes: 1.0,
        reads: requests / OBJECTS,
        requests,
        tau,
        long_term: (tau * 100.0).max(600.0),
        parts: setting.parts,
        failures: 1.0 / setting.fail_every,
        repairs: 1.0 / setting.repair,
        delivery_timeout: setting.timeout.of(tau),
        delta: setting.delta,
    }
    .compare()
}

fn rows(answer: &PlanAnswer) -> Vec<Vec<String>> {
    let head = row([
        &"what",
        &"tau_s",
        &"overhead",
        &"overhead_explicit",
        &"unavailable",
        &"unavailable_explicit",
        &"failure_found_s",
        &"failover_s",
    ]);
    let of = |what: &str, costs: &Costs| {
        let Costs { tau, overhead, overhead_explicit, unavailable, unavailable_explicit, failure_found, failover } = costs;
        let numbers = [digits(overhead), digits(overhead_explicit), digits(unavailable), digits(unavailable_explicit)];
        row([&what, tau, &numbers[0], &numbers[1], &numbers[2], &numbers[3], failure_found, failover])
    };
    let best = answer.plan.best.iter().map(|costs| of("recommended", costs));
    let others = answer.others.iter().map(|other| of(&other.what, &other.costs));
    let own = answer.own_leases.iter().map(|own| of(&format!("an agent that asks for {} s", own.asked), &own.costs));
    std::iter::once(head).chain(best).chain(others).chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::Cistern;
    use crate::commands::Command;
    use clap::Parser;

    #[test]
    fn who_asks_for_no_failover_is_not_given_one_of_an_hour() {
        for (line, tau) in [
            ("--rate 10/s", 2.0),
            ("--rate 10/s --unavailable 0.0001%", 8.0),
            ("--rate 10/s --overhead 1%", 2.0),
            ("--rate 10/s --overhead 1% --recover-within 2s", 1.5),
        ] {
            let Command::Plan(args) = Cistern::try_parse_from("cistern plan".split(' ').chain(line.split(' '))).unwrap().command else {
                panic!("{line} is no plan")
            };
            let best = setting(&args, None).unwrap().plan(&wishes(&args)).unwrap().best.unwrap();
            assert_eq!(best.tau, tau, "{line}");
        }
    }

    #[test]
    fn what_is_assumed_of_the_server_is_what_the_server_does() {
        for lease_ms in [100, 400, 2_000, 60_000, 3_600_000] {
            let config = cistern_server::Config::for_lease(Duration::from_millis(lease_ms));
            let Timeout::Part { of_tau, least } = FOLLOWS else { unreachable!() };
            let tau = config.lease.as_secs_f64();
            assert!((config.delivery_timeout.as_secs_f64() - (tau * of_tau).max(least)).abs() < 1e-9);
        }
        let config = |lease| cistern_server::Config { new_cluster: true, volatile: true, ..cistern_server::Config::for_lease(lease) };
        for (seconds, possible) in [(ALLOWED.0, true), (ALLOWED.1, true), (ALLOWED.0 * 0.9, false), (ALLOWED.1 * 1.1, false)] {
            assert_eq!(config(Duration::from_secs_f64(seconds)).check().is_ok(), possible, "{seconds}");
        }
    }
}
