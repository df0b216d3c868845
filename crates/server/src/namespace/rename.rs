//! RENAME: moves a name; replaces, refuses to replace, or exchanges.
//!
//! Decides: when a name may move, and what that does to both directories, to the object moved and to the one in its way. Place in
//! the walk: makes drafts for `plan`. Implements `wire-spec.md` section 6.2.
//! Invariant: directories stay a tree: none is ever moved into itself or below itself (EINVAL).
//! Leaves to others: advisory locks on what is moved, replaced or exchanged (the caller, by `Plan::removes`).

use super::draft::Draft;
use super::plan::Frame;
use super::{check_name, join};
use crate::store::{Counter, EntryRecord, ReadError, View};
use cistern_link::bugs::{self, Bug};
use cistern_wire::limits::ROOT;
use cistern_wire::{ObjectId, ObjectKind, Rename, RenameRule, Status};

/// What a RENAME touches: both directories by number, and in their places in the draft, and the object moved.
struct Move {
    from: ObjectId,
    to: ObjectId,
    from_dir: usize,
    to_dir: usize,
    object: usize,
}

impl Draft {
    pub(super) fn rename(&mut self, view: &View<'_>, frame: &Frame, m: &Rename<'_>) -> Result<ObjectId, ReadError> {
        check_name(m.from_name.0)?;
        check_name(m.to_name.0)?;
        let (from, to) = (self.named(m.from_dir)?, self.named(m.to_dir)?);
        let dirs = join(self.directory(view, from), self.directory(view, to));
        let names = join(self.entry(view, from, m.from_name.0), self.entry(view, to, m.to_name.0));
        let (_, (source, target)) = join(dirs, names)?;
        let source = source.ok_or(Status::ENOENT)?;
        self.entered(view, source.object)?;
        match (m.rule, target) {
            (RenameRule::NoReplace, Some(_)) => return Err(Status::EEXIST.into()),
            (RenameRule::Exchange, None) => return Err(Status::ENOENT.into()),
            // Two names of one object, or one name twice: POSIX has it do nothing.
            (_, Some(target)) if target.object == source.object => {
                if frame.batch {
                    self.show(view, source.object)?;
                }
                return Ok(source.object);
            }
            _ => self.check_not_below(view, &source, to)?,
        }
        let (from_dir, to_dir) = (self.show(view, from)?, self.show(view, to)?);
        let all = Move { from, to, from_dir, to_dir, object: self.show(view, source.object)? };
        // Whoever locked it by its path relies on that: another object under the old name could be locked beside it.
        if !bugs::is(Bug::N1) {
            self.loses_name(all.object, m.force);
        }
        match (m.rule, target) {
            (RenameRule::Exchange, Some(target)) => self.exchange(view, frame, m, &all, source, target),
            (_, target) => self.replace(view, frame, m, &all, source, target),
        }?;
        Ok(source.object)
    }

    fn replace(
        &mut self,
        view: &View<'_>,
        frame: &Frame,
        m: &Rename<'_>,
        all: &Move,
        source: EntryRecord,
        target: Option<EntryRecord>,
    ) -> Result<(), ReadError> {
        let (moves_directory, wall) = (source.kind == ObjectKind::Directory, frame.wall_ns);
        let mut subdirectories = i32::from(moves_directory);
        if let Some(target) = target {
            let full = self.entered(view, target.object)?.attr.size > 0;
            match (moves_directory, target.kind == ObjectKind::Directory) {
                (true, false) => return Err(Status::ENOTDIR.into()),
                (false, true) => return Err(Status::EISDIR.into()),
                (true, true) if full => return Err(Status::ENOTEMPTY.into()),
                (true, true) => subdirectories = 0,
                (false, false) => {}
            }
            let replaced = self.show(view, target.object)?;
            self.take_name(view, replaced, wall, m.force)?;
        }
        if all.from != all.to && subdirectories > 0 {
            self.check_links(frame, all.to_dir)?;
        }
        self.change_entries(all.from_dir, wall, -1, -i32::from(moves_directory));
        self.change_entries(all.to_dir, wall, i64::from(target.is_none()), subdirectories);
        self.change(all.object, wall);
        self.put_entry(all.from, m.from_name.0, None);
        self.enter(all.object, all.to, m.to_name.0, source);
        Ok(())
    }

    fn exchange(
        &mut self,
        view: &View<'_>,
        frame: &Frame,
        m: &Rename<'_>,
        all: &Move,
        source: EntryRecord,
        target: EntryRecord,
    ) -> Result<(), ReadError> {
        self.check_not_below(view, &target, all.from)?;
        self.entered(view, target.object)?;
        let other = self.show(view, target.object)?;
        if !bugs::is(Bug::N1) {
            self.loses_name(other, m.force);
        }
        let wall = frame.wall_ns;
        let more = i32::from(source.kind == ObjectKind::Directory) - i32::from(target.kind == ObjectKind::Directory);
        match more {
            // In one directory nothing is added.
            _ if all.from == all.to => {}
            1 => self.check_links(frame, all.to_dir)?,
            -1 => self.check_links(frame, all.from_dir)?,
            _ => {}
        }
        self.change_entries(all.from_dir, wall, 0, -more);
        self.change_entries(all.to_dir, wall, 0, more);
        self.change(all.object, wall);
        self.change(other, wall);
        self.enter(all.object, all.to, m.to_name.0, source);
        self.enter(other, all.from, m.from_name.0, target);
        Ok(())
    }
}

impl Draft {
    /// Whether a directory may have one subdirectory more. Two of its links are its own.
    pub(super) fn check_links(&self, frame: &Frame, dir: usize) -> Result<(), Status> {
        let subdirectories = self.touched[dir].record.attr.nlink.saturating_sub(2);
        if subdirectories < frame.limits.links_max { Ok(()) } else { Err(Status::EMLINK) }
    }

    /// Whether what is moved is a directory that `dir` is, or is below: then it cannot go there.
    fn check_not_below(&self, view: &View<'_>, moved: &EntryRecord, dir: ObjectId) -> Result<(), ReadError> {
        if moved.kind != ObjectKind::Directory {
            return Ok(());
        }
        let mut at = dir;
        // No way up has more directories than there are objects; in a damaged store it could go round.
        for _ in 0..view.counter(Counter::Objects)? + self.made() {
            if at == moved.object {
                return Err(Status::EINVAL.into());
            }
            if at.0 == ROOT {
                return Ok(());
            }
            at = self.entered(view, at)?.parent;
        }
        Err(Status::EIO.into())
    }
}
