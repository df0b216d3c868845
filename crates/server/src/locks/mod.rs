//! The lock table: who gets which lock when.
//!
//! Decides, and does nothing else: it is told what happened and says what is to be done ([`LockDecision`]); it sends nothing, waits for
//! nothing and reads no clock. Execution asks for grants and turns; control messages and receipts tell of releases, the machine of standing.
//! Implements `wire-spec.md` section 11.4.
//! Invariants: no two sessions hold conflicting modes of one lock. A lock leaves a session only by a release that names its
//! generation, by the agent's word that it does not hold it, or by the durable end of the session (section 11.3). Generations only grow. Lists
//! go by object, holders before waiters, each in the order in which they came.
//!
//! | file | decides |
//! |---|---|
//! | `holds` | which cache lock comes with an answer, what a release acts on, what is held again after a restart |
//! | `mutation` | whose turn it is to change something |
//! | `advisory` | who gets an advisory lock, who waits |
//! | `demand` | what is asked back, and when |
//! | `owners` | what sessions of one owner may have together |
//! | `ending` | when a session's locks become available, which of them first |
//! | `overview` | which locks people are shown first |
//! | `tokens` | the number of the next grant |
//! | `table` | where it is kept |

mod advisory;
mod demand;
mod ending;
mod holds;
mod mutation;
mod overview;
mod owners;
mod table;
#[cfg(test)]
mod tests;
mod tokens;

pub(crate) use holds::Restored;
pub(crate) use overview::LockInSight;
pub use owners::Struck;
pub(crate) use table::LockAccess;
pub(crate) use tokens::Tokens;

use crate::config::LockLimits;
use crate::ids::{LockSlot, Owner, PrincipalId, SessionKey, TaskId};
use advisory::advisory;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::index::Index;
use cistern_link::slab::NONE;
use cistern_wire::{Generation, Keep, Limited, LockClass, LockId, Mode, ObjectId, Realm, RowState, Status};
use demand::Demands;
use ending::Sweep;
use mutation::MutationWaiter;
use owners::LockOwners;
use table::{LockWaiter, Table};

/// So many locks are looked at for some that may make room in a full table: enough for whoever comes next, cheap in a busy loop.
const ASKED_FOR_ROOM: usize = 16;

/// So many of the locks that a session was asked for are looked at for one that somebody waits for: who keeps more of them is taken for waited
/// for, which costs a probe now and then.
const LOOKED_AT: usize = 16;

/// What becomes of a mutation that asked for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is its turn: nothing conflicts. It is to be executed now, then to leave.
    Ready,
    /// Its turn comes later: [`LockDecision::Turn`] says when.
    Waiting,
    /// Too many mutations wait for one of its objects; it has no place.
    Busy,
}

/// The answer to a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockOutcome {
    /// The session holds the lock.
    Granted {
        /// How it holds it: exclusively, if it did so already, also when it asked for less.
        mode: Mode,
        /// The grant, and the first token of its run.
        generation: Generation,
        /// How many consecutive tokens the run has.
        run: u32,
    },
    /// It only tried, and somebody else holds the lock or waits for it.
    Refused {
        /// One who does.
        holder: Row,
    },
    /// It waits in line; [`LockDecision::Grant`] or [`LockDecision::WaitOver`] follows.
    Queued {
        /// How many requests that count stand before it.
        ahead: u32,
        /// One who holds the lock or waits for it; `None`: only tokens are waited for.
        holder: Option<Row>,
    },
    /// It would wait for an upgrade that waits for it (section 11.4).
    Deadlock,
    /// There are no tokens for it now, or the session is not in good standing.
    Busy,
    /// A bound is reached.
    Limited(Limited),
}

/// One who holds an advisory lock or waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The lock.
    pub(crate) lock: LockId,
    /// Holds or waits.
    pub(crate) state: RowState,
    /// The mode held or asked for.
    pub(crate) mode: Mode,
    /// The grant; 0 for one who waits.
    pub(crate) generation: Generation,
    /// Its session.
    pub(crate) session: SessionKey,
    /// Since when it holds or waits.
    pub(crate) since: Instant,
}

