//! What the core knows of the store: values loaded, overlaid by what batches in flight write; bounded.
//!
//! Decides which questions go to the store, and what is in a batch. Operations reach it through a [`View`]. Invariants: each value
//! knows the newest batch that wrote it, 0 if it is as the store had it, and batches become durable in order, so one comparison tells whether
//! a crash could still take it back; objects, of which there are millions, are kept in pieces, so that no turn copies them.

use super::directory::Directory;
use super::loading::Pages;
use super::objects::Objects;
use super::record::counter_to_bytes;
use super::{
    AccountRecord, Batch, BatchId, Counter, EntryRecord, EphemeralRecord, InviteRecord, Key, LeaseRecord, ObjectRecord, OutcomeRecord,
    PrincipalRecord, Query, RealmRecord, Seen, SessionRecord, View,
};
use crate::config::CacheLimits;
use crate::ids::{InviteId, PrincipalId};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_seal::StartKey;
use cistern_wire::{Handle, ObjectId, Realm, SessionId};
use core::cell::Cell;
use hashbrown::HashMap;

/// What is in memory of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Records of objects.
    pub objects: usize,
    /// Directories of which entries are known.
    pub directories: usize,
    /// Blocks of contents.
    pub blocks: usize,
    /// Bytes that all of it takes, about.
    pub bytes: usize,
    /// The bound on those bytes.
    pub bytes_max: usize,
    /// Questions that the store has not answered.
    pub asked: usize,
}

/// Memory of an object beside its name, in bytes: slot, key, hash table, its place in the ring.
pub(super) const OBJECT_WEIGHT: usize = 200;
/// Memory of a block beside its bytes.
pub(super) const BLOCK_WEIGHT: usize = 120;
/// Memory of a directory beside what it counts itself.
pub(super) const DIRECTORY_WEIGHT: usize = 120;
/// The place of an object's extended attributes among its blocks in memory; contents have at most 16 blocks.
pub(super) const XATTRS: u32 = u32::MAX;

/// The key of what stands there.
pub(super) const fn block_key(id: ObjectId, n: u32) -> Key {
    if n == XATTRS { Key::Xattrs(id) } else { Key::Block(id, n) }
}

/// Keys from which on the open batch is closed after a step: two such, with what their last steps add, fit into the 126 of etcd's transaction.
const BATCH_KEYS: usize = 60;

/// Something that is forgotten as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Object(ObjectId),
    Directory(ObjectId),
    Block(ObjectId, u32),
}

/// Something that a batch takes away.
#[derive(Debug)]
pub(super) enum Deleted {
    Name(ObjectId, Box<[u8]>),
    Object(ObjectId),
    Block(ObjectId, u32),
    Realm(Realm),
}

