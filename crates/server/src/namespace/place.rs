//! Paths of objects, for people who read lists of locks.
//!
//! Decides: which path of an object is shown: the one by which it was named last, if it still has that name. Place in the walk: asked by
//! LIST_LOCKS. Implements `wire-spec.md` section 6.5 (`place`).
//! Invariant: a path that is shown leads to the object at that instant; otherwise none is shown. One list costs at most [`STEPS_MAX`]
//! look-ups of a parent, however many objects it names and however deep they lie.
//! Leaves to others: nothing depends on it.

use super::Namespace;
use crate::store::{ReadError, View};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::ObjectId;
use cistern_wire::limits::ROOT;

/// What stands for the beginning of a path that does not fit, or that would take too many look-ups.
const CUT: &[u8] = b"...";

/// Most look-ups of a parent in one list: about two for each of the rows that fit a datagram.
const STEPS_MAX: usize = 64;

/// The paths of one list: what was found for one object serves the others.
#[derive(Debug)]
pub struct Places {
    /// Paths of the objects that were looked up; `None`: no name leads to it.
    paths: BTreeMap<ObjectId, Option<Vec<u8>>>,
    /// Look-ups that are left.
    steps: usize,
}

impl Places {
    /// Those of a new list: nothing is known yet.
    #[must_use]
    pub(crate) const fn new() -> Self {
        Self { paths: BTreeMap::new(), steps: STEPS_MAX }
    }
}

impl Namespace {
    /// A path of an object, at most `max` bytes (at least 4): its end, after "...", if it is longer or the list has cost enough.
    /// Empty: none is known.
    pub fn place(&self, view: &View<'_>, places: &mut Places, object: ObjectId, max: usize) -> Result<Vec<u8>, ReadError> {
        place(view, places, object, max)
    }
}

fn place(view: &View<'_>, places: &mut Places, object: ObjectId, max: usize) -> Result<Vec<u8>, ReadError> {
    if object.0 == ROOT {
        return Ok(b"/".to_vec());
    }
    // From the object up to the root, or to one whose path is known.
    let (mut names, mut at) = (Vec::new(), object);
    let mut path = loop {
        if at.0 == ROOT {
            break Some(Vec::new());
        }
        if let Some(known) = places.paths.get(&at) {
            break known.clone();
        }
        let Some(left) = places.steps.checked_sub(1) else { break Some(CUT.to_vec()) };
        places.steps = left;
        let Some((parent, name)) = looked_up(view, at)? else {
            places.paths.insert(at, None);
            break None;
        };
        names.push((at, name));
        at = parent;
    };
    // Each path is made once, so that a list costs its look-ups and its own length, however deep its objects lie.
    for (object, name) in names.into_iter().rev() {
        path = path.map(|above| joined(above, &name, max));
        places.paths.insert(object, path.clone());
    }
    Ok(path.unwrap_or_default())
}

/// The path of what has a name in a directory; its end, if it is longer than `max`.
fn joined(mut path: Vec<u8>, name: &[u8], max: usize) -> Vec<u8> {
    path.push(b'/');
    path.extend_from_slice(name);
    if let Some(over) = path.len().checked_sub(max + 1) {
        path.splice(..over + 1 + CUT.len(), CUT.iter().copied());
    }
    path
}

fn looked_up(view: &View<'_>, object: ObjectId) -> Result<Option<(ObjectId, Bytes)>, ReadError> {
    let Some(record) = view.object(object)? else { return Ok(None) };
    let named = view.entry(record.parent, &record.name)?.is_some_and(|entry| entry.object == object);
    Ok(named.then(|| (record.parent, record.name.clone())))
}
