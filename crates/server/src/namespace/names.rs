//! CREATE, MKDIR, SYMLINK, LINK, UNLINK, RMDIR.
//!
//! Decides: when a name may come or go, and what that does to its directory and its object. Place in the walk: makes drafts for `plan`.
//! Implements `wire-spec.md` section 6.2.
//! Invariant: a directory's size is the number of its entries, its link count 2 and one for each subdirectory; a file's link count
//! is the number of its names. Each operation gives the object that it was about.
//! Leaves to others: RENAME (`rename`), committing (`draft`).

use super::content::Content;
use super::draft::{Birth, Draft};
use super::plan::Frame;
use super::{check_mode, check_name, join};
use crate::store::{EntryRecord, ReadError, View};
use bytes::Bytes;
use cistern_wire::limits::SYMLINK_MAX;
use cistern_wire::{Create, Handle, Link, Mkdir, ObjectId, ObjectKind, Rmdir, Status, Symlink, Unlink};

impl Draft {
    pub(super) fn create(&mut self, view: &View<'_>, frame: &Frame, m: &Create<'_>) -> Result<ObjectId, ReadError> {
        check_name(m.name.0)?;
        check_mode(m.mode)?;
        if m.ephemeral && !m.exclusive {
            return Err(Status::EINVAL.into());
        }
        let dir = self.named(m.dir)?;
        let (_, entry) = join(self.directory(view, dir), self.entry(view, dir, m.name.0))?;
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
                let birth = Birth { kind: ObjectKind::File, mode: m.mode, uid: m.uid, gid: m.gid, nlink: 1, size: 0, owner };
                self.make(view, dir, m.name.0, &birth, frame.wall_ns)
            }
        }
    }

    pub(super) fn mkdir(&mut self, view: &View<'_>, frame: &Frame, m: &Mkdir<'_>) -> Result<ObjectId, ReadError> {
        check_mode(m.mode)?;
        let dir = self.named(m.dir)?;
        let at = self.free_name(view, dir, m.name.0)?;
        self.check_links(frame, at)?;
        self.change_entries(at, frame.wall_ns, 1, 1);
        let birth = Birth { kind: ObjectKind::Directory, mode: m.mode, uid: m.uid, gid: m.gid, nlink: 2, size: 0, owner: Handle(0) };
        self.make(view, dir, m.name.0, &birth, frame.wall_ns)
    }

    pub(super) fn symlink(&mut self, view: &View<'_>, frame: &Frame, m: &Symlink<'_>) -> Result<ObjectId, ReadError> {
        let target = m.target.0;
        if target.len() > SYMLINK_MAX {
            return Err(Status::ENAMETOOLONG.into());
        }
        if target.is_empty() || target.contains(&0) {
            return Err(Status::EINVAL.into());
        }
        let dir = self.named(m.dir)?;
        let at = self.free_name(view, dir, m.name.0)?;
        self.change_entries(at, frame.wall_ns, 1, 0);
        let size = target.len() as u64;
        let birth = Birth { kind: ObjectKind::Symlink, mode: 0o777, uid: m.uid, gid: m.gid, nlink: 1, size, owner: Handle(0) };
        let object = self.make(view, dir, m.name.0, &birth, frame.wall_ns)?;
        self.fill(object, Content::Write { before: 0, offset: 0, len: target.len(), truncate: false });
        Ok(object)
    }

    pub(super) fn link(&mut self, view: &View<'_>, frame: &Frame, m: &Link<'_>) -> Result<ObjectId, ReadError> {
        let (object, dir) = (self.named(m.object)?, self.named(m.dir)?);
        let attr = self.known(view, object)?;
        // The server takes an ephemeral file's one name away when its session ends; a second one would keep it.
        if attr.kind == ObjectKind::Directory || attr.is_ephemeral() {
            return Err(Status::EPERM.into());
        }
        let dir_at = self.free_name(view, dir, m.name.0)?;
        if attr.nlink >= frame.limits.links_max {
            return Err(Status::EMLINK.into());
        }
        let at = self.show(view, object)?;
        self.change_entries(dir_at, frame.wall_ns, 1, 0);
        self.change(at, frame.wall_ns).nlink += 1;
        self.enter(at, dir, m.name.0, EntryRecord { object, kind: attr.kind });
        Ok(object)
    }

    pub(super) fn unlink(&mut self, view: &View<'_>, frame: &Frame, m: &Unlink<'_>) -> Result<ObjectId, ReadError> {
        let dir = self.named(m.dir)?;
        let (dir_at, entry) = self.taken_name(view, dir, m.name.0)?;
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

    pub(super) fn rmdir(&mut self, view: &View<'_>, frame: &Frame, m: &Rmdir<'_>) -> Result<ObjectId, ReadError> {
        let dir = self.named(m.dir)?;
        let (dir_at, entry) = self.taken_name(view, dir, m.name.0)?;
        if entry.kind != ObjectKind::Directory {
            return Err(Status::ENOTDIR.into());
        }
        if self.entered(view, entry.object)?.attr.size > 0 {
            return Err(Status::ENOTEMPTY.into());
        }
        let at = self.show(view, entry.object)?;
        self.change_entries(dir_at, frame.wall_ns, -1, -1);
        self.take_name(view, at, frame.wall_ns, false)?;
        self.put_entry(dir, m.name.0, None);
        Ok(entry.object)
    }

    /// A directory in which a name is free.
    fn free_name(&mut self, view: &View<'_>, dir: ObjectId, name: &[u8]) -> Result<usize, ReadError> {
        check_name(name)?;
        let (_, entry) = join(self.directory(view, dir), self.entry(view, dir, name))?;
        if entry.is_some() {
            return Err(Status::EEXIST.into());
        }
        self.show(view, dir)
    }

    /// A directory and what a name in it names.
    fn taken_name(&mut self, view: &View<'_>, dir: ObjectId, name: &[u8]) -> Result<(usize, EntryRecord), ReadError> {
        check_name(name)?;
        let (_, entry) = join(self.directory(view, dir), self.entry(view, dir, name))?;
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
