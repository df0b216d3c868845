//! The keys of the store, and the bytes under which an engine keeps them.
//!
//! Decides: which keys there are and their order. Place in the walk: named by queries and batches, never by messages.
//! Nothing of it is on the wire.
//! Invariant: the byte order of encoded keys is the order of [`Key`], so the entries of one directory stand together, sorted by
//! name, and an engine finds a page of them by one range scan.
//! Leaves to others: the values (`record`).

use crate::config::LEASE_MAX;
use crate::ids::{InviteId, PrincipalId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_wire::limits::NAME_MAX;
use cistern_wire::{Handle, ObjectId, Realm, SessionId};
use core::fmt;

/// The value of [`Counter::Epoch`] in a store that was never restored.
pub const FIRST_EPOCH: u8 = 1;
/// The bits of an object id below the epoch of the store in which it was given out.
pub const ID_BITS: u32 = 56;
/// The bits of a realm's number below that epoch.
pub const REALM_BITS: u32 = 24;
/// The value of [`Counter::Restored`] in a copy that takes the place of its store.
pub const RESTORED: u64 = 1;
/// The value of [`Counter::Restored`] in a store that no server was started on, of a cluster that had none before: nothing is owed.
pub const NEW_CLUSTER: u64 = 3;
/// No [`Counter::Wait`] is larger, in microseconds: what a damaged store has beyond it is not waited for.
pub const WAIT_MAX_US: u64 = 3 * LEASE_MAX.as_secs() * 1_000_000;

/// A durable number of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Counter {
    /// Object ids below this one were given out; never goes back, so an id is never used again.
    NextObject = 1,
    /// Objects in the namespace, the root directory included.
    Objects = 2,
    /// Bytes of contents: the sum of the sizes of all files and symbolic links, and of the values of all extended attributes.
    Bytes = 3,
    /// Tokens up to this one may have been given out (section 11.4).
    Tokens = 4,
    /// Starts of the server on this store (section 11.7).
    Incarnation = 5,
    /// How often the store was restored from a copy, from 1 on: the top 8 bits of every token, and of ids given out since (section 11.7).
    Epoch = 6,
    /// A wait without reclaim that is owed, because this store may not know of every lock that agents hold: 1, set by whoever restored a
    /// copy, or made an empty store for one that was lost, together with the highest epoch that the store had which it replaces: the epoch is
    /// to be raised first; 2: the store is new, or the epoch has been raised; 0: none.
    Restored = 7,
    /// Largest T by which the server may still have to wait for leases that it gave, in microseconds, rounded up: written before the
    /// first of them is given, and lowered only when no older one can be valid (sections 11.1 and 11.7).
    Wait = 8,
    /// Realms below this one were given out; never goes back.
    NextRealm = 9,
    /// What the wall clock has shown at least, in seconds since 1970: by it invites expire. Written as long as there are invites.
    Clock = 10,
}

impl Counter {
    /// Every counter, in order of code.
    pub const ALL: [Self; 10] = [
        Self::NextObject,
        Self::Objects,
        Self::Bytes,
        Self::Tokens,
        Self::Incarnation,
        Self::Epoch,
        Self::Restored,
        Self::Wait,
        Self::NextRealm,
        Self::Clock,
    ];

    /// Its place in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize - 1
    }
}

/// A key of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A durable number.
    Counter(Counter),
    /// The record of a session that has not ended.
    Session(SessionId),
    /// What became of the newest mutation of a session among those whose nonce has this remainder by its window (section 11.2).
    Outcome(SessionId, u16),
    /// The record of a realm within that of the tree: of that one the counters tell all.
    Realm(Realm),
    /// The record of a principal, also of one whose key was withdrawn.
    Principal(PrincipalId),
    /// What a principal has made, and how much it may.
    Account(PrincipalId),
    /// The record of an invite, as long as it is good. It has a secret, and is in no backup ([`Self::is_copied`]).
    Invite(InviteId),
    /// The key of a start of the server, by its incarnation, as long as a session of that start can be resumed; in no copy.
    StartKey(u64),
    /// The record of an object.
    Object(ObjectId),
    /// A name in a directory.
    Entry(ObjectId, Box<[u8]>),
    /// Bytes `n * BLOCK_LEN` and following of a file; block 0 of a symbolic link is its target.
    Block(ObjectId, u32),
    /// All extended attributes of an object, in one value: [`XattrRecord`](super::XattrRecord).
    Xattrs(ObjectId),
    /// An ephemeral file, by its `owner`; its value says to which session it is bound now (section 11.7), or to which named lease.
    Ephemeral(Handle, ObjectId),
    /// The record of a named lease that has not ended, by the number of its file.
    Lease(ObjectId),
}

/// Bytes that are no key: the store is damaged, or of a newer format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError;

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that this version does not know: the store is damaged or was written by a newer version")
    }
}

impl core::error::Error for KeyError {}

