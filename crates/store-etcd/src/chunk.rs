//! What fits into one transaction of etcd, and how what does not is cut into the parts of a journal.
//!
//! Decides: how many batches go together, and where a larger one is cut. Invariants: no chunk is larger than etcd takes, with what else
//! its transaction has; no key is twice in one, which etcd refuses; chunks applied in their order are the batches applied in theirs.

use crate::record::Keyspace;
use crate::txn::Op;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use cistern_server::store::Batch;
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
    writes: BTreeMap<Bytes, Option<Bytes>>,
    bytes: usize,
}

impl Chunk {
    fn fits(&self, key: &Bytes, value: Option<&Bytes>) -> bool {
        let more = self.writes.len() + usize::from(!self.writes.contains_key(key));
        more <= OPS_MAX && (self.writes.is_empty() || self.bytes + weight(key, value) <= BYTES_MAX)
    }

    fn put(&mut self, key: Bytes, value: Option<Bytes>) {
        self.bytes += weight(&key, value.as_ref());
        self.writes.insert(key, value);
    }

    fn ops(self) -> Vec<Op> {
        let op = |(key, value)| match value {
            Some(value) => Op::Put(key, value),
            None => Op::Delete(key),
        };
        self.writes.into_iter().map(op).collect()
    }
}

fn weight(key: &Bytes, value: Option<&Bytes>) -> usize {
    key.len() + value.map_or(0, Bytes::len) + OP_OVERHEAD
}

/// Takes the batches that go together next: as many as fit into one transaction; if the first alone does not, that one, in parts.
pub(crate) fn gather(keys: &Keyspace, waiting: &mut VecDeque<Batch>) -> Option<Group> {
    let first = waiting.pop_front()?;
    let mut last = first.id;
    let (mut chunks, mut open) = (Vec::new(), Chunk::default());
    let put = |chunks: &mut Vec<Vec<Op>>, open: &mut Chunk, batch: Batch| {
        for (key, value) in batch.writes {
            let key = keys.of(&key);
            if !open.fits(&key, value.as_ref()) {
                chunks.push(std::mem::take(open).ops());
            }
            open.put(key, value);
        }
    };
    put(&mut chunks, &mut open, first);
    // What waits behind one that needs a journal shares it: that is as many transactions as by itself, and a commit point less.
    let (mut bytes, is_journal) = (open.bytes, !chunks.is_empty());
    while let Some(next) = waiting.front() {
        let more: usize = next.writes.iter().map(|(key, value)| weight(&keys.of(key), value.as_ref())).sum();
        let fits = open.writes.len() + next.writes.len() <= OPS_MAX && open.bytes + more <= BYTES_MAX;
        if !fits && (!is_journal || bytes + more > GROUP_BYTES) {
            break;
        }
        bytes += more;
        let Some(next) = waiting.pop_front() else { break };
        last = next.id;
        put(&mut chunks, &mut open, next);
    }
    chunks.push(open.ops());
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
            Op::Clear(prefix) => put(3, prefix, &[]),
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
            (3, 0) => Op::Clear(key),
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

    #[test]
    fn a_part_comes_back_from_its_bytes_and_broken_bytes_are_none() {
        let key = |text: &'static str| Bytes::from_static(text.as_bytes());
        let ops = vec![Op::Put(key("a"), key("value")), Op::Delete(key("b")), Op::Clear(key("c/"))];
        let bytes = to_part(&ops);
        assert_eq!(from_part(bytes.clone()), Some(ops));
        for len in 1..bytes.len() {
            assert!(from_part(bytes.slice(..len)).is_none_or(|ops| ops.len() < 3));
        }
        assert_eq!(from_part(Bytes::from_static(&[9, 0, 0, 0, 0, 0, 0, 0, 0])), None);
    }
}
