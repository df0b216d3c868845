//! What comes into memory from the store, and what leaves it.
//!
//! Decides whether an answer is believed, and which values go when memory is short: those not read since the hand of a clock passed them last.
//! Invariants: an answer never takes the place of what is known already, for that is as new or newer; a value that does not parse becomes EIO
//! for those who need it, never a guess; a value is forgotten only when the store has it and no question about it is under way.

use super::cache::{
    BLOCK_WEIGHT, DIRECTORY_WEIGHT, Deleted, Known, OBJECT_WEIGHT, Slot, StoreCache, Unit, XATTRS, block_key, block_len, directory_of,
    name_len,
};
use super::directory::Directory;
use super::record::counter_from_bytes;
use super::start_key::start_key_from_bytes;
use super::{
    AccountRecord, Answer, BLOCK_LEN, EntryRecord, EphemeralRecord, InviteRecord, Key, LeaseRecord, Loaded, ObjectRecord, OutcomeRecord,
    PrincipalRecord, Query, ReadError, RealmRecord, SessionRecord, XattrRecord,
};
use crate::ids::{InviteId, PrincipalId};
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_seal::StartKey;
use cistern_wire::{Handle, ObjectId, SessionId, Status};

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
            Query::Records { after: Key::Session(after), .. } => {
                let page = page(answer, |key| if let Key::Session(id) = key { Some(id) } else { None });
                self.sessions.loaded(after, page, |bytes| SessionRecord::from_bytes(bytes).ok())
            }
            Query::Records { after: Key::Ephemeral(made_by, object), .. } => {
                let page = page(answer, |key| if let Key::Ephemeral(made_by, object) = key { Some((made_by, object)) } else { None });
                self.ephemerals.loaded((made_by, object), page, |bytes| EphemeralRecord::from_bytes(bytes).ok())
            }
            Query::Records { after: Key::Lease(after), .. } => {
                let page = page(answer, |key| if let Key::Lease(lease) = key { Some(lease) } else { None });
                self.leases.loaded(after, page, |bytes| LeaseRecord::from_bytes(bytes).ok())
            }
            Query::Records { after: Key::Realm(after), .. } => {
                let page = page(answer, |key| if let Key::Realm(realm) = key { Some(realm) } else { None });
                self.recorded_realms.loaded(after, page, |bytes| RealmRecord::from_bytes(bytes).ok())
            }
            Query::Records { after: Key::Principal(after), .. } => {
                let page = page(answer, |key| if let Key::Principal(id) = key { Some(id) } else { None });
                self.principals.loaded(after, page, |bytes| PrincipalRecord::from_bytes(bytes).ok())
            }
            Query::Records { after: Key::Account(after), .. } => {
                let page = page(answer, |key| if let Key::Account(id) = key { Some(id) } else { None });
                self.recorded_accounts.loaded(after, page, |bytes| AccountRecord::from_bytes(bytes).ok())
            }
            Query::Records { after: Key::Invite(after), .. } => {
                let page = page(answer, |key| if let Key::Invite(id) = key { Some(id) } else { None });
                self.invites.loaded(after, page, |bytes| InviteRecord::from_bytes(bytes).ok())
            }
            Query::Records { after: Key::StartKey(after), .. } => {
                let page = page(answer, |key| if let Key::StartKey(start) = key { Some(start) } else { None });
                self.start_keys.loaded(after, page, |bytes| start_key_from_bytes(bytes).ok())
            }
            // Nobody asks for others so.
            Query::Records { .. } => true,
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
            Key::Session(_)
            | Key::Ephemeral(..)
            | Key::Lease(_)
            | Key::Realm(_)
            | Key::Principal(_)
            | Key::Account(_)
            | Key::Invite(_)
            | Key::StartKey(_) => true,
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
                Answer::Value(_) | Answer::Records { .. } | Answer::Failed => false,
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

/// Records of one kind, and whether these are all; `None`: it could not be read, or there is another among them.
fn page<K>(answer: Answer, of: impl Fn(Key) -> Option<K>) -> Option<(Vec<(K, Bytes)>, bool)> {
    let Answer::Records { records, end } = answer else { return None };
    let records = records.into_iter().map(|(key, value)| Some((of(key)?, value)));
    Some((records.collect::<Option<_>>()?, end))
}

