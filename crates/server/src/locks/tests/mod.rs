//! Scripts for the lock table: each test is a claim about who gets what, told by its name.

mod advisory;
mod cache;
mod ending;
mod model;
mod mutations;
mod owners;
mod sweep;

use super::{LockDecision, LockLimits, LockOutcome, LockTable, Tokens, Turn};
use crate::ids::{Located, LockSlot, Owner, PrincipalId, SessionKey, TaskId};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{
    CacheGrant, Generation, Held, Keep, LockClass, LockId, LockWait, Mode, ObjectId, Realm, ReleaseItem, ReleasedItem, Want,
};
use core::time::Duration;

/// Two objects.
const X: ObjectId = ObjectId(10);
const Y: ObjectId = ObjectId(20);
/// Three sessions.
const A: LockSlot = LockSlot(1);
const B: LockSlot = LockSlot(2);
const C: LockSlot = LockSlot(3);

/// The key of the session in a slot.
const fn key(slot: LockSlot) -> SessionKey {
    SessionKey::for_test(slot.0)
}

const fn cache(object: ObjectId) -> LockId {
    LockId { object, class: LockClass::Cache }
}

/// An object in the tree's realm.
const fn located(object: ObjectId) -> Located {
    Located { object, realm: Realm::TREE }
}

const fn advisory(object: ObjectId) -> LockId {
    LockId { object, class: LockClass::Advisory }
}

/// A lock table with sessions A, B and C, and a clock.
struct Script {
    table: LockTable,
    now: Instant,
}

impl Script {
    fn new() -> Self {
        Self::with(LockLimits::default())
    }

    fn with(limits: LockLimits) -> Self {
        let mut script = Self::without_tokens(limits);
        script.tokens();
        script
    }

    fn without_tokens(limits: LockLimits) -> Self {
        let mut table = LockTable::new(limits, Tokens::new(1, 0));
        for session in [A, B, C] {
            assert_eq!(table.open(key(session), Owner::Server, PrincipalId::ANYBODY, true), session);
        }
        // Long after the start, so that no lock looks as if it had just been granted.
        Self { table, now: Instant::new(0, 0).plus(Duration::from_secs(1_000)) }
    }

    fn tokens(&mut self) {
        if let Some(up_to) = self.table.tokens_wanted() {
            self.table.tokens_durable(self.now, up_to);
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(Duration::from_millis(ms));
    }

    /// All that the table wants done.
    fn decisions(&mut self) -> Vec<LockDecision> {
        core::iter::from_fn(|| self.table.poll_decision()).collect()
    }

    /// Insists that nothing is to be done.
    #[track_caller]
    fn quiet(&mut self) {
        assert_eq!(self.decisions(), []);
    }

    fn grant(&mut self, session: LockSlot, object: ObjectId, want: Want) -> CacheGrant {
        self.table.cache_grant(self.now, session, located(object), want)
    }

    /// A shared cache lock that must be granted.
    #[track_caller]
    fn shared(&mut self, session: LockSlot, object: ObjectId) -> Generation {
        let grant = self.grant(session, object, Want::Shared);
        assert_eq!(grant.mode, Want::Shared);
        grant.generation
    }

    /// An exclusive cache lock that must be granted.
    #[track_caller]
    fn exclusive(&mut self, session: LockSlot, object: ObjectId) -> Generation {
        let grant = self.grant(session, object, Want::Exclusive);
        assert_eq!(grant.mode, Want::Exclusive);
        grant.generation
    }

    fn enter(&mut self, task: u64, session: LockSlot, objects: &[ObjectId]) -> Turn {
        self.enter_holding(task, session, objects, &[])
    }

    fn enter_holding(&mut self, task: u64, session: LockSlot, objects: &[ObjectId], held: &[(ObjectId, Generation)]) -> Turn {
        let held = held.iter().map(|(object, generation)| Held { object: *object, generation: *generation });
        self.table.enter(self.now, TaskId(task), session, objects, held)
    }

    fn leave(&mut self, task: u64) {
        self.table.leave(TaskId(task));
    }

    fn lock(&mut self, session: LockSlot, nonce: u64, object: ObjectId, mode: Mode, wait: LockWait) -> LockOutcome {
        self.table.lock(self.now, session, nonce, located(object), mode, wait)
    }

    /// An advisory lock that must be granted at once.
    #[track_caller]
    fn locked(&mut self, session: LockSlot, nonce: u64, object: ObjectId, mode: Mode) -> Generation {
        match self.lock(session, nonce, object, mode, LockWait::Queue) {
            LockOutcome::Granted { generation, .. } => generation,
            other => panic!("{other:?}"),
        }
    }

    /// An advisory lock that must be waited for; how many stand before it.
    #[track_caller]
    fn queued(&mut self, session: LockSlot, nonce: u64, object: ObjectId, mode: Mode) -> u32 {
        match self.lock(session, nonce, object, mode, LockWait::Queue) {
            LockOutcome::Queued { ahead, .. } => ahead,
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, session: LockSlot, lock: LockId, generation: Generation, keep: Keep) -> ReleasedItem {
        self.table.release(self.now, session, ReleaseItem { lock, generation, keep })
    }

    /// Gives a lock back for good.
    fn give(&mut self, session: LockSlot, lock: LockId, generation: Generation) {
        let released = self.release(session, lock, generation, Keep::Nothing);
        assert_eq!((released.keep, released.now), (Keep::Nothing, Generation(0)));
    }
}

const fn demand(session: LockSlot, lock: LockId, generation: Generation, keep: Keep) -> LockDecision {
    LockDecision::Demand { session: key(session), lock, generation, keep }
}

const fn held_back(session: LockSlot) -> LockDecision {
    LockDecision::DemandDelayed { session: key(session) }
}

const fn ready(task: u64) -> LockDecision {
    LockDecision::Turn { task: TaskId(task) }
}

/// The requests that were granted from the queue, in order.
fn granted(decisions: &[LockDecision]) -> Vec<(LockSlot, u64)> {
    let grants = decisions.iter().filter_map(|action| match action {
        LockDecision::Grant { session, nonce, .. } => Some((LockSlot(session.place), *nonce)),
        _ => None,
    });
    grants.collect()
}
