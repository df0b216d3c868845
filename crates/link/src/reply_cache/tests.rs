//! Every verdict of the cache, each beside the step before it.

use super::*;
use alloc::vec::Vec;

const BODY: u64 = 77;

#[test]
fn request_that_the_floor_has_passed_executes_until_it_ends() {
    let mut cache = ReplyCache::new(2);
    for nonce in 1..=3 {
        assert_eq!(cache.admit(nonce, nonce, BODY, &mut ReplyBuffers::default()), Admission::Fresh);
        cache.begin(nonce, BODY, nonce);
    }
    assert_eq!((cache.executing(), cache.len()), (3, 1), "the window bounds what is remembered, not what executes");
    assert_eq!(cache.finish(1, reply(1)), None);
    assert!(!cache.withdraw(2));
    assert_eq!(cache.finish(3, reply(3)), Some(3));
    assert_eq!(cache.executing(), 0);
}

fn reply(byte: u8) -> Stored {
    Stored::Bytes(ReplyBuffers::default().keep(&[byte; 3]))
}

/// A cache in which `nonce` was begun by packet 10.
fn begun(nonce: u64) -> ReplyCache {
    let mut cache = ReplyCache::new(64);
    assert_eq!(cache.admit(nonce, 1, BODY, &mut ReplyBuffers::default()), Admission::Fresh);
    cache.begin(nonce, BODY, 10);
    cache
}

//= wire-spec.md#11-2-delivery
//= type=test
//# The server MUST execute a request at most once, however often it arrives.
#[test]
fn duplicate_of_an_executing_request_is_not_executed_again() {
    let mut cache = begun(1);
    assert_eq!(cache.admit(1, 1, BODY, &mut ReplyBuffers::default()), Admission::Executing);
    assert_eq!(cache.fate(1), Fate::Unknown);
}

//= wire-spec.md#11-2-delivery
//= type=test
//# The server MUST keep the outcome of a nonce until the floor has passed it.
#[test]
fn duplicate_of_an_executed_request_gets_the_same_reply_errors_included() {
    let mut cache = begun(1);
    assert_eq!(cache.finish(1, reply(9)), Some(10));
    for _ in 0..3 {
        assert_eq!(cache.admit(1, 1, BODY, &mut ReplyBuffers::default()), Admission::Done(&reply(9)));
    }
    assert_eq!(cache.fate(1), Fate::Executed);
    assert_eq!((cache.stored(1), cache.stored_bytes()), (Some(&reply(9)), 3));
}

#[test]
fn big_read_is_marked_instead_of_kept() {
    let mut cache = begun(1);
    cache.finish(1, Stored::Recompute);
    assert_eq!(cache.admit(1, 1, BODY, &mut ReplyBuffers::default()), Admission::Done(&Stored::Recompute));
    assert_eq!(cache.stored_bytes(), 0);
}

#[test]
fn answer_echoes_the_newest_transmission_that_carried_the_request() {
    let mut cache = begun(1);
    cache.note_packet(1, 14);
    cache.note_packet(1, 12);
    assert_eq!(cache.newest_packet(1), Some(14));
    assert_eq!(cache.finish(1, reply(1)), Some(14));
    cache.note_packet(1, 20);
    assert_eq!(cache.newest_packet(1), None, "the echo was bound when the answer was produced");
}

#[test]
fn queued_request_is_retired_and_its_duplicate_is_told_so_again() {
    let mut cache = begun(1);
    assert_eq!(cache.queue(1), Some(10));
    assert_eq!(cache.admit(1, 1, BODY, &mut ReplyBuffers::default()), Admission::Queued);
    assert_eq!(cache.fate(1), Fate::Executed);
    assert_eq!(cache.admit(2, 2, BODY, &mut ReplyBuffers::default()), Admission::Fresh);
    assert_eq!(cache.admit(1, 1, BODY, &mut ReplyBuffers::default()), Admission::BelowFloor, "the agent moved on");
}

