//! The values of the store: records of objects, entries, sessions, outcomes, counters and extended attributes.
//!
//! Decides their layout, each with a version byte in front; blocks of contents are plain bytes. Invariant: a record that does not parse to its
//! last byte is an error, never a guess. The layouts are the store's own: the wire format may change without them.

use super::address::{get_address, put_address};
use crate::ids::PrincipalId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{AgentId, Attr, Bytes8, Fault, Field, Malformed, ObjectId, ObjectKind, Reader};
use core::fmt;
use core::net::SocketAddr;

/// Version of the records that this version writes, but those below.
const VERSION: u8 = 1;
/// Version of the records of sessions: since 2 with the window, and whether the session is unreclaimable; since 3 with the objects of a long
/// one; since 4 with its principal; since 5 with its start; since 6 with its address.
const SESSION_VERSION: u8 = 6;
/// Version of the records of objects: since 2 with the session that made an ephemeral file; since 3 with realm and creator.
const OBJECT_VERSION: u8 = 3;
/// Length of what stands before the name in an object's record: the attributes but the object's number, parent.
const OBJECT_FIXED: usize = (8 + 1 + 2 + 4 + 4 + 4 + 8 + 3 * 8 + 8 + 4) + 8;
/// Length of an object's record without its name: version, what stands before the name, the name's length, count of extended attributes,
/// creator.
const OBJECT_LEN: usize = 1 + OBJECT_FIXED + 1 + 1 + 4;
/// Room for the record of a session with a label of common length.
const SESSION_ROOM: usize = 104;

/// Bytes that are no record: the store is damaged, or of a newer format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// Written by another version of the server.
    Version(u8),
    /// Damaged.
    Malformed(Malformed),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "a record of version {version}, which this server does not read: another version of it has written it")
            }
            Self::Malformed(malformed) => write!(f, "a damaged record: {malformed}"),
        }
    }
}

impl core::error::Error for RecordError {}

impl From<Malformed> for RecordError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// What the store keeps of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Its attributes.
    pub attr: Attr,
    /// A directory in which it has a name: of a directory the one that it is in, of others the one last given. The root is in itself.
    pub parent: ObjectId,
    /// The name there; empty for the root. May be outdated for a file that has other names.
    pub name: Bytes,
    /// How many extended attributes it has; with none it has no [`XattrRecord`](super::XattrRecord).
    pub xattrs: u8,
    /// Who made it.
    pub creator: PrincipalId,
}

/// What the store keeps of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRecord {
    /// What it names.
    pub object: ObjectId,
    /// What that is.
    pub kind: ObjectKind,
}

/// What the store keeps of a session: written before its first lock is granted (section 11.7), deleted when it has ended (section 11.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// Whose key it was opened with.
    pub principal: PrincipalId,
    /// The agent.
    pub agent: AgentId,
    /// The agent's incarnation.
    pub incarnation: u64,
    /// Boot of the agent's machine; all zero: not known.
    pub boot: [u8; 16],
    /// Largest lease period promised to it, in microseconds (section 11.1).
    pub lease_us: u64,
    /// How many requests it may have outstanding; tells where its outcomes are kept.
    pub window: u16,
    /// Whether its end was decided for good: nothing can be reclaimed from it, and its lease has still to be waited for (section 11.3).
    pub unreclaimable: bool,
    /// The objects whose advisory locks it may hold, in order, if it is long: if its lease period is above the server's own. `None`: it
    /// is not, and may hold any lock.
    pub locks: Option<Vec<ObjectId>>,
    /// The incarnation of the server whose start key its resume secret follows from; 0: it is not sealed.
    pub start: u64,
    /// The address that was proven last, where a successor of the server is to call (section 11.10); `None`: there is none.
    pub address: Option<SocketAddr>,
    /// What people call the agent; at most 64 bytes.
    pub label: Box<[u8]>,
}

/// What the store keeps of an executed mutation: written with what it changed (section 11.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutcomeRecord {
    /// Its nonce.
    pub nonce: u64,
    /// The reply that it got, encoded, without grants.
    pub reply: Box<[u8]>,
}

