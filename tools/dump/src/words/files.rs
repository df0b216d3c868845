//! Words of the requests about files, directories, attributes and contents: `wire-spec.md` section 6.2. Items of a BATCH use the same.
//!
//! Decides: that a mutation is told by what it does, its conditions coming after it (`terms`). Leaves to others: locks, answers.

use super::{leases, list as join, text, wanted};
use cistern_wire::{
    Batch, Create, Escaped, GetXattr, Item, Link, ListXattr, Lookup, MakeRealm, Mkdir, ObjectId, Read, ReadDir, RemoveXattr, Rename,
    RenameRule, Rmdir, SetAttr, SetMask, SetQuota, SetXattr, Stage, Symlink, Unlink, WatchEvent, Write, XattrRule,
};

pub(super) fn watch_event(m: &WatchEvent) -> String {
    if m.gone {
        format!("{} is gone; its last version was {}", m.object, m.version)
    } else {
        format!("{} has changed: version {}", m.object, m.version)
    }
}

pub(super) fn lookup(m: &Lookup<'_>) -> String {
    let path: Vec<_> = m.names.iter().map(|name| Escaped(name.0).to_string()).collect();
    if path.is_empty() {
        return format!("looks at {}{}", m.start, wanted(m.want));
    }
    format!("walks \"{}\" from {}{}", path.join("/"), m.start, wanted(m.want))
}

pub(super) fn read_dir(m: &ReadDir<'_>) -> String {
    let after = if m.after.0.is_empty() { String::new() } else { format!(" after {}", text(m.after.0)) };
    let detail = if m.detail { ", with attributes" } else { "" };
    format!("asks for the entries of {}{after}{detail}{}{}", m.dir, paged(m.version), wanted(m.want))
}

/// Pages of one reading must be of one version.
fn paged(version: u64) -> String {
    if version == 0 { String::new() } else { format!(", if still version {version}") }
}

pub(super) fn set_attr(m: &SetAttr<'_>) -> String {
    let mut set = Vec::new();
    let mut note = |bit, text: String| {
        if m.mask.has(bit) {
            set.push(text);
        }
    };
    note(SetMask::MODE, format!("mode {:04o}", m.mode));
    note(SetMask::UID, format!("owner {}", m.uid));
    note(SetMask::GID, format!("group {}", m.gid));
    note(SetMask::SIZE, format!("size {}", m.size));
    note(SetMask::ATIME, format!("access time {} ns", m.atime_ns));
    note(SetMask::MTIME, format!("modification time {} ns", m.mtime_ns));
    note(SetMask::ATIME_NOW, "access time now".to_owned());
    note(SetMask::MTIME_NOW, "modification time now".to_owned());
    format!("sets of {}: {}", named(m.object), join(set.into_iter()))
}

pub(super) fn create(m: &Create<'_>) -> String {
    let verb = if m.exclusive { "makes" } else { "makes or opens" };
    let ephemeral = if m.ephemeral { "the ephemeral file" } else { "the file" };
    format!("{verb} {ephemeral} {} in {}, mode {:04o}", text(m.name.0), named(m.dir), m.mode)
}

pub(super) fn mkdir(m: &Mkdir<'_>) -> String {
    format!("makes the directory {} in {}, mode {:04o}", text(m.name.0), named(m.dir), m.mode)
}

pub(super) fn make_realm(m: &MakeRealm<'_>) -> String {
    format!("begins a realm with the directory {} in {}, mode {:04o}", text(m.name.0), named(m.dir), m.mode)
}

pub(super) fn set_quota(m: &SetQuota<'_>) -> String {
    let bound = |most: Option<u64>, what: &str| match most {
        None => None,
        Some(0) => Some(format!("no quota of {what}")),
        Some(most) => Some(format!("at most {most} {what}")),
    };
    let bounds = [bound(m.objects, "objects"), bound(m.bytes, "bytes")];
    format!("sets of the realm that {} begins: {}", named(m.root), join(bounds.into_iter().flatten()))
}

pub(super) fn symlink(m: &Symlink<'_>) -> String {
    format!("makes the symbolic link {} in {} to {}", text(m.name.0), named(m.dir), text(m.target.0))
}

pub(super) fn link(m: &Link<'_>) -> String {
    format!("gives {} the name {} in {} as well", named(m.object), text(m.name.0), named(m.dir))
}

