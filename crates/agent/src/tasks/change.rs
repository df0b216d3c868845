//! What a command and the objects its paths led to become as a mutation, alone or as an item of a batch; what POSIX says without asking the
//! server, and what the outcome means to the user.
//!
//! Invariants: nothing is reported as done that the server has not acknowledged (`wire-spec.md` section 11.1); the cache has taken the
//! outcome in before the user hears of it (`Call::settle`). A path of a batch means what it meant before the batch, unless an item before
//! has made that very name: then it means what was made (section 6.2, BATCH).

use super::request::{Mutation, Request, subject};
use super::resolve::{Leg, leg};
use super::task::{Call, Desk, Flow, Stage, Task};
use super::upload::{to_write, to_xattr};
use crate::api::{AttrChange, Command, Output, Ownership};
use crate::tasks::walk::{End, Found, Last, NOT_AN_ANSWER};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::{BATCH_MAX, CONTENT_MAX, EXPECT_MAX, SYMLINK_MAX};
use cistern_wire::{ObjectId, ObjectKind, RenameRule, Reply, Status};

/// Permission bits that there are.
const MODE_BITS: u16 = 0o7777;

impl Task {
    pub(super) fn change(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        if self.is_only_a_look() {
            if !self.is_conditional() {
                return self.stat(desk);
            }
            // Only the server can say whether it is as expected.
            let Some((object, _)) = self.object() else { return Flow::failed(NOT_AN_ANSWER) };
            self.stage = Stage::Asked;
            self.ask_change(desk, Mutation::SetAttr { object, change: AttrChange::default() });
            return Flow::Wait;
        }
        match self.to_change(&self.command, 0) {
            Ok(change) => {
                self.stage = Stage::Asked;
                self.ask_change(desk, change);
                Flow::Wait
            }
            Err(status) => Flow::failed(status),
        }
    }

    /// Creating what exists, or setting nothing, changes nothing: the attributes are all there is to tell.
    fn is_only_a_look(&self) -> bool {
        match &self.command {
            Command::Create { exclusive: false, ephemeral: false, .. } => {
                matches!(self.found[0], Some(Found::Object { kind, .. }) if kind != Some(ObjectKind::Directory))
            }
            Command::SetAttr { change, .. } => *change == AttrChange::default(),
            _ => false,
        }
    }

    /// What a command becomes whose walks ended in the places from `at` on.
    fn to_change(&self, command: &Command, at: usize) -> Result<Mutation, Status> {
        let change = match command {
            Command::Create { exclusive: false, ephemeral: true, .. } => return Err(Status::EINVAL),
            Command::Create { path, exclusive, ephemeral, owner } => {
                let (dir, name) = self.new_name(at, path, Status::EISDIR)?;
                Mutation::Create { dir, name, exclusive: *exclusive, ephemeral: *ephemeral, owner: checked(*owner)? }
            }
            Command::Mkdir { owner, .. } | Command::MakeRealm { owner, .. } => {
                let (dir, name) = self.name(at, |_| Status::EEXIST)?;
                Mutation::Mkdir { dir, name, realm: matches!(command, Command::MakeRealm { .. }), owner: checked(*owner)? }
            }
            Command::SetQuota { objects, bytes, .. } => {
                let (root, _) = self.object_at(at).ok_or(NOT_AN_ANSWER)?;
                Mutation::SetQuota { root, objects: *objects, bytes: *bytes }
            }
            Command::MakeLease { path, ttl_ms, secret, owner } => {
                let (dir, name) = self.new_name(at, path, Status::EISDIR)?;
                Mutation::MakeLease { dir, name, ttl_ms: *ttl_ms, secret: secret.clone(), owner: checked(*owner)? }
            }
            Command::Attach { secret, .. } => {
                let (object, _) = self.object_at(at).ok_or(NOT_AN_ANSWER)?;
                let (lease, _) = self.object_at(at + 1).ok_or(NOT_AN_ANSWER)?;
                Mutation::Attach { object, lease, secret: secret.clone() }
            }
            Command::Symlink { path, points_to, owner } => {
                check_target(points_to)?;
                let (dir, name) = self.new_name(at, path, Status::ENOENT)?;
                Mutation::Symlink { dir, name, points_to: points_to.clone(), owner: *owner }
            }
            Command::Link { path, .. } => {
                let (object, kind) = self.object_at(at).ok_or(NOT_AN_ANSWER)?;
                if kind == Some(ObjectKind::Directory) {
                    return Err(Status::EPERM);
                }
                let (dir, name) = self.new_name(at + 1, path, Status::ENOENT)?;
                Mutation::Link { object, dir, name }
            }
            Command::Unlink { path, force } => {
                let (dir, name) = self.name(at, |_| Status::EISDIR)?;
                if path.ends_with(b"/") {
                    // The walk has made sure that it is a directory.
                    return Err(Status::EISDIR);
                }
                Mutation::Unlink { dir, name, force: *force }
            }
            Command::Rmdir { .. } => {
                let (dir, name) = self.name(at, |last| match last {
                    Last::Dot => Status::EINVAL,
                    Last::DotDot => Status::ENOTEMPTY,
                    _ => Status::EBUSY,
                })?;
                Mutation::Rmdir { dir, name }
            }
            Command::Rename { rule, force, .. } => {
                let (from_dir, from_name) = self.name(at, |_| Status::EBUSY)?;
                let (to_dir, to_name) = self.name(at + 1, |_| Status::EBUSY)?;
                Mutation::Rename { from_dir, from_name, to_dir, to_name, rule: *rule, force: *force }
            }
            Command::SetAttr { change, .. } => self.to_set_attr(at, change)?,
            _ => return Err(NOT_AN_ANSWER),
        };
        Ok(change)
    }

