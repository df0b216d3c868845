//! The command line of the simulator.
//!
//! Decides which commands and options there are, their help, and what they exclude. Place: first step of the program.
//! Leaves to others: doing it (`main`), words of results (`report`).

use crate::plan::Profile;
use cistern_link::bugs::Bug;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Simulates whole clusters of Cistern, judges every step, and shrinks what fails.
#[derive(Debug, Parser)]
#[command(name = "cistern-sim", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a campaign of many seeds, or one seed in detail.
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Look for each deliberate bug; needs a build with `--features bugs`.
    #[command(after_help = BUGS_HELP)]
    Bugs(BugsArgs),
    /// Run groups of servers that share a store: many seeds, or one.
    Group(SeedArgs),
    /// Run hosts that join by invites while the server dies: many seeds, or one.
    Join(SeedArgs),
    /// List the judges of a run and what each profile does.
    List,
}

const EXIT_CODES: &str = "Exit codes: 0 nothing failed; 1 an invariant did not hold, or a counter that a campaign must reach was not reached; \
                          2 the command line or a file cannot be used.";

const RUN_HELP: &str = "Examples:
  cistern-sim run --seeds 2000                        a campaign of the profile swarm
  cistern-sim run --seeds 500 --profile clocks --first-seed 10000 --jobs 2
  cistern-sim run --seed 153 --profile restart        one seed: its plan, its hash, its verdict
  cistern-sim run --seed 153 --trace --pcap run.pcap  one seed in words and as a capture
  cistern-sim run --seed 153 --keep-faults 3,7 --until 12.5s --agents 2
                                                      a shrunk run, as a failing campaign prints it
  cistern-sim run --plan failing.json --trace         a plan from a file

Exit codes: 0 nothing failed; 1 an invariant did not hold, or a counter that a campaign must reach was
not reached; 2 the command line or a file cannot be used.";

const BUGS_HELP: &str = "Examples:
  cistern-sim bugs                                    every bug, three campaigns each
  cistern-sim bugs --only M4,M13 --campaigns 20
  cistern-sim bugs --campaigns 20 --write BUGS.md     the whole ledger, as a page
  cistern-sim run --bug M4 --profile partition --seed 5 --trace
                                                      one run with a bug in it

Exit codes: 0 every bug was caught; 1 one was missed; 2 the command line cannot be used, or this build
has no bugs in it.";

/// Options of `bugs`.
#[derive(Clone, Debug, Args)]
pub struct BugsArgs {
    /// Only these bugs, as "M4,M13".
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bug)]
    pub only: Vec<Bug>,
    /// Campaigns for each bug; every one of them must find it.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub campaigns: u64,
    /// Most seeds of a campaign.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..1_000_000))]
    pub seeds: u64,
    /// Longest campaign.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = cistern_text::duration)]
    pub duration: Duration,
    /// Threads; by default one per processor.
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Do not look for the smallest failing run of each bug.
    #[arg(long)]
    pub no_shrink: bool,
    /// Print results as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Write the ledger into this file.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

/// Options of `group` and `join`.
#[derive(Clone, Debug, Args)]
pub struct SeedArgs {
    /// Number of seeds.
    #[arg(long, value_name = "N", default_value_t = 200, conflicts_with = "seed")]
    pub seeds: u64,
    /// First seed.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "seed")]
    pub first_seed: u64,
    /// Run this one seed, and show what goes wrong in it and what the cores log.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// With --seed, what of that the cores log.
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = level)]
    pub log: log::LevelFilter,
    /// Switch a deliberate bug on; needs a build with `--features bugs`.
    #[arg(long, value_name = "BUG", value_parser = bug)]
    pub bug: Option<Bug>,
}

impl SeedArgs {
    /// The seeds to run; of a single one what the cores log is kept from now on.
    #[must_use]
    pub fn seeds(&self) -> std::ops::Range<u64> {
        if self.seed.is_some() {
            crate::trace::log_from(self.log);
        }
        self.seed.map_or(self.first_seed..self.first_seed + self.seeds, |seed| seed..seed + 1)
    }
}

