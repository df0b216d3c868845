//! Reclaiming after a restart: who gets what back, what handshakes say, and what conflicts entail.

use super::restart::{RUN, cached, held};
use super::world::{Peer, ROOT, World, advisory, create, lock, opened};
use crate::principals::PrincipalId;
use crate::store::{Key, SessionRecord};
use crate::{Config, Dropped};
use alloc::vec::Vec;
use cistern_wire::{
    Ask, Claim, Fate, Generation, GetAttr, Held, List, LockWait, Message, Mode, Nack, NackReason, ObjectId, Pending, Realm, Reclaim,
    ReclaimComplete, ReclaimItem, RefuseReason, Reply, SessionFate, SessionId, Status, Terms, Unlink, Want,
};

/// A world in grace, in which agent 1 held the advisory lock of a file and is back; and its former session.
fn back() -> (World, Peer, SessionId, ObjectId, Generation) {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    let generation = world.lock(&mut peer, file);
    world.crash();
    let from = world.come_back(&mut peer);
    (world, peer, from, file, generation)
}

fn status(world: &mut World, peer: &mut Peer, from: SessionId, item: ReclaimItem) -> Status {
    world.reclaim(peer, from, &[item])[0].status
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A reclaim MUST name object, mode, generation and version cached, and be answered with the current version.
#[test]
fn reclaimed_lock_is_the_same_grant_and_comes_with_the_current_version() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    let (generation, cache) = (world.lock(&mut peer, file), world.cache(&mut peer, ROOT));
    world.crash();
    let from = world.come_back(&mut peer);
    // Told again, the same: an answer may be lost with a session that goes on.
    for _ in 0..2 {
        let items = world.reclaim(&mut peer, from, &[held(file, generation), cached(ROOT, Mode::Shared, cache)]);
        let told: Vec<_> = items.iter().map(|item| (item.generation, item.status, item.version)).collect();
        assert_eq!(told, [(generation, Status::OK, 1), (cache, Status::OK, 2)], "the root directory was changed once");
    }
    world.complete(&mut peer, from);
    assert_eq!(world.server.status(world.now).locks, 2);
    // Every token of its run is good.
    let suspended = [Held { object: ROOT, generation: cache }];
    for token in [generation, Generation(generation.0 + u64::from(RUN) - 1)] {
        let terms = Terms { guard_object: file, guard_generation: token, held: List::of(&suspended), ..Terms::NONE };
        let name = alloc::format!("guarded {token}");
        let guarded = cistern_wire::Create { terms, ..create(peer.ask_only(), &name, Want::Nothing) };
        world.send(&mut peer, &[guarded.into()]);
        assert!(matches!(world.got_one(&peer).reply(), Reply::Changed(_)));
    }
    let terms = Terms { guard_object: file, guard_generation: Generation(generation.0 + u64::from(RUN)), ..Terms::NONE };
    let stale = cistern_wire::Create { terms, ..create(peer.ask_only(), "stale", Want::Nothing) };
    assert_eq!(world.failed(&mut peer, stale.into()).0, Status::STALE_GUARD);
    // What is granted from now on is larger.
    assert!(world.lock(&mut peer, ROOT).0 >= generation.0 + u64::from(RUN));
}

//= wire-spec.md#11-4-locks
//= type=test
//# A mutation whose guard is not a token of the session's present hold MUST fail with STALE_GUARD.
#[test]
fn token_of_an_earlier_run_is_a_guard_also_after_the_lock_was_reclaimed() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    let first = world.lock(&mut peer, file);
    let second = world.lock(&mut peer, file);
    assert!(second.0 > first.0 + u64::from(RUN) - 1, "another run");
    let guarded = |world: &mut World, peer: &mut Peer, name: &str, token: Generation| {
        let terms = Terms { guard_object: file, guard_generation: token, ..Terms::NONE };
        let made = cistern_wire::Create { terms, ..create(peer.ask_only(), name, Want::Nothing) };
        world.send(peer, &[made.into()]);
        matches!(world.got_one(peer).reply(), Reply::Changed(_))
    };
    assert!(guarded(&mut world, &mut peer, "before", first));
    world.crash();
    let from = world.come_back(&mut peer);
    let item = ReclaimItem { first, ..held(file, second) };
    assert_eq!(status(&mut world, &mut peer, from, item), Status::OK);
    world.complete(&mut peer, from);
    assert!(guarded(&mut world, &mut peer, "first run", first));
    assert!(guarded(&mut world, &mut peer, "second run", second));
    assert!(!guarded(&mut world, &mut peer, "too old", Generation(first.0 - 1)));
}

