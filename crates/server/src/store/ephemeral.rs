//! The records of what ends by itself: named leases, and files that go with a session or a lease.

use super::RecordError;
use super::record::{array, read, read_as, start, start_with};
use crate::ids::{Bound, PrincipalId};
use alloc::vec::Vec;
use cistern_wire::{Field as _, Malformed, ObjectId, SessionId};

/// Version of the record of a file that goes with a session.
const OF_SESSION: u8 = 1;
/// Version of the record of a file that goes with a named lease.
const OF_LEASE: u8 = 2;

/// What the store keeps of an ephemeral file, as long as there is the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EphemeralRecord {
    /// Whose end is the file's: of a session's that of the one that made it, or of the last that has reclaimed from that.
    pub bound: Bound,
}

impl EphemeralRecord {
    /// The record's bytes, for `StoreCache::put`.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let (version, number) = match self.bound {
            Bound::Session(session) => (OF_SESSION, session.0),
            Bound::Lease(lease) => (OF_LEASE, lease.0),
        };
        let mut w = start_with(version, 1 + 8);
        number.put(&mut w);
        w
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`] when the bytes are no record of an ephemeral file; the store is at fault.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let within = |e: Malformed| e.within("EphemeralRecord", "bound");
        match bytes.first() {
            Some(&OF_LEASE) => read_as(OF_LEASE, bytes, |r| Ok(Self { bound: Bound::Lease(ObjectId(r.get().map_err(within)?)) })),
            _ => read_as(OF_SESSION, bytes, |r| Ok(Self { bound: Bound::Session(SessionId(r.get().map_err(within)?)) })),
        }
    }
}

/// What the store keeps of a named lease until it ends: all but its time, which a start begins anew (section 11.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Its time to live, in milliseconds.
    pub ttl_ms: u32,
    /// Hash of its secret.
    pub verifier: [u8; 32],
    /// Who made it.
    pub creator: PrincipalId,
}

impl LeaseRecord {
    /// The record as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = start(4 + 32 + 4);
        self.ttl_ms.put(&mut w);
        self.verifier.put(&mut w);
        self.creator.0.put(&mut w);
        w
    }

    /// The record that the bytes are.
    ///
    /// # Errors
    /// [`RecordError`]: it is no such record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let within = |field| move |e: Malformed| e.within("LeaseRecord", field);
        read(bytes, |r| {
            Ok(Self {
                ttl_ms: r.get().map_err(within("ttl_ms"))?,
                verifier: array(r).map_err(within("verifier"))?,
                creator: PrincipalId(r.get().map_err(within("creator"))?),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_comes_back_from_its_bytes_and_from_no_part_of_them() {
        for bound in [Bound::Session(SessionId(0x0102)), Bound::Lease(ObjectId(0x0102))] {
            let bytes = EphemeralRecord { bound }.to_bytes();
            assert_eq!(EphemeralRecord::from_bytes(&bytes), Ok(EphemeralRecord { bound }));
            assert!((0..bytes.len()).all(|len| EphemeralRecord::from_bytes(&bytes[..len]).is_err()));
        }
        assert_eq!(EphemeralRecord::from_bytes(&[3]), Err(RecordError::Version(3)));
        let lease = LeaseRecord { ttl_ms: 30_000, verifier: [7; 32], creator: PrincipalId(3) };
        let bytes = lease.to_bytes();
        assert_eq!(LeaseRecord::from_bytes(&bytes), Ok(lease));
        assert!((0..bytes.len()).all(|len| LeaseRecord::from_bytes(&bytes[..len]).is_err()));
    }
}
