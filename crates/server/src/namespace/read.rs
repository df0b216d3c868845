//! LOOKUP, GETATTR and READ.
//!
//! Decides: what a reader sees, and how much of it fits one answer. Place in the walk: run by execution, without waiting for any lock.
//! Implements `wire-spec.md` sections 6.2 and 6.5.
//! Invariant: an answer shows one instant. Cache locks are asked for when the answer is certain, one for each object in it, so a
//! run that lacks something grants nothing.
//! Leaves to others: READDIR (`list`), which locks are granted (`locks::cache`).

use super::content::{block_of, within};
use super::{Namespace, check_name, entered, known};
use crate::store::{BLOCK_LEN, ObjectRecord, ReadError, View};
use alloc::vec::Vec;
use cistern_wire::{
    Attr, Bytes16, CacheGrant, Data, Field as _, GetAttr, GetXattr, ListXattr, Lookup, Message, ObjectId, ObjectKind, Read, ReadDir, Reply,
    Stated, Status, Walked, Want, Writer,
};

/// A WALKED reply without steps and target.
const WALKED_AROUND: usize = Reply::KIND_LEN + Walked::MIN_LEN;
/// A DATA reply without bytes.
const DATA_AROUND: usize = Reply::KIND_LEN + Data::MIN_LEN;

