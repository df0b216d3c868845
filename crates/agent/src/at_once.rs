//! What needs no turn of the driver: answers from cache, and locks that come and go while the agent holds them.
//!
//! Decides what is looked after when a lock was granted here or given back: everything (`Agent::tend`), what its holders are told, or, as a
//! rule, nothing; and whether a driver that sleeps has to be woken. Place in the walk: `Agent::submit`, before and instead of all the rest.
//! Implements `wire-spec.md` sections 11.1 and 11.4. Invariant: whatever would have to be looked after is, in this call, or at a time for
//! which a timer is set already.
//! Leaves to others: what may be answered (`ops`), what may be granted (`locks`).

use crate::agent::{Agent, Closing};
use crate::api::{Command, HolderId, OpError, Output, Phase};
use crate::telling::Told;

impl Agent {
    /// Whether since it was asked last anything was submitted that may have changed what [`Machine::wake_after`](cistern_link::Machine::wake_after) says. After what was
    /// answered from cache, or granted or given back with no message, a driver that sleeps need not be woken.
    pub const fn take_stirred(&mut self) -> bool {
        core::mem::replace(&mut self.stirred, false)
    }

    /// Answers from cache, or grants what the agent holds, if nothing else is to be done for it: no task, no message, no look at the rest.
    pub(crate) fn at_once(&mut self, command: &Command) -> Option<Result<Output, OpError>> {
        let result = self.with_ops(|ops, ctx| ops.at_once(ctx, command))?;
        if matches!(result, Ok(Output::Locked(_))) {
            // A token was taken: the run may have to be followed by another.
            self.stirred |= self.locks.has_effects();
            self.settle();
            if !self.is_at_ease() {
                self.stirred = true;
                self.tend();
            } else if self.told == Told::Nobody {
                self.stirred = true;
                self.tend_holders();
            }
        }
        Some(result)
    }

    /// A local user gives a lock back; one that it lost meanwhile says only that it has stopped.
    pub(crate) fn unlock(&mut self, holder: HolderId) -> Result<Output, OpError> {
        self.used = self.now;
        let held = self.locks.unlock(self.permit(), holder);
        if !held {
            self.has_stopped(holder);
        } else if self.told == Told::Certain && !self.locks.has_effects() && self.is_at_ease() {
            return Ok(Output::Done);
        }
        self.stirred = true;
        self.settle();
        self.tend();
        if held { Ok(Output::Done) } else { Err(OpError::LeaseLost) }
    }

    /// Whether a hold more or less changes nothing for the lease: it is in its first phase, with nobody doubting it, so that what there is
    /// to be done about it is done at a time that is set already.
    fn is_at_ease(&self) -> bool {
        let awake = self.session.as_ref().is_some_and(|session| !session.dormant && session.moved.is_none());
        awake && self.reclaim.is_none() && self.closing == Closing::No && self.lease.phase(self.now) == Phase::Valid
    }
}
