//! The handshake: what is lost, repeated and refused; which server is taken; hints.

use super::script::*;
use crate::api::{Command, Event, LockEvent, OpError, Phase, Submitted};
use crate::config::{Config, IdlePolicy};
use alloc::vec::Vec;
use cistern_wire::limits::{FEATURE_GROUP, FEATURE_VOLATILE};
use cistern_wire::{
    Bytes8, Challenge, Claim, Fate, FormerFate, Hint, Message, Nack, NackReason, Refuse, RefuseReason, SessionFate, SessionId, StoreId,
    Welcome,
};
use core::time::Duration;

const OTHER: SessionId = SessionId(0xCD);

fn challenge(handshake: u64, echo: u64, cookie: &[u8]) -> Message<'_> {
    Challenge { handshake, echo, cookie: Bytes8(cookie) }.into()
}

fn refuse(handshake: u64, echo: u64, reason: RefuseReason, retry_ms: u32) -> Message<'static> {
    Refuse { handshake, echo, reason, version_min: 1, version_max: 1, retry_ms, serving: 0 }.into()
}

fn hint(echo: u64) -> Message<'static> {
    Hint { echo, detail: Bytes8(b"") }.into()
}

/// Asks for a session and goes through the handshake up to the offer, which is what `change` makes of an ordinary one.
fn offered(script: &mut Script, change: impl FnOnce(Welcome) -> Welcome) {
    let first = script.one();
    let (hello, echo) = hello_of(&first);
    script.say_outside(&[challenge(hello.handshake, echo, b"cookie")]);
    let second = script.one();
    let (hello, echo) = hello_of(&second);
    script.say_outside(&[change(welcome(&hello, echo)).into()]);
}

