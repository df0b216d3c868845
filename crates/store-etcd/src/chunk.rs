//! What fits into one transaction of etcd, and how what does not is cut into the parts of a journal.
//!
//! Decides: how many batches go together, where a larger one is cut, and that neighbours which are deleted are one range: the outcomes of a
//! session and the blocks of a file are numbered without gaps, so no other key can be between two of them.
//! Invariants: no chunk is larger than etcd takes, with what else its transaction has; no key is twice in one, nor in a range and beside it,
//! which etcd refuses; chunks applied in their order are the batches applied in theirs.

use crate::bugs::{self, Bug};
use crate::record::Keyspace;
use crate::txn::Op;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use cistern_server::store::{Batch, Key};
use std::collections::{BTreeMap, VecDeque};

/// Operations of a chunk: etcd takes 128 in a transaction (`--max-txn-ops`), of which one is the sequence and one a part of a journal.
const OPS_MAX: usize = 126;
/// Bytes of keys and values of a chunk: etcd takes requests of 1.5 MiB (`--max-request-bytes`).
const BYTES_MAX: usize = 1 << 20;
/// Bytes of a request for each of its operations, beside key and value.
const OP_OVERHEAD: usize = 16;
/// Bytes of all batches that go together: bounds the memory of a journal and the time until the first of them is durable.
const GROUP_BYTES: usize = 8 << 20;

/// Batches that become durable together.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Each a transaction's worth, in order; one: no journal is needed.
    pub(crate) chunks: Vec<Vec<Op>>,
    /// Number of the last batch.
    pub(crate) last: u64,
}

/// Writes that fit into one transaction; of one key the last counts.
#[derive(Debug, Default)]
struct Chunk {
    writes: BTreeMap<Key, Option<Bytes>>,
    /// Pairs of neighbours that are both deleted: each is one operation less.
    joined: usize,
    bytes: usize,
}

impl Chunk {
    fn is_deleted(&self, key: &Key) -> bool {
        self.writes.get(key) == Some(&None)
    }

    /// What `joined` will be with this write.
    fn joined_with(&self, key: &Key, deletes: bool) -> usize {
        let beside = [before(key), after(key)].into_iter().flatten().filter(|key| self.is_deleted(key)).count();
        let (more, less) = (if deletes { beside } else { 0 }, if self.is_deleted(key) { beside } else { 0 });
        self.joined + more - less
    }

    fn fits(&self, key: &Key, value: Option<&Bytes>, weight: usize) -> bool {
        let len = self.writes.len() + usize::from(!self.writes.contains_key(key));
        len - self.joined_with(key, value.is_none()) <= OPS_MAX && (self.writes.is_empty() || self.bytes + weight <= BYTES_MAX)
    }

    fn put(&mut self, key: Key, value: Option<Bytes>, weight: usize) {
        self.joined = self.joined_with(&key, value.is_none());
        self.bytes += weight;
        self.writes.insert(key, value);
    }

    /// No more operations than there are with this batch, too: it may put what is within a range.
    fn ops_with(&self, batch: &Batch) -> usize {
        let mut ops = self.writes.len() - self.joined;
        let mut follows = None;
        for (key, value) in &batch.writes {
            let is_joined = value.is_none() && follows.as_ref() == Some(key);
            let splits = value.is_some() && self.is_deleted(key);
            ops = ops + usize::from(!is_joined) + usize::from(splits);
            follows = if value.is_none() { after(key) } else { None };
        }
        ops
    }

    fn ops(self, keys: &Keyspace) -> Vec<Op> {
        let mut ops = Vec::with_capacity(self.writes.len() - self.joined);
        let mut writes = self.writes.into_iter().peekable();
        while let Some((key, value)) = writes.next() {
            let from = keys.of(&key);
            if let Some(value) = value {
                ops.push(Op::Put(from, value));
                continue;
            }
            let (mut last, mut is_range) = (key, false);
            while let Some((next, _)) = writes.next_if(|(next, value)| value.is_none() && after(&last).as_ref() == Some(next)) {
                (last, is_range) = (next, true);
            }
            ops.push(if is_range { Op::Clear(from, behind(keys, &last)) } else { Op::Delete(from) });
        }
        ops
    }
}

/// The key of a numbered sequence that comes after this one, with none between them; nothing for keys that are in none.
fn after(key: &Key) -> Option<Key> {
    match key {
        Key::Outcome(session, slot) => Some(Key::Outcome(*session, slot.checked_add(1)?)),
        Key::Block(object, n) => Some(Key::Block(*object, n.checked_add(1)?)),
        _ => None,
    }
}

/// The one before.
fn before(key: &Key) -> Option<Key> {
    match key {
        Key::Outcome(session, slot) => Some(Key::Outcome(*session, slot.checked_sub(1)?)),
        Key::Block(object, n) => Some(Key::Block(*object, n.checked_sub(1)?)),
        _ => None,
    }
}

