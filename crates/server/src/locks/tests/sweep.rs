//! Claims about the order in which locks that stand no more are taken away, and about who cannot delay that.

use super::super::{LockAccess, Turn};
use super::{A, B, C, Script, X, Y, granted, key, ready};
use crate::ids::{LockSlot, Owner, PrincipalId};
use cistern_wire::{Mode, ObjectId};

use Mode::Exclusive;

/// Locks a turn takes away.
const SLICE: usize = 10;
/// Far more than so many.
const MANY: u32 = 1_000;
/// One more session.
const D: LockSlot = LockSlot(4);

impl Script {
    /// A session takes many advisory locks that nobody else wants.
    fn takes_many(&mut self, session: LockSlot) {
        for n in 0..u64::from(MANY) {
            self.tokens();
            self.locked(session, n, ObjectId(100 + n), Exclusive);
        }
        self.tokens();
    }

    /// The end of a session is decided and durable.
    fn ends(&mut self, session: LockSlot) {
        self.table.set_access(self.now, session, LockAccess::Ended);
        self.table.set_access(self.now, session, LockAccess::Freed);
    }

    fn slice(&mut self) -> bool {
        self.table.sweep(self.now, SLICE)
    }
}

#[test]
fn waiter_for_the_second_of_two_sessions_that_end_together_does_not_wait_for_the_locks_of_the_first() {
    let mut s = Script::new();
    s.takes_many(A);
    s.locked(B, 1, X, Exclusive);
    s.queued(C, 1, X, Exclusive);
    s.decisions();
    s.ends(A);
    s.ends(B);
    assert!(s.slice());
    assert_eq!(granted(&s.decisions()), [(C, 1)]);
    assert!(s.table.holds(A) >= MANY as usize - SLICE, "a turn takes no more than a slice away");
}

#[test]
fn who_begins_to_wait_between_the_end_of_a_session_and_the_word_of_the_store_comes_in_the_first_slice() {
    let mut s = Script::new();
    s.takes_many(A);
    s.locked(A, MANY.into(), X, Exclusive);
    s.shared(A, Y);
    s.table.set_access(s.now, A, LockAccess::Ended);
    s.queued(B, 1, X, Exclusive);
    s.queued(C, 1, X, Exclusive);
    assert_eq!(s.enter(1, B, &[Y]), Turn::Waiting);
    // No demand: nobody is there to hear it.
    s.quiet();
    s.table.set_access(s.now, A, LockAccess::Freed);
    s.slice();
    let decisions = s.decisions();
    assert!(decisions.contains(&ready(1)), "{decisions:?}");
    assert_eq!(granted(&decisions), [(B, 1)], "in order of arrival");
    assert_eq!(s.table.counts().demands_outstanding, 0);
    while s.slice() {}
    assert_eq!(s.table.counts().held, 1);
}

#[test]
fn demanded_locks_of_all_sessions_that_end_together_come_before_the_others_of_any() {
    let mut s = Script::new();
    assert_eq!(s.table.open(key(D), Owner::Server, PrincipalId::ANYBODY, true), D);
    s.takes_many(A);
    s.locked(B, 1, X, Exclusive);
    s.shared(B, Y);
    s.queued(C, 1, X, Exclusive);
    assert_eq!(s.enter(1, D, &[Y]), Turn::Waiting);
    s.locked(A, u64::from(MANY), ObjectId(1), Exclusive);
    s.queued(C, 2, ObjectId(1), Exclusive);
    s.decisions();
    s.ends(A);
    s.ends(B);
    s.slice();
    let decisions = s.decisions();
    assert_eq!(granted(&decisions), [(C, 2), (C, 1)]);
    assert!(decisions.contains(&ready(1)), "{decisions:?}");
    while s.slice() {}
    assert_eq!((s.table.holds(A), s.table.holds(B)), (0, 0));
}
