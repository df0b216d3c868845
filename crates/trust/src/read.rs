//! Fields that several forms have.

use cistern_seal::PublicKey;
use cistern_wire::{Bytes8, Fault, Malformed, Reader};

/// The next `N` bytes.
pub(crate) fn array<const N: usize>(r: &mut Reader<'_>) -> Result<[u8; N], Malformed> {
    let bytes = r.take(N)?;
    bytes.try_into().map_err(|_| Malformed::new(Fault::Truncated))
}

pub(crate) fn public_key(r: &mut Reader<'_>) -> Result<PublicKey, Malformed> {
    array(r).map(PublicKey::from_bytes)
}

/// A UTF-8 text behind a byte with its length.
pub(crate) fn text<'a>(r: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let Bytes8(bytes) = r.get()?;
    str::from_utf8(bytes).map_err(|_| BAD_VALUE)
}

/// Nothing is left.
pub(crate) const fn end(r: &Reader<'_>) -> Result<(), Malformed> {
    if r.rest().is_empty() { Ok(()) } else { Err(Malformed::new(Fault::Trailing)) }
}

pub(crate) const BAD_VALUE: Malformed = Malformed::new(Fault::BadValue);
pub(crate) const TOO_LONG: Malformed = Malformed::new(Fault::TooLong);
