//! Handshake datagrams of the sealed mode (form 2), and what is encrypted in them.
//!
//! Decides: their layouts, which are of fixed length, so that no length tells anything of the sender; one registry line per datagram gives its
//! code, name, direction, length and layout. Implements `docs/sealed.md`.
//! Invariant: what stands up to the cookie is the same in all versions of the protocol.
//! Leaves to others: every key (`cistern-seal`), and when which of them is sent.

use crate::datagram::DropReason;
use crate::field::{Bytes8, Fault, Field, Malformed, Reader, Writer};
use crate::header::{FROM_SERVER, Form, Header, RawHeader};
use crate::ids::{AgentId, Handle, SessionId, StoreId};
use crate::limits::{HEADER_LEN, LABEL_MAX, MAGIC, VERSION};
use crate::registry::Direction;
use crate::shape::{Shape, Shown};
use core::ops::Range;

/// Bytes of the keyed first check, with which a handshake datagram ends unless it is a WELCOME.
pub const MAC_LEN: usize = 16;

/// The suite: X25519, ChaCha20-Poly1305, BLAKE2s. There is one.
pub const SUITE: u8 = 1;

/// Bytes of header and [`SealedHead`].
pub const SEALED_HEAD_LEN: usize = HEADER_LEN + SealedHead::LEN;

/// Bytes of [`prologue`].
pub const PROLOGUE_LEN: usize = PROLOGUE.len() + 4 + MESSAGE_1_AT - HEADER_LEN;

const PROLOGUE: &[u8] = b"Cistern sealed 1";

/// Where message 1 begins in OPEN and RESUME.
const MESSAGE_1_AT: usize = SEALED_HEAD_LEN + 48;

body! {
    /// What stands between the header of a handshake datagram and its own fields.
    pub struct SealedHead {
        /// Code of the datagram.
        pub kind: u8 as KINDS,
        /// Lowest protocol version that the sender speaks.
        pub version_min: u8,
        /// Highest protocol version that the sender speaks.
        pub version_max: u8,
        /// What the handshake is computed with.
        pub suite: u8,
    }
}

/// The datagrams.
const KINDS: Shown = Shown::Words(SealedKind::WORDS);

body! {
    /// Agent to server: asks for a cookie. Nothing of the agent is in it.
    pub struct SealedAsk {
        /// Random number of this handshake; all its datagrams carry the same.
        pub handshake: u64 as Shown::Hex,
        /// Which of the server's keys is meant.
        pub key_id: [u8; 8],
        /// So that the answer is smaller.
        pub room: Zeros<40>,
        /// Keyed first check.
        pub mac1: [u8; 16],
    }
}

body! {
    /// Server to agent: a cookie, which proves that the agent's address is its own, and pays for one Diffie-Hellman.
    pub struct SealedChallenge {
        /// The handshake.
        pub handshake: u64 as Shown::Hex,
        /// Packet number of the datagram answered.
        pub echo: u64,
        /// To be sent back.
        pub cookie: [u8; 24],
        /// Keyed first check.
        pub mac1: [u8; 16],
    }
}

body! {
    /// Agent to server: opens a session under its key.
    pub struct SealedOpen {
        /// The handshake.
        pub handshake: u64 as Shown::Hex,
        /// Which of the server's keys is meant.
        pub key_id: [u8; 8],
        /// The cookie of CHALLENGE.
        pub cookie: [u8; 24],
        /// Which secret is mixed in: that of an invite, or one laid down beside the agent's key; zeros: none.
        pub psk_id: [u8; 8],
        /// The agent's ephemeral key.
        pub ephemeral: [u8; 32],
        /// The agent's long-lived key, encrypted.
        pub agent_key: [u8; 48],
        /// An [`OpenPayload`], encrypted.
        pub payload: [u8; 216],
        /// Keyed first check.
        pub mac1: [u8; 16],
    }
}

body! {
    /// Agent to server: opens a session by the resume secret of a former one.
    pub struct SealedResume {
        /// The handshake.
        pub handshake: u64 as Shown::Hex,
        /// Which of the server's keys is meant.
        pub key_id: [u8; 8],
        /// The cookie of CHALLENGE.
        pub cookie: [u8; 24],
        /// The session whose secret it is.
        pub former: SessionId,
        /// The agent's ephemeral key.
        pub ephemeral: [u8; 32],
        /// An [`OpenPayload`], encrypted.
        pub payload: [u8; 208],
        /// Keyed first check.
        pub mac1: [u8; 16],
    }
}

