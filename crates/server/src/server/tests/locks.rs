//! Advisory locks as they look on the wire: queues, cancellations, refusals, lists.

use super::world::{Got, Peer, ROOT, World, advisory, lock, ms};
use crate::store::StoreEvent;
use alloc::vec::Vec;
use cistern_wire::{
    Bytes8, Cancel, CancelOutcome, Cancelled, Failed, Generation, GetAttr, Grant, Keep, KeepAlive, Kind, List, ListLocks, Lock, LockWait,
    Message, Mode, ObjectId, Receipt, ReceiptAnswer, Release, ReleaseItem, Reply, RowState, ServerStatus, SetAttr, SetMask, Status, Terms,
    WaitOver, Want,
};

fn cancel(world: &mut World, peer: &mut Peer, nonce: u64) -> (CancelOutcome, Generation) {
    let serial = peer.serial();
    let echo = world.send(peer, &[Cancel { serial, nonce }.into()]);
    let got = world.got_one(peer);
    let Message::Cancelled(cancelled) = got.message() else { panic!("{got:?}") };
    let Cancelled { outcome, generation, .. } = cancelled;
    assert_eq!(cancelled, Cancelled { serial, echo, nonce, outcome, generation });
    (outcome, generation)
}

pub(super) fn give_back(world: &mut World, peer: &mut Peer, object: ObjectId, generation: Generation) {
    let serial = peer.serial();
    let items = [ReleaseItem { lock: advisory(object), generation, keep: Keep::Nothing }];
    world.send(peer, &[Release { serial, items: List::of(&items) }.into()]);
    assert!(matches!(world.got_one(peer).message(), Message::Released(_)));
}

/// Another run of tokens; gives its generation.
fn extend(world: &mut World, peer: &mut Peer, object: ObjectId) -> Generation {
    let ask = peer.ask();
    world.send(peer, &[lock(ask, object, LockWait::Try).into()]);
    let got = world.got_one(peer);
    let Reply::Granted(granted) = got.reply() else { panic!("{got:?}") };
    granted.generation
}

/// The one answer to a message.
fn answer(world: &mut World, peer: &mut Peer, message: Message<'_>) -> Got {
    world.send(peer, &[message]);
    world.got_one(peer)
}

/// A holder and a waiter; the DEMAND was receipted.
pub(super) fn waiting(world: &mut World) -> (Peer, Peer, ObjectId, Generation) {
    let (mut holder, mut waiter) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    let generation = world.lock(&mut holder, file);
    let ask = waiter.ask_only();
    world.send(&mut waiter, &[lock(ask, file, LockWait::Queue).into()]);
    assert!(matches!(world.got_one(&waiter).message(), Message::Queued(_)));
    assert!(matches!(world.got_one(&holder).message(), Message::Demand(_)));
    world.send(&mut holder, &[Receipt { seq: 1, answer: ReceiptAnswer::InUse }.into()]);
    (holder, waiter, file, generation)
}

