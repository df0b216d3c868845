//! What is answered from cache, and when it is not.

use super::bench::{Bench, at, attr, bytes, create, data, list, mkdir, names, put, read, stat, unlink};
use super::held;
use super::toy::Node;
use crate::api::{Command, OpError, Output, Target, Wait};
use crate::config::CacheLimits;
use alloc::collections::BTreeMap;
use alloc::format;
use cistern_wire::{Generation, Kind, Mode, ObjectId, Status};

const ENOENT: Result<Output, OpError> = Err(OpError::Status(Status::ENOENT));

/// `/d/f` with "hello", `/d/sub/`, `/link` → `d`.
fn bench() -> (Bench, [u64; 4]) {
    let mut bench = Bench::new();
    let space = &mut bench.toy.space;
    let d = space.plant(1, "d", Node::Dir(BTreeMap::new()));
    let f = space.plant(d, "f", Node::File(b"hello".to_vec()));
    let sub = space.plant(d, "sub", Node::Dir(BTreeMap::new()));
    let link = space.plant(1, "link", Node::Link(b"d".to_vec()));
    (bench, [d, f, sub, link])
}

#[test]
fn a_second_look_at_anything_sends_nothing() {
    let (mut bench, [d, f, ..]) = bench();
    for command in [stat("/d/f"), read("/d/f"), list("/d"), stat("/link/f"), Command::ReadLink { target: at("/link") }] {
        let first = bench.run(command.clone());
        let sent = bench.sent();
        assert_eq!(bench.cached(command.clone()), first, "{command:?}");
        assert_eq!(bench.sent(), sent);
        assert!(first.is_ok());
    }
    assert_eq!(attr(&bench.cached(stat("/d"))).object, ObjectId(d));
    assert_eq!(attr(&bench.cached(Command::Stat { target: Target::Object(ObjectId(f)), follow: true })).size, 5);
    assert_eq!(data(&bench.cached(Command::Read { target: at("/d/f"), offset: 1, length: Some(3) })), b"ell");
    assert_eq!(data(&bench.cached(Command::Read { target: at("/d/f"), offset: 9, length: None })), b"");
    assert!(bench.ops.hits() >= 9 && bench.ops.misses() == 4, "{} hits, {} misses", bench.ops.hits(), bench.ops.misses());
}

#[test]
fn a_path_is_walked_in_one_round_trip() {
    let (mut bench, _) = bench();
    assert_eq!(attr(&bench.run(stat("/d/f"))).size, 5);
    assert_eq!(bench.seen, [Kind::Lookup]);
}

#[test]
fn a_link_in_the_way_costs_one_more_round_trip_the_first_time() {
    let (mut bench, _) = bench();
    assert_eq!(attr(&bench.run(stat("/link/f"))).size, 5);
    assert_eq!(bench.seen, [Kind::Lookup, Kind::Lookup]);
    bench.cached(stat("/link/f")).unwrap();
}

#[test]
fn an_absent_name_is_remembered_as_absent() {
    let (mut bench, _) = bench();
    assert_eq!(bench.run(stat("/d/none")), ENOENT);
    assert_eq!(bench.cached(stat("/d/none")), ENOENT);
    assert_eq!(bench.cached(read("/d/none/deeper")), ENOENT);
    assert!(matches!(bench.submit(stat("/d/other")), crate::api::Submitted::Later(_)), "nothing was said of other names");
}

#[test]
fn a_complete_listing_answers_for_every_name() {
    let (mut bench, [d, ..]) = bench();
    for n in 0..25 {
        bench.toy.space.plant(d, &format!("n{n:02}"), Node::File(b"x".to_vec()));
    }
    let listed = bench.run(list("/d"));
    assert_eq!(names(&listed).len(), 27);
    assert_eq!(bench.seen.iter().filter(|kind| **kind == Kind::ReadDir).count(), 3);
    assert_eq!(bench.cached(stat("/d/none")), ENOENT);
    // The name is known, the object's attributes are not: only they are asked for.
    bench.seen.clear();
    bench.run(stat("/d/n07")).unwrap();
    assert_eq!(bench.seen, [Kind::GetAttr]);
    bench.cached(stat("/d/n07")).unwrap();
}

#[test]
fn a_listing_with_attributes_answers_for_the_attributes_of_every_entry() {
    let (mut bench, [d, f, ..]) = bench();
    let command = Command::List { target: at("/d"), detail: true };
    let listed = bench.run(command.clone());
    assert_eq!(bench.cached(command.clone()), listed);
    assert_eq!(attr(&bench.cached(stat("/d/f"))).object, ObjectId(f));
    bench.others(&[f], |_| ());
    let again = bench.run(command);
    assert_ne!(again, listed, "one entry had changed");
    assert_eq!(attr(&bench.cached(list("/d"))).object, ObjectId(d));
}

