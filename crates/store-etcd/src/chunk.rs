//! How writes go to etcd: as operations of its transactions, or as parts of the journal.
//!
//! Decides: how many batches go together, whether they go by the journal, where a transaction or a part ends, and that neighbours which are
//! deleted are one range: the outcomes of a session and the blocks of a file are numbered without gaps, so no other key can be between two
//! of them.
//! Invariants: no chunk and no part is larger than etcd takes, with what else its transaction has; no key is twice in a chunk, nor in a range
//! and beside it, which etcd refuses; all chunks of a group, applied in any order, leave what its batches leave that are applied in theirs.

use crate::bugs::{self, Bug};
use crate::record::Keyspace;
use crate::txn::Op;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use cistern_server::store::{Batch, BatchId, Key};
use std::collections::{BTreeMap, VecDeque};

/// Operations of a chunk: etcd takes 128 in a transaction (`--max-txn-ops`), of which one is the sequence and one removes the journal.
const OPS_MAX: usize = 126;
/// Bytes of keys and values of a chunk or a part: etcd takes requests of 1.5 MiB (`--max-request-bytes`).
const BYTES_MAX: usize = 1 << 20;
/// Bytes of a request for each of its operations, beside key and value.
const OP_OVERHEAD: usize = 16;
/// Up to so many operations, or from so many bytes on, what fits into a transaction does not go by the journal.
const DIRECT_OPS: usize = 32;
const DIRECT_BYTES: usize = 128 << 10;
/// Most neighbours in a range of deletes that a part has; with more it is damaged.
const NEIGHBOURS_MAX: usize = 1 << 20;

// What a write in a part is.
const PUT: u8 = 1;
const DELETE: u8 = 2;

/// What is to be written: values, or that a key goes.
pub(crate) type Writes = BTreeMap<Key, Option<Bytes>>;

/// Batches that become durable together.
#[derive(Debug)]
pub(crate) struct Group {
    /// Of each key the last write.
    pub(crate) writes: Writes,
    /// Number of the last batch.
    pub(crate) last: BatchId,
    bytes: usize,
}

impl Group {
    /// Takes the batches that go together next: the first, and as many as fit into a part with it.
    pub(crate) fn take(keys: &Keyspace, waiting: &mut VecDeque<Batch>) -> Option<Self> {
        let weight = |batch: &Batch| -> usize {
            let of = |(key, value): &(Key, Option<Bytes>)| {
                keys.data_len() + key.encoded_len() + value.as_ref().map_or(0, Bytes::len) + OP_OVERHEAD
            };
            batch.writes.iter().map(of).sum()
        };
        let first = waiting.pop_front()?;
        let mut group = Self { bytes: weight(&first), last: first.id, writes: first.writes.into_iter().collect() };
        while let Some(next) = waiting.pop_front_if(|next| group.bytes + weight(next) <= BYTES_MAX) {
            group.bytes += weight(&next);
            group.last = next.id;
            group.writes.extend(next.writes);
        }
        Some(group)
    }

    /// Whether it is better written to its keys than to the journal first: it has few, or much of each.
    pub(crate) fn is_direct(&self) -> bool {
        let ops = runs(&self.writes).count();
        ops <= OPS_MAX && self.bytes <= BYTES_MAX && (ops <= DIRECT_OPS || self.bytes >= DIRECT_BYTES)
    }
}

/// A value that is put, or neighbours that are deleted, by the first and the last of them.
enum Run<'a> {
    Put(&'a Key, &'a Bytes),
    Delete(&'a Key, &'a Key),
}

fn runs(writes: &Writes) -> impl Iterator<Item = Run<'_>> {
    let mut writes = writes.iter().peekable();
    std::iter::from_fn(move || {
        let (first, value) = writes.next()?;
        if let Some(value) = value {
            return Some(Run::Put(first, value));
        }
        let mut last = first;
        while let Some((next, _)) = writes.next_if(|(next, value)| value.is_none() && after(last).as_ref() == Some(next)) {
            last = next;
        }
        Some(Run::Delete(first, last))
    })
}

/// The key of a numbered sequence that comes after this one, with none between them; nothing for keys that are in none.
fn after(key: &Key) -> Option<Key> {
    match key {
        Key::Outcome(session, slot) => Some(Key::Outcome(*session, slot.checked_add(1)?)),
        Key::Block(object, n) => Some(Key::Block(*object, n.checked_add(1)?)),
        _ => None,
    }
}

