//! Calls: waited for, awaited, answered from cache, given up.

use std::time::Duration;

use cistern_client::{Client, Config, Error, Expect, Status, XattrRule};

use crate::awaiting::block_on;
use crate::world::{LEASE, OWNER, World};

#[test]
fn a_call_that_is_awaited_ends_as_one_that_is_waited_for() {
    let world = World::new();
    let client = world.client();
    client.put("/a", "one", OWNER).wait().unwrap();
    let (waited, awaited) = (client.read("/a").wait().unwrap(), block_on(client.read("/a")).unwrap());
    assert_eq!((&waited.data[..], &awaited), (&b"one"[..], &waited));
    let missing = block_on(client.stat("/b")).unwrap_err();
    assert_eq!(missing.status(), Some(Status::ENOENT));
    block_on(async {
        client.mkdir("/d", OWNER).await.unwrap();
        let all = [client.create("/d/x", true, OWNER), client.create("/d/y", true, OWNER)];
        for call in all {
            call.await.unwrap();
        }
    });
    assert_eq!(client.list("/d", false).wait().unwrap().entries.len(), 2);
}

#[test]
fn a_client_has_the_lease_that_it_asks_for_within_the_server_s_bounds() {
    let world = World::new();
    let with = |lease| Client::builder().server(world.address.to_string()).lease(lease).config(Config::default()).connect();
    let lease = |client: Client| client.lease().unwrap().lease;
    assert_eq!(lease(world.client()), LEASE, "what the server gives to whoever asks for none");
    assert_eq!(lease(with(Duration::from_millis(550)).unwrap()), Duration::from_millis(550));
    assert_eq!(lease(with(Duration::from_millis(100)).unwrap()), Duration::from_millis(500), "the shortest");
    assert_eq!(lease(with(Duration::from_secs(30)).unwrap()), LEASE, "a volatile server gives none above its own");
    let Err(Error::Settings(why)) = with(Duration::from_secs(61)) else { panic!("a lease that the agent would not believe in") };
    assert!(why.contains("lease-max, which is 60s"), "{why}");
}

#[test]
fn what_is_cached_is_not_shown_after_somebody_elses_change() {
    let world = World::new();
    let (reader, writer) = (world.client(), world.client());
    writer.put("/a", "0", OWNER).wait().unwrap();
    for round in 1..20 {
        // The second read is of the cache, if the server gave a lock for the first.
        reader.read("/a").wait().unwrap();
        reader.read("/a").wait().unwrap();
        let text = round.to_string();
        writer.put("/a", text.clone(), OWNER).wait().unwrap();
        assert_eq!(reader.read("/a").wait().unwrap().data, text.as_bytes(), "a change that is done is seen");
    }
    assert!(reader.lease().unwrap().cache_hits > 0, "and some of it came from the cache");
}

#[test]
fn a_loop_of_changes_that_lose_goes_on_until_one_wins() {
    let world = World::new();
    let client = world.client();
    let attr = client.put("/a", "", OWNER).wait().unwrap();
    let set = |version| {
        let expecting = client.expecting([Expect { object: attr.object, version }]);
        // More than one datagram carries: it is staged, and the server keeps no more than eight such values of a client.
        expecting.set_xattr("/a", "user.state", vec![7; 3_000], XattrRule::Any).wait()
    };
    for _ in 0..20 {
        assert_eq!(set(attr.version - 1).unwrap_err().status(), Some(Status::VERSION_CHANGED));
    }
    assert_eq!(set(attr.version).unwrap().version, attr.version + 1);
}

#[test]
fn a_call_that_is_waited_for_in_vain_goes_on() {
    let (_world, client) = World::with_file("/a");
    let held = client.lock("/a").wait().unwrap();
    let mut call = client.lock("/a").call();
    assert!(call.wait_at_most(Duration::from_millis(20)).is_none());
    held.release();
    call.wait().unwrap();
}

#[test]
fn a_server_that_is_not_there_is_told_after_the_time_that_commands_have() {
    let mut world = World::new();
    let config = Config { give_up_after: Duration::from_millis(150), ..Config::default() };
    let client = world.client_with(config.clone());
    world.stop();
    assert!(matches!(client.stat("/").wait(), Err(Error::Unreachable { .. })));
    let connected = Client::builder().server(world.address.to_string()).config(config).connect();
    assert!(matches!(connected, Err(Error::Unreachable { .. })));
}

#[test]
fn a_wait_limit_counts_from_the_call_though_nobody_answers() {
    let mut world = World::new();
    let client = world.client();
    world.stop();
    let limited = client.lock("/a").at_most(Duration::from_millis(50)).wait();
    assert!(matches!(limited, Err(Error::TimedOut { .. })), "{limited:?}");
}
