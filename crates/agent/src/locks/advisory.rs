//! One advisory lock: what the agent was granted, which local users hold it, and what stands between the server and those who wait.
//!
//! Decides what happens next after anything about it has changed (`Advisory::advance`): grant locally, give back, ask.
//! Invariants: a local grant takes the next token of the run, only while the lease lets something start, never after a demand; a generation
//! that was given back is never installed; one thing is asked for at a time, and nothing while a release is unanswered.
//! Implements `wire-spec.md` section 11.4.

use super::Effect;
use crate::api::{HolderId, LockEvent, Locked, OpError, OpId, Wait};
use crate::eviction::Place;
use crate::lease::Permit;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Generation, Keep, LockClass, LockId, LockWait, Mode, ObjectId, ReclaimItem, ReleaseItem, Status};

/// A local user who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) op: OpId,
    pub(super) mode: Mode,
    pub(super) wait: Wait,
}

/// Those who wait, first come first.
#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<Waiter>);

impl Queue {
    pub(super) fn push(&mut self, waiter: Waiter) {
        self.0.push_back(waiter);
    }

    pub(super) fn head(&self) -> Option<Waiter> {
        self.0.front().copied()
    }

    pub(super) fn pop(&mut self) -> Option<Waiter> {
        self.0.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether everybody who waits could hold the lock together with one of this mode.
    pub(super) fn all_compatible(&self, mode: Mode) -> bool {
        self.0.iter().all(|waiter| waiter.mode.compatible(mode))
    }

    /// How the server is asked: a request that waits in line if anybody here would.
    pub(super) fn how(&self) -> LockWait {
        if self.0.iter().any(|waiter| waiter.wait != Wait::Try) { LockWait::Queue } else { LockWait::Try }
    }

    pub(super) fn remove(&mut self, op: OpId) -> bool {
        let before = self.0.len();
        self.0.retain(|waiter| waiter.op != op);
        self.0.len() != before
    }

    /// Takes out those who only try, or all.
    pub(super) fn take(&mut self, only_tries: bool) -> VecDeque<Waiter> {
        if !only_tries {
            return core::mem::take(&mut self.0);
        }
        let (tries, others) = self.0.iter().partition(|waiter| waiter.wait == Wait::Try);
        self.0 = others;
        tries
    }
}

/// A lock that the server granted to this agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) mode: Mode,
    /// The newest generation that the server is known to have given it: what a release must name.
    pub(super) generation: Generation,
    /// The generation with which the agent began to hold it, without a break and without a downgrade since: tokens since then are current
    /// guards.
    pub(super) first: Generation,
    /// The next token to show, and the first beyond the run.
    pub(super) next: u64,
    pub(super) end: u64,
    /// The server has asked for it: nothing is granted from it any more.
    pub(super) demanded: Option<Keep>,
    /// Tokens that were left when another run was asked for, and so many it takes, as far as is known, that nobody here waits for the
    /// answer.
    pub(super) asked_at: u32,
    pub(super) ahead: u32,
}

impl Held {
    /// A grant as it arrives, with all of its run.
    pub(super) fn new(mode: Mode, generation: Generation, run: u32) -> Self {
        let end = end_of_run(generation, run);
        let (next, ahead) = (generation.0, 0);
        Self { mode, generation, first: generation, next, end, demanded: None, asked_at: 0, ahead }
    }

    /// The lock goes on under a newer generation with a run of its own.
    pub(super) fn take_run(&mut self, generation: Generation, run: u32) {
        if generation >= self.generation {
            self.generation = generation;
            self.next = generation.0;
            self.end = end_of_run(generation, run);
        }
    }

    /// Whether another run is due although this one is not used up, so that nobody here waits for the answer: in its last quarter, or
    /// earlier if tokens were taken faster than that the last time, but never in the first.
    fn is_running_out(&self) -> bool {
        // A demand may have told of a newer generation, whose run never came.
        let run = self.end.saturating_sub(self.generation.0);
        self.left() <= (run / 4).max(u64::from(self.ahead).min(run / 4 * 3)) && run > 1
    }

