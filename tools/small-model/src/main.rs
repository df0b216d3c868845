//! `cistern-small-model`: explores the small model of the lease, hunts the bugs planted in it, and tells a counterexample.
//!
//! Decides the command line, the exit status, and how many bugs are hunted at a time. What is explored is in the library of this
//! package. Exit status: 0 all is as it should be, 1 a property broke, nothing happened that should have or a bug was missed, 2 for a
//! wrong command line or an output that cannot be written.

use cistern_small_model::bugs::{Bug, LEDGER, Row};
use cistern_small_model::check::{self, Until, Verdict};
use cistern_small_model::properties::Name;
use cistern_small_model::report::{self, Hunted};
use cistern_small_model::rules::{Rules, TAU_MAX};
use cistern_small_model::trace;
use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Explores every schedule of one server, two agents and one exclusive lock over a network that may do anything.
#[derive(Debug, Parser)]
#[command(name = "cistern-small-model", version, after_help = AFTER)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Examples:
  cistern-small-model check --every            all of time, each combination of the options
  cistern-small-model check --horizon 4 --requests 2
  cistern-small-model check --server-rate 4    clocks beyond the bound: exclusion breaks
  cistern-small-model bugs                     every planted bug must be found
  cistern-small-model bugs --requests 1        bounds hide bugs
  cistern-small-model trace no-delta           how a bug breaks what it must break

Exit status: 0 if everything held, happened and was found; 1 if not; 2 for a wrong command line or an output that failed.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Explore the model without bugs
    Check {
        #[command(flatten)]
        bounds: Bounds,
        /// Late rescue: a receipt before any NACK brings a failed session back
        #[arg(long)]
        rescue: bool,
        /// Surrender: an agent that was told NACK gives everything back at once
        #[arg(long)]
        surrender: bool,
        /// Last-heard: the wait counts from the newest receipt that was answered
        #[arg(long)]
        last_heard: bool,
        /// Each combination of the three, one after the other
        #[arg(long, conflicts_with_all = ["rescue", "surrender", "last_heard"])]
        every: bool,
        /// Threads of one exploration. Only one thread finds shortest schedules for sure
        #[arg(long, value_name = "N", default_value = "1")]
        threads: NonZeroUsize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Explore the model with each planted bug, after the model without any
    Bugs {
        #[command(flatten)]
        bounds: Bounds,
        /// Bugs hunted at the same time, each by one thread [default: the number of cores]
        #[arg(long, value_name = "N")]
        threads: Option<NonZeroUsize>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a shortest schedule by which a bug breaks a property
    Trace {
        /// The bug
        #[arg(value_enum)]
        bug: Bug,
        /// The property to be broken, if not the one for which the bug is known
        #[arg(long, value_enum, value_name = "PROPERTY")]
        breaks: Option<Name>,
        #[command(flatten)]
        bounds: Bounds,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The numbers that every command takes.
#[derive(Clone, Debug, Args)]
struct Bounds {
    /// Ticks of real time to explore [default: all of time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    horizon: Option<u8>,
    /// Lock requests of each agent, keep-alives not counted [default: any number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    requests: Option<u8>,
    /// Lease period, in ticks of an agent's clock
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=i64::from(TAU_MAX)))]
    lease: u8,
    /// Bound on clocks: the server waits TAU * (1 + DELTA) ticks of its clock
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=3))]
    delta: u8,
    /// Ticks of the server's clock in one of an agent's [default: 1 + DELTA, the most that the bound allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=12))]
    server_rate: Option<u8>,
    /// Explore every order of sends too, and every transmission instead of the youngest; takes some 100 times as long
    #[arg(long)]
    no_reduction: bool,
}

impl Bounds {
    fn rules(&self) -> Rules {
        Rules {
            tau: self.lease,
            delta: self.delta,
            server_rate: self.server_rate.unwrap_or(1 + self.delta),
            requests: self.requests,
            horizon: self.horizon,
            reduce: !self.no_reduction,
            ..Rules::default()
        }
    }
}

