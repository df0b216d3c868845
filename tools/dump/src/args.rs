//! The command line.
//!
//! Decides: names of options and commands, their help, their examples, and which options exclude each other. Without a command it shows
//! messages, as tcpdump does. Leaves to others: what each option does; what its value may be (each option's own type).

use crate::audit::AuditArgs;
use crate::filter::{HostFilter, KindFilter, SessionPrefix};
use crate::labels::NamedAddress;
use crate::time::When;
use clap::{ArgAction, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

const ABOUT: &str = "\
Shows what Cistern says on the wire: every message in words, from captures or live.

A line is a message: time (UTC), from > to, session (the first 8 of 16 digits), packet number, kind, number, meaning. A packet number is \
p3 for transmission 3 of its session and direction, if its handshake was seen. A number is n7 for request 7 of its session, c7 for control \
message 7, q7 for notice 7. Several messages of one datagram stand under each other, the later ones behind a +. Of an answer that renews \
the lease, the line says from which transmission the lease counts, and until when, as seen where the capture was made.";

const EXAMPLES: &str = "\
Examples:
  cistern-dump run.pcap                     every message of a capture (pcap or pcapng)
  cistern-dump -i lo                        live (as root, or with CAP_NET_RAW)
  cistern-dump -i any -w site.pcap          live, and kept
  ssh host tcpdump -i any -U -w - udp port 7311 | cistern-dump -
  cistern-dump --tail agent.pcap            what a program started with --pcap agent.pcap is writing
  cistern-dump -ttt --kind DEMAND,RECEIPT,RELEASE,GRANT run.pcap
  cistern-dump --kind '!KEEPALIVE,ALIVE' --object 18 run.pcap
  cistern-dump --session 3f2a --nonce 7 -v run.pcap
  cistern-dump --follow 3f2a91c4 agent.pcap server.pcap
  cistern-dump --leases run.pcap            who had a lease when, what was demanded, who was stolen from
  cistern-dump --stats run.pcap             messages, round trips, retransmissions, what renewing cost
  cistern-dump --ladder failover.html run.pcap   who said what to whom, with leases and locks as bars
  cistern-dump --json run.pcap | jq -r 'select(.kind == \"NACK\") | .time'
  cistern-dump --name 10.0.0.1:7311=server --since +10 --until +12.5 run.pcap

Exit status:
  0   all was read
  2   wrong usage
  65  an input is no capture, or is damaged or cut off; what could be read was shown
  66  an input is not there or cannot be opened
  74  reading or writing failed
  77  no right to capture

Captures are of Ethernet (also VLAN), Linux cooked, raw IP or loopback, with IPv4 or IPv6; what could not be read of one is counted and \
named on standard error when it ends. A signal (Ctrl-C) ends it with a summary. docs/inspecting.md reads three captures line by line, and \
has the schema of --json.";

/// Shows what Cistern says on the wire: messages in words, from captures or live.
#[derive(Debug, Parser)]
#[command(
    name = "cistern-dump",
    version,
    about = "Shows what Cistern says on the wire: messages in words, from captures or live",
    long_about = ABOUT,
    after_help = EXAMPLES,
    max_term_width = 120,
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    /// What to do instead of showing messages
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What to show
    #[command(flatten)]
    pub show: Show,
}

const AUDIT_HELP: &str = "\
Examples:
  cistern-dump audit run.pcap                                   a capture from anywhere on the way
  cistern-dump audit --vantage server --complete server.pcap    tcpdump on the server's host, which dropped nothing
  cistern-dump audit --vantage agent-process --complete agent.pcap
                                                                what --pcap of a program has written
  cistern-dump audit --lease-period 2s late.pcap                sessions were opened before the capture began
  cistern-dump audit --json run.pcap | jq '.violations'
  cargo run --release -p cistern-dump --features bugs -- audit --bugs

Exit status: 0 no violation; 1 a violation; else as without a command. docs/audit-rules.md lists the rules.";

/// What is done instead of showing messages.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say which rules of the protocol captures keep, and which they break
    #[command(after_help = AUDIT_HELP)]
    Audit(AuditArgs),
}

/// What is shown, and of which traffic.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// Captures, merged by time; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["interface"])]
    pub files: Vec<PathBuf>,
    /// Capture live on this interface; `any` is all of them
    #[arg(long, short = 'i', value_name = "IFACE", conflicts_with = "files")]
    pub interface: Option<String>,
    /// Go on at the end of the file, as it grows, until interrupted; takes one file
    #[arg(long, conflicts_with = "interface")]
    pub tail: bool,
    /// Write the datagrams that are shown to this capture as well (with IP headers made up anew)
    #[arg(long, short = 'w', value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Open the records of sealed sessions by this key log (`--key-log` of the programs), and treat them as plain datagrams, with -w as well
    #[arg(long, value_name = "FILE")]
    pub key_log: Option<PathBuf>,
    /// What each line shows
    #[command(flatten)]
    pub form: Form,
    /// Which traffic is shown
    #[command(flatten)]
    pub select: Select,
}

