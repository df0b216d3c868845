//! What is answered at once: attributes and contents in the cache, and a lock that the agent holds and nobody wants.
//!
//! Decides which commands need no task: everything about them is known here, at this instant. Most commands of a host that does the same
//! thing again and again are of this kind, so nothing is done for them that only the others need: no number, no memory of a walk, no
//! calls to be forgotten. Place in the walk: first in `Agent::submit`. Implements `wire-spec.md` sections 11.1, 11.4 and 11.5.
//! Invariants: the lease is looked at for each of them; all that is read is read in this one call; what is answered is
//! what the task would answer. Leaves to others: every command about which anything is missing here (`Ops::submit`).

use super::Ops;
use super::read::from_cache;
use crate::api::{Command, OpError, Output, Target};
use crate::cache::View;
use crate::tasks::Ctx;
use crate::tasks::walk::straight;
use cistern_wire::ObjectId;

impl Ops {
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
