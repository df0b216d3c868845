//! Claims about advisory locks.

use super::super::{CancelResult, LockDecision, LockLimits, LockOutcome, Row, Rows};
use super::{A, B, C, Script, X, Y, advisory, cache, demand, granted, key};
use crate::share::RETRY_MS;
use cistern_wire::{Generation, Keep, Limit, Limited, LockWait, Mode, ObjectId, Realm, RowState, Status, Whose};

use Mode::{Exclusive, Shared};

//= wire-spec.md#11-4-locks
//= type=test
//# A grant of an advisory lock MUST reserve a run of consecutive tokens, beginning with its generation.
#[test]
fn free_lock_is_granted_at_once_with_a_run_of_tokens() {
    let mut s = Script::new();
    let outcome = s.lock(A, 1, X, Exclusive, LockWait::Try);
    let LockOutcome::Granted { mode: Exclusive, generation, run: 1_024 } = outcome else { panic!("{outcome:?}") };
    assert_eq!(s.table.held(A, advisory(X)), Some(generation));
    assert!(s.locked(B, 1, Y, Exclusive).0 >= generation.0 + 1_024, "runs do not overlap");
    s.quiet();
}

#[test]
fn try_names_the_holder_and_asks_it_to_give_back_what_it_does_not_use() {
    let mut s = Script::new();
    let a = s.locked(A, 1, X, Exclusive);
    let since = s.now;
    s.pass(500);
    let holder = Row { lock: advisory(X), state: RowState::Holds, mode: Exclusive, generation: a, session: key(A), since };
    assert_eq!(s.lock(B, 1, X, Shared, LockWait::Try), LockOutcome::Refused { holder });
    assert_eq!(s.decisions(), [demand(A, advisory(X), a, Keep::Shared)]);
    assert!(!s.table.is_waited_for(A), "nobody waits");
    assert_eq!((s.table.counts().waiters, s.table.waits(B)), (0, 0));
}

#[test]
fn waiters_are_served_in_order_and_shared_ones_together() {
    let mut s = Script::new();
    let a = s.locked(A, 1, X, Exclusive);
    assert_eq!((s.queued(B, 1, X, Shared), s.queued(C, 1, X, Shared), s.queued(B, 2, X, Exclusive)), (0, 1, 2));
    assert_eq!(s.decisions(), [demand(A, advisory(X), a, Keep::Shared), demand(A, advisory(X), a, Keep::Nothing)][1..]);
    s.give(A, advisory(X), a);
    assert_eq!(granted(&s.decisions()), [(B, 1), (C, 1)]);
}

//= wire-spec.md#11-4-locks
//= type=test
//# Once an exclusive request for an advisory lock waits, a later shared one MUST NOT be granted before it.
#[test]
fn no_shared_lock_passes_an_exclusive_request_that_waits() {
    let mut s = Script::new();
    let a = s.locked(A, 1, X, Shared);
    s.queued(B, 1, X, Exclusive);
    assert_eq!(s.queued(C, 1, X, Shared), 1);
    assert!(matches!(s.lock(C, 2, X, Shared, LockWait::Try), LockOutcome::Refused { .. }));
    s.decisions();
    s.give(A, advisory(X), a);
    let decisions = s.decisions();
    assert_eq!(granted(&decisions), [(B, 1)]);
    let b = s.table.held(B, advisory(X)).unwrap();
    assert!(decisions.contains(&demand(B, advisory(X), b, Keep::Shared)), "C waits behind it");
    s.give(B, advisory(X), b);
    assert_eq!(granted(&s.decisions()), [(C, 1)]);
}

#[test]
fn holder_of_an_exclusive_lock_may_keep_a_shared_one_when_only_readers_wait() {
    let mut s = Script::new();
    let a = s.locked(A, 1, X, Exclusive);
    s.queued(B, 1, X, Shared);
    assert_eq!(s.decisions(), [demand(A, advisory(X), a, Keep::Shared)]);
    let released = s.release(A, advisory(X), a, Keep::Shared);
    assert_eq!(s.table.held(A, advisory(X)), Some(released.now));
    assert_eq!(granted(&s.decisions()), [(B, 1)]);
    assert_eq!(s.release(A, advisory(X), a, Keep::Shared), released, "repeated");
}

