//! Recipes: who is let in, who is told, and what is left when one that waits or holds goes.

use crate::awaiting::block_on;
use crate::world::{PATIENCE, World, eventually};
use cistern_client::{Client, ErrorKind, Leader, Observed, Slot};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Takes a slot in another thread.
fn taking(client: &Client, slots: u32) -> thread::JoinHandle<Slot> {
    let semaphore = client.semaphore("/s", slots);
    thread::spawn(move || semaphore.acquire_timeout(PATIENCE).wait().unwrap())
}

fn waiters(client: &Client) -> usize {
    client.locks().wait().unwrap().iter().filter(|row| !row.is_holder).count()
}

#[test]
fn as_many_have_a_slot_as_there_are_and_the_first_that_comes_back_goes_to_who_waits() {
    let world = World::new();
    let clients: Vec<_> = (0..6).map(|_| world.client()).collect();
    let mut held: Vec<_> = clients[..3].iter().map(|client| client.semaphore("/s", 3).acquire().wait().unwrap()).collect();
    let mut numbers: Vec<_> = held.iter().map(Slot::number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(clients[3].semaphore("/s", 3).try_acquire().wait().unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(clients[3].semaphore("/s", 3).acquire_timeout(Duration::from_millis(50)).wait().unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(waiters(&clients[0]), 0, "who has given up waits for no slot");
    for (place, next) in [(1, 3), (0, 4), (1, 5)] {
        let waiting = taking(&clients[next], 3);
        eventually("it waits for each slot", || waiters(&clients[0]) == 3);
        let given = held.remove(place);
        let (number, token) = (given.number(), given.guard().token());
        drop(given);
        let taken = waiting.join().unwrap();
        assert_eq!(taken.number(), number);
        assert!(taken.guard().token() > token && taken.guard().is_valid());
        eventually("it waits for no other", || waiters(&clients[0]) == 0);
        held.push(taken);
    }
}

#[test]
fn one_waiter_at_a_time_waits_for_slots_and_they_are_served_in_their_order() {
    let world = World::new();
    let holder = world.client();
    let mut slot = holder.semaphore("/s", 1).acquire().wait().unwrap();
    let (tell, told) = channel();
    let clients: Vec<_> = (0..4).map(|_| world.client()).collect();
    for (place, client) in clients.iter().enumerate() {
        let (semaphore, tell) = (client.semaphore("/s", 1), tell.clone());
        thread::spawn(move || tell.send((place, semaphore.acquire().wait().unwrap())).unwrap());
        // The first waits for the slot, the others for the first.
        eventually("it waits", || waiters(&holder) == place + 1);
    }
    let slots = || holder.locks().on("/s/0").wait().unwrap().len();
    assert_eq!(slots(), 2, "the holder, and one who waits");
    for place in 0..clients.len() {
        drop(slot);
        let (served, next) = told.recv_timeout(PATIENCE).unwrap();
        assert_eq!(served, place);
        slot = next;
    }
}

#[test]
fn a_slot_that_is_given_up_at_any_moment_is_left_with_nobody() {
    let world = World::new();
    let (one, two) = (world.client(), world.client());
    for round in 0..20 {
        let held = one.semaphore("/s", 2).acquire().wait().unwrap();
        let also = one.semaphore("/s", 2).acquire().wait().unwrap();
        let mut waiting = Box::pin(two.semaphore("/s", 2).acquire());
        let polled = thread::spawn(move || {
            let until = std::time::Instant::now() + Duration::from_micros(round * 97);
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            while std::time::Instant::now() < until && waiting.as_mut().poll(&mut cx).is_pending() {
                thread::yield_now();
            }
        });
        thread::sleep(Duration::from_micros(900));
        drop((held, also));
        polled.join().unwrap();
        eventually("nobody holds or waits", || two.lease().unwrap().holders == 0);
    }
    assert!(one.semaphore("/s", 2).try_acquire().wait().is_ok() || one.semaphore("/s", 2).acquire_timeout(PATIENCE).wait().is_ok());
}

#[test]
fn another_number_of_slots_than_that_of_the_first_is_refused() {
    let world = World::new();
    let client = world.client();
    drop(client.semaphore("/s", 3).acquire().wait().unwrap());
    let refused = client.semaphore("/s", 4).acquire().wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("\"3\" slots"), "{refused}");
    assert_eq!(client.semaphore("/s", 0).acquire().wait().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(client.semaphore("/nowhere/s", 1).acquire().wait().unwrap_err().kind(), ErrorKind::NotFound);
}

fn leader(observed: Observed) -> Leader {
    match observed {
        Observed::Leader(leader) => leader,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_leader_names_itself_and_its_successor_does_when_it_has_gone() {
    let world = World::new();
    let (one, two, other) = (world.client(), world.client(), world.client());
    let mut first = one.election("/e").campaign("one").wait().unwrap();
    let mut observer = other.election("/e").observe().wait().unwrap();
    let seen = leader(observer.wait_next().unwrap());
    assert_eq!((&seen.value[..], seen.token), (&b"one"[..], first.guard().token()));
    first.proclaim_and_wait("one at noon").unwrap();
    assert_eq!(&leader(observer.wait_next().unwrap()).value[..], b"one at noon");
    let election = two.election("/e");
    let candidate = thread::spawn(move || block_on(election.campaign("two")).unwrap());
    eventually("two waits", || waiters(&other) == 1);
    drop(first);
    let mut second = candidate.join().unwrap();
    let seen = loop {
        // Between the two there may be nobody.
        if let Observed::Leader(leader) = observer.wait_next().unwrap() {
            break leader;
        }
    };
    assert_eq!((&seen.value[..], seen.token), (&b"two"[..], second.guard().token()));
    second.proclaim_and_wait("two").unwrap();
    drop(second);
    assert_eq!(observer.wait_next().unwrap(), Observed::Nobody);
    assert_eq!(other.election("/e").leader().wait().unwrap(), None);
}

#[test]
fn a_leader_that_was_overtaken_names_itself_no_more() {
    let world = World::new();
    let (one, two) = (world.client(), world.client());
    let mut first = one.election("/e").campaign("one").wait().unwrap();
    // Its lock is gone, and its file is not: as with one that was stopped while the server took its lock away.
    let mut second = two.election("/e").campaign("two");
    let evicted = one.close();
    let led = std::future::poll_fn(|cx| std::pin::Pin::new(&mut second).poll(cx));
    let led = block_on(led).unwrap();
    drop(evicted);
    assert!(first.proclaim_and_wait("one again").is_err());
    assert!(!first.guard().is_valid());
    drop(first);
    let seen = two.election("/e").leader().wait().unwrap().unwrap();
    assert_eq!((&seen.value[..], seen.token), (&b"two"[..], led.guard().token()));
}
