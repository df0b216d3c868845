//! The one pass over the records: each by itself, and beside what came before it.
//!
//! Decides: what a record must be to be one that the server wrote. Place in the walk: first; the order of the keys brings sessions
//! before their outcomes, objects before their entries, and those before blocks, so each finds what it speaks of in memory.
//! Invariant: a record that cannot be read is one finding, and nothing is said against others because of it.
//! Leaves to others: what only the whole tells (`tree`, `totals`).

use super::accounts::Accounts;
use super::realms::Realms;
use super::table::{Row, Table, mark};
use super::{Fault, Place, Progress, Report};
use bytes::Bytes;
use cistern_server::config::LEASE_MAX;
use cistern_server::namespace::{MODE_BITS, check_name};
use cistern_server::principals::PrincipalId;
use cistern_server::store::{
    BLOCK_LEN, Counter, EntryRecord, EphemeralRecord, InviteRecord, Key, LeaseRecord, ObjectRecord, OutcomeRecord, PrincipalRecord,
    SessionRecord, XattrRecord,
};
use cistern_server::store::{counter_from_bytes, start_key_from_bytes};
use cistern_wire::limits::{CONTENT_MAX, LABEL_MAX, ROOT, SYMLINK_MAX, WINDOW_MAX, XATTR_BYTES_MAX, XATTR_VALUE_MAX};
use cistern_wire::{Handle, ObjectId, ObjectKind, Reader, Realm, Reply, SessionId};
use siphasher::sip::SipHasher13;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;

/// The entries of a directory, as far as they were read.
#[derive(Debug)]
struct Siblings {
    dir: ObjectId,
    entries: u64,
    subdirectories: u64,
}

/// A check under way.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) report: Report,
    pub(super) table: Table,
    findings_max: usize,
    /// Id and window of each session; 0: its record cannot be read.
    sessions: Vec<(u64, u16)>,
    group: Option<Siblings>,
    /// Ephemeral files whose records were not read yet: the handle under which each was made.
    ephemerals: BTreeMap<u64, Handle>,
    /// Files of named leases.
    leases: BTreeSet<u64>,
    /// Realms, and what was seen in them.
    pub(super) realms: Realms,
    /// What principals have made, as their accounts say, and as it was seen.
    pub(super) accounts: Accounts,
    /// Names of principals that were not revoked, and keys of all.
    principals: BTreeSet<Box<[u8]>>,
    keys: BTreeSet<[u8; 32]>,
    /// No record was unreadable that would have told of bytes.
    pub(super) bytes_known: bool,
    last: Vec<u8>,
}

