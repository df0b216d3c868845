//! CREATE, MKDIR, SYMLINK, LINK, UNLINK, RMDIR.
//!
//! Decides: when a name may come or go, and what that does to its directory and its object. Place in the walk: makes drafts for `plan`.
//! Implements `wire-spec.md` section 6.2.
//! Invariant: a directory's size is the number of its entries, its link count 2 and one for each subdirectory; a file's link count
//! is the number of its names.
//! Leaves to others: RENAME (`rename`), committing (`draft`).

use super::content::Content;
use super::draft::{Birth, Draft};
use super::plan::Frame;
use super::{check_mode, check_name, directory, entered, join, known};
use crate::store::{Counter, EntryRecord, Lack, View};
use bytes::Bytes;
use cistern_wire::limits::SYMLINK_MAX;
use cistern_wire::{Create, Link, Mkdir, ObjectId, ObjectKind, Rmdir, SessionId, Status, Symlink, Unlink};

impl Draft {
    pub(super) fn create(&mut self, view: &View<'_>, frame: &Frame, m: &Create<'_>) -> Result<(), Lack> {
        check_name(m.name.0)?;
        check_mode(m.mode)?;
        if m.ephemeral && !m.exclusive {
            return Err(Status::EINVAL.into());
        }
        let (dir, entry) = join(directory(view, m.dir), view.entry(m.dir, m.name.0))?;
        match entry {
            Some(_) if m.exclusive => Err(Status::EEXIST.into()),
            Some(EntryRecord { kind: ObjectKind::Directory, .. }) => Err(Status::EISDIR.into()),
            // The agent's to follow: its walk to this name found no link.
            Some(EntryRecord { kind: ObjectKind::Symlink, .. }) => Err(Status::EEXIST.into()),
            Some(entry) => {
                self.show(entered(view, entry.object)?);
                Ok(())
            }
            None => {
                let dir = self.show(dir);
                self.change_entries(dir, frame.wall_ns, 1, 0);
                let owner = if m.ephemeral { frame.requester } else { SessionId(0) };
                let birth = Birth { kind: ObjectKind::File, mode: m.mode, uid: m.uid, gid: m.gid, nlink: 1, size: 0, owner };
                self.born(view, frame, m.dir, m.name.0, &birth)
            }
        }
    }

    pub(super) fn mkdir(&mut self, view: &View<'_>, frame: &Frame, m: &Mkdir<'_>) -> Result<(), Lack> {
        check_mode(m.mode)?;
        let dir = self.free_name(view, m.dir, m.name.0)?;
        self.check_links(frame, dir)?;
        self.change_entries(dir, frame.wall_ns, 1, 1);
        let birth = Birth { kind: ObjectKind::Directory, mode: m.mode, uid: m.uid, gid: m.gid, nlink: 2, size: 0, owner: SessionId(0) };
        self.born(view, frame, m.dir, m.name.0, &birth)
    }

    pub(super) fn symlink(&mut self, view: &View<'_>, frame: &Frame, m: &Symlink<'_>) -> Result<(), Lack> {
        let target = m.target.0;
        if target.len() > SYMLINK_MAX {
            return Err(Status::ENAMETOOLONG.into());
        }
        if target.is_empty() || target.contains(&0) {
            return Err(Status::EINVAL.into());
        }
        let dir = self.free_name(view, m.dir, m.name.0)?;
        self.change_entries(dir, frame.wall_ns, 1, 0);
        let size = target.len() as u64;
        let birth = Birth { kind: ObjectKind::Symlink, mode: 0o777, uid: m.uid, gid: m.gid, nlink: 1, size, owner: SessionId(0) };
        self.born(view, frame, m.dir, m.name.0, &birth)?;
        let object = view.counter(Counter::NextObject).map(ObjectId)?;
        self.contents.push((object, Content::Write { before: 0, offset: 0, len: target.len(), truncate: false }));
        Ok(())
    }

