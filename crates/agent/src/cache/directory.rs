//! What is known of one directory's names, all at one version.
//!
//! Decides: whether a name is there, is known to be absent, or is not known.
//! Place in the walk: the body of a cached directory; asked by `walk` for every name of a path and by `tasks::pages`.
//! Implements `wire-spec.md` section 11.5. Invariant: absence is said only of a name whose absence was itself answered, or of a
//! directory that was read completely at this version.
//! Leaves to others: versions and locks (`cache/mod.rs`).

use alloc::collections::BTreeMap;
use bytes::Bytes;
use cistern_wire::{ObjectId, ObjectKind};

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It names this object.
    Object(ObjectId, ObjectKind),
    /// There is no such name.
    Absent,
}

/// What one name costs beside its bytes: the handle, what it names, and its share of the tree's nodes.
const NAME_COST: usize = 80;

/// The names of a directory.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    names: BTreeMap<Bytes, Known>,
    complete: bool,
    bytes: usize,
}

impl Directory {
    /// A directory that was read completely; `names` are all it has.
    pub(crate) fn complete(names: impl IntoIterator<Item = (Bytes, ObjectId, ObjectKind)>) -> Self {
        let mut directory = Self { complete: true, ..Self::default() };
        for (name, object, kind) in names {
            directory.learn(name, Known::Object(object, kind));
        }
        directory
    }

    /// What is known of a name; `None`: nothing.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Known> {
        match self.names.get(name) {
            Some(known) => Some(*known),
            //= wire-spec.md#11-5-caching-and-metadata
            //# The agent MUST NOT call a name absent from cache unless it read the directory whole under one generation or cached that
            //# very answer under it.
            None => self.complete.then_some(Known::Absent),
        }
    }

    /// Every name there is, in byte order; `None` unless the directory is known completely.
    pub(crate) fn listing(&self) -> Option<impl ExactSizeIterator<Item = (&Bytes, ObjectId, ObjectKind)>> {
        // A complete directory stores no absent names (`learn`), so what is stored is the listing.
        self.complete.then(|| {
            self.names.iter().map(|(name, known)| match known {
                Known::Object(object, kind) => (name, *object, *kind),
                Known::Absent => (name, ObjectId(0), ObjectKind::File),
            })
        })
    }

    /// Takes in what is known of a name at this version.
    pub(crate) fn learn(&mut self, name: Bytes, known: Known) {
        if self.complete && known == Known::Absent {
            self.forget(&name);
            return;
        }
        let cost = NAME_COST + name.len();
        if self.names.insert(name, known).is_none() {
            self.bytes += cost;
        }
    }

    /// A name changed in a way that is not known: neither it nor the completeness of the directory is known any more.
    pub(crate) fn doubt(&mut self, name: &[u8]) {
        self.forget(name);
        self.complete = false;
    }

    /// Bytes of memory, about.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn forget(&mut self, name: &[u8]) {
        if self.names.remove(name).is_some() {
            self.bytes -= NAME_COST + name.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const FILE: Known = Known::Object(ObjectId(7), ObjectKind::File);

    fn name(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    //= wire-spec.md#11-5-caching-and-metadata
    //= type=test
    //# The agent MUST NOT call a name absent from cache unless it read the directory whole under one generation or cached that very
    //# answer under it.
    #[test]
    fn absence_is_known_only_from_an_answer_or_from_a_complete_reading() {
        let mut partial = Directory::default();
        partial.learn(name("a"), FILE);
        partial.learn(name("gone"), Known::Absent);
        assert_eq!((partial.find(b"a"), partial.find(b"gone"), partial.find(b"b")), (Some(FILE), Some(Known::Absent), None));
        assert!(partial.listing().is_none());

        let whole = Directory::complete([(name("a"), ObjectId(7), ObjectKind::File)]);
        assert_eq!((whole.find(b"a"), whole.find(b"b")), (Some(FILE), Some(Known::Absent)));
    }

    #[test]
    fn a_complete_directory_stays_complete_under_known_changes_and_not_under_unknown_ones() {
        let mut dir = Directory::complete([(name("b"), ObjectId(7), ObjectKind::File), (name("c"), ObjectId(8), ObjectKind::File)]);
        dir.learn(name("a"), FILE);
        dir.learn(name("b"), Known::Absent);
        let names: Vec<_> = dir.listing().unwrap().map(|(name, object, _)| (name.clone(), object.0)).collect();
        assert_eq!(names, [(name("a"), 7), (name("c"), 8)]);
        dir.doubt(b"c");
        assert!(dir.listing().is_none());
        assert_eq!((dir.find(b"a"), dir.find(b"c")), (Some(FILE), None));
    }

    #[test]
    fn bytes_come_back_when_names_go() {
        let mut dir = Directory::default();
        dir.learn(name("a"), FILE);
        dir.learn(name("a"), Known::Absent);
        assert_eq!(dir.bytes(), NAME_COST + 1);
        dir.doubt(b"a");
        dir.doubt(b"a");
        assert_eq!(dir.bytes(), 0);
    }
}
