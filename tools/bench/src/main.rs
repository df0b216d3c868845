//! `cistern-bench`: what a request, a lock, a change and a failover cost, beside the limit of the socket, and beside the aims.
//!
//! Decides the command line and the order of a run. This process is the load generator; the server and the echo run in processes of
//! their own, started from this program (`host`, `under_test`). Each workload is a file that gives a `section` of figures; `aims` holds
//! them against P1 to P11, `report` prints. docs/performance.md says how to read it.
//! Exit status: 0 whatever was measured, 1 if something could not be, 2 for a wrong command line.

mod agent;
mod aims;
mod attacked;
mod beside_echo;
mod burst;
mod cached;
mod cases;
mod charts;
mod contended;
mod cores;
mod crowd;
mod durable;
mod echo;
mod failover;
mod figures;
mod flease;
mod fleet;
mod handshakes;
mod holder;
mod host;
mod idle;
mod loads;
mod mixed;
mod opening;
mod others;
#[cfg(feature = "peers")]
mod peers;
mod progress;
mod renewals;
mod report;
mod restart;
mod scale;
mod section;
mod sends;
mod sessions;
mod slot;
mod spin;
mod takeover;
mod traffic;
mod trouble;
mod under_test;

use crate::cases::Plan;
use crate::cores::Cores;
use crate::host::{Role, Setup};
use crate::others::{Busy, Others};
use crate::progress::Progress;
use crate::report::{Failed, Report};
use crate::section::{Section, Style};
use crate::trouble::Trouble;
use clap::{Parser, Subcommand, ValueEnum};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measures what requests, locks, changes and failovers cost, on loopback, beside a plain UDP echo and beside the aims, in one run.
#[derive(Debug, Parser)]
#[command(name = "cistern-bench", version, after_help = EXAMPLES)]
struct Args {
    /// Only these workloads; all of them without it
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<Workload>,
    /// Length of one round of one side (10 ms to 60 s)
    #[arg(long, global = true, value_name = "DURATION", default_value = "500ms", value_parser = round)]
    duration: Duration,
    /// Rounds of each side, after one that does not count (1 to 1000)
    #[arg(long, global = true, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// echo: requests of one agent in flight in the cases with several (2 to 64)
    #[arg(long, global = true, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(2..=64))]
    in_flight: u8,
    /// peers: longest warming up of one service for one kind of request (10 ms to 60 s)
    #[arg(long, global = true, value_name = "DURATION", default_value = "20s", value_parser = round)]
    warm_up: Duration,
    /// idle, peers: open sessions that do nothing (64 to 1000000)
    #[arg(long, global = true, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    sessions: u32,
    /// sessions, scale: sessions of the largest tables (1000 to 1000000; 10000 in sessions, 1000000 in scale)
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    most_sessions: Option<u32>,
    /// loads: requests a second of the open loops; without it 10 to 95 % of what the closed loop reached in this run
    #[arg(long, global = true, value_name = "N,...", value_delimiter = ',', value_parser = rate)]
    rate: Vec<f64>,
    /// burst: locks taken at once (64 to 100000; 10000). sessions: locks held by the many (10000 to 10000000; 10 each)
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(64..=10_000_000))]
    locks: Option<u32>,
    /// failover: lease periods (100 ms to 60 s)
    #[arg(long, global = true, value_name = "DURATION,...", value_delimiter = ',', default_values = ["100ms", "200ms", "500ms", "2s"], value_parser = lease_ms)]
    lease: Vec<u64>,
    /// restart, group: agents, each with a session and a lock (1 to 30000; 10000 in restart, 100 and 1000 at most in group)
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=30_000))]
    agents: Option<u32>,
    /// group: for so long a tenth of all datagrams is lost (1 s to 24 h)
    #[arg(long, global = true, value_name = "DURATION", default_value = "10s", value_parser = loss)]
    loss: Duration,
    /// durable, flease, group, on-etcd, peers: a directory on the disk to be measured
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    /// Write what each server under test sends and receives to DIR/server-1.pcap, ...; figures are then those of a server that captures
    #[arg(long, global = true, value_name = "DIR")]
    pcap_dir: Option<PathBuf>,
    /// Draw charts of the run into DIR, an SVG file each: cpu, latency, throughput, sessions, failover, renewals, durable, peers; scaling
    #[arg(long, global = true, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Print the tables as Markdown, as they stand in docs/performance.md (`scale` does so always)
    #[arg(long, global = true, conflicts_with = "json")]
    markdown: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  cistern-bench                                   everything, and the aims beside it (some minutes)
  cistern-bench --only echo,durable --json        two workloads, for scripts
  cistern-bench --svg charts                      the same, drawn too
  cistern-bench echo --rounds 15                  one workload, more rounds
  cistern-bench durable --dir /srv/cistern        on the disk that matters
  cistern-bench failover --lease 100ms,2s --rounds 25
  cistern-bench sessions --most-sessions 1000000  requests among a million sessions and ten million locks (P6): needs 8 GB of
                                                  memory, and minutes until all are open and held, more where others run
  cistern-bench scale --most-locks 1000000        large tables beside small ones; 10,000,000 locks take some GB of memory
  cargo run --profile dist -p cistern-bench --features peers -- peers      etcd, ZooKeeper, Redis beside ours
