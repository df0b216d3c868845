//! What the server says about one advisory lock: answers, grants, demands, ends of waits, and the agent's word to each.
//!
//! Decides which grant counts and what a demand is answered (R33, R65, R69, R75): a waiting user gets the grant that its demand
//! overtook, nobody else does. Place in the walk: called by `Locks` for each answer and notice; `Entry::proceed` follows each.
//! Implements `wire-spec.md` section 11.4. Invariant: what is said to be not held is never installed afterwards.
//! Leaves to others: what is done next (`entry`), messages.

use super::Effect;
use super::entry::{Asking, Change, Entry, HELD_ELSEWHERE, Held};
use crate::api::OpError;
use crate::believed;
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

impl Entry {
    /// LOCK was answered.
    pub(super) fn answered(&mut self, reply: &Reply<'_>, change: &mut Change<'_>) {
        let for_a_run = self.asking == Asking::Run;
        self.settled();
        if let Some(held) = self.held.as_mut().filter(|_| for_a_run) {
            held.is_extended();
            return match reply {
                Reply::Granted(granted) if granted.generation > self.disowned => held.take_run(granted.generation, granted.run),
                Reply::Failed(failed) if is_busy(failed.status) => self.rest(failed.retry_ms, change),
                // Somebody else waits for it, or its object is gone: what is in use goes on, and whoever comes next asks the server anew.
                _ => held.demanded = Some(Keep::Nothing),
            };
        }
        match reply {
            Reply::Granted(granted) => {
                self.arrive(granted.mode, granted.generation, granted.run, change);
            }
            Reply::LockRefused(_) => self.fail(true, HELD_ELSEWHERE, change),
            Reply::Failed(failed) => self.refused(failed.status, failed.retry_ms, change),
            _ => self.fail(false, OpError::Status(Status::EPROTO), change),
        }
    }

    /// LOCK was answered QUEUED: those who only try have their answer.
    pub(super) fn queued(&mut self, change: &mut Change<'_>) {
        self.asking = Asking::Queued;
        // A cancellation that came before it was answered, or is: if nobody waits here any more it is cancelled anew.
        self.cancelling = false;
        self.fail(true, HELD_ELSEWHERE, change);
    }

    /// CANCEL was answered. Of a request that has found its end otherwise meanwhile this says nothing new.
    pub(super) fn cancelled(&mut self, cancelled: &Cancelled, change: &mut Change<'_>) {
        let Cancelled { nonce, outcome, generation, .. } = *cancelled;
        if self.asking == Asking::No || self.nonce != Some(nonce) {
            return;
        }
        match outcome {
            CancelOutcome::Cancelled => self.settled(),
            // The mode is the one that was asked for; the rest of the run comes with GRANT, if that is still on the way.
            CancelOutcome::Granted => {
                let mode = self.asked_mode;
                self.settled();
                self.arrive(mode, generation, 1, change);
            }
            // Of a request that waited in line, a notice has told or will tell; of another one, its answer.
            CancelOutcome::Answered if self.asking == Asking::Queued => self.settled(),
            CancelOutcome::Answered => {}
        }
    }

    /// GRANT has come. Whether it is taken.
    pub(super) fn granted(&mut self, grant: &Grant, change: &mut Change<'_>) -> bool {
        if self.asking != Asking::No && self.nonce == Some(grant.nonce) {
            self.settled();
        } else if self.held.is_none() {
            // Nobody asked for it, or not any more.
            self.disowned = self.disowned.max(grant.generation);
            return false;
        }
        let overtaken = self.held.is_some_and(|held| held.generation > grant.generation);
        let taken = self.arrive(grant.mode, grant.generation, grant.run, change);
        taken || overtaken && grant.generation > self.disowned
    }

    /// WAIT_OVER has come.
    pub(super) fn wait_over(&mut self, nonce: u64, status: Status, change: &mut Change<'_>) {
        if self.asking == Asking::No || self.nonce != Some(nonce) {
            return;
        }
        // Whoever came while the request was being taken back asks anew.
        let cancelling = self.cancelling;
        self.settled();
        if !cancelling {
            self.refused(status, 0, change);
        }
    }

