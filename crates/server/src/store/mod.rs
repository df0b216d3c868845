//! The seam between the server's core and its store: what is asked, what is written, what is answered.
//!
//! Decides: the keys and their order, the record formats, and what the core knows of the store at any moment ([`StoreCache`]:
//! values loaded, overlaid by the writes of batches in flight). Place in the walk: an operation reads and writes through a
//! [`View`]; what is not in memory becomes a [`Query`], what was written becomes a [`Batch`]. Implements `wire-spec.md`
//! section 11.7.
//! Invariant: nobody can read a value without learning the newest batch on whose durability it rests, and a value
//! loaded never takes the place of a newer one.
//! Leaves to others: the engine that keeps the bytes (`cistern-store`), and when replies leave (the machine).

mod account;
mod address;
mod cache;
mod directory;
mod ephemeral;
mod in_memory;
mod invite;
mod key;
mod loading;
mod objects;
mod principal;
mod realm;
mod record;
mod start_key;
#[cfg(test)]
pub(crate) mod tests;
mod view;

pub use crate::ids::Bound;
pub use account::AccountRecord;
pub use cache::{Memory, StoreCache};
pub use ephemeral::{EphemeralRecord, LeaseRecord};
pub use invite::{InviteRecord, InviteUse};
pub use key::{Counter, FIRST_EPOCH, ID_BITS, Key, KeyError, NEW_CLUSTER, REALM_BITS, RESTORED, WAIT_MAX_US};
pub use principal::{EarlierKeys, PrincipalRecord};
pub use realm::RealmRecord;
pub use record::{EntryRecord, ObjectRecord, OutcomeRecord, RecordError, SessionRecord, XattrRecord, counter_from_bytes, counter_to_bytes};
pub use start_key::{start_key_from_bytes, start_key_to_bytes};
pub use view::{ReadError, Seen, View};

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::ObjectId;

/// Bytes of contents in one block of a file. The last one is shorter, and what is missing reads as zeros.
pub const BLOCK_LEN: usize = 64 * 1024;

/// Number of a batch: 1, 2, 3, ... since the server started. The store makes batches durable in this order.
pub type BatchId = u64;

/// What the core wants to know of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    /// The value of one key → [`Answer::Value`].
    Get(Key),
    /// The first `limit` entries of a directory after a name, in byte order → [`Answer::Entries`].
    Scan {
        /// The directory.
        dir: ObjectId,
        /// The name after which it begins; empty: from the first.
        after: Box<[u8]>,
        /// Most entries wanted, at least 1.
        limit: u32,
    },
    /// The first `limit` records after a key, of its kind, in order of their keys → [`Answer::Records`].
    Records {
        /// The key after which it begins; there need not be such a record.
        after: Key,
        /// Most records wanted, at least 1.
        limit: u32,
    },
}

/// What the store says to a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value, if the key exists.
    Value(Option<Bytes>),
    /// Entries of a directory.
    Entries {
        /// Name and value, in byte order of the names.
        entries: Vec<(Box<[u8]>, Bytes)>,
        /// Whether the directory has no entry after these.
        end: bool,
    },
    /// Records of one kind.
    Records {
        /// Key and value, in order of the keys.
        records: Vec<(Key, Bytes)>,
        /// Whether there is none of that kind after these.
        end: bool,
    },
    /// The store could not read it; operations that need it fail with EIO.
    Failed,
}

/// One question answered. A store answers every question once, in any order, from a state that holds every batch it has
/// reported durable before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The question, as it was asked.
    pub query: Query,
    /// The answer.
    pub answer: Answer,
}

/// Writes that become durable together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its number.
    pub id: BatchId,
    /// Each key written, once, and its new value; `None`: it is deleted.
    pub writes: Vec<(Key, Option<Bytes>)>,
}

/// What the machine hands to the store's driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreWork {
    /// Questions, each to be answered by [`StoreEvent::Loaded`].
    Load(Vec<Query>),
    /// A batch to be made durable, then reported by [`StoreEvent::Durable`].
    Persist(Batch),
}

/// What the store's driver tells the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// A question is answered.
    Loaded(Loaded),
    /// This batch and all before it are durable.
    Durable(BatchId),
    /// Whether the store has room for more; until it says otherwise it has. Without room only what takes something away is executed.
    Room(bool),
    /// A write or sync failed: the server must stop (section 11.7). The text says what failed, where, and what to do.
    Broken(alloc::string::String),
}

/// Items by the batch for which they wait; those of one batch leave in order of arrival.
#[derive(Debug)]
pub(crate) struct AfterCommit<T>(BTreeMap<BatchId, Vec<T>>);

impl<T> AfterCommit<T> {
    /// Nothing waits.
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Keeps an item until `batch` is durable.
    pub(crate) fn push(&mut self, batch: BatchId, item: T) {
        self.0.entry(batch).or_default().push(item);
    }

    /// Takes what waits for the oldest batch, if that is not above `durable`.
    pub(crate) fn pop(&mut self, durable: BatchId) -> Option<Vec<T>> {
        self.0.first_entry().filter(|first| *first.key() <= durable).map(|first| first.remove())
    }

    /// How many wait; a gauge.
    pub(crate) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}
