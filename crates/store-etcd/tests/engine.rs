//! The store on real etcds: what survives which loss, and who is thrown out. Skipped, with a printed reason, where etcd is not installed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use bytes::Bytes;
use cistern_server::store::{Answer, Batch, Key, Query, StoreEvent, StoreWork};
use cistern_store::Problem;
use cistern_store_etcd::{EtcdStore, ServerList, StoppedEtcd, Target, create, probe};
use cistern_testkit::Etcds;
use cistern_wire::{ObjectId, StoreId};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

fn made(etcds: &Etcds) -> Target {
    let target: Target = etcds.store("test").parse().unwrap();
    create(&target, StoreId([7; 16]), []).unwrap();
    target
}

fn open(target: &Target, name: &str) -> EtcdStore {
    let store = EtcdStore::open(target, name, || {}).unwrap();
    assert_eq!(store.id(), StoreId([7; 16]));
    store
}

fn block(n: u32) -> Key {
    Key::Block(ObjectId(1), n)
}

fn batch(id: u64, keys: std::ops::Range<u32>, len: usize) -> StoreWork {
    let value = |n: u32| (block(n), Some(Bytes::from(format!("{id}.{n}").repeat(len))));
    StoreWork::Persist(Batch { id, writes: keys.map(value).collect() })
}

/// Waits until a batch is durable; how long that took.
fn durable(store: &mut EtcdStore, id: u64) -> Duration {
    let from = Instant::now();
    loop {
        match store.event_within(LONG) {
            Some(StoreEvent::Durable(batch)) if batch >= id => return from.elapsed(),
            Some(StoreEvent::Durable(_)) => {}
            other => panic!("batch {id} is not durable: {other:?}"),
        }
    }
}

