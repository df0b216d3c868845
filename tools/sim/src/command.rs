//! Carries out the commands of the command line.
//!
//! Decides what is printed where (results to stdout, progress to stderr on a terminal) and the exit code.
//! Invariant: 0 means that nothing failed, 1 that something did, 2 that the command could not be carried out.
//! Leaves to others: options (`cli`), words (`report`).

use crate::campaign::{self, Campaign, Failure, Summary};
use crate::cli::{BugsArgs, Cli, Command, RunArgs, SeedArgs};
use crate::group::{GroupPlan, simulate};
use crate::joining::{InvitedPlan, admit};
use crate::judge::judges;
#[cfg(feature = "bugs")]
use crate::ledger;
use crate::observe::Violation;
use crate::plan::{Plan, Profile};
use crate::report;
use crate::run::run;
use crate::shrink::{Limits, shrink};
use crate::trace::Trace;
use cistern_capture::Writer;
use cistern_link::bugs::Bug;
use cistern_text::Progress;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

/// Nothing failed.
pub const CLEAN: u8 = 0;
/// An invariant did not hold, or a counter was not reached.
pub const VIOLATION: u8 = 1;
/// The command could not be carried out.
pub const USAGE: u8 = 2;

/// Lines of the trace that a failure shows.
const TAIL: usize = 60;

/// A campaign must reach its counters when it has at least so many seeds.
const COUNTERS_FROM: u64 = 1_000;

/// Carries out a command; the exit code.
///
/// # Errors
/// Those of files and of `out`, with what was done to which file.
pub fn carry_out(cli: &Cli, out: &mut dyn Write) -> io::Result<u8> {
    if let Command::Run(args) = &cli.command {
        switch(args.bug)?;
    }
    match &cli.command {
        Command::Run(args) if args.seed.is_some() || args.plan.is_some() => one(args, out),
        Command::Run(args) => many(args, out),
        Command::Bugs(args) => bugs(args, out),
        Command::Group(args) => {
            switch(args.bug)?;
            groups(args, out)
        }
        Command::Join(args) => {
            switch(args.bug)?;
            joins(args, out)
        }
        Command::List => list(out),
    }
}

/// Switches a bug on for the rest of the process.
#[cfg(feature = "bugs")]
fn switch(bug: Option<Bug>) -> io::Result<()> {
    cistern_link::bugs::choose(bug);
    Ok(())
}

/// No bug can be switched on.
#[cfg(not(feature = "bugs"))]
fn switch(bug: Option<Bug>) -> io::Result<()> {
    bug.map_or(Ok(()), |_| Err(no_bugs()))
}

#[cfg(not(feature = "bugs"))]
fn no_bugs() -> io::Error {
    io::Error::other("this build has no deliberate bugs in it; build it with `--features bugs`")
}

#[cfg(not(feature = "bugs"))]
fn bugs(_: &BugsArgs, _: &mut dyn Write) -> io::Result<u8> {
    Err(no_bugs())
}

#[cfg(feature = "bugs")]
fn bugs(args: &BugsArgs, out: &mut dyn Write) -> io::Result<u8> {
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let terms = ledger::Terms {
        bugs: if args.only.is_empty() { ledger::drawn() } else { args.only.clone() },
        campaigns: args.campaigns,
        seeds: args.seeds,
        budget: args.duration,
        jobs,
        shrink: !args.no_shrink,
    };
    let mut told = Ok(());
    let rows = ledger::look(&terms, &mut |row| {
        if !args.json && told.is_ok() {
            told = writeln!(out, "{}", ledger::line(row)).and_then(|()| out.flush());
        }
    });
    told?;
    if let Some(path) = &args.write {
        std::fs::write(path, ledger::page(&rows, &terms)).map_err(|error| at(path, "writing", &error))?;
    }
    if args.json {
        writeln!(out, "{}", ledger::json(&rows))?;
    } else {
        writeln!(out, "{}", ledger::verdict(&rows))?;
    }
    Ok(if rows.iter().all(ledger::Row::caught) { CLEAN } else { VIOLATION })
}