/// Where a range ends of which this is the last key: at the first key after it, which is that with a zero behind it.
fn behind(keys: &Keyspace, last: &Key) -> Bytes {
    let last = keys.of(last);
    if bugs::is(Bug::RangeTooShort) { last } else { [&last[..], &[0]].concat().into() }
}

/// The operations, each a transaction's worth.
pub(crate) fn chunks(keys: &Keyspace, writes: &Writes) -> Vec<Vec<Op>> {
    let (mut chunks, mut bytes) = (vec![Vec::new()], 0);
    for run in runs(writes) {
        let (op, len) = match run {
            Run::Put(key, value) => (Op::Put(keys.of(key), value.clone()), key.encoded_len() + value.len()),
            Run::Delete(first, last) if first == last => (Op::Delete(keys.of(first)), first.encoded_len()),
            Run::Delete(first, last) => (Op::Clear(keys.of(first), behind(keys, last)), 2 * (keys.data_len() + last.encoded_len())),
        };
        let weight = keys.data_len() + len + OP_OVERHEAD;
        let last = chunks.last_mut().filter(|chunk| chunk.is_empty() || chunk.len() < OPS_MAX && bytes + weight <= BYTES_MAX);
        match last {
            Some(chunk) => chunk.push(op),
            None => {
                bytes = 0;
                chunks.push(vec![op]);
            }
        }
        bytes += weight;
    }
    chunks
}

/// The parts of the journal that have these writes: of each its kind, and lengths before the key and the value, or before the first key of
/// a range and the last.
pub(crate) fn parts(writes: &Writes) -> Vec<Bytes> {
    let (mut parts, mut part) = (Vec::new(), BytesMut::new());
    for run in runs(writes) {
        let (kind, first, rest) = match run {
            Run::Put(key, value) => (PUT, key, value.clone()),
            Run::Delete(first, last) => (DELETE, first, last.to_bytes().into()),
        };
        let first = first.to_bytes();
        if !part.is_empty() && part.len() + first.len() + rest.len() + OP_OVERHEAD > BYTES_MAX {
            parts.push(std::mem::take(&mut part).freeze());
        }
        part.put_u8(kind);
        for field in [&first[..], &rest] {
            part.put_u32(u32::try_from(field.len()).unwrap_or(u32::MAX));
            part.put_slice(field);
        }
    }
    parts.push(part.freeze());
    parts
}

