//! Random operations, on the server's namespace and on a plain tree: their results, answers and ends must be the same.

use super::contents::{resize, set};
use super::realms::{make_realm, set_quota};
use super::tree::{Move, Node, Outcome, Tree};
use super::xattrs::{get, names, remove_xattr, set_xattr};
use super::{
    ASK, Bytes8, LARGE, ROOT_DIR, Reader, RenameRule, Reply, Want, World, create, link, list_of, mkdir, open_or_create, reads, rename,
    rmdir, symlink, unlink, write,
};
use crate::store::Counter;
use crate::store::Seen;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use cistern_wire::{Expect, Item, Lookup, Message, ObjectId, ObjectKind, Realm, SetAttr, SetMask, SetXattr, Status, XattrRule};
use proptest::prelude::*;

use ObjectKind::Directory;

fn any_move() -> impl Strategy<Value = Move> {
    let name = prop_oneof![Just(b"a"), Just(b"b"), Just(b"c"), Just(b".")].prop_map(|name| name.to_vec());
    let batch = (proptest::collection::vec(any_change(true), 1..6), proptest::collection::vec((1..6u64, 0..3u64), 0..2));
    prop_oneof![
        30 => any_change(false),
        10 => batch.prop_map(|(items, expect)| Move::Batch { items, expect }),
        3 => proptest::collection::vec(name, 0..4).prop_map(|names| Move::Lookup { names }),
        1 => Just(Move::Restart),
    ]
}

/// A mutation; within a batch objects are also named as what the first items made.
fn any_change(in_batch: bool) -> impl Strategy<Value = Move> {
    let made = if in_batch { 3 } else { 0 };
    let id = prop_oneof![3 => Just(1u64), 5 => 1..9u64, made => (0..3u8).prop_map(|item| ObjectId::made_by(item).0)];
    let name = prop_oneof![Just(b"a"), Just(b"b"), Just(b"c")].prop_map(|name| name.to_vec());
    let place = (id.clone(), name);
    let rule = proptest::sample::select(RenameRule::ALL.to_vec());
    let attribute = prop_oneof![Just(b"x"), Just(b"y")].prop_map(|name| name.to_vec());
    prop_oneof![
        4 => (place.clone(), any::<bool>()).prop_map(|((dir, name), exclusive)| Move::Create { dir, name, exclusive }),
        4 => place.clone().prop_map(|(dir, name)| Move::Mkdir { dir, name }),
        3 => place.clone().prop_map(|(dir, name)| Move::MakeRealm { dir, name }),
        2 => (id.clone(), proptest::option::of(0..5u64), proptest::option::of(0..9u64))
            .prop_map(|(root, objects, bytes)| Move::SetQuota { root, objects, bytes }),
        1 => place.clone().prop_map(|(dir, name)| Move::Symlink { dir, name }),
        2 => (id.clone(), place.clone()).prop_map(|(object, (dir, name))| Move::Link { object, dir, name }),
        2 => place.clone().prop_map(|(dir, name)| Move::Unlink { dir, name }),
        2 => place.clone().prop_map(|(dir, name)| Move::Rmdir { dir, name }),
        8 => (place.clone(), place, rule).prop_map(|(from, to, rule)| Move::Rename { from, to, rule }),
        1 => (id.clone(), 0..0o7777u16).prop_map(|(object, mode)| Move::SetMode { object, mode }),
        2 => (id.clone(), 0..20u64).prop_map(|(object, size)| Move::Resize { object, size }),
        2 => (id.clone(), 0..9u64, proptest::collection::vec(any::<u8>(), 0..5), any::<bool>())
            .prop_map(|(object, offset, data, truncate)| Move::Write { object, offset, data, truncate }),
        3 => (id.clone(), attribute.clone(), proptest::collection::vec(any::<u8>(), 0..4), proptest::sample::select(XattrRule::ALL.to_vec()))
            .prop_map(|(object, name, value, rule)| Move::SetXattr { object, name, value, rule }),
        2 => (id, attribute).prop_map(|(object, name)| Move::RemoveXattr { object, name }),
    ]
}

