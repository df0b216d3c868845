//! `cisternd init`: creates a store.

use super::{NONE, Run};
use crate::ctx::Ctx;
use crate::execute::EXIT_STORE;
use crate::local::Failure;
use cistern_server::store::{Counter, Key, NEW_CLUSTER, RESTORED, counter_to_bytes};
use cistern_store::StoppedStore;
use cistern_wire::StoreId;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

const INIT_HELP: &str = "\
Creates the store that `cisternd --store STORE` serves. Agents may still hold locks of an earlier server of this cluster, so the first start grants \
nothing until their leases are over: it waits for the longest lease by its own lease-max, about a minute by default. Keep lease-max at least the earlier \
server's for this start.

--new-cluster skips the wait. It asserts that no server of this cluster was before: never give it after a store was lost, or a lock gets a second holder.

After a store was lost, `cisternd restore` a backup. Without one, --above with the epoch of the lost store (`cistern status` showed it; 1 if it was never \
restored) keeps fencing tokens and ids above all that it gave out.

Examples:
  cisternd init /var/lib/cistern/store
  cisternd init --new-cluster ./store
  cisternd init --above 1 /var/lib/cistern/store

Exit status:
  0   created
  2   wrong usage
  65  there is a store already, or the directory is not empty
  74  the directory cannot be written
  75  another process has it
  76  a newer version of cistern has written a store there
  77  no permission to write it, or unreliable file locks on its file system";

/// Create an empty store
#[derive(Args, Debug)]
#[command(after_help = INIT_HELP)]
pub(crate) struct Init {
    /// Directory of the new store, missing or empty, on a local file system
    #[arg(env = "CISTERN_STORE", hide_env_values = true, value_name = "STORE")]
    store: PathBuf,
    /// No server of this cluster was before: the first start grants at once, without waiting for the longest lease
    #[arg(long)]
    new_cluster: bool,
    /// Highest epoch of a store that was lost, 1 to 254: this one's will be above it
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=254), value_name = "EPOCH", conflicts_with = "new_cluster")]
    above: Option<u8>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Run for Init {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        NONE
    }

    /// Until the store is marked, its server waits and begins in the first epoch: of an `init` that was killed nothing is to be served.
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::new("STORE", EXIT_STORE, format!("store {}: {why}", self.store.display()));
        let random = cistern_driver::seed().map_err(|e| failed(&e))?;
        let id = random.first_chunk().map_or(StoreId([0; 16]), |id| StoreId(*id));
        let mut store = StoppedStore::create(&self.store, id)?;
        let marks = match (self.new_cluster, self.above) {
            (true, _) => vec![(Counter::Restored, NEW_CLUSTER)],
            (false, Some(epoch)) => vec![(Counter::Epoch, u64::from(epoch)), (Counter::Restored, RESTORED)],
            (false, None) => Vec::new(),
        };
        if !marks.is_empty() {
            let marks = marks.into_iter().map(|(counter, value)| (Key::Counter(counter).to_bytes(), Some(counter_to_bytes(value).into())));
            store.write(marks).map_err(|e| failed(&e))?;
        }
        let made = json!({ "store": self.store.to_string_lossy(), "id": id.to_string() });
        ctx.print_with(&made, || {
            let wait =
                if self.new_cluster { "" } else { "; its first start grants nothing until the longest lease of an earlier server is over" };
            format!("created store {id} in {0}; `cisternd --store {0}` serves it{wait}", self.store.display())
        })
    }
}