impl Walk {
    pub(super) fn new(findings_max: usize) -> Self {
        let (report, table) = (Report::default(), Table::default());
        Self {
            report,
            table,
            findings_max,
            sessions: Vec::new(),
            group: None,
            ephemerals: BTreeMap::new(),
            leases: BTreeSet::new(),
            realms: Realms::default(),
            accounts: Accounts::default(),
            principals: BTreeSet::new(),
            keys: BTreeSet::new(),
            bytes_known: true,
            last: Vec::new(),
        }
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            records: self.report.records,
            objects: self.report.objects(),
            objects_expected: self.report.counter(Counter::Objects).unwrap_or(0),
        }
    }

    /// Memory of what is kept, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.table.bytes() + self.sessions.capacity() * size_of::<(u64, u16)>()
    }

    pub(super) fn find(&mut self, fault: Fault, place: Place, what: impl Into<String>) {
        self.report.find(self.findings_max, fault, place, what.into());
    }

    pub(super) fn at(&mut self, fault: Fault, key: &Key, what: impl Into<String>) {
        self.find(fault, Place::Key(key.clone()), what);
    }

    /// The next record.
    pub(super) fn record(&mut self, bytes: &[u8], value: &[u8]) {
        let report = &mut self.report;
        report.records += 1;
        report.record_bytes += (bytes.len() + value.len()) as u64;
        if report.records > 1 && *bytes <= *self.last {
            // What it speaks of has gone by: it can be neither taken in nor judged.
            return self.find(Fault::Order, Place::Raw(bytes.into()), "the engine gives this key after one that does not come before it");
        }
        self.last.clear();
        self.last.extend_from_slice(bytes);
        let key = match Key::from_bytes(bytes) {
            Ok(key) => key,
            Err(error) => return self.find(Fault::UnknownKey, Place::Raw(bytes.into()), error.to_string()),
        };
        if !matches!(key, Key::Entry(..)) {
            self.end_directory();
        }
        match &key {
            Key::Counter(counter) => self.counter(*counter, &key, value),
            Key::Session(session) => self.session(*session, &key, value),
            Key::Outcome(session, slot) => self.outcome(*session, *slot, &key, value),
            Key::Realm(realm) => self.realm(*realm, &key, value),
            Key::Principal(principal) => self.principal(*principal, &key, value),
            Key::Account(principal) => self.account(*principal, &key, value),
            Key::Invite(_) => self.invite(&key, value),
            Key::StartKey(_) => self.start_key(&key, value),
            Key::Object(object) => self.object(*object, &key, value),
            Key::Entry(dir, name) => self.entry(*dir, name, &key, value),
            Key::Block(object, n) => self.block(*object, *n, &key, value),
            Key::Xattrs(object) => self.xattrs(*object, &key, value),
            Key::Ephemeral(maker, object) => self.ephemeral(*maker, *object, &key, value),
            Key::Lease(lease) => self.lease(*lease, &key, value),
        }
    }

    fn counter(&mut self, counter: Counter, key: &Key, value: &[u8]) {
        match counter_from_bytes(value) {
            Ok(number) => self.report.counters[counter.index()] = Some(number),
            Err(error) => self.at(Fault::BadRecord, key, error.to_string()),
        }
    }

    fn start_key(&mut self, key: &Key, value: &[u8]) {
        if let Err(e) = start_key_from_bytes(value) {
            self.at(Fault::BadRecord, key, e.to_string());
        }
    }

    fn session(&mut self, session: SessionId, key: &Key, value: &[u8]) {
        self.report.sessions += 1;
        let record = match SessionRecord::from_bytes(value) {
            Ok(record) => record,
            Err(error) => {
                self.sessions.push((session.0, 0));
                return self.at(Fault::BadRecord, key, error.to_string());
            }
        };
        self.sessions.push((session.0, record.window));
        let longest = u64::try_from(LEASE_MAX.as_micros()).unwrap_or(u64::MAX);
        if session.0 == 0 {
            self.at(Fault::BadSession, key, "no session has the id 0");
        }
        if !(1..=WINDOW_MAX).contains(&record.window) {
            self.at(Fault::BadSession, key, format!("a window of {} requests; there are 1 to {WINDOW_MAX}", record.window));
        }
        if !(1..=longest).contains(&record.lease_us) {
            self.at(Fault::BadSession, key, format!("a lease of {} µs; there are 1 to {longest}", record.lease_us));
        }
        if record.label.len() > LABEL_MAX {
            self.at(Fault::BadSession, key, format!("a label of {} bytes; there are at most {LABEL_MAX}", record.label.len()));
        }
    }

    fn outcome(&mut self, session: SessionId, slot: u16, key: &Key, value: &[u8]) {
        self.report.outcomes += 1;
        let record = match OutcomeRecord::from_bytes(value) {
            Ok(record) => record,
            Err(error) => return self.at(Fault::BadRecord, key, error.to_string()),
        };
        let window = match self.sessions.binary_search_by_key(&session.0, |known| known.0) {
            Ok(at) => self.sessions[at].1,
            Err(_) => return self.at(Fault::OrphanOutcome, key, "no such session is recorded: its end did not take this along"),
        };
        if window > 0 && (slot >= window || record.nonce % u64::from(window) != u64::from(slot)) {
            let what = format!("nonce {} in place {slot}, of a session whose window is {window}", record.nonce);
            self.at(Fault::BadOutcome, key, what);
        }
        let mut reader = Reader::new(&record.reply);
        let readable = reader.get::<Reply<'_>>().is_ok() && reader.rest().is_empty();
        if !readable {
            self.at(Fault::BadOutcome, key, "the reply that was kept cannot be read");
        }
    }

    fn principal(&mut self, principal: PrincipalId, key: &Key, value: &[u8]) {
        let record = match PrincipalRecord::from_bytes(value) {
            Ok(record) => record,
            Err(error) => return self.at(Fault::BadRecord, key, error.to_string()),
        };
        if principal == PrincipalId::ANYBODY {
            self.at(Fault::BadPrincipal, key, "number 0 is nobody's");
        }
        // A revoked one keeps its keys for ever, and nothing else of its own.
        let key_again = record.keys().filter(|own| !self.keys.insert(*own)).count() > 0;
        if key_again || !record.revoked && !self.principals.insert(record.name) {
            self.at(Fault::BadPrincipal, key, "another one has its name or its key");
        }
    }

    fn invite(&mut self, key: &Key, value: &[u8]) {
        let record = match InviteRecord::from_bytes(value) {
            Ok(record) => record,
            Err(error) => return self.at(Fault::BadRecord, key, error.to_string()),
        };
        // A key is registered and the invite spent in one transaction.
        if record.used.iter().any(|used| !self.keys.contains(&used.key)) {
            self.at(Fault::BadInvite, key, "it has admitted a key that no principal has");
        }
    }

    fn object(&mut self, object: ObjectId, key: &Key, value: &[u8]) {
        let record = match ObjectRecord::from_bytes(object, value) {
            Ok(record) => record,
            Err(error) => {
                self.report.unreadable += 1;
                self.bytes_known = false;
                let nothing = Row {
                    id: object.0,
                    parent: 0,
                    name: 0,
                    size: 0,
                    nlink: 0,
                    names: 0,
                    kind: None,
                    xattrs: 0,
                    realm: 0,
                    creator: PrincipalId::ANYBODY,
                    marks: 0,
                };
                self.table.push(nothing);
                return self.at(Fault::BadRecord, key, error.to_string());
            }
        };
        let attr = &record.attr;
        self.table.push(Row {
            id: object.0,
            parent: record.parent.0,
            name: digest(&record.name),
            size: attr.size,
            nlink: attr.nlink,
            names: 0,
            kind: Some(attr.kind),
            xattrs: record.xattrs,
            realm: attr.realm.0,
            creator: record.creator,
            marks: 0,
        });
        match attr.kind {
            ObjectKind::Directory => self.report.directories += 1,
            ObjectKind::File => self.report.files += 1,
            ObjectKind::Symlink => self.report.symlinks += 1,
        }
        let bytes = if attr.kind == ObjectKind::Directory { 0 } else { attr.size };
        self.report.content_bytes = self.report.content_bytes.saturating_add(bytes);
        self.realms.add(attr.realm, 1, bytes);
        self.accounts.add(record.creator, 1, bytes);
        if attr.is_ephemeral() {
            self.ephemerals.insert(object.0, attr.owner);
            if attr.is_lease() {
                self.leases.insert(object.0);
            }
            if attr.kind == ObjectKind::Directory || attr.nlink != 1 {
                self.at(Fault::BadEphemeral, key, format!("it is ephemeral, a {:?}, and has {} names", attr.kind, attr.nlink));
            }
        }
        self.attributes(key, &record);
    }

    /// What the record of an object says of itself.
    fn attributes(&mut self, key: &Key, record: &ObjectRecord) {
        let attr = &record.attr;
        let most = match attr.kind {
            ObjectKind::Directory => u64::MAX,
            ObjectKind::File => CONTENT_MAX as u64,
            ObjectKind::Symlink => SYMLINK_MAX as u64,
        };
        if attr.object.0 == 0 {
            self.at(Fault::BadAttribute, key, "no object has the id 0");
        }
        if attr.version == 0 {
            self.at(Fault::BadAttribute, key, "version 0: an object begins with 1");
        }
        if attr.mode & !MODE_BITS != 0 {
            self.at(Fault::BadAttribute, key, format!("mode {:o}: there are the bits of 7777", attr.mode));
        }
        if attr.size > most || (attr.kind == ObjectKind::Symlink && attr.size == 0) {
            self.at(Fault::BadAttribute, key, format!("a size of {}, which no {:?} has", attr.size, attr.kind));
        }
        if attr.object.0 == ROOT {
            if attr.kind != ObjectKind::Directory || record.parent.0 != ROOT || !record.name.is_empty() {
                self.at(Fault::BadRoot, key, "the root is a directory, in itself and without a name; this is not");
            }
        } else if check_name(&record.name).is_err() {
            self.at(Fault::BadName, key, format!("its record has the name \"{}\"", record.name.escape_ascii()));
        }
    }

    fn entry(&mut self, dir: ObjectId, name: &[u8], key: &Key, value: &[u8]) {
        self.report.entries += 1;
        if self.group.as_ref().is_none_or(|group| group.dir != dir) {
            self.end_directory();
            self.group = Some(Siblings { dir, entries: 0, subdirectories: 0 });
        }
        match self.table.get_mut(dir.0) {
            None => return self.at(Fault::OrphanEntry, key, "there is no such directory"),
            Some(row) if row.kind.is_some() && !row.is_directory() => {
                return self.at(Fault::OrphanEntry, key, "what has this id is no directory");
            }
            Some(row) => row.marks |= mark::HAS_ENTRIES,
        }
        if check_name(name).is_err() {
            self.at(Fault::BadName, key, "no entry can have this name");
        }
        let entry = EntryRecord::from_bytes(value);
        if let Some(group) = &mut self.group {
            group.entries += 1;
            group.subdirectories += u64::from(entry.is_ok_and(|entry| entry.kind == ObjectKind::Directory));
        }
        match entry {
            Ok(entry) => self.named(dir, name, entry, key),
            Err(error) => self.at(Fault::BadRecord, key, error.to_string()),
        }
    }

    /// An entry names an object.
    fn named(&mut self, dir: ObjectId, name: &[u8], entry: EntryRecord, key: &Key) {
        let Some(row) = self.table.get_mut(entry.object.0) else {
            return self.at(Fault::DanglingEntry, key, format!("it names object {}, which does not exist", entry.object));
        };
        row.names = row.names.saturating_add(1);
        if row.parent == dir.0 && row.name == digest(name) {
            row.marks |= mark::IN_PLACE;
        }
        let Some(kind) = row.kind else { return };
        let realm = Realm(row.realm);
        if let Some(of) = self.table.get(dir.0).filter(|row| row.kind.is_some()).map(|row| Realm(row.realm)) {
            self.in_realm_of(entry.object, realm, of, key);
        }
        if kind != entry.kind {
            self.at(Fault::WrongKind, key, format!("it names object {} as {:?}, which is {kind:?}", entry.object, entry.kind));
        }
    }

    /// All entries of a directory were read.
    pub(super) fn end_directory(&mut self) {
        let Some(group) = self.group.take() else { return };
        let Some(row) = self.table.get(group.dir.0).filter(|row| row.is_directory()).copied() else { return };
        self.directory(&row, group.entries, group.subdirectories);
    }

    /// Compares the record of a directory with what was found in it.
    pub(super) fn directory(&mut self, row: &Row, entries: u64, subdirectories: u64) {
        let key = Key::Object(ObjectId(row.id));
        if row.size != entries {
            self.at(Fault::WrongEntryCount, &key, format!("its size is {}, and it has {entries} entries", row.size));
        }
        if u64::from(row.nlink) != subdirectories + 2 {
            let what = format!("it has {} links, and {subdirectories} subdirectories, which makes {}", row.nlink, subdirectories + 2);
            self.at(Fault::WrongLinks, &key, what);
        }
    }

    fn block(&mut self, object: ObjectId, n: u32, key: &Key, value: &[u8]) {
        self.report.blocks += 1;
        let (start, len) = (u64::from(n) * BLOCK_LEN as u64, value.len() as u64);
        let Some(row) = self.table.get_mut(object.0) else {
            return self.at(Fault::OrphanBlock, key, "there is no such object");
        };
        let size = row.size;
        match row.kind {
            None => {}
            Some(ObjectKind::Directory) => self.at(Fault::OrphanBlock, key, "what has this id is a directory"),
            Some(ObjectKind::File) if start >= size => {
                self.at(Fault::BlockBeyondEnd, key, format!("it begins at byte {start} of a file of {size}"));
            }
            Some(ObjectKind::File) => {
                let most = (size - start).min(BLOCK_LEN as u64);
                if !(1..=most).contains(&len) {
                    self.at(Fault::BadBlock, key, format!("it has {len} bytes; there can be 1 to {most}"));
                }
            }
            Some(ObjectKind::Symlink) => {
                row.marks |= mark::HAS_TARGET;
                if n > 0 || len != size || value.contains(&0) {
                    self.at(
                        Fault::BadTarget,
                        key,
                        format!("a target of {len} bytes in block {n}; it has {size} in block 0, none of them zero"),
                    );
                }
            }
        }
    }

    fn ephemeral(&mut self, maker: Handle, object: ObjectId, key: &Key, value: &[u8]) {
        if let Err(error) = EphemeralRecord::from_bytes(value) {
            self.at(Fault::BadRecord, key, error.to_string());
        }
        match self.ephemerals.get(&object.0) {
            Some(owner) if *owner == maker => {
                self.ephemerals.remove(&object.0);
            }
            // Of an object whose record cannot be read that was said.
            _ if self.table.get(object.0).is_some_and(|row| row.kind.is_none()) => {}
            _ => self.at(Fault::OrphanEphemeral, key, "there is no such ephemeral file of that maker"),
        }
    }

    /// Of a lease that has ended the file may be there for a while, and has no such record.
    fn lease(&mut self, lease: ObjectId, key: &Key, value: &[u8]) {
        if let Err(error) = LeaseRecord::from_bytes(value) {
            self.at(Fault::BadRecord, key, error.to_string());
        }
        let unreadable = self.table.get(lease.0).is_some_and(|row| row.kind.is_none());
        if !self.leases.contains(&lease.0) && !unreadable {
            self.at(Fault::OrphanEphemeral, key, "there is no such file that is a named lease");
        }
    }

    /// All was read: each ephemeral file must have had its record.
    pub(super) fn end_ephemerals(&mut self) {
        for (object, maker) in std::mem::take(&mut self.ephemerals) {
            let what = format!("it is an ephemeral file made under the handle {maker}, and has no record as such");
            self.find(Fault::BadEphemeral, Self::object_place(object), what);
        }
    }

    fn xattrs(&mut self, object: ObjectId, key: &Key, value: &[u8]) {
        let Some(row) = self.table.get_mut(object.0) else {
            return self.at(Fault::OrphanXattrs, key, "there is no such object");
        };
        row.marks |= mark::HAS_XATTRS;
        let (known, said, realm, creator) = (row.kind.is_some(), usize::from(row.xattrs), row.realm, row.creator);
        let record = match XattrRecord::from_bytes(Bytes::copy_from_slice(value)) {
            Ok(record) => record,
            Err(error) => {
                self.bytes_known = false;
                return self.at(Fault::BadRecord, key, error.to_string());
            }
        };
        self.report.content_bytes = self.report.content_bytes.saturating_add(record.values_len());
        self.realms.add(Realm(realm), 0, record.values_len());
        self.accounts.add(creator, 0, record.values_len());
        let found = record.iter().count();
        if known && found != said {
            self.at(Fault::BadXattrs, key, format!("there are {found}; its record says {said}"));
        }
        if record.iter().any(|(name, value)| name.contains(&0) || value.len() > XATTR_VALUE_MAX)
            || record.values_len() > XATTR_BYTES_MAX as u64
        {
            self.at(Fault::BadXattrs, key, "a name with a zero byte, or more in the values than an object can have");
        }
    }

    /// The places of findings, by object.
    pub(super) fn places(&self) -> impl Iterator<Item = ObjectId> {
        self.report.findings.iter().filter_map(|finding| match &finding.place {
            Place::Key(key) => super::places::object_of(key),
            Place::Store | Place::Raw(_) => None,
        })
    }

    /// A place that is an object's record.
    pub(super) fn object_place(id: u64) -> Place {
        Place::Key(Key::Object(ObjectId(id)))
    }

    /// A place that is a counter.
    pub(super) const fn counter_place(counter: Counter) -> Place {
        Place::Key(Key::Counter(counter))
    }
}

/// A digest of a name. Two names with the same one would hide a fault, not make one.
fn digest(name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(name);
    hasher.finish()
}
