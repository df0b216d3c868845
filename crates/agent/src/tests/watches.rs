//! Watches: what the server is asked, what watchers hear, and that silence is never taken for news.

use super::script::*;
use crate::api::{Command, Event, OpError, Output, Ownership, Submitted, WatchEvent, WatchId};
use crate::config::{Config, IdlePolicy};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{
    Ack, Alive, Attr, Bytes8, CacheGrant, Changed, Create, Done, Effect, Failed, Fate, List, Message, Nack, NackReason, ObjectId, Receipt,
    ReceiptAnswer, Reply, SessionFate, SessionId, Status, Terms, Unwatch, Want, Watch, Watched,
};

const SECOND: SessionId = SessionId(0xCD);
const FILE: ObjectId = ObjectId(7);

fn watch_request(nonce: u64, back: u16) -> Message<'static> {
    Watch { ask: ask(nonce, back), object: FILE }.into()
}

fn watched(nonce: u64, echo: u64, version: u64) -> Message<'static> {
    Ack { nonce, echo, reply: Reply::Watched(Watched { attr: attr(FILE.0, version) }) }.into()
}

fn done(nonce: u64, echo: u64) -> Message<'static> {
    Ack { nonce, echo, reply: Reply::Done(Done {}) }.into()
}

fn event(seq: u64, version: u64, gone: bool) -> Message<'static> {
    cistern_wire::WatchEvent { seq, object: FILE, version, gone }.into()
}

fn receipt(seq: u64) -> Message<'static> {
    Receipt { seq, answer: ReceiptAnswer::Received }.into()
}

fn told(watch: WatchId, what: WatchEvent) -> Event {
    Event::Watch { watch, object: FILE, what }
}

fn begin(script: &mut Script) -> WatchId {
    match script.submit(Command::Watch { object: FILE }) {
        Submitted::Now(Ok(Output::Watching(watch))) => watch,
        other => panic!("{other:?}"),
    }
}

/// An agent with one watch, whose object has version 3.
fn watching() -> (Script, WatchId) {
    let mut script = Script::open(Config { idle: IdlePolicy::Lazy, ..Config::default() });
    let watch = begin(&mut script);
    let echo = script.sends(&[watch_request(2, 0)]);
    script.say(&[watched(2, echo, 3)]);
    script.quiet();
    script.hears(&[told(watch, WatchEvent::Certain { version: 3 })]);
    (script, watch)
}

#[test]
fn changes_are_told_once_and_receipted_each_time_they_arrive() {
    let (mut script, watch) = watching();
    for _ in 0..2 {
        script.say(&[event(1, 4, false)]);
        script.sends(&[receipt(1)]);
    }
    script.hears(&[told(watch, WatchEvent::Changed { version: 4 })]);
    script.say(&[event(2, 6, true)]);
    script.sends(&[receipt(2)]);
    script.hears(&[told(watch, WatchEvent::Gone)]);
    assert_eq!(script.agent.view(script.now()).watches, 0);
    assert_eq!(script.submit(Command::Unwatch { watch }), Submitted::Now(Err(OpError::Status(Status::NOT_HELD))));
    script.asleep();
}

#[test]
fn all_watchers_of_an_object_share_one_watch_and_the_last_one_ends_it() {
    let (mut script, first) = watching();
    let second = begin(&mut script);
    script.hears(&[told(second, WatchEvent::Certain { version: 3 })]);
    script.quiet();
    script.say(&[event(1, 4, false)]);
    script.sends(&[receipt(1)]);
    let changed = WatchEvent::Changed { version: 4 };
    script.hears(&[told(first, changed), told(second, changed)]);
    script.submit(Command::Unwatch { watch: first });
    script.quiet();
    script.submit(Command::Unwatch { watch: second });
    let echo = script.sends(&[Unwatch { ask: ask(3, 0), object: FILE }.into()]);
    // Begun anew before that is answered: asked for after it, for requests have no order.
    let third = begin(&mut script);
    script.quiet();
    script.say(&[done(3, echo)]);
    let echo = script.sends(&[watch_request(4, 0)]);
    script.say(&[watched(4, echo, 5)]);
    script.quiet();
    script.hears(&[told(third, WatchEvent::Certain { version: 5 })]);
}

