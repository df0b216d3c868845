//! The cache against a naive model, with a store that answers late, in any order, and from any state in between.

pub(crate) mod disk;

use super::{Answer, Counter, EntryRecord, Key, Loaded, ObjectRecord, Query, ReadError, Seen, StoreCache};
use crate::config::CacheLimits;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{Attr, ObjectId, ObjectKind, Status};
use disk::Disk;
use proptest::prelude::*;

const DIR: ObjectId = ObjectId(7);

fn record(object: ObjectId, version: u64) -> ObjectRecord {
    let attr = Attr { object, version, ..Attr::FILE };
    ObjectRecord { attr, parent: DIR, name: Bytes::from_static(b"name"), xattrs: 0, creator: crate::principals::PrincipalId::ANYBODY }
}

fn entry(n: u64) -> EntryRecord {
    EntryRecord { object: ObjectId(n), kind: ObjectKind::File }
}

fn store() -> StoreCache {
    StoreCache::new(CacheLimits::default())
}

#[test]
fn what_is_not_in_memory_is_asked_for_once() {
    let mut store = store();
    let Err(ReadError::NotCached(queries)) = store.view(&Seen::default()).object(ObjectId(5)).map(|_| ()) else {
        panic!("nothing is known yet")
    };
    assert_eq!(store.asked(queries.clone()), vec![Query::Get(Key::Object(ObjectId(5)))]);
    assert_eq!(store.asked(queries), vec![], "the question is under way");
}

#[test]
fn reading_depends_on_the_newest_batch_until_it_is_durable() {
    let mut store = store();
    store.view(&Seen::default()).put_object(record(ObjectId(5), 1));
    let first = store.seal().expect("something was written");
    store.view(&Seen::default()).put_entry(DIR, b"a", entry(5));
    let second = store.seal().expect("something was written");
    let run = Seen::default();
    assert_eq!(run.depends_on(&store), None, "nothing read yet");
    assert!(store.view(&run).object(ObjectId(5)).unwrap().is_some());
    assert_eq!(run.depends_on(&store), Some(first.id));
    assert_eq!(store.view(&run).entry(DIR, b"a"), Ok(Some(entry(5))));
    assert_eq!(run.depends_on(&store), Some(second.id));
    store.durable(second.id);
    let run = Seen::default();
    let view = store.view(&run);
    assert_eq!(view.entry(DIR, b"a"), Ok(Some(entry(5))));
    assert_eq!(run.depends_on(&store), None);
}

#[test]
fn absence_depends_on_the_batch_that_deleted() {
    let mut store = store();
    store.view(&Seen::default()).put_entry(DIR, b"a", entry(5));
    let made = store.seal().unwrap().id;
    store.durable(made);
    store.view(&Seen::default()).delete_entry(DIR, b"a");
    let gone = store.seal().unwrap().id;
    let run = Seen::default();
    let view = store.view(&run);
    assert_eq!(view.entry(DIR, b"a"), Ok(None));
    assert_eq!(run.depends_on(&store), Some(gone));
}

#[test]
fn names_that_came_and_went_leave_nothing_behind_in_a_known_directory() {
    let mut store = store();
    let take = |store: &mut StoreCache, names: core::ops::Range<u64>| {
        for n in names {
            let name = n.to_be_bytes();
            store.view(&Seen::default()).put_entry(DIR, &name, entry(n));
            store.view(&Seen::default()).delete_entry(DIR, &name);
        }
        store.seal().unwrap().id
    };
    store.view(&Seen::default()).new_directory(DIR);
    let empty = store.bytes();
    let gone = take(&mut store, 0..100);
    assert!(store.bytes() > empty, "a crash could still bring them back");
    store.durable(gone);
    assert_eq!(store.bytes(), empty);
    assert_eq!(store.view(&Seen::default()).entry(DIR, &[0; 8]), Ok(None), "still known to be absent");

    let query = Query::Scan { dir: DIR, after: Box::from([]), limit: 9 };
    assert_eq!(store.asked(vec![query]).len(), 1);
    let gone = take(&mut store, 0..1);
    store.durable(gone);
    let name = Box::from(0_u64.to_be_bytes());
    let old = Answer::Entries { entries: vec![(name, entry(0).to_bytes().into())], end: true };
    store.loaded(Loaded { query: Query::Scan { dir: DIR, after: Box::from([]), limit: 9 }, answer: old });
    assert_eq!(store.view(&Seen::default()).entry(DIR, &[0; 8]), Ok(None), "an answer under way does not bring it back");
}

