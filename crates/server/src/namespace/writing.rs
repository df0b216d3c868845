//! Attributes and contents: SETATTR and WRITE.
//!
//! Decides: sizes, times and blocks. Implements `wire-spec.md` section 6.2.
//! Invariant: no block has bytes beyond its file's size, so what a file grows by reads as zeros.
//! Leaves to others: staging (`stage`), bounds on all contents (`decide`).

use super::decide::{Decision, Outcome};
use super::{SIZE_MAX, known};
use crate::store::{BLOCK_LEN, Lack, View};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{ObjectId, ObjectKind, SetAttr, SetMask, Status, Write};

const BLOCK: u64 = BLOCK_LEN as u64;

const fn fail<T>(status: Status) -> Result<T, Lack> {
    Err(Lack::Failed(status))
}

/// How many blocks contents of a size have at most.
pub(super) fn blocks(size: u64) -> u32 {
    // At most 16: contents are bounded by SIZE_MAX.
    u32::try_from(size.div_ceil(BLOCK)).unwrap_or(u32::MAX)
}

pub(super) fn set_attr(view: &View<'_>, m: &SetAttr<'_>, wall_ns: i64) -> Result<Decision, Lack> {
    let record = known(view, m.object)?;
    let mask = m.mask;
    if mask.has(SetMask::MODE) && m.mode > 0o7777 {
        return fail(Status::EINVAL);
    }
    let mut decision = Decision::default();
    if mask.bits == 0 {
        decision.effects.push(Outcome::unchanged(record));
        return Ok(decision);
    }
    let old_size = record.attr.size;
    if mask.has(SetMask::SIZE) {
        match record.attr.kind {
            ObjectKind::Directory => return fail(Status::EISDIR),
            ObjectKind::Symlink => return fail(Status::EINVAL),
            ObjectKind::File if m.size > SIZE_MAX => return fail(Status::EFBIG),
            ObjectKind::File => cut(view, m.object, old_size, m.size, &mut decision)?,
        }
    }
    let mut object = Outcome::changing(record, wall_ns);
    let attr = object.attr();
    let set = |bit: u8, change: &mut dyn FnMut()| {
        if mask.has(bit) {
            change();
        }
    };
    set(SetMask::MODE, &mut || attr.mode = m.mode);
    set(SetMask::UID, &mut || attr.uid = m.uid);
    set(SetMask::GID, &mut || attr.gid = m.gid);
    set(SetMask::SIZE, &mut || (attr.size, attr.mtime_ns) = (m.size, wall_ns));
    set(SetMask::ATIME, &mut || attr.atime_ns = m.atime_ns);
    set(SetMask::MTIME, &mut || attr.mtime_ns = m.mtime_ns);
    set(SetMask::ATIME_NOW, &mut || attr.atime_ns = wall_ns);
    set(SetMask::MTIME_NOW, &mut || attr.mtime_ns = wall_ns);
    decision.effects.push(object);
    Ok(decision)
}

/// Takes away what is beyond a new size.
fn cut(view: &View<'_>, object: ObjectId, old: u64, new: u64, decision: &mut Decision) -> Result<(), Lack> {
    if new >= old {
        return Ok(());
    }
    let inside = usize::try_from(new % BLOCK).unwrap_or(0);
    if inside > 0 {
        let last = blocks(new) - 1;
        if let Some(bytes) = view.block(object, last)?.filter(|bytes| bytes.len() > inside) {
            decision.blocks.push((object, last, Some(bytes.slice(..inside))));
        }
    }
    decision.blocks.extend((blocks(new)..blocks(old)).map(|block| (object, block, None)));
    Ok(())
}

pub(super) fn write(view: &View<'_>, m: &Write<'_>, contents: &[u8], wall_ns: i64) -> Result<Decision, Lack> {
    let record = known(view, m.object)?;
    match record.attr.kind {
        ObjectKind::Directory => return fail(Status::EISDIR),
        ObjectKind::Symlink => return fail(Status::EINVAL),
        ObjectKind::File => {}
    }
    if m.stage != 0 && !m.data.0.is_empty() {
        return fail(Status::EINVAL);
    }
    let Some(end) = m.offset.checked_add(contents.len() as u64).filter(|end| *end <= SIZE_MAX) else {
        return fail(Status::EFBIG);
    };
    let old = record.attr.size;
    let size = if m.truncate { end } else { old.max(end) };
    let mut decision = Decision::default();
    let (first, last) = (blocks(m.offset + 1) - 1, blocks(end));
    let mut left = contents;
    for block in first..last {
        let begins = u64::from(block) * BLOCK;
        let at = usize::try_from(m.offset.saturating_sub(begins)).unwrap_or(0);
        let (piece, rest) = left.split_at(left.len().min(BLOCK_LEN - at));
        left = rest;
        let kept = usize::try_from(size - begins).unwrap_or(BLOCK_LEN).min(BLOCK_LEN);
        let bytes = merged(view, m.object, block, old, at, piece, kept)?;
        decision.blocks.push((m.object, block, Some(bytes)));
    }
    if m.truncate && contents.is_empty() {
        cut(view, m.object, old, size, &mut decision)?;
    } else if size < old {
        decision.blocks.extend((blocks(size)..blocks(old)).map(|block| (m.object, block, None)));
    }
    let mut object = Outcome::changing(record, wall_ns);
    object.attr().size = size;
    object.attr().mtime_ns = wall_ns;
    decision.effects.push(object);
    Ok(decision)
}

/// A block after a piece was written into it at `at`; nothing of it is kept from `kept` on.
fn merged(view: &View<'_>, object: ObjectId, block: u32, old: u64, at: usize, piece: &[u8], kept: usize) -> Result<Bytes, Lack> {
    let whole = at == 0 && piece.len() >= kept;
    if whole || u64::from(block) * BLOCK >= old {
        let mut bytes = Vec::with_capacity(at + piece.len());
        bytes.resize(at, 0);
        bytes.extend_from_slice(piece);
        return Ok(bytes.into());
    }
    let mut bytes = view.block(object, block)?.map_or_else(Vec::new, |bytes| bytes.to_vec());
    if bytes.len() < at + piece.len() {
        bytes.resize(at + piece.len(), 0);
    }
    bytes[at..at + piece.len()].copy_from_slice(piece);
    bytes.truncate(kept);
    Ok(bytes.into())
}