    /// DEMAND has come, for every generation up to one. "In use" is what is said of a lock held here; what can be given back of it is
    /// known after `proceed` only.
    pub(super) fn demanded(&mut self, up_to: Generation, keep: Keep) -> ReceiptAnswer {
        if up_to <= self.disowned {
            return ReceiptAnswer::NotHeld;
        }
        let older = self.held.is_none_or(|held| held.generation < up_to);
        if self.is_acquiring() && older && !self.queue.is_empty() {
            self.awaited = Some((up_to, keep));
            return ReceiptAnswer::Awaited;
        }
        match &mut self.held {
            // A newer one is held: the demand was overtaken.
            //= wire-spec.md#11-3-failure-and-ending
            //# An agent MUST receipt a demand for a generation that it does not know or no longer holds, and change nothing by it.
            Some(held) if held.generation > up_to => ReceiptAnswer::NotHeld,
            Some(held) => {
                held.generation = up_to;
                held.demanded = Some(keep);
                ReceiptAnswer::InUse
            }
            None => {
                self.disowned = up_to;
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
        self.held.is_none() || self.releasing.is_some()
    }

    /// A release was answered.
    pub(super) fn released(&mut self, item: &ReleasedItem, change: &mut Change<'_>) {
        if self.releasing != Some(item.generation) {
            return;
        }
        self.releasing = None;
        let Some(held) = self.held.as_mut().filter(|held| item.keep == Keep::Shared && held.generation == item.generation) else {
            return;
        };
        if item.now > item.generation {
            held.take_run(item.now, 1);
            // What was granted in the stronger mode is no guard any more.
            held.first = item.now;
            held.demanded = None;
        } else {
            // The server knows nothing of the lock that was to be kept.
            self.disowned = self.disowned.max(item.generation);
            self.lose(change);
        }
    }

    /// A grant has come: whoever waits gets it, then a demand that was faster than it counts (R65); if nobody waits any more, it goes
    /// back (R75). False if it counts for nothing.
    fn arrive(&mut self, mode: Mode, generation: Generation, run: u32, change: &mut Change<'_>) -> bool {
        match self.install(mode, generation, run) {
            Arrival::Void => return false,
            Arrival::Repeat => return true,
            //= wire-spec.md#11-4-locks
            //# An agent MUST release a grant that CANCEL did not prevent, unless a local user wants it.
            Arrival::New if self.queue.is_empty() && self.holders.is_empty() => {
                self.awaited = None;
                self.release(change.effects);
                return true;
            }
            Arrival::New => self.serve(change),
        }
        //= wire-spec.md#11-4-locks
        //# An agent that answered "grant awaited" MUST comply after the grant has come.
        if let Some((up_to, keep)) = self.awaited.take()
            && let Some(held) = self.held.as_mut().filter(|held| held.generation <= up_to)
        {
            held.generation = up_to;
            held.demanded = Some(keep);
        }
        true
    }

    fn install(&mut self, mode: Mode, generation: Generation, run: u32) -> Arrival {
        //= wire-spec.md#11-4-locks
        //# An agent that answered "not held" to a demand for g, or released g, MUST NOT install a grant of that lock with a generation of g
        //# or less in that session.
        if generation <= self.disowned || self.held.is_some_and(|held| held.generation > generation) {
            return Arrival::Void;
        }
        if let Some(held) = self.held.as_mut().filter(|held| held.generation == generation) {
            // It tells the length of the run, if that was not known.
            held.lengthen(run);
            return Arrival::Repeat;
        }
        // Converted, it was held without a break.
        let first = self.held.filter(|_| self.releasing.is_none()).map_or(generation, |held| held.first);
        self.held = Some(Held { first, ..Held::new(mode, generation, run) });
        Arrival::New
    }

    /// The server did not take the request.
    fn refused(&mut self, status: Status, retry_ms: u32, change: &mut Change<'_>) {
        if is_busy(status) && retry_ms > 0 {
            self.rest(retry_ms, change);
        } else if status == Status::EDEADLK && self.holders.is_empty() {
            // Another agent's upgrade waits for this agent's shared lock: it gets it, unless a demand has taken it already, and who waits
            // here asks for the whole (R66).
            self.release(change.effects);
        } else if status != Status::ECANCELED {
            self.fail(false, OpError::Status(status), change);
        }
    }

    fn rest(&mut self, retry_ms: u32, change: &mut Change<'_>) {
        self.resting = true;
        let span = believed::pause(retry_ms.max(1));
        change.effects.push_back(Effect::Rest { object: self.object, span });
    }
}

const fn is_busy(status: Status) -> bool {
    matches!(status, Status::BUSY | Status::IN_GRACE)
}