#[test]
fn held_lock_refuses_who_only_tries_and_says_by_whom() {
    let mut world = World::new();
    let (holder, mut waiter, file, _) = waiting(&mut world);
    let ask = waiter.ask();
    world.send(&mut waiter, &[lock(ask, file, LockWait::Try).into()]);
    let got = world.got_one(&waiter);
    let Reply::LockRefused(refused) = got.reply() else { panic!("{got:?}") };
    assert_eq!((refused.lock, refused.holder.handle, refused.holder.label.0), (advisory(file), holder.handle, b"alpha".as_slice()));
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A LOCK that has to wait for other holders MUST be answered QUEUED.
#[test]
fn duplicate_of_a_queued_request_is_told_so_again_and_waits_once() {
    let mut world = World::new();
    let (mut holder, mut waiter, file, generation) = waiting(&mut world);
    let ask = cistern_wire::Ask { nonce: 1, back: 0, limit: 1_232 };
    for _ in 0..3 {
        let echo = world.send(&mut waiter, &[lock(ask, file, LockWait::Queue).into()]);
        let got = world.got_one(&waiter);
        let Message::Queued(queued) = got.message() else { panic!("{got:?}") };
        assert_eq!((queued.nonce, queued.echo, queued.ahead, queued.holder.handle), (1, echo, 0, holder.handle));
    }
    assert_eq!(world.server.status(world.now).waiting, 1);
    give_back(&mut world, &mut holder, file, generation);
    assert!(matches!(world.got_one(&waiter).message(), Message::Grant(_)), "one grant");
    world.send(&mut waiter, &[Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
}

//= wire-spec.md#11-4-locks
//= type=test
//# A CANCEL of a request without a standing grant MUST be answered "cancelled" or "answered".
//= wire-spec.md#6-3-control
//= type=test
//# A control message MUST be acted on and answered each time it arrives, with the effect of one.
#[test]
fn cancelled_wait_is_over_however_often_it_is_cancelled() {
    let mut world = World::new();
    let (mut holder, mut waiter, file, generation) = waiting(&mut world);
    for _ in 0..2 {
        assert_eq!(cancel(&mut world, &mut waiter, 1), (CancelOutcome::Cancelled, Generation(0)));
    }
    give_back(&mut world, &mut holder, file, generation);
    world.expect(&waiter, &[]);
}

//= wire-spec.md#11-4-locks
//= type=test
//# A CANCEL MUST work before and after its request arrives: one cancelled before it arrived is never executed.
#[test]
fn cancellation_that_overtakes_its_request_keeps_it_from_executing() {
    let mut world = World::new();
    let mut holder = world.open(1);
    let file = world.create(&mut holder, "job").object;
    let mut waiter = world.open(2);
    let ask = waiter.ask();
    assert_eq!(cancel(&mut world, &mut waiter, ask.nonce), (CancelOutcome::Cancelled, Generation(0)));
    let echo = world.send(&mut waiter, &[lock(ask, file, LockWait::Queue).into()]);
    let reply = Reply::Failed(Failed { status: Status::ECANCELED, retry_ms: 0 });
    world.expect(&waiter, &[cistern_wire::Ack { nonce: ask.nonce, echo, reply }.into()]);
    world.lock(&mut holder, file);
}

//= wire-spec.md#11-4-locks
//= type=test
//# A CANCEL MUST work before and after its request arrives: one cancelled before it arrived is never executed.
//= wire-spec.md#11-4-locks
//= type=test
//# A CANCEL of a request without a standing grant MUST be answered "cancelled" or "answered".
#[test]
fn cancellation_that_comes_after_the_grant_names_it() {
    let mut world = World::new();
    let (mut holder, mut waiter, file, generation) = waiting(&mut world);
    give_back(&mut world, &mut holder, file, generation);
    let got = world.got_one(&waiter);
    let Message::Grant(grant) = got.message() else { panic!("{got:?}") };
    for _ in 0..2 {
        assert_eq!(cancel(&mut world, &mut waiter, 1), (CancelOutcome::Granted, grant.generation));
    }
    give_back(&mut world, &mut waiter, file, grant.generation);
    assert_eq!(cancel(&mut world, &mut waiter, 1).0, CancelOutcome::Answered, "granted, and given back since");
    world.lock(&mut holder, file);
}

//= wire-spec.md#11-4-locks
//= type=test
//# A CANCEL MUST be answered "granted" with the generation while a grant to its request stands unchanged.
#[test]
fn cancellation_of_a_lock_whose_granting_ack_was_lost_names_the_grant() {
    let mut world = World::new();
    let (mut peer, mut other) = (world.open(1), world.open(2));
    let file = world.create(&mut peer, "job").object;
    let ask = peer.ask_only();
    world.send(&mut peer, &[lock(ask, file, LockWait::Queue).into()]);
    // The agent never sees this.
    let lost = world.got_one(&peer);
    let Reply::Granted(granted) = lost.reply() else { panic!("{lost:?}") };
    for _ in 0..2 {
        assert_eq!(cancel(&mut world, &mut peer, ask.nonce), (CancelOutcome::Granted, granted.generation));
    }
    // The lock goes on under another generation, which whoever asked for that knows.
    let extended = extend(&mut world, &mut peer, file);
    assert_eq!(cancel(&mut world, &mut peer, ask.nonce), (CancelOutcome::Answered, Generation(0)));
    give_back(&mut world, &mut peer, file, extended);
    assert_eq!(cancel(&mut world, &mut peer, ask.nonce), (CancelOutcome::Answered, Generation(0)), "given back since");
    world.lock(&mut other, file);
}

/// A copy of the CANCEL that is late, or one of an agent that takes a cancelled request for done: the reply is forgotten, the lock is not.
//= wire-spec.md#11-4-locks
//= type=test
//# A CANCEL MUST be answered "granted" with the generation while a grant to its request stands unchanged.
#[test]
fn cancellation_below_the_floor_names_the_grant_that_stands() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    let nonce = peer.nonce + 1;
    let generation = world.lock(&mut peer, file);
    // No former request is awaited any more.
    let ask = peer.ask_only();
    world.send(&mut peer, &[GetAttr { ask, object: file, want: Want::Nothing }.into()]);
    world.got_one(&peer);
    assert_eq!(cancel(&mut world, &mut peer, nonce), (CancelOutcome::Granted, generation));
    give_back(&mut world, &mut peer, file, generation);
    assert_eq!(cancel(&mut world, &mut peer, nonce), (CancelOutcome::Answered, Generation(0)), "given back since");
}

//= wire-spec.md#6-4-notices
//= type=test
//# A GRANT whose generation a DEMAND named that was receipted "not held" MUST be replaced by WAIT_OVER with ECANCELED.
#[test]
fn grant_that_came_back_by_a_demand_before_it_arrived_ends_the_wait_by_a_notice() {
    let mut world = World::new();
    let (mut holder, mut waiter, file, generation) = waiting(&mut world);
    let mut third = world.open(3);
    give_back(&mut world, &mut holder, file, generation);
    // GRANT is lost, the demand of what it grants is not.
    let Message::Grant(grant) = world.got_one(&waiter).message() else { panic!("a GRANT") };
    let ask = third.ask();
    world.send(&mut third, &[lock(ask, file, LockWait::Queue).into()]);
    let got = world.got(&third);
    assert!(matches!(got[0].message(), Message::Queued(_)), "{got:?}");
    let got = world.got_one(&waiter);
    let Message::Demand(demand) = got.message() else { panic!("{got:?}") };
    assert_eq!(demand.generation, grant.generation);
    world.send(&mut waiter, &[Receipt { seq: demand.seq, answer: ReceiptAnswer::NotHeld }.into()]);
    let seq = demand.seq + 1;
    let over = WaitOver { seq, nonce: 1, lock: advisory(file), status: Status::ECANCELED };
    world.expect(&waiter, &[over.into()]);
    assert_eq!(world.got_one(&third).message().kind(), Kind::Grant);
    world.pass(ms(100));
    let again = world.got(&waiter);
    assert!(!again.is_empty() && again.iter().all(|got| got.message() == over.into()), "until it is receipted: {again:?}");
    world.send(&mut waiter, &[Receipt { seq, answer: ReceiptAnswer::Received }.into()]);
    assert_eq!(cancel(&mut world, &mut waiter, 1), (CancelOutcome::Cancelled, Generation(0)));
    world.got(&third);
}

/// Also when that end was receipted: an agent that asks about a wait needs an end of it.
//= wire-spec.md#6-4-notices
//= type=test
//# A copy of a queued LOCK whose wait has ended MUST be answered QUEUED, and by one more WAIT_OVER with ECANCELED if the lock is not held
//# without a break since the grant, and no notice about that wait is on its way.
#[test]
fn copy_of_a_request_whose_wait_has_ended_hears_of_an_end_once_more() {
    let mut world = World::new();
    let (mut waiter, file, copy, grant) = granted_shared(&mut world);
    give_back(&mut world, &mut waiter, file, grant.generation);
    for seq in grant.seq + 1..=grant.seq + 2 {
        world.send(&mut waiter, &[copy.into()]);
        let over = WaitOver { seq, nonce: 1, lock: advisory(file), status: Status::ECANCELED };
        let got = world.got(&waiter);
        let kinds: Vec<Kind> = got.iter().map(|got| got.message().kind()).collect();
        assert!(kinds.contains(&Kind::Queued) && got.len() == 2 && got.iter().any(|got| got.message() == over.into()), "{got:?}");
        world.send(&mut waiter, &[Receipt { seq, answer: ReceiptAnswer::Received }.into()]);
    }
}

#[test]
fn copy_of_a_request_that_was_granted_hears_of_no_end_while_the_lock_is_held_without_a_break() {
    for mode in [Mode::Shared, Mode::Exclusive] {
        let mut world = World::new();
        let (mut waiter, file, copy, grant) = granted_shared(&mut world);
        let unchanged = answer(&mut world, &mut waiter, copy.into());
        assert_eq!(unchanged.message().kind(), Kind::Queued, "it has what it was granted");
        let ask = waiter.ask();
        let again = answer(&mut world, &mut waiter, Lock { mode, ..lock(ask, file, LockWait::Try) }.into());
        let Reply::Granted(again) = again.reply() else { panic!("{again:?}") };
        assert!(again.mode == mode && again.generation > grant.generation);
        let copied = answer(&mut world, &mut waiter, copy.into());
        assert_eq!(copied.message().kind(), Kind::Queued, "under a newer generation, in {mode} mode");
        give_back(&mut world, &mut waiter, file, again.generation);
        world.send(&mut waiter, &[copy.into()]);
        assert!(world.got(&waiter).iter().any(|got| got.message().kind() == Kind::WaitOver), "it holds nothing any more");
    }
}

/// Of a request, under nonce 1, that waited and was granted a shared lock: a copy of it, and its GRANT, which was receipted.
fn granted_shared(world: &mut World) -> (Peer, ObjectId, Lock, Grant) {
    let (mut holder, mut waiter) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    let generation = world.lock(&mut holder, file);
    let copy = Lock { mode: Mode::Shared, ..lock(waiter.ask(), file, LockWait::Queue) };
    world.send(&mut waiter, &[copy.into()]);
    world.got(&holder);
    give_back(world, &mut holder, file, generation);
    let got = world.got(&waiter);
    let Some(Message::Grant(grant)) = got.last().map(Got::message) else { panic!("{got:?}") };
    world.send(&mut waiter, &[Receipt { seq: grant.seq, answer: ReceiptAnswer::Received }.into()]);
    (waiter, file, copy, grant)
}

//= wire-spec.md#6-3-control
//= type=test
//# A server MUST answer a RELEASE of 19 items or fewer by one RELEASED.
#[test]
fn release_of_nineteen_items_is_answered_by_one_message() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let item = |n| ReleaseItem { lock: advisory(ObjectId(n)), generation: Generation(n), keep: Keep::Nothing };
    let items: Vec<ReleaseItem> = (1..=20).map(item).collect();
    for (count, messages) in [(1, 1), (19, 1), (20, 2)] {
        let serial = peer.serial();
        world.send(&mut peer, &[Release { serial, items: List::of(&items[..count]) }.into()]);
        assert_eq!(world.got(&peer).len(), messages, "{count} items");
    }
}

#[test]
fn cancellation_of_a_request_that_was_answered_says_so() {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.create(&mut peer, "job");
    assert_eq!(cancel(&mut world, &mut peer, 1).0, CancelOutcome::Answered);
}

#[test]
fn lock_on_an_object_that_is_not_durable_waits_for_the_disk() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    let removed = cistern_wire::Unlink { ask: peer.ask_only(), dir: ROOT, name: Bytes8(b"job"), force: false, terms: Terms::NONE };
    world.stalled = true;
    world.send(&mut peer, &[removed.into()]);
    let ask = peer.ask();
    world.send(&mut peer, &[lock(ask, file, LockWait::Try).into()]);
    let serial = peer.serial();
    world.send(&mut peer, &[KeepAlive { serial, clock_us: 0 }.into()]);
    assert!(matches!(world.got_one(&peer).message(), Message::Alive(_)));
    world.stalled = false;
    world.turn();
    let got = world.got(&peer);
    assert_eq!(got.len(), 2);
    assert_eq!(got[1].reply(), Reply::Failed(Failed { status: Status::ESTALE, retry_ms: 0 }));
}

