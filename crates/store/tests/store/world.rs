//! A store to be used by a test, and batches that can be recognised afterwards.

use bytes::Bytes;
use cistern_server::store::{Answer, Batch, BatchId, Key, Loaded, Query, StoreEvent, StoreWork};
use cistern_store::{DurableStore, Making, OpenError, Options, StoppedStore};
use cistern_wire::{ObjectId, StoreId};
use std::path::Path;
use std::time::Duration;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const ID: StoreId = StoreId([0xC1; 16]);

pub(crate) fn options() -> Options {
    Options { cache_bytes: 4 << 20, ..Options::new(Making::New(ID)) }
}

pub(crate) fn open(dir: &Path) -> Result<DurableStore, OpenError> {
    DurableStore::open(dir, &options(), || {})
}

pub(crate) fn opened(dir: &Path) -> DurableStore {
    open(dir).unwrap_or_else(|e| panic!("{e}"))
}

/// Hands a batch over.
pub(crate) fn hand(store: &mut DurableStore, id: BatchId, writes: Vec<(Key, Option<Bytes>)>) {
    store.take(StoreWork::Persist(Batch { id, writes }));
}

/// Waits until a batch is durable.
pub(crate) fn wait(store: &mut DurableStore, id: BatchId) {
    loop {
        match store.event_within(PATIENCE) {
            Some(StoreEvent::Durable(durable)) if durable >= id => return,
            Some(StoreEvent::Durable(_) | StoreEvent::Loaded(_) | StoreEvent::Room(_)) => {}
            other => panic!("batch {id} did not become durable: {other:?}"),
        }
    }
}

pub(crate) fn ask(store: &mut DurableStore, query: Query) -> Answer {
    store.take(StoreWork::Load(vec![query]));
    loop {
        match store.event_within(PATIENCE) {
            Some(StoreEvent::Loaded(Loaded { answer, .. })) => return answer,
            Some(StoreEvent::Durable(_) | StoreEvent::Room(_)) => {}
            other => panic!("no answer: {other:?}"),
        }
    }
}

pub(crate) fn value(store: &mut DurableStore, key: Key) -> Option<Bytes> {
    match ask(store, Query::Get(key)) {
        Answer::Value(value) => value,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn entry(dir: u64, name: &str) -> Key {
    Key::Entry(ObjectId(dir), name.as_bytes().into())
}

/// Keys in a batch of [`numbered`].
pub(crate) const NUMBERED: u64 = 4;

/// A batch that says which it is in each of its keys; each also writes the key of the one before over.
pub(crate) fn numbered(id: BatchId) -> Vec<(Key, Option<Bytes>)> {
    let value = |n: u64| Some(Bytes::from([id.to_be_bytes(), n.to_be_bytes()].concat().repeat(6)));
    let mut writes: Vec<_> = (0..NUMBERED).map(|n| (Key::Object(ObjectId(id * NUMBERED + n)), value(n))).collect();
    writes.push((entry(1, "newest"), Some(Bytes::copy_from_slice(&id.to_be_bytes()))));
    writes
}

/// The newest batch of [`numbered`] in a store of which each batch is there whole up to it, and none after it.
pub(crate) fn newest_numbered(store: &StoppedStore) -> Result<BatchId, String> {
    let newest = match store.get(&entry(1, "newest").to_bytes())? {
        Some(bytes) => u64::from_be_bytes(bytes[..].try_into().map_err(|_| "a wrong length".to_owned())?),
        None => 0,
    };
    let mut found = 0;
    for entry in store.iter() {
        let (key, value) = entry?;
        if let Ok(Key::Object(ObjectId(object))) = Key::from_bytes(&key) {
            let (id, n) = (object / NUMBERED, object % NUMBERED);
            assert_eq!(value, [id.to_be_bytes(), n.to_be_bytes()].concat().repeat(6), "the value of another key");
            assert!(id <= newest, "a part of batch {id}, and the newest is {newest}");
            found += 1;
        }
    }
    assert_eq!(found, newest * NUMBERED, "parts of batches up to {newest}");
    Ok(newest)
}
/// Copies a directory as it is at this moment; holes stay holes.
pub(crate) fn copy_dir(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").args(["-r", "--sparse=always"]).arg(from).arg(to).status().expect("cp");
    assert!(status.success(), "cp: {status}");
}

/// A stream of numbers (splitmix64).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}