#[test]
fn a_demand_drops_what_it_covers_and_nothing_else() {
    let (mut bench, [d, f, ..]) = bench();
    bench.run(read("/d/f")).unwrap();
    bench.run(list("/d")).unwrap();
    bench.others(&[f], |toy| toy.space.objects.get_mut(&f).unwrap().node = Node::File(b"HELLO".to_vec()));
    bench.cached(list("/d")).unwrap();
    bench.seen.clear();
    assert_eq!(data(&bench.run(read("/d/f"))), b"HELLO");
    assert_eq!(bench.seen, [Kind::Read], "the path is still known");
    bench.others(&[d], |toy| toy.space.plant(d, "new", Node::File(b"".to_vec())));
    assert_eq!(names(&bench.run(list("/d"))), ["f", "new", "sub"]);
}

#[test]
fn what_came_without_a_lock_is_not_cached() {
    let (mut bench, [_, f, ..]) = bench();
    bench.toy.ungranted.insert(f);
    for _ in 0..3 {
        bench.seen.clear();
        assert_eq!(data(&bench.run(read("/d/f"))), b"hello");
        assert_eq!(bench.seen.last(), Some(&Kind::Read));
    }
    bench.toy.grants = false;
    let (mut bare, _) = self::bench();
    bare.toy.grants = false;
    for _ in 0..3 {
        bare.seen.clear();
        bare.run(list("/link")).unwrap();
        assert_eq!(bare.seen, [Kind::Lookup, Kind::Lookup, Kind::ReadDir]);
    }
    assert_eq!(bare.cache.used(), (0, 0));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The agent MUST NOT cache data under a generation that it does not hold.
//= wire-spec.md#11-4-locks
//= type=test
//# An operation that waits for the server or another lock MUST NOT keep a cache lock from being given back.
#[test]
fn an_answer_whose_lock_was_demanded_meanwhile_is_told_and_not_kept() {
    let (mut bench, [_, f, ..]) = bench();
    bench.run(stat("/d/f")).unwrap();
    let op = bench.start(read("/d/f"));
    let answer = bench.execute();
    bench.others(&[f], |toy| toy.space.objects.get_mut(&f).unwrap().node = Node::File(b"HELLO".to_vec()));
    bench.deliver(&answer);
    assert_eq!(data(&bench.ended(op).unwrap()), b"hello", "it was right when it was read");
    assert_eq!(data(&bench.run(read("/d/f"))), b"HELLO");
}

//= wire-spec.md#11-1-lease
//= type=test
//# The agent MUST check the end of its lease at each use of a lock or of the cache.
//= wire-spec.md#11-1-lease
//= type=test
//# From *suspect* on the agent MUST NOT start an operation under the lease, nor grant a lock locally.
#[test]
fn without_a_lease_that_lets_operations_start_the_server_is_asked() {
    let (mut bench, _) = bench();
    bench.run(stat("/d/f")).unwrap();
    let (suspect, over) = held::suspect_and_over();
    bench.now = suspect;
    bench.seen.clear();
    bench.run(stat("/d/f")).unwrap();
    assert_eq!(bench.seen.len(), 1, "suspect: nothing starts under the lease (section 11.1)");
    bench.now = over;
    bench.run(stat("/d/f")).unwrap();
    assert_eq!(bench.seen.len(), 2);
    held::renew(&mut bench.lease, over);
    bench.cached(stat("/d/f")).unwrap();
}

//= wire-spec.md#11-1-lease
//= type=test
//# An operation still running when the lease ends MUST fail, and its result MUST NOT be given out as valid.
#[test]
fn a_walk_that_began_under_the_lease_does_not_end_on_its_cache_when_it_is_over() {
    let (mut bench, _) = bench();
    bench.run(list("/")).unwrap();
    let op = bench.start(stat("/d/f"));
    bench.now = held::suspect_and_over().1;
    bench.pump();
    assert_eq!(attr(&bench.ended(op).unwrap()).size, 5);
    assert_eq!(bench.seen[1..], [Kind::Lookup, Kind::Lookup], "from `/d` first, then the whole path by the server");
}

#[test]
fn a_lock_that_becomes_shared_keeps_what_is_known() {
    let (mut bench, _) = bench();
    let made = attr(&bench.run(create("/d/made"))).object;
    let from = bench.toy.held[&made.0];
    held::downgrade(&mut bench.cache, made, from);
    bench.cached(stat("/d/made")).unwrap();
    held::downgraded(&mut bench.cache, made, from, from + 1);
    bench.cached(stat("/d/made")).unwrap();
    assert_eq!(bench.cache.generation(made), Some(Generation(from + 1)));
}

#[test]
fn a_lock_that_the_agent_was_granted_is_taken_again_without_a_message() {
    let (mut bench, [_, f, ..]) = bench();
    let lock = Command::Lock { target: at("/link/f"), mode: Mode::Exclusive, wait: Wait::Forever };
    let op = bench.start(lock.clone());
    bench.pump();
    assert_eq!(bench.ended(op), None, "the path was walked; now it is a matter of the locks");
    let granted = held::grant(&mut bench.locks, bench.lease.permit(held::NOW), ObjectId(f), 5_000);
    assert_eq!(granted.map(|(to, locked)| (to, locked.object, locked.token)), Some((op, ObjectId(f), 5_000)));
    held::unlock(&mut bench.locks, bench.lease.permit(held::NOW), granted.unwrap().1.holder);
    match bench.cached(lock) {
        Ok(Output::Locked(locked)) => assert_eq!((locked.object, locked.token), (ObjectId(f), 5_001)),
        other => panic!("not granted: {other:?}"),
    }
    assert_eq!(bench.ops.running().count(), 0);
}

#[test]
fn nothing_survives_the_session() {
    let (mut bench, _) = bench();
    bench.run(list("/d")).unwrap();
    bench.end_session();
    assert_eq!(bench.cache.used(), (0, 0));
    bench.seen.clear();
    bench.run(list("/d")).unwrap();
    assert_eq!(bench.seen, [Kind::Lookup, Kind::ReadDir]);
}

#[test]
fn what_an_agent_writes_it_knows() {
    let (mut bench, _) = bench();
    bench.run(mkdir("/new")).unwrap();
    assert_eq!(names(&bench.cached(list("/new"))), [""; 0], "a new directory is known to be empty");
    bench.run(create("/new/empty")).unwrap();
    assert_eq!(data(&bench.cached(read("/new/empty"))), b"");
    bench.run(put("/new/file", b"contents")).unwrap();
    assert_eq!(data(&bench.cached(read("/new/file"))), b"contents");
    let link = Command::Symlink { path: bytes("/new/link"), points_to: bytes("file"), owner: super::bench::OWNER };
    bench.run(link).unwrap();
    assert_eq!(data(&bench.cached(read("/new/link"))), b"contents");
    assert_eq!(names(&bench.cached(list("/new"))), ["empty", "file", "link"]);
    bench.run(unlink("/new/empty")).unwrap();
    assert_eq!(bench.cached(stat("/new/empty")), ENOENT);
    assert_eq!(names(&bench.cached(list("/new"))), ["file", "link"]);
}

#[test]
fn the_maker_of_a_file_writes_it_without_losing_a_lock() {
    let (mut bench, _) = bench();
    bench.run(list("/d")).unwrap();
    bench.seen.clear();
    bench.run(put("/d/made", b"one")).unwrap();
    assert_eq!(bench.seen, [Kind::Create, Kind::Write], "the listing says that the name is free");
    assert_eq!(data(&bench.cached(read("/d/made"))), b"one");
    assert_eq!(names(&bench.cached(list("/d"))), ["f", "made", "sub"]);
}

#[test]
fn bounds_hold_and_what_is_used_goes_last() {
    let mut bench = Bench::with_limits(CacheLimits { objects: 8, bytes: 1 << 20 });
    for n in 0..20 {
        bench.toy.space.plant(1, &format!("f{n:02}"), Node::File(b"x".to_vec()));
    }
    for n in 0..20 {
        bench.run(stat(&format!("/f{n:02}"))).unwrap();
        assert!(bench.cache.used().0 <= 8);
    }
    for n in 13..20 {
        bench.cached(stat(&format!("/f{n:02}"))).unwrap();
    }
    assert!(bench.cache.len() <= 8, "the locks of those that went were given back");
    // All were used, so any may go.
    assert!(bench.cache.make_room());
    bench.run(stat("/f19")).unwrap();
    for _ in 0..5 {
        bench.cached(stat("/f19")).expect("what is used stays");
        assert!(bench.cache.make_room());
    }
}

#[test]
fn contents_do_not_outgrow_their_bound() {
    let mut bench = Bench::with_limits(CacheLimits { objects: 1_000, bytes: 100_000 });
    bench.toy.page = 60_000;
    for n in 0..10 {
        bench.toy.space.plant(1, &format!("f{n}"), Node::File(alloc::vec![n; 30_000]));
    }
    for n in 0..10 {
        assert_eq!(data(&bench.run(read(&format!("/f{n}")))).len(), 30_000);
        assert!(bench.cache.used().1 <= 100_000);
    }
    bench.cached(read("/f9")).unwrap();
    bench.cached(read("/f8")).unwrap();
}

#[test]
fn a_dropped_object_does_not_come_back_older_than_it_was() {
    let (mut bench, [_, f, ..]) = bench();
    bench.toy.regrants = false;
    bench.run(stat("/d/f")).unwrap();
    let slow = bench.start(read("/d/f"));
    let old = bench.execute();
    bench.run(put("/d/f", b"newer")).unwrap();
    // The cache is full for a moment: the file's state goes, but its lock is not given back yet.
    bench.cache.drop_state(ObjectId(f));
    bench.deliver(&old);
    assert_eq!(data(&bench.ended(slow).unwrap()), b"hello");
    assert_eq!(data(&bench.run(read("/d/f"))), b"newer");
}
