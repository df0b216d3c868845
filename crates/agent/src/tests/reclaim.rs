//! A restart of the server: what is reclaimed, under which lease it is used meanwhile, and what holders hear of it.

use super::script::*;
use crate::api::{Command, Event, LockEvent, Locked, Output, Phase, Submitted, Wait};
use crate::config::Config;
use alloc::vec::Vec;
use cistern_wire::{
    Ack, Bytes8, CacheGrant, Claim, Demand, Done, Failed, Fate, Generation, Hint, Keep, List, LockId, LockWait, Message, Mode, Nack,
    NackReason, Reclaim, ReclaimComplete, ReclaimItem, Reclaimed, ReclaimedItem, Reply, SessionFate, SessionId, Stated, Status, Want,
};

const SECOND: SessionId = SessionId(0xCD);
const THIRD: SessionId = SessionId(0xEF);
const RECLAIMABLE: [(SessionId, SessionFate); 1] = [(SESSION, SessionFate::Reclaimable)];

fn advisory_item(id: u64, generation: u64) -> ReclaimItem {
    ReclaimItem {
        lock: object(id),
        mode: Mode::Exclusive,
        generation: Generation(generation),
        first: Generation(generation),
        run: 16,
        version: 0,
    }
}

fn cache_item(id: u64, generation: u64, version: u64) -> ReclaimItem {
    ReclaimItem { lock: cached(id), mode: Mode::Shared, generation: Generation(generation), first: Generation(generation), run: 0, version }
}

fn reclaim<'a>(nonce: u64, back: u16, from: SessionId, items: &'a [ReclaimItem]) -> Message<'a> {
    Reclaim { ask: ask(nonce, back), from, items: List::of(items) }.into()
}

fn complete(nonce: u64, back: u16, from: SessionId) -> Message<'static> {
    ReclaimComplete { ask: ask(nonce, back), from }.into()
}

fn kept(lock: LockId, generation: u64, version: u64) -> ReclaimedItem {
    ReclaimedItem { lock, generation: Generation(generation), status: Status::OK, version }
}

fn reclaimed<'a>(nonce: u64, echo: u64, items: &'a [ReclaimedItem]) -> Message<'a> {
    Ack { nonce, echo, reply: Reply::Reclaimed(Reclaimed { items: List::of(items) }) }.into()
}

fn done(nonce: u64, echo: u64) -> Message<'static> {
    Ack { nonce, echo, reply: Reply::Done(Done {}) }.into()
}

fn about_locks(events: Vec<Event>) -> Vec<Event> {
    events.into_iter().filter(|event| matches!(event, Event::Lock { .. })).collect()
}

#[test]
fn over_a_quick_restart_a_holder_sees_nothing_and_all_is_held_as_before() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    script.cache(9, 3, 80);
    script.hint();
    let claims = script.shake_amid(SECOND, &RECLAIMABLE);
    assert_eq!(claims, [(SESSION, Claim::Continuing)]);
    script.is_cached(9);
    let named = [advisory_item(7, 40), cache_item(9, 80, 1)];
    let echo = script.sends(&[reclaim(1, 0, SESSION, &named)]);
    assert_eq!(script.agent.view(script.now()).reclaiming, Some(SESSION));
    script.say(&[reclaimed(1, echo, &[kept(cached(9), 80, 1), kept(object(7), 40, 0)])]);
    let echo = script.sends(&[complete(2, 0, SESSION)]);
    script.say(&[done(2, echo)]);
    let events = script.events();
    assert_eq!(
        events,
        [Event::SessionOpened { session: SECOND }, Event::SessionReclaimed { from: SESSION, to: SECOND, kept: 2, lost: 0 }],
        "and nothing else"
    );
    let echo = script.sends(&[ping(3, 0)]);
    script.say(&[stated(3, echo, attr(1, 1), 0)]);
    assert!(matches!(script.events()[..], [Event::Done { result: Ok(Output::Pong { .. }), .. }]));
    script.is_cached(9);
    assert!(script.agent.holder_view(script.now(), locked.holder).unwrap().certain);
    assert_eq!(script.agent.view(script.now()).reclaiming, None);
    assert_eq!(script.submit(Command::Unlock { holder: locked.holder }), Submitted::Now(Ok(Output::Done)));
    // The next local grant goes on in the run that was reclaimed.
    let Submitted::Now(Ok(Output::Locked(next))) = script.submit(lock(7, Mode::Exclusive, Wait::Try)) else { panic!("a local grant") };
    assert_eq!((next.token, next.generation), (41, Generation(40)));
}

