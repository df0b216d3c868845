//! Claims about the turns of mutations.

use super::super::{LOOKED_AT, LockAccess, LockLimits, Turn};
use super::{A, B, C, Generation, Script, X, Y, cache, demand, ready};
use cistern_wire::{CacheGrant, Keep, ObjectId, Want};

#[test]
fn mutation_on_objects_that_nobody_caches_is_ready_at_once() {
    let mut s = Script::new();
    assert_eq!(s.enter(1, A, &[X, Y]), Turn::Ready);
    assert_eq!(s.table.counts().mutations, 1);
    s.leave(1);
    assert_eq!(s.table.counts().mutations, 0);
    s.quiet();
}

//= wire-spec.md#11-4-locks
//= type=test
//# A mutation MUST NOT be executed while its own session holds a cache lock on an affected object, unless `held` names its generation.
//= wire-spec.md#11-4-locks
//= type=test
//# The server MUST demand every cache lock that keeps a mutation waiting.
#[test]
fn requester_keeps_the_locks_that_it_names_and_gives_back_the_others() {
    let mut s = Script::new();
    let (x, y) = (s.exclusive(A, X), s.exclusive(A, Y));
    assert_eq!(s.enter_holding(1, A, &[X, Y], &[(X, x), (Y, y)]), Turn::Ready);
    s.leave(1);
    assert_eq!(s.enter_holding(2, A, &[X, Y], &[(X, x)]), Turn::Waiting);
    assert_eq!(s.decisions(), [demand(A, cache(Y), y, Keep::Nothing)]);
    s.give(A, cache(Y), y);
    assert_eq!(s.decisions(), [ready(2)]);
    assert_eq!(s.table.held(A, cache(X)), Some(x));
}

#[test]
fn naming_an_older_generation_suspends_nothing() {
    let mut s = Script::new();
    let old = s.shared(A, X);
    let new = s.shared(A, X);
    assert_eq!(s.enter_holding(1, A, &[X], &[(X, old)]), Turn::Waiting);
    assert_eq!(s.decisions(), [demand(A, cache(X), new, Keep::Nothing)]);
}

//= wire-spec.md#11-4-locks
//= type=test
//# A mutation MUST NOT be executed while another session holds a cache lock on an object that it affects.
//= wire-spec.md#11-4-locks
//= type=test
//# The server MUST demand every cache lock that keeps a mutation waiting.
#[test]
fn mutations_of_one_object_take_turns_in_order_of_arrival() {
    let mut s = Script::new();
    let c = s.shared(C, X);
    assert_eq!((s.enter(1, A, &[X]), s.enter(2, B, &[X]), s.enter(3, A, &[X])), (Turn::Waiting, Turn::Waiting, Turn::Waiting));
    assert_eq!(s.decisions(), [demand(C, cache(X), c, Keep::Nothing)]);
    s.give(C, cache(X), c);
    for task in 1..=3 {
        assert_eq!(s.decisions(), [ready(task)]);
        s.leave(task);
    }
    s.quiet();
}

//= wire-spec.md#11-4-locks
//= type=test
//# A mutation of several objects MUST take its places in all their queues at once, in order of arrival.
#[test]
fn crossing_renames_do_not_wait_for_each_other() {
    let mut s = Script::new();
    let (x, y) = (s.shared(C, X), s.shared(C, Y));
    assert_eq!(s.enter(1, A, &[X, Y]), Turn::Waiting);
    assert_eq!(s.enter(2, B, &[Y, X]), Turn::Waiting);
    s.decisions();
    s.give(C, cache(Y), y);
    s.quiet();
    s.give(C, cache(X), x);
    assert_eq!(s.decisions(), [ready(1)]);
    s.leave(1);
    assert_eq!(s.decisions(), [ready(2)]);
}

#[test]
fn mutation_that_waits_does_not_delay_one_of_another_object() {
    let mut s = Script::new();
    s.shared(C, X);
    assert_eq!(s.enter(1, A, &[X]), Turn::Waiting);
    assert_eq!(s.enter(2, B, &[Y]), Turn::Ready);
}

#[test]
fn changed_plan_keeps_its_place_in_order_of_arrival() {
    let mut s = Script::new();
    let x = s.shared(C, X);
    assert_eq!(s.enter(1, A, &[X]), Turn::Waiting);
    assert_eq!(s.enter(2, B, &[Y]), Turn::Ready);
    s.decisions();
    assert_eq!(s.enter(3, B, &[Y]), Turn::Waiting);
    s.give(C, cache(X), x);
    assert_eq!(s.decisions(), [ready(1)]);
    assert_eq!(s.enter(1, A, &[X, Y]), Turn::Waiting, "2 executes");
    s.leave(2);
    assert_eq!(s.decisions(), [ready(1)], "before 3, which came later");
    s.leave(1);
    assert_eq!(s.decisions(), [ready(3)]);
}

//= wire-spec.md#11-4-locks
//= type=test
//# A mutation of several objects MUST take its places in all their queues at once, in order of arrival.
#[test]
fn two_mutations_whose_plans_grow_into_each_other_do_not_deadlock() {
    let mut s = Script::new();
    assert_eq!((s.enter(1, A, &[X]), s.enter(2, B, &[Y])), (Turn::Ready, Turn::Ready));
    assert_eq!(s.enter(1, A, &[X, Y]), Turn::Waiting);
    assert_eq!(s.enter(2, B, &[Y, X]), Turn::Waiting);
    assert_eq!(s.decisions(), [ready(1)]);
    s.leave(1);
    assert_eq!(s.decisions(), [ready(2)]);
}

