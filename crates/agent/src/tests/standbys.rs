//! Servers of a group: what an agent makes of those that stand by, of hints who serves, and of the call of one that has taken over.

use super::script::*;
use crate::api::{Command, Event, LockEvent, Locked, OpError, Phase};
use crate::config::{Config, IdlePolicy};
use alloc::vec::Vec;
use cistern_link::{Machine as _, Path};
use cistern_wire::limits::CALL;
use cistern_wire::{Bytes8, Challenge, Claim, FormerFate, Hint, Message, Refuse, RefuseReason, SessionFate, SessionId, Welcome};
use core::time::Duration;

const OTHER: SessionId = SessionId(0xCD);

/// The standby's refusal, which names who serves; 0: nobody.
fn refuse(handshake: u64, echo: u64, retry_ms: u32, serving: u8) -> Message<'static> {
    Refuse { handshake, echo, reason: RefuseReason::Standby, version_min: 1, version_max: 1, retry_ms, serving }.into()
}

/// One of the servers says this.
fn say(script: &mut Script, nth: u8, session: SessionId, message: Message<'_>) {
    script.agent.handle_datagram(script.now(), Path::to(server(nth)), &Script::datagram(session, 1, &[message]));
}

/// A server calls in a session.
fn call(script: &mut Script, nth: u8, session: SessionId) {
    say(script, nth, session, Hint { echo: CALL, detail: Bytes8(b"") }.into());
}

/// The HELLO that is sent now, beside whatever else: to whom, and what answers it.
fn hello(script: &mut Script) -> Option<(core::net::SocketAddr, u64, u64)> {
    let mut sent = script.turn();
    sent.retain(|sent| sent.datagram().header.session == SessionId(0));
    assert!(sent.len() <= 1, "one at a time");
    sent.first().map(|sent| {
        let (hello, echo) = hello_of(sent);
        (sent.to, hello.handshake, echo)
    })
}

/// An agent of three servers, whose session is open at the first, and who holds a lock.
fn holder() -> (Script, Locked) {
    let mut script = Script::with_servers(Config { idle: IdlePolicy::Lazy, ..Config::default() }, 3);
    script.open_now();
    let held = script.hold(7, 2, 40, 16);
    (script, held)
}

#[test]
fn a_dead_server_among_standbys_costs_a_timeout_in_each_round_and_no_more() {
    let mut script = Script::with_servers(Config::default(), 3);
    script.start(Command::Ping);
    // The first is dead, the second stands by, the third serves from the third round on.
    let mut asked = 0;
    let mut waited = Vec::new();
    let began = script.now();
    loop {
        for sent in script.turn() {
            let (hello, echo) = hello_of(&sent);
            if sent.to == server(1) {
                waited.push(script.now().since(began));
            } else if sent.to == server(2) || asked < 2 {
                asked += usize::from(sent.to == server(3));
                script.say_outside(&[refuse(hello.handshake, echo, 20, 0)]);
            } else {
                let rounds: Vec<_> = waited.windows(2).map(|pair| pair[1] - pair[0]).collect();
                script.events();
                assert!(rounds.len() == 2 && rounds.iter().all(|round| *round <= Duration::from_millis(300)), "{rounds:?}");
                return;
            }
        }
        script.sleep(1);
    }
}

//= wire-spec.md#11-10-groups-of-servers
//= type=test
//# An agent that a standby refuses MUST try the next of its servers at once, but after a round of them not before the pause that it was
//# told.
#[test]
fn standbys_send_an_agent_to_the_next_server_at_once_and_after_a_round_of_them_it_waits() {
    let mut script = Script::with_servers(Config::default(), 3);
    script.start(Command::Ping);
    let mut sent = script.one();
    for round in 0..2 {
        for at in 1..=3 {
            assert_eq!(sent.to, server(at), "round {round}");
            let (hello, echo) = hello_of(&sent);
            assert!(hello.cookie.0.is_empty(), "no cookie is shown to another server");
            script.say_outside(&[refuse(hello.handshake, echo, 80, 0)]);
            if at < 3 {
                sent = script.one();
            }
        }
        // Told once: nothing is given up because of it.
        let told = Event::NoSession { error: OpError::Refused(RefuseReason::Standby) };
        script.hears(if round == 0 { core::slice::from_ref(&told) } else { &[] });
        script.silence(80);
        let mut all = script.run(20);
        assert_eq!(all.len(), 1, "80 ms, and a quarter for the spread");
        sent = all.remove(0).1;
    }
    let (hello, echo) = hello_of(&sent);
    script.say_outside(&[Challenge { handshake: hello.handshake, echo, cookie: Bytes8(b"cookie") }.into()]);
    assert_eq!(script.one().to, server(1), "who serves is asked on");
}

