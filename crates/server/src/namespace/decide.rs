//! What a mutation does: which records, names, blocks and counters it changes, and to what.
//!
//! Decides: results and errors of mutations, before anything is written. Place in the walk: called for the plan and again, when its
//! turn has come, for the deed. Implements `wire-spec.md` section 6.2.
//! Invariant: `decide` only reads; `Decision::write` only writes.
//! Leaves to others: names (`naming`, `links`), contents (`writing`).

use super::{NamespaceLimits, known, links, naming, writing};
use crate::store::{Counter, EntryRecord, Lack, ObjectRecord, View};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{Attr, Message, ObjectId, Status};

/// What happens to one object.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Its version before; 0: it is new.
    pub(super) before: u64,
    /// Its record after; a link count of 0: it is gone.
    pub(super) record: ObjectRecord,
}

impl Outcome {
    /// An object that changes: its version grows, its change time is now.
    pub(super) fn changing(record: ObjectRecord, wall_ns: i64) -> Self {
        let before = record.attr.version;
        let attr = Attr { version: before + 1, ctime_ns: wall_ns, ..record.attr };
        Self { before, record: ObjectRecord { attr, ..record } }
    }

    /// An object that stays as it is.
    pub(super) const fn unchanged(record: ObjectRecord) -> Self {
        Self { before: record.attr.version, record }
    }

    pub(super) const fn attr(&mut self) -> &mut Attr {
        &mut self.record.attr
    }

    /// A name of the object is taken away: a directory goes with its only one.
    pub(super) fn unlinked(&mut self) {
        let attr = self.attr();
        let directory = attr.kind == cistern_wire::ObjectKind::Directory;
        attr.nlink = if directory { 0 } else { attr.nlink.saturating_sub(1) };
    }

    const fn is_gone(&self) -> bool {
        self.record.attr.nlink == 0
    }
}

/// Everything that a mutation writes.
#[derive(Debug, Default)]
pub(super) struct Decision {
    pub(super) effects: Vec<Outcome>,
    /// The object whose name is taken away or replaced.
    pub(super) removes: Option<ObjectId>,
    pub(super) entries: Vec<(ObjectId, Box<[u8]>, Option<EntryRecord>)>,
    pub(super) blocks: Vec<(ObjectId, u32, Option<Bytes>)>,
    /// Counters after, where they change.
    pub(super) counters: Vec<(Counter, u64)>,
    /// A directory that is made.
    pub(super) made: Option<ObjectId>,
}

/// What a mutation does now, or why it cannot be said or done.
pub(super) fn decide(
    view: &View<'_>,
    message: &Message<'_>,
    contents: &[u8],
    wall_ns: i64,
    limits: &NamespaceLimits,
) -> Result<Decision, Lack> {
    let mut decision = match message {
        Message::SetAttr(m) => writing::set_attr(view, m, wall_ns)?,
        Message::Write(m) => writing::write(view, m, contents, wall_ns)?,
        Message::Create(m) => naming::create(view, m, wall_ns)?,
        Message::Mkdir(m) => naming::mkdir(view, m, wall_ns, limits)?,
        Message::Symlink(m) => naming::symlink(view, m, wall_ns)?,
        Message::Link(m) => links::link(view, m, wall_ns, limits)?,
        Message::Unlink(m) => links::unlink(view, m, wall_ns)?,
        Message::Rmdir(m) => links::rmdir(view, m, wall_ns)?,
        Message::Rename(m) => links::rename(view, m, wall_ns, limits)?,
        _ => return Err(Lack::Failed(Status::UNSUPPORTED)),
    };
    decision.count(view, limits)?;
    Ok(decision)
}

impl Decision {
    /// The number of the next object that is made.
    pub(super) fn next_object(&mut self, view: &View<'_>) -> Result<ObjectId, Lack> {
        let next = view.counter(Counter::NextObject)?;
        self.counters.push((Counter::NextObject, next + 1));
        Ok(ObjectId(next))
    }

    /// What the effects do to the counts of objects and bytes, within the bounds.
    fn count(&mut self, view: &View<'_>, limits: &NamespaceLimits) -> Result<(), Lack> {
        let (mut objects, mut bytes) = (view.counter(Counter::Objects)?, view.counter(Counter::Bytes)?);
        let before = (objects, bytes);
        for effect in &self.effects {
            let old = if effect.before == 0 { 0 } else { contents_of(&known(view, effect.record.attr.object)?.attr) };
            let new = if effect.is_gone() { 0 } else { contents_of(&effect.record.attr) };
            bytes = bytes.saturating_add(new).saturating_sub(old);
            objects = objects.saturating_add(u64::from(effect.before == 0)).saturating_sub(u64::from(effect.is_gone()));
        }
        let full = (objects > before.0 && objects > limits.objects_max) || (bytes > before.1 && bytes > limits.bytes_max);
        if full {
            return Err(Lack::Failed(Status::ENOSPC));
        }
        if objects != before.0 {
            self.counters.push((Counter::Objects, objects));
        }
        if bytes != before.1 {
            self.counters.push((Counter::Bytes, bytes));
        }
        Ok(())
    }

    /// Writes everything into the open batch.
    pub(super) fn write(self, view: &mut View<'_>) {
        for effect in self.effects {
            let attr = &effect.record.attr;
            if effect.is_gone() {
                for block in 0..writing::blocks(attr.size) {
                    view.put_block(attr.object, block, None);
                }
                view.delete_object(attr.object);
            } else if effect.before != attr.version {
                view.put_object(effect.record);
            }
        }
        for (dir, name, entry) in self.entries {
            match entry {
                Some(entry) => view.put_entry(dir, &name, entry),
                None => view.delete_entry(dir, &name),
            }
        }
        for (object, block, bytes) in self.blocks {
            view.put_block(object, block, bytes);
        }
        for (counter, value) in self.counters {
            view.set_counter(counter, value);
        }
        if let Some(dir) = self.made {
            view.new_directory(dir);
        }
    }
}

/// Bytes that count as contents; a directory's size counts its entries instead.
const fn contents_of(attr: &Attr) -> u64 {
    match attr.kind {
        cistern_wire::ObjectKind::Directory => 0,
        cistern_wire::ObjectKind::File | cistern_wire::ObjectKind::Symlink => attr.size,
    }
}
