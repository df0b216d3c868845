//! The command lines of programs that stay: server, host agent, and looks at them from time to time.
//!
//! Decides: names of their flags, their help, their examples. Leaves to others: what they do, which settings are possible (`settings`).

use super::Common;
use super::{duration, size};
use cistern_client::{Address, DEFAULT_PORT};
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const SERVE_HELP: &str = "\
Examples:
  cisternd --store /var/lib/cistern/store --new-cluster     the first time: makes the store
  cisternd --store /var/lib/cistern/store                   every other time
  cisternd --store DIR --listen 10.0.0.1:7311 --insecure    for other hosts, in a trusted network
  cisternd --volatile --new-cluster                         to try it out: everything in memory
  cisternd --store DIR --pcap server.pcap                   with every datagram in a capture file, for cistern-dump

CISTERN_LOG=LEVEL says what is logged to standard error: off, error, warn, info (the default), debug, trace; also by crate: \
CISTERN_LOG=warn,cistern_server=debug

Exit status:
  0   ended because it was asked to
  1   cannot serve: an address or a control socket cannot be used
  2   wrong usage or settings
  65  --store: the store is damaged, or the directory is a backup or something else
  66  --store: there is no store
  70  a defect of cistern itself
  74  the store could not be read or written; nothing that was promised is lost
  75  --store: another process has the store
  76  --store: a newer version of cistern has written the store
  77  --store: the store may not be read and written, or its file system's locks are not to be trusted";

#[derive(Args, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Ask a server on this host by its control socket: sessions, counters, drops
    #[arg(long, value_name = "SOCKET", env = "CISTERN_CONTROL")]
    pub(crate) control: Option<PathBuf>,
}

pub(super) const PING_HELP: &str = "\
Every round trip gets --give-up, 2 s by default, and is lost when it takes longer.

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
    /// How many
    #[arg(short = 'c', long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// Time between them
    #[arg(short = 'i', long, value_parser = duration, default_value = "1s", value_name = "TIME")]
    pub(crate) interval: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct WatchLease {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Time between two looks
    #[arg(short = 'i', long, value_parser = duration, default_value = "200ms", value_name = "TIME")]
    pub(crate) interval: Duration,
    /// End after so many looks
    #[arg(short = 'n', long)]
    pub(crate) count: Option<u64>,
}

pub(super) const AGENT_HELP: &str = "\
On SIGHUP (`systemctl reload`) it reads the settings file again and takes up the log's filter. Its session was opened with the other settings: it logs \
which of them have changed, and they wait for its next start.";

#[derive(Args, Clone, Debug)]
pub(crate) struct Agent {
    #[command(flatten)]
    pub(crate) common: Common,
    /// State directory: the agent's identity, and its control socket. Default: /var/lib/cistern/agent for root; for others
    /// $XDG_STATE_HOME/cistern/agent (else ~/.local/state), with the socket in $XDG_RUNTIME_DIR/cistern/agent.sock
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// What people see of this agent in listings
    #[arg(long)]
    pub(crate) label: Option<String>,
    /// Serve the members of this group, too (name or number): the socket gets mode 0660, its directory 0710, and that group
    #[arg(long, value_name = "GROUP")]
    pub(crate) socket_group: Option<String>,
    /// What the agent does when it is idle and its lease runs out
    #[arg(long, value_enum)]
    pub(crate) idle: Option<Idle>,
}

/// What an idle agent does (wire-spec section 11.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Idle {
    /// Renews as long as it holds any lock
    Eager,
    /// Lets the lease lapse unless something is in use
    Lazy,
    /// Renews while the cache is in use, then ends the session
    Auto,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// Address to listen on (host, host:port, [v6]:port): each that a name has; repeat for several
    #[arg(long, short = 'l', value_name = "ADDRESS", default_values_t = [Address::from(SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)))])]
    pub(crate) listen: Vec<Address>,
    /// Keep everything in this directory, on a file system of this host; this or --volatile must be chosen
    #[arg(long, env = "CISTERN_STORE", value_name = "DIR", conflicts_with = "volatile")]
    pub(crate) store: Option<PathBuf>,
    /// Keep everything in memory: the store is empty at each start
    #[arg(long)]
    pub(crate) volatile: bool,
    /// Make the store if there is none, and grant locks at once from an empty one: no agent can hold locks of a server before
    #[arg(long)]
    pub(crate) new_cluster: bool,
    /// Make the store if there is none; the time of a lease is waited for, as agents may hold locks of a server before
    #[arg(long, conflicts_with = "volatile")]
    pub(crate) new_store: bool,
    /// Most bytes that the store may take on disk; then only reads, locks and removals go on, until it takes a thirty-second less (256M
    /// at least)
    #[arg(long, value_parser = store_limit, value_name = "SIZE", conflicts_with = "volatile")]
    pub(crate) store_limit: Option<u64>,
    /// Bytes to be kept free on the store's file system; with fewer only reads, locks and removals go on, until an eighth more is free
    /// (192M at least)
    #[arg(long, value_parser = store_reserve, default_value = "256M", value_name = "SIZE")]
    pub(crate) store_reserve: u64,
    /// Listen on other than loopback addresses although datagrams are neither sealed nor authenticated
    #[arg(long)]
    pub(crate) insecure: bool,
    /// State directory: the control socket. Default: /var/lib/cistern/server for root; for others $XDG_STATE_HOME/cistern/server
    /// (else ~/.local/state), with the socket in $XDG_RUNTIME_DIR/cistern/server.sock
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Settings file (TOML); else ~/.config/cistern/cistern.toml or /etc/cistern/cistern.toml, if there is one
    #[arg(long, env = "CISTERN_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Lease period τ of agents that ask for none
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) lease: Option<Duration>,
    /// Shortest lease period that an agent may ask for
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) lease_min: Option<Duration>,
    /// Longest lease period that an agent may ask for
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) lease_max: Option<Duration>,
    /// Bound δ on the relative rate of any two clocks
    #[arg(long, value_name = "FRACTION")]
    pub(crate) delta: Option<f64>,
    /// Delivery timeout Td
    #[arg(long, value_parser = duration, value_name = "TIME")]
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