#[test]
fn a_batch_has_each_key_once_with_its_last_value() {
    let mut store = store();
    let run = Seen::default();
    let mut view = store.view(&run);
    view.put_object(record(ObjectId(5), 1));
    view.put_object(record(ObjectId(5), 2));
    view.put_entry(DIR, b"a", entry(5));
    view.delete_entry(DIR, b"a");
    view.set_counter(Counter::Objects, 4);
    let batch = store.seal().expect("something was written");
    assert_eq!(batch.id, 1);
    assert_eq!(
        batch.writes,
        vec![
            (Key::Object(ObjectId(5)), Some(record(ObjectId(5), 2).to_bytes().into())),
            (Key::Entry(DIR, (*b"a").into()), None),
            (Key::Counter(Counter::Objects), Some(super::record::counter_to_bytes(4).into())),
        ]
    );
    assert_eq!(store.seal(), None, "nothing was written since");
}

#[test]
fn an_old_answer_never_takes_the_place_of_a_newer_value() {
    let mut store = store();
    let mut disk = Disk::default();
    let key = Key::Object(ObjectId(5));
    disk.values.insert(key.clone(), record(ObjectId(5), 1).to_bytes().into());
    disk.ask(store.asked(vec![Query::Get(key)]));
    disk.read(0);
    store.view(&Seen::default()).put_object(record(ObjectId(5), 2));
    disk.batches.extend(store.seal());
    store.durable(disk.sync().unwrap());
    store.limits.bytes_max = 0;
    store.trim();
    assert!(store.loaded(disk.give(0)));
    assert_eq!(store.view(&Seen::default()).object(ObjectId(5)).unwrap().unwrap().attr.version, 2);
}

#[test]
fn what_is_not_durable_is_not_forgotten() {
    let mut store = StoreCache::new(CacheLimits { bytes_max: 0 });
    store.view(&Seen::default()).put_object(record(ObjectId(5), 1));
    store.view(&Seen::default()).put_entry(DIR, b"a", entry(5));
    store.view(&Seen::default()).put_block(ObjectId(5), 0, Some(Bytes::from_static(b"abc")));
    let batch = store.seal().unwrap().id;
    for _ in 0..3 {
        store.trim();
    }
    assert!(store.view(&Seen::default()).object(ObjectId(5)).is_ok());
    store.durable(batch);
    for _ in 0..3 {
        store.trim();
    }
    assert_eq!(store.bytes(), 0, "everything was clean");
    let run = Seen::default();
    let view = store.view(&run);
    assert!(view.object(ObjectId(5)).is_err() && view.entry(DIR, b"a").is_err() && view.block(ObjectId(5), 0).is_err());
}

#[test]
fn unreadable_values_are_eio_now_and_asked_for_again_later() {
    let mut store = store();
    let object = Query::Get(Key::Object(ObjectId(5)));
    let page = Query::Scan { dir: DIR, after: Box::from([]), limit: 9 };
    let name = Query::Get(Key::Entry(DIR, (*b"a").into()));
    let asked = store.asked(vec![object.clone(), page.clone(), name.clone()]);
    assert_eq!(asked.len(), 3);
    assert!(!store.loaded(Loaded { query: object, answer: Answer::Value(Some(Bytes::from_static(b"\x01junk"))) }));
    assert!(!store.loaded(Loaded { query: page, answer: Answer::Failed }));
    assert!(!store.loaded(Loaded { query: name, answer: Answer::Failed }));
    let run = Seen::default();
    let view = store.view(&run);
    assert_eq!(view.object(ObjectId(5)).err(), Some(ReadError::Failed(Status::EIO)));
    assert_eq!(view.know_entries(DIR, b"", 9).err(), Some(ReadError::Failed(Status::EIO)));
    assert_eq!(view.entry(DIR, b"a").err(), Some(ReadError::Failed(Status::EIO)));
    store.trim();
    let run = Seen::default();
    let view = store.view(&run);
    assert!(matches!(view.object(ObjectId(5)), Err(ReadError::NotCached(_))));
    assert!(matches!(view.know_entries(DIR, b"", 9), Err(ReadError::NotCached(_))));
    assert!(matches!(view.entry(DIR, b"a"), Err(ReadError::NotCached(_))));
}

