//! New names: CREATE, MKDIR, SYMLINK; what a name may be; and the path of an object for people.
//!
//! Decides: results and errors of the three, and the attributes that an object is born with. Implements `wire-spec.md` section 6.2.
//! Leaves to others: names of objects that exist (`links`), bounds (`decide`).

use super::decide::{Decision, Outcome};
use super::{NamespaceLimits, directory, known};
use crate::store::{EntryRecord, Lack, ObjectRecord, View};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::{ROOT, SYMLINK_MAX};
use cistern_wire::{Attr, Create, Mkdir, ObjectId, ObjectKind, Status, Symlink};

/// What may stand in a directory: any bytes but NUL and `/`, and neither nothing nor a dot name. Its length fits by its format.
pub(super) fn check_name(name: &[u8]) -> Result<(), Lack> {
    let bad = name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, 0 | b'/'));
    if bad { Err(Lack::Failed(Status::EINVAL)) } else { Ok(()) }
}

const fn check_mode(mode: u16) -> Result<(), Lack> {
    if mode > 0o7777 { Err(Lack::Failed(Status::EINVAL)) } else { Ok(()) }
}

/// What a new object is.
struct Birth<'a> {
    dir: ObjectId,
    name: &'a [u8],
    kind: ObjectKind,
    mode: u16,
    uid: u32,
    gid: u32,
    size: u64,
}

pub(super) fn create(view: &View<'_>, m: &Create<'_>, wall_ns: i64) -> Result<Decision, Lack> {
    directory(view, m.dir)?;
    check_name(m.name.0)?;
    check_mode(m.mode)?;
    if let Some(entry) = view.entry(m.dir, m.name.0)? {
        return match entry.kind {
            ObjectKind::File if !m.exclusive => {
                let effects = Vec::from([Outcome::unchanged(known(view, entry.object)?)]);
                Ok(Decision { effects, ..Decision::default() })
            }
            ObjectKind::Directory if !m.exclusive => Err(Lack::Failed(Status::EISDIR)),
            _ => Err(Lack::Failed(Status::EEXIST)),
        };
    }
    born(view, &Birth { dir: m.dir, name: m.name.0, kind: ObjectKind::File, mode: m.mode, uid: m.uid, gid: m.gid, size: 0 }, wall_ns)
}

pub(super) fn mkdir(view: &View<'_>, m: &Mkdir<'_>, wall_ns: i64, limits: &NamespaceLimits) -> Result<Decision, Lack> {
    let parent = vacant(view, m.dir, m.name.0)?;
    check_mode(m.mode)?;
    if parent.attr.nlink >= limits.links_max {
        return Err(Lack::Failed(Status::EMLINK));
    }
    let birth = Birth { dir: m.dir, name: m.name.0, kind: ObjectKind::Directory, mode: m.mode, uid: m.uid, gid: m.gid, size: 0 };
    let mut decision = born(view, &birth, wall_ns)?;
    decision.effects[0].attr().nlink += 1;
    decision.made = Some(decision.effects[1].record.attr.object);
    Ok(decision)
}

pub(super) fn symlink(view: &View<'_>, m: &Symlink<'_>, wall_ns: i64) -> Result<Decision, Lack> {
    vacant(view, m.dir, m.name.0)?;
    let target = m.target.0;
    if target.is_empty() || target.contains(&0) {
        return Err(Lack::Failed(Status::EINVAL));
    }
    if target.len() > SYMLINK_MAX {
        return Err(Lack::Failed(Status::ENAMETOOLONG));
    }
    let size = target.len() as u64;
    let birth = Birth { dir: m.dir, name: m.name.0, kind: ObjectKind::Symlink, mode: 0o777, uid: m.uid, gid: m.gid, size };
    let mut decision = born(view, &birth, wall_ns)?;
    let object = decision.effects[1].record.attr.object;
    decision.blocks.push((object, 0, Some(Bytes::copy_from_slice(target))));
    Ok(decision)
}

/// A directory in which a name is still free.
pub(super) fn vacant(view: &View<'_>, dir: ObjectId, name: &[u8]) -> Result<ObjectRecord, Lack> {
    let record = directory(view, dir)?;
    check_name(name)?;
    if view.entry(dir, name)?.is_some() { Err(Lack::Failed(Status::EEXIST)) } else { Ok(record) }
}

/// The directory and the new object in it.
fn born(view: &View<'_>, birth: &Birth<'_>, wall_ns: i64) -> Result<Decision, Lack> {
    let mut decision = Decision::default();
    let object = decision.next_object(view)?;
    let mut parent = Outcome::changing(directory(view, birth.dir)?, wall_ns);
    entries_changed(&mut parent, 1, wall_ns);
    let attr = Attr {
        object,
        version: 1,
        kind: birth.kind,
        mode: birth.mode,
        nlink: if birth.kind == ObjectKind::Directory { 2 } else { 1 },
        uid: birth.uid,
        gid: birth.gid,
        size: birth.size,
        atime_ns: wall_ns,
        mtime_ns: wall_ns,
        ctime_ns: wall_ns,
    };
    let child = Outcome { before: 0, record: ObjectRecord { attr, parent: birth.dir, name: Box::from(birth.name) } };
    decision.effects = Vec::from([parent, child]);
    decision.entries.push((birth.dir, Box::from(birth.name), Some(EntryRecord { object, kind: birth.kind })));
    Ok(decision)
}

/// A directory got or lost entries.
pub(super) fn entries_changed(dir: &mut Outcome, by: i64, wall_ns: i64) {
    let attr = dir.attr();
    attr.size = attr.size.saturating_add_signed(by);
    attr.mtime_ns = wall_ns;
}

/// How far up a path is followed: deeper ones are shown from there on.
const DEPTH_MAX: usize = 128;

/// A path of an object, by the names it was last given.
pub(super) fn place(view: &View<'_>, object: ObjectId, max: usize) -> Result<Vec<u8>, Lack> {
    if object == ObjectId(ROOT) {
        return Ok(Vec::from(&b"/"[..]));
    }
    let mut reversed: Vec<Box<[u8]>> = Vec::new();
    let (mut at, mut len) = (object, 0);
    while at != ObjectId(ROOT) && reversed.len() < DEPTH_MAX && len <= max {
        let Some(record) = view.object(at)?.cloned() else { return Ok(Vec::new()) };
        // The name may have been taken away, or given to another object since.
        if view.entry(record.parent, &record.name)?.is_none_or(|entry| entry.object != at) {
            return Ok(Vec::new());
        }
        len += record.name.len() + 1;
        at = record.parent;
        reversed.push(record.name);
    }
    let mut path = Vec::with_capacity(len);
    for name in reversed.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.len() > max {
        const CUT: &[u8] = b"...";
        let from = path.len() - max.saturating_sub(CUT.len());
        path.splice(..from, CUT.iter().copied());
    }
    Ok(path)
}