body! {
    /// Server to agent: the second message of the handshake. Renews nothing.
    pub struct SealedWelcome {
        /// The handshake.
        pub handshake: u64 as Shown::Hex,
        /// Packet number of the datagram answered.
        pub echo: u64,
        /// The server's ephemeral key.
        pub ephemeral: [u8; 32],
        /// A [`WelcomePayload`], encrypted.
        pub payload: [u8; 184],
    }
}

codes! {
    /// Why a handshake is refused before the server knows who asks.
    pub enum SealedRefusal {
        /// No version or suite in common; the server's range is in the head.
        Version = 1 "no common version",
        /// A bound of the server is reached.
        Busy = 2 "the server has reached a limit",
        /// The server is ending.
        Stopping = 3 "the server is stopping",
        /// The server cannot resume this session.
        Resume = 4 "the session cannot be resumed",
        /// The server knows no such invite.
        Invite = 5 "the invite is good no more",
        /// The server does not serve now: another one of its group does, or none yet.
        Standby = 6 "the server is a standby",
    }
}

body! {
    /// Server to agent: no session, says somebody who knows the server's public key: a hint, to be tried again.
    pub struct SealedRefuse {
        /// The handshake.
        pub handshake: u64 as Shown::Hex,
        /// Packet number of the datagram answered.
        pub echo: u64,
        /// Why.
        pub reason: SealedRefusal,
        /// Of a standby: the place of the server that serves in the list of its group, from 1; 0: none that it knows of.
        pub serving: u8,
        /// Reserved; 0.
        pub reserved: Zeros<2>,
        /// When to try again, in milliseconds.
        pub retry_ms: u32,
        /// Reserved; 0.
        pub room: Zeros<8>,
        /// Keyed first check.
        pub mac1: [u8; 16],
    }
}

body! {
    /// Server to agent: the session in the header is not known.
    pub struct SealedHint {
        /// Packet number of the record answered.
        pub echo: u64,
        /// Keyed first check.
        pub mac1: [u8; 16],
    }
}

body! {
    /// What OPEN and RESUME carry encrypted, with zeros behind it.
    pub struct OpenPayload<'a> {
        /// Which of the programs that use the key it is.
        pub instance: AgentId,
        /// Its incarnation: a durable count of its starts.
        pub incarnation: u64,
        /// Identity of the boot of its machine; all zero: not known.
        pub boot: [u8; 16],
        /// The store that the agent knows at this address; all zero: none.
        pub store: StoreId,
        /// That store's epoch as last seen.
        pub epoch: u8,
        /// The server incarnation last seen.
        pub server_incarnation: u64,
        /// Window W that the agent would like: most requests outstanding.
        pub window: u16,
        /// Largest datagram that the agent takes, in bytes.
        pub max_datagram: u16,
        /// Feature bits that the agent understands.
        pub features: u64 as Shown::Hex,
        /// Lease period that the agent asks for, in microseconds; 0: the server's own.
        pub lease_us: u64,
        /// Version of the list of servers that the agent has; 0: none.
        pub roster: u32,
        /// What people call the agent (host and process, say); at most 64 bytes.
        pub label: Bytes8<'a>,
    }
}

codes! {
    /// How an opening ended.
    pub enum OpenStatus {
        /// The session is open when its CONFIRM has been answered.
        Opened = 0 "opened",
        /// The server does not know the agent's key.
        UnknownKey = 1 "unknown key",
        /// The agent's key was revoked.
        Revoked = 2 "revoked key",
        /// A higher incarnation of the instance was seen.
        Superseded = 3 "superseded by a newer incarnation of the agent",
        /// A bound of the server is reached.
        Busy = 4 "the server has reached a limit",
        /// The key has as many sessions as it may have.
        Limit = 5 "the key has as many sessions as it may have",
        /// The incarnation is far above that of a session which the instance still has.
        Ahead = 6 "its incarnation is far above that of the session it still has",
    }
}

