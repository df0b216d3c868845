//! The cluster's key pair: Ed25519. It signs rosters and nothing else, and can be kept away from every server.

use crate::read;
use crate::text::TextForm;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use cistern_wire::{Malformed, Reader};
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of a key, and of the seed of a secret one.
const KEY_LEN: usize = 32;
/// Bytes of a signature.
pub const SIGNATURE_LEN: usize = 64;
/// As that of other keys.
const CHECK_LEN: usize = 2;

/// What was signed is not this, or another key signed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not signed by the cluster's key")]
pub struct NotSigned;

/// The public key of a cluster: what agents pin.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClusterKey([u8; KEY_LEN]);

impl ClusterKey {
    /// From its bytes. Any 32 bytes are one; nothing is signed by a useless one.
    #[must_use]
    pub const fn from_array(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// Whether the cluster signed this.
    ///
    /// # Errors
    /// It did not.
    pub fn verify(&self, message: &[u8], signature: &[u8; SIGNATURE_LEN]) -> Result<(), NotSigned> {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(message, signature).map_err(|_| NotSigned)
    }
}

impl TextForm for ClusterKey {
    const PREFIX: &'static str = "cistern-cluster-1.";
    const CHECK_LEN: usize = CHECK_LEN;

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.0.to_vec().into()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        whole(bytes).map(Self)
    }
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterKey({self})")
    }
}

/// The secret key of a cluster. Wiped when dropped; neither shown nor compared.
#[derive(Clone)]
pub struct ClusterSecret(Zeroizing<[u8; KEY_LEN]>);

impl ClusterSecret {
    /// From 32 bytes of the system's random source.
    #[must_use]
    pub fn from_seed(seed: impl Into<Zeroizing<[u8; KEY_LEN]>>) -> Self {
        Self(seed.into())
    }

    /// The public key that belongs to it.
    #[must_use]
    pub fn public(&self) -> ClusterKey {
        let mut key = [0; KEY_LEN];
        key.copy_from_slice(self.pair().public_key().as_ref());
        ClusterKey(key)
    }

    /// Signs.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_LEN] {
        let mut signature = [0; SIGNATURE_LEN];
        signature.copy_from_slice(self.pair().sign(message).as_ref());
        signature
    }

    fn pair(&self) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&*self.0).expect("any 32 bytes are a seed")
    }
}

impl TextForm for ClusterSecret {
    const PREFIX: &'static str = "cistern-secret-cluster-1.";
    const CHECK_LEN: usize = CHECK_LEN;

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.0.to_vec().into()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        whole(bytes).map(Self::from_seed)
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret(..)")
    }
}

fn whole(bytes: &[u8]) -> Result<[u8; KEY_LEN], Malformed> {
    let mut r = Reader::new(bytes);
    let key = read::array(&mut r)?;
    read::end(&r).map(|()| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_of_this_message_by_this_key() {
        let (ours, theirs) = (ClusterSecret::from_seed([1; 32]), ClusterSecret::from_seed([2; 32]));
        let signature = ours.sign(b"roster");
        assert_eq!(ours.public().verify(b"roster", &signature), Ok(()));
        assert_eq!(theirs.public().verify(b"roster", &signature), Err(NotSigned));
        assert_eq!(ours.public().verify(b"roster2", &signature), Err(NotSigned));
        for bit in 0..SIGNATURE_LEN * 8 {
            let mut changed = signature;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ours.public().verify(b"roster", &changed), Err(NotSigned), "bit {bit}");
        }
        assert_eq!(ClusterKey::from_array([0; 32]).verify(b"roster", &[0; SIGNATURE_LEN]), Err(NotSigned));
    }

    /// RFC 8032, section 7.1, test 1.
    #[test]
    fn the_signature_is_that_of_the_standard() {
        let hex =
            |text: &str| -> Vec<u8> { (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect() };
        let seed = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let secret = ClusterSecret::from_seed(<[u8; 32]>::try_from(seed).unwrap());
        assert_eq!(secret.public().as_bytes()[..], hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"));
        let signature = hex(
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        );
        assert_eq!(secret.sign(b"")[..], signature);
    }

    #[test]
    fn keys_have_one_text_each_and_secrets_are_not_shown() {
        let secret = ClusterSecret::from_seed([7; 32]);
        crate::text::tests::has_one_text(&secret);
        crate::text::tests::has_one_text(&secret.public());
        assert_eq!(format!("{secret:?}"), "ClusterSecret(..)");
        assert!(ClusterKey::from_text(&secret.to_text()).is_err() && ClusterSecret::from_text(&secret.public().to_text()).is_err());
    }
}
