//! `cistern-store-bench`: embedded engines under the store's own load, beside a bare fdatasync of the same bytes in the same run.
//!
//! Decides the command line and prints the table. What came of it: `docs/decisions/0001-store-engine.md`.
//! Exit status: 0 whatever was measured, 1 if something failed, 2 for a wrong command line.

mod engines;
mod measure;
mod shape;

use clap::{Parser, Subcommand};
use engines::{Candidate, Failed};
use hdrhistogram::Histogram;
use measure::Load;
use shape::Shape;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Measures embedded engines with the store's own keys and values, beside a bare fdatasync in the same run.
#[derive(Debug, Parser)]
#[command(name = "cistern-store-bench", version)]
struct Args {
    /// Length of each measurement, in seconds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Files in the store before commits are measured
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    files: u64,
    /// A directory on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    /// Only these candidates
    #[arg(long, value_delimiter = ',')]
    only: Vec<Candidate>,
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    /// Fills a store and dies; started by the bench itself
    #[command(hide = true)]
    Fill {
        /// With which engine
        candidate: Candidate,
        /// How many files
        files: u64,
        /// Where
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.command {
        Some(Sub::Fill { candidate, files, dir }) => measure::fill(*candidate, dir, *files),
        None => bench(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed, the exit status is all that can be said.
            let _ = writeln!(io::stderr(), "cistern-store-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(args: &Args) -> Result<(), Failed> {
    let candidates = if args.only.is_empty() { Candidate::ALL.to_vec() } else { args.only.clone() };
    for candidate in candidates {
        let dir = tempfile::tempdir_in(&args.dir)?;
        one(args, candidate, dir.path())?;
    }
    Ok(())
}

fn one(args: &Args, candidate: Candidate, dir: &Path) -> Result<(), Failed> {
    let span = Duration::from_secs(args.seconds);
    let store = dir.join("store");
    std::fs::create_dir(&store)?;
    let (filled, opened) = measure::opening(candidate, &store, args.files)?;
    let mut out = io::stdout();
    let per_file = measure::size(&store)? / args.files;
    writeln!(
        out,
        "{}: {} files in {filled:.1?}, opened after a kill in {opened:.1?}, {per_file} bytes a file",
        candidate.name(),
        args.files
    )?;
    let mut engine = candidate.open(&store)?;
    let mut shape = Shape::new(7, args.files);
    for (load, name) in [(Load::Create, "create"), (Load::SetAttr, "setattr")] {
        for group in [1, 16, 64, 256] {
            let commits = measure::commits(&mut *engine, &mut shape, dir, load, group, span)?;
            let ratio = us(&commits.engine, 0.5) / us(&commits.bare, 0.5);
            writeln!(
                out,
                "  {name:8} x{group:3}: p50 {:7.0} us, p99 {:7.0} us, {:8.0}/s; bare fdatasync of {:6} bytes p50 {:5.0} us, p99 {:6.0} us, overwritten p50 {:5.0} us; ratio {ratio:.2}",
                us(&commits.engine, 0.5),
                us(&commits.engine, 0.99),
                f64::from(group) * 1e6 / (commits.engine.mean() / 1e3),
                commits.bytes,
                us(&commits.bare, 0.5),
                us(&commits.bare, 0.99),
                us(&commits.over, 0.5),
            )?;
        }
    }
    let reads = measure::reads(&mut *engine, &mut shape, span)?;
    writeln!(
        out,
        "  reads: p50 {:.1} us, p99 {:.1} us; size at the end {} MB",
        us(&reads, 0.5),
        us(&reads, 0.99),
        measure::size(&store)? >> 20
    )?;
    Ok(())
}

/// A quantile in microseconds.
#[expect(clippy::cast_precision_loss, reason = "latencies stay far below 2^53 ns")]
fn us(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1e3
}
