//! Mutations whose session ended before their answer came: what is asked about them, and what their users hear.

use super::script::*;
use crate::api::{Command, Event, OpError, Output, Ownership, Submitted};
use crate::config::Config;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{
    Ack, Attr, Bytes8, Bytes16, CacheGrant, Changed, Claim, Effect, Failed, Fate, Field, Generation, Held, List, Message, Mkdir, Nack,
    NackReason, ObjectId, ObjectKind, Outcome, OutcomeTold, Reply, SessionFate, SessionId, Status, StoreId, Terms, Want, Welcome, Write,
};
use core::time::Duration;

const SECOND: SessionId = SessionId(0xCD);

fn mkdir() -> Command {
    Command::Mkdir { path: Bytes::from_static(b"/d"), owner: Ownership { mode: 0o755, uid: 0, gid: 0 } }
}

fn mkdir_request(nonce: u64, back: u16) -> Message<'static> {
    let terms = Terms { want: Want::Exclusive, ..Terms::NONE };
    Mkdir { ask: ask(nonce, back), dir: ObjectId(1), name: Bytes8(b"d"), mode: 0o755, uid: 0, gid: 0, terms }.into()
}

fn question(nonce: u64, back: u16, of: u64) -> Message<'static> {
    Outcome { ask: ask(nonce, back), session: SESSION, nonce: of }.into()
}

fn told(nonce: u64, echo: u64, fate: Fate, reply: &[u8]) -> Message<'_> {
    Ack { nonce, echo, reply: Reply::OutcomeTold(OutcomeTold { fate, reply: Bytes16(reply) }) }.into()
}

/// What a mkdir is answered, encoded.
fn made() -> Vec<u8> {
    let made = Attr { kind: ObjectKind::Directory, ..attr(12, 1) };
    let parent = Attr { kind: ObjectKind::Directory, ..attr(1, 5) };
    let effects = [(4, parent), (0, made)].map(|(before, attr)| Effect { before, attr, grant: CacheGrant::NONE });
    let mut bytes = Vec::new();
    Reply::Changed(Changed { effects: List::of(&effects) }).put(&mut bytes);
    bytes
}

fn nack(echo: u64) -> Message<'static> {
    Nack { nonce: 0, echo, reason: NackReason::TimingOut, fate: Fate::Unknown }.into()
}

/// A mutation was sent and its session ended by a NACK; in the next session the agent asks. Gives the command, and the packet to be
/// echoed.
fn asked(script: &mut Script) -> (crate::api::OpId, u64) {
    let op = script.start(mkdir());
    let echo = script.sends(&[mkdir_request(2, 0)]);
    script.say(&[nack(echo)]);
    script.shake_amid(SECOND, &[(SESSION, SessionFate::TimingOut)]);
    let echo = script.sends(&[question(1, 0, 2)]);
    script.events();
    (op, echo)
}

#[test]
fn executed_with_its_reply_ends_the_command_with_that() {
    let mut script = Script::open(Config::default());
    let (op, echo) = asked(&mut script);
    script.say(&[told(1, echo, Fate::Executed, &made())]);
    assert!(
        matches!(&script.events()[..], [Event::Done { op: done, result: Ok(Output::Attr(made)) }] if *done == op && made.object == ObjectId(12))
    );
}

#[test]
fn executed_without_a_reply_that_can_be_read_is_an_unknown_outcome() {
    for reply in [&b""[..], b"\xFF nonsense"] {
        let mut script = Script::open(Config::default());
        let (op, echo) = asked(&mut script);
        script.say(&[told(1, echo, Fate::Executed, reply)]);
        script.hears(&[Script::failed(op, OpError::OutcomeUnknown)]);
    }
}