    const fn left(&self) -> u64 {
        self.end.saturating_sub(self.next)
    }

    /// The answer to a request for another run has come: next time twice as many are kept for the wait as were taken meanwhile.
    pub(super) fn is_extended(&mut self) {
        let taken = self.asked_at.saturating_sub(u32::try_from(self.left()).unwrap_or(u32::MAX));
        self.ahead = taken.saturating_mul(2);
    }

    /// The run is as long as this, if that is longer than was known.
    pub(super) fn lengthen(&mut self, run: u32) {
        self.end = self.end.max(end_of_run(self.generation, run));
    }
}

/// The first token beyond a run; a grant has at least the one that is its generation.
fn end_of_run(generation: Generation, run: u32) -> u64 {
    generation.0.saturating_add(u64::from(run.max(1)))
}

/// A LOCK that was not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) mode: Mode,
    /// `None`: it was not sent yet.
    pub(super) nonce: Option<u64>,
    /// It is being taken back.
    pub(super) cancelling: bool,
}

/// What the agent has asked the server to grant: one thing at a time.
#[derive(Clone, Copy, Debug)]
pub(super) enum LockRequest {
    /// Nothing.
    None,
    /// The lock, or a stronger mode of it.
    Acquiring {
        asked: Asked,
        /// Answered QUEUED: it waits in line at the server.
        queued: bool,
        /// The grant was demanded before it arrived: up to which generation, and what may be kept.
        demanded: Option<(Generation, Keep)>,
    },
    /// Another run of tokens of the lock that is held.
    Extending(Asked),
    /// Nothing for a while: the server refused, for this reason, and said when to ask again.
    Busy(OpError),
}

impl LockRequest {
    /// Its LOCK, if one is out.
    pub(super) const fn asked(&self) -> Option<&Asked> {
        match self {
            Self::Acquiring { asked, .. } | Self::Extending(asked) => Some(asked),
            Self::None | Self::Busy(_) => None,
        }
    }

    pub(super) const fn asked_mut(&mut self) -> Option<&mut Asked> {
        match self {
            Self::Acquiring { asked, .. } | Self::Extending(asked) => Some(asked),
            Self::None | Self::Busy(_) => None,
        }
    }

    /// Whether its LOCK has this nonce.
    pub(super) fn has_nonce(&self, nonce: u64) -> bool {
        self.asked().is_some_and(|asked| asked.nonce == Some(nonce))
    }

    pub(super) const fn is_queued(&self) -> bool {
        matches!(self, Self::Acquiring { queued: true, .. })
    }
}

/// A local user's hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) id: HolderId,
    pub(super) mode: Mode,
    /// The token that it was shown.
    pub(super) token: u64,
}

/// What a change of an entry works with, and what the table must know of it afterwards.
pub(super) struct Change<'a> {
    pub(super) permit: Permit,
    /// The last hold's number.
    pub(super) last_holder: &'a mut u64,
    pub(super) effects: &'a mut VecDeque<Effect>,
    pub(super) index: &'a mut IndexChanges,
}

/// What a change means for the indices of the table.
#[derive(Debug, Default)]
pub(super) struct IndexChanges {
    /// Local grants made.
    pub(super) granted: Vec<HolderId>,
    /// Holds that are gone.
    pub(super) lost: Vec<HolderId>,
    /// Waits that ended.
    pub(super) ended: Vec<OpId>,
}

/// One advisory lock.
#[derive(Debug)]
pub(super) struct Advisory {
    pub(super) object: ObjectId,
    pub(super) grant: Option<Held>,
    pub(super) holders: Vec<Holder>,
    pub(super) queue: Queue,
    pub(super) request: LockRequest,
    /// A release, or a conversion to shared, that was not answered yet. It may stand beside a request: a lock whose stronger mode is waited for
    /// is given back on demand without losing its place in line.
    pub(super) releasing: Option<Generation>,
    /// Nothing up to here is installed.
    pub(super) refused: Generation,
    /// Somebody waits for nothing but the lease.
    pub(super) needs_lease: bool,
    /// Among the locks that may be idle.
    pub(super) place: Place,
}

