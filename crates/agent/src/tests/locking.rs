//! Advisory locks between agent and server: waiting, cancelling, demands, grants in every order.

use super::script::*;
use crate::api::{Command, Event, LockEvent, OpError, Output, Submitted, Wait};
use crate::config::{Config, IdlePolicy};
use cistern_wire::{
    Ack, Alive, Cancel, CancelOutcome, Cancelled, Demand, Failed, Generation, Grant, Keep, Limit, Limited, List, LockRefused, LockWait,
    Message, Mode, Realm, Receipt, ReceiptAnswer, Release, ReleaseItem, ReleasedItem, Reply, RequestResult, Status, WaitOver, Whose,
};
use core::time::Duration;

pub(super) fn demand(seq: u64, id: u64, generation: u64, keep: Keep) -> Message<'static> {
    Demand { seq, lock: object(id), generation: Generation(generation), keep }.into()
}

pub(super) fn receipt(seq: u64, answer: ReceiptAnswer) -> Message<'static> {
    Receipt { seq, answer }.into()
}

pub(super) fn item(id: u64, generation: u64, keep: Keep) -> ReleaseItem {
    ReleaseItem { lock: object(id), generation: Generation(generation), keep }
}

pub(super) fn back(id: u64, generation: u64, keep: Keep, now: u64) -> ReleasedItem {
    ReleasedItem { lock: object(id), generation: Generation(generation), keep, now: Generation(now) }
}

fn grant(seq: u64, nonce: u64, id: u64, generation: u64) -> Message<'static> {
    Grant { seq, nonce, lock: object(id), mode: Mode::Exclusive, generation: Generation(generation), run: 16 }.into()
}

fn exclusive(nonce: u64, wait: LockWait) -> Message<'static> {
    lock_request(nonce, 0, 7, Mode::Exclusive, wait)
}

/// A script with one user who waits for lock 7 in line at the server, under nonce 2.
fn waiting(wait: Wait) -> (Script, crate::api::OpId) {
    let mut script = Script::open(Config { idle: IdlePolicy::Lazy, ..Config::default() });
    let op = script.start(lock(7, Mode::Exclusive, wait));
    let echo = script.sends(&[exclusive(2, LockWait::Queue)]);
    script.say(&[queued(2, echo, 7)]);
    script.quiet();
    script.hears(&[]);
    (script, op)
}

#[test]
fn a_try_that_is_refused_ends_as_held_by_somebody_else() {
    let mut script = Script::open(Config::default());
    let op = script.start(lock(7, Mode::Exclusive, Wait::Try));
    let echo = script.sends(&[exclusive(2, LockWait::Try)]);
    script.say(&[Ack { nonce: 2, echo, reply: Reply::LockRefused(LockRefused { lock: object(7), holder: SOMEBODY }) }.into()]);
    script.hears(&[Script::failed(op, OpError::Status(Status::EAGAIN))]);
    script.asleep();
}

#[test]
fn a_queued_request_is_granted_by_a_notice() {
    let (mut script, op) = waiting(Wait::Forever);
    script.say(&[grant(1, 2, 7, 60)]);
    let locked = script.locked(op);
    assert_eq!((locked.token, locked.generation, locked.object), (60, Generation(60), cistern_wire::ObjectId(7)));
    script.sends(&[receipt(1, ReceiptAnswer::Received)]);
    script.say(&[grant(1, 2, 7, 60)]);
    script.hears(&[]);
    script.sends(&[receipt(1, ReceiptAnswer::Received)]);
}

//= wire-spec.md#6-4-notices
//= type=test
//# An agent MUST take a GRANT or a WAIT_OVER that overtakes QUEUED as one that comes after it.
#[test]
fn a_grant_may_overtake_the_word_that_the_request_is_queued() {
    let mut script = Script::open(Config::default());
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[exclusive(2, LockWait::Queue)]);
    let late = script.make(&[queued(2, echo, 7)]);
    script.say(&[grant(1, 2, 7, 60)]);
    assert_eq!(script.locked(op).token, 60);
    script.sends(&[receipt(1, ReceiptAnswer::Received)]);
    script.deliver(&late);
    script.hears(&[]);
    script.silence(500);
}