//= wire-spec.md#11-2-delivery
//= type=test
//# The server MUST NOT execute a request whose nonce is below the floor.
#[test]
fn nonce_below_the_floor_is_never_executed() {
    let mut cache = begun(1);
    cache.finish(1, reply(1));
    assert_eq!(cache.admit(2, 2, BODY, &mut ReplyBuffers::default()), Admission::Fresh);
    assert_eq!(cache.admit(1, 1, BODY, &mut ReplyBuffers::default()), Admission::BelowFloor);
    assert_eq!(cache.fate(1), Fate::Unknown, "forgotten");
    assert_eq!(cache.fence(1), Fate::Unknown, "too late to promise anything");
    assert_eq!(cache.admit(0, 0, BODY, &mut ReplyBuffers::default()), Admission::BelowFloor);
}

//= wire-spec.md#11-2-delivery
//= type=test
//# The server MUST keep the highest floor that was announced.
#[test]
fn floor_only_grows() {
    let mut cache = ReplyCache::new(8);
    assert_eq!(cache.admit(9, 8, BODY, &mut ReplyBuffers::default()), Admission::Fresh);
    assert_eq!(cache.admit(9, 3, BODY, &mut ReplyBuffers::default()), Admission::Fresh);
    assert_eq!(cache.floor(), 8);
    assert_eq!(cache.admit(7, 7, BODY, &mut ReplyBuffers::default()), Admission::BelowFloor);
}

//= wire-spec.md#11-2-delivery
//= type=test
//# The server MUST NOT execute a request whose nonce is the floor plus W or more.
#[test]
fn window_ends_at_floor_plus_w() {
    let mut cache = ReplyCache::new(4);
    assert_eq!(cache.admit(4, 1, BODY, &mut ReplyBuffers::default()), Admission::Fresh);
    assert_eq!(cache.admit(5, 1, BODY, &mut ReplyBuffers::default()), Admission::BeyondWindow);
    assert_eq!(cache.admit(5, 2, BODY, &mut ReplyBuffers::default()), Admission::Fresh);
    assert_eq!(cache.admit(u64::MAX, 2, BODY, &mut ReplyBuffers::default()), Admission::BeyondWindow);
    assert_eq!(cache.fence(u64::MAX), Fate::Unknown);
}

