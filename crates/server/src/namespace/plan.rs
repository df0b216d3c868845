//! Planning and applying mutations.
//!
//! Decides: which objects a mutation affects. Place in the walk: `plan` before a mutation takes its place in the queues, `apply` when
//! its turn has come; both make the same draft from what is in memory at that moment. Implements `wire-spec.md` section 11.4 (R71):
//!
//! | operation | affects, in the order of its answer |
//! |---|---|
//! | SETATTR, WRITE, SETXATTR, REMOVEXATTR | the object |
//! | CREATE, MKDIR, SYMLINK | the directory; the new object |
//! | CREATE of a file that exists | nothing; the file is shown as it is |
//! | LINK | the directory; the object |
//! | UNLINK | the directory; the object |
//! | RMDIR | the directory in which it is; the directory removed |
//! | RENAME | the old directory; the new one, if another; the object moved; what is replaced or exchanged |
//! | RENAME of a name to another name of the same object | nothing |
//! | SETATTR of no attribute, WRITE of no bytes | nothing; the object is shown as it is |
//! | BATCH | what its items affect, each object once |
//!
//! Invariant: what applying changes is what planning, run at the same instant, says; a new object is affected, but nobody can hold
//! a lock on it. Of a batch every item is drafted before any is committed, so that all are done or none.
//! Leaves to others: guards, advisory locks on what is removed, turns (`locks`).

use super::draft::{Draft, Fate, Removal};
use super::mutation::Mutation;
use super::{Namespace, NamespaceLimits, Step};
use crate::store::{Counter, ReadError, View};
use cistern_wire::limits::{BATCH_MAX, BATCH_OBJECTS_MAX, EXPECT_MAX, HELD_MAX};
use cistern_wire::{
    Attr, Batched, CacheGrant, Changed, Effect, Expect, Field as _, Handle, Item, ItemResult, List, ObjectId, Reply, Status, Want, Writer,
};

/// Most objects in the answer of a mutation that is no batch.
const EFFECTS_MAX: usize = 4;

/// Most names that a mutation takes from objects that exist: two for each RENAME.
const REMOVES_MAX: usize = 2 * BATCH_MAX;

/// What a mutation affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    ids: [ObjectId; BATCH_OBJECTS_MAX],
    len: usize,
    removes: [Option<Removal>; REMOVES_MAX],
}

impl Plan {
    /// The objects that exist already and that it changes, in the order of its answer; none: it changes nothing.
    #[must_use]
    pub fn affected(&self) -> &[ObjectId] {
        &self.ids[..self.len]
    }

    /// The objects whose names are taken away, replaced or moved: advisory locks may protect them (R74).
    pub fn removes(&self) -> impl Iterator<Item = Removal> + '_ {
        self.removes.iter().copied().flatten()
    }

    fn of(draft: &Draft) -> Self {
        let mut plan = Self { ids: [ObjectId(0); BATCH_OBJECTS_MAX], len: 0, removes: [None; REMOVES_MAX] };
        for (place, touched) in plan.ids.iter_mut().zip(draft.affected()) {
            *place = touched;
            plan.len += 1;
        }
        for (place, removal) in plan.removes.iter_mut().zip(&draft.removes) {
            *place = Some(*removal);
        }
        plan
    }
}

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    /// It did not exist before.
    Made,
    /// It has another version.
    Changed,
    /// It is gone.
    Gone,
}

/// What a draft is made under.
pub(super) struct Frame {
    pub(super) limits: NamespaceLimits,
    pub(super) wall_ns: i64,
    pub(super) handle: Handle,
    /// Whether the answer tells what each item was about.
    pub(super) batch: bool,
}

impl Draft {
    /// The objects that exist already and that change.
    fn affected(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let changed = self.touched.iter().filter(|touched| matches!(touched.fate, Fate::Changed | Fate::Gone));
        changed.map(|touched| touched.record.attr.object)
    }