//= wire-spec.md#11-4-locks
//= type=test
//# An agent MUST NOT show a queued grant to its user unless its lease is valid.
#[test]
fn a_grant_is_shown_only_with_a_valid_lease() {
    let (mut script, op) = waiting(Wait::Forever);
    script.sleep(TAU_MS);
    script.say(&[grant(1, 2, 7, 60)]);
    script.hears(&[]);
    let clock = script.keep_alive(2);
    let echo = script.sends(&[receipt(1, ReceiptAnswer::Received), clock]);
    script.say(&[Alive { serial: 2, echo }.into()]);
    let locked = script.locked(op);
    assert_eq!(locked.valid_until, script.after(TAU_MS));
}

#[test]
fn the_end_of_a_wait_by_the_server_ends_the_command() {
    let (mut script, op) = waiting(Wait::Forever);
    script.say(&[WaitOver { seq: 1, nonce: 2, lock: object(7), status: Status::ESTALE }.into()]);
    script.hears(&[Script::failed(op, OpError::Status(Status::ESTALE))]);
    script.sends(&[receipt(1, ReceiptAnswer::Received)]);
    script.say(&[WaitOver { seq: 1, nonce: 2, lock: object(7), status: Status::ESTALE }.into()]);
    script.sends(&[receipt(1, ReceiptAnswer::Received)]);
    script.asleep();
}

#[test]
fn a_wait_limit_ends_the_command_and_takes_the_request_back() {
    let (mut script, op) = waiting(Wait::AtMost(Duration::from_millis(300)));
    script.silence(299);
    script.sleep(1);
    let echo = script.sends(&[Cancel { serial: 2, nonce: 2 }.into()]);
    script.hears(&[Script::failed(op, OpError::TimedOut)]);
    let (outcome, generation) = (CancelOutcome::Cancelled, Generation(0));
    script.say(&[Cancelled { serial: 2, echo, nonce: 2, outcome, generation }.into()]);
    script.asleep();
}

//= wire-spec.md#11-4-locks
//= type=test
//# An agent MUST release a grant that CANCEL did not prevent, unless a local user wants it.
#[test]
fn a_grant_that_cancel_did_not_prevent_goes_back() {
    let (mut script, op) = waiting(Wait::AtMost(Duration::from_millis(300)));
    script.sleep(300);
    let echo = script.sends(&[Cancel { serial: 2, nonce: 2 }.into()]);
    script.hears(&[Script::failed(op, OpError::TimedOut)]);
    let (outcome, generation) = (CancelOutcome::Granted, Generation(60));
    script.say(&[Cancelled { serial: 2, echo, nonce: 2, outcome, generation }.into()]);
    let items = [item(7, 60, Keep::Nothing)];
    let echo = script.sends(&[Release { serial: 3, items: List::of(&items) }.into()]);
    script.say(&[grant(1, 2, 7, 60)]);
    script.sends(&[receipt(1, ReceiptAnswer::NotHeld)]);
    script.say(&[released(3, echo, &[back(7, 60, Keep::Nothing, 0)])]);
    script.asleep();
    assert_eq!(script.agent.view(script.now()).advisory_locks, 0);
}

//= wire-spec.md#11-4-locks
//= type=test
//# An agent MUST release a grant that CANCEL did not prevent, unless a local user wants it.
#[test]
fn a_grant_that_cancel_did_not_prevent_is_used_by_whoever_wants_it_meanwhile() {
    let (mut script, first) = waiting(Wait::Forever);
    script.agent.cancel(script.now(), first);
    script.hears(&[Script::failed(first, OpError::Status(Status::ECANCELED))]);
    let echo = script.sends(&[Cancel { serial: 2, nonce: 2 }.into()]);
    let second = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    script.quiet();
    let (outcome, generation) = (CancelOutcome::Granted, Generation(60));
    script.say(&[Cancelled { serial: 2, echo, nonce: 2, outcome, generation }.into()]);
    assert_eq!(script.locked(second).token, 60);
    script.say(&[grant(1, 2, 7, 60)]);
    script.sends(&[receipt(1, ReceiptAnswer::Received)]);
}