/// A page of a list of locks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) list: Vec<Row>,
    /// Whether these are the last.
    pub(crate) end: bool,
    /// How many were passed over, one by one, for they were listed before.
    pub(crate) passed: usize,
}

/// How a cancellation ended, as far as the lock table knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CancelResult {
    /// The request waited for this lock, and does so no more.
    Cancelled(LockId),
    /// The request was granted, at once or from the queue, and that grant stands.
    Granted {
        /// The lock.
        lock: LockId,
        /// The grant.
        generation: Generation,
    },
    /// No such request is known here: the reply cache may know it.
    Unknown,
}

/// What the lock table wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockDecision {
    /// A demand is to be sent.
    Demand {
        /// To this session.
        session: SessionKey,
        /// The lock.
        lock: LockId,
        /// The newest generation granted to the session.
        generation: Generation,
        /// What it may keep.
        keep: Keep,
    },
    /// A demand will be sent when others are complied with: until then its session is waited for without knowing it.
    DemandDelayed {
        /// That session.
        session: SessionKey,
    },
    /// A session is to be probed: a lock is kept free for it until [`LockTable::heard_of`] says that it is there, or it fails.
    Probe {
        /// That session.
        session: SessionKey,
    },
    /// A grant is to be sent for a request that was answered "queued".
    Grant {
        /// To this session.
        session: SessionKey,
        /// The request.
        nonce: u64,
        /// The lock.
        lock: LockId,
        /// Its mode.
        mode: Mode,
        /// The grant, and the first token of its run.
        generation: Generation,
        /// How many consecutive tokens the run has.
        run: u32,
    },
    /// A request that was answered "queued" ended without a grant.
    WaitOver {
        /// Of this session.
        session: SessionKey,
        /// The request.
        nonce: u64,
        /// The lock.
        lock: LockId,
        /// Why.
        status: Status,
    },
    /// The turn of a mutation has come: it is to be planned anew, and executed if its plan is the same; otherwise it enters again.
    Turn {
        /// The mutation.
        task: TaskId,
    },
}

/// Figures of the lock table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCounts {
    /// Locks held, of both classes, with those that wait to be taken away.
    pub held: usize,
    /// Lock requests that wait.
    pub waiters: usize,
    /// Mutations that wait or execute.
    pub mutations: usize,
    /// Demands of cache locks sent that were not complied with yet.
    pub demands_outstanding: usize,
    /// Demands sent since the start.
    pub demands: u64,
}

/// All locks of a server, and all who wait for one.
#[derive(Debug)]
pub(crate) struct LockTable {
    limits: LockLimits,
    tokens: Tokens,
    table: Table,
    demands: Demands,
    owners: LockOwners,
    mutations: BTreeMap<TaskId, MutationWaiter>,
    /// The entry in whose queue each lock request waits, by session and nonce.
    waits: BTreeMap<(u32, u64), u32>,
    /// The hold that each lock request was given, as long as that grant stands, by session and nonce.
    granted: Index,
    /// Lock requests that wait.
    waiting: usize,
    /// Who may not wait any more in which realm, as long as waits of theirs there may be left, and how these end.
    forbidden: BTreeMap<(PrincipalId, Realm), Status>,
    /// Sessions that were freed.
    sweep: Sweep,
    /// Locks with a waiter whose turn it was when there were no tokens.
    starved: Vec<LockId>,
    /// Where the search for locks that may make room goes on.
    hand: u32,
    decisions: VecDeque<LockDecision>,
}

impl LockTable {
    /// No locks; no session but the server's own, which never ends. `limits` bound it, `tokens` number its grants.
    pub(crate) fn new(limits: LockLimits, tokens: Tokens) -> Self {
        let mut table = Self {
            limits,
            tokens,
            table: Table::new(),
            demands: Demands::default(),
            owners: LockOwners::default(),
            mutations: BTreeMap::new(),
            waits: BTreeMap::new(),
            granted: Index::default(),
            waiting: 0,
            forbidden: BTreeMap::new(),
            sweep: Sweep::default(),
            starved: Vec::new(),
            hand: 0,
            decisions: VecDeque::new(),
        };
        let server = table.open(SessionKey::SERVER, Owner::Server, PrincipalId::ANYBODY, true);
        debug_assert_eq!(server, LockSlot::SERVER);
        table
    }

