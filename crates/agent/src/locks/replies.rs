//! What the server says about one advisory lock: answers, grants, demands, ends of waits, and the agent's word to each.
//!
//! Decides which grant counts and what a demand is answered: a waiting user gets the grant that its demand overtook, nobody else does.
//! `Advisory::advance` follows each of these. Invariant: what is said to be not held is never installed afterwards.
//! Implements `wire-spec.md` section 11.4.

use super::Effect;
use super::advisory::{Advisory, Change, HELD_ELSEWHERE, Held, LockRequest};
use crate::api::OpError;
use crate::call;
use cistern_wire::{CancelOutcome, Cancelled, Generation, Grant, Keep, Mode, ReceiptAnswer, ReleasedItem, Reply, Status};

/// What became of a grant that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// It counts for nothing.
    Void,
    /// It is the one held.
    Repeat,
    /// It is the one held from now on.
    New,
}

impl Advisory {
    /// LOCK was answered.
    pub(super) fn answered(&mut self, reply: &Reply<'_>, change: &mut Change<'_>) {
        let request = self.take_request();
        if let (Some(held), LockRequest::Extending(_)) = (self.grant.as_mut(), request) {
            held.is_extended();
            return match reply {
                Reply::Granted(granted) if granted.generation > self.refused => held.take_run(granted.generation, granted.run),
                Reply::Failed(failed) if is_busy(failed.status) => self.rest(OpError::Status(failed.status), failed.retry_ms, change),
                Reply::Limited(limited) => self.rest(OpError::Limited(*limited), limited.retry_ms, change),
                // Somebody else waits for it, or its object is gone: what is in use goes on, and whoever comes next asks the server anew.
                _ => held.demanded = Some(Keep::Nothing),
            };
        }
        match reply {
            Reply::Granted(granted) => {
                self.install_grant((granted.mode, granted.generation, granted.run), request, change);
            }
            Reply::LockRefused(_) => self.fail(true, HELD_ELSEWHERE, change),
            Reply::Failed(failed) => self.not_granted(failed.status, failed.retry_ms, change),
            Reply::Limited(limited) if limited.retry_ms > 0 => self.rest(OpError::Limited(*limited), limited.retry_ms, change),
            Reply::Limited(limited) => self.fail(false, OpError::Limited(*limited), change),
            _ => self.fail(false, OpError::Status(Status::EPROTO), change),
        }
    }

    /// LOCK was answered QUEUED: those who only try have their answer.
    pub(super) fn queued(&mut self, change: &mut Change<'_>) {
        if let LockRequest::Acquiring { asked, queued, .. } = &mut self.request {
            *queued = true;
            // A cancellation that came before it was answered, or is: if nobody waits here any more it is cancelled anew.
            asked.cancelling = false;
        }
        self.fail(true, HELD_ELSEWHERE, change);
    }

    /// CANCEL was answered. Of a request that has found its end otherwise meanwhile this says nothing new.
    pub(super) fn cancelled(&mut self, cancelled: &Cancelled, change: &mut Change<'_>) {
        let Cancelled { nonce, outcome, generation, .. } = *cancelled;
        let Some(asked) = self.request.asked().copied().filter(|asked| asked.nonce == Some(nonce)) else { return };
        // Of a request that waited in line, a notice has told or will tell; of another one, its answer.
        if outcome == CancelOutcome::Answered && !self.request.is_queued() {
            return;
        }
        let request = self.take_request();
        if outcome == CancelOutcome::Granted {
            // The mode is the one that was asked for; the rest of the run comes with GRANT, if that is still on the way.
            self.install_grant((asked.mode, generation, 1), request, change);
        }
    }

    /// GRANT has come. Whether it is taken.
    pub(super) fn granted(&mut self, grant: &Grant, change: &mut Change<'_>) -> bool {
        let request = if self.request.has_nonce(grant.nonce) { self.take_request() } else { LockRequest::None };
        if matches!(request, LockRequest::None) && self.grant.is_none() {
            // Nobody asked for it, or not any more.
            self.refused = self.refused.max(grant.generation);
            return false;
        }
        let overtaken = self.grant.is_some_and(|held| held.generation > grant.generation);
        let taken = self.install_grant((grant.mode, grant.generation, grant.run), request, change);
        taken || overtaken && grant.generation > self.refused
    }

    /// WAIT_OVER has come.
    pub(super) fn wait_over(&mut self, nonce: u64, status: Status, change: &mut Change<'_>) {
        let Some(asked) = self.request.asked().copied().filter(|asked| asked.nonce == Some(nonce)) else { return };
        self.take_request();
        // Whoever came while the request was being taken back asks anew.
        if !asked.cancelling {
            self.not_granted(status, 0, change);
        }
    }

