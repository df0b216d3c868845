//! Random operations against a plain tree, which follows the words of POSIX and knows nothing of records, blocks and stores.

use super::contents::{resize, set};
use super::xattrs::{get, names, remove_xattr, set_xattr};
use super::{
    ASK, Bytes8, LARGE, ROOT_DIR, Reader, RenameRule, Reply, Want, World, create, link, list_of, mkdir, open_or_create, reads, rename,
    rmdir, symlink, unlink, write,
};
use crate::store::Counter;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use cistern_wire::limits::ROOT;
use cistern_wire::{Expect, Item, Lookup, Message, ObjectId, ObjectKind, SetAttr, SetMask, SetXattr, Status, XattrRule};
use proptest::prelude::*;

use ObjectKind::{Directory, File, Symlink};

#[derive(Clone, Debug)]
struct Node {
    kind: ObjectKind,
    entries: BTreeMap<Vec<u8>, u64>,
    contents: Vec<u8>,
    version: u64,
    mode: u16,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A tree of nodes by number.
#[derive(Clone, Debug)]
struct Tree {
    nodes: BTreeMap<u64, Node>,
    next: u64,
}

#[derive(Clone, Debug)]
enum Move {
    Create { dir: u64, name: Vec<u8>, exclusive: bool },
    Mkdir { dir: u64, name: Vec<u8> },
    Symlink { dir: u64, name: Vec<u8> },
    Link { object: u64, dir: u64, name: Vec<u8> },
    Unlink { dir: u64, name: Vec<u8> },
    Rmdir { dir: u64, name: Vec<u8> },
    Rename { from: (u64, Vec<u8>), to: (u64, Vec<u8>), rule: RenameRule },
    Write { object: u64, offset: u64, data: Vec<u8>, truncate: bool },
    SetMode { object: u64, mode: u16 },
    Resize { object: u64, size: u64 },
    SetXattr { object: u64, name: Vec<u8>, value: Vec<u8>, rule: XattrRule },
    RemoveXattr { object: u64, name: Vec<u8> },
    Batch { items: Vec<Move>, expect: Vec<(u64, u64)> },
    Lookup { names: Vec<Vec<u8>> },
    Restart,
}

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

type Outcome = Result<(), Status>;

impl Move {
    /// The same with what items made in place of their names; ESTALE for one that is not before it.
    fn resolved(&self, subjects: &[u64]) -> Result<Self, Status> {
        let of = |id: u64| match ObjectId(id).maker() {
            Some(item) => subjects.get(item).copied().ok_or(Status::ESTALE),
            None => Ok(id),
        };
        let mut step = self.clone();
        match &mut step {
            Self::Create { dir, .. }
            | Self::Mkdir { dir, .. }
            | Self::Symlink { dir, .. }
            | Self::Unlink { dir, .. }
            | Self::Rmdir { dir, .. } => *dir = of(*dir)?,
            Self::Link { object, dir, .. } => (*object, *dir) = (of(*object)?, of(*dir)?),
            Self::Rename { from, to, .. } => (from.0, to.0) = (of(from.0)?, of(to.0)?),
            Self::Write { object, .. }
            | Self::SetMode { object, .. }
            | Self::Resize { object, .. }
            | Self::SetXattr { object, .. }
            | Self::RemoveXattr { object, .. } => *object = of(*object)?,
            Self::Batch { .. } | Self::Lookup { .. } | Self::Restart => {}
        }
        Ok(step)
    }
}

impl Tree {
    fn new() -> Self {
        let root =
            Node { kind: Directory, entries: BTreeMap::new(), contents: Vec::new(), version: 1, mode: 0o755, xattrs: BTreeMap::new() };
        Self { nodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1 }
    }

    fn dir(&mut self, id: u64) -> Result<&mut Node, Status> {
        let node = self.nodes.get_mut(&id).ok_or(Status::ESTALE)?;
        if node.kind == Directory { Ok(node) } else { Err(Status::ENOTDIR) }
    }