#[test]
fn session_that_holds_the_lock_gets_a_new_run_unless_others_wait() {
    let mut s = Script::new();
    let first = s.locked(A, 1, X, Exclusive);
    let outcome = s.lock(A, 2, X, Shared, LockWait::Queue);
    let LockOutcome::Granted { mode: Exclusive, generation: second, .. } = outcome else { panic!("a local user may hold it: {outcome:?}") };
    assert!(second.0 >= first.0 + 1_024);
    s.queued(B, 1, X, Exclusive);
    assert_eq!(s.queued(A, 3, X, Exclusive), 1, "section 11.4: behind the one who waits");
    s.decisions();
    s.give(A, advisory(X), second);
    assert_eq!(granted(&s.decisions()), [(B, 1)]);
}

#[test]
fn only_holder_is_upgraded_at_once() {
    let mut s = Script::new();
    let first = s.locked(A, 1, X, Shared);
    let second = s.locked(A, 2, X, Exclusive);
    assert!(second > first);
    assert!(matches!(s.lock(B, 1, X, Shared, LockWait::Try), LockOutcome::Refused { .. }));
}

//= wire-spec.md#11-4-locks
//= type=test
//# A second upgrade of a lock whose first upgrade waits MUST fail with EDEADLK.
#[test]
fn second_upgrade_is_told_of_the_deadlock() {
    let mut s = Script::new();
    let (a, b) = (s.locked(A, 1, X, Shared), s.locked(B, 1, X, Shared));
    assert_eq!(s.queued(A, 2, X, Exclusive), 0);
    assert_eq!(s.decisions(), [demand(B, advisory(X), b, Keep::Nothing)]);
    assert_eq!(s.lock(B, 2, X, Exclusive, LockWait::Queue), LockOutcome::Deadlock);
    assert!(matches!(s.lock(B, 3, X, Exclusive, LockWait::Try), LockOutcome::Refused { .. }), "who only tries waits for nobody");
    s.decisions();
    s.give(B, advisory(X), b);
    assert_eq!(granted(&s.decisions()), [(A, 2)]);
    assert!(s.table.held(A, advisory(X)).unwrap() > a);
}

#[test]
fn upgrade_stands_before_those_who_would_wait_for_it_anyway() {
    let mut s = Script::new();
    s.locked(A, 1, X, Shared);
    let b = s.locked(B, 1, X, Shared);
    s.queued(C, 1, X, Exclusive);
    assert_eq!(s.queued(A, 2, X, Exclusive), 0);
    s.decisions();
    s.give(B, advisory(X), b);
    assert_eq!(granted(&s.decisions()), [(A, 2)]);
    let a = s.table.held(A, advisory(X)).unwrap();
    s.give(A, advisory(X), a);
    assert_eq!(granted(&s.decisions()), [(C, 1)]);
}

#[test]
fn cancelled_wait_is_over_and_lets_others_come() {
    let mut s = Script::new();
    s.locked(A, 1, X, Shared);
    s.queued(B, 1, X, Exclusive);
    s.queued(C, 1, X, Shared);
    s.decisions();
    assert_eq!(s.table.cancel(s.now, B, 1), CancelResult::Cancelled(advisory(X)));
    assert_eq!(granted(&s.decisions()), [(C, 1)]);
    assert_eq!(s.table.cancel(s.now, B, 1), CancelResult::Unknown);
    assert_eq!(s.table.cancel(s.now, B, 77), CancelResult::Unknown);
}

