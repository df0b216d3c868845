//! The mutations of one request: Create, Mkdir, Symlink, Link, Unlink, Rmdir, Rename, SetAttr.
//!
//! Decides: what a command and the objects its paths led to become as a request, what POSIX says without asking the server, and
//! what the outcome means to the user. Place in the walk: after `resolve`. Implements `wire-spec.md` sections 6.2 and 11.4.
//! Invariant: nothing is reported as done that the server has not acknowledged (section 11.1); the cache has taken the outcome in before
//! the user hears of it (`Call::settle`).
//! Leaves to others: suspension and sessions that end (`task`), the cache (`effects`), contents (`put`).

use super::effects;
use super::request::{Mutation, Request};
use super::task::{Call, Desk, Flow, Stage, Task};
use crate::api::{AttrChange, Command, Output, Ownership};
use crate::tasks::walk::{Found, Last, NOT_AN_ANSWER};
use bytes::Bytes;
use cistern_wire::limits::{CONTENT_MAX, SYMLINK_MAX};
use cistern_wire::{ObjectId, ObjectKind, Reply, Status};

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
    pub(super) fn to_change(&self, command: &Command, at: usize) -> Result<Mutation, Status> {
        let change = match command {
            Command::Create { exclusive: false, ephemeral: true, .. } => return Err(Status::EINVAL),
            Command::Create { path, exclusive, ephemeral, owner } => {
                let (dir, name) = self.new_name(at, path, Status::EISDIR)?;
                Mutation::Create { dir, name, exclusive: *exclusive, ephemeral: *ephemeral, owner: checked(*owner)? }
            }
            Command::Mkdir { owner, .. } => {
                let (dir, name) = self.name(at, |_| Status::EEXIST)?;
                Mutation::Mkdir { dir, name, owner: checked(*owner)? }
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
        match effects::subject(change, effects) {
            Some(attr) => Flow::End(Ok(Output::Attr(attr))),
            None => Flow::failed(NOT_AN_ANSWER),
        }
    }
}

/// Whether a file could not be made because a symbolic link has come between the walk and the creation: the path leads elsewhere now.
pub(super) fn is_overtaken(change: &Mutation, status: Status) -> bool {
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