impl Advisory {
    pub(super) fn new(object: ObjectId) -> Self {
        Self {
            object,
            grant: None,
            holders: Vec::new(),
            queue: Queue::default(),
            request: LockRequest::None,
            releasing: None,
            refused: Generation(0),
            needs_lease: false,
            place: Place::default(),
        }
    }

    /// Another session takes the lock over, if it is held as it stands.
    pub(super) fn change_session(&mut self, change: &mut Change<'_>) {
        // LOCK beside a lock that is held asks for a conversion of it.
        let acquiring = matches!(self.request, LockRequest::Acquiring { asked: Asked { nonce: Some(_), .. }, .. });
        if self.releasing.take().is_some() || acquiring {
            self.lose(change);
        }
        // Nor is a busy answer waited out: the next session is asked at once.
        self.request = LockRequest::None;
        if let Some(held) = &mut self.grant {
            // The demand was one of the server's former life; whoever still waits makes the server demand it anew.
            held.demanded = None;
        }
    }

    /// How it is named in RECLAIM, if it is held as it stands.
    pub(super) fn reclaim_item(&self) -> Option<ReclaimItem> {
        let Held { mode, generation, first, end, .. } = self.grant.filter(|_| self.releasing.is_none())?;
        let run = u32::try_from(end.saturating_sub(generation.0).max(1)).unwrap_or(u32::MAX);
        Some(ReclaimItem { lock: lock_of(self.object), mode, generation, first, run, version: 0 })
    }

    /// Nothing is left to remember.
    pub(super) fn is_empty(&self) -> bool {
        let held = self.grant.is_some() || !self.holders.is_empty() || self.releasing.is_some();
        !held && self.queue.is_empty() && matches!(self.request, LockRequest::None)
    }

    /// Held as it stands, and nothing is asked, demanded, waited for or running out: whatever its holders do, nothing is to be done about it.
    pub(super) fn is_uncontended(&self) -> bool {
        let held_so = self.grant.is_some_and(|held| held.demanded.is_none() && !held.is_running_out());
        held_so && matches!(self.request, LockRequest::None) && self.releasing.is_none() && self.queue.is_empty() && !self.needs_lease
    }

    /// Held, and used by nobody here.
    pub(super) fn is_idle(&self) -> bool {
        let unused = self.grant.is_some() && self.releasing.is_none() && self.holders.is_empty();
        unused && self.queue.is_empty() && self.request.asked().is_none()
    }

    /// Whether a request that only tries need not ask anybody: it is in conflict with a local holder or with somebody who waits.
    pub(super) fn is_taken(&self, mode: Mode) -> bool {
        let wanted_elsewhere = self.grant.is_some_and(|held| held.demanded.is_some()) || self.request.is_queued();
        wanted_elsewhere || self.in_conflict(mode) || !self.queue.all_compatible(mode)
    }

    /// One local grant of an uncontended lock, as `grant_waiters` would make it of one who waits; `None`: it has to be waited for, or asked for.
    pub(super) fn grant_at_once(&mut self, mode: Mode, change: &mut Change<'_>) -> Option<Locked> {
        //= wire-spec.md#11-3-failure-and-ending
        //# While a lock is not certain the agent MUST NOT pass it on to another local user.
        let may = self.is_uncontended() && self.covers(mode) && !self.in_conflict(mode) && change.permit.may_start;
        let locked = if may { self.grant_one(mode, change) } else { None }?;
        self.extend(change.effects);
        Some(locked)
    }

    /// Does what is to be done next.
    pub(super) fn advance(&mut self, change: &mut Change<'_>) {
        self.grant_waiters(change);
        self.comply(change.effects);
        self.ask(change.effects);
    }

