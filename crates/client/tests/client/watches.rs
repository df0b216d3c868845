//! Watches and ephemeral files, as an application has them: blocking, awaited, and at their ends.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;

use cistern_client::{Client, ErrorKind, FileId, WatchEvent, Watcher};

use crate::awaiting::block_on;
use crate::world::{LEASE, PATIENCE, World, eventually};

fn next(watcher: &Watcher) -> WatchEvent {
    watcher.events().next_timeout(PATIENCE).expect("something comes")
}

fn watching(client: &Client, file: FileId) -> Watcher {
    let mut watcher = client.watcher();
    watcher.watch(file).unwrap();
    assert!(matches!(next(&watcher), WatchEvent::Current(version) if version.file == file));
    watcher
}

#[test]
fn changes_by_anybody_are_told_blocking_and_awaited() {
    let (world, one) = World::with_file("/a");
    let two = world.client();
    let file = one.metadata("/a").wait().unwrap().id();
    let watcher = watching(&one, file);
    let version = two.write("/a", "text").wait().unwrap().version();
    assert_eq!(next(&watcher), WatchEvent::Changed(version));
    let version = one.write("/a", "more").wait().unwrap().version();
    assert_eq!(block_on(watcher.events().next()), Some(WatchEvent::Changed(version)));
    two.remove_file("/a").wait().unwrap();
    assert_eq!(block_on(watcher.events().next()), Some(WatchEvent::Removed(file)));
    assert_eq!(block_on(watcher.events().next()), None, "nothing comes after that");
    assert_eq!(one.lease().unwrap().watches, 0);
}

#[test]
fn a_stream_gives_the_same_events_and_ends_with_them() {
    let (world, one) = World::with_file("/a");
    let file = one.metadata("/a").wait().unwrap().id();
    let watcher = watching(&one, file);
    let mut events = watcher.events();
    let mut next = || block_on(poll_fn(|cx| Stream::poll_next(Pin::new(&mut events), cx)));
    let two = world.client();
    let version = two.write("/a", "text").wait().unwrap().version();
    assert_eq!(next(), Some(WatchEvent::Changed(version)));
    two.remove_file("/a").wait().unwrap();
    assert_eq!((next(), next()), (Some(WatchEvent::Removed(file)), None));
}

#[test]
fn a_watcher_that_does_not_look_keeps_the_newest_of_each_kind() {
    let (world, one) = World::with_file("/a");
    let two = world.client();
    let file = one.metadata("/a").wait().unwrap().id();
    let watcher = watching(&one, file);
    let mut version = one.metadata("/a").wait().unwrap().version();
    for n in 0..20 {
        version = two.write("/a", format!("{n}")).wait().unwrap().version();
    }
    let last = WatchEvent::Changed(version);
    eventually("the last change is told", || watcher.events().next_timeout(Duration::ZERO).is_some_and(|event| event == last));
    assert_eq!(watcher.events().next_timeout(Duration::ZERO), None);
}

#[test]
fn dropped_watchers_and_unwatched_objects_leave_no_watch_behind() {
    let (_world, one) = World::with_file("/a");
    let file = one.metadata("/a").wait().unwrap().id();
    let mut watcher = watching(&one, file);
    watcher.unwatch(file);
    one.write("/a", "text").wait().unwrap();
    assert_eq!(watcher.events().next_timeout(Duration::from_millis(20)), None);
    watcher.watch(file).unwrap();
    drop(watcher);
    eventually("nothing is watched", || one.lease().unwrap().watches == 0);
}

#[test]
fn an_ephemeral_file_lives_as_long_as_its_client() {
    let world = World::new();
    let (one, two) = (world.client(), world.client());
    let made = one.create_new("/me").ephemeral().wait().unwrap();
    assert_eq!(two.create_new("/me").ephemeral().wait().unwrap_err().kind(), ErrorKind::AlreadyExists);
    let watcher = watching(&two, made.file);
    // Longer than a lease: it is renewed on its own account.
    assert_eq!(watcher.events().next_timeout(2 * LEASE), None);
    assert!(two.metadata("/me").wait().unwrap().is_ephemeral());
    drop(one);
    assert_eq!(next(&watcher), WatchEvent::Removed(made.file));
    two.create_new("/me").ephemeral().wait().unwrap();
}

#[test]
fn a_server_that_is_gone_makes_nothing_certain_and_another_one_has_nothing_of_before() {
    let (mut world, one) = World::with_file("/a");
    let file = one.metadata("/a").wait().unwrap().id();
    let watcher = watching(&one, file);
    world.stop();
    assert_eq!(next(&watcher), WatchEvent::Uncertain(file));
    world.restart().unwrap();
    // A volatile server starts empty.
    eventually("the object is gone", || {
        watcher.events().next_timeout(Duration::from_millis(100)).is_some_and(|event| event == WatchEvent::Removed(file))
    });
}
