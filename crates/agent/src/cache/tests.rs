//! The cache against its claims: what is installed, what is evicted, what a demand takes away.

use super::*;
use alloc::vec;
use cistern_wire::ObjectKind;

const X: ObjectId = ObjectId(7);

fn attr(object: u64, version: u64) -> Attr {
    Attr {
        object: ObjectId(object),
        version,
        kind: ObjectKind::File,
        mode: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        owner: cistern_wire::Handle(0),
    }
}

fn hold(before: u64, now: u64) -> Hold {
    Hold { before: Some(Generation(before)), now: Generation(now) }
}

fn fresh(now: u64) -> Hold {
    Hold { before: None, now: Generation(now) }
}

fn version(cache: &mut Cache, held: u64) -> Option<u64> {
    cache.get(X, Some(Generation(held))).map(|cached| cached.attr.version)
}

/// X at version 5 under lock 10, with contents.
fn cache() -> Cache {
    let mut cache = Cache::new(CacheLimits::default());
    assert!(cache.install(&attr(7, 5), fresh(10)));
    assert!(cache.fill(X, 5, |body| *body = Body::Link(Bytes::from_static(b"body"))));
    cache
}

fn has_body(cache: &mut Cache, held: u64) -> bool {
    cache.get(X, Some(Generation(held))).is_some_and(|cached| matches!(cached.body, Body::Link(_)))
}

