//! `cistern-path`: instructions that one request costs the server's core and a cached answer the agent's, by callgrind, beside a file.
//!
//! Decides the command line and the exit status: 0 no count has risen, 1 one has, 2 for a wrong command line or when nothing could be
//! counted. What is counted and what a figure means: `docs/performance.md`.

mod baseline;
mod callgrind;
mod trouble;

use baseline::{Baseline, COMPILER, Verdict};
use cistern_path::{Counted, Kind, Priced, Rig, charge, charge_of};
use clap::{Parser, Subcommand};
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trouble::Trouble;

/// Counts the instructions that one request costs the server and a cached answer the agent, and compares with a file.
#[derive(Debug, Parser)]
#[command(name = "cistern-path", version, after_help = AFTER)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Examples:
  cistern-path count                 instructions of everything
  cistern-path count lock release --json
  cistern-path check                 beside tools/path/baseline.toml
  cistern-path prices                what the server charges, beside what it costs
  cistern-path renew                 writes that file anew

Exit status: 0 no count has risen beyond the tolerance; 1 one has; 2 for a wrong command line, or when nothing could be counted.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Count, and say what came of it
    Count {
        /// What [default: everything]
        what: Vec<Counted>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Count everything and compare with the baseline
    Check {
        /// The file with the counts to compare with
        #[arg(long, value_name = "FILE", default_value = BASELINE)]
        baseline: PathBuf,
    },
    /// Compare what the server charges for requests with what they cost
    Prices,
    /// Count everything and write the baseline
    Renew {
        /// The file to be written
        #[arg(long, value_name = "FILE", default_value = BASELINE)]
        baseline: PathBuf,
    },
    /// Do one thing so often; what callgrind watches
    #[command(hide = true)]
    Run {
        /// What
        what: Counted,
        /// How often
        #[arg(long, value_parser = clap::value_parser!(u64).range(..=callgrind::MANY))]
        times: u64,
    },
}

/// From the workspace's root, where `cargo run` is called.
const BASELINE: &str = "tools/path/baseline.toml";

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(code) => code,
        Err(trouble) => {
            let _ = writeln!(io::stderr(), "cistern-path: {trouble}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Trouble> {
    match command {
        Command::Run { what, times } => {
            let [most, times] = [callgrind::MANY, times].map(|count| usize::try_from(count).unwrap_or(usize::MAX));
            what.run(most, times);
        }
        _ if cfg!(debug_assertions) => return Err(Trouble::Debug),
        Command::Count { what, json } => {
            let what = if what.is_empty() { Counted::all().collect() } else { what };
            count(&what, json)?;
        }
        Command::Check { baseline } => return check(&baseline),
        Command::Prices => return prices(),
        Command::Renew { baseline } => {
            let instructions = Counted::all().map(|counted| Ok((counted.to_string(), callgrind::count(counted)?)));
            let fresh = Baseline { compiler: COMPILER.to_owned(), instructions: instructions.collect::<Result<_, Trouble>>()? };
            fresh.write(&baseline)?;
            say(&format!("{} counts by {COMPILER} are in {}", fresh.instructions.len(), baseline.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn count(what: &[Counted], json: bool) -> Result<(), Trouble> {
    let mut all = BTreeMap::new();
    for counted in what {
        let count = callgrind::count(*counted)?;
        if !json {
            say(&format!("{counted:<16} {count:>8}"))?;
        }
        all.insert(counted.to_string(), count);
    }
    if json { say(&serde_json::json!({ "compiler": COMPILER, "instructions": all }).to_string()) } else { Ok(()) }
}

fn check(file: &Path) -> Result<ExitCode, Trouble> {
    let baseline = Baseline::read(file)?;
    let tolerance = baseline.tolerance(COMPILER);
    if !baseline.is_of(COMPILER) {
        say(&format!("{} is by {}, this is {COMPILER}: a count may differ by {tolerance} %", file.display(), baseline.compiler))?;
    }
    say(&format!("{:<16} {:>8} {:>8}  instructions for one", "", "before", "now"))?;
    let mut code = ExitCode::SUCCESS;
    for counted in Counted::all() {
        let count = callgrind::count(counted)?;
        let before = baseline.instructions.get(&counted.to_string()).map_or_else(|| "-".to_owned(), u64::to_string);
        let word = match baseline.judge(counted, count, COMPILER) {
            Verdict::Same => "",
            Verdict::Cheaper => "cheaper: `renew` keeps it so",
            Verdict::Dearer => "DEARER",
            Verdict::Unknown => "NOT IN THE BASELINE",
        };
        if word.starts_with(char::is_uppercase) {
            code = ExitCode::from(1);
        }
        say(format!("{counted:<16} {before:>8} {count:>8}  {word}").trim_end())?;
    }
    if code != ExitCode::SUCCESS {
        say(&format!(
            "Above the baseline by more than {tolerance} %. Look for the cause with `valgrind --tool=callgrind` and callgrind_annotate; if \
             it is wanted: cargo run --profile dist -p cistern-path -- renew"
        ))?;
    }
    Ok(code)
}

/// Instructions of a nanosecond, as prices have it.
const PER_NS: u64 = 4;

/// Compares what each kind of request is charged with its instructions, both without what its datagram costs: that has the system's part in its
/// price, which is no instruction of the core's.
fn prices() -> Result<ExitCode, Trouble> {
    let single = callgrind::count(Counted::Request(Kind::GetAttr))?;
    let datagram = single.saturating_sub(callgrind::count(Counted::Packed(Kind::GetAttr))?);
    let of_kinds = Kind::ALL.into_iter().map(|kind| (Counted::Request(kind), charge_of(kind)));
    let of_priced = Priced::ALL.into_iter().map(|priced| (Counted::Priced(priced), charge(|rig, count| priced.prepare(rig, count))));
    say(&format!("{:<22} {:>12} {:>10} {:>6}  without what a datagram costs", "", "instructions", "charged ns", "ratio"))?;
    let mut code = ExitCode::SUCCESS;
    for (counted, charged) in of_kinds.chain(of_priced) {
        let cost = callgrind::count(counted)?.saturating_sub(datagram).max(1);
        let charged = charged.saturating_sub(Rig::DATAGRAM_NS);
        let percent = charged * PER_NS * 100 / cost;
        let fair = (50..=200).contains(&percent);
        if !fair {
            code = ExitCode::from(1);
        }
        let word = if fair { "" } else { "NOT BETWEEN A HALF AND TWICE" };
        say(format!("{counted:<22} {cost:>12} {charged:>10} {percent:>4} %  {word}").trim_end())?;
    }
    Ok(code)
}

fn say(line: &str) -> Result<(), Trouble> {
    writeln!(io::stdout(), "{line}").map_err(Trouble::at("printing"))
}
