//! After a delivery failure: what is refused, what is still taken, what is said of each request, and what the end frees when.

use super::world::{Got, Peer, ROOT, World, advisory, create, lock, ms};
use crate::Dropped;
use alloc::vec::Vec;
use cistern_link::Machine as _;
use cistern_wire::{
    Ack, AgentId, Bytes8, CacheGrant, Changed, Confirm, EndReason, EndSession, Ended, Fate, GetAttr, Hint, Keep, KeepAlive, List, LockWait,
    Lookup, Message, Nack, NackReason, ObjectId, Release, ReleaseItem, Reply, RequestResult, SessionId, Status, Want,
};

fn nack(nonce: u64, echo: u64, fate: Fate) -> Message<'static> {
    Nack { nonce, echo, reason: NackReason::TimingOut, fate }.into()
}

fn ended(nonce: u64, echo: u64, fate: Fate) -> Message<'static> {
    Nack { nonce, echo, reason: NackReason::Ended, fate }.into()
}

fn evict(world: &mut World, peer: &Peer) {
    assert_eq!(world.server.evict(world.now, peer.agent), [peer.session]);
}

fn renewing(got: &[Got]) -> usize {
    got.iter().filter(|got| got.message().kind().renews()).count()
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A request that arrives in a session that is timing out MUST be answered NACK.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A NACK MUST say whether its request was executed, was not and never will be, or that this is not known.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A request of which the server has said "not executed" MUST NOT be executed afterwards.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The server MUST check the standing before it answers a duplicate from what it kept.
#[test]
fn every_valid_request_is_refused_and_told_its_fate() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let done = create(peer.ask(), "done", Want::Exclusive);
    world.send(&mut peer, &[done.into()]);
    let first = world.got_one(&peer);
    let Reply::Changed(changed) = first.reply() else { panic!("{first:?}") };
    evict(&mut world, &peer);
    world.turn();
    world.expect(&peer, &[]);

    let effects: Vec<_> = changed.effects.iter().map(|effect| cistern_wire::Effect { grant: CacheGrant::NONE, ..effect }).collect();
    let stripped = Reply::Changed(Changed { effects: List::of(&effects) });
    for _ in 0..2 {
        let echo = world.send(&mut peer, &[done.into()]);
        let result = RequestResult { nonce: 1, reply: stripped };
        world.expect(&peer, &[nack(1, echo, Fate::Executed), result.into()]);
        let echo = world.send(&mut peer, &[create(cistern_wire::Ask { nonce: 2, back: 1, limit: 548 }, "never", Want::Nothing).into()]);
        world.expect(&peer, &[nack(2, echo, Fate::NotExecuted)]);
    }
    let serial = peer.serial();
    let echo = world.send(&mut peer, &[KeepAlive { serial, clock_us: 0 }.into()]);
    world.expect(&peer, &[nack(0, echo, Fate::Unknown)]);
    assert_eq!(world.server.stats().requests, 1);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A release in a session that is timing out MUST free the lock that it names.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A session that is timing out MUST NOT hold up the grant of a lock that it does not hold.
#[test]
fn release_while_timing_out_frees_that_lock_only() {
    let mut world = World::new();
    let (mut peer, mut other) = (world.open(1), world.open(2));
    let (a, b) = (world.create(&mut peer, "a").object, world.create(&mut peer, "b").object);
    let generation = world.lock(&mut peer, a);
    world.lock(&mut peer, b);
    evict(&mut world, &peer);
    let serial = peer.serial();
    let items = [ReleaseItem { lock: advisory(a), generation, keep: Keep::Nothing }];
    let echo = world.send(&mut peer, &[Release { serial, items: List::of(&items) }.into()]);
    world.expect(&peer, &[nack(0, echo, Fate::Unknown)]);
    world.lock(&mut other, a);
    let ask = other.ask();
    world.send(&mut other, &[lock(ask, b, LockWait::Queue).into()]);
    let got = world.got_one(&other);
    let Message::Queued(queued) = got.message() else { panic!("{got:?}") };
    world.attend(&other);
    assert_eq!(queued.holder.standing, cistern_wire::Standing::Evicted);
    assert!((2_000..=2_021).contains(&queued.holder.bound_ms), "the bound on the wait is told: {}", queued.holder.bound_ms);
    world.pass(ms(2_021));
    assert!(matches!(world.got_one(&other).message(), Message::Grant(_)));
    world.expect(&peer, &[]);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Eviction by an operator MUST be D, without rescue, and MUST NOT free anything before T.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# After T the server MUST make the end of the session durable before anything that it frees is granted, executed or shown.
#[test]
fn eviction_frees_nothing_before_the_timer_and_the_durable_end() {
    let mut world = World::new();
    let (mut peer, mut other) = (world.open(1), world.open(2));
    let file = world.create(&mut peer, "job").object;
    world.lock(&mut peer, file);
    evict(&mut world, &peer);
    let ask = other.ask();
    world.send(&mut other, &[lock(ask, file, LockWait::Queue).into()]);
    world.got(&other);
    world.attend(&other);
    world.stalled = true;
    world.pass(ms(60_000));
    world.expect(&other, &[]);
    assert_eq!(world.server.lease_timers(), 0, "T is over, and the end is not durable");
    let ask = peer.ask();
    let echo = world.send(&mut peer, &[GetAttr { ask, object: ROOT, want: Want::Nothing }.into()]);
    world.expect(&peer, &[nack(ask.nonce, echo, Fate::NotExecuted)]);
    world.stalled = false;
    world.turn();
    world.pass(ms(0));
    assert!(matches!(world.got_one(&other).message(), Message::Grant(_)));
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The outcome of a request executed before D MUST be sent after D as RESULT, if at all.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The server MUST NOT say "executed" before the effects of the request are durable.
#[test]
fn outcome_that_becomes_durable_after_the_failure_is_a_result() {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.stalled = true;
    let request = create(peer.ask(), "late", Want::Exclusive);
    world.send(&mut peer, &[request.into()]);
    evict(&mut world, &peer);
    let echo = world.send(&mut peer, &[request.into()]);
    world.expect(&peer, &[nack(1, echo, Fate::Unknown)]);
    world.stalled = false;
    world.turn();
    let got = world.got_one(&peer);
    let Message::Result(result) = got.message() else { panic!("{got:?}") };
    let Reply::Changed(changed) = result.reply else { panic!("{got:?}") };
    assert!(changed.effects.iter().all(|effect| effect.grant == CacheGrant::NONE));
    let echo = world.send(&mut peer, &[request.into()]);
    world.expect(&peer, &[nack(1, echo, Fate::Executed), result.into()]);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# From D on the server MUST NOT produce or release a message that renews the session's lease.
#[test]
fn ack_that_the_driver_has_not_taken_does_not_leave_after_the_failure() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let ask = peer.ask();
    world.post(&mut peer, &[GetAttr { ask, object: ROOT, want: Want::Nothing }.into(), KeepAlive { serial: 1, clock_us: 0 }.into()]);
    evict(&mut world, &peer);
    world.turn();
    world.expect(&peer, &[]);
}

#[test]
fn opened_that_the_driver_has_not_taken_does_not_leave_after_the_failure() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    world.offer(&mut peer);
    world.post(&mut peer, &[Confirm { serial: 1, former: List::of(&[]) }.into()]);
    world.serve_store();
    assert!(!world.server.evict(world.now, peer.agent).is_empty());
    world.turn();
    world.expect(&peer, &[]);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# At D the server MUST park the session's unexecuted requests and waiting lock requests: none is executed, none is granted.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The server MUST check the standing at the instant at which it executes a request.
#[test]
fn parked_request_is_dropped_by_the_first_nack_and_never_executes() {
    let mut world = World::new();
    let (mut holder, mut peer) = (world.open(1), world.open(2));
    let dir = world.cache(&mut holder, ROOT);
    let request = create(peer.ask(), "parked", Want::Nothing);
    world.send(&mut peer, &[request.into()]);
    assert!(matches!(world.got_one(&peer).message(), Message::Pending(_)));
    assert!(matches!(world.got_one(&holder).message(), Message::Demand(_)));
    evict(&mut world, &peer);
    let echo = world.send(&mut peer, &[request.into()]);
    world.expect(&peer, &[nack(1, echo, Fate::NotExecuted)]);
    let serial = holder.serial();
    let items = [ReleaseItem { lock: super::world::cache_lock(ROOT), generation: dir, keep: Keep::Nothing }];
    world.send(&mut holder, &[Release { serial, items: List::of(&items) }.into()]);
    assert!(matches!(world.got_one(&holder).message(), Message::Released(_)));
    world.pass(ms(3_000));
    world.expect(&peer, &[]);
    world.create(&mut holder, "parked");
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# What was parked MUST be dropped when the session ends.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# At D the server MUST park the session's unexecuted requests and waiting lock requests: none is executed, none is granted.
#[test]
fn parked_request_is_dropped_at_the_end_of_its_session() {
    let mut world = World::new();
    let (mut holder, mut peer) = (world.open(1), world.open(2));
    let dir = world.cache(&mut holder, ROOT);
    let request = create(peer.ask(), "parked", Want::Nothing);
    world.send(&mut peer, &[request.into()]);
    world.got(&peer);
    world.got(&holder);
    evict(&mut world, &peer);
    let serial = holder.serial();
    let items = [ReleaseItem { lock: super::world::cache_lock(ROOT), generation: dir, keep: Keep::Nothing }];
    world.send(&mut holder, &[Release { serial, items: List::of(&items) }.into()]);
    world.got(&holder);
    assert_eq!(world.server.status(world.now).parked, 1, "parked at D, and not executed (section 11.3)");
    world.pass(ms(2_021));
    assert_eq!(world.server.status(world.now).parked, 0);
    world.create(&mut holder, "parked");
    let echo = world.send(&mut peer, &[request.into()]);
    world.expect(&peer, &[ended(1, echo, Fate::NotExecuted)]);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# After T the server MUST make the end of the session durable before anything that it frees is granted, executed or shown.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A session MUST end whole: by T, by END_SESSION, or by its agent's next session (section 11.6).
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The server MUST end a surrendered session durably before it frees the session's locks.
#[test]
fn closed_session_frees_its_locks_when_the_end_is_durable_and_says_so() {
    for reason in [EndReason::Close, EndReason::Surrender] {
        let mut world = World::new();
        let (mut peer, mut other) = (world.open(1), world.open(2));
        let file = world.create(&mut peer, "job").object;
        world.lock(&mut peer, file);
        world.stalled = true;
        let serial = peer.serial();
        let end = EndSession { serial, reason };
        world.send(&mut peer, &[end.into()]);
        let echo = world.send(&mut peer, &[end.into()]);
        world.expect(&peer, &[]);
        world.stalled = false;
        world.turn();
        world.expect(&peer, &[Ended { serial, echo }.into()]);
        world.pass(ms(0));
        world.lock(&mut other, file);
        let echo = world.send(&mut peer, &[end.into()]);
        world.expect(&peer, &[Ended { serial, echo }.into()]);
        assert_eq!((world.server.lease_timers(), world.server.stats().steals), (0, 0));
    }
}

/// What is said of it is ENDED, or a NACK before the end is durable.
#[test]
fn request_beside_the_end_of_its_session_is_not_executed() {
    for (stalled, first) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world = World::new();
        let (mut peer, mut other) = (world.open(1), world.open(2));
        world.stalled = stalled;
        let ask = peer.ask();
        let request: Message<'_> = create(ask, "never", Want::Nothing).into();
        let serial = peer.serial();
        let end: Message<'_> = EndSession { serial, reason: EndReason::Close }.into();
        let echo = world.send(&mut peer, &if first { [request, end] } else { [end, request] });
        let is_ended = Ended { serial, echo }.into();
        if stalled {
            world.expect(&peer, &[nack(ask.nonce, echo, Fate::NotExecuted)]);
            world.stalled = false;
            world.turn();
        }
        world.expect(&peer, &[is_ended]);
        world.pass(ms(0));
        let ask = other.ask();
        world.send(&mut other, &[Lookup { ask, start: ROOT, want: Want::Nothing, names: List::of(&[Bytes8(b"never")]) }.into()]);
        let got = world.got_one(&other);
        let Reply::Walked(walked) = got.reply() else { panic!("{got:?}") };
        assert_eq!((walked.status, walked.steps.iter().count()), (Status::ENOENT, 1), "{got:?}");
        assert_eq!(world.server.stats().requests, 1);
    }
}

#[test]
fn ended_session_is_remembered_at_its_address_and_hinted_elsewhere() {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.create(&mut peer, "done");
    evict(&mut world, &peer);
    world.pass(ms(2_021));
    let ask = peer.ask();
    let echo = world.send(&mut peer, &[GetAttr { ask, object: ROOT, want: Want::Nothing }.into()]);
    world.expect(&peer, &[ended(2, echo, Fate::NotExecuted)]);
    let serial = peer.serial();
    let echo = world.send(&mut peer, &[EndSession { serial, reason: EndReason::Close }.into()]);
    world.expect(&peer, &[ended(0, echo, Fate::Unknown)]);
    let elsewhere = Peer::new(77).path;
    let mut moved = Peer { path: elsewhere, ..peer };
    let echo = world.send(&mut moved, &[KeepAlive { serial: 1, clock_us: 0 }.into()]);
    world.expect(&moved, &[Hint { echo, detail: Bytes8(b"") }.into()]);
}

//= wire-spec.md#3-2-packet-numbers
//= type=test
//# A HINT MUST be alone in its datagram, whose packet number MUST neither be judged by the replay window nor move it.
//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# What is sent without a session MUST be limited in rate.
#[test]
fn unknown_sessions_are_hinted_in_fewer_bytes_and_at_a_rate_that_no_host_uses_up() {
    let mut world = World::new();
    let [mut flood, mut other] = [1, 2].map(|n| Peer { session: SessionId(99), ..Peer::new(n) });
    let message: Message<'_> = KeepAlive { serial: 1, clock_us: 0 }.into();
    let echo = world.send(&mut flood, &[message]);
    world.expect(&flood, &[Hint { echo, detail: Bytes8(b"") }.into()]);
    for _ in 0..100 {
        world.send(&mut flood, &[message]);
    }
    let hinted = world.got(&flood).len();
    assert!((1..16).contains(&hinted), "{hinted}");
    let echo = world.send(&mut other, &[message]);
    world.expect(&other, &[Hint { echo, detail: Bytes8(b"") }.into()]);
    world.send(&mut other, &[cistern_wire::Receipt { seq: 1, answer: cistern_wire::ReceiptAnswer::Received }.into()]);
    world.expect(&other, &[]);
    let stats = world.server.stats();
    assert_eq!((stats.dropped(Dropped::RateLimited), stats.dropped(Dropped::Amplification)), (100 - hinted as u64, 1));
}

#[test]
fn tables_are_clean_after_everything_ended() {
    let mut world = World::new();
    for n in 1..30 {
        let mut peer = world.open(n);
        let file = world.create(&mut peer, &alloc::format!("f{n}")).object;
        world.lock(&mut peer, file);
        world.cache(&mut peer, file);
        evict(&mut world, &peer);
    }
    world.pass(ms(2_021));
    world.pass(ms(1));
    let status = world.server.status(world.now);
    assert_eq!((status.sessions, status.timing_out, status.locks, status.parked, status.held), (0, 0, 0, 0, 0));
    assert_eq!(world.server.wake_after(world.now), None);
    assert_eq!(world.server.stats().steals, 29);
}

#[test]
fn eviction_is_of_all_that_can_still_be_evicted() {
    let mut world = World::new();
    let alpha = world.open(1);
    assert_eq!(world.server.evict(world.now, AgentId([99; 16])), [], "it has no session");
    evict(&mut world, &alpha);
    evict(&mut world, &alpha);
    world.pass(ms(2_022));
    assert_eq!(world.server.evict(world.now, alpha.agent), [], "it has ended");
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# After a write or a sync of the store has failed the server MUST stop.
#[test]
fn failed_store_stops_every_answer() {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.server.store_event(world.now, crate::store::StoreEvent::Broken("no space left on the device".into()));
    world.send(&mut peer, &[KeepAlive { serial: 1, clock_us: 0 }.into()]);
    world.expect(&peer, &[]);
    assert_eq!(world.server.failure(), Some("no space left on the device"));
    assert_eq!(world.server.stats().dropped(Dropped::Failed), 1);
    assert_eq!(world.server.wake_after(world.now), None);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# From D on the server MUST NOT produce or release a message that renews the session's lease.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A NACK MUST mean that its session is timing out or has ended, and nothing else.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Of a session that is timing out the server MUST accept receipts, releases, END_SESSION and path responses, and nothing else.
#[test]
fn no_message_that_renews_leaves_between_failure_and_end() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    evict(&mut world, &peer);
    for step in 0..40 {
        let ask = peer.ask_only();
        let serial = peer.serial();
        let messages: [Message<'_>; 3] = [
            KeepAlive { serial, clock_us: step }.into(),
            GetAttr { ask, object: file, want: Want::Shared }.into(),
            cistern_wire::Cancel { serial, nonce: 3 }.into(),
        ];
        world.send(&mut peer, &messages);
        let got = world.got(&peer);
        assert!(!got.is_empty() && renewing(&got) == 0, "{got:?}");
        world.pass(ms(50));
    }
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Every refusal in a session in good standing MUST be an ACK with a status.
//= wire-spec.md#7-the-table-of-answers
//= type=test
//# An answer that retires a nonce MUST be kept for duplicates of its request.
#[test]
fn failure_of_an_operation_is_kept_for_its_duplicates_too() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let ask = peer.ask();
    let request = GetAttr { ask, object: ObjectId(4_711), want: Want::Nothing };
    for _ in 0..2 {
        let echo = world.send(&mut peer, &[request.into()]);
        let reply = Reply::Failed(cistern_wire::Failed { status: Status::ESTALE, retry_ms: 0 });
        world.expect(&peer, &[Ack { nonce: ask.nonce, echo, reply }.into()]);
    }
}
