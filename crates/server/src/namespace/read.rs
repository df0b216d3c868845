//! Reads: LOOKUP, GETATTR, READDIR, READ.
//!
//! Decides: what fits the answer, and that a reply is of one instant and, where the request says so, of one version (R80).
//! Implements `wire-spec.md` section 6.2. Invariants: nothing is changed by reading (R81); a grant is asked for only when the reply is
//! certain, once for each object in it.
//! Leaves to others: whether a lock is granted (`locks`), the datagram around the reply (`answers`).

use super::naming::check_name;
use super::{directory, known};
use crate::store::{BLOCK_LEN, Lack, Query, View};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::SYMLINK_MAX;
use cistern_wire::{
    Attr, Bytes8, Bytes16, CacheGrant, Data, Detail, Entry, Field as _, GetAttr, List, Listing, Lookup, ObjectId, ObjectKind, Read, ReadDir,
    Reply, Stated, Status, Step, Walked, Want, Writer,
};

/// What gives cache locks.
pub(super) type Granting<'g> = &'g mut dyn FnMut(ObjectId, Want) -> CacheGrant;

/// Bytes of attributes and of a grant on the wire.
const ATTR_LEN: usize = 63;
const GRANT_LEN: usize = 9;
const STEP_LEN: usize = ATTR_LEN + GRANT_LEN;
/// WALKED without its steps and target: kind, status, count, length of the target.
const WALKED_AROUND: usize = 7;
/// LISTING without its entries: kind, directory, grant, end, count.
const LISTING_AROUND: usize = 1 + STEP_LEN + 1 + 2;
/// An entry without its name and detail: length of the name, object, kind, whether there is detail.
const ENTRY_AROUND: usize = 1 + 8 + 1 + 1;
/// DATA without its bytes: kind, attributes, grant, offset, length.
const DATA_AROUND: usize = 1 + STEP_LEN + 8 + 2;

pub(super) fn get_attr(view: &View<'_>, m: &GetAttr, grant: Granting<'_>, out: &mut Writer) -> Result<(), Lack> {
    let attr = known(view, m.object)?.attr;
    Reply::Stated(Stated { attr, grant: grant(m.object, m.want) }).put(out);
    Ok(())
}

pub(super) fn lookup(view: &View<'_>, m: &Lookup<'_>, room: usize, grant: Granting<'_>, out: &mut Writer) -> Result<(), Lack> {
    let start = known(view, m.start)?.attr;
    if start.kind != ObjectKind::Directory && !m.names.is_empty() {
        return Err(Lack::Failed(Status::ENOTDIR));
    }
    let fit = (room.saturating_sub(WALKED_AROUND) / STEP_LEN).max(1);
    let mut attrs = Vec::from([start]);
    let mut status = Status::OK;
    for name in m.names {
        if attrs.len() == fit {
            break;
        }
        match next_on_path(view, &attrs[attrs.len() - 1], name)? {
            Ok(attr) => attrs.push(attr),
            Err(why) => {
                status = why;
                break;
            }
        }
    }
    let target = target(view, &attrs, room)?;
    let steps: Vec<_> = attrs.iter().map(|attr| Step { attr: *attr, grant: grant(attr.object, m.want) }).collect();
    Reply::Walked(Walked { status, steps: List::of(&steps), target: Bytes16(&target) }).put(out);
    Ok(())
}

/// One step of a walk; `Ok(Err(OK))`: it ends at a symbolic link.
fn next_on_path(view: &View<'_>, at: &Attr, name: Bytes8<'_>) -> Result<Result<Attr, Status>, Lack> {
    match at.kind {
        ObjectKind::Directory => {}
        ObjectKind::Symlink => return Ok(Err(Status::OK)),
        ObjectKind::File => return Ok(Err(Status::ENOTDIR)),
    }
    if check_name(name.0).is_err() {
        return Ok(Err(Status::EINVAL));
    }
    match view.entry(at.object, name.0)? {
        Some(entry) => known(view, entry.object).map(|record| Ok(record.attr)),
        None => Ok(Err(Status::ENOENT)),
    }
}

