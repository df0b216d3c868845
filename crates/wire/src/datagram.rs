//! The datagram: header, messages, checksum; the reasons why one is dropped; and the packer that fills one.
//!
//! Decides: what is a valid datagram. Place in the walk: first step in (`Envelope`, then `Envelope::decode`), last step out (`Packer`).
//! Implements `wire-spec.md` section 3. Invariant: there is a `Datagram` only if every message in it parses to its last byte, so no
//! message of a bad datagram ever acts (section 3.5).
//! Leaves to others: sessions, replay, and what to do with each message.

use crate::field::{Field, Malformed, Reader, Writer};
use crate::header::{FROM_SERVER, Form, Header, KEY_PHASE, MessageHeader, RawHeader};
use crate::ids::{Ask, ObjectId};
use crate::limits::{CHECKSUM_LEN, HEADER_LEN, MAGIC, MESSAGE_HEADER_LEN, VERSION};
use crate::registry::{Direction, Kind, Lane, Message};
use core::fmt;

/// Why a datagram was dropped. Every drop has one of these, a counter, and no other effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Shorter than header and checksum.
    TooShort,
    /// Longer than any datagram of this protocol.
    TooLong,
    /// Does not begin with the magic byte.
    BadMagic,
    /// A version that is not spoken here.
    UnknownVersion(u8),
    /// A form (sealed, say) that is not spoken here.
    UnknownForm(u8),
    /// A reserved bit is set.
    ReservedBits,
    /// The checksum does not match.
    BadChecksum,
    /// It came from the receiver's own side.
    WrongDirection,
    /// Packet number 0, which nobody sends.
    BadPacketNumber,
    /// No message in it.
    Empty,
    /// A message of a kind that is not known.
    UnknownKind(u8),
    /// A message's length runs past the datagram.
    BadLength,
    /// A message does not parse.
    Malformed(Malformed),
    /// A message that does not belong where it stands: a handshake in a session, or the reverse.
    Misplaced(Kind),
}

impl DropReason {
    /// Names of all reasons, by index.
    pub const NAMES: [&'static str; 14] = [
        "too_short",
        "too_long",
        "bad_magic",
        "unknown_version",
        "unknown_form",
        "reserved_bits",
        "bad_checksum",
        "wrong_direction",
        "bad_packet_number",
        "empty",
        "unknown_kind",
        "bad_length",
        "malformed",
        "misplaced",
    ];

    /// Its place among the counters, below `NAMES.len()`.
    #[must_use]
    pub const fn index(&self) -> usize {
        match self {
            Self::TooShort => 0,
            Self::TooLong => 1,
            Self::BadMagic => 2,
            Self::UnknownVersion(_) => 3,
            Self::UnknownForm(_) => 4,
            Self::ReservedBits => 5,
            Self::BadChecksum => 6,
            Self::WrongDirection => 7,
            Self::BadPacketNumber => 8,
            Self::Empty => 9,
            Self::UnknownKind(_) => 10,
            Self::BadLength => 11,
            Self::Malformed(_) => 12,
            Self::Misplaced(_) => 13,
        }
    }

    /// Its name among the counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        Self::NAMES[self.index()]
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownVersion(version) => write!(f, "unknown version {version}"),
            Self::UnknownForm(form) => write!(f, "unknown form {form}"),
            Self::UnknownKind(kind) => write!(f, "unknown message kind {kind:#04x}"),
            Self::Malformed(malformed) => write!(f, "malformed: {malformed}"),
            Self::Misplaced(kind) => write!(f, "{} does not belong in this datagram", kind.name()),
            _ => f.write_str(self.name()),
        }
    }
}

/// What stands around the messages of a datagram, and is sound; whether the messages are is not known yet. Between the two a receiver finds
/// the session and looks at the packet number (section 3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The header.
    pub header: Header,
    /// Whether the messages are in clear, or have to be opened before they are decoded.
    pub form: Form,
}

impl Envelope {
    /// Reads that of what a server received.
    ///
    /// # Errors
    /// The reason why the datagram must be dropped.
    #[inline]
    pub fn at_server(bytes: &[u8]) -> Result<Self, DropReason> {
        let envelope = Self::read(bytes)?;
        if envelope.header.from_server { Err(DropReason::WrongDirection) } else { Ok(envelope) }
    }

