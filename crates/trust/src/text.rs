//! Texts that people and files carry: a prefix that says what it is, then base64url of the value and of a check.
//!
//! Decides: that each value has exactly one text; that an error never repeats the text, which may be a secret.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blake2::{Blake2s256, Digest as _};
use cistern_wire::Malformed;
use zeroize::Zeroizing;

/// Longest text that is read, in bytes: far above the largest form, a grant with a full roster.
const TEXT_MAX: usize = 8 << 10;

/// A value with a text.
pub trait TextForm: Sized {
    /// How its text begins.
    const PREFIX: &'static str;
    /// Bytes of the check: the first ones of BLAKE2s-256 of the value's bytes.
    const CHECK_LEN: usize;

    /// Its bytes, without check.
    fn to_bytes(&self) -> Zeroizing<Vec<u8>>;

    /// Reads what [`to_bytes`](Self::to_bytes) writes, to the last byte.
    ///
    /// # Errors
    /// The bytes are none of this form.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed>;

    /// Its text, wiped when dropped.
    #[must_use]
    fn to_text(&self) -> Zeroizing<String> {
        encode(Self::PREFIX, Self::CHECK_LEN, &self.to_bytes())
    }

    /// Reads what [`to_text`](Self::to_text) writes; blanks and line ends around it are not part of it.
    ///
    /// # Errors
    /// Another text, a damaged one, or one that was cut off.
    fn from_text(text: &str) -> Result<Self, TextError> {
        Ok(Self::from_bytes(&decode(Self::PREFIX, Self::CHECK_LEN, text)?)?)
    }
}

/// Why a text is not what was expected. It never contains the text, which may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// It does not begin as one of its form does.
    #[error("is something else: it has to begin with {0}")]
    Prefix(&'static str),
    /// What follows the prefix is no base64url, or too short or too long.
    #[error("is cut off, or has a character too many")]
    Form,
    /// The check does not belong to the rest.
    #[error("is damaged: a character was changed or is missing; copy it again")]
    Check,
    /// It is whole, and its content is unknown here.
    #[error("is whole but not understood: {0}; a newer version of cistern may have made it")]
    Content(#[from] Malformed),
}

pub(crate) fn encode(prefix: &str, check_len: usize, bytes: &[u8]) -> Zeroizing<String> {
    let check = Blake2s256::digest(bytes);
    let mut whole = Zeroizing::new(Vec::with_capacity(bytes.len() + check_len));
    whole.extend_from_slice(bytes);
    whole.extend_from_slice(&check[..check_len]);
    // In one piece: a buffer that grows leaves a part of a secret behind.
    let mut text = Zeroizing::new(String::with_capacity(prefix.len() + whole.len().div_ceil(3) * 4));
    text.push_str(prefix);
    URL_SAFE_NO_PAD.encode_string(&*whole, &mut text);
    text
}

pub(crate) fn decode(prefix: &'static str, check_len: usize, text: &str) -> Result<Zeroizing<Vec<u8>>, TextError> {
    let body = text.trim_ascii().strip_prefix(prefix).ok_or(TextError::Prefix(prefix))?;
    if body.len() > TEXT_MAX {
        return Err(TextError::Form);
    }
    let mut bytes = Zeroizing::new(vec![0; body.len().div_ceil(4) * 3]);
    let len = URL_SAFE_NO_PAD.decode_slice(body, &mut bytes).map_err(|_| TextError::Form)?;
    bytes.truncate(len);
    let value_len = len.checked_sub(check_len).ok_or(TextError::Form)?;
    let check = Blake2s256::digest(&bytes[..value_len]);
    if bytes[value_len..] != check[..check_len] {
        return Err(TextError::Check);
    }
    bytes.truncate(value_len);
    Ok(bytes)
}

/// What every form must keep; called by the tests of each.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The text is read as the value; no changed, shortened or lengthened text is read as one.
    pub(crate) fn has_one_text<T: TextForm>(value: &T) {
        let text = value.to_text();
        let read = T::from_text(&text).unwrap_or_else(|e| panic!("the text {e}"));
        assert_eq!(*read.to_bytes(), *value.to_bytes());
        assert!(T::from_text(&format!(" {}\n", *text)).is_ok());
        for bit in 0..text.len() * 8 {
            let mut changed = text.as_bytes().to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            let Ok(changed) = String::from_utf8(changed) else { continue };
            // A letter at either end that has become a blank is none of the text.
            assert!(T::from_text(&changed).is_err(), "bit {bit} of {}", T::PREFIX);
        }
        for end in 0..text.len() {
            assert!(T::from_text(&text[..end]).is_err(), "{end} bytes of {}", T::PREFIX);
        }
        assert!(T::from_text(&format!("{}A", *text)).is_err() && T::from_text(&format!("{0}{0}", *text)).is_err());
        bytes_are_strict(value);
    }

    /// No cut or lengthened bytes are read.
    pub(crate) fn bytes_are_strict<T: TextForm>(value: &T) {
        let mut bytes = value.to_bytes();
        for end in 0..bytes.len() {
            assert!(T::from_bytes(&bytes[..end]).is_err(), "{end} bytes of {}", T::PREFIX);
        }
        bytes.push(0);
        assert!(T::from_bytes(&bytes).is_err(), "a byte behind {}", T::PREFIX);
    }

    #[test]
    fn errors_name_the_fault_and_never_the_text() {
        struct Bytes(Vec<u8>);
        impl TextForm for Bytes {
            const PREFIX: &'static str = "cistern-test-1.";
            const CHECK_LEN: usize = 2;
            fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
                self.0.clone().into()
            }
            fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
                Ok(Self(bytes.to_vec()))
            }
        }
        assert_eq!(*Bytes(vec![1, 2, 3]).to_text(), "cistern-test-1.AQIDX3Y");
        let error = |text: &str| Bytes::from_text(text).map(|_| ()).unwrap_err();
        assert_eq!(error("cistern-host-1.AQIDX3Y"), TextError::Prefix("cistern-test-1."));
        assert_eq!(error("cistern-test-1.AQIDX3!"), TextError::Form);
        assert_eq!(error("cistern-test-1."), TextError::Form);
        assert_eq!(error("cistern-test-1.AQIEX3Y"), TextError::Check);
        assert_eq!(error(&format!("cistern-test-1.{}", "A".repeat(TEXT_MAX + 1))), TextError::Form);
    }
}
