//! Fingerprints: short enough for two people to compare, too long to be met on purpose.

use blake2::{Blake2s256, Digest as _};
use std::fmt;

/// Digits of a fingerprint, of 5 bits each: 100 bits.
const DIGITS: usize = 20;
/// No letter that looks like a digit.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// A digest of a text, for people to compare.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; DIGITS]);

impl Fingerprint {
    /// That of a key, request or grant, as it is written; blanks and line ends around it are not part of it.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let digest = Blake2s256::new().chain_update(b"cistern1 fingerprint").chain_update(text.trim_ascii()).finalize();
        let bit = |n: usize| digest[n / 8] >> (7 - n % 8) & 1;
        Self(std::array::from_fn(|digit| ALPHABET[(0..5).fold(0, |value, n| value << 1 | usize::from(bit(digit * 5 + n)))]))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, digit) in self.0.iter().enumerate() {
            if n > 0 && n % 4 == 0 {
                f.write_str("-")?;
            }
            write!(f, "{}", char::from(*digit))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_the_text_and_nothing_around_it() {
        let one = Fingerprint::of("cistern-agent-1.AAAA").to_string();
        assert_eq!(one, Fingerprint::of(" cistern-agent-1.AAAA\n").to_string());
        assert_ne!(one, Fingerprint::of("cistern-agent-1.AAAB").to_string());
        assert_eq!((one.len(), one.split('-').count()), (24, 5));
        assert!(one.bytes().all(|c| c == b'-' || ALPHABET.contains(&c)));
    }
}
