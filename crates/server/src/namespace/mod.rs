//! The namespace: what each operation means, with POSIX meaning and errno-style results.
//!
//! Decides: nothing twice. A mutation is decided by one function (`decide`), whose result is either looked at (which objects are
//! affected) or written; so what was planned is what is done. Place in the walk: `execute` runs it over a `View` of the store.
//! Implements `wire-spec.md` sections 6.2 and 11.4 (the table of affected objects).
//! Invariants: all reads come before the first write, so an operation that lacks something has had no effect; a version grows with
//! every change; an object id is never used again; reading changes nothing (R81).
//! Leaves to others: locks and grants (`locks`), durability (the machine), path walking (the agent).
//!
//! Objects affected, in the order of a reply's effects:
//!
//! | operation | objects |
//! |---|---|
//! | SETATTR, WRITE | the object |
//! | CREATE, MKDIR, SYMLINK | the directory; the new object |
//! | LINK | the directory; the object |
//! | UNLINK, RMDIR | the directory; the object |
//! | RENAME | the old directory; the new one, if another; the object moved; the object replaced or exchanged, if any |

mod decide;
mod links;
mod naming;
mod read;
mod writing;

use crate::store::{Counter, Lack, ObjectRecord, Query, View};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_wire::limits::{CONTENT_MAX, ROOT};
use cistern_wire::{
    Attr, CacheGrant, Changed, Effect, Field as _, GetAttr, List, Lookup, Message, ObjectId, ObjectKind, Read, ReadDir, Reply, Status, Terms,
    Want, Writer,
};
use decide::Decision;

/// What an operation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// It is done, with this.
    Done(T),
    /// Nothing has happened: load these, then run it again from its start.
    Missing(Vec<Query>),
    /// The operation's result is an error; it had no effect.
    Failed(Status),
}

impl<T> From<Result<T, Lack>> for Step<T> {
    fn from(result: Result<T, Lack>) -> Self {
        match result {
            Ok(value) => Self::Done(value),
            Err(Lack::Missing(queries)) => Self::Missing(queries),
            Err(Lack::Failed(status)) => Self::Failed(status),
        }
    }
}

/// Bounds of what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceLimits {
    /// Most objects.
    pub objects_max: u64,
    /// Most bytes of contents, as sum of the sizes of files and symbolic links.
    pub bytes_max: u64,
    /// Most names of a file, and most subdirectories of a directory.
    pub links_max: u32,
}

impl Default for NamespaceLimits {
    /// Ten million objects in 8 GiB, 65,000 links: what a host of middling size keeps in memory at most.
    fn default() -> Self {
        Self { objects_max: 10_000_000, bytes_max: 8 << 30, links_max: 65_000 }
    }
}

/// A read request: LOOKUP, GETATTR, READDIR, READ.
#[derive(Clone, Copy, Debug)]
pub enum Reading<'a> {
    /// LOOKUP.
    Lookup(Lookup<'a>),
    /// GETATTR.
    GetAttr(GetAttr),
    /// READDIR.
    ReadDir(ReadDir<'a>),
    /// READ.
    Read(Read),
}

impl<'a> Reading<'a> {
    /// The read that a message asks for, if it is one.
    #[must_use]
    pub const fn of(message: &Message<'a>) -> Option<Self> {
        Some(match message {
            Message::Lookup(m) => Self::Lookup(*m),
            Message::GetAttr(m) => Self::GetAttr(*m),
            Message::ReadDir(m) => Self::ReadDir(*m),
            Message::Read(m) => Self::Read(*m),
            _ => return None,
        })
    }
}

/// A mutation: SETATTR, CREATE, MKDIR, SYMLINK, LINK, UNLINK, RMDIR, RENAME, WRITE.
#[derive(Clone, Copy, Debug)]
pub struct Mutation<'a> {
    message: Message<'a>,
    terms: Terms<'a>,
}