    /// Grants locally, in order, what may be granted.
    pub(super) fn grant_waiters(&mut self, change: &mut Change<'_>) {
        self.needs_lease = false;
        while let Some(waiter) = self.queue.head() {
            if !self.covers(waiter.mode) || self.in_conflict(waiter.mode) {
                break;
            }
            //= wire-spec.md#11-3-failure-and-ending
            //# While a lock is not certain the agent MUST NOT pass it on to another local user.
            //= wire-spec.md#11-4-locks
            //# An agent MUST NOT show a queued grant to its user unless its lease is valid.
            if !change.permit.may_start && !bugs::is(Bug::M9) {
                self.needs_lease = true;
                break;
            }
            let Some(locked) = self.grant_one(waiter.mode, change) else { break };
            self.queue.pop();
            change.index.granted.push(locked.holder);
            change.index.ended.push(waiter.op);
            change.effects.push_back(Effect::Done { op: waiter.op, result: Ok(locked) });
        }
        self.extend(change.effects);
    }

    /// Whether the agent's grant allows local grants of this mode, tokens aside.
    fn covers(&self, mode: Mode) -> bool {
        //= wire-spec.md#11-4-locks
        //# Once an advisory lock was demanded, the agent MUST send further local requests for it to the server.
        // While a downgrade is under way its new generation is not known.
        self.releasing.is_none()
            && self.grant.is_some_and(|held| held.demanded.is_none() && (held.mode == Mode::Exclusive || mode == Mode::Shared))
    }

    /// Whether a local user holds the lock in a mode that does not go with this one.
    pub(super) fn in_conflict(&self, mode: Mode) -> bool {
        self.holders.iter().any(|holder| !holder.mode.compatible(mode))
    }

    /// One local grant, under the next token; `None` if the run is used up.
    fn grant_one(&mut self, mode: Mode, change: &mut Change<'_>) -> Option<Locked> {
        let valid_until = change.permit.certain_until?;
        let held = self.grant.as_mut().filter(|held| held.next < held.end)?;
        let token = held.next;
        //= wire-spec.md#11-4-locks
        //# Each local grant of an advisory lock MUST show its holder the next token of the run.
        held.next += 1;
        self.place.used();
        *change.last_holder += 1;
        let holder = HolderId(*change.last_holder);
        if self.holders.capacity() == 0 {
            // Most locks never have more than one.
            self.holders.reserve_exact(1);
        }
        self.holders.push(Holder { id: holder, mode, token });
        Some(Locked { holder, object: self.object, mode, generation: held.generation, token, valid_until })
    }

    /// Asks for another run of tokens before this one ends: while the last quarter of it lasts, or when somebody waits for one.
    fn extend(&mut self, effects: &mut VecDeque<Effect>) {
        let needed = self.queue.head().is_some_and(|head| self.covers(head.mode) && !self.in_conflict(head.mode));
        let may = matches!(self.request, LockRequest::None) && self.releasing.is_none() && !self.needs_lease;
        let Some(held) = self.grant.as_mut().filter(|held| may && held.demanded.is_none()) else { return };
        //= wire-spec.md#11-4-locks
        //# Before its run ends an agent MUST ask for another one by LOCK, keeping the lock.
        if held.next >= held.end && needed || held.is_running_out() {
            held.asked_at = u32::try_from(held.left()).unwrap_or(u32::MAX);
            let asked = Asked { mode: held.mode, nonce: None, cancelling: false };
            self.request = LockRequest::Extending(asked);
            effects.push_back(Effect::Ask { object: self.object, mode: asked.mode, wait: LockWait::Try });
        }
    }

    /// Complies with a demand, if there is one and nobody here stands in its way.
    fn comply(&mut self, effects: &mut VecDeque<Effect>) {
        let Some(held) = &mut self.grant else { return };
        let Some(keep) = held.demanded else { return };
        //= wire-spec.md#11-4-locks
        //# An agent SHOULD have at most one acquisition or conversion of a lock outstanding, and none beside an unanswered release of it.
        // Until a downgrade or another run is answered, the generation that a release would have to name is not known.
        if self.releasing.is_some() || matches!(self.request, LockRequest::Extending(_)) {
            return;
        }
        if self.holders.is_empty() {
            self.release(effects);
        } else if keep == Keep::Shared && held.mode == Mode::Exclusive && self.holders.iter().all(|holder| holder.mode == Mode::Shared) {
            held.mode = Mode::Shared;
            let generation = held.generation;
            self.push_release(generation, Keep::Shared, effects);
        }
    }