    fn to_set_attr(&self, at: usize, change: &AttrChange) -> Result<Mutation, Status> {
        let (object, _) = self.object_at(at).ok_or(NOT_AN_ANSWER)?;
        if change.mode.is_some_and(|mode| mode & !MODE_BITS != 0) {
            return Err(Status::EINVAL);
        }
        if change.size.is_some_and(|size| size > CONTENT_MAX as u64) {
            return Err(Status::EFBIG);
        }
        Ok(Mutation::SetAttr { object, change: *change })
    }

    /// The name that a walk found, or the status for a path that ends otherwise.
    pub(super) fn name(&self, nth: usize, otherwise: impl FnOnce(Last) -> Status) -> Result<(ObjectId, Bytes), Status> {
        match &self.found[nth] {
            Some(Found::Name { dir, name }) => Ok((*dir, name.clone())),
            Some(Found::NoName(last)) => Err(otherwise(*last)),
            Some(Found::Object { .. }) => Err(Status::EISDIR),
            None => Err(NOT_AN_ANSWER),
        }
    }

    /// The name under which something is made that is no directory: a slash after it is refused.
    fn new_name(&self, nth: usize, path: &Bytes, slash: Status) -> Result<(ObjectId, Bytes), Status> {
        let found = self.name(nth, |_| Status::EEXIST)?;
        if path.ends_with(b"/") { Err(slash) } else { Ok(found) }
    }

    pub(super) fn heard_change(&mut self, desk: &mut Desk<'_, '_>, call: &Call, reply: &Reply<'_>) -> Flow {
        //= wire-spec.md#11-1-lease
        //# The agent MUST NOT report a change of server-held state as done before the server has acknowledged it.
        let Request::Change { change, .. } = &call.request else { return self.heard_stat(desk, call, reply) };
        let effects = match reply {
            Reply::Changed(changed) => changed.effects,
            Reply::Failed(failed) if failed.status == Status::ESTALE => return self.stale(),
            Reply::Failed(failed) if is_overtaken(change, failed.status) => return Flow::Again,
            Reply::Failed(failed) => return Flow::failed(failed.status),
            _ => return Flow::failed(NOT_AN_ANSWER),
        };
        if matches!(change, Mutation::Unlink { .. } | Mutation::Rmdir { .. } | Mutation::Rename { .. }) {
            return Flow::End(Ok(Output::Done));
        }
        match subject(change, effects) {
            Some(attr) => Flow::End(Ok(Output::Attr(attr))),
            None => Flow::failed(NOT_AN_ANSWER),
        }
    }
}

/// Whether a file could not be made because a symbolic link has come between the walk and the creation: the path leads elsewhere now.
fn is_overtaken(change: &Mutation, status: Status) -> bool {
    matches!(change, Mutation::Create { exclusive: false, .. }) && status == Status::EEXIST
}

/// Refuses permission bits that there are not.
pub(super) fn checked(owner: Ownership) -> Result<Ownership, Status> {
    if owner.mode & !MODE_BITS == 0 { Ok(owner) } else { Err(Status::EINVAL) }
}