/// Values loaded from the store, and what batches not durable yet write.
#[derive(Debug)]
pub struct StoreCache {
    pub(super) objects: Objects,
    pub(super) directories: HashMap<ObjectId, Directory>,
    /// Blocks of contents, and under [`XATTRS`] the extended attributes of an object.
    pub(super) blocks: HashMap<(ObjectId, u32), Slot<Bytes>>,
    /// Never forgotten.
    pub(super) counters: [Option<Slot<u64>>; Counter::ALL.len()],
    /// All realms within that of the tree, once they were read; none is ever forgotten before it is gone.
    pub(super) realms: BTreeMap<Realm, Slot<RealmRecord>>,
    /// How many of these are gone, and known until that is durable.
    pub(super) realms_gone: usize,
    /// Questions that the store has not answered.
    pub(super) asked: BTreeSet<Query>,
    /// Those of them that were not handed over yet.
    questions: VecDeque<Vec<Query>>,
    pub(super) open: BatchId,
    /// Batches that were closed within the turn, and not handed over yet.
    closed: VecDeque<Batch>,
    pub(super) durable: BatchId,
    /// Keys that the open batch writes, each once; their values are taken when it is sealed.
    pub(super) dirty: Vec<Key>,
    /// What the machine itself writes.
    pub(super) raw: BTreeMap<Key, Option<Bytes>>,
    /// Every object, directory and block in memory once, in the order of the clock's hand; and some that are there no more.
    pub(super) ring: VecDeque<Unit>,
    /// Names, objects and blocks taken away by batches, oldest first, until those are durable.
    pub(super) deleted: VecDeque<(BatchId, Deleted)>,
    /// Places in the ring of what is in memory no more.
    pub(super) left_behind: usize,
    /// Units that could not be read.
    pub(super) broken: Vec<Unit>,
    /// What principals have made, as far as any has; none is ever forgotten.
    pub(super) accounts: BTreeMap<PrincipalId, Slot<AccountRecord>>,
    /// That at the start, as far as it was read.
    pub(super) recorded_accounts: Pages<PrincipalId, AccountRecord>,
    /// The realms recorded at the start, as far as they were read.
    pub(super) recorded_realms: Pages<Realm, RealmRecord>,
    /// The principals recorded at the start, as far as they were read.
    pub(super) principals: Pages<PrincipalId, PrincipalRecord>,
    /// The invites recorded at the start, as far as they were read.
    pub(super) invites: Pages<InviteId, InviteRecord>,
    /// The keys of earlier starts, as far as they were read.
    pub(super) start_keys: Pages<u64, StartKey>,
    /// The sessions recorded at the start, as far as they were read.
    pub(super) sessions: Pages<SessionId, SessionRecord>,
    /// The ephemeral files recorded at the start, as far as they were read.
    pub(super) ephemerals: Pages<(Handle, ObjectId), EphemeralRecord>,
    /// The named leases recorded at the start, as far as they were read.
    pub(super) leases: Pages<ObjectId, LeaseRecord>,
    /// Outcomes of sessions of earlier starts, kept until the end of the turn in which the store told them.
    pub(super) outcomes: BTreeMap<(SessionId, u16), Known<OutcomeRecord>>,
    pub(super) bytes: usize,
    pub(super) limits: CacheLimits,
}

impl StoreCache {
    /// Knows nothing; the first batch is 1.
    #[must_use]
    pub fn new(limits: CacheLimits) -> Self {
        Self {
            objects: Objects::new(),
            directories: HashMap::new(),
            blocks: HashMap::new(),
            counters: [const { None }; Counter::ALL.len()],
            realms: BTreeMap::new(),
            realms_gone: 0,
            asked: BTreeSet::new(),
            questions: VecDeque::new(),
            open: 1,
            closed: VecDeque::new(),
            durable: 0,
            dirty: Vec::new(),
            raw: BTreeMap::new(),
            ring: VecDeque::new(),
            deleted: VecDeque::new(),
            left_behind: 0,
            broken: Vec::new(),
            accounts: BTreeMap::new(),
            recorded_accounts: Pages::default(),
            recorded_realms: Pages::default(),
            principals: Pages::default(),
            invites: Pages::default(),
            start_keys: Pages::default(),
            sessions: Pages::default(),
            ephemerals: Pages::default(),
            leases: Pages::default(),
            outcomes: BTreeMap::new(),
            bytes: 0,
            limits,
        }
    }

    /// For one run of one operation, which waits for what `seen` says at its end.
    pub const fn view<'a>(&'a mut self, seen: &'a Seen) -> View<'a> {
        View::new(self, seen)
    }

    /// Asks the store; questions that are under way are not asked again.
    pub fn ask(&mut self, queries: Vec<Query>) {
        let mut new = Vec::with_capacity(queries.len());
        for query in queries {
            if self.asked.insert(query.clone()) {
                if let Some(dir) = directory_of(&query) {
                    self.directory(dir).pins += 1;
                }
                new.push(query);
            }
        }
        if !new.is_empty() {
            self.questions.push_back(new);
        }
    }

    /// The next questions to be handed to the store.
    pub fn poll_questions(&mut self) -> Option<Vec<Query>> {
        self.questions.pop_front()
    }

    /// A write of the machine's own (a session's record, say) into the open batch.
    pub fn put(&mut self, key: Key, value: Option<Bytes>) {
        self.raw.insert(key, value);
    }