#[test]
fn a_cancelled_request_is_asked_anew_for_who_came_meanwhile() {
    let (mut script, first) = waiting(Wait::Forever);
    script.agent.cancel(script.now(), first);
    let echo = script.sends(&[Cancel { serial: 2, nonce: 2 }.into()]);
    script.start(lock(7, Mode::Exclusive, Wait::Forever));
    script.quiet();
    let (outcome, generation) = (CancelOutcome::Cancelled, Generation(0));
    script.say(&[Cancelled { serial: 2, echo, nonce: 2, outcome, generation }.into()]);
    script.sends(&[exclusive(3, LockWait::Queue)]);
}

#[test]
fn a_request_cancelled_before_it_is_sent_is_never_sent() {
    let mut script = Script::new(Config::default());
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    script.agent.cancel(script.now(), op);
    script.hears(&[Script::failed(op, OpError::Status(Status::ECANCELED))]);
    script.asleep();
}

#[test]
fn a_request_whose_answer_was_lost_is_asked_on_after_its_cancellation() {
    let mut script = Script::open(Config::default());
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    script.sends(&[exclusive(2, LockWait::Queue)]);
    script.agent.cancel(script.now(), op);
    script.events();
    let echo = script.sends(&[Cancel { serial: 2, nonce: 2 }.into()]);
    let (outcome, generation) = (CancelOutcome::Answered, Generation(0));
    script.say(&[Cancelled { serial: 2, echo, nonce: 2, outcome, generation }.into()]);
    let (_, again) = script.run(200).pop().expect("it is asked again");
    assert_eq!(again.messages(), [exclusive(2, LockWait::Queue)]);
    script.say(&[granted(2, again.packet(), 7, Mode::Exclusive, 60, 16)]);
    let items = [item(7, 60, Keep::Nothing)];
    script.sends(&[Release { serial: 3, items: List::of(&items) }.into()]);
    script.hears(&[]);
}

//= wire-spec.md#11-4-locks
//= type=test
//# Once an advisory lock was demanded, the agent MUST send further local requests for it to the server.
#[test]
fn a_demand_is_answered_in_use_while_a_user_holds_and_the_lock_goes_back_when_he_ends() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    for _ in 0..2 {
        script.say(&[demand(1, 7, 40, Keep::Nothing)]);
        script.sends(&[receipt(1, ReceiptAnswer::InUse)]);
    }
    script.start(lock(7, Mode::Exclusive, Wait::Forever));
    script.quiet();
    assert_eq!(script.submit(Command::Unlock { holder: locked.holder }), Submitted::Now(Ok(Output::Done)));
    let items = [item(7, 40, Keep::Nothing)];
    let echo = script.sends(&[Release { serial: 2, items: List::of(&items) }.into()]);
    script.hears(&[]);
    script.say(&[released(2, echo, &[back(7, 40, Keep::Nothing, 0)])]);
    script.sends(&[exclusive(3, LockWait::Queue)]);
}

#[test]
fn after_a_demand_a_try_fails_though_the_users_mode_would_go_with_the_holders() {
    let mut script = Script::open(Config::default());
    let op = script.start(lock(7, Mode::Shared, Wait::Forever));
    let echo = script.sends(&[lock_request(2, 0, 7, Mode::Shared, LockWait::Queue)]);
    script.say(&[granted(2, echo, 7, Mode::Shared, 40, 16)]);
    script.locked(op);
    assert!(matches!(script.submit(lock(7, Mode::Shared, Wait::Try)), Submitted::Now(Ok(Output::Locked(l))) if l.token == 41));
    script.say(&[demand(1, 7, 40, Keep::Nothing)]);
    script.sends(&[receipt(1, ReceiptAnswer::InUse)]);
    assert_eq!(script.submit(lock(7, Mode::Shared, Wait::Try)), Submitted::Now(Err(OpError::Status(Status::EAGAIN))));
}

#[test]
fn an_idle_lock_goes_back_on_demand_at_once() {
    let mut script = Script::open(Config { idle: IdlePolicy::Lazy, ..Config::default() });
    let locked = script.hold(7, 2, 40, 16);
    script.submit(Command::Unlock { holder: locked.holder });
    script.quiet();
    script.say(&[demand(1, 7, 40, Keep::Nothing)]);
    let items = [item(7, 40, Keep::Nothing)];
    script.sends(&[receipt(1, ReceiptAnswer::Received), Release { serial: 2, items: List::of(&items) }.into()]);
    script.say(&[demand(1, 7, 40, Keep::Nothing)]);
    script.sends(&[receipt(1, ReceiptAnswer::NotHeld)]);
}

