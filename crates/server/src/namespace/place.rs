//! Paths of objects, for people who read lists of locks.
//!
//! Decides: which path of an object is shown: the one by which it was named last, if it still has that name. Place in the walk: asked by
//! LIST_LOCKS. Implements `wire-spec.md` section 6.5 (`place`).
//! Invariant: a path that is shown leads to the object at that instant; otherwise none is shown. One list costs at most [`STEPS_MAX`]
//! look-ups of a parent, however many objects it names and however deep they lie.
//! Leaves to others: nothing depends on it.

use super::{Namespace, Step};
use crate::store::{Lack, View};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::ObjectId;
use cistern_wire::limits::ROOT;

/// What stands for the beginning of a path that does not fit, or that would take too many look-ups.
const CUT: &[u8] = b"...";

/// Most look-ups of a parent in one list: about two for each of the rows that fit a datagram, and enough for one path of any depth.
const STEPS_MAX: usize = 128;

/// The paths of one list: what was looked up for one object serves the others.
#[derive(Debug)]
pub struct Places {
    /// Parent and name of each object that was looked up; `None`: it has no name that leads to it.
    known: BTreeMap<ObjectId, Option<(ObjectId, Bytes)>>,
    /// Look-ups that are left.
    steps: usize,
}

impl Places {
    /// Those of a new list: nothing is known yet.
    #[must_use]
    pub(crate) const fn new() -> Self {
        Self { known: BTreeMap::new(), steps: STEPS_MAX }
    }

    /// Parent and name of an object; `Ok(None)`: there is none. `Err(None)`: no look-up is left.
    fn above(&mut self, view: &View<'_>, object: ObjectId) -> Result<Option<&(ObjectId, Bytes)>, Option<Lack>> {
        if !self.known.contains_key(&object) {
            self.steps = self.steps.checked_sub(1).ok_or(None)?;
            let found = looked_up(view, object).map_err(Some)?;
            self.known.insert(object, found);
        }
        Ok(self.known.get(&object).and_then(Option::as_ref))
    }
}

impl Namespace {
    /// A path of an object, at most `max` bytes (at least 4): its end, after "...", if it is longer or the list has cost enough.
    /// Empty: none is known.
    pub fn place(&self, view: &View<'_>, places: &mut Places, object: ObjectId, max: usize) -> Step<Vec<u8>> {
        place(view, places, object, max).into()
    }
}

fn place(view: &View<'_>, places: &mut Places, object: ObjectId, max: usize) -> Result<Vec<u8>, Lack> {
    // From the object up to the root.
    let (mut names, mut len, mut at) = (Vec::new(), 0, object);
    let mut cut = false;
    while at.0 != ROOT && !cut {
        match places.above(view, at) {
            Ok(Some((parent, name))) => {
                len += 1 + name.len();
                names.push(name.clone());
                (at, cut) = (*parent, len > max);
            }
            Ok(None) => return Ok(Vec::new()),
            Err(Some(lack)) => return Err(lack),
            Err(None) => cut = true,
        }
    }
    let mut path: Vec<u8> = names.iter().rev().flat_map(|name| [b"/", &name[..]].concat()).collect();
    if cut {
        let over = (CUT.len() + path.len()).saturating_sub(max);
        path.splice(0..over.min(path.len()), CUT.iter().copied());
    } else if path.is_empty() {
        path.push(b'/');
    }
    Ok(path)
}

fn looked_up(view: &View<'_>, object: ObjectId) -> Result<Option<(ObjectId, Bytes)>, Lack> {
    let Some(record) = view.object(object)? else { return Ok(None) };
    let named = view.entry(record.parent, &record.name)?.is_some_and(|entry| entry.object == object);
    Ok(named.then(|| (record.parent, record.name.clone())))
}
