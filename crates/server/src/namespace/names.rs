//! CREATE, MKDIR, SYMLINK, LINK, UNLINK, RMDIR, RENAME.
//!
//! Decides when a name may come, go or move, and what that does to its directory and its object. Implements `wire-spec.md` section 6.2.
//! Invariants: a directory's size is the number of its entries, its link count 2 and one for each subdirectory; a file's link count is the
//! number of its names; directories stay a tree: none is ever moved into itself or below itself (EINVAL), and to see that takes a bounded
//! number of steps (E2BIG).
//! Leaves to others: advisory locks on what is removed, replaced or exchanged (the caller, by `Plan::removes`).

use super::content::Content;
use super::draft::{Birth, Draft};
use super::plan::Frame;
use super::{check_mode, check_name, join};
use crate::principals::Rights;
use crate::store::{EntryRecord, ReadError, View};
use bytes::Bytes;
use cistern_link::bugs::{self, Bug};
use cistern_wire::limits::{PARENTS_MAX, ROOT, SYMLINK_MAX};
use cistern_wire::{Create, Handle, Link, Mkdir, ObjectId, ObjectKind, Realm, Rename, RenameRule, Rmdir, Status, Symlink, Unlink};

impl Draft {
    pub(super) fn create(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &Create<'_>) -> Result<ObjectId, ReadError> {
        check_name(m.name.0)?;
        check_mode(m.mode)?;
        if m.ephemeral && !m.exclusive {
            return Err(Status::EINVAL.into());
        }
        let dir = self.named(m.dir)?;
        let (_, entry) = join(self.directory(view, frame, dir), self.entry(view, dir, m.name.0))?;
        match entry {
            Some(_) if m.exclusive => Err(Status::EEXIST.into()),
            Some(EntryRecord { kind: ObjectKind::Directory, .. }) => Err(Status::EISDIR.into()),
            // The agent's to follow: its walk to this name found no link.
            Some(EntryRecord { kind: ObjectKind::Symlink, .. }) => Err(Status::EEXIST.into()),
            Some(entry) => {
                self.entered(view, entry.object)?;
                self.show(view, entry.object)?;
                Ok(entry.object)
            }
            None => {
                let at = self.show(view, dir)?;
                self.change_entries(at, frame.wall_ns, 1, 0);
                let owner = if m.ephemeral { frame.handle } else { Handle(0) };
                let realm = self.touched[at].record.attr.realm;
                let birth = Birth { kind: ObjectKind::File, mode: m.mode, uid: m.uid, gid: m.gid, nlink: 1, size: 0, owner, realm };
                self.make(view, dir, m.name.0, &birth, frame)
            }
        }
    }

    pub(super) fn mkdir(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &Mkdir<'_>) -> Result<ObjectId, ReadError> {
        check_mode(m.mode)?;
        let dir = self.named(m.dir)?;
        let at = self.free_name(view, frame, dir, m.name.0)?;
        self.check_links(frame, at)?;
        self.change_entries(at, frame.wall_ns, 1, 1);
        let realm = self.touched[at].record.attr.realm;
        let birth = Birth { kind: ObjectKind::Directory, mode: m.mode, uid: m.uid, gid: m.gid, nlink: 2, size: 0, owner: Handle(0), realm };
        self.make(view, dir, m.name.0, &birth, frame)
    }

    pub(super) fn symlink(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &Symlink<'_>) -> Result<ObjectId, ReadError> {
        let target = m.target.0;
        if target.len() > SYMLINK_MAX {
            return Err(Status::ENAMETOOLONG.into());
        }
        if target.is_empty() || target.contains(&0) {
            return Err(Status::EINVAL.into());
        }
        let dir = self.named(m.dir)?;
        let at = self.free_name(view, frame, dir, m.name.0)?;
        self.change_entries(at, frame.wall_ns, 1, 0);
        let size = target.len() as u64;
        let realm = self.touched[at].record.attr.realm;
        let birth = Birth { kind: ObjectKind::Symlink, mode: 0o777, uid: m.uid, gid: m.gid, nlink: 1, size, owner: Handle(0), realm };
        let object = self.make(view, dir, m.name.0, &birth, frame)?;
        self.fill(object, Content::Write { before: 0, offset: 0, len: target.len(), truncate: false });
        Ok(object)
    }

