//! Calls: waited for, awaited, answered from cache, given up.

use std::future::IntoFuture;
use std::path::Path;
use std::time::Duration;

use cistern_client::{Applied, Client, Config, ErrorKind, Version};

use crate::awaiting::block_on;
use crate::world::{LEASE, PATIENCE, World};

#[test]
fn a_call_that_is_awaited_ends_as_one_that_is_waited_for() {
    let world = World::new();
    let client = world.client();
    client.write("/a", "one").wait().unwrap();
    let (waited, awaited) = (client.read("/a").wait().unwrap(), block_on(client.read("/a").into_future()).unwrap());
    assert_eq!((&waited.bytes[..], &awaited), (&b"one"[..], &waited));
    let missing = block_on(client.metadata("/b").into_future()).unwrap_err();
    assert_eq!((missing.kind(), missing.code(), missing.path()), (ErrorKind::NotFound, "ENOENT", Some(Path::new("/b"))));
    block_on(async {
        client.create_dir("/d").await.unwrap();
        let all = [client.create_new("/d/x"), client.create_new("/d/y")];
        for call in all {
            call.await.unwrap();
        }
    });
    assert_eq!(client.read_dir("/d").wait().unwrap().entries.len(), 2);
}

#[test]
fn a_client_has_the_lease_that_it_asks_for_within_the_server_s_bounds() {
    let world = World::new();
    let with = |lease| Client::builder().insecure().server(world.address.to_string()).lease(lease).config(Config::default()).connect();
    let lease = |client: Client| client.lease().unwrap().lease;
    assert_eq!(lease(world.client()), LEASE, "what the server gives to whoever asks for none");
    assert_eq!(lease(with(Duration::from_millis(550)).unwrap()), Duration::from_millis(550));
    assert_eq!(lease(with(Duration::from_millis(100)).unwrap()), Duration::from_millis(500), "the shortest");
    assert_eq!(lease(with(Duration::from_secs(30)).unwrap()), LEASE, "a volatile server gives none above its own");
    let error = with(Duration::from_secs(61)).unwrap_err();
    let why = error.to_string();
    assert!(error.kind() == ErrorKind::Configuration && std::error::Error::source(&error).is_some());
    assert!(why.contains("lease-max, which is 60s"), "{why}");
}

#[test]
fn what_is_cached_is_not_shown_after_somebody_elses_change() {
    let world = World::new();
    let (reader, writer) = (world.client(), world.client());
    writer.write("/a", "0").wait().unwrap();
    for round in 1..20 {
        // The second read is of the cache, if the server gave a lock for the first.
        reader.read("/a").wait().unwrap();
        reader.read("/a").wait().unwrap();
        let text = round.to_string();
        writer.write("/a", text.clone()).wait().unwrap();
        assert_eq!(reader.read("/a").wait().unwrap().bytes, text.as_bytes(), "a change that is done is seen");
    }
    assert!(reader.lease().unwrap().cache_hits > 0, "and some of it came from the cache");
}

#[test]
fn a_loop_of_changes_that_lose_goes_on_until_one_wins() {
    let world = World::new();
    let client = world.client();
    let now = client.write("/a", "").wait().unwrap().version();
    // More than one datagram carries: it is staged, and the server keeps no more than eight such values of a client.
    let set = |version| client.set_xattr("/a", "user.state", vec![7; 3_000]).if_version(version).wait();
    for _ in 0..20 {
        let lost = set(Version { number: now.number - 1, ..now }).unwrap_err();
        assert_eq!((lost.kind(), lost.applied()), (ErrorKind::VersionChanged, Applied::No));
    }
    assert_eq!(set(now).unwrap().version().number, now.number + 1);
}

#[test]
fn updates_from_many_sides_lose_nothing_and_make_what_is_missing() {
    let world = World::new();
    let clients = [world.client(), world.client()];
    let more = |old: &[u8]| {
        let count: u32 = if old.is_empty() { 0 } else { std::str::from_utf8(old).unwrap().parse().unwrap() };
        (count + 1).to_string().into()
    };
    std::thread::scope(|scope| {
        for (n, client) in clients.iter().chain(&clients).enumerate() {
            scope.spawn(move || {
                for _ in 0..10 {
                    let update = client.update("/count", more);
                    if n % 2 == 0 { update.wait() } else { block_on(update.into_future()) }.unwrap();
                }
            });
        }
    });
    assert_eq!(clients[0].read("/count").wait().unwrap().bytes, "40");
}

