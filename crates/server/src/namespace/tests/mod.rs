//! The namespace with a tiny driver: every operation is run as the machine would run it, and every value that it needs comes from a
//! store that answers late.

mod batch;
mod contents;
mod edges;
mod late;
mod model;
mod names;
mod pages;
mod reads;
mod realms;
mod renames;
mod tree;
mod xattrs;

use super::{Became, Mutation, MutationCx, Namespace, NamespaceLimits, PlanError, Reading, Removal, carried};
use crate::config::CacheLimits;
use crate::principals::{PrincipalId, Principals};
use crate::store::tests::disk::Disk;
use crate::store::{Query, ReadError, Seen, StoreCache};
use alloc::vec;
use alloc::vec::Vec;
use cistern_wire::limits::ROOT;
use cistern_wire::{
    Ask, Attr, Bytes8, Bytes16, CacheGrant, Changed, Create, Effect, Generation, GetAttr, Handle, Link, List, Message, Mkdir, ObjectId,
    Read, Reader, Rename, RenameRule, Reply, Rmdir, SessionId, Status, Symlink, Terms, Unlink, Want, Write,
};

const ASK: Ask = Ask { nonce: 1, back: 0, limit: 1_232 };
const ROOT_DIR: ObjectId = ObjectId(ROOT);
/// Room for a reply in the smallest datagram.
const SMALL: usize = 504;
/// More room than any reply takes.
const LARGE: usize = 60_000;

/// A namespace, what is in memory of its store, and the store.
struct World {
    namespace: Namespace,
    store: StoreCache,
    disk: Disk,
    wall_ns: i64,
    /// Who asks.
    principals: Principals,
    /// Whether everything is forgotten before every operation, so that all of it has to be loaded again.
    forgetful: bool,
    /// How often an operation had to wait for the store.
    waits: usize,
}

impl World {
    fn new() -> Self {
        Self::with(NamespaceLimits::default())
    }

    fn with(limits: NamespaceLimits) -> Self {
        let mut world = Self {
            namespace: Namespace::new(limits),
            store: StoreCache::new(CacheLimits { bytes_max: 1 << 30 }),
            disk: Disk::default(),
            wall_ns: 1_000,
            principals: Principals::default(),
            forgetful: false,
            waits: 0,
        };
        world.boot();
        world
    }

    fn boot(&mut self) {
        while let Err(ReadError::NotCached(queries)) = self.store.know_realms() {
            self.load(queries);
        }
        self.store.keep_realms();
        loop {
            let step = self.namespace.boot(&mut self.store.view(&Seen::default()), self.wall_ns);
            match step {
                Ok(()) => break,
                Err(ReadError::NotCached(queries)) => self.load(queries),
                Err(ReadError::Failed(status)) => panic!("{status:?}"),
            }
        }
        self.disk.settle(&mut self.store);
    }

    /// A server that was restarted on the same store.
    fn restart(&mut self) {
        self.disk.settle(&mut self.store);
        self.store = StoreCache::new(CacheLimits { bytes_max: 1 << 30 });
        self.boot();
    }

    fn load(&mut self, queries: Vec<Query>) {
        assert!(!queries.is_empty(), "an operation that lacks nothing waits for ever");
        self.waits += 1;
        let new = self.store.asked(queries);
        self.disk.ask(new);
        while !self.disk.asked.is_empty() {
            assert!(self.store.loaded(self.disk.give(0)));
        }
    }

    fn begin(&mut self) {
        self.wall_ns += 1_000;
        if self.forgetful {
            self.disk.settle(&mut self.store);
            self.store.forget_everything();
        }
    }

    /// Runs a mutation: plans it, and commits the plan. What it affected, and the effects in its answer.
    fn change(&mut self, message: Message<'_>) -> Result<(Done, Vec<Effect>), Status> {
        let data: Vec<&[u8]> = Mutation::of(&message).expect("a mutation").items().map(|item| carried(&item)).collect();
        self.change_with(message, &data)
    }

    /// The same with what its items bring, as if stages had it.
    fn change_with(&mut self, message: Message<'_>, data: &[&[u8]]) -> Result<(Done, Vec<Effect>), Status> {
        let done = self.run(message, data, |_| CacheGrant::NONE).map_err(|failed| failed.0)?;
        let Ok(Reply::Changed(Changed { effects })) = Reader::new(&done.reply).get() else { panic!("not a CHANGED reply") };
        let effects = effects.iter().collect();
        Ok((done, effects))
    }