Exit status: 0 whatever was measured, 1 if something could not be measured, 2 for a wrong command line.";

#[derive(Debug, Subcommand)]
enum Command {
    /// A process under test; started by the bench itself
    #[command(hide = true)]
    UnderTest {
        /// What runs in it
        role: Role,
        #[command(flatten)]
        setup: Setup,
    },
    /// A process that holds a lock; started by the bench itself
    #[command(hide = true)]
    Holder {
        /// The server
        server: SocketAddr,
        /// What it locks
        path: String,
    },
    /// What ends another service when the bench is killed; started by the bench itself
    #[cfg(feature = "peers")]
    #[command(hide = true)]
    EndWith {
        /// The service
        #[arg(value_parser = clap::value_parser!(i32).range(2..))]
        pid: i32,
        /// Its data
        data: PathBuf,
    },
    #[command(flatten)]
    Measure(Workload),
    /// Requests, memory and the theft of locks with up to a million sessions and ten million locks (P6)
    Scale(scale::ScaleArgs),
    /// A part of `scale`; started by the bench itself
    #[command(hide = true)]
    ScalePart(scale::PartArgs),
}

/// What is measured: a line for each workload, with its help, its name, and what runs it. Processes under test pin themselves to their own
/// core; those that have threads of their own are not pinned, nor is who asks them: these are `free`.
macro_rules! workloads {
    ($($(#[$help:meta])* $name:ident, $pinned:ident => $run:expr;)*) => {
        /// What can be measured.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand, ValueEnum)]
        enum Workload {
            $($(#[$help])* $name,)*
        }

        impl Workload {
            const fn is_pinned(self) -> bool {
                match self {
                    $(Self::$name => workloads!(@ $pinned),)*
                }
            }

            fn run(self, args: &Args, plan: &Plan, progress: &Progress) -> Result<Vec<Section>, Trouble> {
                type Run = fn(&Args, &Plan, &Progress) -> Result<Vec<Section>, Trouble>;
                let run: Run = match self {
                    $(Self::$name => $run,)*
                };
                run(args, plan, progress)
            }
        }
    };
    (@ pinned) => { true };
    (@ free) => { false };
}

workloads! {
    /// Requests beside a plain UDP echo: one in a datagram, several, one agent, many (P1, P2, P3)
    Echo, pinned => |args, plan, progress| one(beside_echo::run(usize::from(args.in_flight), plan, progress));
    /// More and more load: closed loops with 1 to 256 in flight of 1 to many agents, open loops at given rates
    Loads, pinned => |args, plan, progress| one(loads::run(&args.rate, plan, progress));
    /// Requests among many sessions and their locks, drawn at random, beside few (P6)
    Sessions, pinned => |args, plan, progress| one(sessions::run(sessions::Size::of(args.most_sessions, args.locks), plan, progress));
    /// Sessions opened, plain and sealed: CPU of the loop and of all threads, memory (P10)
    Handshakes, pinned => |_, plan, progress| one(handshakes::run(plan, progress));
    /// Sessions that do nothing: datagrams, wake-ups and CPU of the server (P6)
    Idle, pinned => |args, plan, progress| one(idle::run(args.sessions as usize, plan, progress));
    /// One lock that several agents want at once: grants, demands, messages
    Contended, pinned => |_, plan, progress| one(contended::run(plan, progress));
    /// What the host has already: cached attributes, locks it holds, in process (P3, P4)
    Cached, free => |_, plan, progress| one(cached::run(plan, progress));
    /// Reads, changes, names made and taken away by many agents over a tree with a zipf distribution
    Mixed, pinned => |_, plan, progress| one(mixed::run(plan, progress));
    /// A server that looks at its socket for a while before it sleeps, beside one that sleeps at once
    Spin, pinned => |_, plan, progress| one(spin::run(plan, progress));
    /// A client that asks little, beside another host that asks without end: what it notices
    Attacked, free => |_, plan, progress| one(attacked::run(plan, progress));
    /// One answer to each of 32 peers: by one send each, as the driver does, and by one `sendmmsg`
    Sends, pinned => |_, plan, progress| one(sends::run(plan, progress));
    /// Ten thousand locks at once (P9)
    Burst, pinned => |args, plan, progress| one(burst::run(args.locks, plan, progress));
    /// A holder that stops, until another has its lock (P7)
    Failover, free => |args, plan, progress| one(failover::run(&args.lease, plan, progress));
    /// A server that is killed and started again, until all of its agents have their locks again (P11)
    Restart, free => |args, plan, progress| one(restart::run(args.agents.unwrap_or(10_000) as usize, plan, progress));
    /// Three servers on three etcds, where etcd is installed: who serves is killed, stopped, cut off, hands over; holders certain again, a new lock
    Group, free => |args, plan, progress| group(args, plan, progress);
    /// Locks of a group without a server: messages, round trips, leases a second by groups and their size; beside a ZooKeeper ensemble
    Flease, free => |args, plan, progress| flease::run(&args.dir, plan, progress);
    /// Explicit renewals per request, beside the law (P8)
    Renewals, pinned => |_, plan, progress| one(renewals::run(plan, progress));
    /// The same lock, durable write and read on etcd, ZooKeeper and Redis, where they are installed; idle sessions, failovers (P2)
    Peers, free => |args, plan, progress| peers(args, plan, progress);
    /// Durable changes beside a bare fdatasync and the echo: latency, and rate at 1 to 256 in flight (P5)
    Durable, free => |args, plan, progress| one(durable::run(&args.dir, plan, progress));
    /// Durable writes with the store on three etcds, where etcd is installed, beside etcd's own put and the echo (P5)
    OnEtcd, free => |args, plan, progress| one(on_etcd(args, plan, progress));
}

fn one(section: Result<Section, Trouble>) -> Result<Vec<Section>, Trouble> {
    section.map(|section| vec![section])
}

fn round(text: &str) -> Result<Duration, String> {
    let span = cistern_text::duration(text)?;
    if (0.01..=60.0).contains(&span.as_secs_f64()) { Ok(span) } else { Err("must be 10 ms to 60 s".to_owned()) }
}

fn loss(text: &str) -> Result<Duration, String> {
    let span = cistern_text::duration(text)?;
    if (1.0..=86_400.0).contains(&span.as_secs_f64()) { Ok(span) } else { Err("must be 1 s to 24 h".to_owned()) }
}

fn lease_ms(text: &str) -> Result<u64, String> {
    let ms = u64::try_from(cistern_text::duration(text)?.as_millis()).unwrap_or(u64::MAX);
    if (100..=60_000).contains(&ms) { Ok(ms) } else { Err("must be 100 ms to 60 s".to_owned()) }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (1.0..=10_000_000.0).contains(&rate) { Ok(rate) } else { Err("must be 1 to 10000000".to_owned()) }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let captures = args.pcap_dir.as_deref().map_or(Ok(()), host::capture_into);
    let result = captures.and_then(|()| match &args.command {
        Some(Command::UnderTest { role, setup }) => under_test::serve(*role, setup).map(|()| ExitCode::SUCCESS),
        Some(Command::Holder { server, path }) => holder::run(*server, path).map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "peers")]
        Some(Command::EndWith { pid, data }) => {
            peers::end_with(*pid, data);
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Measure(workload)) => bench(&args, &[*workload]),
        Some(Command::Scale(sizes)) => {
            scale::bench(sizes, args.most_sessions, args.rounds, args.json, args.svg.as_deref()).map(|()| ExitCode::SUCCESS)
        }
        Some(Command::ScalePart(part)) => scale::part(part, args.rounds).map(|()| ExitCode::SUCCESS),
        None if args.only.is_empty() => bench(&args, Workload::value_variants()),
        None => bench(&args, &args.only),
    });
    result.unwrap_or_else(|trouble| {
        // If standard error is closed, the exit status is all that can be said.
        let _ = writeln!(io::stderr(), "cistern-bench: {trouble}");
        ExitCode::FAILURE
    })
}

fn bench(args: &Args, workloads: &[Workload]) -> Result<ExitCode, Trouble> {
    let (cores, begun) = (Cores::find()?, Busy::now());
    let plan = Plan { span: args.duration, rounds: args.rounds, cores };
    let (mut sections, mut failed) = (Vec::new(), Vec::new());
    let progress = Progress::new();
    for workload in workloads {
        match measure(*workload, args, &plan, &progress) {
            Ok(found) => sections.extend(found),
            Err(trouble) => failed.push(Failed { workload: workload.name(), why: trouble.to_string() }),
        }
    }
    drop(progress);
    args.svg.as_deref().map_or(Ok(()), |dir| charts::write(dir, &sections))?;
    let report = Report::new(&plan, sections, failed, Others::since(begun));
    let style = if args.markdown { Style::Markdown } else { Style::Plain };
    let text = if args.json { report.json() } else { report.table(style) };
    io::stdout().write_all(text.as_bytes()).map_err(Trouble::at("printing the figures"))?;
    Ok(if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(workload: Workload, args: &Args, plan: &Plan, progress: &Progress) -> Result<Vec<Section>, Trouble> {
    let pins = workload.is_pinned();
    let plan = &if pins { *plan } else { Plan { cores: plan.cores.unpinned(), ..*plan } };
    if pins {
        plan.cores.pin_generator()?;
    } else {
        plan.cores.unpin_generator()?;
    }
    let sections = workload.run(args, plan, progress)?;
    Ok(sections.into_iter().map(|section| Section { pinned: plan.cores.pinned.is_some(), ..section }).collect())
}

fn group(args: &Args, plan: &Plan, progress: &Progress) -> Result<Vec<Section>, Trouble> {
    let agents = (args.agents.unwrap_or(100) as usize).min(takeover::AGENTS_MAX);
    let mut section = takeover::run(&args.dir, agents, args.loss, plan, progress)?;
    #[cfg(feature = "peers")]
    peers::leaders_lost(&args.dir, plan, progress, &mut section)?;
    #[cfg(not(feature = "peers"))]
    section.notes.push("Built without the peers' clients (--features peers): not measured beside etcd and ZooKeeper.".to_owned());
    Ok(vec![section])
}

#[cfg(feature = "peers")]
fn peers(args: &Args, plan: &Plan, progress: &Progress) -> Result<Vec<Section>, Trouble> {
    let extent = peers::Extent { sessions: args.sessions as usize, warm_up: args.warm_up };
    peers::run(&args.dir, extent, plan, progress)
}

/// Without their clients there is only word of how to get them.
#[cfg(not(feature = "peers"))]
fn peers(_: &Args, _: &Plan, _: &Progress) -> Result<Vec<Section>, Trouble> {
    let note = "Skipped: built without the peers' clients. cargo run --profile dist -p cistern-bench --features peers -- peers";
    Ok(vec![Section::new("peers", "the same lock, durable write and read on other services").note(note)])
}

#[cfg(feature = "peers")]
fn on_etcd(args: &Args, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    peers::on_etcd::run(&args.dir, plan, progress)
}

/// Without etcd's client there is only word of how to get it.
#[cfg(not(feature = "peers"))]
fn on_etcd(_: &Args, _: &Plan, _: &Progress) -> Result<Section, Trouble> {
    let note = "Skipped: built without etcd's client. cargo run --profile dist -p cistern-bench --features peers -- on-etcd";
    Ok(Section::new("on-etcd", "durable writes with the store on etcd").note(note))
}

impl Workload {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_under_test_gets_no_default_of_an_option_for_all_workloads() {
        let args = Args::try_parse_from(["cistern-bench", "under-test", "server"]).unwrap();
        let Some(Command::UnderTest { setup, .. }) = args.command else { panic!("{args:?}") };
        assert_eq!(format!("{setup:?}"), format!("{:?}", Setup::default()));
    }

    #[test]
    fn workloads_are_commands_and_names_for_only() {
        for workload in Workload::value_variants() {
            let args = Args::try_parse_from(["cistern-bench", &workload.name()]).unwrap();
            assert!(matches!(args.command, Some(Command::Measure(found)) if found == *workload));
            assert_eq!(Args::try_parse_from(["cistern-bench", "--only", &workload.name()]).unwrap().only, [*workload]);
        }
    }
}