#[test]
fn run_is_extended_under_a_larger_token_until_somebody_waits() {
    let mut world = World::new();
    let (mut holder, mut waiter) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    let first = world.lock(&mut holder, file);
    assert!(extend(&mut world, &mut holder, file) > first);
    let ask = waiter.ask();
    world.send(&mut waiter, &[lock(ask, file, LockWait::Queue).into()]);
    for peer in [&holder, &waiter] {
        world.got_one(peer);
    }
    let ask = holder.ask();
    world.send(&mut holder, &[lock(ask, file, LockWait::Try).into()]);
    let got = world.got_one(&holder);
    assert!(matches!(got.reply(), Reply::LockRefused(refused) if refused.holder.handle == waiter.handle), "{got:?}");
}

//= wire-spec.md#11-4-locks
//= type=test
//# The kept answer to a lock request MUST repeat its grant, and never make a new one.
#[test]
fn copy_of_a_request_for_another_run_takes_nothing_that_was_given_back() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    world.lock(&mut peer, file);
    let ask = peer.ask();
    world.send(&mut peer, &[lock(ask, file, LockWait::Try).into()]);
    let first = world.got_one(&peer);
    let Reply::Granted(granted) = first.reply() else { panic!("{first:?}") };
    give_back(&mut world, &mut peer, file, granted.generation);
    world.send(&mut peer, &[lock(ask, file, LockWait::Try).into()]);
    assert_eq!(world.got_one(&peer).reply(), first.reply());
    assert_eq!(world.server.status(world.now).locks, 0);
}

