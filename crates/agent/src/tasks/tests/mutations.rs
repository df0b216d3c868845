//! Mutations: what is suspended while they are under way, what they leave in the cache, and what is said when nobody knows.

use super::bench::{Bench, OWNER, at, attr, bytes, create, data, list, mkdir, names, put, read, stat, unlink};
use super::held;
use super::toy::{Node, decode};
use crate::api::{AttrChange, Command, Guard, OpError, Output, Submitted, Target};
use crate::call::Answer;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cistern_wire::{Fate, Field, Kind, Message, ObjectId, Reader, RenameRule, Reply, Status, Want};

/// `/d/f` with "hello", `/e/`; all of it cached.
fn bench() -> (Bench, [u64; 3]) {
    let mut bench = Bench::new();
    let space = &mut bench.toy.space;
    let d = space.plant(1, "d", Node::Dir(BTreeMap::new()));
    let f = space.plant(d, "f", Node::File(b"hello".to_vec()));
    let e = space.plant(1, "e", Node::Dir(BTreeMap::new()));
    for path in ["/", "/d", "/e"] {
        bench.run(list(path)).unwrap();
    }
    bench.run(read("/d/f")).unwrap();
    bench.seen.clear();
    (bench, [d, f, e])
}

fn chmod(object: u64, mode: u16) -> Command {
    let change = AttrChange { mode: Some(mode), ..AttrChange::default() };
    Command::SetAttr { target: Target::Object(ObjectId(object)), follow: true, change }
}

fn rename(from: &str, to: &str, rule: RenameRule) -> Command {
    Command::Rename { from: bytes(from), to: bytes(to), rule, force: false }
}

