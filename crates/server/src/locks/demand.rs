//! Demands: which locks are asked back, when the demand goes out, and which objects are too hot to be cached.
//!
//! Decides: what an agent is told to give back. Place in the walk: called by every decision that lets somebody wait; demands leave
//! by `poll_decision`. Implements `wire-spec.md` sections 11.3 and 11.4.
//! Invariant: one demand for each generation and kind; at most so many unanswered as the bounds say, of all, of one holder, and on account of
//! one owner; the others wait their turn, and none of them waits for another owner's or holder's.
//! A demand to a session that is timing out waits for its rescue; to one that has ended none goes out, but its lock is freed first.
//! Leaves to others: delivering it, and what happens when it is not complied with (`sessions::notices`, which has a record of its own for
//! each lock. The two cannot be one, for neither outlives the other: a new grant settles the demand, while its notice is repeated until
//! it is receipted (section 6.4); a receipt ends the notice, while the lock is still demanded).

use super::table::{Hold, LockAccess};
use super::{LockDecision, LockLimits, LockTable};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{Generation, Keep, LockClass, ObjectId};
use core::time::Duration;
use hashbrown::HashMap;

/// Most objects remembered as hot; the oldest is forgotten, which costs messages, never safety.
const HOT_MAX: usize = 4_096;
/// Most times that the cooling time is doubled.
const DOUBLINGS: u32 = 6;

/// Most demands of cache locks that one session was sent and has not complied with.
const HOLDER_MAX: u8 = 250;
/// Demands over the share of their owner that are looked at again when one was complied with.
const LOOKED_AT_AGAIN: usize = 64;

/// Demands that are due, and the objects demanded too often.
#[derive(Debug, Default)]
pub(super) struct Demands {
    /// Holds to be demanded, oldest first, each with the generation that was meant.
    due: VecDeque<(u32, Generation)>,
    /// Those that were due when the owner on whose account they are had as many as it may have.
    over_share: VecDeque<(u32, Generation)>,
    /// By hold, as long as its session was told nothing: of the other owners that asked for it the one that had least on its way then.
    others: HashMap<u32, u32>,
    /// Demands sent and not complied with, of sessions in good standing.
    pub(super) outstanding: usize,
    pub(super) sent: u64,
    /// Asked back, sent or not, since the start.
    asked: u64,
    hot: HashMap<ObjectId, Hot>,
    hot_order: VecDeque<ObjectId>,
}

#[derive(Debug)]
struct Hot {
    /// How often in a row the object was demanded before its lock was of use.
    times: u32,
    /// No cache locks until then.
    until: Instant,
}

/// What is demanded of one hold, under its present generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    /// What its session may keep.
    keep: Keep,
    /// What it was told that it may keep; `None`: it was told nothing yet.
    told: Option<Keep>,
    /// On account of this owner.
    by: u32,
}

impl Demand {
    /// Whether its session is still to be told.
    pub(super) fn is_due(&self) -> bool {
        self.told != Some(self.keep)
    }

    /// What its session may keep.
    pub(super) const fn keep(&self) -> Keep {
        self.keep
    }
}

impl LockTable {
    /// Asks a lock back on account of session `by`, unless that or more was asked already for this generation.
    pub(super) fn demand(&mut self, now: Instant, by: u32, at: u32, keep: Keep) {
        self.demand_on_account(now, self.table.sessions[by].owner, at, keep);
    }

    /// As [`Self::demand`], on account of one of the owners.
    pub(super) fn demand_on_account(&mut self, now: Instant, by: u32, at: u32, keep: Keep) {
        let before = self.table.holds[at].demand;
        if let Some(before) = before {
            self.pass(at, before, by);
        }
        let hold = &mut self.table.holds[at];
        let before = hold.demand;
        if before.is_some_and(|before| before.keep <= keep) {
            return;
        }
        let by = before.map_or(by, |before| before.by);
        if before.is_none() {
            self.owners.all.keep(by);
        }
        hold.demand = Some(Demand { keep, told: before.and_then(|before| before.told), by });
        let &mut Hold { generation, since, entry, session, .. } = hold;
        if before.is_none() {
            self.table.move_in_session(at, true);
        }
        let (key, access) = (self.table.sessions[session].key(), self.table.sessions[session].access);
        // A session that is timing out is told when it is rescued, one that has ended never: the sweep comes to what is demanded first.
        if access != LockAccess::Active || before.is_some_and(|before| before.is_due()) {
            return;
        }
        let lock = self.table.entries[entry].lock();
        if before.is_none() && keep == Keep::Nothing && lock.class == LockClass::Cache {
            let early = now.since(since) < self.limits.hot_below;
            self.demands.note_age(now, lock.object, early, &self.limits);
        }
        self.demands.asked += 1;
        self.demands.due.push_back((at, generation));
        if self.demands.outstanding + self.demands.due.len() > self.limits.demands_outstanding {
            self.decisions.push_back(LockDecision::DemandDelayed { session: key });
        }
    }

