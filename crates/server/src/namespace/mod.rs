//! The namespace: what each operation means. (bodies to follow)
#![allow(missing_docs, unused_variables, dead_code, clippy::unimplemented)]
use crate::store::{Query, View};
use alloc::vec::Vec;
use cistern_wire::{CacheGrant, Message, ObjectId, Status, Want, Writer};

/// What an operation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    Done(T),
    /// Nothing has happened: load these, then run it again from its start.
    Missing(Vec<Query>),
    /// The operation's result is an error; it had no effect.
    Failed(Status),
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
    fn default() -> Self { unimplemented!() }
}

/// A read request: LOOKUP, GETATTR, READDIR, READ.
#[derive(Clone, Copy, Debug)]
pub enum Reading<'a> { Stub(core::marker::PhantomData<&'a ()>) }
impl<'a> Reading<'a> {
    pub fn of(message: &Message<'a>) -> Option<Self> { unimplemented!() }
}
/// A mutation: SETATTR, CREATE, MKDIR, SYMLINK, LINK, UNLINK, RMDIR, RENAME, WRITE.
#[derive(Clone, Copy, Debug)]
pub enum Mutation<'a> { Stub(core::marker::PhantomData<&'a ()>) }
impl<'a> Mutation<'a> {
    pub fn of(message: &Message<'a>) -> Option<Self> { unimplemented!() }
    /// Its terms (want, guard, held).
    pub fn terms(&self) -> cistern_wire::Terms<'a> { unimplemented!() }
    /// Whether it goes on although another session locks what it unlinks or replaces (R74).
    pub fn force(&self) -> bool { unimplemented!() }
    /// The stage that has the contents of a WRITE, if any.
    pub fn stage(&self) -> Option<u64> { unimplemented!() }
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
    /// The objects affected that exist already, in the order of the reply's effects; empty: it changes nothing.
    pub fn affected(&self) -> &[ObjectId] { &self.ids[..usize::from(self.len)] }
}

/// Runs operations.
#[derive(Debug)]
pub struct Namespace {}
impl Namespace {
    pub fn new(limits: NamespaceLimits) -> Self { unimplemented!() }
    /// At start: loads counters and the root directory; makes them when the store is empty (writes go to the open batch).
    pub fn boot(&mut self, view: &mut View<'_>, wall_ns: i64) -> Step<()> { unimplemented!() }
    /// Executes a read and appends its encoded `Reply` to `out`, at most `room` bytes (kind byte included; at least
    /// 548 - 44 = 504). `grant(object, want)` is asked once for each object in the reply, only when the reply is certain.
    pub fn read(&mut self, view: &mut View<'_>, op: &Reading<'_>, room: usize, grant: impl FnMut(ObjectId, Want) -> CacheGrant, out: &mut Writer) -> Step<()> { unimplemented!() }
    /// What the mutation will affect, or why it fails now.
    pub fn plan(&mut self, view: &mut View<'_>, op: &Mutation<'_>, contents: &[u8]) -> Step<Plan> { unimplemented!() }
    /// Executes the mutation in the open batch. `contents`: of a WRITE, from the message or the stage.
    pub fn apply(&mut self, view: &mut View<'_>, op: &Mutation<'_>, contents: &[u8], wall_ns: i64) -> Step<Plan> { unimplemented!() }
    /// Objects that the last `apply` removed for good: tell `LockTable::object_gone`.
    pub fn gone(&self) -> impl Iterator<Item = ObjectId> + '_ { core::iter::empty() }
    /// Appends the encoded CHANGED of the last `apply` to `out`; `grant` is asked for each object that still exists.
    /// Call after `mutation_leave`.
    pub fn changed(&mut self, want: Want, grant: impl FnMut(ObjectId, Want) -> CacheGrant, out: &mut Writer) { unimplemented!() }
    /// A path of the object, for people; empty: not known. At most `max` bytes: the end of it, with "..." in front.
    pub fn place(&mut self, view: &mut View<'_>, object: ObjectId, max: usize) -> Step<Vec<u8>> { unimplemented!() }
    /// ESTALE when there is no such object.
    pub fn exists(&mut self, view: &mut View<'_>, object: ObjectId) -> Step<()> { unimplemented!() }
    /// Objects in the namespace.
    pub fn objects(&self, view: &mut View<'_>) -> u64 { unimplemented!() }
}
