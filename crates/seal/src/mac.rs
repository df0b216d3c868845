//! The keyed first check of handshake datagrams: 16 bytes that only somebody who knows the server's public key can make, and that cost the
//! server less than a microsecond to refuse.

use blake2::digest::consts::U16;
use blake2::digest::{FixedOutput as _, KeyInit as _, Update as _};
use blake2::{Blake2s256, Blake2sMac, Digest as _};
use cistern_wire::sealed::MAC_LEN;
use core::fmt;

use crate::key::PublicKey;

/// Makes and verifies the check for one server.
#[derive(Clone)]
pub struct FirstCheck([u8; 32]);

impl fmt::Debug for FirstCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FirstCheck")
    }
}

impl FirstCheck {
    /// That of `server`.
    #[must_use]
    pub fn of(server: &PublicKey) -> Self {
        Self(Blake2s256::new().chain_update(b"cistern1 mac1").chain_update(server.as_bytes()).finalize().into())
    }

    /// The check over `bytes`: all of the datagram that stands before it.
    #[must_use]
    pub fn over(&self, bytes: &[u8]) -> [u8; MAC_LEN] {
        self.mac(bytes).finalize_fixed().into()
    }

    /// Writes the check over the last bytes of a whole handshake datagram.
    ///
    /// # Panics
    /// If the datagram is shorter than the check.
    pub fn complete(&self, datagram: &mut [u8]) {
        let (bytes, check) = datagram.split_last_chunk_mut::<MAC_LEN>().expect("a handshake datagram has room for its check");
        *check = self.over(bytes);
    }

    /// Whether `datagram` ends with the check over what is before, compared in constant time.
    #[must_use]
    pub fn holds(&self, datagram: &[u8]) -> bool {
        use blake2::digest::Mac as _;
        datagram.split_last_chunk::<MAC_LEN>().is_some_and(|(bytes, check)| self.mac(bytes).verify(&(*check).into()).is_ok())
    }

    fn mac(&self, bytes: &[u8]) -> Blake2sMac<U16> {
        let mut mac = Blake2sMac::<U16>::new(&self.0.into());
        mac.update(bytes);
        mac
    }
}
