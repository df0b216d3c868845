//! The extended attributes of an object, as one value of the store.
//!
//! Decides: their layout: a version byte, then each attribute in byte order of the names: length of its name (1 byte), the name, length
//! of its value (4 bytes, network byte order), the value. Place in the walk: read by `namespace::xattr`, rewritten whole by a change, for
//! an object has few and small ones. Nothing of it is on the wire.
//! Invariant: names ascend, none is empty, there is at least one, and no byte is left over; a record that does not parse is an error.
//! Leaves to others: how many and how large they may be (`namespace::xattr`).

use super::RecordError;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{Fault, Malformed};

/// Version of the record that this version writes.
const VERSION: u8 = 1;

/// All extended attributes of an object; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrRecord {
    bytes: Bytes,
}

impl XattrRecord {
    /// Reads a record, all of it.
    ///
    /// # Errors
    /// [`RecordError`] when the bytes are no such record; the store is at fault.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, RecordError> {
        let (version, mut rest) = bytes.split_first().ok_or_else(|| malformed(Fault::Truncated, "version"))?;
        if *version != VERSION {
            return Err(RecordError::Version(*version));
        }
        let mut last: &[u8] = b"";
        if rest.is_empty() {
            return Err(malformed(Fault::Truncated, "name"));
        }
        while !rest.is_empty() {
            let (name, _, after) = split(rest).ok_or_else(|| malformed(Fault::Truncated, "value"))?;
            if name <= last {
                return Err(malformed(Fault::BadValue, "name"));
            }
            (last, rest) = (name, after);
        }
        Ok(Self { bytes })
    }

    /// A record of attributes whose names ascend; `None`: there is none.
    #[must_use]
    pub fn of<'a>(attributes: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Self> {
        let mut bytes = alloc::vec![VERSION];
        for (name, value) in attributes {
            debug_assert!(!name.is_empty(), "a nameless attribute is refused before");
            bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            bytes.extend_from_slice(&name[..name.len().min(usize::from(u8::MAX))]);
            bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend_from_slice(value);
        }
        (bytes.len() > 1).then(|| Self { bytes: bytes.into() })
    }

    /// Names and values, in byte order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.bytes.get(1..).unwrap_or_default();
        core::iter::from_fn(move || {
            let (name, value, after) = split(rest)?;
            rest = after;
            Some((name, value))
        })
    }

    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Bytes of all values.
    #[must_use]
    pub fn values_len(&self) -> u64 {
        self.iter().map(|(_, value)| value.len() as u64).sum()
    }

    /// The same with a value for a name, or without the name.
    #[must_use]
    pub fn with(this: Option<&Self>, name: &[u8], value: Option<&[u8]>) -> Option<Self> {
        let mut all: Vec<(&[u8], &[u8])> = this.into_iter().flat_map(Self::iter).filter(|(other, _)| *other != name).collect();
        if let Some(value) = value {
            let at = all.partition_point(|(other, _)| *other < name);
            all.insert(at, (name, value));
        }
        Self::of(all.into_iter())
    }

    /// The record as bytes.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }
}

/// The first attribute: name, value, and what follows.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*len))?;
    let (len, rest) = rest.split_first_chunk()?;
    let (value, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)?;
    Some((name, value, rest))
}

fn malformed(fault: Fault, field: &'static str) -> RecordError {
    Malformed::new(fault).within("XattrRecord", field).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    #[test]
    fn bytes_of_version_one_stay_what_they_are() {
        let record = XattrRecord::of([(&b"a"[..], &b"xy"[..]), (b"b", b"")].into_iter()).unwrap();
        assert_eq!(&record.clone().into_bytes()[..], b"\x01\x01a\0\0\0\x02xy\x01b\0\0\0\0");
        assert_eq!(XattrRecord::from_bytes(record.clone().into_bytes()), Ok(record));
    }

    #[test]
    fn damaged_and_newer_records_are_errors() {
        let bytes = XattrRecord::of([(&b"a"[..], &b"xy"[..]), (b"b", b"z")].into_iter()).unwrap().into_bytes();
        let whole = [9, bytes.len()];
        for len in (0..bytes.len()).filter(|len| !whole.contains(len)) {
            assert!(XattrRecord::from_bytes(bytes.slice(..len)).is_err(), "{len} bytes");
        }
        assert_eq!(XattrRecord::from_bytes(Bytes::from_static(b"\x02")), Err(RecordError::Version(2)));
        for bad in [&b"\x01\x01b\0\0\0\0\x01a\0\0\0\0"[..], b"\x01\x01a\0\0\0\0\x01a\0\0\0\0", b"\x01\0\0\0\0\0", b"\x01"] {
            assert!(XattrRecord::from_bytes(Bytes::from_static(bad)).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn changes_of_a_record_are_those_of_a_map(
            changes in proptest::collection::vec((proptest::collection::vec(1u8..4, 1..3), any::<Option<Vec<u8>>>()), 0..20),
        ) {
            let (mut record, mut map) = (None, BTreeMap::new());
            for (name, value) in &changes {
                record = XattrRecord::with(record.as_ref(), name, value.as_deref());
                match value {
                    Some(value) => map.insert(name.clone(), value.clone()),
                    None => map.remove(name),
                };
                let seen: BTreeMap<Vec<u8>, Vec<u8>> =
                    record.iter().flat_map(XattrRecord::iter).map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
                prop_assert_eq!(&seen, &map);
                prop_assert_eq!(record.as_ref().and_then(|record| record.get(name)), map.get(name).map(Vec::as_slice));
                if let Some(record) = &record {
                    prop_assert_eq!(XattrRecord::from_bytes(record.clone().into_bytes()), Ok(record.clone()));
                }
            }
        }
    }
}