#[test]
fn a_page_that_makes_no_progress_is_an_error_not_a_loop() {
    let mut store = store();
    let query = Query::Scan { dir: DIR, after: Box::from([]), limit: 9 };
    let asked = store.asked(vec![query.clone()]);
    assert_eq!(asked.len(), 1);
    assert!(!store.loaded(Loaded { query, answer: Answer::Entries { entries: Vec::new(), end: false } }));
    assert_eq!(store.view(&Seen::default()).know_entries(DIR, b"", 1).err(), Some(ReadError::Failed(Status::EIO)));
}

#[test]
fn a_new_directory_is_known_to_be_empty_whatever_was_asked_before_it_was_made() {
    let mut store = store();
    let mut disk = Disk::default();
    disk.ask(store.asked(vec![Query::Get(Key::Entry(DIR, (*b"a").into())), Query::Scan { dir: DIR, after: Box::from([]), limit: 9 }]));
    store.view(&Seen::default()).new_directory(DIR);
    disk.settle(&mut store);
    let run = Seen::default();
    let view = store.view(&run);
    assert_eq!(view.entry(DIR, b"a"), Ok(None));
    assert_eq!(view.know_entries(DIR, b"", 100), Ok(()));
    assert_eq!(view.entries(DIR, b"").count(), 0);
}

/// One move of the property test.
#[derive(Clone, Debug)]
enum Move {
    Get(u8),
    List { after: u8, max: usize },
    Put(u8, u64),
    Delete(u8),
    Seal,
    Sync,
    Read(prop::sample::Index),
    Give(prop::sample::Index),
    Trim,
}

fn any_move() -> impl Strategy<Value = Move> {
    let name = 1..12u8;
    prop_oneof![
        4 => name.clone().prop_map(Move::Get),
        3 => (0..12u8, 1..5usize).prop_map(|(after, max)| Move::List { after, max }),
        3 => (name.clone(), 1..100u64).prop_map(|(name, value)| Move::Put(name, value)),
        2 => name.prop_map(Move::Delete),
        2 => Just(Move::Seal),
        2 => Just(Move::Sync),
        2 => any::<prop::sample::Index>().prop_map(Move::Read),
        4 => any::<prop::sample::Index>().prop_map(Move::Give),
        2 => Just(Move::Trim),
    ]
}

