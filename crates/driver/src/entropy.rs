//! Randomness from the system, as the one seed that a core is given at its start.
//!
//! Decides where randomness comes from: the system's own source, at start only. It stands before the walk: the
//! cores draw session ids, jitter and cookies from a `chacha20` stream of this seed, so that in the simulator a
//! seed means the same for ever. Invariant: a seed is never weak; a system that cannot give one is an error (section 11.6:
//! session ids are random). Leaves to the cores: how the stream is used.

use zeroize::Zeroizing;

/// The system gave no randomness, so no session id could be safe.
#[derive(Debug, thiserror::Error)]
#[error("the system's random source gave nothing: {source}; getrandom(2) or /dev/urandom must be available")]
pub struct EntropyError {
    source: getrandom::Error,
}

/// A fresh 256-bit seed for one core or key, from the system's random source. Wiped when dropped.
///
/// Blocks only on a machine that has just booted and whose source is not ready yet.
pub fn seed() -> Result<Zeroizing<[u8; 32]>, EntropyError> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(|source| EntropyError { source })?;
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_seeds_differ() {
        assert_ne!(seed().expect("system randomness"), seed().expect("system randomness"));
    }
}
