//! Sessions of a group's server that hold nothing: what their records say, and whom a successor waits for.

use super::restart::held;
use super::tenure::{elect, elected};
use super::world::{Peer, World, lock, ms};
use crate::Config;
use cistern_wire::{LockWait, Reply, Status};
use core::mem;
use core::time::Duration;

pub(super) const TAU: Duration = Duration::from_secs(2);

/// Time passes for a server whose lease is renewed.
pub(super) fn pass(world: &mut World, span: Duration) {
    let step = ms(100);
    for _ in 0..span.as_millis().div_ceil(step.as_millis()) {
        world.server.renew_tenure(world.now, world.now.plus(ms(500)));
        world.pass(step);
    }
}

/// Another server takes over, with what is durable, and has called all.
fn succeed(world: World) -> World {
    let mut world = take_over(world);
    world.turn();
    world.forget_calls();
    world
}

/// Another server takes over, with what is durable.
pub(super) fn take_over(world: World) -> World {
    let mut world = world;
    world.quiet();
    world.disk.batches.clear();
    let (disk, now) = (mem::take(&mut world.disk), world.now);
    let mut next = World::starting_at(disk, Config::default(), 9, now);
    elect(&mut next, Duration::ZERO);
    next
}

fn awaits(world: &World) -> Option<(usize, Duration)> {
    world.server.status(world.now).grace.map(|grace| (grace.awaited, grace.left))
}

fn is_granted(world: &mut World, peer: &mut Peer, object: cistern_wire::ObjectId) -> bool {
    let ask = peer.ask_only();
    world.send(peer, &[lock(ask, object, LockWait::Try).into()]);
    match world.got_one(peer).reply() {
        Reply::Granted(_) => true,
        Reply::Failed(failed) => {
            assert_eq!(failed.status, Status::IN_GRACE);
            false
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn successor_waits_for_holders_and_not_for_who_holds_nothing() {
    let mut world = elected(Config::default());
    let (mut holder, mut idle) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    let other = world.create(&mut holder, "other").object;
    let generation = world.lock(&mut holder, file);
    world.attend(&holder);
    pass(&mut world, TAU + ms(100));
    let mut world = succeed(world);
    let from = world.come_back(&mut holder);
    assert!(!is_granted(&mut world, &mut holder, other), "the holder has not said that it has all");
    assert_eq!(world.reclaim(&mut holder, from, &[held(file, generation)])[0].status, Status::OK);
    world.complete(&mut holder, from);
    world.turn();
    assert!(is_granted(&mut world, &mut holder, other), "nobody else may hold anything");
    // Who held nothing comes back as long as its own lease may last.
    let from = world.come_back(&mut idle);
    world.complete(&mut idle, from);
    world.turn();
    assert_eq!(awaits(&world), None);
}

#[test]
fn who_has_held_nothing_for_less_than_its_lease_is_waited_for() {
    let mut world = elected(Config::default());
    world.open(1);
    pass(&mut world, TAU - ms(100));
    let world = succeed(world);
    let (awaited, left) = awaits(&world).unwrap();
    assert!(awaited == 1 && left >= TAU, "{awaited} {left:?}");
}

//= wire-spec.md#11-10-groups-of-servers
//= type=test
//# Nothing MUST be granted in a session whose record says that it holds nothing, before that is durably changed.
#[test]
fn idle_session_is_granted_nothing_before_its_record_lets_it() {
    let mut world = elected(Config::default());
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    pass(&mut world, TAU + ms(100));
    world.stalled = true;
    let ask = peer.ask_only();
    world.send(&mut peer, &[lock(ask, file, LockWait::Try).into()]);
    assert!(world.got(&peer).is_empty(), "its record says that it holds nothing");
    world.stalled = false;
    world.turn();
    let generation = match world.got_one(&peer).reply() {
        Reply::Granted(granted) => granted.generation,
        other => panic!("{other:?}"),
    };
    // The next one costs nothing: its record lets it.
    world.stalled = true;
    let ask = peer.ask_only();
    world.send(&mut peer, &[lock(ask, file, LockWait::Try).into()]);
    assert_eq!(world.got(&peer).len(), 1);
    world.stalled = false;
    let mut world = succeed(world);
    assert_eq!(awaits(&world).map(|(awaited, _)| awaited), Some(1));
    let mut other = world.open(2);
    assert!(!is_granted(&mut world, &mut other, file), "its holder is waited for");
    let from = world.come_back(&mut peer);
    assert_eq!(world.reclaim(&mut peer, from, &[held(file, generation)])[0].status, Status::OK);
    world.complete(&mut peer, from);
}
