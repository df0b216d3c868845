//! Contents and listings that need several messages: all of one version, many pages at once, written once and whole.

use super::bench::{Bench, OWNER, at, attr, data, list, names, put, read, stat};
use super::toy::{Node, decode};
use crate::api::{Command, OpError, OpId, Target};
use crate::call::{Answer, TaskId};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{Failed, Kind, Message, ObjectId, Reply, Status};

const MIB: usize = 1 << 20;

/// Bytes in which no two pages are alike.
fn pattern(length: usize) -> Vec<u8> {
    (0_u32..).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).take(length).collect()
}

fn bench(contents: &[u8]) -> (Bench, u64) {
    let mut bench = Bench::new();
    bench.toy.page = 1_100;
    let f = bench.toy.space.plant(1, "f", Node::File(contents.to_vec()));
    (bench, f)
}

#[test]
fn a_mebibyte_is_read_with_many_pages_on_their_way_at_once() {
    let contents = pattern(MIB);
    let (mut bench, _) = bench(&contents);
    let op = bench.start(read("/f"));
    let mut most = 0;
    while !bench.out.is_empty() {
        most = most.max(bench.out.len());
        // The newest request overtakes all others.
        bench.out.rotate_right(1);
        let answer = bench.execute();
        bench.deliver(&answer);
    }
    assert_eq!(data(&bench.ended(op).unwrap()), contents);
    assert_eq!(most, 32);
    assert_eq!(bench.seen.iter().filter(|kind| **kind == Kind::Read).count(), MIB.div_ceil(1_100));
    assert_eq!(data(&bench.cached(read("/f"))), contents);
    let some = Command::Read { target: at("/f"), offset: 77_777, length: Some(100_000) };
    assert_eq!(data(&bench.cached(some)), &contents[77_777..177_777]);
}

#[test]
fn a_part_is_read_as_a_part_and_known_as_a_part() {
    let contents = pattern(10_000);
    let (mut bench, _) = bench(&contents);
    let part = |offset, length| Command::Read { target: at("/f"), offset, length };
    assert_eq!(data(&bench.run(part(2_000, Some(5_000)))), &contents[2_000..7_000]);
    assert_eq!(data(&bench.cached(part(3_000, Some(4_000)))), &contents[3_000..7_000]);
    assert_eq!(data(&bench.run(part(6_500, None))), &contents[6_500..]);
    assert_eq!(data(&bench.cached(part(2_500, None))), &contents[2_500..], "gathered from two readings");
    assert_eq!(data(&bench.run(part(10_000, None))), b"");
    assert_eq!(data(&bench.run(part(0, Some(0)))), b"");
}