impl ObjectRecord {
    /// The record as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let a = &self.attr;
        let mut w = start_with(OBJECT_VERSION, OBJECT_LEN + self.name.len());
        // At once: room in the buffer is then looked for once.
        let mut fixed = [0; OBJECT_FIXED];
        let to = place(&mut fixed, &a.version);
        let to = place(to, &a.kind);
        let to = place(to, &a.mode);
        let to = place(to, &a.nlink);
        let to = place(to, &a.uid);
        let to = place(to, &a.gid);
        let to = place(to, &a.size);
        let to = place(to, &a.atime_ns);
        let to = place(to, &a.mtime_ns);
        let to = place(to, &a.ctime_ns);
        let to = place(to, &a.owner);
        let to = place(to, &a.realm);
        place(to, &self.parent);
        w.extend_from_slice(&fixed);
        Bytes8(&self.name).put(&mut w);
        self.xattrs.put(&mut w);
        self.creator.0.put(&mut w);
        debug_assert_eq!(w.len(), OBJECT_LEN + self.name.len(), "a record takes no more memory than its bytes");
        w
    }

    /// The record of `object`.
    ///
    /// # Errors
    /// [`RecordError`]: it is no such record.
    pub fn from_bytes(object: ObjectId, bytes: &[u8]) -> Result<Self, RecordError> {
        read_as(OBJECT_VERSION, bytes, |r| {
            let attr = Attr {
                object,
                version: r.get().map_err(in_object("version"))?,
                kind: r.get().map_err(in_object("kind"))?,
                mode: r.get().map_err(in_object("mode"))?,
                nlink: r.get().map_err(in_object("nlink"))?,
                uid: r.get().map_err(in_object("uid"))?,
                gid: r.get().map_err(in_object("gid"))?,
                size: r.get().map_err(in_object("size"))?,
                atime_ns: r.get().map_err(in_object("atime_ns"))?,
                mtime_ns: r.get().map_err(in_object("mtime_ns"))?,
                ctime_ns: r.get().map_err(in_object("ctime_ns"))?,
                owner: r.get().map_err(in_object("owner"))?,
                realm: r.get().map_err(in_object("realm"))?,
            };
            let parent = r.get().map_err(in_object("parent"))?;
            let name: Bytes8<'_> = r.get().map_err(in_object("name"))?;
            let xattrs = r.get().map_err(in_object("xattrs"))?;
            let creator = PrincipalId(r.get().map_err(in_object("creator"))?);
            Ok(Self { attr, parent, name: Bytes::copy_from_slice(name.0), xattrs, creator })
        })
    }
}

impl EntryRecord {
    /// The record as bytes.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let mut w = start(8 + 1);
        self.object.put(&mut w);
        self.kind.put(&mut w);
        w
    }

    /// The record that the bytes are.
    ///
    /// # Errors
    /// [`RecordError`]: it is no such record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let within = |field| move |e: Malformed| e.within("EntryRecord", field);
        read(bytes, |r| Ok(Self { object: r.get().map_err(within("object"))?, kind: r.get().map_err(within("kind"))? }))
    }
}

impl SessionRecord {
    /// The record's bytes, for `StoreCache::put`.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = start_with(SESSION_VERSION, SESSION_ROOM);
        self.principal.0.put(&mut w);
        self.agent.put(&mut w);
        self.incarnation.put(&mut w);
        self.boot.put(&mut w);
        self.lease_us.put(&mut w);
        self.window.put(&mut w);
        self.unreclaimable.put(&mut w);
        // How many more than none: 0 says that it is not long.
        let count = self.locks.as_ref().map_or(0, |locks| locks.len() + 1);
        u16::try_from(count).unwrap_or(u16::MAX).put(&mut w);
        self.locks.iter().flatten().for_each(|object| object.put(&mut w));
        self.start.put(&mut w);
        put_address(self.address, &mut w);
        Bytes8(&self.label).put(&mut w);
        w
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`] when the bytes are no session record; the store is at fault.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let within = |field| move |e: Malformed| e.within("SessionRecord", field);
        read_as(SESSION_VERSION, bytes, |r| {
            let principal = PrincipalId(r.get().map_err(within("principal"))?);
            let agent = r.get().map_err(within("agent"))?;
            let incarnation = r.get().map_err(within("incarnation"))?;
            let boot = r.get().map_err(within("boot"))?;
            let lease_us = r.get().map_err(within("lease_us"))?;
            let window = r.get().map_err(within("window"))?;
            let unreclaimable = r.get().map_err(within("unreclaimable"))?;
            let count: u16 = r.get().map_err(within("locks"))?;
            let objects = (1..count).map(|_| r.get()).collect::<Result<Vec<_>, Malformed>>().map_err(within("locks"))?;
            let locks = (count > 0).then_some(objects);
            let start = r.get().map_err(within("start"))?;
            let address = get_address(r).map_err(within("address"))?;
            let label: Bytes8<'_> = r.get().map_err(within("label"))?;
            let label = label.0.into();
            Ok(Self { principal, agent, incarnation, boot, lease_us, window, unreclaimable, locks, start, address, label })
        })
    }
}

impl OutcomeRecord {
    /// The record's bytes, for `StoreCache::put`.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        Self::bytes_of(self.nonce, &self.reply)
    }

    /// The bytes of a record of this reply, which need not be one yet.
    pub(crate) fn bytes_of(nonce: u64, reply: &[u8]) -> Vec<u8> {
        let mut w = start(8 + reply.len());
        nonce.put(&mut w);
        w.extend_from_slice(reply);
        w
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`] when the bytes are no outcome; the store is at fault.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        read(bytes, |r| {
            let nonce = r.get().map_err(|e| e.within("OutcomeRecord", "nonce"))?;
            let reply = r.take(r.rest().len()).map_err(|e| e.within("OutcomeRecord", "reply"))?;
            Ok(Self { nonce, reply: reply.into() })
        })
    }
}

