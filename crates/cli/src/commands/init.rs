//! `cisternd init`: creates a store, and the first credentials of a cluster.
//!
//! Decides: that keys and roster come first, of which nothing is overwritten, and the store last: whoever finds a store finds its keys, and a run that was
//! killed is done again.

use super::key::random;
use super::{NONE, Run};
use crate::ctx::Ctx;
use crate::execute::{EXIT_SOFTWARE, EXIT_STORE};
use crate::local::Failure;
use crate::on_etcd;
use crate::places::{self, Daemon, own_credentials};
use crate::show;
use bytes::Bytes;
use cistern_client::DEFAULT_PORT;
use cistern_credentials::{CLUSTER_KEY, Initial, MadeCluster};
use cistern_seal::key::Role;
use cistern_server::store::{Counter, Key, NEW_CLUSTER, RESTORED, counter_to_bytes};
use cistern_store::StoppedStore;
use cistern_text::row;
use cistern_trust::{Fingerprint, ServerAddress};
use cistern_wire::StoreId;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;

const INIT_HELP: &str = "\
Makes the keys of server, cluster and operator as far as they are missing, then the store. Keys that are there are used: a second server, or a new store in \
place of a lost one, belongs to the cluster that agents trust already. The operator is this user: its key and the roster of servers, which the cluster's key signs, are \
where every command of this user looks for them. Keep a copy of server.key and cluster.key.

Creates the store that `cisternd --store STORE` serves, or `cisternd` alone where no STORE is named. Agents may still hold locks of an earlier server of this cluster, so the first start grants \
nothing until their leases are over: it waits for the longest lease by its own lease-max, about a minute by default. Keep lease-max at least the earlier \
server's for this start.

--new-cluster skips the wait. It asserts that no server of this cluster was before: never give it after a store was lost, or a lock gets a second holder.

After a store was lost, `cisternd restore` a backup. Without one, --above with the epoch of the lost store (`cistern status` showed it; 1 if it was never \
restored) keeps fencing tokens and ids above all that it gave out.

Examples:
  cisternd init
  cisternd init --new-cluster ./store
  cisternd init --above 1 /var/lib/cistern/store
  cisternd init etcd://a:2379,b:2379,c:2379/cistern
  cisternd init --keys-only --state ./b --address b:7311
  cisternd init --address meta.example.net:7311 --cluster-key-out /media/stick/cluster.key /var/lib/cistern/store

Exit status:
  0   created
  1   a key or roster that is there cannot be used, or one cannot be made
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
    /// Directory of the new store, missing or empty, on a local file system, or etcd://HOST:PORT,.../PREFIX; else /var/lib/cistern/store for root, cistern/store in $XDG_STATE_HOME (else ~/.local/state) for others
    #[arg(env = "CISTERN_STORE", hide_env_values = true, value_name = "STORE")]
    store: Option<PathBuf>,
    /// No server of this cluster was before: the first start grants at once, without waiting for the longest lease
    #[arg(long)]
    new_cluster: bool,
    /// Highest epoch of a store that was lost, 1 to 254: this one's will be above it
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=254), value_name = "EPOCH", conflicts_with = "new_cluster")]
    above: Option<u8>,
    /// Make keys and roster only, for a further server of a group: the store is there (docs/group.md)
    #[arg(long, conflicts_with_all = ["store", "new_cluster", "above"])]
    keys_only: bool,
    /// Address by which agents reach the server (host:port, [v6]:port); repeatable, at most 4
    #[arg(long, value_name = "ADDRESS", default_values_t = [loopback()])]
    address: Vec<ServerAddress>,
    /// State directory of the server, where its key is; as that of `cisternd`
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Directory of the operator's credentials; else /etc/cistern for root, ~/.config/cistern for everybody else
    #[arg(long, value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// File of the cluster's secret key, which can be kept offline; else cluster.key among the operator's credentials
    #[arg(long, value_name = "FILE")]
    cluster_key_out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Where a server of this host is.
