//! Claims about operations that wait for the store: no effect before all is there, no guess about what cannot be read, and no waiting
//! for what has nothing to do with them.

use super::super::{Mutation, Places, PlanError, Reading};
use super::contents::resize;
use super::{ASK, ROOT_DIR, RenameRule, SMALL, World, create, cx, mkdir, open_or_create, read, rename, unlink, write};
use crate::config::CacheLimits;
use crate::store::{Answer, BLOCK_LEN, Counter, Key, Loaded, Query, ReadError, Seen, StoreCache};
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{CacheGrant, GetAttr, Message, ObjectId, Status, Want};

/// A world whose store knows everything and whose memory nothing.
fn forgotten(mut w: World) -> World {
    w.disk.settle(&mut w.store);
    w.store.forget_everything();
    w
}

fn apply(w: &mut World, message: &Message<'_>) -> Result<(), PlanError> {
    let mutation = Mutation::of(message).expect("a mutation");
    let seen = Seen::default();
    let plan = w.namespace.plan(&w.store.view(&seen), &mutation, &[], cx(77, &w.principals))?;
    plan.commit(&mut w.store.view(&seen));
    Ok(())
}

#[test]
fn mutation_that_lacks_something_has_no_effect_however_often_it_is_run() {
    let mut w = World::new();
    let (d, e) = (w.dir(ROOT_DIR, b"d"), w.dir(ROOT_DIR, b"e"));
    w.done(mkdir(d, b"s"));
    w.done(mkdir(e, b"t"));
    let mut w = forgotten(w);
    let message = Message::from(rename((d, b"s"), (e, b"t"), RenameRule::Replace));
    let mut rounds = 0;
    // Without its values, and with one more of them each time.
    while let Err(PlanError::NotCached(queries)) = apply(&mut w, &message) {
        assert!(!w.store.has_writes());
        assert_eq!(apply(&mut w, &message), Err(PlanError::NotCached(queries.clone())), "and says the same again");
        w.load(queries[..1].to_vec());
        rounds += 1;
        assert!(rounds < 50, "it comes to an end");
    }
    assert!(rounds > 3 && w.store.has_writes());
    assert_eq!(super::reads::list(&mut w, d), []);
}

#[test]
fn what_is_known_to_lack_is_asked_for_together() {
    let mut w = World::new();
    let d = w.dir(ROOT_DIR, b"d");
    let mut w = forgotten(w);
    let entry = |dir, name: &[u8]| Query::Get(Key::Entry(dir, name.into()));
    let (root, below) = (Query::Get(Key::Object(ROOT_DIR)), Query::Get(Key::Object(d)));
    let made = apply(&mut w, &create(d, b"a").into());
    assert_eq!(made, Err(PlanError::NotCached(vec![below.clone(), entry(d, b"a")])));
    let moved = apply(&mut w, &rename((ROOT_DIR, b"a"), (d, b"b"), RenameRule::Replace).into());
    assert_eq!(moved, Err(PlanError::NotCached(vec![root, below, entry(ROOT_DIR, b"a"), entry(d, b"b")])));
}

#[test]
fn operation_that_waited_goes_by_what_is_there_when_it_is_run_again() {
    let mut w = forgotten(World::new());
    let first = Message::from(create(ROOT_DIR, b"a"));
    let Err(PlanError::NotCached(queries)) = apply(&mut w, &first) else { panic!("nothing is in memory") };
    // Another one is faster.
    let made = w.done(create(ROOT_DIR, b"a"))[1].attr.object;
    w.load(queries);
    assert_eq!(apply(&mut w, &first), Err(Status::EEXIST.into()));
    assert_eq!(super::reads::list(&mut w, ROOT_DIR), [(b"a".to_vec(), made)]);
}

#[test]
fn answer_that_was_read_before_a_change_does_not_undo_it() {
    let mut w = World::new();
    let file = w.file(b"a");
    w.done(write(file, 0, b"old", false));
    let mut w = forgotten(w);
    let query = Query::Get(Key::Block(file, 0));
    let asked = w.store.asked(vec![query]);
    w.disk.ask(asked);
    w.disk.read(0);
    // A write of the whole block needs nothing of the old one.
    w.store.view(&Seen::default()).object(file).err();
    let queries = vec![
        Query::Get(Key::Object(file)),
        Query::Get(Key::Counter(Counter::NextObject)),
        Query::Get(Key::Counter(Counter::Objects)),
        Query::Get(Key::Counter(Counter::Bytes)),
    ];
    let asked = w.store.asked(queries);
    w.disk.ask(asked);
    while w.disk.asked.len() > 1 {
        assert!(w.store.loaded(w.disk.give(1)));
    }
    w.done(write(file, 0, b"new", false));
    assert!(w.store.loaded(w.disk.give(0)));
    assert_eq!(w.contents(file), b"new");
}

#[test]
fn what_changes_nothing_does_not_wait_for_changes_elsewhere() {
    let mut w = World::new();
    let file = w.file(b"a");
    w.disk.settle(&mut w.store);
    let d = w.dir(ROOT_DIR, b"d");
    w.done(create(d, b"x"));
    let sealed = w.store.seal().expect("written");
    let message = Message::from(write(file, 0, b"", false));
    let mutation = Mutation::of(&message).unwrap();
    let run = Seen::default();
    let view = w.store.view(&run);
    let Ok(plan) = w.namespace.plan(&view, &mutation, &[], cx(77, &w.principals)) else { panic!("it can be planned") };
    assert!(plan.affected().is_empty());
    assert_eq!(run.depends_on(&w.store), None);
    let message = Message::from(open_or_create(d, b"x"));
    let run = Seen::default();
    let view = w.store.view(&run);
    assert!(w.namespace.plan(&view, &Mutation::of(&message).unwrap(), &[], cx(77, &w.principals)).is_ok());
    assert_eq!(run.depends_on(&w.store), Some(sealed.id), "but what it shows must be durable");
}

