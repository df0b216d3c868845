//! Planning and committing mutations.
//!
//! A mutation is a list of items; one that is no batch has a single one. Decides which objects it affects. Implements `wire-spec.md` section 11.4:
//!
//! | operation | affects, in the order of its answer |
//! |---|---|
//! | SETATTR, WRITE, SETXATTR, REMOVEXATTR, SETQUOTA | the object |
//! | CREATE, MKDIR, MKREALM, MKLEASE, SYMLINK | the directory; the new object |
//! | CREATE of a file that exists | nothing; the file is shown as it is |
//! | LINK | the directory; the object |
//! | UNLINK | the directory; the object |
//! | RMDIR | the directory in which it is; the directory removed |
//! | RENAME | the old directory; the new one, if another; the object moved; what is replaced or exchanged |
//! | RENAME of a name to another name of the same object | nothing |
//! | SETATTR of no attribute, WRITE of no bytes | nothing; the object is shown as it is |
//! | BATCH | what its items affect, each object once |
//!
//! Invariant: committing a plan changes what the plan says, and cannot fail; a new object is affected, but nobody can hold
//! a lock on it. Of a batch every item is drafted before any is committed, so that all are done or none.
//! Leaves to others: guards, advisory locks on what is removed, turns (`locks`).

use super::draft::{Draft, Fate, Removal};
use super::{Namespace, NamespaceLimits};
use crate::principals::{Asker, Rights};
use crate::store::{Counter, LeaseRecord, Query, ReadError, View};
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_wire::limits::{BATCH_MAX, BATCH_OBJECTS_MAX, EXPECT_MAX, HELD_MAX};
use cistern_wire::{
    Attr, Batched, CacheGrant, Changed, Effect, Expect, Field as _, Handle, Item, ItemResult, Limited, List, Message, ObjectId, Realm,
    Reply, SessionId, Status, Terms, Writer,
};

/// A request that changes the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation<'a> {
    items: Items<'a>,
    terms: Terms<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Items<'a> {
    One(Item<'a>),
    Batch(List<'a, Item<'a>>),
}

impl<'a> Mutation<'a> {
    /// The mutation that a message asks for, if it asks for one.
    #[must_use]
    pub fn of(message: &Message<'a>) -> Option<Self> {
        let items = match message {
            Message::Batch(batch) => Items::Batch(batch.items),
            _ => Items::One(Item::of(message)?),
        };
        Some(Self { items, terms: message.terms()? })
    }

    /// A mutation of the server's own: nobody is answered, and it goes by no terms.
    #[must_use]
    pub const fn one(item: Item<'a>) -> Self {
        Self { items: Items::One(item), terms: Terms::NONE }
    }

    /// What its sender would like to hold, what it holds, under which guard it acts, what it expects.
    #[must_use]
    pub const fn terms(&self) -> Terms<'a> {
        self.terms
    }

    /// Whether it is a batch.
    #[must_use]
    pub const fn is_batch(&self) -> bool {
        matches!(self.items, Items::Batch(_))
    }

    /// How many items it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.items {
            Items::One(_) => 1,
            Items::Batch(items) => items.len(),
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is done, in order.
    pub fn items(&self) -> impl Iterator<Item = Item<'a>> + use<'a> {
        let (one, batch) = match self.items {
            Items::One(item) => (Some(item), List::default()),
            Items::Batch(items) => (None, items),
        };
        one.into_iter().chain(batch)
    }

    /// How many ephemeral files it makes.
    #[inline]
    #[must_use]
    pub fn ephemerals(&self) -> usize {
        self.items().filter(|item| matches!(item, Item::Create(m) if m.ephemeral)).count()
    }

    /// The stages that have what its items bring.
    pub fn stages(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.items().filter_map(|item| staged(&item))
    }
}

/// The stage that has what an item brings, if a stage has it.
#[must_use]
pub const fn staged(item: &Item<'_>) -> Option<u64> {
    let stage = match item {
        Item::Write(m) => m.stage,
        Item::SetXattr(m) => m.stage,
        _ => 0,
    };
    if stage == 0 { None } else { Some(stage) }
}

/// What an item brings itself: contents, a link's target, the value of an attribute.
#[must_use]
pub const fn carried<'a>(item: &Item<'a>) -> &'a [u8] {
    match item {
        Item::Write(m) => m.data.0,
        Item::Symlink(m) => m.target.0,
        Item::SetXattr(m) => m.data.0,
        _ => &[],
    }
}

/// Most objects in the answer of a mutation that is no batch.
const EFFECTS_MAX: usize = 4;

/// Who changes something, and when.
#[derive(Clone, Copy, Debug)]
pub struct MutationCx<'a> {
    /// The session for which it is done: ephemeral files go with that; 0: the server itself.
    pub requester: SessionId,
    /// That session's handle: what it makes ephemeral names it by that.
    pub handle: Handle,
    /// Whose rights count; what is made tells who it was.
    pub asker: Asker<'a>,
    /// Nanoseconds since 1970.
    pub wall_ns: i64,
}

