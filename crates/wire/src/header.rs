//! What stands before the messages of a datagram, and before the body of each message.
//!
//! Decides: the layout of both headers, byte for byte. Implements `wire-spec.md` sections 3.1 and 3.4.
//! Leaves to others: which values are sound (`datagram`).

use crate::datagram::DropReason;
use crate::field::{Field as _, Reader};
use crate::ids::SessionId;
use crate::limits::{CHECKSUM_LEN, DATAGRAM_MAX, HEADER_LEN, MAGIC, MESSAGE_HEADER_LEN, TAG_LEN, VERSION};
use crate::registry::Kind;
use crate::sealed::SealedHead;
use crate::shape::Shown;

/// How the messages of a datagram are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In clear, with a CRC-32 over the whole datagram.
    Plain = 0,
    /// Encrypted under keys of the session, with a tag that covers the header, too (`docs/sealed.md`).
    Record = 1,
    /// No messages: one step of the handshake that agrees on keys (`docs/sealed.md`).
    Handshake = 2,
}

impl Form {
    /// What the first bytes of a datagram say that it is, whether or not it is that.
    #[inline]
    #[must_use]
    pub fn named(datagram: &[u8]) -> Option<Self> {
        [Self::Plain, Self::Record, Self::Handshake].into_iter().find(|form| datagram.get(FORM_AT) == Some(&(*form as u8)))
    }

    /// Bytes behind the messages: checksum or tag.
    #[inline]
    #[must_use]
    pub const fn trailer_len(self) -> usize {
        match self {
            Self::Plain => CHECKSUM_LEN,
            Self::Record => TAG_LEN,
            Self::Handshake => 0,
        }
    }

    /// Bytes around the messages of a datagram: its header, and what is behind them.
    #[inline]
    #[must_use]
    pub const fn around(self) -> usize {
        HEADER_LEN + self.trailer_len()
    }

    /// Fewest bytes of a datagram of which the messages may be looked at.
    const fn least(self) -> usize {
        HEADER_LEN
            + match self {
                Self::Plain => CHECKSUM_LEN,
                Self::Record => MESSAGE_HEADER_LEN + TAG_LEN,
                Self::Handshake => SealedHead::LEN,
            }
    }
}

body! {
    /// What stands before the messages, byte for byte: any bytes are one, whether or not they begin a sound datagram.
    pub struct RawHeader {
        /// Tells Cistern from other traffic: 0xC5.
        pub magic: u8 as Shown::Hex,
        /// Version of the protocol.
        pub version: u8,
        /// How the messages are protected.
        pub form: u8 as FORMS,
        /// Who sent it.
        pub flags: u8 as FLAGS,
        /// The session; 0 in handshakes.
        pub session: SessionId,
        /// Number of this transmission, unique in its session and direction.
        pub packet: u64,
    }
}

/// The forms that have a meaning or are reserved for one.
const FORMS: Shown =
    Shown::Words(&[(Form::Plain as u64, "plain"), (Form::Record as u64, "sealed"), (Form::Handshake as u64, "sealed handshake")]);
/// The flag bits that have a meaning.
const FLAGS: Shown = Shown::Bits(&[(FROM_SERVER as u64, "from_server")]);

body! {
    /// What stands before the body of a message, byte for byte.
    pub struct MessageHeader {
        /// Code of the message's kind.
        pub kind: u8 as KINDS,
        /// Reserved; 0.
        pub reserved: u8,
        /// Bytes of the body.
        pub length: u16,
    }
}

/// The kinds of messages.
const KINDS: Shown = Shown::Words(Kind::WORDS);

/// What the header of a sound datagram says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether the server sent it; a datagram that comes back to its own side is dropped.
    pub from_server: bool,
    /// The session; 0 in handshakes.
    pub session: SessionId,
    /// Number of this transmission, unique in its session and direction.
    pub packet: u64,
}

/// Where the form stands in a header.
const FORM_AT: usize = 2;
/// Flag bit: sent by the server.
pub(crate) const FROM_SERVER: u8 = 1;
/// Flag bit of records: the key phase, 1 in every other generation of keys.
pub(crate) const KEY_PHASE: u8 = 2;

impl RawHeader {
    /// Reads that of a datagram which must be of `form`, and have a length that any datagram of the form may have.
    #[inline]
    pub(crate) fn of(bytes: &[u8], form: Form) -> Result<Self, DropReason> {
        if bytes.len() < form.least() {
            return Err(DropReason::TooShort);
        }
        if bytes.len() > DATAGRAM_MAX {
            return Err(DropReason::TooLong);
        }
        let raw = Self::get(&mut Reader::new(bytes)).map_err(DropReason::Malformed)?;
        if raw.magic != MAGIC {
            return Err(DropReason::BadMagic);
        }
        if raw.version != VERSION {
            return Err(DropReason::UnknownVersion(raw.version));
        }
        //= wire-spec.md#3-6-sealed-forms
        //# A receiver that has no sealed mode MUST drop datagrams of forms 1 and 2 as `unknown_form`.
        //= docs/sealed.md#who-has-which-key
        //# A side that has no key MUST drop datagrams of forms 1 and 2 as `unknown_form`.
        if raw.form != form as u8 {
            return Err(DropReason::UnknownForm(raw.form));
        }
        Ok(raw)
    }

    /// What it says, if it begins a sound datagram.
    #[must_use]
    pub const fn header(&self) -> Header {
        Header { from_server: self.flags & FROM_SERVER != 0, session: self.session, packet: self.packet }
    }
}
