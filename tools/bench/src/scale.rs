//! `cistern-bench scale`: what requests and memory cost with up to a million sessions and ten million locks.
//!
//! Decides the sizes and the order: each size in a process of its own, so that memory that one size has taken is not the next one's. Costs,
//! memory and theft are those of the server's core in that process, without sockets (`tables` says why). Place: a command of this program.
//! `held` is about an agent's core that has as many locks. Leaves to others: measuring (`cost`, `steal`, `find`, `held`), the command line
//! (`main`).

mod cost;
mod figures;
mod find;
mod held;
mod memory;
mod steal;
mod store;
mod tables;

pub(crate) use store::{FIRST, Store};
pub(crate) use tables::FILE_BYTES;

use crate::charts;
use crate::cores::{self, Cores};
use crate::figures::count;
use crate::progress::Progress;
use crate::trouble::Trouble;
use clap::{Args, ValueEnum};
use figures::{Cost, Find, Held, Steal};
use find::FindWay;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// Sessions of the largest tables, if nothing else is said.
const MOST_SESSIONS: u32 = 1_000_000;
/// Smallest tables of the grid.
const SMALLEST: (usize, usize) = (1_000, 10_000);

/// The options of `scale`.
#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// Locks in the largest tables (10000 to 10000000), half of them advisory, half cache locks
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(10_000..=10_000_000))]
    most_locks: u32,
}

/// One part, in a process of its own.
#[derive(Debug, Args)]
pub(crate) struct PartArgs {
    /// Which
    part: Part,
    /// Sessions
    opened: usize,
    /// Locks
    held: usize,
    /// find: how
    #[arg(long, value_enum, default_value = "index")]
    way: FindWay,
    /// The core that it is pinned to
    #[arg(long = "core")]
    on_core: Option<usize>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Part {
    Cost,
    Steal,
    Find,
    Held,
}

/// How it is measured.
struct Run {
    rounds: u32,
    cores: Cores,
    progress: Progress,
}

/// All figures.
#[derive(Debug, Serialize)]
struct ScaleReport {
    costs: Vec<Cost>,
    steals: Vec<Steal>,
    finds: Vec<Find>,
    helds: Vec<Held>,
}

/// Measures and prints; tables with fewer sessions follow by tens.
pub(crate) fn bench(args: &ScaleArgs, most_sessions: Option<u32>, rounds: u32, json: bool, svg: Option<&Path>) -> Result<(), Trouble> {
    let cores = Cores::find()?;
    cores.pin_generator()?;
    // A u32 fits a usize on every system with a mio poll.
    let (sessions, locks) = (most_sessions.unwrap_or(MOST_SESSIONS) as usize, args.most_locks as usize);
    let by_tens = |most: usize, least: usize| (0..4).rev().map(|tens| (most / 10_usize.pow(tens)).max(least)).collect::<Vec<_>>();
    let mut sizes: Vec<_> = by_tens(sessions, SMALLEST.0).into_iter().zip(by_tens(locks, SMALLEST.1)).collect();
    sizes.dedup();
    let mut stolen: Vec<_> = sizes.iter().map(|size| size.1.min(1_000_000)).collect();
    stolen.dedup();
    let run = Run { rounds, cores, progress: Progress::new() };
    let report = ScaleReport {
        costs: sizes.iter().map(|size| run_part(Part::Cost, *size, &run)).collect::<Result<_, _>>()?,
        steals: stolen.iter().map(|locks| run_part(Part::Steal, (0, *locks), &run)).collect::<Result<_, _>>()?,
        finds: finds(&sizes, &run)?,
        helds: stolen.iter().map(|locks| run_part(Part::Held, (0, *locks), &run)).collect::<Result<_, _>>()?,
    };
    drop(run);
    if let Some(dir) = svg {
        let costs: Vec<_> = report.costs.iter().map(|cost| (count(cost.sessions as u64), cost.getattr_ratio, cost.lock_ratio)).collect();
        charts::write_all(dir, charts::scaling(&costs))?;
    }
    let text = if json { serde_json::to_string_pretty(&report).expect("figures are numbers") + "\n" } else { table(&report) };
    io::stdout().write_all(text.as_bytes()).map_err(Trouble::at("printing the figures"))
}

/// Every way to find a session, for the smallest and the largest number of them.
fn finds(sizes: &[(usize, usize)], run: &Run) -> Result<Vec<Find>, Trouble> {
    let mut sessions: Vec<_> = [sizes.first(), sizes.last()].into_iter().flatten().map(|size| size.0).collect();
    sessions.dedup();
    let all = sessions.iter().flat_map(|sessions| FindWay::value_variants().iter().map(move |way| (*sessions, *way)));
    all.map(|(sessions, way)| run_part_with(Part::Find, (sessions, 0), way, run)).collect()
}

fn run_part<T: DeserializeOwned>(part: Part, size: (usize, usize), run: &Run) -> Result<T, Trouble> {
    run_part_with(part, size, FindWay::Index, run)
}

/// Runs one part in a process of its own.
fn run_part_with<T: DeserializeOwned>(part: Part, (sessions, locks): (usize, usize), way: FindWay, run: &Run) -> Result<T, Trouble> {
    let value_name = |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_owned()).unwrap_or_default();
    let (name, way) = (value_name(part.to_possible_value()), value_name(way.to_possible_value()));
    run.progress.say(&format!("{name}: {sessions} sessions, {locks} locks"));
    let program = std::env::current_exe().map_err(Trouble::at("finding this program's own file"))?;
    let mut command = Command::new(program);
    command
        .args(["scale-part", &name, &sessions.to_string(), &locks.to_string(), "--rounds", &run.rounds.to_string(), "--way", &way])
        .stdout(Stdio::piped());
    if let Some(core) = run.cores.under_test() {
        command.args(["--core", &core.to_string()]);
    }
    let output = command.spawn().and_then(std::process::Child::wait_with_output).map_err(Trouble::at("running a part of it"))?;
    serde_json::from_slice(&output.stdout).map_err(|_| Trouble::Host { who: "part", what: "has ended without figures" })
}

