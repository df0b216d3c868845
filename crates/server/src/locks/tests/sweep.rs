//! Claims about the order in which locks that stand no more are taken away, and about who cannot delay that.

use super::super::Turn;
use super::{A, B, C, Script, X, Y, granted, ready};
use cistern_wire::{Mode, ObjectId, SessionId};

use Mode::Exclusive;

/// Locks a turn takes away.
const SLICE: usize = 10;
/// Far more than so many.
const MANY: u32 = 1_000;
/// One more session.
const D: SessionId = SessionId(0xD);

impl Script {
    /// A session takes many advisory locks that nobody else wants.
    fn takes_many(&mut self, session: SessionId) {
        for n in 0..u64::from(MANY) {
            self.tokens();
            self.locked(session, n, ObjectId(100 + n), Exclusive);
        }
        self.tokens();
    }

    /// The end of a session is decided and durable.
    fn ends(&mut self, session: SessionId) {
        self.table.end_session(self.now, session);
        self.table.free_session(session);
    }

    fn slice(&mut self) -> bool {
        self.table.reclaim_some(self.now, SLICE)
    }
}

#[test]
fn waiter_for_the_second_of_two_sessions_that_end_together_does_not_wait_for_the_locks_of_the_first() {
    let mut s = Script::new();
    s.takes_many(A);
    s.locked(B, 1, X, Exclusive);
    s.queued(C, 1, X, Exclusive);
    s.actions();
    s.ends(A);
    s.ends(B);
    assert!(s.slice());
    assert_eq!(granted(&s.actions()), [(C, 1)]);
    assert!(s.table.holds(A) >= MANY as usize - SLICE, "a turn takes no more than a slice away");
}

#[test]
fn who_begins_to_wait_between_the_end_of_a_session_and_the_word_of_the_store_comes_in_the_first_slice() {
    let mut s = Script::new();
    s.takes_many(A);
    s.locked(A, MANY.into(), X, Exclusive);
    s.shared(A, Y);
    s.table.end_session(s.now, A);
    s.queued(B, 1, X, Exclusive);
    s.queued(C, 1, X, Exclusive);
    assert_eq!(s.enter(1, B, &[Y]), Turn::Waiting);
    // No demand: nobody is there to hear it.
    s.quiet();
    s.table.free_session(A);
    s.slice();
    let actions = s.actions();
    assert!(actions.contains(&ready(1)), "{actions:?}");
    assert_eq!(granted(&actions), [(B, 1)], "in order of arrival");
    assert_eq!(s.table.counts().demands_outstanding, 0);
    while s.slice() {}
    assert_eq!(s.table.counts().held, 1);
}

#[test]
fn demanded_locks_of_all_sessions_that_end_together_come_before_the_others_of_any() {
    let mut s = Script::new();
    s.table.open_session(D);
    s.takes_many(A);
    s.locked(B, 1, X, Exclusive);
    s.shared(B, Y);
    s.queued(C, 1, X, Exclusive);
    assert_eq!(s.enter(1, D, &[Y]), Turn::Waiting);
    s.locked(A, u64::from(MANY), ObjectId(1), Exclusive);
    s.queued(C, 2, ObjectId(1), Exclusive);
    s.actions();
    s.ends(A);
    s.ends(B);
    s.slice();
    let actions = s.actions();
    assert_eq!(granted(&actions), [(C, 2), (C, 1)]);
    assert!(actions.contains(&ready(1)), "{actions:?}");
    while s.slice() {}
    assert_eq!((s.table.holds(A), s.table.holds(B)), (0, 0));
}
