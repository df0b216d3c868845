//! The agent's advisory locks: which are held, by whom here, who waits, and what is said when the server asks for one back.
//!
//! Everything that a change of the locks leads to is an [`Effect`], carried out by the agent before anything else happens. Implements
//! `wire-spec.md` section 11.4.
//! Invariant: checking the lease, granting locally and acting on a demand happen in calls of one `&mut Locks`, so they exclude each
//! other (R17).
//! Leaves to others: cache locks (`cache`), messages (`agent`, `transport`).

mod advisory;
mod entry;
mod queue;
mod replies;

use crate::api::{HolderId, LockEvent, Locked, OpError, OpId, Wait};
use crate::lease::Permit;
use advisory::{Advisories, At};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use cistern_wire::{
    Cancelled, Demand, Grant, LockClass, LockId, LockWait, Mode, ObjectId, ReceiptAnswer, ReclaimItem, ReleaseItem, ReleasedItem, Reply,
    WaitOver,
};
use core::time::Duration;
use entry::{Change, Entry};

/// What a change of the locks leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Give this back; it is disowned already.
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
    advisory: Advisories,
    effects: VecDeque<Effect>,
}

impl Locks {
    /// No locks; at most so many that are held or waited for.
    pub(crate) fn new(max: usize) -> Self {
        Self { advisory: Advisories::new(max), effects: VecDeque::new() }
    }

    /// What the last changes lead to, in order; to be carried out until there is nothing more.
    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The session is over: nothing of it is held any more, those who wait go on waiting for the next one. Gives its holders, who must be
    /// told before anything else.
    pub(crate) fn session_over(&mut self, permit: Permit) -> BTreeMap<HolderId, ObjectId> {
        self.advisory.session_over(At { permit, effects: &mut self.effects })
    }

    /// The server was started anew, and another session takes over what this one holds: as it is, but for what was being given back
    /// or converted. Nothing is asked or waited for any more; those who wait ask anew.
    pub(crate) fn change_session(&mut self, permit: Permit) {
        self.advisory.change_session(At { permit, effects: &mut self.effects });
    }

    /// Those that are held, in no order.
    pub(crate) fn locks(&self) -> impl Iterator<Item = LockId> + '_ {
        self.advisory.held().map(|object| LockId { object, class: LockClass::Advisory })
    }

    /// How a lock is named in RECLAIM; `None` if it is not held, or is being given back or converted.
    pub(crate) fn reclaim_item(&self, object: ObjectId) -> Option<ReclaimItem> {
        self.advisory.entry(object)?.reclaim_item()
    }

    /// A lock is gone: it was not reclaimed.
    pub(crate) fn lose(&mut self, permit: Permit, object: ObjectId) {
        self.change(permit, object, Entry::lose);
    }

    /// Gauges.
    pub(crate) fn counts(&self) -> LockCounts {
        let (held, holders, waiters) = self.advisory.counts();
        LockCounts { held, holders, waiters }
    }
}

/// Advisory locks, as their local users see them.
impl Locks {
    /// A local user gets an advisory lock that the agent holds, if nothing stands between them. `None`: ask by [`Locks::lock`].
    pub(crate) fn grant(&mut self, permit: Permit, object: ObjectId, mode: Mode) -> Option<Locked> {
        self.advisory.grant(At { permit, effects: &mut self.effects }, object, mode)
    }

    /// A local user asks for an advisory lock. `None`: it waits, and [`Effect::Done`] tells how that ends.
    pub(crate) fn lock(&mut self, permit: Permit, op: OpId, wanted: (ObjectId, Mode, Wait)) -> Option<Result<Locked, OpError>> {
        self.advisory.lock(At { permit, effects: &mut self.effects }, op, wanted)
    }

    /// A local user gives its hold back. False if it had none any more.
    pub(crate) fn unlock(&mut self, permit: Permit, holder: HolderId) -> bool {
        self.advisory.unlock(At { permit, effects: &mut self.effects }, holder)
    }

    /// A local user no longer waits; nothing is told of its wait. False if it did not.
    pub(crate) fn stop_waiting(&mut self, permit: Permit, op: OpId) -> bool {
        self.advisory.stop_waiting(At { permit, effects: &mut self.effects }, op)
    }