    /// What came of a mutation; why it failed, and by which item.
    fn run(&mut self, message: Message<'_>, data: &[&[u8]], grant: impl FnMut(&Attr) -> CacheGrant) -> Result<Done, (Status, Option<u16>)> {
        let mutation = Mutation::of(&message).expect("a mutation");
        self.begin();
        loop {
            let written = self.store.has_writes();
            let seen = Seen::default();
            let cx = cx(self.wall_ns, &self.principals);
            let queries = match self.namespace.plan(&self.store.view(&seen), &mutation, data, cx) {
                Ok(plan) => {
                    let (affected, removed) = (plan.affected().to_vec(), plan.removes().collect());
                    assert_eq!(self.store.has_writes(), written, "a plan has no effect");
                    let applied = plan.commit(&mut self.store.view(&seen));
                    let gone = applied.changes().filter(|(_, became)| *became == Became::Gone).map(|(attr, _)| attr.object).collect();
                    let mut reply = Vec::new();
                    applied.encode(grant, &mut reply);
                    return Ok(Done { affected, removed, gone, reply });
                }
                Err(PlanError::NotCached(queries)) => queries,
                Err(PlanError::Failed { status, item }) => return Err((status, item)),
                Err(PlanError::Limited(_)) => return Err((Status::EDQUOT, None)),
            };
            assert_eq!(self.store.has_writes(), written, "an operation that lacks something has no effect");
            self.load(queries);
        }
    }

    /// A mutation that must succeed; its effects.
    #[track_caller]
    fn done<'a>(&mut self, message: impl Into<Message<'a>>) -> Vec<Effect> {
        self.change(message.into()).expect("it succeeds").1
    }

    /// A mutation that must fail, and then has no effect.
    #[track_caller]
    fn fails<'a>(&mut self, message: impl Into<Message<'a>>) -> Status {
        // A forgetful world settles all writes before the operation.
        let before = self.store.has_writes() && !self.forgetful;
        let status = self.change(message.into()).expect_err("it fails");
        assert_eq!(self.store.has_writes(), before);
        status
    }

    /// Runs a read; its encoded reply.
    fn read<'a>(&mut self, message: impl Into<Message<'a>>, room: usize) -> Result<Vec<u8>, Status> {
        self.read_granting(message, room).map(|(reply, _)| reply)
    }

    /// Runs a read; its encoded reply and the objects for which a lock was asked.
    fn read_granting<'a>(&mut self, message: impl Into<Message<'a>>, room: usize) -> Result<(Vec<u8>, Vec<ObjectId>), Status> {
        let reading = Reading::of(&message.into()).expect("a read");
        self.begin();
        loop {
            let (mut reply, mut asked) = (Vec::new(), Vec::new());
            let grant = |&Attr { object, .. }: &Attr, mode| {
                asked.push(object);
                CacheGrant { mode, generation: Generation(object.0) }
            };
            let asker = self.principals.asker(PrincipalId::ANYBODY);
            let step = self.namespace.read(&self.store.view(&Seen::default()), &reading, asker, room, grant, &mut reply);
            match step {
                Ok(()) => {
                    assert!(reply.len() <= room, "{} bytes do not fit {room}", reply.len());
                    return Ok((reply, asked));
                }
                Err(ReadError::NotCached(queries)) => {
                    assert!(reply.is_empty() && asked.is_empty(), "a read that lacks something grants nothing");
                    self.load(queries);
                }
                Err(ReadError::Failed(status)) => return Err(status),
            }
        }
    }

    fn attr(&mut self, object: ObjectId) -> Result<Attr, Status> {
        let reply = self.read(GetAttr { ask: ASK, object, want: Want::Nothing }, SMALL)?;
        let Ok(Reply::Stated(stated)) = Reader::new(&reply).get() else { panic!("not a STATED reply") };
        Ok(stated.attr)
    }

    /// All contents of a file, page by page.
    fn contents(&mut self, object: ObjectId) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let reply = self.read(read(object, all.len() as u64), LARGE).expect("it can be read");
            let Ok(Reply::Data(data)) = Reader::new(&reply).get() else { panic!("not a DATA reply") };
            if data.data.0.is_empty() {
                return all;
            }
            all.extend_from_slice(data.data.0);
        }
    }

    /// Makes a file in the root directory.
    #[track_caller]
    fn file(&mut self, name: &[u8]) -> ObjectId {
        self.done(create(ROOT_DIR, name))[1].attr.object
    }

    /// Makes a directory.
    #[track_caller]
    fn dir(&mut self, parent: ObjectId, name: &[u8]) -> ObjectId {
        self.done(mkdir(parent, name))[1].attr.object
    }
}

/// A mutation that was done.
#[derive(Debug)]
struct Done {
    affected: Vec<ObjectId>,
    removed: Vec<Removal>,
    /// What went for good.
    gone: Vec<ObjectId>,
    reply: Vec<u8>,
}

impl Done {
    fn affected(&self) -> &[ObjectId] {
        &self.affected
    }

    fn removes(&self) -> impl Iterator<Item = Removal> {
        self.removed.iter().copied()
    }
}

/// A mutation of no session.
fn cx(wall_ns: i64, principals: &Principals) -> MutationCx<'_> {
    MutationCx { requester: SessionId(0), handle: Handle(0), asker: principals.asker(PrincipalId::ANYBODY), wall_ns }
}

/// The first object whose name a mutation took away.
fn removed(done: &Done) -> Option<ObjectId> {
    done.removes().next().map(|removal| removal.object)
}