    /// What is to be done next; to be asked until there is nothing more.
    pub(crate) fn poll_decision(&mut self) -> Option<LockDecision> {
        while let Some(action) = self.decisions.pop_front() {
            match action {
                LockDecision::Turn { task } if !self.heard(task) => {}
                _ => return Some(action),
            }
        }
        self.poll_demand()
    }

    /// The upper end of a block of tokens that is to be made durable now, as `Counter::Tokens`; `None`: nothing to do.
    pub(crate) fn tokens_wanted(&mut self) -> Option<u64> {
        self.tokens.wanted()
    }

    /// That block is durable.
    pub(crate) fn tokens_durable(&mut self, now: Instant, up_to: u64) {
        self.tokens.durable(up_to);
        for lock in core::mem::take(&mut self.starved) {
            if let Some(entry) = self.table.entry(lock) {
                self.grant_waiters(now, entry);
            }
        }
    }

    /// The places of holds, free ones included.
    pub(crate) fn hold_places(&self) -> u32 {
        self.table.holds.places()
    }

    /// How many locks are held, of both classes.
    pub(crate) const fn held_by_all(&self) -> usize {
        self.table.holds.len()
    }

    /// Brings near what is known of a session and of an object's advisory lock; gives nothing that means anything.
    pub(crate) fn prefetch(&self, slot: LockSlot, object: ObjectId) -> u64 {
        let known = self.table.session(slot).map_or(0, |at| u64::from(self.table.sessions[at].held));
        let entry = self.table.entry(advisory(object));
        known + entry.and_then(|entry| self.table.hold_of(entry, NONE)).map_or(0, u64::from)
    }

    /// What a session holds of a lock.
    fn find(&self, slot: LockSlot, lock: LockId) -> Option<u32> {
        let session = self.table.session(slot).filter(|at| self.table.sessions[*at].access != LockAccess::Freed)?;
        self.table.hold_of(self.table.entry(lock)?, session)
    }

    /// Whether the bounds and its owner's share allow a session one lock more.
    fn has_room(&self, session: u32) -> bool {
        self.is_within_bounds(session) && self.share_has_room(session)
    }

    /// Whether the bounds of the table and of a session allow it one lock more. A share is of what is free now: whoever is owed a lock, by an
    /// earlier start or by a place in line, is not measured by it.
    fn is_within_bounds(&self, session: u32) -> bool {
        (self.table.sessions[session].held as usize) < self.limits.locks_per_session && self.table.holds.len() < self.limits.locks_max
    }

    /// The table is full, or a session has what it may have: asks some cache locks back, which their agents may hardly need; those of others
    /// only if the table is full. Whether some are asked back now: who was refused comes again.
    fn make_room(&mut self, now: Instant, session: u32) -> bool {
        if self.table.holds.len() < self.limits.locks_max {
            let own: Vec<u32> = self.table.holds_of_session(session).take(ASKED_FOR_ROOM).collect();
            return own.into_iter().filter(|at| self.ask_for_room(now, session, *at)).count() > 0;
        }
        for _ in 0..ASKED_FOR_ROOM {
            let at = self.hand % self.table.holds.places().max(1);
            self.hand = at + 1;
            self.ask_for_room(now, session, at);
        }
        true
    }

    fn ask_for_room(&mut self, now: Instant, by: u32, at: u32) -> bool {
        let Some(hold) = self.table.holds.get(at) else { return false };
        let cache = self.table.entries[hold.entry].class == LockClass::Cache;
        if cache && hold.demand.is_none() && self.table.is_live(hold) {
            self.demand(now, by, at, Keep::Nothing);
        }
        cache
    }

    /// Whether anybody who counts waits for a lock.
    fn has_waiters(&self, entry: u32) -> bool {
        self.table.has_waiters(entry, |task| self.task_is_good(task))
    }

    /// The generation under which a session holds a lock now; `None`: it does not hold it.
    pub(crate) fn held(&self, slot: LockSlot, lock: LockId) -> Option<Generation> {
        self.find(slot, lock).map(|at| self.table.holds[at].generation)
    }

