//! Locks: who has them, who is told what, and that none is left with nobody.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use cistern_client::{ErrorKind, LockState, Token};

use crate::awaiting::block_on;
use crate::world::{PATIENCE, World, eventually};

#[test]
fn a_lock_goes_from_guard_to_guard_with_ever_larger_tokens() {
    let (world, one) = World::with_file("/a");
    let two = world.client();
    let mut last = Token(0);
    for round in 0..10 {
        let client = if round % 3 == 0 { &two } else { &one };
        let guard = block_on(client.lock("/a").into_future()).unwrap();
        assert!(guard.token() > last && guard.is_valid());
        last = guard.token();
    }
    let guard = one.lock("/a").wait().unwrap();
    let refused = two.lock("/a").try_once().wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Locked);
    assert_eq!(two.lock("/a").timeout(Duration::from_millis(30)).wait().unwrap_err().kind(), ErrorKind::TimedOut);
    drop(guard);
    two.lock("/a").timeout(PATIENCE).wait().unwrap();
}

#[test]
fn an_open_file_is_locked_whatever_its_name_is_by_then() {
    let (_world, client) = World::with_file("/a");
    let file = client.open("/a").wait().unwrap();
    client.rename("/a", "/b").wait().unwrap();
    let guard = file.lock().try_once().wait().unwrap();
    assert_eq!(guard.file(), file.id());
    assert_eq!(client.lock("/b").try_once().wait().unwrap_err().kind(), ErrorKind::Locked);
    drop(guard);
    client.lock("/b").try_once().wait().unwrap();
}

#[test]
fn a_lock_request_dropped_at_any_moment_leaves_the_lock_with_nobody() {
    let (world, one) = World::with_file("/a");
    let two = world.client();
    for round in 0..40 {
        let held = one.lock("/a").timeout(PATIENCE).wait().unwrap();
        let call = two.lock("/a").start();
        let waiting = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(round * 53));
            drop(call);
        });
        std::thread::sleep(Duration::from_micros(900));
        drop(held);
        waiting.join().unwrap();
        eventually("nobody holds or waits", || two.lease().unwrap().holders == 0);
    }
    assert!(one.lock("/a").timeout(PATIENCE).wait().unwrap().is_valid());
    assert!(two.lock("/a").timeout(PATIENCE).wait().unwrap().is_valid());
}

#[test]
fn a_lock_that_came_and_was_never_looked_at_is_given_back() {
    let (world, one) = World::with_file("/a");
    let two = world.client();
    let call = two.lock("/a").start();
    eventually("it is granted", || two.lease().unwrap().holders == 1);
    drop(call);
    assert_eq!(two.lease().unwrap().holders, 0);
    one.lock("/a").timeout(PATIENCE).wait().unwrap();
}

#[test]
fn a_lock_whose_file_is_made_is_asked_for_though_nobody_waits_for_it() {
    let world = World::new();
    let (one, two) = (world.client(), world.client());
    let call = two.lock("/new").create().start();
    eventually("it is granted", || two.lease().unwrap().holders == 1);
    assert_eq!(one.lock("/new").try_once().wait().unwrap_err().kind(), ErrorKind::Locked);
    drop(call);
    one.lock("/new").timeout(PATIENCE).wait().unwrap();
}

#[test]
fn a_holder_is_told_that_its_lock_is_in_doubt_and_then_that_it_is_lost() {
    let (mut world, client) = World::with_file("/a");
    let guard = client.lock("/a").wait().unwrap();
    assert_eq!(guard.events().next_timeout(Duration::ZERO), None);
    world.stop();
    assert_eq!(guard.events().next_timeout(PATIENCE), Some(LockState::Suspect));
    assert_eq!(block_on(guard.events().next()), Some(LockState::Uncertain));
    assert_eq!((guard.state(), guard.valid_until(), guard.remaining()), (LockState::Uncertain, None, Duration::ZERO));
    world.restart().unwrap();
    assert_eq!(guard.events().next_timeout(PATIENCE), Some(LockState::Lost));
    assert_eq!(guard.state(), LockState::Lost);
    assert!(!guard.is_valid());
}

#[test]
fn everybody_who_awaits_an_event_of_a_lock_is_woken() {
    let (mut world, client) = World::with_file("/a");
    let guard = client.lock("/a").wait().unwrap();
    std::thread::scope(|scope| {
        // Suspect, Uncertain and Lost: one for each.
        let told: Vec<_> = (0..3).map(|_| scope.spawn(|| block_on(guard.events().next()))).collect();
        std::thread::sleep(Duration::from_millis(20));
        world.stop();
        eventually("the lock is uncertain", || guard.state() == LockState::Uncertain);
        world.restart().unwrap();
        let mut events: Vec<_> = told.into_iter().map(|thread| thread.join().unwrap()).collect();
        events.retain(|event| !matches!(event, Some(LockState::Suspect)));
        assert_eq!(events.len(), 2);
        assert!(events.contains(&Some(LockState::Uncertain)) && events.contains(&Some(LockState::Lost)));
    });
}

#[test]
fn one_holds_at_a_time_however_requests_are_limited_dropped_and_tried() {
    let (world, one) = World::with_file("/a");
    let clients = [one, world.client(), world.client()];
    let (inside, last) = (AtomicUsize::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..6_usize {
            let client = &clients[thread % 3];
            let (inside, last) = (&inside, &last);
            scope.spawn(move || {
                for round in 0..60 {
                    let request = client.lock("/a");
                    let got = match (round + thread) % 5 {
                        0 => request.try_once().wait().ok(),
                        1 => request.timeout(Duration::from_micros(300 * round as u64)).wait().ok(),
                        2 => request.start().wait_timeout(Duration::from_micros(100 * round as u64)).map(Result::unwrap),
                        _ => Some(request.timeout(PATIENCE).wait().unwrap()),
                    };
                    let Some(guard) = got else { continue };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "somebody else is inside");
                    assert!(last.swap(guard.token().0, Ordering::SeqCst) < guard.token().0);
                    std::thread::sleep(Duration::from_micros(50));
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    for client in &clients {
        eventually("nobody holds or waits", || client.lease().unwrap().holders == 0);
    }
}