/// Why a mutation cannot be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// These values are not in memory.
    NotCached(Vec<Query>),
    /// It fails, a batch perhaps by one of its items.
    Failed {
        /// Why.
        status: Status,
        /// The item of a batch by which it fails.
        item: Option<u16>,
    },
    /// A quota is used up.
    Limited(Limited),
}

impl From<ReadError> for PlanError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NotCached(queries) => Self::NotCached(queries),
            ReadError::Failed(status) => Self::Failed { status, item: None },
        }
    }
}

impl From<Status> for PlanError {
    fn from(status: Status) -> Self {
        Self::Failed { status, item: None }
    }
}

/// A mutation that can be done now: all that it changes. Nothing of it is done before [`Plan::commit`].
#[derive(Debug)]
pub struct Plan<'n> {
    draft: &'n Draft,
    data: &'n [&'n [u8]],
    requester: SessionId,
    is_batch: bool,
    ids: [ObjectId; BATCH_OBJECTS_MAX],
    len: usize,
}

impl<'n> Plan<'n> {
    #[inline]
    fn new(draft: &'n Draft, data: &'n [&'n [u8]], requester: SessionId, is_batch: bool) -> Self {
        let mut plan = Self { draft, data, requester, is_batch, ids: [ObjectId(0); BATCH_OBJECTS_MAX], len: 0 };
        for (place, object) in plan.ids.iter_mut().zip(draft.affected()) {
            *place = object;
            plan.len += 1;
        }
        plan
    }

    /// The objects that exist already and that it changes, in the order of its answer; none: it changes nothing.
    #[must_use]
    pub fn affected(&self) -> &[ObjectId] {
        &self.ids[..self.len]
    }

    /// The objects whose names are taken away, replaced or moved, or go with a named lease: advisory locks may protect them.
    pub fn removes(&self) -> impl Iterator<Item = Removal> + use<'n> {
        self.draft.removes.iter().copied()
    }

    /// Does it, by the open batch. Its turn has come: nobody caches what it affects. Through `view` what it was planned from must be seen.
    pub fn commit(self, view: &mut View<'_>) -> Applied<'n> {
        //= wire-spec.md#11-5-caching-and-metadata
        //# A BATCH MUST be executed whole, or change nothing and say which item could not be done.
        //= wire-spec.md#11-5-caching-and-metadata
        //# The server MUST grant no cache lock and execute no other mutation between two items of a BATCH.
        // The draft of all items is complete, and all of it is written in this call.
        let done = self.draft.commit(view, self.data, self.requester);
        assert!(done.is_ok(), "what was planned is in memory: {done:?}");
        Applied { draft: self.draft, is_batch: self.is_batch }
    }
}

/// A mutation that was done.
#[derive(Debug)]
pub struct Applied<'n> {
    draft: &'n Draft,
    is_batch: bool,
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
pub(super) struct Frame<'a> {
    pub(super) limits: NamespaceLimits,
    pub(super) wall_ns: i64,
    pub(super) handle: Handle,
    pub(super) asker: Asker<'a>,
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
    fn item(&mut self, view: &View<'_>, frame: &Frame<'_>, item: &Item<'_>, data: &[u8]) -> Result<(), ReadError> {
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
            Item::MakeRealm(m) => self.make_realm(view, frame, m),
            Item::SetQuota(m) => self.set_quota(view, frame, m),
            Item::MakeLease(m) => self.make_lease(view, frame, m),
            Item::Attach(m) => self.attach(view, frame, m),
        }?;
        self.subjects.push(subject);
        // As many as its sender can name as suspended.
        if self.affected().count() > BATCH_OBJECTS_MAX { Err(Status::E2BIG.into()) } else { Ok(()) }
    }
}

impl Namespace {
    /// What a mutation changes, or why it cannot be done now. `data`: what each of its items brings, from the message or from a stage.
    pub fn plan<'n>(
        &'n mut self,
        view: &View<'_>,
        mutation: &Mutation<'_>,
        data: &'n [&'n [u8]],
        cx: MutationCx<'_>,
    ) -> Result<Plan<'n>, PlanError> {
        let MutationCx { requester, handle, asker, wall_ns } = cx;
        let frame = Frame { limits: self.limits, wall_ns, handle, asker, batch: mutation.is_batch() };
        self.draft.clear();
        let terms = mutation.terms();
        //= wire-spec.md#6-2-requests
        //# A mutation with more than 16 items in `held` or more than 8 in `expect` MUST fail with E2BIG.
        if terms.held.len() > HELD_MAX || terms.expect.len() > EXPECT_MAX {
            return Err(Status::E2BIG.into());
        }
        check_expected(view, terms.expect, asker)?;
        check_guard(view, terms.guard_object, asker)?;
        match mutation.len() {
            0 => return Err(Status::EINVAL.into()),
            1..=BATCH_MAX => {}
            _ => return Err(Status::E2BIG.into()),
        }
        for (index, item) in mutation.items().enumerate() {
            self.draft.item(view, &frame, &item, data.get(index).copied().unwrap_or_default()).map_err(|error| match error {
                ReadError::Failed(status) if mutation.is_batch() => PlanError::Failed { status, item: u16::try_from(index).ok() },
                other => other.into(),
            })?;
        }
        // What it only shows, be it one of its items that does.
        let mut shown = self.draft.touched.iter().filter(|touched| touched.fate == Fate::Shown);
        shown.try_for_each(|shown| asker.check(&shown.record.attr, Rights::READ))?;
        // What changes nothing looks at no counter: its answer shall not wait for changes elsewhere to be durable.
        if !self.draft.is_idle() {
            self.draft.check(view)?;
            self.check_room(view, mutation)?;
        }
        Ok(Plan::new(&self.draft, data, requester, mutation.is_batch()))
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
}