#[test]
fn a_change_that_is_guarded_is_made_only_while_the_lock_is_held() {
    let (world, client) = World::with_file("/a");
    let guard = client.lock("/lock").create().wait().unwrap();
    client.write("/a", "mine").guarded_by(&guard).wait().unwrap();
    client.rename("/a", "/b").guarded_by(&guard).wait().unwrap();
    client.batch().add(client.remove_file("/b")).add(client.create_dir("/d").guarded_by(&guard)).wait().unwrap();
    let other = client.lock("/other").create().wait().unwrap();
    let both = client.remove_dir("/d").guarded_by(&guard).guarded_by(&other).wait().unwrap_err();
    assert_eq!(both.kind(), ErrorKind::InvalidInput, "a change has one guard");
    let remove = client.remove_dir("/d").guarded_by(&guard);
    guard.release().wait().unwrap();
    assert_eq!(remove.wait().unwrap_err().kind(), ErrorKind::StaleGuard);
    assert!(world.client().metadata("/d").wait().unwrap().is_dir());
}

#[test]
fn a_file_that_must_be_missing_is_not_written_from_somewhere_in_it() {
    let (_world, client) = World::with_file("/a");
    let now = client.metadata("/a").wait().unwrap().version();
    for (write, why) in [
        (client.write("/b", "text").at(3), "bytes before it stay"),
        (client.write("/b", "text").at(0), "bytes after it stay"),
        (client.write("/b", "text").if_version(now), "a file has a version"),
        (client.open("/a").wait().unwrap().write("text"), "an opened file is there"),
    ] {
        assert_eq!(write.if_absent().wait().unwrap_err().kind(), ErrorKind::InvalidInput, "{why}");
    }
    assert_eq!(client.metadata("/b").wait().unwrap_err().kind(), ErrorKind::NotFound);
    client.write("/b", "text").if_absent().wait().unwrap();
}

#[test]
fn an_operation_that_is_given_up_in_time_says_so() {
    let (_world, client) = World::with_file("/a");
    let held = client.lock("/a").wait().unwrap();
    let late = client.lock("/a").wait_timeout(Duration::from_millis(20)).unwrap_err();
    assert_eq!((late.kind(), late.is_retryable()), (ErrorKind::TimedOut, true));
    let canceled = client.lock("/a").start().cancel().unwrap_err();
    assert_eq!(canceled.kind(), ErrorKind::Canceled);
    // That the file is there is known here, so the first half of it has ended at once.
    let canceled = client.lock("/a").create().start().cancel().unwrap_err();
    assert_eq!(canceled.kind(), ErrorKind::Canceled);
    held.release().wait().unwrap();
    client.lock("/a").wait_timeout(PATIENCE).unwrap();
}

#[test]
fn a_call_that_is_waited_for_in_vain_goes_on() {
    let (_world, client) = World::with_file("/a");
    let held = client.lock("/a").wait().unwrap();
    let mut call = client.lock("/a").start();
    assert!(call.wait_timeout(Duration::from_millis(20)).is_none());
    held.release().wait().unwrap();
    call.wait().unwrap();
}

#[test]
fn a_server_that_is_not_there_is_told_after_the_time_that_commands_have() {
    let mut world = World::new();
    let config = Config { give_up_after: Duration::from_millis(150), ..Config::default() };
    let client = world.client_with(config.clone());
    world.stop();
    assert_eq!(client.metadata("/").wait().unwrap_err().kind(), ErrorKind::Unreachable);
    let connected = Client::builder().insecure().server(world.address.to_string()).config(config).connect();
    assert_eq!(connected.unwrap_err().kind(), ErrorKind::Unreachable);
}

#[test]
fn a_wait_limit_counts_from_the_call_though_nobody_answers() {
    let mut world = World::new();
    let client = world.client();
    world.stop();
    let limited = client.lock("/a").timeout(Duration::from_millis(50)).wait();
    assert_eq!(limited.unwrap_err().kind(), ErrorKind::TimedOut);
}
