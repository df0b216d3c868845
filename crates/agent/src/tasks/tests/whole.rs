//! Claims about batches, extended attributes and expected versions: what is suspended, what is staged, what is asked again.

use super::bench::{Bench, OWNER, at, attr, bytes, create, list, mkdir, put, read, stat, unlink};
use super::toy::decode;
use crate::api::{AttrChange, Command, Guard, OpError, OpId, Output, Submitted};
use crate::call::Answer;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{
    BatchFailed, Batched, Bytes8, Bytes16, Changed, Done, Effect, Expect, Failed, Fate, Generation, Item, ItemResult, Kind, List, Message,
    ObjectId, Reply, Status, Xattr, XattrNames, XattrRule,
};

/// Two files and a directory, all in the cache; their numbers.
fn bench() -> (Bench, [u64; 3]) {
    let mut bench = Bench::new();
    bench.run(mkdir("/d")).unwrap();
    bench.run(put("/d/f", b"text")).unwrap();
    bench.run(put("/g", b"more")).unwrap();
    let numbers = ["/d", "/d/f", "/g"].map(|path| attr(&bench.run(stat(path))).object.0);
    bench.run(list("/")).unwrap();
    bench.run(list("/d")).unwrap();
    bench.seen.clear();
    (bench, numbers)
}

fn write(path: &str, data: &[u8]) -> Command {
    Command::Write { target: at(path), offset: 0, data: Bytes::copy_from_slice(data), truncate: true }
}

fn set(path: &str, value: &[u8]) -> Command {
    let (name, value) = (bytes("user.a"), Bytes::copy_from_slice(value));
    Command::SetXattr { target: at(path), follow: true, name, value, rule: XattrRule::Any }
}

fn batch(items: Vec<Command>) -> Command {
    Command::Batch { items }
}

fn is_later(submitted: &Submitted) -> bool {
    matches!(submitted, Submitted::Later(_))
}