//= wire-spec.md#11-4-locks
//= type=test
//# An agent that answered "grant awaited" MUST comply after the grant has come.
#[test]
fn a_demand_that_overtakes_the_grant_is_awaited_if_a_user_waits_and_he_gets_the_lock_once() {
    let mut script = Script::open(Config::default());
    let first = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let second = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[exclusive(2, LockWait::Queue)]);
    script.say(&[demand(1, 7, 40, Keep::Nothing)]);
    script.sends(&[receipt(1, ReceiptAnswer::Awaited)]);
    script.say(&[granted(2, echo, 7, Mode::Exclusive, 40, 16)]);
    let locked = script.locked(first);
    script.say(&[demand(1, 7, 40, Keep::Nothing)]);
    script.sends(&[receipt(1, ReceiptAnswer::InUse)]);
    script.submit(Command::Unlock { holder: locked.holder });
    let items = [item(7, 40, Keep::Nothing)];
    let echo = script.sends(&[Release { serial: 2, items: List::of(&items) }.into()]);
    script.hears(&[]);
    script.say(&[released(2, echo, &[back(7, 40, Keep::Nothing, 0)])]);
    let echo = script.sends(&[exclusive(3, LockWait::Queue)]);
    script.say(&[granted(3, echo, 7, Mode::Exclusive, 80, 16)]);
    assert_eq!(script.locked(second).token, 80, "the second user queued at the server (section 11.4)");
}

//= wire-spec.md#11-4-locks
//= type=test
//# An agent that answered "not held" to a demand for g, or released g, MUST NOT install a grant of that lock of generation g or less in
//# that session.
#[test]
fn a_demand_that_was_answered_awaited_is_complied_with_though_it_never_comes_again() {
    let mut script = Script::open(Config::default());
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[exclusive(2, LockWait::Queue)]);
    script.say(&[demand(1, 7, 40, Keep::Nothing)]);
    script.sends(&[receipt(1, ReceiptAnswer::Awaited)]);
    script.say(&[granted(2, echo, 7, Mode::Exclusive, 40, 16)]);
    let locked = script.locked(op);
    script.quiet();
    script.submit(Command::Unlock { holder: locked.holder });
    let items = [item(7, 40, Keep::Nothing)];
    script.sends(&[Release { serial: 2, items: List::of(&items) }.into()]);
}

#[test]
fn a_demand_that_overtakes_the_grant_is_not_held_if_nobody_waits_and_the_grant_is_refused() {
    let (mut script, op) = waiting(Wait::Forever);
    script.agent.cancel(script.now(), op);
    script.events();
    script.sends(&[Cancel { serial: 2, nonce: 2 }.into()]);
    script.say(&[demand(1, 7, 60, Keep::Nothing)]);
    script.sends(&[receipt(1, ReceiptAnswer::NotHeld)]);
    script.say(&[grant(2, 2, 7, 60)]);
    script.sends(&[receipt(2, ReceiptAnswer::NotHeld)]);
    assert_eq!(script.agent.view(script.now()).advisory_locks, 0);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# An agent MUST receipt a demand for a generation that it does not know or no longer holds, without effect.
#[test]
fn a_demand_for_a_lock_that_the_agent_knows_nothing_of_is_receipted_and_harmless() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    script.say(&[demand(1, 8, 50, Keep::Nothing), demand(2, 7, 39, Keep::Nothing)]);
    script.sends(&[receipt(1, ReceiptAnswer::NotHeld), receipt(2, ReceiptAnswer::NotHeld)]);
    assert!(script.agent.holder_view(script.now(), locked.holder).is_some());
    script.hears(&[]);
}