    pub(super) fn link(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &Link<'_>) -> Result<ObjectId, ReadError> {
        let (object, dir) = (self.named(m.object)?, self.named(m.dir)?);
        let attr = self.known(view, frame, object)?;
        // The server takes an ephemeral file's one name away when its session ends; a second one would keep it.
        if attr.kind == ObjectKind::Directory || attr.is_ephemeral() {
            return Err(Status::EPERM.into());
        }
        let dir_at = self.free_name(view, frame, dir, m.name.0)?;
        one_realm(attr.realm, self.touched[dir_at].record.attr.realm)?;
        if attr.nlink >= frame.limits.links_max {
            return Err(Status::EMLINK.into());
        }
        let at = self.show(view, object)?;
        self.change_entries(dir_at, frame.wall_ns, 1, 0);
        self.change(at, frame.wall_ns).nlink += 1;
        self.enter(at, dir, m.name.0, EntryRecord { object, kind: attr.kind });
        Ok(object)
    }

    pub(super) fn unlink(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &Unlink<'_>) -> Result<ObjectId, ReadError> {
        let dir = self.named(m.dir)?;
        let (dir_at, entry) = self.taken_name(view, frame, dir, m.name.0)?;
        if entry.kind == ObjectKind::Directory {
            return Err(Status::EISDIR.into());
        }
        self.entered(view, entry.object)?;
        let at = self.show(view, entry.object)?;
        self.change_entries(dir_at, frame.wall_ns, -1, 0);
        self.take_name(view, at, frame.wall_ns, m.force)?;
        self.put_entry(dir, m.name.0, None);
        Ok(entry.object)
    }

    pub(super) fn rmdir(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &Rmdir<'_>) -> Result<ObjectId, ReadError> {
        let dir = self.named(m.dir)?;
        let (dir_at, entry) = self.taken_name(view, frame, dir, m.name.0)?;
        if entry.kind != ObjectKind::Directory {
            return Err(Status::ENOTDIR.into());
        }
        self.entered(view, entry.object)?;
        let at = self.show(view, entry.object)?;
        // Before what is in it is told.
        self.check_root(frame, at, dir_at)?;
        if self.touched[at].record.attr.size > 0 {
            return Err(Status::ENOTEMPTY.into());
        }
        self.change_entries(dir_at, frame.wall_ns, -1, -1);
        self.take_name(view, at, frame.wall_ns, false)?;
        self.put_entry(dir, m.name.0, None);
        Ok(entry.object)
    }

    /// A directory in which a name is free.
    pub(super) fn free_name(&mut self, view: &View<'_>, frame: &Frame<'_>, dir: ObjectId, name: &[u8]) -> Result<usize, ReadError> {
        check_name(name)?;
        let (_, entry) = join(self.directory(view, frame, dir), self.entry(view, dir, name))?;
        if entry.is_some() {
            return Err(Status::EEXIST.into());
        }
        self.show(view, dir)
    }

    /// A directory and what a name in it names.
    fn taken_name(&mut self, view: &View<'_>, frame: &Frame<'_>, dir: ObjectId, name: &[u8]) -> Result<(usize, EntryRecord), ReadError> {
        check_name(name)?;
        let (_, entry) = join(self.directory(view, frame, dir), self.entry(view, dir, name))?;
        let entry = entry.ok_or(Status::ENOENT)?;
        Ok((self.show(view, dir)?, entry))
    }

    /// Gives an object a name, and remembers that name as its place.
    pub(super) fn enter(&mut self, object: usize, dir: ObjectId, name: &[u8], entry: EntryRecord) {
        let record = &mut self.touched[object].record;
        record.parent = dir;
        record.name = Bytes::copy_from_slice(name);
        self.put_entry(dir, name, Some(entry));
    }
}

/// Whether a name may lead from one realm to the other.
fn one_realm(from: Realm, to: Realm) -> Result<(), Status> {
    //= wire-spec.md#11-9-realms-and-rights
    //# LINK and RENAME MUST fail with EXDEV, and change nothing, where a name would lead from one realm into another.
    if from == to || bugs::is(Bug::R1) { Ok(()) } else { Err(Status::EXDEV) }
}

/// What a RENAME touches: both directories by number, and in their places in the draft, and the object moved.
struct Move {
    from: ObjectId,
    to: ObjectId,
    from_dir: usize,
    to_dir: usize,
    object: usize,
}