    /// Reads that of what an agent received.
    ///
    /// # Errors
    /// The reason why the datagram must be dropped.
    #[inline]
    pub fn at_agent(bytes: &[u8]) -> Result<Self, DropReason> {
        let envelope = Self::read(bytes)?;
        if envelope.header.from_server { Ok(envelope) } else { Err(DropReason::WrongDirection) }
    }

    /// Reads that of what an onlooker saw, in either direction: checks everything outside the messages.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, DropReason> {
        let raw = RawHeader::of(bytes, Form::Plain)?;
        let (covered, checksum) = bytes.split_at(bytes.len() - Form::Plain.trailer_len());
        if crc32fast::hash(covered).to_be_bytes() != *checksum {
            return Err(DropReason::BadChecksum);
        }
        if raw.flags & !FROM_SERVER != 0 {
            return Err(DropReason::ReservedBits);
        }
        let header = raw.header();
        if header.packet == 0 {
            return Err(DropReason::BadPacketNumber);
        }
        Ok(Self { header, form: Form::Plain })
    }

    /// Reads that of a record that `from` has sent. Nothing of it is authentic before the tag has been verified.
    ///
    /// # Errors
    /// The reason why the datagram must be dropped.
    pub fn of_record(bytes: &[u8], from: Direction) -> Result<Self, DropReason> {
        let raw = RawHeader::of(bytes, Form::Record)?;
        if raw.flags & !(FROM_SERVER | KEY_PHASE) != 0 {
            return Err(DropReason::ReservedBits);
        }
        let header = raw.header();
        if header.packet == 0 {
            return Err(DropReason::BadPacketNumber);
        }
        if header.from_server != matches!(from, Direction::Server) {
            return Err(DropReason::WrongDirection);
        }
        Ok(Self { header, form: Form::Record })
    }

    /// Checks the messages of the plain datagram `bytes`, from which it was read.
    ///
    /// # Errors
    /// The reason why the datagram must be dropped.
    #[inline]
    pub fn decode(self, bytes: &[u8]) -> Result<Datagram<'_>, DropReason> {
        self.decode_messages(bytes.get(HEADER_LEN..bytes.len().saturating_sub(CHECKSUM_LEN)).unwrap_or_default())
    }

    /// Checks the messages of its datagram, which are in clear by now.
    ///
    /// # Errors
    /// The reason why the datagram must be dropped.
    pub fn decode_messages(self, messages: &[u8]) -> Result<Datagram<'_>, DropReason> {
        if messages.is_empty() {
            return Err(DropReason::Empty);
        }
        let place = place_of(&self.header);
        let (mut rest, mut any) = (messages, 0);
        while !rest.is_empty() {
            let (kind, body, tail) = split_message(rest)?;
            let known = KNOWN[kind as usize];
            if known & place == 0 {
                return Err(DropReason::Misplaced(kind));
            }
            any |= known;
            //= wire-spec.md#3-5-validation-and-drops
            //# A receiver MUST validate a datagram to its last byte before any message in it acts.
            Message::check(kind, body).map_err(DropReason::Malformed)?;
            rest = tail;
        }
        Ok(Datagram { header: self.header, messages, any })
    }
}

/// A valid datagram: every message in it parses.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Its header.
    pub header: Header,
    messages: &'a [u8],
    /// What is [`KNOWN`] of any of them.
    any: u8,
}

impl<'a> Datagram<'a> {
    /// Decodes what a server received.
    ///
    /// # Errors
    /// The reason why it must be dropped.
    pub fn at_server(bytes: &'a [u8]) -> Result<Self, DropReason> {
        Envelope::at_server(bytes)?.decode(bytes)
    }

    /// Decodes what an agent received.
    ///
    /// # Errors
    /// The reason why it must be dropped.
    pub fn at_agent(bytes: &'a [u8]) -> Result<Self, DropReason> {
        Envelope::at_agent(bytes)?.decode(bytes)
    }

    /// Decodes what an onlooker saw, in either direction.
    ///
    /// # Errors
    /// The reason why its receiver would drop it.
    pub fn seen(bytes: &'a [u8]) -> Result<Self, DropReason> {
        Envelope::read(bytes)?.decode(bytes)
    }

    /// Whether its messages may act in the order in which they stand: none of them [goes before the others](Kind::goes_first).
    #[must_use]
    pub const fn is_in_order(&self) -> bool {
        self.any & FIRST == 0
    }