#[test]
fn a_release_and_a_demand_that_cross_do_no_harm() {
    let mut script = Script::open(Config { advisory_max: 1, ..Config::default() });
    let locked = script.hold(7, 2, 40, 16);
    script.submit(Command::Unlock { holder: locked.holder });
    script.start(lock(8, Mode::Exclusive, Wait::Forever));
    let items = [item(7, 40, Keep::Nothing)];
    let asked = lock_request(3, 0, 8, Mode::Exclusive, LockWait::Queue);
    let echo = script.sends(&[Release { serial: 2, items: List::of(&items) }.into(), asked]);
    script.say(&[demand(1, 7, 40, Keep::Nothing)]);
    script.sends(&[receipt(1, ReceiptAnswer::NotHeld)]);
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    script.quiet();
    script.say(&[released(2, echo, &[back(7, 40, Keep::Nothing, 0)])]);
    let echo = script.sends(&[lock_request(4, 1, 7, Mode::Exclusive, LockWait::Queue)]);
    script.say(&[granted(4, echo, 7, Mode::Exclusive, 60, 16)]);
    assert_eq!(script.locked(op).token, 60);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# An agent MUST NOT wait longer than 10 s because of a `retry_ms`.
#[test]
fn a_server_that_is_busy_for_weeks_is_asked_again_after_ten_seconds() {
    let mut script = Script::open(Config::default());
    script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[exclusive(2, LockWait::Queue)]);
    script.say(&[Ack { nonce: 2, echo, reply: Reply::Failed(Failed { status: Status::BUSY, retry_ms: u32::MAX }) }.into()]);
    let asked = |sent: &[(u64, Sent)]| sent.iter().any(|(_, sent)| sent.messages().contains(&exclusive(3, LockWait::Queue)));
    assert!(!asked(&script.run(9_900)) && asked(&script.run(200)));
}

#[test]
fn a_busy_server_is_asked_again_after_its_hint() {
    let mut script = Script::open(Config::default());
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[exclusive(2, LockWait::Queue)]);
    script.say(&[Ack { nonce: 2, echo, reply: Reply::Failed(Failed { status: Status::BUSY, retry_ms: 250 }) }.into()]);
    script.silence(249);
    script.sleep(1);
    let echo = script.sends(&[exclusive(3, LockWait::Queue)]);
    script.say(&[Ack { nonce: 3, echo, reply: Reply::Failed(Failed { status: Status::BUSY, retry_ms: 0 }) }.into()]);
    script.hears(&[Script::failed(op, OpError::Status(Status::BUSY))]);
}

fn limited(nonce: u64, echo: u64, retry_ms: u32) -> (Message<'static>, OpError) {
    let limited = Limited { limit: Limit::Locks, whose: Whose::Host, realm: Realm(0), used: 44, bound: 44, retry_ms };
    (Ack { nonce, echo, reply: Reply::Limited(limited) }.into(), OpError::Limited(limited))
}

#[test]
fn a_bound_that_makes_no_room_by_itself_ends_a_lock_command() {
    let mut script = Script::open(Config::default());
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[exclusive(2, LockWait::Queue)]);
    let (refusal, why) = limited(2, echo, 0);
    script.say(&[refusal]);
    script.hears(&[Script::failed(op, why)]);
}

#[test]
fn a_bound_that_may_make_room_is_asked_again_and_named_when_the_time_is_up() {
    let mut script = Script::open(Config::default());
    let op = script.start(lock(7, Mode::Exclusive, Wait::AtMost(Duration::from_millis(300))));
    let echo = script.sends(&[exclusive(2, LockWait::Queue)]);
    script.say(&[limited(2, echo, 250).0]);
    script.silence(249);
    script.sleep(1);
    let echo = script.sends(&[exclusive(3, LockWait::Queue)]);
    let (refusal, why) = limited(3, echo, 250);
    script.say(&[refusal]);
    script.run(50);
    script.hears(&[Script::failed(op, why)]);
}

#[test]
fn a_server_that_never_answers_a_lock_request_is_given_up_and_the_request_taken_back() {
    let mut script = Script::open(Config { give_up_after: Duration::from_millis(500), ..Config::default() });
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let sent = script.run(500);
    script.hears(&[Script::failed(op, OpError::Unreachable)]);
    assert!(matches!(sent.last().unwrap().1.messages()[0], Message::Cancel(Cancel { nonce: 2, .. })));
    assert_eq!(script.agent.view(script.now()).holders, 0);
}

