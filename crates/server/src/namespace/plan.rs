//! Planning and applying mutations.
//!
//! Decides: which objects a mutation affects. Place in the walk: `plan` before a mutation takes its place in the queues, `apply` when
//! its turn has come; both make the same draft from what is in memory at that moment. Implements `wire-spec.md` section 11.4 (R71):
//!
//! | operation | affects, in the order of its answer |
//! |---|---|
//! | SETATTR, WRITE | the object |
//! | CREATE, MKDIR, SYMLINK | the directory; the new object |
//! | CREATE of a file that exists | nothing; the file is shown as it is |
//! | LINK | the directory; the object |
//! | UNLINK | the directory; the object |
//! | RMDIR | the directory in which it is; the directory removed |
//! | RENAME | the old directory; the new one, if another; the object moved; what is replaced or exchanged |
//! | RENAME of a name to another name of the same object | nothing |
//! | SETATTR of no attribute, WRITE of no bytes | nothing; the object is shown as it is |
//!
//! Invariant: what applying changes is what planning, run at the same instant, says; a new object is affected, but nobody can hold
//! a lock on it.
//! Leaves to others: guards, advisory locks on what is removed, turns (`locks`).

use super::draft::{Draft, Fate};
use super::{Namespace, NamespaceLimits, Step};
use crate::store::{Counter, Lack, View};
use cistern_wire::{
    CacheGrant, Changed, Create, Effect, Field as _, Link, List, Message, Mkdir, ObjectId, Rename, Reply, Rmdir, SetAttr, Status, Symlink,
    Terms, Unlink, Want, Write, Writer,
};

/// Most objects that one mutation affects.
const AFFECTED_MAX: usize = 4;