    /// DEMAND has come, for every generation up to one. "In use" is what is said of a lock held here; what can be given back of it is
    /// known after `advance` only.
    pub(super) fn demanded(&mut self, up_to: Generation, keep: Keep) -> ReceiptAnswer {
        if up_to <= self.refused {
            return ReceiptAnswer::NotHeld;
        }
        let older = self.grant.is_none_or(|held| held.generation < up_to);
        if let LockRequest::Acquiring { demanded, .. } = &mut self.request
            && older
            && !self.queue.is_empty()
        {
            *demanded = Some((up_to, keep));
            return ReceiptAnswer::Awaited;
        }
        match &mut self.grant {
            // A newer one is held: the demand was overtaken.
            //= wire-spec.md#11-3-failure-and-ending
            //# An agent MUST receipt a demand for a generation that it does not know or no longer holds, without effect.
            Some(held) if held.generation > up_to => ReceiptAnswer::NotHeld,
            Some(held) => {
                held.generation = up_to;
                held.demanded = Some(keep);
                ReceiptAnswer::InUse
            }
            None => {
                self.refused = up_to;
                ReceiptAnswer::NotHeld
            }
        }
    }

    /// The object is gone: the lock that local users hold protects nothing any more, and goes back.
    pub(super) fn object_gone(&mut self, change: &mut Change<'_>) {
        //= wire-spec.md#11-4-locks
        //# An agent told so MUST tell the users that hold the lock that it is lost, and give it back.
        // While a release of it is unanswered no other may name it; what it leaves is demanded.
        if self.releasing.is_none() {
            self.release(change.effects);
        }
        self.lose(change);
    }

    /// Whether nothing is left to be given back but what is on its way.
    pub(super) const fn is_complying(&self) -> bool {
        self.grant.is_none() || self.releasing.is_some()
    }

    /// A release was answered.
    pub(super) fn released(&mut self, item: &ReleasedItem, change: &mut Change<'_>) {
        if self.releasing != Some(item.generation) {
            return;
        }
        self.releasing = None;
        let Some(held) = self.grant.as_mut().filter(|held| item.keep == Keep::Shared && held.generation == item.generation) else {
            return;
        };
        if item.now > item.generation {
            held.take_run(item.now, 1);
            // What was granted in the stronger mode is no guard any more.
            held.first = item.now;
            held.demanded = None;
        } else {
            // The server knows nothing of the lock that was to be kept.
            self.refused = self.refused.max(item.generation);
            self.lose(change);
        }
    }

    /// A grant has come: whoever waits gets it, then a demand that was faster than it counts; if nobody waits any more, it goes
    /// back. False if it counts for nothing.
    fn install_grant(&mut self, grant: (Mode, Generation, u32), request: LockRequest, change: &mut Change<'_>) -> bool {
        match self.install(grant) {
            Arrival::Void => return false,
            Arrival::Repeat => return true,
            //= wire-spec.md#11-4-locks
            //# An agent MUST release a grant that CANCEL did not prevent, unless a local user wants it.
            Arrival::New if self.queue.is_empty() && self.holders.is_empty() => {
                self.release(change.effects);
                return true;
            }
            Arrival::New => self.grant_waiters(change),
        }
        //= wire-spec.md#11-4-locks
        //# An agent that answered "grant awaited" MUST comply after the grant has come.
        if let LockRequest::Acquiring { demanded: Some((up_to, keep)), .. } = request
            && let Some(held) = self.grant.as_mut().filter(|held| held.generation <= up_to)
        {
            held.generation = up_to;
            held.demanded = Some(keep);
        }
        true
    }

    fn install(&mut self, (mode, generation, run): (Mode, Generation, u32)) -> Arrival {
        //= wire-spec.md#11-4-locks
        //# An agent that answered "not held" to a demand for g, or released g, MUST NOT install a grant of that lock of generation g or
        //# less in that session.
        if generation <= self.refused || self.grant.is_some_and(|held| held.generation > generation) {
            return Arrival::Void;
        }
        if let Some(held) = self.grant.as_mut().filter(|held| held.generation == generation) {
            // It tells the length of the run, if that was not known.
            held.lengthen(run);
            return Arrival::Repeat;
        }
        // Converted, it was held without a break.
        let first = self.grant.filter(|_| self.releasing.is_none()).map_or(generation, |held| held.first);
        self.grant = Some(Held { first, ..Held::new(mode, generation, run) });
        Arrival::New
    }

    /// The server did not take the request.
    fn not_granted(&mut self, status: Status, retry_ms: u32, change: &mut Change<'_>) {
        if is_busy(status) && retry_ms > 0 {
            self.rest(OpError::Status(status), retry_ms, change);
        } else if status == Status::EDEADLK && self.holders.is_empty() {
            // Another agent's upgrade waits for this agent's shared lock: it gets it, unless a demand has taken it already, and who waits
            // here asks for the whole.
            self.release(change.effects);
        } else if status != Status::ECANCELED {
            self.fail(false, OpError::Status(status), change);
        }
    }

    fn rest(&mut self, why: OpError, retry_ms: u32, change: &mut Change<'_>) {
        self.request = LockRequest::Busy(why);
        let span = call::pause(retry_ms.max(1));
        change.effects.push_back(Effect::Rest { object: self.object, span });
    }
}

const fn is_busy(status: Status) -> bool {
    matches!(status, Status::BUSY | Status::IN_GRACE)
}