fn is_later(submitted: &Submitted) -> bool {
    matches!(submitted, Submitted::Later(_))
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# From the first transmission of a mutation until it cannot be under way any more, the agent MUST answer nothing from cache about the
//# objects affected.
//= wire-spec.md#11-1-lease
//= type=test
//# The agent MUST NOT report a change of server-held state as done before the server has acknowledged it.
#[test]
fn what_a_mutation_affects_is_not_answered_from_cache_until_its_outcome_is_known() {
    let (mut bench, _) = bench();
    let op = bench.start(put("/d/f", b"other"));
    bench.cached(list("/d")).unwrap();
    bench.cached(stat("/d")).unwrap();
    assert!(is_later(&bench.submit(stat("/d/f"))), "from the moment it was put out, before it was executed");
    let answer = bench.execute();
    assert!(is_later(&bench.submit(read("/d/f"))), "executed, outcome not known here");
    assert_eq!(bench.ended(op), None, "nobody is told before the server has said so (section 11.1)");
    bench.deliver(&answer);
    assert_eq!(attr(&bench.ended(op).unwrap()).size, 5);
    assert_eq!(data(&bench.cached(read("/d/f"))), b"other");
}

#[test]
fn a_mutation_of_a_name_suspends_the_directory_and_what_the_name_means() {
    let (mut bench, _) = bench();
    let op = bench.start(unlink("/d/f"));
    assert!(is_later(&bench.submit(list("/d"))));
    assert!(is_later(&bench.submit(stat("/d/f"))));
    bench.cached(list("/e")).unwrap();
    bench.cached(list("/")).unwrap();
    bench.pump();
    assert_eq!(bench.ended(op), Some(Ok(Output::Done)));
    assert_eq!(bench.cached(stat("/d/f")), Err(OpError::Status(Status::ENOENT)));
    assert_eq!(names(&bench.cached(list("/d"))), [""; 0]);
}

//= wire-spec.md#11-4-locks
//= type=test
//# Until it knows the outcome of a mutation the agent MUST treat the locks named in `held` as suspended.
#[test]
fn a_mutation_names_the_locks_it_has_suspended_and_no_others() {
    let (mut bench, [d, f, _]) = bench();
    bench.start(unlink("/d/f"));
    let Message::Unlink(message) = decode(&bench.out[0].message) else { panic!("an UNLINK") };
    let held: Vec<(u64, u64)> = message.terms.held.iter().map(|held| (held.object.0, held.generation.0)).collect();
    assert_eq!(held, [(d, bench.toy.held[&d]), (f, bench.toy.held[&f])]);
    assert!(bench.out[0].mutation);
}

#[test]
fn the_maker_asks_for_an_exclusive_lock_and_a_guard_goes_along() {
    let (mut bench, [_, f, _]) = bench();
    bench.start(create("/e/new"));
    let Message::Create(message) = decode(&bench.out[0].message) else { panic!("a CREATE") };
    assert_eq!((message.terms.want, message.terms.guard_object), (Want::Exclusive, ObjectId(0)));
    let guard = Guard { object: ObjectId(9), token: 77 };
    let target = Target::Object(ObjectId(f));
    bench.start(Command::Write { target, offset: 2, data: bytes("x"), truncate: false }.guarded(guard));
    let Message::Write(message) = decode(&bench.out[1].message) else { panic!("a WRITE") };
    assert_eq!((message.terms.want, message.terms.guard_object, message.terms.guard_generation.0), (Want::Shared, ObjectId(9), 77));
    assert!(!message.truncate);
}

#[test]
fn suspensions_are_counted() {
    let (mut bench, [_, f, _]) = bench();
    bench.start(chmod(f, 0o600));
    bench.start(chmod(f, 0o640));
    let first = bench.execute();
    bench.deliver(&first);
    assert!(is_later(&bench.submit(stat("/d/f"))), "the second is still under way");
    bench.pump();
    assert_eq!(attr(&bench.cached(stat("/d/f"))).mode, 0o640);
}

#[test]
fn answers_out_of_order_leave_the_newest_state() {
    let (mut bench, [_, f, _]) = bench();
    bench.start(chmod(f, 0o600));
    bench.start(chmod(f, 0o640));
    let (first, second) = (bench.execute(), bench.execute());
    bench.deliver(&second);
    bench.deliver(&first);
    assert_eq!(attr(&bench.cached(stat("/d/f"))).mode, 0o640);
    assert_eq!(data(&bench.run(read("/d/f"))), b"hello");
}

#[test]
fn a_read_that_was_overtaken_by_a_write_does_not_bring_the_old_state_back() {
    for regrants in [false, true] {
        let (mut bench, [_, f, _]) = bench();
        bench.toy.regrants = regrants;
        bench.start(chmod(f, 0o600));
        bench.run(stat("/d")).unwrap();
        // Sent while the object is suspended, executed before the second change, answered after it.
        let slow = bench.start(stat("/d/f"));
        let changed = bench.execute();
        bench.deliver(&changed);
        let old = bench.execute();
        bench.run(put("/d/f", b"newer")).unwrap();
        bench.deliver(&old);
        bench.ended(slow).unwrap().unwrap();
        bench.pump();
        assert_eq!(data(&bench.run(read("/d/f"))), b"newer", "regrants: {regrants}");
        assert_eq!(attr(&bench.run(stat("/d/f"))).version, bench.toy.space.objects[&f].attr.version);
    }
}

#[test]
fn names_move_in_the_cache_as_they_move_on_the_server() {
    let (mut bench, _) = bench();
    bench.run(create("/e/g")).unwrap();
    bench.run(rename("/d/f", "/e/f", RenameRule::Replace)).unwrap();
    assert_eq!(names(&bench.cached(list("/d"))), [""; 0]);
    assert_eq!(names(&bench.cached(list("/e"))), ["f", "g"]);
    assert_eq!(data(&bench.cached(read("/e/f"))), b"hello");
    bench.run(rename("/e/f", "/e/g", RenameRule::Exchange)).unwrap();
    assert_eq!(data(&bench.cached(read("/e/g"))), b"hello");
    assert_eq!(attr(&bench.cached(stat("/e/f"))).size, 0);
    bench.run(rename("/e/g", "/e/f", RenameRule::Replace)).unwrap();
    assert_eq!(names(&bench.cached(list("/e"))), ["f"]);
    assert_eq!(data(&bench.cached(read("/e/f"))), b"hello");
    let link = Command::Link { existing: bytes("/e/f"), path: bytes("/d/again") };
    assert_eq!(attr(&bench.run(link)).nlink, 2);
    assert_eq!(data(&bench.cached(read("/d/again"))), b"hello");
    // Two names of one file: POSIX says that nothing happens.
    bench.run(rename("/e/f", "/d/again", RenameRule::Replace)).unwrap();
    assert_eq!(names(&bench.cached(list("/e"))), ["f"]);
}

#[test]
fn a_name_that_moved_unseen_is_learned_from_the_outcome() {
    let (mut bench, [d, ..]) = bench();
    bench.lose(d);
    bench.run(rename("/d/f", "/e/f", RenameRule::Replace)).unwrap();
    bench.seen.clear();
    assert_eq!(data(&bench.run(read("/e/f"))), b"hello");
    assert_eq!(bench.seen, [Kind::Read], "the name is known; the file could not be named, so its lock was demanded (section 11.4)");
    assert_eq!(names(&bench.run(list("/e"))), ["f"]);
}

#[test]
fn a_file_cut_shorter_is_known_as_far_as_it_goes() {
    let (mut bench, _) = bench();
    let size =
        |size| Command::SetAttr { target: at("/d/f"), follow: true, change: AttrChange { size: Some(size), ..AttrChange::default() } };
    bench.run(size(3)).unwrap();
    assert_eq!(data(&bench.cached(read("/d/f"))), b"hel");
    bench.run(size(6)).unwrap();
    assert_eq!(data(&bench.run(read("/d/f"))), b"hel\0\0\0");
    let write = |offset, text, truncate| Command::Write { target: at("/d/f"), offset, data: bytes(text), truncate };
    bench.run(write(1, "EL", false)).unwrap();
    assert_eq!(data(&bench.cached(read("/d/f"))), b"hEL\0\0\0");
    bench.run(write(2, "!", true)).unwrap();
    assert_eq!(data(&bench.cached(read("/d/f"))), b"hE!");
}

#[test]
fn the_last_name_takes_the_object_with_it() {
    let (mut bench, [_, f, _]) = bench();
    bench.run(unlink("/d/f")).unwrap();
    bench.cache.release_unused();
    assert_eq!(held::given_back(&mut bench.cache).iter().map(|item| item.0).collect::<Vec<_>>(), [f], "it is of no use any more");
    let by_number = Command::Stat { target: Target::Object(ObjectId(f)), follow: true };
    assert_eq!(bench.run(by_number), Err(OpError::Status(Status::ESTALE)));
}

//= wire-spec.md#7-the-table-of-answers
//= type=test
//# An agent MUST install nothing that a RESULT shows.
#[test]
fn a_result_counts_but_is_not_cached() {
    let (mut bench, [_, f, _]) = bench();
    let op = bench.start(put("/d/f", b"other"));
    let answer = bench.execute();
    let reply = Reply::get(&mut Reader::new(&answer.reply)).unwrap();
    bench.tell(answer.task, answer.call, &Answer::Result(Some(reply)));
    assert_eq!(attr(&bench.ended(op).unwrap()).object, ObjectId(f));
    assert!(is_later(&bench.submit(read("/d/f"))));
    let op = bench.start(chmod(f, 0o600));
    bench.out.pop_front();
    bench.answer_next(&Answer::Result(None));
    assert_eq!(bench.ended(op), Some(Err(OpError::OutcomeUnknown)));
}

//= wire-spec.md#11-2-delivery
//= type=test
//# After NACK, session end or restart the agent MUST NOT by itself repeat an unanswered mutation, unless it was told "not executed".
//= wire-spec.md#11-2-delivery
//= type=test
//# A caller whose mutation ended so MUST be told that the outcome is not known.
#[test]
fn a_mutation_without_an_outcome_is_not_done_again() {
    for fate in [Fate::Unknown, Fate::Executed] {
        let (mut bench, _) = bench();
        let op = bench.start(put("/d/f", b"other"));
        bench.answer_next(&Answer::SessionEnded(fate));
        assert_eq!(bench.ended(op), Some(Err(OpError::OutcomeUnknown)));
        assert!(bench.out.is_empty());
    }
}

#[test]
fn a_mutation_that_was_not_executed_is_done_in_the_next_session() {
    let (mut bench, _) = bench();
    let op = bench.start(put("/d/f", b"other"));
    let first = bench.out.pop_front().unwrap();
    bench.end_session();
    bench.tell(first.task, first.call, &Answer::SessionEnded(Fate::NotExecuted));
    bench.pump();
    assert_eq!(attr(&bench.ended(op).unwrap()).size, 5);
    assert_eq!(bench.seen, [Kind::Lookup, Kind::Write]);
    assert_eq!(data(&bench.cached(read("/d/f"))), b"other");
}

#[test]
fn a_mutation_that_was_not_sent_yet_stays_suspended_over_the_end_of_the_session() {
    let (mut bench, [_, f, _]) = bench();
    let op = bench.start(chmod(f, 0o600));
    let abandoned = bench.start(chmod(f, 0o640));
    bench.with(|ops, ctx| ops.give_up(ctx, crate::call::TaskId(abandoned.0), OpError::Unreachable));
    bench.end_session();
    bench.toy.held.clear();
    let unsent = core::mem::take(&mut bench.out);
    bench.run(stat("/d/f")).unwrap();
    assert!(is_later(&bench.submit(stat("/d/f"))), "two changes are still to come");
    bench.out = unsent;
    let first = bench.execute();
    bench.deliver(&first);
    assert!(is_later(&bench.submit(stat("/d/f"))));
    bench.pump();
    assert_eq!(attr(&bench.ended(op).unwrap()).mode, 0o600);
    bench.run(stat("/d/f")).unwrap();
    assert_eq!(attr(&bench.cached(stat("/d/f"))).mode, 0o640);
}

#[test]
fn a_read_whose_session_ended_is_done_again() {
    for fate in [Fate::Unknown, Fate::Executed, Fate::NotExecuted] {
        let (mut bench, [_, f, _]) = bench();
        bench.lose(f);
        let op = bench.start(read("/d/f"));
        bench.answer_next(&Answer::SessionEnded(fate));
        bench.pump();
        assert_eq!(data(&bench.ended(op).unwrap()), b"hello");
    }
}

#[test]
fn a_command_given_up_leaves_its_mutation_suspended_until_the_outcome_is_known() {
    let (mut bench, [_, f, _]) = bench();
    let op = bench.start(chmod(f, 0o600));
    let sent = bench.execute();
    bench.with(|ops, ctx| ops.give_up(ctx, sent.task, OpError::Unreachable));
    assert_eq!(bench.ended(op), Some(Err(OpError::OutcomeUnknown)));
    assert!(is_later(&bench.submit(stat("/d/f"))));
    bench.deliver(&sent);
    assert_eq!(attr(&bench.cached(stat("/d/f"))).mode, 0o600);
}

#[test]
fn a_command_given_up_half_done_does_not_say_that_nothing_was_changed() {
    let (mut bench, _) = bench();
    let op = bench.start(put("/d/new", b"contents"));
    let made = bench.execute();
    bench.deliver(&made);
    let unsent = bench.out.pop_front().unwrap();
    bench.with(|ops, ctx| {
        ops.withdraw(ctx, unsent.task, unsent.call);
        ops.give_up(ctx, unsent.task, OpError::Unreachable);
    });
    assert_eq!(bench.ended(op), Some(Err(OpError::OutcomeUnknown)));
    assert_eq!(data(&bench.cached(read("/d/new"))), b"", "it was made, and is empty");
}

#[test]
fn a_read_given_up_ends_as_it_is_told() {
    let (mut bench, [_, f, _]) = bench();
    bench.lose(f);
    let op = bench.start(read("/d/f"));
    let sent = bench.execute();
    bench.with(|ops, ctx| ops.give_up(ctx, sent.task, OpError::Unreachable));
    assert_eq!(bench.ended(op), Some(Err(OpError::Unreachable)));
    bench.deliver(&sent);
    assert_eq!((bench.events.len(), bench.ops.running().count()), (0, 0));
}

#[test]
fn an_outcome_that_never_comes_keeps_its_objects_suspended_until_the_session_ends() {
    let (mut bench, [_, f, _]) = bench();
    let op = bench.start(chmod(f, 0o600));
    bench.with(|ops, ctx| ops.give_up(ctx, crate::call::TaskId(op.0), OpError::Unreachable));
    assert_eq!(bench.ended(op), Some(Err(OpError::OutcomeUnknown)));
    bench.out.clear();
    bench.run(stat("/d/f")).unwrap();
    assert!(is_later(&bench.submit(stat("/d/f"))));
    bench.out.clear();
    bench.end_session();
    bench.run(stat("/d/f")).unwrap();
    bench.cached(stat("/d/f")).unwrap();
}

#[test]
fn a_mutation_withdrawn_before_it_was_sent_leaves_its_objects_as_they_were() {
    let (mut bench, [_, f, _]) = bench();
    let op = bench.start(chmod(f, 0o600));
    let unsent = bench.out.pop_front().unwrap();
    bench.with(|ops, ctx| {
        ops.withdraw(ctx, unsent.task, unsent.call);
        ops.give_up(ctx, unsent.task, OpError::Unreachable);
    });
    assert_eq!(bench.ended(op), Some(Err(OpError::Unreachable)), "nothing was changed by it");
    bench.cached(stat("/d/f")).unwrap();
}

#[test]
fn what_exists_is_created_without_a_message() {
    let (mut bench, [_, f, _]) = bench();
    let again = Command::Create { path: bytes("/d/f"), exclusive: false, ephemeral: false, owner: OWNER };
    assert_eq!(attr(&bench.cached(again)).object, ObjectId(f));
    assert_eq!(bench.run(create("/d/f")), Err(OpError::Status(Status::EEXIST)));
    let into_directory = Command::Create { path: bytes("/d"), exclusive: false, ephemeral: false, owner: OWNER };
    assert_eq!(bench.cached(into_directory), Err(OpError::Status(Status::EISDIR)));
}

#[test]
fn paths_that_end_in_no_name_are_refused_as_linux_does() {
    let (mut bench, _) = bench();
    let rmdir = |path| Command::Rmdir { path: bytes(path) };
    let cases = [
        (mkdir("/"), Status::EEXIST),
        (mkdir("/d/.."), Status::EEXIST),
        (rmdir("/"), Status::EBUSY),
        (rmdir("/d/."), Status::EINVAL),
        (rmdir("/d/.."), Status::ENOTEMPTY),
        (unlink("/d/."), Status::EISDIR),
        (unlink("/d/"), Status::EISDIR),
        (unlink("/d/f/"), Status::ENOTDIR),
        (create("/d/new/"), Status::EISDIR),
        (put("/d/new/", b""), Status::EISDIR),
        (put("/d/", b""), Status::EISDIR),
        (rename("/d/.", "/e/x", RenameRule::Replace), Status::EBUSY),
        (rename("/d/f/", "/e/x", RenameRule::Replace), Status::ENOTDIR),
        (rename("/d/f", "/e/x/", RenameRule::Replace), Status::ENOTDIR),
        (Command::Link { existing: bytes("/d"), path: bytes("/e/x") }, Status::EPERM),
        (Command::Symlink { path: bytes("/e/x"), points_to: bytes(""), owner: OWNER }, Status::ENOENT),
        (stat(""), Status::ENOENT),
    ];
    for (command, status) in cases {
        assert_eq!(bench.cached(command.clone()), Err(OpError::Status(status)), "{command:?}");
    }
    bench.run(rename("/d/", "/e/moved/", RenameRule::Replace)).unwrap();
    assert_eq!(data(&bench.cached(read("/e/moved/f"))), b"hello");
}
