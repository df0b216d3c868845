//! Records: datagrams of a session, sealed. The header stays in clear and is authenticated; the packet number is the nonce.

use std::fmt;

use blake2::Blake2s256;
use cistern_wire::Direction;
use hkdf::SimpleHkdf;
use zeroize::Zeroizing;

/// The record was not made with this key for this number and header, or was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFailed;

impl fmt::Display for OpenFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the record is not authentic")
    }
}

impl std::error::Error for OpenFailed {}

/// The key of one direction in one generation. Wiped when dropped.
#[derive(Clone)]
pub struct Key(Zeroizing<[u8; 32]>);

impl Key {
    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// One that is derived from a secret.
    pub(crate) fn expand(secret: &SimpleHkdf<Blake2s256>, label: &[u8]) -> Self {
        Self(expand(secret, label))
    }
}

/// The secret from which the keys of a generation, and the next chain, are derived. Nothing before it can be derived from it. Wiped when dropped.
#[derive(Clone)]
pub struct Chain(Zeroizing<[u8; 32]>);

impl Chain {
    /// The chain of a session's first generation, from the two keys and the hash of its handshake.
    #[must_use]
    pub fn begin(first: &[u8; 32], second: &[u8; 32], hash: &[u8; 32]) -> Self {
        //= wire-spec.md#11-8-security
        //# Keys MUST rest on something fresh from either side, be different for each direction, protect the header too, and be renewable
        //# without a new session.
        let mut secret = Zeroizing::new([0; 64]);
        secret[..32].copy_from_slice(first);
        secret[32..].copy_from_slice(second);
        Self(expand(&SimpleHkdf::<Blake2s256>::new(Some(hash), &*secret), b"cistern1 chain"))
    }

    /// From its bytes, as a key log has them.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Its bytes, for a key log.
    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key in this chain's generation of what `sender` sends.
    #[must_use]
    pub fn key(&self, sender: Direction) -> Key {
        Key(self.derive(match sender {
            Direction::Agent => b"cistern1 as",
            Direction::Server => b"cistern1 sa",
        }))
    }

    /// The chain of the next generation.
    #[must_use]
    pub fn next(&self) -> Self {
        Self(self.derive(b"cistern1 next"))
    }

    fn derive(&self, label: &[u8]) -> Zeroizing<[u8; 32]> {
        expand(&SimpleHkdf::from_prk(&*self.0).expect("a chain is as long as the hash"), label)
    }
}

fn expand(hkdf: &SimpleHkdf<Blake2s256>, label: &[u8]) -> Zeroizing<[u8; 32]> {
    let mut out = Zeroizing::new([0; 32]);
    hkdf.expand(label, &mut *out).expect("one block of output can be expanded");
    out
}