#[test]
fn a_wait_in_line_outlasts_the_time_that_commands_have() {
    let mut script = Script::open(Config { give_up_after: Duration::from_millis(500), ..Config::default() });
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[exclusive(2, LockWait::Queue)]);
    script.say(&[queued(2, echo, 7)]);
    script.run(1_100);
    script.hears(&[]);
    script.say(&[grant(1, 2, 7, 60)]);
    assert_eq!(script.locked(op).token, 60);
}

#[test]
fn a_lost_lock_is_told_before_the_end_of_its_session() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    script.agent.close(script.now());
    let events = script.events();
    assert_eq!(events, [Event::Lock { holder: locked.holder, object: locked.object, what: LockEvent::Lost }]);
}

#[test]
fn the_answer_to_a_cancellation_is_about_its_request_and_no_later_one() {
    let mut script = Script::open(Config::default());
    let first = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let asked = script.sends(&[exclusive(2, LockWait::Queue)]);
    script.agent.cancel(script.now(), first);
    script.hears(&[Script::failed(first, OpError::Status(Status::ECANCELED))]);
    let cancel = script.sends(&[Cancel { serial: 2, nonce: 2 }.into()]);
    let (outcome, generation) = (CancelOutcome::Answered, Generation(0));
    let late = script.make(&[Cancelled { serial: 2, echo: cancel, nonce: 2, outcome, generation }.into()]);
    // The grant had been on the way; it goes back, and somebody else asks.
    script.say(&[granted(2, asked, 7, Mode::Exclusive, 40, 16)]);
    let items = [item(7, 40, Keep::Nothing)];
    let release = script.sends(&[Release { serial: 3, items: List::of(&items) }.into()]);
    let second = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    script.say(&[released(3, release, &[back(7, 40, Keep::Nothing, 0)])]);
    let asked = script.sends(&[exclusive(3, LockWait::Queue)]);
    script.say(&[queued(3, asked, 7)]);
    script.deliver(&late);
    script.quiet();
    script.say(&[grant(1, 3, 7, 60)]);
    assert_eq!(script.locked(second).token, 60);
}

#[test]
fn a_result_is_not_the_end_of_a_lock_request() {
    let mut script = Script::open(Config::default());
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    script.sends(&[exclusive(2, LockWait::Queue)]);
    let reply = Reply::Failed(Failed { status: Status::ESTALE, retry_ms: 0 });
    script.say(&[RequestResult { nonce: 2, reply }.into()]);
    let (_, again) = script.run(200).pop().expect("it is asked again");
    assert_eq!(again.messages(), [exclusive(2, LockWait::Queue)]);
    script.say(&[granted(2, again.packet(), 7, Mode::Exclusive, 60, 16)]);
    assert_eq!(script.locked(op).token, 60);
}

#[test]
fn a_wait_limit_counts_from_the_command_and_holds_on_the_way_to_the_lock() {
    let by_path = |limit| Command::Lock {
        target: crate::api::Target::Path(bytes::Bytes::from_static(b"/a")),
        mode: Mode::Exclusive,
        wait: Wait::AtMost(Duration::from_millis(limit)),
    };
    let mut script = Script::new(Config::default());
    let op = script.start(by_path(300));
    script.run(299);
    script.hears(&[]);
    script.run(1);
    script.hears(&[Script::failed(op, OpError::TimedOut)]);

    let mut script = Script::open(Config::default());
    let op = script.start(by_path(300));
    let sent = script.one();
    let [Message::Lookup(lookup)] = sent.messages()[..] else { panic!("{:?}", sent.messages()) };
    script.sleep(100);
    let root = cistern_wire::Attr { kind: cistern_wire::ObjectKind::Directory, ..attr(1, 1) };
    let step = |attr| cistern_wire::Stated { attr, grant: cistern_wire::CacheGrant::NONE };
    let steps = [step(root), step(attr(7, 1))];
    let walked = cistern_wire::Walked { status: Status::OK, steps: List::of(&steps), target: cistern_wire::Bytes16(b"") };
    script.say(&[Ack { nonce: lookup.ask.nonce, echo: sent.packet(), reply: Reply::Walked(walked) }.into()]);
    let echo = script.sends(&[exclusive(3, LockWait::Queue)]);
    script.say(&[queued(3, echo, 7)]);
    script.run(199);
    script.hears(&[]);
    script.run(1);
    script.hears(&[Script::failed(op, OpError::TimedOut)]);
}