fn value(store: &mut EtcdStore, key: Key) -> Option<Bytes> {
    store.take(StoreWork::Load(vec![Query::Get(key)]));
    match store.event_within(LONG) {
        Some(StoreEvent::Loaded(loaded)) => match loaded.answer {
            Answer::Value(value) => value,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_durable_is_there_after_a_restart_however_large_it_was() {
    let Some(etcds) = Etcds::start(1, &[]) else { return };
    let target = made(&etcds);
    assert!(create(&target, StoreId([8; 16]), []).unwrap_err().what.contains("already"));
    let mut store = open(&target, "first");
    store.take(batch(1, 0..3, 1));
    // Two parts by operations, seven by bytes.
    store.take(batch(2, 10..210, 1));
    store.take(batch(3, 1_000..1_100, 8_192));
    durable(&mut store, 3);
    drop(store);
    let mut store = open(&target, "second");
    for (n, id, len) in [(0, 1, 1), (10, 2, 1), (209, 2, 1), (1_000, 3, 8_192), (1_099, 3, 8_192)] {
        assert_eq!(value(&mut store, block(n)), Some(Bytes::from(format!("{id}.{n}").repeat(len))));
    }
    assert_eq!(value(&mut store, block(4)), None);
    let stopped = StoppedEtcd::open(&target).unwrap();
    assert_eq!((stopped.iter().map(Result::unwrap).count(), stopped.is_restored()), (303, false));
}

#[test]
fn pages_are_in_order_and_say_when_they_are_the_last() {
    let Some(etcds) = Etcds::start(1, &[]) else { return };
    let target = made(&etcds);
    let mut store = open(&target, "one");
    let entries = |dir: u64, count: u32| {
        (0..count).map(move |n| (Key::Entry(ObjectId(dir), format!("{n:05}").into_bytes().into()), Some(Bytes::from_static(b"v"))))
    };
    store.take(StoreWork::Persist(Batch { id: 1, writes: entries(1, 2).chain(entries(2, 2_500)).chain(entries(3, 1)).collect() }));
    durable(&mut store, 1);
    let mut page = |after: &str, limit| {
        store.take(StoreWork::Load(vec![Query::Scan { dir: ObjectId(2), after: after.as_bytes().into(), limit }]));
        let Some(StoreEvent::Loaded(loaded)) = store.event_within(LONG) else { panic!("no page") };
        let Answer::Entries { entries, end } = loaded.answer else { panic!("no entries") };
        let name = |entry: &(Box<[u8]>, Bytes)| String::from_utf8(entry.0.to_vec()).unwrap();
        (entries.len(), entries.first().map(name), entries.last().map(name), end)
    };
    let name = |text: &str| Some(text.to_owned());
    assert_eq!(page("", 2), (2, name("00000"), name("00001"), false));
    assert_eq!(page("00001", 2_400), (2_400, name("00002"), name("02401"), false), "more than etcd is asked for at once");
    assert_eq!(page("02401", 98), (98, name("02402"), name("02499"), true));
    assert_eq!(page("02499", 1), (0, None, None, true));
}

#[test]
fn whoever_is_replaced_is_told_although_it_writes_nothing() {
    let Some(etcds) = Etcds::start(1, &[]) else { return };
    let target = made(&etcds);
    let mut first = open(&target, "first");
    first.take(batch(1, 0..1, 1));
    durable(&mut first, 1);
    let mut second = open(&target, "second");
    let Some(StoreEvent::Broken(told)) = first.event_within(LONG) else { panic!("it is not told") };
    assert!(told.contains("another server has taken the store (second)") && first.was_superseded(), "{told}");
    first.take(batch(2, 0..1, 1));
    second.take(batch(1, 5..6, 1));
    durable(&mut second, 1);
    assert_eq!(first.event_within(Duration::from_millis(300)), None);
    assert_eq!(value(&mut second, block(0)), Some(Bytes::from_static(b"1.0")));
}

#[test]
fn the_leader_may_die_with_changes_under_way_and_a_lost_quorum_is_waited_for() {
    let Some(mut etcds) = Etcds::start(3, &[]) else { return };
    let target = made(&etcds);
    let mut store = open(&target, "one");
    let mut id = 0;
    for _ in 0..3 {
        let leader = etcds.leader();
        for n in 0..40 {
            id += 1;
            store.take(batch(id, 0..1 + u32::try_from(id).unwrap() % 3, 1));
            if n == 20 {
                etcds.kill(leader);
            }
        }
        durable(&mut store, id);
        assert_eq!(value(&mut store, block(0)), Some(Bytes::from(format!("{id}.0"))));
        etcds.run(leader);
    }
    let leader = etcds.leader();
    let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    others.iter().for_each(|at| etcds.kill(*at));
    store.take(batch(id + 1, 0..1, 1));
    assert_eq!(store.event_within(Duration::from_secs(3)), None, "nothing is told, and nothing has failed");
    others.iter().for_each(|at| etcds.run(*at));
    durable(&mut store, id + 1);
    assert_eq!(value(&mut store, block(0)), Some(Bytes::from(format!("{}.0", id + 1))));
}

#[test]
fn one_member_that_stands_still_costs_no_more_than_a_moment() {
    let Some(etcds) = Etcds::start(3, &[]) else { return };
    let target = made(&etcds);
    let mut store = open(&target, "one");
    let leader = etcds.leader();
    let still = (leader + 1) % 3;
    etcds.pause(still, true);
    let mut took: Vec<Duration> = Vec::new();
    for id in 1..=40 {
        store.take(batch(id, 0..1, 1));
        took.push(durable(&mut store, id));
    }
    etcds.pause(still, false);
    let slow = took.iter().filter(|took| **took > Duration::from_millis(150)).count();
    assert!(slow <= 4, "{slow} of 40 waited for the member: {took:?}");
}

#[test]
fn an_etcd_without_space_is_waited_for_and_says_that_there_is_no_room() {
    let Some(etcds) = Etcds::start(1, &["--quota-backend-bytes", "4194304"]) else { return };
    let target: Target = format!("{}?quota=1G", etcds.store("test")).parse().unwrap();
    create(&target, StoreId([7; 16]), []).unwrap();
    let mut store = open(&target, "one");
    for id in 1..=40 {
        store.take(batch(id, 0..100, 1_024));
    }
    let mut told = Vec::new();
    while let Some(event) = store.event_within(Duration::from_secs(2)) {
        told.push(event);
    }
    assert_eq!(told.last(), Some(&StoreEvent::Room(false)), "{told:?}");
    assert!(!told.contains(&StoreEvent::Durable(40)) && told.len() > 1, "{told:?}");
    assert!(value(&mut store, block(0)).is_some(), "reads go on");
}

#[test]
fn who_may_not_take_the_store_any_more_takes_it_from_nobody() {
    let Some(etcds) = Etcds::start(1, &[]) else { return };
    let target = made(&etcds);
    let mut first = open(&target, "first");
    let by = ServerList { number: 0, servers: "a:7311,b:7311".to_owned() };
    let late = EtcdStore::open_elected(&target, "late", by.clone(), || false, || {}).unwrap_err();
    assert!(late.what.contains("lease of the group"), "{late}");
    first.take(batch(1, 0..1, 1));
    durable(&mut first, 1);
    // While it may, it does so without a wait; and the one before notices.
    let mut second = EtcdStore::open_elected(&target, "second", by.clone(), || true, || {}).unwrap();
    second.take(batch(2, 1..2, 1));
    durable(&mut second, 2);
    assert_eq!(second.servers(), Some(&ServerList { number: 1, ..by.clone() }));
    assert!(matches!(first.event_within(LONG), Some(StoreEvent::Broken(_))) && first.was_superseded());
}

#[test]
fn a_probe_tells_whether_the_store_is_there_until_nobody_listens() {
    let Some(etcds) = Etcds::start(1, &[]) else { return };
    let target: Target = etcds.store("test").parse().unwrap();
    let next = |target: &Target| {
        let (tell, told) = channel();
        probe(target, Duration::from_millis(10), move |came| tell.send(came.map_err(|e| e.problem)).is_ok()).unwrap();
        (told.recv_timeout(LONG).unwrap(), told.recv_timeout(LONG).unwrap())
    };
    assert_eq!(next(&target), (Err(Problem::Missing), Err(Problem::Missing)));
    create(&target, StoreId([7; 16]), []).unwrap();
    assert_eq!(next(&target), (Ok(None), Ok(None)));
    let by = ServerList { number: 0, servers: "a:7311".to_owned() };
    let mut store = EtcdStore::open_elected(&target, "first", by, || true, || {}).unwrap();
    let two = ServerList { number: 2, servers: "a:7311,b:7311".to_owned() };
    store.change_servers(two.clone());
    cistern_testkit::eventually("the list is changed", || (next(&target).0 == Ok(Some(two.clone()))).then_some(()));
}