pub(super) fn loopback() -> ServerAddress {
    format!("127.0.0.1:{DEFAULT_PORT}").parse().expect("it is one")
}

impl Init {
    /// Makes the keys and the roster that are missing.
    fn credentials(&self) -> Result<MadeCluster, Failure> {
        let own = self.credentials.as_ref().map_or_else(|| own_credentials("--credentials DIR"), |dir| Ok(dir.clone()))?;
        let initial = Initial {
            server: Daemon::Server.state(self.state.as_deref())?,
            cluster_key: self.cluster_key_out.clone().unwrap_or_else(|| own.join(CLUSTER_KEY)),
            own,
            addresses: self.address.clone(),
        };
        let [server, operator, cluster] = [random(), random(), random()];
        let random = server.and_then(|server| Ok([server, operator?, cluster?]));
        Ok(initial.make(random.map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, e.to_string()))?)?)
    }
}

impl Run for Init {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        NONE
    }

    /// Until the store is marked, its server waits and begins in the first epoch: of an `init` that was killed nothing is to be served.
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        if self.keys_only {
            let made = self.credentials()?;
            return ctx.print_with(&described(&made), || show::columns(&files(&made)));
        }
        let dir = &places::store(self.store.as_deref())?;
        let failed = |why: &dyn std::fmt::Display| Failure::new("STORE", EXIT_STORE, format!("store {}: {why}", dir.display()));
        let seed = cistern_driver::seed().map_err(|e| failed(&e))?;
        let id = seed.first_chunk().map_or(StoreId([0; 16]), |id| StoreId(*id));
        on_etcd::is_built(dir)?;
        let cluster = self.credentials()?;
        let marks = match (self.new_cluster, self.above) {
            (true, _) => vec![(Counter::Restored, NEW_CLUSTER)],
            (false, Some(epoch)) => vec![(Counter::Epoch, u64::from(epoch)), (Counter::Restored, RESTORED)],
            (false, None) => Vec::new(),
        };
        let marks =
            marks.into_iter().map(|(counter, value)| (Key::Counter(counter), Bytes::from(counter_to_bytes(value)))).collect::<Vec<_>>();
        if on_etcd::is_named(dir) {
            on_etcd::create(dir, id, marks)?;
        } else {
            let mut store = StoppedStore::create(dir, id)?;
            if !marks.is_empty() {
                store.write(marks.into_iter().map(|(key, value)| (key.to_bytes(), Some(value)))).map_err(|e| failed(&e))?;
            }
        }
        let mut made = described(&cluster);
        (made["store"], made["id"]) = (dir.to_string_lossy().into(), id.to_string().into());
        ctx.print_with(&made, || {
            let wait =
                if self.new_cluster { "" } else { "; its first start grants nothing until the longest lease of an earlier server is over" };
            let serves = self.store.as_ref().map_or_else(|| "cisternd".to_owned(), |_| format!("cisternd --store {}", dir.display()));
            format!(
                "{}\ncluster {}\ncreated store {id} in {}; `{serves}` serves it{wait}",
                show::columns(&files(&cluster)),
                Fingerprint::of(&cluster.pinned.cluster().to_string()),
                dir.display()
            )
        })
    }
}

/// What was made, as JSON.
fn described(cluster: &MadeCluster) -> Value {
    let paths = |paths: &[PathBuf]| paths.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>();
    json!({
        "cluster": cluster.pinned.cluster().to_string(),
        "server": cluster.server.to_text(Role::Server),
        "operator": cluster.operator.to_text(Role::Agent),
        "made": paths(&cluster.made),
        "kept": paths(&cluster.kept),
    })
}

/// The files that were made and kept, as rows.
fn files(cluster: &MadeCluster) -> Vec<Vec<String>> {
    let of = |what: &'static str, paths: &[PathBuf]| paths.iter().map(|path| row([&what, &path.display()])).collect::<Vec<_>>();
    [of("made", &cluster.made), of("kept", &cluster.kept)].concat()
}
