//! The cipher of simulations: quick, readable, and stricter than a real one.
//!
//! Decides nothing that is secret: the text stays in clear, the tag is a keyed hash over key, number, associated data and text. It fails wherever
//! ChaCha20-Poly1305 fails, and panics at what no cipher notices: a second text under one key and number.

use std::collections::HashMap;
use std::hash::Hasher as _;
use std::sync::{Arc, Mutex, PoisonError};

use cistern_wire::limits::TAG_LEN;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::aead::Aead;
use crate::record::{Key, OpenFailed};

/// Seals nothing and notices everything. Clones know of each other's texts: the machines of one simulation share one.
#[derive(Clone, Debug, Default)]
pub struct Paper {
    sealed: Arc<Mutex<Sealed>>,
}

/// By key and number, the tag of the text that was sealed.
type Sealed = HashMap<([u8; 32], u64), [u8; TAG_LEN]>;

impl Aead for Paper {
    fn seal(&mut self, key: &Key, number: u64, associated: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        let tag = tag(key, number, associated, text);
        let mut sealed = self.sealed.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *sealed.entry((*key.as_bytes(), number)).or_insert(tag);
        assert!(before == tag, "packet number {number} seals a second text under one key");
        tag
    }

    fn open(
        &mut self,
        key: &Key,
        number: u64,
        associated: &[u8],
        sealed: &[u8],
        given: &[u8; TAG_LEN],
        text: &mut [u8],
    ) -> Result<(), OpenFailed> {
        if *given != tag(key, number, associated, sealed) {
            return Err(OpenFailed);
        }
        text.copy_from_slice(sealed);
        Ok(())
    }
}

fn tag(key: &Key, number: u64, associated: &[u8], text: &[u8]) -> [u8; TAG_LEN] {
    let mut hasher = SipHasher24::new();
    for part in [&key.as_bytes()[..], associated, text] {
        hasher.write_u64(part.len() as u64);
        hasher.write(part);
    }
    hasher.write_u64(number);
    hasher.finish128().as_u128().to_be_bytes()
}
