//! The cache against its claims: what is installed, what is evicted, what a demand takes away.

use super::*;
use crate::config::CacheLimits;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::Want;

const X: ObjectId = ObjectId(7);

fn attr(object: u64, version: u64) -> Attr {
    Attr { object: ObjectId(object), version, ..Attr::FILE }
}

fn grant(generation: u64) -> CacheGrant {
    CacheGrant { mode: Want::Shared, generation: Generation(generation) }
}

/// The cache of a session in which a request is always out, so that nothing refused is forgotten.
fn open(limits: CacheLimits) -> Cache {
    let mut cache = Cache::new(limits);
    cache.session_opened();
    cache.awaited(1, 2);
    cache
}

/// X at version 5 under lock 10, with contents.
fn cache() -> Cache {
    let mut cache = open(CacheLimits::default());
    assert!(cache.install(&attr(7, 5), grant(10), None));
    cache.fill(X, 5, |body| *body = Body::Link(Bytes::from_static(b"body")));
    cache
}

fn version(cache: &mut Cache) -> Option<u64> {
    cache.get(X).map(|cached| cached.attr.version)
}

fn has_body(cache: &mut Cache) -> bool {
    cache.get(X).is_some_and(|cached| matches!(cached.body, Body::Link(_)))
}

fn released(cache: &mut Cache) -> Vec<(u64, u64)> {
    core::iter::from_fn(|| cache.poll_release()).map(|item| (item.lock.object.0, item.generation.0)).collect()
}

fn demand(cache: &mut Cache, up_to: u64) -> ReceiptAnswer {
    cache.demanded(X, Generation(up_to), Keep::Nothing)
}

