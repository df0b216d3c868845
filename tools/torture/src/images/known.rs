//! What the store must hold after each batch.
//!
//! Decides how a state is recognised: by a sum over all its keys and values, which changes by what a batch changes and does not depend
//! on their order. The recorded server writes every batch down before the store gets it; from that file the sum after each is known.
//! Invariant: a state that is not one between two batches, down to the last bit of the last value, has no number (but for one chance in
//! 2^128). Leaves to others: which state must be there (`judge`).

use bytes::Bytes;
use cistern_server::store::Batch;
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write as _};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_128;

/// Stands for the length of a value that is deleted.
const DELETED: u32 = u32::MAX;

/// The sum over keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sum(u128);

impl Sum {
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.0 = self.0.wrapping_add(of(key, value));
    }

    fn remove(&mut self, key: &[u8], value: &[u8]) {
        self.0 = self.0.wrapping_sub(of(key, value));
    }
}

fn of(key: &[u8], value: &[u8]) -> u128 {
    xxh3_128(&[&(key.len() as u64).to_le_bytes(), key, value].concat())
}

/// The file into which batches are written, by the recorded server.
pub(super) struct Ledger {
    file: File,
    /// Batches in it.
    pub(super) batches: u64,
}

impl Ledger {
    /// Opens or makes it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let batches = if path.exists() { Known::read(path)?.batches } else { 0 };
        Ok(Self { file: OpenOptions::new().create(true).append(true).open(path)?, batches })
    }

    /// Writes a batch down.
    pub(super) fn write(&mut self, batch: &Batch) -> io::Result<()> {
        let mut bytes = Vec::new();
        let length = |len: usize| u32::try_from(len).map(u32::to_le_bytes).map_err(io::Error::other);
        bytes.extend(length(batch.writes.len())?);
        for (key, value) in &batch.writes {
            let key = key.to_bytes();
            bytes.extend(length(key.len())?);
            bytes.extend(&key);
            bytes.extend(value.as_ref().map_or(Ok(DELETED.to_le_bytes()), |value| length(value.len()))?);
            bytes.extend(value.iter().flatten());
        }
        self.batches += 1;
        self.file.write_all(&bytes)
    }
}

/// Every state that there was, by its sum.
#[derive(Debug, Default)]
pub(super) struct Known {
    states: HashMap<Sum, u64>,
    /// How many batches there were.
    pub(super) batches: u64,
}

impl Known {
    /// Reads what a [`Ledger`] has written.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut input = BufReader::new(File::open(path)?);
        let (mut known, mut sum, mut values) = (Self::default(), Sum::default(), BTreeMap::<Bytes, Bytes>::new());
        known.states.insert(sum, 0);
        while let Some(count) = number(&mut input)? {
            for _ in 0..count {
                let key = bytes(&mut input)?.ok_or(io::ErrorKind::UnexpectedEof)?;
                if let Some(old) = values.remove(&key) {
                    sum.remove(&key, &old);
                }
                if let Some(value) = bytes(&mut input)? {
                    sum.add(&key, &value);
                    values.insert(key, value);
                }
            }
            known.batches += 1;
            known.states.insert(sum, known.batches);
        }
        Ok(known)
    }

    /// After which batch the state with this sum was, the last one if there are several.
    pub(super) fn state(&self, sum: Sum) -> Option<u64> {
        self.states.get(&sum).copied()
    }
}

fn number(input: &mut impl Read) -> io::Result<Option<u32>> {
    let mut bytes = [0; 4];
    match input.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(u32::from_le_bytes(bytes))),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}

/// Bytes after their length; `None`: deleted.
fn bytes(input: &mut impl Read) -> io::Result<Option<Bytes>> {
    let len = number(input)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    if len == DELETED {
        return Ok(None);
    }
    let mut bytes = vec![0; len as usize];
    input.read_exact(&mut bytes)?;
    Ok(Some(bytes.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_server::store::Key;
    use cistern_wire::ObjectId;

    #[test]
    fn each_state_is_known_by_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("batches");
        let mut ledger = Ledger::open(&path).unwrap();
        let object = |n| Key::Object(ObjectId(n));
        let (one, two) = (Bytes::from_static(b"1"), Bytes::from_static(b"2"));
        let batches = [vec![(object(1), Some(one.clone())), (object(2), Some(one))], vec![(object(1), Some(two)), (object(2), None)]];
        for (id, writes) in (1..).zip(batches) {
            ledger.write(&Batch { id, writes }).unwrap();
        }
        let known = Known::read(&path).unwrap();
        assert_eq!((known.batches, known.state(Sum::default()), Ledger::open(&path).unwrap().batches), (2, Some(0), 2));
        let state = |entries: &[(u64, &str)]| {
            let mut sum = Sum::default();
            entries.iter().for_each(|(n, value)| sum.add(&object(*n).to_bytes(), value.as_bytes()));
            known.state(sum)
        };
        assert_eq!(
            [state(&[(2, "1"), (1, "1")]), state(&[(1, "2")]), state(&[(1, "1")]), state(&[(1, "2"), (2, "1")])],
            [Some(1), Some(2), None, None]
        );
    }
}
