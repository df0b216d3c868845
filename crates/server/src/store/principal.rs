//! The record of a principal.

use super::RecordError;
use super::record::{array, read, start};
use crate::ids::Rights;
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_wire::{Bytes8, Fault, Field as _, Malformed, Reader, Realm};

/// What the store keeps of a principal, for ever: no restore gives a key back that was withdrawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalRecord {
    /// What people call it.
    pub name: Box<[u8]>,
    /// Its public key, if it has one yet; the newest.
    pub key: Option<[u8; 32]>,
    /// Its earlier keys, if it has been given another.
    pub rotated: Option<EarlierKeys>,
    /// Whether it may do what operators do; that alone lets it read nothing.
    pub operator: bool,
    /// Whether its key was withdrawn.
    pub revoked: bool,
    /// What it was given, by realm; nothing that only follows.
    pub rights: Vec<(Realm, Rights)>,
}

/// Keys that a principal had before its newest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierKeys {
    /// Its first key: by it its agents are told apart for ever, whether it is good or not.
    pub first: [u8; 32],
    /// The one before the newest; the first one after one rotation.
    pub former: [u8; 32],
    /// Until when the former one is good, in seconds since 1970; 0: no more.
    pub until_s: u64,
}

impl PrincipalRecord {
    /// The key by which its agents are told apart: its first one.
    #[must_use]
    pub fn identity(&self) -> Option<[u8; 32]> {
        self.rotated.map(|rotated| rotated.first).or(self.key)
    }

    /// All keys that are its own, good or not; none is anybody else's.
    pub fn keys(&self) -> impl Iterator<Item = [u8; 32]> + use<> {
        let before = self.rotated.map(|EarlierKeys { first, former, .. }| [former, first]);
        let former = before.map(|[former, _]| former);
        let first = before.filter(|[former, first]| former != first).map(|[_, first]| first);
        self.key.into_iter().chain(former).chain(first)
    }

    /// Whether a session may be opened with a key, at a time in seconds since 1970: the newest, or the one before for a while.
    #[must_use]
    pub fn takes(&self, key: &[u8; 32], now_s: u64) -> bool {
        self.key.as_ref() == Some(key) || self.rotated.is_some_and(|rotated| rotated.former == *key && now_s < rotated.until_s)
    }

    /// The record as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = start(1 + self.name.len() + 1 + 32 + 1 + 72 + 2 + 2 + 5 * self.rights.len());
        Bytes8(&self.name).put(&mut w);
        Bytes8(self.key.as_ref().map_or(&[], |key| &key[..])).put(&mut w);
        self.rotated.is_some().put(&mut w);
        if let Some(EarlierKeys { first, former, until_s }) = &self.rotated {
            w.extend_from_slice(first);
            w.extend_from_slice(former);
            until_s.put(&mut w);
        }
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
            let rotated = match r.get().map_err(within("rotated"))? {
                true => Some(earlier_keys(r).map_err(within("rotated"))?),
                false => None,
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
            Ok(Self { name: name.0.into(), key, rotated, operator, revoked, rights })
        })
    }
}

fn earlier_keys(r: &mut Reader<'_>) -> Result<EarlierKeys, Malformed> {
    Ok(EarlierKeys { first: array(r)?, former: array(r)?, until_s: r.get()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn every_byte_of_a_record_counts() {
        let rights = vec![(Realm(1), Rights::READ), (Realm(7), Rights::READ.with(Rights::OWN))];
        let earlier = EarlierKeys { first: [5; 32], former: [6; 32], until_s: 1 << 40 };
        for (key, rotated) in [(None, None), (Some([7; 32]), None), (Some([7; 32]), Some(earlier))] {
            let record = PrincipalRecord { name: (*b"web").into(), key, rotated, operator: true, revoked: false, rights: rights.clone() };
            let bytes = record.to_bytes();
            assert_eq!(PrincipalRecord::from_bytes(&bytes), Ok(record));
            assert!((0..bytes.len()).all(|len| PrincipalRecord::from_bytes(&bytes[..len]).is_err()));
            let mut other = bytes;
            *other.last_mut().unwrap() = 0x80;
            assert!(PrincipalRecord::from_bytes(&other).is_err(), "a right that there is not");
        }
        let rights = vec![(Realm(1), Rights::READ); 2];
        let twice = PrincipalRecord { name: [].into(), key: None, rotated: None, operator: false, revoked: false, rights };
        assert!(PrincipalRecord::from_bytes(&twice.to_bytes()).is_err());
    }
}
