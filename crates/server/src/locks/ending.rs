//! Standing and locks: what a session may do with its locks, and when they become available to others.
//!
//! Invariant: nothing is freed before [`LockAccess::Freed`], which is set when the end of the session is durable. A change of standing costs
//! what waits for the session, not what it holds: its holds are taken away in slices, demanded ones first, for somebody may wait for them.
//! A freed session gets nothing any more, so its sweep ends. Implements `wire-spec.md` section 11.3.

use super::LockTable;
use super::table::{Entry, LockAccess, LockWaiter};
use crate::ids::{LockSlot, Owner, PrincipalId, SessionKey, TaskId};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::slab::NONE;
use cistern_wire::{Keep, LockClass, Mode, Realm, Status};

/// Freed sessions, in order of their turns.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Those with demanded holds.
    demanded: VecDeque<u32>,
    others: VecDeque<u32>,
}

impl LockTable {
    /// Takes in a session of an owner and a principal in good standing; it may have cache locks if it `caches`.
    pub(crate) fn open(&mut self, key: SessionKey, owner: Owner, who: PrincipalId, caches: bool) -> LockSlot {
        let owner = self.owners.join(owner);
        LockSlot(self.table.open(key, owner, who, caches))
    }

    /// The standing of a session has changed.
    pub(crate) fn set_access(&mut self, now: Instant, slot: LockSlot, access: LockAccess) {
        use LockAccess::{Active, Ended, Freed, Suspended};
        let Some(slot) = self.table.session(slot) else { return };
        match (self.table.sessions[slot].access, access) {
            (Active, Suspended) => self.suspend(now, slot),
            (Suspended, Active) => self.rescue(now, slot),
            (Active | Suspended, Ended) => self.end(now, slot),
            (Ended, Freed) => {
                //= wire-spec.md#11-3-failure-and-ending
                //# After T the server MUST make the end of the session durable before anything that it frees is granted, executed or shown.
                self.table.sessions[slot].access = Freed;
                self.sweep_later(slot);
            }
            (_, Freed) => debug_assert!(false, "ended first, then freed"),
            // It was told before.
            (Active | Suspended | Ended | Freed, Active | Suspended | Ended) => {}
        }
    }

    /// Nothing is granted to the session, its mutations are not ready; it keeps its locks and its places, and delays nobody who does not want
    /// one of its locks.
    fn suspend(&mut self, now: Instant, slot: u32) {
        //= wire-spec.md#11-3-failure-and-ending
        //# At D the server MUST park the session's unexecuted requests and waiting lock requests: none is executed, none is granted.
        //= wire-spec.md#11-3-failure-and-ending
        //# A session that is timing out MUST NOT hold up the grant of a lock that it does not hold.
        self.suspend_demands(slot);
        self.table.sessions[slot].access = LockAccess::Suspended;
        self.suspend_tasks(slot);
        let waits = self.waits_of(slot);
        self.grant_waiters_of(now, waits);
    }

    /// Demands and grants that waited for the rescue of the session go out.
    fn rescue(&mut self, now: Instant, slot: u32) {
        self.table.sessions[slot].access = LockAccess::Active;
        self.resume_demands(slot);
        self.resume_tasks(now, slot);
        let waits = self.waits_of(slot);
        for (nonce, entry) in &waits {
            let upgrades = self.waiters(*entry).filter(|waiter| waiter.upgrade && self.table.is_good(waiter.session)).count();
            let mine = |waiter: &LockWaiter| waiter.session == slot && waiter.nonce == *nonce && waiter.upgrade;
            let place = self.waiters(*entry).position(mine);
            // While it was away somebody else began to wait for an upgrade: each waits for the other now (section 11.4).
            if let Some(place) = place.filter(|_| upgrades > 1) {
                self.end_wait(*entry, place, Status::EDEADLK);
            }
            let holds: Vec<u32> = self.table.holds_of(*entry).collect();
            holds.into_iter().for_each(|at| self.demand_for_waiters(now, at));
        }
        self.grant_waiters_of(now, waits);
    }

    /// The end of the session is not durable yet. Nothing of it waits any more, its locks are still live.
    fn end(&mut self, now: Instant, slot: u32) {
        //= wire-spec.md#11-3-failure-and-ending
        //# What was parked MUST be dropped when the session ends.
        self.suspend_demands(slot);
        self.table.sessions[slot].access = LockAccess::Ended;
        let waits = self.waits_of(slot);
        for (nonce, entry) in &waits {
            self.drop_waiter(*entry, slot, *nonce);
        }
        self.grant_waiters_of(now, waits);
        let tasks: Vec<TaskId> = self.table.sessions[slot].tasks().to_vec();
        tasks.into_iter().for_each(|task| self.leave(task));
    }

    /// A principal may not wait for advisory locks in a realm any more: nothing that it waits for there is granted, and each wait ends with this
    /// status, at the latest by [`Self::end_forbidden`].
    pub(crate) fn forbid_waits(&mut self, who: PrincipalId, realm: Realm, status: Status) {
        self.forbidden.insert((who, realm), status);
    }