#[test]
fn cancellation_that_comes_too_late_names_the_grant_as_long_as_it_stands() {
    let mut s = Script::new();
    let a = s.locked(A, 1, X, Exclusive);
    s.queued(B, 1, X, Exclusive);
    s.give(A, advisory(X), a);
    let b = s.table.held(B, advisory(X)).unwrap();
    for _ in 0..2 {
        assert_eq!(s.table.cancel(s.now, B, 1), CancelResult::Granted { lock: advisory(X), generation: b });
    }
    s.give(B, advisory(X), b);
    assert_eq!(s.table.cancel(s.now, B, 1), CancelResult::Unknown);
}

/// Nobody can tell the waiters apart by age, so each is asked before it is granted the lock.
#[test]
fn shared_requests_are_asked_side_by_side_and_a_silent_one_holds_up_no_other() {
    let mut s = Script::new();
    let a = s.locked(A, 1, X, Exclusive);
    s.queued(B, 1, X, Shared);
    s.queued(C, 1, X, Shared);
    s.queued(A, 2, X, Exclusive);
    s.pass(500);
    s.decisions();
    s.give(A, advisory(X), a);
    assert_eq!(s.decisions(), [LockDecision::Probe { session: key(B) }, LockDecision::Probe { session: key(C) }]);
    s.table.heard_of(s.now, A);
    assert_eq!(s.decisions(), [], "not before those who asked earlier");
    s.table.heard_of(s.now, C);
    assert_eq!(granted(&s.decisions()), [(C, 1)]);
    s.table.heard_of(s.now, B);
    assert_eq!(granted(&s.decisions()), [(B, 1)]);
}

#[test]
fn session_that_is_asked_about_two_requests_for_one_lock_and_has_no_room_loses_both() {
    let mut s = Script::with(LockLimits { locks_per_session: 1, ..LockLimits::default() });
    let (a, b) = (s.locked(A, 1, X, Shared), s.locked(B, 1, X, Shared));
    s.queued(C, 1, X, Exclusive);
    s.queued(A, 2, X, Shared);
    s.pass(500);
    s.table.cancel(s.now, C, 1);
    s.queued(A, 3, X, Exclusive);
    s.pass(500);
    s.give(B, advisory(X), b);
    s.give(A, advisory(X), a);
    s.locked(A, 4, Y, Exclusive);
    s.decisions();
    s.table.heard_of(s.now, A);
    let over = |nonce| LockDecision::WaitOver { session: key(A), nonce, lock: advisory(X), status: Status::BUSY };
    assert_eq!(s.decisions(), [over(3), over(2)]);
}

#[test]
fn waits_of_an_object_that_is_gone_end() {
    let mut s = Script::new();
    let a = s.locked(A, 1, X, Exclusive);
    s.queued(B, 1, X, Exclusive);
    s.queued(C, 5, X, Shared);
    s.decisions();
    s.table.object_gone(s.now, X);
    let over = |session, nonce| LockDecision::WaitOver { session: key(session), nonce, lock: advisory(X), status: Status::ESTALE };
    assert_eq!(s.decisions(), [over(B, 1), over(C, 5)]);
    assert_eq!(s.table.held(A, advisory(X)), Some(a), "a lock leaves only by release or by the end of its session");
    assert_eq!(s.table.counts().waiters, 0);
}

#[test]
fn bounds_on_waiters_are_named() {
    let mut s = Script::with(LockLimits { waiters_per_object: 2, waiters_per_session: 3, ..LockLimits::default() });
    s.locked(A, 1, X, Exclusive);
    s.locked(A, 2, Y, Exclusive);
    s.queued(B, 1, X, Exclusive);
    s.queued(B, 2, X, Exclusive);
    let over = |whose, used, bound| {
        LockOutcome::Limited(Limited { limit: Limit::Waiters, whose, realm: Realm(0), used, bound, retry_ms: RETRY_MS })
    };
    assert_eq!(s.lock(C, 1, X, Exclusive, LockWait::Queue), over(Whose::Object, 2, 2));
    s.queued(B, 3, Y, Exclusive);
    assert_eq!(s.lock(B, 4, Y, Exclusive, LockWait::Queue), over(Whose::Session, 3, 3));
    assert_eq!((s.table.counts().waiters, s.table.waits(B)), (3, 3));
}

