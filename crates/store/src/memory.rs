//! A store in memory.
//!
//! Decides: how questions are answered and batches kept: in one ordered map, at once. It is volatile: what it holds goes with the
//! process, so a server on it is a new, empty cluster at each start. Place in the walk: the driver hands it the server's work and
//! gives the server its events. Invariant: batches become durable in their order, and an answer is of a state that holds every batch
//! reported durable before.
//! Leaves to others: keys and records (`cistern_server::store`), threads (there are none).

use cistern_server::store::{Answer, Batch, Key, Loaded, Query, StoreEvent, StoreWork};
use std::collections::BTreeMap;

use bytes::Bytes;

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    values: BTreeMap<Key, Bytes>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Does a piece of work; what comes of it, in order.
    pub fn take(&mut self, work: StoreWork) -> Vec<StoreEvent> {
        match work {
            StoreWork::Load(queries) => {
                let answer = |query| StoreEvent::Loaded(Loaded { answer: self.answer(&query), query });
                queries.into_iter().map(answer).collect()
            }
            StoreWork::Persist(batch) => {
                let id = batch.id;
                self.keep(batch);
                vec![StoreEvent::Durable(id)]
            }
        }
    }

    /// Keys in the store.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn keep(&mut self, batch: Batch) {
        batch.write_to(&mut self.values);
    }

    pub(crate) fn answer(&self, query: &Query) -> Answer {
        query.answer_from(&self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::{ObjectId, SessionId};

    fn entry(dir: u64, name: &str) -> Key {
        Key::Entry(ObjectId(dir), name.as_bytes().into())
    }

    fn ask(store: &mut MemoryStore, query: Query) -> Answer {
        match store.take(StoreWork::Load(vec![query])).pop() {
            Some(StoreEvent::Loaded(loaded)) => loaded.answer,
            other => panic!("{other:?}"),
        }
    }

    fn store(names: &[(u64, &str)]) -> MemoryStore {
        let mut store = MemoryStore::new();
        let writes = names.iter().map(|(dir, name)| (entry(*dir, name), Some(Bytes::from_static(b"v")))).collect();
        assert_eq!(store.take(StoreWork::Persist(Batch { id: 1, writes })), [StoreEvent::Durable(1)]);
        store
    }

    #[test]
    fn a_page_of_a_directory_has_its_own_entries_in_order_and_says_when_it_is_the_last() {
        let mut store = store(&[(1, "z"), (2, "b"), (2, "a"), (2, "c"), (3, "a")]);
        let mut page = |after: &str, limit| {
            let scan = Query::Scan { dir: ObjectId(2), after: after.as_bytes().into(), limit };
            let Answer::Entries { entries, end } = ask(&mut store, scan) else { panic!("no entries") };
            (entries.iter().map(|(name, _)| String::from_utf8(name.to_vec()).unwrap()).collect::<Vec<_>>(), end)
        };
        assert_eq!(page("", 2), (vec!["a".to_owned(), "b".to_owned()], false));
        assert_eq!(page("b", 2), (vec!["c".to_owned()], true));
        assert!(page("", 3).1);
        assert_eq!(page("c", 1), (vec![], true));
    }

    #[test]
    fn a_page_of_sessions_has_their_records_alone_in_order() {
        let mut store = store(&[(1, "a")]);
        let key = |n| Key::Session(SessionId(n));
        let writes = [key(9), key(3), Key::Outcome(SessionId(3), 0), key(u64::MAX)].map(|key| (key, Some(Bytes::from_static(b"v"))));
        store.take(StoreWork::Persist(Batch { id: 2, writes: writes.into() }));
        let mut page = |after, limit| {
            let Answer::Records { records, end } = ask(&mut store, Query::Records { after: key(after), limit }) else { panic!() };
            let id = |key: &Key| if let Key::Session(id) = key { id.0 } else { panic!("{key:?}") };
            (records.iter().map(|record| id(&record.0)).collect::<Vec<_>>(), end)
        };
        assert_eq!(page(0, 2), (vec![3, 9], false));
        assert_eq!(page(9, 2), (vec![u64::MAX], true));
        assert_eq!(page(0, 3), (vec![3, 9, u64::MAX], true));
        assert_eq!(page(u64::MAX, 1), (vec![], true));
    }

    #[test]
    fn what_a_batch_deletes_is_gone_and_what_it_writes_is_there() {
        let mut store = store(&[(1, "a")]);
        store.take(StoreWork::Persist(Batch { id: 2, writes: vec![(entry(1, "a"), None), (entry(1, "b"), Some(Bytes::new()))] }));
        assert_eq!(ask(&mut store, Query::Get(entry(1, "a"))), Answer::Value(None));
        assert_eq!(ask(&mut store, Query::Get(entry(1, "b"))), Answer::Value(Some(Bytes::new())));
        assert_eq!(store.len(), 1);
    }
}
