//! A server that is busy, recovering, forgetful or wrong; an agent with too much to do.

use super::bench::{Bench, at, attr, data, put, read, stat};
use super::toy::Node;
use crate::api::{Command, OpError, Output, Submitted};
use crate::ops::TASKS_MAX;
use crate::port::Answer;
use alloc::collections::BTreeMap;
use cistern_wire::{Done, Failed, Fate, Kind, Reply, Status};
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
    assert_eq!(bench.ops.wake_after(bench.now), Some(Duration::from_millis(100)));
    bench.wait(99);
    assert!(bench.out.is_empty());
    bench.wait(1);
    assert!(matches!(bench.submit(stat("/d/f")), Submitted::Later(_)), "suspended again from the next transmission on");
    bench.pump();
    assert_eq!(attr(&bench.ended(op).unwrap()).size, 5);
    assert_eq!(data(&bench.cached(read("/d/f"))), b"other");
    assert_eq!(bench.ops.wake_after(bench.now), None);
}

#[test]
fn a_busy_server_without_a_hint_is_an_error() {
    let mut bench = bench();
    let op = bench.start(stat("/d/f"));
    bench.answer_next(&later(Status::BUSY, 0));
    assert_eq!(bench.ended(op), Some(Err(OpError::Status(Status::BUSY))));
}

#[test]
fn patience_has_an_end() {
    let mut bench = bench();
    let op = bench.start(stat("/d/f"));
    let mut rounds = 0;
    while bench.ended(op).is_none() {
        if bench.out.is_empty() {
            bench.wait(10);
        } else {
            bench.answer_next(&later(Status::BUSY, 10));
            rounds += 1;
        }
        if rounds > 1_000 {
            panic!("it waits for ever");
        }
    }
    assert_eq!(rounds, 129);
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
    let commands = [stat("/d/f"), read("/d/f"), put("/d/f", b"x"), Command::Ping, Command::ServerStatus, Command::ListLocks { target: None }];
    for command in commands {
        let mut bench = bench();
        let op = bench.start(command.clone());
        bench.answer_next(&Answer::Reply(Reply::Done(Done {})));
        assert_eq!(bench.ended(op), Some(Err(OpError::Status(Status::EIO))), "{command:?}");
        bench.tell(crate::port::TaskId(op.0), 0, &Answer::Reply(Reply::Done(Done {})));
        assert!(bench.events.is_empty(), "it ended once");
    }
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
fn a_ping_is_a_round_trip_to_the_application() {
    let mut bench = bench();
    let op = bench.start(Command::Ping);
    bench.now = bench.now.plus(Duration::from_micros(250));
    bench.pump();
    assert_eq!(bench.ended(op), Some(Ok(Output::Pong { round_trip: Duration::from_micros(250) })));
    assert!(matches!(bench.run(Command::ServerStatus), Ok(Output::Server(report)) if report.uptime_ms == 7));
    assert_eq!(bench.run(Command::ListLocks { target: Some(at("/d")) }), Ok(Output::Locks(alloc::vec![])));
}
