//! Requests that wait for their owners' turns: who is served before a backlog, and that what waits is as a request that executes.
//!
//! What a turn does is charged by the table of prices, not timed. A slice is so short here that a datagram of requests is longer.

use super::world::{Peer, ROOT, World, cache_lock, create, lock, ms};
use crate::Config;
use crate::config::WorkLimits;
use crate::stats::Dropped;
use alloc::vec::Vec;
use cistern_link::{Machine as _, Path};
use cistern_wire::{
    Ack, Ask, Bytes16, Cancel, CancelOutcome, EndReason, EndSession, GetAttr, Keep, KeepAlive, Kind, List, ListLocks, LockWait, Message,
    ObjectId, Receipt, ReceiptAnswer, Release, ReleaseItem, Reply, Stage, Terms, Want, Write,
};
use core::net::SocketAddr;
use core::time::Duration;

/// Requests of one datagram.
const PACKED: usize = 20;

fn world() -> World {
    world_with(64 << 20)
}

fn world_with(queued_bytes: usize) -> World {
    let work = WorkLimits { slice: Duration::from_micros(4), queued_bytes };
    World::with(Config { work, volatile: true, ..Config::default() })
}

fn get(ask: Ask) -> Message<'static> {
    GetAttr { ask, object: ROOT, want: Want::Nothing }.into()
}

/// The peer asks so often, without a turn: more than a slice.
fn floods(world: &mut World, peer: &mut Peer, datagrams: usize) {
    for _ in 0..datagrams {
        let messages: Vec<_> = (0..PACKED).map(|_| get(peer.ask())).collect();
        world.post(peer, &messages);
    }
    assert!(world.server.figures(world.now).work.queued > PACKED);
}

/// Turns until nothing is queued.
fn finish(world: &mut World) {
    for _ in 0..1_000 {
        if world.server.figures(world.now).work.queued == 0 {
            return;
        }
        assert_eq!(world.server.wake_after(world.now), Some(Duration::ZERO), "the loop comes again at once");
        world.turn();
    }
    panic!("a backlog without end");
}

fn kinds(world: &mut World, peer: &Peer) -> Vec<Kind> {
    world.got(peer).iter().map(|got| got.message().kind()).collect()
}

#[test]
fn who_asks_little_is_answered_before_the_backlog_of_another() {
    let mut world = world();
    let (mut greedy, mut modest) = (world.open(1), world.open(2));
    floods(&mut world, &mut greedy, 3);
    let message = get(modest.ask());
    world.post(&mut modest, &[message]);
    world.turn();
    world.turn();
    assert_eq!(kinds(&mut world, &modest), [Kind::Ack]);
    let answered = kinds(&mut world, &greedy).len();
    assert!(answered < 3 * PACKED, "{answered}");
    finish(&mut world);
    assert_eq!(answered + kinds(&mut world, &greedy).len(), 3 * PACKED, "and everybody is in the end");
}

