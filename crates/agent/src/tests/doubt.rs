//! A server that is silent: it may have been started anew and its hints been lost, or the network may be at fault.

use super::script::*;
use crate::api::{Command, Event, LockEvent};
use crate::config::Config;
use alloc::vec::Vec;
use cistern_wire::{
    Bytes8, Challenge, Claim, Done, Fate, Hint, Known, Message, Nack, NackReason, PathChallenge, PathResponse, Reply, SessionFate,
    SessionId, Welcome,
};

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
    assert_eq!(script.shake_amid(SECOND, &[(SESSION, SessionFate::Reclaimable)]), [(SESSION, Claim::Continuing)]);
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

/// The server offers a session, and the agent asks in it whether its own goes on. Gives that datagram.
fn confirming(script: &mut Script, hello: &Sent) -> Sent {
    challenge(script, hello);
    for _ in 0..800 {
        for sent in script.turn() {
            if sent.claims().is_some() {
                assert_eq!(sent.claims(), Some([(SESSION, Claim::Continuing)].into()));
                assert!(sent.datagram().header.session == SECOND && sent.messages().is_empty(), "alone: {:?}", sent.messages());
                return sent;
            }
            if sent.datagram().header.session == SessionId(0) {
                let (hello, echo) = hello_of(&sent);
                script.say_outside(&[Welcome { session: SECOND, ..welcome(&hello, echo) }.into()]);
            }
        }
        script.sleep(1);
    }
    panic!("no CONFIRM");
}

