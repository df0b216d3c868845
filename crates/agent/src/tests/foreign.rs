//! What comes from others than the agent's server, and what a false server can make an agent believe.

use super::script::*;
use crate::api::{Command, Event, Output};
use crate::config::{Config, IdlePolicy};
use cistern_link::{Machine as _, Path};
use cistern_wire::{Alive, Bytes8, Challenge, Fate, Nack, NackReason, SessionFate, SessionId, StoreId, Welcome};
use core::net::SocketAddr;
use core::time::Duration;

const OTHER: SessionId = SessionId(0xCD);

fn stranger() -> Path {
    Path::to(SocketAddr::from(([10, 0, 9, 9], 7_311)))
}

/// Goes through the handshake that is due up to the offer, which is what `change` makes of an ordinary one.
fn offered(script: &mut Script, change: impl FnOnce(Welcome) -> Welcome) {
    let first = script.one();
    let (hello, echo) = hello_of(&first);
    script.say_outside(&[Challenge { handshake: hello.handshake, echo, cookie: Bytes8(b"cookie") }.into()]);
    let second = script.one();
    let (hello, echo) = hello_of(&second);
    script.say_outside(&[change(welcome(&hello, echo)).into()]);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# An agent MUST drop every datagram from an address that is not its server's.
#[test]
fn answers_of_strangers_neither_renew_nor_end_a_session() {
    let mut script = Script::open(Config { idle: IdlePolicy::Eager, ..Config::default() });
    script.start(Command::Ping);
    let echo = script.one().packet();
    let before = script.agent.view(script.now()).valid_until;
    let forged = [
        Alive { serial: 2, echo }.into(),
        stated(2, echo, attr(1, 1), 0),
        Nack { nonce: 2, echo, reason: NackReason::Ended, fate: Fate::Unknown }.into(),
    ];
    for message in forged {
        let bytes = script.make(&[message]);
        script.agent.handle_datagram(script.now(), stranger(), &bytes);
    }
    script.drops = 3;
    script.hears(&[]);
    let view = script.agent.view(script.now());
    assert_eq!((view.valid_until, view.session), (before, Some(SESSION)));
    assert_eq!(script.agent.drops().iter().find(|(name, _)| *name == "foreign_address"), Some(("foreign_address", 3)));
    script.say(&[stated(2, echo, attr(1, 1), 0)]);
    let [Event::Done { result: Ok(Output::Pong { .. }), .. }] = script.events()[..] else { panic!("its server is heard") };
}

//= wire-spec.md#3-2-packet-numbers
//= type=test
//# A receiver MUST drop a packet number below the first of its sender.
//= wire-spec.md#3-2-packet-numbers
//= type=test
//# A receiver MUST drop a packet number more than 2^20 above the highest received, or, before any, above the one before the first.
#[test]
fn numbers_of_a_session_begin_where_the_handshake_says_in_both_directions() {
    const FIRST: u64 = 0x7777_0000_0001;
    let mut script = Script::new(Config::default());
    script.start(Command::Ping);
    let first = script.one();
    let (hello, echo) = hello_of(&first);
    let own = hello.first_packet;
    script.say_outside(&[Welcome { first_packet: FIRST, ..welcome(&hello, echo) }.into()]);
    script.events();
    let sent = script.one();
    assert_eq!(sent.packet(), own, "the agent begins where its HELLO said");
    // Whoever has the session's id and the server's address, but sees nothing, has to guess.
    for (number, reason) in
        [(1, "stale_packet"), (FIRST - 1, "stale_packet"), (FIRST + (1 << 20), "packet_ahead"), (1 << 60, "packet_ahead")]
    {
        script.packet = number - 1;
        script.say(&[Nack { nonce: 1, echo: own, reason: NackReason::Ended, fate: Fate::Unknown }.into()]);
        assert_eq!(script.agent.view(script.now()).session, Some(SESSION), "{number}");
        assert!(script.agent.drops().iter().any(|(name, count)| name == reason && count > 0), "{reason}");
    }
    script.drops = 4;
    script.packet = FIRST - 1;
    script.say(&[opened(own, &[]), stated(1, own, attr(1, 1), 0)]);
    let [Event::SessionOpened { .. }, Event::Done { result: Ok(Output::Pong { .. }), .. }] = script.events()[..] else {
        panic!("the server is heard")
    };
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# An agent MUST have a bound on the lease that it believes in, and drop a WELCOME above it.
#[test]
fn lease_longer_than_the_bound_is_not_taken() {
    for (lease_us, taken) in [(60_000_000, true), (60_000_001, false), (u64::MAX, false)] {
        let mut script = Script::new(Config::default());
        script.start(Command::Ping);
        offered(&mut script, |welcome| Welcome { lease_us, ..welcome });
        assert_eq!(script.agent.view(script.now()).session.is_some(), taken, "{lease_us} µs");
        script.drops = u64::from(!taken);
    }
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# The identity of a server that has not answered CONFIRM MUST NOT bind an agent.
#[test]
fn false_server_that_answers_nothing_does_not_keep_the_true_one_out() {
    let mut script = Script::new(Config { give_up_after: Duration::from_secs(60), ..Config::default() });
    script.start(Command::Ping);
    offered(&mut script, |welcome| Welcome { store: StoreId([0xFA; 16]), server_incarnation: 900, epoch: 200, session: OTHER, ..welcome });
    assert_eq!(script.agent.view(script.now()).session, Some(OTHER));
    script.events();
    // Nothing is answered in it; the agent asks for a session again, and the true server offers one.
    let former = script.shake_amid(SESSION, &[(OTHER, SessionFate::Ended)]);
    assert!(former.iter().all(|(session, _)| *session == OTHER));
    assert_eq!(script.agent.view(script.now()).session, Some(SESSION));
    assert!(!script.events().iter().any(|event| matches!(event, Event::NoSession { .. })), "nobody is refused");
}
