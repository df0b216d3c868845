//! The end of a client: what runs ends, what is held is free.

use std::time::Duration;

use cistern_client::{Error, GuardState, LockEvent};

use crate::world::{OWNER, PATIENCE, World};

#[test]
fn closing_ends_what_runs_loses_what_is_held_and_frees_it_for_others() {
    let (world, client) = World::with_file("/a");
    client.create("/b", true, OWNER).wait().unwrap();
    let other = world.client();
    let held = client.lock("/a").wait().unwrap();
    let theirs = other.lock("/b").wait().unwrap();
    let waiting = client.lock("/b").call();
    let waiter = std::thread::spawn(move || waiting.wait());
    std::thread::sleep(Duration::from_millis(20));
    client.close(PATIENCE).unwrap();
    assert!(matches!(waiter.join().unwrap(), Err(Error::Closed)));
    assert_eq!((held.state(), held.wait_event(PATIENCE)), (GuardState::Lost, Some(LockEvent::Lost)));
    assert!(matches!(client.ping().wait(), Err(Error::Closed)));
    other.lock("/a").at_most(PATIENCE).wait().unwrap();
    assert!(theirs.is_valid());
    client.close(Duration::MAX).unwrap();
}

#[test]
fn closing_waits_no_longer_than_it_is_told_for_a_server_that_is_gone() {
    let mut world = World::new();
    let client = world.client();
    world.stop();
    assert!(matches!(client.close(Duration::from_millis(20)), Err(Error::Unreachable { .. })));
    // After `close_within` the agent gives up by itself.
    client.close(Duration::MAX).unwrap();
}

#[test]
fn the_last_clone_guard_or_call_closes_the_session() {
    let (world, client) = World::with_file("/a");
    let clone = client.clone();
    let guard = clone.lock("/a").wait().unwrap();
    let call = client.stat("/a");
    drop((client, clone));
    call.wait().unwrap();
    assert!(guard.is_valid());
    let other = world.client();
    let waiting = other.lock("/a").at_most(PATIENCE).call();
    drop(guard);
    waiting.wait().unwrap();
}
