//! The end of a client: what runs ends, what is held is free.

use std::time::Duration;

use cistern_client::{ErrorKind, LockState};

use crate::awaiting::block_on;
use crate::world::{PATIENCE, World};

#[test]
fn closing_ends_what_runs_loses_what_is_held_and_frees_it_for_others() {
    let (world, client) = World::with_file("/a");
    client.create_new("/b").wait().unwrap();
    let other = world.client();
    let held = client.lock("/a").wait().unwrap();
    let theirs = other.lock("/b").wait().unwrap();
    let waiting = client.lock("/b").start();
    let waiter = std::thread::spawn(move || waiting.wait());
    std::thread::sleep(Duration::from_millis(20));
    client.close().wait().unwrap();
    assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!((held.state(), held.events().next_timeout(PATIENCE)), (LockState::Lost, Some(LockState::Lost)));
    assert_eq!(held.events().next_timeout(PATIENCE), None, "nothing comes after that");
    assert_eq!(held.release().wait().unwrap_err().kind(), ErrorKind::LeaseExpired);
    assert_eq!(client.ping().wait().unwrap_err().kind(), ErrorKind::Closed);
    other.lock("/a").timeout(PATIENCE).wait().unwrap();
    assert!(theirs.is_valid());
    block_on(client.close()).unwrap();
}

#[test]
fn closing_waits_no_longer_than_it_is_told_for_a_server_that_is_gone() {
    let mut world = World::new();
    let client = world.client();
    world.stop();
    assert!(client.close().wait_timeout(Duration::from_millis(20)).is_none());
    // After `close_within` the agent gives up by itself.
    client.close().wait().unwrap();
}

#[test]
fn the_last_clone_guard_or_call_closes_the_session() {
    let (world, client) = World::with_file("/a");
    let clone = client.clone();
    let guard = clone.lock("/a").wait().unwrap();
    let call = client.metadata("/a").start();
    drop((client, clone));
    call.wait().unwrap();
    assert!(guard.is_valid());
    let other = world.client();
    let waiting = other.lock("/a").timeout(PATIENCE).start();
    drop(guard);
    waiting.wait().unwrap();
}
