//! Rescue: which late receipt takes a failed session back, what goes on then, and what closes the way back for good.

use super::world::{Peer, ROOT, World, advisory, cache_lock, create, lock, ms};
use crate::Config;
use alloc::vec::Vec;
use cistern_wire::{
    EndReason, EndSession, Fate, Generation, GetAttr, Keep, KeepAlive, Kind, List, LockWait, Message, Nack, NackReason, ObjectId, Receipt,
    ReceiptAnswer, Release, ReleaseItem, SetAttr, SetMask, Terms, Unlink, Want,
};

fn kinds(world: &mut World, peer: &Peer) -> Vec<Kind> {
    world.got(peer).iter().map(|got| got.message().kind()).collect()
}

fn receipt(seq: u64) -> Message<'static> {
    Receipt { seq, answer: ReceiptAnswer::InUse }.into()
}

fn keep_alive(peer: &mut Peer) -> Message<'static> {
    KeepAlive { serial: peer.serial(), clock_us: 0 }.into()
}

fn queue(world: &mut World, peer: &mut Peer, object: ObjectId) -> u64 {
    let ask = peer.ask();
    world.send(peer, &[lock(ask, object, LockWait::Queue).into()]);
    assert_eq!(kinds(world, peer), [Kind::Queued]);
    world.attend(peer);
    ask.nonce
}

fn release(peer: &mut Peer, items: &'static [ReleaseItem]) -> Message<'static> {
    Release { serial: peer.serial(), items: List::of(items) }.into()
}

fn items(list: &[ReleaseItem]) -> &'static [ReleaseItem] {
    Vec::from(list).leak()
}

/// Lets time pass until somebody has failed.
fn until_failed(world: &mut World) {
    for _ in 0..20_000 {
        if world.server.lease_timers() == 1 {
            return;
        }
        world.pass(ms(1));
    }
    panic!("nobody fails");
}

/// The first agent's session has failed: it did not receipt in time the demand, number 1, for an advisory lock that the second waits for.
fn failed(world: &mut World) -> (Peer, Peer, ObjectId, Generation) {
    let (mut holder, mut waiter) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    let generation = world.lock(&mut holder, file);
    queue(world, &mut waiter, file);
    until_failed(world);
    assert!(kinds(world, &holder).len() >= 3);
    (holder, waiter, file, generation)
}

fn is_alive(world: &mut World, peer: &mut Peer) {
    let message = keep_alive(peer);
    world.send(peer, &[message]);
    assert_eq!(kinds(world, peer), [Kind::Alive]);
}

