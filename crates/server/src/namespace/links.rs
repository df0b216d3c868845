//! Names of objects that exist: LINK, UNLINK, RMDIR, RENAME.
//!
//! Decides: results and errors of the four, link counts, and that no directory ever lies inside itself.
//! Implements `wire-spec.md` section 6.2. Invariant: a directory has one name; its link count is 2 and one for each directory in it.
//! Leaves to others: new objects (`naming`), advisory locks on what goes (`execute`, R74).

use super::decide::{Decision, Outcome};
use super::naming::{check_name, entries_changed, vacant};
use super::{NamespaceLimits, directory, known};
use crate::store::{EntryRecord, Lack, ObjectRecord, View};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_wire::limits::ROOT;
use cistern_wire::{Link, ObjectId, ObjectKind, Rename, RenameRule, Rmdir, Status, Unlink};

const fn fail<T>(status: Status) -> Result<T, Lack> {
    Err(Lack::Failed(status))
}

pub(super) fn link(view: &View<'_>, m: &Link<'_>, wall_ns: i64, limits: &NamespaceLimits) -> Result<Decision, Lack> {
    let dir = vacant(view, m.dir, m.name.0)?;
    let record = known(view, m.object)?;
    if record.attr.kind == ObjectKind::Directory {
        return fail(Status::EPERM);
    }
    if record.attr.nlink >= limits.links_max {
        return fail(Status::EMLINK);
    }
    let mut parent = Outcome::changing(dir, wall_ns);
    entries_changed(&mut parent, 1, wall_ns);
    let entry = EntryRecord { object: m.object, kind: record.attr.kind };
    let mut object = Outcome::changing(ObjectRecord { parent: m.dir, name: Box::from(m.name.0), ..record }, wall_ns);
    object.attr().nlink += 1;
    let entries = Vec::from([(m.dir, Box::from(m.name.0), Some(entry))]);
    Ok(Decision { effects: Vec::from([parent, object]), entries, ..Decision::default() })
}

pub(super) fn unlink(view: &View<'_>, m: &Unlink<'_>, wall_ns: i64) -> Result<Decision, Lack> {
    let (dir, entry) = named(view, m.dir, m.name.0)?;
    if entry.kind == ObjectKind::Directory {
        return fail(Status::EISDIR);
    }
    removed(view, dir, m.name.0, entry, wall_ns)
}

pub(super) fn rmdir(view: &View<'_>, m: &Rmdir<'_>, wall_ns: i64) -> Result<Decision, Lack> {
    let (dir, entry) = named(view, m.dir, m.name.0)?;
    if entry.kind != ObjectKind::Directory {
        return fail(Status::ENOTDIR);
    }
    check_empty(view, entry.object)?;
    let mut decision = removed(view, dir, m.name.0, entry, wall_ns)?;
    decision.effects[0].attr().nlink -= 1;
    Ok(decision)
}

/// A directory and what a name in it names.
fn named(view: &View<'_>, dir: ObjectId, name: &[u8]) -> Result<(ObjectRecord, EntryRecord), Lack> {
    let record = directory(view, dir)?;
    check_name(name)?;
    match view.entry(dir, name)? {
        Some(entry) => Ok((record, entry)),
        None => fail(Status::ENOENT),
    }
}

fn check_empty(view: &View<'_>, dir: ObjectId) -> Result<(), Lack> {
    view.know_entries(dir, b"", 1)?;
    if view.entries(dir, b"").next().is_some() { fail(Status::ENOTEMPTY) } else { Ok(()) }
}

fn removed(view: &View<'_>, dir: ObjectRecord, name: &[u8], entry: EntryRecord, wall_ns: i64) -> Result<Decision, Lack> {
    let dir_id = dir.attr.object;
    let mut parent = Outcome::changing(dir, wall_ns);
    entries_changed(&mut parent, -1, wall_ns);
    let mut object = Outcome::changing(known(view, entry.object)?, wall_ns);
    object.unlinked();
    let entries = Vec::from([(dir_id, Box::from(name), None)]);
    Ok(Decision { effects: Vec::from([parent, object]), removes: Some(entry.object), entries, ..Decision::default() })
}

/// Both ends of a rename as they are before it.
struct Ends {
    from_dir: ObjectRecord,
    /// `None`: the same directory.
    to_dir: Option<ObjectRecord>,
    moved: EntryRecord,
    target: Option<EntryRecord>,
}