fn check_target(target: &Bytes) -> Result<(), Status> {
    if target.is_empty() {
        return Err(Status::ENOENT);
    }
    if target.len() > SYMLINK_MAX {
        return Err(Status::ENAMETOOLONG);
    }
    if target.contains(&0) { Err(Status::EINVAL) } else { Ok(()) }
}

/// Paths that one item names at most.
pub(super) const LEGS: usize = 2;

/// The path whose name an item makes.
fn made_path(item: &Command) -> Option<&Bytes> {
    match item {
        Command::Create { path, .. } | Command::Mkdir { path, .. } | Command::MakeRealm { path, .. } => Some(path),
        Command::MakeLease { path, .. } => Some(path),
        Command::Symlink { path, .. } | Command::Link { path, .. } => Some(path),
        Command::Rename { to, .. } => Some(to),
        _ => None,
    }
}

/// The names of a path; `None` if it has `..`, which only a walk can follow.
fn names(path: &[u8]) -> Option<Vec<&[u8]>> {
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").collect();
    if names.contains(&&b".."[..]) { None } else { Some(names) }
}

/// Whether a path of item `at` leads through a name that an item before has exchanged: what is there now has no number.
fn is_exchanged_before(items: &[Command], at: usize) -> bool {
    let mut exchanged = Vec::new();
    for item in &items[..at] {
        if let Command::Rename { from, to, rule: RenameRule::Exchange, .. } = item {
            exchanged.extend([names(from), names(to)]);
        }
    }
    // Where `..` leads is not known here.
    let is_below = |made: &Option<Vec<&[u8]>>, wanted: &Option<Vec<&[u8]>>| match (made, wanted) {
        (Some(made), Some(wanted)) => wanted.starts_with(made),
        _ => true,
    };
    (0..LEGS).any(|nth| match leg(&items[at], nth) {
        Some(Leg::Path(path, end)) => {
            let mut wanted = names(path);
            // A name is looked up by the server, in the order of the items: only its directory is found before.
            if let (Some(wanted), End::Name | End::NameOfDirectory | End::Create) = (&mut wanted, end) {
                wanted.pop();
            }
            exchanged.iter().any(|made| is_below(made, &wanted))
        }
        _ => false,
    })
}

/// What item `at` finds in its place `nth`, if an item before it makes it.
pub(super) fn made_before(items: &[Command], at: usize, nth: usize) -> Option<Found> {
    let Leg::Path(path, end) = leg(items.get(at)?, nth)? else { return None };
    // A new name is looked for in its directory, whether it exists or not.
    let end = if matches!(items[at], Command::Create { .. }) { End::Name } else { end };
    let wanted = names(path)?;
    let maker = |names_wanted: &[&[u8]]| {
        let before = items[..at].iter().enumerate().rev();
        before.filter_map(|(index, item)| Some((index, names(made_path(item)?)?))).find(|(_, made)| made == names_wanted)
    };
    let number = |index: usize| ObjectId::made_by(u8::try_from(index).unwrap_or(u8::MAX));
    match end {
        End::Follow | End::NoFollow => {
            let (index, _) = maker(&wanted)?;
            Some(Found::Object { object: number(index), kind: None, attr: None, target: None })
        }
        End::Name | End::NameOfDirectory | End::Create => {
            let (name, dir) = wanted.split_last()?;
            let (index, _) = maker(dir)?;
            Some(Found::Name { dir: number(index), name: Bytes::copy_from_slice(name) })
        }
    }
}

impl Task {
    /// The items of a batch as requests; or which of them cannot be, and why.
    pub(super) fn to_batch(&self, items: &[Command]) -> Result<Vec<Mutation>, (u16, Status)> {
        if items.is_empty() || items.len() > BATCH_MAX {
            return Err((0, if items.is_empty() { Status::EINVAL } else { Status::E2BIG }));
        }
        let to_item = |(item, index)| {
            let at = usize::from(index);
            let change = if is_exchanged_before(items, at) { Err(Status::EINVAL) } else { self.to_item(item, at * LEGS) };
            change.map_err(|status| (index, status))
        };
        items.iter().zip(0..).map(to_item).collect()
    }

    fn to_item(&self, item: &Command, base: usize) -> Result<Mutation, Status> {
        let object = || self.object_at(base).map(|found| found.0).ok_or(NOT_AN_ANSWER);
        match item {
            Command::Write { .. } => to_write(item, object()?),
            Command::SetXattr { .. } | Command::RemoveXattr { .. } => to_xattr(item, object()?),
            item => self.to_change(item, base),
        }
    }

