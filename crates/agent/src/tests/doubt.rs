//! A server that is silent: it may have been started anew and its hints been lost, or the network may be at fault.

use super::script::*;
use crate::api::{Command, Event, LockEvent};
use crate::config::Config;
use alloc::vec::Vec;
use cistern_wire::{Bytes8, Challenge, Claim, Done, Message, Reply, SessionFate, SessionId};

const SECOND: SessionId = SessionId(0xCD);

fn hellos(sent: &[(u64, Sent)]) -> Vec<&(u64, Sent)> {
    sent.iter().filter(|(_, sent)| sent.datagram().header.session == SessionId(0)).collect()
}

/// Nothing is heard from the end of *valid* on, until HELLO has come. Gives HELLO.
fn silent(script: &mut Script) -> Sent {
    script.hold(7, 2, 40, 16);
    script.silence(1_199);
    for _ in 0..800 {
        for sent in script.turn() {
            if sent.datagram().header.session == SessionId(0) {
                return sent;
            }
        }
        script.sleep(1);
    }
    panic!("no HELLO before the lease is over");
}

fn challenge(script: &mut Script, sent: &Sent) {
    let (hello, echo) = hello_of(sent);
    assert!(hello.cookie.0.is_empty());
    script.say_outside(&[Challenge { handshake: hello.handshake, echo, cookie: Bytes8(b"cookie") }.into()]);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# Handshakes after a restart SHOULD be spread at random, and begin early enough to end within τ.
#[test]
fn a_silent_server_is_asked_for_a_session_early_enough_to_take_the_locks_over_before_the_lease_is_over() {
    let mut script = Script::open(Config::default());
    let sent = silent(&mut script);
    let left = script.now().until_lease_over(script.agent.view(script.now()).valid_until.unwrap());
    assert!(left.as_millis() > 400, "{left:?}");
    challenge(&mut script, &sent);
    assert_eq!(script.shake_amid(SECOND, &[(SESSION, SessionFate::Reclaimable)]), [(SESSION, Claim::Reclaiming)]);
    let sent = script.one();
    let Message::Reclaim(asked) = sent.messages()[0] else { panic!("RECLAIM") };
    let kept = asked.items.into_iter().next().unwrap();
    let kept = [cistern_wire::ReclaimedItem { lock: kept.lock, generation: kept.generation, status: cistern_wire::Status::OK, version: 0 }];
    let reply = Reply::Reclaimed(cistern_wire::Reclaimed { items: cistern_wire::List::of(&kept) });
    script.say(&[cistern_wire::Ack { nonce: 1, echo: sent.packet(), reply }.into()]);
    let sent = script.one();
    script.say(&[cistern_wire::Ack { nonce: 2, echo: sent.packet(), reply: Reply::Done(Done {}) }.into()]);
    let events = script.events();
    assert!(!events.iter().any(|event| matches!(event, Event::Lock { .. })), "the holder sees nothing: {events:?}");
}

#[test]
fn a_server_that_is_there_and_knows_the_session_is_not_made_to_end_it() {
    let mut script = Script::open(Config::default());
    let sent = silent(&mut script);
    // The network is there again.
    challenge(&mut script, &sent);
    let sent = script.one();
    assert!(matches!(sent.messages()[..], [Message::KeepAlive(_)]), "it is asked at once whether it knows the session");
    let Message::KeepAlive(asked) = sent.messages()[0] else { return };
    script.say(&[cistern_wire::Alive { serial: asked.serial, echo: sent.packet() }.into()]);
    assert!(hellos(&script.run(1_000)).is_empty());
    script.hears(&[]);
}

#[test]
fn a_server_that_answers_the_handshake_only_is_asked_for_a_session_one_timeout_later() {
    let mut script = Script::open(Config::default());
    let sent = silent(&mut script);
    challenge(&mut script, &sent);
    let sent = script.run(60);
    let second = hellos(&sent)[0];
    assert!(second.0 >= 20 && hello_of(&second.1).0.cookie.0 == b"cookie", "{second:?}");
}

#[test]
fn a_hint_makes_the_handshake_go_on_at_once() {
    let mut script = Script::open(Config::default());
    let sent = silent(&mut script);
    challenge(&mut script, &sent);
    let echo = script.one().packet();
    script.say(&[cistern_wire::Hint { echo, detail: Bytes8(b"") }.into()]);
    assert_eq!(hello_of(&script.one()).0.cookie.0, b"cookie");
}

#[test]
fn a_server_that_is_gone_is_asked_at_a_bounded_rate() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    let sent = script.run(60_000);
    let asked = hellos(&sent).len();
    assert!((30..=80).contains(&asked), "about one in a second: {asked}");
    let told: Vec<Event> = script.events();
    assert_eq!(told.last(), Some(&Script::told(&locked, LockEvent::Uncertain)), "and nothing is lost by it: {told:?}");
}

#[test]
fn an_agent_that_lets_its_lease_lapse_asks_for_nothing() {
    let mut script = Script::open(Config { idle: crate::config::IdlePolicy::Lazy, ..Config::default() });
    script.cache(9, 2, 80);
    script.start(Command::Ping);
    let echo = script.sends(&[ping(3, 0)]);
    script.say(&[stated(3, echo, attr(1, 1), 0)]);
    script.silence(60_000);
}
