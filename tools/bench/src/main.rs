//! `cistern-bench`: what it costs the server to answer one request, beside a plain UDP echo in the same run.
//!
//! Decides the command line and the order of a run. This process is the load generator; the server and the echo run in processes of
//! their own, started from this program (`host`, `under_test`). A load (`cases`) is a closed loop of real requests (`traffic`,
//! `slot`, `agent`); figures are made in `figures` and printed by `report`. docs/performance.md says how to read them.
//! Exit status: 0 whatever was measured, 1 if nothing could be, 2 for a wrong command line.

mod agent;
mod cases;
mod cores;
mod durable;
mod echo;
mod figures;
mod host;
mod opening;
mod report;
mod scale;
mod slot;
mod traffic;
mod trouble;
mod under_test;

use crate::cases::Plan;
use crate::cores::Cores;
use crate::host::Role;
use crate::report::Report;
use crate::trouble::Trouble;
use clap::{Parser, Subcommand};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measures the server's CPU per request beside a plain UDP echo of the same bytes, on loopback, in one run.
#[derive(Debug, Parser)]
#[command(name = "cistern-bench", version)]
struct Args {
    /// Length of one round of one side, in seconds (0.01 to 60)
    #[arg(long, value_name = "N", default_value_t = 0.5, value_parser = seconds)]
    seconds: f64,
    /// Rounds of each side, after one that does not count (1 to 1000)
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Requests of one agent in flight in the cases with several (2 to 64)
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(2..=64))]
    in_flight: u8,
    /// Sessions in the case with many (64 to 1000000)
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    sessions: u32,
    /// Write what each server under test sends and receives to DIR/server-1.pcap, ...; figures are then those of a server that captures
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A process under test; started by the bench itself
    #[command(hide = true)]
    UnderTest {
        /// What runs in it
        role: Role,
        /// The core that it is pinned to
        #[arg(long)]
        core: Option<usize>,
        /// Below which its store is
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Where its capture goes
        #[arg(long = "pcap")]
        capture: Option<PathBuf>,
    },
    /// Measure durable mutations beside a bare fdatasync and the echo: latency, and rate at 1, 16, 64 and 256 in flight
    Durable {
        /// A directory on the disk to be measured
        #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
        dir: PathBuf,
    },
    /// Measure requests, memory and the theft of locks with up to a million sessions and ten million locks
    Scale(scale::ScaleArgs),
    /// A part of `scale`; started by the bench itself
    #[command(hide = true)]
    ScalePart(scale::PartArgs),
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=60.0).contains(&seconds) { Ok(seconds) } else { Err("must be 0.01 to 60".to_owned()) }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let captures = args.pcap.as_deref().map_or(Ok(()), host::capture_into);
    let result = match &args.command {
        _ if captures.is_err() => captures,
        Some(Command::UnderTest { role, core, dir, capture }) => under_test::serve(*role, *core, dir.as_deref(), capture.as_deref()),
        Some(Command::Durable { dir }) => durable::bench(&args, dir),
        Some(Command::Scale(args)) => scale::bench(args),
        Some(Command::ScalePart(args)) => scale::part(args),
        None => bench(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            // If standard error is closed, the exit status is all that can be said.
            let _ = writeln!(io::stderr(), "cistern-bench: {trouble}");
            ExitCode::FAILURE
        }
    }
}

fn bench(args: &Args) -> Result<(), Trouble> {
    let cores = Cores::find()?;
    // Processes under test pin themselves to their own core.
    cores.pin_generator()?;
    let plan = Plan { span: Duration::from_secs_f64(args.seconds), rounds: args.rounds, cores };
    let cases = cases::beside_echo(usize::from(args.in_flight));
    let beside_echo = cases.iter().map(|case| cases::server_and_echo(case, &plan)).collect::<Result<Vec<_>, _>>()?;
    let control = cases::control(&plan)?;
    // A u32 fits a usize on every system with a mio poll.
    let sessions = cases::sessions(&cases::few_and_many(args.sessions as usize), &plan)?;
    let report = Report {
        cores: cores.available,
        pinned: cores.pinned.is_some(),
        round_seconds: args.seconds,
        rounds: args.rounds,
        beside_echo,
        control,
        sessions,
    };
    let text = if args.json { report.json() } else { report.table() };
    io::stdout().write_all(text.as_bytes()).map_err(Trouble::at("printing the figures"))
}