    /// Whether a PATH_RESPONSE is among its messages.
    #[must_use]
    pub const fn answers_path(&self) -> bool {
        self.any & ANSWERS_PATH != 0
    }

    /// The messages, in the order in which they stand.
    #[must_use]
    pub const fn messages(&self) -> Messages<'a> {
        Messages { raw: self.raw() }
    }

    /// The same, not decoded.
    #[must_use]
    pub const fn raw(&self) -> RawMessages<'a> {
        RawMessages { rest: self.messages }
    }
}

/// Splits the first message off: its kind, its body, what follows.
#[inline]
fn split_message(bytes: &[u8]) -> Result<(Kind, &[u8], &[u8]), DropReason> {
    let mut r = Reader::new(bytes);
    let head = MessageHeader::get(&mut r).map_err(|_| DropReason::BadLength)?;
    let kind = Kind::of(head.kind).ok_or(DropReason::UnknownKind(head.kind))?;
    if head.reserved != 0 {
        return Err(DropReason::ReservedBits);
    }
    let body = r.take(usize::from(head.length)).map_err(|_| DropReason::BadLength)?;
    Ok((kind, body, r.rest()))
}

/// What is known of each code of a kind: in which datagrams it may stand, by [`place_of`], and whether it is one of a request.
const KNOWN: [u8; 256] = {
    let (mut known, mut at) = ([0; 256], 0);
    while at < Kind::ALL.len() {
        let kind = Kind::ALL[at];
        let mut place = 0;
        while place < 4 {
            let (from_server, handshake) = (place & 1 != 0, place & 2 != 0);
            if may_stand(kind, from_server, handshake) {
                known[kind as usize] |= 1 << place;
            }
            place += 1;
        }
        if kind.goes_first() {
            known[kind as usize] |= FIRST;
        }
        if matches!(kind, Kind::PathResponse) {
            known[kind as usize] |= ANSWERS_PATH;
        }
        at += 1;
    }
    known
};
const FIRST: u8 = 1 << 4;
const ANSWERS_PATH: u8 = 1 << 5;

/// The bit in [`KNOWN`] of the kinds that may stand under a header.
const fn place_of(header: &Header) -> u8 {
    1 << (header.from_server as u8 | ((header.session.0 == 0) as u8) << 1)
}

/// A handshake message stands only in session 0, every other only in a session, and each only in its own direction.
const fn may_stand(kind: Kind, from_server: bool, in_handshake: bool) -> bool {
    let handshake = matches!(kind.lane(), Lane::Handshake);
    handshake == in_handshake && matches!(kind.direction(), Direction::Server) == from_server
}

/// Whether a message of a kind may stand under a header.
pub(crate) const fn check_place(kind: Kind, header: &Header) -> Result<(), DropReason> {
    if KNOWN[kind as usize] & place_of(header) != 0 { Ok(()) } else { Err(DropReason::Misplaced(kind)) }
}

/// A message of a valid datagram, not decoded yet.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    /// Its kind.
    pub kind: Kind,
    /// What stands after its header.
    pub body: &'a [u8],
}

impl<'a> Raw<'a> {
    /// The messages of a whole datagram that was found valid before, or that this side has made.
    #[inline]
    #[must_use]
    pub fn all(datagram: &'a [u8]) -> RawMessages<'a> {
        RawMessages { rest: datagram.get(HEADER_LEN..datagram.len().saturating_sub(CHECKSUM_LEN)).unwrap_or_default() }
    }

    /// The message.
    #[inline]
    #[must_use]
    pub fn decode(self) -> Option<Message<'a>> {
        // The datagram was validated whole, so this gives a message.
        Message::decode(self.kind, self.body).ok()
    }

    /// With what its body begins, if it is a request.
    #[inline]
    #[must_use]
    pub fn ask(self) -> Option<Ask> {
        Reader::new(self.body).get().ok()
    }

    /// The first object that the message names, if no field of varying length stands before it.
    #[inline]
    #[must_use]
    pub fn object(self) -> Option<ObjectId> {
        let at = usize::from(OBJECT_AT[self.kind as usize]?);
        ObjectId::get(&mut Reader::new(self.body.get(at..)?)).ok()
    }