fn done(bench: &mut Bench, op: OpId, results: &[ItemResult]) {
    bench.answer_next(&Answer::Reply(Reply::Batched(Batched { items: List::of(results) })));
    assert_eq!(bench.ended(op), Some(Ok(Output::Batched(results.to_vec()))));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# From the first transmission of a mutation until it cannot be under way any more, the agent MUST answer nothing from cache about the
//# objects affected.
#[test]
fn a_batch_suspends_all_that_it_may_change_and_nothing_of_it_is_believed_afterwards() {
    let (mut bench, [d, f, g]) = bench();
    let op = bench.start(batch(vec![write("/g", b"new"), unlink("/d/f")]));
    let Message::Batch(message) = decode(&bench.out[0].message) else { panic!("a BATCH") };
    let mut held: Vec<u64> = message.terms.held.iter().map(|held| held.object.0).collect();
    held.sort_unstable();
    let mut expected = vec![d, f, g];
    expected.sort_unstable();
    assert_eq!((held, message.items.len(), bench.out[0].mutation), (expected, 2, true));
    for command in [read("/g"), stat("/d/f"), list("/d")] {
        assert!(is_later(&bench.submit(command.clone())), "{command:?}");
    }
    bench.cached(list("/")).unwrap();
    let results = [ItemResult { object: ObjectId(g), version: 9 }, ItemResult { object: ObjectId(f), version: 0 }];
    done(&mut bench, op, &results);
    bench.out.clear();
    assert!(is_later(&bench.submit(read("/g"))), "what it is now must be asked");
    assert!(is_later(&bench.submit(list("/d"))));
}

#[test]
fn a_batch_that_failed_leaves_the_cache_as_it_was() {
    let (mut bench, _) = bench();
    let op = bench.start(batch(vec![write("/g", b"new"), create("/d/f")]));
    bench.answer_next(&Answer::Reply(Reply::BatchFailed(BatchFailed { status: Status::EEXIST, item: 1 })));
    assert_eq!(bench.ended(op), Some(Err(OpError::Item { item: 1, status: Status::EEXIST })));
    bench.cached(read("/g")).unwrap();
    bench.cached(list("/d")).unwrap();
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A caller whose mutation ended so MUST be told that the outcome is not known.
#[test]
fn a_batch_of_which_nothing_is_known_is_not_sent_again() {
    let (mut bench, _) = bench();
    let op = bench.start(batch(vec![write("/g", b"new")]));
    bench.answer_next(&Answer::SessionEnded(Fate::Unknown));
    assert_eq!(bench.ended(op), Some(Err(OpError::OutcomeUnknown)));
    assert!(bench.out.is_empty());
}

#[test]
fn items_name_what_items_before_them_make_and_need_no_walk() {
    let (mut bench, _) = bench();
    bench.start(batch(vec![mkdir("/d/new"), create("/d/new/x"), write("/d/new/x", b"x"), set("/d/new", b"v")]));
    let Message::Batch(message) = decode(&bench.out[0].message) else { panic!("a BATCH, and no LOOKUP before it") };
    let items: Vec<Item<'_>> = message.items.iter().collect();
    let [Item::Mkdir(_), Item::Create(x), Item::Write(text), Item::SetXattr(value)] = items[..] else { panic!("{items:?}") };
    assert_eq!((x.dir, text.object, value.object), (ObjectId::made_by(0), ObjectId::made_by(1), ObjectId::made_by(0)));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# Contents and values of several datagrams MUST be staged, and take effect whole by one mutation.
#[test]
fn the_largest_values_are_staged_until_the_rest_fits_one_message() {
    let (mut bench, [_, f, g]) = bench();
    let op = bench.start(batch(vec![write("/g", &[1; 600]), set("/g", &[2; 3_000]), write("/d/f", &[3; 500])]));
    let done_piece = Answer::Reply(Reply::Done(Done {}));
    let mut pieces = 0;
    while decode(&bench.out[0].message).kind() == Kind::Stage {
        bench.answer_next(&done_piece);
        pieces += 1;
    }
    assert_eq!(pieces, 4, "3,000 bytes in three pieces, 600 in one");
    let Message::Batch(message) = decode(&bench.out[0].message) else { panic!("a BATCH") };
    let items: Vec<Item<'_>> = message.items.iter().collect();
    let [Item::Write(large), Item::SetXattr(value), Item::Write(small)] = items[..] else { panic!("{items:?}") };
    assert!(large.stage > 0 && value.stage > 0 && large.stage != value.stage && small.stage == 0);
    assert_eq!((large.data.0, value.data.0, small.data.0), (&b""[..], &b""[..], &[3; 500][..]));
    // The server has forgotten a stage: all is staged anew.
    bench.answer_next(&Answer::Reply(Reply::BatchFailed(BatchFailed { status: Status::NOT_STAGED, item: 1 })));
    assert_eq!(decode(&bench.out[0].message).kind(), Kind::Stage);
    while decode(&bench.out[0].message).kind() == Kind::Stage {
        bench.answer_next(&done_piece);
    }
    let results = [(g, 9), (g, 9), (f, 9)].map(|(object, version)| ItemResult { object: ObjectId(object), version });
    done(&mut bench, op, &results);
}

#[test]
fn batches_that_need_more_stages_together_than_a_session_has_do_not_block_each_other() {
    let (mut bench, [_, _, g]) = bench();
    let five = || batch((0..5).map(|n| set("/g", &[n; 2_000])).collect());
    let ops = [bench.start(five()), bench.start(five())];
    let result = ItemResult { object: ObjectId(g), version: 9 };
    let mut staged = BTreeSet::new();
    while let Some(next) = bench.out.front() {
        match decode(&next.message) {
            Message::Stage(piece) => {
                staged.insert(piece.stage);
                assert!(staged.len() <= 8, "a server with room for eight would leave both waiting for ever");
                bench.answer_next(&Answer::Reply(Reply::Done(Done {})));
            }
            Message::Batch(_) => {
                staged.clear();
                bench.answer_next(&Answer::Reply(Reply::Batched(Batched { items: List::of(&[result; 5]) })));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(ops.into_iter().all(|op| bench.ended(op).unwrap().is_ok()));
}

#[test]
fn what_is_expected_goes_with_the_first_change_of_a_command() {
    let (mut bench, [_, f, g]) = bench();
    let expect = vec![Expect { object: ObjectId(f), version: 4 }];
    let expecting = |command| Command::Expecting { guard: None, expect: expect.clone(), command: Box::new(command) };
    bench.start(expecting(write("/g", b"x")));
    let Message::Write(message) = decode(&bench.out[0].message) else { panic!("a WRITE") };
    assert!(message.terms.expect.iter().eq(expect.iter().copied()) && message.object == ObjectId(g));
    bench.out.clear();
    let op = bench.start(expecting(put("/new", b"x")));
    let Message::Create(message) = decode(&bench.out[0].message) else { panic!("a CREATE") };
    assert_eq!(message.terms.expect.len(), 1);
    let made = bench.execute();
    bench.deliver(&made);
    let Message::Write(message) = decode(&bench.out[0].message) else { panic!("a WRITE") };
    assert!(message.terms.expect.is_empty(), "what it expected was so, and it has changed things since");
    bench.pump();
    assert!(bench.ended(op).is_some_and(|result| result.is_ok()));
    let refused = [expecting(read("/g")), expecting(expecting(write("/g", b"x"))), batch(vec![read("/g")]), batch(vec![batch(vec![])])];
    for command in refused {
        assert_eq!(bench.submit(command.clone()), Submitted::Now(Err(OpError::Status(Status::EINVAL))), "{command:?}");
    }
}

#[test]
fn every_change_goes_under_the_guard_of_its_command_with_each_of_its_requests() {
    let (mut bench, _) = bench();
    let guard = Guard { object: ObjectId(7), token: 40 };
    let guarded = |command: Command| command.guarded(guard);
    bench.start(guarded(Command::Unlink { path: bytes("/g"), force: false }));
    let Message::Unlink(message) = decode(&bench.out[0].message) else { panic!("an UNLINK") };
    assert_eq!((message.terms.guard_object, message.terms.guard_generation), (ObjectId(7), Generation(40)));
    bench.pump();
    bench.start(guarded(put("/new", b"x")));
    let mut changes = 0;
    while let Some(sent) = bench.out.front() {
        let guard_object = match decode(&sent.message) {
            Message::Create(message) => Some(message.terms.guard_object),
            Message::Write(message) => Some(message.terms.guard_object),
            _ => None,
        };
        assert!(guard_object.is_none_or(|object| object == ObjectId(7)));
        changes += usize::from(guard_object.is_some());
        let answer = bench.execute();
        bench.deliver(&answer);
    }
    assert_eq!(changes, 2, "the file is made, and written");
    let look = Command::SetAttr { target: at("/d/f"), follow: true, change: AttrChange::default() };
    bench.start(guarded(look));
    assert!(matches!(decode(&bench.out[0].message), Message::SetAttr(_)), "only the server knows whether the guard is current");
}

#[test]
fn opening_what_exists_asks_the_server_when_something_is_expected() {
    let (mut bench, [_, _, g]) = bench();
    let open = Command::Create { path: bytes("/g"), exclusive: false, ephemeral: false, owner: OWNER };
    bench.cached(open.clone()).unwrap();
    let expect = vec![Expect { object: ObjectId(g), version: 99 }];
    let op = bench.start(Command::Expecting { guard: None, expect, command: Box::new(open) });
    bench.answer_next(&Answer::Reply(Reply::Failed(Failed { status: Status::VERSION_CHANGED, retry_ms: 0 })));
    assert_eq!(bench.ended(op), Some(Err(OpError::Status(Status::VERSION_CHANGED))));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# A read that needs several pages MUST give its user pages of one version only.
#[test]
fn pages_of_an_attribute_are_of_one_version_or_read_again() {
    let (mut bench, [_, _, g]) = bench();
    let get = || Command::GetXattr { target: at("/g"), follow: true, name: bytes("user.a") };
    let page = |version, offset, data: &'static [u8]| {
        Answer::Reply(Reply::Xattr(Xattr { object: ObjectId(g), version, total: 4, offset, data: Bytes16(data) }))
    };
    let op = bench.start(get());
    bench.answer_next(&page(3, 0, b"ab"));
    let Message::GetXattr(second) = decode(&bench.out[0].message) else { panic!("a GETXATTR") };
    assert_eq!((second.offset, second.version), (2, 3));
    bench.answer_next(&Answer::Reply(Reply::Failed(Failed { status: Status::VERSION_CHANGED, retry_ms: 0 })));
    let Message::GetXattr(again) = decode(&bench.out[0].message) else { panic!("a GETXATTR") };
    assert_eq!((again.offset, again.version), (0, 0));
    bench.answer_next(&page(4, 0, b"cd"));
    bench.answer_next(&page(4, 2, b"ef"));
    assert_eq!(bench.ended(op), Some(Ok(Output::Xattr { object: ObjectId(g), version: 4, value: bytes("cdef") })));
    // Pages that do not fit together are no answer.
    for wrong in [page(4, 1, b"ab"), page(4, 0, b"abcde"), page(4, 0, b"")] {
        let op = bench.start(get());
        bench.answer_next(&wrong);
        assert!(bench.ended(op).is_some_and(|result| result.is_err()));
    }
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The agent MUST refuse XATTR_NAMES with a name that is empty, has a NUL, or is not above the name before it.
#[test]
fn names_of_attributes_ascend_over_all_pages() {
    let (mut bench, [_, _, g]) = bench();
    let page = |end, names: &'static [Bytes8<'static>]| {
        Answer::Reply(Reply::XattrNames(XattrNames { object: ObjectId(g), version: 3, end, names: List::of(names) }))
    };
    let op = bench.start(Command::ListXattr { target: at("/g"), follow: true });
    bench.answer_next(&page(false, &[Bytes8(b"a"), Bytes8(b"b")]));
    let Message::ListXattr(next) = decode(&bench.out[0].message) else { panic!("a LISTXATTR") };
    assert_eq!((next.after.0, next.version), (&b"b"[..], 3));
    bench.answer_next(&page(true, &[Bytes8(b"c")]));
    let names = vec![bytes("a"), bytes("b"), bytes("c")];
    assert_eq!(bench.ended(op), Some(Ok(Output::XattrNames { object: ObjectId(g), version: 3, names })));
    for wrong in [&[Bytes8(b"b"), Bytes8(b"a")][..], &[Bytes8(b"")], &[Bytes8(b"a\0b")]] {
        let op = bench.start(Command::ListXattr { target: at("/g"), follow: true });
        bench.answer_next(&page(true, wrong));
        assert!(bench.ended(op).is_some_and(|result| result.is_err()), "{wrong:?}");
    }
}

#[test]
fn setting_an_attribute_changes_the_version_and_leaves_the_contents_in_the_cache() {
    let (mut bench, [_, _, g]) = bench();
    let before = attr(&bench.cached(stat("/g")));
    let op = bench.start(set("/g", b"value"));
    assert!(is_later(&bench.submit(stat("/g"))));
    let after = cistern_wire::Attr { version: before.version + 1, ..before };
    let effects = [Effect { before: before.version, attr: after, grant: cistern_wire::CacheGrant::NONE }];
    bench.answer_next(&Answer::Reply(Reply::Changed(Changed { effects: List::of(&effects) })));
    assert_eq!(bench.ended(op), Some(Ok(Output::Attr(after))));
    assert_eq!(attr(&bench.cached(read("/g"))), after);
    assert_eq!(after.object, ObjectId(g));
}
