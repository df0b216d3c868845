//! SETATTR and WRITE, and what the blocks of a file hold.
//!
//! Decides: how contents are cut into blocks. Place in the walk: makes drafts for `plan`; commits its part of a draft.
//! Implements `wire-spec.md` section 6.2.
//! Invariant: no block holds a byte beyond the file's size, so what is missing of a block, or a block that is missing, reads as
//! zeros, and making a file larger writes nothing.
//! Leaves to others: reading pages (`read`), staging (`stage`).

use super::check_mode;
use super::draft::Draft;
use super::plan::Frame;
use crate::store::{BLOCK_LEN, ReadError, View};
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::CONTENT_MAX;
use cistern_wire::{ObjectId, ObjectKind, SetAttr, SetMask, Status, Write};

const BLOCK: u64 = BLOCK_LEN as u64;
const SIZE_MAX: u64 = CONTENT_MAX as u64;

/// What happens to the contents of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Bytes are written, at least one.
    Write {
        /// Size before.
        before: u64,
        /// Where they begin.
        offset: u64,
        /// How many they are.
        len: usize,
        /// Whether what is after them goes.
        truncate: bool,
    },
    /// The size is set.
    Resize {
        /// Size before.
        before: u64,
        /// Size after.
        size: u64,
    },
    /// The object goes.
    Drop {
        /// Its size.
        size: u64,
    },
}

/// One block of a WRITE.
struct Part {
    block: u32,
    /// Bytes that the file had in this block.
    old: usize,
    /// Where in the block the new bytes begin and end.
    from: usize,
    to: usize,
    /// Length of the block after.
    len: usize,
}

impl Part {
    /// Whether any of the old bytes stay.
    const fn keeps(&self) -> bool {
        self.old > 0 && (self.from > 0 || self.len > self.to)
    }
}

impl Draft {
    pub(super) fn set_attr(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &SetAttr<'_>) -> Result<ObjectId, ReadError> {
        let object = self.named(m.object)?;
        let known = self.known(view, frame, object)?;
        let (has, before, wall) = (|bits| m.mask.has(bits), known.size, frame.wall_ns);
        if has(SetMask::MODE) {
            check_mode(m.mode)?;
        }
        if has(SetMask::SIZE) {
            check_file(known.kind)?;
            if m.size > SIZE_MAX {
                return Err(Status::EFBIG.into());
            }
        }
        let at = self.show(view, object)?;
        if m.mask.bits == 0 {
            return Ok(object);
        }
        let attr = self.change(at, wall);
        if has(SetMask::MODE) {
            attr.mode = m.mode;
        }
        if has(SetMask::UID) {
            attr.uid = m.uid;
        }
        if has(SetMask::GID) {
            attr.gid = m.gid;
        }
        if has(SetMask::SIZE) {
            attr.size = m.size;
            attr.mtime_ns = wall;
        }
        if has(SetMask::ATIME) || has(SetMask::ATIME_NOW) {
            attr.atime_ns = if has(SetMask::ATIME_NOW) { wall } else { m.atime_ns };
        }
        if has(SetMask::MTIME) || has(SetMask::MTIME_NOW) {
            attr.mtime_ns = if has(SetMask::MTIME_NOW) { wall } else { m.mtime_ns };
        }
        if has(SetMask::SIZE) && m.size != before {
            self.fill(object, Content::Resize { before, size: m.size });
        }
        Ok(object)
    }

    /// A WRITE of `len` bytes, from the message or its stage.
    pub(super) fn write(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &Write<'_>, len: usize) -> Result<ObjectId, ReadError> {
        let object = self.named(m.object)?;
        let known = self.known(view, frame, object)?;
        check_file(known.kind)?;
        if m.stage != 0 && !m.data.0.is_empty() {
            return Err(Status::EINVAL.into());
        }
        let end = m.offset.checked_add(len as u64).filter(|end| *end <= SIZE_MAX).ok_or(Status::EFBIG)?;
        let before = known.size;
        let at = self.show(view, object)?;
        if len == 0 && !m.truncate {
            return Ok(object);
        }
        let attr = self.change(at, frame.wall_ns);
        attr.mtime_ns = frame.wall_ns;
        attr.size = if m.truncate { end } else { end.max(before) };
        let content = match len {
            0 => Content::Resize { before, size: end },
            _ => Content::Write { before, offset: m.offset, len, truncate: m.truncate },
        };
        self.fill(object, content);
        Ok(object)
    }
}

fn check_file(kind: ObjectKind) -> Result<(), Status> {
    match kind {
        ObjectKind::File => Ok(()),
        ObjectKind::Directory => Err(Status::EISDIR),
        ObjectKind::Symlink => Err(Status::EINVAL),
    }
}

