//! The draft of a mutation: all that it is about to change, before anything has changed.
//!
//! Decides: how versions, times and counts of an object change together. Place in the walk: made by planning and again by applying,
//! from the same code; only applying commits it.
//! Invariant: an object that a mutation touches in several roles has one record in the draft, and its version grows by one. What
//! can fail or lack has failed or lacked before the draft is complete: committing cannot.
//! Leaves to others: what to change (`names`, `rename`, `content`).

use super::content::Content;
use crate::store::{Counter, EntryRecord, Lack, ObjectRecord, View};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{Attr, ObjectId, ObjectKind, SessionId};

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is only shown in the answer.
    Shown,
    /// It existed and will be changed.
    Changed,
    /// It did not exist.
    Made,
    /// Its last name goes.
    Gone,
}

/// An object that a mutation touches.
#[derive(Clone, Debug)]
pub(super) struct Touched {
    /// Its version before; 0: it did not exist.
    pub(super) before: u64,
    /// Its record after.
    pub(super) record: ObjectRecord,
    pub(super) fate: Fate,
}

/// All that a mutation changes.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// In the order of the answer.
    pub(super) touched: Vec<Touched>,
    /// Names, and what they name from now on; `None`: nothing.
    pub(super) entries: Vec<(ObjectId, Bytes, Option<EntryRecord>)>,
    /// What happens to contents.
    pub(super) contents: Vec<(ObjectId, Content)>,
    /// The object whose name is taken away or replaced.
    pub(super) removes: Option<ObjectId>,
}

/// Who makes a new object, and how.
pub(super) struct Birth {
    pub(super) kind: ObjectKind,
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) nlink: u32,
    pub(super) size: u64,
    /// Of an ephemeral file, the session that makes it; otherwise 0.
    pub(super) owner: SessionId,
}

impl Draft {
    pub(super) fn clear(&mut self) {
        self.touched.clear();
        self.entries.clear();
        self.contents.clear();
        self.removes = None;
    }

    /// Takes an existing object in; gives its place in the draft.
    pub(super) fn show(&mut self, record: &ObjectRecord) -> usize {
        let known = self.touched.iter().position(|touched| touched.record.attr.object == record.attr.object);
        known.unwrap_or_else(|| {
            self.touched.push(Touched { before: record.attr.version, record: record.clone(), fate: Fate::Shown });
            self.touched.len() - 1
        })
    }

    /// The attributes of an object that changes at `wall_ns`.
    pub(super) fn change(&mut self, at: usize, wall_ns: i64) -> &mut Attr {
        let touched = &mut self.touched[at];
        if touched.fate == Fate::Shown {
            touched.fate = Fate::Changed;
            touched.record.attr.version += 1;
        }
        touched.record.attr.ctime_ns = wall_ns;
        &mut touched.record.attr
    }

    /// Changes the entries of a directory, which has so many more or fewer of them and of subdirectories.
    pub(super) fn change_entries(&mut self, at: usize, wall_ns: i64, entries: i64, subdirectories: i32) {
        let attr = self.change(at, wall_ns);
        attr.mtime_ns = wall_ns;
        attr.size = attr.size.saturating_add_signed(entries);
        attr.nlink = attr.nlink.saturating_add_signed(subdirectories);
    }

    /// A new object under a name.
    pub(super) fn make(&mut self, object: ObjectId, parent: ObjectId, name: &[u8], birth: &Birth, wall_ns: i64) {
        let Birth { kind, mode, uid, gid, nlink, size, owner } = *birth;
        let (atime_ns, mtime_ns, ctime_ns) = (wall_ns, wall_ns, wall_ns);
        let attr = Attr { object, version: 1, kind, mode, nlink, uid, gid, size, atime_ns, mtime_ns, ctime_ns, owner };
        let name = Bytes::copy_from_slice(name);
        self.entries.push((parent, name.clone(), Some(EntryRecord { object, kind })));
        self.touched.push(Touched { before: 0, record: ObjectRecord { attr, parent, name }, fate: Fate::Made });
    }

