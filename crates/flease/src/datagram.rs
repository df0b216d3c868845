//! Datagrams: a header that says what the sender's group agreed on, messages, a checksum (docs/flease.md, "Datagrams").
//!
//! Decides that nothing of a datagram is believed whose header differs from this member's own.

use crate::ballot::{Ballot, Member};
use crate::bugs::{self, Bug};
use crate::message::Message;
use crate::terms::{Group, MEMBERS_MAX};
use alloc::vec::Vec;
use cistern_wire::{Field, Malformed, Reader, Writer};
use core::fmt;
use core::hash::Hasher;
use core::time::Duration;
use siphasher::sip::SipHasher24;

/// Largest datagram, in bytes: passes without fragments wherever IPv6 does, with 72 bytes around it where it is sealed.
pub const DATAGRAM_MAX: usize = 1_160;

const MAGIC: u32 = 0x4346_4C53;
const VERSION: u8 = 1;
/// Bytes of the header.
const HEADER_LEN: usize = 44;
/// Where the receiver stands in it.
const TO_AT: usize = 8;
/// Bytes of the checksum.
const CHECKSUM_LEN: usize = 4;
/// Flag: an owner renews by WRITE alone.
const RENEW_BY_WRITE: u8 = 1;
/// Flag: members keep tokens on disk.
const DURABLE_TOKENS: u8 = 2;
/// Flag: the synchronised mode.
const SYNCHRONISED: u8 = 4;
/// Flag: the sender hears what the group shares. It says something of the sender, and need not agree.
const HEARS: u8 = 8;

/// What a member says in every datagram of itself and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number of the list of members; another list has another.
    pub list_number: u32,
    /// SipHash-2-4, key zero, of the names in the list.
    pub list_hash: u64,
    /// Terms, place and boot nonce.
    pub group: Group,
    /// Whether this member hears what the group shares beside its leases: of servers, their store.
    pub hears: bool,
}

impl Header {
    /// Whether what was sent under the list of this number is heard under that one. A list is replaced only when a majority of it has agreed to
    /// something: these hear nothing of the list before any more, so that has no majority, however late its members learn of it.
    #[must_use]
    pub fn is_heard(theirs: u32, ours: u32) -> bool {
        theirs == ours || bugs::is(Bug::OtherListHeard)
    }

    /// The hash of a list of members: each name with its length before it, one byte; an empty name where nobody is.
    #[must_use]
    pub fn hash_of(names: &[Vec<u8>]) -> u64 {
        let mut hasher = SipHasher24::new();
        for name in names {
            hasher.write(&[u8::try_from(name.len()).unwrap_or(u8::MAX)]);
            hasher.write(name);
        }
        hasher.finish()
    }

    fn flags(&self) -> u8 {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        flag(self.group.renew_by_write, RENEW_BY_WRITE)
            | flag(self.group.durable_tokens, DURABLE_TOKENS)
            | flag(self.group.terms.synchronised, SYNCHRONISED)
            | flag(self.hears, HEARS)
    }

    fn put(&self, to: Member, w: &mut Writer) {
        let Group { terms, places, me, nonce, .. } = self.group;
        MAGIC.put(w);
        VERSION.put(w);
        self.flags().put(w);
        places.put(w);
        me.put(w);
        to.put(w);
        [0u8; 3].iter().for_each(|zero| zero.put(w));
        self.list_number.put(w);
        self.list_hash.put(w);
        micros(terms.lease).put(w);
        terms.drift_ppm.put(w);
        micros(terms.epsilon).put(w);
        nonce.put(w);
    }
}

/// For which member a datagram was made, as its header says; `None`: it is none of this protocol.
#[must_use]
pub fn receiver_of(datagram: &[u8]) -> Option<Member> {
    let is_ours = datagram.starts_with(&MAGIC.to_be_bytes());
    datagram.get(TO_AT).copied().filter(|_| is_ours)
}

/// What of a datagram differs from what this member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch {
    /// The version of the format.
    Version,
    /// The number of the list of members.
    ListNumber,
    /// The list of members, under one number.
    List,
    /// The length of the lease.
    Lease,
    /// The drift.
    Drift,
    /// ε.
    Epsilon,
    /// Whether owners renew by WRITE alone.
    RenewByWrite,
    /// Whether members keep tokens on disk.
    DurableTokens,
    /// Whether clocks are synchronised.
    Synchronised,
    /// The sender is not the member at the address that it came from.
    Sender,
    /// It is for another member.
    Receiver,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "the version of the format differs",
            Self::ListNumber => "the number of the list of members differs",
            Self::List => "the lists of members differ under one number",
            Self::Lease => "the length of the lease differs",
            Self::Drift => "the drift differs",
            Self::Epsilon => "epsilon differs",
            Self::RenewByWrite => "one renews by WRITE alone, the other does not",
            Self::Synchronised => "one counts on synchronised clocks, the other does not",
            Self::DurableTokens => "one keeps tokens on disk, the other does not",
            Self::Sender => "it names another sender than the member at this address",
            Self::Receiver => "it is for another member",
        })
    }
}

/// Why a datagram changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It does not parse to its last byte.
    Malformed(Malformed),
    /// It was changed on its way, or is no datagram of this protocol.
    Checksum,
    /// It is of another configuration.
    Mismatch(Mismatch),
    /// This member has started less than W ago.
    Waiting,
}

impl From<Malformed> for DropReason {
    fn from(error: Malformed) -> Self {
        Self::Malformed(error)
    }
}

impl From<Mismatch> for DropReason {
    fn from(mismatch: Mismatch) -> Self {
        Self::Mismatch(mismatch)
    }
}

