//! Batch: from commands with paths to the items of one request.
//!
//! Decides: which paths of an item lead to what an item before it makes, and so are not walked; what each item becomes. Place in the
//! walk: asked by `resolve` for each path, then by `carry`. Implements `wire-spec.md` section 6.2 (BATCH).
//! Invariant: a path means what it meant before the batch, unless an item before has made that very name: then it means what was made.
//! Leaves to others: walks (`resolve`), sending (`carry`).

use super::carry::check_attribute;
use super::request::Mutation;
use super::resolve::{Leg, leg};
use super::task::Task;
use crate::api::Command;
use crate::tasks::walk::{End, Found, NOT_AN_ANSWER};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::{BATCH_MAX, CONTENT_MAX, EXPECT_MAX};
use cistern_wire::{ObjectId, RenameRule, Status};

/// Paths that one item names at most.
pub(super) const LEGS: usize = 2;

/// The path whose name an item makes.
fn made_path(item: &Command) -> Option<&Bytes> {
    match item {
        Command::Create { path, .. } | Command::Mkdir { path, .. } | Command::Symlink { path, .. } | Command::Link { path, .. } => {
            Some(path)
        }
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
        let object = || match self.found.get(base) {
            Some(Some(Found::Object { object, .. })) => Ok(*object),
            _ => Err(NOT_AN_ANSWER),
        };
        match item {
            Command::Write { offset, truncate, data, .. } => {
                if offset.saturating_add(data.len() as u64) > CONTENT_MAX as u64 {
                    return Err(Status::EFBIG);
                }
                Ok(Mutation::Write { object: object()?, offset: *offset, truncate: *truncate, stage: 0, data: data.clone() })
            }
            Command::SetXattr { name, value, rule, .. } => {
                check_attribute(name, value)?;
                Ok(Mutation::SetXattr { object: object()?, name: name.clone(), rule: *rule, stage: 0, value: value.clone() })
            }
            Command::RemoveXattr { name, .. } => {
                check_attribute(name, &Bytes::new())?;
                Ok(Mutation::RemoveXattr { object: object()?, name: name.clone() })
            }
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
