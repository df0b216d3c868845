//! X25519 key pairs as people and files carry them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blake2::{Blake2s256, Digest as _};
use cistern_wire::AgentId;
use zeroize::Zeroizing;

/// Bytes of a key.
pub const KEY_LEN: usize = 32;

/// Bytes of the check at the end of a key's text.
const CHECK_LEN: usize = 2;

/// Characters of a key and its check in base64url.
const TEXT_LEN: usize = (KEY_LEN + CHECK_LEN).div_ceil(3) * 4 - 2;

/// What a public key belongs to. Its text begins with the name, so that a key is not given in place of another, and that scanners for secrets
/// find what should not be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A host or application that opens sessions.
    Agent,
    /// A server.
    Server,
}

impl Role {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Agent => "cistern-agent-1.",
            Self::Server => "cistern-server-1.",
        }
    }

    const fn secret_prefix(self) -> &'static str {
        match self {
            Self::Agent => "cistern-secret-agent-1.",
            Self::Server => "cistern-secret-server-1.",
        }
    }
}

/// The public half of a key pair: the identity of a host or server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; KEY_LEN]);

impl PublicKey {
    /// From its bytes. Any 32 bytes are one; a useless one fails the handshake.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// Who an agent is: one instance of this key. A digest, as long as an id that is drawn, so that tables of agents are keyed by both.
    #[must_use]
    pub fn agent(&self, instance: AgentId) -> AgentId {
        let digest = Blake2s256::new().chain_update(b"cistern1 agent").chain_update(self.0).chain_update(instance.0).finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        AgentId(id)
    }

    /// Its text: the role's prefix, then base64url of the key and of a check against slips of the pen.
    #[must_use]
    pub fn to_text(&self, role: Role) -> String {
        encode(role.prefix(), &self.0).to_string()
    }

    /// Reads what [`to_text`](Self::to_text) writes.
    ///
    /// # Errors
    /// A text of another role, damaged or cut off.
    pub fn from_text(text: &str, role: Role) -> Result<Self, KeyTextError> {
        decode(role.prefix(), text).map(|key| Self(*key))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", URL_SAFE_NO_PAD.encode(&self.0[..6]))
    }
}

/// The private half of a key pair. Wiped when dropped; neither shown nor compared.
#[derive(Clone)]
pub struct SecretKey(Zeroizing<[u8; KEY_LEN]>);

impl SecretKey {
    /// From 32 bytes of the system's random source, or of a file.
    #[must_use]
    pub fn from_bytes(bytes: impl Into<Zeroizing<[u8; KEY_LEN]>>) -> Self {
        Self(bytes.into())
    }

    /// Its bytes, for the file that keeps it.
    #[must_use]
    pub fn expose(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// The public key that belongs to it: one multiplication on the curve.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(crate::crypto::public_of(&self.0))
    }

    /// Its text, for the file that keeps it. Wiped when dropped.
    #[must_use]
    pub fn to_text(&self, role: Role) -> Zeroizing<String> {
        encode(role.secret_prefix(), &self.0)
    }

    /// Reads what [`to_text`](Self::to_text) writes.
    ///
    /// # Errors
    /// A text of another role, damaged or cut off. It is not repeated in the error.
    pub fn from_text(text: &str, role: Role) -> Result<Self, KeyTextError> {
        decode(role.secret_prefix(), text).map(Self)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// Why a text is not the key that was expected. It never contains the text, which may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyTextError {
    /// It does not begin as a key of this role does.
    Prefix(&'static str),
    /// What follows the prefix is not base64url of 34 bytes.
    Form,
    /// The check does not belong to the key.
    Check,
}

impl fmt::Display for KeyTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(prefix) => write!(f, "this is not a key of that kind: one begins with {prefix:?}"),
            Self::Form => f.write_str("the key is cut off or has a character too many"),
            Self::Check => f.write_str("a character of the key was changed"),
        }
    }
}

impl std::error::Error for KeyTextError {}

fn check(key: &[u8; KEY_LEN]) -> [u8; CHECK_LEN] {
    let digest = Blake2s256::digest(key);
    [digest[0], digest[1]]
}

fn encode(prefix: &str, key: &[u8; KEY_LEN]) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new([0; KEY_LEN + CHECK_LEN]);
    bytes[..KEY_LEN].copy_from_slice(key);
    bytes[KEY_LEN..].copy_from_slice(&check(key));
    // With its capacity from the beginning: a string that grows leaves copies behind that nobody wipes.
    let mut text = Zeroizing::new(String::with_capacity(prefix.len() + TEXT_LEN));
    text.push_str(prefix);
    URL_SAFE_NO_PAD.encode_string(*bytes, &mut text);
    debug_assert_eq!(text.len(), prefix.len() + TEXT_LEN, "all keys are of one length");
    text
}

fn decode(prefix: &'static str, text: &str) -> Result<Zeroizing<[u8; KEY_LEN]>, KeyTextError> {
    let body = text.trim().strip_prefix(prefix).ok_or(KeyTextError::Prefix(prefix))?;
    let mut bytes = Zeroizing::new([0; KEY_LEN + CHECK_LEN]);
    let written = URL_SAFE_NO_PAD.decode_slice(body, &mut *bytes).map_err(|_| KeyTextError::Form)?;
    if written != bytes.len() {
        return Err(KeyTextError::Form);
    }
    let mut key = Zeroizing::new([0; KEY_LEN]);
    key.copy_from_slice(&bytes[..KEY_LEN]);
    if bytes[KEY_LEN..] != check(&key) {
        return Err(KeyTextError::Check);
    }
    Ok(key)
}

/// The first 8 bytes of a digest of a server's public key: says to a server with two keys which of them is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId(pub [u8; 8]);

impl KeyId {
    /// That of `server`.
    #[must_use]
    pub fn of(server: &PublicKey) -> Self {
        let digest = Blake2s256::new().chain_update(b"cistern1 key id").chain_update(server.as_bytes()).finalize();
        let mut id = [0; 8];
        id.copy_from_slice(&digest[..8]);
        Self(id)
    }
}