    /// What its session was not told yet goes out on account of another owner that asks for it, if the one on whose account it is may ask no
    /// more; it may come to that later, so one that could take its place is remembered.
    fn pass(&mut self, at: u32, before: Demand, by: u32) {
        if before.told.is_some() || before.by == by {
            return;
        }
        let other = self.demands.others.get(&at).copied();
        if other.is_none_or(|other| other != by && self.owners.asked(by) < self.owners.asked(other)) {
            self.forget_other(at);
            self.owners.all.keep(by);
            self.demands.others.insert(at, by);
        }
        if self.passed(at, before).is_some() {
            self.demands.due.push_back((at, self.table.holds[at].generation));
        }
    }

    /// A demand that the owner on whose account it is may not make now passes to another one that asked for it, if that one may. Gives it then.
    fn passed(&mut self, at: u32, before: Demand) -> Option<Demand> {
        let may_ask = |owner| self.owners.may_ask(owner, self.demands.outstanding, &self.limits);
        let other = self.demands.others.get_mut(&at).filter(|other| !may_ask(before.by) && may_ask(**other))?;
        let demand = Demand { by: core::mem::replace(other, before.by), ..before };
        self.table.holds[at].demand = Some(demand);
        Some(demand)
    }

    /// What is demanded of a hold is told or settled: on whose account it goes is decided.
    fn forget_other(&mut self, at: u32) {
        if !self.demands.others.is_empty()
            && let Some(other) = self.demands.others.remove(&at)
        {
            self.owners.leave(other);
        }
    }

    /// A hold is gone or has a new generation: what was demanded of it is settled.
    pub(super) fn demand_settled(&mut self, at: u32, entry: u32, session: u32, demand: Demand) {
        self.settle_demand(entry, session, demand);
        self.owners.leave(demand.by);
        self.forget_other(at);
    }

    fn settle_demand(&mut self, entry: u32, session: u32, demand: Demand) {
        if demand.told.is_none() || self.table.entries[entry].class != LockClass::Cache || !self.table.is_good(session) {
            return;
        }
        self.demands.outstanding -= 1;
        self.account(demand.by, false);
        let holder = &mut self.table.sessions[session];
        holder.told = holder.told.saturating_sub(1);
        if holder.held_back && holder.told <= HOLDER_MAX / 2 {
            holder.held_back = false;
            self.due_again(session);
        }
        let some = self.demands.over_share.len().min(LOOKED_AT_AGAIN);
        self.demands.due.extend(self.demands.over_share.drain(..some));
    }

    /// One more demand, or one less, is on its way on account of an owner.
    fn account(&mut self, owner: u32, more: bool) {
        let asked = &mut self.owners.all[owner].asked;
        *asked = if more { *asked + 1 } else { *asked - 1 };
    }

    /// What a session was not told yet is due.
    fn due_again(&mut self, session: u32) {
        let due = |at: &u32| self.table.holds[*at].demand.is_some_and(|demand| demand.is_due());
        let newest_first: Vec<u32> = self.table.demanded_of(session).filter(due).collect();
        self.demands.due.extend(newest_first.into_iter().rev().map(|at| (at, self.table.holds[at].generation)));
    }