impl Content {
    /// Sizes before and after.
    pub(super) fn sizes(&self) -> (u64, u64) {
        match *self {
            Self::Write { before, offset, len, truncate } => {
                let end = offset + len as u64;
                (before, if truncate { end } else { end.max(before) })
            }
            Self::Resize { before, size } => (before, size),
            Self::Drop { size } => (size, 0),
        }
    }

    /// Makes sure that every block is in memory of which something stays.
    pub(super) fn check(&self, view: &View<'_>, object: ObjectId) -> Result<(), ReadError> {
        let mut missing = Vec::new();
        let mut need = |block| match view.block(object, block) {
            Err(ReadError::NotCached(queries)) => {
                missing.extend(queries);
                Ok(())
            }
            other => other.map(|_| ()),
        };
        match *self {
            Self::Write { before, offset, len, truncate } => {
                parts(before, offset, len, truncate).filter(Part::keeps).try_for_each(|part| need(part.block))?;
            }
            Self::Resize { before, size } if size < before && size % BLOCK != 0 => need(block_of(size))?,
            Self::Resize { .. } | Self::Drop { .. } => {}
        }
        if missing.is_empty() { Ok(()) } else { Err(ReadError::NotCached(missing)) }
    }

    /// Writes the blocks; `data`: the bytes of a WRITE; `new`: the store has no block of the object.
    pub(super) fn commit(&self, view: &mut View<'_>, object: ObjectId, data: &[u8], new: bool) -> Result<(), ReadError> {
        match *self {
            Self::Write { before, offset, len, truncate } => {
                debug_assert_eq!(len, data.len(), "planned with other contents");
                let mut rest = data;
                for part in parts(before, offset, len, truncate) {
                    let (bytes_new, later) = rest.split_at(part.to - part.from);
                    rest = later;
                    let mut bytes = vec![0; part.len];
                    if part.keeps()
                        && let Some(old) = old_block(view, object, part.block, new)?
                    {
                        let stays = old.len().min(part.len);
                        bytes[..stays].copy_from_slice(&old[..stays]);
                    }
                    bytes[part.from..part.to].copy_from_slice(bytes_new);
                    view.put_block(object, part.block, Some(bytes.into()));
                }
                if truncate {
                    drop_blocks(view, object, offset + len as u64, before);
                }
            }
            Self::Resize { before, size } => {
                if size < before && size % BLOCK != 0 {
                    let stays = within(size);
                    let old = old_block(view, object, block_of(size), new)?;
                    let short = old.filter(|old| old.len() > stays).map(|old| old.slice(..stays));
                    if let Some(short) = short {
                        view.put_block(object, block_of(size), Some(Bytes::copy_from_slice(&short)));
                    }
                }
                drop_blocks(view, object, size, before);
            }
            Self::Drop { size } => drop_blocks(view, object, 0, size),
        }
        Ok(())
    }
}

/// A block of which something stays. Of a new object only what its own batch wrote before is there.
fn old_block<'v>(view: &'v View<'_>, object: ObjectId, block: u32, new: bool) -> Result<Option<&'v Bytes>, ReadError> {
    match view.block(object, block) {
        Err(ReadError::NotCached(_)) if new => Ok(None),
        other => other,
    }
}

/// The blocks that a WRITE touches.
fn parts(before: u64, offset: u64, len: usize, truncate: bool) -> impl Iterator<Item = Part> {
    let end = offset + len as u64;
    (block_of(offset)..=block_of(end - 1)).map(move |block| {
        let start = u64::from(block) * BLOCK;
        let inside = |at: u64| usize::try_from(at.saturating_sub(start).min(BLOCK)).unwrap_or(BLOCK_LEN);
        let (old, from, to) = (inside(before), inside(offset), inside(end));
        Part { block, old, from, to, len: if truncate { to } else { to.max(old) } }
    })
}

/// Takes the blocks away that a file of `before` bytes has and one of `after` bytes has not.
fn drop_blocks(view: &mut View<'_>, object: ObjectId, after: u64, before: u64) {
    for block in block_of(after.next_multiple_of(BLOCK))..block_of(before.next_multiple_of(BLOCK)) {
        view.put_block(object, block, None);
    }
}

/// The block in which a byte is. Contents have at most 1 MiB, so it is a small number.
pub(super) fn block_of(offset: u64) -> u32 {
    u32::try_from(offset / BLOCK).unwrap_or(u32::MAX)
}

/// Where in its block a byte is.
pub(super) fn within(offset: u64) -> usize {
    usize::try_from(offset % BLOCK).unwrap_or(0)
}
