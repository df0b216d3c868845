//! A toy of a metadata server, for tests of the agent's operations: executes requests, numbers grants and versions, makes demands.
//!
//! Decides: the least that a server must do to be right towards one agent; what it may do differently (page sizes, grants, how far a LOOKUP
//! goes) is a setting. Invariant: every change of an object gives it a larger version; a mutation executes only when the agent holds no
//! lock on an affected object but those that it named.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_wire::{
    AgentId, Attr, Bytes8, Bytes16, CacheGrant, Changed, Data, Done, Effect, Entry, Failed, Field, Generation, GroupMember, Kind, List,
    Listing, LockRows, Message, ObjectId, ObjectKind, RenameRule, Reply, ServerReport, SetMask, Stated, Status, StoreId, Terms, Walked,
    Want,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    File(Vec<u8>),
    Dir(BTreeMap<Vec<u8>, u64>),
    Link(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) attr: Attr,
    pub(super) node: Node,
}

/// The namespace; the root is object 1.
#[derive(Clone, Debug)]
pub(super) struct Space {
    pub(super) objects: BTreeMap<u64, Object>,
    next: u64,
    clock: i64,
}

#[derive(Debug)]
pub(super) struct Toy {
    pub(super) space: Space,
    /// Cache locks that the agent holds, as far as the server knows.
    pub(super) held: BTreeMap<u64, u64>,
    pub(super) generation: u64,
    /// Whether cache locks are granted.
    pub(super) grants: bool,
    /// Objects that get no cache locks.
    pub(super) ungranted: BTreeSet<u64>,
    /// Whether an agent that holds a lock gets a new generation with each answer, or the one it has.
    pub(super) regrants: bool,
    /// Bytes of contents in one page.
    pub(super) page: usize,
    /// Entries in one page of a directory.
    pub(super) entries: usize,
    /// Most names walked in one answer.
    pub(super) steps: usize,
    pub(super) stages: BTreeMap<u64, BTreeMap<u32, Vec<u8>>>,
}

/// What became of a request.
#[derive(Debug)]
pub(super) enum Executed {
    /// Its encoded reply.
    Reply(Vec<u8>),
    /// It waits until the agent has given these locks back: object and generation.
    Waits(Vec<(u64, u64)>),
}

type Outcome = Result<Vec<Effect>, Status>;

impl Space {
    fn new() -> Self {
        let mut space = Self { objects: BTreeMap::new(), next: 1, clock: 0 };
        space.make(Node::Dir(BTreeMap::new()));
        space
    }

    fn make(&mut self, node: Node) -> u64 {
        let id = self.next;
        self.next += 1;
        self.clock += 1;
        let kind = match node {
            Node::File(_) => ObjectKind::File,
            Node::Dir(_) => ObjectKind::Directory,
            Node::Link(_) => ObjectKind::Symlink,
        };
        let attr = Attr { object: ObjectId(id), kind, mode: 0o644, mtime_ns: self.clock, ctime_ns: self.clock, ..Attr::FILE };
        self.objects.insert(id, Object { attr, node });
        self.measure(id);
        id
    }

    fn measure(&mut self, id: u64) {
        let object = self.objects.get_mut(&id).unwrap();
        object.attr.size = match &object.node {
            Node::File(bytes) | Node::Link(bytes) => bytes.len() as u64,
            Node::Dir(names) => names.len() as u64,
        };
    }

    /// Counts a change of an object; tells what it did to it.
    fn changed(&mut self, id: u64) -> Effect {
        self.measure(id);
        self.clock += 1;
        let clock = self.clock;
        let attr = &mut self.objects.get_mut(&id).unwrap().attr;
        let before = attr.version;
        attr.version += 1;
        attr.ctime_ns = clock;
        let effect = Effect { before, attr: *attr, grant: CacheGrant::NONE };
        if effect.attr.nlink == 0 {
            self.objects.remove(&id);
        }
        effect
    }

