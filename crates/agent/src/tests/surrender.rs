//! Surrender: when the agent says that nothing of a lost session can be used again, and when it does not.

use super::script::*;
use crate::api::{Command, Event, LockEvent, Submitted};
use crate::config::Config;
use alloc::vec::Vec;
use cistern_wire::{Claim, EndReason, EndSession, Ended, Fate, Message, Nack, NackReason, SessionFate, SessionId};

const SECOND: SessionId = SessionId(0xCD);

fn surrender(serial: u64) -> Message<'static> {
    EndSession { serial, reason: EndReason::Surrender }.into()
}

/// The server takes the session's locks back.
fn nacked(script: &mut Script) {
    script.start(Command::Ping);
    let echo = script.turn().last().unwrap().packet();
    script.say(&[Nack { nonce: 0, echo, reason: NackReason::TimingOut, fate: Fate::Unknown }.into()]);
}

/// What is sent in the session that is over.
fn of_the_dead(sent: &[(u64, Sent)]) -> Vec<&Sent> {
    sent.iter().map(|(_, sent)| sent).filter(|sent| sent.datagram().header.session == SESSION).collect()
}

#[test]
fn a_session_that_nobody_uses_is_surrendered_at_once_and_until_the_server_answers() {
    let gone = |echo| Nack { nonce: 0, echo, reason: NackReason::Ended, fate: Fate::Unknown }.into();
    surrendered_until(|echo| Ended { serial: 2, echo }.into());
    surrendered_until(gone);
}

fn surrendered_until(ended: impl Fn(u64) -> Message<'static>) {
    let mut script = Script::open(Config::default());
    script.cache(9, 2, 80);
    nacked(&mut script);
    let first = script.sends(&[surrender(2)]);
    let sent = script.run(300);
    let again = of_the_dead(&sent);
    assert!(again.len() >= 2);
    assert!(again.iter().all(|sent| sent.messages() == [surrender(2)]), "the same words");
    let packets: Vec<u64> = core::iter::once(first).chain(again.iter().map(|sent| sent.packet())).collect();
    assert!(packets.windows(2).all(|pair| pair[0] < pair[1]), "each under a number of its own: {packets:?}");
    script.say(&[ended(packets[1])]);
    assert!(of_the_dead(&script.run(3_000)).is_empty());
    script.session = SECOND;
    assert_eq!(script.shake_amid(SECOND, &[]), [], "it is known to have ended");
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Surrender: an agent MUST say so only when its caches are dropped, its holders have stopped or their instants passed, and all I/O under
//# its locks has ended.
#[test]
fn a_session_is_surrendered_when_its_last_holder_has_stopped_and_no_sooner() {
    let mut script = Script::open(Config::default());
    let seven = script.hold(7, 2, 40, 16);
    let eight = script.hold(8, 3, 60, 16);
    nacked(&mut script);
    assert_eq!(script.events()[..2], [Script::told(&seven, LockEvent::Lost), Script::told(&eight, LockEvent::Lost)]);
    script.submit(Command::Unlock { holder: seven.holder });
    assert!(of_the_dead(&script.run(500)).is_empty());
    script.submit(Command::Unlock { holder: eight.holder });
    assert!(script.turn().iter().any(|sent| sent.messages() == [surrender(2)]));
}

#[test]
fn a_session_is_surrendered_when_the_instant_shown_to_its_holders_has_passed_and_no_sooner() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    script.sleep(300);
    nacked(&mut script);
    let left = u64::try_from(script.now().until_lease_over(locked.valid_until).as_millis()).unwrap();
    assert!(of_the_dead(&script.run(left - 1)).is_empty());
    script.sleep(1);
    assert!(script.turn().iter().any(|sent| sent.messages() == [surrender(2)]));
}

#[test]
fn a_machine_that_slept_past_the_instant_has_passed_it() {
    let mut script = Script::open(Config::default());
    script.hold(7, 2, 40, 16);
    nacked(&mut script);
    script.suspend(TAU_MS);
    assert!(script.turn().iter().any(|sent| sent.messages() == [surrender(2)]));
}

