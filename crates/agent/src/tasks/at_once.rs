//! What is answered at once: attributes and contents in the cache, and a lock that the agent holds and nobody wants.
//!
//! Most commands of a host that does the same thing again and again are of this kind, so nothing is done for them that only the others need:
//! no number, no memory of a walk, no calls to be forgotten. It may skip work, and decides nothing: what is answered is what the task would
//! answer. What that saves, in instructions (`tools/path`): attributes by path 886 instead of 2,734 as a task, contents 1,085 instead of
//! 2,911, a lock 1,723 instead of 4,242. Invariants: the lease is looked at for each of them; all that is read is read in this one call.

use super::Tasks;
use super::read::from_cache;
use super::task::{Desk, Flow, Task};
use super::walk::PATH_MAX;
use crate::api::{Command, OpError, OpId, Output, Target};
use crate::cache::{Body, Known, View};
use crate::tasks::Ctx;
use crate::tasks::walk::NOT_AN_ANSWER;
use cistern_wire::limits::ROOT;
use cistern_wire::{ObjectId, ObjectKind};

impl Tasks {
    /// The end of a command, if it needs nothing but what is here. `None`: it has to be submitted, and has done nothing.
    pub(crate) fn at_once(&mut self, ctx: &mut Ctx<'_>, command: &Command) -> Option<Result<Output, OpError>> {
        //= wire-spec.md#11-1-lease
        //# The agent MUST check the end of its lease at each use of a lock or of the cache.
        //= wire-spec.md#11-1-lease
        //# From *suspect* on the agent MUST NOT start an operation under the lease, nor grant a lock locally.
        if !ctx.permit.may_start {
            return None;
        }
        let mut view = View { cache: ctx.cache, open: true, taking: false };
        let result = match command {
            Command::Stat { target, .. } => {
                let object = find(target, &mut view)?;
                Ok(Output::Attr(view.get(object)?.attr))
            }
            Command::Read { target, offset, length } => {
                let object = find(target, &mut view)?;
                from_cache(view.get(object)?, *offset, *length)?
            }
            Command::Lock { target, mode, .. } => {
                let object = find(target, &mut view)?;
                return ctx.locks.grant(ctx.permit, object, *mode).map(|locked| Ok(Output::Locked(locked)));
            }
            _ => return None,
        };
        self.hits += 1;
        Some(result)
    }
}

fn find(target: &Target, view: &mut View<'_>) -> Option<ObjectId> {
    match target {
        Target::Object(object) => Some(*object),
        Target::Path(path) => straight(path, view),
    }
}

/// The directory or file at the end of the path; `None`: it has to be walked.
fn straight(path: &[u8], view: &mut View<'_>) -> Option<ObjectId> {
    if path.is_empty() || path.len() > PATH_MAX {
        return None;
    }
    let (mut object, mut kind) = (ObjectId(ROOT), ObjectKind::Directory);
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if kind != ObjectKind::Directory || name == b"." || name == b".." {
            return None;
        }
        let Body::Directory(names) = &view.get(object)?.body else { return None };
        let Known::Object(found, of_kind) = names.find(name)? else { return None };
        (object, kind) = (found, of_kind);
    }
    match kind {
        ObjectKind::Directory => Some(object),
        // Only a directory may have a slash after its name.
        ObjectKind::File if !path.ends_with(b"/") => Some(object),
        ObjectKind::File | ObjectKind::Symlink => None,
    }
}

/// A lock that has to be waited for, or asked for.
impl Task {
    /// From here on the locks tell how the command ends, unless that is known at once.
    pub(super) fn lock(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let (Some((object, _)), &Command::Lock { mode, wait, .. }) = (self.object(), &self.command) else {
            return Flow::failed(NOT_AN_ANSWER);
        };
        let ctx = &mut *desk.ctx;
        match ctx.locks.lock(ctx.permit, OpId(self.id.0), (object, mode, wait)) {
            Some(result) => Flow::End(result.map(Output::Locked)),
            None => Flow::Handed,
        }
    }
}