#[test]
fn list_shows_holders_before_waiters_with_their_place() {
    let mut world = World::new();
    let (holder, mut waiter, file, generation) = waiting(&mut world);
    world.pass(ms(40));
    let ask = waiter.ask();
    world.send(&mut waiter, &[ListLocks { ask, object: ObjectId(0), after_object: ObjectId(0), after_row: 0, places: true }.into()]);
    let got = world.got_one(&waiter);
    let Reply::LockRows(rows) = got.reply() else { panic!("{got:?}") };
    assert!(rows.end);
    let rows: Vec<_> = rows.rows.iter().collect();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (rows[0].state, rows[0].generation, rows[0].handle, rows[0].label.0),
        (RowState::Holds, generation, holder.handle, b"alpha".as_slice())
    );
    assert_eq!((rows[1].state, rows[1].generation, rows[1].label.0), (RowState::Waits, Generation(0), b"beta".as_slice()));
    assert_eq!((rows[0].lock, rows[0].place.0), (advisory(file), b"/job".as_slice()));
    assert_eq!((rows[0].since_ms, rows[1].since_ms), (40, 40));
    let ask = waiter.ask();
    world.send(&mut waiter, &[ListLocks { ask, object: ObjectId(0), after_object: ObjectId(0), after_row: 0, places: false }.into()]);
    let got = world.got_one(&waiter);
    let Reply::LockRows(rows) = got.reply() else { panic!("{got:?}") };
    assert!(rows.rows.iter().map(|row| row.place.0).eq([b"", b""]), "places are told to who asks for them");
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A server MUST name a session to other agents by handle and label alone, never by its id or its agent's identity.
//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A session's handle MUST be random, and independent of the session's id and of the agent's.
#[test]
fn no_message_tells_an_agent_the_session_or_identity_of_another() {
    let mut world = World::new();
    let (holder, mut waiter, file, _) = waiting(&mut world);
    let ephemeral = super::ephemerals::ephemeral(&mut world, &mut waiter, "member");
    let mut asker = world.open(3);
    let (a, b, c, d) = (asker.ask(), asker.ask(), asker.ask(), asker.ask());
    let names = [Bytes8(b"member")];
    let want = Want::Nothing;
    let list = ListLocks { ask: d, object: ObjectId(0), after_object: ObjectId(0), after_row: 0, places: true };
    world.send(
        &mut asker,
        &[
            lock(a, file, LockWait::Try).into(),
            lock(b, file, LockWait::Queue).into(),
            cistern_wire::Lookup { ask: c, start: ROOT, want, names: List::of(&names) }.into(),
            list.into(),
        ],
    );
    let got = world.got(&asker);
    assert_eq!(got.len(), 4);
    let told: Vec<u8> = got.iter().flat_map(|got| got.bytes.clone()).collect();
    let tells = |what: &[u8]| told.windows(what.len()).any(|part| part == what);
    for other in [&holder, &waiter] {
        assert!(tells(&other.handle.0.to_be_bytes()), "it is told apart");
        assert!(!tells(&other.session.0.to_be_bytes()) && !tells(&other.agent.0), "but not given away");
    }
    assert_eq!(ephemeral.owner, waiter.handle);
    let handles = [holder.handle, waiter.handle, asker.handle];
    assert!(handles.iter().all(|one| handles.iter().filter(|other| *other == one).count() == 1 && one.0 != 0));
}

