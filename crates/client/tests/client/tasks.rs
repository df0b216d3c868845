//! Tasks that run, or go, in the very moment in which they are woken: by then the library holds no lock of its own.

use std::sync::mpsc;
use std::time::Duration;

use crate::awaiting::{Doomed, Inline};
use crate::world::{PATIENCE, World, eventually};

#[test]
fn a_task_may_run_where_it_is_woken_and_use_the_client_there() {
    let (_world, client) = World::with_file("/a");
    let (done, ended) = mpsc::channel();
    Inline::start(async move {
        let guard = client.lock("/a").await.unwrap();
        let metadata = client.metadata("/a").await.unwrap();
        done.send((guard.token().0 > 0, metadata.id() == guard.file())).unwrap();
    });
    assert_eq!(ended.recv_timeout(PATIENCE), Ok((true, true)));
}

#[test]
fn a_task_that_goes_when_it_is_woken_takes_its_calls_with_it() {
    let (world, client) = World::with_file("/a");
    let other = world.client();
    let held = other.lock("/a").wait().unwrap();
    let task = client.clone();
    Doomed::start(async move {
        let _guard = task.lock("/a").await;
    });
    std::thread::sleep(Duration::from_millis(20));
    drop(held);
    eventually("the lock has come and gone", || {
        let lease = client.lease().unwrap();
        lease.advisory_locks == 1 && lease.holders == 0
    });
    other.lock("/a").timeout(PATIENCE).wait().unwrap();
}
