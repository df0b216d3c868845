//! Advisory locks: who gets one, who waits, in which order.
//!
//! Decides: grant, refuse, queue, or say that waiting would never end. Place in the walk: LOCK and CANCEL come here from
//! execution and control; grants from the queue leave by `poll_decision`. Implements `wire-spec.md` section 11.4.
//! Invariant: requests are served in order of arrival, shared ones together; nobody passes one who waits, but an upgrade, which
//! everybody behind it would wait for anyway. Waiters that are not in good standing keep their places and delay nobody (section 11.3).
//! Leaves to others: what is granted locally on an agent; how long a request waits (its agent cancels it).

use super::table::{Hold, LockWaiter};
use super::{CancelResult, LockDecision, LockOutcome, LockTable};
use crate::ids::{Located, LockSlot, SessionKey};
use crate::share::RETRY_MS;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use cistern_link::index::hash;
use cistern_link::slab::NONE;
use cistern_wire::{Generation, Keep, Limited, LockClass, LockId, LockWait, Mode, ObjectId, Status};
use core::time::Duration;

/// A waiter that was heard of so recently is granted its lock at once: longer than a burst of requests takes, shorter than anybody dies by.
const HEARD_LATELY: Duration = Duration::from_millis(10);

/// How a request stands to those who hold the lock or wait for it.
enum Chance {
    /// It can be granted now.
    Now,
    /// It has to wait, or to be refused.
    Later,
    /// Another upgrade waits for this session's shared lock, while this one would wait for the other's (section 11.4).
    Never,
}

pub(super) const fn advisory(object: ObjectId) -> LockId {
    LockId { object, class: LockClass::Advisory }
}

impl LockTable {
    /// A request of `session`, under `nonce`, for the advisory lock of an object that exists.
    ///
    /// A session that holds the lock already gets a new run of tokens under a new generation, and the exclusive mode if it asks for
    /// that and nobody else holds the lock. Asking for less than it holds takes nothing away, for a local user may hold more. Those who hold what the request waits for are asked to give it back, also for a request that only tries: an agent
    /// that keeps the lock unused then gives it up.
    pub(crate) fn lock(&mut self, now: Instant, slot: LockSlot, nonce: u64, of: Located, mode: Mode, wait: LockWait) -> LockOutcome {
        let Some(slot) = self.table.good(slot) else { return LockOutcome::Busy };
        let entry = self.table.entry_of(of, LockClass::Advisory);
        let own = self.table.hold_of(entry, slot);
        let chance = self.chance(entry, slot, own, mode);
        let outcome = match (chance, wait) {
            (Chance::Now, _) if own.is_none() && !self.has_room(slot) => {
                //= wire-spec.md#8-2-limits-of-a-server
                //# A bound MUST be met by a refusal or a demand, never by forgetting a lock, a session or a reply that is still owed.
                let limited = self.locks_limit(slot);
                let retry_ms = if self.make_room(now, slot) { RETRY_MS } else { limited.retry_ms };
                LockOutcome::Limited(Limited { retry_ms, ..limited })
            }
            (Chance::Now, _) => match self.grant(now, entry, slot, own, mode) {
                Some(at) => {
                    self.granted_at_once(at, nonce);
                    if self.table.entries[entry].queue.is_some() {
                        self.demand_for_waiters(now, at);
                    }
                    let hold = &self.table.holds[at];
                    // It is held, so it is not idle.
                    return LockOutcome::Granted { mode: hold.mode, generation: hold.generation, run: hold.run };
                }
                // Tokens are on their way from the store; the request is the first in line until they come.
                None if wait == LockWait::Queue => {
                    self.starved.push(advisory(of.object));
                    self.enqueue(now, entry, slot, nonce, mode, own)
                }
                None => LockOutcome::Busy,
            },
            (Chance::Later | Chance::Never, LockWait::Try) => {
                let holder = self.other_holder(entry, slot);
                self.demand_conflicting(now, entry, slot, mode);
                holder.map_or(LockOutcome::Busy, |holder| LockOutcome::Refused { holder })
            }
            (Chance::Later, LockWait::Queue) => self.enqueue(now, entry, slot, nonce, mode, own),
            (Chance::Never, LockWait::Queue) => LockOutcome::Deadlock,
        };
        self.table.drop_if_idle(entry);
        outcome
    }

    fn chance(&self, entry: u32, session: u32, own: Option<u32>, mode: Mode) -> Chance {
        let own_mode = own.map(|at| self.table.holds[at].mode);
        let upgrade = own_mode == Some(Mode::Shared) && mode == Mode::Exclusive;
        let clear = self.is_clear(entry, session, mode);
        if upgrade && clear {
            return Chance::Now;
        }
        //= wire-spec.md#11-4-locks
        //# A second upgrade of a lock whose first upgrade waits MUST fail with EDEADLK.
        if upgrade && self.upgrade_waits(entry) {
            return Chance::Never;
        }
        //= wire-spec.md#11-4-locks
        //# Once an exclusive request for an advisory lock waits, a later shared one MUST NOT be granted before it.
        if clear && (!self.has_waiters(entry) || bugs::is(Bug::M23)) { Chance::Now } else { Chance::Later }
    }

