//! The record of a principal.

use super::RecordError;
use super::record::{read, start};
use crate::ids::Rights;
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_wire::{Bytes8, Fault, Field as _, Malformed, Realm};

/// What the store keeps of a principal, for ever: no restore gives a key back that was withdrawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalRecord {
    /// What people call it.
    pub name: Box<[u8]>,
    /// Its public key, if it has one yet.
    pub key: Option<[u8; 32]>,
    /// Whether it may do what operators do; that alone lets it read nothing.
    pub operator: bool,
    /// Whether its key was withdrawn.
    pub revoked: bool,
    /// What it was given, by realm; nothing that only follows.
    pub rights: Vec<(Realm, Rights)>,
}

impl PrincipalRecord {
    /// The record as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = start(1 + self.name.len() + 1 + 32 + 2 + 2 + 5 * self.rights.len());
        Bytes8(&self.name).put(&mut w);
        Bytes8(self.key.as_ref().map_or(&[], |key| &key[..])).put(&mut w);
        self.operator.put(&mut w);
        self.revoked.put(&mut w);
        u16::try_from(self.rights.len()).unwrap_or(u16::MAX).put(&mut w);
        for (realm, rights) in &self.rights {
            realm.put(&mut w);
            rights.bits().put(&mut w);
        }
        w
    }

    /// The record that the bytes are.
    ///
    /// # Errors
    /// [`RecordError`]: it is no such record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let within = |field| move |e: Malformed| e.within("PrincipalRecord", field);
        read(bytes, |r| {
            let name: Bytes8<'_> = r.get().map_err(within("name"))?;
            let key: Bytes8<'_> = r.get().map_err(within("key"))?;
            let bad = || Malformed::new(Fault::BadValue);
            let key = match key.0 {
                [] => None,
                key => Some(key.try_into().map_err(|_| bad().within("PrincipalRecord", "key"))?),
            };
            let (operator, revoked) = (r.get().map_err(within("operator"))?, r.get().map_err(within("revoked"))?);
            let count: u16 = r.get().map_err(within("rights"))?;
            let mut rights: Vec<(Realm, Rights)> = Vec::new();
            for _ in 0..count {
                let realm = r.get().map_err(within("rights"))?;
                let some = r.get().map(Rights::from_bits).map_err(within("rights"))?;
                let above = rights.last().is_none_or(|last| last.0 < realm);
                let some = some.filter(|_| above).ok_or_else(|| bad().within("PrincipalRecord", "rights"))?;
                rights.push((realm, some));
            }
            Ok(Self { name: name.0.into(), key, operator, revoked, rights })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn every_byte_of_a_record_counts() {
        let rights = vec![(Realm(1), Rights::READ), (Realm(7), Rights::READ.with(Rights::OWN))];
        for key in [None, Some([7; 32])] {
            let record = PrincipalRecord { name: (*b"web").into(), key, operator: true, revoked: false, rights: rights.clone() };
            let bytes = record.to_bytes();
            assert_eq!(PrincipalRecord::from_bytes(&bytes), Ok(record));
            assert!((0..bytes.len()).all(|len| PrincipalRecord::from_bytes(&bytes[..len]).is_err()));
            let mut other = bytes;
            *other.last_mut().unwrap() = 0x80;
            assert!(PrincipalRecord::from_bytes(&other).is_err(), "a right that there is not");
        }
        let twice =
            PrincipalRecord { name: [].into(), key: None, operator: false, revoked: false, rights: vec![(Realm(1), Rights::READ); 2] };
        assert!(PrincipalRecord::from_bytes(&twice.to_bytes()).is_err());
    }
}