#[test]
fn pages_shorter_than_asked_for_are_completed() {
    let contents = pattern(20_000);
    let (mut bench, _) = bench(&contents);
    let op = bench.start(read("/f"));
    let mut sizes = [1_100, 700, 300, 1_100, 5].into_iter().cycle();
    while !bench.out.is_empty() {
        bench.toy.page = sizes.next().unwrap();
        let answer = bench.execute();
        bench.deliver(&answer);
    }
    assert_eq!(data(&bench.ended(op).unwrap()), contents);
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# A read that needs several pages MUST give its user pages of one version only.
#[test]
fn a_file_that_changes_between_pages_is_read_again_whole() {
    let (mut bench, f) = bench(&pattern(50_000));
    let op = bench.start(read("/f"));
    for _ in 0..10 {
        let answer = bench.execute();
        bench.deliver(&answer);
    }
    let newer: Vec<u8> = pattern(30_000).into_iter().rev().collect();
    bench.others(&[f], |toy| {
        let object = toy.space.objects.get_mut(&f).unwrap();
        object.node = Node::File(newer.clone());
        object.attr.size = 30_000;
    });
    bench.pump();
    let read_back = bench.ended(op).unwrap();
    assert_eq!(data(&read_back), newer);
    assert_eq!(attr(&read_back).version, bench.toy.space.objects[&f].attr.version);
    assert_eq!(data(&bench.cached(read("/f"))), newer);
}

#[test]
fn a_file_that_never_holds_still_is_an_error_that_says_so() {
    let (mut bench, f) = bench(&pattern(5_000));
    let op = bench.start(read("/f"));
    while !bench.out.is_empty() {
        let answer = bench.execute();
        bench.deliver(&answer);
        bench.others(&[f], |_| ());
    }
    assert_eq!(bench.ended(op), Some(Err(OpError::Status(Status::VERSION_CHANGED))));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# A read that needs several pages MUST give its user pages of one version only.
#[test]
fn a_directory_that_changes_between_pages_is_listed_again_whole() {
    let mut bench = Bench::new();
    let d = bench.toy.space.plant(1, "d", Node::Dir(BTreeMap::new()));
    for n in 0..30 {
        bench.toy.space.plant(d, &format!("n{n:02}"), Node::File(Vec::new()));
    }
    let op = bench.start(list("/d"));
    for _ in 0..3 {
        let answer = bench.execute();
        bench.deliver(&answer);
    }
    bench.others(&[d], |toy| toy.space.plant(d, "a", Node::File(Vec::new())));
    bench.pump();
    let listed = bench.ended(op).unwrap();
    assert_eq!((names(&listed).len(), names(&listed)[0]), (31, "a"));
    assert_eq!(bench.cached(list("/d")), listed);
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The agent MUST NOT call a name absent from cache unless it read the directory whole under one generation or cached that very answer
//# under it.
#[test]
fn a_listing_whose_lock_was_lost_between_pages_is_told_but_not_called_complete() {
    let mut bench = Bench::new();
    let d = bench.toy.space.plant(1, "d", Node::Dir(BTreeMap::new()));
    for n in 0..30 {
        bench.toy.space.plant(d, &format!("n{n:02}"), Node::File(Vec::new()));
    }
    bench.toy.ungranted.insert(d);
    let op = bench.start(list("/d"));
    for _ in 0..3 {
        let answer = bench.execute();
        bench.deliver(&answer);
    }
    bench.toy.ungranted.clear();
    bench.pump();
    assert_eq!(names(&bench.ended(op).unwrap()).len(), 30);
    bench.seen.clear();
    assert_eq!(bench.run(stat("/d/none")), Err(OpError::Status(Status::ENOENT)));
    assert_eq!(bench.seen, [Kind::Lookup]);
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# Contents and values of several datagrams MUST be staged, and take effect whole by one mutation.
#[test]
fn a_mebibyte_is_staged_in_pieces_and_written_once() {
    let contents = pattern(MIB);
    let (mut bench, _) = bench(b"");
    let op = bench.start(put("/g", &contents));
    let mut most = 0;
    while !bench.out.is_empty() {
        most = most.max(bench.out.len());
        assert!(bench.out.iter().all(|sent| sent.message.len() <= 1_232 - 20 - 16), "every message fits its datagram");
        bench.out.rotate_right(1);
        let answer = bench.execute();
        bench.deliver(&answer);
    }
    bench.ended(op).unwrap().unwrap();
    assert_eq!(most, 32);
    let count = |wanted| bench.seen.iter().filter(|kind| **kind == wanted).count();
    assert_eq!((count(Kind::Stage), count(Kind::Write), count(Kind::Create)), (MIB.div_ceil(1_162), 1, 1));
    assert_eq!(bench.seen.last(), Some(&Kind::Write));
    assert_eq!(data(&bench.cached(read("/g"))), contents);
    let g = attr(&bench.cached(stat("/g"))).object.0;
    assert_eq!(bench.toy.space.objects[&g].node, Node::File(contents));
}

#[test]
fn what_fits_one_datagram_is_not_staged() {
    let (mut bench, _) = bench(b"");
    bench.run(stat("/f")).unwrap();
    for (size, kinds) in [(0, 1), (1_116, 1), (1_117, 2)] {
        bench.seen.clear();
        bench.run(put("/f", &pattern(size))).unwrap();
        assert_eq!(bench.seen.len(), kinds, "{size} bytes");
    }
    bench.ops.set_datagram(548);
    bench.seen.clear();
    bench.run(put("/f", &pattern(1_000))).unwrap();
    assert_eq!(bench.seen, [Kind::Stage, Kind::Stage, Kind::Stage, Kind::Write]);
}

#[test]
fn contents_that_were_dropped_from_the_stage_are_staged_again() {
    let contents = pattern(5_000);
    let (mut bench, _) = bench(b"");
    bench.run(stat("/f")).unwrap();
    bench.seen.clear();
    let op = bench.start(put("/f", &contents));
    while !matches!(decode(&bench.out[0].message), Message::Write(_)) {
        let answer = bench.execute();
        bench.deliver(&answer);
    }
    bench.toy.stages.clear();
    bench.pump();
    bench.ended(op).unwrap().unwrap();
    assert_eq!(bench.seen.iter().filter(|kind| **kind == Kind::Write).count(), 2);
    assert_eq!(data(&bench.cached(read("/f"))), contents);
}

/// A command that writes to `/f` what takes five pieces, after so many of them.
fn staged(bench: &mut Bench, until: usize) -> OpId {
    bench.run(stat("/f")).unwrap();
    bench.seen.clear();
    let op = bench.start(put("/f", &pattern(5_000)));
    for _ in 0..until {
        let answer = bench.execute();
        bench.deliver(&answer);
    }
    op
}

#[test]
fn what_was_staged_for_a_command_that_is_given_up_is_ended() {
    let (mut bench, _) = bench(b"");
    let op = staged(&mut bench, 3);
    assert_eq!(bench.toy.stages.len(), 1);
    bench.out.clear();
    bench.with(|ops, ctx| ops.give_up(ctx, TaskId(op.0), OpError::TimedOut));
    bench.pump();
    assert_eq!((bench.ended(op), bench.toy.stages.len()), (Some(Err(OpError::TimedOut)), 0));
}

#[test]
fn what_was_staged_for_a_mutation_that_is_out_is_left_to_it() {
    let (mut bench, _) = bench(b"");
    let op = staged(&mut bench, 5);
    assert!(matches!(decode(&bench.out[0].message), Message::Write(_)));
    bench.with(|ops, ctx| ops.give_up(ctx, TaskId(op.0), OpError::TimedOut));
    bench.pump();
    assert_eq!((bench.ended(op), bench.seen.last()), (Some(Err(OpError::OutcomeUnknown)), Some(&Kind::Write)));
    // One whose WRITE met a bound, and would be asked again, is not.
    let op = staged(&mut bench, 5);
    bench.answer_next(&Answer::Reply(Reply::Failed(Failed { status: Status::BUSY, retry_ms: 10 })));
    bench.with(|ops, ctx| ops.give_up(ctx, TaskId(op.0), OpError::TimedOut));
    bench.pump();
    assert_eq!((bench.ended(op), bench.seen.last()), (Some(Err(OpError::TimedOut)), Some(&Kind::Stage)));
}

#[test]
fn a_server_that_keeps_no_stage_is_an_error_that_says_so() {
    let (mut bench, _) = bench(b"");
    bench.run(stat("/f")).unwrap();
    let op = bench.start(put("/f", &pattern(5_000)));
    while !bench.out.is_empty() {
        bench.toy.stages.clear();
        let answer = bench.execute();
        bench.deliver(&answer);
    }
    assert_eq!(bench.ended(op), Some(Err(OpError::Status(Status::NOT_STAGED))));
}

#[test]
fn contents_beyond_a_mebibyte_are_refused_at_once() {
    let (mut bench, f) = bench(b"");
    bench.run(stat("/f")).unwrap();
    let too_far =
        Command::Write { target: Target::Object(ObjectId(f)), offset: MIB as u64, data: Bytes::from_static(b"x"), truncate: false };
    let too_much = Command::Put { path: Bytes::from_static(b"/f"), data: Bytes::from(alloc::vec![0; MIB + 1]), owner: OWNER };
    assert_eq!(bench.cached(too_far), Err(OpError::Status(Status::EFBIG)));
    assert_eq!(bench.cached(too_much), Err(OpError::Status(Status::EFBIG)));
}

#[test]
fn kinds_that_have_no_contents_are_refused() {
    let (mut bench, f) = bench(b"x");
    bench.run(list("/")).unwrap();
    assert_eq!(bench.cached(read("/")), Err(OpError::Status(Status::EISDIR)));
    assert_eq!(bench.cached(list("/f")), Err(OpError::Status(Status::ENOTDIR)));
    assert_eq!(bench.cached(Command::ReadLink { target: at("/f") }), Err(OpError::Status(Status::EINVAL)));
    let by_number = Command::Read { target: Target::Object(ObjectId(1)), offset: 0, length: None };
    assert_eq!(bench.cached(by_number), Err(OpError::Status(Status::EISDIR)));
    let gone = Command::Read { target: Target::Object(ObjectId(f + 7)), offset: 0, length: None };
    assert_eq!(bench.run(gone), Err(OpError::Status(Status::ESTALE)));
    assert_eq!(bench.seen.iter().filter(|kind| **kind == Kind::Read).count(), 1, "a number leads nowhere else");
}
