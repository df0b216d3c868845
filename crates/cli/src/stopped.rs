//! `cisternd init`, `check`, `restore` and `compact`: what an operator does with a store on which no server runs.
//!
//! Decides: the order of steps of each, their exit statuses, and what is shown meanwhile. Invariants: `check` changes nothing of what the
//! store holds; `restore` makes a whole store or none, and never one that a server would take for the one that was copied (section 11.7).
//! Leaves to others: what is wrong with a store (`cistern_store::check`), its files and its lock (`cistern_store`).

mod report;

use crate::args::{Check, Compact, Init, Restore, StoppedCommand};
use crate::execute::{EXIT_DAMAGED, EXIT_FAILED, EXIT_STORE};
use crate::local::Failure;
use crate::show;
use cistern_server::store::{Counter, Key, NEW_CLUSTER, counter_to_bytes};
use cistern_store::check::{Check as Checking, Progress as Far, Report, Severity};
use cistern_store::restoration;
use cistern_store::{OpenError, Problem, StoppedStore};
use cistern_text::Progress;
use cistern_wire::StoreId;
use report::Unreadable;
use serde_json::json;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Exit status: the store is not sound.
const EXIT_FINDINGS: u8 = 1;

/// Runs one of the commands; its exit status.
pub(crate) fn run(command: &StoppedCommand) -> Result<u8, Failure> {
    match command {
        StoppedCommand::Init(args) => init(args).map(|()| 0),
        StoppedCommand::Check(args) => check(args),
        StoppedCommand::Restore(args) => restore(args).map(|()| 0),
        StoppedCommand::Compact(args) => compact(args).map(|()| 0),
    }
}

/// Creates a store. Until it is marked, it is one whose server waits: a crash in between costs a wait, and no lease.
fn init(args: &Init) -> Result<(), Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::new("STORE", EXIT_STORE, format!("store {}: {why}", args.store.display()));
    let random = cistern_driver::seed().map_err(|e| failed(&e))?;
    let id = random.first_chunk().map_or(StoreId([0; 16]), |id| StoreId(*id));
    let mut store = StoppedStore::create(&args.store, id)?;
    if !args.replacement {
        let mark = (Key::Counter(Counter::Restored).to_bytes(), Some(counter_to_bytes(NEW_CLUSTER).into()));
        store.write([mark]).map_err(|e| failed(&e))?;
    }
    if args.json {
        return show::json(&json!({ "store": args.store.to_string_lossy(), "id": id.to_string() }));
    }
    show::line(format!("created store {id} in {}; `cisternd --store {}` serves it", args.store.display(), args.store.display()))
}

fn check(args: &Check) -> Result<u8, Failure> {
    let looked = match StoppedStore::open(&args.store) {
        Ok(store) => look(&store, args.most),
        // Damage that the engine sees is what a check is for.
        Err(OpenError { problem: Problem::Damaged, what, .. }) => Err(Unreadable { what }),
        Err(e) => return Err(e.into()),
    };
    let sound = looked.as_ref().is_ok_and(Report::is_clean);
    if args.json {
        show::json(&report::json(&args.store, &looked))?;
    } else {
        report::show(&args.store, &looked)?;
    }
    Ok(if sound { 0 } else { EXIT_FINDINGS })
}

/// Reads all of a store, and says at a terminal how far it is.
fn look(store: &StoppedStore, findings_max: usize) -> Result<Report, Unreadable> {
    let mut progress = Progress::default();
    let tell = |far: Far| {
        let of = if far.objects_expected > 0 { format!(" of {}", far.objects_expected) } else { String::new() };
        progress.tell(&format!("checking: {} records, {}{of} objects", far.records, far.objects));
    };
    let report = (Checking { findings_max }).run(|| Ok(store.iter()), tell);
    progress.done();
    report.map_err(|what| Unreadable { what })
}