    pub(super) fn names(&self, dir: u64) -> Result<&BTreeMap<Vec<u8>, u64>, Status> {
        match &self.objects.get(&dir).ok_or(Status::ESTALE)?.node {
            Node::Dir(names) => Ok(names),
            _ => Err(Status::ENOTDIR),
        }
    }

    fn names_mut(&mut self, dir: u64) -> &mut BTreeMap<Vec<u8>, u64> {
        match &mut self.objects.get_mut(&dir).unwrap().node {
            Node::Dir(names) => names,
            _ => panic!("checked before"),
        }
    }

    fn child(&self, dir: u64, name: &[u8]) -> Result<u64, Status> {
        self.names(dir)?.get(name).copied().ok_or(Status::ENOENT)
    }

    /// Adds a name in a setup, whatever is there.
    pub(super) fn plant(&mut self, dir: u64, name: &str, node: Node) -> u64 {
        let id = self.make(node);
        self.names_mut(dir).insert(name.as_bytes().to_vec(), id);
        self.measure(dir);
        id
    }

    fn is_within(&self, dir: u64, of: u64) -> bool {
        dir == of || self.names(of).is_ok_and(|names| names.values().any(|child| self.is_within(dir, *child)))
    }

    fn add(&mut self, dir: u64, name: &[u8], node: Node) -> Outcome {
        if self.names(dir)?.contains_key(name) {
            return Err(Status::EEXIST);
        }
        let id = self.make(node);
        self.names_mut(dir).insert(name.to_vec(), id);
        let born = Effect { before: 0, attr: self.objects[&id].attr, grant: CacheGrant::NONE };
        Ok(alloc::vec![self.changed(dir), born])
    }

    fn remove(&mut self, dir: u64, name: &[u8], directory: bool) -> Outcome {
        let id = self.child(dir, name)?;
        match &self.objects[&id].node {
            Node::Dir(_) if !directory => return Err(Status::EISDIR),
            Node::Dir(names) if !names.is_empty() => return Err(Status::ENOTEMPTY),
            Node::File(_) | Node::Link(_) if directory => return Err(Status::ENOTDIR),
            _ => {}
        }
        self.names_mut(dir).remove(name);
        self.objects.get_mut(&id).unwrap().attr.nlink -= 1;
        Ok(alloc::vec![self.changed(dir), self.changed(id)])
    }

    fn rename(&mut self, m: &cistern_wire::Rename<'_>) -> Outcome {
        let (from, to) = (m.from_dir.0, m.to_dir.0);
        let moved = self.child(from, m.from_name.0)?;
        let replaced = self.names(to)?.get(m.to_name.0).copied();
        if self.is_within(to, moved) {
            return Err(Status::EINVAL);
        }
        match (replaced, m.rule) {
            (Some(_), RenameRule::NoReplace) => return Err(Status::EEXIST),
            (None, RenameRule::Exchange) => return Err(Status::ENOENT),
            (Some(other), _) if other == moved => return Ok(Vec::new()),
            (Some(other), RenameRule::Exchange) if self.is_within(from, other) => return Err(Status::EINVAL),
            (Some(other), RenameRule::Replace) => match (&self.objects[&moved].node, &self.objects[&other].node) {
                (_, Node::Dir(names)) if !names.is_empty() => return Err(Status::ENOTEMPTY),
                (Node::Dir(_), Node::File(_) | Node::Link(_)) => return Err(Status::ENOTDIR),
                (Node::File(_) | Node::Link(_), Node::Dir(_)) => return Err(Status::EISDIR),
                _ => self.objects.get_mut(&other).unwrap().attr.nlink -= 1,
            },
            _ => {}
        }
        self.names_mut(from).remove(m.from_name.0);
        if let (Some(other), RenameRule::Exchange) = (replaced, m.rule) {
            self.names_mut(from).insert(m.from_name.0.to_vec(), other);
        }
        self.names_mut(to).insert(m.to_name.0.to_vec(), moved);
        let mut ids = alloc::vec![from, to, moved];
        ids.extend(replaced);
        let mut seen = BTreeSet::new();
        Ok(ids.into_iter().filter(|id| seen.insert(*id)).map(|id| self.changed(id)).collect())
    }

