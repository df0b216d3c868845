//! Watches and ephemeral files, as an application has them: blocking, awaited, and at their ends.

use std::time::Duration;

use cistern_client::{Client, ObjectId, Seen, Status, WatchEvent, Watcher};

use crate::awaiting::block_on;
use crate::world::{LEASE, OWNER, PATIENCE, World, eventually};

fn next(watcher: &mut Watcher) -> Seen {
    watcher.wait_event(PATIENCE).expect("something comes")
}

fn watching(client: &Client, object: ObjectId) -> Watcher {
    let mut watcher = client.watcher();
    watcher.watch(object).unwrap();
    assert!(matches!(next(&mut watcher), Seen { what: WatchEvent::Certain { .. }, .. }));
    watcher
}

#[test]
fn changes_by_anybody_are_told_blocking_and_awaited() {
    let (world, one) = World::with_file("/a");
    let two = world.client();
    let object = one.stat("/a").wait().unwrap().object;
    let mut watcher = watching(&one, object);
    let version = two.put("/a", "text", OWNER).wait().unwrap().version;
    assert_eq!(next(&mut watcher), Seen { object, what: WatchEvent::Changed { version } });
    let version = one.put("/a", "more", OWNER).wait().unwrap().version;
    assert_eq!(block_on(watcher.event()), Seen { object, what: WatchEvent::Changed { version } });
    two.unlink("/a", false).wait().unwrap();
    assert_eq!(block_on(watcher.event()), Seen { object, what: WatchEvent::Gone });
    assert_eq!(one.lease().unwrap().watches, 0);
}

#[test]
fn a_watcher_that_does_not_look_keeps_the_newest_of_each_kind() {
    let (world, one) = World::with_file("/a");
    let two = world.client();
    let object = one.stat("/a").wait().unwrap().object;
    let mut watcher = watching(&one, object);
    let mut version = 0;
    for n in 0..20 {
        version = two.put("/a", format!("{n}"), OWNER).wait().unwrap().version;
    }
    let last = WatchEvent::Changed { version };
    eventually("the last change is told", || watcher.wait_event(Duration::ZERO).is_some_and(|seen| seen.what == last));
    assert_eq!(watcher.wait_event(Duration::ZERO), None);
}

#[test]
fn dropped_watchers_and_unwatched_objects_leave_no_watch_behind() {
    let (_world, one) = World::with_file("/a");
    let object = one.stat("/a").wait().unwrap().object;
    let mut watcher = watching(&one, object);
    watcher.unwatch(object);
    one.put("/a", "text", OWNER).wait().unwrap();
    assert_eq!(watcher.wait_event(Duration::from_millis(20)), None);
    watcher.watch(object).unwrap();
    drop(watcher);
    eventually("nothing is watched", || one.lease().unwrap().watches == 0);
}

#[test]
fn an_ephemeral_file_lives_as_long_as_its_client() {
    let world = World::new();
    let (one, two) = (world.client(), world.client());
    let made = one.create_ephemeral("/me", OWNER).wait().unwrap();
    assert!(made.is_ephemeral());
    assert_eq!(two.create_ephemeral("/me", OWNER).wait().unwrap_err().status(), Some(Status::EEXIST));
    let mut watcher = watching(&two, made.object);
    // Longer than a lease: it is renewed on its own account.
    assert_eq!(watcher.wait_event(2 * LEASE), None);
    assert!(two.stat("/me").wait().unwrap().is_ephemeral());
    drop(one);
    assert_eq!(next(&mut watcher), Seen { object: made.object, what: WatchEvent::Gone });
    two.create_ephemeral("/me", OWNER).wait().unwrap();
}

#[test]
fn a_server_that_is_gone_makes_nothing_certain_and_another_one_has_nothing_of_before() {
    let (mut world, one) = World::with_file("/a");
    let object = one.stat("/a").wait().unwrap().object;
    let mut watcher = watching(&one, object);
    world.stop();
    assert_eq!(next(&mut watcher).what, WatchEvent::Uncertain);
    world.restart();
    // A volatile server starts empty.
    eventually("the object is gone", || watcher.wait_event(Duration::from_millis(100)).is_some_and(|seen| seen.what == WatchEvent::Gone));
}