/// What a value of the store says; `None`: it could not be read.
fn parse<T>(value: Option<Option<Bytes>>, read: impl FnOnce(Bytes) -> Option<T>) -> Known<T> {
    match value {
        None => Known::Broken,
        Some(None) => Known::Absent,
        Some(Some(bytes)) => read(bytes).map_or(Known::Broken, Known::Present),
    }
}

/// Most steps of the clock's hand in one turn: bounds the time that a turn takes.
const TRIM_STEPS: usize = 4_096;
/// Most steps in one turn on which the hand looks for what is in memory no more.
const CLEAR_STEPS: usize = 256;

impl StoreCache {
    /// Forgets clean values that were not used lately until memory is within its bound, in a bounded number of steps; and all that
    /// could not be read, so that it is asked for again. To be called at the end of every turn.
    pub fn trim(&mut self) {
        // Most often there is nothing: that is to cost nothing.
        if !self.outcomes.is_empty() {
            self.outcomes.clear();
        }
        for unit in core::mem::take(&mut self.broken) {
            self.forget_broken(unit);
        }
        self.clear_ring();
        for _ in 0..TRIM_STEPS {
            if self.bytes <= self.limits.bytes_max {
                return;
            }
            let Some(unit) = self.ring.pop_front() else { return };
            if !self.forget(unit) {
                self.ring.push_back(unit);
            }
        }
    }

    /// Moves the hand on while half of the ring is left behind: each step has an even chance to take a place away.
    fn clear_ring(&mut self) {
        for _ in 0..CLEAR_STEPS {
            if self.left_behind * 2 <= self.ring.len() {
                return;
            }
            let Some(unit) = self.ring.pop_front() else { return };
            let there = match unit {
                Unit::Object(id) => self.objects.contains_key(id),
                Unit::Block(id, n) => self.blocks.contains_key(&(id, n)),
                Unit::Directory(dir) => self.directories.contains_key(&dir),
            };
            if there {
                self.ring.push_back(unit);
            } else {
                self.left_behind -= 1;
            }
        }
    }

    /// What was taken away is durably so: the store knows, and memory need not. While a question about it is under way an old answer could
    /// bring it back.
    pub(super) fn forget_deleted(&mut self, deleted: Deleted) {
        let durable = self.durable;
        match deleted {
            Deleted::Name(dir, name) => {
                if self.directories.contains_key(&dir) {
                    self.change_directory(dir, |directory| directory.forget_absent(&name, durable));
                }
            }
            Deleted::Object(id) => {
                if self.objects.get(id).is_some_and(|slot| is_gone(slot, durable)) && !self.asked.contains(&Query::Get(Key::Object(id))) {
                    self.objects.remove(id);
                    self.bytes -= OBJECT_WEIGHT;
                    self.left_behind += 1;
                    self.forget_directory(id);
                }
            }
            Deleted::Realm(realm) => {
                if self.realms.get(&realm).is_some_and(|slot| is_gone(slot, durable)) {
                    self.realms.remove(&realm);
                    self.realms_gone -= 1;
                }
            }
            Deleted::Block(id, n) => {
                let gone = self.blocks.get(&(id, n)).is_some_and(|slot| is_gone(slot, durable));
                if gone && !self.asked.contains(&Query::Get(block_key(id, n))) {
                    self.blocks.remove(&(id, n));
                    self.bytes -= BLOCK_WEIGHT;
                    self.left_behind += 1;
                }
            }
        }
    }

    /// The directory itself is gone: nobody asks for a name in it.
    fn forget_directory(&mut self, dir: ObjectId) {
        let durable = self.durable;
        if self.directories.get(&dir).is_some_and(|directory| directory.is_over(durable))
            && let Some(directory) = self.directories.remove(&dir)
        {
            self.bytes -= DIRECTORY_WEIGHT + directory.weight();
            self.left_behind += 1;
        }
    }

    /// Forgets all that is clean, for tests.
    #[cfg(test)]
    pub(crate) fn forget_everything(&mut self) {
        let bound = core::mem::take(&mut self.limits.bytes_max);
        for _ in 0..3 {
            self.trim();
        }
        self.limits.bytes_max = bound;
    }