body! {
    /// What WELCOME carries encrypted, with zeros behind it.
    pub struct WelcomePayload {
        /// How the opening ended; unless it is `opened`, only versions and what is behind `roster` count.
        pub status: OpenStatus,
        /// Protocol version of the session: the highest in both ranges.
        pub version: u8,
        /// Lowest protocol version that the server speaks.
        pub version_min: u8,
        /// Highest protocol version that the server speaks.
        pub version_max: u8,
        /// The session.
        pub session: SessionId,
        /// The session's handle: by which other agents are told of it.
        pub handle: Handle,
        /// The store's identity.
        pub store: StoreId,
        /// The store's epoch: top 8 bits of generations.
        pub epoch: u8,
        /// The server's incarnation: a durable count of its starts.
        pub server_incarnation: u64,
        /// Feature bits of the server.
        pub features: u64 as Shown::Hex,
        /// Lease period τ, in microseconds.
        pub lease_us: u64,
        /// Bound δ on the relative rate of any two clocks, in parts per million.
        pub delta_ppm: u32,
        /// Slack ε of the server's timer, in microseconds.
        pub epsilon_us: u32,
        /// Delivery timeout Td, in microseconds.
        pub delivery_timeout_us: u32,
        /// Window W of the session.
        pub window: u16,
        /// Largest datagram that either side sends, in bytes.
        pub max_datagram: u16,
        /// Version of the server's list of servers.
        pub roster: u32,
        /// When to try again, in milliseconds; 0: not by itself.
        pub retry_ms: u32,
        /// Sessions that the key has, if that is why there is none.
        pub used: u32,
        /// How many it may have.
        pub bound: u32,
    }
}

impl<'a> OpenPayload<'a> {
    /// Bytes in OPEN, before they are encrypted.
    pub const OPEN_LEN: usize = 200;

    /// Bytes in RESUME, before they are encrypted.
    pub const RESUME_LEN: usize = 192;

    /// Fills `N` bytes, [`OPEN_LEN`](Self::OPEN_LEN) or [`RESUME_LEN`](Self::RESUME_LEN); a label longer than it may be is cut.
    #[must_use]
    pub fn padded<const N: usize>(&self) -> [u8; N] {
        const { assert!(N == Self::OPEN_LEN || N == Self::RESUME_LEN) };
        let label = Bytes8(&self.label.0[..self.label.0.len().min(LABEL_MAX)]);
        padded(&Self { label, ..*self })
    }

    /// Reads what [`padded`](Self::padded) writes.
    ///
    /// # Errors
    /// The field at fault; the sender is to blame.
    pub fn of(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let payload: Self = unpadded("OpenPayload", bytes)?;
        let fits = payload.label.0.len() <= LABEL_MAX;
        fits.then_some(payload).ok_or(Malformed::new(Fault::TooLong).within("OpenPayload", "label"))
    }
}

impl WelcomePayload {
    /// Bytes in WELCOME, before they are encrypted.
    pub const WELCOME_LEN: usize = 168;

    /// Fills the payload.
    #[must_use]
    pub fn padded(&self) -> [u8; Self::WELCOME_LEN] {
        padded(self)
    }

    /// Reads what [`padded`](Self::padded) writes.
    ///
    /// # Errors
    /// The field at fault; the sender is to blame.
    pub fn of(bytes: &[u8]) -> Result<Self, Malformed> {
        unpadded("WelcomePayload", bytes)
    }
}

const _: () = assert!(OpenPayload::MIN_LEN + LABEL_MAX <= OpenPayload::RESUME_LEN);
const _: () = assert!(WelcomePayload::LEN <= WelcomePayload::WELCOME_LEN);

fn padded<'a, T: Field<'a>, const N: usize>(value: &T) -> [u8; N] {
    let mut bytes = Writer::with_capacity(N);
    value.put(&mut bytes);
    let mut all = [0; N];
    all[..bytes.len()].copy_from_slice(&bytes);
    all
}

fn unpadded<'a, T: Field<'a>>(name: &'static str, bytes: &'a [u8]) -> Result<T, Malformed> {
    let mut reader = Reader::new(bytes);
    let value = reader.get()?;
    let rest = reader.rest().iter().all(|byte| *byte == 0);
    rest.then_some(value).ok_or(Malformed::new(Fault::Trailing).within(name, "end"))
}

