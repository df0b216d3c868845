//! What is known of an object beyond its attributes, all of one version: names of a directory, contents of a file, target of a link.
//!
//! Decides whether a name is there, is known to be absent, or is not known; which ranges of bytes can be answered, and what remains known after
//! a write of the agent's own. Invariants: absence is said only of a name whose absence was itself answered, or of a directory that was read
//! completely at this version; extents never overlap, and what is in none is not known (`wire-spec.md` section 11.5).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{ObjectId, ObjectKind};

/// The state of an object beyond its attributes.
#[derive(Debug, Default)]
pub(crate) enum Body {
    /// Not known.
    #[default]
    Unknown,
    /// Names of a directory.
    Directory(Directory),
    /// Contents of a file.
    File(Contents),
    /// Target of a symbolic link.
    Link(Bytes),
}

impl Body {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Unknown => 0,
            Self::Directory(directory) => directory.bytes(),
            Self::File(contents) => contents.bytes(),
            Self::Link(target) => target.len(),
        }
    }
}

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

/// Most extents of one file; a file read in more pieces than this starts anew, so that a look-up stays short.
const EXTENTS_MAX: usize = 64;

/// The contents of a file, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    extents: BTreeMap<u64, Bytes>,
    bytes: usize,
}

impl Contents {
    /// The bytes from `offset`, `length` of them: shared with the cache when one extent has them all, gathered otherwise.
    /// `None` if some are not known.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Option<Bytes> {
        if length == 0 {
            return Some(Bytes::new());
        }
        let (start, extent) = self.extents.range(..=offset).next_back()?;
        let skip = usize::try_from(offset - start).ok()?;
        if skip < extent.len() && extent.len() - skip >= length {
            return Some(extent.slice(skip..skip + length));
        }
        self.gather(*start, offset, length)
    }

    fn gather(&self, first: u64, offset: u64, length: usize) -> Option<Bytes> {
        let mut bytes = Vec::new();
        let mut next = offset;
        for (start, extent) in self.extents.range(first..) {
            let skip = usize::try_from(next.checked_sub(*start)?).ok()?;
            let known = extent.get(skip..).filter(|known| !known.is_empty())?;
            let take = known.len().min(length - bytes.len());
            bytes.extend_from_slice(&known[..take]);
            next += take as u64;
            if bytes.len() == length {
                return Some(Bytes::from(bytes));
            }
        }
        None
    }

    /// Takes in bytes that are known at this version.
    pub(crate) fn learn(&mut self, offset: u64, data: Bytes) {
        if data.is_empty() {
            return;
        }
        self.cut(offset, offset + data.len() as u64);
        if self.extents.len() >= EXTENTS_MAX {
            self.extents.clear();
            self.bytes = 0;
        }
        self.bytes += data.len();
        self.extents.insert(offset, data);
    }

    /// The file ends at `size` now: what was known beyond is gone; what is new there is not known.
    pub(crate) fn truncate(&mut self, size: u64) {
        self.cut(size, u64::MAX);
    }

    /// Bytes of contents held.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets the bytes in `[from, to)`.
    fn cut(&mut self, from: u64, to: u64) {
        let first = self.extents.range(..=from).next_back().map_or(from, |(start, _)| *start);
        // Each round takes one touched extent out and puts its untouched ends back, outside the range still looked at.
        while let Some((&start, _)) = self.extents.range(first..to).find(|(start, extent)| *start + extent.len() as u64 > from) {
            let Some(extent) = self.extents.remove(&start) else { return };
            self.bytes -= extent.len();
            let end = start + extent.len() as u64;
            if start < from {
                self.keep(start, &extent, start, from);
            }
            if end > to {
                self.keep(to, &extent, start, end);
            }
        }
    }

    /// Puts the part of an extent back that begins at `at` and ends at `end`; the extent began at `start`.
    fn keep(&mut self, at: u64, extent: &Bytes, start: u64, end: u64) {
        let clip = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX).min(extent.len());
        let part = extent.slice(clip(at)..clip(end));
        // A small part must not keep a large buffer alive that is no longer counted.
        let part = if part.len() * 2 < extent.len() { Bytes::copy_from_slice(&part) } else { part };
        self.bytes += part.len();
        self.extents.insert(at, part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

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

    fn text(bytes: &'static str) -> Bytes {
        Bytes::from_static(bytes.as_bytes())
    }

    #[test]
    fn ranges_are_answered_from_one_extent_or_gathered_from_neighbours() {
        let mut contents = Contents::default();
        contents.learn(0, text("hello "));
        contents.learn(6, text("world"));
        assert_eq!(contents.read(0, 5).unwrap(), "hello");
        assert_eq!(contents.read(3, 6).unwrap(), "lo wor");
        assert_eq!(contents.read(0, 11).unwrap(), "hello world");
        assert_eq!(contents.read(0, 12), None, "the last byte is not known");
        assert_eq!(contents.read(40, 0).unwrap(), "");
        contents.learn(20, text("far"));
        assert_eq!(contents.read(6, 15), None, "there is a hole");
    }

    #[test]
    fn a_single_extent_is_shared_not_copied() {
        let mut contents = Contents::default();
        let data = Bytes::from(vec![7; 4096]);
        let place = data.as_ptr();
        contents.learn(0, data);
        assert_eq!(contents.read(0, 4096).unwrap().as_ptr(), place);
    }

    #[test]
    fn a_write_cuts_what_it_covers_out_of_every_extent() {
        let mut contents = Contents::default();
        contents.learn(0, text("aaaa"));
        contents.learn(4, text("bbbb"));
        contents.learn(8, text("cccc"));
        contents.learn(2, text("XXXXXXXX"));
        assert_eq!(contents.read(0, 12).unwrap(), "aaXXXXXXXXcc");
        assert_eq!(contents.bytes(), 12);
        contents.learn(5, text("y"));
        assert_eq!(contents.read(0, 12).unwrap(), "aaXXXyXXXXcc");
        assert_eq!(contents.bytes(), 12);
        contents.truncate(3);
        assert_eq!((contents.read(0, 3).unwrap(), contents.read(0, 4), contents.bytes()), (text("aaX"), None, 3));
        contents.truncate(0);
        assert_eq!((contents.bytes(), contents.extents.len()), (0, 0));
    }

    #[test]
    fn a_file_read_in_very_many_pieces_starts_anew() {
        let mut contents = Contents::default();
        for n in 0..=EXTENTS_MAX as u64 {
            contents.learn(n * 10, text("x"));
        }
        assert_eq!(contents.extents.len(), 1);
        assert_eq!(contents.bytes(), 1);
    }
}
