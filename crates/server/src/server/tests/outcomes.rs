//! Outcomes: what an agent is told of a mutation whose answer it lost with its session.

use super::world::{Peer, ROOT, World, create};
use crate::Config;
use crate::store::{Key, StoreEvent};
use alloc::vec::Vec;
use cistern_wire::{
    Ask, Bytes8, CacheGrant, Changed, Claim, EndReason, EndSession, Fate, GetAttr, List, Lookup, Message, Nack, Outcome, Reader, Reply,
    SessionId, Want,
};

/// Asks what became of a mutation; its fate, and the reply that it got.
fn ask(world: &mut World, peer: &mut Peer, session: SessionId, nonce: u64) -> (Fate, Vec<u8>) {
    let ask = peer.ask_only();
    world.send(peer, &[Outcome { ask, session, nonce }.into()]);
    told(world, peer)
}

fn told(world: &mut World, peer: &Peer) -> (Fate, Vec<u8>) {
    let got = world.got_one(peer);
    let Reply::OutcomeTold(told) = got.reply() else { panic!("{got:?}") };
    (told.fate, told.reply.0.to_vec())
}

/// Sends a CREATE whose answer nobody sees.
fn lost(world: &mut World, peer: &mut Peer, name: &str) -> u64 {
    lost_with(world, peer, name, Want::Nothing)
}

fn lost_with(world: &mut World, peer: &mut Peer, name: &str, want: Want) -> u64 {
    let ask = peer.ask();
    world.send(peer, &[create(ask, name, want).into()]);
    world.got(peer);
    ask.nonce
}

/// Whether the root directory has an entry of that name.
fn exists(world: &mut World, peer: &mut Peer, name: &str) -> bool {
    let names = [Bytes8(name.as_bytes())];
    let lookup = Lookup { ask: peer.ask_only(), start: ROOT, names: List::of(&names), want: Want::Nothing };
    world.send(peer, &[lookup.into()]);
    let got = world.got_one(peer);
    let Reply::Walked(walked) = got.reply() else { panic!("{got:?}") };
    walked.steps.len() == 2
}

fn effects(reply: &[u8]) -> usize {
    let Ok(Reply::Changed(Changed { effects })) = Reader::new(reply).get() else { panic!("{reply:?}") };
    assert!(effects.iter().all(|effect| effect.grant == CacheGrant::NONE), "no grant comes with it");
    effects.len()
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A server MUST answer what became of a mutation under an earlier incarnation, and MUST NOT execute it after it said "not executed".
#[test]
fn outcome_is_told_after_a_restart() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let done = lost_with(&mut world, &mut peer, "done", Want::Exclusive);
    let never = done + 1;
    world.crash();
    let from = world.come_back(&mut peer);
    let (fate, reply) = ask(&mut world, &mut peer, from, done);
    assert_eq!((fate, effects(&reply)), (Fate::Executed, 2));
    assert_eq!(ask(&mut world, &mut peer, from, never), (Fate::NotExecuted, Vec::new()));
    // What comes late of the former session is not even looked at.
    let mut late = Peer { session: from, nonce: done, packet: 50, ..peer.clone() };
    let request = create(late.ask(), "late", Want::Nothing);
    world.send(&mut late, &[request.into()]);
    assert!(matches!(world.got_one(&late).message(), Message::Hint(_)));
    assert!(exists(&mut world, &mut peer, "done") && !exists(&mut world, &mut peer, "late"));
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A mutation's effects and its outcome MUST become durable in one transaction, and the outcome stays until the floor has passed it or its
//# session is forgotten.
#[test]
fn effect_and_outcome_survive_together_or_not_at_all() {
    for durable in [false, true] {
        let mut world = World::new();
        let mut peer = world.open(1);
        world.stalled = true;
        let nonce = lost(&mut world, &mut peer, "file");
        assert_eq!(world.disk.batches.len(), 1, "one transaction");
        if durable {
            world.disk.sync();
        }
        world.crash();
        let from = world.come_back(&mut peer);
        let executed = ask(&mut world, &mut peer, from, nonce).0 == Fate::Executed;
        assert_eq!((executed, exists(&mut world, &mut peer, "file")), (durable, durable));
    }
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A mutation's effects and its outcome MUST become durable in one transaction, and the outcome stays until the floor has passed it or its
//# session is forgotten.
#[test]
fn a_whole_window_of_outcomes_is_kept() {
    let mut world = World::with(Config { window: 4, ..Config::default() });
    let mut peer = world.open(1);
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        let ask = Ask { back: u16::try_from(peer.nonce.min(3)).unwrap(), ..peer.ask() };
        world.send(&mut peer, &[create(ask, name, Want::Nothing).into()]);
        world.got(&peer);
    }
    world.crash();
    let from = world.come_back(&mut peer);
    for (nonce, fate) in [(1, Fate::Unknown), (2, Fate::Unknown), (3, Fate::Executed), (6, Fate::Executed), (7, Fate::NotExecuted)] {
        assert_eq!(ask(&mut world, &mut peer, from, nonce).0, fate, "nonce {nonce}");
    }
}

#[test]
fn nobody_else_is_told() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let done = lost(&mut world, &mut peer, "done");
    let live = peer.session;
    let mut other = world.open(2);
    assert_eq!(ask(&mut world, &mut other, live, done).0, Fate::Unknown, "of a session that goes on");
    assert_eq!(ask(&mut world, &mut peer, live, done).0, Fate::Unknown, "of the present session, which tells by itself");
    world.crash();
    world.open_again(&mut other, &[]);
    assert_eq!(ask(&mut world, &mut other, live, done).0, Fate::Unknown, "of one of before");
    assert_eq!(ask(&mut world, &mut other, SessionId(4_711), 1).0, Fate::Unknown);
}

