//! Giving back: RELEASE, NOT_HELD, and new generations of what is kept.
//!
//! Decides: what a release acts on. Place in the walk: control messages and receipts come here. Implements `wire-spec.md` sections
//! 11.3 and 11.4.
//! Invariant: a release acts on the generation that it names and on no other; repeated, it is answered alike.
//! Leaves to others: who gets the lock next (`advisory`, `mutation`).

use super::LockTable;
use super::table::Hold;
use crate::ids::LockSlot;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use cistern_link::index::hash;
use cistern_wire::{Generation, Keep, LockClass, LockId, Mode, ReleaseItem, ReleasedItem};

impl LockTable {
    /// A session gives a lock back, or keeps a shared one of it.
    pub(crate) fn release(&mut self, now: Instant, slot: LockSlot, item: ReleaseItem) -> ReleasedItem {
        let ReleaseItem { lock, generation, keep } = item;
        let nothing = ReleasedItem { lock, generation, keep: Keep::Nothing, now: Generation(0) };
        let Some(at) = self.find(slot, lock) else { return nothing };
        let hold = &self.table.holds[at];
        //= wire-spec.md#11-4-locks
        //# A release MUST act on no other generation than the one it names.
        if hold.generation != generation && !bugs::is(Bug::M19) {
            //= wire-spec.md#11-4-locks
            //# A repeated release MUST be answered as the first was.
            let repeated = hold.downgraded && hold.before == generation && keep == Keep::Shared;
            return if repeated { ReleasedItem { keep, now: hold.generation, ..nothing } } else { nothing };
        }
        if keep == Keep::Nothing {
            self.free(now, at);
            return nothing;
        }
        let run = if lock.class == LockClass::Advisory { self.limits.run.max(1) } else { 1 };
        let Some(kept) = self.tokens.take_reserved(run) else {
            // Only with a store that has been stuck for ages. The lock stands as it was, the agent believes that it has none.
            return nothing;
        };
        self.grant_again(now, at, Mode::Shared, kept, run);
        let hold = &mut self.table.holds[at];
        hold.downgraded = true;
        hold.before = generation;
        let entry = hold.entry;
        match lock.class {
            LockClass::Cache => self.demand_for_mutations(now, at),
            LockClass::Advisory => {
                self.grant_waiters(now, entry);
                self.demand_for_waiters(now, at);
            }
        }
        ReleasedItem { keep, now: kept, ..nothing }
    }

    /// The agent said NOT_HELD to a demand for `up_to`: it has no generation up to that, and will install none (section 11.4).
    pub(crate) fn on_not_held(&mut self, now: Instant, slot: LockSlot, lock: LockId, up_to: Generation) {
        if let Some(at) = self.find(slot, lock).filter(|at| self.table.holds[*at].generation <= up_to) {
            self.free(now, at);
        }
    }

    /// Takes a hold away, and lets come whoever waited for that.
    pub(super) fn free(&mut self, now: Instant, at: u32) {
        let Hold { entry, session, sent, .. } = self.table.holds[at];
        self.forget_request(at);
        self.demand_settled(entry, session, sent);
        self.table.remove_hold(at);
        match self.table.entries[entry].lock.class {
            LockClass::Cache => self.retry_mutations(entry),
            LockClass::Advisory => self.grant_waiters(now, entry),
        }
    }

    /// Gives a hold a new generation: what was demanded of the old one is settled (section 11.4).
    pub(super) fn grant_again(&mut self, now: Instant, at: u32, mode: Mode, generation: Generation, run: u32) {
        self.forget_request(at);
        let hold = &mut self.table.holds[at];
        let (entry, session, sent, demanded) = (hold.entry, hold.session, hold.sent.take(), hold.demand.take().is_some());
        if hold.downgraded {
            // It was held in this mode since the downgrade.
            hold.before = hold.generation;
            hold.downgraded = false;
        }
        hold.generation = generation;
        hold.mode = mode;
        hold.run = run;
        hold.since = now;
        self.demand_settled(entry, session, sent);
        if demanded {
            self.table.move_in_session(at, false);
        }
    }

    /// The request that a grant answered can no longer be cancelled as this grant.
    fn forget_request(&mut self, at: u32) {
        let hold = &mut self.table.holds[at];
        let nonce = core::mem::take(&mut hold.nonce);
        if nonce != 0 {
            self.granted.remove(hash(hold.session.into(), nonce), at);
        }
    }
}
