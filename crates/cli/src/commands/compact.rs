//! `cisternd compact`: gives space back.

use super::check::bytes;
use super::{NONE, Run};
use crate::ctx::Ctx;
use crate::execute::EXIT_STORE;
use crate::local::Failure;
use crate::on_etcd;
use crate::places;
use cistern_store::StoppedStore;
use clap::Args;
use serde_json::json;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const COMPACT_HELP: &str = "\
Rewrites the tables without what was removed, and empties the journals. Needs as much space again while it runs. A server does this by
itself, a little at a time, and when it has no room; after much was removed at once it is quicker.

Examples:
  cisternd compact

Exit status:
  0   compacted
  2   wrong usage
  65, 66, 74, 75, 76, 77  as of `cisternd check`";

/// Reclaim the space of deleted and replaced data
#[derive(Args, Debug)]
#[command(after_help = COMPACT_HELP)]
pub(crate) struct Compact {
    /// The store's directory; else that which `cisternd init` makes
    #[arg(env = "CISTERN_STORE", value_name = "STORE")]
    store: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Run for Compact {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        NONE
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let dir = &places::store(self.store.as_deref())?;
        on_etcd::refuse(dir, "etcd gives space back by its own commands, `etcdctl compact` and `etcdctl defrag`")?;
        let size = || size_of(dir).map_err(|e| Failure::new("STORE", EXIT_STORE, format!("{}: {e}", dir.display())));
        let store = StoppedStore::open(dir)?;
        let before = size()?;
        let mut progress = ctx.progress();
        progress.tell("compacting");
        let compacted = store.compact();
        progress.done();
        compacted.map_err(|e| Failure::new("STORE", EXIT_STORE, format!("store {}: {e}", dir.display())))?;
        drop(store);
        let after = size()?;
        let made = json!({ "store": dir.to_string_lossy(), "bytes_before": before, "bytes_after": after });
        ctx.print_with(&made, || format!("{}: {} before, {} now", dir.display(), bytes(before), bytes(after)))
    }
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