/// What a part's process does.
pub(crate) fn part(args: &PartArgs, rounds: u32) -> Result<(), Trouble> {
    if let Some(core) = args.on_core {
        cores::pin(core)?;
    }
    let figures = match args.part {
        Part::Cost => serde_json::to_string(&cost::measure(args.opened, args.held, rounds)?),
        Part::Steal => serde_json::to_string(&steal::measure(args.held)?),
        Part::Find => serde_json::to_string(&find::measure(args.way, args.opened, rounds)?),
        Part::Held => serde_json::to_string(&held::measure(args.held)?),
    };
    writeln!(io::stdout(), "{}", figures.expect("figures are numbers")).map_err(Trouble::at("telling the figures"))
}

fn table(report: &ScaleReport) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_costs(&mut out, &report.costs);
    let _ = write_steals(&mut out, &report.steals);
    let _ = write_finds(&mut out, &report.finds);
    let _ = write_helds(&mut out, &report.helds);
    out
}

fn write_costs(out: &mut String, costs: &[Cost]) -> std::fmt::Result {
    writeln!(
        out,
        "The server's core in this process, sessions and locks drawn at random; ratios are to tables of 1,000 sessions and 10,000 locks\n\
         in the same process, in turn. Bytes are resident memory, in brackets at its peak.\n\n\
         | sessions | locks | GETATTR ns | ratio | LOCK, RELEASE ns | ratio | B a session | after a request | B a lock | longest turn while \
         taking locks, µs | timers when idle |\n|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    for c in costs {
        writeln!(
            out,
            "| {} | {} | {:.0} | {:.2} | {:.0} | {:.2} | {} ({}) | {} | {} ({}) | {:.0} | {} |",
            c.sessions,
            c.locks,
            c.getattr_ns,
            c.getattr_ratio,
            c.lock_ns,
            c.lock_ratio,
            c.session_bytes,
            c.session_bytes_peak,
            c.session_bytes_asked,
            c.lock_bytes,
            c.lock_bytes_peak,
            c.longest_turn_filling_us,
            c.idle_timers + usize::from(c.idle_wakes)
        )?;
    }
    Ok(())
}

fn write_steals(out: &mut String, steals: &[Steal]) -> std::fmt::Result {
    writeln!(
        out,
        "\nThe locks of one session freed after its lease, 64 requests of others in every turn\n\n\
         | locks | CPU ms | turns | longest turn µs | without a theft | others answered | turn of the first waiter | of the last |\n\
         |---|---|---|---|---|---|---|---|"
    )?;
    for s in steals {
        writeln!(
            out,
            "| {} | {:.1} | {} | {:.0} | {:.0} | {} | {} | {} |",
            s.locks,
            s.cpu_ms,
            s.turns,
            s.longest_turn_us,
            s.longest_turn_before_us,
            s.others_answered,
            s.first_waiter_turn,
            s.last_waiter_turn
        )?;
    }
    Ok(())
}

fn write_helds(out: &mut String, helds: &[Held]) -> std::fmt::Result {
    writeln!(
        out,
        "\nAn agent's core that holds locks, each for a local user: CPU of its longest call, and turns until everybody was told\n\n\
         | locks | B a lock | taking them, µs | lease over, µs (turns) | certain again | taken over after a restart | lost |\n\
         |---|---|---|---|---|---|---|"
    )?;
    for h in helds {
        write!(out, "| {} | {} | {:.0} |", h.locks, h.lock_bytes, h.longest_call_taking_us)?;
        for told in [&h.ended, &h.revived, &h.reclaimed, &h.lost] {
            write!(out, " {:.0} ({}) |", told.longest_call_us, told.turns)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_finds(out: &mut String, finds: &[Find]) -> std::fmt::Result {
    writeln!(
        out,
        "\nA session found by its id, and a field of it read, ids drawn at random; ratios are to the server's way, in turn with it in one process\n\n\
         | way | sessions | ns | ratio | bytes beside the session | slowest insertion µs |\n|---|---|---|---|---|---|"
    )?;
    for f in finds {
        writeln!(out, "| {} | {} | {:.0} | {:.2} | {} | {:.0} |", f.way, f.sessions, f.ns, f.ratio, f.bytes, f.slowest_insert_us)?;
    }
    Ok(())
}