impl<'a> Mutation<'a> {
    /// The mutation that a message asks for, if it is one.
    #[must_use]
    pub const fn of(message: &Message<'a>) -> Option<Self> {
        let terms = match message {
            Message::SetAttr(m) => m.terms,
            Message::Create(m) => m.terms,
            Message::Mkdir(m) => m.terms,
            Message::Symlink(m) => m.terms,
            Message::Link(m) => m.terms,
            Message::Unlink(m) => m.terms,
            Message::Rmdir(m) => m.terms,
            Message::Rename(m) => m.terms,
            Message::Write(m) => m.terms,
            _ => return None,
        };
        Some(Self { message: *message, terms })
    }

    /// Its terms: want, guard, held.
    #[must_use]
    pub const fn terms(&self) -> Terms<'a> {
        self.terms
    }

    /// Whether it goes on although another session locks what it unlinks or replaces (R74).
    #[must_use]
    pub const fn force(&self) -> bool {
        match &self.message {
            Message::Unlink(m) => m.force,
            Message::Rename(m) => m.force,
            _ => false,
        }
    }

    /// The stage that has the contents of a WRITE, if any.
    #[must_use]
    pub const fn stage(&self) -> Option<u64> {
        match &self.message {
            Message::Write(m) if m.stage != 0 => Some(m.stage),
            _ => None,
        }
    }
}

/// What a mutation will touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    ids: [ObjectId; 4],
    len: u8,
    /// The object whose name is taken away or replaced: ask `unlink_blocked` about it, unless forced (R74).
    pub removes: Option<ObjectId>,
}

impl Plan {
    fn of(decision: &Decision) -> Self {
        let mut plan = Self { ids: [ObjectId(0); 4], len: 0, removes: decision.removes };
        let changed = decision.effects.iter().filter(|effect| effect.before != 0 && effect.before != effect.record.attr.version);
        for (slot, effect) in plan.ids.iter_mut().zip(changed) {
            *slot = effect.record.attr.object;
            plan.len += 1;
        }
        plan
    }

    /// The objects affected that exist already, in the order of the reply's effects; empty: it changes nothing.
    #[must_use]
    pub fn affected(&self) -> &[ObjectId] {
        &self.ids[..usize::from(self.len)]
    }
}

/// Runs operations.
#[derive(Debug)]
pub struct Namespace {
    limits: NamespaceLimits,
    /// What the last `apply` did.
    effects: Vec<(u64, Attr)>,
    gone: Vec<ObjectId>,
}

impl Namespace {
    /// A namespace within these bounds.
    #[must_use]
    pub const fn new(limits: NamespaceLimits) -> Self {
        Self { limits, effects: Vec::new(), gone: Vec::new() }
    }

    /// At start: loads counters and the root directory; makes them when the store is empty (writes go to the open batch).
    pub fn boot(&mut self, view: &mut View<'_>, wall_ns: i64) -> Step<()> {
        boot(view, wall_ns).into()
    }

    /// Executes a read and appends its encoded `Reply` to `out`, at most `room` bytes (kind byte included; at least 504).
    ///
    /// `grant` is asked once for each object in the reply, only when the reply is certain.
    pub fn read(
        &mut self,
        view: &mut View<'_>,
        op: &Reading<'_>,
        room: usize,
        mut grant: impl FnMut(ObjectId, Want) -> CacheGrant,
        out: &mut Writer,
    ) -> Step<()> {
        match op {
            Reading::Lookup(m) => read::lookup(view, m, room, &mut grant, out),
            Reading::GetAttr(m) => read::get_attr(view, m, &mut grant, out),
            Reading::ReadDir(m) => read::read_dir(view, m, room, &mut grant, out),
            Reading::Read(m) => read::read(view, m, room, &mut grant, out),
        }
        .into()
    }

    /// What the mutation will affect, or why it fails now.
    pub fn plan(&mut self, view: &mut View<'_>, op: &Mutation<'_>, contents: &[u8]) -> Step<Plan> {
        decide::decide(view, &op.message, contents, 0, &self.limits).map(|decision| Plan::of(&decision)).into()
    }

