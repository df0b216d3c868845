//! `cistern-torture`: kills servers and agents at random moments under load, with SIGKILL, and checks what they had promised.
//!
//! Decides the command line and the exit status. This process starts and kills the others: a server (`cisternd`) on a store in a
//! temporary directory, and workers (this program again), each an agent of its own. Workers write down what they are about to do and
//! what they were told; what they wrote outlives them.
//!
//! | file | decides |
//! |---|---|
//! | `campaign` | who is killed when, and what is checked after each kill |
//! | `processes` | starting, killing, asking |
//! | `worker` | the load: lives of files, counters under locks, tallies by compare-and-set |
//! | `life` | what a file can be, given what was done to it and what was answered |
//! | `record` | the lines that workers write |
//! | `judge` | what must hold of the records and of what the server shows in the end |
//! | `campaign::faults` | calls of the system that fail, in the stead of kills |
//! | `campaign::group` | what happens to a group of servers on etcd, in the stead of kills |
//! | `images` | losses of power, at every write, sync and name of the store's files |
//!
//! Exit status: 0 if everything promised was kept, 1 if not (or nothing could be checked), 2 for a wrong command line.

#![allow(clippy::print_stdout, reason = "the report goes to standard output")]

mod campaign;
mod images;
mod judge;
mod life;
mod processes;
mod record;
mod worker;

use campaign::Campaign;
use clap::{Parser, Subcommand};
use serde_json::json;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  cargo build --release && cargo run --release -p cistern-torture -- --rounds 300
  cargo run --release -p cistern-torture -- --rounds 40 --duration 60s --seed 7 --json

What is checked:
  - every change that was answered is there, and none was made twice: each file's history fits what it is (after every kill by the
    worker that made it, in the end by another agent)
  - the store is sound after kills of the server: `cisternd check` finds nothing
  - of those who set a value by compare-and-set, one alone is told that it did
  - fencing tokens grow over all holders, restarts and steals; a counter that is changed under a lock loses no change
  - after every kill, all workers get on with their work in bounded time

Exit status:
  0  all of it holds
  1  something does not, or the run could not go on
  2  wrong usage";

/// Kills a server and its agents under load, and checks what they promised.
#[derive(Debug, Parser)]
#[command(name = "cistern-torture", version, after_help = EXAMPLES, max_term_width = 120)]
struct Args {
    /// Number of kills
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Time after which nobody is killed any more; judging comes on top
    #[arg(long, value_name = "DURATION", value_parser = cistern_text::duration)]
    duration: Option<Duration>,
    /// Seed for the kill schedule (printed at startup); random by default
    #[arg(long)]
    seed: Option<u64>,
    /// Agents, each a process (1 to 16)
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=16))]
    agents: u8,
    /// Users of each agent, each a thread (1 to 64)
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    users: u8,
    /// Check the store after each so many kills of the server
    #[arg(long, default_value_t = 1, value_name = "KILLS", value_parser = clap::value_parser!(u32).range(1..))]
    check_every: u32,
    /// The directory of `cistern` and `cisternd`; by default that of this program
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Write what each server sends and receives to DIR/server-1.pcap, DIR/server-2.pcap, ..., for cistern-dump
    #[arg(long, value_name = "DIR")]
    pcap_dir: Option<PathBuf>,
    /// Leave the store, the records and the logs where they are, and say where, also when all is well
    #[arg(long)]
    keep: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Images(images::ImagesArgs),
    /// Lets calls of the system fail under a server and its agents, and checks what they promised
    #[command(after_help = FAULTS_EXAMPLES)]
    Faults(FaultsArgs),
    /// Kills, stops and cuts off servers, members of etcd and hosts under a group of three, and checks what they promised
    #[command(after_help = GROUP_EXAMPLES)]
    Group(GroupArgs),
    /// An agent with its users; started by the torture itself
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
    /// A server that is recorded; started by the torture itself
    #[command(hide = true)]
    RecordedServer(images::ServingArgs),
    /// The opening of a store that is recorded; started by the torture itself
    #[command(hide = true)]
    RecordedOpening(images::OpeningArgs),
}

const FAULTS_EXAMPLES: &str = "\
Examples:
  cargo build --release && cargo run --release -p cistern-torture -- faults --count 200
  cargo run --release -p cistern-torture -- faults --duration 60s --seed 7 --json

Needs strace (on Debian: apt-get install strace), and the right to trace one's own processes.

What is checked, after a write, sync, rename, read or opening of a file has failed in the store's writer, in the engine's worker, in a
reader, or at a start:
  - the server ends with status 74 (77 for a missing right) and names its store, or what failed was none of a promise and it goes on
  - all that `cistern-torture` checks without a command

Exit status:
  0  all of it holds
  1  something does not, the run could not go on, or nothing was checked: calls were to fail, and none did
  2  wrong usage";

