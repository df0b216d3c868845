//! What a store promises while nothing goes wrong, and what it says when it cannot be opened.

use crate::world::{ID, ask, entry, hand, numbered, open, opened, value, wait};
use bytes::Bytes;
use cistern_server::store::{Answer, Key, Query};
use cistern_store::{DurableStore, Making, Options, Problem, StoppedStore};
use cistern_wire::{Handle, ObjectId, SessionId, StoreId};
use std::fs;

#[test]
fn what_was_durable_is_there_after_the_next_opening() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = opened(dir.path());
    assert_eq!(store.id(), ID);
    hand(&mut store, 1, vec![(entry(1, "a"), Some(Bytes::from_static(b"1"))), (entry(1, "b"), Some(Bytes::new()))]);
    hand(&mut store, 2, vec![(entry(1, "a"), None)]);
    wait(&mut store, 2);
    drop(store);
    let mut store = DurableStore::open(dir.path(), &Options::new(Making::Never), || {}).unwrap();
    assert_eq!(store.id(), ID);
    assert_eq!((value(&mut store, entry(1, "a")), value(&mut store, entry(1, "b"))), (None, Some(Bytes::new())));
}

#[test]
fn batches_that_wait_become_one_transaction_with_the_last_word_of_each_key() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = opened(dir.path());
    let count = 500;
    for id in 1..=count {
        hand(&mut store, id, numbered(id));
    }
    wait(&mut store, count);
    let stats = store.stats();
    assert_eq!(stats.batches, count);
    assert!(stats.commits < count, "{} commits of {count} batches handed over at once", stats.commits);
    assert_eq!(value(&mut store, entry(1, "newest")).unwrap()[..], count.to_be_bytes());
}

#[test]
fn pages_of_directories_and_sessions_are_those_of_the_store_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = opened(dir.path());
    let v = || Some(Bytes::from_static(b"v"));
    let names = [(1, "z"), (2, "b"), (2, "a"), (2, "c"), (3, "a")];
    let mut writes: Vec<_> = names.iter().map(|(dir, name)| (entry(*dir, name), v())).collect();
    writes.extend([9, 3, u64::MAX].map(|id| (Key::Session(SessionId(id)), v())));
    writes.push((Key::Outcome(SessionId(3), 0), v()));
    hand(&mut store, 1, writes);
    wait(&mut store, 1);
    let mut names = |after: &str, limit| match ask(&mut store, Query::Scan { dir: ObjectId(2), after: after.as_bytes().into(), limit }) {
        Answer::Entries { entries, end } => (entries.iter().map(|(name, _)| name.to_vec()).collect::<Vec<_>>(), end),
        other => panic!("{other:?}"),
    };
    assert_eq!(names("", 2), (vec![b"a".to_vec(), b"b".to_vec()], false));
    assert_eq!(names("b", 2), (vec![b"c".to_vec()], true));
    assert_eq!(names("c", 1), (vec![], true));
    let mut ids = |after, limit| match ask(&mut store, Query::Records { after: Key::Session(SessionId(after)), limit }) {
        Answer::Records { records, end } => (records.into_iter().map(|record| record.0).collect::<Vec<_>>(), end),
        other => panic!("{other:?}"),
    };
    let session = |id| Key::Session(SessionId(id));
    assert_eq!(ids(0, 2), (vec![session(3), session(9)], false));
    assert_eq!(ids(9, 2), (vec![session(u64::MAX)], true));
    assert_eq!(ids(u64::MAX, 1), (vec![], true));
}