#[test]
fn hello_says_unknown_as_long_as_somebody_may_act_and_surrendered_from_then_on() {
    for stopped in [false, true] {
        let mut script = Script::open(Config::default());
        let locked = script.hold(7, 2, 40, 16);
        nacked(&mut script);
        if stopped {
            let gone = script.submit(Command::Unlock { holder: locked.holder });
            assert!(matches!(gone, Submitted::Now(Err(_))), "it is lost all the same");
        }
        let claim = if stopped { Claim::Surrendered } else { Claim::Lost };
        assert_eq!(script.shake_amid(SECOND, &[(SESSION, SessionFate::TimingOut)]), [(SESSION, claim)]);
        // The new session changes nothing about that.
        script.submit(Command::Unlock { holder: locked.holder });
        assert!(!of_the_dead(&script.run(500)).is_empty());
    }
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A HINT MUST NOT make an agent discard, release or surrender anything.
#[test]
fn a_hint_never_surrenders() {
    let mut script = Script::open(Config::default());
    script.cache(9, 2, 80);
    script.hint();
    let sent = script.run(6_000);
    assert!(!sent.iter().any(|(_, sent)| sent.messages().iter().any(|message| matches!(message, Message::EndSession(_)))));
    assert_eq!(script.shake_amid(SECOND, &[(SESSION, SessionFate::Ended)]), [(SESSION, Claim::Continuing)]);
}

#[test]
fn a_surrender_that_is_never_answered_is_given_up_after_some_tries() {
    let mut script = Script::open(Config::default());
    let op = script.start(Command::Ping);
    let echo = script.turn().last().unwrap().packet();
    script.say(&[Nack { nonce: 0, echo, reason: NackReason::TimingOut, fate: Fate::Unknown }.into()]);
    script.agent.cancel(script.now(), op);
    assert_eq!(script.run(60_000).len(), 8);
    script.asleep();
}

#[test]
fn welcome_may_tell_that_a_surrendered_session_has_ended() {
    let mut script = Script::open(Config::default());
    nacked(&mut script);
    script.shake_amid(SECOND, &[(SESSION, SessionFate::Ended)]);
    assert!(of_the_dead(&script.run(3_000)).is_empty());
}

#[test]
fn a_nack_that_says_that_the_session_has_ended_leaves_nothing_to_surrender() {
    let mut script = Script::open(Config::default());
    script.start(Command::Ping);
    let echo = script.turn().last().unwrap().packet();
    script.say(&[Nack { nonce: 0, echo, reason: NackReason::Ended, fate: Fate::Unknown }.into()]);
    assert_eq!(script.shake_amid(SECOND, &[]), []);
    assert!(of_the_dead(&script.run(1_000)).is_empty());
}

#[test]
fn several_lost_sessions_are_each_surrendered_in_their_own_numbers() {
    let mut script = Script::open(Config::default());
    let first = script.hold(7, 2, 40, 16);
    nacked(&mut script);
    script.shake_amid(SECOND, &[(SESSION, SessionFate::TimingOut)]);
    let sent = script.turn();
    let echo = sent.last().unwrap().packet();
    script.say(&[Nack { nonce: 0, echo, reason: NackReason::TimingOut, fate: Fate::Unknown }.into()]);
    let sent = script.one();
    assert_eq!((sent.datagram().header.session, sent.messages()), (SECOND, alloc::vec![surrender(2)]), "nobody ever used it");
    script.submit(Command::Unlock { holder: first.holder });
    let sent = script.turn();
    assert!(sent.iter().any(|sent| sent.datagram().header.session == SESSION && sent.messages() == [surrender(2)]));
    let claims = script.shake_amid(SessionId(0xEF), &[(SESSION, SessionFate::Ended), (SECOND, SessionFate::Ended)]);
    assert_eq!(claims, [(SECOND, Claim::Surrendered), (SESSION, Claim::Surrendered)]);
}

#[test]
fn surrender_can_be_switched_off() {
    let mut script = Script::open(Config { surrender: false, ..Config::default() });
    nacked(&mut script);
    assert_eq!(script.shake_amid(SECOND, &[(SESSION, SessionFate::TimingOut)]), [(SESSION, Claim::Lost)]);
    assert!(of_the_dead(&script.run(3_000)).is_empty());
}

#[test]
fn nothing_else_of_a_surrendered_session_is_heard() {
    let mut script = Script::open(Config::default());
    nacked(&mut script);
    let packet = script.sends(&[surrender(2)]);
    script.say(&[Ended { serial: 2, echo: packet + 1 }.into()]);
    script.say(&[cistern_wire::Alive { serial: 2, echo: packet }.into()]);
    script.drops = 2;
    assert!(!of_the_dead(&script.run(500)).is_empty(), "it was not answered");
    let events = script.events();
    assert!(events.iter().all(|event| !matches!(event, Event::SessionOpened { .. })));
}
