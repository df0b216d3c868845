//! How long grace lasts where a simple count would be wrong: shorter leases than before, copies, slow starts, many messages.

use super::restart::held;
use super::world::{World, lock, ms};
use crate::Config;
use crate::store::Counter;
use cistern_wire::{Claim, LockWait, Reply, SessionFate, Status};
use core::time::Duration;

/// Leases of before the start that are longer than those after it.
fn long() -> Config {
    Config::for_lease(Duration::from_secs(10))
}

#[test]
fn agent_that_does_not_know_that_its_reclaim_is_complete_is_waited_for_by_its_old_lease() {
    let mut world = World::with(long());
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    let generation = world.lock(&mut peer, file);
    world.crash_into(Config::default());
    let from = world.come_back(&mut peer);
    assert_eq!(world.reclaim(&mut peer, from, &[held(file, generation)])[0].status, Status::OK);
    world.complete(&mut peer, from);
    world.pass(ms(5_000));
    assert!(world.in_grace(), "the answer may be lost, and the agent use its old lease");
    // What was completed is deleted; the wait is not.
    world.crash();
    world.pass(long().wait() - ms(1));
    assert!(world.in_grace());
    world.pass(ms(1));
    assert!(!world.in_grace());
    // From here on nothing of the long leases is left.
    world.crash();
    world.pass(Config::default().wait());
    assert!(!world.in_grace());
}

#[test]
fn restored_copy_waits_by_the_lease_of_its_own_time_over_any_number_of_crashes() {
    let mut world = World::with(long());
    let mut peer = world.open(1);
    world.create(&mut peer, "job");
    world.disk.set_counter(Counter::Restored, 1);
    // A session that nobody knows of may have had the longest lease that there is.
    let config = Config { lease_max: long().lease, ..Config::default() };
    for _ in 0..2 {
        world.crash_into(config.clone());
        world.pass(long().wait() - ms(1));
        assert!(world.in_grace());
    }
    world.pass(ms(1));
    assert!(!world.in_grace());
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# Grace SHOULD be extended, up to a bound, while reclaims go on.
#[test]
fn start_that_takes_longer_than_the_lease_leaves_time_to_reclaim() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    let generation = world.lock(&mut peer, file);
    let config = Config::default();
    world.start_slowly(config.wait() + ms(500));
    world.pass(config.lease - ms(1));
    let from = world.come_back(&mut peer);
    assert_eq!(world.reclaim(&mut peer, from, &[held(file, generation)])[0].status, Status::OK);
    world.complete(&mut peer, from);
    assert!(!world.in_grace());
}

#[test]
fn eviction_in_grace_is_for_the_session_of_before_too() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    let generation = world.lock(&mut peer, file);
    world.crash();
    let from = world.come_back(&mut peer);
    assert_eq!(world.server.evict(world.now, peer.agent), [peer.session]);
    world.turn();
    world.quiet();
    let told = world.open_again(&mut peer, &[(from, Claim::Reclaiming)]);
    assert_eq!(told[0].fate, SessionFate::TimingOut);
    assert_eq!(world.reclaim(&mut peer, from, &[held(file, generation)])[0].status, Status::NOT_HELD);
    // Nor after one more start.
    world.crash();
    let told = world.open_again(&mut peer, &[(from, Claim::Reclaiming)]);
    assert_eq!(told[0].fate, SessionFate::TimingOut);
    let ask = peer.ask_only();
    world.send(&mut peer, &[lock(ask, file, LockWait::Try).into()]);
    assert!(matches!(world.got_one(&peer).reply(), Reply::Failed(failed) if failed.status == Status::IN_GRACE));
}
