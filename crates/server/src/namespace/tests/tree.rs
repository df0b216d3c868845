//! A plain tree, which follows the words of POSIX and knows nothing of records, blocks and stores; and what is done with it.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use cistern_wire::limits::ROOT;
use cistern_wire::{ObjectId, ObjectKind, RenameRule, Status, XattrRule};

use ObjectKind::{Directory, File, Symlink};

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: ObjectKind,
    pub(super) entries: BTreeMap<Vec<u8>, u64>,
    pub(super) contents: Vec<u8>,
    pub(super) version: u64,
    pub(super) mode: u16,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The directory that begins its realm.
    pub(super) realm: u64,
}

/// A tree of nodes by number.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) nodes: BTreeMap<u64, Node>,
    pub(super) next: u64,
    /// Most objects and bytes of a realm, by the directory that begins it; 0: no bound.
    pub(super) quotas: BTreeMap<u64, (u64, u64)>,
}

#[derive(Clone, Debug)]
pub(super) enum Move {
    Create { dir: u64, name: Vec<u8>, exclusive: bool },
    Mkdir { dir: u64, name: Vec<u8> },
    MakeRealm { dir: u64, name: Vec<u8> },
    SetQuota { root: u64, objects: Option<u64>, bytes: Option<u64> },
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

pub(super) type Outcome = Result<(), Status>;

impl Move {
    /// The same with what items made in place of their names; ESTALE for one that is not before it.
    pub(super) fn resolved(&self, subjects: &[u64]) -> Result<Self, Status> {
        let of = |id: u64| match ObjectId(id).maker() {
            Some(item) => subjects.get(item).copied().ok_or(Status::ESTALE),
            None => Ok(id),
        };
        let mut step = self.clone();
        match &mut step {
            Self::Create { dir, .. }
            | Self::Mkdir { dir, .. }
            | Self::MakeRealm { dir, .. }
            | Self::Symlink { dir, .. }
            | Self::Unlink { dir, .. }
            | Self::Rmdir { dir, .. } => *dir = of(*dir)?,
            Self::Link { object, dir, .. } => (*object, *dir) = (of(*object)?, of(*dir)?),
            Self::Rename { from, to, .. } => (from.0, to.0) = (of(from.0)?, of(to.0)?),
            Self::Write { object, .. }
            | Self::SetMode { object, .. }
            | Self::Resize { object, .. }
            | Self::SetXattr { object, .. }
            | Self::SetQuota { root: object, .. }
            | Self::RemoveXattr { object, .. } => *object = of(*object)?,
            Self::Batch { .. } | Self::Lookup { .. } | Self::Restart => {}
        }
        Ok(step)
    }
}

impl Node {
    fn new(kind: ObjectKind, mode: u16, realm: u64) -> Self {
        Self { kind, entries: BTreeMap::new(), contents: Vec::new(), version: 1, mode, xattrs: BTreeMap::new(), realm }
    }

    pub(super) fn bytes(&self) -> usize {
        self.contents.len() + self.xattrs.values().map(Vec::len).sum::<usize>()
    }
}

/// Realms.
impl Tree {
    /// The directories that begin realms, but for the root.
    pub(super) fn realms(&self) -> impl Iterator<Item = u64> {
        self.nodes.iter().filter(|(id, node)| **id != ROOT && node.realm == **id).map(|(id, _)| *id)
    }

    /// Objects and bytes of a realm and of those within it, counted.
    pub(super) fn used(&self, root: u64) -> (u64, u64) {
        let within = |id: &u64| self.kind(root) == Directory && self.holds(root, *id);
        let nodes = self.nodes.iter().filter(|(id, _)| within(id));
        nodes.fold((0, 0), |(objects, bytes), (_, node)| (objects + 1, bytes + node.bytes() as u64))
    }

    /// Whether `id` is below `top`, or is it; a file, too.
    fn holds(&self, top: u64, id: u64) -> bool {
        top == id || self.nodes[&top].entries.values().any(|child| self.holds(*child, id))
    }

    /// Whether a realm has more than before, and more than it may.
    pub(super) fn exceeds(&self, before: &Self) -> bool {
        self.realms().any(|root| {
            let (most_objects, most_bytes) = self.quotas.get(&root).copied().unwrap_or((0, 0));
            let (had, has) = (if before.nodes.contains_key(&root) { before.used(root) } else { (0, 0) }, self.used(root));
            let over = |had: u64, has: u64, most: u64| most > 0 && has > most && has > had;
            over(had.0, has.0, most_objects) || over(had.1, has.1, most_bytes)
        })
    }

    /// What a step comes to: EDQUOT if it would leave a realm with more than it may.
    pub(super) fn outcome(&self, step: &Move) -> Outcome {
        let mut after = self.clone();
        after.run(step)?;
        if after.exceeds(self) { Err(Status::EDQUOT) } else { Ok(()) }
    }
}

impl Tree {
    pub(super) fn new() -> Self {
        Self { nodes: BTreeMap::from([(ROOT, Node::new(Directory, 0o755, ROOT))]), next: ROOT + 1, quotas: BTreeMap::new() }
    }

    pub(super) fn dir(&mut self, id: u64) -> Result<&mut Node, Status> {
        let node = self.nodes.get_mut(&id).ok_or(Status::ESTALE)?;
        if node.kind == Directory { Ok(node) } else { Err(Status::ENOTDIR) }
    }

