//! What an item of a mutation sees: the store, under what the items before it are about to change.
//!
//! Decides: that the items of a batch follow each other, although none has had an effect yet. Place in the walk: asked by the drafts of
//! all operations. Implements `wire-spec.md` section 6.2 (BATCH).
//! Invariant: what was drafted hides what is stored; of an object that the batch makes nothing is asked of the store.
//! Leaves to others: what is drafted (`draft`).

use super::draft::{Draft, Fate, Touched};
use crate::store::{EntryRecord, ObjectRecord, ReadError, View};
use cistern_wire::{Attr, ObjectId, ObjectKind, Status};

impl Draft {
    /// The object that a request names: by its number, or as what an item before was about. ESTALE if there is no such item.
    pub(super) fn named(&self, object: ObjectId) -> Result<ObjectId, Status> {
        match object.maker() {
            Some(item) => self.subjects.get(item).copied().ok_or(Status::ESTALE),
            None => Ok(object),
        }
    }

    /// What is drafted of an object.
    pub(super) fn own(&self, object: ObjectId) -> Option<&Touched> {
        self.touched.iter().find(|touched| touched.record.attr.object == object)
    }

    /// An object's record; `None`: there is no such object.
    pub(super) fn object<'d>(&'d self, view: &'d View<'_>, object: ObjectId) -> Result<Option<&'d ObjectRecord>, ReadError> {
        match self.own(object) {
            Some(touched) => Ok(touched.exists().then_some(&touched.record)),
            None => view.object(object),
        }
    }

    /// An object named by its id.
    pub(super) fn known(&self, view: &View<'_>, object: ObjectId) -> Result<Attr, ReadError> {
        self.object(view, object)?.map(|record| record.attr).ok_or(ReadError::Failed(Status::ESTALE))
    }

    /// A directory named by its id.
    pub(super) fn directory(&self, view: &View<'_>, dir: ObjectId) -> Result<Attr, ReadError> {
        let attr = self.known(view, dir)?;
        if attr.kind == ObjectKind::Directory { Ok(attr) } else { Err(ReadError::Failed(Status::ENOTDIR)) }
    }

    /// An object that an entry names: it must be there.
    pub(super) fn entered<'d>(&'d self, view: &'d View<'_>, object: ObjectId) -> Result<&'d ObjectRecord, ReadError> {
        self.object(view, object)?.ok_or(ReadError::Failed(Status::EIO))
    }

    /// What a name in a directory names; `None`: it does not exist.
    pub(super) fn entry(&self, view: &View<'_>, dir: ObjectId, name: &[u8]) -> Result<Option<EntryRecord>, ReadError> {
        match self.entries.iter().find(|entry| entry.0 == dir && entry.1 == name) {
            Some((_, _, entry)) => Ok(*entry),
            None if self.own(dir).is_some_and(|dir| matches!(dir.fate, Fate::Made | Fate::Never)) => Ok(None),
            None => view.entry(dir, name),
        }
    }

    /// Takes an existing object in; gives its place in the draft.
    pub(super) fn show(&mut self, view: &View<'_>, object: ObjectId) -> Result<usize, ReadError> {
        if let Some(at) = self.touched.iter().position(|touched| touched.record.attr.object == object) {
            return Ok(at);
        }
        let record = view.object(object)?.ok_or(ReadError::Failed(Status::ESTALE))?.clone();
        self.touched.push(Touched { before: record.attr.version, record, fate: Fate::Shown });
        Ok(self.touched.len() - 1)
    }
}
