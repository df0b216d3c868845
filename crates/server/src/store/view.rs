//! What one run of one operation sees of the store, and what it writes.
//!
//! Decides: whether an operation can go on with what is in memory.
//! Invariant: no value is read or written without a [`Seen`] noting its batch, so a reply cannot reveal what is not durable without
//! the machine knowing (`wire-spec.md` section 11.7).
//! Leaves to others: the order of reads and writes (`namespace`): all reads first, so that nothing has happened when one is not cached.

use super::cache::{Known, StoreCache, XATTRS};
use super::directory::{Directory, Page};
use super::{
    AccountRecord, BatchId, Counter, EntryRecord, EphemeralRecord, Key, LeaseRecord, ObjectRecord, OutcomeRecord, Query, RealmRecord,
    XattrRecord,
};
use crate::ids::{Bound, PrincipalId};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{Handle, ObjectId, Realm, SessionId, Status};
use core::cell::Cell;
use core::ops::Bound::{Excluded, Unbounded};

/// Why an operation cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// These values are not in memory.
    NotCached(Vec<Query>),
    /// It has failed.
    Failed(Status),
}

impl From<Status> for ReadError {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

/// The newest batch that one run of an operation has read or written; noted by every [`View`] that is made with it.
#[derive(Debug, Default)]
pub struct Seen {
    newest: Cell<BatchId>,
    looks: Cell<u32>,
}

impl Seen {
    /// The batch that must be durable before the run's reply may leave; `None`: all that it has seen is durable.
    #[must_use]
    pub fn depends_on(&self, store: &StoreCache) -> Option<BatchId> {
        Some(self.newest.get()).filter(|batch| *batch > store.durable_up_to())
    }

    /// Notes all that another run has seen.
    pub(crate) fn note_all(&self, other: &Self) {
        self.note(other.newest.get());
        self.looks.set(self.looks.get() + other.looks.get());
    }

    /// Notes a batch. Beside views only who has written with [`StoreCache::put`] needs it.
    pub(crate) fn note(&self, batch: BatchId) {
        self.newest.set(self.newest.get().max(batch));
        self.looks.set(self.looks.get() + 1);
    }

    /// How often the run has read or written a value.
    pub(crate) const fn looks(&self) -> u32 {
        self.looks.get()
    }
}

/// The store as one run of one operation sees it.
#[derive(Debug)]
pub struct View<'a> {
    cache: &'a mut StoreCache,
    seen: &'a Seen,
    /// Bytes of contents and extended attributes that were written.
    contents: usize,
}

impl<'a> View<'a> {
    pub(super) const fn new(cache: &'a mut StoreCache, seen: &'a Seen) -> Self {
        Self { cache, seen, contents: 0 }
    }

    /// An object's record; `None`: there is no such object.
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    #[inline]
    pub fn object(&self, id: ObjectId) -> Result<Option<&ObjectRecord>, ReadError> {
        let slot = self.cache.object(id).ok_or_else(|| missing(Key::Object(id)))?;
        slot.used.set(true);
        self.note(&slot.known, slot.batch)
    }

    /// What a name in a directory names; `None`: it does not exist.
    ///
    /// # Errors
    /// As [`Self::object`].
    pub fn entry(&self, dir: ObjectId, name: &[u8]) -> Result<Option<EntryRecord>, ReadError> {
        let known = self.cache.entries_of(dir).and_then(|directory| directory.get(name));
        let (known, batch) = known.ok_or_else(|| missing(Key::Entry(dir, name.into())))?;
        self.note(&known, batch).map(Option::<&_>::copied)
    }

    /// Makes sure that the first `max` entries after a name, or all to the end, can be read by [`Self::entries`].
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    pub fn know_entries(&self, dir: ObjectId, after: &[u8], max: usize) -> Result<(), ReadError> {
        let limit = u32::try_from(max).unwrap_or(u32::MAX).max(1);
        let scan = |after: Box<[u8]>| ReadError::NotCached(vec![Query::Scan { dir, after, limit }]);
        let directory = self.cache.entries_of(dir).ok_or_else(|| scan(after.into()))?;
        if directory.broken {
            return Err(ReadError::Failed(Status::EIO));
        }
        match directory.page(after, max) {
            Page::Known { newest } => {
                self.seen.note(newest);
                Ok(())
            }
            Page::After(name) => Err(scan(name)),
        }
    }

    /// The entries after a name, in byte order; only those that [`Self::know_entries`] has made sure of are to be read.
    pub fn entries(&self, dir: ObjectId, after: &[u8]) -> impl Iterator<Item = (&[u8], EntryRecord)> {
        self.cache.entries_of(dir).map(|directory: &Directory| directory.entries(after)).into_iter().flatten()
    }

    /// A block of contents; `None`: it is all zeros.
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    pub fn block(&self, id: ObjectId, n: u32) -> Result<Option<&Bytes>, ReadError> {
        let slot = self.cache.block(id, n).ok_or_else(|| missing(Key::Block(id, n)))?;
        slot.used.set(true);
        self.note(&slot.known, slot.batch)
    }

    /// All extended attributes of an object; `None`: it has none.
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    pub fn xattrs(&self, id: ObjectId) -> Result<Option<XattrRecord>, ReadError> {
        let slot = self.cache.block(id, XATTRS).ok_or_else(|| missing(Key::Xattrs(id)))?;
        slot.used.set(true);
        let Some(bytes) = self.note(&slot.known, slot.batch)? else { return Ok(None) };
        XattrRecord::from_bytes(bytes.clone()).map(Some).map_err(|_| ReadError::Failed(Status::EIO))
    }

