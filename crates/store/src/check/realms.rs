//! Realms: what is in which, and how much that is.
//!
//! Decides: that each object is in the realm of its directory, or begins one within that; that each realm is begun by one directory, is
//! within another, and says of itself what is in it and in those within it. Place in the walk: records of realms come before those of objects.
//! Invariant: memory grows by one row for each realm.

use super::Fault;
use super::walk::Walk;
use cistern_server::store::{Counter, Key, RealmRecord};
use cistern_wire::{ObjectId, Realm};
use std::collections::BTreeMap;

/// One realm within that of the tree.
#[derive(Debug)]
struct Known {
    /// `None`: its record cannot be read.
    record: Option<RealmRecord>,
    /// Whether an entry leads into it.
    begun: bool,
    /// What was seen in it alone, then in those within it, too.
    objects: u64,
    bytes: u64,
}

/// All realms within that of the tree.
#[derive(Debug, Default)]
pub(super) struct Realms {
    known: BTreeMap<Realm, Known>,
    /// An object says that it is in a realm that does not exist.
    unknown: bool,
}

impl Realms {
    /// So much was seen in a realm.
    pub(super) fn add(&mut self, realm: Realm, objects: u64, bytes: u64) {
        if let Some(known) = self.known.get_mut(&realm) {
            known.objects += objects;
            known.bytes = known.bytes.saturating_add(bytes);
        } else {
            self.unknown |= realm != Realm::TREE;
        }
    }
}

impl Walk {
    pub(super) fn realm(&mut self, realm: Realm, key: &Key, value: &[u8]) {
        self.report.realms += 1;
        let record = RealmRecord::from_bytes(value);
        let (record, why) = match record {
            Ok(record) => (Some(record), None),
            Err(error) => (None, Some(error.to_string())),
        };
        self.realms.known.insert(realm, Known { record, begun: false, objects: 0, bytes: 0 });
        if let Some(why) = why {
            return self.at(Fault::BadRecord, key, why);
        }
        // Realms are numbered in the order in which they are made.
        if record.is_some_and(|record| record.parent >= realm) || realm <= Realm::TREE {
            self.at(Fault::BadRealm, key, "it is in none that was there before it");
        }
    }

    /// An object is named by an entry of a directory that is in the realm `of`.
    pub(super) fn in_realm_of(&mut self, object: ObjectId, realm: Realm, of: Realm, key: &Key) {
        if realm == of {
            return;
        }
        let begins = |known: &Known| known.record.is_none_or(|record| record.root == object && record.parent == of);
        match self.realms.known.get_mut(&realm) {
            Some(known) if begins(known) => known.begun = true,
            _ => self.at(Fault::WrongRealm, key, format!("it leads from realm {of} to object {object} of realm {realm}")),
        }
    }

    /// All was read: compares what each realm says of itself with what is in it.
    pub(super) fn realms(&mut self) {
        let mut found = Vec::new();
        // Realms within others have larger numbers.
        let numbers: Vec<Realm> = self.realms.known.keys().rev().copied().collect();
        for realm in numbers {
            let Some(Known { record: Some(record), begun, objects, bytes }) = self.realms.known.get(&realm) else { continue };
            let (record, begun, objects, bytes) = (*record, *begun, *objects, *bytes);
            self.realms.add(record.parent, objects, bytes);
            if !begun {
                found.push((Fault::BadRealm, realm, format!("no entry leads to the directory {} that begins it", record.root)));
            } else if self.bytes_known && !self.realms.unknown && (record.objects, record.bytes) != (objects, bytes) {
                let what = format!("it says {} objects and {} bytes, and in it are {objects} and {bytes}", record.objects, record.bytes);
                found.push((Fault::WrongUse, realm, what));
            }
        }
        for (fault, realm, what) in found.into_iter().rev() {
            self.at(fault, &Key::Realm(realm), what);
        }
        if let Some((last, _)) = self.realms.known.last_key_value()
            && let Some(next) = self.report.counter(Counter::NextRealm)
            && next <= u64::from(last.0)
        {
            let what = format!("it says {next}, and there is a realm {last}: its number could be given again");
            self.find(Fault::WrongCounter, Self::counter_place(Counter::NextRealm), what);
        }
    }
}
