//! The agent's advisory locks: which are held, by whom here, who waits, and what is said when the server asks for one back.
//!
//! Decides how local users share what the agent was granted: in order of asking, and without a message while the agent's grant covers them.
//! Everything else that a change of a lock leads to is an [`Effect`], carried out by the agent before anything else happens. Invariants:
//! looking at the lease, granting locally and acting on a demand happen in calls of one `&mut Locks`, so they exclude each other; every
//! change of a lock ends with `Advisory::advance`, but for what changes nothing for anybody else: the next token of an uncontended lock,
//! and its return; every wait ends exactly once; a hash table is never iterated where its order would show. Implements `wire-spec.md`
//! section 11.4.

mod advisory;
mod replies;

use crate::api::{HolderId, LockEvent, Locked, OpError, OpId, Wait};
use crate::eviction::EvictionQueue;
use crate::lease::Permit;
use advisory::{Advisory, Change, HELD_ELSEWHERE, IndexChanges, LockRequest, Waiter, lock_of};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use cistern_wire::{
    Cancelled, Demand, Grant, LockId, LockWait, Mode, ObjectId, ReceiptAnswer, ReclaimItem, ReleaseItem, ReleasedItem, Reply, WaitOver,
};
use core::time::Duration;
use hashbrown::HashMap;

/// What a change of the locks leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Give this back; it is refused already.
    Release(ReleaseItem),
    /// Ask the server for an advisory lock, or for another run of tokens of one that is held.
    Ask { object: ObjectId, mode: Mode, wait: LockWait },
    /// Nobody waits for this advisory lock any more: take the request for it back.
    Cancel { object: ObjectId },
    /// Ask again after this span, by [`Locks::rested`].
    Rest { object: ObjectId, span: Duration },
    /// A lock command waits, until its limit if it has one.
    Waits { op: OpId, wait: Wait },
    /// A lock command ended.
    Done { op: OpId, result: Result<Locked, OpError> },
    /// Something happened to a lock that a user holds.
    Tell { holder: HolderId, object: ObjectId, what: LockEvent },
}

/// Gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockCounts {
    /// Held by the agent.
    pub(crate) held: usize,
    /// Local users who hold one.
    pub(crate) holders: usize,
    /// Local users who wait for one.
    pub(crate) waiters: usize,
}

/// All advisory locks of the agent.
#[derive(Debug)]
pub(crate) struct Locks {
    /// Held, asked for or waited for.
    entries: HashMap<ObjectId, Advisory>,
    /// The lock that a local user holds; in order, for that is the order in which they are told what concerns all of them.
    holders: BTreeMap<HolderId, ObjectId>,
    waiters: BTreeMap<OpId, ObjectId>,
    /// Locks for which somebody waits who needs nothing but the lease.
    need_lease: BTreeSet<ObjectId>,
    /// Locks that were idle when they came here.
    idle: EvictionQueue,
    held: usize,
    max: usize,
    last_holder: u64,
    effects: VecDeque<Effect>,
    /// Of the change at hand; empty between two.
    index: IndexChanges,
}

