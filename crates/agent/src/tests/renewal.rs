//! What renews the lease, from when, and what does not.

use super::script::*;
use crate::api::{Command, Event, LockEvent, Output, Phase, Submitted};
use crate::config::{Config, IdlePolicy};
use cistern_wire::{Alive, Mode, Pending, Probe, Receipt, ReceiptAnswer, SessionId};

fn until(script: &Script) -> u64 {
    script.agent.view(script.now()).valid_until.unwrap().raw_ns / 1_000_000
}

fn ms(script: &Script) -> u64 {
    script.now().raw_ns / 1_000_000
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# WELCOME MUST NOT renew a lease, and MUST NOT change or end a session that the agent has.
#[test]
fn the_lease_of_a_new_session_begins_at_the_send_time_of_the_confirm_echoed() {
    let mut script = Script::new(Config::default());
    script.start(Command::Ping);
    let first = script.one();
    let (hello, echo) = hello_of(&first);
    script.sleep(30);
    script.say_outside(&[cistern_wire::Challenge { handshake: hello.handshake, echo, cookie: cistern_wire::Bytes8(b"c") }.into()]);
    let second = script.one();
    script.sleep(40);
    let (hello, echo) = hello_of(&second);
    script.say_outside(&[welcome(&hello, echo).into()]);
    assert_eq!(script.agent.view(script.now()).valid_until, None);
    let echo = script.sends(&[ping(1, 0)]);
    let sent = ms(&script);
    script.sleep(50);
    script.say(&[opened(echo, &[])]);
    assert_eq!(until(&script), sent + TAU_MS);
}

//= wire-spec.md#11-1-lease
//= type=test
//# A renewing answer MUST set the end of the lease to the later of its end so far and the send time of the echoed transmission plus τ.
#[test]
fn an_answer_renews_from_the_send_time_of_its_request_not_from_its_receipt() {
    let mut script = Script::open(Config::default());
    script.sleep(100);
    script.start(Command::Ping);
    let sent = ms(&script);
    let echo = script.sends(&[ping(2, 0)]);
    script.sleep(15);
    script.say(&[stated(2, echo, attr(1, 1), 0)]);
    assert_eq!(until(&script), sent + TAU_MS);
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A request that is sent again MUST keep its nonce and everything after its Ask.
#[test]
fn an_answer_to_an_earlier_transmission_renews_from_that_one_and_no_later() {
    let mut script = Script::open(Config::default());
    script.sleep(100);
    script.start(Command::Ping);
    let first_sent = ms(&script);
    let first = script.sends(&[ping(2, 0)]);
    script.sleep(60);
    let second_sent = ms(&script);
    let second = script.sends(&[ping(2, 0)]);
    assert_ne!(first, second, "each transmission has its own number");
    script.say(&[stated(2, first, attr(1, 1), 0)]);
    assert_eq!(until(&script), first_sent + TAU_MS, "the transmission answered counts, not the last one");
    script.say(&[stated(2, second, attr(1, 1), 0)]);
    assert_eq!(until(&script), second_sent + TAU_MS, "the copy answered the second transmission");
    script.say(&[stated(2, first, attr(1, 1), 0)]);
    assert_eq!(until(&script), second_sent + TAU_MS, "and nothing shortens it");
}

//= wire-spec.md#11-1-lease
//= type=test
//# An echo that the agent did not send in this session, or has forgotten, MUST NOT renew.
//= wire-spec.md#11-1-lease
//= type=test
//# An answer whose echo the agent did not send in this session MUST be dropped whole.
//= wire-spec.md#11-1-lease
//= type=test
//# An answer in a datagram of another session, or from another server incarnation, MUST NOT renew.
//= wire-spec.md#11-1-lease
//= type=test
//# The packet number in the header of an answer MUST NOT renew anything.
#[test]
fn an_echo_of_another_session_or_of_no_transmission_renews_nothing() {
    let mut script = Script::open(Config::default());
    let before = until(&script);
    script.sleep(500);
    script.start(Command::Ping);
    let echo = script.sends(&[ping(2, 0)]);
    script.say_in(SessionId(0xCD), &[stated(2, echo, attr(1, 1), 0)]);
    script.say(&[stated(2, echo + 1, attr(1, 1), 0)]);
    script.say(&[stated(2, 0, attr(1, 1), 0)]);
    script.say(&[Alive { serial: 2, echo: 999 }.into()]);
    assert_eq!(until(&script), before);
    assert_eq!(script.events(), [], "nor does it answer anything");
    script.drops = 4;
}

//= wire-spec.md#6-4-notices
//= type=test
//# A notice MUST NOT renew a lease.
#[test]
fn an_echo_too_old_to_be_remembered_renews_nothing() {
    let mut script = Script::open(Config { idle: IdlePolicy::Lazy, ..Config::default() });
    script.start(Command::Ping);
    let old = script.sends(&[ping(2, 0)]);
    script.sleep(TAU_MS);
    script.turn();
    script.say(&[stated(2, old, attr(1, 1), 0)]);
    assert_eq!(script.events().len(), 1, "the answer itself is as good as ever");
    assert_eq!(script.agent.view(script.now()).phase, Phase::Expired);
}

#[test]
fn notices_and_the_packet_numbers_of_headers_renew_nothing() {
    let mut script = Script::open(Config::default());
    let before = until(&script);
    script.sleep(500);
    script.say(&[Probe { seq: 1 }.into()]);
    script.sends(&[Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
    assert_eq!(until(&script), before);
}

//= wire-spec.md#11-2-delivery
//= type=test
//# An agent MUST ask again for a pending request at least every τ/2.
#[test]
fn pending_renews_and_the_command_goes_on() {
    let mut script = Script::open(Config::default());
    script.sleep(500);
    let op = script.start(Command::Ping);
    let sent = ms(&script);
    let echo = script.sends(&[ping(2, 0)]);
    script.say(&[Pending { nonce: 2, echo }.into()]);
    assert_eq!(until(&script), sent + TAU_MS);
    let again = script.run(TAU_MS / 2);
    assert!((TAU_MS / 4..TAU_MS / 2).contains(&again[0].0), "asked about again within τ/2, but not before it may be done");
    assert_eq!(again[0].1.messages(), [ping(2, 0)]);
    script.say(&[stated(2, again[0].1.packet(), attr(1, 1), 0)]);
    assert!(matches!(script.events()[..], [Event::Done { op: done, result: Ok(Output::Pong { .. }) }] if done == op));
}

//= wire-spec.md#11-1-lease
//= type=test
//# A renewing answer whose lease is over when it arrives MUST NOT make anything usable.
#[test]
fn a_late_answer_whose_window_has_passed_revives_nothing() {
    let mut script = Script::open(Config { idle: IdlePolicy::Lazy, ..Config::default() });
    script.cache(7, 2, 40);
    script.start(Command::Ping);
    let echo = script.sends(&[ping(3, 0)]);
    let late = script.make(&[stated(3, echo, attr(1, 1), 0)]);
    script.sleep(TAU_MS);
    script.deliver(&late);
    assert_eq!(script.agent.view(script.now()).phase, Phase::Expired);
    assert!(matches!(script.submit(stat(7)), Submitted::Later(_)), "the cache is kept, but not used");
}

//= wire-spec.md#11-1-lease
//= type=test
//# The agent MUST keep what it holds over the end of its lease until it learns that the session has ended.
#[test]
fn a_lapsed_cache_is_good_again_with_the_next_answer() {
    let mut script = Script::open(Config { idle: IdlePolicy::Lazy, ..Config::default() });
    script.cache(7, 2, 40);
    script.sleep(3 * TAU_MS);
    assert_eq!(script.agent.view(script.now()).phase, Phase::Expired);
    script.start(Command::Ping);
    let echo = script.sends(&[ping(3, 0)]);
    script.say(&[stated(3, echo, attr(1, 1), 0)]);
    script.is_cached(7);
}

#[test]
fn a_machine_that_slept_has_no_lease_whatever_its_other_clock_says() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    script.suspend(10 * TAU_MS);
    assert!(!script.agent.holder_view(script.now(), locked.holder).unwrap().certain, "the check at use needs no timer");
    script.turn();
    script.hears(&[Script::told(&locked, LockEvent::Uncertain)]);
    assert!(matches!(script.submit(lock(8, Mode::Shared, crate::api::Wait::Try)), Submitted::Later(_)));
}

#[test]
fn a_copy_of_a_datagram_is_dropped_and_one_too_old_to_tell() {
    let mut script = Script::open(Config::default());
    script.start(Command::Ping);
    let echo = script.sends(&[ping(2, 0)]);
    let answer = script.make(&[stated(2, echo, attr(1, 1), 0)]);
    script.deliver(&answer);
    script.deliver(&answer);
    assert_eq!(script.events().len(), 1);
    script.drops = 1;
    assert!(script.agent.drops().iter().any(|drop| drop == ("duplicate_packet", 1)));
}