    /// Every wait fails: there is no session to be had.
    pub(crate) fn fail_waits(&mut self, permit: Permit, why: OpError) {
        self.advisory.fail_all_waits(At { permit, effects: &mut self.effects }, why);
    }

    /// Whether this command waits for another user, here or in line at the server: for as long as its own user likes.
    pub(crate) fn is_queued(&self, op: OpId) -> bool {
        self.advisory.is_queued(op)
    }

    /// The commands that wait for the lock of an object.
    pub(crate) fn waiting_for(&self, object: ObjectId) -> Vec<OpId> {
        self.advisory.waiting_for(object)
    }

    /// Whether a local user holds something by this.
    pub(crate) fn is_held(&self, holder: HolderId) -> bool {
        self.advisory.is_held(holder)
    }

    /// Whether a local user holds the lock of an object under this token.
    pub(crate) fn holds_token(&self, object: ObjectId, token: u64) -> bool {
        self.advisory.entry(object).is_some_and(|entry| entry.holders.iter().any(|holder| holder.token == token))
    }

    /// All local holds, in the order in which they were granted.
    pub(crate) const fn holders(&self) -> &BTreeMap<HolderId, ObjectId> {
        self.advisory.holders()
    }

    /// The lease was renewed: whoever waited only for that is served.
    pub(crate) fn renewed(&mut self, permit: Permit) {
        self.advisory.renewed(At { permit, effects: &mut self.effects });
    }
}

/// What the server says.
impl Locks {
    /// LOCK was sent for the first time, under this nonce.
    pub(crate) fn asked(&mut self, object: ObjectId, nonce: u64) {
        if let Some(entry) = self.advisory.entry_mut(object) {
            entry.nonce = Some(nonce);
        }
    }

    /// The nonce under which a lock is asked for or waited for, if its request was sent.
    pub(crate) fn nonce_of(&self, object: ObjectId) -> Option<u64> {
        self.advisory.entry(object)?.nonce
    }

    /// LOCK was answered.
    pub(crate) fn answered(&mut self, permit: Permit, object: ObjectId, reply: &Reply<'_>) {
        self.change(permit, object, |entry, change| entry.answered(reply, change));
    }

    /// LOCK was answered QUEUED.
    pub(crate) fn queued(&mut self, permit: Permit, object: ObjectId) {
        self.change(permit, object, Entry::queued);
    }

    /// The request was taken back before it was ever sent.
    pub(crate) fn unasked(&mut self, permit: Permit, object: ObjectId) {
        self.change(permit, object, |entry, _| entry.settled());
    }

    /// CANCEL was answered.
    pub(crate) fn cancelled(&mut self, permit: Permit, object: ObjectId, cancelled: &Cancelled) {
        self.change(permit, object, |entry, change| entry.cancelled(cancelled, change));
    }

    /// The rest after a busy answer is over.
    pub(crate) fn rested(&mut self, permit: Permit, object: ObjectId) {
        self.change(permit, object, |entry, _| entry.resting = false);
    }

    /// The server demands a lock; what the agent says to that.
    pub(crate) fn demanded(&mut self, permit: Permit, demand: &Demand) -> ReceiptAnswer {
        let (object, up_to, keep) = (demand.lock.object, demand.generation, demand.keep);
        match self.change(permit, object, |entry, _| entry.demanded(up_to, keep)) {
            Some(ReceiptAnswer::InUse) if self.advisory.entry(object).is_none_or(Entry::is_complying) => ReceiptAnswer::Received,
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
        self.change(permit, object, Entry::object_gone);
    }

    /// A release was answered.
    pub(crate) fn released(&mut self, permit: Permit, item: &ReleasedItem) {
        self.change(permit, item.lock.object, |entry, change| entry.released(item, change));
    }

    fn change<R>(&mut self, permit: Permit, object: ObjectId, change: impl FnOnce(&mut Entry, &mut Change<'_>) -> R) -> Option<R> {
        self.advisory.change(At { permit, effects: &mut self.effects }, object, change)
    }
}
