//! What is true of objects and names, from the batches that the server hands to its store.
//!
//! Decides, for each object, which versions it had from when on, what was in each, and when each became durable; and for each name
//! what it named when. Place in the walk: brought up to date before the families look. A crash takes back what was not durable, a
//! restored copy everything.
//! Invariant: only `Persisted`, `Durable`, and the disk after a start are read; never what the server tells its agents.
//! Leaves to others: comparing it with what was told (`reads`, `once`, `durable`).

use super::case::Case;
use crate::observe::{Node, Seen, True};
use bytes::Bytes;
use cistern_server::store::{Batch, BatchId, Key};
use cistern_wire::{ObjectId, ObjectKind, Reader};
use std::collections::{BTreeMap, VecDeque};

/// A version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) version: u64,
    /// When it was handed to the store, and when it became durable.
    pub(super) written: True,
    pub(super) durable: Option<True>,
    /// What is in it, for a small file.
    pub(super) content: Option<Bytes>,
}

/// An object over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Object {
    pub(super) versions: Vec<Version>,
    /// Since when nothing of it is left, and whether that is durable.
    gone: Option<True>,
    gone_durably: bool,
    first_block: Option<Bytes>,
}

/// What a name named from some moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Naming {
    pub(super) object: Option<ObjectId>,
    pub(super) written: True,
    pub(super) durable: Option<True>,
    /// Versions of the directory before and after the batch that changed it.
    pub(super) between: (u64, u64),
}

/// Names in one directory, each with what it named over time.
type Directory = BTreeMap<Box<[u8]>, Vec<Naming>>;

/// All objects and names.
#[derive(Clone, Debug, Default)]
pub(super) struct Truth {
    objects: BTreeMap<ObjectId, Object>,
    directories: BTreeMap<ObjectId, Directory>,
    /// Batches that are not durable: what they write, and whether it is there afterwards.
    pending: VecDeque<(BatchId, Vec<(Key, bool)>)>,
    /// When the store was last replaced by an older copy.
    pub(super) restored: Option<True>,
}

impl Truth {
    pub(super) fn object(&self, object: ObjectId) -> Option<&Object> {
        self.objects.get(&object)
    }

    /// What a name has named, oldest first.
    pub(super) fn names(&self, dir: ObjectId, name: &[u8]) -> &[Naming] {
        self.directories.get(&dir).and_then(|names| names.get(name)).map_or(&[], Vec::as_slice)
    }

    /// Every name that a directory ever had.
    pub(super) fn names_of(&self, dir: ObjectId) -> impl Iterator<Item = (&[u8], &[Naming])> {
        self.directories.get(&dir).into_iter().flatten().map(|(name, namings)| (&name[..], namings.as_slice()))
    }