fn main() -> ExitCode {
    let (text, good) = match Cli::parse().command {
        Command::Check { bounds, rescue, surrender, last_heard, every, threads, json } => {
            let rules = Rules { rescue, surrender, last_heard, ..bounds.rules() };
            check(if every { combinations(&rules) } else { vec![rules] }, threads.get(), json)
        }
        Command::Bugs { bounds, threads, json } => {
            let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
            bugs(&bounds.rules(), threads.map_or_else(cores, NonZeroUsize::get), json)
        }
        Command::Trace { bug, breaks, bounds, json } => tell(bug, breaks, &bounds.rules(), json),
    };
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::from(u8::from(!good)),
        // Whoever read the output has read enough of it.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(u8::from(!good)),
        Err(error) => {
            // Nothing is left to say it to, should this fail as well.
            let _ = writeln!(io::stderr(), "cistern-small-model: cannot write the result: {error}");
            ExitCode::from(2)
        }
    }
}

/// The same rules with each combination of the options.
fn combinations(rules: &Rules) -> Vec<Rules> {
    (0..8_u8).map(|bits| Rules { rescue: bits & 1 != 0, surrender: bits & 2 != 0, last_heard: bits & 4 != 0, ..rules.clone() }).collect()
}

fn check(all: Vec<Rules>, threads: usize, json: bool) -> (String, bool) {
    let verdicts: Vec<Verdict> = all.into_iter().map(|rules| check::explore(rules, threads, Until::AnyBreaks)).collect();
    let clean = verdicts.iter().all(Verdict::is_clean);
    (if json { as_json(&verdicts) } else { report::checked(&verdicts) }, clean)
}

/// What the command `bugs` prints as JSON.
#[derive(Serialize)]
struct Ledger {
    clean: Vec<Verdict>,
    bugs: Vec<Hunted>,
}

fn bugs(rules: &Rules, threads: usize, json: bool) -> (String, bool) {
    let all_on = Rules { rescue: true, surrender: true, last_heard: true, ..rules.clone() };
    let clean: Vec<Verdict> = [rules.clone(), all_on].into_iter().map(|rules| check::explore(rules, 1, Until::AnyBreaks)).collect();
    let bugs = hunt_all(rules, threads);
    let good = clean.iter().all(Verdict::is_clean) && bugs.iter().all(|hunted| hunted.found);
    let text = if json {
        as_json(&Ledger { clean, bugs })
    } else {
        format!("Without bugs: {}\nWith each of them: {}", report::checked(&clean), report::hunted(rules, &bugs))
    };
    (text, good)
}

/// Hunts every bug, `threads` at a time, and keeps the order of the ledger.
fn hunt_all(rules: &Rules, threads: usize) -> Vec<Hunted> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Hunted)>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((place, row)) = LEDGER.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
                    let hunted = Hunted::new(*row, &check::hunt(*row, row.rules(rules), None));
                    results.lock().expect("a thread that panics ends the scope with it").push((place, hunted));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no thread is left that could panic");
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, hunted)| hunted).collect()
}

fn tell(bug: Bug, breaks: Option<Name>, rules: &Rules, json: bool) -> (String, bool) {
    let row = Row::of(bug);
    let breaks = breaks.unwrap_or(row.breaks);
    let rules = row.rules(rules);
    let verdict = check::hunt(row, rules.clone(), Some(breaks));
    let Some(broken) = verdict.breaking(breaks) else {
        let text = format!(
            "{} does not break {} in any of the {} states.\n{}\n",
            bug.name(),
            breaks.text(),
            verdict.states,
            report::bounds(&rules)
        );
        return (text, false);
    };
    let schedule = trace::tell(&rules, &broken.schedule);
    if json {
        return (as_json(&schedule), true);
    }
    (
        format!("{} breaks {} in {} steps.\n{}\n\n{}", bug.name(), breaks.text(), broken.length, report::bounds(&rules), schedule.table()),
        true,
    )
}

fn as_json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("numbers, names and lists are always JSON");
    text.push('\n');
    text
}
