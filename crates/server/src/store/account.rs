//! The record of what a principal has made.

use super::RecordError;
use super::record::{read, start};
use alloc::vec::Vec;
use cistern_wire::{Field as _, Malformed};

/// What the store keeps of the objects that a principal has made, in whatever realm they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountRecord {
    /// How many there are.
    pub objects: u64,
    /// Bytes of their contents, targets and extended attributes.
    pub bytes: u64,
    /// Most objects; 0: no bound.
    pub objects_max: u64,
    /// Most bytes; 0: no bound.
    pub bytes_max: u64,
}

impl AccountRecord {
    /// The record as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = start(4 * 8);
        self.objects.put(&mut w);
        self.bytes.put(&mut w);
        self.objects_max.put(&mut w);
        self.bytes_max.put(&mut w);
        w
    }

    /// The record that the bytes are.
    ///
    /// # Errors
    /// [`RecordError`]: it is no such record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let within = |field| move |e: Malformed| e.within("AccountRecord", field);
        read(bytes, |r| {
            Ok(Self {
                objects: r.get().map_err(within("objects"))?,
                bytes: r.get().map_err(within("bytes"))?,
                objects_max: r.get().map_err(within("objects_max"))?,
                bytes_max: r.get().map_err(within("bytes_max"))?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_record_counts() {
        let record = AccountRecord { objects: 3, bytes: 4, objects_max: 5, bytes_max: 6 };
        let bytes = record.to_bytes();
        assert_eq!(AccountRecord::from_bytes(&bytes), Ok(record));
        assert!((0..bytes.len()).all(|len| AccountRecord::from_bytes(&bytes[..len]).is_err()));
    }
}