    /// Writes a counter into the open batch.
    pub fn set_counter(&mut self, counter: Counter, value: u64) {
        let slot = Slot::written(Some(value), self.open);
        let old = self.counters[counter.index()].replace(slot);
        self.touch(old.map_or(0, |slot| slot.batch), || Key::Counter(counter));
    }

    /// The batch into which writes go now.
    #[must_use]
    pub const fn open_batch(&self) -> BatchId {
        self.open
    }

    /// Whether something is in the open batch.
    #[must_use]
    pub fn has_writes(&self) -> bool {
        self.writes() > 0
    }

    /// Keys written into the open batch.
    fn writes(&self) -> usize {
        self.dirty.len() + self.raw.len()
    }

    /// Keys written and not handed over.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.writes() + self.closed.iter().map(|batch| batch.writes.len()).sum::<usize>()
    }

    /// Closes the open batch if it is large; only between two steps, when whatever waits for it has written into it.
    pub fn close_if_large(&mut self) {
        if self.writes() >= BATCH_KEYS {
            let batch = self.close();
            self.closed.extend(batch);
        }
    }

    /// The next batch to be handed to the store, if anything was written.
    #[must_use]
    pub fn seal(&mut self) -> Option<Batch> {
        self.closed.pop_front().or_else(|| self.close())
    }

    fn close(&mut self) -> Option<Batch> {
        if !self.has_writes() {
            return None;
        }
        let raw = core::mem::take(&mut self.raw);
        let dirty = core::mem::take(&mut self.dirty);
        let mut writes: Vec<_> = raw.into_iter().collect();
        writes.reserve(dirty.len());
        for key in dirty {
            let value = self.sealed(&key);
            writes.push((key, value));
        }
        let id = self.open;
        self.open += 1;
        Some(Batch { id, writes })
    }

    /// What the open batch writes for a key.
    fn sealed(&self, key: &Key) -> Option<Bytes> {
        match key {
            Key::Object(id) => match &self.objects.get(*id)?.known {
                Known::Present(record) => Some(record.to_bytes().into()),
                _ => None,
            },
            Key::Entry(dir, name) => self.directories.get(dir)?.sealed(name),
            Key::Block(id, n) => self.sealed_block(*id, *n),
            Key::Xattrs(id) => self.sealed_block(*id, XATTRS),
            Key::Counter(counter) => match self.counters[counter.index()].as_ref()?.known {
                Known::Present(value) => Some(counter_to_bytes(value).into()),
                _ => None,
            },
            Key::Realm(realm) => match &self.realms.get(realm)?.known {
                Known::Present(record) => Some(record.to_bytes().into()),
                _ => None,
            },
            Key::Account(who) => match &self.accounts.get(who)?.known {
                Known::Present(record) => Some(record.to_bytes().into()),
                _ => None,
            },
            Key::Session(_)
            | Key::Outcome(..)
            | Key::Ephemeral(..)
            | Key::Lease(_)
            | Key::Principal(_)
            | Key::Invite(_)
            | Key::StartKey(_) => None,
        }
    }

    fn sealed_block(&self, id: ObjectId, n: u32) -> Option<Bytes> {
        match &self.blocks.get(&(id, n))?.known {
            Known::Present(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// This batch and all before it are durable.
    pub fn durable(&mut self, batch: BatchId) {
        debug_assert!(batch < self.open, "a batch that was never sealed cannot be durable");
        self.durable = self.durable.max(batch);
        while let Some((_, deleted)) = self.deleted.pop_front_if(|deleted| deleted.0 <= batch) {
            self.forget_deleted(deleted);
        }
    }

    /// The newest batch known to be durable; 0: none yet.
    #[must_use]
    pub const fn durable_up_to(&self) -> BatchId {
        self.durable
    }

    /// What is in memory of the store.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory {
            objects: self.objects.len(),
            directories: self.directories.len(),
            blocks: self.blocks.len(),
            bytes: self.bytes,
            bytes_max: self.limits.bytes_max,
            asked: self.asked.len(),
        }
    }

    /// A counter as it is now, durable or not; 0 if it is not known.
    #[must_use]
    pub fn count_of(&self, counter: Counter) -> u64 {
        match self.counter(counter).map(|slot| &slot.known) {
            Some(Known::Present(value)) => *value,
            _ => 0,
        }
    }

    /// How many objects are in memory.
    pub(crate) const fn objects_known(&self) -> usize {
        self.objects.len()
    }

    /// Prefetches an object's record; the return value only keeps the load from being optimized out.
    pub(crate) fn prefetch(&self, id: ObjectId) -> BatchId {
        self.objects.get(id).map_or(0, |slot| slot.batch)
    }

    /// The realm around one, if there is such a realm: none is around that of the tree.
    #[must_use]
    pub fn realm_around(&self, realm: Realm) -> Option<Realm> {
        match &self.realms.get(&realm)?.known {
            Known::Present(record) => Some(record.parent),
            _ => None,
        }
    }

    /// What a principal has made, and how much it may; for lists.
    #[must_use]
    pub fn account(&self, who: PrincipalId) -> AccountRecord {
        match self.accounts.get(&who).map(|slot| &slot.known) {
            Some(Known::Present(record)) => *record,
            _ => AccountRecord::default(),
        }
    }

    /// Memory that the values take, in bytes, about.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What the view reads and writes.
impl StoreCache {
    pub(super) fn object(&self, id: ObjectId) -> Option<&Slot<ObjectRecord>> {
        self.objects.get(id)
    }

    pub(super) fn entries_of(&self, dir: ObjectId) -> Option<&Directory> {
        self.directories.get(&dir)
    }

    pub(super) fn block(&self, id: ObjectId, n: u32) -> Option<&Slot<Bytes>> {
        self.blocks.get(&(id, n))
    }

    pub(super) const fn counter(&self, counter: Counter) -> Option<&Slot<u64>> {
        self.counters[counter.index()].as_ref()
    }

    pub(super) fn outcome(&self, session: SessionId, slot: u16) -> Option<&Known<OutcomeRecord>> {
        self.outcomes.get(&(session, slot))
    }

    pub(super) fn write_object(&mut self, id: ObjectId, value: Option<ObjectRecord>) {
        if value.is_none() {
            self.deleted.push_back((self.open, Deleted::Object(id)));
        }
        let slot = Slot::written(value, self.open);
        let old = match self.objects.get_mut(id) {
            Some(old) => {
                self.bytes = self.bytes + name_len(&slot) - name_len(old);
                core::mem::replace(old, slot).batch
            }
            None => {
                self.insert_object(id, slot);
                0
            }
        };
        self.touch(old, || Key::Object(id));
    }

    pub(super) fn write_entry(&mut self, dir: ObjectId, name: &[u8], value: Option<EntryRecord>) {
        let open = self.open;
        if value.is_none() {
            self.deleted.push_back((open, Deleted::Name(dir, name.into())));
        }
        let old = self.change_directory(dir, |directory| directory.write(name, value, open));
        self.touch(old, || Key::Entry(dir, name.into()));
    }

    pub(super) fn write_block(&mut self, id: ObjectId, n: u32, value: Option<Bytes>) {
        if value.is_none() {
            self.deleted.push_back((self.open, Deleted::Block(id, n)));
        }
        let slot = Slot::written(value, self.open);
        let old = match self.blocks.get_mut(&(id, n)) {
            Some(old) => {
                self.bytes = self.bytes + block_len(&slot) - block_len(old);
                core::mem::replace(old, slot).batch
            }
            None => {
                self.insert_block(id, n, slot);
                0
            }
        };
        self.touch(old, || block_key(id, n));
    }

    pub(super) fn write_realm(&mut self, realm: Realm, value: Option<RealmRecord>) {
        if value.is_none() {
            self.deleted.push_back((self.open, Deleted::Realm(realm)));
            self.realms_gone += 1;
        }
        let old = self.realms.insert(realm, Slot::written(value, self.open));
        self.realms_gone -= usize::from(old.as_ref().is_some_and(|old| old.known == Known::Absent));
        self.touch(old.map_or(0, |slot| slot.batch), || Key::Realm(realm));
    }

    pub(super) fn write_account(&mut self, who: PrincipalId, record: AccountRecord) {
        let old = self.accounts.insert(who, Slot::written(Some(record), self.open));
        self.touch(old.map_or(0, |slot| slot.batch), || Key::Account(who));
    }

    /// A directory that was just made has no entries: nothing has to be asked.
    pub(super) fn new_directory(&mut self, dir: ObjectId) {
        self.change_directory(dir, Directory::make);
    }

    /// Notes that the open batch writes a key whose newest batch so far was `old`.
    fn touch(&mut self, old: BatchId, key: impl FnOnce() -> Key) {
        if old != self.open {
            self.dirty.push(key());
        }
    }

    pub(super) fn insert_object(&mut self, id: ObjectId, slot: Slot<ObjectRecord>) {
        self.bytes += OBJECT_WEIGHT + name_len(&slot);
        self.objects.insert(id, slot);
        self.ring.push_back(Unit::Object(id));
    }

    pub(super) fn insert_block(&mut self, id: ObjectId, n: u32, slot: Slot<Bytes>) {
        self.bytes += BLOCK_WEIGHT + block_len(&slot);
        self.blocks.insert((id, n), slot);
        self.ring.push_back(Unit::Block(id, n));
    }

    pub(super) fn directory(&mut self, dir: ObjectId) -> &mut Directory {
        self.directories.entry(dir).or_insert_with(|| {
            self.bytes += DIRECTORY_WEIGHT;
            self.ring.push_back(Unit::Directory(dir));
            Directory::default()
        })
    }

    /// Runs `change` on a directory and keeps the account of its memory.
    pub(super) fn change_directory<T>(&mut self, dir: ObjectId, change: impl FnOnce(&mut Directory) -> T) -> T {
        let directory = self.directory(dir);
        let before = directory.weight();
        let result = change(directory);
        let after = directory.weight();
        self.bytes = self.bytes + after - before;
        result
    }
}

/// The directory that a question is about, if it is about one.
pub(super) const fn directory_of(query: &Query) -> Option<ObjectId> {
    match query {
        Query::Get(Key::Entry(dir, _)) | Query::Scan { dir, .. } => Some(*dir),
        Query::Get(_) | Query::Records { .. } => None,
    }
}

pub(super) fn name_len(slot: &Slot<ObjectRecord>) -> usize {
    if let Known::Present(record) = &slot.known { record.name.len() } else { 0 }
}

pub(super) fn block_len(slot: &Slot<Bytes>) -> usize {
    if let Known::Present(bytes) = &slot.known { bytes.len() } else { 0 }
}

/// What is known of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known<T> {
    /// It is this.
    Present(T),
    /// There is none.
    Absent,
    /// The store has something that cannot be read.
    Broken,
}

/// A value in memory.
#[derive(Debug)]
pub(super) struct Slot<T> {
    pub(super) known: Known<T>,
    pub(super) batch: BatchId,
    /// Whether it was read since the clock's hand passed it; a read needs no exclusive access to say so.
    pub(super) used: Cell<bool>,
}

impl<T> Slot<T> {
    /// As the store has it.
    pub(super) const fn loaded(known: Known<T>) -> Self {
        Self { known, batch: 0, used: Cell::new(true) }
    }

    /// As `batch` writes it; `None`: deleted.
    pub(super) fn written(value: Option<T>, batch: BatchId) -> Self {
        let known = value.map_or(Known::Absent, Known::Present);
        Self { known, batch, used: Cell::new(true) }
    }

    /// Whether the store has it, too, so that it may be forgotten.
    pub(super) const fn clean(&self, durable: BatchId) -> bool {
        self.batch <= durable
    }

    /// Whether it may be forgotten now; if it was used, that is noted as used up.
    pub(super) fn idle(&self, durable: BatchId) -> bool {
        !self.used.take() && self.clean(durable)
    }
}