/// A step as a message, if it is one mutation.
fn message(step: &Move) -> Option<Message<'_>> {
    let id = ObjectId;
    Some(match step {
        Move::Create { dir, name, exclusive: true } => create(id(*dir), name).into(),
        Move::Create { dir, name, exclusive: false } => open_or_create(id(*dir), name).into(),
        Move::Mkdir { dir, name } => mkdir(id(*dir), name).into(),
        Move::MakeRealm { dir, name } => make_realm(id(*dir), name).into(),
        Move::SetQuota { root, objects, bytes } => set_quota(id(*root), *objects, *bytes).into(),
        Move::Symlink { dir, name } => symlink(id(*dir), name, b"target").into(),
        Move::Link { object, dir, name } => link(id(*object), id(*dir), name).into(),
        Move::Unlink { dir, name } => unlink(id(*dir), name).into(),
        Move::Rmdir { dir, name } => rmdir(id(*dir), name).into(),
        Move::Rename { from, to, rule } => rename((id(from.0), &from.1), (id(to.0), &to.1), *rule).into(),
        Move::Write { object, offset, data, truncate } => write(id(*object), *offset, data, *truncate).into(),
        Move::SetMode { object, mode } => SetAttr { mode: *mode, ..set(id(*object), SetMask::MODE) }.into(),
        Move::Resize { object, size } => resize(id(*object), *size).into(),
        Move::SetXattr { object, name, value, rule } => SetXattr { rule: *rule, ..set_xattr(id(*object), name, value) }.into(),
        Move::RemoveXattr { object, name } => remove_xattr(id(*object), name).into(),
        Move::Batch { .. } | Move::Lookup { .. } | Move::Restart => return None,
    })
}

/// A step as an item of a batch.
fn item(step: &Move) -> Item<'_> {
    match message(step).expect("an item is a mutation") {
        Message::Create(m) => m.into(),
        Message::Mkdir(m) => m.into(),
        Message::MakeRealm(m) => m.into(),
        Message::SetQuota(m) => m.into(),
        Message::Symlink(m) => m.into(),
        Message::Link(m) => m.into(),
        Message::Unlink(m) => m.into(),
        Message::Rmdir(m) => m.into(),
        Message::Rename(m) => m.into(),
        Message::Write(m) => m.into(),
        Message::SetAttr(m) => m.into(),
        Message::SetXattr(m) => m.into(),
        Message::RemoveXattr(m) => m.into(),
        other => panic!("{} is no item", other.kind().name()),
    }
}

fn run(w: &mut World, step: &Move, tree: &Tree) -> Outcome {
    let message = match step {
        Move::Batch { items, expect } => return run_batch(w, items, expect, tree),
        Move::Lookup { names } => {
            let wanted: Vec<Bytes8<'_>> = names.iter().map(|name| Bytes8(name)).collect();
            let lookup = Lookup { ask: ASK, start: ROOT_DIR, want: Want::Nothing, names: list_of(&wanted) };
            let reply = w.read(lookup, LARGE).expect("the root is a directory");
            let Ok(Reply::Walked(walked)) = Reader::new(&reply).get() else { panic!("not a WALKED reply") };
            let way: Vec<u64> = walked.steps.iter().map(|step| step.attr.object.0).collect();
            assert_eq!((way, walked.status), tree.walk(names));
            return Ok(());
        }
        Move::Restart => {
            w.restart();
            return Ok(());
        }
        step => message(step).expect("a mutation"),
    };
    let before: BTreeMap<ObjectId, u64> = (1..30).map(ObjectId).filter_map(|object| Some((object, w.attr(object).ok()?.version))).collect();
    let (plan, effects) = w.change(message)?;
    // What the answer says is what happened, and exactly what was planned has changed.
    for effect in &effects {
        let object = effect.attr.object;
        assert_eq!(effect.before, before.get(&object).copied().unwrap_or(0));
        let now = w.attr(object);
        if effect.attr.nlink == 0 { assert_eq!(now, Err(Status::ESTALE)) } else { assert_eq!(now, Ok(effect.attr)) }
    }
    for (object, version) in before {
        let changed = w.attr(object).map(|attr| attr.version) != Ok(version);
        assert_eq!(changed, plan.affected().contains(&object), "{object}");
    }
    Ok(())
}