/// A counter's record.
#[must_use]
pub fn counter_to_bytes(value: u64) -> Vec<u8> {
    let mut w = start(8);
    value.put(&mut w);
    w
}

/// The value of a counter's record.
///
/// # Errors
/// [`RecordError`]: it is no such record.
pub fn counter_from_bytes(bytes: &[u8]) -> Result<u64, RecordError> {
    read(bytes, |r| r.get().map_err(|e| e.within("Counter", "value")))
}

/// A record of so many bytes besides its version.
pub(super) fn start(len: usize) -> Vec<u8> {
    start_with(VERSION, 1 + len)
}

/// What has room for exactly its bytes becomes [`Bytes`] without a second piece of memory.
pub(super) fn start_with(version: u8, len: usize) -> Vec<u8> {
    let mut w = Vec::with_capacity(len);
    version.put(&mut w);
    w
}

/// Writes a value of fixed length; what is left behind it.
#[inline]
fn place<'b, T: for<'f> Field<'f>>(to: &'b mut [u8], value: &T) -> &'b mut [u8] {
    let (at, rest) = to.split_at_mut(T::LEN);
    value.place(at);
    rest
}

fn in_object(field: &'static str) -> impl FnOnce(Malformed) -> Malformed {
    move |e| e.within("ObjectRecord", field)
}

/// The next bytes, as many as a key or secret has.
pub(super) fn array<const N: usize>(r: &mut Reader<'_>) -> Result<[u8; N], Malformed> {
    r.take(N)?.try_into().map_err(|_| Malformed::new(Fault::Truncated))
}

/// Reads a versioned record to its last byte.
pub(super) fn read<'a, T>(bytes: &'a [u8], body: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>) -> Result<T, RecordError> {
    read_as(VERSION, bytes, body)
}

pub(super) fn read_as<'a, T>(
    wanted: u8,
    bytes: &'a [u8],
    body: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<T, RecordError> {
    let mut r = Reader::new(bytes);
    let version = u8::get(&mut r).map_err(|e| e.within("record", "version"))?;
    if version != wanted {
        return Err(RecordError::Version(version));
    }
    let value = body(&mut r)?;
    if r.rest().is_empty() { Ok(value) } else { Err(Malformed::new(Fault::Trailing).within("record", "end").into()) }
}

/// All extended attributes of an object; at least one.
///
/// A version byte, then each attribute in byte order of the names: length of its name (1 byte), the name, length of its value (4 bytes, network
/// byte order), the value. No name is empty. It is rewritten whole by a change, for an object has few and small ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrRecord {
    bytes: Bytes,
}