    /// Drafts one item, which brings `data`.
    fn item(&mut self, view: &View<'_>, frame: &Frame, item: &Item<'_>, data: &[u8]) -> Result<(), ReadError> {
        let subject = match item {
            Item::SetAttr(m) => self.set_attr(view, frame, m),
            Item::Create(m) => self.create(view, frame, m),
            Item::Mkdir(m) => self.mkdir(view, frame, m),
            Item::Symlink(m) => self.symlink(view, frame, m),
            Item::Link(m) => self.link(view, frame, m),
            Item::Unlink(m) => self.unlink(view, frame, m),
            Item::Rmdir(m) => self.rmdir(view, frame, m),
            Item::Rename(m) => self.rename(view, frame, m),
            Item::Write(m) => self.write(view, frame, m, data.len()),
            Item::SetXattr(m) => self.set_xattr(view, frame, m, data),
            Item::RemoveXattr(m) => self.remove_xattr(view, frame, m),
        }?;
        self.subjects.push(subject);
        // As many as its sender can name as suspended.
        if self.affected().count() > BATCH_OBJECTS_MAX { Err(Status::E2BIG.into()) } else { Ok(()) }
    }
}

impl Namespace {
    /// What a mutation will affect, or why it fails now. `data`: what each of its items brings, from the message or from a stage.
    pub fn plan(&mut self, view: &View<'_>, mutation: &Mutation<'_>, data: &[&[u8]]) -> Step<Plan> {
        self.sketch(view, mutation, data, 0).into()
    }

    /// Executes a mutation into the open batch, at `wall_ns` (nanoseconds since 1970). Its turn has come: nobody caches what it
    /// affects.
    pub fn apply(&mut self, view: &mut View<'_>, mutation: &Mutation<'_>, data: &[&[u8]], wall_ns: i64) -> Step<Plan> {
        //= wire-spec.md#11-5-caching-and-metadata
        //# A BATCH MUST be executed whole, or change nothing and say which item could not be done.
        //= wire-spec.md#11-5-caching-and-metadata
        //# The server MUST grant no cache lock and execute no other mutation between two items of a BATCH.
        // Until the draft of all items is complete nothing is written, and then all of it in this call.
        let plan = self.sketch(view, mutation, data, wall_ns);
        plan.and_then(|plan| self.draft.commit(view, data, self.requester).map(|()| plan)).into()
    }

    /// The item by which the last mutation failed, if it was a batch and failed by an item.
    #[must_use]
    pub const fn failed_item(&self) -> Option<u16> {
        self.failed
    }

