//! GETXATTR, LISTXATTR, SETXATTR, REMOVEXATTR.
//!
//! Decides: which names and values there may be, and how much of them fits one answer. Place in the walk: makes drafts for `plan`; asked
//! by `read`. Implements `wire-spec.md` section 6.2.
//! Invariant: an object has at most 128 attributes and 64 KiB of their values; a change of one is a change of the object, so that its
//! version grows and its change time is new, and pages of one version are of one instant (section 11.5).
//! Leaves to others: what the prefix of a name means: the presenter's of the files. Nothing of them is cached by agents.

use super::draft::{Draft, Xattrs};
use super::plan::Frame;
use super::read::check_version;
use super::readable;
use crate::principals::Asker;
use crate::store::{ReadError, View, XattrRecord};
use alloc::vec::Vec;
use cistern_wire::limits::{XATTR_BYTES_MAX, XATTR_NAME_MAX, XATTR_VALUE_MAX, XATTRS_MAX};
use cistern_wire::{
    Bytes8, Bytes16, Field as _, GetXattr, List, ListXattr, ObjectId, RemoveXattr, Reply, SetXattr, Status, Writer, Xattr, XattrNames,
    XattrRule,
};

/// An XATTR reply without bytes.
const XATTR_AROUND: usize = Reply::KIND_LEN + Xattr::MIN_LEN;
/// An XATTR_NAMES reply without names.
const NAMES_AROUND: usize = Reply::KIND_LEN + XattrNames::MIN_LEN;

/// Whether there can be an attribute of this name.
fn check_xattr_name(name: &[u8]) -> Result<(), Status> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(Status::ERANGE);
    }
    if name.contains(&0) { Err(Status::EINVAL) } else { Ok(()) }
}

impl Draft {
    /// SETXATTR of a value, from the message or its stage.
    pub(super) fn set_xattr(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &SetXattr<'_>, value: &[u8]) -> Result<ObjectId, ReadError> {
        check_xattr_name(m.name.0)?;
        if m.stage != 0 && !m.data.0.is_empty() {
            return Err(Status::EINVAL.into());
        }
        if value.len() > XATTR_VALUE_MAX {
            return Err(Status::E2BIG.into());
        }
        let object = self.named(m.object)?;
        self.known(view, frame, object)?;
        let all = self.xattrs_of(view, object)?;
        let old = all.as_ref().and_then(|all| all.get(m.name.0)).map(<[u8]>::len);
        match (m.rule, old) {
            (XattrRule::Create, Some(_)) => return Err(Status::EEXIST.into()),
            (XattrRule::Replace, None) => return Err(Status::ENODATA.into()),
            _ => {}
        }
        let (count, bytes) = all.as_ref().map_or((0, 0), |all| (all.iter().count(), all.values_len()));
        let bytes = bytes - old.unwrap_or(0) as u64 + value.len() as u64;
        if (old.is_none() && count >= XATTRS_MAX) || bytes > XATTR_BYTES_MAX as u64 {
            return Err(Status::ENOSPC.into());
        }
        self.replace_xattrs(view, frame, object, all.as_ref(), m.name.0, Some(value))
    }

    pub(super) fn remove_xattr(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &RemoveXattr<'_>) -> Result<ObjectId, ReadError> {
        check_xattr_name(m.name.0)?;
        let object = self.named(m.object)?;
        self.known(view, frame, object)?;
        let all = self.xattrs_of(view, object)?;
        if all.as_ref().is_none_or(|all| all.get(m.name.0).is_none()) {
            return Err(Status::ENODATA.into());
        }
        self.replace_xattrs(view, frame, object, all.as_ref(), m.name.0, None)
    }

