//! The command line of `cistern plan`.
//!
//! Decides: names of its flags, its help, its examples. Leaves to others: what it does (`plan`).

use cistern_text::duration;
use cistern_text::quantity::{count, fraction, rate, share, time};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const PLAN_HELP: &str = "\
Each wish (--overhead, --recover-within, --unavailable) bounds the lease period τ from one side; without any, 1 % of overhead is asked for. \
With --recover-within the longest τ that fulfils all is recommended: a failover is then as quick as was asked for, and messages are fewest. \
Without it nothing bounds a failover, and the default τ is recommended, or the nearest to it that fulfils the rest.

δ, ε, Td and the phases of the agent are those of the settings file (--config), else the defaults.

The period is the server's own, which agents have that ask for none. With --lease, what one costs is told that some agents ask for: \
themselves, and those who wait for their locks. Nobody else pays for it.

With --from, requests are those in a capture of one server's traffic: overhead is computed from the gaps between them, agent by agent, \
so bursts count as they are. What was sent again counts as lost.

Examples:
  cistern plan --rate 10/s --fail-every 1d --repair 2s --overhead 1% --recover-within 2s
  cistern plan --rate 10/s --unavailable 0.0001%
  cistern plan --rate 10/s --lease 60s --lease 500ms
  cistern plan --from capture.pcap --recover-within 2s

Exit status:
  0  a period was found
  1  no period fulfils all wishes, or the capture cannot be read
  2  wrong usage or settings";

/// Chooses a lease period.
#[derive(Args, Debug)]
pub(crate) struct Plan {
    /// Requests of one agent
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "from", allow_hyphen_values = true)]
    pub(crate) rate: Option<f64>,
    /// A capture (pcap or pcapng) of a server's traffic, from which the requests are taken
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
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
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print comma-separated values, with a line of names first
    #[arg(long)]
    pub(crate) csv: bool,
}
