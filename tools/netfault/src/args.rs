//! The command line.
//!
//! Decides names of options, their help and examples. Leaves to others: the language of commands (`command`), what is done (`main`).

use cistern_driver::Address;
use cistern_text::{duration, size};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Commands, in a script (behind a time), by `ctl`, and by --with:
  cut                          nothing passes
  loss 10%                     so many are lost
  duplicate 5% within 50ms     so many come again
  reorder 10% by 30ms          so many are up to so much later than others
  delay 20ms jitter 5ms        all take so much longer, and up to so much more
  rate 64kbit queue 200ms      (or 100pps) no faster; what would wait longer is lost
  flap 2s                      nothing passes in the first half of each period
  corrupt 1%                   one bit of so many is flipped
  heal | heal loss | heal #3   all rules end, or those of an action, or one
  end                          the proxy ends
A rule may be narrowed, in any order, by a->s or s->a (to the server, from it), `agent WHO` (1 for the first that was seen, an address, a \
host, or a label) and `kind KIND` (a kind of message, such as DEMAND). A rule takes the place of one of the same action and scope.

A script has one command a line, behind its time; a span makes a rule end by itself; # begins a remark:
  0s      delay 5ms jitter 2ms
  2s      cut a->s agent web-1
  3.5s    heal cut
  5s..8s  loss 20% kind DEMAND

Examples:
  cistern-netfault --server 127.0.0.1:7311 --listen 127.0.0.1:7312 --with 'loss 10%' --with 'delay 20ms jitter 5ms'
  cistern-netfault --server 127.0.0.1:7311 --listen 127.0.0.1:7312 --script night.fault --seed 7 --pcap seen.pcap
  cistern-netfault --server 10.0.0.1:7311 --listen 10.0.0.9:7311 --control /tmp/fault.sock
  cistern-netfault ctl --control /tmp/fault.sock cut 'a->s' agent web-1
  cistern-netfault ctl --control /tmp/fault.sock heal
  cistern-netfault ctl --control /tmp/fault.sock stats --json

Exit status:
  0   ended because it was asked to (SIGINT, SIGTERM, `end`)
  1   an address, a control socket or a file cannot be used, or the proxy does not answer
  2   wrong usage, or a mistake in a script or a command";

/// A bad network on purpose: a UDP proxy between agents and a server.
#[derive(Debug, Parser)]
#[command(name = "cistern-netfault", version, after_help = EXAMPLES, max_term_width = 120, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Cli {
    /// What to do instead of running a proxy
    #[command(subcommand)]
    pub(crate) act: Option<Act>,
    /// The proxy
    #[command(flatten)]
    pub(crate) run: Run,
}

/// What else the program does.
#[derive(Debug, Subcommand)]
pub(crate) enum Act {
    /// Command a running proxy: a command as in a script, or `stats`
    Ctl(Ctl),
    /// Read a script and say what is wrong with it, without running it
    Check {
        /// The script
        script: PathBuf,
    },
}

/// How a proxy runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The server's address (host, host:port, [v6]:port); of a name's addresses IPv4 goes first
    #[arg(long, value_name = "ADDRESS", required = true)]
    pub(crate) server: Option<Address>,
    /// The address that agents are told instead, in the same form; port 0, which is the default, lets the system choose
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: Address,
    /// A command to begin with; repeat for several
    #[arg(long, value_name = "COMMAND")]
    pub(crate) with: Vec<String>,
    /// Commands with their times
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// What chance comes from; told at the start, by default another one each time
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// A Unix socket for `ctl`
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Write every datagram that came or went, on both sides, to a capture file
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Write the agents' side only: what agents sent and were sent
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap_agents: Option<PathBuf>,
    /// Write the server's side only: what the server was sent and sent
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap_server: Option<PathBuf>,
    /// Most agents at a time
    #[arg(long, default_value_t = 1_024, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) agents_max: u32,
    /// Forget an agent that is silent for so long, at least a second
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = idle)]
    pub(crate) idle: Duration,
    /// Hold at most so many bytes of datagrams that are to leave later, from 1M to 16G
    #[arg(long, default_value = "64M", value_name = "SIZE", value_parser = held_max)]
    pub(crate) held_max: usize,
    /// Print JSON: one line when ready, one with the counts at the end
    #[arg(long)]
    pub(crate) json: bool,
}

fn idle(text: &str) -> Result<Duration, String> {
    let span = duration(text)?;
    if span < Duration::from_secs(1) { Err("an agent is not forgotten before a second of silence".to_owned()) } else { Ok(span) }
}

fn held_max(text: &str) -> Result<usize, String> {
    let bytes = usize::try_from(size(text)?).ok().filter(|bytes| (1 << 20..=1 << 34).contains(bytes));
    bytes.ok_or_else(|| "it must be 1M to 16G".to_owned())
}

/// A command to a running proxy.
#[derive(Debug, clap::Args)]
pub(crate) struct Ctl {
    /// The proxy's control socket
    #[arg(long, value_name = "SOCKET", env = "CISTERN_NETFAULT")]
    pub(crate) control: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The command's words
    #[arg(required = true, value_name = "COMMAND")]
    pub(crate) words: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_are_those_of_all_programs() {
        let read =
            |words: &str| Cli::try_parse_from(format!("cistern-netfault --server ::1 {words}").split_whitespace()).map(|cli| cli.run);
        let given = |words| read(words).map(|run| (run.idle, run.held_max)).unwrap();
        assert_eq!(given(""), (Duration::from_secs(300), 64 << 20));
        assert_eq!(given("--idle 90 --held-max 1MiB"), (Duration::from_secs(90), 1 << 20));
        assert_eq!(given("--idle 1.5s --held-max 2G"), (Duration::from_millis(1_500), 2 << 30));
        for words in ["--idle 0", "--idle 900ms", "--idle soon", "--held-max 1023K", "--held-max 17G", "--held-max much"] {
            assert!(read(words).is_err(), "{words}");
        }
    }
}
