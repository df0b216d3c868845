//! `cistern demo`: the main job in one command, on real input, with real processes on loopback.
//!
//! Decides: the acts, in which order, and which claims they show. Every claim is checked by what the processes themselves report;
//! the exit status is 0 only if all hold.
//! Leaves to others: the processes (`cast`), the network that can be cut (`relay`), bookkeeping (`report`), the tree (`scenery`).

mod acts;
mod cast;
mod relay;
mod report;
mod scenery;

use super::{OUTPUT, Run};
use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::local::{Failure, millis};
use cast::Cast;
use cistern_text::duration;
use clap::Args;
use report::DemoReport;
use std::path::PathBuf;
use std::time::Duration;

/// The shortest lease period at which the acts can be told apart by a person and by a busy machine.
const LEASE_MIN: Duration = Duration::from_millis(500);
/// The longest with which the demonstration ends within half a minute.
const LEASE_MAX: Duration = Duration::from_secs(4);

/// Run a self-contained demo on this machine: a server, two agents, cache, locks, a failure, a steal, a recovery
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// A directory tree to import; by default a sizeable one found on this machine
    dir: Option<PathBuf>,
    /// Lease period τ of the demonstration
    #[arg(long, value_parser = duration, default_value = "2s", value_name = "DURATION")]
    lease: Duration,
    /// Write every datagram that the demonstration's server sends or receives to a capture file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Append the keys of its sessions to a file, by which the capture can be read (cistern-dump --key-log)
    #[arg(long, value_name = "FILE")]
    key_log: Option<PathBuf>,
}

impl Run for Demo {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OUTPUT
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        demo(self, ctx.is_json())
    }
}

fn demo(args: &Demo, json: bool) -> Result<(), Failure> {
    if !(LEASE_MIN..=LEASE_MAX).contains(&args.lease) {
        return Err(Failure::usage(format!("--lease of a demonstration is from {} to {} ms", millis(LEASE_MIN), millis(LEASE_MAX))));
    }
    let tree = scenery::find(args.dir.as_deref())?;
    let mut report = DemoReport::new(args.lease, json);
    let mut cast = Cast::start(args.lease, args.pcap.as_deref(), args.key_log.as_deref())?;
    report.say(&format!(
        "a server and two agents run as processes {} on {}, with keys of their own: everything is sealed",
        cast.pids(),
        cast.server
    ))?;
    let played = play(&mut cast, &tree, &mut report);
    cast.stop();
    played?;
    let held = report.finish()?;
    Failure::of_status(if held { 0 } else { EXIT_FAILED })
}

fn play(cast: &mut Cast, tree: &scenery::Tree, report: &mut DemoReport) -> Result<(), Failure> {
    acts::import(cast, tree, report)?;
    acts::read_cold_and_cached(cast, report)?;
    acts::hand_over(cast, report)?;
    acts::renewals(cast, report)?;
    acts::failure_and_recovery(cast, report)
}