#[test]
fn bound_on_locks_is_named_and_ends_a_wait() {
    let mut s = Script::with(LockLimits { locks_per_session: 1, ..LockLimits::default() });
    let over = |retry_ms| {
        LockOutcome::Limited(Limited { limit: Limit::Locks, whose: Whose::Session, realm: Realm(0), used: 1, bound: 1, retry_ms })
    };
    let cached = s.shared(A, ObjectId(30));
    assert_eq!(s.lock(A, 5, Y, Exclusive, LockWait::Queue), over(RETRY_MS), "a cache lock will make room");
    s.give(A, cache(ObjectId(30)), cached);
    s.decisions();
    let a = s.locked(A, 1, X, Exclusive);
    assert_eq!(s.lock(A, 2, Y, Exclusive, LockWait::Queue), over(0), "nothing will but the agent itself");
    s.queued(B, 1, X, Exclusive);
    s.locked(B, 2, Y, Exclusive);
    s.decisions();
    s.give(A, advisory(X), a);
    assert_eq!(s.decisions(), [LockDecision::WaitOver { session: key(B), nonce: 1, lock: advisory(X), status: Status::BUSY }]);
}

#[test]
fn lock_of_what_is_held_gives_another_run_until_somebody_waits() {
    let mut s = Script::new();
    let first = s.locked(A, 1, X, Shared);
    let LockOutcome::Granted { mode: Shared, generation, run: 1_024 } = s.lock(A, 90, X, Shared, LockWait::Try) else {
        panic!("not extended")
    };
    assert!(generation.0 >= first.0 + 1_024);
    s.queued(B, 1, X, Exclusive);
    assert!(matches!(s.lock(A, 91, X, Shared, LockWait::Try), LockOutcome::Refused { holder } if holder.session == key(B)));
    assert!(s.table.guard_is_current(A, X, generation), "what it has stays as it is");
}

#[test]
fn request_for_another_run_goes_on_with_what_is_held_and_with_nothing_that_was_given_back() {
    let mut s = Script::new();
    let first = s.locked(A, 1, X, Exclusive);
    assert!(matches!(s.lock(B, 1, X, Exclusive, LockWait::Try), LockOutcome::Refused { .. }));
    assert_eq!(s.decisions(), [demand(A, advisory(X), first, Keep::Nothing)]);
    // Demanded, but nobody waits. What was said of the older generation says nothing of the newer one.
    let second = s.locked(A, 2, X, Exclusive);
    assert!(s.table.guard_is_current(A, X, first), "the same hold");
    s.release(A, advisory(X), first, Keep::Nothing);
    s.table.on_not_held(s.now, A, advisory(X), first);
    assert_eq!(s.table.held(A, advisory(X)), Some(second));
    s.queued(B, 2, X, Exclusive);
    assert_eq!(s.decisions(), [demand(A, advisory(X), second, Keep::Nothing)]);
    s.give(A, advisory(X), second);
    assert_eq!(granted(&s.decisions()), [(B, 2)]);
    // It was sent before the lock was given back, and comes after.
    assert!(matches!(s.lock(A, 3, X, Exclusive, LockWait::Try), LockOutcome::Refused { holder } if holder.session == key(B)));
    let others = s.table.held(B, advisory(X)).unwrap();
    s.give(B, advisory(X), others);
    let third = s.locked(A, 4, X, Exclusive);
    for token in [first, second, Generation(second.0 + 1_023), others] {
        assert!(!s.table.guard_is_current(A, X, token), "{token} is of another hold");
    }
    assert!(s.table.guard_is_current(A, X, third));
}

