//! Invites: one line with all that a host needs to join. Whoever has the line first may join once; nobody else can pose as the server.
//!
//! Layout below the text: count u8, of each server its key (32) and its address behind a byte with its length; id (8); secret (16); expiry in
//! seconds since 1970, u32. Name and rights are at the server only.

use crate::read::{self, TOO_LONG};
use crate::roster::ServerAddress;
use crate::text::TextForm;
use cistern_seal::PublicKey;
use cistern_seal::handshake::Psk;
use cistern_wire::{Field as _, Malformed, Reader};
use std::fmt;
use zeroize::Zeroizing;

/// Most servers that an invite names.
pub const INVITE_SERVERS_MAX: usize = 3;

/// The name of an invite: travels in clear, and says to the server which secret to check with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InviteId(pub [u8; 8]);

impl fmt::Display for InviteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// The secret of an invite. It is never sent. Wiped when dropped; neither shown nor compared.
#[derive(Clone)]
pub struct InviteSecret(Zeroizing<[u8; 16]>);

impl InviteSecret {
    /// From 16 bytes of the system's random source, or of a record.
    #[must_use]
    pub fn from_array(bytes: [u8; 16]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Its bytes, for the record that keeps it.
    #[must_use]
    pub fn expose(&self) -> &[u8; 16] {
        &self.0
    }

    /// What both sides of the handshake of a join mix in.
    #[must_use]
    pub fn psk(&self) -> Psk {
        Psk::of_invite(&self.0)
    }
}

impl fmt::Debug for InviteSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InviteSecret(..)")
    }
}

/// An invite as it is given to a host.
#[derive(Clone, Debug)]
pub struct Invite {
    /// Servers to ask, 1 to 3, each with its key: nothing is trusted on first use.
    pub servers: Vec<(PublicKey, ServerAddress)>,
    /// Its name.
    pub id: InviteId,
    /// Its secret.
    pub secret: InviteSecret,
    /// When it expires, in seconds since 1970. For the message to a person alone: the server decides.
    pub expires_s: u32,
}

impl TextForm for Invite {
    const PREFIX: &'static str = "cistern-invite-1.";
    const CHECK_LEN: usize = 4;

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        // In one piece: a buffer that grows leaves a part of the secret behind.
        let servers: usize = self.servers.iter().map(|(key, address)| key.as_bytes().len() + 1 + address.as_str().len()).sum();
        let mut bytes = Zeroizing::new(Vec::with_capacity(1 + servers + 8 + 16 + 4 + Self::CHECK_LEN));
        bytes.push(u8::try_from(self.servers.len()).unwrap_or(u8::MAX));
        for (key, address) in &self.servers {
            bytes.extend_from_slice(key.as_bytes());
            address.put(&mut bytes);
        }
        bytes.extend_from_slice(&self.id.0);
        bytes.extend_from_slice(self.secret.expose());
        self.expires_s.put(&mut bytes);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(bytes);
        let count: u8 = r.get()?;
        if !(1..=INVITE_SERVERS_MAX).contains(&usize::from(count)) {
            return Err(TOO_LONG.within("Invite", "servers"));
        }
        let server = |r: &mut Reader<'_>| Ok((read::public_key(r)?, ServerAddress::get(r)?));
        let servers = (0..count).map(|_| server(&mut r)).collect::<Result<_, Malformed>>()?;
        let invite = Self {
            servers,
            id: InviteId(read::array(&mut r)?),
            secret: InviteSecret::from_array(read::array(&mut r)?),
            expires_s: r.get()?,
        };
        read::end(&r).map(|()| invite)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::roster::tests::{address, key};
    use crate::text::tests::has_one_text;
    use proptest::prelude::*;

    pub(crate) fn invite() -> Invite {
        Invite {
            servers: vec![(key(1), address("10.0.0.1:7311"))],
            id: InviteId([8; 8]),
            secret: InviteSecret::from_array([9; 16]),
            expires_s: 1_800_000_000,
        }
    }

    #[test]
    fn an_invite_is_one_short_line() {
        let mut invite = invite();
        has_one_text(&invite);
        let text = invite.to_text();
        assert!(text.starts_with("cistern-invite-1.") && text.len() < 130 && text.bytes().all(|c| c.is_ascii_graphic()), "{}", text.len());
        invite.servers = vec![(key(1), address("a:1")), (key(2), address("[::1]:7311")), (key(3), address("b:2"))];
        has_one_text(&invite);
        for wrong in [vec![], vec![(key(1), address("a:1")); 4]] {
            assert!(Invite::from_bytes(&Invite { servers: wrong, ..invite.clone() }.to_bytes()).is_err());
        }
    }

    #[test]
    fn the_secret_is_not_shown_and_gives_the_key_of_the_handshake() {
        let shown = format!("{:?}", invite());
        assert!(shown.contains("InviteSecret(..)") && !shown.contains("9, 9"), "{shown}");
        assert_eq!(invite().secret.psk().expose(), Psk::of_invite(&[9; 16]).expose());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_what_is_read_is_written_alike(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(invite) = Invite::from_bytes(&bytes) {
                prop_assert_eq!(&invite.to_bytes()[..], &bytes[..]);
            }
        }
    }
}