impl Locks {
    /// No locks; at most so many that are held or waited for.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            entries: HashMap::new(),
            holders: BTreeMap::new(),
            waiters: BTreeMap::new(),
            need_lease: BTreeSet::new(),
            idle: EvictionQueue::default(),
            held: 0,
            max,
            last_holder: 0,
            effects: VecDeque::new(),
            index: IndexChanges::default(),
        }
    }

    /// What the last changes lead to, in order; to be carried out until there is nothing more.
    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Gauges.
    pub(crate) fn counts(&self) -> LockCounts {
        LockCounts { held: self.held, holders: self.holders.len(), waiters: self.waiters.len() }
    }

    /// The session is over, and with it all holds: gives them in the order in which they were granted, to be told before anything else.
    /// Those who wait go on waiting for the next session.
    pub(crate) fn session_over(&mut self, permit: Permit) -> BTreeMap<HolderId, ObjectId> {
        let lost = core::mem::take(&mut self.holders);
        let mut former = core::mem::take(&mut self.entries);
        self.idle = EvictionQueue::default();
        self.held = 0;
        self.need_lease.clear();
        for object in self.waiters.values().copied().collect::<BTreeSet<_>>() {
            let Some(Advisory { queue, .. }) = former.remove(&object) else { continue };
            self.entries.insert(object, Advisory { queue, ..Advisory::new(object) });
            self.change(permit, object, |_, _| ());
        }
        lost
    }

    /// The server was started anew, and another session takes over what this one holds: as it is, but for what was being given back
    /// or converted. Nothing is asked or waited for any more; those who wait ask anew.
    pub(crate) fn change_session(&mut self, permit: Permit) {
        let unsettled = self.entries.values().filter(|entry| !entry.is_uncontended()).map(|entry| entry.object);
        for object in unsettled.collect::<BTreeSet<_>>() {
            self.change(permit, object, Advisory::change_session);
        }
    }

    /// Those that are held, in no order.
    pub(crate) fn locks(&self) -> impl Iterator<Item = LockId> + '_ {
        self.entries.values().filter(|entry| entry.grant.is_some()).map(|entry| lock_of(entry.object))
    }

    /// How a lock is named in RECLAIM; `None` if it is not held, or is being given back or converted.
    pub(crate) fn reclaim_item(&self, object: ObjectId) -> Option<ReclaimItem> {
        self.entries.get(&object)?.reclaim_item()
    }

    /// A lock is gone: it was not reclaimed.
    pub(crate) fn lose(&mut self, permit: Permit, object: ObjectId) {
        self.change(permit, object, Advisory::lose);
    }

    /// Changes one lock, does what is to be done next about it, and keeps the indices.
    fn change<R>(&mut self, permit: Permit, object: ObjectId, change: impl FnOnce(&mut Advisory, &mut Change<'_>) -> R) -> Option<R> {
        let Self { entries, index, effects, last_holder, .. } = self;
        let entry = entries.get_mut(&object)?;
        let (was_held, needed_lease) = (entry.grant.is_some(), entry.needs_lease);
        let mut with = Change { permit, last_holder, effects, index };
        let result = change(entry, &mut with);
        entry.advance(&mut with);
        self.held = self.held + usize::from(entry.grant.is_some()) - usize::from(was_held);
        self.holders.extend(index.granted.drain(..).map(|holder| (holder, object)));
        for holder in index.lost.drain(..) {
            self.holders.remove(&holder);
        }
        for op in index.ended.drain(..) {
            self.waiters.remove(&op);
        }
        if entry.needs_lease {
            self.need_lease.insert(object);
        } else if needed_lease {
            self.need_lease.remove(&object);
        }
        if entry.is_idle() {
            self.idle.enter(object, &mut entry.place);
        } else if entry.is_empty() {
            self.idle.leave(&mut entry.place);
            self.entries.remove(&object);
        }
        Some(result)
    }

    /// Gives back a lock that is idle, and was not used since it fell idle or was passed over.
    fn make_room(&mut self) -> bool {
        let object = self.idle.evict(&mut self.entries, |entry| &mut entry.place, |_, entry| entry.is_idle());
        let Some(entry) = object.and_then(|object| self.entries.get_mut(&object)) else { return false };
        entry.release(&mut self.effects);
        self.held -= 1;
        true
    }
}

/// What local users ask.
impl Locks {
    /// A local user gets a lock that the agent holds, if nothing stands between them. `None`: ask by [`Locks::lock`].
    pub(crate) fn grant(&mut self, permit: Permit, object: ObjectId, mode: Mode) -> Option<Locked> {
        let Self { entries, index, effects, last_holder, .. } = self;
        let locked = entries.get_mut(&object)?.grant_at_once(mode, &mut Change { permit, last_holder, effects, index })?;
        self.holders.insert(locked.holder, object);
        Some(locked)
    }

    /// A local user asks for a lock. `None`: it waits, and [`Effect::Done`] tells how that ends.
    pub(crate) fn lock(
        &mut self,
        permit: Permit,
        op: OpId,
        (object, mode, wait): (ObjectId, Mode, Wait),
    ) -> Option<Result<Locked, OpError>> {
        if let Some(entry) = self.entries.get(&object) {
            if wait == Wait::Try && entry.is_taken(mode) {
                return Some(Err(HELD_ELSEWHERE));
            }
        } else {
            if self.entries.len() >= self.max && !self.make_room() {
                return Some(Err(OpError::Overloaded));
            }
            self.entries.insert(object, Advisory::new(object));
        }
        self.waiters.insert(op, object);
        self.change(permit, object, |entry, _| entry.queue.push(Waiter { op, mode, wait }));
        // Granted in this very call: the command ends at once.
        let done = self.effects.iter().rposition(|effect| matches!(effect, Effect::Done { op: ended, .. } if *ended == op));
        if let Some(Effect::Done { result, .. }) = done.and_then(|place| self.effects.remove(place)) {
            return Some(result);
        }
        self.effects.push_back(Effect::Waits { op, wait });
        None
    }

    /// A local user gives its hold back. False if it had none any more.
    pub(crate) fn unlock(&mut self, permit: Permit, holder: HolderId) -> bool {
        let Some(object) = self.holders.remove(&holder) else { return false };
        let Some(entry) = self.entries.get_mut(&object) else { return false };
        entry.holders.retain(|held| held.id != holder);
        if !entry.is_uncontended() {
            self.change(permit, object, |_, _| ());
        } else if entry.is_idle() {
            // It stays with the agent.
            self.idle.enter(object, &mut entry.place);
        }
        true
    }

    /// A local user no longer waits; nothing is told of its wait. False if it did not.
    pub(crate) fn stop_waiting(&mut self, permit: Permit, op: OpId) -> bool {
        let Some(object) = self.waiters.remove(&op) else { return false };
        self.change(permit, object, |entry, _| entry.queue.remove(op));
        true
    }

    /// Every wait fails: there is no session to be had.
    pub(crate) fn fail_waits(&mut self, permit: Permit, why: OpError) {
        for object in self.waiters.values().copied().collect::<BTreeSet<_>>() {
            self.change(permit, object, |entry, change| entry.fail(false, why, change));
        }
    }

