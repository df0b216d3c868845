//! Starting: what an earlier start of the server has left in the store is read before anything is written.

use super::world::{STORE, World};
use crate::store::disk::Disk;
use crate::store::{Counter, StoreEvent, StoreWork};
use crate::{Config, Server};
use cistern_link::Instant;

/// The run of an advisory grant with the default settings.
const RUN: u64 = 1_024;

//= wire-spec.md#11-4-locks
//= type=test
//# The server MUST take all generations and tokens of a store from one counter that only grows, across restarts and restores.
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