impl Draft {
    pub(super) fn rename(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &Rename<'_>) -> Result<ObjectId, ReadError> {
        check_name(m.from_name.0)?;
        check_name(m.to_name.0)?;
        let (from, to) = (self.named(m.from_dir)?, self.named(m.to_dir)?);
        let dirs = join(self.directory(view, frame, from), self.directory(view, frame, to));
        let names = join(self.entry(view, from, m.from_name.0), self.entry(view, to, m.to_name.0));
        let ((from_attr, to_attr), (source, target)) = join(dirs, names)?;
        one_realm(from_attr.realm, to_attr.realm)?;
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
            _ => self.check_not_below(view, &source, (from, to))?,
        }
        let (from_dir, to_dir) = (self.show(view, from)?, self.show(view, to)?);
        let all = Move { from, to, from_dir, to_dir, object: self.show(view, source.object)? };
        self.check_root(frame, all.object, from_dir)?;
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
        frame: &Frame<'_>,
        m: &Rename<'_>,
        all: &Move,
        source: EntryRecord,
        target: Option<EntryRecord>,
    ) -> Result<(), ReadError> {
        let (moves_directory, wall) = (source.kind == ObjectKind::Directory, frame.wall_ns);
        let mut subdirectories = i32::from(moves_directory);
        if let Some(target) = target {
            self.entered(view, target.object)?;
            let replaced = self.show(view, target.object)?;
            // Before what is in it is told.
            self.check_root(frame, replaced, all.to_dir)?;
            let full = self.touched[replaced].record.attr.size > 0;
            match (moves_directory, target.kind == ObjectKind::Directory) {
                (true, false) => return Err(Status::ENOTDIR.into()),
                (false, true) => return Err(Status::EISDIR.into()),
                (true, true) if full => return Err(Status::ENOTEMPTY.into()),
                (true, true) => subdirectories = 0,
                (false, false) => {}
            }
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
        frame: &Frame<'_>,
        m: &Rename<'_>,
        all: &Move,
        source: EntryRecord,
        target: EntryRecord,
    ) -> Result<(), ReadError> {
        self.check_not_below(view, &target, (all.to, all.from))?;
        self.entered(view, target.object)?;
        let other = self.show(view, target.object)?;
        self.check_root(frame, other, all.to_dir)?;
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
    pub(super) fn check_links(&self, frame: &Frame<'_>, dir: usize) -> Result<(), Status> {
        let subdirectories = self.touched[dir].record.attr.nlink.saturating_sub(2);
        if subdirectories < frame.limits.links_max { Ok(()) } else { Err(Status::EMLINK) }
    }

    /// Whether the object at `at` may lose its name in the directory at `dir`: one that begins a realm is its own realm's to move.
    fn check_root(&self, frame: &Frame<'_>, at: usize, dir: usize) -> Result<(), Status> {
        let (own, around) = (&self.touched[at].record.attr, self.touched[dir].record.attr.realm);
        //= wire-spec.md#11-9-realms-and-rights
        //# A directory that begins a realm MUST NOT be renamed, replaced, exchanged or removed by who does not own that realm.
        if own.realm == around || bugs::is(Bug::R6) { Ok(()) } else { frame.asker.check(own, Rights::OWN) }
    }

    /// Whether what is moved is a directory that the one it is moved to is, or is below: then it cannot go there.
    fn check_not_below(&mut self, view: &View<'_>, moved: &EntryRecord, (from, to): (ObjectId, ObjectId)) -> Result<(), ReadError> {
        // No directory is below what is in it.
        if moved.kind != ObjectKind::Directory || from == to {
            return Ok(());
        }
        let mut at = to;
        //= wire-spec.md#6-2-requests
        //# To move a directory into another the server looks for it above that one, and MUST NOT look above more directories than section 8.1
        //# allows for one request (E2BIG): a tree is as deep as anybody makes it.
        while self.parents < PARENTS_MAX {
            if at == moved.object {
                return Err(Status::EINVAL.into());
            }
            if at.0 == ROOT {
                return Ok(());
            }
            at = self.entered(view, at)?.parent;
            self.parents += 1;
        }
        Err(Status::E2BIG.into())
    }
}
