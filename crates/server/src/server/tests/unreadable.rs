//! Requests that look at several values which cannot be read: each is answered, however the answers of the store come.

use super::left_files::answer_one_by_one;
use super::restart::held;
use super::world::{Peer, ROOT, World, create};
use crate::store::Key;
use cistern_wire::{
    Bytes8, ListLocks, ListRealms, MakeRealm, Message, Mkdir, ObjectId, Realm, Reclaim, Rename, RenameRule, Reply, Status, Terms, Want,
};

/// Makes the records of these objects unreadable.
fn break_all(world: &mut World, objects: &[ObjectId]) {
    for object in objects {
        assert!(world.disk.values.insert(Key::Object(*object), bytes::Bytes::from_static(b"cannot be read")).is_some());
    }
    world.server.store.forget_everything();
}

/// What the peer's request is answered when the store answers one question in each turn.
fn asked(world: &mut World, peer: &mut Peer, request: Message<'_>) -> super::world::Got {
    world.stalled = true;
    world.send(peer, &[request]);
    answer_one_by_one(world);
    world.stalled = false;
    world.turn();
    world.got_one(peer)
}

fn mkdir(world: &mut World, peer: &mut Peer, name: &'static [u8]) -> ObjectId {
    let make = Mkdir { ask: peer.ask_only(), dir: ROOT, name: Bytes8(name), mode: 0o755, uid: 0, gid: 0, terms: Terms::NONE };
    world.send(peer, &[make.into()]);
    let got = world.got_one(peer);
    let Reply::Changed(changed) = got.reply() else { panic!("{got:?}") };
    changed.effects.iter().find(|effect| effect.before == 0).unwrap().attr.object
}

#[test]
fn reclaim_of_two_objects_that_cannot_be_read_is_answered() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let files = ["a", "b", "c"].map(|name| world.create(&mut peer, name).object);
    let generations = files.map(|file| world.lock(&mut peer, file));
    world.crash();
    let from = world.come_back(&mut peer);
    break_all(&mut world, &files[..2]);
    let items = [0, 1, 2].map(|at| held(files[at], generations[at]));
    let reclaim = Reclaim { ask: peer.ask_only(), from, items: cistern_wire::List::of(&items) };
    let got = asked(&mut world, &mut peer, reclaim.into());
    let Reply::Reclaimed(reclaimed) = got.reply() else { panic!("{got:?}") };
    assert!(reclaimed.items.iter().map(|item| item.status).eq([Status::EIO, Status::EIO, Status::OK]));
}

#[test]
fn rename_among_values_that_cannot_be_read_fails() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let (from, to) = (mkdir(&mut world, &mut peer, b"from"), mkdir(&mut world, &mut peer, b"to"));
    let made = create(peer.ask_only(), "f", Want::Nothing);
    world.send(&mut peer, &[cistern_wire::Create { dir: from, ..made }.into()]);
    world.got_one(&peer);
    assert!(world.disk.values.insert(Key::Entry(from, b"f"[..].into()), bytes::Bytes::from_static(b"cannot be read")).is_some());
    break_all(&mut world, &[from, to]);
    let ask = peer.ask_only();
    let (from_name, to_name) = (Bytes8(b"f"), Bytes8(b"g"));
    let rename =
        Rename { ask, from_dir: from, from_name, to_dir: to, to_name, rule: RenameRule::Replace, force: false, terms: Terms::NONE };
    let got = asked(&mut world, &mut peer, rename.into());
    let Reply::Failed(failed) = got.reply() else { panic!("{got:?}") };
    assert_eq!(failed.status, Status::EIO);
}

#[test]
fn locks_of_two_objects_that_cannot_be_read_are_listed_without_their_places() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let files = ["a", "b"].map(|name| world.create(&mut peer, name).object);
    for file in files {
        world.lock(&mut peer, file);
    }
    break_all(&mut world, &files);
    let list = ListLocks { ask: peer.ask_only(), object: ObjectId(0), after_object: ObjectId(0), after_row: 0, places: true };
    let got = asked(&mut world, &mut peer, list.into());
    let Reply::LockRows(rows) = got.reply() else { panic!("{got:?}") };
    assert!(rows.rows.iter().map(|row| row.place.0).eq([b"", b""]));
}

#[test]
fn realms_whose_directories_cannot_be_read_are_listed_without_their_places() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let roots = [&b"a"[..], b"b", b"c"].map(|name| {
        let make = MakeRealm { ask: peer.ask_only(), dir: ROOT, name: Bytes8(name), mode: 0o755, uid: 0, gid: 0, terms: Terms::NONE };
        world.send(&mut peer, &[make.into()]);
        let got = world.got_one(&peer);
        let Reply::Changed(changed) = got.reply() else { panic!("{got:?}") };
        changed.effects.iter().find(|effect| effect.before == 0).unwrap().attr.object
    });
    break_all(&mut world, &roots[..2]);
    let list = ListRealms { ask: peer.ask_only(), realm: Realm(0), after: Realm(0) };
    let got = asked(&mut world, &mut peer, list.into());
    let Reply::RealmRows(rows) = got.reply() else { panic!("{got:?}") };
    assert!(rows.rows.iter().map(|row| row.place.0).eq([&b"/"[..], b"", b"", b"/c"]));
}
