//! `cisternd restore`: a store from a backup.
//!
//! Invariant: it makes a whole store or none, and never one that a server would take for the one that was copied (section 11.7).
//! Leaves to others: from which numbers the store goes on (`cistern_store::restoration`).

use super::check::look;
use super::{NONE, Run};
use crate::ctx::Ctx;
use crate::execute::{EXIT_DAMAGED, EXIT_FAILED, EXIT_STORE};
use crate::local::Failure;
use crate::on_etcd;
use crate::places;
use cistern_store::check::Severity;
use cistern_store::{StoppedStore, restoration};
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const RESTORE_HELP: &str = "\
All sessions of the copy are over in the new store, and its epoch is above the copy's, so that every fencing token and id that follows \
is larger than every one before. What was changed after the copy was made is lost. The copy notes that it was restored, and may be restored \
again: it gets another epoch each time. Within an epoch numbers begin by the wall clock, which must not be behind that of an earlier \
restore. Where a later copy was ever restored, give the epoch that `cistern status` showed since with --above; agents refuse a store \
whose epoch is lower than they have seen.

Examples:
  cisternd restore /backup/monday /var/lib/cistern/store
  cisternd restore --above 4 /backup/sunday /var/lib/cistern/store

Exit status:
  0   restored
  1   not restored: no epochs are left, or the clock cannot be right
  2   wrong usage: the directory is not empty
  65  the copy is damaged (--damaged restores what is sound but for its structure), or something else
  66, 74, 75, 76, 77  as of `cisternd check`";

/// Create a store from a backup
#[derive(Args, Debug)]
#[command(after_help = RESTORE_HELP)]
pub(crate) struct Restore {
    /// The copy: a backup, or the directory of a store that was stopped
    copy: PathBuf,
    /// Directory of the new store, missing or empty; else that which `cisternd init` makes
    #[arg(env = "CISTERN_STORE", value_name = "STORE")]
    store: Option<PathBuf>,
    /// Highest epoch seen: the store's will be above it, and above the copy's own
    #[arg(long, default_value_t = 0, value_name = "EPOCH")]
    above: u8,
    /// Restore even a damaged copy
    #[arg(long)]
    damaged: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Run for Restore {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        NONE
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let store = &places::store(self.store.as_deref())?;
        on_etcd::refuse(store, "etcd is restored by its own command, `etcdctl snapshot restore`; then run `cisternd restored`")?;
        let mut copy = StoppedStore::open(&self.copy)?;
        let report = look(&copy, 0, ctx.progress())
            .map_err(|e| Failure::new("DAMAGED_STORE", EXIT_DAMAGED, format!("store {}: {e}", self.copy.display())))?;
        if report.gravest() > Some(Severity::Waste) && !self.damaged {
            let what = "is not sound: look with `cisternd check`, take another copy, or restore it as it is with --damaged";
            return Err(Failure::new("DAMAGED_STORE", EXIT_DAMAGED, format!("store {} {what}", self.copy.display())));
        }
        let restoration = restoration(&report, now(), self.above).map_err(|e| Failure::new("NOT_RESTORED", EXIT_FAILED, e.to_string()))?;
        refuse_what_is_there(store)?;
        // It is a copy, which no server goes on from, until all that makes it a store of its own is in it; it gets its name last.
        let staging = staging(store);
        if staging.exists() {
            let what = "is in the way: it is what an interrupted restore has left; remove it";
            return Err(Failure::usage(format!("{} {what}", staging.display())));
        }
        let mut progress = ctx.progress();
        progress.tell(&format!("copying {} records", report.records));
        let copied = copy.copy_to(&staging);
        progress.done();
        let records = copied?;
        let mut made = StoppedStore::open(&staging)?;
        let writes = restoration.writes.into_iter().map(|(key, value)| (key.to_bytes(), value));
        made.write(writes).map_err(|e| Failure::new("STORE", EXIT_STORE, format!("{}: {e}", staging.display())))?;
        let (key, value) = restoration.note;
        copy.write([(key.to_bytes(), value)]).map_err(|e| Failure::new("STORE", EXIT_STORE, format!("{}: {e}", self.copy.display())))?;
        made.release().map_err(|e| Failure::new("STORE", EXIT_STORE, format!("{}: {e}", staging.display())))?;
        drop(made);
        take_place(&staging, store).map_err(|e| Failure::new("STORE", EXIT_STORE, format!("{}: {e}", store.display())))?;
        let made = json!({ "store": store.to_string_lossy(), "records": records, "epoch": restoration.epoch });
        ctx.print_with(&made, || format!(
            "restored {records} records into {}: its epoch is {} from now on, and its sessions are over; start it with `cisternd --store {}`. \
             It grants nothing for the time of a lease; agents that know a higher epoch refuse it: then restore again with --above",
            store.display(),
            restoration.epoch,
            store.display()
        ))
    }
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
