//! Claims about the order in which locks that stand no more are taken away, and about who cannot delay that.

use super::super::{LockOutcome, Turn};
use super::{A, B, C, Script, X, Y, advisory, cache, granted, ready};
use cistern_wire::{Generation, LockWait, Mode, ObjectId, SessionId};

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

    /// Another agent is granted something, and the session gives back all up to that.
    fn gives_all_back(&mut self, session: SessionId, other: SessionId) {
        self.tokens();
        let newest = self.exclusive(other, ObjectId(50));
        self.table.release_all(session, newest);
    }

    fn slice(&mut self) -> bool {
        self.table.reclaim_some(self.now, SLICE)
    }
}

#[test]
fn agent_that_gives_back_all_again_and_again_does_not_keep_those_waiting_who_wait_for_an_ended_session() {
    let mut s = Script::new();
    s.table.open_session(D);
    s.takes_many(A);
    s.locked(B, 1, X, Exclusive);
    s.gives_all_back(A, D);
    s.slice();
    s.queued(C, 1, X, Exclusive);
    s.actions();
    s.ends(B);
    s.gives_all_back(A, D);
    s.slice();
    assert_eq!(granted(&s.actions()), [(C, 1)]);
    let c = s.table.held(C, advisory(X)).unwrap();
    s.give(C, advisory(X), c);
    s.locked(D, 1, X, Exclusive);
}

#[test]
fn agent_that_gives_back_all_again_and_again_does_not_keep_an_ended_sessions_locks_in_memory() {
    let mut s = Script::new();
    s.takes_many(A);
    for n in 0..100 {
        s.locked(B, n, ObjectId(10_000 + n), Exclusive);
    }
    s.gives_all_back(A, C);
    s.ends(B);
    for _ in 0..2 * 100 / SLICE + 1 {
        s.gives_all_back(A, C);
        s.slice();
    }
    assert_eq!(s.table.counts().held, MANY as usize + 1, "what A holds, and C's one");
    assert_eq!(s.table.holds(B), 0);
}

#[test]
fn agent_that_is_asked_for_all_its_locks_and_gives_none_back_leaves_others_half_of_each_turn() {
    let mut s = Script::new();
    s.table.open_session(D);
    s.takes_many(A);
    for n in 0..u64::from(MANY) {
        // Asked for, though nobody waits.
        assert!(matches!(s.lock(D, 10_000 + n, ObjectId(100 + n), Exclusive, LockWait::Try), LockOutcome::Refused { .. }));
    }
    for n in 0..100 {
        s.locked(B, n, ObjectId(10_000 + n), Exclusive);
    }
    s.gives_all_back(A, C);
    s.ends(B);
    for _ in 0..4 * 100 / SLICE + 1 {
        s.gives_all_back(A, C);
        s.slice();
    }
    assert_eq!(s.table.holds(B), 0);
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
fn lock_given_back_while_an_earlier_sweep_is_under_way_lets_its_waiters_come_first() {
    let mut s = Script::new();
    s.takes_many(A);
    s.shared(A, X);
    s.gives_all_back(A, C);
    s.slice();
    s.shared(A, Y);
    assert_eq!(s.enter(1, B, &[Y]), Turn::Waiting);
    s.actions();
    s.gives_all_back(A, C);
    assert_eq!(s.table.held(A, cache(Y)), None);
    s.slice();
    assert_eq!(s.actions(), [ready(1)]);
    while s.slice() {}
    assert_eq!(s.table.counts().held, MANY as usize + 1);
}

#[test]
fn sweep_of_an_agent_that_always_takes_new_locks_comes_to_an_end() {
    let mut s = Script::new();
    s.takes_many(A);
    s.table.release_all(A, Generation(u64::MAX));
    let (mut taken, mut slices) = (0, 0);
    loop {
        slices += 1;
        for _ in 0..2 * SLICE {
            taken += 1;
            s.tokens();
            s.shared(A, ObjectId(10_000 + taken));
        }
        if !s.slice() {
            break;
        }
        assert!(slices <= MANY as usize / SLICE + 1, "what came later is none of its business");
    }
}
