//! Space that removals made is found again, by a running store and by a stopped one.

use crate::world::{Numbers, entry, hand, options, value, wait};
use bytes::Bytes;
use cistern_server::store::{Answer, Key, Loaded, StoreEvent};
use cistern_store::{DurableStore, Options, SpaceLimits, StoppedStore};
use cistern_wire::ObjectId;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

/// Bytes that files take below a directory.
fn taken(dir: &Path) -> u64 {
    let size = |path: &Path| if path.is_dir() { taken(path) } else { fs::metadata(path).map_or(0, |data| data.blocks() * 512) };
    fs::read_dir(dir).unwrap().map(|entry| size(&entry.unwrap().path())).sum()
}

/// A batch with a value that no compression makes smaller.
fn large(numbers: &mut Numbers, n: u64) -> Vec<(Key, Option<Bytes>)> {
    let bytes: Vec<u8> = (0..200_000).map(|_| u8::try_from(numbers.below(256)).unwrap()).collect();
    vec![(Key::Object(ObjectId(n)), Some(Bytes::from(bytes)))]
}

/// Waits for the next word on the room.
fn next_word(store: &mut DurableStore) -> bool {
    loop {
        match store.event_within(Duration::from_secs(120)) {
            Some(StoreEvent::Room(room)) => return room,
            Some(StoreEvent::Durable(_) | StoreEvent::Loaded(Loaded { answer: Answer::Value(_), .. })) => {}
            other => panic!("no word on the room: {other:?}"),
        }
    }
}

/// Waits until a batch is durable; whether there is room, as far as was said meanwhile.
fn wait_in_room(store: &mut DurableStore, id: u64) -> bool {
    let mut room = true;
    loop {
        match store.event_within(Duration::from_secs(120)) {
            Some(StoreEvent::Room(told)) => room = told,
            Some(StoreEvent::Durable(durable)) if durable >= id => return room,
            Some(StoreEvent::Durable(_) | StoreEvent::Loaded(_)) => {}
            other => panic!("batch {id} did not become durable: {other:?}"),
        }
    }
}

/// Writes large values until there is no room; how many.
fn fill(store: &mut DurableStore, numbers: &mut Numbers) -> u64 {
    for n in 0..1_000 {
        hand(store, n + 1, large(numbers, n));
        loop {
            match store.event_within(Duration::from_secs(60)) {
                Some(StoreEvent::Room(false)) => return n,
                Some(StoreEvent::Durable(done)) if done == n + 1 => break,
                Some(StoreEvent::Durable(_) | StoreEvent::Room(true)) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("never full")
}

#[test]
fn space_of_what_was_removed_is_room_again_without_another_start() {
    let dir = tempfile::tempdir().unwrap();
    let limits = SpaceLimits { limit: Some(60 << 20), reserve: 0 };
    let mut store = DurableStore::open(dir.path(), &Options { space: limits, memtable_bytes: 4 << 20, ..options() }, || {}).unwrap();
    let mut numbers = Numbers(7);
    let full = fill(&mut store, &mut numbers);
    assert!(full > 50, "full after {full} values of 200 kB in 60 MiB");
    // Nothing more is removed afterwards, so there is one chance to notice.
    let kept = full / 4;
    hand(&mut store, 2_000, (kept..=full).map(|n| (Key::Object(ObjectId(n)), None)).collect());
    // Half of what was removed fits again.
    let again = 1_000..1_000 + (full - kept) / 2;
    let mut room = next_word(&mut store);
    for n in again.clone() {
        while !room {
            room = next_word(&mut store);
        }
        hand(&mut store, 3_000 + n, large(&mut numbers, n));
        room = wait_in_room(&mut store, 3_000 + n);
    }
    assert_eq!(value(&mut store, Key::Object(ObjectId(again.end - 1))).map(|value| value.len()), Some(200_000));
    assert_eq!(value(&mut store, Key::Object(ObjectId(0))).map(|value| value.len()), Some(200_000));
    assert_eq!(value(&mut store, Key::Object(ObjectId(kept))), None);
    // It is written, ended and read as before.
    hand(&mut store, 9_000, vec![(entry(1, "after"), Some(Bytes::from_static(b"it")))]);
    wait(&mut store, 9_000);
    drop(store);
    let mut store = DurableStore::open(dir.path(), &Options { space: limits, ..options() }, || {}).unwrap();
    assert_eq!(value(&mut store, entry(1, "after")), Some(Bytes::from_static(b"it")));
    assert_eq!(value(&mut store, Key::Object(ObjectId(kept - 1))).map(|value| value.len()), Some(200_000));
    assert_eq!(value(&mut store, Key::Object(ObjectId(full))), None);
}

#[test]
fn a_backup_that_is_being_written_keeps_what_it_reads_and_space_is_won_back_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let limits = SpaceLimits { limit: Some(60 << 20), reserve: 0 };
    let mut store = DurableStore::open(dir.path(), &Options { space: limits, memtable_bytes: 4 << 20, ..options() }, || {}).unwrap();
    let mut numbers = Numbers(8);
    let full = fill(&mut store, &mut numbers);
    wait(&mut store, full + 1);
    let backup = store.backup_source().snapshot();
    hand(&mut store, 2_000, (1..=full).map(|n| (Key::Object(ObjectId(n)), None)).collect());
    wait(&mut store, 2_000);
    std::thread::sleep(Duration::from_secs(3));
    let copy = dir.path().join("copy");
    assert_eq!(backup.write_to(&copy).unwrap(), full + 1);
    fs::remove_dir_all(copy).unwrap();
    drop(backup);
    assert!(next_word(&mut store), "there is room");
}

#[test]
fn a_stopped_store_that_is_compacted_takes_what_its_contents_take() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = DurableStore::open(dir.path(), &options(), || {}).unwrap();
    let mut numbers = Numbers(9);
    for n in 0..150 {
        hand(&mut store, n + 1, large(&mut numbers, n));
    }
    hand(&mut store, 151, (5..150).map(|n| (Key::Object(ObjectId(n)), None)).collect());
    wait(&mut store, 151);
    drop(store);
    let before = taken(dir.path());
    let stopped = StoppedStore::open(dir.path()).unwrap();
    stopped.compact().unwrap();
    assert_eq!(stopped.iter().map(Result::unwrap).map(|(_, value)| value.len()).collect::<Vec<_>>(), [200_000; 5]);
    drop(stopped);
    let after = taken(dir.path());
    assert!(before > 20_000_000 && after < 1_500_000, "{before} bytes before, {after} after, for 1,000,000");
    let stopped = StoppedStore::open(dir.path()).unwrap();
    assert_eq!(stopped.iter().map(Result::unwrap).count(), 5);
}