    /// Whether no other session holds the lock in a mode that conflicts.
    fn is_clear(&self, entry: u32, session: u32, mode: Mode) -> bool {
        self.table.other(entry, session).is_none_or(|at| self.table.holds[at].mode.compatible(mode))
    }

    fn upgrade_waits(&self, entry: u32) -> bool {
        self.waiters(entry).any(|waiter| waiter.upgrade && self.table.is_good(waiter.session))
    }

    pub(super) fn waiters(&self, entry: u32) -> impl Iterator<Item = &LockWaiter> {
        self.table.entries[entry].queue.iter().flat_map(|queue| queue.waiters.iter())
    }

    fn waiter(&self, entry: u32, place: usize) -> Option<LockWaiter> {
        self.table.entries[entry].queue.as_ref()?.waiters.get(place).copied()
    }

    /// Gives a session the lock, or a new generation of what it holds; `None`: there are no tokens.
    fn grant(&mut self, now: Instant, entry: u32, session: u32, own: Option<u32>, mode: Mode) -> Option<u32> {
        //= wire-spec.md#11-4-locks
        //# A grant of an advisory lock MUST reserve a run of consecutive tokens, beginning with its generation.
        let run = self.limits.run.max(1);
        if let Some(at) = own.filter(|_| bugs::is(Bug::M18)) {
            self.table.holds[at].mode = mode.max(self.table.holds[at].mode);
            return Some(at);
        }
        let generation = self.tokens.take(run)?;
        Some(match own {
            Some(at) => {
                let mode = if mode == Mode::Exclusive { mode } else { self.table.holds[at].mode };
                self.grant_again(now, at, mode, generation, run);
                at
            }
            None => self.add_hold(now, entry, session, mode, generation, run),
        })
    }

    fn enqueue(&mut self, now: Instant, entry: u32, session: u32, nonce: u64, mode: Mode, own: Option<u32>) -> LockOutcome {
        if let Some(limited) = self.waiters_limit(session, entry) {
            return LockOutcome::Limited(limited);
        }
        let upgrade = mode == Mode::Exclusive && own.is_some_and(|at| self.table.holds[at].mode == Mode::Shared);
        let waiter = LockWaiter { session, nonce, mode, since: now, upgrade, heard: now, asked: false };
        let counted = self.waiters(entry).filter(|other| self.table.is_good(other.session)).count();
        let ahead = if upgrade { 0 } else { u32::try_from(counted).unwrap_or(u32::MAX) };
        let waiters = &mut self.table.queue_mut(entry).waiters;
        if upgrade {
            waiters.push_front(waiter);
        } else {
            waiters.push_back(waiter);
        }
        let former = self.waits.insert((session, nonce), entry);
        debug_assert!(former.is_none(), "a nonce waits once");
        self.table.sessions[session].waits += 1;
        self.owner_mut(session).waits += 1;
        self.waiting += 1;
        self.demand_conflicting(now, entry, session, mode);
        LockOutcome::Queued { ahead, holder: self.other_holder(entry, session) }
    }

    /// Asks back what conflicts with a request.
    fn demand_conflicting(&mut self, now: Instant, entry: u32, session: u32, mode: Mode) {
        let keep = if mode == Mode::Shared { Keep::Shared } else { Keep::Nothing };
        let mut at = self.table.next_of(entry, NONE);
        while at != NONE {
            let hold = &self.table.holds[at];
            if self.table.is_live(hold) && hold.session != session && !hold.mode.compatible(mode) {
                self.demand(now, session, at, keep);
            }
            at = self.table.next_of(entry, at);
        }
    }

    /// Asks a lock back if a request waits for it: it has a new generation, which no demand has covered.
    pub(super) fn demand_for_waiters(&mut self, now: Instant, at: u32) {
        let Hold { entry, session, mode, .. } = self.table.holds[at];
        let waiting = self.waiters(entry).filter(|waiter| self.table.is_good(waiter.session) && waiter.session != session);
        // What is left to the holder must suit everybody.
        let keep = waiting.filter(|waiter| !waiter.mode.compatible(mode)).map(|waiter| match waiter.mode {
            Mode::Shared => (Keep::Shared, waiter.session),
            Mode::Exclusive => (Keep::Nothing, waiter.session),
        });
        if let Some((keep, by)) = keep.min_by_key(|(keep, _)| *keep) {
            self.demand(now, by, at, keep);
        }
    }

