//! Locks of three real members, one after the other, and the same of a ZooKeeper ensemble where that is installed; then both beside a load of the disk.
//!
//! Decides the load: one lock taken and given back after the other, of names that nobody else wants; the disk's is a writer that waits for each of
//! its megabytes. Place: below `flease`. Leaves to others: the members (`cistern peer`), their ways (`cistern_testkit`), ZooKeeper (`peers`).

use crate::cases::Plan;
use crate::figures::{count, per};
use crate::host::cpu_ns;
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use cistern_client::PeerLock;
use cistern_testkit::{CISTERN, Group, program};
use hdrhistogram::Histogram;
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const MEMBERS: usize = 3;
/// The longest lock that is told apart from longer ones.
const LONGEST_NS: u64 = 60_000_000_000;
/// What the disk's load writes before it waits, and the size of its file.
const BLOCK: usize = 1 << 20;
const FILE: u64 = 64 << 20;
/// The first lock waits for the restart wait of the members, too.
const FIRST: Duration = Duration::from_secs(30);

/// What was locked in a span.
struct Locks {
    took_ns: Histogram<u64>,
    cpu_ns: u64,
}

/// Measures both, quiet and beside the load.
pub(super) fn run(dir: &Path, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    if !program(CISTERN).exists() {
        return Err(Trouble::Host { who: CISTERN, what: "is not built: build the package `cistern` in the same profile" });
    }
    let mut section =
        Section::new("flease-beside", "a lock taken and given back, one after the other: three members, and a ZooKeeper ensemble of three");
    let members = Group::start(MEMBERS, &[]);
    taken(PeerLock::acquire(members.socket(0), "first", Some(FIRST)))?;
    #[cfg(feature = "peers")]
    let mut zookeeper = match crate::peers::ensemble(dir)? {
        Ok(service) => Some(service),
        Err(skipped) => {
            section.notes.push(skipped);
            None
        }
    };
    #[cfg(not(feature = "peers"))]
    section.notes.push("ZooKeeper is not asked: build with --features peers.".to_owned());
    let span = plan.span * plan.rounds;
    for is_loaded in [false, true] {
        let beside = if is_loaded { ", beside a load of the disk" } else { "" };
        progress.say(&format!("locks of members and ZooKeeper{beside}"));
        let rows = loaded(dir, is_loaded, || {
            let ours = row(format!("three members{beside}"), &locks(&members, span)?);
            #[cfg(feature = "peers")]
            if let Some(service) = &mut zookeeper {
                // What a Java program has not compiled yet is slow.
                service.round(crate::peers::Ask::Lock, 1, span)?;
                let round = service.round(crate::peers::Ask::Lock, 1, span)?;
                let theirs = row(format!("{}{beside}", service.name()), &Locks { took_ns: round.took_ns, cpu_ns: round.cpu_ns });
                return Ok(vec![ours, theirs]);
            }
            Ok(vec![ours])
        })?;
        section.rows.extend(rows);
    }
    Ok(section.note(
        "CPU is of the three members, or of the three servers. A lock of members is on no disk, one of ZooKeeper on those of a majority.",
    ))
}

/// Locks of the first member's programs, for so long.
fn locks(members: &Group, span: Duration) -> Result<Locks, Trouble> {
    let cpu = || -> Result<u64, Trouble> {
        let of = |member: usize| cpu_ns(Pid::from_raw(members.peer(member).id().cast_signed()));
        (0..MEMBERS).map(of).sum::<Result<u64, _>>().map_err(|_| Trouble::Host { who: CISTERN, what: "has ended" })
    };
    let mut took_ns = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("1 to 6 * 10^10 with three digits is a valid range");
    let (before, begun, mut number) = (cpu()?, Instant::now(), 0_u64);
    while begun.elapsed() < span {
        let asked = Instant::now();
        let lock = taken(PeerLock::acquire(members.socket(0), &format!("lock-{number}"), Some(FIRST)))?;
        taken(lock.release())?;
        took_ns.saturating_record(u64::try_from(asked.elapsed().as_nanos()).unwrap_or(LONGEST_NS));
        number += 1;
    }
    Ok(Locks { took_ns, cpu_ns: cpu()? - before })
}

fn taken<T>(result: Result<T, cistern_client::Error>) -> Result<T, Trouble> {
    result.map_err(Trouble::starting("locking by a member"))
}

/// Does `work`, beside a writer to the disk of `dir` if it is to be.
fn loaded(dir: &Path, is_loaded: bool, work: impl FnOnce() -> Result<Vec<Row>, Trouble>) -> Result<Vec<Row>, Trouble> {
    let over = AtomicBool::new(!is_loaded);
    let mut file = tempfile::tempfile_in(dir).map_err(Trouble::at("making the file of the disk's load"))?;
    thread::scope(|scope| {
        let writer = scope.spawn(|| write(&mut file, &over));
        let rows = work();
        over.store(true, Relaxed);
        writer.join().expect("the writer does not panic").map_err(Trouble::at("writing the disk's load"))?;
        rows
    })
}

fn write(file: &mut File, over: &AtomicBool) -> std::io::Result<()> {
    let block = vec![0x5A; BLOCK];
    while !over.load(Relaxed) {
        if file.stream_position()? >= FILE {
            file.seek(SeekFrom::Start(0))?;
        }
        file.write_all(&block)?;
        file.sync_data()?;
    }
    Ok(())
}

fn row(name: String, seen: &Locks) -> Row {
    let ms = |ns: u64| count(ns) / 1e6;
    Row::new(name)
        .with("p50_ms", "p50 ms", ms(seen.took_ns.value_at_quantile(0.5)))
        .with("p99_ms", "p99 ms", ms(seen.took_ns.value_at_quantile(0.99)))
        .with("locks", "locks", seen.took_ns.len())
        .with("cpu_us", "CPU µs a lock", per(seen.cpu_ns, seen.took_ns.len().max(1)) / 1e3)
}
