//! Sessions, as far as locks go: open, parked, rescued, ended, freed.
//!
//! Decides: from when on a session's locks are anybody's. Place in the walk: told by the machine whenever standing changes.
//! Implements `wire-spec.md` section 11.3.
//! Invariant: `park` and `end_session` take effect at once and free nothing; only `free_session`, called when the end is durable, does.
//! Each costs the loop what waits for the session, not what it holds: its holds are taken away in slices.
//! Leaves to others: when standing changes, taking the holds away (`sweep`).

use super::table::{LockAccess, Waiter};
use super::{LockTable, Ticket};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{LockId, SessionId, Status};

impl LockTable {
    /// A session is open and in good standing. To be called before anything else about it.
    pub fn open_session(&mut self, session: SessionId) {
        self.table.open_session(session);
    }

    /// The session is long: no cache lock is granted to it, or restored.
    pub fn deny_cache_locks(&mut self, session: SessionId) {
        if let Some(slot) = self.table.session(session) {
            self.table.sessions[slot].caches = false;
        }
    }

    /// Whether a session holds an advisory lock or waits for it.
    #[must_use]
    pub fn involves(&self, session: SessionId, lock: LockId) -> bool {
        let found = self.table.session(session).zip(self.table.entry(lock));
        found.is_some_and(|(slot, entry)| self.table.own(entry, slot).is_some() || self.waiters(entry).any(|waiter| waiter.session == slot))
    }

    /// The session is timing out: nothing is granted to it, its mutations are not ready; it keeps its locks and its places, and delays
    /// nobody who does not want one of its locks.
    pub fn park(&mut self, now: Instant, session: SessionId) {
        if let Some(slot) = self.table.good(session) {
            //= wire-spec.md#11-3-failure-and-ending
            //# At D the server MUST park the session's unexecuted requests and waiting lock requests: none is executed, none is granted.
            //= wire-spec.md#11-3-failure-and-ending
            //# A session that is timing out MUST NOT hold up the grant of a lock that it does not hold.
            self.suspend_demands(slot);
            self.table.sessions[slot].state = LockAccess::Suspended;
            self.stand_aside(now, slot);
        }
    }

    /// The session was rescued: demands and grants that waited for that go out.
    pub fn unpark(&mut self, now: Instant, session: SessionId) {
        let Some(slot) = self.table.session(session).filter(|slot| self.table.sessions[*slot].state == LockAccess::Suspended) else {
            return;
        };
        self.table.sessions[slot].state = LockAccess::Active;
        self.resume_demands(slot);
        self.resume_tickets(now, slot);
        let waits = self.waits_of(slot);
        for (nonce, entry) in &waits {
            let upgrades = self.waiters(*entry).filter(|waiter| waiter.upgrade && self.table.is_good(waiter.session)).count();
            let mine = |waiter: &Waiter| waiter.session == slot && waiter.nonce == *nonce && waiter.upgrade;
            let place = self.waiters(*entry).position(mine);
            // While it was away somebody else began to wait for an upgrade: each waits for the other now (section 11.4).
            if let Some(place) = place.filter(|_| upgrades > 1) {
                self.end_wait(*entry, place, Status::EDEADLK);
            }
            self.press_all(now, *entry);
        }
        self.pump_all(now, waits);
    }

    /// The session has ended; its end is not durable yet. Nothing of it waits any more, its locks still stand.
    pub fn end_session(&mut self, now: Instant, session: SessionId) {
        let Some(slot) = self.table.session(session) else { return };
        if matches!(self.table.sessions[slot].state, LockAccess::Active | LockAccess::Suspended) {
            //= wire-spec.md#11-3-failure-and-ending
            //# What was parked MUST be dropped when the session ends.
            self.suspend_demands(slot);
            self.table.sessions[slot].state = LockAccess::Ended;
            self.drop_waiters(now, session);
        }
    }

    /// The end of the session is durable: its locks conflict with nobody any more. Whoever waits for one of them learns it from
    /// [`Self::reclaim_some`], which also forgets the session.
    pub fn free_session(&mut self, session: SessionId) {
        let Some(slot) = self.table.session(session) else { return };
        debug_assert!(self.table.sessions[slot].state == LockAccess::Ended, "ended first, then freed");
        //= wire-spec.md#11-3-failure-and-ending
        //# After T the server MUST make the end of the session durable before anything that it frees is granted, executed or shown.
        self.table.sessions[slot].state = LockAccess::Freed;
        self.sweep_later(slot);
    }

    /// Drops all lock requests and mutations of a session that wait, and says nothing about them.
    pub fn drop_waiters(&mut self, now: Instant, session: SessionId) {
        let Some(slot) = self.table.session(session) else { return };
        let waits = self.waits_of(slot);
        for (nonce, entry) in &waits {
            self.drop_waiter(*entry, slot, *nonce);
        }
        self.pump_all(now, waits);
        let tickets: Vec<Ticket> = self.table.sessions[slot].tickets().to_vec();
        for ticket in tickets {
            self.mutation_leave(ticket);
        }
    }

    /// What waited behind the session's requests and mutations goes on.
    fn stand_aside(&mut self, now: Instant, slot: u32) {
        self.suspend_tickets(slot);
        let waits = self.waits_of(slot);
        self.pump_all(now, waits);
    }

    /// Lets come whoever waited behind these requests.
    pub(super) fn pump_all(&mut self, now: Instant, waits: Vec<(u64, u32)>) {
        let mut entries: Vec<_> = waits.into_iter().map(|(_, entry)| entry).collect();
        entries.sort_unstable();
        entries.dedup();
        for entry in entries {
            self.pump(now, entry);
        }
    }

    /// The requests of a session that wait: nonce and entry.
    pub(super) fn waits_of(&self, slot: u32) -> Vec<(u64, u32)> {
        self.waits.range((slot, 0)..=(slot, u64::MAX)).map(|((_, nonce), entry)| (*nonce, *entry)).collect()
    }

    /// Asks back whatever somebody waits for: those who wait have changed.
    fn press_all(&mut self, now: Instant, entry: u32) {
        let holds: Vec<u32> = self.table.holds_of(entry).collect();
        for at in holds {
            self.press_for_waiters(now, at);
        }
    }
}