//= wire-spec.md#11-2-delivery
//= type=test
//# After NACK, session end or restart the agent MUST NOT by itself repeat an unanswered mutation, unless it was told "not executed".
#[test]
fn a_mutation_that_was_not_executed_is_made_anew() {
    let mut script = Script::open(Config::default());
    let (op, echo) = asked(&mut script);
    script.say(&[told(1, echo, Fate::NotExecuted, b"")]);
    let sent = script.turn();
    let again = sent.iter().find(|sent| sent.messages() == [mkdir_request(2, 0)]).expect("MKDIR again");
    let bytes = made();
    let reply = Reply::get(&mut cistern_wire::Reader::new(&bytes)).unwrap();
    script.say(&[Ack { nonce: 2, echo: again.packet(), reply }.into()]);
    assert!(matches!(&script.events()[..], [Event::Done { op: done, result: Ok(_) }] if *done == op));
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A caller whose mutation ended so MUST be told that the outcome is not known.
#[test]
fn a_server_that_cannot_tell_leaves_the_outcome_unknown() {
    let mut script = Script::open(Config::default());
    let (op, echo) = asked(&mut script);
    script.say(&[told(1, echo, Fate::Unknown, b"")]);
    script.hears(&[Script::failed(op, OpError::OutcomeUnknown)]);
}

#[test]
fn the_session_is_surrendered_only_after_the_outcome_was_told_for_the_server_forgets_it_with_the_session() {
    let mut script = Script::open(Config::default());
    let op = script.start(mkdir());
    let echo = script.sends(&[mkdir_request(2, 0)]);
    script.say(&[nack(echo)]);
    script.quiet();
    let claims = script.shake_amid(SECOND, &[(SESSION, SessionFate::TimingOut)]);
    assert_eq!(claims, [(SESSION, Claim::Lost)]);
    let echo = script.sends(&[question(1, 0, 2)]);
    script.say(&[told(1, echo, Fate::Unknown, b"")]);
    let sent = script.one();
    assert_eq!(sent.datagram().header.session, SESSION);
    assert!(matches!(sent.messages()[..], [Message::EndSession(_)]));
    assert!(script.events().contains(&Script::failed(op, OpError::OutcomeUnknown)));
}

#[test]
fn without_a_new_session_the_outcome_is_unknown_when_the_time_of_the_command_is_up() {
    let mut script = Script::open(Config { give_up_after: Duration::from_secs(3), ..Config::default() });
    let op = script.start(mkdir());
    let echo = script.sends(&[mkdir_request(2, 0)]);
    script.say(&[nack(echo)]);
    let sent = script.run(2_990);
    assert!(sent.iter().any(|(_, sent)| sent.datagram().header.session == SessionId(0)), "it wants a session");
    let done = |events: Vec<Event>| events.into_iter().find(|event| matches!(event, Event::Done { .. }));
    assert_eq!(done(script.events()), None);
    script.run(20);
    assert_eq!(done(script.events()), Some(Script::failed(op, OpError::OutcomeUnknown)));
    script.run(5_000);
    script.asleep();
}

#[test]
fn a_user_who_gives_up_is_not_asked_for() {
    let mut script = Script::open(Config { surrender: false, ..Config::default() });
    let (op, _) = asked(&mut script);
    script.agent.cancel(script.now(), op);
    script.hears(&[Script::failed(op, OpError::OutcomeUnknown)]);
    script.asleep();
}

#[test]
fn a_user_who_gives_up_while_the_server_is_busy_is_not_asked_for_later() {
    let mut script = Script::open(Config { surrender: false, ..Config::default() });
    let (op, echo) = asked(&mut script);
    script.say(&[Ack { nonce: 1, echo, reply: Reply::Failed(Failed { status: Status::BUSY, retry_ms: 5_000 }) }.into()]);
    script.quiet();
    script.agent.cancel(script.now(), op);
    script.hears(&[Script::failed(op, OpError::OutcomeUnknown)]);
    script.asleep();
}

#[test]
fn another_store_is_not_asked_what_became_of_a_mutation() {
    let mut script = Script::new(Config { surrender: false, ..Config::default() });
    let volatile = cistern_wire::limits::FEATURE_VOLATILE;
    let open = |script: &mut Script, session, store| {
        let first = script.one();
        let (hello, echo) = hello_of(&first);
        script.say_outside(&[cistern_wire::Challenge { handshake: hello.handshake, echo, cookie: Bytes8(b"cookie") }.into()]);
        let second = script.one();
        let (hello, echo) = hello_of(&second);
        script.say_outside(&[Welcome { session, store, features: volatile, ..welcome(&hello, echo) }.into()]);
        (script.session, script.packet) = (session, 0);
        script.confirmed(&[]);
    };
    let op = script.start(mkdir());
    open(&mut script, SESSION, STORE);
    let echo = script.sends(&[mkdir_request(1, 0)]);
    script.say(&[nack(echo)]);
    script.sleep(TAU_MS);
    open(&mut script, SECOND, StoreId([8; 16]));
    assert_eq!(script.events().last(), Some(&Event::SessionOpened { session: SECOND }));
    script.quiet();
    let _ = op;
}

fn write() -> Command {
    Command::Write { target: crate::api::Target::Object(ObjectId(9)), offset: 0, data: Bytes::from_static(b"new"), truncate: false }
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# From the first transmission of a mutation until it cannot be under way any more, the agent MUST answer nothing from cache about the
//# objects affected.
#[test]
fn over_a_restart_what_a_mutation_affects_is_not_answered_from_cache_before_its_outcome_is_told() {
    for fate in [Fate::Executed, Fate::NotExecuted, Fate::Unknown] {
        let mut script = Script::open(Config::default());
        script.cache(9, 2, 80);
        script.start(write());
        let held = [Held { object: ObjectId(9), generation: Generation(80) }];
        let terms = Terms { want: Want::Shared, held: List::of(&held), ..Terms::NONE };
        let request = Write { ask: ask(3, 0), object: ObjectId(9), offset: 0, truncate: false, stage: 0, data: Bytes16(b"new"), terms };
        script.sends(&[request.into()]);
        script.hint();
        script.shake_amid(SECOND, &[(SESSION, SessionFate::Reclaimable)]);
        assert!(matches!(script.submit(stat(9)), Submitted::Later(_)));
        let sent = script.one();
        assert!(matches!(sent.messages()[..], [Message::Outcome(Outcome { session: SESSION, nonce: 3, .. }), Message::Reclaim(_)]));
        script.quiet();
        script.say(&[told(1, sent.packet(), fate, b"")]);
        let current = fate == Fate::NotExecuted;
        // Only of the mutation that did nothing what was cached is current; it is done again, and suspends the object again.
        assert!(matches!(script.submit(stat(9)), Submitted::Later(_)), "{fate:?}");
        let item = cistern_wire::ReclaimedItem {
            lock: cached(9),
            generation: Generation(80),
            status: Status::OK,
            version: if current { 1 } else { 2 },
        };
        let items = [item];
        script.say(&[
            Ack { nonce: 2, echo: sent.packet(), reply: Reply::Reclaimed(cistern_wire::Reclaimed { items: List::of(&items) }) }.into()
        ]);
        let sent = script.one();
        assert!(matches!(sent.messages()[..], [Message::ReclaimComplete(_)]), "after the outcome is told: {:?}", sent.messages());
    }
}

#[test]
fn the_reclaim_is_not_completed_before_every_outcome_is_told() {
    let mut script = Script::open(Config::default());
    script.start(mkdir());
    script.sends(&[mkdir_request(2, 0)]);
    script.hint();
    script.shake_amid(SECOND, &[(SESSION, SessionFate::Reclaimable)]);
    let echo = script.sends(&[question(1, 0, 2)]);
    script.quiet();
    script.say(&[told(1, echo, Fate::Executed, &made())]);
    let sent = script.one();
    assert!(matches!(sent.messages()[..], [Message::ReclaimComplete(_)]));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# From the first transmission of a mutation until it cannot be under way any more, the agent MUST answer nothing from cache about the
//# objects affected.
#[test]
fn after_a_nack_what_a_mutation_affects_is_not_cached_before_its_outcome_is_told() {
    let mut script = Script::open(Config::default());
    script.start(write());
    let echo = script.turn()[0].packet();
    script.say(&[nack(echo)]);
    script.shake_amid(SECOND, &[(SESSION, SessionFate::TimingOut)]);
    script.start(stat(9));
    let question_of = script.turn()[0].packet();
    script.say(&[stated(2, question_of, attr(9, 1), 90)]);
    assert!(matches!(script.submit(stat(9)), Submitted::Later(_)), "nobody knows yet what the mutation did");
    script.say(&[told(1, question_of, Fate::Unknown, b"")]);
    let again = script.turn().into_iter().find(|sent| sent.datagram().header.session == SECOND).unwrap();
    script.say(&[stated(3, again.packet(), attr(9, 2), 91)]);
    script.is_cached(9);
}