impl Applied<'_> {
    /// The objects that it made, changed or took away: attributes after it, and what became of each.
    pub fn changes(&self) -> impl Iterator<Item = (&Attr, Became)> {
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

    /// The realms that it began.
    pub fn begun(&self) -> impl Iterator<Item = Realm> {
        self.draft.realms_made()
    }

    /// The named leases that it made, those among them whose files it has taken away again included.
    pub fn leases(&self) -> impl Iterator<Item = (ObjectId, LeaseRecord)> {
        self.draft.leases.iter().copied()
    }

    /// The named leases whose files it took away.
    pub fn leases_gone(&self) -> impl Iterator<Item = ObjectId> {
        let gone = self.draft.touched.iter().filter(|touched| touched.record.attr.is_lease() && !touched.exists());
        gone.map(|touched| touched.record.attr.object)
    }

    /// The named lease with which an object goes from now on.
    pub fn lease_of(&self, object: ObjectId) -> Option<ObjectId> {
        self.draft.lease_of(object)
    }

    /// Appends its encoded answer to `out`. `grant` is asked for every object in it that still exists, but for those of a batch.
    pub fn encode(&self, grant: impl FnMut(&Attr) -> CacheGrant, out: &mut Writer) {
        if self.is_batch { self.batched(out) } else { self.changed(grant, out) }
    }

    fn changed(&self, mut grant: impl FnMut(&Attr) -> CacheGrant, out: &mut Writer) {
        let effects: [Effect; EFFECTS_MAX] = core::array::from_fn(|at| {
            let Some(touched) = self.draft.touched.get(at) else { return Effect::NONE };
            let attr = touched.record.attr;
            let grant = if touched.fate == Fate::Gone { CacheGrant::NONE } else { grant(&attr) };
            Effect { before: touched.before, attr, grant }
        });
        Reply::Changed(Changed { effects: List::of(&effects[..self.draft.touched.len()]) }).put(out);
    }

    fn batched(&self, out: &mut Writer) {
        let version = |object: &ObjectId| self.draft.own(*object).filter(|own| own.exists()).map_or(0, |own| own.record.attr.version);
        let mut results = [ItemResult { object: ObjectId(0), version: 0 }; BATCH_MAX];
        for (result, object) in results.iter_mut().zip(&self.draft.subjects) {
            *result = ItemResult { object: *object, version: version(object) };
        }
        Reply::Batched(Batched { items: List::of(&results[..self.draft.subjects.len().min(BATCH_MAX)]) }).put(out);
    }
}

/// Whether the objects have the versions that a mutation depends on.
#[inline]
fn check_expected(view: &View<'_>, expected: List<'_, Expect>, asker: Asker<'_>) -> Result<(), ReadError> {
    //= wire-spec.md#11-5-caching-and-metadata
    //# A mutation whose `expect` names a version other than the current one MUST fail with VERSION_CHANGED and change nothing.
    for Expect { object, version } in expected {
        if read_version(view, object, asker)? != version {
            return Err(Status::VERSION_CHANGED.into());
        }
    }
    Ok(())
}

/// The version of an object; 0 if there is none that the asker may know of.
fn read_version(view: &View<'_>, object: ObjectId, asker: Asker<'_>) -> Result<u64, ReadError> {
    let Some(record) = view.object(object)? else { return Ok(0) };
    match asker.check(&record.attr, Rights::READ) {
        Ok(()) => Ok(record.attr.version),
        Err(Status::ESTALE) => Ok(0),
        Err(status) => Err(status.into()),
    }
}

/// Whether an object may guard a mutation.
fn check_guard(view: &View<'_>, object: ObjectId, asker: Asker<'_>) -> Result<(), ReadError> {
    if object.0 == 0 || asker.is_anybody() || bugs::is(Bug::R8) {
        return Ok(());
    }
    let Some(record) = view.object(object)? else { return Ok(()) };
    match asker.check(&record.attr, Rights::READ) {
        // As of one that is gone no token of it is current.
        Err(Status::ESTALE) => Err(Status::STALE_GUARD.into()),
        checked => Ok(checked?),
    }
}