#[test]
fn state_is_answered_only_under_the_lock_it_was_installed_under() {
    let mut cache = cache();
    assert_eq!((version(&mut cache, 10), version(&mut cache, 11)), (Some(5), None));
    assert!(cache.get(X, None).is_none());
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The agent MUST NOT replace cached state of an object by state of an older version.
#[test]
fn an_older_version_never_replaces_a_newer_one() {
    let mut cache = cache();
    assert!(!cache.install(&attr(7, 4), hold(10, 11)));
    assert_eq!(version(&mut cache, 11), Some(5), "the lock was not broken, so what is cached is current under the new grant");
    assert!(has_body(&mut cache, 11));
    assert!(!cache.fill(X, 4, |body| *body = Body::Unknown), "a body of an older version");
    assert!(has_body(&mut cache, 11));
}

#[test]
fn an_older_answer_under_a_lock_that_was_broken_makes_nothing_usable() {
    let mut cache = cache();
    assert!(!cache.install(&attr(7, 4), fresh(12)));
    assert_eq!((version(&mut cache, 12), version(&mut cache, 10)), (None, Some(5)));
}

#[test]
fn a_newer_version_drops_the_body_of_the_older_one() {
    let mut cache = cache();
    let bytes = cache.bytes();
    assert!(cache.install(&attr(7, 6), hold(10, 10)));
    assert_eq!(version(&mut cache, 10), Some(6));
    assert!(!has_body(&mut cache, 10));
    assert_eq!(cache.bytes(), bytes - 4);
}

#[test]
fn the_same_version_keeps_its_body_only_under_an_unbroken_lock() {
    let mut unbroken = cache();
    assert!(unbroken.install(&attr(7, 5), hold(10, 11)));
    assert!(has_body(&mut unbroken, 11));
    let mut broken = cache();
    assert!(broken.install(&attr(7, 5), fresh(11)));
    assert!(!has_body(&mut broken, 11));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The agent MUST apply an effect to its cache only where it has the version `before`, and else drop what it has of the object.
#[test]
fn a_change_is_applied_to_the_state_it_was_made_on_and_to_no_other() {
    let append = |body: &mut Body| {
        *body = match body {
            Body::Link(_) => Body::Link(Bytes::from_static(b"changed")),
            _ => Body::Unknown,
        }
    };
    let mut same = cache();
    same.update(5, &attr(7, 6), hold(10, 10), append);
    assert!(has_body(&mut same, 10));
    let mut other = cache();
    other.update(8, &attr(7, 9), hold(10, 10), append);
    assert_eq!((version(&mut other, 10), has_body(&mut other, 10)), (Some(9), false));
    other.update(5, &attr(7, 6), hold(10, 10), append);
    assert_eq!(version(&mut other, 10), Some(9), "its answer was overtaken");
    assert_eq!(other.bytes(), OBJECT_COST);
}

#[test]
fn suspensions_are_counted_per_object() {
    let mut cache = cache();
    cache.suspend(&[X, ObjectId(8)]);
    cache.suspend(&[X]);
    cache.resume(&[X, ObjectId(8)]);
    assert_eq!(version(&mut cache, 10), None);
    cache.resume(&[X]);
    assert_eq!(version(&mut cache, 10), Some(5));
    cache.resume(&[X]);
    assert_eq!(version(&mut cache, 10), Some(5), "one too many is no matter");
}

#[test]
fn a_dropped_object_comes_back_only_as_new_as_it_was() {
    let mut cache = cache();
    cache.drop_object(X);
    assert_eq!((cache.unwanted(), cache.bytes()), (1, 0));
    assert!(!cache.install(&attr(7, 4), hold(10, 10)));
    assert!(cache.install(&attr(7, 5), hold(10, 10)));
    assert_eq!(cache.unwanted(), 0, "its lock is of use again");
}

#[test]
fn of_an_object_that_has_changed_nothing_older_comes_back_under_the_same_lock() {
    let mut cache = cache();
    cache.drop_changed(X);
    assert!(!cache.install(&attr(7, 5), hold(10, 10)), "an answer that the change has overtaken");
    assert!(cache.install(&attr(7, 6), hold(10, 10)));
    cache.drop_changed(X);
    cache.revoke(X, Keep::Nothing);
    assert!(cache.install(&attr(7, 6), fresh(12)), "it did not change after all, as a new lock says");
}

#[test]
fn a_lock_given_back_leaves_nothing_behind() {
    let mut cache = cache();
    cache.revoke(X, Keep::Shared);
    assert_eq!(version(&mut cache, 10), Some(5));
    cache.carry(X, Generation(10), Generation(11));
    assert_eq!(version(&mut cache, 11), Some(5));
    cache.carry(X, Generation(10), Generation(12));
    assert_eq!(version(&mut cache, 11), Some(5), "what was said of an older generation");
    cache.revoke(X, Keep::Nothing);
    assert_eq!((cache.objects(), cache.bytes(), cache.unwanted()), (0, 0, 0));
}

#[test]
fn eviction_takes_the_least_used_first_and_spares_what_is_suspended() {
    let mut cache = Cache::new(CacheLimits { objects: 3, bytes: usize::MAX });
    for n in 1..=3 {
        assert!(cache.install(&attr(n, 1), fresh(n)));
    }
    assert!(cache.get(ObjectId(1), Some(Generation(1))).is_some());
    cache.suspend(&[ObjectId(2)]);
    assert!(cache.install(&attr(4, 1), fresh(4)));
    assert_eq!(cache.release_candidates(1), [ObjectId(3)]);
    assert_eq!(cache.release_candidates(9), [ObjectId(1), ObjectId(4)]);
    cache.resume(&[ObjectId(2)]);
    assert_eq!(cache.release_candidates(9), [ObjectId(2)]);
    assert_eq!(cache.bytes(), 0);
}

#[test]
fn what_is_larger_than_the_cache_is_not_kept() {
    let mut cache = Cache::new(CacheLimits { objects: 10, bytes: 1_000 });
    assert!(cache.install(&attr(7, 1), fresh(1)));
    cache.fill(X, 1, |body| {
        let mut contents = Contents::default();
        contents.learn(0, Bytes::from(vec![0; 2_000]));
        *body = Body::File(contents);
    });
    assert_eq!((cache.objects(), cache.bytes(), cache.unwanted()), (0, 0, 1));
}

#[test]
fn a_newer_state_elsewhere_makes_the_cached_one_outdated() {
    let mut cache = cache();
    cache.outdated(X, 5);
    assert_eq!(version(&mut cache, 10), Some(5));
    cache.outdated(X, 6);
    assert_eq!(version(&mut cache, 10), None);
    cache.gone(X, 7, true);
    assert_eq!(cache.release_candidates(1), [X]);
}

#[test]
fn a_session_that_ended_leaves_no_suspension_behind() {
    let mut cache = cache();
    cache.suspend(&[X]);
    cache.discard();
    assert!(cache.install(&attr(7, 1), fresh(2)));
    assert_eq!(version(&mut cache, 2), Some(1));
}
