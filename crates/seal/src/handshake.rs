//! Two Noise patterns: IKpsk2 to open a session with long-lived keys, NNpsk0 to resume one by a secret of the former session.
//!
//! Which of them a datagram carries is its type; nothing is negotiated. Everything in clear that steers a handshake is in the prologue, so
//! that whoever changes it makes both sides disagree.

use std::fmt;

use blake2::digest::{KeyInit, Mac as _};
use blake2::{Blake2s256, Blake2sMac256, Digest as _};
use cistern_wire::limits::TAG_LEN;
use cistern_wire::{AgentId, SessionId};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use crate::crypto::Primitives;
use crate::key::{KEY_LEN, PublicKey, SecretKey};
use crate::record::Chain;

const OPEN: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
const RESUME: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// Bytes of message 1 of an opening beside its payload: the ephemeral key, the static key with its tag, the payload's tag.
pub const OPEN_OVERHEAD: usize = KEY_LEN + KEY_LEN + TAG_LEN + TAG_LEN;

/// Bytes of message 1 of a resumption, and of every message 2, beside the payload.
pub const RESUME_OVERHEAD: usize = KEY_LEN + TAG_LEN;

/// 32 bytes of the system's random source for one ephemeral key. It cannot be cloned and is used up by a handshake: one ephemeral under two
/// prologues or payloads would be one key and nonce for two texts.
pub struct Entropy(pub(crate) Zeroizing<[u8; KEY_LEN]>);

impl Entropy {
    /// From 32 random bytes, drawn when the handshake begins and used for nothing else.
    #[must_use]
    pub fn from_bytes(bytes: impl Into<Zeroizing<[u8; KEY_LEN]>>) -> Self {
        Self(bytes.into())
    }
}

/// A secret that both sides have already: of an invitation, laid down beside a key, of a former session; or zeros.
#[derive(Clone)]
pub struct Psk(Zeroizing<[u8; KEY_LEN]>);

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Psk").finish_non_exhaustive()
    }
}

impl Psk {
    /// No secret: 32 zeros, so that there is one pattern whether or not there is a secret.
    #[must_use]
    pub fn none() -> Self {
        Self::from_bytes([0; KEY_LEN])
    }

    /// From its bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// That of an invitation whose secret is `secret`.
    #[must_use]
    pub fn of_invite(secret: &[u8; 16]) -> Self {
        Self::digest(Blake2s256::new().chain_update(b"cistern1 invite").chain_update(secret))
    }

    /// Its bytes, for the message that tells it in a session.
    #[must_use]
    pub fn expose(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    fn digest(hash: Blake2s256) -> Self {
        let mut psk = Self::none();
        psk.0.copy_from_slice(&hash.finalize());
        psk
    }
}

/// The key of one start of a server, kept for as long as a session that was opened then can be resumed. From it follows the resume secret of
/// each of them, so that the server keeps nothing for a session but its record.
pub struct StartKey(Zeroizing<[u8; KEY_LEN]>);

impl fmt::Debug for StartKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartKey").finish_non_exhaustive()
    }
}

impl StartKey {
    /// From 32 random bytes, or those that the server has kept.
    #[must_use]
    pub fn from_bytes(bytes: impl Into<Zeroizing<[u8; KEY_LEN]>>) -> Self {
        Self(bytes.into())
    }

    /// Its bytes, for the place that keeps it.
    #[must_use]
    pub fn expose(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// The secret by which `session` can be resumed: by `agent`, which names its key and instance, in that incarnation alone.
    #[must_use]
    pub fn resume_secret(&self, session: SessionId, agent: AgentId, incarnation: u64) -> Psk {
        let mac = <Blake2sMac256 as KeyInit>::new_from_slice(&*self.0).expect("32 bytes are a key");
        let mac = mac.chain_update(session.0.to_be_bytes()).chain_update(agent.0).chain_update(incarnation.to_be_bytes());
        Psk::from_bytes(mac.finalize().into_bytes().into())
    }
}

/// The peer's message is not one: not for this key, changed, of another handshake, or made with another secret. Which of them, nobody can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeFailed;

impl fmt::Display for HandshakeFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the handshake message is not authentic")
    }
}

impl std::error::Error for HandshakeFailed {}

impl From<snow::Error> for HandshakeFailed {
    fn from(_: snow::Error) -> Self {
        Self
    }
}

fn builder<'a>(pattern: &str, entropy: Entropy, prologue: &'a [u8]) -> Result<Builder<'a>, HandshakeFailed> {
    Ok(Builder::with_resolver(pattern.parse()?, Box::new(Primitives::new(entropy))).prologue(prologue)?)
}

fn write(state: &mut HandshakeState, payload: &[u8], overhead: usize) -> Result<Vec<u8>, HandshakeFailed> {
    let mut message = vec![0; payload.len() + overhead];
    let length = state.write_message(payload, &mut message)?;
    debug_assert_eq!(length, message.len(), "the overhead of a pattern is fixed");
    Ok(message)
}

fn read(state: &mut HandshakeState, message: &[u8], overhead: usize) -> Result<Vec<u8>, HandshakeFailed> {
    let mut payload = vec![0; message.len().checked_sub(overhead).ok_or(HandshakeFailed)?];
    state.read_message(message, &mut payload)?;
    Ok(payload)
}