    fn kind(&self, id: u64) -> ObjectKind {
        self.nodes[&id].kind
    }

    /// How many names an object has, with those that a directory has by itself.
    fn links(&self, id: u64) -> usize {
        let named = self.nodes.values().flat_map(|node| node.entries.values()).filter(|object| **object == id).count();
        match self.kind(id) {
            Directory => 2 + self.nodes[&id].entries.values().filter(|object| self.kind(**object) == Directory).count(),
            File | Symlink => named,
        }
    }

    fn touch(&mut self, ids: &[u64]) {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.version += 1;
            }
        }
    }

    /// Whether `id` is `top` or below it.
    fn below(&self, top: u64, id: u64) -> bool {
        top == id || self.nodes[&top].entries.values().any(|child| self.kind(*child) == Directory && self.below(*child, id))
    }

    /// Takes away what has no name any more.
    fn sweep(&mut self, id: u64) {
        let named = self.nodes.values().flat_map(|node| node.entries.values()).any(|object| *object == id);
        if !named {
            self.nodes.remove(&id);
        }
    }

    fn run(&mut self, step: &Move) -> Outcome {
        match step {
            Move::Create { dir, name, exclusive } => match self.dir(*dir)?.entries.get(name).copied() {
                Some(_) if *exclusive => Err(Status::EEXIST),
                Some(found) => match self.kind(found) {
                    Directory => Err(Status::EISDIR),
                    Symlink => Err(Status::EEXIST),
                    File => Ok(()),
                },
                None => self.make(*dir, name, File, Vec::new()),
            },
            Move::Mkdir { dir, name } => self.make(*dir, name, Directory, Vec::new()),
            Move::Symlink { dir, name } => self.make(*dir, name, Symlink, b"target".to_vec()),
            Move::Link { object, dir, name } => {
                let kind = self.nodes.get(object).ok_or(Status::ESTALE)?.kind;
                if kind == Directory {
                    return Err(Status::EPERM);
                }
                if self.dir(*dir)?.entries.contains_key(name) {
                    return Err(Status::EEXIST);
                }
                self.dir(*dir)?.entries.insert(name.clone(), *object);
                self.touch(&[*dir, *object]);
                Ok(())
            }
            Move::Unlink { dir, name } => self.remove(*dir, name, false),
            Move::Rmdir { dir, name } => self.remove(*dir, name, true),
            Move::Rename { from, to, rule } => self.rename(from, to, *rule),
            Move::Write { object, offset, data, truncate } => self.write(*object, *offset, data, *truncate),
            Move::SetMode { object, mode } => {
                self.nodes.get_mut(object).ok_or(Status::ESTALE)?.mode = *mode;
                self.touch(&[*object]);
                Ok(())
            }
            Move::Resize { object, size } => {
                self.file(*object)?.contents.resize(usize::try_from(*size).unwrap(), 0);
                self.touch(&[*object]);
                Ok(())
            }
            Move::SetXattr { object, name, value, rule } => {
                let node = self.nodes.get_mut(object).ok_or(Status::ESTALE)?;
                match (rule, node.xattrs.contains_key(name)) {
                    (XattrRule::Create, true) => return Err(Status::EEXIST),
                    (XattrRule::Replace, false) => return Err(Status::ENODATA),
                    _ => {}
                }
                node.xattrs.insert(name.clone(), value.clone());
                self.touch(&[*object]);
                Ok(())
            }
            Move::RemoveXattr { object, name } => {
                let node = self.nodes.get_mut(object).ok_or(Status::ESTALE)?;
                node.xattrs.remove(name).ok_or(Status::ENODATA)?;
                self.touch(&[*object]);
                Ok(())
            }
            Move::Batch { items, expect } => self.batch(items, expect).map(|_| ()).map_err(|(status, _)| status),
            Move::Lookup { .. } | Move::Restart => Ok(()),
        }
    }

    /// What each item was about, or which failed: runs the items one by one, then makes one version of all that changed.
    fn batch(&mut self, items: &[Move], expect: &[(u64, u64)]) -> Result<Vec<u64>, (Status, Option<usize>)> {
        let before: BTreeMap<u64, u64> = self.nodes.iter().map(|(id, node)| (*id, node.version)).collect();
        if expect.iter().any(|(object, version)| before.get(object).copied().unwrap_or(0) != *version) {
            return Err((Status::VERSION_CHANGED, None));
        }
        let mut subjects = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let failed = |status| (status, Some(index));
            let item = item.resolved(&subjects).map_err(failed)?;
            let subject = self.subject(&item);
            self.run(&item).map_err(failed)?;
            subjects.push(subject.or_else(|| self.subject(&item)).expect("an item that is done is about something"));
        }
        for (id, node) in &mut self.nodes {
            node.version = node.version.min(before.get(id).map_or(1, |version| version + 1));
        }
        Ok(subjects)
    }

    /// What an item is about, as far as it exists now.
    fn subject(&self, item: &Move) -> Option<u64> {
        let named = |dir: &u64, name: &Vec<u8>| self.nodes.get(dir).and_then(|node| node.entries.get(name)).copied();
        match item {
            Move::Create { dir, name, .. }
            | Move::Mkdir { dir, name }
            | Move::Symlink { dir, name }
            | Move::Unlink { dir, name }
            | Move::Rmdir { dir, name } => named(dir, name),
            Move::Rename { from, .. } => named(&from.0, &from.1),
            Move::Link { object, .. }
            | Move::Write { object, .. }
            | Move::SetMode { object, .. }
            | Move::Resize { object, .. }
            | Move::SetXattr { object, .. }
            | Move::RemoveXattr { object, .. } => Some(*object),
            Move::Batch { .. } | Move::Lookup { .. } | Move::Restart => None,
        }
    }

    /// What walking names from the root comes to: the objects on the way, and why it stops.
    fn walk(&self, names: &[Vec<u8>]) -> (Vec<u64>, Status) {
        let mut way = vec![ROOT];
        for name in names {
            let at = &self.nodes[way.last().expect("the root")];
            match at.kind {
                Symlink => break,
                _ if name == b"." => return (way, Status::EINVAL),
                File => return (way, Status::ENOTDIR),
                Directory => match at.entries.get(name) {
                    Some(next) => way.push(*next),
                    None => return (way, Status::ENOENT),
                },
            }
        }
        (way, Status::OK)
    }

    fn file(&mut self, id: u64) -> Result<&mut Node, Status> {
        let node = self.nodes.get_mut(&id).ok_or(Status::ESTALE)?;
        match node.kind {
            Directory => Err(Status::EISDIR),
            Symlink => Err(Status::EINVAL),
            File => Ok(node),
        }
    }

    fn make(&mut self, dir: u64, name: &[u8], kind: ObjectKind, contents: Vec<u8>) -> Outcome {
        let id = self.next;
        let node = self.dir(dir)?;
        if node.entries.contains_key(name) {
            return Err(Status::EEXIST);
        }
        node.entries.insert(name.to_vec(), id);
        self.next += 1;
        self.touch(&[dir]);
        let mode = match kind {
            File => 0o644,
            Directory => 0o755,
            Symlink => 0o777,
        };
        self.nodes.insert(id, Node { kind, entries: BTreeMap::new(), contents, version: 1, mode, xattrs: BTreeMap::new() });
        Ok(())
    }

    fn remove(&mut self, dir: u64, name: &[u8], directory: bool) -> Outcome {
        let found = *self.dir(dir)?.entries.get(name).ok_or(Status::ENOENT)?;
        match (self.kind(found) == Directory, directory) {
            (true, false) => return Err(Status::EISDIR),
            (false, true) => return Err(Status::ENOTDIR),
            (true, true) if !self.nodes[&found].entries.is_empty() => return Err(Status::ENOTEMPTY),
            _ => {}
        }
        self.dir(dir)?.entries.remove(name);
        self.touch(&[dir, found]);
        self.sweep(found);
        Ok(())
    }

    fn rename(&mut self, from: &(u64, Vec<u8>), to: &(u64, Vec<u8>), rule: RenameRule) -> Outcome {
        self.dir(from.0)?;
        self.dir(to.0)?;
        let source = *self.dir(from.0)?.entries.get(&from.1).ok_or(Status::ENOENT)?;
        let target = self.dir(to.0)?.entries.get(&to.1).copied();
        match (rule, target) {
            (RenameRule::NoReplace, Some(_)) => return Err(Status::EEXIST),
            (RenameRule::Exchange, None) => return Err(Status::ENOENT),
            (_, Some(target)) if target == source => return Ok(()),
            _ if self.kind(source) == Directory && self.below(source, to.0) => return Err(Status::EINVAL),
            _ => {}
        }
        let Some(target) = target else { return self.go(from, to, source, None) };
        if rule == RenameRule::Exchange {
            if self.kind(target) == Directory && self.below(target, from.0) {
                return Err(Status::EINVAL);
            }
            self.dir(from.0)?.entries.insert(from.1.clone(), target);
            self.dir(to.0)?.entries.insert(to.1.clone(), source);
            self.touch(&[from.0, to.0, source, target]);
            return Ok(());
        }
        match (self.kind(source) == Directory, self.kind(target) == Directory) {
            (true, false) => Err(Status::ENOTDIR),
            (false, true) => Err(Status::EISDIR),
            (true, true) if !self.nodes[&target].entries.is_empty() => Err(Status::ENOTEMPTY),
            _ => self.go(from, to, source, Some(target)),
        }
    }

    fn go(&mut self, from: &(u64, Vec<u8>), to: &(u64, Vec<u8>), source: u64, target: Option<u64>) -> Outcome {
        self.dir(from.0)?.entries.remove(&from.1);
        self.dir(to.0)?.entries.insert(to.1.clone(), source);
        self.touch(&[from.0, to.0, source]);
        if let Some(target) = target {
            self.touch(&[target]);
            self.sweep(target);
        }
        Ok(())
    }

    fn write(&mut self, object: u64, offset: u64, data: &[u8], truncate: bool) -> Outcome {
        let node = self.file(object)?;
        if data.is_empty() && !truncate {
            return Ok(());
        }
        let at = usize::try_from(offset).unwrap();
        let end = at + data.len();
        node.contents.resize(if truncate { end } else { end.max(node.contents.len()) }, 0);
        node.contents[at..end].copy_from_slice(data);
        self.touch(&[object]);
        Ok(())
    }
}

/// A step as a message, if it is one mutation.
fn message(step: &Move) -> Option<Message<'_>> {
    let id = ObjectId;
    Some(match step {
        Move::Create { dir, name, exclusive: true } => create(id(*dir), name).into(),
        Move::Create { dir, name, exclusive: false } => open_or_create(id(*dir), name).into(),
        Move::Mkdir { dir, name } => mkdir(id(*dir), name).into(),
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
        (Ok((plan, done)), Ok(subjects)) => {
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
    assert_eq!(w.namespace.objects(&w.overlay.view()), tree.nodes.len() as u64);
    let bytes: usize = tree.nodes.values().map(|node| node.contents.len() + node.xattrs.values().map(Vec::len).sum::<usize>()).sum();
    assert_eq!(w.overlay.view().counter(Counter::Bytes), Ok(bytes as u64));
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
            let expected = tree.clone().run(step);
            prop_assert_eq!(run(&mut w, step, &tree), expected, "{:?}", step);
            if expected.is_ok() {
                tree.run(step).expect("it did on the copy");
            }
        }
        compare(&mut w, &tree);
    }
}
