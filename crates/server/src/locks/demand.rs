//! Demands: which locks are asked back, when the demand goes out, and which objects are too hot to be cached.
//!
//! Decides: what an agent is told to give back. Place in the walk: called by every decision that lets somebody wait; demands leave
//! by `poll_decision`. Implements `wire-spec.md` sections 11.3 and 11.4.
//! Invariant: one demand for each generation and kind; at most so many unanswered as the bound says, the others wait their turn.
//! A demand to a session that is timing out waits for its rescue; to one that has ended none goes out, but its lock is freed first.
//! Leaves to others: delivering it, and what happens when it is not complied with (the machine).

use super::table::{Hold, LockAccess};
use super::{LockDecision, LockLimits, LockTable};
use alloc::collections::VecDeque;
use cistern_link::Instant;
use cistern_wire::{Generation, Keep, LockClass, ObjectId};
use hashbrown::HashMap;

/// Most objects remembered as hot; the oldest is forgotten, which costs messages, never safety.
const HOT_MAX: usize = 4_096;
/// Most times that the cooling time is doubled.
const DOUBLINGS: u32 = 6;

/// Demands that are due, and the objects demanded too often.
#[derive(Debug, Default)]
pub(super) struct Demands {
    /// Holds to be demanded, oldest first, each with the generation that was meant.
    due: VecDeque<(u32, Generation)>,
    /// Demands sent and not complied with, of sessions in good standing.
    pub(super) outstanding: usize,
    pub(super) sent: u64,
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

/// Whether the second is asked for although the first was.
const fn stronger(now: Keep, before: Option<Keep>) -> bool {
    match before {
        None => true,
        Some(before) => matches!((now, before), (Keep::Nothing, Keep::Shared)),
    }
}

impl LockTable {
    /// Asks a lock back, unless that or more was asked already for this generation.
    pub(super) fn demand(&mut self, now: Instant, at: u32, keep: Keep) {
        let hold = &self.table.holds[at];
        let (generation, first) = (hold.generation, hold.demand.is_none());
        if !stronger(keep, hold.demand) {
            return;
        }
        if !matches!(self.table.sessions[hold.session].access, LockAccess::Active | LockAccess::Suspended) {
            // Nobody is told any more: what is waited for is only noted, so that the sweep comes to it first.
            self.table.holds[at].demand = Some(keep);
            if first {
                self.table.move_in_session(at, true);
            }
            return;
        }
        let due_already = hold.demand != hold.sent;
        if first && keep == Keep::Nothing {
            let lock = self.table.entries[hold.entry].lock;
            let age = now.since(hold.since);
            if lock.class == LockClass::Cache {
                self.demands.note_age(now, lock.object, age < self.limits.hot_below, &self.limits);
            }
        }
        self.table.holds[at].demand = Some(keep);
        if first {
            self.table.move_in_session(at, true);
        }
        if !due_already {
            self.demands.due.push_back((at, generation));
            if self.demands.outstanding + self.demands.due.len() > self.limits.demands_outstanding {
                let session = self.table.sessions[self.table.holds[at].session].key;
                self.decisions.push_back(LockDecision::DemandDelayed { session });
            }
        }
    }

    /// A hold is gone or has a new generation: what was demanded of it is settled.
    pub(super) fn demand_settled(&mut self, entry: u32, session: u32, sent: Option<Keep>) {
        if sent.is_some() && self.table.entries[entry].lock.class == LockClass::Cache && self.table.is_good(session) {
            self.demands.outstanding -= 1;
        }
    }

    /// The next demand that may go out.
    pub(super) fn poll_demand(&mut self) -> Option<LockDecision> {
        for _ in 0..self.demands.due.len() {
            let (at, generation) = *self.demands.due.front()?;
            let meant = |hold: &&Hold| hold.generation == generation && hold.demand != hold.sent && self.table.is_live(hold);
            let hold = self.table.holds.get(at).filter(meant);
            let Some((keep, sent, session, entry)) = hold.and_then(|hold| Some((hold.demand?, hold.sent, hold.session, hold.entry))) else {
                self.demands.due.pop_front();
                continue;
            };
            match self.table.sessions[session].access {
                LockAccess::Active => {}
                LockAccess::Suspended => {
                    self.demands.due.pop_front();
                    self.table.sessions[session].hold_back(at, generation);
                    continue;
                }
                LockAccess::Ended | LockAccess::Freed => {
                    self.demands.due.pop_front();
                    continue;
                }
            }
            // Who is asked for an advisory lock may keep it as long as its user likes: that must not stop demands of other locks.
            if sent.is_none() && self.table.entries[entry].lock.class == LockClass::Cache {
                //= wire-spec.md#11-4-locks
                //# The server SHOULD space its demands and bound how many are not complied with.
                if self.demands.outstanding >= self.limits.demands_outstanding {
                    return None;
                }
                self.demands.outstanding += 1;
            }
            self.demands.due.pop_front();
            self.demands.sent += 1;
            self.table.holds[at].sent = Some(keep);
            let lock = self.table.entries[entry].lock;
            return Some(LockDecision::Demand { session: self.table.sessions[session].key, lock, generation, keep });
        }
        None
    }

    /// How many cache locks a session was asked for and has not given back.
    fn demanded(&self, session: u32) -> usize {
        let counted = |hold: &Hold| hold.sent.is_some() && self.table.entries[hold.entry].lock.class == LockClass::Cache;
        self.table.demanded_of(session).filter(|at| counted(&self.table.holds[*at])).count()
    }

    /// The session will not be in good standing any more: what it was sent takes up nobody's place (section 11.3).
    pub(super) fn suspend_demands(&mut self, session: u32) {
        if self.table.is_good(session) {
            self.demands.outstanding -= self.demanded(session);
        }
    }

    /// The session was rescued: what was not demanded of it meanwhile is demanded now.
    pub(super) fn resume_demands(&mut self, session: u32) {
        self.demands.outstanding += self.demanded(session);
        let held_back = self.table.sessions[session].take_held_back();
        self.demands.due.extend(held_back);
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
