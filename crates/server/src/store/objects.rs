//! Records of objects in memory, of which there are millions: kept in pieces, so that no turn copies them.

use super::ObjectRecord;
use super::cache::Slot;
use cistern_link::index::{Index, hash};
use cistern_link::slab::Slab;
use cistern_wire::ObjectId;

/// What is known of objects.
#[derive(Debug)]
pub(super) struct Objects {
    values: Slab<(ObjectId, Slot<ObjectRecord>)>,
    index: Index,
}

impl Objects {
    pub(super) fn new() -> Self {
        Self { values: Slab::new(), index: Index::default() }
    }

    pub(super) const fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn contains_key(&self, id: ObjectId) -> bool {
        self.at(id).is_some()
    }

    pub(super) fn get(&self, id: ObjectId) -> Option<&Slot<ObjectRecord>> {
        let mut found = None;
        self.index.find(hash(id.0, 0), |at| {
            let (known, slot) = &self.values[at];
            found = Some(slot).filter(|_| *known == id);
            found.is_some()
        });
        found
    }

    pub(super) fn get_mut(&mut self, id: ObjectId) -> Option<&mut Slot<ObjectRecord>> {
        self.at(id).map(|at| &mut self.values[at].1)
    }

    /// Takes in what is known of an object of which nothing was known.
    pub(super) fn insert(&mut self, id: ObjectId, slot: Slot<ObjectRecord>) {
        debug_assert!(!self.contains_key(id), "{id} is known already");
        let at = self.values.insert((id, slot));
        self.index.insert(hash(id.0, 0), at);
    }

    pub(super) fn remove(&mut self, id: ObjectId) -> Option<Slot<ObjectRecord>> {
        let at = self.at(id)?;
        self.index.remove(hash(id.0, 0), at);
        Some(self.values.remove(at).1)
    }

    fn at(&self, id: ObjectId) -> Option<u32> {
        self.index.find(hash(id.0, 0), |at| self.values[at].0 == id)
    }
}
