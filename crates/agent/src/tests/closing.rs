//! The end of the agent.

use super::script::*;
use crate::api::{Command, Event, LockEvent, OpError, Output, Phase, Submitted, Wait};
use crate::config::Config;
use cistern_wire::{Demand, EndReason, EndSession, Ended, Fate, Generation, Keep, Message, Mode, Nack, NackReason, Receipt, ReceiptAnswer};
use core::time::Duration;

fn end(serial: u64) -> Message<'static> {
    EndSession { serial, reason: EndReason::Close }.into()
}

#[test]
fn closing_loses_the_locks_ends_the_commands_and_asks_until_it_is_answered() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    assert_eq!(script.submit(Command::Unlock { holder: locked.holder }), Submitted::Now(Ok(Output::Done)));
    let wait = script.start(lock(8, Mode::Exclusive, Wait::Forever));
    let read = script.start(stat(9));
    script.turn();
    script.agent.close(script.now());
    let closed = |op| Script::failed(op, OpError::Closed);
    script.hears(&[closed(read), closed(wait)]);
    assert_eq!(script.agent.view(script.now()).phase, Phase::NoSession, "nothing is used any more");
    assert_eq!(script.submit(Command::Ping), Submitted::Now(Err(OpError::Closed)));
    let sent = script.run(500);
    // Number 1 took the waiting request back, before it was clear that all ends.
    assert!(sent.len() >= 2 && sent.iter().all(|(_, sent)| sent.messages() == [end(3)]));
    assert!(!script.agent.is_closed());
    script.say(&[Ended { serial: 3, echo: sent[0].1.packet() }.into()]);
    assert!(script.agent.is_closed());
    assert!(matches!(script.events()[..], [Event::SessionEnded { session: SESSION, .. }]));
    script.asleep();
}

#[test]
fn closing_without_a_session_is_done_at_once() {
    let mut script = Script::new(Config::default());
    script.agent.close(script.now());
    assert!(script.agent.is_closed());
    script.asleep();
    let mut script = Script::new(Config::default());
    let op = script.start(Command::Ping);
    script.one();
    script.agent.close(script.now());
    assert!(script.agent.is_closed());
    script.hears(&[Script::failed(op, OpError::Closed)]);
    script.asleep();
}

#[test]
fn a_server_that_does_not_answer_is_not_waited_for_longer_than_set() {
    let mut script = Script::open(Config { close_within: Duration::from_millis(700), ..Config::default() });
    script.agent.close(script.now());
    script.run(699);
    assert!(!script.agent.is_closed());
    script.run(1);
    assert!(script.agent.is_closed());
    script.asleep();
}

#[test]
fn a_nack_is_as_good_an_end() {
    let mut script = Script::open(Config::default());
    script.agent.close(script.now());
    let echo = script.sends(&[end(2)]);
    script.say(&[Nack { nonce: 0, echo, reason: NackReason::TimingOut, fate: Fate::Unknown }.into()]);
    assert!(script.agent.is_closed());
}

#[test]
fn while_it_closes_the_agent_holds_nothing_and_says_so() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    script.submit(Command::Unlock { holder: locked.holder });
    script.agent.close(script.now());
    script.turn();
    script.say(&[Demand { seq: 1, lock: object(7), generation: Generation(40), keep: Keep::Nothing }.into()]);
    script.sends(&[Receipt { seq: 1, answer: ReceiptAnswer::NotHeld }.into()]);
}

fn surrender() -> Message<'static> {
    EndSession { serial: 2, reason: EndReason::Surrender }.into()
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Surrender: an agent MUST say so only when its caches are dropped, its holders have stopped or their instants passed, and all I/O under
//# its locks has ended.
#[test]
fn who_uses_a_lock_when_the_agent_closes_keeps_it_from_others_until_it_stops() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    script.agent.close(script.now());
    script.hears(&[Script::told(&locked, LockEvent::Lost)]);
    script.say(&[Demand { seq: 1, lock: object(7), generation: Generation(40), keep: Keep::Nothing }.into()]);
    assert_eq!(script.run(500).len(), 0, "nothing is said that the server could take for the end of its use");
    assert!(!script.agent.is_closed());
    assert_eq!(script.submit(Command::Unlock { holder: locked.holder }), Submitted::Now(Err(OpError::LeaseLost)));
    let sent = script.run(1);
    assert_eq!(sent[0].1.messages(), [surrender()]);
    script.drops = 1;
    script.say(&[Ended { serial: 2, echo: sent[0].1.packet() }.into()]);
    assert!(script.agent.is_closed());
    assert!(matches!(script.events()[..], [Event::SessionEnded { session: SESSION, .. }]));
    script.asleep();
}

#[test]
fn who_does_not_stop_is_waited_for_no_longer_than_the_instant_that_it_was_shown() {
    let mut script = Script::open(Config { close_within: Duration::from_secs(60), ..Config::default() });
    script.hold(7, 2, 40, 16);
    script.agent.close(script.now());
    let sent = script.run(1_999);
    assert!(sent.is_empty());
    let sent = script.run(2);
    assert_eq!(sent[0].1.messages(), [surrender()]);
    // Where users may act on after they were told, nothing is said at all.
    let mut script = Script::open(Config { surrender: false, ..Config::default() });
    script.hold(7, 2, 40, 16);
    script.agent.close(script.now());
    assert!(script.agent.is_closed());
    assert!(script.run(10_000).is_empty());
}

#[test]
fn a_mutation_under_way_has_an_unknown_outcome() {
    let mut script = Script::open(Config::default());
    let owner = crate::api::Ownership { mode: 0o755, uid: 0, gid: 0 };
    let op = script.start(Command::Mkdir { path: bytes::Bytes::from_static(b"/d"), owner });
    script.turn();
    script.agent.close(script.now());
    script.hears(&[Script::failed(op, OpError::OutcomeUnknown)]);
    script.sends(&[end(2)]);
}
