//! A server of a group: what its lease of the group allows, and what comes after it.

use super::world::{LIMIT, Peer, STORE, World, create, lock, ms};
use crate::store::tests::disk::Disk;
use crate::{Config, Server};
use alloc::vec;
use alloc::vec::Vec;
use cistern_link::{Instant, Machine as _};
use cistern_wire::{Alive, GroupMember, KeepAlive, LockWait, Message, Reply, ServerStatus, Want};
use core::mem;
use core::time::Duration;

/// How long the first lease of the group lasts here.
const LEASE: Duration = Duration::from_millis(500);

/// Makes the server of a world that has had no turn an elected one: it won at the world's present instant, less `since`.
pub(super) fn elect(world: &mut World, since: Duration) {
    let now = world.now;
    let won = Instant::new(now.raw_ns - nanos(since), now.boot_ns - nanos(since));
    let other = Server::new(now, 0, STORE, world.server.config.clone(), [9; 32]).unwrap();
    let server = mem::replace(&mut world.server, other);
    world.server = server.elected(won, won.plus(LEASE));
    world.turn();
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap()
}

pub(super) fn elected(config: Config) -> World {
    let mut world = World::starting(Disk::default(), Config { new_cluster: true, volatile: true, ..config }, 7);
    elect(&mut world, Duration::ZERO);
    assert!(world.server.is_serving());
    world
}

fn is_alive(world: &mut World, peer: &mut Peer) -> bool {
    let serial = peer.serial();
    let echo = world.send(peer, &[KeepAlive { serial, clock_us: 0 }.into()]);
    match world.got(peer).as_slice() {
        [] => false,
        [got] => {
            assert_eq!(got.message(), Message::Alive(Alive { serial, echo }));
            true
        }
        more => panic!("{more:?}"),
    }
}

//= wire-spec.md#11-10-groups-of-servers
//= type=test
//# A server of a group MUST NOT answer, renew, grant, demand or execute unless its lease of the group is certain by a time read after what
//# it acts on was received.
#[test]
fn nothing_is_answered_from_the_end_of_the_lease_of_the_group_on() {
    for boot_lag in [0, 512] {
        let mut world = elected(Config::default());
        world.boot_lag = boot_lag;
        let mut peer = world.open(1);
        let end = world.server.started.plus(LEASE);
        world.tick(world.now.until_lease_over(end) - ms(1));
        assert!(is_alive(&mut world, &mut peer), "certain for another millisecond");
        // Of two clocks that disagree the faster one counts.
        world.tick(ms(1));
        assert!(!is_alive(&mut world, &mut peer));
        assert!(world.server.has_lapsed() && !world.server.is_serving());
        // Nothing is executed either, and no renewal brings back what was over.
        world.server.renew_tenure(world.now, world.now.plus(LEASE));
        let ask = peer.ask_only();
        world.send(&mut peer, &[create(ask, "job", Want::Nothing).into()]);
        assert!(world.server.poll_effect().is_none() && world.got(&peer).is_empty());
        assert_eq!(world.server.wake_after(world.now), None, "whoever turns it starts another one");
    }
}

#[test]
fn lease_of_the_group_that_is_renewed_in_time_goes_on() {
    let mut world = elected(Config::default());
    let mut peer = world.open(1);
    for _ in 0..5 {
        world.tick(LEASE - ms(1));
        world.server.renew_tenure(world.now, world.now.plus(LEASE));
        assert!(is_alive(&mut world, &mut peer));
    }
}

#[test]
fn reply_that_waited_for_the_store_over_the_end_of_the_lease_is_not_sent() {
    let mut world = elected(Config::default());
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    let ask = peer.ask_only();
    world.stalled = true;
    world.send(&mut peer, &[create(ask, "held back", Want::Nothing).into()]);
    world.tick(LEASE);
    world.stalled = false;
    world.turn();
    assert!(world.got(&peer).is_empty(), "it is durable, and told by the next server");
    let ask = peer.ask_only();
    world.send(&mut peer, &[lock(ask, file, LockWait::Try).into()]);
    assert!(world.got(&peer).is_empty());
}

#[test]
fn what_was_made_and_not_sent_when_the_lease_ends_is_dropped() {
    let mut world = elected(Config::default());
    let mut peer = world.open(1);
    let serial = peer.serial();
    world.post(&mut peer, &[KeepAlive { serial, clock_us: 0 }.into()]);
    world.tick(LEASE);
    world.transmit();
    assert!(world.got(&peer).is_empty());
}

//= wire-spec.md#11-10-groups-of-servers
//= type=test
//# The grace of an elected server MUST begin when its lease of the group was granted, and not before.
//= wire-spec.md#11-10-groups-of-servers
//= type=test
//# What serves after a lapse, be it the same server, MUST start as after a crash: with nothing in memory, and a whole grace.
#[test]
fn grace_lasts_whole_from_the_grant_of_the_lease_of_the_group_at_each_take_over() {
    let mut world = elected(Config::default());
    let wait = world.server.config.wait();
    let mut peer = world.open(1);
    world.create(&mut peer, "job");
    // Won a while before the store could be read; then another one, in the midst of the first one's grace.
    for (since, passed) in [(ms(10), wait / 2), (ms(0), wait)] {
        world.disk.batches.clear();
        let disk = mem::take(&mut world.disk);
        let now = world.now;
        world = World::starting_at(disk, Config::default(), 8, now);
        elect(&mut world, since);
        let left = |world: &World| world.server.status(world.now).grace.map(|grace| grace.left);
        assert_eq!(left(&world), Some(wait - since));
        let step = ms(100);
        for _ in 0..=passed.as_millis() / step.as_millis() {
            world.server.renew_tenure(world.now, world.now.plus(LEASE));
            world.pass(step);
        }
        world.forget_calls();
        assert_eq!(left(&world).is_some(), passed < wait);
    }
}

#[test]
fn report_tells_of_as_many_servers_of_the_group_as_fit() {
    let mut world = elected(Config::default());
    let mut peer = world.open(1);
    let names: Vec<Vec<u8>> = (b'a'..b'p').map(|letter| vec![letter; 250]).collect();
    let other = Server::new(world.now, 0, STORE, Config::default(), [9; 32]).unwrap();
    world.server = mem::replace(&mut world.server, other).in_group(1, names);
    world.server.group_heard(vec![Some(world.now), None]);
    world.tick(ms(40));
    let ask = peer.ask_only();
    world.send(&mut peer, &[ServerStatus { ask }.into()]);
    let got = world.got_one(&peer);
    let Reply::ServerReport(report) = got.reply() else { panic!("{got:?}") };
    let told: Vec<_> = report.members.iter().map(|member| (member.name.0[0], member.heard_ms)).collect();
    assert_eq!((report.place, told), (2, vec![(b'a', 40), (b'b', 0), (b'c', GroupMember::NOT_HEARD), (b'd', GroupMember::NOT_HEARD)]));
    assert!(got.datagram <= usize::from(LIMIT));
}