    /// Directory and last name of a path whose directories never changed.
    pub(super) fn place<'p>(&self, path: &'p [u8]) -> Option<(ObjectId, &'p [u8])> {
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
        let mut dir = ObjectId(cistern_wire::limits::ROOT);
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                return Some((dir, name));
            }
            let [only] = self.names(dir, name) else { return None };
            dir = only.object?;
        }
        None
    }

    /// The object of a path whose every name was given once.
    pub(super) fn object_of(&self, path: &[u8]) -> Option<ObjectId> {
        let (dir, name) = self.place(path)?;
        match self.names(dir, name) {
            [only] => only.object,
            _ => None,
        }
    }

    /// Takes one happening in.
    pub(super) fn note(&mut self, case: &Case<'_>) {
        match case.seen {
            Seen::Persisted { batch } => self.persisted(batch, case.sight.now),
            Seen::Durable { batch } => self.durable(*batch, case.sight.now),
            Seen::Started { node: Node::Server, .. } => self.recovered(case),
            Seen::Restored => {
                *self = Self { restored: Some(case.sight.now), ..Self::default() };
                self.load(case);
            }
            _ => {}
        }
    }

    fn persisted(&mut self, batch: &Batch, now: True) {
        for (key, value) in &batch.writes {
            if let Key::Block(object, 0) = key {
                self.objects.entry(*object).or_default().first_block = value.clone();
            }
        }
        // Versions of the directories before the batch, for the names in it.
        let before = |truth: &Self, dir: ObjectId| truth.objects.get(&dir).map_or(0, Object::newest);
        let names: Vec<_> = batch.writes.iter().filter_map(|(key, value)| entry(key, value.as_ref())).collect();
        let names: Vec<_> = names.into_iter().map(|(dir, name, object)| (dir, name, object, before(self, dir))).collect();
        for (key, value) in &batch.writes {
            if let Key::Object(object) = key {
                self.wrote(*object, value.as_ref(), now, None);
            }
        }
        for (dir, name, object, before) in names {
            let between = (before, self.objects.get(&dir).map_or(0, Object::newest));
            let naming = Naming { object, written: now, durable: None, between };
            self.directories.entry(dir).or_default().entry(name.into()).or_default().push(naming);
        }
        self.pending.push_back((batch.id, batch.writes.iter().map(|(key, value)| (key.clone(), value.is_some())).collect()));
    }

    fn wrote(&mut self, id: ObjectId, value: Option<&Bytes>, now: True, durable: Option<True>) {
        let object = self.objects.entry(id).or_default();
        let Some(record) = value.and_then(|bytes| StoredObject::read(bytes)) else {
            object.gone = Some(now);
            return;
        };
        (object.gone, object.gone_durably) = (None, false);
        let content = (record.kind == ObjectKind::File).then(|| object.content(record.size)).flatten();
        object.versions.push(Version { version: record.version, written: now, durable, content });
    }

    fn durable(&mut self, batch: BatchId, now: True) {
        while self.pending.front().is_some_and(|(id, _)| *id <= batch) {
            let Some((_, keys)) = self.pending.pop_front() else { return };
            for (key, is_there) in keys {
                match key {
                    Key::Object(id) if is_there => {
                        if let Some(version) = self.objects.get_mut(&id).and_then(|o| o.versions.iter_mut().find(|v| v.durable.is_none())) {
                            version.durable = Some(now);
                        }
                    }
                    Key::Object(id) => {
                        if let Some(object) = self.objects.get_mut(&id) {
                            object.gone_durably = object.is_gone();
                        }
                    }
                    Key::Entry(dir, name) => {
                        let namings = self.directories.get_mut(&dir).and_then(|names| names.get_mut(&name));
                        if let Some(naming) = namings.and_then(|all| all.iter_mut().find(|naming| naming.durable.is_none())) {
                            naming.durable = Some(now);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// After a start of the server: of what was not durable, the disk tells what is left.
    fn recovered(&mut self, case: &Case<'_>) {
        let now = case.sight.now;
        let touched: Vec<_> = self.pending.drain(..).flat_map(|(_, keys)| keys).collect();
        for (key, _) in touched {
            match &key {
                Key::Block(id, 0) => {
                    if let Some(object) = self.objects.get_mut(id) {
                        object.first_block = case.sight.disk.durable(&key).cloned();
                    }
                }
                Key::Object(id) => {
                    let left = case.sight.disk.durable(&key).and_then(|bytes| StoredObject::read(bytes)).map(|record| record.version);
                    let Some(object) = self.objects.get_mut(id) else { continue };
                    // Where its removal was on the way too, both may have reached the disk: what made it was then done, and may be told.
                    let removed = left.is_none() && object.gone.is_some();
                    let reached = |version: &Version| removed || left.is_some_and(|left| version.version <= left);
                    object.versions.retain(|version| version.durable.is_some() || reached(version));
                    object.versions.iter_mut().for_each(|version| version.durable = version.durable.or(Some(now)));
                    object.gone = if left.is_none() { object.gone.or(Some(now)) } else { None };
                    object.gone_durably = object.is_gone();
                }
                Key::Entry(dir, name) => {
                    let left = case.sight.disk.durable(&key).and_then(|bytes| named(bytes));
                    let Some(namings) = self.directories.get_mut(dir).and_then(|names| names.get_mut(name)) else { continue };
                    // What was written last of what reached the disk; the rest never was.
                    while namings.last().is_some_and(|last| last.durable.is_none() && last.object != left) {
                        namings.pop();
                    }
                    namings.iter_mut().for_each(|naming| naming.durable = naming.durable.or(Some(now)));
                }
                _ => {}
            }
        }
    }

    /// Everything as it is on the disk.
    fn load(&mut self, case: &Case<'_>) {
        let now = case.sight.now;
        let values: Vec<(Key, Bytes)> = case.sight.disk.durable_values().map(|(key, value)| (key.clone(), value.clone())).collect();
        for (key, value) in &values {
            if let Key::Block(id, 0) = key {
                self.objects.entry(*id).or_default().first_block = Some(value.clone());
            }
        }
        for (key, value) in &values {
            match key {
                Key::Object(id) => self.wrote(*id, Some(value), now, Some(now)),
                Key::Entry(dir, name) => {
                    let naming = Naming { object: named(value), written: now, durable: Some(now), between: (0, 0) };
                    self.directories.entry(*dir).or_default().entry(name.clone()).or_default().push(naming);
                }
                _ => {}
            }
        }
    }
}

impl Object {
    /// The newest version, durable or not; 0 if there never was one.
    pub(super) fn newest(&self) -> u64 {
        self.versions.last().map_or(0, |version| version.version)
    }

    /// The newest version that was durable before a moment.
    pub(super) fn durable_before(&self, moment: True) -> u64 {
        let durable = self.versions.iter().rev().find(|version| version.durable.is_some_and(|durable| durable < moment));
        durable.map_or(0, |version| version.version)
    }

    /// When a version above this one was first durable.
    pub(super) fn first_durable_above(&self, version: u64) -> Option<True> {
        self.versions.iter().filter(|known| known.version > version).filter_map(|known| known.durable).min()
    }

    /// The newest version that is durable.
    pub(super) fn durable(&self) -> u64 {
        self.versions.iter().rev().find(|version| version.durable.is_some()).map_or(0, |version| version.version)
    }

    /// What is in a version, if that is known.
    pub(super) fn at_version(&self, version: u64) -> Option<&Version> {
        let place = self.versions.partition_point(|known| known.version < version);
        self.versions.get(place).filter(|known| known.version == version)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// Whether nothing of it is left, durably: whatever it was on the way there needs no record of its own.
    pub(super) const fn is_gone_durably(&self) -> bool {
        self.gone_durably
    }

    /// The contents now, if they are in one block.
    fn content(&self, size: u64) -> Option<Bytes> {
        let size = usize::try_from(size).ok().filter(|size| *size <= cistern_server::store::BLOCK_LEN)?;
        let mut content = self.first_block.as_ref().map_or_else(Vec::new, |block| block.to_vec());
        content.resize(size, 0);
        Some(content.into())
    }
}

/// What matters of an object's record.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredObject {
    pub(super) version: u64,
    pub(super) kind: ObjectKind,
    pub(super) size: u64,
}

impl StoredObject {
    /// Reads it by the layout of version 1: version, kind, mode, links, owner, group, size, times, place.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let _format: u8 = r.get().ok()?;
        let version = r.get().ok()?;
        let kind = r.get().ok()?;
        let (_mode, _nlink, _uid, _gid): (u16, u32, u32, u32) = (r.get().ok()?, r.get().ok()?, r.get().ok()?, r.get().ok()?);
        Some(Self { version, kind, size: r.get().ok()? })
    }
}

fn entry<'k>(key: &'k Key, value: Option<&Bytes>) -> Option<(ObjectId, &'k [u8], Option<ObjectId>)> {
    match key {
        Key::Entry(dir, name) => Some((*dir, name, value.and_then(|bytes| named(bytes)))),
        _ => None,
    }
}

/// The object in an entry's record.
fn named(bytes: &[u8]) -> Option<ObjectId> {
    let mut r = Reader::new(bytes);
    let _format: u8 = r.get().ok()?;
    r.get().ok()
}