    fn set_attr(&mut self, m: &cistern_wire::SetAttr<'_>) -> Outcome {
        let object = self.objects.get_mut(&m.object.0).ok_or(Status::ESTALE)?;
        if m.mask.has(SetMask::SIZE) {
            let Node::File(bytes) = &mut object.node else { return Err(Status::EINVAL) };
            bytes.resize(usize::try_from(m.size).unwrap(), 0);
        }
        if m.mask.has(SetMask::MODE) {
            object.attr.mode = m.mode;
        }
        Ok(alloc::vec![self.changed(m.object.0)])
    }

    fn write(&mut self, m: &cistern_wire::Write<'_>, data: &[u8]) -> Outcome {
        let object = self.objects.get_mut(&m.object.0).ok_or(Status::ESTALE)?;
        let Node::File(bytes) = &mut object.node else { return Err(Status::EISDIR) };
        let at = usize::try_from(m.offset).unwrap();
        let end = at + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[at..end].copy_from_slice(data);
        if m.truncate {
            bytes.truncate(end);
        }
        Ok(alloc::vec![self.changed(m.object.0)])
    }

    fn apply(&mut self, message: &Message<'_>, staged: &[u8]) -> Outcome {
        match message {
            Message::Create(m) => match self.child(m.dir.0, m.name.0) {
                Ok(id) if !m.exclusive => match &self.objects[&id] {
                    Object { attr, node: Node::File(_) } => {
                        Ok(alloc::vec![Effect { before: attr.version, attr: *attr, grant: CacheGrant::NONE }])
                    }
                    Object { node: Node::Dir(_), .. } => Err(Status::EISDIR),
                    Object { node: Node::Link(_), .. } => Err(Status::EEXIST),
                },
                _ => self.add(m.dir.0, m.name.0, Node::File(Vec::new())),
            },
            Message::Mkdir(m) => self.add(m.dir.0, m.name.0, Node::Dir(BTreeMap::new())),
            Message::Symlink(m) => self.add(m.dir.0, m.name.0, Node::Link(m.target.0.to_vec())),
            Message::Link(m) => {
                if self.names(m.dir.0)?.contains_key(m.name.0) {
                    return Err(Status::EEXIST);
                }
                let object = self.objects.get_mut(&m.object.0).ok_or(Status::ESTALE)?;
                if matches!(object.node, Node::Dir(_)) {
                    return Err(Status::EPERM);
                }
                object.attr.nlink += 1;
                self.names_mut(m.dir.0).insert(m.name.0.to_vec(), m.object.0);
                Ok(alloc::vec![self.changed(m.dir.0), self.changed(m.object.0)])
            }
            Message::Unlink(m) => self.remove(m.dir.0, m.name.0, false),
            Message::Rmdir(m) => self.remove(m.dir.0, m.name.0, true),
            Message::Rename(m) => self.rename(m),
            Message::SetAttr(m) => self.set_attr(m),
            Message::Write(m) => self.write(m, if m.stage == 0 { m.data.0 } else { staged }),
            _ => panic!("not a mutation"),
        }
    }
}

/// The message as the server decodes it.
pub(super) fn decode(bytes: &[u8]) -> Message<'_> {
    Message::decode(Kind::of(bytes[0]).unwrap(), &bytes[4..]).unwrap()
}

fn encode(reply: Reply<'_>) -> Executed {
    let mut bytes = Vec::new();
    reply.put(&mut bytes);
    Executed::Reply(bytes)
}

fn failed(status: Status) -> Executed {
    encode(Reply::Failed(Failed { status, retry_ms: 0 }))
}

