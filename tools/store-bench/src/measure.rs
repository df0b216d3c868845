//! The measurements: commits beside a bare fdatasync, point reads, opening after a kill, size on disk.
//!
//! Decides that each round of commits is followed by a round of bare appends and fdatasyncs of as many bytes, so that what slows the
//! disk for a while slows both. Leaves to others: printing (`main`).

use crate::engines::{Candidate, Engine, Failed};
use crate::shape::{Shape, Write};
use hdrhistogram::Histogram;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Writes in one transaction while a store is filled.
const FILL_BATCH: u64 = 10_000;
/// Bytes of the file that is written over.
const OVER: usize = 64 << 20;
/// Commits in a round, between which the bare file has its turn.
const ROUND: u32 = 20;

/// Which mutation is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Files made one after the other.
    Create,
    /// Attributes of files chosen at random.
    SetAttr,
}

/// Latencies of commits and of the bare fdatasyncs beside them.
pub(crate) struct Commits {
    pub(crate) engine: Histogram<u64>,
    /// Appended to a file that grows.
    pub(crate) bare: Histogram<u64>,
    /// Written over a file that was written before.
    pub(crate) over: Histogram<u64>,
    pub(crate) bytes: usize,
}

fn histogram() -> Histogram<u64> {
    // Three digits up to a minute are always possible.
    Histogram::new_with_max(60_000_000_000, 3).unwrap_or_else(|e| unreachable!("{e}"))
}

fn record(histogram: &mut Histogram<u64>, span: Duration) {
    histogram.saturating_record(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
}

/// Fills a store with `files` files.
pub(crate) fn fill(candidate: Candidate, dir: &Path, files: u64) -> Result<(), Failed> {
    let mut engine = candidate.open(dir)?;
    let mut shape = Shape::new(1, 0);
    while shape.files < files {
        let mut writes = shape.counters();
        for _ in 0..FILL_BATCH.min(files - shape.files) {
            writes.extend(shape.create());
        }
        engine.commit(writes)?;
    }
    // Not closed: as after a kill.
    std::process::abort();
}

/// Fills a store in a process of its own, which is killed; then the time to open it and read one value.
pub(crate) fn opening(candidate: Candidate, dir: &Path, files: u64) -> Result<(Duration, Duration), Failed> {
    let from = Instant::now();
    let mut filler = Command::new(std::env::current_exe()?);
    filler.args(["fill", &candidate.name(), &files.to_string()]).arg(dir).stderr(Stdio::null());
    filler.status()?;
    let filled = from.elapsed();
    let from = Instant::now();
    let mut engine = candidate.open(dir)?;
    let last = engine.read(&Shape::object(files - 1 + 1_000_000_000))?;
    if last.is_none() {
        return Err("a file that was committed is not there".into());
    }
    Ok((filled, from.elapsed()))
}

/// Commits of `group` mutations each for `span`, beside bare fdatasyncs of as many bytes.
pub(crate) fn commits(
    engine: &mut dyn Engine,
    shape: &mut Shape,
    dir: &Path,
    load: Load,
    group: u32,
    span: Duration,
) -> Result<Commits, Failed> {
    let mut result = Commits { engine: histogram(), bare: histogram(), over: histogram(), bytes: 0 };
    let mut bare = File::create(dir.join("bare"))?;
    let over = File::create(dir.join("over"))?;
    over.write_all_at(&vec![0; OVER], 0)?;
    over.sync_all()?;
    let mut at = 0;
    let end = Instant::now() + span;
    while Instant::now() < end {
        for _ in 0..ROUND {
            let mut writes = shape.counters();
            for _ in 0..group {
                writes.extend(match load {
                    Load::Create => shape.create(),
                    Load::SetAttr => shape.set_attr(),
                });
            }
            result.bytes = bytes(&writes);
            let from = Instant::now();
            engine.commit(writes)?;
            record(&mut result.engine, from.elapsed());
        }
        let bytes = vec![0xA5; result.bytes];
        for _ in 0..ROUND {
            let from = Instant::now();
            bare.write_all(&bytes)?;
            bare.sync_data()?;
            record(&mut result.bare, from.elapsed());
            at = if at + result.bytes > OVER { 0 } else { at };
            let from = Instant::now();
            over.write_all_at(&bytes, at as u64)?;
            over.sync_data()?;
            record(&mut result.over, from.elapsed());
            at += result.bytes;
        }
    }
    Ok(result)
}

fn bytes(writes: &[Write]) -> usize {
    writes.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len)).sum()
}

/// Point reads of files at random.
pub(crate) fn reads(engine: &mut dyn Engine, shape: &mut Shape, span: Duration) -> Result<Histogram<u64>, Failed> {
    let mut result = histogram();
    let end = Instant::now() + span;
    while Instant::now() < end {
        let key = shape.any_file();
        let from = Instant::now();
        if engine.read(&key)?.is_none() {
            return Err("a file that was committed is not there".into());
        }
        record(&mut result, from.elapsed());
    }
    Ok(result)
}

/// Bytes that a directory takes on the disk.
pub(crate) fn size(dir: &Path) -> Result<u64, Failed> {
    use std::os::unix::fs::MetadataExt as _;
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { size(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(sum)
}
