//! What an operator's commands do with a store on etcd: make it, read all of it, adopt a restored one.
//!
//! Decides: that all is read at one revision, so that a server may go on meanwhile; that nothing is made over anything; that a restored etcd
//! is adopted last, when all that makes it a store of its own is durable.

use super::{EtcdStore, Work, error, io_error, members, name, runtime};
use crate::record::{Identity, end_of};
use crate::sequencer::{Reason, Sequencer};
use crate::target::Target;
use crate::txn::{Compare, Op, Outcome, Txn};
use bytes::Bytes;
use cistern_server::store::{Batch, BatchId, Key, StoreEvent, StoreWork};
use cistern_store::{OpenError, Problem};
use cistern_wire::StoreId;
use std::time::Duration;

use super::connection::Members;
use tokio::runtime::Runtime;

/// How often something is asked before a command gives up.
const TRIES: u32 = 12;
/// Time between two of these.
const PAUSE: Duration = Duration::from_millis(250);
/// How long a write of a command may take.
const WRITE_MAX: Duration = Duration::from_secs(30);

/// A store on etcd as a command sees it, with or without a server on it.
pub struct StoppedEtcd {
    target: Target,
    members: Members,
    runtime: Runtime,
    identity: Identity,
    /// Of the cluster that answers, and its newest revision when this was opened.
    cluster: u64,
    revision: u64,
}

impl std::fmt::Debug for StoppedEtcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoppedEtcd").field("target", &self.target).finish_non_exhaustive()
    }
}

impl StoppedEtcd {
    /// Looks for the store.
    ///
    /// # Errors
    /// [`OpenError`]: there is none, it is something else, etcd does not answer.
    pub fn open(target: &Target) -> Result<Self, OpenError> {
        let (members, runtime) = (members(target)?, runtime().map_err(|e| io_error(target, &e))?);
        let key = target.keys.identity();
        let found = runtime.block_on(tried(|tries| members.value(&key, tries)));
        let (value, header) = found.map_err(|what| silent(target, what))?;
        let value = value.ok_or_else(|| error(target, &Reason::Missing))?;
        let identity = Identity::from_bytes(&value).map_err(|what| error(target, &Reason::Foreign(what)))?;
        Ok(Self { target: target.clone(), members, runtime, identity, cluster: header.cluster, revision: header.revision })
    }

    /// Whether this etcd is another one than that in which the store was written.
    #[must_use]
    pub const fn is_restored(&self) -> bool {
        self.identity.cluster != self.cluster
    }

    /// All keys and values, as bytes, in the order of the keys, as they were when this was opened. After an error nothing follows.
    pub fn iter(&self) -> impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), String>> + '_ {
        let data = self.target.keys.data();
        let (mut from, to, mut is_over) = (data.to_vec(), end_of(&data), false);
        let pages = std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let page = self.runtime.block_on(tried(|tries| self.members.range(&from, &to, usize::MAX, self.revision, tries)));
            match page {
                Ok((pairs, end, _)) => {
                    is_over = end;
                    if let Some((last, _)) = pairs.last() {
                        from = [last, &[0][..]].concat();
                    }
                    Some(pairs.into_iter().map(|(key, value)| Ok((key[data.len()..].to_vec(), value.to_vec()))).collect::<Vec<_>>())
                }
                Err(what) => {
                    is_over = true;
                    Some(vec![Err(what)])
                }
            }
        });
        pages.flatten()
    }
}

/// Makes an empty store with these records; `id` must be a random one, or that of the store that it replaces.
///
/// # Errors
/// [`OpenError`]: there is something under the prefix, or etcd does not answer.
pub fn create(target: &Target, id: StoreId, records: impl IntoIterator<Item = (Key, Bytes)>) -> Result<(), OpenError> {
    let (members, runtime, keys) = (members(target)?, runtime().map_err(|e| io_error(target, &e))?, &target.keys);
    let prefix = keys.to_string();
    let to = end_of(prefix.as_bytes());
    let found = runtime.block_on(tried(|tries| members.range(prefix.as_bytes(), &to, 1, 0, tries)));
    let (found, _, header) = found.map_err(|what| silent(target, what))?;
    let there_is_one = || error(target, &Reason::Foreign("there is something under this prefix already; name another one".to_owned()));
    if !found.is_empty() {
        return Err(there_is_one());
    }
    let identity = Identity { store: id, cluster: header.cluster, servers: None }.to_bytes();
    let mut then = vec![Op::Put(keys.identity(), identity.clone())];
    then.extend(records.into_iter().map(|(key, value)| Op::Put(keys.of(&key), value)));
    let compares = vec![Compare::Value(keys.identity(), None), Compare::Revision(keys.owner(), 0)];
    let txn = Txn { compares, then, otherwise: vec![Op::Get(keys.identity())] };
    for tries in 0..TRIES {
        match runtime.block_on(members.execute(&txn, tries)) {
            Outcome::Answered(answer) if answer.succeeded => return Ok(()),
            // An earlier copy was executed, or somebody was faster.
            Outcome::Answered(answer) => {
                let is_ours = answer.found.first().is_some_and(|found| found.as_ref().is_some_and(|entry| entry.value == identity));
                return if is_ours { Ok(()) } else { Err(there_is_one()) };
            }
            Outcome::Refused(what) => return Err(error(target, &Reason::Broken(what))),
            Outcome::NoSpace => return Err(silent(target, "etcd has no space".to_owned())),
            Outcome::Unknown => std::thread::sleep(PAUSE),
        }
    }
    Err(silent(target, members.trouble()))
}

impl EtcdStore {
    /// Takes a store that came with a restored etcd, to make it one of its own: [`Self::write`], then [`Self::adopt`].
    ///
    /// # Errors
    /// As [`Self::open`], but that etcd may be another one.
    pub fn open_restored(target: &Target, owner: &str) -> Result<Self, OpenError> {
        Ok(Self::start(target, Sequencer::restoring(target.keys.clone(), Bytes::from(owner.to_owned())), || true, || {})?.0)
    }

    /// Writes records, whole or not at all, as batch `id`; durable when this returns.
    ///
    /// # Errors
    /// In words.
    pub fn write(&mut self, id: BatchId, writes: Vec<(Key, Option<Bytes>)>) -> Result<(), String> {
        self.take(StoreWork::Persist(Batch { id, writes }));
        self.wait_for(id)
    }

    /// Makes this etcd the one that servers of the store believe, as batch `id`; durable when this returns.
    ///
    /// # Errors
    /// In words.
    pub fn adopt(&mut self, id: BatchId) -> Result<(), String> {
        self.give(Work::Adopt(id));
        self.wait_for(id)
    }

    fn wait_for(&mut self, id: BatchId) -> Result<(), String> {
        loop {
            match self.event_within(WRITE_MAX) {
                Some(StoreEvent::Durable(batch)) if batch >= id => return Ok(()),
                Some(StoreEvent::Broken(what)) => return Err(what),
                Some(_) => {}
                None => return Err("etcd does not answer; it may still be written".to_owned()),
            }
        }
    }
}

fn silent(target: &Target, what: String) -> OpenError {
    OpenError { problem: Problem::Io, dir: name(target), what }
}

/// Asks until there is an answer, or it was asked often enough.
async fn tried<T, F: Future<Output = Result<T, String>>>(call: impl Fn(u32) -> F) -> Result<T, String> {
    let mut tries = 0;
    loop {
        match call(tries).await {
            Err(_) if tries < TRIES => tokio::time::sleep(PAUSE).await,
            answer => return answer,
        }
        tries += 1;
    }
}
