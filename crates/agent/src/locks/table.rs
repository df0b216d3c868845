//! The entries of all advisory locks: found by object, kept in pieces, those that nobody uses in the order in which they fell idle.
//!
//! Decides how an agent with very many locks finds one (a hash look-up), and that no call moves, tells or frees more than a piece of them:
//! entries stay where they are when the table grows, and a table that is over is taken apart piece by piece.
//! Place in the walk: under `advisory`. Invariants: an object has one place from `insert` to `remove`; the hash table is never iterated, so
//! the same inputs give the same order. Leaves to others: what an entry means (`entry`), what is done to it (`advisory`).

use super::entry::Entry;
use super::parts::Parts;
use alloc::vec::Vec;
use cistern_wire::ObjectId;

/// Where an entry is.
pub(super) type Place = u32;

/// No place.
const NONE: Place = Place::MAX;

#[derive(Debug)]
struct Slot {
    /// `None` while the slot is free.
    entry: Option<Entry>,
    /// Those who fell idle just after this one and just before it, if it is idle.
    newer: Place,
    older: Place,
    idle: bool,
}

/// Entries by object.
#[derive(Debug)]
pub(super) struct Table {
    /// Entries of one piece, as a power of two.
    bits: u32,
    index: Parts<Place>,
    pieces: Vec<Vec<Slot>>,
    free: Vec<Place>,
    newest_idle: Place,
    oldest_idle: Place,
}

impl Table {
    /// An empty one, with pieces of so many entries, as a power of two.
    pub(super) fn new(bits: u32) -> Self {
        Self { bits, index: Parts::new(), pieces: Vec::new(), free: Vec::new(), newest_idle: NONE, oldest_idle: NONE }
    }

    /// An empty one like this.
    pub(super) fn another(&self) -> Self {
        Self::new(self.bits)
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.index.len()
    }

    /// The place of an object's entry.
    pub(super) fn find(&self, object: ObjectId) -> Option<Place> {
        self.index.get(object.0)
    }

    /// The entry in a place.
    pub(super) fn get(&self, at: Place) -> Option<&Entry> {
        self.slot(at)?.entry.as_ref()
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, at: Place) -> Option<&mut Entry> {
        self.slot_mut(at)?.entry.as_mut()
    }

    /// Takes in an entry of an object that has none.
    pub(super) fn insert(&mut self, entry: Entry) -> Place {
        let object = entry.object;
        let slot = Slot { entry: Some(entry), newer: NONE, older: NONE, idle: false };
        let at = if let Some(at) = self.free.pop() {
            if let Some(place) = self.slot_mut(at) {
                *place = slot;
            }
            at
        } else {
            self.push(slot)
        };
        let former = self.index.insert(object.0, at);
        debug_assert!(former.is_none(), "an object has one place");
        at
    }

    fn push(&mut self, slot: Slot) -> Place {
        if self.pieces.last().is_none_or(|piece| piece.len() >= 1 << self.bits) {
            self.pieces.push(Vec::new());
        }
        let last = self.pieces.len() - 1;
        self.pieces[last].push(slot);
        // No more than `advisory-max`, which is less than 2^32.
        Place::try_from((last << self.bits) + self.pieces[last].len() - 1).unwrap_or(NONE)
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, at: Place) -> Option<Entry> {
        self.set_idle(at, false);
        let entry = self.slot_mut(at)?.entry.take()?;
        self.index.remove(entry.object.0);
        self.free.push(at);
        Some(entry)
    }

    /// Notes whether an entry is idle; one that was so before keeps its turn.
    pub(super) fn set_idle(&mut self, at: Place, idle: bool) {
        let newest = self.newest_idle;
        let Some(slot) = self.slot_mut(at).filter(|slot| slot.idle != idle) else { return };
        slot.idle = idle;
        if idle {
            (slot.newer, slot.older) = (NONE, newest);
            match self.slot_mut(newest) {
                Some(second) => second.newer = at,
                None => self.oldest_idle = at,
            }
            self.newest_idle = at;
        } else {
            let (newer, older) = (slot.newer, slot.older);
            match self.slot_mut(newer) {
                Some(slot) => slot.older = older,
                None => self.newest_idle = older,
            }
            match self.slot_mut(older) {
                Some(slot) => slot.newer = newer,
                None => self.oldest_idle = newer,
            }
        }
    }

    /// The one that has been idle longest; it is not any more.
    pub(super) fn pop_idle(&mut self) -> Option<Place> {
        let at = Some(self.oldest_idle).filter(|at| *at != NONE)?;
        self.set_idle(at, false);
        Some(at)
    }

