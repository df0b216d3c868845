//! Advisory locks: the table of entries, its indices, and the local users.
//!
//! Decides how local users share what the agent was granted: in order of asking, and without a message while the agent's grant
//! covers them. Place in the walk: under `Locks`, called by operations, `incoming` and timers. Implements `wire-spec.md` section 11.4.
//! Invariants: every change of an entry ends with `Entry::proceed`, which does what is to be done next; every wait ends exactly once;
//! every hold and every wait is in its index; a hash table is never iterated where its order would show. A lock at rest, which nothing is to
//! be done about, is granted and given back without that.
//! Leaves to others: the rules of one lock (`entry`), what the server says (`replies`), messages, time limits.

use super::Effect;
use super::entry::{Asking, Came, Change, Entry, HELD_ELSEWHERE};
use super::queue::Waiter;
use crate::api::{HolderId, Locked, OpError, OpId, Wait};
use crate::eviction::EvictionQueue;
use crate::lease::Permit;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use cistern_wire::{Mode, ObjectId};
use hashbrown::HashMap;

/// The moment of a change, and where what it leads to is put.
#[derive(Debug)]
pub(super) struct At<'a> {
    pub(super) permit: Permit,
    pub(super) effects: &'a mut VecDeque<Effect>,
}

/// All advisory locks of the agent.
#[derive(Debug)]
pub(super) struct Advisories {
    entries: HashMap<ObjectId, Entry>,
    /// The lock that a local user holds; in order, for that is the order in which they are told what concerns all of them.
    holders: BTreeMap<HolderId, ObjectId>,
    waiters: BTreeMap<OpId, ObjectId>,
    /// Entries in which somebody waits for nothing but the lease.
    blocked: BTreeSet<ObjectId>,
    /// Locks that were idle when they came here.
    idle: EvictionQueue,
    held: usize,
    last_holder: u64,
    /// What came of the change at hand; empty between two.
    came: Came,
    max: usize,
}

impl Advisories {
    /// None yet, at most so many.
    pub(super) fn new(max: usize) -> Self {
        Self {
            entries: HashMap::new(),
            holders: BTreeMap::new(),
            waiters: BTreeMap::new(),
            blocked: BTreeSet::new(),
            idle: EvictionQueue::default(),
            held: 0,
            last_holder: 0,
            came: Came { granted: Vec::new(), lost: Vec::new(), ended: Vec::new() },
            max,
        }
    }

    /// Grants a lock that the agent holds, if nothing stands between it and a local user.
    pub(super) fn grant(&mut self, at: At<'_>, object: ObjectId, mode: Mode) -> Option<Locked> {
        let At { permit, effects } = at;
        let entry = self.entries.get_mut(&object)?;
        let mut with = Change { permit, last_holder: &mut self.last_holder, effects, came: &mut self.came };
        let locked = entry.grant_at_once(mode, &mut with)?;
        self.holders.insert(locked.holder, object);
        Some(locked)
    }

    pub(super) fn lock(&mut self, at: At<'_>, op: OpId, (object, mode, wait): (ObjectId, Mode, Wait)) -> Option<Result<Locked, OpError>> {
        if !self.entries.contains_key(&object) {
            if self.entries.len() >= self.max && !self.make_room(at.effects) {
                return Some(Err(OpError::Overloaded));
            }
            self.entries.insert(object, Entry::new(object));
        }
        if wait == Wait::Try && self.entry(object).is_some_and(|entry| is_taken(entry, mode)) {
            return Some(Err(HELD_ELSEWHERE));
        }
        self.waiters.insert(op, object);
        let At { permit, effects } = at;
        self.change(At { permit, effects }, object, |entry, _| entry.queue.push(Waiter { op, mode, wait }));
        // Granted in this very call: the command ends at once.
        let done = effects.iter().rposition(|effect| matches!(effect, Effect::Done { op: ended, .. } if *ended == op));
        if let Some(Effect::Done { result, .. }) = done.and_then(|place| effects.remove(place)) {
            return Some(result);
        }
        effects.push_back(Effect::Waits { op, wait });
        None
    }

    pub(super) fn unlock(&mut self, at: At<'_>, holder: HolderId) -> bool {
        let Some(object) = self.holders.remove(&holder) else { return false };
        let Some(entry) = self.entries.get_mut(&object) else { return false };
        entry.holders.retain(|held| held.id != holder);
        if !entry.is_at_rest() {
            self.change(at, object, |_, _| ());
        } else if entry.is_idle() {
            // It stays with the agent, and nobody waits for it.
            self.idle.enter(object, &mut entry.place);
        }
        true
    }

    pub(super) fn stop_waiting(&mut self, at: At<'_>, op: OpId) -> bool {
        let Some(object) = self.waiters.remove(&op) else { return false };
        self.change(at, object, |entry, _| entry.queue.remove(op));
        true
    }

    /// The lease was renewed: whoever waited only for that is served.
    pub(super) fn renewed(&mut self, at: At<'_>) {
        if self.blocked.is_empty() || !at.permit.may_start {
            return;
        }
        let At { permit, effects } = at;
        for object in core::mem::take(&mut self.blocked) {
            self.change(At { permit, effects }, object, |_, _| ());
        }
    }