    fn replace_xattrs(
        &mut self,
        view: &View<'_>,
        frame: &Frame<'_>,
        object: ObjectId,
        all: Option<&XattrRecord>,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<ObjectId, ReadError> {
        let at = self.show(view, object)?;
        self.change(at, frame.wall_ns);
        let record = XattrRecord::with(all, name, value);
        let count = record.as_ref().map_or(0, |record| record.iter().count());
        self.touched[at].record.xattrs = u8::try_from(count).unwrap_or(u8::MAX);
        match self.xattrs.iter_mut().find(|known| known.object == object) {
            Some(known) => known.record = record,
            None => self.xattrs.push(Xattrs { object, before: all.map_or(0, XattrRecord::values_len), record }),
        }
        Ok(object)
    }

    /// The object at `at` goes: its extended attributes go with it.
    pub(super) fn drop_xattrs(&mut self, view: &View<'_>, at: usize) -> Result<(), ReadError> {
        let object = self.touched[at].record.attr.object;
        match self.xattrs.iter_mut().find(|known| known.object == object) {
            Some(known) => known.record = None,
            None => {
                if let Some(all) = self.xattrs_of(view, object)? {
                    self.xattrs.push(Xattrs { object, before: all.values_len(), record: None });
                }
            }
        }
        Ok(())
    }

    /// The extended attributes of an object that exists.
    fn xattrs_of(&self, view: &View<'_>, object: ObjectId) -> Result<Option<XattrRecord>, ReadError> {
        if let Some(known) = self.xattrs.iter().find(|known| known.object == object) {
            return Ok(known.record.clone());
        }
        let count = self.object(view, object)?.map_or(0, |record| record.xattrs);
        stored(view, object, count)
    }
}

/// The extended attributes that the store has of an object with so many of them.
fn stored(view: &View<'_>, object: ObjectId, count: u8) -> Result<Option<XattrRecord>, ReadError> {
    if count == 0 {
        return Ok(None);
    }
    // An object that has some, and no record of them, is damaged.
    view.xattrs(object)?.map(Some).ok_or(ReadError::Failed(Status::EIO))
}

/// Executes GETXATTR, as `Namespace::read` says.
pub(super) fn get_xattr(view: &View<'_>, m: &GetXattr<'_>, asker: Asker<'_>, room: usize, out: &mut Writer) -> Result<(), ReadError> {
    check_xattr_name(m.name.0)?;
    let record = readable(view, m.object, asker)?;
    check_version(&record.attr, m.version)?;
    let all = stored(view, m.object, record.xattrs)?;
    let value = all.as_ref().and_then(|all| all.get(m.name.0)).ok_or(Status::ENODATA)?;
    let room = room.checked_sub(XATTR_AROUND).filter(|room| *room > 0).ok_or(Status::EINVAL)?;
    let most = room.min(usize::try_from(m.length).unwrap_or(usize::MAX));
    let from = usize::try_from(m.offset).unwrap_or(usize::MAX).min(value.len());
    let data = &value[from..value.len().min(from.saturating_add(most))];
    let total = u32::try_from(value.len()).unwrap_or(u32::MAX);
    Reply::Xattr(Xattr { object: m.object, version: record.attr.version, total, offset: m.offset, data: Bytes16(data) }).put(out);
    Ok(())
}

/// Executes LISTXATTR, as `Namespace::read` says.
pub(super) fn list_xattr(view: &View<'_>, m: &ListXattr<'_>, asker: Asker<'_>, room: usize, out: &mut Writer) -> Result<(), ReadError> {
    let record = readable(view, m.object, asker)?;
    check_version(&record.attr, m.version)?;
    let all = stored(view, m.object, record.xattrs)?;
    let mut left = room.checked_sub(NAMES_AROUND).ok_or(Status::EINVAL)?;
    let mut names: Vec<Bytes8<'_>> = Vec::new();
    let mut end = true;
    for (name, _) in all.iter().flat_map(XattrRecord::iter).filter(|(name, _)| *name > m.after.0) {
        let Some(rest) = left.checked_sub(1 + name.len()) else {
            end = false;
            break;
        };
        left = rest;
        names.push(Bytes8(name));
    }
    let version = record.attr.version;
    Reply::XattrNames(XattrNames { object: m.object, version, end, names: List::of(&names) }).put(out);
    Ok(())
}
