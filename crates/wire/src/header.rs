//! What stands before the messages of a datagram, and before the body of each message.
//!
//! Decides: the layout of both headers, byte for byte. Implements `wire-spec.md` sections 3.1 and 3.4.
//! Leaves to others: which values are sound (`datagram`).

use crate::ids::SessionId;
use crate::registry::Kind;
use crate::shape::Shown;

/// How the messages of a datagram are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In clear, with a CRC-32 over the whole datagram.
    Plain = 0,
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
const FORMS: Shown = Shown::Words(&[(Form::Plain as u64, "plain"), (1, "sealed"), (2, "sealed handshake")]);
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

/// Flag bit: sent by the server.
pub(crate) const FROM_SERVER: u8 = 1;

impl RawHeader {
    /// What it says, if it begins a sound datagram.
    #[must_use]
    pub const fn header(&self) -> Header {
        Header { from_server: self.flags & FROM_SERVER != 0, session: self.session, packet: self.packet }
    }
}
