//! A server that is busy, recovering, forgetful or wrong; an agent with too much to do.

use super::bench::{Bench, OWNER, at, attr, bytes, data, put, read, stat};
use super::toy::{Node, decode};
use crate::api::{Command, OpError, Output, Submitted, Target};
use crate::call::{Answer, TaskId};
use crate::tasks::TASKS_MAX;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cistern_wire::{
    Done, Failed, Fate, Kind, Limit, Limited, List, LockId, LockRow, LockRows, Message, ObjectId, Realm, RenameRule, Reply, Status, Whose,
    reply_samples,
};
use core::time::Duration;

fn bench() -> Bench {
    let mut bench = Bench::new();
    let d = bench.toy.space.plant(1, "d", Node::Dir(BTreeMap::new()));
    bench.toy.space.plant(d, "f", Node::File(b"hello".to_vec()));
    bench
}

fn later(status: Status, retry_ms: u32) -> Answer<'static> {
    Answer::Reply(Reply::Failed(Failed { status, retry_ms }))
}

#[test]
fn a_hint_to_try_again_later_is_followed() {
    let mut bench = bench();
    bench.run(stat("/d/f")).unwrap();
    let op = bench.start(put("/d/f", b"other"));
    bench.answer_next(&later(Status::IN_GRACE, 100));
    assert!(bench.out.is_empty());
    bench.cached(stat("/d/f")).unwrap();
    assert_eq!(bench.timers.wake_after(bench.now).map(|next| next.0), Some(Duration::from_millis(100)));
    bench.wait(99);
    assert!(bench.out.is_empty());
    bench.wait(1);
    assert!(matches!(bench.submit(stat("/d/f")), Submitted::Later(_)), "suspended again from the next transmission on");
    bench.pump();
    assert_eq!(attr(&bench.ended(op).unwrap()).size, 5);
    assert_eq!(data(&bench.cached(read("/d/f"))), b"other");
    assert_eq!(bench.timers.wake_after(bench.now), None);
}

#[test]
fn a_busy_server_without_a_hint_is_an_error() {
    let mut bench = bench();
    let op = bench.start(stat("/d/f"));
    bench.answer_next(&later(Status::BUSY, 0));
    assert_eq!(bench.ended(op), Some(Err(OpError::Status(Status::BUSY))));
}

#[test]
fn what_was_refused_till_the_time_was_up_names_the_bound() {
    let mut bench = bench();
    let op = bench.start(stat("/d/f"));
    let limited = Limited { limit: Limit::Staged, whose: Whose::Host, realm: Realm(0), used: 60_000, bound: 65_536, retry_ms: 100 };
    bench.answer_next(&Answer::Reply(Reply::Limited(limited)));
    assert_eq!(bench.ended(op), None);
    bench.with(|ops, ctx| ops.give_up(ctx, TaskId(op.0), OpError::Unreachable));
    assert_eq!(bench.ended(op), Some(Err(OpError::Limited(limited))));
    assert_eq!(bench.timers.wake_after(bench.now), None);
}

#[test]
fn a_command_outlasts_a_long_grace_and_is_answered_in_the_end() {
    let mut bench = bench();
    let op = bench.start(stat("/d/f"));
    for _ in 0..1_000 {
        bench.answer_next(&later(Status::IN_GRACE, 10));
        assert!(bench.out.is_empty());
        bench.wait(10);
    }
    bench.pump();
    assert!(bench.ended(op).unwrap().is_ok());
}

#[test]
fn one_page_of_many_may_be_late() {
    let mut bench = bench();
    let contents = [7; 30_000];
    let d = 2;
    bench.toy.space.plant(d, "big", Node::File(contents.to_vec()));
    let op = bench.start(read("/d/big"));
    for _ in 0..2 {
        let answer = bench.execute();
        bench.deliver(&answer);
    }
    bench.answer_next(&later(Status::BUSY, 50));
    bench.pump();
    assert_eq!(bench.ended(op), None);
    bench.wait(50);
    bench.pump();
    assert_eq!(data(&bench.ended(op).unwrap()), contents);
}

#[test]
fn an_object_that_vanished_is_looked_for_anew() {
    let mut bench = bench();
    bench.run(stat("/d/f")).unwrap();
    let op = bench.start(put("/d/f", b"x"));
    bench.answer_next(&later(Status::ESTALE, 0));
    bench.pump();
    assert_eq!(attr(&bench.ended(op).unwrap()).size, 1);
    assert_eq!(bench.seen, [Kind::Lookup, Kind::Lookup, Kind::Write]);
    let op = bench.start(put("/d/f", b"y"));
    while bench.ended(op).is_none() {
        bench.answer_next(&later(Status::ESTALE, 0));
    }
}

#[test]
fn sessions_that_end_again_and_again_end_a_command_at_last() {
    let mut bench = bench();
    let op = bench.start(read("/d/f"));
    let mut rounds = 0;
    let result = loop {
        if let Some(result) = bench.ended(op) {
            break result;
        }
        bench.answer_next(&Answer::SessionEnded(Fate::Unknown));
        rounds += 1;
        assert!(rounds < 100);
    };
    assert_eq!(result, Err(OpError::Unreachable));
}

