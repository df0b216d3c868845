//! Starting: what an earlier start of the server has left in the store is read before anything is written.

use super::restart::held;
use super::world::{Peer, ROOT, STORE, World, create, ms};
use crate::principals::PrincipalId;
use crate::store::tests::disk::Disk;
use crate::store::{Counter, Key, NEW_CLUSTER, RESTORED, SessionRecord, StoreEvent, StoreWork};
use crate::{Config, Dropped, Server};
use cistern_link::Instant;
use cistern_wire::{AgentId, Bytes8, Claim, MakeRealm, Realm, Reply, SessionFate, SessionId, Status, Terms, Want};
use core::time::Duration;

/// The run of an advisory grant with the default settings.
const RUN: u64 = 1_024;

//= wire-spec.md#11-4-locks
//= type=test
//# All generations and tokens of a store MUST come from one counter that only grows, across restarts and restores.
#[test]
fn tokens_after_a_restart_are_above_those_before() {
    let config = || Config { volatile: true, ..Config::default() };
    let mut world = World::with(config());
    let mut newest = 0;
    for incarnation in 8..11 {
        // The former session is waited for.
        world.pass(config().wait());
        let mut peer = world.open(1);
        let file = world.create(&mut peer, &alloc::format!("job {incarnation}")).object;
        let generation = world.lock(&mut peer, file).0;
        assert!(generation > newest, "{generation} after {newest}");
        newest = generation + RUN - 1;
        let disk = core::mem::take(&mut world.disk);
        world = World::on(disk, config(), 7);
    }
}

#[test]
fn nothing_is_written_before_the_counters_were_read() {
    let now = Instant::new(1, 1);
    let mut server = Server::new(now, 0, STORE, Config::default(), [1; 32]).unwrap();
    let mut disk = Disk::default();
    loop {
        match server.poll_effect() {
            Some(StoreWork::Load(queries)) => disk.ask(queries),
            Some(StoreWork::Persist(batch)) => {
                assert!(disk.asked.is_empty(), "written before all was read: {batch:?}");
                assert!(!server.status(now).serving, "serves before its start is durable");
                let id = batch.id;
                disk.batches.push_back(batch);
                assert_eq!(disk.sync(), Some(id));
                server.store_event(now, StoreEvent::Durable(id));
                break;
            }
            None => {
                let loaded = disk.give(0);
                server.store_event(now, StoreEvent::Loaded(loaded));
            }
        }
    }
    assert!(server.status(now).serving);
    assert_eq!(disk.counter(Counter::Incarnation), 1);
}

