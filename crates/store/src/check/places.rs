//! Paths of what was found, so that a person finds it.
//!
//! Decides: what a path is made of. Place in the walk: after the check, by one more look at the records of objects, and only if
//! something was found. Invariant: keeps names only of the objects found and of the directories above them.
//! Leaves to others: showing bytes that are no text.

use super::walk::Walk;
use super::{Finding, Place};
use bytes::Bytes;
use cistern_server::store::{Key, ObjectRecord};
use cistern_wire::ObjectId;
use cistern_wire::limits::ROOT;
use std::collections::BTreeMap;

/// Most directories above an object that are looked at: a path of more is shown by nobody.
const DEPTH_MAX: usize = 256;

/// The object whose path says where a record is: of an entry its directory.
pub(super) const fn object_of(key: &Key) -> Option<ObjectId> {
    match key {
        Key::Object(object)
        | Key::Block(object, _)
        | Key::Entry(object, _)
        | Key::Xattrs(object)
        | Key::Ephemeral(_, object)
        | Key::Lease(object) => Some(*object),
        Key::Counter(_)
        | Key::Session(_)
        | Key::Outcome(..)
        | Key::Realm(_)
        | Key::Principal(_)
        | Key::Account(_)
        | Key::Invite(_)
        | Key::StartKey(_) => None,
    }
}

impl Walk {
    /// The objects whose names are wanted: those of findings, and all above them.
    pub(super) fn wanted(&self) -> BTreeMap<u64, Option<(u64, Bytes)>> {
        let mut wanted = BTreeMap::new();
        for ObjectId(start) in self.places() {
            let mut at = start;
            for _ in 0..DEPTH_MAX {
                let Some(row) = self.table.get(at) else { break };
                if wanted.insert(at, None).is_some() {
                    break;
                }
                at = row.parent;
            }
        }
        wanted
    }
}

/// Names, as they are read.
#[derive(Debug)]
pub(super) struct Names {
    /// By object: its parent and its name there, once they were read.
    names: BTreeMap<u64, Option<(u64, Bytes)>>,
}

impl Names {
    pub(super) const fn new(wanted: BTreeMap<u64, Option<(u64, Bytes)>>) -> Self {
        Self { names: wanted }
    }

    /// Takes a record; false: what comes after it is no object.
    pub(super) fn take(&mut self, key: &[u8], value: &[u8]) -> bool {
        let object = match Key::from_bytes(key) {
            Ok(Key::Object(object)) => object,
            Ok(key) => return key < Key::Object(ObjectId(u64::MAX)),
            Err(_) => return true,
        };
        if let (Some(name), Ok(record)) = (self.names.get_mut(&object.0), ObjectRecord::from_bytes(object, value)) {
            *name = Some((record.parent.0, record.name));
        }
        true
    }

    /// Writes the paths into the findings.
    pub(super) fn tell(&self, findings: &mut [Finding]) {
        for finding in findings {
            let Place::Key(key) = &finding.place else { continue };
            finding.path = object_of(key).and_then(|object| self.path(object.0));
            if let (Key::Entry(dir, name), Some(path)) = (key, &mut finding.path) {
                if dir.0 != ROOT {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
            }
        }
    }

    /// The path of an object; `None`: it does not lead to the root.
    fn path(&self, object: u64) -> Option<Vec<u8>> {
        let (mut at, mut names) = (object, Vec::new());
        while at != ROOT {
            let (parent, name) = self.names.get(&at)?.as_ref()?;
            names.push(name);
            at = *parent;
            if names.len() > DEPTH_MAX {
                return None;
            }
        }
        if names.is_empty() {
            return Some(b"/".to_vec());
        }
        let mut path = Vec::new();
        for name in names.into_iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Some(path)
    }
}