    /// Hands the body to `act`, as what the kind says that it is.
    #[inline]
    pub fn read<T: Field<'a>, R: Default>(self, act: impl FnOnce(&T) -> R) -> R {
        let mut reader = Reader::new(self.body);
        match reader.get() {
            Ok(message) => {
                debug_assert!(reader.rest().is_empty(), "a {} is read as what it is", self.kind.name());
                act(&message)
            }
            Err(_) => {
                debug_assert!(false, "a validated message decodes");
                R::default()
            }
        }
    }
}

/// Where in the body of a kind the first object stands, by its layout.
#[expect(clippy::cast_possible_truncation, reason = "the pattern lets nothing larger through")]
const OBJECT_AT: [Option<u8>; 256] = {
    let (mut all, mut at) = ([None; 256], 0);
    while at < Kind::ALL.len() {
        let kind = Kind::ALL[at];
        if let Ok(place @ 0..=255) = kind.shape().object_at(0) {
            all[kind as usize] = Some(place as u8);
        }
        at += 1;
    }
    all
};

/// Iterator over the messages of a valid datagram, which are not decoded.
#[derive(Clone, Copy, Debug)]
pub struct RawMessages<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for RawMessages<'a> {
    type Item = Raw<'a>;

    #[inline]
    fn next(&mut self) -> Option<Raw<'a>> {
        let (head, tail) = self.rest.split_first_chunk::<MESSAGE_HEADER_LEN>()?;
        let (body, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes([head[2], head[3]])))?;
        self.rest = tail;
        Some(Raw { kind: Kind::of(head[0])?, body })
    }
}

/// Iterator over the messages of a valid datagram.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    raw: RawMessages<'a>,
}

impl<'a> Messages<'a> {
    /// Those that are left, not decoded.
    #[must_use]
    pub const fn raw(self) -> RawMessages<'a> {
        self.raw
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        self.raw.next()?.decode()
    }
}

/// Fills one datagram with as many messages as fit.
#[derive(Debug)]
pub struct Packer<'b> {
    buf: &'b mut Writer,
    limit: usize,
    form: Form,
}

impl<'b> Packer<'b> {
    /// Begins a datagram of at most `limit` bytes in `buf`, which is cleared first.
    #[inline]
    #[must_use]
    pub fn new(buf: &'b mut Writer, header: Header, limit: usize) -> Self {
        Self::of_form(buf, header, limit, Form::Plain)
    }

    /// The same in the form of its session, [`Form::Plain`] or [`Form::Record`].
    #[inline]
    #[must_use]
    pub fn of_form(buf: &'b mut Writer, header: Header, limit: usize, form: Form) -> Self {
        buf.clear();
        //= wire-spec.md#3-1-header
        //# A sender MUST set reserved bits and reserved bytes to zero.
        let flags = if header.from_server { FROM_SERVER } else { 0 };
        RawHeader { magic: MAGIC, version: VERSION, form: form as u8, flags, session: header.session, packet: header.packet }.put(buf);
        Self { buf, limit, form }
    }

    /// Appends a message if it fits; otherwise leaves the datagram as it was and returns false.
    pub fn push(&mut self, message: &Message<'_>) -> bool {
        let mark = self.buf.len();
        message.encode(self.buf);
        self.keep_if_fits(mark)
    }

    /// Appends messages that were encoded before (`Message::to_bytes`), if they fit.
    pub fn push_encoded(&mut self, message: &[u8]) -> bool {
        let mark = self.buf.len();
        self.buf.extend_from_slice(message);
        self.keep_if_fits(mark)
    }

    fn keep_if_fits(&mut self, mark: usize) -> bool {
        let fits = self.buf.len() + self.form.trailer_len() <= self.limit;
        if !fits {
            self.buf.truncate(mark);
        }
        fits
    }

    /// The form of the datagram.
    #[must_use]
    pub const fn form(&self) -> Form {
        self.form
    }

    /// Whether no message is in it yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buf.len() == HEADER_LEN
    }

    /// Bytes that the datagram has so far, the checksum or tag to come included.
    #[must_use]
    pub fn used(&self) -> usize {
        self.buf.len() + self.form.trailer_len()
    }

    /// Bytes left for messages, their headers included.
    #[must_use]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.buf.len() + self.form.trailer_len())
    }

    /// Adds the checksum; the datagram is complete. A record has still to be sealed, which adds its tag.
    pub fn finish(self) {
        if self.form != Form::Plain {
            return;
        }
        let checksum = crc32fast::hash(self.buf);
        self.buf.extend_from_slice(&checksum.to_be_bytes());
    }
}
