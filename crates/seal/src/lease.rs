//! The secret of a named lease: who has it keeps the lease. The server has its hash (`wire-spec.md` section 11.11).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use blake2::{Blake2s256, Digest as _};
use std::fmt;
use zeroize::Zeroizing;

/// The secret of a named lease. Wiped when dropped, never shown, compared in constant time.
#[derive(Clone)]
pub struct LeaseSecret(Zeroizing<[u8; Self::LEN]>);

impl LeaseSecret {
    /// Its length in bytes.
    pub const LEN: usize = 16;

    /// From bytes of the system's random source, or those that [`Self::expose`] has given.
    #[must_use]
    pub fn from_array(bytes: [u8; Self::LEN]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Its bytes, for the message that needs them, or to keep them.
    #[must_use]
    pub fn expose(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// What a server keeps of it: a hash, which needs no more than that, for a secret has 128 random bits.
    #[must_use]
    pub fn verifier(&self) -> [u8; 32] {
        verifier(&self.0)
    }
}

impl fmt::Debug for LeaseSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseSecret(..)")
    }
}

impl PartialEq for LeaseSecret {
    fn eq(&self, other: &Self) -> bool {
        verify_slices_are_equal(&*self.0, &*other.0).is_ok()
    }
}

impl Eq for LeaseSecret {}

fn verifier(secret: &[u8; LeaseSecret::LEN]) -> [u8; 32] {
    Blake2s256::new().chain_update(b"cistern1 lease").chain_update(secret).finalize().into()
}

/// Whether the secret is the one of which the server has the verifier; in constant time.
#[must_use]
pub fn verifies_lease(secret: &[u8; LeaseSecret::LEN], of: &[u8; 32]) -> bool {
    verify_slices_are_equal(&verifier(secret), of).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_itself_is_the_one_of_a_verifier() {
        let secret = std::array::from_fn(|at| u8::try_from(at).unwrap_or_default());
        let verifier = LeaseSecret::from_array(secret).verifier();
        // BLAKE2s-256 of `cistern1 lease` and the bytes 0 to 15.
        let hex: String = verifier.iter().map(|byte| format!("{byte:02x}")).collect();
        expect_test::expect![["43cb2aedcb75ae3010596984a15c69edd4ec6202cff29c8bcc3a951c4b1f83e4"]].assert_eq(&hex);
        assert!(verifies_lease(&secret, &verifier));
        for bit in 0..128 {
            let mut other = secret;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!verifies_lease(&other, &verifier), "bit {bit}");
        }
    }
}