fn restore(args: &Restore) -> Result<(), Failure> {
    let mut copy = StoppedStore::open(&args.copy)?;
    let report = look(&copy, 0).map_err(|e| Failure::new("DAMAGED_STORE", EXIT_DAMAGED, format!("store {}: {e}", args.copy.display())))?;
    if report.gravest() > Some(Severity::Waste) && !args.damaged {
        let what = "is not sound: look with `cisternd check`, take another copy, or restore it as it is with --damaged";
        return Err(Failure::new("DAMAGED_STORE", EXIT_DAMAGED, format!("store {} {what}", args.copy.display())));
    }
    let restoration = restoration(&report, now(), args.above).map_err(|e| Failure::new("NOT_RESTORED", EXIT_FAILED, e.to_string()))?;
    refuse_what_is_there(&args.store)?;
    // It is a copy, which no server goes on from, until all that makes it a store of its own is in it; it gets its name last.
    let staging = staging(&args.store);
    if staging.exists() {
        let what = "is in the way: it is what an interrupted restore has left; remove it";
        return Err(Failure::usage(format!("{} {what}", staging.display())));
    }
    let mut progress = Progress::default();
    progress.tell(&format!("copying {} records", report.records));
    let copied = copy.copy_to(&staging);
    progress.done();
    let records = copied?;
    let mut made = StoppedStore::open(&staging)?;
    let writes = restoration.writes.into_iter().map(|(key, value)| (key.to_bytes(), value));
    made.write(writes).map_err(|e| Failure::new("STORE", EXIT_STORE, format!("{}: {e}", staging.display())))?;
    let (key, value) = restoration.note;
    copy.write([(key.to_bytes(), value)]).map_err(|e| Failure::new("STORE", EXIT_STORE, format!("{}: {e}", args.copy.display())))?;
    made.release().map_err(|e| Failure::new("STORE", EXIT_STORE, format!("{}: {e}", staging.display())))?;
    drop(made);
    take_place(&staging, &args.store).map_err(|e| Failure::new("STORE", EXIT_STORE, format!("{}: {e}", args.store.display())))?;
    if args.json {
        return show::json(&json!({ "store": args.store.to_string_lossy(), "records": records, "epoch": restoration.epoch }));
    }
    show::line(format!(
        "restored {records} records into {}: its epoch is {} from now on, and its sessions are over; start it with `cisternd --store {}`. \
         It grants nothing for the time of a lease; agents that know a higher epoch refuse it: then restore again with --above",
        args.store.display(),
        restoration.epoch,
        args.store.display()
    ))
}

/// Nothing is restored over anything.
fn refuse_what_is_there(store: &Path) -> Result<(), Failure> {
    match fs::read_dir(store).map(Iterator::count) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(0) => Ok(()),
        Ok(_) => Err(Failure::usage(format!("{} is not empty: move what is there away, or name another directory", store.display()))),
        Err(e) => Err(Failure::usage(format!("{}: {e}", store.display()))),
    }
}

fn staging(store: &Path) -> PathBuf {
    let mut name = OsString::from(store.file_name().unwrap_or_default());
    name.push(".restoring");
    store.with_file_name(name)
}

/// Gives a directory its name, durably.
fn take_place(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    let above = to.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(above)?.sync_all()
}

/// Seconds since 1970; 0 before.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn compact(args: &Compact) -> Result<(), Failure> {
    let size = || size_of(&args.store).map_err(|e| Failure::new("STORE", EXIT_STORE, format!("{}: {e}", args.store.display())));
    let store = StoppedStore::open(&args.store)?;
    let before = size()?;
    let mut progress = Progress::default();
    progress.tell("compacting");
    let compacted = store.compact();
    progress.done();
    compacted.map_err(|e| Failure::new("STORE", EXIT_STORE, format!("store {}: {e}", args.store.display())))?;
    drop(store);
    let after = size()?;
    if args.json {
        return show::json(&json!({ "store": args.store.to_string_lossy(), "bytes_before": before, "bytes_after": after }));
    }
    show::line(format!("{}: {} before, {} now", args.store.display(), report::bytes(before), report::bytes(after)))
}

/// Bytes that all files below a directory take on the disk.
fn size_of(dir: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let data = entry.metadata()?;
        sum += if data.is_dir() { size_of(&entry.path())? } else { data.blocks() * 512 };
    }
    Ok(sum)
}
