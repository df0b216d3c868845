//! What an operator's commands do with a store on etcd: make it, read all of it, adopt a restored one.
//!
//! Decides: that all is read at one revision, the journal included, so that a server may go on meanwhile; that nothing is made over anything;
//! that a restored etcd is adopted last, when all that makes it a store of its own is durable.

use super::{EtcdStore, Work, error, io_error, members, name, runtime};
use crate::chunk::{Writes, read_part};
use crate::reason::Reason;
use crate::record::{Identity, Sequence, end_of};
use crate::sequencer::Sequencer;
use crate::target::Target;
use crate::txn::{Compare, Op, Outcome, Txn};
use bytes::Bytes;
use cistern_server::store::{Batch, BatchId, Key, StoreEvent, StoreWork};
use cistern_store::{OpenError, Problem};
use cistern_wire::{ObjectId, StoreId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::connection::Members;
use tokio::runtime::Runtime;

/// Keys of a page: many, for etcd counts for each page how many there are behind it; where they have blocks and extended attributes of up to
/// 64 KiB each, as many as an answer has room for.
const PAGE: usize = 16_384;
const PAGE_OF_BLOCKS: usize = 256;
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
        let (journal, trouble) = match self.journal() {
            Ok(journal) => (journal, None),
            Err(what) => (Writes::new(), Some(Err(what))),
        };
        let journal: BTreeMap<Vec<u8>, Option<Bytes>> = journal.into_iter().map(|(key, value)| (key.to_bytes(), value)).collect();
        let is_broken = trouble.is_some();
        trouble.into_iter().chain(newest(self.applied().take_while(move |_| !is_broken), journal))
    }

    /// What was applied.
    fn applied(&self) -> impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), String>> + '_ {
        let data = self.target.keys.data();
        let (blocks, behind) = (Key::Block(ObjectId(0), 0).to_bytes()[0], Key::Xattrs(ObjectId(0)).to_bytes()[0] + 1);
        let [blocks, behind] = [blocks, behind].map(|kind| Bytes::from([&data[..], &[kind]].concat()));
        let mut ranges = VecDeque::from([
            (data.to_vec(), blocks.clone(), PAGE),
            (blocks.to_vec(), behind.clone(), PAGE_OF_BLOCKS),
            (behind.to_vec(), end_of(&data), PAGE),
        ]);
        let pages = std::iter::from_fn(move || {
            let (from, to, limit) = ranges.front_mut()?;
            let page = self.runtime.block_on(tried(|tries| self.members.range(from, to, *limit, self.revision, tries)));
            match page {
                Ok((pairs, end, _)) => {
                    if let Some((last, _)) = pairs.last() {
                        *from = [last, &[0][..]].concat();
                    }
                    ranges.pop_front_if(|_| end);
                    Some(pairs.into_iter().map(|(key, value)| Ok((key[data.len()..].to_vec(), value.to_vec()))).collect::<Vec<_>>())
                }
                Err(what) => {
                    ranges.clear();
                    Some(vec![Err(what)])
                }
            }
        });
        pages.flatten()
    }

    /// What is in the journal.
    fn journal(&self) -> Result<Writes, String> {
        let mut writes = Writes::new();
        let value = |key: Bytes| {
            let to = [&key[..], &[0]].concat();
            let found = self.runtime.block_on(tried(|tries| self.members.range(&key, &to, 1, self.revision, tries)));
            found.map(|(mut found, ..)| found.pop().map(|(_, value)| value))
        };
        let Some(sequence) = value(self.target.keys.sequence())? else { return Ok(writes) };
        let sequence = Sequence::from_bytes(&sequence).ok_or("the sequence of the store is damaged")?;
        for (of, part) in sequence.journal.into_iter().flat_map(|journal| (1..=journal.last).map(move |part| (journal.of, part))) {
            let found = value(self.target.keys.part(of, part))?;
            found
                .and_then(|part| read_part(part, &mut writes))
                .ok_or_else(|| format!("part {part} of the journal is missing or damaged"))?;
        }
        Ok(writes)
    }
}

/// What is left of all that was applied when the journal is applied as well. Both are in the order of the keys.
fn newest(
    applied: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), String>>,
    journal: BTreeMap<Vec<u8>, Option<Bytes>>,
) -> impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), String>> {
    let (mut applied, mut journal) = (applied.peekable(), journal.into_iter().peekable());
    std::iter::from_fn(move || {
        loop {
            let Some((key, _)) = journal.peek() else { return applied.next() };
            match applied.peek() {
                Some(Err(_)) => return applied.next(),
                Some(Ok((before, _))) if before < key => return applied.next(),
                Some(Ok((same, _))) if same == key => drop(applied.next()),
                _ => {}
            }
            if let Some((key, Some(value))) = journal.next() {
                return Some(Ok((key, value.to_vec())));
            }
        }
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_newer_than_what_was_applied() {
        let applied = [(1, "a"), (2, "b"), (4, "d")].map(|(key, value)| Ok((vec![key], Vec::from(value))));
        let journal = [(0, Some("new")), (2, None), (3, None), (4, Some("newer")), (5, Some("last"))];
        let journal = journal.map(|(key, value)| (vec![key], value.map(Bytes::from))).into();
        let newest: Vec<_> = newest(applied.into_iter(), journal).map(|pair| pair.unwrap()).collect();
        let expected = [(0, "new"), (1, "a"), (4, "newer"), (5, "last")].map(|(key, value)| (vec![key], Vec::from(value)));
        assert_eq!(newest, expected);
    }

    #[test]
    fn after_an_error_nothing_follows_but_the_error() {
        let applied = [Ok((vec![1], vec![])), Err("no answer".to_owned())];
        let journal = [(vec![9], Some(Bytes::new()))].into();
        assert_eq!(newest(applied.into_iter(), journal).nth(1), Some(Err("no answer".to_owned())));
    }
}