#[test]
fn notice_that_is_faster_than_the_answer_is_not_lost() {
    let mut script = Script::open(Config::default());
    let watch = begin(&mut script);
    let echo = script.sends(&[watch_request(2, 0)]);
    script.say(&[event(1, 4, false)]);
    script.sends(&[receipt(1)]);
    script.hears(&[]);
    script.say(&[watched(2, echo, 3)]);
    script.quiet();
    script.hears(&[told(watch, WatchEvent::Certain { version: 4 })]);
}

#[test]
fn watching_agent_renews_and_says_when_nothing_is_certain() {
    let (mut script, watch) = watching();
    script.silence(1_199);
    script.sleep(1);
    let expected = script.keep_alive(2);
    let echo = script.sends(&[expected]);
    script.say(&[Alive { serial: 2, echo }.into()]);
    script.quiet();
    script.hears(&[]);
    // The server is silent: at the end of the lease nothing is certain; with the next answer it is again.
    let sent = script.run(TAU_MS);
    script.hears(&[told(watch, WatchEvent::Uncertain)]);
    let keeping = sent.iter().rev().find(|(_, sent)| sent.messages().iter().any(|message| matches!(message, Message::KeepAlive(_))));
    let echo = keeping.expect("it asks on").1.packet();
    script.say(&[event(1, 8, false), Alive { serial: 3, echo }.into()]);
    let now = script.turn();
    assert!(now[0].messages().contains(&receipt(1)));
    script.hears(&[told(watch, WatchEvent::Certain { version: 8 })]);
}