/// Looks at the entries after a name; true when they were in memory, and then they are those of the model.
fn list(store: &mut StoreCache, disk: &mut Disk, model: &BTreeMap<u8, u64>, after: u8, max: usize) -> bool {
    let from: &[u8] = if after == 0 { b"" } else { &[after] };
    let run = Seen::default();
    let view = store.view(&run);
    match view.know_entries(DIR, from, max) {
        Ok(()) => {
            let seen: Vec<_> = view.entries(DIR, from).take(max).map(|(name, entry)| (name[0], entry.object.0)).collect();
            let real: Vec<_> = model.iter().filter(|(name, _)| **name > after).take(max).map(|(name, value)| (*name, *value)).collect();
            assert_eq!(seen, real);
            true
        }
        Err(ReadError::NotCached(queries)) => {
            let queries = store.asked(queries);
            disk.ask(queries);
            false
        }
        Err(ReadError::Failed(status)) => panic!("{status:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn memory_and_store_together_always_show_the_newest_state(moves in proptest::collection::vec(any_move(), 1..120), filled in 0..12u8) {
        let mut store = StoreCache::new(CacheLimits { bytes_max: 300 });
        let mut disk = Disk::default();
        let mut model = BTreeMap::new();
        for name in 1..filled {
            disk.values.insert(Key::Entry(DIR, Box::from([name])), entry(name.into()).to_bytes().into());
            model.insert(name, u64::from(name));
        }
        for step in moves {
            match step {
                Move::Get(name) => match store.view(&Seen::default()).entry(DIR, &[name]) {
                    Ok(seen) => prop_assert_eq!(seen.map(|entry| entry.object.0), model.get(&name).copied()),
                    Err(ReadError::NotCached(queries)) => {
                        let queries = store.asked(queries);
                        disk.ask(queries);
                    }
                    Err(ReadError::Failed(status)) => panic!("{status:?}"),
                },
                Move::List { after, max } => { list(&mut store, &mut disk, &model, after, max); }
                Move::Put(name, value) => {
                    store.view(&Seen::default()).put_entry(DIR, &[name], entry(value));
                    model.insert(name, value);
                }
                Move::Delete(name) => {
                    store.view(&Seen::default()).delete_entry(DIR, &[name]);
                    model.remove(&name);
                }
                Move::Seal => disk.batches.extend(store.seal()),
                Move::Sync => if let Some(batch) = disk.sync() { store.durable(batch); },
                Move::Read(at) if !disk.asked.is_empty() => disk.read(at.index(disk.asked.len())),
                Move::Give(at) if !disk.asked.is_empty() => {
                    let loaded = disk.give(at.index(disk.asked.len()));
                    prop_assert!(store.loaded(loaded));
                }
                Move::Trim => store.trim(),
                Move::Read(_) | Move::Give(_) => {}
            }
        }
        // Nothing is lost on the way: a listing of everything ends, and is right.
        for _ in 0..20 {
            if list(&mut store, &mut disk, &model, 0, 100) {
                break;
            }
            disk.settle(&mut store);
        }
        prop_assert!(list(&mut store, &mut disk, &model, 0, 100));
        disk.settle(&mut store);
        for _ in 0..10 { store.trim(); }
        prop_assert!(store.bytes() <= 300, "{} bytes", store.bytes());
    }
}

#[test]
fn objects_that_came_and_went_leave_no_memory_behind() {
    let mut store = store();
    store.view(&Seen::default()).put_object(record(ObjectId(1), 1));
    let kept = store.seal().unwrap().id;
    store.durable(kept);
    store.trim();
    let (before, places) = (store.memory(), store.ring.len());
    for round in 0..40 {
        let ids = (0..50).map(|n| ObjectId(100 + round * 50 + n));
        for id in ids.clone() {
            let run = Seen::default();
            let mut view = store.view(&run);
            view.put_object(record(id, 1));
            view.new_directory(id);
            view.put_entry(id, b"x", entry(5));
            view.put_block(id, 0, Some(Bytes::from_static(b"text")));
        }
        let made = store.seal().unwrap().id;
        for id in ids {
            let run = Seen::default();
            let mut view = store.view(&run);
            view.delete_entry(id, b"x");
            view.put_block(id, 0, None);
            view.delete_object(id);
        }
        let gone = store.seal().unwrap().id;
        store.durable(made);
        assert!(store.memory().objects > 50, "a crash could still bring them back");
        store.durable(gone);
        store.trim();
    }
    assert_eq!(store.memory(), before);
    assert!(store.ring.len() < places + 1_000, "{} places in the ring", store.ring.len());
    assert_eq!(store.view(&Seen::default()).object(ObjectId(1)).unwrap().map(|record| record.attr.version), Some(1));
}

#[test]
fn an_object_that_went_is_remembered_while_a_question_about_it_is_under_way() {
    let mut store = store();
    let (id, query) = (ObjectId(5), Query::Get(Key::Object(ObjectId(5))));
    assert_eq!(store.asked(vec![query.clone()]).len(), 1);
    store.view(&Seen::default()).put_object(record(id, 2));
    store.view(&Seen::default()).delete_object(id);
    let gone = store.seal().unwrap().id;
    store.durable(gone);
    store.loaded(Loaded { query, answer: Answer::Value(Some(record(id, 1).to_bytes().into())) });
    assert_eq!(store.view(&Seen::default()).object(id), Ok(None), "an answer under way does not bring it back");
}