//= wire-spec.md#11-2-delivery
//= type=test
//# The server MUST NOT act on a message that announces a floor more than W above the one it keeps.
#[test]
fn floor_that_no_agent_can_have_changes_nothing() {
    let mut cache = ReplyCache::new(4);
    let mut buffers = ReplyBuffers::default();
    for (nonce, floor) in [(6, 6), (100_000, 100_000), (u64::MAX, u64::MAX), (u64::MAX, u64::MAX - 3)] {
        assert_eq!(cache.admit(nonce, floor, BODY, &mut buffers), Admission::Ahead);
        assert_eq!((cache.floor(), cache.admit(1, 1, BODY, &mut buffers)), (1, Admission::Fresh), "the session goes on");
    }
    assert_eq!(cache.admit(8, 5, BODY, &mut buffers), Admission::Fresh, "a whole window may have been answered");
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A request under a nonce first used for another request MUST NOT be executed, and is answered NONCE_REUSED.
#[test]
fn other_body_under_a_known_nonce_gets_no_reply_of_the_first() {
    let mut cache = begun(1);
    assert_eq!(cache.admit(1, 1, BODY + 1, &mut ReplyBuffers::default()), Admission::OtherBody);
    cache.finish(1, reply(1));
    assert_eq!(cache.admit(1, 1, BODY + 1, &mut ReplyBuffers::default()), Admission::OtherBody);
    assert_eq!(cache.admit(1, 1, BODY, &mut ReplyBuffers::default()), Admission::Done(&reply(1)));
}

#[test]
fn finishing_after_the_floor_passed_keeps_nothing() {
    let mut cache = begun(1);
    assert_eq!(cache.admit(2, 2, BODY, &mut ReplyBuffers::default()), Admission::Fresh);
    assert_eq!(cache.finish(1, reply(1)), None);
    assert_eq!((cache.len(), cache.stored_bytes()), (0, 0));
}

#[test]
fn refused_fresh_request_leaves_no_trace_and_may_come_again() {
    let mut cache = ReplyCache::new(4);
    assert_eq!(cache.admit(1, 1, BODY, &mut ReplyBuffers::default()), Admission::Fresh);
    assert!(cache.is_empty());
    assert_eq!(cache.admit(1, 1, BODY, &mut ReplyBuffers::default()), Admission::Fresh);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A request of which the server has said "not executed" MUST NOT be executed afterwards.
#[test]
fn fenced_nonce_is_never_executed_whenever_and_with_whatever_body_it_comes() {
    let mut cache = ReplyCache::new(64);
    assert_eq!(cache.fate(3), Fate::Unknown, "it may yet come");
    assert_eq!(cache.fence(3), Fate::NotExecuted);
    assert_eq!(cache.fence(3), Fate::NotExecuted);
    assert_eq!(cache.admit(3, 1, BODY, &mut ReplyBuffers::default()), Admission::Fenced);
    assert_eq!(cache.admit(3, 1, BODY + 1, &mut ReplyBuffers::default()), Admission::Fenced);
    assert_eq!(cache.admit(2, 1, BODY, &mut ReplyBuffers::default()), Admission::Fresh, "others are not touched");
}

#[test]
fn fence_does_not_undo_what_has_begun() {
    let mut cache = begun(1);
    assert_eq!(cache.fence(1), Fate::Unknown);
    cache.finish(1, reply(1));
    assert_eq!(cache.fence(1), Fate::Executed);
    assert_eq!(cache.admit(1, 1, BODY, &mut ReplyBuffers::default()), Admission::Done(&reply(1)));
}

#[test]
fn withdrawn_request_counts_as_not_executed() {
    let mut cache = begun(1);
    assert!(cache.withdraw(1));
    assert_eq!(cache.fate(1), Fate::NotExecuted);
    assert_eq!(cache.admit(1, 1, BODY, &mut ReplyBuffers::default()), Admission::Fenced);
}

#[test]
#[should_panic(expected = "executed twice")]
fn beginning_twice_is_a_broken_invariant() {
    begun(1).begin(1, BODY, 11);
}

#[test]
#[should_panic(expected = "executed twice")]
fn beginning_what_was_fenced_is_a_broken_invariant() {
    let mut cache = ReplyCache::new(4);
    cache.fence(1);
    cache.begin(1, BODY, 11);
}

#[test]
#[should_panic(expected = "not executing")]
fn finishing_twice_is_a_broken_invariant() {
    let mut cache = begun(1);
    cache.finish(1, reply(1));
    cache.finish(1, reply(2));
}

#[test]
fn idle_session_allocates_nothing_and_a_burst_is_given_back() {
    let mut cache = ReplyCache::new(64);
    assert_eq!(cache.slots.capacity(), 0);
    for nonce in 1..=64 {
        cache.begin(nonce, BODY, nonce);
        cache.finish(nonce, reply(0));
    }
    assert!(cache.slots.capacity() >= 64);
    for nonce in 65..65 + 5 * u64::from(CALM_MAX) {
        assert_eq!(cache.admit(nonce, nonce, BODY, &mut ReplyBuffers::default()), Admission::Fresh);
        cache.begin(nonce, BODY, nonce);
        cache.finish(nonce, reply(0));
    }
    assert!(cache.slots.capacity() <= 4);
    assert_eq!(cache.len(), 1);
}

#[test]
fn bursts_that_come_again_and_again_find_their_memory() {
    let mut cache = ReplyCache::new(64);
    let mut capacities = Vec::new();
    let mut nonce = 0;
    // Ever more bursts, each with some requests behind it that go out one by one.
    for (burst, single) in [(3, 0), (8, 2), (8, 0), (8, 20), (6, 1)].into_iter().cycle().take(500) {
        let floor = nonce + 1;
        for in_flight in (0..burst).chain(core::iter::repeat_n(0, single)) {
            nonce += 1;
            let floor = if in_flight == 0 { nonce } else { floor };
            assert_eq!(cache.admit(nonce, floor, BODY, &mut ReplyBuffers::default()), Admission::Fresh);
            cache.begin(nonce, BODY, nonce);
            cache.finish(nonce, reply(0));
        }
        capacities.push(cache.slots.capacity());
    }
    assert!(capacities[1..].iter().all(|capacity| *capacity == 8), "{capacities:?}");
}
