//! The cipher of records, behind one trait: a simulator may put [`crate::Paper`] in its place, which fails wherever the real one does.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use cistern_wire::limits::TAG_LEN;

use crate::record::{Key, OpenFailed};

/// Authenticated encryption with associated data, as ChaCha20-Poly1305 (RFC 8439) does it.
pub trait Aead {
    /// Encrypts `text` in place and returns its tag. `number` is used once under `key`.
    fn seal(&mut self, key: &Key, number: u64, associated: &[u8], text: &mut [u8]) -> [u8; TAG_LEN];

    /// Decrypts `sealed` into `text`, which is as long, if `tag` belongs to it, to `associated` and to `number` under `key`; else `text` is
    /// unspecified.
    ///
    /// # Errors
    /// The tag does not belong.
    fn open(
        &mut self,
        key: &Key,
        number: u64,
        associated: &[u8],
        sealed: &[u8],
        tag: &[u8; TAG_LEN],
        text: &mut [u8],
    ) -> Result<(), OpenFailed>;
}

/// ChaCha20-Poly1305. Holds nothing: the cipher's object is made for each use, for a kept one takes half a kilobyte of each session.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChaCha;

/// The nonce of a record: 4 zero bytes, then the packet number as it stands in the header.
fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn cipher(key: &Key) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key.as_bytes()).expect("32 bytes are a key"))
}

impl Aead for ChaCha {
    fn seal(&mut self, key: &Key, number: u64, associated: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        let tag = cipher(key).seal_in_place_separate_tag(nonce(number), Aad::from(associated), text);
        // Fails for texts of 256 GiB only.
        tag.expect("a datagram can be sealed").as_ref().try_into().expect("a tag has 16 bytes")
    }

    fn open(
        &mut self,
        key: &Key,
        number: u64,
        associated: &[u8],
        sealed: &[u8],
        tag: &[u8; TAG_LEN],
        text: &mut [u8],
    ) -> Result<(), OpenFailed> {
        cipher(key).open_separate_gather(nonce(number), Aad::from(associated), sealed, tag, text).map_err(|_| OpenFailed)
    }
}