#[test]
fn pages_of_ephemeral_files_have_their_records_alone_in_order_in_both_stores() {
    let dir = tempfile::tempdir().unwrap();
    let mut durable = opened(dir.path());
    let mut memory = cistern_store::MemoryStore::new();
    let key = |maker, object| Key::Ephemeral(Handle(maker), ObjectId(object));
    let rows = [(9, 1), (3, u64::MAX), (3, 7), (u64::MAX, 2)];
    let mut writes: Vec<_> =
        rows.iter().map(|(maker, object)| (key(*maker, *object), Some(Bytes::from(object.to_be_bytes().to_vec())))).collect();
    // Their neighbours in the order of the keys are none of them.
    writes.extend(
        [Key::Xattrs(ObjectId(u64::MAX)), Key::Session(SessionId(3)), entry(3, "a")].map(|key| (key, Some(Bytes::from_static(b"x")))),
    );
    hand(&mut durable, 1, writes.clone());
    wait(&mut durable, 1);
    memory.take(cistern_server::store::StoreWork::Persist(cistern_server::store::Batch { id: 1, writes }));
    let mut pages = |after: (u64, u64), limit| {
        let query = Query::Records { after: key(after.0, after.1), limit };
        let told = [ask(&mut durable, query.clone()), ask_memory(&mut memory, query)].map(|answer| match answer {
            Answer::Records { records, end } => {
                let files = records.into_iter().map(|(key, value)| {
                    let Key::Ephemeral(maker, object) = key else { panic!("{key:?}") };
                    assert_eq!(value[..], object.0.to_be_bytes(), "each with its own value");
                    (maker.0, object.0)
                });
                (files.collect::<Vec<_>>(), end)
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(told[0], told[1], "both stores say the same");
        told[0].clone()
    };
    assert_eq!(pages((0, 0), 2), (vec![(3, 7), (3, u64::MAX)], false));
    assert_eq!(pages((3, 7), 2), (vec![(3, u64::MAX), (9, 1)], false));
    assert_eq!(pages((3, u64::MAX), 9), (vec![(9, 1), (u64::MAX, 2)], true));
    assert_eq!(pages((u64::MAX, 2), 1), (vec![], true));
}

fn ask_memory(store: &mut cistern_store::MemoryStore, query: Query) -> Answer {
    match store.take(cistern_server::store::StoreWork::Load(vec![query])).pop() {
        Some(cistern_server::store::StoreEvent::Loaded(loaded)) => loaded.answer,
        other => panic!("no answer: {other:?}"),
    }
}

#[test]
fn waker_is_called_for_every_event() {
    let dir = tempfile::tempdir().unwrap();
    let (rang, bell) = std::sync::mpsc::channel();
    let mut store = DurableStore::open(dir.path(), &crate::world::options(), move || {
        let _ = rang.send(());
    })
    .unwrap();
    hand(&mut store, 1, numbered(1));
    bell.recv_timeout(std::time::Duration::from_secs(60)).expect("woken");
    assert!(store.event().is_some());
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A server MUST hold a lock on its store as long as it runs, on a file system where such locks are reliable.
#[test]
fn a_store_in_use_is_refused_to_servers_and_commands_alike() {
    let dir = tempfile::tempdir().unwrap();
    let store = opened(dir.path());
    assert_eq!(open(dir.path()).unwrap_err().problem, Problem::InUse);
    assert_eq!(StoppedStore::open(dir.path()).unwrap_err().problem, Problem::InUse);
    drop(store);
    let stopped = StoppedStore::open(dir.path()).unwrap();
    assert_eq!(open(dir.path()).unwrap_err().problem, Problem::InUse);
    drop(stopped);
    opened(dir.path());
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A server that may have been superseded MUST stop renewing.
#[test]
fn a_store_whose_lock_was_replaced_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = opened(dir.path());
    fs::remove_file(dir.path().join("lock")).unwrap();
    let event = store.event_within(std::time::Duration::from_secs(60));
    assert!(matches!(&event, Some(cistern_server::store::StoreEvent::Broken(why)) if why.contains("`lock` was replaced")), "{event:?}");
    hand(&mut store, 1, numbered(1));
    drop(store);
    assert_eq!(StoppedStore::open(dir.path()).unwrap().iter().count(), 0, "written after the end");
}

#[test]
fn each_trouble_has_its_name_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let never = Options::new(Making::Never);
    let refused = |dir: &std::path::Path| DurableStore::open(dir, &never, || {}).unwrap_err();
    let missing = refused(&dir.path().join("none"));
    assert!(missing.problem == Problem::Missing && missing.to_string().contains("cisternd init"), "{missing}");
    let path = dir.path().join("store");
    drop(opened(&path));
    let format = fs::read_to_string(path.join("format")).unwrap();
    assert!(format.starts_with("cistern store\nformat 2\nengine fjall-3\nstore c1c1"), "{format}");
    let body = "cistern store\nformat 3\n";
    fs::write(path.join("format"), format!("{body}crc32 {:08x}\n", crc32fast::hash(body.as_bytes()))).unwrap();
    let newer = refused(&path);
    assert!(newer.problem == Problem::Newer && newer.what.contains("version 3"), "{newer}");
    fs::write(path.join("format"), format.replace("c1c1", "c1c2")).unwrap();
    let damaged = refused(&path);
    assert!(damaged.problem == Problem::Damaged && damaged.to_string().contains("cisternd check"), "{damaged}");
    fs::write(path.join("format"), format).unwrap();
    fs::rename(path.join("data"), path.join("elsewhere")).unwrap();
    assert_eq!(refused(&path).problem, Problem::Damaged);
}

#[test]
fn ids_of_stores_are_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let other = StoreId([2; 16]);
    drop(StoppedStore::create(&dir.path().join("b"), other).unwrap());
    assert_eq!(opened(&dir.path().join("b")).id(), other);
}
