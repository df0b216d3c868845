//! `cistern-torture images`: opens the store from what a loss of power may leave of it, at every write, sync and name of its files.
//!
//! Decides the order: a real server is recorded under load, and everything that it does to its files is replayed; after every step images
//! are made of what a crash may leave, and the store must open from each as it must. Then openings of some images are recorded, and
//! crash again. With `--planted` the record is falsified, and that must be found.
//!
//! | file | decides |
//! |---|---|
//! | `strace`, `replay` | what a program did to its files |
//! | `disk` | what of it is durable |
//! | `crash` | what a crash may leave of the rest |
//! | `known`, `judge` | what the store must make of it |
//! | `recording`, `serving` | what is recorded |
//! | `march` | which images are made, in which order, by whom |

mod crash;
mod disk;
mod judge;
mod known;
mod march;
mod plant;
mod recording;
mod replay;
mod serving;
mod strace;

pub(crate) use judge::options;
pub(crate) use serving::{OpeningArgs, ServingArgs, open, serve};

use cistern_text::progress;
use crash::{Image, Way};
use march::{March, Tally};
use plant::Plant;
use recording::Recording;
use replay::Replay;
use serde_json::json;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Steps in which a store is made, about.
const MAKING_STEPS: u64 = 100;

const EXAMPLES: &str = "\
Examples:
  cargo run --release -p cistern-torture -- images --duration 30s
  cargo run --release -p cistern-torture -- images --phase 4s --mixes 4 --openings 40
  cargo run --release -p cistern-torture -- images --phase 1s --mixes 1 --every-step
  cargo run --release -p cistern-torture -- images --planted

Needs strace (on Debian: apt-get install strace), and the right to trace one's own processes.

Exit status:
  0  the store opened from every image as it must; with --planted: every falsified record was found out
  1  it did not, or the run could not go on
  2  wrong usage";

/// Opens the store from what a loss of power may leave of it, at every write, sync and name.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImagesArgs {
    /// Length of each phase of the recorded load
    #[arg(long, default_value = "2s", value_name = "DURATION", value_parser = cistern_text::duration)]
    phase: Duration,
    /// Time budget for the images, which are spread over the record; by default all are tried
    #[arg(long, value_name = "DURATION", value_parser = cistern_text::duration)]
    duration: Option<Duration>,
    /// Look also at each step while a journal is long, where else one in 8 or 64 is looked at; takes hours
    #[arg(long, conflicts_with_all = ["duration", "planted"])]
    every_step: bool,
    /// Images by chance at each step
    #[arg(long, default_value_t = 2)]
    mixes: u64,
    /// Images whose opening is recorded, to crash again
    #[arg(long, default_value_t = 6)]
    openings: u64,
    /// Seed of the images (printed at startup); random by default
    #[arg(long)]
    seed: Option<u64>,
    /// Falsify the record in every known way; each must be found out
    #[arg(long)]
    planted: bool,
    /// Where to work; by default in memory (/dev/shm), else among temporary files
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Leave the record and the images that failed where they are, and say where
    #[arg(long)]
    keep: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs it; whether all is well.
pub(crate) fn run(args: &ImagesArgs) -> Result<bool, String> {
    let seed = crate::seed(args.seed)?;
    let dir = work_dir(args.dir.as_deref())?;
    let started = Instant::now();
    let Recording { replay, known } = recording::record(dir.path(), args.phase, seed, &progress)?;
    // The engine says on standard error what it panics over; here that is a finding like any other.
    std::panic::set_hook(Box::new(|_| {}));
    let march = March {
        known: &known,
        names: &replay.names,
        dir: dir.path(),
        mixes: args.mixes,
        seed,
        every_step: args.every_step,
        stop_at: 10,
        focus: (0, usize::MAX),
    };
    let well = if args.planted { planted(args, &march, &replay)? } else { images(args, &march, &replay, started)? };
    progress("");
    if args.keep || !well {
        writeln!(io::stderr(), "record and images that failed: {}", dir.keep().display()).map_err(|e| e.to_string())?;
    }
    Ok(well)
}

fn images(args: &ImagesArgs, march: &March<'_>, replay: &Replay, started: Instant) -> Result<bool, String> {
    let recorded = started.elapsed();
    let at_most = args.duration;
    // A share of the time is for crashes while a crash is recovered from.
    let first = at_most.map(|most| if args.openings == 0 { most } else { most * 2 / 3 });
    let mut tally = march.images(disk::Disk::new(), &replay.steps, judge::Promised::default(), first)?;
    let begun = Instant::now();
    for number in 0..args.openings {
        let left = at_most.zip(first).map(|(most, first)| (most - first).saturating_sub(begun.elapsed()));
        if left == Some(Duration::ZERO) || !tally.failures.is_empty() {
            break;
        }
        let share = left.map(|left| left / u32::try_from(args.openings - number).unwrap_or(1));
        tally.add(opening(march, replay, number, share)?);
    }
    let seen = march::Seen::of(replay);
    if args.json {
        let text = json!({
            "seed": march.seed, "recorded_s": recorded.as_secs_f64(), "total_s": started.elapsed().as_secs_f64(),
            "batches": march.known.batches, "steps": tally.steps, "recorded_steps": replay.steps.len(), "seen": seen, "images": tally.images(),
            "ways": tally.ways, "openings": tally.openings, "failures": tally.failures,
        });
        writeln!(io::stdout(), "{text}").map_err(|e| e.to_string())?;
    } else {
        print(march, replay, &tally, &seen, recorded, started.elapsed()).map_err(|e| e.to_string())?;
    }
    Ok(tally.failures.is_empty())
}