// First bytes of encoded keys, in the order of the variants.
const COUNTER: u8 = 0x01;
const SESSION: u8 = 0x02;
const OUTCOME: u8 = 0x03;
const REALM: u8 = 0x04;
const PRINCIPAL: u8 = 0x05;
const ACCOUNT: u8 = 0x06;
const INVITE: u8 = 0x07;
const START_KEY: u8 = 0x08;
const OBJECT: u8 = 0x10;
const ENTRY: u8 = 0x11;
const BLOCK: u8 = 0x12;
const XATTRS: u8 = 0x13;
const EPHEMERAL: u8 = 0x14;
const LEASE: u8 = 0x15;

impl Key {
    /// The encoded key: a tag, then its numbers in network byte order, then its name to the end.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        self.put(&mut bytes);
        bytes
    }

    /// Appends the encoded key.
    pub fn put(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Counter(counter) => bytes.extend_from_slice(&[COUNTER, *counter as u8]),
            Self::Session(session) => tagged(bytes, SESSION, session.0),
            Self::Outcome(session, slot) => {
                tagged(bytes, OUTCOME, session.0);
                bytes.extend_from_slice(&slot.to_be_bytes());
            }
            Self::Realm(Realm(number)) | Self::Principal(PrincipalId(number)) | Self::Account(PrincipalId(number)) => {
                bytes.push(match self {
                    Self::Realm(_) => REALM,
                    Self::Principal(_) => PRINCIPAL,
                    _ => ACCOUNT,
                });
                bytes.extend_from_slice(&number.to_be_bytes());
            }
            Self::Invite(invite) => tagged(bytes, INVITE, invite.0),
            Self::StartKey(start) => tagged(bytes, START_KEY, *start),
            Self::Object(object) => tagged(bytes, OBJECT, object.0),
            Self::Entry(dir, name) => {
                tagged(bytes, ENTRY, dir.0);
                bytes.extend_from_slice(name);
            }
            Self::Block(object, block) => {
                tagged(bytes, BLOCK, object.0);
                bytes.extend_from_slice(&block.to_be_bytes());
            }
            Self::Xattrs(object) => tagged(bytes, XATTRS, object.0),
            Self::Lease(lease) => tagged(bytes, LEASE, lease.0),
            Self::Ephemeral(maker, object) => {
                tagged(bytes, EPHEMERAL, maker.0);
                bytes.extend_from_slice(&object.0.to_be_bytes());
            }
        }
    }

    /// Length of the encoded key.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Counter(_) => 2,
            Self::Realm(_) | Self::Principal(_) | Self::Account(_) => 5,
            Self::Session(_) | Self::Invite(_) | Self::StartKey(_) | Self::Object(_) | Self::Xattrs(_) | Self::Lease(_) => 9,
            Self::Outcome(..) => 11,
            Self::Entry(_, name) => 9 + name.len(),
            Self::Block(..) => 13,
            Self::Ephemeral(..) => 17,
        }
    }

    /// Reads an encoded key, to its last byte.
    ///
    /// # Errors
    /// [`KeyError`] for bytes that [`Self::to_bytes`] never makes; the store is at fault.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, KeyError> {
        let (tag, rest) = bytes.split_first().ok_or(KeyError)?;
        if *tag == COUNTER {
            let [code] = rest else { return Err(KeyError) };
            return Counter::ALL.into_iter().find(|counter| *counter as u8 == *code).map(Self::Counter).ok_or(KeyError);
        }
        if let (REALM | PRINCIPAL | ACCOUNT, Ok(number)) = (*tag, rest.try_into()) {
            let number = u32::from_be_bytes(number);
            return Ok(match *tag {
                REALM => Self::Realm(Realm(number)),
                PRINCIPAL => Self::Principal(PrincipalId(number)),
                _ => Self::Account(PrincipalId(number)),
            });
        }
        let (number, rest) = rest.split_first_chunk().ok_or(KeyError)?;
        let number = u64::from_be_bytes(*number);
        match (*tag, rest) {
            (SESSION, []) => Ok(Self::Session(SessionId(number))),
            (OUTCOME, &[a, b]) => Ok(Self::Outcome(SessionId(number), u16::from_be_bytes([a, b]))),
            (INVITE, []) => Ok(Self::Invite(InviteId(number))),
            (START_KEY, []) => Ok(Self::StartKey(number)),
            (OBJECT, []) => Ok(Self::Object(ObjectId(number))),
            (ENTRY, name) if !name.is_empty() && name.len() <= NAME_MAX => Ok(Self::Entry(ObjectId(number), name.into())),
            (EPHEMERAL, rest) if let Ok(object) = rest.try_into() => {
                Ok(Self::Ephemeral(Handle(number), ObjectId(u64::from_be_bytes(object))))
            }
            (BLOCK, &[a, b, c, d]) => Ok(Self::Block(ObjectId(number), u32::from_be_bytes([a, b, c, d]))),
            (LEASE, []) => Ok(Self::Lease(ObjectId(number))),
            (XATTRS, []) => Ok(Self::Xattrs(ObjectId(number))),
            _ => Err(KeyError),
        }
    }

    /// The byte with which every encoded key of its kind begins.
    #[must_use]
    pub fn tag(&self) -> u8 {
        self.to_bytes().first().copied().unwrap_or_default()
    }

    /// Whether the key with these bytes is part of a backup: what is there once, for one store, is not, for whoever reads a backup could use it, and
    /// a restore would revive it.
    #[must_use]
    pub fn is_copied(bytes: &[u8]) -> bool {
        //= docs/sealed.md#joining-rosters
        //# A restored store MUST have no invites: those of the copy may have been spent or withdrawn since.
        !matches!(bytes.first(), Some(&(INVITE | START_KEY)))
    }

    /// The bytes with which every encoded entry of `dir` begins.
    #[must_use]
    pub fn entry_prefix(dir: ObjectId) -> Vec<u8> {
        let mut bytes = Vec::new();
        tagged(&mut bytes, ENTRY, dir.0);
        bytes
    }
}