fn is_refused(world: &mut World, peer: &mut Peer) {
    let message = keep_alive(peer);
    let echo = world.send(peer, &[message]);
    world.expect(peer, &[Nack { nonce: 0, echo, reason: NackReason::TimingOut, fate: Fate::Unknown }.into()]);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Rescue: the server MUST take a session back only if no NACK was produced since D, every failed notice is receipted, the cause allows it,
//# and no end record was handed to the store.
#[test]
fn late_receipt_takes_the_session_back_and_the_next_failure_waits_the_whole_of_t() {
    let mut world = World::new();
    let (mut holder, waiter, _, _) = failed(&mut world);
    world.pass(ms(2_000));
    world.send(&mut holder, &[receipt(1)]);
    world.expect(&holder, &[]);
    assert_eq!((world.server.lease_timers(), world.server.stats().rescues), (0, 1));
    is_alive(&mut world, &mut holder);
    // It is probed again, and fails again.
    until_failed(&mut world);
    assert!(kinds(&mut world, &holder).iter().all(|kind| *kind == Kind::Probe));
    for _ in 0..2_020 {
        world.pass(ms(1));
        assert_eq!(world.server.lease_timers(), 1, "a full new T");
        world.expect(&waiter, &[]);
    }
    world.pass(ms(1));
    assert_eq!(kinds(&mut world, &waiter), [Kind::Grant]);
    assert_eq!((world.server.stats().failures, world.server.stats().steals), (2, 1));
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Rescue: the server MUST take a session back only if no NACK was produced since D, every failed notice is receipted, the cause allows it,
//# and no end record was handed to the store.
#[test]
fn after_a_nack_no_receipt_takes_the_session_back() {
    for request in [false, true] {
        let mut world = World::new();
        let (mut holder, waiter, file, _) = failed(&mut world);
        if request {
            let ask = holder.ask();
            world.send(&mut holder, &[GetAttr { ask, object: file, want: Want::Nothing }.into()]);
            assert_eq!(kinds(&mut world, &holder), [Kind::Nack]);
        } else {
            is_refused(&mut world, &mut holder);
        }
        world.send(&mut holder, &[receipt(1)]);
        is_refused(&mut world, &mut holder);
        assert_eq!((world.server.lease_timers(), world.server.stats().rescues), (1, 0));
        world.got(&waiter);
    }
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A server MUST act on receipts, releases and session ends in a datagram before the requests in it.
#[test]
fn receipt_behind_a_request_in_one_datagram_rescues_before_the_request_is_judged() {
    let mut world = World::new();
    let (mut holder, _, file, _) = failed(&mut world);
    let (ask, alive) = (holder.ask(), keep_alive(&mut holder));
    world.send(&mut holder, &[GetAttr { ask, object: file, want: Want::Nothing }.into(), alive, receipt(1)]);
    let mut answered = kinds(&mut world, &holder);
    answered.sort_unstable_by_key(|kind| kind.code());
    assert_eq!(answered, [Kind::Ack, Kind::Alive]);
}

#[test]
fn one_of_two_missing_receipts_is_not_enough() {
    let mut world = World::new();
    let (mut holder, mut waiter) = (world.open(1), world.open(2));
    let (a, b) = (world.create(&mut holder, "a").object, world.create(&mut holder, "b").object);
    world.lock(&mut holder, a);
    world.lock(&mut holder, b);
    queue(&mut world, &mut waiter, a);
    queue(&mut world, &mut waiter, b);
    until_failed(&mut world);
    world.got(&holder);
    world.send(&mut holder, &[receipt(2)]);
    assert_eq!(world.server.lease_timers(), 1);
    world.send(&mut holder, &[receipt(1)]);
    assert_eq!(world.server.lease_timers(), 0);
    is_alive(&mut world, &mut holder);
}

#[test]
fn session_evicted_or_superseded_while_it_times_out_is_not_taken_back() {
    for supersede in [false, true] {
        let mut world = World::new();
        let (mut holder, waiter, _, _) = failed(&mut world);
        if supersede {
            let mut anew = Peer { incarnation: 2, packet: 100, ..holder.clone() };
            world.open_again(&mut anew, &[]);
        } else {
            assert!(!world.server.evict(world.now, holder.agent).is_empty());
        }
        world.send(&mut holder, &[receipt(1)]);
        assert_eq!((world.server.lease_timers(), world.server.stats().rescues), (1, 0));
        is_refused(&mut world, &mut holder);
        world.got(&waiter);
    }
}

#[test]
fn receipt_that_comes_when_the_end_is_with_the_store_takes_nothing_back() {
    let mut world = World::new();
    let (mut holder, mut waiter, _, _) = failed(&mut world);
    world.stalled = true;
    world.pass(ms(2_021));
    assert_eq!(world.server.lease_timers(), 0);
    world.send(&mut holder, &[receipt(1)]);
    is_refused(&mut world, &mut holder);
    world.stalled = false;
    world.got(&waiter);
    world.turn();
    world.pass(ms(0));
    assert_eq!(kinds(&mut world, &waiter), [Kind::Grant]);
    assert_eq!(world.server.stats().rescues, 0);
    is_alive(&mut world, &mut waiter);
}

#[test]
fn receipt_read_after_the_wait_is_over_takes_nothing_back_even_before_the_timer_ran() {
    let mut world = World::new();
    let (mut holder, waiter, _, _) = failed(&mut world);
    world.tick(ms(2_021));
    world.post(&mut holder, &[receipt(1)]);
    assert_eq!(world.server.lease_timers(), 1);
    world.turn();
    assert_eq!(kinds(&mut world, &waiter), [Kind::Grant]);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A release, or a receipt "not held", for a generation of at least g MUST count as receipt of a demand for g.
#[test]
fn release_of_what_was_demanded_takes_the_session_back_and_is_answered() {
    let mut world = World::new();
    let (mut holder, waiter, file, generation) = failed(&mut world);
    let item = ReleaseItem { lock: advisory(file), generation, keep: Keep::Nothing };
    let message = release(&mut holder, items(&[item]));
    world.send(&mut holder, &[message]);
    assert_eq!(kinds(&mut world, &holder), [Kind::Released]);
    assert_eq!(kinds(&mut world, &waiter), [Kind::Grant]);
    assert_eq!(world.server.stats().rescues, 1);
    is_alive(&mut world, &mut holder);
}

#[test]
fn release_of_another_lock_before_the_late_receipt_is_not_refused() {
    let mut world = World::new();
    let (mut holder, waiter, _, _) = failed(&mut world);
    let item = ReleaseItem { lock: advisory(ROOT), generation: Generation(1), keep: Keep::Nothing };
    let message = release(&mut holder, items(&[item]));
    world.send(&mut holder, &[message, receipt(1)]);
    world.expect(&holder, &[]);
    world.send(&mut holder, &[message]);
    assert_eq!(kinds(&mut world, &holder), [Kind::Released]);
    world.expect(&waiter, &[]);
}

#[test]
fn session_that_did_not_comply_is_taken_back_when_what_it_kept_is_back() {
    let mut world = World::with(Config { volatile: true, compliance_time: ms(900), ..Config::default() });
    let (mut holder, mut writer) = (world.open(1), world.open(2));
    let file = world.create(&mut writer, "file").object;
    let other = world.create(&mut writer, "other").object;
    let generation = world.cache(&mut holder, file);
    let kept = world.lock(&mut holder, other);
    let (ask, mask) = (writer.ask_only(), SetMask { bits: SetMask::MODE });
    let chmod = SetAttr { ask, object: file, mask, mode: 0o600, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms: Terms::NONE };
    world.send(&mut writer, &[chmod.into()]);
    assert_eq!((kinds(&mut world, &writer), kinds(&mut world, &holder)), ([Kind::Pending].into(), [Kind::Demand].into()));
    world.send(&mut holder, &[Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
    until_failed(&mut world);
    // It said everything that it was asked to say; that is not what it lacks.
    world.send(&mut holder, &[Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
    assert_eq!(world.server.lease_timers(), 1);
    let item = ReleaseItem { lock: cache_lock(file), generation, keep: Keep::Nothing };
    let message = release(&mut holder, items(&[item]));
    world.send(&mut holder, &[message]);
    assert_eq!(kinds(&mut world, &holder), [Kind::Released]);
    assert_eq!(kinds(&mut world, &writer), [Kind::Ack]);
    assert_eq!((world.server.lease_timers(), world.server.stats().rescues), (0, 1));
    let again = lock(holder.ask_only(), other, LockWait::Try);
    world.send(&mut holder, &[again.into()]);
    let got = world.got_one(&holder);
    let cistern_wire::Reply::Granted(granted) = got.reply() else { panic!("{got:?}") };
    assert!(granted.generation > kept, "it still holds what nobody demanded");
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# At D the server MUST park the session's unexecuted requests and waiting lock requests: none is executed, none is granted.
#[test]
fn turns_that_came_while_the_session_was_away_are_taken_after_its_rescue() {
    let mut world = World::new();
    let (mut holder, mut peer, mut other) = (world.open(1), world.open(2), world.open(3));
    let (job, own) = (world.create(&mut holder, "job").object, world.create(&mut peer, "own").object);
    let held = world.lock(&mut holder, job);
    world.lock(&mut peer, own);
    let dir = world.cache(&mut holder, ROOT);
    // The peer waits for an advisory lock and for a cache lock of the holder, and does not hear that its own lock is demanded.
    let waits = queue(&mut world, &mut peer, job);
    let request = create(peer.ask(), "parked", Want::Nothing);
    world.send(&mut peer, &[request.into()]);
    assert_eq!(kinds(&mut world, &peer), [Kind::Pending]);
    world.send(&mut holder, &[receipt(1), Receipt { seq: 2, answer: ReceiptAnswer::Received }.into()]);
    queue(&mut world, &mut other, own);
    world.got(&holder);
    world.leave(&peer);
    world.attend(&holder);
    world.pass(ms(600));
    assert_eq!(world.server.lease_timers(), 1, "the peer has failed");
    let demands = world.got(&peer).len();
    assert!(demands >= 3);
    // All that it waited for comes back meanwhile.
    let (lock, cache) = (advisory(job), cache_lock(ROOT));
    let both =
        [ReleaseItem { lock, generation: held, keep: Keep::Nothing }, ReleaseItem { lock: cache, generation: dir, keep: Keep::Nothing }];
    let message = release(&mut holder, items(&both));
    world.send(&mut holder, &[message]);
    assert_eq!(kinds(&mut world, &holder), [Kind::Released]);
    world.expect(&peer, &[]);
    world.pass(ms(300));
    world.send(&mut peer, &[receipt(1)]);
    let got = world.got(&peer);
    let ended: Vec<u64> = got
        .iter()
        .filter_map(|got| match got.message() {
            Message::Ack(ack) => Some(ack.nonce),
            Message::Grant(grant) => Some(grant.nonce),
            _ => None,
        })
        .collect();
    assert!(ended.len() == 2 && ended.contains(&waits) && ended.contains(&request.ask.nonce), "{got:?}");
    world.got(&other);
}

#[test]
fn wait_that_ended_while_the_session_was_away_is_told_after_its_rescue() {
    let mut world = World::new();
    let (mut holder, mut peer, mut other) = (world.open(1), world.open(2), world.open(3));
    let (job, own) = (world.create(&mut holder, "job").object, world.create(&mut peer, "own").object);
    world.lock(&mut holder, job);
    world.lock(&mut peer, own);
    let waits = queue(&mut world, &mut peer, job);
    world.send(&mut holder, &[receipt(1)]);
    queue(&mut world, &mut other, own);
    world.got(&holder);
    world.pass(ms(600));
    assert_eq!(world.server.lease_timers(), 1, "the peer has failed");
    world.got(&peer);
    let unlink = Unlink { ask: holder.ask(), dir: ROOT, name: cistern_wire::Bytes8(b"job"), force: true, terms: Terms::NONE };
    world.send(&mut holder, &[unlink.into()]);
    assert_eq!(kinds(&mut world, &holder), [Kind::Ack]);
    world.expect(&peer, &[]);
    world.send(&mut peer, &[receipt(1)]);
    let got = world.got(&peer);
    let over = got.iter().any(|got| matches!(got.message(), Message::WaitOver(over) if over.nonce == waits));
    assert!(over, "{got:?}");
    world.got(&other);
}

#[test]
fn answer_that_was_dropped_at_the_failure_is_given_when_it_is_asked_for_again() {
    let mut world = World::new();
    let (mut holder, mut waiter) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    world.lock(&mut holder, file);
    queue(&mut world, &mut waiter, file);
    // The disk takes the change just before the failure, and its ACK would be due after it.
    world.stalled = true;
    let request = create(holder.ask(), "late", Want::Nothing);
    world.send(&mut holder, &[request.into()]);
    until_failed(&mut world);
    world.got(&holder);
    world.send(&mut holder, &[receipt(1)]);
    assert_eq!(world.server.lease_timers(), 0);
    world.stalled = false;
    world.turn();
    let echo = world.send(&mut holder, &[request.into()]);
    let acks = world.got(&holder);
    let echoes: Vec<u64> =
        acks.iter().filter_map(|got| if let Message::Ack(ack) = got.message() { Some(ack.echo) } else { None }).collect();
    assert_eq!(echoes.last(), Some(&echo), "{acks:?}");
    assert_eq!(world.server.stats().requests, 4, "it was executed once");
}

#[test]
fn switched_off_nothing_takes_a_session_back() {
    let mut world = World::with(Config { volatile: true, rescue: false, ..Config::default() });
    let (mut holder, waiter, _, _) = failed(&mut world);
    world.send(&mut holder, &[receipt(1)]);
    assert_eq!(world.server.lease_timers(), 1);
    is_refused(&mut world, &mut holder);
    world.got(&waiter);
}

#[test]
fn session_that_was_rescued_can_be_closed_like_any() {
    let mut world = World::new();
    let (mut holder, waiter, _, _) = failed(&mut world);
    let end = EndSession { serial: holder.serial(), reason: EndReason::Close };
    world.send(&mut holder, &[end.into(), receipt(1)]);
    assert_eq!(kinds(&mut world, &holder), [Kind::Ended]);
    world.pass(ms(0));
    assert_eq!(kinds(&mut world, &waiter), [Kind::Grant]);
    assert_eq!(world.server.lease_timers(), 0);
}