/// Runs a batch, whose answer must be what running its items one by one in the tree comes to.
fn run_batch(w: &mut World, items: &[Move], expect: &[(u64, u64)], tree: &Tree) -> Outcome {
    let wire: Vec<Item<'_>> = items.iter().map(item).collect();
    let expected: Vec<Expect> = expect.iter().map(|(object, version)| Expect { object: ObjectId(*object), version: *version }).collect();
    let mut after = tree.clone();
    match (w.batch(&wire, &expected), after.batch(items, expect)) {
        (Ok((plan, done)), Ok(subjects)) if !after.exceeds(tree) => {
            let version = |id: &u64| after.nodes.get(id).map_or(0, |node| node.version);
            let told: Vec<(u64, u64)> = done.iter().map(|result| (result.object.0, result.version)).collect();
            assert_eq!(told, subjects.iter().map(|id| (*id, version(id))).collect::<Vec<_>>());
            let mut changed: Vec<u64> = tree.nodes.iter().filter(|(id, node)| version(id) != node.version).map(|(id, _)| *id).collect();
            let mut affected: Vec<u64> = plan.affected().iter().map(|object| object.0).collect();
            changed.sort_unstable();
            affected.sort_unstable();
            assert_eq!(affected, changed);
            Ok(())
        }
        (Err((Status::EDQUOT, None)), Ok(_)) if after.exceeds(tree) => Err(Status::EDQUOT),
        (Err((status, item)), Err(expected)) => {
            assert_eq!((status, item.map(usize::from)), expected);
            Err(status)
        }
        (done, expected) => panic!("{done:?}, expected {expected:?}"),
    }
}

fn compare(w: &mut World, tree: &Tree) {
    for id in 1..tree.next + 2 {
        let attr = w.attr(ObjectId(id));
        let Some(node) = tree.nodes.get(&id) else {
            assert_eq!(attr, Err(Status::ESTALE), "#{id}");
            continue;
        };
        let attr = attr.expect("it is in the tree");
        assert_eq!((attr.kind, attr.version, attr.nlink as usize), (node.kind, node.version, tree.links(id)), "#{id}");
        assert_eq!(attr.mode, node.mode, "#{id}");
        assert_eq!(Ok(attr.realm), w.attr(ObjectId(node.realm)).map(|root| root.realm), "#{id}");
        assert_eq!(names(w, ObjectId(id), LARGE), Ok(node.xattrs.keys().cloned().collect()), "#{id}");
        for (name, value) in &node.xattrs {
            assert_eq!(get(w, ObjectId(id), name, node.version).as_ref(), Ok(value), "#{id}");
        }
        if node.kind == Directory {
            let entries: Vec<_> = node.entries.iter().map(|(name, object)| (name.clone(), ObjectId(*object))).collect();
            assert_eq!((attr.size, reads::list(w, ObjectId(id))), (entries.len() as u64, entries), "#{id}");
        } else {
            assert_eq!((attr.size, w.contents(ObjectId(id))), (node.contents.len() as u64, node.contents.clone()), "#{id}");
        }
    }
    assert_eq!(w.namespace.objects(&w.store.view(&Seen::default())), tree.nodes.len() as u64);
    let bytes: usize = tree.nodes.values().map(Node::bytes).sum();
    for root in tree.realms() {
        let realm = w.attr(ObjectId(root)).expect("it is in the tree").realm;
        let record = *w.store.view(&Seen::default()).realm(realm).expect("it is known");
        assert_eq!(((record.objects, record.bytes), record.root), (tree.used(root), ObjectId(root)), "realm {realm}");
        assert_eq!((record.objects_max, record.bytes_max), tree.quotas.get(&root).copied().unwrap_or((0, 0)), "realm {realm}");
        let around = tree.nodes.iter().find(|(_, node)| node.entries.values().any(|id| *id == root)).expect("it has a name").0;
        assert_eq!(Ok(record.parent), w.attr(ObjectId(*around)).map(|dir| dir.realm), "realm {realm}");
    }
    assert_eq!(w.store.view(&Seen::default()).realms(Realm::TREE).count(), tree.realms().count());
    assert_eq!(w.store.view(&Seen::default()).counter(Counter::Bytes), Ok(bytes as u64));
    assert_eq!(w.attr(ROOT_DIR).map(|attr| attr.kind), Ok(Directory));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn every_sequence_of_operations_means_what_it_means_in_a_plain_tree(
        moves in proptest::collection::vec(any_move(), 1..60),
        forgetful: bool,
    ) {
        let mut w = World::new();
        let mut tree = Tree::new();
        w.forgetful = forgetful;
        for step in &moves {
            let expected = tree.outcome(step);
            prop_assert_eq!(run(&mut w, step, &tree), expected, "{:?}", step);
            if expected.is_ok() {
                tree.run(step).expect("it did on the copy");
            }
        }
        compare(&mut w, &tree);
    }
}