fn tagged(bytes: &mut Vec<u8>, tag: u8, number: u64) {
    bytes.push(tag);
    bytes.extend_from_slice(&number.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn any_key() -> impl Strategy<Value = Key> {
        let id = prop_oneof![0..4u64, any::<u64>()];
        prop_oneof![
            proptest::sample::select(Counter::ALL.to_vec()).prop_map(Key::Counter),
            id.clone().prop_map(|n| Key::Session(SessionId(n))),
            (id.clone(), any::<u16>()).prop_map(|(n, slot)| Key::Outcome(SessionId(n), slot)),
            any::<u32>().prop_map(|n| Key::Realm(Realm(n))),
            any::<u32>().prop_map(|n| Key::Principal(PrincipalId(n))),
            any::<u32>().prop_map(|n| Key::Account(PrincipalId(n))),
            id.clone().prop_map(|n| Key::Invite(InviteId(n))),
            id.clone().prop_map(Key::StartKey),
            id.clone().prop_map(|n| Key::Object(ObjectId(n))),
            (id.clone(), proptest::collection::vec(any::<u8>(), 1..5)).prop_map(|(n, name)| Key::Entry(ObjectId(n), name.into())),
            (id.clone(), any::<u32>()).prop_map(|(n, block)| Key::Block(ObjectId(n), block)),
            id.clone().prop_map(|n| Key::Xattrs(ObjectId(n))),
            id.clone().prop_map(|n| Key::Lease(ObjectId(n))),
            (id.clone(), id).prop_map(|(n, object)| Key::Ephemeral(Handle(n), ObjectId(object))),
        ]
    }

    proptest! {
        #[test]
        fn every_key_comes_back_from_its_bytes(key in any_key()) {
            let bytes = key.to_bytes();
            prop_assert_eq!(bytes.len(), key.encoded_len());
            prop_assert_eq!(Key::from_bytes(&bytes), Ok(key));
        }

        #[test]
        fn byte_order_is_key_order(a in any_key(), b in any_key()) {
            prop_assert_eq!(a.to_bytes().cmp(&b.to_bytes()), a.cmp(&b));
        }

        #[test]
        fn bytes_that_parse_are_the_bytes_of_that_key(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            if let Ok(key) = Key::from_bytes(&bytes) {
                prop_assert_eq!(key.to_bytes(), bytes);
            }
        }
    }

    //= docs/sealed.md#joining-rosters
    //= type=test
    //# A restored store MUST have no invites: those of the copy may have been spent or withdrawn since.
    #[test]
    fn all_but_secrets_is_copied() {
        assert!(!Key::is_copied(&Key::Invite(InviteId(7)).to_bytes()) && !Key::is_copied(&Key::StartKey(7).to_bytes()));
        assert!(Key::is_copied(&Key::Principal(PrincipalId(7)).to_bytes()) && Key::is_copied(&Key::Counter(Counter::Clock).to_bytes()));
    }

    #[test]
    fn entries_of_a_directory_share_its_prefix_and_nothing_else_does() {
        let prefix = Key::entry_prefix(ObjectId(7));
        assert!(Key::Entry(ObjectId(7), (*b"a").into()).to_bytes().starts_with(&prefix));
        assert!(!Key::Entry(ObjectId(8), (*b"a").into()).to_bytes().starts_with(&prefix));
        assert!(!Key::Object(ObjectId(7)).to_bytes().starts_with(&prefix));
    }

    #[test]
    fn damaged_keys_are_errors() {
        for bytes in
            [&b""[..], &[COUNTER], &[COUNTER, 99], &[COUNTER, 1, 1], &[REALM, 0, 0, 1], &[OBJECT, 0], &[0x77, 0, 0, 0, 0, 0, 0, 0, 1]]
        {
            assert_eq!(Key::from_bytes(bytes), Err(KeyError), "{bytes:?}");
        }
        let nameless = Key::entry_prefix(ObjectId(1));
        assert_eq!(Key::from_bytes(&nameless), Err(KeyError));
    }
}