/// A request that changes the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation<'a> {
    /// Sets attributes.
    SetAttr(SetAttr<'a>),
    /// Makes a file.
    Create(Create<'a>),
    /// Makes a directory.
    Mkdir(Mkdir<'a>),
    /// Makes a symbolic link.
    Symlink(Symlink<'a>),
    /// Gives one more name.
    Link(Link<'a>),
    /// Takes a name away.
    Unlink(Unlink<'a>),
    /// Takes a directory away.
    Rmdir(Rmdir<'a>),
    /// Moves a name.
    Rename(Rename<'a>),
    /// Writes contents.
    Write(Write<'a>),
}

impl<'a> Mutation<'a> {
    /// The mutation that a message asks for, if it asks for one.
    #[must_use]
    pub const fn of(message: &Message<'a>) -> Option<Self> {
        Some(match *message {
            Message::SetAttr(m) => Self::SetAttr(m),
            Message::Create(m) => Self::Create(m),
            Message::Mkdir(m) => Self::Mkdir(m),
            Message::Symlink(m) => Self::Symlink(m),
            Message::Link(m) => Self::Link(m),
            Message::Unlink(m) => Self::Unlink(m),
            Message::Rmdir(m) => Self::Rmdir(m),
            Message::Rename(m) => Self::Rename(m),
            Message::Write(m) => Self::Write(m),
            _ => return None,
        })
    }

    /// What its sender would like to hold, what it holds, under which guard it acts.
    #[must_use]
    pub const fn terms(&self) -> Terms<'a> {
        match self {
            Self::SetAttr(m) => m.terms,
            Self::Create(m) => m.terms,
            Self::Mkdir(m) => m.terms,
            Self::Symlink(m) => m.terms,
            Self::Link(m) => m.terms,
            Self::Unlink(m) => m.terms,
            Self::Rmdir(m) => m.terms,
            Self::Rename(m) => m.terms,
            Self::Write(m) => m.terms,
        }
    }

    /// Whether it goes on although another session holds an advisory lock on what it unlinks or replaces (R74).
    #[must_use]
    pub const fn force(&self) -> bool {
        match self {
            Self::Unlink(m) => m.force,
            Self::Rename(m) => m.force,
            _ => false,
        }
    }

    /// The stage that has its contents, if a stage has them.
    #[must_use]
    pub const fn stage(&self) -> Option<u64> {
        match self {
            Self::Write(m) if m.stage != 0 => Some(m.stage),
            _ => None,
        }
    }

    /// What it brings: `contents` of a WRITE, or the target of a SYMLINK.
    const fn data<'b>(&self, contents: &'b [u8]) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Self::Symlink(m) => m.target.0,
            Self::Write(_) => contents,
            _ => &[],
        }
    }
}

/// What a mutation affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    ids: [ObjectId; AFFECTED_MAX],
    len: usize,
    /// The object whose name is taken away or replaced, if one is: an advisory lock may protect it (R74).
    pub removes: Option<ObjectId>,
}

impl Plan {
    /// The objects that exist already and that it changes, in the order of its answer; none: it changes nothing.
    #[must_use]
    pub fn affected(&self) -> &[ObjectId] {
        &self.ids[..self.len]
    }

    fn of(draft: &Draft) -> Self {
        let mut plan = Self { ids: [ObjectId(0); AFFECTED_MAX], len: 0, removes: draft.removes };
        for touched in draft.touched.iter().filter(|touched| matches!(touched.fate, Fate::Changed | Fate::Gone)) {
            plan.ids[plan.len] = touched.record.attr.object;
            plan.len += 1;
        }
        plan
    }
}

/// What a draft is made under.
pub(super) struct Frame {
    pub(super) limits: NamespaceLimits,
    pub(super) wall_ns: i64,
}

impl Namespace {
    /// What a mutation will affect, or why it fails now. `contents`: of a WRITE, from the message or from its stage.
    pub fn plan(&mut self, view: &View<'_>, mutation: &Mutation<'_>, contents: &[u8]) -> Step<Plan> {
        self.sketch(view, mutation, contents, 0).into()
    }

    /// Executes a mutation into the open batch, at `wall_ns` (nanoseconds since 1970). Its turn has come: nobody caches what it
    /// affects.
    pub fn apply(&mut self, view: &mut View<'_>, mutation: &Mutation<'_>, contents: &[u8], wall_ns: i64) -> Step<Plan> {
        let plan = self.sketch(view, mutation, contents, wall_ns);
        plan.and_then(|plan| self.draft.commit(view, mutation.data(contents)).map(|()| plan)).into()
    }

    /// Makes the draft of a mutation.
    fn sketch(&mut self, view: &View<'_>, mutation: &Mutation<'_>, contents: &[u8], wall_ns: i64) -> Result<Plan, Lack> {
        let frame = Frame { limits: self.limits, wall_ns };
        self.draft.clear();
        let draft = &mut self.draft;
        match mutation {
            Mutation::SetAttr(m) => draft.set_attr(view, &frame, m),
            Mutation::Create(m) => draft.create(view, &frame, m),
            Mutation::Mkdir(m) => draft.mkdir(view, &frame, m),
            Mutation::Symlink(m) => draft.symlink(view, &frame, m),
            Mutation::Link(m) => draft.link(view, &frame, m),
            Mutation::Unlink(m) => draft.unlink(view, &frame, m),
            Mutation::Rmdir(m) => draft.rmdir(view, &frame, m),
            Mutation::Rename(m) => draft.rename(view, &frame, m),
            Mutation::Write(m) => draft.write(view, &frame, m, contents.len()),
        }?;
        // What changes nothing looks at no counter: its answer shall not wait for changes elsewhere to be durable.
        if !self.draft.is_idle() {
            self.draft.check(view)?;
            self.check_room(view, mutation)?;
        }
        Ok(Plan::of(&self.draft))
    }

    /// Whether the store has room for more than what takes something away.
    pub(crate) const fn has_room(&self) -> bool {
        self.room
    }

    /// Notes whether the store has room.
    pub(crate) const fn set_room(&mut self, room: bool) {
        self.room = room;
    }

    /// Whether what the draft adds fits the bounds.
    fn check_room(&self, view: &View<'_>, mutation: &Mutation<'_>) -> Result<(), Lack> {
        let makes = self.draft.touched.iter().any(|touched| touched.fate == Fate::Made);
        if makes && view.counter(Counter::Objects)? >= self.limits.objects_max {
            return Err(Status::ENOSPC.into());
        }
        let (more, less) = self.draft.bytes();
        let removes = matches!(mutation, Mutation::Unlink(_) | Mutation::Rmdir(_)) || less > more;
        if !self.room && !removes {
            return Err(Status::ENOSPC.into());
        }
        if more > less && view.counter(Counter::Bytes)? + (more - less) > self.limits.bytes_max {
            return Err(Status::ENOSPC.into());
        }
        Ok(())
    }

    /// The objects that the last mutation applied took away for good.
    pub fn gone(&self) -> impl Iterator<Item = ObjectId> {
        self.draft.touched.iter().filter(|touched| touched.fate == Fate::Gone).map(|touched| touched.record.attr.object)
    }

    /// Appends the answer to the last mutation applied, an encoded CHANGED, to `out`. `grant` is asked for every object in it that
    /// still exists, when the mutation has left the queues.
    pub fn changed(&self, want: Want, mut grant: impl FnMut(ObjectId, Want) -> CacheGrant, out: &mut Writer) {
        let nothing = |attr| Effect { before: 0, attr, grant: CacheGrant::NONE };
        let Some(first) = self.draft.touched.first() else {
            Reply::Changed(Changed { effects: List::default() }).put(out);
            return;
        };
        let mut effects = [nothing(first.record.attr); AFFECTED_MAX];
        for (effect, touched) in effects.iter_mut().zip(&self.draft.touched) {
            let attr = touched.record.attr;
            let grant = if touched.fate == Fate::Gone { CacheGrant::NONE } else { grant(attr.object, want) };
            *effect = Effect { before: touched.before, attr, grant };
        }
        Reply::Changed(Changed { effects: List::of(&effects[..self.draft.touched.len()]) }).put(out);
    }
}
