//! A restart of the server: what is reclaimed, under which lease it is used meanwhile, and what holders hear of it.

use super::script::*;
use crate::api::{Command, Event, LockEvent, Output, Submitted, Wait};
use crate::config::Config;
use alloc::vec::Vec;
use cistern_wire::{
    Ack, Claim, Done, Generation, List, LockId, LockWait, Message, Mode, Reclaim, ReclaimComplete, ReclaimItem, Reclaimed, ReclaimedItem,
    Reply, SessionFate, SessionId, Status,
};

const SECOND: SessionId = SessionId(0xCD);
const THIRD: SessionId = SessionId(0xEF);
const RECLAIMABLE: [(SessionId, SessionFate); 1] = [(SESSION, SessionFate::Reclaimable)];

fn advisory_item(id: u64, generation: u64) -> ReclaimItem {
    ReclaimItem { lock: object(id), mode: Mode::Exclusive, generation: Generation(generation), run: 16, version: 0 }
}

fn cache_item(id: u64, generation: u64, version: u64) -> ReclaimItem {
    ReclaimItem { lock: cached(id), mode: Mode::Shared, generation: Generation(generation), run: 0, version }
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
    assert_eq!(claims, [(SESSION, Claim::Reclaiming)]);
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