#[test]
fn nothing_is_told_of_what_was_completed_or_missed_its_grace() {
    let mut world = World::new();
    let (mut peer, mut other) = (world.open(1), world.open(2));
    let done = lost(&mut world, &mut peer, "done");
    let others = lost(&mut world, &mut other, "other");
    let missed = other.session;
    world.crash();
    let from = world.come_back(&mut peer);
    world.complete(&mut peer, from);
    assert_eq!(ask(&mut world, &mut peer, from, done).0, Fate::Unknown);
    world.pass(Config::default().wait());
    world.open_again(&mut other, &[]);
    assert_eq!(ask(&mut world, &mut other, missed, others).0, Fate::Unknown);
    assert!(!world.disk.values.keys().any(|key| matches!(key, Key::Outcome(..))), "no session has any left");
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A request of which the server has said "not executed" MUST NOT be executed afterwards.
#[test]
fn outcome_of_a_session_that_failed_is_told_by_its_replies() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let done = lost_with(&mut world, &mut peer, "done", Want::Exclusive);
    let never = done + 1;
    let mut former = peer.clone();
    world.open_again(&mut peer, &[(former.session, Claim::Lost)]);
    let (fate, reply) = ask(&mut world, &mut peer, former.session, done);
    assert_eq!((fate, effects(&reply)), (Fate::Executed, 2));
    assert_eq!(ask(&mut world, &mut peer, former.session, never).0, Fate::NotExecuted);
    assert_eq!(ask(&mut world, &mut peer, former.session, 1_000).0, Fate::Unknown, "beyond the window");
    let request = create(former.ask(), "never", Want::Nothing);
    world.send(&mut former, &[request.into()]);
    assert!(matches!(world.got_one(&former).message(), Message::Nack(Nack { fate: Fate::NotExecuted, .. })));
    assert!(!exists(&mut world, &mut peer, "never"));
    // When it has ended it is remembered.
    world.pass(Config::default().wait());
    assert_eq!(ask(&mut world, &mut peer, former.session, done), (Fate::Executed, Vec::new()));
    assert_eq!(ask(&mut world, &mut peer, former.session, never).0, Fate::NotExecuted);
}

#[test]
fn outcome_of_a_mutation_that_waits_for_a_lock_is_never() {
    let mut world = World::new();
    let (mut peer, mut holder) = (world.open(1), world.open(2));
    let get = GetAttr { ask: holder.ask_only(), object: ROOT, want: Want::Shared };
    world.send(&mut holder, &[get.into()]);
    world.got(&holder);
    let nonce = lost(&mut world, &mut peer, "file");
    world.got(&holder);
    let former = peer.session;
    world.open_again(&mut peer, &[(former, Claim::Lost)]);
    assert_eq!(ask(&mut world, &mut peer, former, nonce).0, Fate::NotExecuted);
    let serial = holder.serial();
    world.send(&mut holder, &[EndSession { serial, reason: EndReason::Close }.into()]);
    world.got(&holder);
    assert!(!exists(&mut world, &mut peer, "file"));
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The server MUST NOT say "executed" before the effects of the request are durable.
#[test]
fn session_in_which_an_outcome_can_be_asked_for_opens_when_that_is_durable() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let former = peer.session;
    world.stalled = true;
    let nonce = lost(&mut world, &mut peer, "file");
    let mut next = peer.clone();
    world.offer(&mut next);
    world.confirm(&mut next, &[]);
    assert_eq!(world.disk.batches.len(), 2, "first the mutation, then the session in which its outcome can be asked for");
    let first = world.disk.sync().unwrap();
    world.server.store_event(world.now, StoreEvent::Durable(first));
    world.transmit();
    // What was executed before D and is durable after it may be told; the new session is not open yet.
    assert!(world.got(&peer).iter().all(|got| matches!(got.message(), Message::Result(_))));
    world.stalled = false;
    world.turn();
    let got = world.got_one(&peer);
    assert!(matches!(got.message(), Message::Opened(_)));
    let (fate, reply) = ask(&mut world, &mut next, former, nonce);
    assert_eq!((fate, effects(&reply)), (Fate::Executed, 2));
}

#[test]
fn session_that_ends_leaves_nothing_behind_in_the_store() {
    let mut world = World::new();
    let mut peer = world.open(1);
    for name in ["a", "b", "c"] {
        lost(&mut world, &mut peer, name);
    }
    let outcomes = |world: &World| world.disk.values.keys().filter(|key| matches!(key, Key::Outcome(..))).count();
    assert_eq!(outcomes(&world), 3);
    let serial = peer.serial();
    world.send(&mut peer, &[EndSession { serial, reason: EndReason::Close }.into()]);
    world.got(&peer);
    assert_eq!((outcomes(&world), world.disk.values.contains_key(&Key::Session(peer.session))), (0, false));
}