    /// A principal may wait in a realm, or has no wait left there.
    pub(crate) fn allow_waits(&mut self, who: PrincipalId, realm: Realm) {
        self.forbidden.remove(&(who, realm));
    }

    /// Nobody asks any more what a principal may wait for: its key was withdrawn, and none of its sessions is in good standing.
    pub(crate) fn forget_waits(&mut self, who: PrincipalId) {
        self.forbidden.retain(|(of, _), _| *of != who);
    }

    /// How the wait of a session ends for the lock of an entry, if it may not wait any more.
    pub(super) fn forbids(&self, session: u32, entry: u32) -> Option<Status> {
        self.forbidden.get(&(self.table.sessions[session].who, self.table.entries[entry].realm)).copied()
    }

    /// Ends the waits of a session in realms in which its principal may not wait.
    pub(crate) fn end_forbidden(&mut self, now: Instant, slot: LockSlot) {
        let Some(slot) = self.table.session(slot) else { return };
        let mut waits = self.waits_of(slot);
        waits.retain(|(_, entry)| self.forbids(slot, *entry).is_some());
        for (nonce, entry) in &waits {
            let mine = |waiter: &LockWaiter| waiter.session == slot && waiter.nonce == *nonce;
            let place = self.waiters(*entry).position(mine);
            if let Some((place, status)) = place.zip(self.forbids(slot, *entry)) {
                self.end_wait(*entry, place, status);
            }
        }
        self.grant_waiters_of(now, waits);
    }

    /// Demands the cache locks, in at most `budget` places from the place `from` on, of which `of` says, by their sessions' principals, their realms
    /// and their modes, what may be kept and on whose account they are demanded. The place to go on from (`None`: there are no more), and on whose
    /// account how many were.
    pub(crate) fn demand_cached(
        &mut self,
        now: Instant,
        from: u32,
        budget: usize,
        of: impl Fn(PrincipalId, Realm, Mode) -> Option<(Keep, Owner)>,
    ) -> (Option<u32>, Vec<(Owner, u64)>) {
        let until = from.saturating_add(u32::try_from(budget).unwrap_or(u32::MAX)).min(self.table.holds.places());
        let mut asked: Vec<(Owner, u64)> = Vec::new();
        for at in from..until {
            let Some(hold) = self.table.holds.get(at) else { continue };
            let Entry { class, realm, .. } = &self.table.entries[hold.entry];
            let who = self.table.sessions[hold.session].who;
            let Some((keep, owner)) = of(who, *realm, hold.mode).filter(|_| *class == LockClass::Cache) else { continue };
            let (by, before) = (self.owners.join(owner), self.asked());
            self.demand_on_account(now, by, at, keep);
            self.owners.leave(by);
            let more = self.asked() - before;
            match asked.last_mut().filter(|(last, _)| *last == owner) {
                Some((_, count)) => *count += more,
                None => asked.push((owner, more)),
            }
        }
        ((until < self.table.holds.places()).then_some(until), asked)
    }

    /// Grants to whoever waits in line with these requests.
    pub(super) fn grant_waiters_of(&mut self, now: Instant, waits: Vec<(u64, u32)>) {
        let mut entries: Vec<_> = waits.into_iter().map(|(_, entry)| entry).collect();
        entries.sort_unstable();
        entries.dedup();
        for entry in entries {
            self.grant_waiters(now, entry);
        }
    }

    /// The requests of a session that wait: nonce and entry.
    pub(super) fn waits_of(&self, slot: u32) -> Vec<(u64, u32)> {
        self.waits.range((slot, 0)..=(slot, u64::MAX)).map(|((_, nonce), entry)| (*nonce, *entry)).collect()
    }

    /// Takes away at most `budget` locks of sessions that were freed, grants to whoever waited for them, and forgets sessions that have
    /// nothing left. True: there is more to do.
    pub(crate) fn sweep(&mut self, now: Instant, budget: usize) -> bool {
        for _ in 0..budget {
            let Some(slot) = self.sweep.demanded.pop_front().or_else(|| self.sweep.others.pop_front()) else { return false };
            // The demanded ones stand first.
            let first = self.table.sessions[slot].first;
            if first != NONE {
                self.free(now, first);
            }
            if self.table.sessions[slot].first == NONE {
                let owner = self.table.forget_session(slot);
                self.owners.leave(owner);
            } else {
                self.sweep_later(slot);
            }
        }
        self.is_sweeping()
    }

    /// Whether there is more to take away.
    pub(crate) fn is_sweeping(&self) -> bool {
        !self.sweep.demanded.is_empty() || !self.sweep.others.is_empty()
    }

    /// Gives a freed session its next turn.
    fn sweep_later(&mut self, slot: u32) {
        let demanded = self.table.demanded_of(slot).next().is_some();
        let line = if demanded { &mut self.sweep.demanded } else { &mut self.sweep.others };
        line.push_back(slot);
    }
}