    /// Gives the whole lock back.
    pub(super) fn release(&mut self, effects: &mut VecDeque<Effect>) {
        if let Some(held) = self.grant.take() {
            self.refused = self.refused.max(held.generation);
            self.push_release(held.generation, Keep::Nothing, effects);
        }
    }

    fn push_release(&mut self, generation: Generation, keep: Keep, effects: &mut VecDeque<Effect>) {
        self.releasing = Some(generation);
        effects.push_back(Effect::Release(ReleaseItem { lock: lock_of(self.object), generation, keep }));
    }

    /// Asks the server, if that is what the head of the queue waits for.
    fn ask(&mut self, effects: &mut VecDeque<Effect>) {
        let Some(head) = self.queue.head() else {
            return self.take_back(effects);
        };
        if !matches!(self.request, LockRequest::None) || self.releasing.is_some() {
            return;
        }
        let needed = match &self.grant {
            None => true,
            // An upgrade, once no local user is left with the lesser mode: who comes now waits behind it.
            Some(held) => {
                let free = held.demanded.is_none() && self.holders.is_empty();
                free && held.mode == Mode::Shared && head.mode == Mode::Exclusive
            }
        };
        if needed {
            let asked = Asked { mode: head.mode, nonce: None, cancelling: false };
            self.request = LockRequest::Acquiring { asked, queued: false, demanded: None };
            effects.push_back(Effect::Ask { object: self.object, mode: head.mode, wait: self.queue.how() });
        }
    }

    /// Nobody waits any more: the request is taken back, unless it is for tokens to come.
    fn take_back(&mut self, effects: &mut VecDeque<Effect>) {
        let asked = match &mut self.request {
            LockRequest::Acquiring { asked, .. } => asked,
            LockRequest::Extending(asked) if self.grant.is_none() => asked,
            LockRequest::Extending(_) | LockRequest::None | LockRequest::Busy(_) => return,
        };
        if !asked.cancelling {
            asked.cancelling = true;
            effects.push_back(Effect::Cancel { object: self.object });
        }
    }

    /// LOCK is over, however it ended; gives what it was.
    pub(super) const fn take_request(&mut self) -> LockRequest {
        match self.request {
            LockRequest::Acquiring { .. } | LockRequest::Extending(_) => core::mem::replace(&mut self.request, LockRequest::None),
            LockRequest::None | LockRequest::Busy(_) => LockRequest::None,
        }
    }

    /// Ends the waits of those who only try, or of all.
    pub(super) fn fail(&mut self, only_tries: bool, why: OpError, change: &mut Change<'_>) {
        for waiter in self.queue.take(only_tries) {
            change.index.ended.push(waiter.op);
            change.effects.push_back(Effect::Done { op: waiter.op, result: Err(why) });
        }
    }

    /// The lock and its holds are gone for good.
    pub(super) fn lose(&mut self, change: &mut Change<'_>) {
        let object = self.object;
        self.grant = None;
        for holder in core::mem::take(&mut self.holders) {
            change.index.lost.push(holder.id);
            //= wire-spec.md#11-3-failure-and-ending
            //# The agent MUST tell its users by name which locks they have lost when a session ends.
            change.effects.push_back(Effect::Tell { holder: holder.id, object, what: LockEvent::Lost });
        }
    }
}

/// What a user hears who only tried, or tried to go where somebody is.
pub(super) const HELD_ELSEWHERE: OpError = OpError::Status(Status::EAGAIN);

pub(super) const fn lock_of(object: ObjectId) -> LockId {
    LockId { object, class: LockClass::Advisory }
}