fn terms<'a>(message: &Message<'a>) -> Option<Terms<'a>> {
    Some(match message {
        Message::Create(m) => m.terms,
        Message::Mkdir(m) => m.terms,
        Message::Symlink(m) => m.terms,
        Message::Link(m) => m.terms,
        Message::Unlink(m) => m.terms,
        Message::Rmdir(m) => m.terms,
        Message::Rename(m) => m.terms,
        Message::SetAttr(m) => m.terms,
        Message::Write(m) => m.terms,
        _ => return None,
    })
}

impl Toy {
    pub(super) fn new() -> Self {
        Self {
            space: Space::new(),
            held: BTreeMap::new(),
            generation: 100,
            grants: true,
            ungranted: BTreeSet::new(),
            regrants: true,
            page: 1_000,
            entries: 10,
            steps: 16,
            stages: BTreeMap::new(),
        }
    }

    fn grant(&mut self, object: u64, want: Want) -> CacheGrant {
        if want == Want::Nothing || !self.grants || self.ungranted.contains(&object) {
            return CacheGrant::NONE;
        }
        if self.regrants || !self.held.contains_key(&object) {
            self.generation += 1;
            self.held.insert(object, self.generation);
        }
        CacheGrant { mode: want, generation: Generation(self.held[&object]) }
    }

    /// The agent gives a lock back.
    pub(super) fn released(&mut self, object: u64, generation: u64) {
        if self.held.get(&object) == Some(&generation) {
            self.held.remove(&object);
        }
    }

    pub(super) fn execute(&mut self, bytes: &[u8]) -> Executed {
        let message = decode(bytes);
        if let Some(terms) = terms(&message) {
            return self.change(&message, &terms);
        }
        match message {
            Message::Lookup(m) => self.lookup(&m),
            Message::GetAttr(m) => match self.space.objects.get(&m.object.0).map(|object| object.attr) {
                Some(attr) => encode(Reply::Stated(Stated { attr, grant: self.grant(m.object.0, m.want) })),
                None => failed(Status::ESTALE),
            },
            Message::ReadDir(m) => self.read_dir(&m),
            Message::Read(m) => self.read(&m),
            Message::Stage(m) if m.total == 0 => {
                self.stages.remove(&m.stage);
                encode(Reply::Done(Done {}))
            }
            Message::Stage(m) => {
                self.stages.entry(m.stage).or_default().insert(m.offset, m.data.0.to_vec());
                encode(Reply::Done(Done {}))
            }
            Message::ListLocks(_) => encode(Reply::LockRows(LockRows { end: true, rows: List::of(&[]) })),
            Message::ServerStatus(_) => encode(Reply::ServerReport(report())),
            other => panic!("the operations do not send {other:?}"),
        }
    }

    /// The locks that stand in the way of a mutation: those of the agent on affected objects that it did not name.
    fn in_the_way(&self, message: &Message<'_>, terms: &Terms<'_>, staged: &[u8]) -> Vec<(u64, u64)> {
        let Ok(effects) = self.space.clone().apply(message, staged) else { return Vec::new() };
        let named = |object: u64, generation: u64| terms.held.iter().any(|held| held.object.0 == object && held.generation.0 == generation);
        effects
            .iter()
            .filter(|effect| effect.before != effect.attr.version)
            .filter_map(|effect| self.held.get(&effect.attr.object.0).map(|generation| (effect.attr.object.0, *generation)))
            .filter(|(object, generation)| !named(*object, *generation))
            .collect()
    }

    fn change(&mut self, message: &Message<'_>, terms: &Terms<'_>) -> Executed {
        let staged: Vec<u8> = match message {
            Message::Write(m) if m.stage != 0 => match self.stages.get(&m.stage) {
                Some(pieces) => pieces.values().flatten().copied().collect(),
                None => return failed(Status::NOT_STAGED),
            },
            _ => Vec::new(),
        };
        let in_the_way = self.in_the_way(message, terms, &staged);
        if !in_the_way.is_empty() {
            return Executed::Waits(in_the_way);
        }
        match self.space.apply(message, &staged) {
            Err(status) => failed(status),
            Ok(mut effects) => {
                for effect in &mut effects {
                    let object = effect.attr.object.0;
                    if effect.attr.nlink > 0 && !self.held.contains_key(&object) {
                        effect.grant = self.grant(object, terms.want);
                    }
                }
                encode(Reply::Changed(Changed { effects: List::of(&effects) }))
            }
        }
    }