//= wire-spec.md#11-2-delivery
//= type=test
//# Neither window W, nor congestion window, nor bulk messages MUST hold up control messages, receipts, NACK or the handshake.
#[test]
fn keep_alives_and_handshakes_wait_for_no_requests() {
    let mut world = world();
    let (mut greedy, mut modest) = (world.open(1), world.open(2));
    floods(&mut world, &mut greedy, 3);
    for peer in [&mut greedy, &mut modest] {
        world.got(peer);
        let serial = peer.serial();
        world.post(peer, &[KeepAlive { serial, clock_us: 0 }.into()]);
    }
    world.turn();
    assert!(kinds(&mut world, &modest).contains(&Kind::Alive) && kinds(&mut world, &greedy).contains(&Kind::Alive));
    assert!(world.server.figures(world.now).work.queued > 0);
    world.open(3);
    finish(&mut world);
    world.got(&greedy);
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A duplicate of a request that is executing MUST be answered PENDING.
#[test]
fn what_waits_for_its_turn_is_executed_once_and_copies_are_told_so() {
    let mut world = world();
    let (mut greedy, mut other) = (world.open(1), world.open(2));
    floods(&mut world, &mut other, 2);
    floods(&mut world, &mut greedy, 1);
    let request = create(greedy.ask(), "made", Want::Nothing);
    let message: Message<'_> = request.into();
    world.post(&mut greedy, &[message]);
    world.transmit();
    world.got(&greedy);
    let echo = world.post(&mut greedy, &[message]);
    world.transmit();
    assert_eq!(kinds(&mut world, &greedy), [Kind::Pending]);
    finish(&mut world);
    let got = world.got(&greedy);
    let of_it = |got: &&super::world::Got| matches!(got.message(), Message::Ack(ack) if ack.nonce == request.ask.nonce);
    let answers: Vec<_> = got.iter().filter(of_it).collect();
    assert_eq!(answers.len(), 1);
    let Message::Ack(Ack { echo: of, reply, .. }) = answers[0].message() else { unreachable!() };
    assert!(of == echo && matches!(reply, Reply::Changed(_)), "the newest transmission is echoed: {of} {echo}");
    world.got(&other);
}

#[test]
fn what_waits_for_its_turn_can_be_cancelled_and_ends_with_its_session() {
    let mut world = world();
    let (mut greedy, mut other) = (world.open(1), world.open(2));
    floods(&mut world, &mut greedy, 3);
    let ask = greedy.ask();
    world.post(&mut greedy, &[create(ask, "never", Want::Nothing).into()]);
    let serial = greedy.serial();
    world.post(&mut greedy, &[Cancel { serial, nonce: ask.nonce }.into()]);
    world.transmit();
    let told = world.got(&greedy).into_iter().find_map(|got| match got.message() {
        Message::Cancelled(cancelled) => Some(cancelled.outcome),
        _ => None,
    });
    assert_eq!(told, Some(CancelOutcome::Cancelled));
    let serial = greedy.serial();
    world.post(&mut greedy, &[EndSession { serial, reason: EndReason::Close }.into()]);
    let counts = world.server.figures(world.now).work;
    assert_eq!((counts.queued, counts.queued_bytes), (0, 0));
    world.turn();
    world.got(&greedy);
    // "never" was not made.
    world.create(&mut other, "never");
}

//= wire-spec.md#11-2-delivery
//= type=test
//# Of a request that it sheds a server MUST keep nothing: it was never seen, is not answered, and its nonce is as it was.
#[test]
fn what_is_shed_was_never_seen_and_is_executed_when_it_comes_again() {
    // Some 64 KiB, of which one owner may have four fifths.
    let mut world = world_with(64 << 10);
    let mut greedy: Vec<Peer> = (0..8).map(|n| Peer::new(n + 1)).collect();
    for (n, peer) in (0..).zip(&mut greedy) {
        // Several agents on one host.
        peer.path = Path::to(SocketAddr::from(([192, 0, 2, 1], 4_000 + n)));
        world.open_again(peer, &[]);
    }
    for peer in &mut greedy {
        for _ in 0..3 {
            let messages: Vec<_> = (0..PACKED).map(|_| get(peer.ask())).collect();
            world.post(peer, &messages);
        }
    }
    let shed = |world: &World| world.server.stats().dropped(Dropped::Overloaded);
    assert!(shed(&world) > 0);
    assert!(world.server.figures(world.now).work.queued_bytes <= 54 << 10);
    let last = greedy.last_mut().unwrap();
    let before = shed(&world);
    let made = create(last.ask(), "once", Want::Nothing);
    world.post(last, &[made.into()]);
    world.post(last, &[made.into()]);
    assert_eq!(shed(&world), before + 2, "it is shed anew, not told to be executing");
    finish(&mut world);
    greedy.iter().for_each(|peer| drop(world.got(peer)));
    let last = greedy.last_mut().unwrap();
    let echo = world.send(last, &[made.into()]);
    let got = world.got_one(last);
    assert!(matches!(got.message(), Message::Ack(Ack { echo: of, reply: Reply::Changed(_), .. }) if of == echo), "{got:?}");
}

#[test]
fn what_waits_at_d_waits_for_its_session_and_then_for_its_turn_again() {
    let mut world = world();
    let (mut holder, mut waiter) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    world.lock(&mut holder, file);
    let ask = waiter.ask_only();
    world.send(&mut waiter, &[lock(ask, file, LockWait::Queue).into()]);
    world.attend(&waiter);
    world.pass(ms(450));
    floods(&mut world, &mut holder, 3);
    world.got(&holder);
    world.pass(Duration::ZERO);
    for _ in 0..1_000 {
        if world.server.lease_timers() == 1 {
            break;
        }
        let messages: Vec<_> = (0..1).map(|_| get(waiter.ask_only())).collect();
        world.post(&mut waiter, &messages);
        world.tick(ms(1));
        world.turn();
    }
    assert_eq!(world.server.lease_timers(), 1);
    world.got(&holder);
    let left = world.server.status(world.now).parked;
    world.post(&mut holder, &[Receipt { seq: 1, answer: ReceiptAnswer::InUse }.into()]);
    assert_eq!(world.server.lease_timers(), 0, "rescued");
    finish(&mut world);
    assert!(world.server.status(world.now).parked <= left);
    world.got(&holder);
    world.got(&waiter);
}

#[test]
fn what_a_mutation_stores_is_charged_once_however_often_it_runs() {
    let charged = |held: bool| {
        let mut world = World::new();
        let (mut asker, mut holder) = (world.open(1), world.open(2));
        let file = world.create(&mut asker, "f").object;
        let generation = held.then(|| world.cache(&mut holder, file));
        for n in 0..200 {
            let (ask, data) = (asker.ask_only(), Bytes16(&[7; 1_000]));
            world.send(&mut asker, &[Stage { ask, stage: 1, total: 200_000, offset: n * 1_000, data }.into()]);
            world.got_one(&asker);
        }
        let before = world.server.figures(world.now).work.charged_ns;
        let (ask, data) = (asker.ask_only(), Bytes16(b""));
        world.send(&mut asker, &[Write { ask, object: file, offset: 0, truncate: true, stage: 1, data, terms: Terms::NONE }.into()]);
        if let Some(generation) = generation {
            let serial = holder.serial();
            let items = [ReleaseItem { lock: cache_lock(file), generation, keep: Keep::Nothing }];
            world.send(&mut holder, &[Release { serial, items: List::of(&items) }.into()]);
        }
        finish(&mut world);
        assert!(kinds(&mut world, &asker).contains(&Kind::Ack));
        world.got(&holder);
        world.server.figures(world.now).work.charged_ns - before
    };
    let (alone, waited) = (charged(false), charged(true));
    assert!(alone > 100_000 && waited < alone + 20_000, "{alone} ns, and {waited} ns when it had to wait for a cache lock");
}

#[test]
fn page_of_locks_costs_the_rows_that_are_passed_over_and_no_others() {
    let mut world = World::new();
    let mut peer = world.open(1);
    for n in 0..200 {
        let file = world.create(&mut peer, &alloc::format!("f{n}")).object;
        world.lock(&mut peer, file);
    }
    let mut charged = |after_object, after_row| {
        let before = world.server.figures(world.now).work.charged_ns;
        let list = ListLocks { ask: peer.ask_only(), object: ObjectId(0), after_object, after_row, places: false };
        world.send(&mut peer, &[list.into()]);
        let got = world.got_one(&peer);
        let Reply::LockRows(rows) = got.reply() else { panic!("{got:?}") };
        (world.server.figures(world.now).work.charged_ns - before, rows.rows.iter().next().map(|row| row.lock.object))
    };
    let (first, object) = charged(ObjectId(0), 0);
    let (second, _) = charged(object.unwrap(), u32::MAX);
    assert!(second < first + 1_000, "one row is passed over: {second} ns, and {first} ns before");
}

#[test]
fn what_the_store_answers_at_once_is_executed_in_turns() {
    let mut world = world();
    let mut greedy = world.open(1);
    let files: Vec<_> = (0..40).map(|n| world.create(&mut greedy, &alloc::format!("f{n}")).object).collect();
    world.turn();
    world.server.store.forget_everything();
    world.stalled = true;
    let charged = |world: &mut World| world.server.figures(world.now).work.charged_ns;
    for packed in files.chunks(PACKED) {
        let messages: Vec<Message<'_>> =
            packed.iter().map(|object| GetAttr { ask: greedy.ask(), object: *object, want: Want::Nothing }.into()).collect();
        world.post(&mut greedy, &messages);
    }
    finish(&mut world);
    assert_eq!((world.server.status(world.now).parked, kinds(&mut world, &greedy).len()), (40, 0), "all wait for the store");
    world.stalled = false;
    let before = charged(&mut world);
    world.serve_store();
    let spent = charged(&mut world) - before;
    assert!(spent < 5_000, "{spent} ns at once, and a slice is 4,000");
    assert!(world.server.figures(world.now).work.queued > 20);
    finish(&mut world);
    world.turn();
    assert_eq!(kinds(&mut world, &greedy).len(), 40);
}

#[test]
fn mutation_whose_turn_has_come_waits_for_no_debt_of_its_owner() {
    let mut world = world();
    let (mut greedy, mut holder) = (world.open(1), world.open(2));
    let file = world.create(&mut greedy, "f").object;
    let generation = world.cache(&mut holder, file);
    let ask = greedy.ask();
    let write = Write { ask, object: file, offset: 0, truncate: true, stage: 0, data: Bytes16(b"x"), terms: Terms::NONE };
    world.send(&mut greedy, &[write.into()]);
    finish(&mut world);
    assert_eq!(kinds(&mut world, &greedy), [Kind::Pending]);
    world.got(&holder);
    floods(&mut world, &mut greedy, 3);
    // Others wait behind it.
    let (serial, items) = (holder.serial(), [ReleaseItem { lock: cache_lock(file), generation, keep: Keep::Nothing }]);
    world.post(&mut holder, &[Release { serial, items: List::of(&items) }.into()]);
    world.turn();
    world.turn();
    assert!(world.server.figures(world.now).work.queued > PACKED, "the backlog is not done yet");
    let done = |message: Message<'_>| matches!(message, Message::Ack(ack) if ack.nonce == ask.nonce);
    assert!(world.got(&greedy).iter().any(|got| done(got.message())));
    finish(&mut world);
    world.got(&greedy);
    world.got(&holder);
}

#[test]
fn mutations_whose_turn_has_come_run_in_slices_and_whoever_else_asks_is_answered_in_each() {
    // Of some mutations each.
    let work = WorkLimits { slice: Duration::from_micros(30), ..WorkLimits::default() };
    let mut world = World::with(Config { work, volatile: true, ..Config::default() });
    let (mut holder, mut greedy, mut modest) = (world.open(1), world.open(2), world.open(3));
    let generation = world.cache(&mut holder, ROOT);
    for n in 0..PACKED {
        let name = alloc::format!("f{n}");
        let message = create(greedy.ask(), &name, Want::Nothing).into();
        world.send(&mut greedy, &[message]);
        finish(&mut world);
    }
    assert_eq!(kinds(&mut world, &greedy), [Kind::Pending; PACKED], "each waits in the line of the directory");
    assert_eq!(kinds(&mut world, &holder), [Kind::Demand]);
    let items = [ReleaseItem { lock: cache_lock(ROOT), generation, keep: Keep::Nothing }];
    let message = Release { serial: holder.serial(), items: List::of(&items) }.into();
    world.post(&mut holder, &[message]);
    let (mut done, mut turns) = (0, 0);
    while done < PACKED {
        let message = get(modest.ask_only());
        world.send(&mut modest, &[message]);
        let made = kinds(&mut world, &greedy).len();
        assert!(made < PACKED / 2, "{made} in one turn");
        let answered = kinds(&mut world, &modest);
        assert!(turns == 0 || answered.contains(&Kind::Ack), "turn {turns}: {answered:?}");
        (done, turns) = (done + made, turns + 1);
    }
    assert!(turns > 2);
    finish(&mut world);
    world.got(&modest);
    world.got(&holder);
}

#[test]
fn a_mutation_first_in_line_waits_for_no_debt_of_its_owner_and_is_gone_when_it_is_cancelled() {
    let mut world = world();
    let (mut holder, mut greedy, mut other) = (world.open(1), world.open(2), world.open(3));
    let generation = world.cache(&mut holder, ROOT);
    let objects = world.server.figures(world.now).objects;
    for name in ["f", "g"] {
        let message = create(greedy.ask(), name, Want::Nothing).into();
        world.send(&mut greedy, &[message]);
        finish(&mut world);
    }
    let behind = create(other.ask_only(), "h", Want::Nothing).into();
    world.send(&mut other, &[behind]);
    finish(&mut world);
    floods(&mut world, &mut greedy, 3);
    let items = [ReleaseItem { lock: cache_lock(ROOT), generation, keep: Keep::Nothing }];
    let message = Release { serial: holder.serial(), items: List::of(&items) }.into();
    world.post(&mut holder, &[message]);
    assert!(world.server.figures(world.now).locks.mutations > 0, "the slice is spent, and they wait for the next");
    let message = Cancel { serial: greedy.serial(), nonce: greedy.nonce - 3 * PACKED as u64 - 1 }.into();
    world.post(&mut greedy, &[message]);
    let mut turns = 0;
    while world.server.figures(world.now).locks.mutations > 0 {
        world.turn();
        turns += 1;
    }
    assert!(turns < 8 && world.server.figures(world.now).work.queued > PACKED, "before the backlog of who asked for them");
    finish(&mut world);
    for peer in [&holder, &greedy, &other] {
        world.got(peer);
    }
    assert_eq!(world.server.figures(world.now).objects, objects + 2, "all but the one that was cancelled");
}