#[test]
fn an_answer_that_is_none_is_an_error_and_not_a_panic() {
    let commands =
        [stat("/d/f"), read("/d/f"), put("/d/f", b"x"), Command::Ping, Command::ServerStatus, Command::ListLocks { target: None }];
    for command in commands {
        let mut bench = bench();
        let op = bench.start(command.clone());
        bench.answer_next(&Answer::Reply(Reply::Done(Done {})));
        assert_eq!(bench.ended(op), Some(Err(OpError::Status(Status::EPROTO))), "{command:?}");
        bench.tell(TaskId(op.0), 0, &Answer::Reply(Reply::Done(Done {})));
        assert!(bench.events.is_empty(), "it ended once");
    }
}

#[test]
fn whatever_a_server_says_every_command_comes_to_an_end() {
    let path = |path: &str| bytes(path);
    let owner = OWNER;
    let commands = [
        stat("/d/f"),
        read("/d/f"),
        put("/d/f", &[1; 3_000]),
        Command::List { target: at("/d"), detail: true },
        Command::ReadLink { target: at("/d/l") },
        Command::Create { path: path("/d/new"), exclusive: true, ephemeral: false, owner },
        Command::Create { path: path("/d/new"), exclusive: false, ephemeral: false, owner },
        Command::Rename { from: path("/d/f/"), to: path("/d/g"), rule: RenameRule::Exchange, force: true },
        Command::Link { existing: path("/d/f"), path: path("/g") },
        Command::Stat { target: Target::Object(ObjectId(1)), follow: true },
        Command::Ping,
        Command::ServerStatus,
    ];
    for (nth, reply) in reply_samples().into_iter().enumerate() {
        for command in &commands {
            let mut bench = bench();
            let op = bench.start(command.clone());
            let mut result = None;
            for round in 0..10_000 {
                result = bench.ended(op);
                if result.is_some() {
                    break;
                }
                if bench.out.is_empty() {
                    bench.wait(1_000);
                } else if round % 3 == 0 {
                    // Now and then the truth, so that later steps are reached, too.
                    let answer = bench.execute();
                    bench.deliver(&answer);
                } else {
                    bench.answer_next(&Answer::Reply(reply));
                }
            }
            assert!(result.is_some(), "{command:?} answered by sample {nth}, {reply:?}");
        }
    }
}

#[test]
fn locks_are_listed_page_by_page() {
    let mut bench = bench();
    let row = match reply_samples().into_iter().find_map(|reply| match reply {
        Reply::LockRows(rows) => rows.rows.iter().next(),
        _ => None,
    }) {
        Some(row) => row,
        None => panic!("there is a sample of every reply"),
    };
    let of = |object, bound_ms| LockRow { lock: LockId { object: ObjectId(object), ..row.lock }, bound_ms, ..row };
    let op = bench.start(Command::ListLocks { target: None });
    let rows = [of(4, 1), of(5, 2), of(5, 3)];
    bench.answer_next(&Answer::Reply(Reply::LockRows(LockRows { end: false, rows: List::of(&rows) })));
    let Message::ListLocks(next) = decode(&bench.out[0].message) else { panic!("a LIST_LOCKS") };
    assert_eq!((next.object.0, next.after_object.0, next.after_row), (0, 5, 2));
    let rows = [of(5, 4), of(9, 5)];
    bench.answer_next(&Answer::Reply(Reply::LockRows(LockRows { end: true, rows: List::of(&rows) })));
    let Some(Ok(Output::Locks(locks))) = bench.ended(op) else { panic!("they were listed") };
    assert!(locks.iter().map(|lock| lock.bound_ms).eq(1..=5));
    let op = bench.start(Command::ListLocks { target: None });
    bench.answer_next(&Answer::Reply(Reply::LockRows(LockRows { end: false, rows: List::of(&[]) })));
    assert_eq!(bench.ended(op), Some(Err(OpError::Status(Status::EPROTO))), "a page of nothing, and more to come");
}

#[test]
fn too_many_commands_at_once_are_refused() {
    let mut bench = bench();
    for _ in 0..TASKS_MAX {
        bench.start(stat("/d/f"));
    }
    assert_eq!(bench.submit(stat("/d/f")), Submitted::Now(Err(OpError::Overloaded)));
    bench.pump();
    assert_eq!((bench.events.len(), bench.ops.running().count()), (TASKS_MAX, 0));
}

#[test]
fn a_ping_is_answered_although_the_root_may_not_be_read() {
    for (status, answered) in [(Status::EACCES, true), (Status::ESTALE, true), (Status::EIO, false)] {
        let mut bench = bench();
        let op = bench.start(Command::Ping);
        bench.answer_next(&later(status, 0));
        assert_eq!(matches!(bench.ended(op), Some(Ok(Output::Pong { .. }))), answered, "{status}");
    }
}

#[test]
fn a_ping_is_a_round_trip_to_the_application() {
    let mut bench = bench();
    let op = bench.start(Command::Ping);
    bench.now = bench.now.plus(Duration::from_micros(250));
    bench.pump();
    assert_eq!(bench.ended(op), Some(Ok(Output::Pong { round_trip: Duration::from_micros(250) })));
    let Ok(Output::Server(report, group)) = bench.run(Command::ServerStatus) else { panic!("no report") };
    let heard: Vec<_> = group.iter().map(|server| (&server.name[..], server.heard)).collect();
    assert_eq!((report.uptime_ms, report.place), (7, 2));
    assert_eq!(heard, [(&b"a"[..], None), (b"b", Some(Duration::ZERO))]);
    assert_eq!(bench.run(Command::ListLocks { target: Some(at("/d")) }), Ok(Output::Locks(alloc::vec![])));
}
