//! The record of an invite.

use super::RecordError;
use super::record::{array, read, start};
use crate::ids::{PrincipalId, Rights};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_wire::{Bytes8, Fault, Field as _, Malformed, Reader, Realm};
use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use zeroize::Zeroizing;

/// What the store keeps of an invite. Its bytes have the secret in them; both are wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct InviteRecord {
    /// What both sides of the handshake of a join know.
    pub secret: Zeroizing<[u8; 16]>,
    /// What people will call the host; of several it is the beginning of their names.
    pub name: Box<[u8]>,
    /// Whether who joins may do what operators do.
    pub operator: bool,
    /// What who joins may do, by realm.
    pub rights: Vec<(Realm, Rights)>,
    /// How many keys it admits.
    pub uses: u16,
    /// When it expires, in seconds since 1970.
    pub expires_s: u64,
    /// Whose next key it admits, and nobody else's; `None`: it makes hosts members.
    pub rotates: Option<PrincipalId>,
    /// The keys that it has admitted, in their order.
    pub used: Vec<InviteUse>,
}

/// A key that an invite has admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InviteUse {
    /// The key.
    pub key: [u8; 32],
    /// What it became.
    pub principal: PrincipalId,
    /// When, in seconds since 1970.
    pub at_s: u64,
    /// From where.
    pub from: IpAddr,
}

impl fmt::Debug for InviteRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.escape_ascii();
        f.debug_struct("InviteRecord").field("name", &format_args!("\"{name}\"")).field("used", &self.used.len()).finish_non_exhaustive()
    }
}

impl InviteRecord {
    /// The record as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        // Room for all of it: a vector that grows leaves its bytes behind.
        let mut w = start(16 + 1 + self.name.len() + 1 + 2 + 5 * self.rights.len() + 2 + 8 + 4 + 2 + 60 * self.used.len());
        w.extend_from_slice(&*self.secret);
        Bytes8(&self.name).put(&mut w);
        self.operator.put(&mut w);
        count(self.rights.len()).put(&mut w);
        for (realm, rights) in &self.rights {
            realm.put(&mut w);
            rights.bits().put(&mut w);
        }
        self.uses.put(&mut w);
        self.expires_s.put(&mut w);
        self.rotates.unwrap_or(PrincipalId::ANYBODY).0.put(&mut w);
        count(self.used.len()).put(&mut w);
        for InviteUse { key, principal, at_s, from } in &self.used {
            w.extend_from_slice(key);
            principal.0.put(&mut w);
            at_s.put(&mut w);
            let from = match from {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => *ip,
            };
            w.extend_from_slice(&from.octets());
        }
        w.into()
    }

    /// The record that the bytes are.
    ///
    /// # Errors
    /// [`RecordError`]: it is no such record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let within = |field| move |e: Malformed| e.within("InviteRecord", field);
        read(bytes, |r| {
            let secret = array::<16>(r).map_err(within("secret"))?.into();
            let name: Bytes8<'_> = r.get().map_err(within("name"))?;
            let operator = r.get().map_err(within("operator"))?;
            let count: u16 = r.get().map_err(within("rights"))?;
            let rights = (0..count).map(|_| right(r)).collect::<Result<_, _>>().map_err(within("rights"))?;
            let (uses, expires_s) = (r.get().map_err(within("uses"))?, r.get().map_err(within("expires_s"))?);
            let rotates = r.get().map(PrincipalId).map_err(within("rotates"))?;
            let rotates = Some(rotates).filter(|who| *who != PrincipalId::ANYBODY);
            let count: u16 = r.get().map_err(within("used"))?;
            if count > uses {
                return Err(Malformed::new(Fault::TooLong).within("InviteRecord", "used"));
            }
            let used = (0..count).map(|_| one_use(r)).collect::<Result<_, _>>().map_err(within("used"))?;
            Ok(Self { secret, name: name.0.into(), operator, rights, uses, expires_s, rotates, used })
        })
    }
}

/// There are never as many: their bounds are in `invites` and `principals`.
fn count(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

fn right(r: &mut Reader<'_>) -> Result<(Realm, Rights), Malformed> {
    let (realm, bits) = (r.get()?, r.get()?);
    Ok((realm, Rights::from_bits(bits).ok_or(Malformed::new(Fault::BadValue))?))
}

fn one_use(r: &mut Reader<'_>) -> Result<InviteUse, Malformed> {
    let (key, principal, at_s) = (array(r)?, PrincipalId(r.get()?), r.get()?);
    Ok(InviteUse { key, principal, at_s, from: Ipv6Addr::from(array::<16>(r)?).to_canonical() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, vec};

    #[test]
    fn every_byte_of_a_record_counts_and_its_secret_is_not_shown() {
        let one = |from: &str| InviteUse { key: [7; 32], principal: PrincipalId(3), at_s: 1 << 40, from: from.parse().unwrap() };
        let record = InviteRecord {
            secret: [0xab; 16].into(),
            name: (*b"web").into(),
            operator: true,
            rights: vec![(Realm(1), Rights::READ), (Realm(7), Rights::OWN)],
            uses: 2,
            expires_s: 5,
            rotates: Some(PrincipalId(3)),
            used: vec![one("10.0.0.1"), one("2001:db8::1")],
        };
        let bytes = record.to_bytes();
        assert_eq!(bytes.capacity(), bytes.len(), "it never grew");
        assert_eq!(InviteRecord::from_bytes(&bytes).as_ref(), Ok(&record));
        assert!((0..bytes.len()).all(|len| InviteRecord::from_bytes(&bytes[..len]).is_err()));
        assert!(!format!("{record:?}").contains("171"));
        assert!(InviteRecord::from_bytes(&InviteRecord { uses: 1, ..record }.to_bytes()).is_err(), "used more often than it can be");
    }
}