/// How it is shown.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What is shown")]
pub struct Form {
    /// Times: -t none, -tt seconds since 1970, -ttt since the line before, -tttt date and time, -ttttt since the first line
    #[arg(short = 't', action = ArgAction::Count)]
    pub times: u8,
    /// All fields of every message; -vv also the bytes
    #[arg(long = "verbose", short = 'v', action = ArgAction::Count)]
    pub verbose: u8,
    /// Packet numbers as they are, not counted from the first of their session
    #[arg(long, short = 'S', conflicts_with_all = ["json", "stats", "leases", "ladder"])]
    pub absolute: bool,
    /// One JSON object a line, for each message; with --stats or --leases, one for all
    #[arg(long)]
    pub json: bool,
    /// Show this address, or address and port, as this label
    #[arg(long = "name", value_name = "ADDR=LABEL")]
    pub names: Vec<NamedAddress>,
    /// Show agents by the labels that they gave themselves
    #[arg(long)]
    pub labels: bool,
    /// One session in order, from its handshake to what became of it, with its lease at every line
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["stats", "leases", "session"])]
    pub follow: Option<SessionPrefix>,
    /// Leases instead of messages: renewals, phases, demands and answers, failed deliveries, steals, by session
    #[arg(long, conflicts_with = "stats")]
    pub leases: bool,
    /// A picture instead of messages, written to this file (.svg or .html): who said what to whom, and who had a lease and which locks
    #[arg(long, value_name = "FILE", conflicts_with_all = ["stats", "leases", "json", "verbose"])]
    pub ladder: Option<PathBuf>,
    /// Figures instead of messages
    #[arg(long)]
    pub stats: bool,
    /// The lease period of sessions whose WELCOME is not in the capture, which alone tells it: 2s, 500ms
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub lease_period: Option<Duration>,
    /// Where agents begin to renew, as a fraction of the lease period; for the renewals that --stats expects
    #[arg(long, value_name = "FRACTION", default_value_t = 0.6, requires = "stats", value_parser = fraction)]
    pub renewing_at: f64,
}

/// Which traffic is shown. What is hidden still counts for what is known of the rest.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Which traffic")]
pub struct Select {
    /// To or from one of these IP addresses
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub host: Vec<HostFilter>,
    /// To or from one of these ports
    #[arg(long, value_name = "PORT", value_delimiter = ',')]
    pub port: Vec<u16>,
    /// Of sessions that begin with one of these hexadecimal digits
    #[arg(long, value_name = "SESSION", value_delimiter = ',')]
    pub session: Vec<SessionPrefix>,
    /// Messages of these kinds, as wire-spec.md names them; with `!` before the first, of all others. MALFORMED is what does not parse
    #[arg(long, value_name = "KINDS")]
    pub kind: Option<KindFilter>,
    /// Messages in which this object occurs
    #[arg(long, value_name = "OBJECT", value_parser = object)]
    pub object: Option<u64>,
    /// Messages about this request
    #[arg(long, value_name = "NONCE")]
    pub nonce: Option<u64>,
    /// From this time on: 04:50:09.5 (UTC, on the day of the first datagram), +2.5 (seconds after it), 2026-11-22T04:50:09Z, or seconds
    /// since 1970
    #[arg(long, value_name = "TIME")]
    pub since: Option<When>,
    /// Up to this time, in the same forms
    #[arg(long, value_name = "TIME")]
    pub until: Option<When>,
    /// End after so many datagrams were shown
    #[arg(long, short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

fn fraction(text: &str) -> Result<f64, String> {
    let fraction: f64 = text.parse().map_err(|_| "a number between 0 and 1 is wanted".to_owned())?;
    if fraction > 0.0 && fraction < 1.0 { Ok(fraction) } else { Err("a number between 0 and 1 is wanted".to_owned()) }
}

/// The longest lease period that a server can be set to.
const TAU_MAX: Duration = Duration::from_secs(3_600);

/// A lease period: a span of time that is not nothing, of at most an hour.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    match Some(cistern_text::duration(text)?).filter(|span| !span.is_zero()) {
        None => Err("a lease period is not nothing: write 2s or 500ms".to_owned()),
        Some(span) if span > TAU_MAX => Err(format!("{text:?} is longer than any lease: a server gives an hour at most")),
        Some(span) => Ok(span),
    }
}

/// `18`, `#18` as lines show it, or `0x12`.
fn object(text: &str) -> Result<u64, String> {
    let text = text.trim_start_matches('#');
    let read = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    read.map_err(|_| format!("{text:?} is no object: write 18, #18 or 0x12"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_file_is_needed_unless_an_interface_is_named() {
        let parse = |args: &[&str]| Cli::try_parse_from([&["cistern-dump"], args].concat());
        assert!(parse(&["a.pcap", "b.pcap"]).is_ok());
        assert!(parse(&["-i", "lo"]).is_ok());
        assert!(parse(&[]).is_err());
        assert!(parse(&["-i", "lo", "a.pcap"]).is_err());
        assert_eq!(parse(&["-ttt", "-vv", "a.pcap"]).unwrap().show.form.times, 3);
    }

    #[test]
    fn spans_have_a_unit_and_are_not_nothing() {
        assert_eq!((span("2s"), span("500ms")), (Ok(Duration::from_secs(2)), Ok(Duration::from_millis(500))));
        assert!(["2sss", "0s", "-1s", "1.8446744073709550e19s", "61m", "soon", ""].iter().all(|text| span(text).is_err()));
        let audit = |tau| Cli::try_parse_from(["cistern-dump", "audit", "--lease-period", tau, "a.pcap"]).map(|cli| cli.command);
        assert!(matches!(audit("1m"), Ok(Some(Command::Audit(args))) if args.lease_period == Some(Duration::from_secs(60))));
        assert!(["2sss", "0s", "1.8446744073709550e19s"].iter().all(|tau| audit(tau).is_err()));
    }

    #[test]
    fn objects_are_written_as_lines_show_them_and_as_numbers() {
        assert_eq!((object("18"), object("#18"), object("0x12")), (Ok(18), Ok(18), Ok(18)));
        assert!(object("eighteen").is_err());
    }
}