#[test]
fn guard_is_current_from_the_first_token_held_without_a_break_to_the_end_of_the_run() {
    let mut s = Script::new();
    let first = s.locked(A, 1, X, Exclusive);
    let second = s.locked(A, 90, X, Exclusive);
    for token in [first, Generation(first.0 + 3), second, Generation(second.0 + 1_023)] {
        assert!(s.table.guard_is_current(A, X, token), "{token}");
    }
    assert!(!s.table.guard_is_current(A, X, Generation(first.0 - 1)));
    assert!(!s.table.guard_is_current(A, X, Generation(second.0 + 1_024)));
    assert!(!s.table.guard_is_current(B, X, second) && !s.table.guard_is_current(A, Y, second));
    let kept = s.release(A, advisory(X), second, Keep::Shared).now;
    assert!(!s.table.guard_is_current(A, X, second), "it was exclusive");
    assert!(s.table.guard_is_current(A, X, kept));
    s.give(A, advisory(X), kept);
    let third = s.locked(A, 2, X, Exclusive);
    assert!(s.table.guard_is_current(A, X, third) && !s.table.guard_is_current(A, X, kept));
}

#[test]
fn name_of_a_locked_object_may_be_taken_away_by_the_holder_only() {
    let mut s = Script::new();
    assert!(!s.table.removal_blocked(X, B));
    s.locked(A, 1, X, Shared);
    assert!(s.table.removal_blocked(X, B) && !s.table.removal_blocked(X, A));
    s.exclusive(A, Y);
    assert!(!s.table.removal_blocked(Y, B), "a cache lock is asked back instead");
}

#[test]
fn request_waits_for_tokens_and_is_granted_when_they_come() {
    let mut s = Script::without_tokens(LockLimits::default());
    assert_eq!(s.lock(A, 1, X, Exclusive, LockWait::Try), LockOutcome::Busy);
    assert_eq!(s.lock(A, 2, X, Exclusive, LockWait::Queue), LockOutcome::Queued { ahead: 0, holder: None });
    assert_eq!(s.queued(B, 1, X, Exclusive), 1);
    s.quiet();
    s.tokens();
    let decisions = s.decisions();
    assert_eq!(granted(&decisions), [(A, 2)]);
    assert_eq!(decisions.len(), 2, "and B's wait is A's demand: {decisions:?}");
}

#[test]
fn rows_list_holders_then_waiters_object_by_object_and_go_on_where_they_stopped() {
    let mut s = Script::new();
    s.locked(A, 1, Y, Exclusive);
    s.locked(A, 2, X, Shared);
    s.locked(B, 1, X, Shared);
    s.queued(C, 1, X, Exclusive);
    s.exclusive(C, X);
    let short = |row: &Row| (row.lock.object, row.state, crate::ids::LockSlot(row.session.place));
    let Rows { list, end, passed } = s.table.rows(None, (ObjectId(0), 0), 100);
    let all = [(X, RowState::Holds, A), (X, RowState::Holds, B), (X, RowState::Waits, C), (Y, RowState::Holds, A)];
    assert_eq!((list.iter().map(short).collect::<alloc::vec::Vec<_>>(), end, passed), (all.to_vec(), true, 0));
    for (seen, expected) in all.iter().enumerate() {
        // More than there are: that object has no more.
        let after = if seen == 3 { (X, u32::MAX) } else { (X, u32::try_from(seen).unwrap()) };
        let Rows { list, end, passed } = s.table.rows(None, after, 1);
        assert_eq!((short(&list[0]), list.len(), end, passed), (*expected, 1, seen == 3, seen));
    }
    let nothing = Rows { list: alloc::vec![], end: true, passed: 0 };
    assert_eq!(s.table.rows(Some(Y), (ObjectId(0), 0), 9).list.len(), 1);
    assert_eq!(s.table.rows(Some(X), (Y, 0), 9), nothing, "that object was listed already");
    assert_eq!(s.table.rows(Some(ObjectId(5)), (ObjectId(0), 0), 9), nothing);
}