    /// Forgets a unit if it may be; a directory perhaps only in part. False: something of it is left.
    fn forget(&mut self, unit: Unit) -> bool {
        match unit {
            Unit::Object(id) => {
                let pinned = self.asked.contains(&Query::Get(Key::Object(id)));
                if pinned || !self.objects.get(id).is_none_or(|slot| slot.idle(self.durable)) {
                    return false;
                }
                let slot = self.objects.remove(id);
                self.left_behind -= usize::from(slot.is_none()).min(self.left_behind);
                self.bytes -= slot.map_or(0, |slot| OBJECT_WEIGHT + name_len(&slot));
                true
            }
            Unit::Block(id, n) => {
                let pinned = self.asked.contains(&Query::Get(block_key(id, n)));
                if pinned || !self.blocks.get(&(id, n)).is_none_or(|slot| slot.idle(self.durable)) {
                    return false;
                }
                let slot = self.blocks.remove(&(id, n));
                self.left_behind -= usize::from(slot.is_none()).min(self.left_behind);
                self.bytes -= slot.map_or(0, |slot| BLOCK_WEIGHT + block_len(&slot));
                true
            }
            Unit::Directory(dir) => {
                if !self.directories.contains_key(&dir) {
                    self.left_behind -= 1.min(self.left_behind);
                    return true;
                }
                let durable = self.durable;
                let gone = self.change_directory(dir, |directory| directory.sweep(durable));
                if gone {
                    self.directories.remove(&dir);
                    self.bytes -= DIRECTORY_WEIGHT;
                }
                gone
            }
        }
    }

    /// A place in the ring may be left behind; the hand passes it without effect.
    fn forget_broken(&mut self, unit: Unit) {
        match unit {
            Unit::Object(id) => {
                if self.objects.get(id).is_some_and(|slot| slot.known == Known::Broken) {
                    self.objects.remove(id);
                    self.bytes -= OBJECT_WEIGHT;
                    self.left_behind += 1;
                }
            }
            Unit::Block(id, n) => {
                if self.blocks.get(&(id, n)).is_some_and(|slot| slot.known == Known::Broken) {
                    self.blocks.remove(&(id, n));
                    self.bytes -= BLOCK_WEIGHT;
                    self.left_behind += 1;
                }
            }
            Unit::Directory(dir) => self.change_directory(dir, Directory::forget_broken),
        }
    }
}

/// Whether the store knows, too, that there is none.
fn is_gone<T: PartialEq>(slot: &Slot<T>, durable: super::BatchId) -> bool {
    slot.known == Known::Absent && slot.clean(durable)
}

/// Records of sessions in a page: some 150 KiB of them.
const SESSIONS_PAGE: u32 = 1_024;
/// Records of ephemeral files in a page: some 100 KiB of them.
const EPHEMERALS_PAGE: u32 = 4_096;

/// Records of realms, or of principals, in a page: some 100 KiB of them.
const REALMS_PAGE: u32 = 1_024;

/// All records of one kind that the store had at the start, read page by page, each understood: a session that is not known of could lose its
/// locks to others before its time, an ephemeral file would never be removed.
#[derive(Debug)]
pub(super) struct Pages<K, V> {
    /// In order of the keys.
    records: Vec<(K, V)>,
    /// Whether there are no more.
    end: bool,
    /// Whether something could not be read.
    broken: bool,
}

impl<K, V> Default for Pages<K, V> {
    fn default() -> Self {
        Self { records: Vec::new(), end: false, broken: false }
    }
}

impl<K: Copy + Default + Ord, V> Pages<K, V> {
    fn last(&self) -> K {
        self.records.last().map_or_else(K::default, |found| found.0)
    }

    /// Takes in the page after a key and whether it is the last; `None`: the store could not read it. False: it is broken.
    fn loaded(&mut self, after: K, page: Option<(Vec<(K, Bytes)>, bool)>, parse: impl Fn(&[u8]) -> Option<V>) -> bool {
        if self.end || after != self.last() {
            return true;
        }
        let read = page.and_then(|(records, end)| self.take(records, end, parse));
        self.broken |= read.is_none();
        read.is_some()
    }

    fn take(&mut self, records: Vec<(K, Bytes)>, end: bool, parse: impl Fn(&[u8]) -> Option<V>) -> Option<()> {
        if records.is_empty() && !end {
            return None;
        }
        for (key, bytes) in records {
            let record = parse(&bytes).filter(|_| key > self.last())?;
            self.records.push((key, record));
        }
        self.end = end;
        Some(())
    }

    /// Whether all are here; if not, `next` makes the question for the page after a key.
    fn are_known(&self, next: impl FnOnce(K) -> Query) -> Result<(), ReadError> {
        match self {
            Self { broken: true, .. } => Err(ReadError::Failed(Status::EIO)),
            Self { end: true, .. } => Ok(()),
            found => Err(ReadError::NotCached(vec![next(found.last())])),
        }
    }
}