/// The target of the symbolic link at which a walk has ended, if it fits beside the steps; without it the agent reads the link.
fn target(view: &View<'_>, attrs: &[Attr], room: usize) -> Result<Bytes, Lack> {
    let last = &attrs[attrs.len() - 1];
    let left = room.saturating_sub(WALKED_AROUND + attrs.len() * STEP_LEN);
    let size = usize::try_from(last.size).unwrap_or(SYMLINK_MAX);
    if last.kind != ObjectKind::Symlink || size > left {
        return Ok(Bytes::new());
    }
    Ok(view.block(last.object, 0)?.cloned().unwrap_or_default())
}

pub(super) fn read_dir(view: &View<'_>, m: &ReadDir<'_>, room: usize, grant: Granting<'_>, out: &mut Writer) -> Result<(), Lack> {
    let dir = directory(view, m.dir)?.attr;
    check_version(&dir, m.version)?;
    let left = room.saturating_sub(LISTING_AROUND);
    let around = ENTRY_AROUND + if m.detail { STEP_LEN } else { 0 };
    // One more than can fit, so that the last page is known as such.
    let most = left / (around + 1) + 1;
    view.know_entries(m.dir, m.after.0, most)?;
    let mut used = 0;
    let mut fitting = view.entries(m.dir, m.after.0).take(most).take_while(|(name, _)| {
        used += around + name.len();
        used <= left
    });
    let page: Vec<_> = fitting.by_ref().collect();
    let end = view.entries(m.dir, m.after.0).take(most).count() == page.len();
    let attrs = if m.detail { details(view, page.iter().map(|(_, entry)| entry.object))? } else { Vec::new() };
    let listed = grant(m.dir, m.want);
    let mut entries = Vec::with_capacity(page.len());
    for (at, (name, entry)) in page.iter().enumerate() {
        let detail = attrs.get(at).map(|attr| Detail { attr: *attr, grant: grant(attr.object, m.want) });
        entries.push(Entry { name: Bytes8(name), object: entry.object, kind: entry.kind, detail });
    }
    Reply::Listing(Listing { dir, grant: listed, end, entries: List::of(&entries) }).put(out);
    Ok(())
}

/// Attributes of all objects of a page; all that lack are asked for together.
fn details(view: &View<'_>, objects: impl Iterator<Item = ObjectId>) -> Result<Vec<Attr>, Lack> {
    let mut attrs = Vec::new();
    let mut missing: Vec<Query> = Vec::new();
    for object in objects {
        match known(view, object) {
            Ok(record) => attrs.push(record.attr),
            Err(Lack::Missing(queries)) => missing.extend(queries),
            Err(Lack::Failed(status)) => return Err(Lack::Failed(status)),
        }
    }
    if missing.is_empty() { Ok(attrs) } else { Err(Lack::Missing(missing)) }
}

fn check_version(attr: &Attr, version: u64) -> Result<(), Lack> {
    //= wire-spec.md#11-5-caching-and-metadata
    //# A READ or READDIR that names a version other than the current one MUST fail with VERSION_CHANGED.
    if version != 0 && version != attr.version { Err(Lack::Failed(Status::VERSION_CHANGED)) } else { Ok(()) }
}

pub(super) fn read(view: &View<'_>, m: &Read, room: usize, grant: Granting<'_>, out: &mut Writer) -> Result<(), Lack> {
    let attr = known(view, m.object)?.attr;
    if attr.kind == ObjectKind::Directory {
        return Err(Lack::Failed(Status::EISDIR));
    }
    check_version(&attr, m.version)?;
    let fit = room.saturating_sub(DATA_AROUND).min(usize::try_from(m.length).unwrap_or(usize::MAX));
    let left = usize::try_from(attr.size.saturating_sub(m.offset)).unwrap_or(usize::MAX);
    let mut data = Vec::with_capacity(fit.min(left));
    let len = fit.min(left);
    while data.len() < len {
        let at = m.offset + data.len() as u64;
        let (block, inside) = (at / BLOCK_LEN as u64, usize::try_from(at % BLOCK_LEN as u64).unwrap_or(0));
        let want = (len - data.len()).min(BLOCK_LEN - inside);
        let bytes = view.block(m.object, u32::try_from(block).unwrap_or(u32::MAX))?;
        let there = bytes.and_then(|bytes| bytes.get(inside..)).unwrap_or_default();
        let there = &there[..there.len().min(want)];
        data.extend_from_slice(there);
        // What a block does not have is zeros.
        data.resize(data.len() + want - there.len(), 0);
    }
    Reply::Data(Data { attr, grant: grant(m.object, m.want), offset: m.offset, data: Bytes16(&data) }).put(out);
    Ok(())
}