    /// Makes the draft of a mutation.
    fn sketch(&mut self, view: &View<'_>, mutation: &Mutation<'_>, data: &[&[u8]], wall_ns: i64) -> Result<Plan, ReadError> {
        let frame = Frame { limits: self.limits, wall_ns, handle: self.handle, batch: mutation.is_batch() };
        self.draft.clear();
        self.failed = None;
        let terms = mutation.terms();
        //= wire-spec.md#6-2-requests
        //# A mutation with more than 16 items in `held` or more than 8 in `expect` MUST fail with E2BIG.
        if terms.held.len() > HELD_MAX || terms.expect.len() > EXPECT_MAX {
            return Err(Status::E2BIG.into());
        }
        check_expected(view, terms.expect)?;
        match mutation.len() {
            0 => return Err(Status::EINVAL.into()),
            1..=BATCH_MAX => {}
            _ => return Err(Status::E2BIG.into()),
        }
        for (index, item) in mutation.items().enumerate() {
            let drafted = self.draft.item(view, &frame, &item, data.get(index).copied().unwrap_or_default());
            if mutation.is_batch() && matches!(drafted, Err(ReadError::Failed(_))) {
                self.failed = u16::try_from(index).ok();
            }
            drafted?;
        }
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
    fn check_room(&self, view: &View<'_>, mutation: &Mutation<'_>) -> Result<(), ReadError> {
        let (made, gone) = (self.draft.count(Fate::Made), self.draft.count(Fate::Gone));
        if made > gone && view.counter(Counter::Objects)? + (made - gone) > self.limits.objects_max {
            return Err(Status::ENOSPC.into());
        }
        let (more, less) = self.draft.bytes();
        let takes = |item| matches!(item, Item::Unlink(_) | Item::Rmdir(_) | Item::RemoveXattr(_));
        let removes = mutation.items().all(takes) || less > more;
        if !self.room && !removes {
            return Err(Status::ENOSPC.into());
        }
        if more > less && view.counter(Counter::Bytes)? + (more - less) > self.limits.bytes_max {
            return Err(Status::ENOSPC.into());
        }
        Ok(())
    }

    /// The objects that the last mutation applied made, changed or took away: attributes after it, and what became of each.
    pub fn touched(&self) -> impl Iterator<Item = (&Attr, Became)> {
        self.draft.touched.iter().filter_map(|touched| {
            let became = match touched.fate {
                Fate::Shown | Fate::Never => return None,
                Fate::Changed => Became::Changed,
                Fate::Made => Became::Made,
                Fate::Gone => Became::Gone,
            };
            Some((&touched.record.attr, became))
        })
    }

    /// The objects that the last mutation applied took away for good.
    pub fn gone(&self) -> impl Iterator<Item = ObjectId> {
        self.draft.touched.iter().filter(|touched| touched.fate == Fate::Gone).map(|touched| touched.record.attr.object)
    }

    /// Appends the answer to the last mutation applied, if it was no batch, an encoded CHANGED, to `out`. `grant` is asked for every object in it that
    /// still exists, when the mutation has left the queues.
    pub fn changed(&self, want: Want, mut grant: impl FnMut(ObjectId, Want) -> CacheGrant, out: &mut Writer) {
        let nothing = |attr| Effect { before: 0, attr, grant: CacheGrant::NONE };
        let Some(first) = self.draft.touched.first() else {
            Reply::Changed(Changed { effects: List::default() }).put(out);
            return;
        };
        let mut effects = [nothing(first.record.attr); EFFECTS_MAX];
        for (effect, touched) in effects.iter_mut().zip(&self.draft.touched) {
            let attr = touched.record.attr;
            let grant = if touched.fate == Fate::Gone { CacheGrant::NONE } else { grant(attr.object, want) };
            *effect = Effect { before: touched.before, attr, grant };
        }
        Reply::Changed(Changed { effects: List::of(&effects[..self.draft.touched.len()]) }).put(out);
    }

    /// Appends the answer to the last mutation applied, if it was a batch, an encoded BATCHED, to `out`.
    pub fn batched(&self, out: &mut Writer) {
        let version = |object: &ObjectId| self.draft.own(*object).filter(|own| own.exists()).map_or(0, |own| own.record.attr.version);
        let mut results = [ItemResult { object: ObjectId(0), version: 0 }; BATCH_MAX];
        for (result, object) in results.iter_mut().zip(&self.draft.subjects) {
            *result = ItemResult { object: *object, version: version(object) };
        }
        Reply::Batched(Batched { items: List::of(&results[..self.draft.subjects.len().min(BATCH_MAX)]) }).put(out);
    }
}

/// Whether the objects have the versions that a mutation depends on.
fn check_expected(view: &View<'_>, expected: List<'_, Expect>) -> Result<(), ReadError> {
    //= wire-spec.md#11-5-caching-and-metadata
    //# A mutation whose `expect` names a version other than the current one MUST fail with VERSION_CHANGED and change nothing.
    for Expect { object, version } in expected {
        if view.object(object)?.map_or(0, |record| record.attr.version) != version {
            return Err(Status::VERSION_CHANGED.into());
        }
    }
    Ok(())
}