fn effect(object: u64, before: u64, version: u64, generation: u64) -> Effect {
    Effect { before, attr: attr(object, version), grant: grant(generation) }
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The agent MUST NOT replace cached state of an object by state of an older version.
#[test]
fn an_older_version_never_replaces_a_newer_one() {
    let mut cache = cache();
    assert!(!cache.install(&attr(7, 4), grant(11), None));
    assert_eq!(version(&mut cache), Some(5), "the lock was not broken, so what is cached is current under the new grant");
    assert!(has_body(&mut cache));
    cache.fill(X, 4, |body| *body = Body::Unknown);
    assert!(has_body(&mut cache), "a body of an older version is not taken");
}

#[test]
fn a_newer_version_drops_the_body_of_the_older_one() {
    let mut cache = cache();
    let bytes = cache.bytes;
    assert!(cache.install(&attr(7, 6), CacheGrant::NONE, Some(Generation(10))));
    assert_eq!((version(&mut cache), has_body(&mut cache), cache.bytes), (Some(6), false, bytes - 4));
}

#[test]
fn the_same_version_keeps_its_body_only_under_an_unbroken_lock() {
    let mut unbroken = cache();
    assert!(unbroken.install(&attr(7, 5), grant(11), None));
    assert!(has_body(&mut unbroken));
    let mut broken = cache();
    assert_eq!(demand(&mut broken, 10), ReceiptAnswer::Received);
    assert!(broken.install(&attr(7, 5), grant(11), None));
    assert!(!has_body(&mut broken));
}

#[test]
fn an_answer_counts_under_its_grant_or_under_the_lock_that_was_held_all_the_time() {
    let mut cache = cache();
    assert!(!cache.install(&attr(7, 6), CacheGrant::NONE, None), "no lock was held when it was asked for");
    assert!(!cache.install(&attr(7, 6), CacheGrant::NONE, Some(Generation(9))), "another lock was");
    assert!(!cache.install(&attr(7, 6), grant(9), None), "a newer one is held than it brings");
    assert!(!cache.install(&attr(8, 6), CacheGrant::NONE, Some(Generation(9))), "none is held");
    assert_eq!((version(&mut cache), cache.len()), (Some(5), 1));
    cache.session_over();
    assert!(!cache.install(&attr(7, 6), grant(11), None), "there is no session");
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The agent MUST apply an effect to its cache only to the version `before`, and else drop what it has of the object.
#[test]
fn a_change_is_applied_to_the_state_it_was_made_on_and_to_no_other() {
    let append = |body: &mut Body| {
        *body = match body {
            Body::Link(_) => Body::Link(Bytes::from_static(b"changed")),
            _ => Body::Unknown,
        }
    };
    let mut same = cache();
    same.update(&effect(7, 5, 6, 10), None, append);
    assert!(has_body(&mut same));
    let mut other = cache();
    other.update(&effect(7, 8, 9, 10), None, append);
    assert_eq!((version(&mut other), has_body(&mut other)), (Some(9), false));
    other.update(&effect(7, 5, 6, 10), None, append);
    assert_eq!(version(&mut other), Some(9), "its answer was overtaken");
    assert_eq!(other.bytes, OBJECT_COST);
}

#[test]
fn fences_are_counted_per_object() {
    let mut cache = cache();
    cache.fence(&[X, ObjectId(8)]);
    cache.fence(&[X]);
    cache.unfence(&[X, ObjectId(8)]);
    assert_eq!(version(&mut cache), None);
    cache.unfence(&[X]);
    assert_eq!(version(&mut cache), Some(5));
    cache.unfence(&[X]);
    assert_eq!(version(&mut cache), Some(5), "one too many is no matter");
}

#[test]
fn a_dropped_object_comes_back_only_as_new_as_it_was() {
    let mut cache = cache();
    cache.drop_state(X);
    assert_eq!((cache.unused.len(), cache.bytes), (1, 0));
    assert!(!cache.install(&attr(7, 4), grant(10), None));
    assert!(cache.install(&attr(7, 5), grant(10), None));
    assert!(cache.unused.is_empty(), "its lock is of use again");
}

#[test]
fn of_an_object_that_has_changed_nothing_older_comes_back_under_the_same_lock() {
    let mut cache = cache();
    cache.drop_changed(X);
    assert!(!cache.install(&attr(7, 5), grant(10), None), "an answer that the change has overtaken");
    assert!(cache.install(&attr(7, 6), grant(10), None));
    cache.drop_changed(X);
    demand(&mut cache, 10);
    assert!(cache.install(&attr(7, 6), grant(12), None), "it did not change after all, as a new lock says");
}

//= wire-spec.md#11-4-locks
//= type=test
//# An agent that answered "not held" to a demand for g, or released g, MUST NOT install a grant of that lock of generation g or less in
//# that session.
#[test]
fn what_was_refused_or_given_back_is_not_installed_while_a_request_could_bring_it() {
    let mut cache = cache();
    assert_eq!(demand(&mut cache, 12), ReceiptAnswer::NotHeld, "it overtook its grant");
    assert_eq!((version(&mut cache), released(&mut cache)), (None, vec![]));
    assert!(!cache.install(&attr(7, 6), grant(12), None));
    assert!(cache.install(&attr(7, 6), grant(13), None));
    assert_eq!(demand(&mut cache, 12), ReceiptAnswer::NotHeld, "a newer one is held");
    assert_eq!(version(&mut cache), Some(6));
    cache.awaited(1, 9);
    cache.release(X);
    assert_eq!(released(&mut cache), [(7, 13)]);
    cache.awaited(8, 9);
    assert!(!cache.install(&attr(7, 6), grant(13), None), "a request that was out then is still awaited");
    cache.awaited(9, 9);
    assert!(cache.install(&attr(7, 6), grant(13), None));
}

#[test]
fn a_downgrade_keeps_what_is_known_until_it_is_answered_otherwise() {
    let mut cache = cache();
    let exclusive = CacheGrant { mode: Want::Exclusive, generation: Generation(11) };
    assert!(cache.install(&attr(7, 5), exclusive, None));
    for _ in 0..2 {
        assert_eq!(cache.demanded(X, Generation(11), Keep::Shared), ReceiptAnswer::Received);
    }
    assert_eq!(released(&mut cache), [(7, 11)], "said once");
    assert!(cache.reclaim_item(X).is_none(), "it is being converted");
    let answer = |now| ReleasedItem { lock: cache_lock(X), generation: Generation(11), keep: Keep::Shared, now: Generation(now) };
    cache.released(&answer(14));
    assert_eq!((version(&mut cache), has_body(&mut cache), cache.generation(X)), (Some(5), true, Some(Generation(14))));
    assert_eq!(cache.reclaim_item(X).map(|item| (item.mode, item.generation.0, item.version)), Some((Mode::Shared, 14, 5)));
    cache.released(&answer(15));
    assert_eq!(cache.generation(X), Some(Generation(14)), "what is said of an older generation");
    let mut unknown = self::cache();
    assert!(unknown.install(&attr(7, 5), exclusive, None));
    unknown.demanded(X, Generation(11), Keep::Shared);
    unknown.released(&answer(0));
    assert_eq!((version(&mut unknown), unknown.len()), (None, 0), "the server knows nothing of the lock that was to be kept");
}

#[test]
fn a_lock_given_back_leaves_nothing_behind() {
    let mut cache = cache();
    demand(&mut cache, 10);
    assert_eq!((released(&mut cache), cache.used(), cache.unused.len(), cache.len()), (vec![(7, 10)], (0, 0), 0, 0));
}

#[test]
fn eviction_takes_the_first_that_was_not_used_and_spares_what_is_fenced() {
    let mut cache = open(CacheLimits { objects: 3, bytes: usize::MAX });
    for n in 1..=3 {
        assert!(cache.install(&attr(n, 1), grant(n), None));
    }
    assert!(cache.get(ObjectId(1)).is_some());
    cache.fence(&[ObjectId(2)]);
    assert!(cache.install(&attr(4, 1), grant(4), None));
    assert_eq!(released(&mut cache), [(3, 3)]);
    while cache.make_room() {}
    assert_eq!(released(&mut cache), [(1, 1), (4, 4)]);
    cache.unfence(&[ObjectId(2)]);
    assert!(cache.make_room());
    assert_eq!((released(&mut cache), cache.bytes), (vec![(2, 2)], 0));
}

#[test]
fn a_grant_for_which_there_is_no_room_goes_back() {
    let mut cache = open(CacheLimits { objects: 1, bytes: usize::MAX });
    assert!(cache.install(&attr(1, 1), grant(1), None));
    cache.fence(&[ObjectId(1)]);
    assert!(!cache.install(&attr(2, 1), grant(2), None));
    assert_eq!((released(&mut cache), cache.len()), (vec![(2, 2)], 1));
}

#[test]
fn what_is_larger_than_the_cache_is_not_kept() {
    let mut cache = open(CacheLimits { objects: 10, bytes: 1_000 });
    assert!(cache.install(&attr(7, 1), grant(1), None));
    cache.fill(X, 1, |body| {
        let mut contents = Contents::default();
        contents.learn(0, Bytes::from(vec![0; 2_000]));
        *body = Body::File(contents);
    });
    assert_eq!((cache.used(), cache.unused.len()), ((0, 0), 1));
}

#[test]
fn a_newer_state_elsewhere_makes_the_cached_one_outdated() {
    let mut cache = cache();
    cache.update(&effect(7, 4, 5, 0), None, |_| ());
    assert_eq!(version(&mut cache), Some(5));
    cache.update(&effect(7, 5, 6, 0), None, |_| ());
    assert_eq!(version(&mut cache), None);
    let gone = Effect { attr: Attr { nlink: 0, ..attr(7, 7) }, ..effect(7, 6, 7, 12) };
    cache.update(&gone, None, |_| ());
    cache.release_unused();
    assert_eq!(released(&mut cache), [(7, 12)], "a lock on what nobody can name any more is of no use");
}

#[test]
fn a_session_that_ended_leaves_nothing_behind() {
    let mut cache = cache();
    cache.fence(&[X]);
    cache.session_over();
    cache.session_opened();
    assert!(cache.install(&attr(7, 1), grant(2), None));
    assert_eq!(version(&mut cache), Some(1));
}
