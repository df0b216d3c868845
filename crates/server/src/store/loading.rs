//! What the store says, and where it goes.
//!
//! Decides: whether an answer is believed. Place in the walk: the machine passes every answer here, then runs the operations
//! again that wait for it. Nothing of it is on the wire.
//! Invariant: an answer never takes the place of what is known already, for that is as new or newer; a value that does not
//! parse becomes EIO for those who need it, never a guess.
//! Leaves to others: what the values mean (`namespace`).

use super::cache::{StoreCache, Unit, XATTRS, directory_of};
use super::record::counter_from_bytes;
use super::slot::{Known, Slot};
use super::{Answer, BLOCK_LEN, EntryRecord, Key, Loaded, ObjectRecord, OutcomeRecord, Query, XattrRecord};
use bytes::Bytes;
use cistern_wire::ObjectId;

impl StoreCache {
    /// Takes an answer in; the operations that wait for it are to be run again before [`Self::trim`].
    ///
    /// False if the value could not be read or parsed: worth a warning, and those operations will fail with EIO.
    pub fn loaded(&mut self, loaded: Loaded) -> bool {
        let Loaded { query, answer } = loaded;
        if !self.asked.remove(&query) {
            return true;
        }
        if let Some(dir) = directory_of(&query) {
            self.directory(dir).pins -= 1;
        }
        match query {
            Query::Get(key) => {
                let value = if let Answer::Value(value) = answer { Some(value) } else { None };
                self.loaded_value(key, value)
            }
            Query::Scan { dir, after, .. } => self.loaded_page(dir, &after, answer),
            Query::Sessions { after, .. } => self.sessions.loaded(after, answer),
            Query::Ephemerals { after, .. } => self.ephemerals.loaded(after, answer),
        }
    }

    /// Puts the value of a key where it belongs, unless more is known already; `None`: it could not be read. False: it is broken.
    fn loaded_value(&mut self, key: Key, value: Option<Option<Bytes>>) -> bool {
        match key {
            Key::Object(id) => {
                let known = parse(value, |bytes| ObjectRecord::from_bytes(id, &bytes).ok());
                let sane = known != Known::Broken;
                if !self.objects.contains_key(id) {
                    self.insert_object(id, Slot::loaded(known));
                    self.note(Unit::Object(id), sane);
                }
                sane
            }
            Key::Entry(dir, name) => {
                let known = parse(value, |bytes| EntryRecord::from_bytes(&bytes).ok());
                let sane = known != Known::Broken;
                self.change_directory(dir, |directory| directory.loaded(&name, known));
                self.note(Unit::Directory(dir), sane);
                sane
            }
            Key::Block(id, n) => self.loaded_block(id, n, parse(value, |bytes| (bytes.len() <= BLOCK_LEN).then_some(bytes))),
            Key::Xattrs(id) => {
                let known = parse(value, |bytes| XattrRecord::from_bytes(bytes.clone()).ok().map(|_| bytes));
                self.loaded_block(id, XATTRS, known)
            }
            Key::Counter(counter) => {
                let known = parse(value, |bytes| counter_from_bytes(&bytes).ok());
                let sane = known != Known::Broken;
                self.counters[counter.index()].get_or_insert(Slot::loaded(known));
                sane
            }
            Key::Outcome(session, slot) => {
                let known = parse(value, |bytes| OutcomeRecord::from_bytes(&bytes).ok());
                let sane = known != Known::Broken;
                self.outcomes.insert((session, slot), known);
                sane
            }
            // These are read all together, when the server starts.
            Key::Session(_) | Key::Ephemeral(..) => true,
        }
    }

    fn loaded_block(&mut self, id: ObjectId, n: u32, known: Known<Bytes>) -> bool {
        let sane = known != Known::Broken;
        if !self.blocks.contains_key(&(id, n)) {
            self.insert_block(id, n, Slot::loaded(known));
            self.note(Unit::Block(id, n), sane);
        }
        sane
    }

    fn loaded_page(&mut self, dir: ObjectId, after: &[u8], answer: Answer) -> bool {
        let sane = self.change_directory(dir, |directory| {
            let sane = match answer {
                Answer::Entries { entries, end } => directory.scanned(after, entries, end),
                Answer::Value(_) | Answer::Sessions { .. } | Answer::Ephemerals { .. } | Answer::Failed => false,
            };
            directory.broken |= !sane;
            sane
        });
        self.note(Unit::Directory(dir), sane);
        sane
    }

    fn note(&mut self, unit: Unit, sane: bool) {
        if !sane {
            self.broken.push(unit);
        }
    }
}

/// What a value of the store says; `None`: it could not be read.
fn parse<T>(value: Option<Option<Bytes>>, read: impl FnOnce(Bytes) -> Option<T>) -> Known<T> {
    match value {
        None => Known::Broken,
        Some(None) => Known::Absent,
        Some(Some(bytes)) => read(bytes).map_or(Known::Broken, Known::Present),
    }
}
