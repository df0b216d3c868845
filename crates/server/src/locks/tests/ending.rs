//! Claims about sessions that time out, are rescued, and end.

use super::super::{LockAccess, LockDecision, LockLimits, LockOutcome, Turn};
use super::{A, B, C, Script, X, Y, advisory, cache, demand, granted, held_back, key, ready};
use crate::ids::{LockSlot, Owner, PrincipalId};
use cistern_wire::{CacheGrant, Keep, LockWait, Mode, ObjectId, Status, Want};

use Mode::{Exclusive, Shared};

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# At D the server MUST park the session's unexecuted requests and waiting lock requests: none is executed, none is granted.
#[test]
fn session_timing_out_is_granted_nothing() {
    let mut s = Script::new();
    s.table.set_access(s.now, A, LockAccess::Suspended);
    assert_eq!(s.grant(A, X, Want::Shared), CacheGrant::NONE);
    assert_eq!(s.lock(A, 1, X, Exclusive, LockWait::Queue), LockOutcome::Busy);
    assert_eq!(s.enter(1, A, &[X]), Turn::Busy);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A session that is timing out MUST NOT hold up the grant of a lock that it does not hold.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# At D the server MUST park the session's unexecuted requests and waiting lock requests: none is executed, none is granted.
//= wire-spec.md#11-4-locks
//= type=test
//# The server SHOULD pass over waiting sessions that are not in good standing.
#[test]
fn waiter_that_times_out_is_passed_over_and_has_its_place_again_when_rescued() {
    let mut s = Script::new();
    let a = s.locked(A, 1, X, Exclusive);
    s.queued(B, 1, X, Exclusive);
    s.queued(C, 1, X, Exclusive);
    s.queued(A, 2, X, Exclusive);
    s.decisions();
    s.table.set_access(s.now, B, LockAccess::Suspended);
    s.give(A, advisory(X), a);
    assert_eq!(granted(&s.decisions()), [(C, 1)], "section 11.3: B is not granted and delays nobody");
    s.table.set_access(s.now, B, LockAccess::Active);
    s.decisions();
    let c = s.table.held(C, advisory(X)).unwrap();
    s.give(C, advisory(X), c);
    assert_eq!(granted(&s.decisions()), [(B, 1)], "before A, which came later");
}

#[test]
fn parked_exclusive_waiter_does_not_keep_readers_out_and_asks_them_back_when_rescued() {
    let mut s = Script::new();
    let a = s.locked(A, 1, X, Shared);
    s.queued(B, 1, X, Exclusive);
    assert_eq!(s.decisions(), [demand(A, advisory(X), a, Keep::Nothing)]);
    s.table.set_access(s.now, B, LockAccess::Suspended);
    let c = s.locked(C, 1, X, Shared);
    s.quiet();
    s.table.set_access(s.now, B, LockAccess::Active);
    assert_eq!(s.decisions(), [demand(C, advisory(X), c, Keep::Nothing)]);
}

#[test]
fn demand_to_a_session_timing_out_waits_for_its_rescue() {
    let mut s = Script::new();
    let a = s.shared(A, X);
    s.table.set_access(s.now, A, LockAccess::Suspended);
    assert_eq!(s.enter(1, B, &[X]), Turn::Waiting);
    s.quiet();
    assert!(s.table.is_waited_for(A));
    s.table.set_access(s.now, A, LockAccess::Active);
    assert_eq!(s.decisions(), [demand(A, cache(X), a, Keep::Nothing)]);
    s.give(A, cache(X), a);
    assert_eq!(s.decisions(), [ready(1)]);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A release in a session that is timing out MUST free the lock that it names.
#[test]
fn releases_of_a_session_timing_out_count() {
    let mut s = Script::new();
    let (x, y) = (s.shared(A, X), s.locked(A, 1, Y, Exclusive));
    assert_eq!(s.enter(1, B, &[X]), Turn::Waiting);
    s.queued(B, 1, Y, Exclusive);
    s.decisions();
    s.table.set_access(s.now, A, LockAccess::Suspended);
    s.give(A, cache(X), x);
    s.give(A, advisory(Y), y);
    let decisions = s.decisions();
    assert!(decisions.contains(&ready(1)) && granted(&decisions) == [(B, 1)]);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# After T the server MUST make the end of the session durable before anything that it frees is granted, executed or shown.
#[test]
fn locks_of_an_ended_session_stand_until_its_end_is_durable() {
    let mut s = Script::new();
    s.shared(A, X);
    s.locked(A, 1, X, Exclusive);
    s.queued(B, 1, X, Exclusive);
    assert_eq!(s.enter(1, B, &[X]), Turn::Waiting);
    s.decisions();
    s.table.set_access(s.now, A, LockAccess::Suspended);
    s.table.set_access(s.now, A, LockAccess::Ended);
    assert!(!s.table.sweep(s.now, 100));
    assert_eq!(s.grant(C, X, Want::Exclusive), CacheGrant::NONE);
    assert!(s.table.removal_blocked(X, C));
    s.quiet();
    s.table.set_access(s.now, A, LockAccess::Freed);
    while s.table.sweep(s.now, 1) {}
    let decisions = s.decisions();
    assert!(decisions.contains(&ready(1)) && granted(&decisions) == [(B, 1)]);
    assert_eq!(s.table.counts().held, 1);
}

#[test]
fn freed_locks_conflict_with_nobody_before_they_are_swept() {
    let mut s = Script::new();
    for n in 0..1_000 {
        s.exclusive(A, ObjectId(100 + n));
    }
    s.locked(A, 1, X, Exclusive);
    s.table.set_access(s.now, A, LockAccess::Ended);
    s.table.set_access(s.now, A, LockAccess::Freed);
    s.exclusive(B, ObjectId(100 + 999));
    assert_eq!(s.enter(1, B, &[ObjectId(100 + 998)]), Turn::Ready);
    s.leave(1);
    s.locked(B, 1, X, Exclusive);
    assert_eq!(s.table.held(A, advisory(X)), None);
    assert_eq!(s.table.rows(Some(X), (ObjectId(0), 0), 9).list.len(), 1);
    let mut slices = 1;
    while s.table.sweep(s.now, 100) {
        slices += 1;
    }
    assert_eq!((slices, s.table.counts().held), (11, 2));
    assert_eq!(s.table.open(key(A), Owner::Server, PrincipalId::ANYBODY, true), A);
    assert_eq!(s.grant(A, X, Want::Shared).mode, Want::Shared, "the slot can be used by a new session");
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# What was parked MUST be dropped when the session ends.
#[test]
fn waits_and_mutations_of_an_ended_session_are_gone() {
    let mut s = Script::new();
    let b = s.locked(B, 1, X, Exclusive);
    s.queued(A, 1, X, Exclusive);
    s.queued(A, 2, X, Exclusive);
    s.queued(C, 1, X, Exclusive);
    assert_eq!(s.enter(1, A, &[Y]), Turn::Ready);
    assert_eq!(s.enter(2, C, &[Y]), Turn::Waiting);
    s.decisions();
    s.table.set_access(s.now, A, LockAccess::Ended);
    assert_eq!(s.decisions(), [ready(2)]);
    assert_eq!((s.table.waits(A), s.table.counts().waiters, s.table.counts().mutations), (0, 1, 1));
    s.give(B, advisory(X), b);
    assert_eq!(granted(&s.decisions()), [(C, 1)]);
}

#[test]
fn rescued_upgrade_is_told_of_the_deadlock_that_came_about_meanwhile() {
    let mut s = Script::new();
    let a = s.locked(A, 1, X, Shared);
    s.locked(B, 1, X, Shared);
    s.queued(A, 2, X, Exclusive);
    s.table.set_access(s.now, A, LockAccess::Suspended);
    assert_eq!(s.queued(B, 2, X, Exclusive), 0);
    s.decisions();
    s.table.set_access(s.now, A, LockAccess::Active);
    let decisions = s.decisions();
    assert!(
        decisions.contains(&LockDecision::WaitOver { session: key(A), nonce: 2, lock: advisory(X), status: Status::EDEADLK }),
        "{decisions:?}"
    );
    s.give(A, advisory(X), a);
    assert_eq!(granted(&s.decisions()), [(B, 2)]);
}

#[test]
fn session_that_held_nothing_is_forgotten_by_the_next_sweep() {
    let mut s = Script::new();
    s.table.set_access(s.now, A, LockAccess::Ended);
    s.table.set_access(s.now, A, LockAccess::Freed);
    assert!(!s.table.sweep(s.now, 1));
    assert_eq!(s.table.open(key(A), Owner::Server, PrincipalId::ANYBODY, true), A, "its slot is free");
}

#[test]
fn unknown_sessions_hold_nothing_and_get_nothing() {
    let mut s = Script::new();
    let stranger = LockSlot(77);
    assert_eq!(s.grant(stranger, X, Want::Shared), CacheGrant::NONE);
    assert_eq!(s.lock(stranger, 1, X, Shared, LockWait::Queue), LockOutcome::Busy);
    assert!(!s.table.is_waited_for(stranger) && s.table.waits(stranger) == 0);
    s.table.set_access(s.now, stranger, LockAccess::Suspended);
    s.table.set_access(s.now, stranger, LockAccess::Active);
    s.table.set_access(s.now, stranger, LockAccess::Ended);
    s.table.set_access(s.now, stranger, LockAccess::Freed);
    s.quiet();
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A session that is timing out MUST NOT hold up the grant of a lock that it does not hold.
#[test]
fn demands_to_a_session_timing_out_take_up_nobodys_place() {
    for ends in [false, true] {
        let mut s = Script::with(LockLimits { demands_outstanding: 1, ..LockLimits::default() });
        let a = s.shared(A, X);
        let c = s.shared(C, Y);
        s.pass(1_000);
        assert_eq!(s.enter(1, B, &[X]), Turn::Waiting);
        assert_eq!(s.enter(2, B, &[Y]), Turn::Waiting);
        assert_eq!(s.decisions(), [held_back(C), demand(A, cache(X), a, Keep::Nothing)]);
        if ends {
            s.table.set_access(s.now, A, LockAccess::Ended);
        } else {
            s.table.set_access(s.now, A, LockAccess::Suspended);
        }
        assert_eq!(s.decisions(), [demand(C, cache(Y), c, Keep::Nothing)]);
        s.table.on_not_held(s.now, C, cache(Y), c);
        assert_eq!(s.decisions(), [ready(2)]);
        s.leave(2);
        if !ends {
            s.table.set_access(s.now, A, LockAccess::Active);
            assert_eq!(s.table.counts().demands_outstanding, 1, "after a rescue its demand counts again");
            s.table.set_access(s.now, A, LockAccess::Ended);
        }
        s.table.set_access(s.now, A, LockAccess::Freed);
        s.table.sweep(s.now, 100);
        assert_eq!(s.decisions(), [ready(1)]);
        assert_eq!(s.table.counts().demands_outstanding, 0);
    }
}