/// Adds the writes of a part; nothing for bytes that are none.
pub(crate) fn read_part(mut bytes: Bytes, writes: &mut Writes) -> Option<()> {
    let field = |bytes: &mut Bytes| {
        let len = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
        (len <= bytes.len()).then(|| bytes.split_to(len))
    };
    while !bytes.is_empty() {
        let kind = bytes.get_u8();
        let (first, rest) = (Key::from_bytes(&field(&mut bytes)?).ok()?, field(&mut bytes)?);
        match kind {
            PUT => {
                writes.insert(first, Some(rest));
            }
            DELETE => {
                let last = Key::from_bytes(&rest).ok()?;
                let neighbours: Vec<Key> =
                    std::iter::successors(Some(first), after).take(NEIGHBOURS_MAX).take_while(|key| *key <= last).collect();
                if neighbours.last() != Some(&last) {
                    return None;
                }
                writes.extend(neighbours.into_iter().map(|key| (key, None)));
            }
            _ => return None,
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::ObjectId;

    fn keys() -> Keyspace {
        Keyspace::new("/x")
    }

    fn batch(id: u64, keys: std::ops::Range<u32>, len: usize) -> Batch {
        let value = |n| (Key::Block(ObjectId(1), n), Some(Bytes::from(vec![u8::try_from(id).unwrap(); len])));
        Batch { id, writes: keys.map(value).collect() }
    }

    /// A batch that deletes these blocks of an object.
    fn cleared(id: u64, object: u64, blocks: std::ops::Range<u32>) -> Batch {
        Batch { id, writes: blocks.map(|n| (Key::Block(ObjectId(object), n), None)).collect() }
    }

    fn groups(batches: impl IntoIterator<Item = Batch>) -> Vec<Group> {
        let mut waiting = batches.into_iter().collect();
        std::iter::from_fn(|| Group::take(&keys(), &mut waiting)).collect()
    }

    /// Operations of each chunk, which are no more than etcd takes.
    fn cut(group: &Group) -> Vec<usize> {
        let weigh = |op: &Op| if let Op::Put(key, value) = op { key.len() + value.len() } else { 0 };
        let of_chunk = |chunk: Vec<Op>| {
            let bytes: usize = chunk.iter().map(weigh).sum();
            assert!(chunk.len() <= OPS_MAX && bytes <= BYTES_MAX, "{} operations, {bytes} bytes", chunk.len());
            chunk.len()
        };
        chunks(&keys(), &group.writes).into_iter().map(of_chunk).collect()
    }

    #[test]
    fn batches_go_together_as_long_as_they_fit_and_are_never_cut_for_that() {
        let of = |batches: Vec<Batch>| groups(batches).iter().map(|group| (group.last, cut(group))).collect::<Vec<_>>();
        assert_eq!(of(vec![batch(1, 0..60, 1), batch(2, 60..126, 1), batch(3, 126..128, 1)]), [(3, vec![126, 2])]);
        assert_eq!(of(vec![batch(1, 0..8, 65_536), batch(2, 10..18, 65_536)]), [(1, vec![8]), (2, vec![8])], "above 1 MiB with their keys");
        assert_eq!(of(vec![batch(1, 0..64, 65_536), batch(2, 0..1, 1)]), [(1, vec![15, 15, 15, 15, 4]), (2, vec![1])]);
    }

    #[test]
    fn few_and_large_ones_go_to_their_keys_and_many_small_ones_to_the_journal() {
        let is_direct = |count, len| groups([batch(1, 0..count, len)])[0].is_direct();
        assert!(is_direct(32, 1) && is_direct(100, 4_096) && is_direct(15, 65_536));
        assert!(!is_direct(33, 1) && !is_direct(126, 900) && !is_direct(127, 4_096) && !is_direct(17, 65_536));
        assert!(groups([cleared(1, 1, 0..4_096)])[0].is_direct(), "one range");
    }

    #[test]
    fn of_a_key_that_two_batches_write_the_last_value_counts() {
        let group = groups([batch(1, 0..2, 1), batch(2, 1..3, 1)]).remove(0);
        let values: Vec<u8> = group.writes.values().map(|value| value.as_ref().unwrap()[0]).collect();
        assert_eq!(values, [1, 2, 2]);
    }

    #[test]
    fn neighbours_that_are_deleted_are_one_range_which_nothing_else_is_in() {
        let of = |n| keys().of(&Key::Block(ObjectId(1), n));
        let end = |n| [&of(n)[..], &[0]].concat().into();
        let only = |batches: Vec<Batch>| chunks(&keys(), &groups(batches).remove(0).writes).concat();
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
    fn writes_come_back_from_their_parts_and_damaged_ones_are_none() {
        let all = [batch(1, 0..60, 65_536), cleared(2, 1, 5..30), cleared(3, 2, 0..1), batch(4, 7..8, 0)];
        let writes: Writes = all.into_iter().flat_map(|batch| batch.writes).collect();
        let (parts, mut read) = (parts(&writes), Writes::new());
        assert!(parts.len() == 3 && parts.iter().all(|part| part.len() <= BYTES_MAX), "{}", parts.len());
        for part in &parts {
            read_part(part.clone(), &mut read).unwrap();
        }
        assert!(read == writes);
        let small = self::parts(&groups([cleared(1, 1, 3..9), batch(2, 1..2, 2)]).remove(0).writes).remove(0);
        for len in 1..small.len() {
            let is_first_write = len == 1 + 4 + Key::Block(ObjectId(1), 0).encoded_len() + 4 + 2;
            assert_eq!(read_part(small.slice(..len), &mut Writes::new()).is_some(), is_first_write, "{len} bytes");
        }
        for damaged in [&[9][..], &[9, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(read_part(Bytes::copy_from_slice(damaged), &mut Writes::new()), None);
        }
        let (low, high) = (Key::Block(ObjectId(1), 0), Key::Block(ObjectId(1), u32::MAX));
        for (from, to) in [(&high, &low), (&low, &high)] {
            let mut bytes = BytesMut::from(&[DELETE][..]);
            for key in [from, to] {
                bytes.put_u32(u32::try_from(key.encoded_len()).unwrap());
                bytes.put_slice(&key.to_bytes());
            }
            assert_eq!(read_part(bytes.freeze(), &mut Writes::new()), None);
        }
    }
}