impl XattrRecord {
    /// Reads a record, all of it.
    ///
    /// # Errors
    /// [`RecordError`] when the bytes are no such record; the store is at fault.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, RecordError> {
        let (version, mut rest) = bytes.split_first().ok_or_else(|| malformed(Fault::Truncated, "version"))?;
        if *version != VERSION {
            return Err(RecordError::Version(*version));
        }
        let mut last: &[u8] = b"";
        if rest.is_empty() {
            return Err(malformed(Fault::Truncated, "name"));
        }
        while !rest.is_empty() {
            let (name, _, after) = split(rest).ok_or_else(|| malformed(Fault::Truncated, "value"))?;
            if name <= last {
                return Err(malformed(Fault::BadValue, "name"));
            }
            (last, rest) = (name, after);
        }
        Ok(Self { bytes })
    }

    /// A record of attributes whose names ascend; `None`: there is none.
    #[must_use]
    pub fn of<'a>(attributes: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Self> {
        let mut bytes = alloc::vec![VERSION];
        for (name, value) in attributes {
            debug_assert!(!name.is_empty(), "a nameless attribute is refused before");
            bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            bytes.extend_from_slice(&name[..name.len().min(usize::from(u8::MAX))]);
            bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend_from_slice(value);
        }
        (bytes.len() > 1).then(|| Self { bytes: bytes.into() })
    }

    /// Names and values, in byte order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.bytes.get(1..).unwrap_or_default();
        core::iter::from_fn(move || {
            let (name, value, after) = split(rest)?;
            rest = after;
            Some((name, value))
        })
    }

    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Bytes of all values.
    #[must_use]
    pub fn values_len(&self) -> u64 {
        self.iter().map(|(_, value)| value.len() as u64).sum()
    }

    /// The same with a value for a name, or without the name.
    #[must_use]
    pub fn with(this: Option<&Self>, name: &[u8], value: Option<&[u8]>) -> Option<Self> {
        let mut all: Vec<(&[u8], &[u8])> = this.into_iter().flat_map(Self::iter).filter(|(other, _)| *other != name).collect();
        if let Some(value) = value {
            let at = all.partition_point(|(other, _)| *other < name);
            all.insert(at, (name, value));
        }
        Self::of(all.into_iter())
    }

    /// The record as bytes.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }
}

/// The first attribute: name, value, and what follows.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*len))?;
    let (len, rest) = rest.split_first_chunk()?;
    let (value, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)?;
    Some((name, value, rest))
}