/// Where a range ends of which this is the last key: at the first key after it, which is that with a zero behind it.
fn behind(keys: &Keyspace, last: &Key) -> Bytes {
    let last = keys.of(last);
    if bugs::is(Bug::RangeTooShort) { last } else { [&last[..], &[0]].concat().into() }
}

fn weight(keys: &Keyspace, key: &Key, value: Option<&Bytes>) -> usize {
    keys.data_len() + key.encoded_len() + value.map_or(0, Bytes::len) + OP_OVERHEAD
}

/// Takes the batches that go together next: as many as fit into one transaction; if the first alone does not, that one, in parts.
pub(crate) fn gather(keys: &Keyspace, waiting: &mut VecDeque<Batch>) -> Option<Group> {
    let first = waiting.pop_front()?;
    let mut last = first.id;
    let (mut chunks, mut open) = (Vec::new(), Chunk::default());
    let put = |chunks: &mut Vec<Vec<Op>>, open: &mut Chunk, batch: Batch| {
        for (key, value) in batch.writes {
            let weight = weight(keys, &key, value.as_ref());
            if !open.fits(&key, value.as_ref(), weight) {
                chunks.push(std::mem::take(open).ops(keys));
            }
            open.put(key, value, weight);
        }
    };
    put(&mut chunks, &mut open, first);
    // What waits behind one that needs a journal shares it: that is as many transactions as by itself, and a commit point less.
    let (mut bytes, is_journal) = (open.bytes, !chunks.is_empty());
    while let Some(next) = waiting.front() {
        let more: usize = next.writes.iter().map(|(key, value)| weight(keys, key, value.as_ref())).sum();
        let fits = open.ops_with(next) <= OPS_MAX && open.bytes + more <= BYTES_MAX;
        if !fits && (!is_journal || bytes + more > GROUP_BYTES) {
            break;
        }
        bytes += more;
        let Some(next) = waiting.pop_front() else { break };
        last = next.id;
        put(&mut chunks, &mut open, next);
    }
    chunks.push(open.ops(keys));
    Some(Group { chunks, last })
}

/// A chunk as a part of a journal: for each operation its kind, and lengths before key and value.
pub(crate) fn to_part(ops: &[Op]) -> Bytes {
    let mut bytes = BytesMut::new();
    let mut put = |kind: u8, key: &Bytes, value: &[u8]| {
        bytes.put_u8(kind);
        for field in [&key[..], value] {
            bytes.put_u32(u32::try_from(field.len()).unwrap_or(u32::MAX));
            bytes.put_slice(field);
        }
    };
    for op in ops {
        match op {
            Op::Put(key, value) => put(1, key, value),
            Op::Delete(key) => put(2, key, &[]),
            Op::Clear(from, to) => put(3, from, to),
            Op::Get(_) | Op::Any(_) => {}
        }
    }
    bytes.freeze()
}