    /// Whether walking the paths of a command again may lead elsewhere.
    pub(super) fn may_walk_again(&self) -> bool {
        let by_path = |command: &Command| match leg(command, 0) {
            Some(Leg::Path(..)) => true,
            Some(Leg::Number(_)) | None => false,
        };
        match &self.command {
            Command::Batch { items, .. } => items.iter().any(by_path),
            command => by_path(command),
        }
    }
}

/// Whether a command makes one change, and so can be an item of a batch.
pub(super) const fn is_one_change(command: &Command) -> bool {
    matches!(
        command,
        Command::Create { .. }
            | Command::Mkdir { .. }
            | Command::MakeRealm { .. }
            | Command::SetQuota { .. }
            | Command::MakeLease { .. }
            | Command::Attach { .. }
            | Command::Symlink { .. }
            | Command::Link { .. }
            | Command::Unlink { .. }
            | Command::Rmdir { .. }
            | Command::Rename { .. }
            | Command::SetAttr { .. }
            | Command::Write { .. }
            | Command::SetXattr { .. }
            | Command::RemoveXattr { .. }
    )
}

/// Refuses what is put together in a way that means nothing: items that are no changes, and expectations of what changes nothing.
pub(super) fn check(command: &Command) -> Result<(), Status> {
    let (expect, conditional) = match command {
        Command::Expecting { expect, .. } => (expect.len(), true),
        _ => (0, false),
    };
    let sound = match command.unconditional() {
        Command::Batch { items, .. } => items.iter().all(is_one_change),
        Command::Put { .. } => true,
        Command::Expecting { .. } => false,
        command => !conditional || is_one_change(command),
    };
    match (expect > EXPECT_MAX, sound) {
        (true, _) => Err(Status::E2BIG),
        (_, false) => Err(Status::EINVAL),
        _ => Ok(()),
    }
}

/// How many places the walks of a command have: as many for every item of a batch.
pub(super) fn places(command: &Command) -> usize {
    match command {
        Command::Batch { items, .. } => items.len().max(1) * LEGS,
        _ => LEGS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Ownership, Target};

    const OWNER: Ownership = Ownership { mode: 0o644, uid: 0, gid: 0 };

    fn mkdir(path: &'static str) -> Command {
        Command::Mkdir { path: Bytes::from(path), owner: OWNER }
    }

    fn stat(path: &'static str) -> Command {
        Command::Stat { target: Target::Path(Bytes::from(path)), follow: true }
    }

    fn seen(items: &[Command], at: usize) -> Option<(u64, Option<Bytes>)> {
        match made_before(items, at, 0)? {
            Found::Object { object, .. } => Some((object.0 - ObjectId::made_by(0).0, None)),
            Found::Name { dir, name } => Some((dir.0 - ObjectId::made_by(0).0, Some(name))),
            Found::NoName(_) => None,
        }
    }

    #[test]
    fn a_path_below_what_an_item_before_makes_is_named_by_that_item() {
        let items = [mkdir("/a"), mkdir("a/./b/"), mkdir("/a/b/c"), stat("/a//b"), stat("/a/b/x"), mkdir("/a/../y"), mkdir("/q/r")];
        let name = |name: &'static str| Some(Bytes::from(name));
        let expected = [None, Some((0, name("b"))), Some((1, name("c"))), Some((1, None)), None, None, None];
        for (at, expected) in expected.into_iter().enumerate() {
            assert_eq!(seen(&items, at), expected, "item {at}");
        }
    }

    #[test]
    fn the_latest_maker_of_a_name_counts_and_none_after() {
        let moved = Command::Rename { from: "/x".into(), to: "/a".into(), rule: RenameRule::Replace, force: false };
        let items = [stat("/a"), mkdir("/a"), moved, stat("/a")];
        assert_eq!((seen(&items, 0), seen(&items, 3)), (None, Some((2, None))));
    }

    #[test]
    fn through_an_exchanged_name_no_path_leads() {
        let exchange = Command::Rename { from: "/a".into(), to: "/d/b".into(), rule: RenameRule::Exchange, force: false };
        let items =
            [stat("/a/f"), exchange, stat("/a/f"), stat("/d/b"), stat("/d"), stat("/ab"), stat("/q/../a"), mkdir("/a"), mkdir("/a/n")];
        let refused: Vec<bool> = (0..items.len()).map(|at| is_exchanged_before(&items, at)).collect();
        assert_eq!(refused, [false, false, true, true, false, false, true, false, true]);
    }
}