fn print(march: &March<'_>, replay: &Replay, tally: &Tally, seen: &march::Seen, recorded: Duration, total: Duration) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "seed {}: recorded {} steps of {} batches in {} s; the replay is the directory, bit for bit; {seen}",
        march.seed,
        replay.steps.len(),
        march.known.batches,
        recorded.as_secs()
    )?;
    let ways: Vec<_> = tally.ways.iter().map(|(way, count)| format!("{count} {way}")).collect();
    writeln!(
        out,
        "{} images at {} steps ({}), {} openings that crashed again; {} s",
        tally.images(),
        tally.steps,
        ways.join(", "),
        tally.openings,
        total.as_secs()
    )?;
    for failure in &tally.failures {
        writeln!(out, "MUST NOT BE: {failure}")?;
    }
    writeln!(
        out,
        "{}",
        if tally.failures.is_empty() { "the store opened from every image as it must" } else { "it did not open as it must" }
    )
}

/// Records the opening of one image by chance, and crashes it again.
fn opening(march: &March<'_>, replay: &Replay, number: u64, at_most: Option<Duration>) -> Result<Tally, String> {
    let mut rng = crate::worker::rng(march.seed, u64::MAX - number);
    // Every third while the store is being made.
    let of = if number.is_multiple_of(3) { MAKING_STEPS.min(replay.steps.len() as u64) } else { replay.steps.len() as u64 };
    let at = usize::try_from(rng.below(of)).unwrap_or_default();
    let mut disk = disk::Disk::new();
    replay.steps[..=at].iter().for_each(|step| disk.step(step));
    let way = if rng.below(2) == 0 { Way::Seen } else { Way::Mixed(rng.next_u64()) };
    let image = Image::of(&disk, way);
    let area = march.dir.join("opening");
    let probe = judge::judge(&march.dir.join("probe"), &image, march.known, judge::Promised::default());
    let found = match probe {
        Ok(found) => found,
        Err(why) => return Ok(Tally::failure(format!("an image after step {at}: {why}"))),
    };
    judge::put(&area, &image).map_err(|e| format!("{}: {e}", area.display()))?;
    let (disk, names) = image.disk();
    let opened = recording::record_opening(Replay::on(&area, disk.clone(), names), &area, &march.dir.join("log-opening"), 1);
    let opened = opened.map_err(|why| format!("opening an image after step {at}: {why}"));
    std::fs::remove_dir_all(&area).map_err(|e| format!("{}: {e}", area.display()))?;
    let opened = opened?;
    let again = March { names: &opened.names, ..*march };
    let promised = judge::Promised { batches: found.batches, extra: 0 };
    let mut tally = again.images(disk, &opened.steps, promised, at_most)?;
    tally.openings = 1;
    Ok(tally)
}

fn planted(args: &ImagesArgs, march: &March<'_>, replay: &Replay) -> Result<bool, String> {
    let mut well = true;
    for plant in Plant::ALL {
        let (steps, focus) = plant.falsify(replay);
        let at_most = args.duration.unwrap_or(Duration::from_secs(60));
        let march = March { stop_at: 1, focus, ..*march };
        let tally = march.images(disk::Disk::new(), &steps, judge::Promised::default(), Some(at_most))?;
        let found = tally.failures.first();
        well &= found.is_some();
        let word = found.map_or("NOT FOUND OUT", String::as_str);
        writeln!(io::stdout(), "{}: {} images: {word}", plant.name(), tally.images()).map_err(|e| e.to_string())?;
    }
    writeln!(io::stdout(), "{}", if well { "every falsified record was found out" } else { "a falsified record was not found out" })
        .map_err(|e| e.to_string())?;
    Ok(well)
}

/// A directory to work in: in memory, for a disk adds nothing but time to what is replayed.
fn work_dir(wanted: Option<&Path>) -> Result<tempfile::TempDir, String> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("cistern-images-");
    let memory = Path::new("/dev/shm");
    let made = match wanted {
        Some(dir) => builder.tempdir_in(dir),
        None if memory.is_dir() => builder.tempdir_in(memory),
        None => builder.tempdir(),
    };
    made.map_err(|e| format!("a directory to work in: {e}"))
}