#[test]
fn entering_again_with_the_same_plan_is_ready_again_and_says_so_once() {
    let mut s = Script::new();
    let x = s.shared(C, X);
    assert_eq!(s.enter(1, A, &[X]), Turn::Waiting);
    s.give(C, cache(X), x);
    assert_eq!(s.enter(1, A, &[X]), Turn::Ready, "before the caller heard of it");
    s.quiet();
}

#[test]
fn shrunk_plan_lets_others_come() {
    let mut s = Script::new();
    assert_eq!(s.enter(1, A, &[X, Y]), Turn::Ready);
    assert_eq!(s.enter(2, B, &[Y]), Turn::Waiting);
    assert_eq!(s.enter(1, A, &[X]), Turn::Ready);
    assert_eq!(s.decisions(), [ready(2)]);
}

#[test]
fn mutation_that_affects_nothing_needs_no_turn() {
    let mut s = Script::new();
    s.exclusive(C, X);
    assert_eq!(s.enter(1, A, &[]), Turn::Ready);
    s.leave(1);
    s.leave(1);
    s.quiet();
}

#[test]
fn grants_of_a_mutation_come_only_if_nobody_waits_behind_it() {
    let mut s = Script::new();
    assert_eq!(s.enter(1, A, &[X]), Turn::Ready);
    assert_eq!(s.enter(2, B, &[X]), Turn::Waiting);
    s.leave(1);
    assert_eq!(s.grant(A, X, Want::Exclusive), CacheGrant::NONE);
    assert_eq!(s.decisions(), [ready(2)]);
    s.leave(2);
    s.exclusive(B, X);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A session that is timing out MUST NOT hold up the grant of a lock that it does not hold.
#[test]
fn session_timing_out_delays_nobody_with_its_mutations_and_everybody_with_its_locks() {
    let mut s = Script::new();
    let y = s.shared(A, Y);
    let x = s.shared(C, X);
    assert_eq!((s.enter(1, A, &[X]), s.enter(2, B, &[X]), s.enter(3, B, &[Y])), (Turn::Waiting, Turn::Waiting, Turn::Waiting));
    assert_eq!(s.decisions(), [demand(C, cache(X), x, Keep::Nothing), demand(A, cache(Y), y, Keep::Nothing)]);
    s.table.set_access(s.now, A, LockAccess::Suspended);
    s.give(C, cache(X), x);
    assert_eq!(s.decisions(), [ready(2)], "not 1, which stands before it");
    s.leave(2);
    s.shared(B, X);
    s.quiet();
}

#[test]
fn rescued_session_has_its_places_again() {
    let mut s = Script::new();
    assert_eq!(s.enter(1, A, &[X]), Turn::Ready);
    s.table.set_access(s.now, A, LockAccess::Suspended);
    let b = s.shared(B, X);
    s.table.set_access(s.now, A, LockAccess::Active);
    assert_eq!(s.decisions(), [demand(B, cache(X), b, Keep::Nothing)]);
    assert_eq!(s.enter(2, B, &[X]), Turn::Waiting);
    assert_eq!(s.decisions(), []);
    s.give(B, cache(X), b);
    assert_eq!(s.decisions(), [ready(1)]);
}

#[test]
fn turn_that_came_before_the_session_failed_is_not_announced_after() {
    let mut s = Script::new();
    let x = s.shared(C, X);
    assert_eq!(s.enter(1, A, &[X]), Turn::Waiting);
    s.decisions();
    s.give(C, cache(X), x);
    s.table.set_access(s.now, A, LockAccess::Suspended);
    s.quiet();
    s.table.set_access(s.now, A, LockAccess::Active);
    assert_eq!(s.decisions(), [ready(1)]);
}

#[test]
fn too_many_mutations_of_one_object_are_refused_and_those_that_wait_keep_their_places() {
    let mut s = Script::with(LockLimits { mutations_per_object: 2, ..LockLimits::default() });
    let x = s.shared(C, X);
    assert_eq!((s.enter(1, A, &[X]), s.enter(2, B, &[X])), (Turn::Waiting, Turn::Waiting));
    assert_eq!(s.enter(3, B, &[X, Y]), Turn::Busy);
    assert_eq!(s.enter(4, B, &[Y]), Turn::Ready);
    assert_eq!(s.enter(1, A, &[X]), Turn::Waiting);
    s.decisions();
    s.give(C, cache(X), x);
    assert_eq!(s.decisions(), [ready(1)]);
}

#[test]
fn somebody_waits_for_the_holder_until_it_complied() {
    let mut s = Script::new();
    let a = s.shared(A, X);
    assert!(!s.table.is_waited_for(A));
    assert_eq!(s.enter(1, B, &[X]), Turn::Waiting);
    assert!(s.table.is_waited_for(A) && !s.table.is_waited_for(B));
    s.leave(1);
    assert!(!s.table.is_waited_for(A), "the demand stands, but nobody waits");
    assert_eq!(s.enter(2, B, &[X]), Turn::Waiting);
    s.give(A, cache(X), a);
    assert!(!s.table.is_waited_for(A));
    assert_eq!(s.table.held(A, cache(X)), None::<Generation>);
}

#[test]
fn who_keeps_many_locks_that_it_was_asked_for_is_not_looked_through() {
    let mut s = Script::new();
    for n in 1..=LOOKED_AT as u64 + 1 {
        assert!(!s.table.is_waited_for(A), "nobody waits for the {} that it keeps", n - 1);
        s.shared(A, ObjectId(n));
        assert_eq!(s.enter(n, B, &[ObjectId(n)]), Turn::Waiting);
        s.leave(n);
        s.decisions();
    }
    assert!(s.table.is_waited_for(A), "one more than are looked at");
}
