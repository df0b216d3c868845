//! A store for tests inside this crate: keeps values in a map, and answers only when told, as a disk would.
//!
//! Decides nothing. A question is answered from the state at a moment of the test's choice between asking and answering, so a
//! test can make an answer as old as a real engine could.

use super::super::record::{counter_from_bytes, counter_to_bytes};
use super::super::{Answer, Batch, BatchId, Counter, Key, Loaded, Query, StoreCache};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;

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
        let answer = self.asked[at].0.answer_from(&self.values);
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
        let id = batch.id;
        batch.write_to(&mut self.values);
        Some(id)
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
}

impl StoreCache {
    /// Asks, and takes what is new of it out to be handed to the store.
    pub(crate) fn asked(&mut self, queries: Vec<Query>) -> Vec<Query> {
        self.ask(queries);
        core::iter::from_fn(|| self.poll_questions()).flatten().collect()
    }
}