/// Restarted once, with the handshake done; nothing was asked in the new session yet.
fn restarted(script: &mut Script) {
    script.hint();
    assert_eq!(script.shake_amid(SECOND, &RECLAIMABLE), [(SESSION, Claim::Continuing)]);
}

/// All of what one RECLAIM names is given back, and the reclaim is completed.
fn reclaim_all(script: &mut Script, named: &[ReclaimItem]) {
    let echo = script.sends(&[reclaim(1, 0, SESSION, named)]);
    let told: Vec<ReclaimedItem> = named.iter().map(|item| kept(item.lock, item.generation.0, item.version)).collect();
    script.say(&[reclaimed(1, echo, &told)]);
    let echo = script.sends(&[complete(2, 0, SESSION)]);
    script.say(&[done(2, echo)]);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A renewing answer MUST make usable only locks of its own session.
#[test]
fn answers_in_the_new_session_make_nothing_of_the_old_one_usable_before_all_is_reclaimed() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    script.cache(9, 3, 80);
    script.sleep(1_500);
    restarted(&mut script);
    let old_end = locked.valid_until;
    let named = [advisory_item(7, 40), cache_item(9, 80, 1)];
    let echo = script.sends(&[reclaim(1, 0, SESSION, &named)]);
    script.say(&[Message::from(cistern_wire::Pending { nonce: 1, echo })]);
    assert_eq!(script.agent.holder_view(script.now(), locked.holder).unwrap().valid_until, old_end, "what renews is the new lease");
    script.events();
    script.sleep(500);
    assert!(!script.agent.holder_view(script.now(), locked.holder).unwrap().certain);
    assert!(matches!(script.submit(stat(9)), Submitted::Later(_)));
    assert_eq!(about_locks(script.events()), [Script::told(&locked, LockEvent::Uncertain)]);
    script.say(&[reclaimed(1, echo, &[kept(object(7), 40, 0), kept(cached(9), 80, 1)])]);
    assert!(!script.agent.holder_view(script.now(), locked.holder).unwrap().certain);
    let echo = script.sends(&[complete(2, 0, SESSION)]);
    let sent = script.now();
    script.say(&[done(2, echo)]);
    let valid_until = sent.plus(core::time::Duration::from_millis(TAU_MS));
    assert_eq!(about_locks(script.events()), [Script::told(&locked, LockEvent::Certain { valid_until })], "under the same token");
    script.is_cached(9);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# What the agent has begun to release or convert MUST NOT be among its reclaims.
#[test]
fn what_was_being_given_back_or_converted_is_not_reclaimed() {
    let mut script = Script::open(Config::default());
    script.cache(9, 2, 80);
    script.cache(10, 3, 81);
    script.hold(11, 4, 82, 16);
    let seven = script.hold(7, 5, 40, 16);
    let demand = |seq, lock: LockId, generation, keep| Demand { seq, lock, generation: Generation(generation), keep }.into();
    script.say(&[demand(1, cached(9), 80, Keep::Nothing), demand(2, object(7), 40, Keep::Nothing)]);
    script.turn();
    script.submit(Command::Unlock { holder: seven.holder });
    script.turn();
    restarted(&mut script);
    let named = [cache_item(10, 81, 1), advisory_item(11, 82)];
    reclaim_all(&mut script, &named);
    let events = script.events();
    assert!(events.contains(&Event::SessionReclaimed { from: SESSION, to: SECOND, kept: 2, lost: 0 }), "{events:?}");
    assert_eq!(script.agent.view(script.now()).advisory_locks, 1);
}

#[test]
fn a_lock_that_was_being_downgraded_is_lost_with_its_holders() {
    let mut script = Script::open(Config::default());
    let writer = script.hold(7, 2, 40, 16);
    script.submit(Command::Unlock { holder: writer.holder });
    let Submitted::Now(Ok(Output::Locked(reader))) = script.submit(lock(7, Mode::Shared, Wait::Try)) else { panic!("a local grant") };
    script.say(&[Demand { seq: 1, lock: object(7), generation: Generation(40), keep: Keep::Shared }.into()]);
    script.turn();
    restarted(&mut script);
    assert_eq!(about_locks(script.events()), [Script::told(&reader, LockEvent::Lost)]);
    script.quiet();
    script.submit(Command::Unlock { holder: reader.holder });
    script.sends(&[complete(1, 0, SESSION)]);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# Before it makes its list of reclaims the agent MUST stop taking messages of the old session.
#[test]
fn a_straggling_grant_of_the_old_session_is_not_installed() {
    let mut script = Script::open(Config::default());
    script.start(stat(9));
    script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let echo = script.turn()[0].packet();
    let late = script.make(&[stated(3, echo, attr(9, 1), 44), granted(2, echo, 7, Mode::Exclusive, 45, 16)]);
    restarted(&mut script);
    script.deliver(&late);
    script.events();
    script.sends(&[complete(1, 0, SESSION)]);
    assert_eq!((script.agent.view(script.now()).cache_locks, script.agent.view(script.now()).advisory_locks), (0, 0));
    script.drops = 1;
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A reclaim MUST name object, mode, generation and version cached, and be answered with the current version.
//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# The agent MUST drop cached data of another version than the reclaim was answered with.
#[test]
fn cached_data_of_another_version_than_the_servers_is_dropped_at_once() {
    let mut script = Script::open(Config::default());
    script.cache(9, 2, 80);
    script.cache(10, 3, 81);
    restarted(&mut script);
    let echo = script.sends(&[reclaim(1, 0, SESSION, &[cache_item(9, 80, 1), cache_item(10, 81, 1)])]);
    script.is_cached(9);
    script.say(&[reclaimed(1, echo, &[kept(cached(9), 80, 2), kept(cached(10), 81, 1)])]);
    assert_eq!(script.agent.view(script.now()).cache_locks, 2, "the lock is held on");
    assert!(matches!(script.submit(stat(9)), Submitted::Later(_)));
    script.is_cached(10);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# What is not reclaimed MUST NOT be used from when the agent says that its reclaim is complete.
#[test]
fn the_reclaim_is_complete_only_when_holders_of_lost_locks_have_stopped_or_their_lease_is_over() {
    for stops in [true, false] {
        let mut script = Script::open(Config::default());
        let locked = script.hold(7, 2, 40, 16);
        script.cache(9, 3, 80);
        restarted(&mut script);
        let echo = script.sends(&[reclaim(1, 0, SESSION, &[advisory_item(7, 40), cache_item(9, 80, 1)])]);
        let refused = |lock, generation| ReclaimedItem { status: Status::NOT_HELD, ..kept(lock, generation, 0) };
        script.say(&[reclaimed(1, echo, &[refused(object(7), 40), refused(cached(9), 80)])]);
        assert_eq!(about_locks(script.events()), [Script::told(&locked, LockEvent::Lost)]);
        assert!(matches!(script.submit(stat(9)), Submitted::Later(_)), "nor is anything cached under it used");
        script.quiet();
        if stops {
            script.submit(Command::Unlock { holder: locked.holder });
        } else {
            let left = script.now().until_lease_over(locked.valid_until);
            let early = script.run(u64::try_from(left.as_millis()).unwrap() - 1);
            let said = |sent: &Sent| sent.messages().iter().any(|message| matches!(message, Message::ReclaimComplete(_)));
            assert!(!early.iter().any(|(_, sent)| said(sent)), "{early:?}");
            script.sleep(1);
        }
        let sent = script.one();
        assert!(matches!(sent.messages()[..], [.., Message::ReclaimComplete(_)]), "{:?}", sent.messages());
    }
}

#[test]
fn ordinary_requests_wait_for_the_end_of_the_reclaim_and_waits_are_asked_anew() {
    let mut script = Script::open(Config::default());
    script.hold(7, 2, 40, 16);
    let wait = script.start(lock(8, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[lock_request(3, 0, 8, Mode::Exclusive, LockWait::Queue)]);
    script.say(&[queued(3, echo, 8)]);
    restarted(&mut script);
    let read = script.start(stat(9));
    script.events();
    reclaim_all(&mut script, &[advisory_item(7, 40)]);
    assert_eq!(script.events().len(), 1);
    let sent = script.one();
    assert_eq!(sent.messages(), [lock_request(3, 0, 8, Mode::Exclusive, LockWait::Queue), ping(4, 1), get_attr(5, 2, 9)], "and not before");
    let echo = sent.packet();
    script.say(&[granted(3, echo, 8, Mode::Exclusive, 90, 16), stated(5, echo, attr(9, 1), 91)]);
    let events = script.events();
    assert!(matches!(events[0], Event::Done { op, result: Ok(Output::Locked(_)) } if op == wait));
    assert!(matches!(events[1], Event::Done { op, result: Ok(Output::Attr(_)) } if op == read));
}

#[test]
fn lock_whose_run_was_extended_is_reclaimed_with_the_generation_that_it_began_with() {
    let mut script = Script::open(Config::default());
    let mut locked = script.hold(7, 2, 40, 3);
    for _ in 0..2 {
        script.submit(Command::Unlock { holder: locked.holder });
        let Submitted::Now(Ok(Output::Locked(again))) = script.submit(lock(7, Mode::Exclusive, Wait::Forever)) else { panic!("at once") };
        locked = again;
    }
    let echo = script.sends(&[lock_request(3, 0, 7, Mode::Exclusive, LockWait::Try)]);
    script.say(&[granted(3, echo, 7, Mode::Exclusive, 50, 16)]);
    restarted(&mut script);
    let item = ReclaimItem { first: Generation(40), ..advisory_item(7, 50) };
    script.sends(&[reclaim(1, 0, SESSION, &[item])]);
}

#[test]
fn many_locks_go_in_several_messages_of_bounded_length() {
    let mut script = Script::open(Config::default());
    for id in 0..200 {
        script.start(stat(1_000 + id));
    }
    // All of them are answered, as far as the windows let them be asked.
    let mut answered = 0;
    while answered < 200 {
        for sent in script.turn() {
            let echo = sent.packet();
            for message in sent.messages() {
                let Message::GetAttr(asked) = message else { continue };
                answered += 1;
                script.say(&[stated(asked.ask.nonce, echo, attr(asked.object.0, 1), 5_000 + asked.object.0)]);
            }
        }
    }
    restarted(&mut script);
    let (mut named, mut out) = (0, 0);
    for _ in 0..100 {
        let mut requests = Vec::new();
        for sent in script.turn() {
            assert!(sent.bytes.len() <= 1_232);
            for message in sent.messages() {
                let Message::Reclaim(asked) = message else { panic!("{message:?}") };
                let items: Vec<ReclaimedItem> = asked.items.into_iter().map(|item| kept(item.lock, item.generation.0, 1)).collect();
                assert!(items.len() <= cistern_wire::limits::RECLAIM_MAX);
                named += items.len();
                requests.push((asked.ask.nonce, sent.packet(), items));
            }
        }
        out = out.max(requests.len());
        for (nonce, echo, items) in requests {
            script.say(&[reclaimed(nonce, echo, &items)]);
        }
        if named == 200 {
            break;
        }
    }
    assert_eq!((named, out), (200, 10), "as many are on their way at once as a new window admits");
    script.sends(&[complete(18, 0, SESSION)]);
}

#[test]
fn a_server_that_restarts_again_in_the_midst_is_told_of_both_sessions_and_gives_all_back() {
    let (mut script, locked) = restarted_with_a_cache();
    let first: Vec<ReclaimItem> = core::iter::once(advisory_item(7, 40)).chain((20..31).map(|id| cache_item(id, 100 + id, 1))).collect();
    let rest = [cache_item(31, 131, 1)];
    let echo = script.sends(&[reclaim(1, 0, SESSION, &first), reclaim(2, 1, SESSION, &rest)]);
    let told: Vec<ReclaimedItem> = first.iter().map(|item| kept(item.lock, item.generation.0, item.version)).collect();
    script.say(&[reclaimed(1, echo, &told)]);
    // Of what it has not answered the agent cannot know whether it is in the second session; the server that restarts does not either.
    script.say(&[Hint { echo, detail: Bytes8(b"") }.into()]);
    let fates = [(SESSION, SessionFate::Reclaimable), (SECOND, SessionFate::Reclaimable)];
    let claims = script.shake_amid(THIRD, &fates);
    assert_eq!(claims, [(SECOND, Claim::Continuing), (SESSION, Claim::Reclaiming)]);
    let echo = script.sends(&[reclaim(1, 0, SESSION, &rest), reclaim(2, 1, SECOND, &first)]);
    script.say(&[reclaimed(1, echo, &[kept(cached(31), 131, 1)]), reclaimed(2, echo, &told)]);
    let echo = script.sends(&[complete(3, 0, SESSION), complete(4, 1, SECOND)]);
    script.events();
    script.say(&[done(3, echo), done(4, echo)]);
    script.hears(&[
        Event::SessionReclaimed { from: SESSION, to: THIRD, kept: 1 + 12, lost: 0 },
        Event::SessionReclaimed { from: SECOND, to: THIRD, kept: 12, lost: 0 },
    ]);
    assert!(script.agent.holder_view(script.now(), locked.holder).unwrap().certain, "and the holder has seen nothing");
    (20..32).for_each(|id| script.is_cached(id));
}

#[test]
fn a_restart_after_the_end_of_the_reclaim_was_said_finds_all_in_the_newer_session() {
    let mut script = Script::open(Config::default());
    script.hold(7, 2, 40, 16);
    restarted(&mut script);
    let named = [advisory_item(7, 40)];
    take_over(&mut script, SESSION, &named);
    let echo = script.sends(&[complete(2, 0, SESSION)]);
    script.say(&[Hint { echo, detail: Bytes8(b"") }.into()]);
    script.shake_amid(THIRD, &[(SESSION, SessionFate::Ended), (SECOND, SessionFate::Reclaimable)]);
    script.sends(&[reclaim(1, 0, SECOND, &named)]);
    assert_eq!(about_locks(script.events()), []);
}

#[test]
fn what_had_moved_into_a_session_that_cannot_be_reclaimed_is_lost_and_the_rest_is_not() {
    let (mut script, seven) = restarted_with_a_cache();
    let sent = script.one();
    let Message::Reclaim(first) = sent.messages()[0] else { panic!("RECLAIM") };
    let told: Vec<ReclaimedItem> = first.items.into_iter().map(|item| kept(item.lock, item.generation.0, item.version)).collect();
    script.say(&[reclaimed(1, sent.packet(), &told), Hint { echo: 0, detail: Bytes8(b"") }.into()]);
    script.drops = 1;
    script.say(&[Hint { echo: sent.packet(), detail: Bytes8(b"") }.into()]);
    script.shake_amid(THIRD, &[(SESSION, SessionFate::Reclaimable), (SECOND, SessionFate::TimingOut)]);
    assert_eq!(about_locks(script.events()), [Script::told(&seven, LockEvent::Lost)]);
    let sent = script.one();
    assert_eq!(sent.messages(), [reclaim(1, 0, SESSION, &[cache_item(31, 131, 1)])]);
    assert_eq!(script.agent.view(script.now()).cache_locks, 1);
}

#[test]
fn a_nack_in_the_midst_ends_all_and_names_both_sessions_afterwards() {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    script.cache(9, 3, 80);
    restarted(&mut script);
    let sent = script.one();
    script.events();
    script.say(&[Nack { nonce: 1, echo: sent.packet(), reason: NackReason::TimingOut, fate: Fate::NotExecuted }.into()]);
    let events = script.events();
    assert_eq!(events[0], Script::told(&locked, LockEvent::Lost));
    assert!(matches!(events[1], Event::SessionEnded { session: SECOND, .. }));
    assert!(matches!(script.submit(stat(9)), Submitted::Later(_)));
    assert_eq!(script.agent.view(script.now()).phase, Phase::NoSession);
    let claims = script.shake_amid(THIRD, &[(SESSION, SessionFate::Ended), (SECOND, SessionFate::Ended)]);
    assert_eq!(claims, [(SECOND, Claim::Lost), (SESSION, Claim::Lost)], "the holder may act on");
}

#[test]
fn a_busy_server_is_asked_for_the_locks_again_when_it_says() {
    let mut script = Script::open(Config::default());
    script.hold(7, 2, 40, 16);
    restarted(&mut script);
    let named = [advisory_item(7, 40)];
    let echo = script.sends(&[reclaim(1, 0, SESSION, &named)]);
    let busy = |nonce, echo| Ack { nonce, echo, reply: Reply::Failed(Failed { status: Status::BUSY, retry_ms: 50 }) }.into();
    script.say(&[busy(1, echo)]);
    script.silence(49);
    script.sleep(1);
    let echo = script.sends(&[reclaim(2, 0, SESSION, &named)]);
    script.say(&[reclaimed(2, echo, &[kept(object(7), 40, 0)])]);
    let echo = script.sends(&[complete(3, 0, SESSION)]);
    script.say(&[busy(3, echo)]);
    script.silence(49);
    script.sleep(1);
    let echo = script.sends(&[complete(4, 0, SESSION)]);
    script.say(&[done(4, echo)]);
    assert_eq!(script.agent.view(script.now()).reclaiming, None);
}

#[test]
fn an_agent_that_holds_nothing_says_at_once_that_it_has_nothing_to_reclaim() {
    let mut script = Script::open(Config::default());
    restarted(&mut script);
    let echo = script.sends(&[complete(1, 0, SESSION)]);
    script.say(&[done(1, echo)]);
    script.sends(&[ping(2, 0)]);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# What the agent has begun to release or convert MUST NOT be among its reclaims.
#[test]
fn neither_an_upgrade_nor_a_downgrade_on_its_way_is_reclaimed() {
    let mut script = Script::open(Config::default());
    // Shared, held by nobody here; somebody wants more.
    let reader = script.hold_as(Mode::Shared, 7, 2, (40, 16));
    script.submit(Command::Unlock { holder: reader.holder });
    script.start(lock(7, Mode::Exclusive, Wait::Forever));
    script.sends(&[lock_request(3, 0, 7, Mode::Exclusive, LockWait::Queue)]);
    // Exclusive, and a shared one is to be kept of it.
    script.start(stat(9));
    let echo = script.sends(&[get_attr(4, 1, 9)]);
    let grant = CacheGrant { mode: Want::Exclusive, generation: Generation(80) };
    let told = Ack { nonce: 4, echo, reply: Reply::Stated(Stated { attr: attr(9, 1), grant }) };
    script.say(&[told.into(), Demand { seq: 1, lock: cached(9), generation: Generation(80), keep: Keep::Shared }.into()]);
    script.turn();
    script.is_cached(9);
    script.start(stat(10));
    let echo = script.turn()[0].packet();
    script.say(&[stated(5, echo, attr(10, 1), 81)]);
    restarted(&mut script);
    assert!(matches!(script.submit(stat(9)), Submitted::Later(_)));
    script.sends(&[reclaim(1, 0, SESSION, &[cache_item(10, 81, 1)])]);
}

#[test]
fn a_session_that_is_being_left_cannot_be_offered_again() {
    let mut script = Script::open(Config::default());
    script.hold(7, 2, 40, 16);
    restarted(&mut script);
    let echo = script.turn()[0].packet();
    script.say(&[Hint { echo, detail: Bytes8(b"") }.into()]);
    script.offer_amid(SESSION);
    assert!(script.turn().iter().all(|sent| sent.claims().is_none()), "nothing is confirmed");
    assert_eq!(script.agent.view(script.now()).session, Some(SECOND));
    script.drops = 1;
}

#[test]
fn who_waited_in_line_for_long_has_time_to_get_a_new_place() {
    let mut script = Script::open(Config { idle: crate::config::IdlePolicy::Lazy, ..Config::default() });
    let op = script.start(lock(8, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[lock_request(2, 0, 8, Mode::Exclusive, LockWait::Queue)]);
    script.say(&[queued(2, echo, 8)]);
    for _ in 0..14 {
        let sent = script.run(1_000);
        let Some((_, sent)) = sent.iter().rev().find(|(_, sent)| sent.datagram().header.session == SESSION) else { continue };
        let Message::KeepAlive(asked) = sent.messages()[0] else { panic!("{sent:?}") };
        let echo = sent.packet();
        script.say(&[cistern_wire::Alive { serial: asked.serial, echo }.into()]);
    }
    restarted(&mut script);
    script.run(10_000);
    let failed = |events: Vec<Event>| events.into_iter().any(|event| matches!(event, Event::Done { op: done, .. } if done == op));
    assert!(!failed(script.events()), "the server has had no time to hear of it");
    script.run(5_100);
    assert!(failed(script.events()));
}

#[test]
fn end_that_a_busy_server_put_off_is_said_once_after_another_restart() {
    let mut script = Script::open(Config::default());
    script.hold(7, 2, 40, 16);
    restarted(&mut script);
    let named = [advisory_item(7, 40)];
    take_over(&mut script, SESSION, &named);
    let echo = script.sends(&[complete(2, 0, SESSION)]);
    script.say(&[Ack { nonce: 2, echo, reply: Reply::Failed(Failed { status: Status::BUSY, retry_ms: 500 }) }.into()]);
    script.say(&[Hint { echo, detail: Bytes8(b"") }.into()]);
    script.shake_amid(THIRD, &[(SESSION, SessionFate::Reclaimable), (SECOND, SessionFate::Reclaimable)]);
    take_over(&mut script, SECOND, &named);
    let echo = script.sends(&[complete(2, 0, SESSION), complete(3, 1, SECOND)]);
    script.say(&[2, 3].map(|nonce| Message::from(cistern_wire::Pending { nonce, echo })));
    let said: Vec<u64> = script.run(600).iter().flat_map(|(_, sent)| nonces_of_completes(sent)).collect();
    assert!(said.iter().all(|nonce| [2, 3].contains(nonce)), "once for each of the two sessions: {said:?}");
}

#[test]
fn lock_that_was_to_be_asked_for_again_is_asked_for_in_the_next_session() {
    let mut script = Script::open(Config::default());
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[lock_request(2, 0, 7, Mode::Exclusive, LockWait::Queue)]);
    script.say(&[Ack { nonce: 2, echo, reply: Reply::Failed(Failed { status: Status::IN_GRACE, retry_ms: 400 }) }.into()]);
    script.say(&[Hint { echo, detail: Bytes8(b"") }.into()]);
    script.shake_amid(SECOND, &RECLAIMABLE);
    let echo = script.sends(&[complete(1, 0, SESSION)]);
    script.say(&[done(1, echo)]);
    let is_lock = |sent: &Sent| sent.messages().iter().any(|message| matches!(message, Message::Lock(_)));
    let sent = script.run(600);
    let asked = sent.iter().rfind(|(_, sent)| is_lock(sent)).expect("the lock is asked for");
    assert_eq!(asked.1.datagram().header.session, SECOND);
    script.agent.cancel(script.now(), op);
}

fn nonces_of_completes(sent: &Sent) -> Vec<u64> {
    let nonce = |message| if let Message::ReclaimComplete(complete) = message { Some(complete.ask.nonce) } else { None };
    sent.messages().into_iter().filter_map(nonce).collect()
}

/// The locks named in the first message of a session are lock 7 alone, which goes on.
fn take_over(script: &mut Script, from: SessionId, named: &[ReclaimItem]) {
    let echo = script.sends(&[reclaim(1, 0, from, named)]);
    script.say(&[reclaimed(1, echo, &[kept(object(7), 40, 0)])]);
}

/// Lock 7 is held, twelve objects are cached, and the server was started anew.
fn restarted_with_a_cache() -> (Script, Locked) {
    let mut script = Script::open(Config::default());
    let locked = script.hold(7, 2, 40, 16);
    for id in 20..32 {
        script.cache(id, id - 17, 100 + id);
    }
    restarted(&mut script);
    (script, locked)
}