    /// Whether a session holds the advisory lock of an object or waits for it.
    pub(crate) fn involves(&self, slot: LockSlot, object: ObjectId) -> bool {
        let found = self.table.session(slot).zip(self.table.entry(advisory(object)));
        found.is_some_and(|(slot, entry)| {
            self.table.hold_of(entry, slot).is_some() || self.waiters(entry).any(|waiter| waiter.session == slot)
        })
    }

    /// Whether somebody in good standing waits for this session to give a lock back (section 11.3), or it keeps so many that it was asked for
    /// that they are not looked through for each of its messages.
    pub(crate) fn is_waited_for(&self, slot: LockSlot) -> bool {
        let Some(slot) = self.table.session(slot) else { return false };
        let mut demanded = self.table.demanded_of(slot);
        demanded.by_ref().take(LOOKED_AT).any(|at| self.has_waiters(self.table.holds[at].entry)) || demanded.next().is_some()
    }

    /// How many lock requests of a session wait (section 11.4).
    pub(crate) fn waits(&self, slot: LockSlot) -> usize {
        self.table.session(slot).map_or(0, |slot| self.table.sessions[slot].waits as usize)
    }

    /// Whether a request for a lock still waits, or has what it was granted.
    pub(crate) fn is_pending(&self, slot: LockSlot, nonce: u64) -> bool {
        self.table.session(slot).is_some_and(|slot| self.waits.contains_key(&(slot, nonce)) || self.granted(slot, nonce).is_some())
    }

    /// How many locks of both classes a session holds.
    pub(crate) fn holds(&self, slot: LockSlot) -> usize {
        self.table.session(slot).map_or(0, |slot| self.table.sessions[slot].held as usize)
    }

    /// One who holds the lock, or else waits for it longest, other than `asking`.
    pub(crate) fn holder_info(&self, lock: LockId, asking: LockSlot) -> Option<Row> {
        self.other_holder(self.table.entry(lock)?, asking.0)
    }

    pub(super) fn other_holder(&self, entry: u32, asking: u32) -> Option<Row> {
        let asking = self.table.sessions.get(asking).map(|session| session.key());
        self.rows_of(entry).find(|row| Some(row.session) != asking)
    }

    /// Advisory locks, for LIST_LOCKS: of `object` or of all, going on after so many rows of the object in `after`; at most `max` rows.
    pub(crate) fn rows(&self, object: Option<ObjectId>, after: (ObjectId, u32), max: usize) -> Rows {
        let mut rows = Rows { list: Vec::new(), end: true, passed: 0 };
        let last = object.unwrap_or(ObjectId(u64::MAX));
        let first = object.unwrap_or_default().max(after.0);
        let objects = (first <= last).then(|| self.table.advisory.range(first..=last));
        for object in objects.into_iter().flatten() {
            let entry = self.table.entry(advisory(object));
            let mut of_object = entry.into_iter().flat_map(|entry| self.rows_of(entry));
            if object == after.0 {
                rows.passed = of_object.by_ref().take(after.1 as usize).count();
            }
            for row in of_object {
                if rows.list.len() == max {
                    rows.end = false;
                    return rows;
                }
                rows.list.push(row);
            }
        }
        rows
    }

    fn rows_of(&self, entry: u32) -> impl Iterator<Item = Row> {
        let lock = self.table.entries[entry].lock();
        let holders = self.table.holds_of(entry).map(move |at| {
            let hold = &self.table.holds[at];
            let session = self.table.sessions[hold.session].key();
            Row { lock, state: RowState::Holds, mode: hold.mode, generation: hold.generation, session, since: hold.since }
        });
        holders.chain(self.waiters(entry).map(move |waiter| self.waiting_row(entry, waiter)))
    }

    fn waiting_row(&self, entry: u32, waiter: &LockWaiter) -> Row {
        let lock = self.table.entries[entry].lock();
        let session = self.table.sessions[waiter.session].key();
        Row { lock, state: RowState::Waits, mode: waiter.mode, generation: Generation(0), session, since: waiter.since }
    }

    /// Figures for status and bounds.
    pub(crate) fn counts(&self) -> LockCounts {
        LockCounts {
            held: self.table.holds.len(),
            waiters: self.waiting,
            mutations: self.mutations.len(),
            demands_outstanding: self.demands.outstanding,
            demands: self.demands.sent,
        }
    }
}
