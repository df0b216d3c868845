//! Stores on etcd: opened for a server, made, checked, adopted after a restore.

use super::{Probed, StoredServers};
use crate::commands::check::look_at;
use crate::execute::{EXIT_FAILED, EXIT_SOFTWARE, EXIT_STORE};
use crate::local::Failure;
use bytes::Bytes;
use cistern_server::store::Key;
use cistern_store::check::Report;
use cistern_store::{OpenError, Problem, restoration, revocation};
use cistern_store_etcd::{EtcdStore, ServerList, StoppedEtcd, Target};
use cistern_text::Progress;
use cistern_trust::Revocations;
use cistern_wire::StoreId;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn target(store: &Path) -> Result<Target, Failure> {
    store.to_string_lossy().parse().map_err(Failure::usage)
}

/// What a start calls itself in etcd: for people, and different for each.
fn owner() -> Result<String, Failure> {
    let seed = cistern_driver::seed().map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, e.to_string()))?;
    let nonce = seed.first_chunk().map_or(0, |nonce| u128::from_be_bytes(*nonce));
    let host = nix::unistd::gethostname().unwrap_or_default();
    Ok(format!("{} process {} start {nonce:032x} at {}", host.to_string_lossy(), std::process::id(), now()))
}

/// Seconds since 1970; 0 before.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Takes the store for a server.
pub(crate) fn open(store: &Path, wake: impl Fn() + Send + Sync + 'static) -> Result<EtcdStore, Failure> {
    Ok(EtcdStore::open(&target(store)?, &owner()?, wake)?)
}

/// Takes the store for the server of a group that these have elected, as long as `may_take`.
pub(crate) fn open_elected(
    store: &Path,
    (number, servers): StoredServers,
    may_take: impl Fn() -> bool + Send + 'static,
    wake: impl Fn() + Send + Sync + 'static,
) -> Result<EtcdStore, Failure> {
    Ok(EtcdStore::open_elected(&target(store)?, &owner()?, ServerList { number, servers }, may_take, wake)?)
}

/// Looks whether the store is there, every so often.
pub(crate) fn probe(store: &Path, period: Duration, tell: impl Fn(Probed) -> bool + Send + 'static) -> Result<(), Failure> {
    let tell = move |came: Result<Option<ServerList>, OpenError>| {
        tell(match came {
            Ok(list) => Probed::Answered(list.map(|list| (list.number, list.servers))),
            Err(e) if e.problem == Problem::Io => Probed::Silent(e.what),
            Err(e) => Probed::Wrong(e.into()),
        })
    };
    Ok(cistern_store_etcd::probe(&target(store)?, period, tell)?)
}

/// Makes a store.
pub(crate) fn create(store: &Path, id: StoreId, records: Vec<(Key, Bytes)>) -> Result<(), Failure> {
    Ok(cistern_store_etcd::create(&target(store)?, id, records)?)
}

/// Checks a store; the inner error is what cannot be read.
pub(crate) fn look(store: &Path, findings_max: usize, progress: Progress) -> Result<Result<Report, String>, Failure> {
    let stopped = StoppedEtcd::open(&target(store)?)?;
    Ok(look_at(|| stopped.iter(), findings_max, progress))
}

/// Makes the store of a restored etcd one that servers may serve, in which these keys are revoked; its epoch from now on.
pub(crate) fn restored(store: &Path, above: u8, same_cluster: bool, revoked: &Revocations, progress: Progress) -> Result<u8, Failure> {
    let (target, wrong) = (target(store)?, |what: String| Failure::new("STORE", EXIT_STORE, format!("store {}: {what}", store.display())));
    if !StoppedEtcd::open(&target)?.is_restored() && !same_cluster {
        return Err(Failure::new(
            "NOT_RESTORED",
            EXIT_FAILED,
            format!(
                "store {}: this is the etcd in which the store was written; if it was restored in a way that keeps the cluster's id \
                 (--force-new-cluster, a copy of its disk), say so with --same-cluster",
                store.display()
            ),
        ));
    }
    let mut taken = EtcdStore::open_restored(&target, &owner()?)?;
    // Only now, for a journal may have been finished.
    let stopped = StoppedEtcd::open(&target)?;
    let report = look_at(|| stopped.iter(), 0, progress).map_err(wrong)?;
    let restoration = restoration(&report, now(), above).map_err(|e| Failure::new("NOT_RESTORED", EXIT_FAILED, e.to_string()))?;
    let mut writes = revocation(stopped.iter(), revoked.iter().map(|(key, _)| *key.as_bytes())).map_err(wrong)?;
    writes.extend(restoration.writes);
    taken.write(1, writes).map_err(wrong)?;
    taken.adopt(2).map_err(wrong)?;
    Ok(restoration.epoch)
}