#[test]
fn long_list_comes_in_pages() {
    let mut world = World::new();
    let mut peer = world.open(1);
    for n in 0..60 {
        let file = world.create(&mut peer, &alloc::format!("file-{n}")).object;
        world.lock(&mut peer, file);
    }
    let (mut after, mut seen, mut pages) = ((ObjectId(0), 0), 0, 0);
    loop {
        let ask = peer.ask_only();
        world.send(&mut peer, &[ListLocks { ask, object: ObjectId(0), after_object: after.0, after_row: after.1, places: true }.into()]);
        let got = world.got_one(&peer);
        let Reply::LockRows(rows) = got.reply() else { panic!("{got:?}") };
        for row in rows.rows {
            after = if row.lock.object == after.0 { (after.0, after.1 + 1) } else { (row.lock.object, 1) };
            seen += 1;
        }
        pages += 1;
        if rows.end {
            break;
        }
    }
    assert_eq!(seen, 60);
    assert!(pages > 2);
}

#[test]
fn server_status_tells_who_asks_and_counts() {
    let mut world = World::new();
    let (holder, mut waiter, _, _) = waiting(&mut world);
    world.pass(ms(10));
    let ask = waiter.ask();
    world.send(&mut waiter, &[ServerStatus { ask }.into()]);
    let got = world.got_one(&waiter);
    let Reply::ServerReport(report) = got.reply() else { panic!("{got:?}") };
    assert_eq!((report.agent, report.incarnation, report.sessions, report.timing_out), (waiter.agent, 7, 2, 0));
    assert_eq!((report.locks, report.waiters, report.demands, report.requests), (1, 1, 1, 4));
    assert_eq!((report.objects, report.uptime_ms, report.delivery_failures), (2, 10, 0));
    let _ = holder;
}