/// Reads a part of a journal; nothing if it is not one.
pub(crate) fn from_part(mut bytes: Bytes) -> Option<Vec<Op>> {
    let mut ops = Vec::new();
    let field = |bytes: &mut Bytes| {
        let len = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
        (len <= bytes.len()).then(|| bytes.split_to(len))
    };
    while !bytes.is_empty() {
        let kind = bytes.get_u8();
        let (key, value) = (field(&mut bytes)?, field(&mut bytes)?);
        ops.push(match (kind, value.len()) {
            (1, _) => Op::Put(key, value),
            (2, 0) => Op::Delete(key),
            (3, _) => Op::Clear(key, value),
            _ => return None,
        });
    }
    Some(ops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_server::store::Key;
    use cistern_wire::ObjectId;

    fn batch(id: u64, keys: std::ops::Range<u32>, len: usize) -> Batch {
        let value = |n| (Key::Block(ObjectId(1), n), Some(Bytes::from(vec![u8::try_from(id).unwrap(); len])));
        Batch { id, writes: keys.map(value).collect() }
    }

    fn groups(batches: impl IntoIterator<Item = Batch>) -> Vec<(usize, u64, usize)> {
        let (keys, mut waiting) = (Keyspace::new("/x"), batches.into_iter().collect());
        std::iter::from_fn(|| gather(&keys, &mut waiting))
            .map(|group| {
                for chunk in &group.chunks {
                    let bytes: usize = chunk.iter().map(|op| if let Op::Put(key, value) = op { key.len() + value.len() } else { 0 }).sum();
                    assert!(chunk.len() <= OPS_MAX && bytes <= BYTES_MAX, "{} operations, {bytes} bytes", chunk.len());
                }
                (group.chunks.len(), group.last, group.chunks.iter().map(Vec::len).sum())
            })
            .collect()
    }

    #[test]
    fn batches_share_a_transaction_as_long_as_they_fit_and_are_never_cut_for_that() {
        assert_eq!(groups([batch(1, 0..60, 1), batch(2, 60..126, 1), batch(3, 0..2, 1)]), [(1, 2, 126), (1, 3, 2)]);
        assert_eq!(groups([batch(1, 0..100, 1), batch(2, 200..227, 1)]), [(1, 1, 100), (1, 2, 27)]);
        assert_eq!(
            groups([batch(1, 0..8, 65_536), batch(2, 10..18, 65_536)]),
            [(1, 1, 8), (1, 2, 8)],
            "8 + 8 blocks with their keys are above 1 MiB"
        );
    }

    #[test]
    fn what_does_not_fit_alone_is_cut_and_what_waits_behind_shares_its_journal() {
        assert_eq!(groups([batch(1, 0..300, 1)]), [(3, 1, 300)]);
        assert_eq!(groups([batch(1, 0..64, 65_536), batch(2, 100..103, 1)]), [(5, 2, 67)]);
    }

    #[test]
    fn of_a_key_that_two_batches_write_the_last_value_counts() {
        let (keys, mut waiting) = (Keyspace::new("/x"), VecDeque::from([batch(1, 0..2, 1), batch(2, 1..3, 1)]));
        let group = gather(&keys, &mut waiting).unwrap();
        let values: Vec<u8> = group.chunks[0].iter().map(|op| if let Op::Put(_, value) = op { value[0] } else { 0 }).collect();
        assert_eq!(values, [1, 2, 2]);
    }

    /// A batch that deletes these blocks of an object.
    fn cleared(id: u64, object: u64, blocks: std::ops::Range<u32>) -> Batch {
        Batch { id, writes: blocks.map(|n| (Key::Block(ObjectId(object), n), None)).collect() }
    }

    #[test]
    fn neighbours_that_are_deleted_are_one_range_which_nothing_else_is_in() {
        let keys = Keyspace::new("/x");
        let of = |n| keys.of(&Key::Block(ObjectId(1), n));
        let end = |n| [&of(n)[..], &[0]].concat().into();
        let only = |batches: Vec<Batch>| {
            let group = gather(&keys, &mut batches.into()).unwrap();
            let [chunk] = &group.chunks[..] else { panic!("{} chunks", group.chunks.len()) };
            chunk.clone()
        };
        assert_eq!(only(vec![cleared(1, 1, 0..4_096)]), [Op::Clear(of(0), end(4_095))]);
        assert_eq!(only(vec![cleared(1, 1, 3..4)]), [Op::Delete(of(3))]);
        let of_two = only(vec![cleared(1, 1, 0..2), cleared(2, 2, 2..4)]);
        assert_eq!(of_two.len(), 2, "another object's blocks follow: {of_two:?}");
        let put = |id, n: u32| batch(id, n..n + 1, 1);
        let parted = [Op::Clear(of(0), end(1)), Op::Put(of(2), Bytes::from_static(&[2])), Op::Clear(of(3), end(4))];
        assert_eq!(only(vec![cleared(1, 1, 0..5), put(2, 2)]), parted);
        assert_eq!(only(vec![cleared(1, 1, 0..2), put(2, 2), cleared(3, 1, 3..5)]).len(), 3);
        assert_eq!(only(vec![put(1, 2), cleared(2, 1, 3..5), cleared(3, 1, 0..3)]), [Op::Clear(of(0), end(4))]);
    }

    #[test]
    fn ranges_that_a_later_batch_parts_never_make_a_transaction_too_large() {
        let ranges = (0..120).map(|n| cleared(1 + n, n, 0..40));
        let parts = (0..120).map(|n| Batch { id: 121 + n, writes: vec![(Key::Block(ObjectId(n), 20), Some(Bytes::new()))] });
        let found = groups(ranges.chain(parts));
        assert_eq!((found[0], found.iter().map(|found| found.0).max()), ((1, 123, 126), Some(1)), "{found:?}");
    }

    #[test]
    fn a_part_comes_back_from_its_bytes_and_broken_bytes_are_none() {
        let key = |text: &'static str| Bytes::from_static(text.as_bytes());
        let ops = vec![Op::Put(key("a"), key("value")), Op::Delete(key("b")), Op::Clear(key("c/"), key("c0"))];
        let bytes = to_part(&ops);
        assert_eq!(from_part(bytes.clone()), Some(ops));
        for len in 1..bytes.len() {
            assert!(from_part(bytes.slice(..len)).is_none_or(|ops| ops.len() < 3));
        }
        assert_eq!(from_part(Bytes::from_static(&[9, 0, 0, 0, 0, 0, 0, 0, 0])), None);
    }
}