/// A request that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<'a> {
    /// Walks names.
    Lookup(Lookup<'a>),
    /// Attributes.
    GetAttr(GetAttr),
    /// A page of a directory.
    ReadDir(ReadDir<'a>),
    /// A page of contents.
    Read(Read),
    /// A page of the value of an extended attribute.
    GetXattr(GetXattr<'a>),
    /// Names of extended attributes.
    ListXattr(ListXattr<'a>),
}

impl<'a> Reading<'a> {
    /// The read that a message asks for, if it asks for one.
    #[must_use]
    pub const fn of(message: &Message<'a>) -> Option<Self> {
        Some(match *message {
            Message::Lookup(m) => Self::Lookup(m),
            Message::GetAttr(m) => Self::GetAttr(m),
            Message::ReadDir(m) => Self::ReadDir(m),
            Message::Read(m) => Self::Read(m),
            Message::GetXattr(m) => Self::GetXattr(m),
            Message::ListXattr(m) => Self::ListXattr(m),
            _ => return None,
        })
    }
}

impl Namespace {
    /// Executes a read: appends its encoded reply to `out`, at most `room` bytes of it (at least 504: what the smallest datagram has
    /// for a reply). `grant` is asked once for every object in the reply, with the lock that the reader wants.
    //= wire-spec.md#11-5-caching-and-metadata
    //# Reading MUST NOT change the access time.
    // The view is shared: nothing can be written through it.
    pub fn read(
        &mut self,
        view: &View<'_>,
        reading: &Reading<'_>,
        room: usize,
        mut grant: impl FnMut(ObjectId, Want) -> CacheGrant,
        out: &mut Writer,
    ) -> Result<(), ReadError> {
        match reading {
            Reading::Lookup(m) => self.lookup(view, m, room, &mut grant, out),
            Reading::GetAttr(m) => known(view, m.object).map(|record| {
                Stated { attr: record.attr, grant: grant(m.object, m.want) }.put_reply(out);
            }),
            Reading::ReadDir(m) => super::list::read_dir(view, m, room, &mut grant, out),
            Reading::Read(m) => self.read_contents(view, m, room, &mut grant, out),
            Reading::GetXattr(m) => super::xattr::get_xattr(view, m, room, out),
            Reading::ListXattr(m) => super::xattr::list_xattr(view, m, room, out),
        }
    }

    fn lookup(
        &mut self,
        view: &View<'_>,
        m: &Lookup<'_>,
        room: usize,
        grant: &mut impl FnMut(ObjectId, Want) -> CacheGrant,
        out: &mut Writer,
    ) -> Result<(), ReadError> {
        let most = room.saturating_sub(WALKED_AROUND) / Stated::LEN;
        if most == 0 {
            return Err(Status::EINVAL.into());
        }
        let mut last = known(view, m.start)?.attr;
        if last.kind == ObjectKind::File && !m.names.is_empty() {
            return Err(Status::ENOTDIR.into());
        }
        self.steps.clear();
        self.steps.push(Stated { attr: last, grant: CacheGrant::NONE });
        let mut status = Status::OK;
        for name in m.names {
            if last.kind == ObjectKind::Symlink || self.steps.len() == most {
                break;
            }
            match next(view, &last, name.0) {
                Ok(record) => last = record.attr,
                Err(ReadError::Failed(why)) if why != Status::EIO => {
                    status = why;
                    break;
                }
                Err(lack) => return Err(lack),
            }
            self.steps.push(Stated { attr: last, grant: CacheGrant::NONE });
        }
        let left = room - WALKED_AROUND - self.steps.len() * Stated::LEN;
        // A target that does not fit beside the steps is left out; READ gives it.
        let target = match last.kind {
            ObjectKind::Symlink if last.size <= left as u64 => view.block(last.object, 0)?.map_or(&[][..], |target| target),
            _ => &[],
        };
        for step in &mut self.steps {
            step.grant = grant(step.attr.object, m.want);
        }
        Reply::Walked(Walked { status, steps: cistern_wire::List::of(&self.steps), target: Bytes16(target) }).put(out);
        Ok(())
    }

    fn read_contents(
        &mut self,
        view: &View<'_>,
        m: &Read,
        room: usize,
        grant: &mut impl FnMut(ObjectId, Want) -> CacheGrant,
        out: &mut Writer,
    ) -> Result<(), ReadError> {
        let attr = known(view, m.object)?.attr;
        if attr.kind == ObjectKind::Directory {
            return Err(Status::EISDIR.into());
        }
        check_version(&attr, m.version)?;
        let room = room.checked_sub(DATA_AROUND).filter(|room| *room > 0).ok_or(Status::EINVAL)?;
        let most = room.min(usize::from(u16::MAX)).min(usize::try_from(m.length).unwrap_or(usize::MAX));
        let end = attr.size.min(m.offset.saturating_add(most as u64));
        gather(view, m.object, m.offset, end, &mut self.bytes)?;
        let grant = grant(m.object, m.want);
        Reply::Data(Data { attr, grant, offset: m.offset, data: Bytes16(&self.bytes) }).put(out);
        Ok(())
    }
}

/// Whether a page may be given of an object of which the reader has seen others at `version`; 0: it has seen none.
pub(super) fn check_version(attr: &Attr, version: u64) -> Result<(), Status> {
    //= wire-spec.md#11-5-caching-and-metadata
    //# A READ, READDIR, GETXATTR or LISTXATTR that names a version other than the current one MUST fail with VERSION_CHANGED.
    if version == 0 || version == attr.version { Ok(()) } else { Err(Status::VERSION_CHANGED) }
}

/// What a name in a directory names.
fn next<'v>(view: &'v View<'_>, dir: &Attr, name: &[u8]) -> Result<&'v ObjectRecord, ReadError> {
    check_name(name)?;
    if dir.kind != ObjectKind::Directory {
        return Err(Status::ENOTDIR.into());
    }
    let entry = view.entry(dir.object, name)?.ok_or(Status::ENOENT)?;
    entered(view, entry.object)
}

/// Collects the bytes from `offset` to `end` of an object's contents.
fn gather(view: &View<'_>, object: ObjectId, offset: u64, end: u64, bytes: &mut Vec<u8>) -> Result<(), ReadError> {
    bytes.clear();
    if offset >= end {
        return Ok(());
    }
    let mut missing = Vec::new();
    let (first, last) = (block_of(offset), block_of(end - 1));
    for n in first..=last {
        let from = if n == first { within(offset) } else { 0 };
        let to = if n == last { within(end - 1) + 1 } else { BLOCK_LEN };
        match view.block(object, n) {
            Ok(block) => {
                let block = block.map_or(&[][..], |block| block);
                let there = block.get(from.min(block.len())..to.min(block.len())).unwrap_or_default();
                let full = bytes.len() + (to - from);
                bytes.extend_from_slice(there);
                bytes.resize(full, 0);
            }
            Err(ReadError::NotCached(queries)) => missing.extend(queries),
            Err(lack) => return Err(lack),
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(ReadError::NotCached(missing)) }
}
