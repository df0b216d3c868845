//! A store for millions of files that it does not keep: one file stands for all that are locked.
//!
//! Decides what the server's core is told when it loads a file to be locked: the first file that is made stands for all that are not
//! kept. Place: below `tables`, beside the core under measurement, and in the server of `sessions`.
//! Invariant: what it holds does not grow with sessions or locks, so the process's memory is that of the core.
//! Leaves to others: whatever else the core asks or writes (`cistern_store::MemoryStore`).

use bytes::Bytes;
use cistern_server::store::{Answer, Key, Loaded, Query, StoreEvent, StoreWork};
use cistern_store::MemoryStore;
use cistern_wire::ObjectId;
use cistern_wire::limits::ROOT;

/// The first of the files that are not kept; ids of files that are made stay below.
pub(crate) const FIRST: u64 = 1 << 40;

/// The store.
#[derive(Debug, Default)]
pub(crate) struct Store {
    kept: MemoryStore,
    /// The record of every file from [`FIRST`] on.
    model: Option<Bytes>,
}

impl Store {
    /// Whether a file was made that stands for all.
    pub(super) const fn has_model(&self) -> bool {
        self.model.is_some()
    }

    /// Does a piece of work; what comes of it, in order.
    pub(crate) fn take(&mut self, work: StoreWork) -> Vec<StoreEvent> {
        match work {
            StoreWork::Load(queries) => queries.into_iter().flat_map(|query| self.load(query)).collect(),
            StoreWork::Persist(mut batch) => {
                let mut made = batch.writes.iter().filter(|(key, _)| matches!(key, Key::Object(file) if file.0 != ROOT));
                if let (None, Some((_, record))) = (&self.model, made.next()) {
                    self.model.clone_from(record);
                }
                batch.writes.retain(|(key, _)| !matches!(key, Key::Session(_) | Key::Outcome(..)));
                self.kept.take(StoreWork::Persist(batch))
            }
        }
    }

    fn load(&mut self, query: Query) -> Vec<StoreEvent> {
        match query {
            Query::Get(Key::Object(ObjectId(id))) if id >= FIRST => {
                vec![StoreEvent::Loaded(Loaded { query, answer: Answer::Value(self.model.clone()) })]
            }
            _ => self.kept.take(StoreWork::Load(vec![query])),
        }
    }
}
