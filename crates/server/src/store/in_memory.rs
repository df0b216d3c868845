//! Questions and batches where all that is kept is one ordered map: of every store in memory, for a server or for tests.

use super::{Answer, Batch, Key, Query};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound::{Excluded, Unbounded};

impl Query {
    /// The answer from what is kept.
    #[must_use]
    pub fn answer_from(&self, values: &BTreeMap<Key, Bytes>) -> Answer {
        match self {
            Self::Get(key) => Answer::Value(values.get(key).cloned()),
            Self::Scan { dir, after, limit } => {
                let name = |key: &Key| if let Key::Entry(of, name) = key { (of == dir).then(|| name.clone()) } else { None };
                let (entries, end) = page(values, Key::Entry(*dir, after.clone()), *limit, name);
                Answer::Entries { entries, end }
            }
            Self::Records { after, limit } => {
                let tag = after.tag();
                let (records, end) = page(values, after.clone(), *limit, |key| (key.tag() == tag).then(|| key.clone()));
                Answer::Records { records, end }
            }
        }
    }
}

/// The first `limit` values after a key, as long as they are of its kind, which stand together; and whether these are all.
fn page<T>(values: &BTreeMap<Key, Bytes>, after: Key, limit: u32, of: impl Fn(&Key) -> Option<T>) -> (Vec<(T, Bytes)>, bool) {
    let mut range = values.range((Excluded(after), Unbounded)).map_while(|(key, value)| Some((of(key)?, value.clone())));
    let found = range.by_ref().take(usize::try_from(limit).unwrap_or(usize::MAX)).collect();
    (found, range.next().is_none())
}

impl Batch {
    /// Does its writes.
    pub fn write_to(self, values: &mut BTreeMap<Key, Bytes>) {
        for (key, value) in self.writes {
            match value {
                Some(value) => values.insert(key, value),
                None => values.remove(&key),
            };
        }
    }
}
