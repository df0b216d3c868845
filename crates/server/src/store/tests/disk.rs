//! A store for tests inside this crate: keeps values in a map, and answers only when told, as a disk would.
//!
//! Decides nothing. A question is answered from the state at a moment of the test's choice between asking and answering, so a
//! test can make an answer as old as a real engine could.

use super::super::record::{counter_from_bytes, counter_to_bytes};
use super::super::{Answer, Batch, BatchId, Counter, Key, Loaded, Query, StoreCache};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{Handle, ObjectId, SessionId};
use core::ops::Bound::{Excluded, Unbounded};

/// The durable values, the questions not answered, the batches not durable.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) values: BTreeMap<Key, Bytes>,
    /// Questions, each with its answer once it was read.
    pub(crate) asked: VecDeque<(Query, Option<Answer>)>,
    pub(crate) batches: VecDeque<Batch>,
}

impl Disk {
    /// Writes a counter, durably.
    pub(crate) fn set_counter(&mut self, counter: Counter, value: u64) {
        self.values.insert(Key::Counter(counter), counter_to_bytes(value).into());
    }

    /// A counter as it is durable; 0 if it was never written.
    pub(crate) fn counter(&self, counter: Counter) -> u64 {
        self.values.get(&Key::Counter(counter)).map_or(0, |bytes| counter_from_bytes(bytes).unwrap())
    }

    /// Takes questions.
    pub(crate) fn ask(&mut self, queries: Vec<Query>) {
        self.asked.extend(queries.into_iter().map(|query| (query, None)));
    }

    /// Reads the answer to a question, and does not give it yet.
    pub(crate) fn read(&mut self, at: usize) {
        let answer = self.answer(&self.asked[at].0);
        self.asked[at].1.get_or_insert(answer);
    }

    /// Gives the answer to a question.
    pub(crate) fn give(&mut self, at: usize) -> Loaded {
        self.read(at);
        let (query, answer) = self.asked.remove(at).expect("asked");
        Loaded { query, answer: answer.expect("just read") }
    }

    /// Makes the oldest batch durable.
    pub(crate) fn sync(&mut self) -> Option<BatchId> {
        let batch = self.batches.pop_front()?;
        for (key, value) in batch.writes {
            match value {
                Some(value) => self.values.insert(key, value),
                None => self.values.remove(&key),
            };
        }
        Some(batch.id)
    }

    /// Answers and syncs all there is.
    pub(crate) fn settle(&mut self, store: &mut StoreCache) {
        self.batches.extend(store.seal());
        while let Some(batch) = self.sync() {
            store.durable(batch);
        }
        while !self.asked.is_empty() {
            assert!(store.loaded(self.give(0)), "a value of the disk is unreadable");
        }
    }

    fn answer(&self, query: &Query) -> Answer {
        match query {
            Query::Get(key) => Answer::Value(self.values.get(key).cloned()),
            Query::Scan { dir, after, limit } => self.scan(*dir, after, usize::try_from(*limit).unwrap()),
            Query::Sessions { after, limit } => self.sessions(*after, usize::try_from(*limit).unwrap()),
            Query::Ephemerals { after, limit } => self.ephemerals(*after, usize::try_from(*limit).unwrap()),
        }
    }

    fn sessions(&self, after: SessionId, limit: usize) -> Answer {
        let all = self.values.iter().filter_map(|(key, value)| match key {
            Key::Session(id) if *id > after => Some((*id, value.clone())),
            _ => None,
        });
        let mut records: Vec<_> = all.take(limit + 1).collect();
        let end = records.len() <= limit;
        records.truncate(limit);
        Answer::Sessions { records, end }
    }

    fn ephemerals(&self, after: (Handle, ObjectId), limit: usize) -> Answer {
        let from = Key::Ephemeral(after.0, after.1);
        // Records of ephemeral files stand together.
        let mut range = self.values.range((Excluded(from), Unbounded)).map_while(|(key, value)| match key {
            Key::Ephemeral(session, object) => Some(((*session, *object), value.clone())),
            _ => None,
        });
        let records: Vec<_> = range.by_ref().take(limit).collect();
        let end = range.next().is_none();
        Answer::Ephemerals { records, end }
    }

    fn scan(&self, dir: ObjectId, after: &[u8], limit: usize) -> Answer {
        let names = self.values.iter().filter_map(|(key, value)| match key {
            Key::Entry(of, name) if *of == dir && **name > *after => Some((Box::from(&**name), value.clone())),
            _ => None,
        });
        let mut entries: Vec<_> = names.take(limit + 1).collect();
        let end = entries.len() <= limit;
        entries.truncate(limit);
        Answer::Entries { entries, end }
    }
}

impl StoreCache {
    /// Asks, and takes what is new of it out to be handed to the store.
    pub(crate) fn asked(&mut self, queries: Vec<Query>) -> Vec<Query> {
        self.ask(queries);
        core::iter::from_fn(|| self.poll_questions()).flatten().collect()
    }
}