    fn lookup(&mut self, m: &cistern_wire::Lookup<'_>) -> Executed {
        let Some(start) = self.space.objects.get(&m.start.0).map(|object| object.attr) else { return failed(Status::ESTALE) };
        let mut attrs = alloc::vec![start];
        let mut status = Status::OK;
        let mut target = Vec::new();
        for name in m.names.iter().take(self.steps) {
            match self.space.child(attrs.last().unwrap().object.0, name.0) {
                Ok(id) => attrs.push(self.space.objects[&id].attr),
                Err(why) => {
                    status = why;
                    break;
                }
            }
            if let Node::Link(to) = &self.space.objects[&attrs.last().unwrap().object.0].node {
                target = to.clone();
                break;
            }
        }
        let steps: Vec<Stated> = attrs.into_iter().map(|attr| Stated { attr, grant: self.grant(attr.object.0, m.want) }).collect();
        encode(Reply::Walked(Walked { status, steps: List::of(&steps), target: Bytes16(&target) }))
    }

    fn read_dir(&mut self, m: &cistern_wire::ReadDir<'_>) -> Executed {
        let names = match self.space.names(m.dir.0) {
            Ok(names) => names.clone(),
            Err(status) => return failed(status),
        };
        let dir = self.space.objects[&m.dir.0].attr;
        if m.version != 0 && m.version != dir.version {
            return failed(Status::VERSION_CHANGED);
        }
        let rest: Vec<(&Vec<u8>, u64)> =
            names.iter().filter(|(name, _)| name.as_slice() > m.after.0).map(|(name, id)| (name, *id)).collect();
        let grant = self.grant(m.dir.0, m.want);
        let entries: Vec<Entry<'_>> = rest
            .iter()
            .take(self.entries)
            .map(|(name, id)| {
                let attr = self.space.objects[id].attr;
                let detail = m.detail.then(|| Stated { attr, grant: self.grant(*id, m.want) });
                Entry { name: Bytes8(name), object: attr.object, kind: attr.kind, detail }
            })
            .collect();
        encode(Reply::Listing(Listing { dir, grant, end: rest.len() <= self.entries, entries: List::of(&entries) }))
    }

    fn read(&mut self, m: &cistern_wire::Read) -> Executed {
        let Some(object) = self.space.objects.get(&m.object.0).cloned() else { return failed(Status::ESTALE) };
        let (Node::File(bytes) | Node::Link(bytes)) = &object.node else { return failed(Status::EISDIR) };
        if m.version != 0 && m.version != object.attr.version {
            return failed(Status::VERSION_CHANGED);
        }
        let at = usize::try_from(m.offset).unwrap().min(bytes.len());
        // The target of a link is never paged.
        let page = if matches!(object.node, Node::Link(_)) { usize::MAX } else { self.page };
        let length = page.min(m.length as usize).min(bytes.len() - at);
        let grant = self.grant(m.object.0, m.want);
        encode(Reply::Data(Data { attr: object.attr, grant, offset: m.offset, data: Bytes16(&bytes[at..at + length]) }))
    }
}

fn report() -> ServerReport<'static> {
    ServerReport {
        store: StoreId::default(),
        epoch: 1,
        incarnation: 1,
        uptime_ms: 7,
        agent: AgentId::default(),
        sessions: 1,
        timing_out: 0,
        locks: 0,
        waiters: 0,
        objects: 1,
        requests: 0,
        demands: 0,
        delivery_failures: 0,
        steals: 0,
        drops: 0,
        place: 2,
        members: List::of(&[
            GroupMember { name: Bytes8(b"a"), heard_ms: GroupMember::NOT_HEARD },
            GroupMember { name: Bytes8(b"b"), heard_ms: 0 },
        ]),
    }
}
