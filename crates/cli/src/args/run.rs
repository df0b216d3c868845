//! The command lines of programs that stay: server, host agent, and looks at them from time to time.
//!
//! Decides: names of their flags, their help, their examples. Leaves to others: what they do, which settings are possible (`settings`).

use super::Common;
use super::{duration, size};
use cistern_client::{Address, DEFAULT_PORT};
use clap::{Args, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const SERVE_HELP: &str = "\
Examples:
  cisternd init /var/lib/cistern/store                      creates the store, once
  cisternd --store /var/lib/cistern/store
  cisternd --store DIR --listen 10.0.0.1:7311 --insecure    for other hosts, in a trusted network
  cisternd --volatile --new-cluster                         to try it out: everything in memory
  cisternd --store DIR --pcap server.pcap                   with every datagram in a capture file, for cistern-dump

CISTERN_LOG=LEVEL says what is logged to standard error: off, error, warn, info (the default), debug, trace; also by crate: \
CISTERN_LOG=warn,cistern_server=debug

Exit status:
  0   ended by a signal
  1   cannot serve: an address or a control socket cannot be used
  2   wrong usage or settings
  65  --store: the store is damaged, or the directory is a backup or something else
  66  --store: there is no store
  70  a defect of cistern itself
  74  the store could not be read or written; nothing acknowledged is lost
  75  --store: another process has the store
  76  --store: a newer version of cistern has written the store
  77  --store: no permission to read and write the store, or unreliable file locks on its file system";

#[derive(Args, Debug)]
pub(crate) struct ServerStatus {
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(super) const PING_HELP: &str = "\
Each round trip that takes longer than --timeout (2 s by default) counts as lost.

Examples:
  cistern ping
  cistern ping --server 10.0.0.1 -c 10 -i 200ms

Exit status:
  0   the server answered at least once
  2   wrong usage or settings
  69  it never answered, or it refuses a session";

#[derive(Args, Debug)]
pub(crate) struct Ping {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Number of pings
    #[arg(short = 'c', long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// Time between two pings
    #[arg(short = 'i', long, value_parser = duration, default_value = "1s", value_name = "DURATION")]
    pub(crate) interval: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Time between two refreshes
    #[arg(short = 'i', long, value_parser = duration, default_value = "200ms", value_name = "DURATION")]
    pub(crate) interval: Duration,
    /// Stop after N refreshes
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

/// The host's agent: one cache and one lease for all programs of this computer.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Run the host's agent: one cache and one lease for all programs of this computer
    #[command(after_help = AGENT_HELP)]
    Run(RunAgent),
    /// Show the agent's session, lease and counters
    Status(AgentStatus),
    /// Show the agent's lease live
    #[command(after_help = TOP_HELP)]
    Top(Top),
}

pub(super) const AGENT_HELP: &str = "\
On SIGHUP (`systemctl reload`) the agent reads the settings file again and applies the log filter. Other changed settings are logged, and take effect at \
the next start: its session was opened with the old ones.

Examples:
  cistern agent run
  cistern agent run --state /var/lib/cistern/agent --socket-group cistern";

const TOP_HELP: &str = "\
On a terminal the view is redrawn in place; elsewhere each refresh is a line. Looking at an agent costs it no message and renews nothing.

Examples:
  cistern agent top
  cistern agent top -n 10 --json";

#[derive(Args, Debug)]
pub(crate) struct AgentStatus {
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RunAgent {
    #[command(flatten)]
    pub(crate) common: Common,
    /// State directory: the agent's identity, and its control socket. Default: /var/lib/cistern/agent for root; for others
    /// $XDG_STATE_HOME/cistern/agent (else ~/.local/state), with the socket in $XDG_RUNTIME_DIR/cistern/agent.sock
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Display name of this agent
    #[arg(long)]
    pub(crate) label: Option<String>,
    /// Also serve members of this group (name or number): the socket gets mode 0660, its directory 0710, and that group
    #[arg(long, value_name = "GROUP")]
    pub(crate) socket_group: Option<String>,
    /// What an idle agent does with its lease
    #[arg(long, value_enum)]
    pub(crate) idle: Option<Idle>,
}

/// What an idle agent does (wire-spec section 11.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Idle {
    /// Renews while it holds any lock
    Eager,
    /// Lets the lease lapse unless something is in use
    Lazy,
    /// Renews while the cache is used, then ends the session
    Auto,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// Address to listen on (host, host:port, [v6]:port), with all addresses of a name; repeatable
    #[arg(long, short = 'l', value_name = "ADDRESS", default_values_t = [Address::from(SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)))])]
    pub(crate) listen: Vec<Address>,
    /// Directory of the store, on a local file system; either this or --volatile is required
    #[arg(long, env = "CISTERN_STORE", value_name = "DIR", conflicts_with = "volatile")]
    pub(crate) store: Option<PathBuf>,
    /// Keep everything in memory: the store is empty after each start
    #[arg(long)]
    pub(crate) volatile: bool,
    /// With --volatile: grant locks at once, since no agent holds locks of an earlier server. Otherwise the server first waits for the
    /// longest lease
    #[arg(long)]
    pub(crate) new_cluster: bool,
    /// Disk quota of the store, at least 256M: above it only reads, locks and removals are served, until 1/32 of it is free again
    #[arg(long, value_parser = store_limit, value_name = "SIZE", conflicts_with = "volatile")]
    pub(crate) store_limit: Option<u64>,
    /// Free space to keep on the store's file system, at least 192M: below it only reads, locks and removals are served, until 1/8 more
    /// is free
    #[arg(long, value_parser = store_reserve, default_value = "256M", value_name = "SIZE")]
    pub(crate) store_reserve: u64,
    /// Allow addresses other than loopback, although datagrams are neither encrypted nor authenticated
    #[arg(long)]
    pub(crate) insecure: bool,
    /// State directory: the control socket. Default: /var/lib/cistern/server for root; for others $XDG_STATE_HOME/cistern/server
    /// (else ~/.local/state), with the socket in $XDG_RUNTIME_DIR/cistern/server.sock
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Settings file (TOML); else ~/.config/cistern/cistern.toml or /etc/cistern/cistern.toml, if there is one
    #[arg(long, env = "CISTERN_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Lease period τ of agents that request none
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) lease: Option<Duration>,
    /// Shortest lease period that an agent may request
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) lease_min: Option<Duration>,
    /// Longest lease period that an agent may request
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) lease_max: Option<Duration>,
    /// Bound δ on the relative rate of any two clocks
    #[arg(long, value_name = "FRACTION")]
    pub(crate) delta: Option<f64>,
    /// Delivery timeout Td
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) delivery_timeout: Option<Duration>,
    /// Most sessions
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_sessions: Option<u32>,
    /// Serve metrics in the Prometheus text format at http://ADDRESS/metrics (host:port, [v6]:port; a port alone is one of 127.0.0.1)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<Address>,
    /// Print one line of JSON with the addresses when ready
    #[arg(long)]
    pub(crate) json: bool,
    /// Write every datagram that this process sends or receives to a capture file (pcap; for cistern-dump, tcpdump, Wireshark)
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
}

fn store_limit(text: &str) -> Result<u64, String> {
    size(text)?
        .checked_sub(256 << 20)
        .map(|more| more + (256 << 20))
        .ok_or_else(|| "must be at least 256M: journals alone may take half of that".to_owned())
}

/// What the engine may need for a while when the last commit has found no room: tables of what is in memory, and merging the newest ones.
const RESERVE_MIN: u64 = 192 << 20;

fn store_reserve(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes >= RESERVE_MIN {
        return Ok(bytes);
    }
    Err("must be at least 192M: the store needs as much for a while to write what it has taken in, and fails without it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_room_for_its_journals() {
        assert_eq!((store_limit("256M"), store_limit("255M").is_err()), (Ok(256 << 20), true));
        assert_eq!((store_reserve("192M"), store_reserve("191M").is_err()), (Ok(192 << 20), true));
    }
}