pub(super) fn unlink(m: &Unlink<'_>) -> String {
    format!("removes the name {} from {}{}", text(m.name.0), named(m.dir), forced(m.force))
}

fn forced(force: bool) -> &'static str {
    if force { ", even if somebody has a lock on it" } else { "" }
}

pub(super) fn rmdir(m: &Rmdir<'_>) -> String {
    format!("removes the directory {} from {}", text(m.name.0), named(m.dir))
}

pub(super) fn rename(m: &Rename<'_>) -> String {
    let (verb, rule) = match m.rule {
        RenameRule::Replace => ("moves", ""),
        RenameRule::NoReplace => ("moves", ", if that name is free"),
        RenameRule::Exchange => ("exchanges", ""),
    };
    let to = if m.rule == RenameRule::Exchange { "with" } else { "to" };
    let (from, into) = (text(m.from_name.0), text(m.to_name.0));
    format!("{verb} {from} in {} {to} {into} in {}{rule}{}", named(m.from_dir), named(m.to_dir), forced(m.force))
}

pub(super) fn read(m: &Read) -> String {
    format!("reads up to {} bytes of {} from {}{}{}", m.length, named(m.object), m.offset, paged(m.version), wanted(m.want))
}

pub(super) fn stage(m: &Stage<'_>) -> String {
    format!("brings {} bytes from {} of the {} of stage {}", m.data.0.len(), m.offset, m.total, m.stage)
}

pub(super) fn write(m: &Write<'_>) -> String {
    let cut = if m.truncate { ", cutting off the rest" } else { "" };
    format!("writes {} to {} from {}{cut}", contents(m.stage, m.data.0), named(m.object), m.offset)
}

/// What a mutation brings itself, or has brought before.
fn contents(stage: u64, data: &[u8]) -> String {
    if stage == 0 { format!("{} bytes", data.len()) } else { format!("stage {stage}") }
}

pub(super) fn get_xattr(m: &GetXattr<'_>) -> String {
    let (length, name, object) = (m.length, text(m.name.0), named(m.object));
    format!("reads up to {length} bytes of attribute {name} of {object} from {}{}", m.offset, paged(m.version))
}

pub(super) fn list_xattr(m: &ListXattr<'_>) -> String {
    let after = if m.after.0.is_empty() { String::new() } else { format!(" after {}", text(m.after.0)) };
    format!("asks for the names of the attributes of {}{after}{}", named(m.object), paged(m.version))
}

pub(super) fn set_xattr(m: &SetXattr<'_>) -> String {
    let rule = match m.rule {
        XattrRule::Any => "",
        XattrRule::Create => ", which must be new",
        XattrRule::Replace => ", which must exist",
    };
    format!("sets attribute {} of {} to {}{rule}", text(m.name.0), named(m.object), contents(m.stage, m.data.0))
}

pub(super) fn remove_xattr(m: &RemoveXattr<'_>) -> String {
    format!("removes attribute {} of {}", text(m.name.0), named(m.object))
}

/// An object; in a batch it may be one that an item before makes.
pub(super) fn named(object: ObjectId) -> String {
    object.maker().map_or_else(|| object.to_string(), |item| format!("what item {item} made"))
}

pub(super) fn batch(m: &Batch<'_>) -> String {
    let items: Vec<_> = m.items.iter().map(|part| item(&part)).collect();
    format!("all or nothing: {}", items.join("; "))
}

fn item(item: &Item<'_>) -> String {
    match item {
        Item::SetAttr(m) => set_attr(m),
        Item::Create(m) => create(m),
        Item::Mkdir(m) => mkdir(m),
        Item::Symlink(m) => symlink(m),
        Item::Link(m) => link(m),
        Item::Unlink(m) => unlink(m),
        Item::Rmdir(m) => rmdir(m),
        Item::Rename(m) => rename(m),
        Item::MakeRealm(m) => make_realm(m),
        Item::SetQuota(m) => set_quota(m),
        Item::MakeLease(m) => leases::make(m),
        Item::Attach(m) => leases::attach(m),
        Item::Write(m) => write(m),
        Item::SetXattr(m) => set_xattr(m),
        Item::RemoveXattr(m) => remove_xattr(m),
    }
}
