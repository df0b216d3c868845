//! Attempts to break the agent by schedules of answers, losses and commands.

use super::script::*;
use crate::api::{AttrChange, Command, OpError, Target, Wait};
use crate::config::Config;
use alloc::vec::Vec;
use cistern_wire::{
    Ack, Cancel, CancelOutcome, Cancelled, Failed, Generation, Keep, LockWait, Message, Mode, ObjectId, Release, ReleaseItem,
    ReleasedItem, Reply, RequestResult, Status, List,
};

fn kinds(sent: &[(u64, Sent)]) -> Vec<(u64, Vec<alloc::string::String>)> {
    sent.iter().map(|(at, s)| (*at, s.messages().iter().map(|m| alloc::format!("{m:?}")).collect())).collect()
}

#[test]
fn the_answer_to_a_cancellation_is_about_its_request_and_no_later_one() {
    let mut script = Script::open(Config::default());
    let first = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let asked = script.sends(&[lock_request(2, 0, 7, Mode::Exclusive, LockWait::Queue)]);
    script.agent.cancel(script.now(), first);
    script.hears(&[Script::failed(first, OpError::Status(Status::ECANCELED))]);
    let cancel = script.sends(&[Cancel { serial: 1, nonce: 2 }.into()]);
    // The answer to the cancellation is late; the request was granted before the cancellation came.
    let late = script.make(&[Cancelled { serial: 1, echo: cancel, nonce: 2, outcome: CancelOutcome::Answered, generation: Generation(0) }.into()]);
    script.say(&[granted(2, asked, 7, Mode::Exclusive, 40, 16)]);
    let item = ReleaseItem { lock: object(7), generation: Generation(40), keep: Keep::Nothing };
    let release = script.sends(&[Release { serial: 2, items: List::of(&[item]) }.into()]);
    let second = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    script.say(&[released(2, release, &[ReleasedItem { lock: object(7), generation: Generation(40), keep: Keep::Nothing, now: Generation(0) }])]);
    let asked = script.sends(&[lock_request(3, 0, 7, Mode::Exclusive, LockWait::Queue)]);
    script.say(&[queued(3, asked, 7)]);
    script.deliver(&late);
    script.quiet();
    let _ = second;
}

#[test]
fn an_outcome_without_renewal_is_not_the_end_of_a_lock_request() {
    let mut script = Script::open(Config::default());
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    script.sends(&[lock_request(2, 0, 7, Mode::Exclusive, LockWait::Queue)]);
    let reply = Reply::Failed(Failed { status: Status::ESTALE, retry_ms: 0 });
    script.say(&[RequestResult { nonce: 2, reply }.into()]);
    let again = script.run(150);
    assert!(again.iter().any(|(_, sent)| sent.messages() == [lock_request(2, 0, 7, Mode::Exclusive, LockWait::Queue)]), "{:?}", kinds(&again));
    let _ = op;
}

#[test]
fn an_agent_of_which_nothing_is_in_use_does_not_ask_a_dead_server_for_ever() {
    let mut script = Script::open(Config::default());
    let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
    let op = script.start(Command::SetAttr { target: Target::Object(ObjectId(7)), follow: true, change, guard: None });
    script.run(60_000);
    let events = script.events();
    assert_eq!(events, [Script::failed(op, OpError::OutcomeUnknown)]);
    let sent = script.run(600_000);
    assert!(sent.is_empty(), "{} datagrams in ten minutes", sent.len());
}

#[test]
fn a_wait_limit_holds_though_the_server_never_answers() {
    let mut script = Script::new(Config::default());
    let op = script.start(Command::Lock { target: Target::Path(bytes::Bytes::from_static(b"/a")), mode: Mode::Exclusive, wait: Wait::AtMost(core::time::Duration::from_secs(1)) });
    script.run(2_000);
    let events = script.events();
    assert!(events.iter().any(|e| matches!(e, crate::api::Event::Done { op: done, .. } if *done == op)), "{events:?}");
}

#[test]
fn a_command_ends_once_when_it_is_cancelled_while_its_answer_is_on_the_way() {
    let mut script = Script::open(Config::default());
    let op = script.start(stat(7));
    let echo = script.sends(&[get_attr(2, 0, 7)]);
    script.agent.cancel(script.now(), op);
    script.hears(&[Script::failed(op, OpError::Status(Status::ECANCELED))]);
    script.say(&[stated(2, echo, attr(7, 1), 40)]);
    script.hears(&[]);
    let _: Option<Message<'_>> = None::<Ack<'_>>.map(Into::into);
    // What is granted there is not known here, so the server's demand for it is answered so.
    script.quiet();
}