    pub(super) fn link(&mut self, view: &View<'_>, frame: &Frame, m: &Link<'_>) -> Result<(), Lack> {
        let record = known(view, m.object)?;
        // The server takes an ephemeral file's one name away when its session ends; a second one would keep it.
        if record.attr.kind == ObjectKind::Directory || record.attr.is_ephemeral() {
            return Err(Status::EPERM.into());
        }
        let dir = self.free_name(view, m.dir, m.name.0)?;
        if record.attr.nlink >= frame.limits.links_max {
            return Err(Status::EMLINK.into());
        }
        let entry = EntryRecord { object: m.object, kind: record.attr.kind };
        let object = self.show(record);
        self.change_entries(dir, frame.wall_ns, 1, 0);
        self.change(object, frame.wall_ns).nlink += 1;
        self.enter(object, m.dir, m.name.0, entry);
        Ok(())
    }

    pub(super) fn unlink(&mut self, view: &View<'_>, frame: &Frame, m: &Unlink<'_>) -> Result<(), Lack> {
        let (dir, entry) = self.taken_name(view, m.dir, m.name.0)?;
        if entry.kind == ObjectKind::Directory {
            return Err(Status::EISDIR.into());
        }
        let object = self.show(entered(view, entry.object)?);
        self.change_entries(dir, frame.wall_ns, -1, 0);
        self.take_name(object, frame.wall_ns);
        self.entries.push((m.dir, Bytes::copy_from_slice(m.name.0), None));
        self.removes = Some(entry.object);
        Ok(())
    }

    pub(super) fn rmdir(&mut self, view: &View<'_>, frame: &Frame, m: &Rmdir<'_>) -> Result<(), Lack> {
        let (dir, entry) = self.taken_name(view, m.dir, m.name.0)?;
        if entry.kind != ObjectKind::Directory {
            return Err(Status::ENOTDIR.into());
        }
        let record = entered(view, entry.object)?;
        if record.attr.size > 0 {
            return Err(Status::ENOTEMPTY.into());
        }
        let object = self.show(record);
        self.change_entries(dir, frame.wall_ns, -1, -1);
        self.take_name(object, frame.wall_ns);
        self.entries.push((m.dir, Bytes::copy_from_slice(m.name.0), None));
        self.removes = Some(entry.object);
        Ok(())
    }

    /// A directory in which a name is free.
    fn free_name(&mut self, view: &View<'_>, dir: ObjectId, name: &[u8]) -> Result<usize, Lack> {
        check_name(name)?;
        let (record, entry) = join(directory(view, dir), view.entry(dir, name))?;
        if entry.is_some() {
            return Err(Status::EEXIST.into());
        }
        Ok(self.show(record))
    }

    /// A directory and what a name in it names.
    pub(super) fn taken_name(&mut self, view: &View<'_>, dir: ObjectId, name: &[u8]) -> Result<(usize, EntryRecord), Lack> {
        check_name(name)?;
        let (record, entry) = join(directory(view, dir), view.entry(dir, name))?;
        let entry = entry.ok_or(Status::ENOENT)?;
        Ok((self.show(record), entry))
    }

    fn born(&mut self, view: &View<'_>, frame: &Frame, dir: ObjectId, name: &[u8], birth: &Birth) -> Result<(), Lack> {
        let object = view.counter(Counter::NextObject).map(ObjectId)?;
        self.make(object, dir, name, birth, frame.wall_ns);
        Ok(())
    }

    /// Gives an object a name, and remembers that name as its place.
    pub(super) fn enter(&mut self, object: usize, dir: ObjectId, name: &[u8], entry: EntryRecord) {
        let name = Bytes::copy_from_slice(name);
        let record = &mut self.touched[object].record;
        record.parent = dir;
        record.name = name.clone();
        self.entries.push((dir, name, Some(entry)));
    }
}