/// Runs of groups of servers.
fn groups(args: &SeedArgs, out: &mut dyn Write) -> io::Result<u8> {
    let (mut take_overs, mut changes, mut run, mut sealed) = (0, 0, 0, 0);
    for seed in args.seeds() {
        let plan = GroupPlan::draw(seed);
        if args.seed.is_some() {
            let GroupPlan { servers, spares, changes, agents, drift_ppm, loss_ppm, dead, heal_ns, sealed, .. } = &plan;
            let how = if sealed.is_some() { "sealed" } else { "in clear" };
            writeln!(
                out,
                "{servers} servers and {spares} more, {} times changed, {agents} agents, {how}, drift {drift_ppm} ppm, loss {loss_ppm} ppm, mended at {} ms, dead from then on: {dead:?}",
                changes.len(),
                heal_ns / 1_000_000
            )?;
            for fault in &plan.faults {
                writeln!(out, "{fault}")?;
            }
        }
        let mut told = Ok(());
        let outcome = simulate(&plan, &mut |now, line| {
            if told.is_ok() {
                told = writeln!(out, "{:>9}.{:03} ms {line}", now / 1_000_000, now / 1_000 % 1_000);
            }
        });
        told?;
        changes += outcome.changes;
        (take_overs, run, sealed) = (take_overs + outcome.take_overs, run + 1, sealed + u64::from(plan.sealed.is_some()));
        if args.seed.is_some() {
            writeln!(out, "hash {:016x}, {} take-overs, {} ms", outcome.hash, outcome.take_overs, outcome.sim_ns / 1_000_000)?;
        }
        if let Some(violation) = outcome.violation {
            writeln!(out, "seed {seed}, at {} ms: {violation}", outcome.sim_ns / 1_000_000)?;
            return Ok(VIOLATION);
        }
    }
    writeln!(out, "{run} runs of groups, {sealed} of them sealed, {take_overs} take-overs, {changes} changes of servers, no violation")?;
    Ok(CLEAN)
}

/// Runs of hosts that join.
fn joins(args: &SeedArgs, out: &mut dyn Write) -> io::Result<u8> {
    let (mut run, mut joined, mut refused) = (0, 0, 0);
    for seed in args.seeds() {
        let plan = InvitedPlan::draw(seed);
        let outcome = admit(&plan, &mut |now, line| writeln!(out, "{:>9}.{:03} ms {line}", now / 1_000_000, now / 1_000 % 1_000))?;
        if args.seed.is_some() {
            writeln!(out, "{plan:#?}")?;
            for (host, told) in plan.hosts.iter().zip(&outcome.told) {
                writeln!(out, "key {} with invite {}: {told:?}", host.key, host.invite)?;
            }
        }
        if let Some(violation) = outcome.violation {
            writeln!(out, "seed {seed}, at {} ms: {violation}", outcome.sim_ns / 1_000_000)?;
            return Ok(VIOLATION);
        }
        let told = outcome.told.iter().flatten();
        (run, joined, refused) =
            (run + 1, joined + told.clone().filter(|told| told.is_ok()).count(), refused + told.filter(|told| told.is_err()).count());
    }
    writeln!(out, "{run} runs of joining, {joined} hosts told that they have joined, {refused} that they have not, no violation")?;
    Ok(CLEAN)
}

fn list(out: &mut dyn Write) -> io::Result<u8> {
    writeln!(out, "judges")?;
    for judge in judges(&Plan::draw(Profile::Swarm, 0)) {
        writeln!(out, "  {}", judge.name())?;
    }
    writeln!(out, "profiles")?;
    for profile in Profile::ALL {
        writeln!(out, "  {profile:<10} {}", profile.about())?;
    }
    Ok(CLEAN)
}

fn many(args: &RunArgs, out: &mut dyn Write) -> io::Result<u8> {
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let budget = args.duration;
    let plan = Campaign { profile: args.profile, from: args.first_seed, seeds: args.seeds, jobs, twice_every: 50, budget };
    let shown = Mutex::new(Progress::default());
    let summary = campaign::campaign(&plan, &|summary| {
        if let Ok(mut shown) = shown.try_lock() {
            shown.tell(&report::progress(summary, args.seeds));
        }
    });
    drop(shown);
    told(args, &summary, out)
}

/// Tells what came of a campaign.
fn told(args: &RunArgs, summary: &Summary, out: &mut dyn Write) -> io::Result<u8> {
    let missing = if summary.failure.is_none() && summary.seeds >= COUNTERS_FROM { summary.counters.missing(args.profile) } else { vec![] };
    let failed = summary.failure.is_some() || !missing.is_empty();
    if args.json {
        let failure = summary.failure.as_ref().map(|failure| {
            let Failure { plan, violation } = smaller(args, &failure.plan, &failure.violation).1;
            report::failure_json(&plan, &violation)
        });
        writeln!(out, "{}", report::summary_json(summary, &missing, failure))?;
        return Ok(if failed { VIOLATION } else { CLEAN });
    }
    write!(out, "{}", report::summary(summary))?;
    writeln!(out, "sometimes\n{}", report::counters(summary))?;
    if !missing.is_empty() {
        writeln!(out, "never reached, and so perhaps never tested: {}", missing.join(", "))?;
    }
    if let Some(failure) = &summary.failure {
        write!(out, "{}", report::failure(failure))?;
        out.flush()?;
        explain(args, &failure.plan, &failure.violation, out)?;
    }
    Ok(if failed { VIOLATION } else { CLEAN })
}