fn create(dir: ObjectId, name: &[u8]) -> Create<'_> {
    Create { ask: ASK, dir, name: Bytes8(name), exclusive: true, mode: 0o644, uid: 1, gid: 2, ephemeral: false, terms: Terms::NONE }
}

fn open_or_create(dir: ObjectId, name: &[u8]) -> Create<'_> {
    Create { exclusive: false, ..create(dir, name) }
}

fn mkdir(dir: ObjectId, name: &[u8]) -> Mkdir<'_> {
    Mkdir { ask: ASK, dir, name: Bytes8(name), mode: 0o755, uid: 1, gid: 2, terms: Terms::NONE }
}

fn symlink<'a>(dir: ObjectId, name: &'a [u8], target: &'a [u8]) -> Symlink<'a> {
    Symlink { ask: ASK, dir, name: Bytes8(name), target: Bytes16(target), uid: 1, gid: 2, terms: Terms::NONE }
}

fn link(object: ObjectId, dir: ObjectId, name: &[u8]) -> Link<'_> {
    Link { ask: ASK, object, dir, name: Bytes8(name), terms: Terms::NONE }
}

fn unlink(dir: ObjectId, name: &[u8]) -> Unlink<'_> {
    Unlink { ask: ASK, dir, name: Bytes8(name), force: false, terms: Terms::NONE }
}

fn rmdir(dir: ObjectId, name: &[u8]) -> Rmdir<'_> {
    Rmdir { ask: ASK, dir, name: Bytes8(name), terms: Terms::NONE }
}

fn rename<'a>(from: (ObjectId, &'a [u8]), to: (ObjectId, &'a [u8]), rule: RenameRule) -> Rename<'a> {
    let (from_dir, from_name, to_dir, to_name) = (from.0, Bytes8(from.1), to.0, Bytes8(to.1));
    Rename { ask: ASK, from_dir, from_name, to_dir, to_name, rule, force: false, terms: Terms::NONE }
}

fn write(object: ObjectId, offset: u64, data: &[u8], truncate: bool) -> Write<'_> {
    Write { ask: ASK, object, offset, truncate, stage: 0, data: Bytes16(data), terms: Terms::NONE }
}

fn read(object: ObjectId, offset: u64) -> Read {
    Read { ask: ASK, object, offset, length: u32::MAX, version: 0, want: Want::Shared }
}

/// Names of a list.
fn list_of<'a>(names: &'a [Bytes8<'a>]) -> List<'a, Bytes8<'a>> {
    List::of(names)
}

#[test]
fn root_is_made_once_and_found_after_a_restart() {
    let mut w = World::new();
    let root = w.attr(ROOT_DIR).unwrap();
    assert_eq!((root.nlink, root.size, root.version, root.mode), (2, 0, 1, 0o755));
    let made = w.file(b"a");
    w.restart();
    assert_eq!(w.attr(ROOT_DIR).unwrap().size, 1);
    assert_eq!(w.namespace.objects(&w.store.view(&Seen::default())), 2);
    assert!(w.file(b"b") > made, "ids go on where they were");
}

#[test]
fn store_without_its_root_is_not_taken_for_a_new_one() {
    let mut w = World::new();
    w.disk.values.remove(&crate::store::Key::Object(ROOT_DIR));
    w.store = StoreCache::new(CacheLimits::default());
    loop {
        let step = w.namespace.boot(&mut w.store.view(&Seen::default()), 1);
        match step {
            Err(ReadError::NotCached(queries)) => w.load(queries),
            other => {
                assert_eq!(other, Err(ReadError::Failed(Status::EIO)));
                break;
            }
        }
    }
}

#[test]
fn existing_objects_exist_and_others_are_stale() {
    let mut w = World::new();
    let file = w.file(b"a");
    assert!(w.attr(file).is_ok());
    w.done(unlink(ROOT_DIR, b"a"));
    assert_eq!(w.attr(file), Err(Status::ESTALE));
}

#[test]
fn a_reply_depends_on_the_batch_of_the_change_that_it_shows() {
    let mut w = World::new();
    w.done(create(ROOT_DIR, b"a"));
    let batch = w.store.open_batch();
    let sealed = w.store.seal().expect("written");
    let file = ObjectId(2);
    for reading in [Message::from(GetAttr { ask: ASK, object: file, want: Want::Nothing }), read(file, 0).into()] {
        let run = Seen::default();
        let view = w.store.view(&run);
        let reading = Reading::of(&reading).unwrap();
        let asker = w.principals.asker(PrincipalId::ANYBODY);
        let step = w.namespace.read(&view, &reading, asker, SMALL, |_, _| CacheGrant::NONE, &mut vec![]);
        assert_eq!((step, run.depends_on(&w.store)), (Ok(()), Some(batch)));
    }
    w.store.durable(sealed.id);
    let run = Seen::default();
    let view = w.store.view(&run);
    assert!(w.namespace.attr(&view, file).is_ok());
    assert_eq!(run.depends_on(&w.store), None);
}