    /// The lease was renewed: whoever waited only for that is served.
    pub(crate) fn renewed(&mut self, permit: Permit) {
        if permit.may_start && !self.need_lease.is_empty() {
            for object in core::mem::take(&mut self.need_lease) {
                self.change(permit, object, |_, _| ());
            }
        }
    }

    /// Whether this command waits for another user, here or in line at the server: for as long as its own user likes.
    pub(crate) fn is_queued(&self, op: OpId) -> bool {
        let entry = self.waiters.get(&op).and_then(|object| self.entries.get(object));
        entry.is_some_and(|entry| entry.request.is_queued() || (!entry.holders.is_empty() && !entry.needs_lease))
    }

    /// Why the server does not take the request for which this command waits, if it said so.
    pub(crate) fn refused(&self, op: OpId) -> Option<OpError> {
        match self.entries.get(self.waiters.get(&op)?)?.request {
            LockRequest::Busy(why) => Some(why),
            _ => None,
        }
    }

    /// The commands that wait for the lock of an object.
    pub(crate) fn waiting_for(&self, object: ObjectId) -> Vec<OpId> {
        self.waiters.iter().filter(|(_, of)| **of == object).map(|(op, _)| *op).collect()
    }

    /// Whether a local user holds something by this.
    pub(crate) fn is_held(&self, holder: HolderId) -> bool {
        self.holders.contains_key(&holder)
    }

    /// Whether a local user holds the lock of an object under this token.
    pub(crate) fn holds_token(&self, object: ObjectId, token: u64) -> bool {
        self.entries.get(&object).is_some_and(|entry| entry.holders.iter().any(|holder| holder.token == token))
    }

    /// All local holds, in the order in which they were granted.
    pub(crate) const fn holders(&self) -> &BTreeMap<HolderId, ObjectId> {
        &self.holders
    }
}

/// What the server says.
impl Locks {
    /// LOCK was sent for the first time, under this nonce.
    pub(crate) fn asked(&mut self, object: ObjectId, nonce: u64) {
        if let Some(asked) = self.entries.get_mut(&object).and_then(|entry| entry.request.asked_mut()) {
            asked.nonce = Some(nonce);
        }
    }

    /// The nonce under which a lock is asked for or waited for, if its request was sent.
    pub(crate) fn nonce_of(&self, object: ObjectId) -> Option<u64> {
        self.entries.get(&object)?.request.asked()?.nonce
    }

    /// LOCK was answered.
    pub(crate) fn answered(&mut self, permit: Permit, object: ObjectId, reply: &Reply<'_>) {
        self.change(permit, object, |entry, change| entry.answered(reply, change));
    }

    /// LOCK was answered QUEUED.
    pub(crate) fn queued(&mut self, permit: Permit, object: ObjectId) {
        self.change(permit, object, Advisory::queued);
    }

    /// The request was taken back before it was ever sent.
    pub(crate) fn unasked(&mut self, permit: Permit, object: ObjectId) {
        self.change(permit, object, |entry, _| entry.take_request());
    }

    /// CANCEL was answered.
    pub(crate) fn cancelled(&mut self, permit: Permit, object: ObjectId, cancelled: &Cancelled) {
        self.change(permit, object, |entry, change| entry.cancelled(cancelled, change));
    }

    /// The rest after a busy answer is over.
    pub(crate) fn rested(&mut self, permit: Permit, object: ObjectId) {
        self.change(permit, object, |entry, _| {
            if matches!(entry.request, LockRequest::Busy(_)) {
                entry.request = LockRequest::None;
            }
        });
    }

    /// The server demands a lock; what the agent says to that.
    pub(crate) fn demanded(&mut self, permit: Permit, demand: &Demand) -> ReceiptAnswer {
        let object = demand.lock.object;
        match self.change(permit, object, |entry, _| entry.demanded(demand.generation, demand.keep)) {
            Some(ReceiptAnswer::InUse) if self.entries.get(&object).is_none_or(Advisory::is_complying) => ReceiptAnswer::Received,
            Some(said) => said,
            None => ReceiptAnswer::NotHeld,
        }
    }

    /// The server grants a lock that was waited for; what the agent says to that.
    pub(crate) fn granted(&mut self, permit: Permit, grant: &Grant) -> ReceiptAnswer {
        let taken = self.change(permit, grant.lock.object, |entry, change| entry.granted(grant, change)) == Some(true);
        if taken { ReceiptAnswer::Received } else { ReceiptAnswer::NotHeld }
    }

    /// The server ends a wait.
    pub(crate) fn wait_over(&mut self, permit: Permit, over: &WaitOver) {
        self.change(permit, over.lock.object, |entry, change| entry.wait_over(over.nonce, over.status, change));
    }

    /// The object is gone.
    pub(crate) fn object_gone(&mut self, permit: Permit, object: ObjectId) {
        self.change(permit, object, Advisory::object_gone);
    }

    /// A release was answered.
    pub(crate) fn released(&mut self, permit: Permit, item: &ReleasedItem) {
        self.change(permit, item.lock.object, |entry, change| entry.released(item, change));
    }
}
