//! Guards: which token lets a change through, and what becomes of a lock whose object is taken away.

use super::locking::{item, receipt};
use super::script::*;
use crate::api::{Command, Event, Guard, LockEvent, Locked, OpError, Submitted, Target, Wait};
use crate::config::Config;
use bytes::Bytes;
use cistern_wire::{Ack, Done, Keep, List, Message, Mode, ObjectId, ReceiptAnswer, Release, ReleasedItem, Reply, Status, WatchEvent};

/// A change of object 9 that the holder of lock 7 makes under `token`.
fn write(token: u64) -> Command {
    let write = Command::Write { target: Target::Object(ObjectId(9)), offset: 0, data: Bytes::from_static(b"x"), truncate: true };
    write.guarded(Guard { object: ObjectId(7), token })
}

/// Takes lock 7, which the agent holds, for another local user.
fn again(script: &mut Script) -> Locked {
    let submitted = script.submit(lock(7, Mode::Exclusive, Wait::Try));
    let Submitted::Now(Ok(crate::api::Output::Locked(locked))) = submitted else { panic!("{submitted:?}") };
    locked
}

//= wire-spec.md#11-4-locks
//= type=test
//# An agent MUST refuse with STALE_GUARD a guarded mutation whose token is not that of a user who holds the lock now.
#[test]
fn token_of_a_user_that_gave_the_lock_back_is_no_guard_although_the_agent_holds_it() {
    let mut script = Script::open(Config::default());
    let first = script.hold(7, 2, 40, 16);
    script.submit(Command::Unlock { holder: first.holder });
    let second = again(&mut script);
    assert_eq!((first.token, second.token), (40, 41));
    let stale = Err(OpError::Status(Status::STALE_GUARD));
    for token in [39, first.token, second.token + 1, u64::MAX] {
        let Submitted::Now(result) = script.submit(write(token)) else { panic!("{token} is sent") };
        assert_eq!(result, stale, "{token}");
    }
    script.quiet();
    script.start(write(second.token));
    let sent = script.one();
    let [Message::Write(write)] = sent.messages()[..] else { panic!("{:?}", sent.messages()) };
    assert_eq!((write.terms.guard_object, write.terms.guard_generation.0), (ObjectId(7), second.token));
}

//= wire-spec.md#11-4-locks
//= type=test
//# An agent told so MUST tell the users that hold the lock that it is lost, and give it back.
#[test]
fn holder_of_a_lock_on_an_object_that_somebody_took_away_is_told_that_it_is_lost() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    script.say(&[WatchEvent { seq: 1, object: ObjectId(7), version: 3, gone: true }.into()]);
    script.hears(&[Event::Lock { holder: locked.holder, object: ObjectId(7), what: LockEvent::Lost }]);
    let items = [item(7, 40, Keep::Nothing)];
    script.sends(&[receipt(1, ReceiptAnswer::Received), Release { serial: 2, items: List::of(&items) }.into()]);
    let Submitted::Now(Err(error)) = script.submit(write(locked.token)) else { panic!("a guard that is lost") };
    assert_eq!(error, OpError::Status(Status::STALE_GUARD));
}

//= wire-spec.md#6-3-control
//= type=test
//# An agent MUST NOT take a RELEASE as answered before RELEASED messages of its serial named all its items.
#[test]
fn release_that_is_answered_in_part_is_sent_again() {
    let mut script = Script::open(Config::default());
    let (first, second) = (script.hold(7, 2, 40, 16), script.hold(8, 3, 60, 16));
    for id in [7, 8] {
        script.say(&[WatchEvent { seq: id, object: ObjectId(id), version: 3, gone: true }.into()]);
    }
    script.events();
    let items = [item(7, 40, Keep::Nothing), item(8, 60, Keep::Nothing)];
    let release = Release { serial: 2, items: List::of(&items) };
    let echo = script.sends(&[receipt(7, ReceiptAnswer::Received), receipt(8, ReceiptAnswer::Received), release.into()]);
    let part: ReleasedItem = super::locking::back(7, 40, Keep::Nothing, 0);
    // Named twice it is one item still.
    script.say(&[released(2, echo, &[part]), released(2, echo, &[part])]);
    let sent = script.run(300);
    assert!(sent.iter().any(|(_, sent)| sent.messages().contains(&release.into())), "{sent:?}");
    let _ = (first, second);
}

//= wire-spec.md#7-3-peers-that-break-the-rules
//= type=test
//# An agent MUST take nothing from it but that its request is over.
//= wire-spec.md#7-3-peers-that-break-the-rules
//= type=test
//# A user whose mutation was answered so MUST be told that the outcome is not known.
#[test]
fn reply_of_another_kind_than_was_asked_for_ends_the_request_and_says_nothing() {
    let mut script = Script::open(Config::default());
    let read = script.start(Command::Ping);
    let echo = script.sends(&[ping(2, 0)]);
    script.say(&[Ack { nonce: 2, echo, reply: Reply::Done(Done {}) }.into()]);
    script.hears(&[Script::failed(read, OpError::Status(Status::EPROTO))]);
    let target = Target::Object(ObjectId(9));
    let write = script.start(Command::Write { target, offset: 0, data: Bytes::from_static(b"x"), truncate: true });
    let echo = script.one().packet();
    script.say(&[Ack { nonce: 3, echo, reply: Reply::Done(Done {}) }.into()]);
    script.hears(&[Script::failed(write, OpError::OutcomeUnknown)]);
    script.silence(500);
}
