//! What a check keeps of every object while it reads the rest of the store.
//!
//! Decides: the one thing of a check that grows with the store: a row of [`ROW_BYTES`] for each object, in pieces, so that memory
//! never doubles while it grows. Place in the walk: filled from the records of objects, marked by entries and blocks.
//! Invariant: rows stand in the order of their ids, for the store gives its keys in order.
//! Leaves to others: what the marks mean (`walk`, `tree`).

use cistern_server::principals::PrincipalId;
use cistern_wire::ObjectKind;

/// Rows in a piece.
const PIECE: usize = 1 << 16;

/// Memory of a row, in bytes.
pub(super) const ROW_BYTES: usize = size_of::<Row>();

/// Marks of a row.
pub(super) mod mark {
    /// A directory of which entries were seen.
    pub(in super::super) const HAS_ENTRIES: u8 = 1;
    /// A directory that its parent names as its record says.
    pub(in super::super) const IN_PLACE: u8 = 2;
    /// A symbolic link whose target was seen.
    pub(in super::super) const HAS_TARGET: u8 = 4;
    /// A directory on the way up that is being looked at.
    pub(in super::super) const ON_THE_WAY: u8 = 8;
    /// A directory from which the way up was followed to its end.
    pub(in super::super) const FOLLOWED: u8 = 16;
    /// An object whose extended attributes were seen.
    pub(in super::super) const HAS_XATTRS: u8 = 32;
}

/// What is kept of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) id: u64,
    pub(super) parent: u64,
    /// Digest of the name in its record.
    pub(super) name: u64,
    pub(super) size: u64,
    /// Links, as its record says.
    pub(super) nlink: u32,
    /// Entries that name it.
    pub(super) names: u32,
    /// `None`: its record cannot be read, so nothing is said against what speaks of it.
    pub(super) kind: Option<ObjectKind>,
    /// Extended attributes, as its record says.
    pub(super) xattrs: u8,
    /// The realm, as its record says.
    pub(super) realm: u32,
    /// Who made it, as its record says.
    pub(super) creator: PrincipalId,
    pub(super) marks: u8,
}

impl Row {
    pub(super) const fn has(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == Some(ObjectKind::Directory)
    }
}

/// All objects, in order of their ids.
#[derive(Debug, Default)]
pub(super) struct Table {
    pieces: Vec<Vec<Row>>,
}

impl Table {
    /// Appends a row, whose id is above all others.
    pub(super) fn push(&mut self, row: Row) {
        match self.pieces.last_mut().filter(|piece| piece.len() < PIECE) {
            Some(piece) => piece.push(row),
            None => self.pieces.push(std::vec![row]),
        }
    }

    pub(super) fn get(&self, id: u64) -> Option<&Row> {
        let piece = &self.pieces[self.piece_of(id)?];
        piece.binary_search_by_key(&id, |row| row.id).ok().map(|at| &piece[at])
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Row> {
        let at = self.piece_of(id)?;
        let piece = &mut self.pieces[at];
        piece.binary_search_by_key(&id, |row| row.id).ok().map(|at| &mut piece[at])
    }

    /// The only piece that can have an id.
    fn piece_of(&self, id: u64) -> Option<usize> {
        self.pieces.partition_point(|piece| piece.first().is_some_and(|row| row.id <= id)).checked_sub(1)
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.pieces.iter().flatten()
    }

    /// The largest id.
    pub(super) fn last(&self) -> Option<u64> {
        self.pieces.last()?.last().map(|row| row.id)
    }

    /// Memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.capacity() * ROW_BYTES).sum()
    }
}