#[test]
fn lock_of_an_object_that_is_gone_is_stale() {
    let (mut world, mut peer, from, file, generation) = back();
    let gone = ObjectId(file.0 + 1);
    let items = world.reclaim(&mut peer, from, &[held(gone, Generation(generation.0 + 1)), held(file, generation)]);
    assert_eq!((items[0].status, items[0].version, items[1].status), (Status::ESTALE, 0, Status::OK));
}

#[test]
fn nobody_else_and_nothing_else_can_be_reclaimed() {
    let (mut world, mut peer, from, file, generation) = back();
    let item = held(file, generation);
    let mut thief = world.open(2);
    assert_eq!(status(&mut world, &mut thief, from, item), Status::NOT_HELD, "another agent's session");
    let unknown = SessionId(4_711);
    assert_eq!(status(&mut world, &mut peer, unknown, item), Status::NOT_HELD, "no session");
    let now = peer.session;
    assert_eq!(status(&mut world, &mut peer, now, item), Status::NOT_HELD, "the present session");
    // Saying so of a session that is not one's own changes nothing.
    assert_eq!(world.completes(&mut thief, from), Err(Status::NOT_HELD));
    assert_eq!(status(&mut world, &mut peer, from, item), Status::OK);
    world.complete(&mut peer, from);
    assert_eq!(status(&mut world, &mut peer, from, held(ROOT, Generation(generation.0 + u64::from(RUN)))), Status::NOT_HELD, "complete");
    assert_eq!(world.completes(&mut peer, from), Err(Status::NOT_HELD), "by another request");
}

#[test]
fn numbers_that_cannot_have_been_granted_are_refused() {
    let (mut world, mut peer, from, file, generation) = back();
    let epoch = 1 << 56;
    let reserved = world.disk.counter(crate::store::Counter::Tokens);
    assert!(reserved > generation.0);
    // The block that this start has reserved is not among those of before.
    let bad = [
        held(file, Generation(0)),
        held(file, Generation(epoch)),
        held(file, Generation(generation.0 - epoch)),
        held(file, Generation(generation.0 + epoch)),
        held(file, Generation(reserved)),
        // Further than two blocks of 4,096 grants above the last that was granted.
        held(file, Generation(generation.0 + (1 << 23))),
        ReclaimItem { first: Generation(generation.0 + 1), ..held(file, generation) },
        ReclaimItem { first: Generation(0), ..held(file, generation) },
        ReclaimItem { run: 0, ..held(file, generation) },
        ReclaimItem { run: u32::MAX, ..held(file, generation) },
    ];
    for item in bad {
        assert_eq!(status(&mut world, &mut peer, from, item), Status::EINVAL, "{item:?}");
    }
    let many = [held(file, generation); 13];
    let ask = peer.ask_only();
    let reclaim = Reclaim { ask, from, items: List::of(&many) };
    assert_eq!(world.failed(&mut peer, reclaim.into()).0, Status::EINVAL);
    assert_eq!(world.server.status(world.now).locks, 0);
    assert_eq!(status(&mut world, &mut peer, from, held(file, generation)), Status::OK);
}

#[test]
fn lock_is_reclaimed_once_and_not_again_after_it_was_changed() {
    let (mut world, mut peer, from, file, generation) = back();
    assert_eq!(status(&mut world, &mut peer, from, held(file, generation)), Status::OK);
    let other = held(file, Generation(generation.0 + 1));
    assert_eq!(status(&mut world, &mut peer, from, other), Status::NOT_HELD);
    let shared = ReclaimItem { mode: Mode::Shared, ..held(file, generation) };
    assert_eq!(status(&mut world, &mut peer, from, shared), Status::NOT_HELD);
}

