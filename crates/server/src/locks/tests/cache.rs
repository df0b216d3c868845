//! Claims about cache locks.

use super::super::{LockLimits, Turn};
use super::{A, B, C, Script, X, Y, cache, demand, held_back, ready};
use cistern_wire::{CacheGrant, Generation, Keep, LockId, Mode, ReleasedItem, Want};
use core::time::Duration;

#[test]
fn shared_cache_locks_stand_beside_each_other() {
    let mut s = Script::new();
    let (a, b) = (s.shared(A, X), s.shared(B, X));
    assert!(b > a);
    assert_eq!((s.table.held(A, cache(X)), s.table.held(B, cache(X))), (Some(a), Some(b)));
    s.quiet();
}

//= wire-spec.md#11-4-locks
//= type=test
//# A read MUST NOT wait for a cache lock.
#[test]
fn creator_gets_an_exclusive_lock_and_a_later_reader_makes_it_share() {
    let mut s = Script::new();
    let a = s.exclusive(A, X);
    assert_eq!(s.grant(B, X, Want::Shared), CacheGrant::NONE);
    assert_eq!(s.decisions(), [demand(A, cache(X), a, Keep::Shared)]);
    assert_eq!(s.grant(C, X, Want::Shared), CacheGrant::NONE);
    s.quiet();
    let released = s.release(A, cache(X), a, Keep::Shared);
    assert!(released.keep == Keep::Shared && released.now > a);
    s.shared(B, X);
    s.shared(A, X);
}

#[test]
fn exclusive_wish_is_met_as_far_as_others_allow() {
    let mut s = Script::new();
    s.shared(A, X);
    assert_eq!(s.grant(B, X, Want::Exclusive).mode, Want::Shared);
    assert_eq!(s.grant(B, Y, Want::Exclusive).mode, Want::Exclusive);
    assert_eq!(s.grant(B, Y, Want::Nothing), CacheGrant::NONE);
    s.quiet();
}

//= wire-spec.md#11-4-locks
//= type=test
//# Every grant, upgrade, downgrade and extension MUST have a generation larger than all given before.
#[test]
fn every_grant_to_the_same_session_has_a_new_generation() {
    let mut s = Script::new();
    let first = s.shared(A, X);
    let second = s.exclusive(A, X);
    let third = s.grant(A, X, Want::Shared);
    assert_eq!(third.mode, Want::Exclusive, "what is held is not taken away by asking for less");
    assert!(first < second && second < third.generation);
    assert_eq!(s.table.counts().held, 1);
}

//= wire-spec.md#11-4-locks
//= type=test
//# A release MUST act on no other generation than the one it names.
#[test]
fn release_acts_on_the_generation_that_it_names_and_on_no_other() {
    let mut s = Script::new();
    let old = s.shared(A, X);
    let new = s.shared(A, X);
    s.give(A, cache(X), old);
    assert_eq!(s.table.held(A, cache(X)), Some(new));
    s.give(B, cache(X), new);
    assert_eq!(s.table.held(A, cache(X)), Some(new), "another session's release");
    s.give(A, cache(X), new);
    s.give(A, cache(X), new);
    assert_eq!((s.table.held(A, cache(X)), s.table.counts().held), (None, 0));
}

//= wire-spec.md#11-4-locks
//= type=test
//# A repeated release MUST be answered as the first was.
//= wire-spec.md#11-4-locks
//= type=test
//# A release MUST act on no other generation than the one it names.
#[test]
fn repeated_downgrade_is_answered_alike_and_a_late_one_acts_on_nothing() {
    let mut s = Script::new();
    let x = s.exclusive(A, X);
    let released = s.release(A, cache(X), x, Keep::Shared);
    assert_eq!(s.release(A, cache(X), x, Keep::Shared), released);
    let again = s.exclusive(A, X);
    let nothing = ReleasedItem { lock: cache(X), generation: x, keep: Keep::Nothing, now: Generation(0) };
    assert_eq!(s.release(A, cache(X), x, Keep::Shared), nothing);
    assert_eq!(s.release(A, cache(X), x, Keep::Nothing), nothing);
    assert_eq!(s.table.held(A, cache(X)), Some(again), "the late copy does not make it shared");
    assert_eq!(s.grant(B, X, Want::Shared), CacheGrant::NONE);
}

#[test]
fn not_held_frees_every_generation_up_to_the_one_demanded() {
    let mut s = Script::new();
    let first = s.shared(A, X);
    let second = s.shared(A, X);
    s.table.on_not_held(s.now, A, cache(X), first);
    assert_eq!(s.table.held(A, cache(X)), Some(second), "a newer grant is on its way");
    s.table.on_not_held(s.now, A, cache(X), second);
    assert_eq!(s.table.held(A, cache(X)), None);
}

//= wire-spec.md#11-4-locks
//= type=test
//# Once a mutation waits for an object, the server MUST NOT grant a shared lock on it before.
#[test]
fn no_grant_while_a_mutation_waits_or_executes() {
    let mut s = Script::new();
    let a = s.shared(A, X);
    assert_eq!(s.enter(1, B, &[X]), Turn::Waiting);
    assert_eq!(s.decisions(), [demand(A, cache(X), a, Keep::Nothing)]);
    for session in [A, B, C] {
        assert_eq!(s.grant(session, X, Want::Shared), CacheGrant::NONE);
    }
    s.give(A, cache(X), a);
    assert_eq!(s.decisions(), [ready(1)]);
    assert_eq!(s.grant(A, X, Want::Shared), CacheGrant::NONE);
    s.leave(1);
    s.shared(A, X);
}