/// KNOWN, in answer to CONFIRM.
fn known(script: &mut Script, sent: &Sent, session: SessionId) {
    let known = Known { serial: 1, echo: sent.packet(), session };
    script.say_in(SECOND, &[known.into()]);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# KNOWN MUST NOT renew a lease, move or prove an address, retire a request, stand for a receipt, or rescue or end a session.
//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# After KNOWN an agent MUST NOT verify the session again before τ/4 has passed.
#[test]
fn known_ends_the_verification_and_renews_nothing() {
    let mut script = Script::open(Config::default());
    let sent = silent(&mut script);
    let valid_until = script.agent.view(script.now()).valid_until;
    let sent = confirming(&mut script, &sent);
    known(&mut script, &sent, SESSION);
    assert_eq!(script.agent.view(script.now()).valid_until, valid_until, "no lease rests on it");
    let sent = script.one();
    let Message::KeepAlive(asked) = sent.messages()[0] else { panic!("it asks in the session at once: {sent:?}") };
    let after = script.run(499);
    assert!(hellos(&after).is_empty(), "not verified again within τ/4");
    assert!(after.len() >= 2, "but asked in the session: {}", after.len());
    assert!(!hellos(&script.run(500)).is_empty(), "and later again, for nothing is heard");
    script.say(&[cistern_wire::Alive { serial: asked.serial, echo: sent.packet() }.into()]);
    let told = script.events();
    assert!(!told.iter().any(|event| matches!(event, Event::Lock { what: LockEvent::Lost, .. })), "nothing is lost: {told:?}");
}

#[test]
fn known_of_another_session_or_to_no_confirm_is_dropped() {
    let mut script = Script::open(Config::default());
    let sent = silent(&mut script);
    let sent = confirming(&mut script, &sent);
    let echo = sent.packet();
    for (packet, stray) in
        [Known { serial: 1, echo, session: SECOND }, Known { serial: 1, echo: 99, session: SESSION }].into_iter().enumerate()
    {
        let bytes = Script::datagram(SECOND, 1 + packet as u64, &[stray.into()]);
        script.deliver(&bytes);
        script.drops += 1;
    }
    let again = script.run(300).into_iter().find(|(_, sent)| sent.datagram().header.session == SECOND);
    assert!(again.is_some_and(|(_, again)| again.claims() == sent.claims()), "the verification goes on");
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# WELCOME MUST NOT renew a lease, and MUST NOT change or end a session that the agent has.
#[test]
fn session_that_is_verified_goes_on_until_opened_says_otherwise() {
    let mut script = Script::open(Config::default());
    let sent = silent(&mut script);
    let offered = confirming(&mut script, &sent);
    let view = script.agent.view(script.now());
    assert_eq!(view.session, Some(SESSION));
    // It is heard again; what was asked in the other one is still answered.
    let sent = script.run(300);
    let newest = sent.iter().rfind(|(_, sent)| sent.datagram().header.session == SESSION).expect("keep-alives go on");
    let Message::KeepAlive(asked) = newest.1.messages()[0] else { panic!("a keep-alive") };
    script.say(&[cistern_wire::Alive { serial: asked.serial, echo: newest.1.packet() }.into()]);
    assert_ne!(script.agent.view(script.now()).valid_until, view.valid_until);
    known(&mut script, &offered, SESSION);
    let after = script.run(1_000);
    assert!(after.iter().all(|(_, sent)| sent.datagram().header.session == SESSION), "the other one is not asked any more");
    let told = script.events();
    assert!(!told.iter().any(|event| matches!(event, Event::Lock { what: LockEvent::Lost, .. })), "nothing is lost: {told:?}");
}

#[test]
fn offer_of_which_the_server_knows_nothing_any_more_is_given_up_for_another_and_named() {
    for hinted in [true, false] {
        let mut script = Script::open(Config::default());
        let sent = silent(&mut script);
        let sent = confirming(&mut script, &sent);
        if hinted {
            script.say_in(SECOND, &[Hint { echo: sent.packet(), detail: Bytes8(b"") }.into()]);
        }
        let claims = script.shake_amid(SessionId(0xEF), &[(SESSION, SessionFate::TimingOut), (SECOND, SessionFate::Ended)]);
        assert_eq!(claims, [(SESSION, Claim::Continuing), (SECOND, Claim::Surrendered)], "it may be open at the server");
    }
}

#[test]
fn an_answer_to_what_was_sent_since_the_verification_began_ends_it_and_an_older_one_does_not() {
    let mut script = Script::open(Config::default());
    let sent = silent(&mut script);
    // The network is there again; the answer to the first keep-alive comes late.
    script.say(&[cistern_wire::Alive { serial: 2, echo: script.first + 1 }.into()]);
    challenge(&mut script, &sent);
    let sent = script.run(100);
    assert_eq!(hello_of(&hellos(&sent)[0].1).0.cookie.0, b"cookie", "it asks on, which does no harm");
    let newest = sent.iter().rfind(|(_, sent)| sent.datagram().header.session == SESSION);
    let (_, newest) = newest.expect("keep-alives go on");
    let Message::KeepAlive(asked) = newest.messages()[0] else { panic!("a keep-alive") };
    script.say(&[cistern_wire::Alive { serial: asked.serial, echo: newest.packet() }.into()]);
    assert!(hellos(&script.run(1_000)).is_empty());
    script.hears(&[]);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# An agent that has a session MUST name it first in CONFIRM, as continuing.
#[test]
fn a_server_that_does_not_hold_the_session_is_asked_for_another_as_soon_as_it_challenges() {
    let mut script = Script::open(Config::default());
    let sent = silent(&mut script);
    challenge(&mut script, &sent);
    let second = script.one();
    let (hello, echo) = hello_of(&second);
    assert_eq!(hello.cookie.0, b"cookie");
    script.say_outside(&[Welcome { session: SECOND, ..welcome(&hello, echo) }.into()]);
    assert_eq!(script.one().claims(), Some([(SESSION, Claim::Continuing)].into()));
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# An agent MUST name a session lost or surrendered only after a NACK of it, after OPENED of another one, after it closed it, or when
//# it may be a copy.
#[test]
fn a_nack_in_the_midst_of_a_verification_makes_it_a_handshake_that_names_the_session_as_lost() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    script.silence(1_199);
    let sent = script.run(300);
    let echo = sent.iter().rfind(|(_, sent)| sent.datagram().header.session == SESSION).unwrap().1.packet();
    assert!(!hellos(&sent).is_empty());
    script.say(&[Nack { nonce: 0, echo, reason: NackReason::TimingOut, fate: Fate::Unknown }.into()]);
    script.submit(Command::Ping);
    assert_eq!(script.shake_amid(SECOND, &[(SESSION, SessionFate::TimingOut)]), [(SESSION, Claim::Lost)]);
    assert!(script.events().contains(&Script::told(&locked, LockEvent::Lost)));
}

//= docs/sealed.md#ended-sessions-clones-key-log
//= type=test
//# A side that notices that it may be a copy MUST send nothing more in its sessions, not even END_SESSION, and open others.
#[test]
fn an_agent_that_may_be_a_copy_sends_nothing_more_in_its_session_and_names_it_lost_in_the_next() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    script.cache(9, 3, 80);
    let now = script.now();
    script.agent.handle_copied(now, [7; 32]);
    assert!(script.events().contains(&Script::told(&locked, LockEvent::Lost)));
    script.submit(Command::Unlock { holder: locked.holder });
    script.start(Command::Ping);
    let sent = script.run(3_000);
    assert!(!hellos(&sent).is_empty(), "another session is asked for");
    assert!(sent.iter().all(|(_, sent)| sent.datagram().header.session != SESSION), "no datagram in the former one");
    assert_eq!(script.shake_amid(SECOND, &[(SESSION, SessionFate::TimingOut)]), [(SESSION, Claim::Lost)]);
    assert_eq!(script.agent.session_states(), [(SECOND, "open")], "the former one is the server's to end");
}

#[test]
fn a_copy_takes_no_offer_that_was_made_to_the_other_one() {
    let mut script = Script::open(Config::default());
    script.hold(7, 2, 40, 16);
    script.silence(1_199);
    let sent = script.run(300);
    let (hello, echo) = hello_of(&hellos(&sent).last().unwrap().1);
    let now = script.now();
    script.agent.handle_copied(now, [7; 32]);
    script.say_outside(&[Welcome { session: SECOND, ..welcome(&hello, echo) }.into()]);
    assert!(script.turn().iter().all(|sent| sent.claims().is_none() && sent.datagram().header.session != SESSION));
    // It answers a handshake that this one has not begun.
    script.drops = 1;
}

#[test]
fn a_copy_of_an_agent_without_a_session_begins_a_handshake_of_its_own() {
    let handshake = |seed| {
        let mut script = Script::new(Config::default());
        script.start(Command::Ping);
        let first = script.one();
        let (hello, echo) = hello_of(&first);
        let now = script.now();
        script.agent.handle_copied(now, [seed; 32]);
        script.say_outside(&[Welcome { session: SECOND, ..welcome(&hello, echo) }.into()]);
        let sent = script.run(2_000);
        assert!(sent.iter().all(|(_, sent)| sent.datagram().header.session == SessionId(0)), "nothing in what the other one was offered");
        script.drops = 1;
        let (next, _) = hello_of(&hellos(&sent).last().unwrap().1);
        assert_ne!(next.handshake, hello.handshake);
        next.handshake
    };
    assert_ne!(handshake(7), handshake(8), "two copies number nothing alike");
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# An agent that answers PATH_CHALLENGE SHOULD send a keep-alive in the same datagram if it would renew its lease.
#[test]
fn a_path_challenge_is_answered_together_with_a_keep_alive() {
    let mut script = Script::open(Config::default());
    script.hold(7, 2, 40, 16);
    script.sleep(10);
    script.say(&[PathChallenge { token: 77 }.into()]);
    let sent = script.one();
    assert!(matches!(sent.messages()[..], [Message::PathResponse(PathResponse { token: 77 }), Message::KeepAlive(_)]), "{sent:?}");
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
