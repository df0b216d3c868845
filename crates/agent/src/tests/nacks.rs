//! NACK is final: what it ends, what users hear, and what nothing revives afterwards.

use super::script::*;
use crate::api::{Command, Event, LockEvent, OpError, Output, Ownership, Phase, Submitted, Wait};
use crate::config::Config;
use bytes::Bytes;
use cistern_link::Machine;
use cistern_wire::{
    Ack, Alive, Bytes8, Bytes16, CacheGrant, Changed, Claim, Effect, Fate, FormerFate, Generation, Grant, List, LockWait, Message, Mkdir,
    Mode, Nack, NackReason, ObjectId, ObjectKind, Outcome, OutcomeTold, Reply, RequestResult, SessionFate, SessionId, Terms, Want,
};

fn nack(nonce: u64, echo: u64, fate: Fate) -> Message<'static> {
    Nack { nonce, echo, reason: NackReason::TimingOut, fate }.into()
}

/// What becomes of the former session is no matter here.
const SILENT: fn() -> Config = || Config { surrender: false, ..Config::default() };

const OWNER: Ownership = Ownership { mode: 0o755, uid: 0, gid: 0 };

fn mkdir() -> Command {
    Command::Mkdir { path: Bytes::from_static(b"/d"), owner: OWNER }
}

fn mkdir_request(nonce: u64, back: u16) -> Message<'static> {
    Mkdir {
        ask: ask(nonce, back),
        dir: ObjectId(1),
        name: Bytes8(b"d"),
        mode: 0o755,
        uid: 0,
        gid: 0,
        terms: Terms { want: Want::Exclusive, ..Terms::NONE },
    }
    .into()
}