fn one(args: &RunArgs, out: &mut dyn Write) -> io::Result<u8> {
    let plan = chosen(args)?;
    if let Some(level) = args.log {
        crate::trace::log_from(level);
    }
    let mut trace = Trace::new(if args.trace { usize::MAX } else { 0 }, args.pcap.is_some());
    if args.wide {
        trace = trace.wide();
    }
    let mut outcome = run(&plan, Some(&mut trace));
    if args.twice && outcome.violation.is_none() {
        outcome.violation = campaign::differs(&plan, &outcome);
    }
    if let Some(path) = &args.pcap {
        capture(path, &trace)?;
    }
    if let (None, Some(path)) = (&outcome.violation, &args.save_plan) {
        save(path, &plan)?;
    }
    if args.json {
        let failure = outcome.violation.as_ref().map(|violation| report::failure_json(&plan, violation));
        let hash = format!("{:016x}", outcome.hash);
        writeln!(out, "{}", serde_json::json!({ "seed": plan.seed, "hash": hash, "steps": outcome.steps, "failure": failure }))?;
        return Ok(if outcome.violation.is_some() { VIOLATION } else { CLEAN });
    }
    write!(out, "{}", report::plan(&plan))?;
    if args.trace {
        writeln!(out, "{}", Trace::heading(plan.agents))?;
        trace.lines().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    write!(out, "{}", report::outcome(&outcome))?;
    match &outcome.violation {
        None => Ok(CLEAN),
        Some(violation) => {
            if !args.trace {
                out.flush()?;
                explain(args, &plan, violation, out)?;
            }
            Ok(VIOLATION)
        }
    }
}

/// The plan that the options name.
fn chosen(args: &RunArgs) -> io::Result<Plan> {
    let mut plan = match (&args.plan, args.seed) {
        (Some(path), _) => {
            let text = std::fs::read_to_string(path).map_err(|error| at(path, "reading", &error))?;
            serde_json::from_str(&text).map_err(|error| at(path, "understanding the plan in", &error.into()))?
        }
        (None, seed) => Plan::draw(args.profile, seed.unwrap_or(0)),
    };
    if let Some(agents) = args.agents {
        plan = plan.with_agents(agents);
    }
    if let Some(heal_ns) = args.until {
        plan = plan.until(heal_ns);
    }
    if let Some(list) = &args.keep_faults {
        plan = plan.keeping(&list.0);
    }
    Ok(plan)
}

/// The smallest run that fails in the same way, and how many runs it took to find it.
fn smaller(args: &RunArgs, plan: &Plan, violation: &Violation) -> (u32, Failure) {
    if args.no_shrink || violation.invariant == "I18" {
        return (0, Failure { plan: plan.clone(), violation: violation.clone() });
    }
    let shrunk = shrink(plan, violation, Limits::default(), &mut |plan| run(plan, None).violation);
    (shrunk.runs, Failure { plan: shrunk.plan, violation: shrunk.violation })
}

/// Shrinks a failure and tells everything about the smallest run that fails.
fn explain(args: &RunArgs, plan: &Plan, violation: &Violation, out: &mut dyn Write) -> io::Result<()> {
    let (runs, small) = smaller(args, plan, violation);
    if runs > 0 {
        let sizes = |plan: &Plan| format!("{} faults, {} agents", plan.faults.len(), plan.agents);
        writeln!(out, "shrunk in {runs} runs from {} to {}", sizes(plan), sizes(&small.plan))?;
    }
    write!(out, "{}", report::plan(&small.plan))?;
    let mut trace = Trace::new(TAIL, true);
    let _again = run(&small.plan, Some(&mut trace));
    writeln!(out, "{}", Trace::heading(small.plan.agents))?;
    trace.lines().try_for_each(|line| writeln!(out, "{line}"))?;
    writeln!(out, "{}", small.violation)?;
    let name = format!("cistern-sim-{}-{}", small.plan.profile, small.plan.seed);
    let captured = args.pcap.clone().unwrap_or_else(|| std::env::temp_dir().join(format!("{name}.pcap")));
    capture(&captured, &trace)?;
    let saved = args.save_plan.clone().unwrap_or_else(|| std::env::temp_dir().join(format!("{name}.json")));
    save(&saved, &small.plan)?;
    let replay = report::replay(&small.plan).unwrap_or_else(|| format!("cistern-sim run --plan {}", saved.display()));
    let bug = args.bug.map_or_else(String::new, |bug| format!(" --bug {}", bug.name()));
    writeln!(out, "replay: {replay}{bug} --trace")?;
    writeln!(out, "capture: {}", captured.display())?;
    writeln!(out, "plan: {}", saved.display())
}

fn capture(path: &Path, trace: &Trace) -> io::Result<()> {
    let mut writer = Writer::create(path).map_err(io::Error::other)?;
    let mut write = || {
        for packet in trace.packets() {
            writer.write(packet.at, packet.from, packet.to, &packet.payload)?;
        }
        writer.flush()
    };
    write().map_err(|error| at(path, "writing", &error))
}

fn save(path: &Path, plan: &Plan) -> io::Result<()> {
    let text = serde_json::to_string_pretty(plan).map_err(io::Error::from)?;
    std::fs::write(path, text).map_err(|error| at(path, "writing", &error))
}

fn at(path: &Path, doing: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{doing} {}: {error}", path.display()))
}