#[test]
fn absence_that_a_crash_could_take_back_is_not_shown_before() {
    let mut w = World::new();
    w.file(b"a");
    w.disk.settle(&mut w.store);
    w.done(unlink(ROOT_DIR, b"a"));
    let sealed = w.store.seal().expect("written");
    let names = [cistern_wire::Bytes8(b"a")];
    let lookup = cistern_wire::Lookup { ask: ASK, start: ROOT_DIR, want: Want::Nothing, names: super::list_of(&names) };
    for message in [Message::from(lookup), super::reads::read_dir(ROOT_DIR, b"", false).into()] {
        let run = Seen::default();
        let view = w.store.view(&run);
        let step = w.namespace.read(
            &view,
            &Reading::of(&message).unwrap(),
            w.principals.asker(super::PrincipalId::ANYBODY),
            SMALL,
            |_, _| CacheGrant::NONE,
            &mut Vec::new(),
        );
        assert_eq!((step, run.depends_on(&w.store)), (Ok(()), Some(sealed.id)));
    }
}

#[test]
fn unreadable_block_is_eio_for_those_who_need_it_and_for_nobody_else() {
    let mut w = World::new();
    let file = w.file(b"a");
    w.done(write(file, BLOCK_LEN as u64 - 2, b"abcd", false));
    let mut w = forgotten(w);
    w.attr(file).unwrap();
    let query = Query::Get(Key::Block(file, 0));
    assert_eq!(w.store.asked(vec![query.clone()]).len(), 1);
    assert!(!w.store.loaded(Loaded { query, answer: Answer::Failed }));
    assert_eq!(w.read(read(file, 0), SMALL), Err(Status::EIO));
    assert_eq!(w.fails(write(file, 5, b"x", false)), Status::EIO);
    assert_eq!(w.fails(resize(file, 5)), Status::EIO);
    assert!(w.read(read(file, BLOCK_LEN as u64), SMALL).is_ok());
    w.done(write(file, BLOCK_LEN as u64, b"C", false));
    let message = Message::from(super::Write { stage: 1, ..write(file, 0, b"", false) });
    w.change_with(message, &[&vec![7; BLOCK_LEN]]).unwrap();
    assert!(w.contents(file) == [&vec![7; BLOCK_LEN][..], b"Cd"].concat());
}

/// Changes the store behind the server's back.
fn damaged(mut w: World, damage: impl FnOnce(&mut World)) -> World {
    w.disk.settle(&mut w.store);
    damage(&mut w);
    w.store.forget_everything();
    w
}

#[test]
fn entry_that_names_nothing_is_eio_and_not_a_stale_object() {
    let mut w = World::new();
    let file = w.file(b"a");
    let mut w = damaged(w, |w| {
        w.disk.values.remove(&Key::Object(file));
    });
    let names = [cistern_wire::Bytes8(b"a")];
    let lookup = cistern_wire::Lookup { ask: ASK, start: ROOT_DIR, want: Want::Nothing, names: super::list_of(&names) };
    assert_eq!(w.read(lookup, SMALL), Err(Status::EIO));
    assert_eq!(w.read(super::reads::read_dir(ROOT_DIR, b"", true), SMALL), Err(Status::EIO));
    assert_eq!(w.fails(unlink(ROOT_DIR, b"a")), Status::EIO);
    assert_eq!(w.fails(rename((ROOT_DIR, b"a"), (ROOT_DIR, b"b"), RenameRule::Replace)), Status::EIO);
    assert_eq!(w.fails(open_or_create(ROOT_DIR, b"a")), Status::EIO);
    assert_eq!(w.read(GetAttr { ask: ASK, object: file, want: Want::Nothing }, SMALL), Err(Status::ESTALE));
}

#[test]
fn directories_that_lie_in_each_other_end_in_an_error_and_not_in_a_circle() {
    let mut w = World::new();
    let d = w.dir(ROOT_DIR, b"d");
    let e = w.dir(d, b"e");
    w.dir(ROOT_DIR, b"x");
    let mut w = damaged(w, |w| {
        // The record of `d` says that it is in `e`.
        let record = w.disk.values[&Key::Object(d)].to_vec();
        let at = record.len() - 7 - 8;
        let circle = [&record[..at], &e.0.to_be_bytes(), &record[at + 8..]].concat();
        w.disk.values.insert(Key::Object(d), Bytes::from(circle));
    });
    assert_eq!(w.fails(rename((ROOT_DIR, b"x"), (e, b"x"), RenameRule::Replace)), Status::E2BIG);
    let _ends = w.namespace.place(&w.store.view(&Seen::default()), &mut Places::new(), ObjectId(99), 255);
}

#[test]
fn root_without_the_counter_of_objects_is_a_damaged_store() {
    let mut w = damaged(World::new(), |w| {
        w.disk.values.remove(&Key::Counter(Counter::NextObject));
    });
    w.store = StoreCache::new(CacheLimits::default());
    let end = loop {
        let step = w.namespace.boot(&mut w.store.view(&Seen::default()), 1);
        match step {
            Err(ReadError::NotCached(queries)) => w.load(queries),
            other => break other,
        }
    };
    assert_eq!(end, Err(ReadError::Failed(Status::EIO)));
}
