//! The record of the key of a start, from which resume secrets follow (`docs/sealed.md`).

use super::record::{RecordError, read, start};
use alloc::vec::Vec;
use cistern_seal::StartKey;
use cistern_wire::Field as _;
use zeroize::Zeroizing;

/// Bytes of a key.
const KEY_LEN: usize = 32;

/// The record of a start's key. Wiped when dropped.
#[must_use]
pub fn start_key_to_bytes(key: &StartKey) -> Zeroizing<Vec<u8>> {
    let mut w = start(KEY_LEN);
    key.expose().put(&mut w);
    w.into()
}

/// The key in a start key's record.
///
/// # Errors
/// [`RecordError`]: it is no such record.
pub fn start_key_from_bytes(bytes: &[u8]) -> Result<StartKey, RecordError> {
    read(bytes, |r| r.get::<[u8; KEY_LEN]>().map(StartKey::from_bytes).map_err(|e| e.within("StartKey", "key")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_whole_or_not() {
        let bytes = start_key_to_bytes(&StartKey::from_bytes([7; KEY_LEN]));
        assert_eq!(bytes.capacity(), bytes.len(), "it never grew");
        assert_eq!(start_key_from_bytes(&bytes).map(|key| *key.expose()), Ok([7; KEY_LEN]));
        assert!(start_key_from_bytes(&bytes[1..]).is_err() && start_key_from_bytes(&bytes[..KEY_LEN]).is_err());
    }
}
