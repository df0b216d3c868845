//! What a host gets that joins: a grant, put together from the answers to JOIN and ROSTER, or a text that is carried by hand, on a request that was carried so.
//!
//! Neither is secret. Both must come unaltered, so both ends show a fingerprint. Layout of a grant below the text: key (32); principal u32; name
//! behind a byte with its length; cluster key (32); the signed roster to the end. What a key may do is not in it: an operator can change that at
//! any time, and the server alone says.

use crate::name::Name;
use crate::read;
use crate::roster::{Pinned, ServerState};
use crate::text::TextForm;
use cistern_seal::PublicKey;
use cistern_wire::{Field as _, Malformed, Reader};
use zeroize::Zeroizing;

/// A host that asks to be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its public key.
    pub key: PublicKey,
    /// What it calls itself; the operator may name it otherwise.
    pub label: Name,
}

impl TextForm for Request {
    const PREFIX: &'static str = "cistern-request-1.";
    const CHECK_LEN: usize = 4;

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = self.key.as_bytes().to_vec();
        self.label.put(&mut bytes);
        bytes.into()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(bytes);
        let request = Self { key: read::public_key(&mut r)?, label: Name::get(&mut r)? };
        read::end(&r).map(|()| request)
    }
}

/// That a host is admitted, and all that it needs to open sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The key that is admitted.
    pub key: PublicKey,
    /// The number of its principal.
    pub principal: u32,
    /// Its name.
    pub name: Name,
    /// The cluster with its roster.
    pub pinned: Pinned,
}

/// Why a grant is not for this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// It admits another key.
    #[error("the grant is for another key than this host's")]
    OtherKey,
    /// The server that was asked, and proved itself by its key, does not stand in the cluster's roster, or is retired.
    #[error("the server that answered does not belong to the cluster that it names")]
    OtherCluster,
}

impl Grant {
    /// Whether it is for the key of this host.
    ///
    /// # Errors
    /// It is for another one.
    pub fn check_key(&self, own: &PublicKey) -> Result<(), GrantError> {
        if self.key == *own { Ok(()) } else { Err(GrantError::OtherKey) }
    }

    /// Whether the server that an invite names, and that gave this grant, belongs to the cluster.
    ///
    /// # Errors
    /// It does not stand in the roster, or is retired.
    pub fn check_server(&self, server: &PublicKey) -> Result<(), GrantError> {
        //= docs/sealed.md#joining-rosters
        //# A host MUST NOT believe a cluster whose roster does not name, as serving or next, the server that has answered.
        let entry = self.pinned.roster().server(server).filter(|entry| entry.state != ServerState::Retired);
        entry.map(|_| ()).ok_or(GrantError::OtherCluster)
    }
}

impl TextForm for Grant {
    const PREFIX: &'static str = "cistern-grant-1.";
    const CHECK_LEN: usize = 4;

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = self.key.as_bytes().to_vec();
        self.principal.put(&mut bytes);
        self.name.put(&mut bytes);
        bytes.extend_from_slice(&self.pinned.to_bytes());
        bytes.into()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(bytes);
        let (key, principal) = (read::public_key(&mut r)?, r.get()?);
        let name = Name::get(&mut r)?;
        let pinned = Pinned::from_bytes(r.rest())?;
        Ok(Self { key, principal, name, pinned })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::BAD_VALUE;
    use crate::roster::tests::{key, roster, secret};
    use crate::text::tests::has_one_text;
    use proptest::prelude::*;

    fn grant() -> Grant {
        let signed = roster().sign(&secret()).unwrap();
        Grant {
            key: key(5),
            principal: 7,
            name: "web-1".parse().unwrap(),
            pinned: Pinned::new(secret().public(), signed.as_bytes()).unwrap(),
        }
    }

    #[test]
    fn requests_and_grants_are_one_line_each() {
        has_one_text(&Request { key: key(5), label: "web-1".parse().unwrap() });
        has_one_text(&grant());
        assert_eq!(Grant::from_text(&grant().to_text()), Ok(grant()));
    }

    //= docs/sealed.md#joining-rosters
    //= type=test
    //# A host MUST NOT believe a cluster whose roster does not name, as serving or next, the server that has answered.
    #[test]
    fn a_grant_is_for_its_key_and_from_a_server_of_its_cluster() {
        let grant = grant();
        assert_eq!((grant.check_key(&key(5)), grant.check_key(&key(6))), (Ok(()), Err(GrantError::OtherKey)));
        // Serving, next, retired, unknown.
        let servers = [1, 2, 3, 4].map(|n| grant.check_server(&key(n)).is_ok());
        assert_eq!(servers, [true, true, false, false]);
    }

    #[test]
    fn a_grant_with_a_roster_of_another_cluster_is_none() {
        let mut bytes = grant().to_bytes();
        let cluster = bytes.windows(32).position(|part| part == secret().public().as_bytes()).unwrap();
        bytes[cluster] ^= 1;
        assert_eq!(Grant::from_bytes(&bytes), Err(BAD_VALUE.within("Pinned", "roster")));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(request) = Request::from_bytes(&bytes) {
                prop_assert_eq!(&request.to_bytes()[..], &bytes[..]);
            }
            let _ = Grant::from_bytes(&bytes);
        }
    }
}