    /// Gives back a lock that is idle, and was not used since it fell idle or was passed over.
    pub(super) fn make_room(&mut self, effects: &mut VecDeque<Effect>) -> bool {
        let object = self.idle.evict(&mut self.entries, |entry| &mut entry.place, |_, entry| entry.is_idle());
        let Some(entry) = object.and_then(|object| self.entries.get_mut(&object)) else { return false };
        entry.release(effects);
        self.held -= 1;
        true
    }

    /// The session is over, and with it all holds; gives them in the order in which they were granted. Who waits asks anew.
    pub(super) fn session_over(&mut self, at: At<'_>) -> BTreeMap<HolderId, ObjectId> {
        let At { permit, effects } = at;
        let lost = core::mem::take(&mut self.holders);
        let mut former = core::mem::take(&mut self.entries);
        self.idle = EvictionQueue::default();
        self.held = 0;
        self.blocked.clear();
        for object in self.waiters.values().copied().collect::<BTreeSet<_>>() {
            let Some(Entry { queue, .. }) = former.remove(&object) else { continue };
            self.entries.insert(object, Entry { queue, ..Entry::new(object) });
            self.change(At { permit, effects }, object, |_, _| ());
        }
        lost
    }

    pub(super) fn change_session(&mut self, at: At<'_>) {
        let At { permit, effects } = at;
        let unsettled = self.entries.values().filter(|entry| !entry.is_at_rest()).map(|entry| entry.object);
        for object in unsettled.collect::<BTreeSet<_>>() {
            self.change(At { permit, effects }, object, Entry::change_session);
        }
    }

    pub(super) fn fail_all_waits(&mut self, at: At<'_>, why: OpError) {
        let At { permit, effects } = at;
        let objects: BTreeSet<ObjectId> = self.waiters.values().copied().collect();
        for object in objects {
            self.change(At { permit, effects }, object, |entry, change| entry.fail(false, why, change));
        }
    }

    /// Changes one entry, does what is to be done next about it, and keeps the indices.
    pub(super) fn change<R>(&mut self, at: At<'_>, object: ObjectId, change: impl FnOnce(&mut Entry, &mut Change<'_>) -> R) -> Option<R> {
        let entry = self.entries.get_mut(&object)?;
        let (was_held, was_blocked) = (entry.held.is_some(), entry.blocked);
        let At { permit, effects } = at;
        let mut with = Change { permit, last_holder: &mut self.last_holder, effects, came: &mut self.came };
        let answer = change(entry, &mut with);
        entry.proceed(&mut with);
        self.held = self.held + usize::from(entry.held.is_some()) - usize::from(was_held);
        for holder in self.came.granted.drain(..) {
            self.holders.insert(holder, object);
        }
        for holder in self.came.lost.drain(..) {
            self.holders.remove(&holder);
        }
        for op in self.came.ended.drain(..) {
            self.waiters.remove(&op);
        }
        if entry.blocked {
            self.blocked.insert(object);
        } else if was_blocked {
            self.blocked.remove(&object);
        }
        if entry.is_idle() {
            self.idle.enter(object, &mut entry.place);
        } else if entry.is_empty() {
            self.idle.leave(&mut entry.place);
            self.entries.remove(&object);
        }
        Some(answer)
    }
}

/// What is asked of it.
impl Advisories {
    /// Held by the agent, local holds, local waits.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        (self.held, self.holders.len(), self.waiters.len())
    }

    /// Whether this wait is for another user, here or in line at the server.
    pub(super) fn is_queued(&self, op: OpId) -> bool {
        let entry = self.waiters.get(&op).and_then(|object| self.entry(*object));
        entry.is_some_and(|entry| entry.asking == Asking::Queued || (!entry.holders.is_empty() && !entry.blocked))
    }

    /// Who waits for the lock of an object.
    pub(super) fn waiting_for(&self, object: ObjectId) -> Vec<OpId> {
        self.waiters.iter().filter(|(_, of)| **of == object).map(|(op, _)| *op).collect()
    }

    pub(super) fn is_held(&self, holder: HolderId) -> bool {
        self.holders.contains_key(&holder)
    }

    /// All holds, in the order in which they were granted.
    pub(super) const fn holders(&self) -> &BTreeMap<HolderId, ObjectId> {
        &self.holders
    }

    /// Objects whose locks the agent holds, in no order.
    pub(super) fn held(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.entries.values().filter(|entry| entry.held.is_some()).map(|entry| entry.object)
    }

    pub(super) fn entry(&self, object: ObjectId) -> Option<&Entry> {
        self.entries.get(&object)
    }

    pub(super) fn entry_mut(&mut self, object: ObjectId) -> Option<&mut Entry> {
        self.entries.get_mut(&object)
    }
}

/// Whether a request that only tries need not ask anybody: it is in conflict with a local holder or with somebody who waits.
fn is_taken(entry: &Entry, mode: Mode) -> bool {
    let wanted_elsewhere = entry.held.is_some_and(|held| held.demanded.is_some()) || entry.asking == Asking::Queued;
    wanted_elsewhere || entry.in_conflict(mode) || !entry.queue.all_compatible(mode)
}