    /// A counter; 0 when it was never written.
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    pub fn counter(&self, counter: Counter) -> Result<u64, ReadError> {
        let slot = self.cache.counter(counter).ok_or_else(|| missing(Key::Counter(counter)))?;
        self.note(&slot.known, slot.batch).map(|value| value.copied().unwrap_or(0))
    }

    /// The record of a realm within that of the tree.
    ///
    /// # Errors
    /// [`ReadError`]: there is no such realm (EIO), for only what is damaged names one that is gone.
    pub fn realm(&self, realm: Realm) -> Result<&RealmRecord, ReadError> {
        let slot = self.cache.realms.get(&realm).ok_or(ReadError::Failed(Status::EIO))?;
        self.note(&slot.known, slot.batch)?.ok_or(ReadError::Failed(Status::EIO))
    }

    /// The realms within that of the tree, after one, by number.
    pub fn realms(&self, after: Realm) -> impl Iterator<Item = (Realm, &RealmRecord)> {
        let realms = self.cache.realms.range((Excluded(after), Unbounded));
        realms.filter_map(|(realm, slot)| Some((*realm, self.note(&slot.known, slot.batch).ok()??)))
    }

    /// What a principal has made, and how much it may.
    ///
    /// # Errors
    /// [`ReadError`]: it cannot be read.
    pub fn account(&self, who: PrincipalId) -> Result<AccountRecord, ReadError> {
        let Some(slot) = self.cache.accounts.get(&who) else { return Ok(AccountRecord::default()) };
        Ok(self.note(&slot.known, slot.batch)?.copied().unwrap_or_default())
    }

    /// How many realms there are within that of the tree.
    #[must_use]
    pub fn realm_count(&self) -> usize {
        self.cache.realms.len() - self.cache.realms_gone
    }

    /// What the store has in a slot of a session of an earlier start; `None`: nothing.
    ///
    /// # Errors
    /// As [`Self::object`].
    pub fn outcome(&self, session: SessionId, slot: u16) -> Result<Option<&OutcomeRecord>, ReadError> {
        let known = self.cache.outcome(session, slot).ok_or_else(|| missing(Key::Outcome(session, slot)))?;
        self.note(known, 0)
    }

    /// Notes a value as seen.
    fn note<'v, T>(&self, known: &'v Known<T>, batch: BatchId) -> Result<Option<&'v T>, ReadError> {
        self.seen.note(batch);
        match known {
            Known::Present(value) => Ok(Some(value)),
            Known::Absent => Ok(None),
            Known::Broken => Err(ReadError::Failed(Status::EIO)),
        }
    }

    fn wrote(&self) {
        self.seen.note(self.cache.open_batch());
    }
}

/// Writes, all into the open batch. Only for an operation that has read all that it needs.
impl View<'_> {
    pub(crate) fn put_object(&mut self, record: ObjectRecord) {
        self.wrote();
        self.cache.write_object(record.attr.object, Some(record));
    }

    pub(crate) fn delete_object(&mut self, id: ObjectId) {
        self.wrote();
        self.cache.write_object(id, None);
    }

    pub(crate) fn put_entry(&mut self, dir: ObjectId, name: &[u8], entry: EntryRecord) {
        self.wrote();
        self.cache.write_entry(dir, name, Some(entry));
    }

    pub(crate) fn delete_entry(&mut self, dir: ObjectId, name: &[u8]) {
        self.wrote();
        self.cache.write_entry(dir, name, None);
    }

    /// An ephemeral file of this `owner` is bound to a session or a named lease; `None`: the file is gone.
    pub(crate) fn bind_ephemeral(&mut self, owner: Handle, object: ObjectId, bound: Option<Bound>) {
        self.wrote();
        let record = bound.map(|bound| EphemeralRecord { bound }.to_bytes().into());
        self.cache.put(Key::Ephemeral(owner, object), record);
    }

    /// The record of a named lease; `None`: it ends.
    pub(crate) fn put_lease(&mut self, lease: ObjectId, record: Option<LeaseRecord>) {
        self.wrote();
        self.cache.put(Key::Lease(lease), record.map(|record| record.to_bytes().into()));
    }

    /// `None`: it is all zeros from now on.
    pub(crate) fn put_block(&mut self, id: ObjectId, n: u32, bytes: Option<Bytes>) {
        self.wrote();
        self.contents += bytes.as_ref().map_or(0, Bytes::len);
        self.cache.write_block(id, n, bytes);
    }

    /// `None`: it has none from now on.
    pub(crate) fn put_xattrs(&mut self, id: ObjectId, record: Option<XattrRecord>) {
        self.wrote();
        let bytes = record.map(XattrRecord::into_bytes);
        self.contents += bytes.as_ref().map_or(0, Bytes::len);
        self.cache.write_block(id, XATTRS, bytes);
    }

    /// Bytes of blocks and extended attributes that were written.
    pub(crate) const fn contents_written(&self) -> usize {
        self.contents
    }

    pub(crate) fn set_counter(&mut self, counter: Counter, value: u64) {
        self.wrote();
        self.cache.set_counter(counter, value);
    }

    /// `None`: the realm is gone.
    pub(crate) fn put_realm(&mut self, realm: Realm, record: Option<RealmRecord>) {
        self.wrote();
        self.cache.write_realm(realm, record);
    }

    pub(crate) fn put_account(&mut self, who: PrincipalId, record: AccountRecord) {
        self.wrote();
        self.cache.write_account(who, record);
    }

    /// A directory that was just made: nothing about its entries has to be asked.
    pub(crate) fn new_directory(&mut self, dir: ObjectId) {
        self.cache.new_directory(dir);
    }
}

#[cold]
fn missing(key: Key) -> ReadError {
    ReadError::NotCached(vec![Query::Get(key)])
}
