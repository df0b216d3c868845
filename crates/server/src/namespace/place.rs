//! A path of an object, for people who read lists of locks.
//!
//! Decides: which of its paths is shown: the one by which it was named last, if it still has that name. Place in the walk: asked by
//! LIST_LOCKS. Implements `wire-spec.md` section 6.5 (`place`).
//! Invariant: a path that is shown leads to the object at that instant; otherwise none is shown.
//! Leaves to others: nothing depends on it.

use super::{Namespace, Step};
use crate::store::{Lack, View};
use alloc::vec::Vec;
use cistern_wire::ObjectId;
use cistern_wire::limits::ROOT;

/// What stands for the beginning of a path that does not fit.
const CUT: &[u8] = b"...";

impl Namespace {
    /// A path of an object, at most `max` bytes (at least 4): if it is longer its end, after "...". Empty: none is known.
    pub fn place(&self, view: &View<'_>, object: ObjectId, max: usize) -> Step<Vec<u8>> {
        place(view, object, max).into()
    }
}

fn place(view: &View<'_>, object: ObjectId, max: usize) -> Result<Vec<u8>, Lack> {
    // Built from its end; every name is put in front of what is there.
    let mut path = Vec::new();
    let mut at = object;
    while at.0 != ROOT {
        let Some(record) = view.object(at)? else { return Ok(Vec::new()) };
        let named = view.entry(record.parent, &record.name)?;
        if named.is_none_or(|entry| entry.object != at) {
            return Ok(Vec::new());
        }
        path.splice(0..0, [b"/", &record.name[..]].concat());
        if path.len() > max {
            let cut = path.len() - (max - CUT.len().min(max));
            path.splice(0..cut, CUT.iter().copied());
            return Ok(path);
        }
        at = record.parent;
    }
    if path.is_empty() {
        path.push(b'/');
    }
    Ok(path)
}
