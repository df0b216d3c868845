//! What people see of a server: the steps of a failover, who comes first, and that looking changes nothing.

use super::world::{Peer, World, advisory, lock, ms};
use crate::Config;
use crate::overview::{FailoverEnd, LockUser};
use alloc::vec::Vec;
use cistern_link::{Machine as _, Path};
use cistern_wire::{AgentId, LockClass, LockWait, Message, ObjectId, Receipt, ReceiptAnswer, RowState};
use core::net::SocketAddr;
use core::time::Duration;

/// Two agents; the first holds the lock of `/job`, the second waits for it.
fn held_and_waited_for(world: &mut World) -> (Peer, Peer, ObjectId) {
    let (mut holder, mut waiter) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    world.lock(&mut holder, file);
    let ask = waiter.ask_only();
    world.send(&mut waiter, &[lock(ask, file, LockWait::Queue).into()]);
    world.got(&waiter);
    world.attend(&waiter);
    (holder, waiter, file)
}

/// What was sent to these is not what the test is about.
fn ignore<'a>(world: &mut World, peers: impl IntoIterator<Item = &'a Peer>) {
    peers.into_iter().for_each(|peer| drop(world.got(peer)));
}

fn users(rows: &[LockUser]) -> Vec<(RowState, cistern_wire::Handle)> {
    rows.iter().map(|user| (user.state, user.handle)).collect()
}

#[test]
fn failover_is_shown_step_by_step_until_others_have_its_locks() {
    let mut world = World::new();
    let (holder, mut waiter, file) = held_and_waited_for(&mut world);
    let seen = world.server.overview(world.now);
    assert_eq!((seen.locks.len(), seen.locks[0].object, &*seen.locks[0].place), (1, file, &b"/job"[..]));
    assert_eq!(users(&seen.locks[0].rows), [(RowState::Holds, holder.handle), (RowState::Waits, waiter.handle)]);
    assert_eq!((seen.locks[0].waiters, seen.locks[0].more_holders), (1, false));
    let [demand] = &seen.demands[..] else { panic!("{:?}", seen.demands) };
    assert_eq!((demand.object, demand.class, demand.handle, demand.is_sent), (file, LockClass::Advisory, holder.handle, true));
    assert_eq!((seen.sessions[0].handle, seen.failovers.len()), (waiter.handle, 0), "who waits comes first");

    world.pass(ms(600));
    let seen = world.server.overview(world.now);
    assert_eq!((seen.sessions[0].handle, seen.sessions[0].standing), (holder.handle, "timing out"));
    let [failed] = &seen.failovers[..] else { panic!("{:?}", seen.failovers) };
    assert_eq!((failed.handle, failed.locks, failed.end, failed.freed), (holder.handle, 1, None, None));
    assert!(failed.wait <= ms(2_021) && failed.ago <= ms(100), "{failed:?}");

    world.pass(ms(2_200));
    let seen = world.server.overview(world.now);
    let [over] = &seen.failovers[..] else { panic!("{:?}", seen.failovers) };
    let Some((FailoverEnd::Waited, after)) = over.end else { panic!("{over:?}") };
    assert!(after >= over.wait && over.freed.is_some_and(|freed| freed >= after), "{over:?}");
    assert_eq!(users(&seen.locks[0].rows), [(RowState::Holds, waiter.handle)]);
    let got = world.got(&waiter);
    let Message::Grant(grant) = got[0].message() else { panic!("{got:?}") };
    world.send(&mut waiter, &[Receipt { seq: grant.seq, answer: ReceiptAnswer::Received }.into()]);
    world.pass(Duration::from_secs(3_600));
    assert!(world.server.overview(world.now).failovers.is_empty(), "it was more than an hour ago");
    ignore(&mut world, [&holder, &waiter]);
}

#[test]
fn rescue_is_the_end_of_a_failover_that_frees_nothing() {
    let mut world = World::new();
    let (mut holder, waiter, _) = held_and_waited_for(&mut world);
    world.pass(ms(600));
    world.send(&mut holder, &[Receipt { seq: 1, answer: ReceiptAnswer::InUse }.into()]);
    let seen = world.server.overview(world.now);
    let [rescued] = &seen.failovers[..] else { panic!("{:?}", seen.failovers) };
    assert!(matches!(rescued.end, Some((FailoverEnd::Rescued, _))) && rescued.freed.is_none(), "{rescued:?}");
    world.pass(ms(600));
    let again = world.server.overview(world.now).failovers;
    let ends: Vec<_> = again.iter().map(|failover| failover.end.map(|(end, _)| end)).collect();
    assert_eq!(ends.last(), Some(&Some(FailoverEnd::Rescued)), "a later failure is another row: {ends:?}");
    ignore(&mut world, [&holder, &waiter]);
}