//= wire-spec.md#3-2-packet-numbers
//= type=test
//# All HELLOs of one handshake MUST name the same first packet number.
#[test]
fn an_unanswered_hello_is_sent_again_under_a_new_number_of_the_same_handshake() {
    let mut script = Script::new(Config::default());
    script.start(Command::Ping);
    let sent = script.run(2_000);
    assert!(sent.len() >= 3);
    let hellos: Vec<_> = sent.iter().map(|(_, sent)| hello_of(sent)).collect();
    assert!(hellos.iter().all(|(hello, _)| hello.handshake == hellos[0].0.handshake));
    assert!(hellos.iter().all(|(hello, _)| hello.first_packet == hellos[0].0.first_packet));
    assert_eq!(hellos.iter().map(|(_, packet)| *packet).collect::<Vec<_>>(), (1..=hellos.len() as u64).collect::<Vec<_>>());
    let gaps: Vec<u64> = sent.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(gaps.windows(2).all(|pair| pair[1] > pair[0]) && gaps[0] >= 100, "{gaps:?}");
    script.hears(&[Event::NoSession { error: OpError::Unreachable }]);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# The agent MUST begin each datagram of a session with CONFIRM, in the same words, until that is answered.
#[test]
fn a_lost_challenge_welcome_or_opened_costs_a_repetition_each() {
    let mut script = Script::new(Config::default());
    script.start(Command::Ping);
    script.one();
    let (_, again) = script.run(130).pop().expect("HELLO again");
    let (hello, echo) = hello_of(&again);
    script.say_outside(&[challenge(hello.handshake, echo, b"cookie")]);
    let with_cookie = script.one();
    assert_eq!(hello_of(&with_cookie).0.cookie.0, b"cookie");
    let (_, again) = script.run(130).pop().expect("HELLO with the cookie again");
    let (hello, echo) = hello_of(&again);
    assert_eq!(hello.cookie.0, b"cookie");
    script.say_outside(&[welcome(&hello, echo).into()]);
    assert_eq!(script.agent.view(script.now()).valid_until, None, "WELCOME renews nothing");
    script.sends(&[ping(1, 0)]);
    script.sleep(50);
    // What is sent meanwhile begins with CONFIRM, too, so that it does not matter which of them arrives.
    script.start(Command::Ping);
    let second = script.one();
    assert_eq!((second.claims(), &second.messages()[..]), (Some(Vec::new()), &[ping(2, 1)][..]));
    let (_, again) = script.run(130).pop().expect("CONFIRM again");
    assert_eq!(again.claims(), Some(Vec::new()));
    script.say(&[opened(again.packet(), &[])]);
    let until = script.agent.view(script.now()).valid_until.unwrap();
    let sent = script.now();
    assert!(
        until.lease_over(sent.plus(Duration::from_millis(TAU_MS - 130))) && !until.lease_over(sent.plus(Duration::from_millis(TAU_MS + 1)))
    );
    script.hears(&[Event::SessionOpened { session: SESSION }]);
}

#[test]
fn each_hello_is_answered_once_however_often_its_challenge_comes() {
    let mut script = Script::new(Config::default());
    script.start(Command::Ping);
    let first = script.one();
    let (hello, echo) = hello_of(&first);
    script.say_outside(&[challenge(hello.handshake, echo, b"one")]);
    script.one();
    script.say_outside(&[challenge(hello.handshake, echo, b"one")]);
    script.say_outside(&[challenge(hello.handshake + 1, echo, b"of another handshake")]);
    script.say_outside(&[challenge(hello.handshake, 77, b"of no hello")]);
    script.quiet();
    script.drops = 3;
}

#[test]
fn an_endless_challenger_is_answered_no_faster_than_it_is_asked() {
    let mut script = Script::new(Config::default());
    script.start(Command::Ping);
    let mut at_once = 0;
    for _ in 0..20 {
        let Some(sent) = script.turn().pop() else { break };
        at_once += 1;
        let (hello, echo) = hello_of(&sent);
        script.say_outside(&[challenge(hello.handshake, echo, b"again")]);
    }
    assert_eq!(at_once, 4);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# An agent MUST drop a WELCOME with a number outside these bounds.
#[test]
fn welcome_of_another_handshake_or_to_no_hello_or_out_of_bounds_opens_nothing() {
    let mut script = Script::new(Config::default());
    script.start(Command::Ping);
    let first = script.one();
    let (hello, echo) = hello_of(&first);
    let good = welcome(&hello, echo);
    for bad in [
        Welcome { handshake: good.handshake + 1, ..good },
        Welcome { echo: 99, ..good },
        Welcome { session: SessionId(0), ..good },
        Welcome { lease_us: 0, ..good },
        Welcome { lease_us: u64::MAX, ..good },
        Welcome { window: 0, ..good },
        Welcome { max_datagram: 547, ..good },
        Welcome { first_packet: 0, ..good },
        Welcome { first_packet: 1 << 48, ..good },
        Welcome { handle: cistern_wire::Handle(0), ..good },
        Welcome { lease_us: 99_999, ..good },
        Welcome { delta_ppm: 2_999, ..good },
        Welcome { delta_ppm: 1_000_001, ..good },
        Welcome { epsilon_us: 0, ..good },
        Welcome { epsilon_us: u32::MAX, ..good },
        Welcome { delivery_timeout_us: 999, ..good },
        Welcome { delivery_timeout_us: u32::MAX, ..good },
    ] {
        script.say_outside(&[bad.into()]);
        assert_eq!(script.agent.view(script.now()).session, None, "{bad:?}");
    }
    script.drops = 17;
    script.say_outside(&[good.into()]);
    assert_eq!(script.agent.view(script.now()).session, Some(SESSION));
    script.say_outside(&[good.into()]);
    script.drops = 18;
}

//= wire-spec.md#10-2-agreeing-on-a-version
//= type=test
//# An agent MUST end a handshake whose WELCOME names a version outside the range of its HELLO.
#[test]
fn a_version_that_was_not_offered_ends_the_handshake() {
    let mut script = Script::new(Config::default());
    let op = script.start(Command::Ping);
    offered(&mut script, |welcome| Welcome { version: 2, ..welcome });
    let error = OpError::Refused(RefuseReason::Version);
    script.hears(&[Event::NoSession { error }, Script::failed(op, error)]);
    script.asleep();
}

#[test]
fn the_servers_addresses_are_tried_in_turn() {
    let mut script = Script::with_servers(Config::default(), 2);
    script.start(Command::Ping);
    let sent = script.run(5_000);
    let to: Vec<_> = sent.iter().map(|(_, sent)| sent.to).collect();
    assert_eq!(to[..6], [server(1), server(2), server(1), server(2), server(1), server(2)]);
    script.hears(&[Event::NoSession { error: OpError::Unreachable }]);
}

#[test]
fn a_final_refusal_fails_the_commands_that_wait() {
    let mut script = Script::new(Config::default());
    let op = script.start(Command::Ping);
    let sent = script.one();
    let (hello, echo) = hello_of(&sent);
    script.say_outside(&[refuse(hello.handshake, echo, RefuseReason::Superseded, 0)]);
    let error = OpError::Refused(RefuseReason::Superseded);
    script.hears(&[Event::NoSession { error }, Script::failed(op, error)]);
    script.asleep();
    script.say_outside(&[refuse(hello.handshake, echo, RefuseReason::Superseded, 0)]);
    script.drops = 1;
}

#[test]
fn a_refusal_with_a_hint_is_asked_again_then_and_told_once() {
    let mut script = Script::new(Config::default());
    script.start(Command::Ping);
    let sent = script.one();
    let (hello, echo) = hello_of(&sent);
    script.say_outside(&[refuse(hello.handshake, echo, RefuseReason::Busy, 400)]);
    script.hears(&[Event::NoSession { error: OpError::Refused(RefuseReason::Busy) }]);
    script.silence(400);
    let sent = script.run(100);
    let (hello, echo) = hello_of(&sent[0].1);
    script.say_outside(&[refuse(hello.handshake, echo, RefuseReason::Busy, 400)]);
    script.hears(&[]);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# An agent MUST NOT wait longer than 10 s because of a `retry_ms`.
#[test]
fn a_refusal_for_weeks_is_asked_again_after_ten_seconds() {
    let mut script = Script::new(Config { give_up_after: Duration::from_secs(60), ..Config::default() });
    script.start(Command::Ping);
    let sent = script.one();
    let (hello, echo) = hello_of(&sent);
    script.say_outside(&[refuse(hello.handshake, echo, RefuseReason::Busy, u32::MAX)]);
    script.hears(&[Event::NoSession { error: OpError::Refused(RefuseReason::Busy) }]);
    script.silence(9_999);
    assert!(!script.run(2_501).is_empty(), "10 s, and a quarter for the spread");
}

#[test]
fn a_challenge_whose_cookie_no_server_takes_is_dropped_and_the_true_one_is_answered() {
    let mut script = Script::new(Config::default());
    script.start(Command::Ping);
    let sent = script.one();
    let (hello, echo) = hello_of(&sent);
    for cookie in [&[][..], &[7; 33]] {
        script.say_outside(&[challenge(hello.handshake, echo, cookie)]);
        script.quiet();
    }
    script.drops = 2;
    script.say_outside(&[challenge(hello.handshake, echo, &[8; 32])]);
    let sent = script.one();
    assert_eq!(hello_of(&sent).0.cookie.0, [8; 32]);
}

#[test]
fn one_address_that_refuses_leaves_the_other() {
    let mut script = Script::with_servers(Config::default(), 2);
    script.start(Command::Ping);
    let sent = script.one();
    let (hello, echo) = hello_of(&sent);
    script.say_outside(&[refuse(hello.handshake, echo, RefuseReason::Version, 0)]);
    assert_eq!(script.one().to, server(2));
    assert_eq!(script.events().len(), 1);
}

/// The session is NACKed, and another is asked for; the lease is over by that.
fn nacked(script: &mut Script) {
    script.start(Command::Ping);
    let echo = script.one().packet();
    script.say(&[Nack { nonce: 0, echo, reason: NackReason::Ended, fate: Fate::Unknown }.into()]);
    script.events();
    script.sleep(TAU_MS);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# The agent MUST refuse, and report, a server of another store than the one it knows, unless that says that its store is volatile.
//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# The agent MUST refuse, and report, a server of the known store with a lower epoch, or the same epoch and a lower incarnation, than it
//# has seen.
#[test]
fn another_store_or_an_older_state_of_the_known_one_is_refused_and_reported() {
    let changes: [fn(Welcome) -> Welcome; 4] = [
        |welcome| Welcome { store: StoreId([8; 16]), ..welcome },
        |welcome| Welcome { store: StoreId([8; 16]), features: FEATURE_VOLATILE, ..welcome },
        |welcome| Welcome { server_incarnation: 2, ..welcome },
        |welcome| Welcome { epoch: 0, server_incarnation: 9, ..welcome },
    ];
    for change in changes {
        let mut script = Script::open(Config::default());
        nacked(&mut script);
        offered(&mut script, |welcome| Welcome { session: OTHER, ..change(welcome) });
        let events = script.events();
        assert_eq!(events[0], Event::NoSession { error: OpError::AnotherServer });
        assert!(matches!(events[1], Event::Done { result: Err(OpError::AnotherServer), .. }));
        assert_eq!(script.agent.view(script.now()).session, None);
    }
}

#[test]
fn the_same_store_in_a_later_incarnation_is_the_server_that_is_known() {
    let mut script = Script::open(Config::default());
    nacked(&mut script);
    script.session = OTHER;
    script.packet = 0;
    offered(&mut script, |welcome| Welcome { session: OTHER, server_incarnation: 4, ..welcome });
    script.confirmed(&[]);
    script.hears(&[Event::SessionOpened { session: OTHER }]);
}

//= wire-spec.md#11-10-groups-of-servers
//= type=test
//# In a session with a server of a group an agent SHOULD renew its lease so early that a second is left before it becomes suspect.
#[test]
fn at_a_server_of_a_group_a_lease_is_renewed_so_early_that_another_can_take_over() {
    for (features, tau_ms, valid_ms) in
        [(0, 2_000, 1_200), (FEATURE_GROUP, 2_000, 600), (FEATURE_GROUP, 5_000, 3_000), (FEATURE_GROUP, 1_000, 125)]
    {
        let mut script = Script::new(Config { idle: IdlePolicy::Eager, ..Config::default() });
        script.start(Command::Ping);
        offered(&mut script, |welcome| Welcome { features, lease_us: tau_ms * 1_000, ..welcome });
        script.confirmed(&[]);
        let echo = script.sends(&[ping(1, 0)]);
        script.say(&[stated(1, echo, attr(1, 1), 0)]);
        script.events();
        script.cache(7, 2, 40);
        script.silence(valid_ms - 1);
        script.sleep(1);
        let expected = script.keep_alive(2);
        script.sends(&[expected]);
    }
}

#[test]
fn a_volatile_store_may_take_the_place_of_a_volatile_one_once_the_old_lease_is_over() {
    let mut script = Script::new(Config { idle: IdlePolicy::Lazy, ..Config::default() });
    script.start(Command::Ping);
    offered(&mut script, |welcome| Welcome { features: FEATURE_VOLATILE, ..welcome });
    script.confirmed(&[]);
    let echo = script.sends(&[ping(1, 0)]);
    script.say(&[stated(1, echo, attr(1, 1), 0)]);
    script.events();
    let locked = script.hold(7, 2, 40, 16);
    // The server is started anew and does not know the session.
    script.start(Command::Ping);
    let echo = script.sends(&[ping(3, 0)]);
    script.say(&[hint(echo)]);
    let ended = [FormerFate { session: SESSION, fate: SessionFate::Ended }];
    let second = |welcome| Welcome { session: OTHER, store: StoreId([8; 16]), features: FEATURE_VOLATILE, ..welcome };
    let (mut cookie, mut opened_at) = (false, None);
    for _ in 0..400 {
        script.sleep(10);
        for sent in script.turn() {
            if sent.datagram().header.session == OTHER {
                script.say_in(OTHER, &[opened(sent.packet(), &ended)]);
            }
            if sent.datagram().header.session != SessionId(0) {
                continue;
            }
            let (hello, echo) = hello_of(&sent);
            if cookie {
                script.say_outside(&[second(welcome(&hello, echo)).into()]);
            } else {
                script.say_outside(&[challenge(hello.handshake, echo, b"cookie")]);
                cookie = true;
            }
        }
        if script.agent.view(script.now()).session == Some(OTHER) {
            opened_at = Some(script.now());
            break;
        }
    }
    let opened_at = opened_at.expect("a session with the new server");
    assert!(opened_at.lease_over(locked.valid_until), "not before the lease from the old one was over");
    let told: Vec<Event> = script.events().into_iter().filter(|event| matches!(event, Event::Lock { .. })).collect();
    assert_eq!(told.last(), Some(&Script::told(&locked, LockEvent::Lost)));
    script.drops = script.agent.drops().total();
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A HINT MUST NOT make an agent discard, release or surrender anything.
//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A renewing answer MUST make usable only locks of its own session.
//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# An agent that has a session MUST take no OPENED that does not tell its fate.
//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# WELCOME MUST NOT renew a lease, and MUST NOT change or end a session that the agent has.
#[test]
fn a_hint_starts_a_handshake_and_changes_nothing_until_the_answer_tells() {
    let mut script = Script::open(Config { idle: IdlePolicy::Lazy, ..Config::default() });
    let locked = script.hold(7, 2, 40, 16);
    script.cache(9, 3, 80);
    script.start(Command::Ping);
    let echo = script.sends(&[ping(4, 0)]);
    script.say(&[hint(echo)]);
    script.quiet();
    script.is_cached(9);
    assert!(script.agent.holder_view(script.now(), locked.holder).unwrap().certain);
    let sent = script.run(TAU_MS / 32 + 1);
    let first = sent.iter().find(|(_, sent)| sent.datagram().header.session == SessionId(0)).expect("spread, but soon");
    let (hello, echo) = hello_of(&first.1);
    script.is_cached(9);
    script.say_outside(&[challenge(hello.handshake, echo, b"cookie")]);
    let mut sent = script.turn();
    sent.retain(|sent| sent.datagram().header.session == SessionId(0));
    let (hello, echo) = hello_of(&sent[0]);
    script.say_outside(&[Welcome { session: OTHER, ..welcome(&hello, echo) }.into()]);
    script.is_cached(9);
    let mut sent = script.turn();
    sent.retain(|sent| sent.datagram().header.session == OTHER);
    assert_eq!((sent[0].claims(), sent[0].messages().len()), (Some([(SESSION, Claim::Continuing)].into()), 0));
    let bytes = Script::datagram(OTHER, 1, &[opened(sent[0].packet(), &[])]);
    script.deliver(&bytes);
    script.drops += 1;
    script.is_cached(9);
    let ended = [FormerFate { session: SESSION, fate: SessionFate::Ended }];
    let bytes = Script::datagram(OTHER, 2, &[opened(sent[0].packet(), &ended)]);
    script.deliver(&bytes);
    let events = script.events();
    assert_eq!(events[0], Script::told(&locked, LockEvent::Lost));
    assert!(matches!(events[1], Event::SessionEnded { session: SESSION, .. }));
    assert_eq!(events[2], Event::SessionOpened { session: OTHER });
    assert!(matches!(script.submit(stat(9)), Submitted::Later(_)));
    script.session = OTHER;
}

#[test]
fn a_session_in_doubt_that_turns_out_to_be_known_goes_on() {
    let mut script = Script::open(Config { idle: IdlePolicy::Lazy, ..Config::default() });
    script.cache(9, 2, 80);
    script.start(Command::Ping);
    let echo = script.sends(&[ping(3, 0)]);
    script.say(&[hint(echo)]);
    script.say(&[stated(3, echo, attr(1, 1), 0)]);
    assert_eq!(script.events().len(), 1);
    script.is_cached(9);
    assert_eq!(script.agent.view(script.now()).phase, Phase::Valid);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# An agent MUST act on a HINT only if it echoes a packet that the agent sent and still remembers, or is a call (section 11.10).
//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# An agent MUST NOT start handshakes for hints faster than once in an RTO.
#[test]
fn a_hint_that_echoes_nothing_outstanding_or_comes_too_often_starts_nothing() {
    let mut script = Script::open(Config::default());
    script.say(&[hint(99)]);
    script.asleep();
    script.start(Command::Ping);
    let echo = script.sends(&[ping(2, 0)]);
    for _ in 0..10 {
        script.say(&[hint(echo)]);
    }
    let hellos = script.run(20).len() + script.run(60).iter().filter(|(_, s)| s.datagram().header.session == SessionId(0)).count();
    assert!(hellos <= 2, "{hellos}");
    // The one of which nothing is known; the others are about a handshake that is on its way.
    script.drops = 1;
}