    /// Executes the mutation in the open batch. `contents`: of a WRITE, from the message or the stage. `wall_ns`: the server's wall
    /// clock, for the times that people see.
    pub fn apply(&mut self, view: &mut View<'_>, op: &Mutation<'_>, contents: &[u8], wall_ns: i64) -> Step<Plan> {
        self.effects.clear();
        self.gone.clear();
        let decision = match decide::decide(view, &op.message, contents, wall_ns, &self.limits) {
            Ok(decision) => decision,
            Err(lack) => return Err(lack).into(),
        };
        let plan = Plan::of(&decision);
        self.effects.extend(decision.effects.iter().map(|effect| (effect.before, effect.record.attr)));
        self.gone.extend(decision.effects.iter().filter(|effect| effect.record.attr.nlink == 0).map(|effect| effect.record.attr.object));
        decision.write(view);
        Step::Done(plan)
    }

    /// Objects that the last `apply` removed for good.
    pub fn gone(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.gone.iter().copied()
    }

    /// Appends the encoded CHANGED of the last `apply` to `out`; `grant` is asked for each object that still exists.
    pub fn changed(&mut self, want: Want, mut grant: impl FnMut(ObjectId, Want) -> CacheGrant, out: &mut Writer) {
        let mut effects = [Effect { before: 0, attr: NO_ATTR, grant: CacheGrant::NONE }; 4];
        for (slot, (before, attr)) in effects.iter_mut().zip(&self.effects) {
            let grant = if attr.nlink == 0 { CacheGrant::NONE } else { grant(attr.object, want) };
            *slot = Effect { before: *before, attr: *attr, grant };
        }
        Reply::Changed(Changed { effects: List::of(&effects[..self.effects.len()]) }).put(out);
    }

    /// A path of the object, for people; empty: not known. At most `max` bytes: the end of it, with "..." in front.
    pub fn place(&mut self, view: &mut View<'_>, object: ObjectId, max: usize) -> Step<Vec<u8>> {
        naming::place(view, object, max).into()
    }

    /// ESTALE when there is no such object.
    pub fn exists(&mut self, view: &mut View<'_>, object: ObjectId) -> Step<()> {
        known(view, object).map(|_| ()).into()
    }

    /// Objects in the namespace.
    pub fn objects(&self, view: &mut View<'_>) -> u64 {
        // Loaded at boot, and never forgotten.
        view.counter(Counter::Objects).unwrap_or(0)
    }
}

const NO_ATTR: Attr = Attr {
    object: ObjectId(0),
    version: 0,
    kind: ObjectKind::File,
    mode: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    size: 0,
    atime_ns: 0,
    mtime_ns: 0,
    ctime_ns: 0,
};

/// The record of an object that was named by its number.
fn known(view: &View<'_>, object: ObjectId) -> Result<ObjectRecord, Lack> {
    view.object(object)?.cloned().ok_or(Lack::Failed(Status::ESTALE))
}

/// The record of a directory that was named by its number.
fn directory(view: &View<'_>, object: ObjectId) -> Result<ObjectRecord, Lack> {
    let record = known(view, object)?;
    if record.attr.kind == ObjectKind::Directory { Ok(record) } else { Err(Lack::Failed(Status::ENOTDIR)) }
}

fn boot(view: &mut View<'_>, wall_ns: i64) -> Result<(), Lack> {
    let root = ObjectId(ROOT);
    for counter in [Counter::NextObject, Counter::Objects, Counter::Bytes] {
        view.counter(counter)?;
    }
    if view.object(root)?.is_some() {
        return Ok(());
    }
    let times = Attr { atime_ns: wall_ns, mtime_ns: wall_ns, ctime_ns: wall_ns, ..NO_ATTR };
    let attr = Attr { object: root, version: 1, kind: ObjectKind::Directory, mode: 0o755, nlink: 2, ..times };
    view.put_object(ObjectRecord { attr, parent: root, name: Box::from([]) });
    view.new_directory(root);
    view.set_counter(Counter::NextObject, ROOT + 1);
    view.set_counter(Counter::Objects, 1);
    view.set_counter(Counter::Bytes, 0);
    Ok(())
}

/// Largest size of a file, in bytes.
const SIZE_MAX: u64 = CONTENT_MAX as u64;