#[test]
fn who_is_named_by_a_standby_is_asked_next_if_it_is_one_of_the_agents_servers() {
    for (serving, next) in [(3, 3), (0, 2), (1, 2), (4, 2), (255, 2)] {
        let mut script = Script::with_servers(Config::default(), 3);
        script.start(Command::Ping);
        let (_, handshake, echo) = hello(&mut script).unwrap();
        script.say_outside(&[refuse(handshake, echo, 80, serving)]);
        assert_eq!(hello(&mut script).unwrap().0, server(next), "named: {serving}");
        script.events();
    }
}

//= wire-spec.md#11-10-groups-of-servers
//= type=test
//# An agent MUST NOT follow more than one hint of who serves in an RTO.
#[test]
fn two_standbys_that_name_each_other_do_not_send_an_agent_to_and_fro() {
    let mut script = Script::with_servers(Config::default(), 3);
    script.start(Command::Ping);
    let mut asked = Vec::new();
    let began = script.now();
    while script.now().since(began) < Duration::from_secs(1) {
        while let Some((to, handshake, echo)) = hello(&mut script) {
            asked.push(to);
            let serving = if to == server(1) { 2 } else { 1 };
            script.say_outside(&[refuse(handshake, echo, 80, serving)]);
        }
        script.sleep(1);
    }
    script.events();
    assert_eq!(asked[..4], [server(1), server(2), server(3), server(1)], "each is asked, also the one that nobody names");
    // A round of them is four HELLOs, and a pause of 80 ms at least.
    assert!(asked.len() <= 4 * 13, "{}", asked.len());
}

#[test]
fn called_agent_verifies_its_session_there_at_once_and_believes_nothing_before_that_tells() {
    let (mut script, held) = holder();
    script.sleep(300);
    let before = script.agent.view(script.now()).valid_until;
    call(&mut script, 3, SESSION);
    let (to, handshake, echo) = hello(&mut script).expect("at once");
    assert_eq!(to, server(3));
    let view = script.agent.view(script.now());
    assert_eq!(
        (view.valid_until, view.session, view.phase),
        (before, Some(SESSION), Phase::Valid),
        "a call renews nothing and ends nothing"
    );
    say(&mut script, 3, SessionId(0), Challenge { handshake, echo, cookie: Bytes8(b"cookie") }.into());
    let mut sent = script.turn();
    sent.retain(|sent| sent.datagram().header.session == SessionId(0));
    let (hello, echo) = hello_of(&sent[0]);
    assert_eq!(sent[0].to, server(3));
    say(&mut script, 3, SessionId(0), Welcome { session: OTHER, server_incarnation: 4, ..welcome(&hello, echo) }.into());
    let mut sent = script.turn();
    sent.retain(|sent| sent.datagram().header.session == OTHER);
    assert_eq!(sent[0].claims(), Some([(SESSION, Claim::Continuing)].into()));
    let ended = [FormerFate { session: SESSION, fate: SessionFate::Ended }];
    say(&mut script, 3, OTHER, opened(sent[0].packet(), &ended));
    assert_eq!(script.events()[0], Script::told(&held, LockEvent::Lost), "what OPENED tells is believed");
    script.session = OTHER;
}

#[test]
fn call_redirects_a_handshake_that_waits_for_a_server_that_is_gone() {
    let (mut script, _) = holder();
    // Nothing is heard any more, until the session is in doubt.
    let mut asked = Vec::new();
    while asked.is_empty() {
        asked.extend(hello(&mut script));
        script.sleep(1);
    }
    let from = script.now();
    call(&mut script, 2, SESSION);
    assert_eq!(hello(&mut script).map(|asked| asked.0), Some(server(2)));
    // Of those that come within the pause no other is followed.
    call(&mut script, 3, SESSION);
    assert_eq!((hello(&mut script), script.now()), (None, from));
    script.drops += 1;
    script.events();
}

#[test]
fn call_of_another_session_from_elsewhere_or_too_soon_after_another_begins_nothing() {
    let (mut script, _) = holder();
    script.sleep(300);
    call(&mut script, 3, OTHER);
    call(&mut script, 9, SESSION);
    assert_eq!(hello(&mut script), None);
    script.drops += 2;
    // One that was false: the server is heard in the session, which ends the verification.
    call(&mut script, 1, SESSION);
    script.start(Command::Ping);
    let sent = script.turn();
    let ping = sent.iter().find(|sent| sent.datagram().header.session == SESSION).expect("PING");
    script.say(&[stated(3, ping.packet(), attr(1, 1), 0)]);
    script.events();
    call(&mut script, 1, SESSION);
    assert_eq!(hello(&mut script), None);
    script.drops += 1;
}
