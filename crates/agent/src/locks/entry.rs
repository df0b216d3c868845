//! One advisory lock: what the agent was granted, which local users hold it, and what stands between the server and those who wait.
//!
//! Decides what happens next to the lock after anything about it has changed (`Entry::proceed`): grant locally, give back, ask.
//! Place in the walk: called by `advisory` for every user's request, answer and notice. Implements `wire-spec.md` section 11.4.
//! Invariants: a local grant takes the next token of the run (R73), only while the lease lets something start (R17, R19, R46), never
//! after a demand (R69); a generation that was given back is never installed (R65); nothing is asked for while a release is
//! unanswered (R64).
//! Leaves to others: the table and its indices (`advisory`), the messages.

use super::Effect;
use super::queue::Queue;
use crate::api::{HolderId, LockEvent, Locked, OpError, OpId};
use crate::eviction::Place;
use crate::lease::Permit;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Generation, Keep, LockClass, LockId, LockWait, Mode, ObjectId, ReclaimItem, ReleaseItem, Status};

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
    /// The server has asked for it: nothing is granted from it any more (R69).
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

/// The agent's request for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    /// None is out.
    No,
    /// For another run of tokens of what is held.
    Run,
    /// Handed to the requests lane; perhaps sent.
    Sent,
    /// Answered QUEUED.
    Queued,
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
    pub(super) came: &'a mut Came,
}

/// What came of a change for the table's indices.
#[derive(Debug, Default)]
pub(super) struct Came {
    /// Local grants made.
    pub(super) granted: Vec<HolderId>,
    /// Holds that are gone.
    pub(super) lost: Vec<HolderId>,
    /// Waits that ended.
    pub(super) ended: Vec<OpId>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) object: ObjectId,
    pub(super) held: Option<Held>,
    pub(super) holders: Vec<Holder>,
    pub(super) queue: Queue,
    pub(super) asking: Asking,
    /// The mode asked for, while something is asked.
    pub(super) asked_mode: Mode,
    /// Its nonce, once it was sent.
    pub(super) nonce: Option<u64>,
    /// The request is being taken back.
    pub(super) cancelling: bool,
    /// A demand for a grant that has not arrived: up to which generation, and what may be kept (R65).
    pub(super) awaited: Option<(Generation, Keep)>,
    /// A release that was not answered yet.
    pub(super) releasing: Option<Generation>,
    /// Nothing up to here is installed (R65).
    pub(super) disowned: Generation,
    /// The server is busy: nothing is asked for a while.
    pub(super) resting: bool,
    /// Somebody waits for nothing but the lease.
    pub(super) blocked: bool,
    /// Among the locks that may be idle.
    pub(super) place: Place,
}

impl Entry {
    pub(super) fn new(object: ObjectId) -> Self {
        Self {
            object,
            held: None,
            holders: Vec::new(),
            queue: Queue::default(),
            asking: Asking::No,
            asked_mode: Mode::Shared,
            nonce: None,
            cancelling: false,
            awaited: None,
            releasing: None,
            disowned: Generation(0),
            resting: false,
            blocked: false,
            place: Place::default(),
        }
    }

    /// Another session takes the lock over, if it is held as it stands.
    pub(super) fn change_session(&mut self, change: &mut Change<'_>) {
        // LOCK beside a lock that is held asks for a conversion of it.
        let converting = self.releasing.is_some() || self.is_acquiring() && self.nonce.is_some();
        if converting {
            self.lose(change);
        }
        self.releasing = None;
        self.awaited = None;
        self.settled();
        if let Some(held) = &mut self.held {
            // The demand was one of the server's former life; whoever still waits makes the server demand it anew.
            held.demanded = None;
        }
    }

    /// How it is named in RECLAIM, if it is held as it stands.
    pub(super) fn reclaim_item(&self) -> Option<ReclaimItem> {
        let Held { mode, generation, first, end, .. } = self.held.filter(|_| self.releasing.is_none())?;
        let run = u32::try_from(end.saturating_sub(generation.0).max(1)).unwrap_or(u32::MAX);
        Some(ReclaimItem { lock: advisory(self.object), mode, generation, first, run, version: 0 })
    }