#[test]
fn what_is_demanded_is_not_granted_anew() {
    let mut s = Script::new();
    let a = s.exclusive(A, X);
    assert_eq!(s.grant(B, X, Want::Shared), CacheGrant::NONE);
    assert_eq!(s.grant(A, X, Want::Shared), CacheGrant::NONE);
    assert_eq!(s.table.held(A, cache(X)), Some(a));
}

//= wire-spec.md#8-2-limits-of-a-server
//= type=test
//# A bound MUST be met by a refusal or a demand, never by forgetting a lock, a session or a reply that is still owed.
#[test]
fn bounds_are_met_by_answers_without_a_grant() {
    let mut s = Script::with(LockLimits { locks_max: 3, locks_per_session: 2, ..LockLimits::default() });
    let first = s.shared(A, X);
    s.shared(A, Y);
    assert_eq!(s.grant(A, super::ObjectId(30), Want::Shared), CacheGrant::NONE);
    assert!(s.shared(A, X) > first, "no further lock is needed for that");
    s.shared(B, X);
    assert_eq!(s.grant(C, X, Want::Shared), CacheGrant::NONE);
    assert_eq!(s.table.counts().held, 3);
}

#[test]
fn nothing_is_granted_before_the_first_tokens_are_durable() {
    let mut s = Script::without_tokens(LockLimits::default());
    assert_eq!(s.grant(A, X, Want::Shared), CacheGrant::NONE);
    s.tokens();
    s.shared(A, X);
}

//= wire-spec.md#11-4-locks
//= type=test
//# An object whose cache locks are demanded more often than used SHOULD be given none for a while.
#[test]
fn object_demanded_again_and_again_before_use_gets_no_cache_locks_for_a_while() {
    let mut s =
        Script::with(LockLimits { hot_below: Duration::from_millis(50), cooling: Duration::from_millis(10), ..LockLimits::default() });
    let mut waits = 0;
    for task in 1..=3 {
        while s.grant(A, X, Want::Shared) == CacheGrant::NONE {
            s.pass(1);
            waits += 1;
        }
        let a = s.table.held(A, cache(X)).expect("just granted");
        assert_eq!(s.enter(task, B, &[X]), Turn::Waiting);
        s.give(A, cache(X), a);
        s.leave(task);
        s.decisions();
    }
    assert_eq!(waits, 10, "not after the first time, 10 ms after the second");
    assert_eq!(s.grant(A, X, Want::Shared), CacheGrant::NONE);
    s.pass(19);
    assert_eq!(s.grant(A, X, Want::Shared), CacheGrant::NONE, "20 ms after the third");
    s.pass(1);
    let a = s.shared(A, X);
    s.pass(50);
    assert_eq!(s.enter(9, B, &[X]), Turn::Waiting);
    s.give(A, cache(X), a);
    s.leave(9);
    s.shared(A, X);
}

//= wire-spec.md#11-4-locks
//= type=test
//# The server SHOULD space its demands and bound how many are not complied with.
#[test]
fn demands_beyond_the_bound_go_out_when_others_are_complied_with() {
    let mut s = Script::with(LockLimits { demands_outstanding: 1, ..LockLimits::default() });
    let (a, b) = (s.shared(A, X), s.shared(B, X));
    assert_eq!(s.enter(1, C, &[X]), Turn::Waiting);
    assert_eq!(s.decisions(), [held_back(B), demand(A, cache(X), a, Keep::Nothing)]);
    assert_eq!(s.table.counts().demands_outstanding, 1);
    s.give(A, cache(X), a);
    assert_eq!(s.decisions(), [demand(B, cache(X), b, Keep::Nothing)]);
    s.give(B, cache(X), b);
    assert_eq!(s.decisions(), [ready(1)]);
    assert_eq!((s.table.counts().demands_outstanding, s.table.counts().demands), (0, 2));
}

#[test]
fn a_stronger_demand_follows_a_weaker_one_and_no_demand_is_made_twice() {
    let mut s = Script::new();
    let a = s.exclusive(A, X);
    assert_eq!(s.grant(B, X, Want::Shared), CacheGrant::NONE);
    assert_eq!(s.decisions(), [demand(A, cache(X), a, Keep::Shared)]);
    assert_eq!(s.enter(1, B, &[X]), Turn::Waiting);
    assert_eq!(s.decisions(), [demand(A, cache(X), a, Keep::Nothing)]);
    assert_eq!(s.enter(2, C, &[X]), Turn::Waiting);
    s.quiet();
    assert_eq!(s.table.counts().demands_outstanding, 1, "both are about one lock");
}

#[test]
fn downgrade_that_crosses_a_stronger_demand_is_followed_by_a_demand_for_the_rest() {
    let mut s = Script::new();
    let a = s.exclusive(A, X);
    assert_eq!(s.enter(1, B, &[X]), Turn::Waiting);
    s.decisions();
    let kept = s.release(A, cache(X), a, Keep::Shared).now;
    assert_eq!(s.decisions(), [demand(A, cache(X), kept, Keep::Nothing)]);
    s.give(A, cache(X), kept);
    assert_eq!(s.decisions(), [ready(1)]);
}

#[test]
fn locks_of_one_object_and_of_two_classes_are_different_locks() {
    let mut s = Script::new();
    s.locked(A, 1, X, Mode::Exclusive);
    s.exclusive(B, X);
    assert_eq!(s.enter(1, B, &[X]), Turn::Waiting, "its own lock was not named");
    s.quiet_but_for_demand_of(cache(X));
}

impl Script {
    #[track_caller]
    fn quiet_but_for_demand_of(&mut self, lock: LockId) {
        let decisions = self.decisions();
        assert!(matches!(decisions[..], [super::LockDecision::Demand { lock: demanded, .. }] if demanded == lock), "{decisions:?}");
    }
}