/// A file made and locked, as soon as the server grants locks.
fn lock_when_allowed(world: &mut World, peer: &mut Peer, name: &str) -> Duration {
    let began = world.now;
    loop {
        let ask = peer.ask_only();
        world.send(peer, &[create(ask, name, Want::Nothing).into()]);
        match world.got_one(peer).reply() {
            Reply::Changed(_) => return world.now.since(began),
            Reply::Failed(failed) => assert_eq!(failed.status, Status::IN_GRACE),
            other => panic!("{other:?}"),
        }
        world.pass(ms(1));
    }
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# The server MUST have increased its incarnation durably before it answers its first datagram.
#[test]
fn nothing_is_answered_before_the_incarnation_is_durable() {
    let mut disk = Disk::default();
    disk.set_counter(Counter::Incarnation, 41);
    let mut world = World::starting(disk, Config::default(), 7);
    let mut peer = Peer::new(1);
    let hello = |world: &mut World, peer: &mut Peer| {
        let hello = peer.hello(&[]);
        world.post(peer, &[hello.into()]);
        world.got(peer).len()
    };
    assert_eq!(hello(&mut world, &mut peer), 0, "nothing is read yet");
    // All is read, and the first batch is under way.
    world.stalled = true;
    for _ in 0..3 {
        world.turn();
        while !world.disk.asked.is_empty() {
            let loaded = world.disk.give(0);
            world.server.store_event(world.now, StoreEvent::Loaded(loaded));
        }
    }
    assert_eq!((hello(&mut world, &mut peer), world.disk.batches.len()), (0, 1));
    assert_eq!(world.server.stats().dropped(Dropped::Starting), 2);
    world.stalled = false;
    world.turn();
    assert_eq!((world.disk.counter(Counter::Incarnation), world.server.identity().incarnation), (42, 42));
    world.open(1);
    world.crash();
    assert_eq!(world.server.identity().incarnation, 43);
}

/// T of the longest lease that a server with the defaults gives.
fn longest() -> Duration {
    let config = Config::default();
    config.wait_for(config.lease_max)
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# An empty store MUST wait T of the longest lease that the server gives before its first grant, unless told to be a new cluster.
#[test]
fn empty_store_waits_for_what_another_may_have_promised() {
    let mut world = World::on(Disk::default(), Config::default(), 7);
    let mut peer = world.open(1);
    assert!(world.server.status(world.now).grace.unwrap().blind);
    assert_eq!(lock_when_allowed(&mut world, &mut peer, "first"), longest());
    world.crash();
    assert!(!world.server.status(world.now).grace.unwrap().blind, "once");
    let from = world.come_back(&mut peer);
    world.complete(&mut peer, from);
    assert!(!world.in_grace());
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# An empty store MUST wait T of the longest lease that the server gives before its first grant, unless told to be a new cluster.
#[test]
fn restart_does_not_shorten_the_wait_of_an_empty_store() {
    let mut world = World::on(Disk::default(), Config::default(), 7);
    let mut peer = world.open(1);
    world.pass(longest() - ms(1));
    world.crash();
    // Also when the only agent that ever was is back.
    let from = world.come_back(&mut peer);
    world.complete(&mut peer, from);
    assert_eq!(lock_when_allowed(&mut world, &mut peer, "first"), longest());
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# An empty store MUST wait T of the longest lease that the server gives before its first grant, unless told to be a new cluster.
#[test]
fn new_cluster_does_not_wait() {
    let mut world = World::on(Disk::default(), Config { new_cluster: true, ..Config::default() }, 7);
    assert!(!world.in_grace());
    let mut peer = world.open(1);
    assert_eq!(lock_when_allowed(&mut world, &mut peer, "first"), Duration::ZERO);
    // The word counts for an empty store only.
    world.crash();
    assert!(world.in_grace());
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# An empty store MUST wait T of the longest lease that the server gives before its first grant, unless told to be a new cluster.
#[test]
fn store_that_was_made_for_a_new_cluster_does_not_wait() {
    let mut disk = Disk::default();
    disk.set_counter(Counter::Restored, NEW_CLUSTER);
    let mut world = World::on(disk, Config::default(), 7);
    assert!(!world.in_grace());
    let mut peer = world.open(1);
    assert_eq!(lock_when_allowed(&mut world, &mut peer, "first"), Duration::ZERO);
    world.crash();
    assert!(world.in_grace(), "the mark is gone");
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A restore MUST end all sessions, raise the store epoch, and wait a grace without reclaim.
#[test]
fn restored_copy_ends_all_sessions_and_numbers_everything_above_what_was() {
    let mut world = World::new();
    let (mut peer, mut other) = (world.open(1), world.open(2));
    let file = world.create(&mut peer, "job").object;
    world.lock(&mut peer, file);
    let copy = world.disk.values.clone();
    // What happens now is lost.
    let newest = world.create(&mut peer, "lost").object;
    let token = world.lock(&mut peer, newest);
    assert!(!world.server.evict(world.now, other.agent).is_empty());
    world.turn();
    world.disk.values = copy;
    world.disk.set_counter(Counter::Restored, 1);
    let (former, mut waited) = (peer.session, Duration::ZERO);
    for crashes in [true, false] {
        world.crash();
        assert_eq!(world.server.identity().epoch, 2, "raised once");
        assert!(!world.disk.values.contains_key(&Key::Session(former)));
        let told = world.open_again(&mut peer, &[(former, Claim::Reclaiming)]);
        assert_eq!(told[0].fate, SessionFate::Ended);
        let items = world.reclaim(&mut peer, former, &[held(file, token)]);
        assert_eq!(items[0].status, Status::NOT_HELD);
        if crashes {
            world.pass(ms(1_000));
        } else {
            waited = lock_when_allowed(&mut world, &mut peer, "after");
        }
    }
    assert_eq!(waited, Config::default().wait(), "the whole of it, since the last start");
    let after = world.create(&mut peer, "afterwards").object;
    assert!(after > newest && after.0 >> 56 == 2, "{after} after {newest}");
    let next = world.lock(&mut peer, after);
    assert!(next > token && next.0 >> 56 == 2, "{next} after {token}");
    world.crash();
    assert_eq!((world.server.identity().epoch, world.disk.counter(Counter::Restored)), (2, 0));
    world.open_again(&mut other, &[]);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# An empty store MUST wait T of the longest lease that the server gives before its first grant, unless told to be a new cluster.
#[test]
fn store_that_was_made_for_a_lost_one_waits_and_numbers_everything_above_its_epoch() {
    let mut disk = Disk::default();
    disk.set_counter(Counter::Epoch, 4);
    disk.set_counter(Counter::Restored, RESTORED);
    let mut world = World::on(disk, Config::default(), 7);
    assert!(world.in_grace());
    world.crash();
    assert!(world.in_grace() && world.server.identity().epoch == 5, "raised once");
    let mut peer = world.open(1);
    assert_eq!(lock_when_allowed(&mut world, &mut peer, "first"), longest());
    let file = world.create(&mut peer, "job").object;
    assert_eq!((file.0 >> 56, world.lock(&mut peer, file).0 >> 56), (5, 5));
}

#[test]
fn store_whose_sessions_cannot_be_read_is_not_served() {
    let mut disk = Disk::default();
    disk.set_counter(Counter::Incarnation, 1);
    disk.values.insert(Key::Session(SessionId(7)), (*b"nonsense").to_vec().into());
    let mut world = World::starting(disk, Config::default(), 7);
    world.turn();
    let status = world.server.status(world.now);
    assert!(!status.serving && status.failure.unwrap().contains("sessions"));
    assert!(world.disk.batches.is_empty(), "nothing was written");
}

#[test]
fn more_sessions_than_fit_one_page_are_all_known() {
    let mut disk = Disk::default();
    disk.set_counter(Counter::Incarnation, 1);
    let record = |n: u64| {
        let mut agent = [0; 16];
        agent[..8].copy_from_slice(&n.to_be_bytes());
        SessionRecord {
            principal: PrincipalId::ANYBODY,
            agent: AgentId(agent),
            incarnation: 1,
            boot: [0; 16],
            lease_us: 1,
            window: 1,
            unreclaimable: false,
            locks: None,
            start: 0,
            address: None,
            label: (*b"x").into(),
        }
    };
    for n in 1..=2_500_u64 {
        disk.values.insert(Key::Session(SessionId(n << 40)), record(n).to_bytes().into());
    }
    let world = World::on(disk, Config::default(), 7);
    assert_eq!(world.server.status(world.now).grace.unwrap().awaited, 2_500);
}

/// Makes a realm as soon as that is allowed; its number.
fn realm_when_allowed(world: &mut World, peer: &mut Peer, name: &str) -> Realm {
    loop {
        let ask = peer.ask_only();
        let name = Bytes8(name.as_bytes());
        world.send(peer, &[MakeRealm { ask, dir: ROOT, name, mode: 0o755, uid: 0, gid: 0, terms: Terms::NONE }.into()]);
        let got = world.got(peer);
        match got.last().map(|got| got.reply()) {
            Some(Reply::Changed(changed)) => return changed.effects.iter().find(|effect| effect.before == 0).unwrap().attr.realm,
            Some(Reply::Failed(failed)) => assert_eq!(failed.status, Status::IN_GRACE),
            other => panic!("{other:?}"),
        }
        world.pass(ms(1_000));
    }
}

#[test]
fn restored_store_gives_no_number_of_a_realm_again() {
    let config = Config { volatile: true, ..Config::default() };
    let mut world = World::with(config.clone());
    let mut peer = world.open(1);
    realm_when_allowed(&mut world, &mut peer, "first");
    let mut copy = Disk { values: world.disk.values.clone(), ..Disk::default() };
    let lost = realm_when_allowed(&mut world, &mut peer, "lost");
    copy.set_counter(Counter::Restored, RESTORED);
    let mut world = World::on(copy, config, 9);
    let mut peer = world.open(1);
    let made = realm_when_allowed(&mut world, &mut peer, "made");
    assert!(made > lost && made.0 >> 24 == 2, "{made:?} after {lost:?}");
}
