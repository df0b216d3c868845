//! Which object goes when there is no room: first in, first out, with a second chance for what was used meanwhile.
//!
//! A use costs one store and no look-up. Order comes from the queue alone, so the same inputs give the same evictions.

use alloc::collections::BTreeMap;
use cistern_wire::ObjectId;
use hashbrown::HashMap;

/// Most that are passed over for one that goes, so that no turn is long.
const CHANCES_MAX: u32 = 64;

/// Objects in the order in which they came in.
#[derive(Debug, Default)]
pub(crate) struct EvictionQueue {
    order: BTreeMap<u64, ObjectId>,
    last: u64,
}

/// An object's place in an [`EvictionQueue`], kept with the object.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// 0 outside of the queue.
    number: u64,
    used: bool,
}

impl EvictionQueue {
    /// Puts an object at the end, unless it is in the queue.
    pub(crate) fn enter(&mut self, object: ObjectId, place: &mut Place) {
        if place.number == 0 {
            self.last += 1;
            *place = Place { number: self.last, used: false };
            self.order.insert(self.last, object);
        }
    }

    /// Takes an object out, wherever it is.
    pub(crate) fn leave(&mut self, place: &mut Place) {
        self.order.remove(&place.number);
        place.number = 0;
    }

    /// Takes out the next of those that `may_go`. Others leave the queue, too: they enter it again when they may go.
    pub(crate) fn evict<T>(
        &mut self,
        objects: &mut HashMap<ObjectId, T>,
        place_of: impl Fn(&mut T) -> &mut Place,
        may_go: impl Fn(ObjectId, &T) -> bool,
    ) -> Option<ObjectId> {
        let mut chances = CHANCES_MAX;
        while let Some((_, object)) = self.order.pop_first() {
            let Some(value) = objects.get_mut(&object) else { continue };
            let may_go = may_go(object, value);
            let place = place_of(value);
            place.number = 0;
            if may_go && place.used && chances > 0 {
                chances -= 1;
                self.enter(object, place);
            } else if may_go {
                return Some(object);
            }
        }
        None
    }
}

impl Place {
    /// The object is in use: it is passed over once.
    pub(crate) const fn used(&mut self) {
        self.used = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn first_in_goes_first_unless_it_was_used_and_has_one_place() {
        let mut queue = EvictionQueue::default();
        let mut places: HashMap<ObjectId, Place> = (1..=6).map(|n| (ObjectId(n), Place::default())).collect();
        for object in [3, 1, 4, 2, 1, 5].map(ObjectId) {
            queue.enter(object, places.get_mut(&object).unwrap());
        }
        queue.leave(places.get_mut(&ObjectId(4)).unwrap());
        places.get_mut(&ObjectId(3)).unwrap().used();
        let gone = core::iter::from_fn(|| queue.evict(&mut places, |place| place, |object, _| object != ObjectId(2)));
        assert_eq!(gone.map(|object| object.0).collect::<Vec<_>>(), [1, 5, 3]);
    }
}