#[derive(clap::Args, Debug)]
struct FaultsArgs {
    /// Number of calls that fail
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Time after which no call fails any more; judging comes on top
    #[arg(long, value_name = "DURATION", value_parser = cistern_text::duration)]
    duration: Option<Duration>,
    /// Seed for the choice of calls (printed at the end); random by default
    #[arg(long)]
    seed: Option<u64>,
    /// The directory of `cistern` and `cisternd`; by default that of this program
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Leave the store, the records and the logs where they are, and say where, also when all is well
    #[arg(long)]
    keep: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const GROUP_EXAMPLES: &str = "\
Examples:
  cargo build --release --features etcd && cargo run --release -p cistern-torture -- group
  cargo run --release -p cistern-torture -- group --duration 5m --seed 7 --json

Needs root and the programs ip, nft and conntrack, for hosts that are network namespaces, and etcd (on Debian: apt-get install iproute2
nftables conntrack etcd-server).

What is checked, while servers, members of etcd, agents and hosts are killed, stopped, cut off, and hand over:
  - all that `cistern-torture` checks without a command; the store once, in the end
  - no holder of a lock goes on after another one has had it
  - a read shows what was answered, or read by anybody, before it began, and nothing that nobody has asked for
  - no server ends that was not killed

Exit status:
  0  all of it holds
  1  something does not, the run could not go on, or nothing was checked
  2  wrong usage";

#[derive(clap::Args, Debug)]
struct GroupArgs {
    /// Time after which nothing happens any more; judging comes on top
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = cistern_text::duration)]
    duration: Duration,
    /// Seed for what happens to whom (printed at the end); random by default
    #[arg(long)]
    seed: Option<u64>,
    /// Number of agents
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    agents: u8,
    /// Leave the records and the logs where they are, and say where, also when all is well
    #[arg(long)]
    keep: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.command {
        Some(Command::Worker(args)) => return worker::main(args),
        Some(Command::Images(args)) => images::run(args),
        Some(Command::Faults(args)) => faults(args),
        Some(Command::Group(args)) => group(args),
        Some(Command::RecordedServer(args)) => images::serve(args).map(|()| true),
        Some(Command::RecordedOpening(args)) => images::open(args).map(|()| true),
        None => run(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            // If standard error is closed, the exit status is all that can be said.
            let _ = writeln!(io::stderr(), "cistern-torture: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The seed that was given, or a short one by chance.
fn seed(given: Option<u64>) -> Result<u64, String> {
    let chance = || cistern_driver::seed().map(|seed| u64::from_le_bytes([seed[0], seed[1], seed[2], seed[3], 0, 0, 0, 0]));
    given.map_or_else(|| chance().map_err(|e| e.to_string()), Ok)
}

/// Agents, users of each, and kills of the server between two checks of its store, where calls fail.
const FAULTS_LOAD: (u8, u8, u32) = (2, 3, 1);

fn faults(args: &FaultsArgs) -> Result<bool, String> {
    let (agents, users, check_every) = FAULTS_LOAD;
    let mut campaign = Campaign::new(seed(args.seed)?, agents, users, check_every, &programs(args.programs.as_deref())?, None)?;
    let faults = campaign.faults(args.count, args.duration);
    let well = faults.campaign.violations.is_empty();
    let kept = (args.keep || !well).then(|| campaign.keep());
    report(&faults, kept, args.json)?;
    Ok(well)
}

/// Users of each agent of a group.
const GROUP_USERS: u8 = 3;

fn group(args: &GroupArgs) -> Result<bool, String> {
    let mut campaign = Campaign::new(seed(args.seed)?, args.agents, GROUP_USERS, 1, &programs(None)?, None)?;
    let group = campaign.group(args.duration);
    let well = group.campaign.violations.is_empty();
    let kept = (args.keep || !well).then(|| campaign.keep());
    report(&group, kept, args.json)?;
    Ok(well)
}

/// The directory of `cisternd`.
fn programs(given: Option<&Path>) -> Result<PathBuf, String> {
    let own = || std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned())).ok_or("where is this program?");
    given.map_or_else(|| own().map_err(str::to_owned), |dir| Ok(dir.to_owned()))
}

fn report(report: &(impl serde::Serialize + std::fmt::Display), kept: Option<PathBuf>, json: bool) -> Result<(), String> {
    if json {
        let mut value = serde_json::to_value(report).map_err(|e| e.to_string())?;
        value["kept"] = json!(kept);
        println!("{value}");
    } else {
        print!("{report}");
        if let Some(dir) = &kept {
            println!("store, records and logs: {}", dir.display());
        }
    }
    Ok(())
}

fn run(args: &Args) -> Result<bool, String> {
    let seed = seed(args.seed)?;
    let mut campaign =
        Campaign::new(seed, args.agents, args.users, args.check_every, &programs(args.programs.as_deref())?, args.pcap_dir.as_deref())?;
    let outcome = campaign.run(args.rounds, args.duration);
    let well = outcome.violations.is_empty();
    let kept = (args.keep || !well).then(|| campaign.keep());
    report(&outcome, kept, args.json)?;
    Ok(well)
}
