//! `cisternd init`: creates a store.

use super::{NONE, Run};
use crate::ctx::Ctx;
use crate::execute::EXIT_STORE;
use crate::local::Failure;
use cistern_server::store::{Counter, Key, NEW_CLUSTER, counter_to_bytes};
use cistern_store::StoppedStore;
use cistern_wire::StoreId;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

const INIT_HELP: &str = "\
Creates the store that `cisternd --store STORE` serves, and asserts that no agent holds a lock of an earlier server of this cluster. If such a server's \
store was lost, use --replacement.

Examples:
  cisternd init ./store
  cisternd init --replacement /var/lib/cistern/store

Exit status:
  0   created
  2   wrong usage
  65  the directory is not empty
  74  the directory cannot be written
  77  no permission to write it, or unreliable file locks on its file system";

/// Create an empty store
#[derive(Args, Debug)]
#[command(after_help = INIT_HELP)]
pub(crate) struct Init {
    /// Directory of the new store, missing or empty, on a local file system
    #[arg(env = "CISTERN_STORE", hide_env_values = true, value_name = "STORE")]
    store: PathBuf,
    /// The store replaces one that was lost: the server grants no lock until every lease of the earlier server has expired
    #[arg(long)]
    replacement: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Run for Init {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        NONE
    }

    /// Until the store is marked, its server waits: a crash in between costs a wait, and no lease.
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::new("STORE", EXIT_STORE, format!("store {}: {why}", self.store.display()));
        let random = cistern_driver::seed().map_err(|e| failed(&e))?;
        let id = random.first_chunk().map_or(StoreId([0; 16]), |id| StoreId(*id));
        let mut store = StoppedStore::create(&self.store, id)?;
        if !self.replacement {
            let mark = (Key::Counter(Counter::Restored).to_bytes(), Some(counter_to_bytes(NEW_CLUSTER).into()));
            store.write([mark]).map_err(|e| failed(&e))?;
        }
        let made = json!({ "store": self.store.to_string_lossy(), "id": id.to_string() });
        ctx.print_with(&made, || {
            format!("created store {id} in {}; `cisternd --store {}` serves it", self.store.display(), self.store.display())
        })
    }
}
