//! What `snow` needs of a curve, a cipher, a hash and a random source: the first two from `aws-lc-rs`, whose X25519 takes a third of the time
//! of `snow`'s own; the hash from `blake2`.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use blake2::{Blake2s256, Digest as _};
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use std::cell::Cell;
use zeroize::Zeroizing;

use crate::handshake::Entropy;
use crate::key::KEY_LEN;

/// The public key of `secret`.
pub(crate) fn public_of(secret: &[u8; KEY_LEN]) -> [u8; KEY_LEN] {
    let mut curve = Curve::default();
    curve.set(secret);
    curve.public
}

/// What the owners of `secret` and `public` share; none: `public` is a key of small order.
pub(crate) fn agreed(secret: &[u8; KEY_LEN], public: &[u8; KEY_LEN]) -> Option<Zeroizing<[u8; KEY_LEN]>> {
    let (mut curve, mut shared) = (Curve::default(), Zeroizing::new([0; KEY_LEN]));
    curve.set(secret);
    curve.dh(public, &mut *shared).ok().map(|()| shared)
}

/// Gives `snow` its primitives, and the ephemeral key of one handshake as its random source, which there is once.
pub(crate) struct Primitives(Cell<Option<Entropy>>);

impl Primitives {
    pub(crate) const fn new(ephemeral: Entropy) -> Self {
        Self(Cell::new(Some(ephemeral)))
    }
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        self.0.take().map(|entropy| Box::new(Once(Some(entropy))) as Box<dyn Random>)
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(Curve::default()) as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::Blake2s).then(|| Box::new(Blake::default()) as Box<dyn Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::ChaChaPoly).then(|| Box::new(ChaChaPoly::default()) as Box<dyn Cipher>)
    }
}

/// The entropy of a handshake, which is used once: a second ephemeral of it would be the same key.
struct Once(Option<Entropy>);

impl Random for Once {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        let entropy = self.0.take().ok_or(Error::Rng)?;
        if dest.len() != entropy.0.len() {
            return Err(Error::Rng);
        }
        dest.copy_from_slice(&*entropy.0);
        Ok(())
    }
}

/// X25519.
#[derive(Default)]
struct Curve {
    secret: Zeroizing<[u8; KEY_LEN]>,
    public: [u8; KEY_LEN],
    key: Option<PrivateKey>,
}

impl Dh for Curve {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_LEN
    }

    fn priv_len(&self) -> usize {
        KEY_LEN
    }

    fn set(&mut self, secret: &[u8]) {
        self.secret.copy_from_slice(secret);
        // Any 32 bytes are a private key.
        let key = PrivateKey::from_private_key(&X25519, secret).expect("32 bytes are a private key");
        let public = key.compute_public_key().expect("a private key has a public one");
        self.public.copy_from_slice(public.as_ref());
        self.key = Some(key);
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), Error> {
        let mut secret = Zeroizing::new([0; KEY_LEN]);
        random.try_fill_bytes(&mut *secret)?;
        self.set(&*secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.secret
    }

    fn dh(&self, peer: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let peer = peer.get(..KEY_LEN).ok_or(Error::Dh)?;
        let key = self.key.as_ref().ok_or(Error::Dh)?;
        // A key of small order gives the zero secret, which `agree` refuses.
        agree(key, UnparsedPublicKey::new(&X25519, peer), Error::Dh, |secret| {
            out.get_mut(..KEY_LEN).ok_or(Error::Dh)?.copy_from_slice(secret);
            Ok(())
        })
    }
}

/// BLAKE2s-256.
#[derive(Default)]
struct Blake(Blake2s256);

impl Hash for Blake {
    fn name(&self) -> &'static str {
        "BLAKE2s"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Blake2s256::default();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..32].copy_from_slice(&self.0.finalize_reset());
    }
}

/// ChaCha20-Poly1305 with Noise's nonce: the count in little-endian order behind 4 zero bytes.
#[derive(Default)]
pub(crate) struct ChaChaPoly(Zeroizing<[u8; KEY_LEN]>);

impl ChaChaPoly {
    fn cipher(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&CHACHA20_POLY1305, &*self.0).ok().map(LessSafeKey::new)
    }

    fn nonce(count: u64) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&count.to_le_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

impl Cipher for ChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; KEY_LEN]) {
        self.0.copy_from_slice(key);
    }

    fn encrypt(&self, count: u64, associated: &[u8], text: &[u8], out: &mut [u8]) -> usize {
        let (body, rest) = out.split_at_mut(text.len());
        body.copy_from_slice(text);
        let sealed =
            self.cipher().and_then(|cipher| cipher.seal_in_place_separate_tag(Self::nonce(count), Aad::from(associated), body).ok());
        let tag = sealed.expect("a handshake message can be sealed");
        rest[..tag.as_ref().len()].copy_from_slice(tag.as_ref());
        text.len() + tag.as_ref().len()
    }

    fn decrypt(&self, count: u64, associated: &[u8], sealed: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        let (body, tag) = sealed.split_last_chunk::<16>().ok_or(Error::Decrypt)?;
        let out = out.get_mut(..body.len()).ok_or(Error::Decrypt)?;
        out.copy_from_slice(body);
        let cipher = self.cipher().ok_or(Error::Decrypt)?;
        cipher.open_in_place_separate_tag(Self::nonce(count), Aad::from(associated), tag, out).map_err(|_| Error::Decrypt)?;
        Ok(body.len())
    }
}