fn bug(text: &str) -> Result<Bug, String> {
    let known = |bug: &&Bug| bug.name().eq_ignore_ascii_case(text.trim());
    Bug::ALL.iter().find(known).copied().ok_or_else(|| "no bug that is built in; the ledger tools/sim/BUGS.md lists them".to_owned())
}

/// Options of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Number of seeds of a campaign.
    #[arg(long, value_name = "N", default_value_t = 200, conflicts_with_all = ["seed", "plan"])]
    pub seeds: u64,
    /// First seed of a campaign.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with_all = ["seed", "plan"])]
    pub first_seed: u64,
    /// What the runs look for.
    #[arg(long, value_enum, default_value_t)]
    pub profile: Profile,
    /// Threads of a campaign; by default one per processor.
    #[arg(long, value_name = "N", conflicts_with_all = ["seed", "plan"])]
    pub jobs: Option<usize>,
    /// Time after which no further seed is begun.
    #[arg(long, value_name = "DURATION", value_parser = cistern_text::duration, conflicts_with_all = ["seed", "plan"])]
    pub duration: Option<Duration>,
    /// Print results as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Run this one seed and show it.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Run the plan in this file and show it.
    #[arg(long, value_name = "FILE", conflicts_with = "seed")]
    pub plan: Option<PathBuf>,
    /// Switch a deliberate bug on; needs a build with `--features bugs`.
    #[arg(long, value_name = "BUG", value_parser = bug)]
    pub bug: Option<Bug>,
    /// Print everything that happens, one line each.
    #[arg(long)]
    pub trace: bool,
    /// With --trace, print all fields of messages.
    #[arg(long, requires = "trace")]
    pub wide: bool,
    /// With --trace, print also what the cores log, from this level on.
    #[arg(long, value_name = "LEVEL", requires = "trace", value_parser = level)]
    pub log: Option<log::LevelFilter>,
    /// Write every datagram into a capture file. Its times are true ones, which no machine's clock shows: to `cistern-dump audit` it
    /// was taken between the hosts.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Run it twice; the two runs must give the same hash (I18).
    #[arg(long)]
    pub twice: bool,
    /// Leave out all faults but these, by number; "none" leaves out all.
    #[arg(long, value_name = "LIST", value_parser = faults)]
    pub keep_faults: Option<FaultList>,
    /// End the faults at this time, as "12.5s" or "800ms".
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub until: Option<u64>,
    /// Leave out all agents but so many.
    #[arg(long, value_name = "N")]
    pub agents: Option<usize>,
    /// Do not look for a smaller run that fails.
    #[arg(long)]
    pub no_shrink: bool,
    /// Write the plan that was run (a failing one after shrinking) into this file.
    #[arg(long, value_name = "FILE")]
    pub save_plan: Option<PathBuf>,
}

/// Numbers of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultList(pub Vec<u32>);

fn faults(text: &str) -> Result<FaultList, String> {
    if text == "none" {
        return Ok(FaultList(Vec::new()));
    }
    let numbers: Result<Vec<u32>, _> = text.split(',').map(|number| number.trim().parse()).collect();
    numbers.map(FaultList).map_err(|_| "numbers of faults, as \"3,7\", or \"none\"".to_owned())
}

fn level(text: &str) -> Result<log::LevelFilter, String> {
    text.parse().map_err(|_| "error, warn, info, debug or trace".to_owned())
}

/// A span in nanoseconds.
fn span(text: &str) -> Result<u64, String> {
    u64::try_from(cistern_text::duration(text)?.as_nanos()).map_err(|_| "a time must not be immense".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn options_fit_together() {
        Cli::command().debug_assert();
        let parse = |text: &str| Cli::try_parse_from(text.split(' '));
        assert!(parse("cistern-sim run --seed 5 --keep-faults 3,7 --until 12.5s --agents 2").is_ok());
        assert!(parse("cistern-sim run --seed 5 --seeds 7").is_err());
        assert_eq!(parse("cistern-sim run --profile nonsense").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn faults_are_numbers() {
        assert_eq!((faults("3, 7"), faults("none")), (Ok(FaultList(vec![3, 7])), Ok(FaultList(vec![]))));
        assert!(faults("3;7").is_err());
    }
}
