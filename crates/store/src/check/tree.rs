//! The directories as a whole, when all objects and all names were read.
//!
//! Decides: whether every object is named as often as it says, every directory exactly once and where its record says, and whether all
//! directories are below the root. Place in the walk: after the pass over the records.
//! Invariant: takes time in proportion to the objects, and each loop is one finding, however many directories hang below it.
//! Leaves to others: paths (`places`).

use super::Fault;
use super::table::{Row, mark};
use super::walk::Walk;
use cistern_wire::ObjectKind;
use cistern_wire::limits::ROOT;

/// Directories of a loop that are named.
const NAMED_MAX: usize = 8;

impl Walk {
    /// Looks at every object once more, without the store.
    pub(super) fn tree(&mut self) {
        // Rows are copied out one after the other: findings need the whole.
        let ids: Vec<u64> = self.table.rows().filter(|row| is_doubtful(row)).map(|row| row.id).collect();
        for id in ids {
            if let Some(row) = self.table.get(id).copied() {
                self.judge(&row);
            }
        }
        self.loops();
    }

    fn judge(&mut self, row: &Row) {
        let place = Self::object_place(row.id);
        let Some(kind) = row.kind else { return };
        if kind == ObjectKind::Directory && !row.has(mark::HAS_ENTRIES) {
            self.directory(row, 0, 0);
        }
        if kind == ObjectKind::Symlink && !row.has(mark::HAS_TARGET) {
            self.find(Fault::BadTarget, place.clone(), "it has no target");
        }
        if row.xattrs > 0 && !row.has(mark::HAS_XATTRS) {
            self.find(Fault::BadXattrs, place.clone(), format!("its {} extended attributes are missing", row.xattrs));
        }
        match (kind, row.names) {
            (_, 1..) if row.id == ROOT => self.find(Fault::NamedTwice, place, format!("the root directory has {} names", row.names)),
            _ if row.id == ROOT => {}
            (_, 0) => self.find(Fault::LostObject, place, "no directory names it"),
            (ObjectKind::Directory, 1) if !row.has(mark::IN_PLACE) => {
                self.find(Fault::WrongParent, place, "the one entry that names it is not where its record says, or has another name");
            }
            (ObjectKind::Directory, 1) => {}
            (ObjectKind::Directory, names) => self.find(Fault::NamedTwice, place, format!("{names} entries name this directory")),
            (_, names) if names != row.nlink => {
                self.find(Fault::WrongLinks, place, format!("it has {} links, and {names} names", row.nlink));
            }
            _ => {}
        }
    }

    /// Follows the way up from every directory.
    fn loops(&mut self) {
        let mut way = Vec::new();
        let directories: Vec<u64> = self.table.rows().filter(|row| row.is_directory()).map(|row| row.id).collect();
        for id in directories {
            let mut at = id;
            // A parent that does not exist, or is no directory, has been told by its entry.
            while let Some(row) = self.table.get_mut(at).filter(|row| row.is_directory()) {
                if row.has(mark::FOLLOWED) || row.id == ROOT {
                    break;
                }
                if row.has(mark::ON_THE_WAY) {
                    self.tell_loop(&way, at);
                    break;
                }
                row.marks |= mark::ON_THE_WAY;
                way.push(at);
                at = row.parent;
            }
            for id in way.drain(..) {
                if let Some(row) = self.table.get_mut(id) {
                    row.marks |= mark::FOLLOWED;
                }
            }
        }
    }

    /// `way` ends with a loop, which begins at `first`.
    fn tell_loop(&mut self, way: &[u64], first: u64) {
        let members = way.iter().skip_while(|id| **id != first);
        let mut named: Vec<String> = members.clone().take(NAMED_MAX).map(|id| format!("#{id}")).collect();
        let count = members.count();
        if count > NAMED_MAX {
            named.push(format!("and {} more", count - NAMED_MAX));
        }
        let what = format!("these directories are each in the next, and the last in the first: {}", named.join(", "));
        self.find(Fault::DirectoryLoop, Self::object_place(first), what);
    }
}

/// Whether there is anything to say of an object.
fn is_doubtful(row: &Row) -> bool {
    match row.kind {
        None => false,
        Some(_) if row.xattrs > 0 && !row.has(mark::HAS_XATTRS) => true,
        Some(ObjectKind::Directory) if row.id == ROOT => row.names > 0 || !row.has(mark::HAS_ENTRIES),
        Some(ObjectKind::Directory) => row.names != 1 || !row.has(mark::IN_PLACE) || !row.has(mark::HAS_ENTRIES),
        Some(kind) => row.names != row.nlink || row.names == 0 || (kind == ObjectKind::Symlink && !row.has(mark::HAS_TARGET)),
    }
}