//= wire-spec.md#3-7-sizes-and-paths
//= type=test
//# Every handshake message, control message, notice, receipt and NACK MUST fit a datagram of 548 bytes.
#[test]
fn answer_to_a_long_release_comes_in_several_small_messages() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let mut items = Vec::new();
    for n in 0..25 {
        let file = world.create(&mut peer, &alloc::format!("file-{n}")).object;
        items.push(ReleaseItem { lock: advisory(file), generation: world.lock(&mut peer, file), keep: Keep::Nothing });
    }
    let serial = peer.serial();
    let echo = world.send(&mut peer, &[Release { serial, items: List::of(&items) }.into()]);
    let got = world.got(&peer);
    let mut released = 0;
    for got in &got {
        let Message::Released(part) = got.message() else { panic!("{got:?}") };
        assert!((part.serial, part.echo) == (serial, echo) && got.datagram <= 548);
        released += part.items.len();
    }
    assert_eq!((released, world.server.status(world.now).locks), (25, 0));
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A server MUST act on receipts, releases and session ends in a datagram before the requests in it.
#[test]
fn release_and_request_of_one_datagram_act_in_the_order_that_helps() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    let generation = world.lock(&mut peer, file);
    let ask = peer.ask();
    let items = [ReleaseItem { lock: advisory(file), generation, keep: Keep::Nothing }];
    let serial = peer.serial();
    // The request stands before the release, and finds the lock free.
    world.send(&mut peer, &[lock(ask, file, LockWait::Try).into(), Release { serial, items: List::of(&items) }.into()]);
    let got = world.got(&peer);
    let Reply::Granted(granted) = got[1].reply() else { panic!("{got:?}") };
    assert!(matches!(got[0].message(), Message::Released(_)) && granted.generation > generation);
    assert_eq!(world.server.status(world.now).locks, 1);
}

#[test]
fn lock_on_a_file_that_is_written_all_the_time_waits_for_one_batch() {
    let mut world = World::new();
    let (mut writer, mut locker) = (world.open(1), world.open(2));
    let file = world.create(&mut writer, "log").object;
    world.stalled = true;
    let write = |world: &mut World, writer: &mut Peer| {
        let (ask, mask) = (writer.ask(), SetMask { bits: SetMask::MODE });
        let change =
            SetAttr { ask, object: file, mask, mode: 0o600, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms: Terms::NONE };
        world.send(writer, &[change.into()]);
    };
    write(&mut world, &mut writer);
    let ask = locker.ask();
    world.send(&mut locker, &[lock(ask, file, LockWait::Try).into()]);
    // The next batch is under way before this one is durable.
    write(&mut world, &mut writer);
    world.expect(&locker, &[]);
    let batch = world.disk.sync().unwrap();
    world.server.store_event(world.now, StoreEvent::Durable(batch));
    world.turn();
    assert!(matches!(world.got_one(&locker).reply(), Reply::Granted(_)));
    world.got(&writer);
}