/// Two agents that each held a lock, and both claim that of the first.
fn rivals() -> (World, [Peer; 2], [SessionId; 2], ObjectId, Generation) {
    let mut world = World::new();
    let (mut a, mut b) = (world.open(1), world.open(2));
    let file = world.create(&mut a, "job").object;
    let generation = world.lock(&mut a, file);
    world.crash();
    let from = [world.come_back(&mut a), world.come_back(&mut b)];
    (world, [a, b], from, file, generation)
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# Reclaims of an advisory lock that conflict MUST all be refused and reported, and their sessions end by D.
#[test]
fn conflicting_reclaims_cost_both_their_sessions() {
    let (mut world, [mut a, mut b], from, file, generation) = rivals();
    assert_eq!(status(&mut world, &mut a, from[0], held(file, generation)), Status::OK);
    let ask = b.ask_only();
    let items = [held(file, generation)];
    let rival = Reclaim { ask, from: from[1], items: List::of(&items) };
    world.send(&mut b, &[rival.into()]);
    world.expect(&b, &[]);
    assert_eq!(world.server.stats().reclaim_conflicts, 1);
    for (peer, from) in [(&mut a, from[0]), (&mut b, from[1])] {
        let ask = peer.ask_only();
        world.send(peer, &[ReclaimComplete { ask, from }.into()]);
        let got = world.got_one(peer);
        assert!(matches!(got.message(), Message::Nack(Nack { reason: NackReason::TimingOut, fate: Fate::NotExecuted, .. })), "{got:?}");
    }
    // Nor can they try again, in this start or the next.
    for _ in 0..2 {
        for (peer, from) in [(&mut a, from[0]), (&mut b, from[1])] {
            let now = peer.session;
            let told = world.open_again(peer, &[(from, Claim::Reclaiming), (now, Claim::Lost)]);
            assert_eq!(told[0].fate, SessionFate::TimingOut);
            assert_eq!(status(&mut world, peer, from, held(file, generation)), Status::NOT_HELD);
        }
        world.crash();
    }
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A reclaim of a cache lock that conflicts with one before it MUST be refused and reported, and end no session.
#[test]
fn who_may_read_ends_nobodys_session_by_claims_of_cache_locks() {
    for first in [false, true] {
        let mut world = World::with(Config::default());
        world.pass(Config::default().wait());
        let mut victim = world.open(1);
        let file = world.create(&mut victim, "job").object;
        let reader = world.principal("reader", &[(Realm::TREE, "r")]);
        let mut liar = world.open_as(2, reader);
        let ask = victim.ask_only();
        world.send(&mut victim, &[GetAttr { ask, object: file, want: Want::Exclusive }.into()]);
        let got = world.got_one(&victim);
        let Reply::Stated(stated) = got.reply() else { panic!("{got:?}") };
        let generation = stated.grant.generation;
        let lock = world.lock(&mut victim, file);
        world.crash();
        world.as_principal(reader);
        let from_liar = world.come_back(&mut liar);
        world.as_principal(PrincipalId::ANYBODY);
        let from = world.come_back(&mut victim);
        let items = [cached(file, Mode::Exclusive, generation), held(file, lock)];
        let claim = cached(file, Mode::Shared, generation);
        let told = |items: Vec<cistern_wire::ReclaimedItem>| items.iter().map(|item| item.status).collect::<Vec<_>>();
        if first {
            assert_eq!(status(&mut world, &mut liar, from_liar, claim), Status::OK);
            assert_eq!(told(world.reclaim(&mut victim, from, &items)), [Status::NOT_HELD, Status::OK]);
        } else {
            assert_eq!(told(world.reclaim(&mut victim, from, &items)), [Status::OK, Status::OK]);
            assert_eq!(status(&mut world, &mut liar, from_liar, claim), Status::NOT_HELD);
        }
        // What it has no right to is refused before anybody else's is looked at.
        for item in [held(file, lock), cached(file, Mode::Exclusive, generation)] {
            assert_eq!(status(&mut world, &mut liar, from_liar, item), Status::EACCES);
        }
        assert_eq!(world.server.stats().reclaim_conflicts, 1);
        world.complete(&mut victim, from);
        world.complete(&mut liar, from_liar);
        assert_eq!(world.server.status(world.now).timing_out, 0);
    }
}

#[test]
fn shared_locks_do_not_conflict() {
    let (mut world, [mut a, mut b], from, file, generation) = rivals();
    let shared = |generation| cached(file, Mode::Shared, generation);
    assert_eq!(status(&mut world, &mut a, from[0], shared(generation)), Status::OK);
    assert_eq!(status(&mut world, &mut b, from[1], shared(Generation(generation.0 + 1))), Status::OK);
    assert_eq!(world.server.stats().reclaim_conflicts, 0);
}

#[test]
fn what_an_agent_reclaimed_in_a_session_that_failed_is_no_conflict_with_itself() {
    let (mut world, mut peer, from, file, generation) = back();
    assert_eq!(status(&mut world, &mut peer, from, held(file, generation)), Status::OK);
    let failed = peer.session;
    let told = world.open_again(&mut peer, &[(failed, Claim::Lost), (from, Claim::Reclaiming)]);
    assert_eq!((told[0].fate, told[1].fate), (SessionFate::TimingOut, SessionFate::Reclaimable));
    assert_eq!(status(&mut world, &mut peer, from, held(file, generation)), Status::NOT_HELD);
    assert_eq!(world.server.stats().reclaim_conflicts, 0);
}

#[test]
fn completion_is_answered_when_it_is_durable() {
    let (mut world, mut peer, from, ..) = back();
    world.stalled = true;
    let ask = peer.ask_only();
    let complete = ReclaimComplete { ask, from };
    world.send(&mut peer, &[complete.into()]);
    world.expect(&peer, &[]);
    let echo = world.send(&mut peer, &[complete.into()]);
    world.expect(&peer, &[Pending { nonce: ask.nonce, echo }.into()]);
    world.stalled = false;
    world.turn();
    assert_eq!(world.got_one(&peer).reply(), Reply::Done(cistern_wire::Done {}));
    assert!(!world.disk.values.contains_key(&Key::Session(from)) && world.disk.values.contains_key(&Key::Session(peer.session)));
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# The server MUST keep the highest incarnation of each agent durably, and refuse a HELLO with a lower one.
#[test]
fn lower_incarnation_is_refused_after_a_restart_too() {
    let mut world = World::new();
    let mut peer = Peer { incarnation: 5, ..Peer::new(1) };
    world.open_again(&mut peer, &[]);
    world.crash();
    let mut older = Peer { incarnation: 4, ..Peer::new(1) };
    let cookie = world.cookie(&mut older);
    world.hello(&mut older, &cookie);
    let got = world.got_one(&older);
    assert!(matches!(got.message(), Message::Refuse(refuse) if refuse.reason == RefuseReason::Superseded), "{got:?}");
    world.come_back(&mut peer);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A CONFIRM of a higher incarnation MUST start D for the former session, without rescue.
#[test]
fn higher_incarnation_dooms_the_recorded_session_durably() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let former = peer.session;
    world.crash();
    peer.incarnation = 2;
    world.open_again(&mut peer, &[]);
    let unreclaimable = |world: &World, id| SessionRecord::from_bytes(&world.disk.values[&Key::Session(id)]).unwrap().unreclaimable;
    assert!(unreclaimable(&world, former) && !unreclaimable(&world, peer.session));
    world.crash();
    let now = peer.session;
    let told = world.open_again(&mut peer, &[(former, Claim::Reclaiming), (now, Claim::Reclaiming)]);
    assert_eq!((told[0].fate, told[1].fate), (SessionFate::TimingOut, SessionFate::Reclaimable));
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# OPENED MUST tell the fate of each session that CONFIRM named, in the same order.
#[test]
fn handshake_tells_what_can_be_reclaimed_each_time_alike() {
    let mut world = World::with(Config { surrender: false, ..Config::default() });
    let mut peer = world.open(1);
    let former = peer.session;
    world.crash();
    let unknown = SessionId(4_711);
    world.offer(&mut peer);
    for _ in 0..2 {
        world.confirm(&mut peer, &[unknown, former].map(|session| (session, Claim::Reclaiming)));
        let got = world.got_one(&peer);
        let told: Vec<_> = opened(&got).former.iter().map(|told| told.fate).collect();
        assert_eq!(told, [SessionFate::Ended, SessionFate::Reclaimable]);
    }
    // A session that is not claimed times out with the grace; until then it can still be claimed.
    for claim in [Claim::Lost, Claim::Surrendered] {
        let told = world.open_again(&mut peer, &[(former, claim)]);
        assert_eq!(told[0].fate, SessionFate::TimingOut, "surrender is switched off");
    }
    let told = world.open_again(&mut peer, &[(former, Claim::Reclaiming)]);
    assert_eq!(told[0].fate, SessionFate::Reclaimable);
    world.pass(Config::default().wait() * 2);
    let told = world.open_again(&mut peer, &[(former, Claim::Reclaiming)]);
    assert_eq!(told[0].fate, SessionFate::Ended);
}

#[test]
fn datagram_of_a_former_session_is_hinted_in_grace_too() {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.crash();
    let get = GetAttr { ask: peer.ask(), object: ROOT, want: Want::Nothing };
    let echo = world.send(&mut peer, &[get.into()]);
    world.expect(&peer, &[cistern_wire::Hint { echo, detail: cistern_wire::Bytes8(b"") }.into()]);
    assert_eq!(world.server.stats().dropped(Dropped::UnknownSession), 1);
}

#[test]
fn reclaimed_lock_is_demanded_for_others_when_grace_is_over() {
    let (mut world, mut peer, from, file, generation) = back();
    assert_eq!(status(&mut world, &mut peer, from, held(file, generation)), Status::OK);
    world.complete(&mut peer, from);
    let mut other = world.open(2);
    let ask = other.ask_only();
    world.send(&mut other, &[lock(ask, file, LockWait::Queue).into()]);
    assert!(matches!(world.got_one(&other).message(), Message::Queued(_)));
    let got = world.got_one(&peer);
    let Message::Demand(demand) = got.message() else { panic!("{got:?}") };
    assert_eq!((demand.lock, demand.generation), (advisory(file), generation));
    // It is protected as before.
    let unlink = Unlink {
        ask: Ask { nonce: 9, back: 0, limit: 548 },
        dir: ROOT,
        name: cistern_wire::Bytes8(b"job"),
        force: false,
        terms: Terms::NONE,
    };
    assert_eq!(world.failed(&mut other, unlink.into()).0, Status::EBUSY);
}
