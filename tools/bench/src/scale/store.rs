//! A store for millions of files that it does not keep: one file stands for all that are locked.
//!
//! Decides what the server's core is told when it loads a file to be locked. Place: below `tables`, beside the core under measurement.
//! Invariant: what it holds does not grow with sessions or locks, so the process's memory is that of the core.
//! Leaves to others: whatever else the core asks or writes (`cistern_store::MemoryStore`).

use bytes::Bytes;
use cistern_server::store::{Answer, Key, Loaded, Query, StoreEvent, StoreWork};
use cistern_store::MemoryStore;
use cistern_wire::ObjectId;

/// The first of the files that are not kept; ids of files that are made stay below.
pub(super) const FIRST: u64 = 1 << 40;

/// The store.
#[derive(Debug, Default)]
pub(super) struct Store {
    kept: MemoryStore,
    /// The record of every file from [`FIRST`] on.
    model: Option<Bytes>,
}

impl Store {
    /// From now on every file from [`FIRST`] on looks like this one.
    pub(super) fn model_on(&mut self, file: ObjectId) -> bool {
        let query = Query::Get(Key::Object(file));
        if let Some(StoreEvent::Loaded(Loaded { answer: Answer::Value(value), .. })) = self.kept.take(StoreWork::Load(vec![query])).pop() {
            self.model = value;
        }
        self.model.is_some()
    }

    /// Does a piece of work; what comes of it, in order.
    pub(super) fn take(&mut self, work: StoreWork) -> Vec<StoreEvent> {
        match work {
            StoreWork::Load(queries) => queries.into_iter().flat_map(|query| self.load(query)).collect(),
            StoreWork::Persist(mut batch) => {
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