/// A datagram that was decoded whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The boot nonce of the sender.
    pub nonce: u64,
    /// Whether the sender hears what the group shares.
    pub hears: bool,
    /// Messages, each with the name of its resource.
    pub messages: Vec<(&'a [u8], Message)>,
}

impl<'a> Datagram<'a> {
    /// Reads a datagram that came from the member `from` to the one that `ours` describes.
    ///
    /// # Errors
    /// Says why the datagram must change nothing.
    pub fn decode(bytes: &'a [u8], ours: &Header, from: Member) -> Result<Self, DropReason> {
        let (covered, checksum) = bytes.split_last_chunk::<CHECKSUM_LEN>().ok_or(DropReason::Checksum)?;
        if bytes.len() > DATAGRAM_MAX || crc32fast::hash(covered) != u32::from_be_bytes(*checksum) {
            return Err(DropReason::Checksum);
        }
        let mut r = Reader::new(covered);
        if get::<u32>(&mut r, "magic")? != MAGIC {
            return Err(DropReason::Checksum);
        }
        differs(get::<u8>(&mut r, "version")? != VERSION, Mismatch::Version)?;
        let flags: u8 = get(&mut r, "flags")?;
        let (places, sender, receiver): (u8, u8, u8) = (get(&mut r, "places")?, get(&mut r, "sender")?, get(&mut r, "receiver")?);
        let reserved = r.take(3).map_err(|e| e.within("header", "reserved"))?;
        if flags & !(RENEW_BY_WRITE | DURABLE_TOKENS | SYNCHRONISED | HEARS) != 0 || reserved != [0; 3] {
            return Err(bad("header", "reserved").into());
        }
        let Group { terms, me, .. } = ours.group;
        //= docs/flease.md#rules
        //# A member MUST refuse a datagram whose list of members or its number, L, δ, ε, mode of time, mode of renewal or keeping of tokens
        //# differs from its own.
        differs(!Header::is_heard(get(&mut r, "list_number")?, ours.list_number), Mismatch::ListNumber)?;
        let list_hash: u64 = get(&mut r, "list_hash")?;
        differs(list_hash != ours.list_hash || places != ours.group.places, Mismatch::List)?;
        differs(get::<u32>(&mut r, "lease_us")? != micros(terms.lease), Mismatch::Lease)?;
        differs(get::<u32>(&mut r, "drift_ppm")? != terms.drift_ppm, Mismatch::Drift)?;
        differs(get::<u32>(&mut r, "epsilon_us")? != micros(terms.epsilon), Mismatch::Epsilon)?;
        let flipped = flags ^ ours.flags();
        differs(flipped & RENEW_BY_WRITE != 0, Mismatch::RenewByWrite)?;
        differs(flipped & DURABLE_TOKENS != 0, Mismatch::DurableTokens)?;
        differs(flipped & SYNCHRONISED != 0, Mismatch::Synchronised)?;
        //= docs/flease.md#datagrams
        //# A datagram MUST come from the address of the member that it names as its sender.
        differs(sender != from || !ours.group.others().contains(sender), Mismatch::Sender)?;
        differs(receiver != me, Mismatch::Receiver)?;
        let nonce: u64 = get(&mut r, "nonce")?;
        if nonce == 0 {
            return Err(bad("header", "nonce").into());
        }
        let mut messages = Vec::new();
        //= docs/flease.md#datagrams
        //# A receiver MUST drop what does not parse to its last byte.
        while !r.rest().is_empty() {
            let (name, message) = Message::get(&mut r, places).map_err(|e| e.within("message", "body"))?;
            let of_sender = |ballot: Ballot| ballot.member == sender && ballot.nonce == nonce;
            //= docs/flease.md#messages
            //# Ballot and base of READ, ballot and tenure of WRITE and tenure of RELEASE MUST have the sender's place and boot nonce; the
            //# ballots of answers and the tenure of RELEASED the receiver's place.
            if !message.of_sender().into_iter().flatten().all(of_sender) || message.of_receiver().is_some_and(|b| b.member != me) {
                return Err(bad("message", "ballot").into());
            }
            messages.push((name, message));
        }
        if messages.is_empty() { Err(bad("datagram", "messages").into()) } else { Ok(Self { nonce, hears: flags & HEARS != 0, messages }) }
    }

    /// Clears `buf` and fills it with messages to `to`, as many as fit; how many did. There must be one.
    pub fn encode<'m>(buf: &mut Vec<u8>, header: &Header, to: Member, messages: impl Iterator<Item = (&'m [u8], Message)>) -> usize {
        buf.clear();
        header.put(to, buf);
        debug_assert_eq!(buf.len(), HEADER_LEN);
        let mut count = 0;
        for (name, message) in messages {
            let before = buf.len();
            message.put(name, buf);
            if buf.len() > DATAGRAM_MAX - CHECKSUM_LEN {
                buf.truncate(before);
                break;
            }
            count += 1;
        }
        crc32fast::hash(buf).put(buf);
        count
    }
}

fn get<'a, T: Field<'a>>(r: &mut Reader<'a>, field: &'static str) -> Result<T, Malformed> {
    r.get().map_err(|e: Malformed| e.within("header", field))
}

fn differs(differs: bool, what: Mismatch) -> Result<(), Mismatch> {
    if differs { Err(what) } else { Ok(()) }
}

const fn bad(part: &'static str, field: &'static str) -> Malformed {
    Malformed { part, field, fault: cistern_wire::Fault::BadValue }
}

/// A span in whole microseconds; configurations are checked to fit.
fn micros(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

const _: () = assert!(MEMBERS_MAX <= 15, "a set of members has 16 bits");