    pub(super) fn kind(&self, id: u64) -> ObjectKind {
        self.nodes[&id].kind
    }

    /// How many names an object has, with those that a directory has by itself.
    pub(super) fn links(&self, id: u64) -> usize {
        let named = self.nodes.values().flat_map(|node| node.entries.values()).filter(|object| **object == id).count();
        match self.kind(id) {
            Directory => 2 + self.nodes[&id].entries.values().filter(|object| self.kind(**object) == Directory).count(),
            File | Symlink => named,
        }
    }

    pub(super) fn touch(&mut self, ids: &[u64]) {
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
    pub(super) fn below(&self, top: u64, id: u64) -> bool {
        top == id || self.nodes[&top].entries.values().any(|child| self.kind(*child) == Directory && self.below(*child, id))
    }

    /// Takes away what has no name any more.
    pub(super) fn sweep(&mut self, id: u64) {
        let named = self.nodes.values().flat_map(|node| node.entries.values()).any(|object| *object == id);
        if !named {
            self.nodes.remove(&id);
        }
    }

    pub(super) fn run(&mut self, step: &Move) -> Outcome {
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
            Move::MakeRealm { dir, name } => {
                self.make(*dir, name, Directory, Vec::new())?;
                let id = self.next - 1;
                self.nodes.get_mut(&id).expect("made").realm = id;
                Ok(())
            }
            Move::SetQuota { root, objects, bytes } => {
                let node = self.nodes.get(root).ok_or(Status::ESTALE)?;
                if node.realm != *root || *root == ROOT {
                    return Err(Status::EINVAL);
                }
                if objects.is_some() || bytes.is_some() {
                    let quota = self.quotas.entry(*root).or_default();
                    *quota = (objects.unwrap_or(quota.0), bytes.unwrap_or(quota.1));
                    self.touch(&[*root]);
                }
                Ok(())
            }
            Move::Symlink { dir, name } => self.make(*dir, name, Symlink, b"target".to_vec()),
            Move::Link { object, dir, name } => {
                let kind = self.nodes.get(object).ok_or(Status::ESTALE)?.kind;
                if kind == Directory {
                    return Err(Status::EPERM);
                }
                if self.dir(*dir)?.entries.contains_key(name) {
                    return Err(Status::EEXIST);
                }
                if self.nodes[object].realm != self.nodes[dir].realm {
                    return Err(Status::EXDEV);
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
    pub(super) fn batch(&mut self, items: &[Move], expect: &[(u64, u64)]) -> Result<Vec<u64>, (Status, Option<usize>)> {
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
    pub(super) fn subject(&self, item: &Move) -> Option<u64> {
        let named = |dir: &u64, name: &Vec<u8>| self.nodes.get(dir).and_then(|node| node.entries.get(name)).copied();
        match item {
            Move::Create { dir, name, .. }
            | Move::Mkdir { dir, name }
            | Move::MakeRealm { dir, name }
            | Move::Symlink { dir, name }
            | Move::Unlink { dir, name }
            | Move::Rmdir { dir, name } => named(dir, name),
            Move::Rename { from, .. } => named(&from.0, &from.1),
            Move::Link { object, .. }
            | Move::Write { object, .. }
            | Move::SetMode { object, .. }
            | Move::Resize { object, .. }
            | Move::SetXattr { object, .. }
            | Move::SetQuota { root: object, .. }
            | Move::RemoveXattr { object, .. } => Some(*object),
            Move::Batch { .. } | Move::Lookup { .. } | Move::Restart => None,
        }
    }

    /// What walking names from the root comes to: the objects on the way, and why it stops.
    pub(super) fn walk(&self, names: &[Vec<u8>]) -> (Vec<u64>, Status) {
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

    pub(super) fn file(&mut self, id: u64) -> Result<&mut Node, Status> {
        let node = self.nodes.get_mut(&id).ok_or(Status::ESTALE)?;
        match node.kind {
            Directory => Err(Status::EISDIR),
            Symlink => Err(Status::EINVAL),
            File => Ok(node),
        }
    }

    pub(super) fn make(&mut self, dir: u64, name: &[u8], kind: ObjectKind, contents: Vec<u8>) -> Outcome {
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
        let realm = self.nodes[&dir].realm;
        self.nodes.insert(id, Node { contents, ..Node::new(kind, mode, realm) });
        Ok(())
    }

    pub(super) fn remove(&mut self, dir: u64, name: &[u8], directory: bool) -> Outcome {
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

    pub(super) fn rename(&mut self, from: &(u64, Vec<u8>), to: &(u64, Vec<u8>), rule: RenameRule) -> Outcome {
        self.dir(from.0)?;
        self.dir(to.0)?;
        if self.nodes[&from.0].realm != self.nodes[&to.0].realm {
            return Err(Status::EXDEV);
        }
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

    pub(super) fn go(&mut self, from: &(u64, Vec<u8>), to: &(u64, Vec<u8>), source: u64, target: Option<u64>) -> Outcome {
        self.dir(from.0)?.entries.remove(&from.1);
        self.dir(to.0)?.entries.insert(to.1.clone(), source);
        self.touch(&[from.0, to.0, source]);
        if let Some(target) = target {
            self.touch(&[target]);
            self.sweep(target);
        }
        Ok(())
    }

    pub(super) fn write(&mut self, object: u64, offset: u64, data: &[u8], truncate: bool) -> Outcome {
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