    /// Something changed: grants those whose turn has come.
    pub(super) fn grant_waiters(&mut self, now: Instant, entry: u32) {
        if self.table.entries[entry].queue.is_none() {
            return self.table.drop_if_idle(entry);
        }
        let mut granted = Vec::new();
        let (mut place, mut silent) = (0, false);
        while let Some(waiter) = self.waiter(entry, place) {
            //= wire-spec.md#11-4-locks
            //# The server SHOULD pass over waiting sessions that are not in good standing.
            if !self.table.is_good(waiter.session) && !bugs::is(Bug::M17) {
                place += 1;
                continue;
            }
            //= wire-spec.md#11-9-realms-and-rights
            //# From then on the server MUST NOT grant what was waited for, unless the rights that are left allow it.
            if let Some(status) = self.forbids(waiter.session, entry) {
                self.end_wait(entry, place, status);
                continue;
            }
            if !self.is_clear(entry, waiter.session, waiter.mode) || silent && waiter.mode == Mode::Exclusive {
                break;
            }
            let own = self.table.hold_of(entry, waiter.session);
            if own.is_none() && !self.is_within_bounds(waiter.session) {
                self.end_wait(entry, place, Status::BUSY);
                continue;
            }
            //= wire-spec.md#11-4-locks
            //# Before the server grants a lock to a waiting session of which it has not heard lately, it SHOULD probe it and wait for the
            //# receipt.
            if now.since(waiter.heard) > HEARD_LATELY && !bugs::is(Bug::P1) {
                self.ask(entry, place);
                // Shared ones behind it are asked, or granted, side by side with it.
                if waiter.mode == Mode::Exclusive {
                    break;
                }
                (place, silent) = (place + 1, true);
                continue;
            }
            let Some(at) = self.grant(now, entry, waiter.session, own, waiter.mode) else {
                let lock = self.table.entries[entry].lock();
                self.starved.push(lock);
                break;
            };
            self.take_waiter(entry, place);
            self.granted_from_queue(at, waiter);
            granted.push(at);
        }
        for at in granted {
            self.demand_for_waiters(now, at);
        }
        self.table.drop_if_idle(entry);
    }

    /// Asks the session whose turn has come whether it is there: a lock granted to one that is gone would be lost to all for T.
    fn ask(&mut self, entry: u32, place: usize) {
        let waiter = self.table.queue_mut(entry).waiters.get_mut(place).filter(|waiter| !waiter.asked);
        if let Some(waiter) = waiter {
            waiter.asked = true;
            let slot = waiter.session;
            self.decisions.push_back(LockDecision::Probe { session: self.table.sessions[slot].key() });
        }
    }

    /// A session has receipted a notice: it is there, and its turn may have come.
    pub(crate) fn heard_of(&mut self, now: Instant, slot: LockSlot) {
        let Some(slot) = self.table.session(slot).filter(|slot| self.table.sessions[*slot].waits > 0) else { return };
        let mut asked = Vec::new();
        for (nonce, entry) in self.waits_of(slot) {
            for waiter in self.table.queue_mut(entry).waiters.iter_mut().filter(|waiter| waiter.session == slot) {
                waiter.heard = now;
                if core::mem::take(&mut waiter.asked) {
                    asked.push((nonce, entry));
                }
            }
        }
        self.grant_waiters_of(now, asked);
    }

    /// Whether a session waits for advisory locks and holds none.
    pub(crate) fn only_waits(&self, slot: LockSlot) -> bool {
        let Some(slot) = self.table.session(slot).filter(|slot| self.table.sessions[*slot].waits > 0) else { return false };
        let mut at = self.table.sessions[slot].first;
        while at != NONE {
            let hold = &self.table.holds[at];
            if self.table.entries[hold.entry].class == LockClass::Advisory {
                return false;
            }
            at = hold.session_next;
        }
        true
    }

    /// The grant of a hold answers this request, which whoever did not see the answer may cancel, however late.
    fn answers(&mut self, at: u32, nonce: u64) {
        let hold = &mut self.table.holds[at];
        hold.nonce = nonce;
        self.granted.insert(hash(hold.session.into(), nonce), at);
    }

    /// The hold that a request was given, as long as that grant stands.
    pub(super) fn granted(&self, slot: u32, nonce: u64) -> Option<u32> {
        let answers = |hold: &Hold| hold.session == slot && hold.nonce == nonce;
        self.granted.find(hash(slot.into(), nonce), |at| answers(&self.table.holds[at]))
    }

    fn granted_at_once(&mut self, at: u32, nonce: u64) {
        if !bugs::is(Bug::Q1) {
            self.answers(at, nonce);
        }
    }