    /// Takes a name of an object away: with the last one (of a directory: its only one) the object goes.
    pub(super) fn take_name(&mut self, at: usize, wall_ns: i64) {
        let attr = self.change(at, wall_ns);
        attr.nlink = if attr.kind == ObjectKind::Directory { 0 } else { attr.nlink.saturating_sub(1) };
        if attr.nlink == 0 {
            let (object, kind, size) = (attr.object, attr.kind, attr.size);
            self.touched[at].fate = Fate::Gone;
            if kind != ObjectKind::Directory {
                self.contents.push((object, Content::Drop { size }));
            }
        }
    }

    /// How the sum of the sizes of all files and symbolic links changes: what is added, what is taken away.
    pub(super) fn bytes(&self) -> (u64, u64) {
        self.contents.iter().fold((0, 0), |(more, less), (_, content)| {
            let (before, after) = content.sizes();
            (more + after, less + before)
        })
    }

    fn count(&self, fate: Fate) -> u64 {
        self.touched.iter().filter(|touched| touched.fate == fate).fold(0, |count, _| count + 1)
    }

    /// Whether nothing is to be changed.
    pub(super) fn is_idle(&self) -> bool {
        self.touched.iter().all(|touched| touched.fate == Fate::Shown)
    }

    /// Makes sure that everything that committing reads is in memory.
    pub(super) fn check(&self, view: &View<'_>) -> Result<(), Lack> {
        let counters = super::join(view.counter(Counter::NextObject), view.counter(Counter::Bytes));
        super::join(counters, view.counter(Counter::Objects))?;
        self.contents.iter().try_for_each(|(object, content)| content.check(view, *object))
    }

    /// Writes all of it into the open batch. `data`: what a WRITE or SYMLINK brings.
    pub(super) fn commit(&self, view: &mut View<'_>, data: &[u8]) -> Result<(), Lack> {
        if self.is_idle() {
            return Ok(());
        }
        self.check(view)?;
        let objects = view.counter(Counter::Objects)?;
        let next = view.counter(Counter::NextObject)?;
        let bytes = view.counter(Counter::Bytes)?;
        // Nothing is written before this line, and nothing can be lacking after it.
        for (object, content) in &self.contents {
            content.commit(view, *object, data)?;
        }
        for touched in &self.touched {
            let attr = &touched.record.attr;
            match touched.fate {
                Fate::Shown => {}
                Fate::Gone => {
                    view.delete_object(attr.object);
                    if attr.is_ephemeral() {
                        view.bind_ephemeral(attr.owner, attr.object, None);
                    }
                }
                Fate::Changed => view.put_object(touched.record.clone()),
                Fate::Made => {
                    view.put_object(touched.record.clone());
                    if attr.kind == ObjectKind::Directory {
                        view.new_directory(attr.object);
                    }
                    //= wire-spec.md#11-7-restart-and-recovery
                    //# An ephemeral object MUST name its owner's session durably, and be bound to the new one when that reclaims.
                    if attr.is_ephemeral() {
                        view.bind_ephemeral(attr.owner, attr.object, Some(attr.owner));
                    }
                }
            }
        }
        for (dir, name, entry) in &self.entries {
            match entry {
                Some(entry) => view.put_entry(*dir, name, *entry),
                None => view.delete_entry(*dir, name),
            }
        }
        let (made, gone, (more, less)) = (self.count(Fate::Made), self.count(Fate::Gone), self.bytes());
        if made + gone > 0 {
            view.set_counter(Counter::NextObject, next + made);
            view.set_counter(Counter::Objects, (objects + made).saturating_sub(gone));
        }
        if more != less {
            view.set_counter(Counter::Bytes, (bytes + more).saturating_sub(less));
        }
        Ok(())
    }
}
