//! The secret of a named lease as people and scripts carry it.

use crate::text::TextForm;
use cistern_seal::LeaseSecret;
use cistern_wire::{Fault, Malformed};
use zeroize::Zeroizing;

impl TextForm for LeaseSecret {
    const PREFIX: &'static str = "cistern-lease-1.";
    const CHECK_LEN: usize = 2;

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        // With room for the check: a buffer that grows leaves a part of the secret behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(Self::LEN + Self::CHECK_LEN));
        bytes.extend_from_slice(self.expose());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let fault = if bytes.len() < Self::LEN { Fault::Truncated } else { Fault::Trailing };
        let bytes = bytes.try_into().map_err(|_| Malformed::new(fault).within("LeaseSecret", "bytes"))?;
        Ok(Self::from_array(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_one_text() {
        crate::text::tests::has_one_text(&LeaseSecret::from_array([0x5C; 16]));
    }
}
