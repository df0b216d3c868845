//! `cisternd check`: whether a stopped store is sound.
//!
//! Invariant: it changes nothing of what the store holds. Leaves to others: what is wrong with a store (`cistern_store::check`).

mod report;

pub(super) use report::bytes;

use super::{NONE, Run};
use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::on_etcd;
use crate::places;
use cistern_store::check::{Check, Progress as Far, Report};
use cistern_store::{OpenError, Problem, StoppedStore};
use cistern_text::Progress;
use clap::Args;
use report::Unreadable;
use std::path::{Path, PathBuf};

const CHECK_HELP: &str = "\
Reads all of the store once, and needs some 50 bytes of memory for each file, directory and link in it. Changes nothing of what the \
store holds. docs/operating.md says what each fault means. A store on etcd is checked as it is at one revision; its server may go on.

Examples:
  cisternd check
  cisternd check /var/lib/cistern/store --json | jq '.findings[].fault'

Exit status:
  0   the store is sound
  1   it is not: what is wrong is on standard output
  2   wrong usage
  65  the directory is something else
  66  there is no store
  74  the system could not read it
  75  another process, perhaps a server, has the store
  76  a newer version of cistern has written it
  77  no permission to read and write it, or unreliable file locks on its file system";

/// Check a stopped store: every record, and their consistency
#[derive(Args, Debug)]
#[command(after_help = CHECK_HELP)]
pub(crate) struct CheckStore {
    /// The store's directory; else that which `cisternd init` makes
    #[arg(env = "CISTERN_STORE", value_name = "STORE")]
    store: Option<PathBuf>,
    /// List at most N faults; the others are counted
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    most: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Run for CheckStore {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        NONE
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let dir = &places::store(self.store.as_deref())?;
        if on_etcd::is_named(dir) {
            let looked = on_etcd::look(dir, self.most, ctx.progress())?.map_err(|what| Unreadable { what });
            return told(ctx, dir, &looked);
        }
        let looked = match StoppedStore::open(dir) {
            Ok(store) => look(&store, self.most, ctx.progress()),
            // Damage that the engine sees is what a check is for.
            Err(OpenError { problem: Problem::Damaged, what, .. }) => Err(Unreadable { what }),
            Err(e) => return Err(e.into()),
        };
        told(ctx, dir, &looked)
    }
}

/// Prints what was found.
fn told(ctx: &mut Ctx, store: &Path, looked: &Result<Report, Unreadable>) -> Result<(), Failure> {
    let sound = looked.as_ref().is_ok_and(Report::is_clean);
    ctx.print_with(&report::json(store, looked), || report::text(store, looked))?;
    Failure::of_status(if sound { 0 } else { EXIT_FAILED })
}

/// Reads all of a store, and says at a terminal how far it is.
pub(super) fn look(store: &StoppedStore, findings_max: usize, progress: Progress) -> Result<Report, Unreadable> {
    look_at(|| store.iter(), findings_max, progress).map_err(|what| Unreadable { what })
}

/// Reads all records, which `scan` gives in the order of their keys.
pub(crate) fn look_at<I>(scan: impl Fn() -> I, findings_max: usize, mut progress: Progress) -> Result<Report, String>
where
    I: Iterator<Item = Result<(Vec<u8>, Vec<u8>), String>>,
{
    let tell = |far: Far| {
        let of = if far.objects_expected > 0 { format!(" of {}", far.objects_expected) } else { String::new() };
        progress.tell(&format!("checking: {} records, {}{of} objects", far.records, far.objects));
    };
    (Check { findings_max }).run(|| Ok(scan()), tell)
}
