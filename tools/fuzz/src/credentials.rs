//! Logs of revoked keys: what is read is written as it was.

use crate::outcome;
use cistern_seal::PublicKey;
use cistern_trust::Revocations;

pub(crate) fn revoked(input: &[u8]) -> u64 {
    let read = str::from_utf8(input).ok().map(|text| {
        Revocations::read_log(text).map(|(keys, whole)| {
            assert!(whole <= text.len());
            assert_eq!(Revocations::read_log(&keys.to_log()), Ok((keys.clone(), keys.to_log().len())));
            keys.len().min(4)
        })
    });
    outcome(read.map(|read| read.map_err(|damaged| damaged.line.min(4))))
}

pub(crate) fn revoked_logs() -> Vec<Vec<u8>> {
    let line = |n, at_s| Revocations::log_line(&PublicKey::from_bytes([n; 32]), at_s);
    vec![[line(1, 10), line(2, 20)].concat().into_bytes()]
}
