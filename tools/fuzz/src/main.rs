//! `cistern-fuzz`: feeds decoders with broken input.

use cistern_fuzz::{Limit, TARGETS, Target, fuzz};
use clap::Parser;
use std::collections::VecDeque;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

/// Feed decoders with broken input, and keep what makes one panic
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Targets; all without one
    #[arg(value_name = "TARGET", value_parser = clap::builder::PossibleValuesParser::new(TARGETS.map(|target| target.name)))]
    targets: Vec<String>,
    /// How long each is fed
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = cistern_text::duration)]
    duration: Duration,
    /// Seed of the inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Feed this input alone
    #[arg(long, value_name = "FILE", requires = "targets")]
    input: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let chosen = TARGETS.iter().filter(|target| args.targets.is_empty() || args.targets.iter().any(|name| name == target.name));
    let waiting: Mutex<VecDeque<&Target>> = Mutex::new(chosen.collect());
    let work = || -> Result<(), String> {
        loop {
            let next = waiting.lock().expect("no thread panics with it").pop_front();
            let Some(target) = next else { return Ok(()) };
            feed(target, &args)?;
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let failed: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().expect("a worker does not panic").err()).collect()
    });
    for told in &failed {
        let _ = writeln!(std::io::stderr(), "cistern-fuzz: {told}");
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn feed(target: &Target, args: &Args) -> Result<(), String> {
    if let Some(file) = &args.input {
        let input = std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
        (target.run)(&input);
        return Ok(());
    }
    match fuzz(target, args.seed, Limit::Time(args.duration)) {
        Ok((inputs, outcomes)) => {
            let _ = writeln!(std::io::stdout(), "{:<11} {inputs} inputs, {outcomes} outcomes: {}", target.name, target.about);
            Ok(())
        }
        Err(failed) => {
            let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")).join(target.name);
            let file = dir.join(format!("{:08x}", crc32fast::hash(&failed.input)));
            let kept = std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&file, &failed.input));
            kept.map_err(|e| format!("{}: {e}", file.display()))?;
            Err(format!("{}: input {} makes it panic; it is kept in {}", target.name, failed.tried, file.display()))
        }
    }
}