#[test]
fn of_many_sessions_some_are_shown_and_who_waits_or_holds_is_among_them() {
    let mut world = World::new();
    let (holder, waiter, _) = held_and_waited_for(&mut world);
    let others: Vec<Peer> = (3..130).map(|n| world.open(n)).collect();
    let seen = world.server.overview(world.now);
    assert_eq!((seen.status.sessions, seen.sessions.len()), (2 + others.len(), 100));
    assert_eq!([seen.sessions[0].handle, seen.sessions[1].handle], [waiter.handle, holder.handle]);
    ignore(&mut world, [&holder, &waiter].into_iter().chain(&others));
}

/// One agent of more than a byte can number.
fn one_of_many(world: &mut World, n: u16) -> Peer {
    let [high, low] = n.to_be_bytes();
    let path = Path::to(SocketAddr::from(([10, 0, high, low], 4_000)));
    let mut peer = Peer { path, agent: AgentId(u128::from(n).to_be_bytes()), handshake: 1_000_000 * u64::from(n), ..Peer::new(0) };
    world.open_again(&mut peer, &[]);
    peer
}

#[test]
fn of_thousands_of_sessions_a_thousand_are_looked_at_and_who_waits_and_who_fails_besides() {
    let mut world = World::with(Config { volatile: true, challenges_per_second: 1_000_000, ..Config::default() });
    let many: Vec<Peer> = (1..=1_100).map(|n| one_of_many(&mut world, n)).collect();
    let (holder, waiter, file) = held_and_waited_for(&mut world);
    let mut beside = world.open(3);
    let quiet = world.create(&mut beside, "quiet").object;
    world.lock(&mut beside, quiet);
    let seen = world.server.overview(world.now);
    assert_eq!((seen.status.sessions, seen.sessions.len()), (3 + many.len(), 100));
    assert_eq!((seen.sessions[0].handle, seen.demands[0].object, seen.locks[0].object), (waiter.handle, file, file));
    let shown = |handle| seen.sessions.iter().any(|row| row.handle == handle);
    assert!(!shown(beside.handle) && shown(many[1_000].handle), "the pass over sessions has an end");
    world.pass(ms(600));
    let seen = world.server.overview(world.now);
    assert_eq!((seen.sessions[0].handle, seen.sessions[0].standing), (holder.handle, "timing out"));
    ignore(&mut world, [&holder, &waiter, &beside].into_iter().chain(&many));
}

#[test]
fn lock_with_many_waiters_is_shown_by_its_first_and_before_locks_that_nobody_waits_for() {
    let mut world = World::new();
    let mut holder = world.open(1);
    let quiet: Vec<ObjectId> = ["a", "b", "c"].map(|name| world.create(&mut holder, name).object).to_vec();
    for file in &quiet {
        world.lock(&mut holder, *file);
    }
    let contended = world.create(&mut holder, "d").object;
    world.lock(&mut holder, contended);
    for n in 2..22 {
        let mut waiter = world.open(n);
        let ask = waiter.ask_only();
        world.send(&mut waiter, &[lock(ask, contended, LockWait::Queue).into()]);
        let got = world.got_one(&waiter);
        assert!(matches!(got.message(), Message::Queued(queued) if queued.lock == advisory(contended)));
    }
    let seen = world.server.overview(world.now);
    assert_eq!(seen.locks.iter().map(|lock| lock.object).collect::<Vec<_>>(), [&[contended], &quiet[..]].concat());
    assert_eq!((seen.locks[0].rows.len(), seen.locks[0].waiters), (1 + 8, 20));
    ignore(&mut world, [&holder]);
}

#[test]
fn looking_changes_nothing() {
    let mut world = World::new();
    let (holder, waiter, _) = held_and_waited_for(&mut world);
    world.got(&holder);
    world.got(&waiter);
    let (kept, wake) = (world.server.kept(holder.session), world.server.wake_after(world.now));
    let seen = world.server.overview(world.now);
    assert_eq!(world.server.overview(world.now), seen);
    assert_eq!((world.server.kept(holder.session), world.server.wake_after(world.now)), (kept, wake));
    world.turn();
    world.quiet();
}
