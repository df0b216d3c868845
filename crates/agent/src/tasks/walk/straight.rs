//! The straight way: a path of plain names, all of which are cached.
//!
//! Decides whether a path is so plain that a walk would do nothing but look up one name after the other: no links, no dots, no name that
//! is not known to be there. Such a path needs no place to go on from later, and no trace: it is walked in one call of the agent, so its
//! end is of this very instant. Place in the walk: asked before a command becomes a task. Implements `wire-spec.md` section 11.5.
//! Invariant: where it leads the walk would lead, too. Leaves to others: every other path (`Walk`), errors included.

use super::PATH_MAX;
use crate::cache::{Body, Known, View};
use cistern_wire::limits::ROOT;
use cistern_wire::{ObjectId, ObjectKind};

/// The directory or file at the end of the path; `None`: it has to be walked.
pub(crate) fn straight(path: &[u8], view: &mut View<'_>) -> Option<ObjectId> {
    if path.is_empty() || path.len() > PATH_MAX {
        return None;
    }
    let (mut object, mut kind) = (ObjectId(ROOT), ObjectKind::Directory);
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if kind != ObjectKind::Directory || name == b"." || name == b".." {
            return None;
        }
        let Body::Directory(names) = &view.get(object)?.body else { return None };
        let Known::Object(found, of_kind) = names.find(name)? else { return None };
        (object, kind) = (found, of_kind);
    }
    match kind {
        ObjectKind::Directory => Some(object),
        // Only a directory may have a slash after its name.
        ObjectKind::File if !path.ends_with(b"/") => Some(object),
        ObjectKind::File | ObjectKind::Symlink => None,
    }
}