    /// The next demand that may go out.
    pub(super) fn poll_demand(&mut self) -> Option<LockDecision> {
        while let Some(&(at, generation)) = self.demands.due.front() {
            let meant = |hold: &&Hold| hold.generation == generation && self.table.sessions[hold.session].access == LockAccess::Active;
            let hold = self.table.holds.get(at).filter(meant);
            let Some((hold, mut demand)) = hold.and_then(|hold| hold.demand.filter(Demand::is_due).map(|demand| (hold, demand))) else {
                self.demands.due.pop_front();
                continue;
            };
            let session = hold.session;
            let lock = self.table.entries[hold.entry].lock();
            // Who is asked for an advisory lock may keep it as long as its user likes: that must not stop demands of other locks.
            if demand.told.is_none() && lock.class == LockClass::Cache {
                //= wire-spec.md#11-4-locks
                //# The server SHOULD space its demands and bound how many are not complied with.
                if self.demands.outstanding >= self.limits.demands_outstanding {
                    return None;
                }
                let holder = &mut self.table.sessions[session];
                if holder.told >= HOLDER_MAX {
                    holder.held_back = true;
                    self.demands.due.pop_front();
                    return Some(LockDecision::DemandDelayed { session: holder.key() });
                }
                if !self.owners.may_ask(demand.by, self.demands.outstanding, &self.limits) {
                    let Some(passed) = self.passed(at, demand) else {
                        self.demands.over_share.extend(self.demands.due.pop_front());
                        return Some(LockDecision::DemandDelayed { session: self.table.sessions[session].key() });
                    };
                    demand = passed;
                }
                self.table.sessions[session].told += 1;
                self.demands.outstanding += 1;
                self.account(demand.by, true);
            }
            let keep = demand.keep;
            self.table.holds[at].demand = Some(Demand { told: Some(keep), ..demand });
            self.forget_other(at);
            self.demands.due.pop_front();
            self.demands.sent += 1;
            return Some(LockDecision::Demand { session: self.table.sessions[session].key(), lock, generation, keep });
        }
        None
    }

    /// On whose account a session was asked for cache locks that it has not given back.
    fn told_of(&self, session: u32) -> Vec<u32> {
        let cache = |hold: &&Hold| self.table.entries[hold.entry].class == LockClass::Cache;
        let holds = self.table.demanded_of(session).map(|at| &self.table.holds[at]).filter(cache);
        holds.filter_map(|hold| hold.demand.filter(|demand| demand.told.is_some()).map(|demand| demand.by)).collect()
    }

    /// The session will not be in good standing any more: what it was sent takes up nobody's place (section 11.3).
    pub(super) fn suspend_demands(&mut self, session: u32) {
        if !self.table.is_good(session) {
            return;
        }
        let told = self.told_of(session);
        self.demands.outstanding -= told.len();
        told.into_iter().for_each(|by| self.account(by, false));
        self.table.sessions[session].told = 0;
        // If it is rescued all of them are due anew; what waited for others' shares may go now.
        let Self { table, demands, .. } = self;
        demands.due.append(&mut demands.over_share);
        demands.due.retain(|(at, _)| table.holds.get(*at).is_some_and(|hold| hold.session != session));
    }

    /// The session was rescued: what it was not told meanwhile it is told now.
    pub(super) fn resume_demands(&mut self, session: u32) {
        let told = self.told_of(session);
        self.demands.outstanding += told.len();
        self.table.sessions[session].told = u8::try_from(told.len()).unwrap_or(u8::MAX);
        self.table.sessions[session].held_back = false;
        told.into_iter().for_each(|by| self.account(by, true));
        self.due_again(session);
    }

    /// How many locks were asked back since the start.
    pub(crate) const fn asked(&self) -> u64 {
        self.demands.asked
    }

    /// Nobody gets cache locks of an object for a while.
    pub(super) fn cool(&mut self, now: Instant, object: ObjectId, span: Duration) {
        self.demands.note_age(now, object, true, &self.limits);
        if let Some(hot) = self.demands.hot.get_mut(&object) {
            hot.until = hot.until.max(now.plus(span));
        }
    }

    /// Whether an object is demanded so often that its locks are of no use (section 11.4).
    pub(super) fn is_hot(&self, now: Instant, object: ObjectId) -> bool {
        self.demands.hot.get(&object).is_some_and(|hot| !now.waited(hot.until))
    }
}

impl Demands {
    /// Notes that a cache lock was demanded, and whether that was too early.
    fn note_age(&mut self, now: Instant, object: ObjectId, early: bool, limits: &LockLimits) {
        if !early {
            // Its place in the order stays; it is passed over when it comes to be the oldest.
            self.hot.remove(&object);
            return;
        }
        if let Some(hot) = self.hot.get_mut(&object) {
            hot.until = now.plus(limits.cooling * (1 << (hot.times - 1).min(DOUBLINGS)));
            hot.times += 1;
            return;
        }
        if self.hot_order.len() >= HOT_MAX
            && let Some(oldest) = self.hot_order.pop_front()
        {
            self.hot.remove(&oldest);
        }
        self.hot.insert(object, Hot { times: 1, until: now });
        self.hot_order.push_back(object);
    }
}
