//! `cisternd restored`: an etcd that was restored becomes its store's own.
//!
//! Invariant: a server serves it only after its sessions are over and its epoch is higher (section 11.7).
//! Leaves to others: from which numbers the store goes on (`cistern_store::restoration`).

use super::{NONE, Run};
use crate::ctx::Ctx;
use crate::local::Failure;
use crate::on_etcd;
use crate::places;
use cistern_credentials::RevokedFile;
use cistern_trust::Revocations;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

const RESTORED_HELP: &str = "\
A server refuses a store on etcd when etcd is another cluster than the one in which the store was written, for what the other one had \
acknowledged later is lost. This command makes it the store's own: all sessions are over, and its epoch is above the former one, so that \
every fencing token and id that follows is larger than every one before. End the server of the former etcd first.

Where a later snapshot was ever restored, give the epoch that `cistern status` showed since with --above; agents refuse a store whose \
epoch is lower than they have seen.

Keys that were revoked after the snapshot are good in it. They stand in revoked.log, in the state directory of the server that revoked them; a \
server takes over the log of its own host when it starts. Give copies of the logs of all hosts on which the store was ever served with --revoked.

Examples:
  etcdctl snapshot restore monday.db --data-dir ...      restores etcd
  cisternd restored etcd://a:2379,b:2379,c:2379/cistern
  cisternd restored --revoked h1.log --revoked h2.log etcd://a:2379/cistern     copies of both hosts' revoked.log
  cisternd restored --same-cluster etcd://a:2379/cistern      after etcd's --force-new-cluster

Exit status:
  0   done
  1   not done: etcd was not restored, no epochs are left, the clock cannot be right, or a log cannot be read
  2   wrong usage
  65  what is there is no store
  66  there is no store
  74  etcd does not answer
  77  a file of the credentials cannot be read";

/// Adopt the store of an etcd that was restored from a snapshot
#[derive(Args, Debug)]
#[command(after_help = RESTORED_HELP)]
pub(crate) struct Restored {
    /// The store: etcd://HOST:PORT,.../PREFIX
    #[arg(env = "CISTERN_STORE", value_name = "STORE")]
    store: Option<PathBuf>,
    /// Highest epoch seen: the store's will be above it, and above its own
    #[arg(long, default_value_t = 0, value_name = "EPOCH")]
    above: u8,
    /// A copy of revoked.log of a host on which the store was served; repeatable
    #[arg(long, value_name = "FILE")]
    revoked: Vec<PathBuf>,
    /// etcd was restored, although its cluster id says nothing of it
    #[arg(long)]
    same_cluster: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Run for Restored {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        NONE
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let store = &places::store(self.store.as_deref())?;
        if !on_etcd::is_named(store) {
            return Err(Failure::usage(format!("{} is not on etcd; `cisternd restore` restores a store in a directory", store.display())));
        }
        let mut revoked = Revocations::default();
        for file in &self.revoked {
            for (key, at_s) in RevokedFile::read_copy(file)?.iter() {
                revoked.insert(*key, at_s);
            }
        }
        let epoch = on_etcd::restored(store, self.above, self.same_cluster, &revoked, ctx.progress())?;
        let done = json!({ "store": store.to_string_lossy(), "epoch": epoch });
        ctx.print_with(&done, || {
            format!(
                "{}: its epoch is {epoch} from now on, and its sessions are over. A server on it grants nothing for the time of a lease; \
                 agents that know a higher epoch refuse it: then run this again with --above",
                store.display()
            )
        })
    }
}
