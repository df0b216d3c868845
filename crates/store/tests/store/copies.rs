//! Copies, of a running store and of a stopped one, and what makes a store smaller.

use crate::world::{hand, newest_numbered, numbered, opened, wait};
use bytes::Bytes;
use cistern_server::store::{Counter, Key};
use cistern_store::{DurableStore, Making, Options, Problem, SpaceLimits, StoppedStore};
use cistern_wire::StoreId;
use std::os::unix::fs::MetadataExt as _;

#[test]
fn backup_of_a_running_store_is_of_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let (source, copy) = (dir.path().join("source"), dir.path().join("copy"));
    let mut store = opened(&source);
    for id in 1..=50 {
        hand(&mut store, id, numbered(id));
    }
    wait(&mut store, 50);
    let backup = store.backup_source().snapshot();
    for id in 51..=100 {
        hand(&mut store, id, numbered(id));
    }
    let writer = std::thread::spawn(move || backup.write_to(&copy).map(|count| (copy, count)));
    wait(&mut store, 100);
    let (copy, count) = writer.join().unwrap().unwrap();
    assert_eq!(count, 50 * crate::world::NUMBERED + 1);
    let copied = StoppedStore::open(&copy).unwrap();
    assert_eq!((copied.id(), newest_numbered(&copied)), (store.id(), Ok(50)));
    let refused = store.backup_source().snapshot().write_to(&source).unwrap_err();
    assert_eq!(refused.problem, Problem::InUse);
    drop(copied);
    let refused = store.backup_source().snapshot().write_to(&copy).unwrap_err();
    assert!(refused.problem == Problem::Foreign && refused.what.contains("empty or missing"), "{refused}");
    assert_eq!(newest_numbered(&StoppedStore::open(&copy).unwrap()), Ok(50), "what was there stays");
    // Of what the original has given out since, the copy knows nothing.
    let serve = || DurableStore::open(&copy, &Options::new(Making::Never), || {});
    let refused = serve().unwrap_err();
    assert!(refused.problem == Problem::Copy && refused.to_string().contains("cisternd restore"), "{refused}");
    StoppedStore::open(&copy).unwrap().release().unwrap();
    assert_eq!(serve().unwrap().id(), store.id());
}

#[test]
fn backup_beside_the_store_leaves_the_server_its_reserve_and_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    let space = SpaceLimits { limit: None, reserve: u64::MAX / 4 };
    let options = Options { space, ..Options::new(Making::New(StoreId([1; 16]))) };
    let mut store = DurableStore::open(&source, &options, || {}).unwrap();
    hand(&mut store, 1, numbered(1));
    wait(&mut store, 1);
    let (missing, empty) = (dir.path().join("missing"), dir.path().join("empty"));
    std::fs::create_dir(&empty).unwrap();
    for copy in [&missing, &empty] {
        let refused = store.backup_source().snapshot().write_to(copy).unwrap_err();
        assert!(refused.problem == Problem::Io && refused.what.contains("another file system"), "{refused}");
    }
    assert!(!missing.exists());
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
    hand(&mut store, 2, numbered(2));
    wait(&mut store, 2);
    // On another file system it is none of the server's business.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let device = |dir: &tempfile::TempDir| std::fs::metadata(dir.path()).unwrap().dev();
    assert!(device(&memory) == device(&dir) || store.backup_source().snapshot().write_to(&memory.path().join("copy")).unwrap() > 0);
}

#[test]
fn a_stopped_store_can_be_copied_written_and_made_smaller() {
    let dir = tempfile::tempdir().unwrap();
    let (source, copy) = (dir.path().join("source"), dir.path().join("copy"));
    let mut store = opened(&source);
    for id in 1..=20 {
        hand(&mut store, id, numbered(id));
    }
    wait(&mut store, 20);
    drop(store);
    let source = StoppedStore::open(&source).unwrap();
    assert_eq!(source.copy_to(&copy).unwrap(), 20 * crate::world::NUMBERED + 1);
    let mut copy = StoppedStore::open(&copy).unwrap();
    let key = Key::Counter(Counter::Restored).to_bytes();
    copy.write([(key.clone(), Some(Bytes::from_static(b"\x01")))]).unwrap();
    copy.compact().unwrap();
    let dir = copy.dir().to_owned();
    drop(copy);
    let copy = StoppedStore::open(&dir).unwrap();
    assert_eq!((newest_numbered(&copy), copy.get(&key)), (Ok(20), Ok(Some(Bytes::from_static(b"\x01")))));
    assert_eq!((newest_numbered(&source), source.get(&key)), (Ok(20), Ok(None)), "the source is as it was");
}

#[test]
fn making_smaller_what_cannot_be_flushed_is_an_error_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    drop(opened(dir.path()));
    let mut store = StoppedStore::open(dir.path()).unwrap();
    store.write(numbered(1).into_iter().map(|(key, value)| (key.to_bytes(), value))).unwrap();
    std::fs::remove_dir_all(dir.path().join("data/keyspaces/1/tables")).unwrap();
    let (say, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || say.send(store.compact()));
    let result = said.recv_timeout(std::time::Duration::from_secs(60)).expect("it ends");
    assert!(result.is_err_and(|what| what.contains("failed")), "tables that could not be written");
}