fn malformed(fault: Fault, field: &'static str) -> RecordError {
    Malformed::new(fault).within("XattrRecord", field).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec;
    use cistern_wire::{Handle, Realm};
    use proptest::prelude::*;

    fn object() -> ObjectRecord {
        ObjectRecord {
            attr: Attr {
                object: ObjectId(42),
                version: 3,
                kind: ObjectKind::Directory,
                mode: 0o755,
                nlink: 4,
                uid: 1000,
                gid: 100,
                size: 2,
                atime_ns: -1,
                mtime_ns: 2,
                ctime_ns: 3,
                owner: Handle(7),
                realm: Realm(9),
            },
            parent: ObjectId(1),
            name: Bytes::from_static(b"jobs"),
            xattrs: 7,
            creator: PrincipalId(5),
        }
    }

    fn session() -> SessionRecord {
        SessionRecord {
            principal: PrincipalId(3),
            agent: AgentId([7; 16]),
            incarnation: 9,
            boot: [1; 16],
            lease_us: 2_000_000,
            window: 64,
            unreclaimable: true,
            locks: Some(vec![ObjectId(3), ObjectId(9)]),
            start: 4,
            address: None,
            label: (*b"host:1").into(),
        }
    }

    #[test]
    fn every_record_comes_back_from_its_bytes() {
        assert_eq!(ObjectRecord::from_bytes(ObjectId(42), &object().to_bytes()), Ok(object()));
        let entry = EntryRecord { object: ObjectId(42), kind: ObjectKind::Symlink };
        assert_eq!(EntryRecord::from_bytes(&entry.to_bytes()), Ok(entry));
        for locks in [None, Some(Vec::new()), session().locks] {
            let session = SessionRecord { locks, ..session() };
            for address in ["192.0.2.1:7", "[2001:db8::1]:65535"] {
                let session = SessionRecord { address: address.parse().ok(), ..session.clone() };
                assert_eq!(SessionRecord::from_bytes(&session.to_bytes()), Ok(session));
            }
            assert_eq!(SessionRecord::from_bytes(&session.to_bytes()), Ok(session));
        }
        assert_eq!(SessionRecord::from_bytes(&[4]), Err(RecordError::Version(4)));
        let outcome = OutcomeRecord { nonce: 7, reply: (*b"reply").into() };
        assert_eq!(OutcomeRecord::from_bytes(&outcome.to_bytes()), Ok(outcome));
        assert_eq!(counter_from_bytes(&counter_to_bytes(u64::MAX)), Ok(u64::MAX));
    }

    #[test]
    fn bytes_of_version_three_stay_what_they_are() {
        let golden = [
            &[3][..],
            &[0, 0, 0, 0, 0, 0, 0, 3, 2, 0x01, 0xED, 0, 0, 0, 4, 0, 0, 0x03, 0xE8, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 2],
            &[0xFF; 8],
            &[0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 4],
            b"jobs",
            &[7, 0, 0, 0, 5],
        ]
        .concat();
        assert_eq!(object().to_bytes(), golden);
    }

    #[test]
    fn truncated_longer_and_newer_records_are_errors() {
        let bytes = object().to_bytes();
        for len in 0..bytes.len() {
            assert!(ObjectRecord::from_bytes(ObjectId(42), &bytes[..len]).is_err(), "{len} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(matches!(ObjectRecord::from_bytes(ObjectId(42), &longer), Err(RecordError::Malformed(m)) if m.fault == Fault::Trailing));
        let mut newer = bytes;
        newer[0] = 4;
        assert_eq!(ObjectRecord::from_bytes(ObjectId(42), &newer), Err(RecordError::Version(4)));
    }

    #[test]
    fn an_unknown_kind_names_record_and_field() {
        let mut bytes = object().to_bytes();
        bytes[9] = 9;
        let Err(RecordError::Malformed(m)) = ObjectRecord::from_bytes(ObjectId(42), &bytes) else { panic!("taken") };
        assert_eq!((m.part, m.field, m.fault), ("ObjectRecord", "kind", Fault::BadValue));
    }

    #[test]
    fn bytes_of_version_one_stay_what_they_are() {
        let record = XattrRecord::of([(&b"a"[..], &b"xy"[..]), (b"b", b"")].into_iter()).unwrap();
        assert_eq!(&record.clone().into_bytes()[..], b"\x01\x01a\0\0\0\x02xy\x01b\0\0\0\0");
        assert_eq!(XattrRecord::from_bytes(record.clone().into_bytes()), Ok(record));
    }

    #[test]
    fn damaged_and_newer_records_are_errors() {
        let bytes = XattrRecord::of([(&b"a"[..], &b"xy"[..]), (b"b", b"z")].into_iter()).unwrap().into_bytes();
        let whole = [9, bytes.len()];
        for len in (0..bytes.len()).filter(|len| !whole.contains(len)) {
            assert!(XattrRecord::from_bytes(bytes.slice(..len)).is_err(), "{len} bytes");
        }
        assert_eq!(XattrRecord::from_bytes(Bytes::from_static(b"\x02")), Err(RecordError::Version(2)));
        for bad in [&b"\x01\x01b\0\0\0\0\x01a\0\0\0\0"[..], b"\x01\x01a\0\0\0\0\x01a\0\0\0\0", b"\x01\0\0\0\0\0", b"\x01"] {
            assert!(XattrRecord::from_bytes(Bytes::from_static(bad)).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn changes_of_a_record_are_those_of_a_map(
            changes in proptest::collection::vec((proptest::collection::vec(1u8..4, 1..3), any::<Option<Vec<u8>>>()), 0..20),
        ) {
            let (mut record, mut map) = (None, BTreeMap::new());
            for (name, value) in &changes {
                record = XattrRecord::with(record.as_ref(), name, value.as_deref());
                match value {
                    Some(value) => map.insert(name.clone(), value.clone()),
                    None => map.remove(name),
                };
                let seen: BTreeMap<Vec<u8>, Vec<u8>> =
                    record.iter().flat_map(XattrRecord::iter).map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
                prop_assert_eq!(&seen, &map);
                prop_assert_eq!(record.as_ref().and_then(|record| record.get(name)), map.get(name).map(Vec::as_slice));
                if let Some(record) = &record {
                    prop_assert_eq!(XattrRecord::from_bytes(record.clone().into_bytes()), Ok(record.clone()));
                }
            }
        }
    }
}