    /// One more than the highest place that was ever used.
    pub(super) fn end(&self) -> Place {
        let full = self.pieces.len().saturating_sub(1) << self.bits;
        Place::try_from(full + self.pieces.last().map_or(0, Vec::len)).unwrap_or(NONE)
    }

    /// All entries, in the order of their places.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.pieces.iter().flatten().filter_map(|slot| slot.entry.as_ref())
    }

    /// How many pieces there are.
    pub(super) const fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The entries of one piece; `None`: there are no more.
    pub(super) fn piece(&self, number: usize) -> Option<impl Iterator<Item = &Entry>> {
        self.pieces.get(number).map(|piece| piece.iter().filter_map(|slot| slot.entry.as_ref()))
    }

    /// Takes the last piece away, with what is in it, of a table that is not used any more; what is left is still found.
    pub(super) fn break_off(&mut self) -> Option<impl Iterator<Item = Entry> + use<>> {
        if self.is_broken_up() {
            return None;
        }
        let piece = self.pieces.pop().unwrap_or_default();
        if self.pieces.is_empty() {
            self.index.let_go();
        }
        Some(piece.into_iter().filter_map(|slot| slot.entry))
    }

    /// Whether nothing of it is left.
    pub(super) const fn is_broken_up(&self) -> bool {
        self.pieces.is_empty() && self.index.is_gone()
    }

    fn slot(&self, at: Place) -> Option<&Slot> {
        self.pieces.get((at >> self.bits) as usize)?.get(self.in_piece(at))
    }

    fn slot_mut(&mut self, at: Place) -> Option<&mut Slot> {
        let within = self.in_piece(at);
        self.pieces.get_mut((at >> self.bits) as usize)?.get_mut(within)
    }

    const fn in_piece(&self, at: Place) -> usize {
        at as usize & ((1 << self.bits) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE_BITS: u32 = 10;
    const PIECE: usize = 1 << PIECE_BITS;

    fn table(count: u64) -> Table {
        let mut table = Table::new(PIECE_BITS);
        (1..=count).for_each(|object| {
            table.insert(Entry::new(ObjectId(object)));
        });
        table
    }

    fn idle(table: &mut Table) -> Vec<u64> {
        core::iter::from_fn(|| table.pop_idle().and_then(|at| table.get(at)).map(|entry| entry.object.0)).collect()
    }

    #[test]
    fn entry_stays_in_its_place_while_others_come_and_go() {
        let mut table = table(3_000);
        let at = table.find(ObjectId(1_500)).unwrap();
        for object in (1..=3_000).filter(|object| *object != 1_500) {
            let at = table.find(ObjectId(object)).unwrap();
            assert_eq!(table.remove(at).map(|entry| entry.object), Some(ObjectId(object)));
        }
        assert_eq!((table.len(), table.find(ObjectId(1)), table.get(at).unwrap().object), (1, None, ObjectId(1_500)));
        for object in 5_000..8_500 {
            table.insert(Entry::new(ObjectId(object)));
        }
        assert_eq!(table.find(ObjectId(1_500)), Some(at));
        let found = (0..table.end()).filter(|at| table.get(*at).is_some()).count();
        assert_eq!((found, table.entries().count(), table.len()), (3_501, 3_501, 3_501));
    }

    #[test]
    fn idle_ones_come_in_the_order_in_which_they_fell_idle() {
        let mut table = table(5);
        for object in [3, 1, 5, 2, 1] {
            let at = table.find(ObjectId(object)).unwrap();
            table.set_idle(at, true);
        }
        for object in [5, 4] {
            let at = table.find(ObjectId(object)).unwrap();
            table.set_idle(at, false);
        }
        let at = table.find(ObjectId(2)).unwrap();
        table.remove(at);
        assert_eq!(idle(&mut table), [3, 1]);
        assert_eq!(idle(&mut table), [0; 0]);
    }

    #[test]
    fn table_that_is_over_comes_apart_piece_by_piece_and_whole() {
        let mut table = table(2 * PIECE as u64 + 7);
        let mut seen = Vec::new();
        while let Some(piece) = table.break_off() {
            let before = seen.len();
            seen.extend(piece.map(|entry| entry.object.0));
            assert!(seen.len() - before <= PIECE);
            let found = |table: &Table, object| table.find(ObjectId(object)).and_then(|at| table.get(at)).is_some();
            assert_eq!((found(&table, 1), found(&table, 2 * PIECE as u64 + 7)), (!seen.contains(&1), false));
        }
        assert!(table.is_broken_up());
        seen.sort_unstable();
        assert_eq!(seen, (1..=2 * PIECE as u64 + 7).collect::<Vec<_>>());
    }
}
