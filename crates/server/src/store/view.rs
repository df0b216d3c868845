//! What one run of one operation sees of the store, and what it writes.
//!
//! Decides: whether an operation can go on with what is in memory. Place in the walk: between the namespace and the overlay.
//! Nothing of it is on the wire.
//! Invariant: every read and write is counted in [`View::rests_on`], so a reply cannot reveal what is not durable without the
//! machine knowing (R61).
//! Leaves to others: the order of reads and writes (`namespace`): all reads first, so that nothing has happened when one lacks.

use super::directory::{Directory, Page};
use super::overlay::{Overlay, XATTRS};
use super::slot::Known;
use super::{BatchId, Counter, EntryRecord, EphemeralRecord, Key, ObjectRecord, OutcomeRecord, Query, XattrRecord};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{Handle, ObjectId, SessionId, Status};
use core::cell::Cell;

/// Why an operation cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// These values are not in memory.
    Missing(Vec<Query>),
    /// It has failed.
    Failed(Status),
}

impl From<Status> for Lack {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

/// The store as one run of one operation sees it.
#[derive(Debug)]
pub struct View<'o> {
    overlay: &'o mut Overlay,
    newest: Cell<BatchId>,
}

impl<'o> View<'o> {
    pub(super) const fn new(overlay: &'o mut Overlay) -> Self {
        Self { overlay, newest: Cell::new(0) }
    }

    /// The newest batch on which anything read or written through this view rests, if that is not durable yet: what reveals it
    /// has to wait until it is (R61).
    #[must_use]
    pub fn rests_on(&self) -> Option<BatchId> {
        Some(self.newest.get()).filter(|batch| *batch > self.overlay.durable_up_to())
    }

    /// An object's record; `None`: there is no such object.
    ///
    /// # Errors
    /// [`Lack`]: not in memory, or unreadable (EIO).
    pub fn object(&self, id: ObjectId) -> Result<Option<&ObjectRecord>, Lack> {
        let slot = self.overlay.object(id).ok_or_else(|| missing(Key::Object(id)))?;
        slot.used.set(true);
        self.seen(&slot.known, slot.batch)
    }

    /// What a name in a directory names; `None`: it does not exist.
    ///
    /// # Errors
    /// As [`Self::object`].
    pub fn entry(&self, dir: ObjectId, name: &[u8]) -> Result<Option<EntryRecord>, Lack> {
        let known = self.overlay.entries_of(dir).and_then(|directory| directory.get(name));
        let (known, batch) = known.ok_or_else(|| missing(Key::Entry(dir, name.into())))?;
        self.seen(&known, batch).map(Option::<&_>::copied)
    }

    /// Makes sure that the first `max` entries after a name, or all to the end, can be read by [`Self::entries`].
    ///
    /// # Errors
    /// [`Lack`]: not in memory, or unreadable (EIO).
    pub fn know_entries(&self, dir: ObjectId, after: &[u8], max: usize) -> Result<(), Lack> {
        let limit = u32::try_from(max).unwrap_or(u32::MAX).max(1);
        let scan = |after: Box<[u8]>| Lack::Missing(vec![Query::Scan { dir, after, limit }]);
        let directory = self.overlay.entries_of(dir).ok_or_else(|| scan(after.into()))?;
        if directory.broken {
            return Err(Lack::Failed(Status::EIO));
        }
        match directory.page(after, max) {
            Page::Known { newest } => {
                self.rest(newest);
                Ok(())
            }
            Page::After(name) => Err(scan(name)),
        }
    }

    /// The entries after a name, in byte order; only those that [`Self::know_entries`] has made sure of are to be read.
    pub fn entries(&self, dir: ObjectId, after: &[u8]) -> impl Iterator<Item = (&[u8], EntryRecord)> {
        self.overlay.entries_of(dir).map(|directory: &Directory| directory.entries(after)).into_iter().flatten()
    }

    /// A block of contents; `None`: it is all zeros.
    ///
    /// # Errors
    /// [`Lack`]: not in memory, or unreadable (EIO).
    pub fn block(&self, id: ObjectId, n: u32) -> Result<Option<&Bytes>, Lack> {
        let slot = self.overlay.block(id, n).ok_or_else(|| missing(Key::Block(id, n)))?;
        slot.used.set(true);
        self.seen(&slot.known, slot.batch)
    }