/// The prologue of the handshake that OPEN or RESUME begins: the fields in clear that steer it, so that both sides disagree if any of them is
/// changed on the way. The packet number is none of them: a retransmission is the same message. `None`: the datagram is too short.
#[must_use]
pub fn prologue(datagram: &[u8]) -> Option<[u8; PROLOGUE_LEN]> {
    let clear = datagram.get(HEADER_LEN..MESSAGE_1_AT)?;
    let mut all = [0; PROLOGUE_LEN];
    let (name, rest) = all.split_at_mut(PROLOGUE.len());
    let (head, fields) = rest.split_at_mut(4);
    name.copy_from_slice(PROLOGUE);
    head.copy_from_slice(&datagram[..4]);
    fields.copy_from_slice(clear);
    Some(all)
}

/// The number of the handshake whose prologue this is; 0 of what is too short to be one.
#[must_use]
pub fn handshake_of(prologue: &[u8]) -> u64 {
    let at = PROLOGUE.len() + 4 + SealedHead::LEN;
    prologue.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes)
}

macro_rules! handshakes {
    ($($code:literal $name:ident $text:literal $direction:ident $len:literal $ty:ident;)*) => {
        /// A handshake datagram's own fields.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each variant's structure is documented where it is declared")]
        pub enum SealedHandshake { $($name($ty)),* }

        /// The kind of a handshake datagram.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each kind's structure is documented where it is declared")]
        pub enum SealedKind { $($name = $code),* }

        impl SealedKind {
            /// Every kind, in order of code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Every code with its name.
            pub const WORDS: &'static [(u64, &'static str)] = &[$(($code, $text)),*];

            /// The kind of a code, if there is one.
            #[must_use]
            pub const fn of(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// Its name in the specification, in captures and in logs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// Who sends it.
            #[must_use]
            pub const fn direction(self) -> Direction {
                match self { $(Self::$name => Direction::$direction),* }
            }

            /// Bytes of the whole datagram.
            #[must_use]
            pub const fn datagram_len(self) -> usize {
                match self { $(Self::$name => $len),* }
            }

            /// What stands on the wire behind the head.
            #[must_use]
            pub const fn shape(self) -> &'static Shape {
                match self { $(Self::$name => <$ty as Field<'_>>::SHAPE),* }
            }
        }

        $( const _: () = assert!(SEALED_HEAD_LEN + <$ty as Field<'_>>::LEN == $len, $text); )*

        impl SealedHandshake {
            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> SealedKind {
                match self { $(Self::$name(_) => SealedKind::$name),* }
            }

            fn get(kind: SealedKind, r: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(match kind { $(SealedKind::$name => Self::$name(r.get()?)),* })
            }

            fn put(&self, w: &mut Writer) {
                match self { $(Self::$name(body) => body.put(w)),* }
            }
        }

        $( impl From<$ty> for SealedHandshake {
            fn from(body: $ty) -> Self {
                Self::$name(body)
            }
        } )*
    };
}

handshakes! {
    1 Ask       "ASK"       Agent  96  SealedAsk;
    2 Challenge "CHALLENGE" Server 80  SealedChallenge;
    3 Open      "OPEN"      Agent  384 SealedOpen;
    4 Resume    "RESUME"    Agent  328 SealedResume;
    5 Welcome   "WELCOME"   Server 256 SealedWelcome;
    6 Refuse    "REFUSE"    Server 72  SealedRefuse;
    7 Hint      "HINT"      Server 48  SealedHint;
}

impl SealedKind {
    /// Where the Noise message stands in the datagram, if it has one.
    #[must_use]
    pub const fn message(self) -> Option<Range<usize>> {
        match self {
            Self::Open | Self::Resume => Some(MESSAGE_1_AT..self.datagram_len() - MAC_LEN),
            Self::Welcome => Some(SEALED_HEAD_LEN + 16..self.datagram_len()),
            Self::Ask | Self::Challenge | Self::Refuse | Self::Hint => None,
        }
    }

    /// Whether the datagram ends with the keyed first check. WELCOME needs none: nothing else than the answer to OPEN decrypts.
    #[must_use]
    pub const fn has_mac1(self) -> bool {
        !matches!(self, Self::Welcome)
    }
}

/// A handshake datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedDatagram {
    /// The session, which is 0 but in HINT, and the packet number: of an agent the number of the transmission within its handshake.
    pub header: Header,
    /// Lowest and highest protocol version that the sender speaks.
    pub versions: (u8, u8),
    /// What the handshake is computed with.
    pub suite: u8,
    /// Its own fields.
    pub body: SealedHandshake,
}

impl SealedDatagram {
    /// One of this version and suite.
    #[must_use]
    pub fn new(session: SessionId, packet: u64, body: impl Into<SealedHandshake>) -> Self {
        let body = body.into();
        let header = Header { from_server: body.kind().direction() == Direction::Server, session, packet };
        Self { header, versions: (VERSION, VERSION), suite: SUITE, body }
    }

    /// Reads what a server received.
    ///
    /// # Errors
    /// The reason why it must be dropped.
    pub fn at_server(bytes: &[u8]) -> Result<Self, DropReason> {
        Self::read(bytes, Direction::Agent)
    }

    /// Reads what an agent received.
    ///
    /// # Errors
    /// The reason why it must be dropped.
    pub fn at_agent(bytes: &[u8]) -> Result<Self, DropReason> {
        Self::read(bytes, Direction::Server)
    }

    fn read(bytes: &[u8], from: Direction) -> Result<Self, DropReason> {
        let raw = RawHeader::of(bytes, Form::Handshake)?;
        let mut reader = Reader::new(&bytes[HEADER_LEN..]);
        let head: SealedHead = reader.get().map_err(DropReason::Malformed)?;
        let kind = SealedKind::of(head.kind).ok_or(DropReason::UnknownKind(head.kind))?;
        if bytes.len() != kind.datagram_len() {
            return Err(DropReason::BadLength);
        }
        if raw.flags & !FROM_SERVER != 0 {
            return Err(DropReason::ReservedBits);
        }
        let header = raw.header();
        if header.from_server != (from == Direction::Server) || kind.direction() != from {
            return Err(DropReason::WrongDirection);
        }
        if header.packet == 0 {
            return Err(DropReason::BadPacketNumber);
        }
        if (header.session.0 != 0) != (kind == SealedKind::Hint) {
            return Err(DropReason::Malformed(Malformed::new(Fault::BadValue).within(kind.name(), "session")));
        }
        let body = SealedHandshake::get(kind, &mut reader).map_err(DropReason::Malformed)?;
        Ok(Self { header, versions: (head.version_min, head.version_max), suite: head.suite, body })
    }

    /// Clears `buf` and writes the datagram into it; `mac1` as it is in the fields.
    pub fn write(&self, buf: &mut Writer) {
        buf.clear();
        let flags = if self.header.from_server { FROM_SERVER } else { 0 };
        let Header { session, packet, .. } = self.header;
        RawHeader { magic: MAGIC, version: VERSION, form: Form::Handshake as u8, flags, session, packet }.put(buf);
        let (version_min, version_max) = self.versions;
        SealedHead { kind: self.body.kind() as u8, version_min, version_max, suite: self.suite }.put(buf);
        self.body.put(buf);
        debug_assert_eq!(buf.len(), self.body.kind().datagram_len(), "each kind has its length");
    }
}

/// So many bytes that are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zeros<const N: usize>;

#[expect(clippy::cast_possible_truncation, reason = "checked when compiled")]
impl<const N: usize> Field<'_> for Zeros<N> {
    const TYPE: &'static str = "zeros";
    const SHAPE: &'static Shape = &Shape::Fixed {
        ty: "zeros",
        bytes: {
            assert!(N <= u8::MAX as usize, "longer than a shape can say");
            N as u8
        },
    };
    const LEN: usize = N;
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        if Self::is_value(r.take(N)?) { Ok(Self) } else { Err(Malformed::new(Fault::BadValue)) }
    }
    fn is_value(bytes: &[u8]) -> bool {
        bytes.iter().all(|byte| *byte == 0)
    }
    fn put(&self, w: &mut Writer) {
        w.extend_from_slice(&[0; N]);
    }
    fn place(&self, to: &mut [u8]) {
        to.fill(0);
    }
}
