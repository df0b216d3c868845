//! A store that answers when it is told to, as a disk would: later, loads out of order, and with a crash in between.
//!
//! Decides: nothing by itself; tests and simulators decide what happens when. Place in the walk: in the place of
//! [`MemoryStore`](crate::MemoryStore).
//! Invariant: batches become durable in their order, as from any store. The answer to a question is of a state at some moment
//! between the question and the answer; [`SlowStore::read`] chooses an earlier one than the answer.
//! Leaves to others: time.

use crate::MemoryStore;
use cistern_server::store::{Answer, Batch, Loaded, Query, StoreEvent, StoreWork};
use std::collections::VecDeque;

/// A store in memory that keeps its answers back.
#[derive(Debug, Default)]
pub struct SlowStore {
    durable: MemoryStore,
    batches: VecDeque<Batch>,
    questions: VecDeque<(Query, Option<Answer>)>,
}

impl SlowStore {
    /// A store that has what `durable` has.
    #[must_use]
    pub fn new(durable: MemoryStore) -> Self {
        Self { durable, batches: VecDeque::new(), questions: VecDeque::new() }
    }

    /// Takes a piece of work in; nothing comes of it yet.
    pub fn take(&mut self, work: StoreWork) {
        match work {
            StoreWork::Load(queries) => self.questions.extend(queries.into_iter().map(|query| (query, None))),
            StoreWork::Persist(batch) => self.batches.push_back(batch),
        }
    }

    /// Questions that were not answered.
    #[must_use]
    pub fn questions(&self) -> usize {
        self.questions.len()
    }

    /// Batches that are not durable.
    #[must_use]
    pub fn batches(&self) -> usize {
        self.batches.len()
    }

    /// Reads the answer to the question at `at` (0: the oldest) now, and gives it later; without effect if there is none.
    pub fn read(&mut self, at: usize) {
        if let Some((query, answer)) = self.questions.get_mut(at) {
            answer.get_or_insert_with(|| self.durable.answer(query));
        }
    }

    /// Answers the question at `at` (0: the oldest); `None`: there is none.
    pub fn answer(&mut self, at: usize) -> Option<StoreEvent> {
        let (query, answer) = self.questions.remove(at)?;
        let answer = answer.unwrap_or_else(|| self.durable.answer(&query));
        Some(StoreEvent::Loaded(Loaded { query, answer }))
    }

    /// Makes the oldest batch durable; `None`: all are.
    pub fn sync(&mut self) -> Option<StoreEvent> {
        let batch = self.batches.pop_front()?;
        let id = batch.id;
        self.durable.keep(batch);
        Some(StoreEvent::Durable(id))
    }

    /// Does everything that there is to do; what comes of it, in order.
    pub fn settle(&mut self) -> Vec<StoreEvent> {
        let mut events: Vec<_> = std::iter::from_fn(|| self.sync()).collect();
        events.extend(std::iter::from_fn(|| self.answer(0)));
        events
    }

    /// The machine lost its power: what is durable. The oldest `kept` batches had reached the disk although nobody was told.
    #[must_use]
    pub fn crash(mut self, kept: usize) -> MemoryStore {
        for _ in 0..kept {
            self.sync();
        }
        self.durable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use cistern_server::store::{Counter, Key};

    const KEY: Key = Key::Counter(Counter::Objects);

    fn write(id: u64, value: &'static [u8]) -> StoreWork {
        StoreWork::Persist(Batch { id, writes: vec![(KEY, Some(Bytes::from_static(value)))] })
    }

    fn value(event: Option<StoreEvent>) -> Option<Bytes> {
        match event {
            Some(StoreEvent::Loaded(Loaded { answer: Answer::Value(value), .. })) => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_happens_before_it_is_told_to() {
        let mut slow = SlowStore::default();
        slow.take(write(1, b"one"));
        slow.take(StoreWork::Load(vec![Query::Get(KEY)]));
        assert_eq!((slow.batches(), slow.questions()), (1, 1));
        assert_eq!(value(slow.answer(0)), None);
        assert_eq!(slow.sync(), Some(StoreEvent::Durable(1)));
        assert_eq!((slow.sync(), slow.answer(0)), (None, None));
    }

    #[test]
    fn answer_can_be_older_than_what_became_durable_since() {
        let mut slow = SlowStore::default();
        slow.take(StoreWork::Load(vec![Query::Get(KEY), Query::Get(KEY)]));
        slow.take(write(1, b"one"));
        slow.read(0);
        slow.sync();
        assert_eq!(value(slow.answer(1)), Some(Bytes::from_static(b"one")));
        assert_eq!(value(slow.answer(0)), None);
    }

    #[test]
    fn crash_leaves_what_was_durable_and_perhaps_more() {
        let make = || {
            let mut slow = SlowStore::default();
            slow.take(write(1, b"one"));
            slow.take(write(2, b"two"));
            slow
        };
        for (kept, expected) in [(0, None), (1, Some(&b"one"[..])), (2, Some(b"two")), (9, Some(b"two"))] {
            let mut after = SlowStore::new(make().crash(kept));
            after.take(StoreWork::Load(vec![Query::Get(KEY)]));
            assert_eq!(value(after.answer(0)), expected.map(Bytes::from_static));
        }
    }

    #[test]
    fn settling_does_all_there_is() {
        let mut slow = SlowStore::default();
        slow.take(StoreWork::Load(vec![Query::Get(KEY)]));
        slow.take(write(1, b"one"));
        slow.take(write(2, b"two"));
        let events = slow.settle();
        assert_eq!(events[..2], [StoreEvent::Durable(1), StoreEvent::Durable(2)]);
        assert_eq!((events.len(), slow.batches(), slow.questions()), (3, 0, 0));
    }
}