    /// All extended attributes of an object; `None`: it has none.
    ///
    /// # Errors
    /// [`Lack`]: not in memory, or unreadable (EIO).
    pub fn xattrs(&self, id: ObjectId) -> Result<Option<XattrRecord>, Lack> {
        let slot = self.overlay.block(id, XATTRS).ok_or_else(|| missing(Key::Xattrs(id)))?;
        slot.used.set(true);
        let Some(bytes) = self.seen(&slot.known, slot.batch)? else { return Ok(None) };
        XattrRecord::from_bytes(bytes.clone()).map(Some).map_err(|_| Lack::Failed(Status::EIO))
    }

    /// A counter; 0 when it was never written.
    ///
    /// # Errors
    /// [`Lack`]: not in memory, or unreadable (EIO).
    pub fn counter(&self, counter: Counter) -> Result<u64, Lack> {
        let slot = self.overlay.counter(counter).ok_or_else(|| missing(Key::Counter(counter)))?;
        self.seen(&slot.known, slot.batch).map(|value| value.copied().unwrap_or(0))
    }

    /// What the store has in a slot of a session of an earlier start; `None`: nothing.
    ///
    /// # Errors
    /// As [`Self::object`].
    pub fn outcome(&self, session: SessionId, slot: u16) -> Result<Option<&OutcomeRecord>, Lack> {
        let known = self.overlay.outcome(session, slot).ok_or_else(|| missing(Key::Outcome(session, slot)))?;
        self.seen(known, 0)
    }

    /// Counts a value as seen.
    fn seen<'v, T>(&self, known: &'v Known<T>, batch: BatchId) -> Result<Option<&'v T>, Lack> {
        self.rest(batch);
        match known {
            Known::Present(value) => Ok(Some(value)),
            Known::Absent => Ok(None),
            Known::Broken => Err(Lack::Failed(Status::EIO)),
        }
    }

    fn rest(&self, batch: BatchId) {
        self.newest.set(self.newest.get().max(batch));
    }

    fn wrote(&self) {
        self.rest(self.overlay.open_batch());
    }
}

/// Writes, all into the open batch. Only for an operation that has read all that it needs.
impl View<'_> {
    pub(crate) fn put_object(&mut self, record: ObjectRecord) {
        self.wrote();
        self.overlay.write_object(record.attr.object, Some(record));
    }

    pub(crate) fn delete_object(&mut self, id: ObjectId) {
        self.wrote();
        self.overlay.write_object(id, None);
    }

    pub(crate) fn put_entry(&mut self, dir: ObjectId, name: &[u8], entry: EntryRecord) {
        self.wrote();
        self.overlay.write_entry(dir, name, Some(entry));
    }

    pub(crate) fn delete_entry(&mut self, dir: ObjectId, name: &[u8]) {
        self.wrote();
        self.overlay.write_entry(dir, name, None);
    }

    /// An ephemeral file that the session `made_by` has made is bound to a session; `None`: the file is gone.
    pub(crate) fn bind_ephemeral(&mut self, made_by: Handle, object: ObjectId, bound: Option<SessionId>) {
        self.wrote();
        let record = bound.map(|bound| EphemeralRecord { bound }.to_bytes().into());
        self.overlay.put(Key::Ephemeral(made_by, object), record);
    }

    /// `None`: it is all zeros from now on.
    pub(crate) fn put_block(&mut self, id: ObjectId, n: u32, bytes: Option<Bytes>) {
        self.wrote();
        self.overlay.write_block(id, n, bytes);
    }

    /// `None`: it has none from now on.
    pub(crate) fn put_xattrs(&mut self, id: ObjectId, record: Option<XattrRecord>) {
        self.wrote();
        self.overlay.write_block(id, XATTRS, record.map(XattrRecord::into_bytes));
    }

    pub(crate) fn set_counter(&mut self, counter: Counter, value: u64) {
        self.wrote();
        self.overlay.set_counter(counter, value);
    }

    /// A directory that was just made: nothing about its entries has to be asked.
    pub(crate) fn new_directory(&mut self, dir: ObjectId) {
        self.overlay.new_directory(dir);
    }
}

fn missing(key: Key) -> Lack {
    Lack::Missing(vec![Query::Get(key)])
}