fn ended(why_of: &[Event]) -> bool {
    matches!(why_of.last(), Some(Event::SessionEnded { session: SESSION, .. }))
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The agent MUST tell its users by name which locks they have lost when a session ends.
//= wire-spec.md#7-the-table-of-answers
//= type=test
//# An agent that takes a NACK MUST believe it for the whole session, whichever message it answers.
#[test]
fn a_nack_ends_everything_of_the_session_and_tells_each_holder_by_name() {
    let mut script = Script::open(Config::default());
    let seven = script.hold(7, 2, 40, 16);
    let eight = script.hold(8, 3, 60, 16);
    script.cache(9, 4, 80);
    script.start(Command::Ping);
    let echo = script.sends(&[ping(5, 0)]);
    script.say(&[nack(5, echo, Fate::NotExecuted)]);
    let events = script.events();
    assert_eq!(events[..2], [Script::told(&seven, LockEvent::Lost), Script::told(&eight, LockEvent::Lost)]);
    assert!(ended(&events));
    let view = script.agent.view(script.now());
    assert_eq!((view.phase, view.session, view.cache_locks, view.advisory_locks, view.nacks), (Phase::NoSession, None, 0, 0, 1));
    assert_eq!(script.agent.holder_view(script.now(), seven.holder), None);
    assert!(matches!(script.submit(stat(9)), Submitted::Later(_)), "nothing is answered from the old cache");
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# After an accepted NACK the agent MUST NOT renew the session, use what it holds under it, or install anything of it, in whatever order
//# messages arrive.
#[test]
fn after_a_nack_no_answer_renews_and_no_grant_is_installed() {
    let mut script = Script::open(Config::default());
    script.start(stat(9));
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let sent = script.one();
    let echo = sent.packet();
    let late = script.make(&[stated(2, echo, attr(9, 1), 44), granted(3, echo, 7, Mode::Exclusive, 45, 16)]);
    let alive = script.make(&[Alive { serial: 2, echo }.into()]);
    script.say(&[nack(2, echo, Fate::Unknown)]);
    assert!(ended(&script.events()));
    script.deliver(&late);
    script.deliver(&alive);
    script.hears(&[]);
    assert_eq!(script.agent.view(script.now()).phase, Phase::NoSession);
    script.agent.cancel(script.now(), op);
    script.drops = 2;
}

//= wire-spec.md#11-2-delivery
//= type=test
//# An agent MUST act on the NACKs in a datagram before anything else in it.
#[test]
fn in_one_datagram_the_nack_counts_before_everything_else() {
    let mut script = Script::open(Config::default());
    let op = script.start(stat(9));
    let echo = script.sends(&[get_attr(2, 0, 9)]);
    script.say(&[stated(2, echo, attr(9, 1), 44), Alive { serial: 2, echo }.into(), nack(0, echo, Fate::Unknown)]);
    let events = script.events();
    assert!(ended(&events), "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, Event::Done { op: done, .. } if *done == op)), "the read is asked again instead");
    assert_eq!(script.agent.view(script.now()).phase, Phase::NoSession);
}

#[test]
fn a_nack_of_another_session_or_for_a_packet_never_sent_ends_nothing() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    script.say_in(SessionId(0xCD), &[nack(0, 1, Fate::Unknown)]);
    script.say(&[nack(0, 999, Fate::Unknown)]);
    script.hears(&[]);
    assert!(script.agent.holder_view(script.now(), locked.holder).unwrap().certain);
    script.drops = 2;
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# The agent MUST name in CONFIRM each former session that it does not know to have ended: lost, reclaiming or surrendered.
#[test]
fn reads_and_waits_go_on_in_the_next_session_which_names_the_former_one() {
    let mut script = Script::open(SILENT());
    let read = script.start(stat(9));
    let wait = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let sent = script.one();
    assert_eq!(sent.messages(), [lock_request(2, 0, 7, Mode::Exclusive, LockWait::Queue), get_attr(3, 1, 9)]);
    let echo = sent.packet();
    script.say(&[queued(2, echo, 7)]);
    script.say(&[nack(3, echo, Fate::NotExecuted)]);
    assert!(ended(&script.events()));
    script.quiet();
    let wake = script.agent.wake_after(script.now()).unwrap();
    assert!(wake.as_millis() <= u128::from(TAU_MS / 32), "the handshake is spread, and soon: {wake:?}");
    script.sleep(TAU_MS / 32 + 1);
    script.session = SessionId(0xCD);
    let first = script.one();
    let (hello, echo) = hello_of(&first);
    assert_eq!((hello.store, hello.epoch, hello.server_incarnation), (STORE, 1, 3), "the server that it knows");
    let fates = [FormerFate { session: SESSION, fate: SessionFate::TimingOut }];
    script.packet = 0;
    script.say_outside(&[cistern_wire::Welcome { session: script.session, ..welcome(&hello, echo) }.into()]);
    script.hears(&[]);
    script.confirmed(&fates);
    script.hears(&[Event::SessionOpened { session: SessionId(0xCD) }]);
    let sent = script.one();
    assert_eq!(sent.claims(), Some([(SESSION, Claim::Lost)].into()));
    assert_eq!(sent.messages(), [lock_request(1, 0, 7, Mode::Exclusive, LockWait::Queue), get_attr(2, 1, 9)]);
    let echo = sent.packet();
    script.say(&[granted(1, echo, 7, Mode::Exclusive, 50, 16), stated(2, echo, attr(9, 2), 51)]);
    let events = script.events();
    assert!(
        matches!(&events[..], [Event::Done { op, result: Ok(Output::Locked(locked)) }, Event::Done { op: other, .. }]
        if *op == wait && *other == read && locked.token == 50),
        "{events:?}"
    );
}

//= wire-spec.md#11-2-delivery
//= type=test
//# After NACK, session end or restart the agent MUST NOT by itself repeat an unanswered mutation, unless it was told "not executed".
//= wire-spec.md#11-2-delivery
//= type=test
//# A caller whose mutation ended so MUST be told that the outcome is not known.
#[test]
fn a_mutation_without_word_of_its_outcome_is_unknown_and_not_sent_again() {
    let mut script = Script::open(Config::default());
    let known = script.start(mkdir());
    let unknown = script.start(mkdir());
    let echo = script.sends(&[mkdir_request(2, 0), mkdir_request(3, 1)]);
    script.say(&[nack(2, echo, Fate::NotExecuted)]);
    assert!(ended(&script.events()));
    script.sleep(TAU_MS);
    script.session = SessionId(0xCD);
    script.shake(&[]);
    let question = Outcome { ask: ask(2, 1), session: SESSION, nonce: 3 };
    let [again, asked] = &script.turn()[..] else { panic!("two datagrams") };
    assert_eq!(again.messages(), [mkdir_request(1, 0)], "the one known not to be executed is done again");
    assert_eq!(asked.messages(), [question.into()]);
    let echo = asked.packet();
    let told = OutcomeTold { fate: Fate::Unknown, reply: Bytes16(b"") };
    script.events();
    script.say(&[Ack { nonce: 2, echo, reply: Reply::OutcomeTold(told) }.into()]);
    script.hears(&[Script::failed(unknown, OpError::OutcomeUnknown)]);
    script.agent.cancel(script.now(), known);
}

#[test]
fn a_result_beside_the_nack_is_the_outcome_and_nothing_of_it_is_kept() {
    let mut script = Script::open(Config::default());
    let op = script.start(mkdir());
    let echo = script.sends(&[mkdir_request(2, 0)]);
    let made = cistern_wire::Attr { kind: ObjectKind::Directory, ..attr(12, 1) };
    let parent = cistern_wire::Attr { kind: ObjectKind::Directory, ..attr(1, 5) };
    let effects = [(4, parent), (0, made)].map(|(before, attr)| Effect { before, attr, grant: CacheGrant::NONE });
    let reply = Reply::Changed(Changed { effects: List::of(&effects) });
    script.say(&[nack(2, echo, Fate::Executed), RequestResult { nonce: 2, reply }.into()]);
    let events = script.events();
    assert!(matches!(&events[0], Event::Done { op: done, result: Ok(_) } if *done == op), "{events:?}");
    assert!(ended(&events));
}

#[test]
fn executed_without_a_result_is_an_unknown_outcome() {
    let mut script = Script::open(Config::default());
    let op = script.start(mkdir());
    let echo = script.sends(&[mkdir_request(2, 0)]);
    script.say(&[nack(2, echo, Fate::Executed)]);
    assert_eq!(script.events()[0], Script::failed(op, OpError::OutcomeUnknown));
}

//= wire-spec.md#7-the-table-of-answers
//= type=test
//# An agent MUST NOT renew its lease on a message that this table does not mark as renewing.
#[test]
fn a_result_alone_is_told_and_renews_nothing() {
    let mut script = Script::open(Config::default());
    let before = script.agent.view(script.now()).valid_until;
    script.sleep(500);
    script.start(mkdir());
    script.sends(&[mkdir_request(2, 0)]);
    let reply = Reply::Failed(cistern_wire::Failed { status: cistern_wire::Status::EEXIST, retry_ms: 0 });
    script.say(&[RequestResult { nonce: 2, reply }.into()]);
    assert!(matches!(script.events()[..], [Event::Done { result: Err(OpError::Status(cistern_wire::Status::EEXIST)), .. }]));
    assert_eq!(script.agent.view(script.now()).valid_until, before);
}

#[test]
fn a_grant_after_the_end_of_its_session_is_not_taken() {
    let mut script = Script::open(SILENT());
    script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[lock_request(2, 0, 7, Mode::Exclusive, LockWait::Queue)]);
    script.say(&[queued(2, echo, 7)]);
    let grant = Grant { seq: 1, nonce: 2, lock: object(7), mode: Mode::Exclusive, generation: Generation(50), run: 16 };
    let grant = script.make(&[grant.into()]);
    script.say(&[nack(0, echo, Fate::Unknown)]);
    script.events();
    script.deliver(&grant);
    script.hears(&[]);
    script.quiet();
    script.drops = 1;
}

#[test]
fn an_agent_of_which_nobody_wants_anything_opens_no_session_after_a_nack() {
    let mut script = Script::open(SILENT());
    let locked = script.hold(7, 2, 40, 16);
    script.sleep(1_200);
    let clock = script.keep_alive(2);
    let echo = script.sends(&[clock]);
    script.say(&[nack(0, echo, Fate::Unknown)]);
    assert_eq!(script.events()[0], Script::told(&locked, LockEvent::Lost));
    script.asleep();
    let gone = script.submit(Command::Unlock { holder: locked.holder });
    assert_eq!(gone, Submitted::Now(Err(OpError::LeaseLost)));
}