#[test]
fn agent_that_closes_asks_for_no_watch_in_the_session_that_it_ends() {
    let (mut script, watch) = watching();
    script.agent.close(script.now());
    assert_eq!(script.submit(Command::Unwatch { watch }), Submitted::Now(Err(OpError::Closed)));
    let sent = script.run(500);
    assert!(!sent.is_empty());
    for (_, sent) in &sent {
        assert!(matches!(sent.messages()[..], [Message::EndSession(_)]), "{:?}", sent.messages());
    }
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# In each new session the agent MUST ask for its watches anew, and tell their users the version found.
#[test]
fn after_the_end_of_a_session_watches_are_made_anew_in_the_next() {
    let (mut script, watch) = watching();
    script.start(Command::Ping);
    let echo = script.sends(&[ping(3, 0)]);
    script.say(&[Nack { nonce: 3, echo, reason: NackReason::Ended, fate: Fate::Unknown }.into()]);
    let heard = script.events();
    assert_eq!(heard[0], told(watch, WatchEvent::Uncertain));
    script.shake_amid(SECOND, &[(SESSION, SessionFate::Ended)]);
    let sent = script.turn();
    let messages: Vec<_> = sent.iter().flat_map(Sent::messages).collect();
    let asked = messages.iter().find_map(|message| if let Message::Watch(watch) = message { Some(watch.ask.nonce) } else { None });
    let (nonce, echo) = (asked.expect("WATCH"), sent[0].packet());
    script.say(&[watched(nonce, echo, 9)]);
    script.turn();
    assert!(script.events().contains(&told(watch, WatchEvent::Certain { version: 9 })));
}

#[test]
fn server_that_cannot_take_a_watch_is_asked_again_and_one_that_says_gone_is_believed() {
    let mut script = Script::open(Config::default());
    let watch = begin(&mut script);
    let echo = script.sends(&[watch_request(2, 0)]);
    let failed = |status, retry_ms| Reply::Failed(Failed { status, retry_ms });
    script.say(&[Ack { nonce: 2, echo, reply: failed(Status::BUSY, 100) }.into()]);
    script.silence(999);
    script.sleep(1);
    let echo = script.sends(&[watch_request(3, 0)]);
    script.hears(&[]);
    script.say(&[Ack { nonce: 3, echo, reply: failed(Status::ESTALE, 0) }.into()]);
    script.hears(&[told(watch, WatchEvent::Gone)]);
    script.asleep();
}

/// An agent that has made an ephemeral file.
fn with_ephemeral() -> Script {
    let mut script = Script::open(Config { idle: IdlePolicy::Lazy, ..Config::default() });
    let owner = Ownership { mode: 0o600, uid: 1, gid: 1 };
    let op = script.start(Command::Create { path: Bytes::from_static(b"/m"), exclusive: true, ephemeral: true, owner });
    let create = Create {
        ask: ask(2, 0),
        dir: ObjectId(1),
        name: Bytes8(b"m"),
        exclusive: true,
        mode: 0o600,
        uid: 1,
        gid: 1,
        ephemeral: true,
        terms: Terms { want: Want::Exclusive, ..Terms::NONE },
    };
    let echo = script.sends(&[create.into()]);
    let made = Attr { owner: HANDLE, ..attr(9, 1) };
    let effects =
        [Effect { before: 1, attr: attr(1, 2), grant: CacheGrant::NONE }, Effect { before: 0, attr: made, grant: CacheGrant::NONE }];
    script.say(&[Ack { nonce: 2, echo, reply: Reply::Changed(Changed { effects: List::of(&effects) }) }.into()]);
    script.hears(&[Event::Done { op, result: Ok(Output::Attr(made)) }]);
    script.quiet();
    script
}

#[test]
fn agent_with_an_ephemeral_file_renews_as_for_a_lock_in_use() {
    let mut script = with_ephemeral();
    assert_eq!(script.agent.view(script.now()).ephemerals, 1);
    script.silence(1_199);
    script.sleep(1);
    let expected = script.keep_alive(2);
    script.sends(&[expected]);
}

#[test]
fn agent_whose_ephemeral_file_somebody_took_away_renews_for_it_no_more() {
    let mut script = with_ephemeral();
    script.say(&[cistern_wire::WatchEvent { seq: 1, object: ObjectId(9), version: 1, gone: true }.into()]);
    script.sends(&[receipt(1)]);
    assert_eq!(script.agent.view(script.now()).ephemerals, 0);
    script.hears(&[]);
}

#[test]
fn agent_with_an_ephemeral_file_reclaims_after_a_restart_though_it_holds_no_lock() {
    let mut script = with_ephemeral();
    script.hint();
    script.shake_amid(SECOND, &[(SESSION, SessionFate::Reclaimable)]);
    let sent = script.turn();
    let messages: Vec<_> = sent.iter().flat_map(Sent::messages).collect();
    assert!(
        messages.iter().any(|message| matches!(message, Message::ReclaimComplete(complete) if complete.from == SESSION)),
        "{messages:?}"
    );
    assert_eq!(script.agent.view(script.now()).ephemerals, 1);
}

#[test]
fn ephemeral_file_of_a_session_that_cannot_be_reclaimed_keeps_the_agent_awake_no_more() {
    let mut script = with_ephemeral();
    let held = script.hold(7, 3, 40, 16);
    let _ = script.submit(Command::Unlock { holder: held.holder });
    script.hint();
    script.shake_amid(SECOND, &[(SESSION, SessionFate::Reclaimable)]);
    let echo = script.turn().last().expect("RECLAIM").packet();
    assert_eq!(script.agent.view(script.now()).ephemerals, 1);
    script.say(&[cistern_wire::Hint { echo, detail: Bytes8(b"") }.into()]);
    script.shake_amid(SessionId(0xEF), &[(SESSION, SessionFate::TimingOut), (SECOND, SessionFate::Reclaimable)]);
    assert_eq!(script.agent.view(script.now()).ephemerals, 0);
    assert!(!script.agent.owns_ephemeral(ObjectId(9)));
}

#[test]
fn ephemeral_file_of_a_session_that_was_reclaimed_too_late_is_gone() {
    let mut script = with_ephemeral();
    script.hint();
    script.shake_amid(SECOND, &[(SESSION, SessionFate::Reclaimable)]);
    let complete = script.turn().pop().expect("RECLAIM_COMPLETE");
    let Some(Message::ReclaimComplete(asked)) = complete.messages().last().copied() else { panic!("{complete:?}") };
    let failed = Failed { status: Status::NOT_HELD, retry_ms: 0 };
    script.say(&[Ack { nonce: asked.ask.nonce, echo: complete.packet(), reply: Reply::Failed(failed) }.into()]);
    assert_eq!(script.agent.view(script.now()).ephemerals, 0);
}

#[test]
fn ephemeral_file_goes_on_with_the_session_to_which_it_is_bound_after_a_second_restart() {
    use SessionFate::{Ended, Reclaimable, TimingOut};
    let fates = [
        (Ended, Reclaimable, true, "the first one's end had taken effect"),
        (Reclaimable, Reclaimable, true, "it had not"),
        (Reclaimable, Ended, true, "it had not, and the file is still bound to the first"),
        (TimingOut, Reclaimable, false, "it had not, and never will"),
    ];
    for (first, second, owned, why) in fates {
        let mut script = with_ephemeral();
        script.hint();
        script.shake_amid(SECOND, &[(SESSION, Reclaimable)]);
        let echo = script.turn().last().expect("RECLAIM_COMPLETE").packet();
        script.say(&[cistern_wire::Hint { echo, detail: Bytes8(b"") }.into()]);
        script.shake_amid(SessionId(0xEF), &[(SESSION, first), (SECOND, second)]);
        assert_eq!(script.agent.view(script.now()).ephemerals, u64::from(owned), "{why}");
    }
}

/// RECLAIM_COMPLETE of the first session was lost with the second, of which the third knows, and nothing was said of it there: so the first
/// ended with a grace.
#[test]
fn ephemeral_file_is_gone_with_a_session_whose_end_was_said_in_vain_and_not_again() {
    use SessionFate::{Ended, Reclaimable};
    let mut script = with_ephemeral();
    script.hold(7, 3, 40, 16);
    script.hint();
    script.shake_amid(SECOND, &[(SESSION, Reclaimable)]);
    let sent = script.turn().pop().expect("RECLAIM");
    let Some(Message::Reclaim(asked)) = sent.messages().last().copied() else { panic!("{sent:?}") };
    let kept: Vec<_> = asked
        .items
        .into_iter()
        .map(|item| cistern_wire::ReclaimedItem { lock: item.lock, generation: item.generation, status: Status::OK, version: 1 })
        .collect();
    let reply = Reply::Reclaimed(cistern_wire::Reclaimed { items: List::of(&kept) });
    script.say(&[Ack { nonce: asked.ask.nonce, echo: sent.packet(), reply }.into()]);
    let sent = script.turn().pop().expect("RECLAIM_COMPLETE");
    assert!(matches!(sent.messages().last(), Some(Message::ReclaimComplete(_))), "{sent:?}");
    script.say(&[cistern_wire::Hint { echo: sent.packet(), detail: Bytes8(b"") }.into()]);
    script.shake_amid(SessionId(0xEF), &[(SESSION, Reclaimable), (SECOND, Reclaimable)]);
    let sent = script.turn().pop().expect("RECLAIM");
    assert!(sent.messages().iter().all(|message| !matches!(message, Message::ReclaimComplete(_))), "{sent:?}");
    script.say(&[cistern_wire::Hint { echo: sent.packet(), detail: Bytes8(b"") }.into()]);
    script.shake_amid(SessionId(0xF0), &[(SESSION, Ended), (SECOND, Reclaimable), (SessionId(0xEF), Reclaimable)]);
    assert_eq!(script.agent.view(script.now()).ephemerals, 0);
}

#[test]
fn agent_keeps_account_of_ephemeral_files_that_it_makes_in_batches() {
    let mut script = Script::open(Config { idle: IdlePolicy::Lazy, ..Config::default() });
    let owner = Ownership { mode: 0o600, uid: 1, gid: 1 };
    let make = |name, ephemeral| Command::Create { path: Bytes::from_static(name), exclusive: true, ephemeral, owner };
    let op = script.start(Command::Batch { items: alloc::vec![make(b"/f", false), make(b"/m", true)] });
    let create = |name, ephemeral| Create {
        ask: cistern_wire::Ask::NONE,
        dir: ObjectId(1),
        name: Bytes8(name),
        exclusive: true,
        mode: 0o600,
        uid: 1,
        gid: 1,
        ephemeral,
        terms: Terms::NONE,
    };
    let items = [cistern_wire::Item::Create(create(b"f", false)), cistern_wire::Item::Create(create(b"m", true))];
    let batch = cistern_wire::Batch { ask: ask(2, 0), items: List::of(&items), terms: Terms::NONE };
    let echo = script.sends(&[batch.into()]);
    let results = [9, 10].map(|object| cistern_wire::ItemResult { object: ObjectId(object), version: 1 });
    let reply = Reply::Batched(cistern_wire::Batched { items: List::of(&results) });
    script.say(&[Ack { nonce: 2, echo, reply }.into()]);
    script.hears(&[Event::Done { op, result: Ok(Output::Batched(results.to_vec())) }]);
    assert_eq!(script.agent.view(script.now()).ephemerals, 1);
}