impl StoreCache {
    /// Makes sure that [`Self::take_sessions`] has all records of sessions that the store had at the start.
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    pub fn know_sessions(&self) -> Result<(), ReadError> {
        self.sessions.are_known(|after| Query::Records { after: Key::Session(after), limit: SESSIONS_PAGE })
    }

    /// The records of sessions that the store had at the start, in order of the ids; empty the second time.
    pub fn take_sessions(&mut self) -> Vec<(SessionId, SessionRecord)> {
        core::mem::take(&mut self.sessions.records)
    }

    /// Makes sure that all realms are known.
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    pub fn know_realms(&self) -> Result<(), ReadError> {
        self.recorded_realms.are_known(|after| Query::Records { after: Key::Realm(after), limit: REALMS_PAGE })
    }

    /// Makes sure that [`Self::take_principals`] has all records of principals that the store had at the start.
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    pub fn know_principals(&self) -> Result<(), ReadError> {
        self.principals.are_known(|after| Query::Records { after: Key::Principal(after), limit: REALMS_PAGE })
    }

    /// The records of principals that the store had at the start, in order; empty the second time.
    pub fn take_principals(&mut self) -> Vec<(PrincipalId, PrincipalRecord)> {
        core::mem::take(&mut self.principals.records)
    }

    /// Makes sure that it is known what principals have made.
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    pub fn know_accounts(&self) -> Result<(), ReadError> {
        self.recorded_accounts.are_known(|after| Query::Records { after: Key::Account(after), limit: REALMS_PAGE })
    }

    /// Makes sure that [`Self::take_invites`] has all records of invites that the store had at the start.
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    pub fn know_invites(&self) -> Result<(), ReadError> {
        self.invites.are_known(|after| Query::Records { after: Key::Invite(after), limit: REALMS_PAGE })
    }

    /// The records of invites that the store had at the start, in order; empty the second time.
    pub fn take_invites(&mut self) -> Vec<(InviteId, InviteRecord)> {
        core::mem::take(&mut self.invites.records)
    }

    /// Makes sure that [`Self::take_start_keys`] has all that the store had at the start.
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    pub fn know_start_keys(&self) -> Result<(), ReadError> {
        self.start_keys.are_known(|after| Query::Records { after: Key::StartKey(after), limit: REALMS_PAGE })
    }

    /// The keys of earlier starts that the store had at the start, by their incarnations; empty the second time.
    pub fn take_start_keys(&mut self) -> Vec<(u64, StartKey)> {
        core::mem::take(&mut self.start_keys.records)
    }

    /// From now on views show the realms that the store had at the start, and what principals had made.
    pub fn keep_realms(&mut self) {
        let recorded = core::mem::take(&mut self.recorded_realms.records);
        self.realms.extend(recorded.into_iter().map(|(realm, record)| (realm, Slot::loaded(Known::Present(record)))));
        let recorded = core::mem::take(&mut self.recorded_accounts.records);
        self.accounts.extend(recorded.into_iter().map(|(who, record)| (who, Slot::loaded(Known::Present(record)))));
    }

    /// Makes sure that [`Self::take_ephemerals`] has all records of ephemeral files that the store had at the start.
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    pub fn know_ephemerals(&self) -> Result<(), ReadError> {
        self.ephemerals.are_known(|after| Query::Records { after: Key::Ephemeral(after.0, after.1), limit: EPHEMERALS_PAGE })
    }

    /// The records of ephemeral files that the store had at the start, in order of their keys; empty the second time.
    pub fn take_ephemerals(&mut self) -> Vec<((Handle, ObjectId), EphemeralRecord)> {
        core::mem::take(&mut self.ephemerals.records)
    }

    /// Makes sure that [`Self::take_leases`] has all records of named leases that the store had at the start.
    ///
    /// # Errors
    /// [`ReadError`]: not in memory, or unreadable (EIO).
    pub fn know_leases(&self) -> Result<(), ReadError> {
        self.leases.are_known(|after| Query::Records { after: Key::Lease(after), limit: EPHEMERALS_PAGE })
    }

    /// The records of named leases that the store had at the start, by number; empty the second time.
    pub fn take_leases(&mut self) -> Vec<(ObjectId, LeaseRecord)> {
        core::mem::take(&mut self.leases.records)
    }
}