pub(super) fn rename(view: &View<'_>, m: &Rename<'_>, wall_ns: i64, limits: &NamespaceLimits) -> Result<Decision, Lack> {
    let (from_dir, moved) = named(view, m.from_dir, m.from_name.0)?;
    let to_dir = if m.to_dir == m.from_dir { None } else { Some(directory(view, m.to_dir)?) };
    check_name(m.to_name.0)?;
    let target = view.entry(m.to_dir, m.to_name.0)?;
    match (m.rule, target) {
        (RenameRule::NoReplace, Some(_)) => return fail(Status::EEXIST),
        (RenameRule::Exchange, None) => return fail(Status::ENOENT),
        // Two names of one object: nothing happens.
        (_, Some(target)) if target.object == moved.object => return Ok(Decision::default()),
        _ => {}
    }
    let ends = Ends { from_dir, to_dir, moved, target };
    check_loop(view, moved, m.to_dir)?;
    match (m.rule, target) {
        (RenameRule::Exchange, Some(target)) => {
            check_loop(view, target, m.from_dir)?;
            exchanged(view, m, ends, target, wall_ns, limits)
        }
        (_, target) => {
            if let Some(target) = target {
                check_replaceable(view, moved, target)?;
            }
            replaced(view, m, ends, wall_ns, limits)
        }
    }
}

/// A directory must not come to lie inside itself.
fn check_loop(view: &View<'_>, moved: EntryRecord, into: ObjectId) -> Result<(), Lack> {
    if moved.kind != ObjectKind::Directory {
        return Ok(());
    }
    let mut at = into;
    loop {
        if at == moved.object {
            return fail(Status::EINVAL);
        }
        if at == ObjectId(ROOT) {
            return Ok(());
        }
        at = known(view, at)?.parent;
    }
}

fn check_replaceable(view: &View<'_>, moved: EntryRecord, target: EntryRecord) -> Result<(), Lack> {
    match (moved.kind == ObjectKind::Directory, target.kind == ObjectKind::Directory) {
        (true, true) => check_empty(view, target.object),
        (true, false) => fail(Status::ENOTDIR),
        (false, true) => fail(Status::EISDIR),
        (false, false) => Ok(()),
    }
}

fn is_dir(entry: EntryRecord) -> i64 {
    i64::from(entry.kind == ObjectKind::Directory)
}

/// The two directories after entries and subdirectories have come and gone.
fn directories(ends: Ends, entries: (i64, i64), dirs: (i64, i64), wall_ns: i64, limits: &NamespaceLimits) -> Result<Vec<Outcome>, Lack> {
    let change = |record: ObjectRecord, entries: i64, dirs: i64| -> Result<Outcome, Lack> {
        let mut dir = Outcome::changing(record, wall_ns);
        entries_changed(&mut dir, entries, wall_ns);
        let nlink = i64::from(dir.attr().nlink) + dirs;
        if dirs > 0 && nlink > i64::from(limits.links_max) {
            return fail(Status::EMLINK);
        }
        dir.attr().nlink = u32::try_from(nlink).unwrap_or(2);
        Ok(dir)
    };
    match ends.to_dir {
        None => Ok(Vec::from([change(ends.from_dir, entries.0 + entries.1, dirs.0 + dirs.1)?])),
        Some(to_dir) => Ok(Vec::from([change(ends.from_dir, entries.0, dirs.0)?, change(to_dir, entries.1, dirs.1)?])),
    }
}

/// The object of an entry, under its new name.
fn moved_to(view: &View<'_>, entry: EntryRecord, dir: ObjectId, name: &[u8], wall_ns: i64) -> Result<Outcome, Lack> {
    Ok(Outcome::changing(ObjectRecord { parent: dir, name: Box::from(name), ..known(view, entry.object)? }, wall_ns))
}

fn replaced(view: &View<'_>, m: &Rename<'_>, ends: Ends, wall_ns: i64, limits: &NamespaceLimits) -> Result<Decision, Lack> {
    let (moved, target) = (ends.moved, ends.target);
    let gone = target.map_or(0, |_| 1);
    let gone_dir = target.map_or(0, is_dir);
    let mut effects = directories(ends, (-1, 1 - gone), (-is_dir(moved), is_dir(moved) - gone_dir), wall_ns, limits)?;
    effects.push(moved_to(view, moved, m.to_dir, m.to_name.0, wall_ns)?);
    if let Some(target) = target {
        let mut object = Outcome::changing(known(view, target.object)?, wall_ns);
        object.unlinked();
        effects.push(object);
    }
    let entries = Vec::from([
        (m.from_dir, Box::from(m.from_name.0), None),
        (m.to_dir, Box::from(m.to_name.0), Some(moved)),
    ]);
    Ok(Decision { effects, removes: target.map(|target| target.object), entries, ..Decision::default() })
}

fn exchanged(
    view: &View<'_>,
    m: &Rename<'_>,
    ends: Ends,
    target: EntryRecord,
    wall_ns: i64,
    limits: &NamespaceLimits,
) -> Result<Decision, Lack> {
    let moved = ends.moved;
    let dirs = is_dir(target) - is_dir(moved);
    let mut effects = directories(ends, (0, 0), (dirs, -dirs), wall_ns, limits)?;
    effects.push(moved_to(view, moved, m.to_dir, m.to_name.0, wall_ns)?);
    effects.push(moved_to(view, target, m.from_dir, m.from_name.0, wall_ns)?);
    let entries = Vec::from([
        (m.from_dir, Box::from(m.from_name.0), Some(target)),
        (m.to_dir, Box::from(m.to_name.0), Some(moved)),
    ]);
    Ok(Decision { effects, entries, ..Decision::default() })
}