    fn granted_from_queue(&mut self, at: u32, waiter: LockWaiter) {
        self.answers(at, waiter.nonce);
        let hold = &self.table.holds[at];
        let (mode, generation, run) = (hold.mode, hold.generation, hold.run);
        let lock = self.table.entries[hold.entry].lock();
        let session = self.table.sessions[waiter.session].key();
        self.decisions.push_back(LockDecision::Grant { session, nonce: waiter.nonce, lock, mode, generation, run });
    }

    /// Takes a waiter out of its queue.
    pub(super) fn take_waiter(&mut self, entry: u32, place: usize) -> Option<LockWaiter> {
        let waiter = self.table.queue_mut(entry).waiters.remove(place)?;
        self.waits.remove(&(waiter.session, waiter.nonce));
        self.table.sessions[waiter.session].waits -= 1;
        self.owner_mut(waiter.session).waits -= 1;
        self.waiting -= 1;
        Some(waiter)
    }

    /// Ends a wait without a grant.
    pub(super) fn end_wait(&mut self, entry: u32, place: usize, status: Status) {
        if let Some(waiter) = self.take_waiter(entry, place) {
            let (session, lock) = (self.table.sessions[waiter.session].key(), self.table.entries[entry].lock());
            self.decisions.push_back(LockDecision::WaitOver { session, nonce: waiter.nonce, lock, status });
        }
    }

    /// Ends the wait of a request, if it waits.
    pub(crate) fn cancel(&mut self, now: Instant, slot: LockSlot, nonce: u64) -> CancelResult {
        let Some(slot) = self.table.session(slot) else { return CancelResult::Unknown };
        if let Some(at) = self.granted(slot, nonce) {
            let hold = &self.table.holds[at];
            return CancelResult::Granted { lock: self.table.entries[hold.entry].lock(), generation: hold.generation };
        }
        let Some(entry) = self.waits.get(&(slot, nonce)).copied() else { return CancelResult::Unknown };
        let lock = self.table.entries[entry].lock();
        if !bugs::is(Bug::M47) {
            self.drop_waiter(entry, slot, nonce);
            self.grant_waiters(now, entry);
        }
        CancelResult::Cancelled(lock)
    }

    pub(super) fn drop_waiter(&mut self, entry: u32, session: u32, nonce: u64) {
        let place = self.waiters(entry).position(|waiter| waiter.session == session && waiter.nonce == nonce);
        if let Some(place) = place {
            self.take_waiter(entry, place);
        }
    }

    /// The object is gone: whoever waits for its advisory lock waits in vain, and is told so (ESTALE); whoever holds it is asked to give it
    /// back, for nobody can ask for it any more.
    pub(crate) fn object_gone(&mut self, now: Instant, object: ObjectId) {
        let Some(entry) = self.table.entry(advisory(object)) else { return };
        //= wire-spec.md#11-4-locks
        //# The server MUST end each wait for the advisory lock of a removed object by WAIT_OVER with ESTALE.
        while self.waiters(entry).next().is_some() {
            self.end_wait(entry, 0, Status::ESTALE);
        }
        //= wire-spec.md#11-4-locks
        //# The server MUST demand the advisory locks of a removed object from all their holders.
        let holds: Vec<u32> = self.table.holds_of(entry).collect();
        holds.into_iter().for_each(|at| self.demand(now, LockSlot::SERVER.0, at, Keep::Nothing));
        self.table.drop_if_idle(entry);
    }

    /// The sessions that hold the advisory lock of an object.
    pub(crate) fn holders_of(&self, object: ObjectId) -> Vec<SessionKey> {
        let Some(entry) = self.table.entry(advisory(object)) else { return Vec::new() };
        self.table.holds_of(entry).map(|at| self.table.sessions[self.table.holds[at].session].key()).collect()
    }

    /// Whether somebody holds the advisory lock of an object or waits for it.
    pub(crate) fn is_wanted(&self, object: ObjectId) -> bool {
        self.table.entry(advisory(object)).is_some()
    }

    /// Whether a session holds the advisory lock of `object` without a break since it was given `token`: what a guarded mutation
    /// asks (section 11.4). Any token of its runs will do, for which local user acts is the agent's to know.
    pub(crate) fn guard_is_current(&self, slot: LockSlot, object: ObjectId, token: Generation) -> bool {
        self.find(slot, advisory(object)).is_some_and(|at| {
            let hold = &self.table.holds[at];
            let first = if hold.downgraded { hold.generation } else { hold.before };
            token >= first && token.0 - hold.generation.0.min(token.0) < u64::from(hold.run)
        })
    }

    /// Whether a session other than `by` holds an advisory lock on the object, so that its name may not be taken away (section 11.4).
    pub(crate) fn removal_blocked(&self, object: ObjectId, by: LockSlot) -> bool {
        // A session that is not known holds nothing itself.
        let by = self.table.session(by).unwrap_or(NONE);
        self.table.entry(advisory(object)).is_some_and(|entry| self.table.other(entry, by).is_some())
    }
}