    /// Nothing is left to remember.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_none()
            && self.holders.is_empty()
            && self.queue.is_empty()
            && self.asking == Asking::No
            && self.releasing.is_none()
            && !self.resting
    }

    /// Held as it stands, and nothing is asked, awaited, demanded or running out: whatever its holders do, nothing is to be done about it.
    pub(super) fn is_at_rest(&self) -> bool {
        let held_so = self.held.is_some_and(|held| held.demanded.is_none() && !held.is_running_out());
        let asks_nothing = self.asking == Asking::No && self.releasing.is_none() && self.awaited.is_none() && !self.resting;
        held_so && asks_nothing && self.queue.is_empty() && !self.blocked
    }

    /// Held, and used by nobody here.
    pub(super) fn is_idle(&self) -> bool {
        self.held.is_some() && self.releasing.is_none() && self.holders.is_empty() && self.queue.is_empty() && self.asking == Asking::No
    }

    /// One local grant of a lock at rest, as `serve` would make it of one who waits; `None`: it has to be waited for, or asked for.
    pub(super) fn grant_at_once(&mut self, mode: Mode, change: &mut Change<'_>) -> Option<Locked> {
        //= wire-spec.md#11-3-failure-and-ending
        //# While a lock is not certain the agent MUST NOT pass it on to another local user.
        let may = self.is_at_rest() && self.covers(mode) && !self.in_conflict(mode) && change.permit.may_start;
        let locked = if may { self.grant_one(mode, change) } else { None }?;
        self.extend(change.effects);
        Some(locked)
    }

    /// Does what is to be done next.
    pub(super) fn proceed(&mut self, change: &mut Change<'_>) {
        self.serve(change);
        self.give_back(change.effects);
        self.ask(change.effects);
    }

    /// Grants locally, in order, what may be granted.
    pub(super) fn serve(&mut self, change: &mut Change<'_>) {
        self.blocked = false;
        while let Some(waiter) = self.queue.head() {
            if !self.covers(waiter.mode) || self.in_conflict(waiter.mode) {
                break;
            }
            //= wire-spec.md#11-3-failure-and-ending
            //# While a lock is not certain the agent MUST NOT pass it on to another local user.
            //= wire-spec.md#11-4-locks
            //# An agent MUST NOT show a queued grant to its user unless its lease is valid.
            if !change.permit.may_start && !bugs::is(Bug::M9) {
                self.blocked = true;
                break;
            }
            let Some(locked) = self.grant_one(waiter.mode, change) else { break };
            self.queue.pop();
            change.came.granted.push(locked.holder);
            change.came.ended.push(waiter.op);
            change.effects.push_back(Effect::Done { op: waiter.op, result: Ok(locked) });
        }
        self.extend(change.effects);
    }

    /// Whether the agent's grant allows local grants of this mode, tokens aside.
    fn covers(&self, mode: Mode) -> bool {
        //= wire-spec.md#11-4-locks
        //# Once an advisory lock was demanded, the agent MUST send further local requests for it to the server instead of granting them.
        // While a downgrade is under way its new generation is not known.
        self.releasing.is_none()
            && self.held.is_some_and(|held| held.demanded.is_none() && (held.mode == Mode::Exclusive || mode == Mode::Shared))
    }

    /// Whether a local user holds the lock in a mode that does not go with this one.
    pub(super) fn in_conflict(&self, mode: Mode) -> bool {
        self.holders.iter().any(|holder| !holder.mode.compatible(mode))
    }

    /// One local grant, under the next token; `None` if the run is used up.
    fn grant_one(&mut self, mode: Mode, change: &mut Change<'_>) -> Option<Locked> {
        let valid_until = change.permit.certain_until?;
        let held = self.held.as_mut().filter(|held| held.next < held.end)?;
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

    /// Asks for another run of tokens before this one ends (R73): while the last quarter of it lasts, or when somebody waits for one.
    fn extend(&mut self, effects: &mut VecDeque<Effect>) {
        let needed = self.queue.head().is_some_and(|head| self.covers(head.mode) && !self.in_conflict(head.mode));
        let may = self.asking == Asking::No && self.releasing.is_none() && !self.resting && !self.blocked;
        let Some(held) = self.held.as_mut().filter(|held| may && held.demanded.is_none()) else { return };
        //= wire-spec.md#11-4-locks
        //# Before its run ends an agent MUST ask for another one by LOCK, keeping the lock.
        if held.next >= held.end && needed || held.is_running_out() {
            held.asked_at = u32::try_from(held.left()).unwrap_or(u32::MAX);
            let mode = held.mode;
            self.send(Asking::Run, mode, LockWait::Try, effects);
        }
    }

    /// Complies with a demand, if there is one and nobody here stands in its way.
    fn give_back(&mut self, effects: &mut VecDeque<Effect>) {
        let Some(held) = &mut self.held else { return };
        let Some(keep) = held.demanded else { return };
        //= wire-spec.md#11-4-locks
        //# An agent SHOULD have at most one acquisition or conversion of a lock outstanding, and none while a release of it is unanswered.
        // Until a downgrade or another run is answered, the generation that a release would have to name is not known.
        if self.releasing.is_some() || self.asking == Asking::Run {
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
        if let Some(held) = self.held.take() {
            self.disowned = self.disowned.max(held.generation);
            self.push_release(held.generation, Keep::Nothing, effects);
        }
    }

    fn push_release(&mut self, generation: Generation, keep: Keep, effects: &mut VecDeque<Effect>) {
        self.releasing = Some(generation);
        effects.push_back(Effect::Release(ReleaseItem { lock: advisory(self.object), generation, keep }));
    }

    /// Asks the server, if that is what the head of the queue waits for.
    fn ask(&mut self, effects: &mut VecDeque<Effect>) {
        let Some(head) = self.queue.head() else {
            return self.take_back(effects);
        };
        if self.asking != Asking::No || self.releasing.is_some() || self.resting {
            return;
        }
        let needed = match &self.held {
            None => true,
            // An upgrade, once no local user is left with the lesser mode: who comes now waits behind it.
            Some(held) => {
                let free = held.demanded.is_none() && self.holders.is_empty();
                free && held.mode == Mode::Shared && head.mode == Mode::Exclusive
            }
        };
        if needed {
            self.send(Asking::Sent, head.mode, self.queue.how(), effects);
        }
    }

    /// Whether the lock, or a stronger mode of it, is asked for.
    pub(super) const fn is_acquiring(&self) -> bool {
        matches!(self.asking, Asking::Sent | Asking::Queued)
    }

    fn send(&mut self, asking: Asking, mode: Mode, wait: LockWait, effects: &mut VecDeque<Effect>) {
        self.asking = asking;
        self.asked_mode = mode;
        self.nonce = None;
        self.cancelling = false;
        effects.push_back(Effect::Ask { object: self.object, mode, wait });
    }

    /// Nobody waits any more: the request is taken back, unless it is for tokens to come.
    fn take_back(&mut self, effects: &mut VecDeque<Effect>) {
        let unwanted = self.is_acquiring() || self.asking == Asking::Run && self.held.is_none();
        if unwanted && !self.cancelling {
            self.cancelling = true;
            effects.push_back(Effect::Cancel { object: self.object });
        }
    }

    /// The request is over, however it ended.
    pub(super) fn settled(&mut self) {
        self.asking = Asking::No;
        self.nonce = None;
        self.cancelling = false;
    }

    /// Ends the waits of those who only try, or of all.
    pub(super) fn fail(&mut self, only_tries: bool, why: OpError, change: &mut Change<'_>) {
        for waiter in self.queue.take(only_tries) {
            change.came.ended.push(waiter.op);
            change.effects.push_back(Effect::Done { op: waiter.op, result: Err(why) });
        }
    }

    /// The lock and its holds are gone for good.
    pub(super) fn lose(&mut self, change: &mut Change<'_>) {
        let object = self.object;
        self.held = None;
        for holder in core::mem::take(&mut self.holders) {
            change.came.lost.push(holder.id);
            //= wire-spec.md#11-3-failure-and-ending
            //# The agent MUST tell its users by name which locks they have lost when a session ends.
            change.effects.push_back(Effect::Tell { holder: holder.id, object, what: LockEvent::Lost });
        }
    }
}

/// What a user hears who only tried, or tried to go where somebody is.
pub(super) const HELD_ELSEWHERE: OpError = OpError::Status(Status::EAGAIN);

const fn advisory(object: ObjectId) -> LockId {
    LockId { object, class: LockClass::Advisory }
}