/// The two keys that the handshake ends with, and its hash.
fn split(state: &mut HandshakeState) -> (Zeroizing<[u8; 32]>, Zeroizing<[u8; 32]>, [u8; 32]) {
    let (first, second) = state.dangerously_get_raw_split();
    let mut hash = [0; 32];
    hash.copy_from_slice(state.get_handshake_hash());
    (Zeroizing::new(first), Zeroizing::new(second), hash)
}

/// The chain of the session's keys.
fn chain(state: &mut HandshakeState) -> Chain {
    let (first, second, hash) = split(state);
    Chain::begin(&first, &second, &hash)
}

/// The side that opens: it has sent message 1 and waits for message 2.
pub struct Initiator {
    state: HandshakeState,
}

impl Initiator {
    /// Begins to open a session with `server` as `agent`; gives message 1 with `payload`, [`OPEN_OVERHEAD`] bytes longer. It is retransmitted
    /// byte by byte: another payload needs another `entropy`.
    ///
    /// # Errors
    /// `server` is no usable key.
    pub fn open(
        agent: &SecretKey,
        server: &PublicKey,
        psk: &Psk,
        entropy: Entropy,
        prologue: &[u8],
        payload: &[u8],
    ) -> Result<(Self, Vec<u8>), HandshakeFailed> {
        let mut state = builder(OPEN, entropy, prologue)?
            .local_private_key(agent.expose())?
            .remote_public_key(server.as_bytes())?
            .psk(2, &psk.0)?
            .build_initiator()?;
        let message = write(&mut state, payload, OPEN_OVERHEAD)?;
        Ok((Self { state }, message))
    }

    /// Begins to resume a session whose secret is `psk`; gives message 1 with `payload`, [`RESUME_OVERHEAD`] bytes longer.
    ///
    /// # Errors
    /// None in practice.
    pub fn resume(psk: &Psk, entropy: Entropy, prologue: &[u8], payload: &[u8]) -> Result<(Self, Vec<u8>), HandshakeFailed> {
        let mut state = builder(RESUME, entropy, prologue)?.psk(0, &psk.0)?.build_initiator()?;
        let message = write(&mut state, payload, RESUME_OVERHEAD)?;
        Ok((Self { state }, message))
    }

    /// Reads message 2: its payload, and the chain of the session's keys. A message that fails leaves the handshake as it was, so that a
    /// forged one costs nothing but its check.
    ///
    /// # Errors
    /// The message is not the answer to this handshake.
    pub fn finish(&mut self, message: &[u8]) -> Result<(Vec<u8>, Chain), HandshakeFailed> {
        let payload = read(&mut self.state, message, RESUME_OVERHEAD)?;
        Ok((payload, chain(&mut self.state)))
    }
}

/// The side that is asked: it has read message 1 and may answer it.
pub struct Responder {
    state: HandshakeState,
    opens: bool,
}

impl Responder {
    /// Reads message 1 of an opening: the payload, and who sent it ([`peer`](Self::peer)). Whether the peer is there now, and not a recording, is
    /// known by its first record only.
    ///
    /// # Errors
    /// The message was not made for this key and prologue, or was changed.
    pub fn open(server: &SecretKey, entropy: Entropy, prologue: &[u8], message: &[u8]) -> Result<(Self, Vec<u8>), HandshakeFailed> {
        let mut state = builder(OPEN, entropy, prologue)?.local_private_key(server.expose())?.build_responder()?;
        let payload = read(&mut state, message, OPEN_OVERHEAD)?;
        Ok((Self { state, opens: true }, payload))
    }

    /// Reads message 1 of a resumption by the session secret `psk`.
    ///
    /// # Errors
    /// The sender does not have the secret, or the message was changed.
    pub fn resume(psk: &Psk, entropy: Entropy, prologue: &[u8], message: &[u8]) -> Result<(Self, Vec<u8>), HandshakeFailed> {
        let mut state = builder(RESUME, entropy, prologue)?.psk(0, &psk.0)?.build_responder()?;
        let payload = read(&mut state, message, RESUME_OVERHEAD)?;
        Ok((Self { state, opens: false }, payload))
    }

    /// The key that the sender of an opening has; none in a resumption, whose record says it.
    #[must_use]
    pub fn peer(&self) -> Option<PublicKey> {
        let key = self.state.get_remote_static().filter(|_| self.opens)?;
        Some(PublicKey::from_bytes(key.try_into().ok()?))
    }

    /// Writes message 2 with `payload`, [`RESUME_OVERHEAD`] bytes longer, and the chain of the session's keys. `psk` is what the sender of an opening
    /// named, and is not looked at in a resumption.
    ///
    /// # Errors
    /// The sender's ephemeral key is not usable.
    pub fn answer(mut self, psk: &Psk, payload: &[u8]) -> Result<(Vec<u8>, Chain), HandshakeFailed> {
        if self.opens {
            self.state.set_psk(2, &*psk.0)?;
        }
        let message = write(&mut self.state, payload, RESUME_OVERHEAD)?;
        Ok((message, chain(&mut self.state)))
    }
}

#[cfg(test)]
mod tests;
