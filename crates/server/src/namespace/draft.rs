//! The draft of a mutation: all that it is about to change, before anything has changed.
//!
//! Decides: how versions, times and counts of an object change together. Made by planning.
//! Also what an item of a mutation sees: the store, under what the items before it are about to change.
//! Invariant: an object that a mutation touches in several roles, or by several items of a batch, has one record in the draft, and its
//! version grows by one. What can fail or lack has failed or lacked before the draft is complete: committing cannot. Of an object that the
//! batch makes nothing is asked of the store.
//! Leaves to others: what to change (`names`, `content`, `xattr`).

use super::content::Content;
use super::plan::{Frame, PlanError};
use crate::ids::Bound;
use crate::principals::{PrincipalId, Rights};
use crate::store::{AccountRecord, Counter, EntryRecord, LeaseRecord, ObjectRecord, ReadError, RealmRecord, View, XattrRecord};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{Attr, Handle, ObjectId, ObjectKind, Realm, SessionId, Status};

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is only shown in the answer.
    Shown,
    /// It existed and will be changed.
    Changed,
    /// It did not exist.
    Made,
    /// Its last name goes.
    Gone,
    /// It did not exist, and will not: a batch makes it and takes it away.
    Never,
}

/// An object that a mutation touches.
#[derive(Clone, Debug)]
pub(super) struct Touched {
    /// Its version before; 0: it did not exist.
    pub(super) before: u64,
    /// Its record after.
    pub(super) record: ObjectRecord,
    pub(super) fate: Fate,
}

impl Touched {
    /// Whether it exists after what was drafted so far.
    pub(super) const fn exists(&self) -> bool {
        !matches!(self.fate, Fate::Gone | Fate::Never)
    }
}

/// Something that happens to contents.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) object: ObjectId,
    pub(super) content: Content,
    /// The item that brings the bytes.
    pub(super) item: usize,
}

/// The extended attributes of an object, when they change.
#[derive(Debug)]
pub(super) struct Xattrs {
    pub(super) object: ObjectId,
    /// Bytes of their values before.
    pub(super) before: u64,
    /// All of them after.
    pub(super) record: Option<XattrRecord>,
}

/// A name of an existing object that is taken away, replaced or moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The object.
    pub object: ObjectId,
    /// The item of a batch that does it; 0 in a mutation that is none.
    pub item: u16,
    /// Although somebody holds an advisory lock on it (section 11.4).
    pub force: bool,
    /// To which it belongs.
    pub realm: Realm,
}

/// All that a mutation changes.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// In the order of the answer.
    pub(super) touched: Vec<Touched>,
    /// Names, each once, and what they name from now on; `None`: nothing.
    pub(super) entries: Vec<(ObjectId, Bytes, Option<EntryRecord>)>,
    /// What happens to contents, in order.
    pub(super) contents: Vec<Filling>,
    /// Extended attributes, each object once.
    pub(super) xattrs: Vec<Xattrs>,
    /// Realms that are made or whose quotas change; when the draft is complete, all that change, with their use after it. `None`: it goes.
    pub(super) realms: Vec<(Realm, Option<RealmRecord>)>,
    /// Principals whose objects change, with what they have after it; when the draft is complete.
    pub(super) accounts: Vec<(PrincipalId, AccountRecord)>,
    /// Named leases that are made.
    pub(super) leases: Vec<(ObjectId, LeaseRecord)>,
    /// Objects that are attached to one, and to which.
    pub(super) attached: Vec<(ObjectId, ObjectId)>,
    pub(super) removes: Vec<Removal>,
    /// Directories above which it was looked for what is moved.
    pub(super) parents: usize,
    /// What each item so far was about.
    pub(super) subjects: Vec<ObjectId>,
}

/// Who makes a new object, and how.
pub(super) struct Birth {
    pub(super) kind: ObjectKind,
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) nlink: u32,
    pub(super) size: u64,
    /// Of an ephemeral file, the handle of the session that makes it; otherwise 0.
    pub(super) owner: Handle,
    /// That of its directory, or the one that it begins.
    pub(super) realm: Realm,
}

impl Draft {
    pub(super) fn clear(&mut self) {
        self.touched.clear();
        self.entries.clear();
        self.contents.clear();
        self.xattrs.clear();
        self.realms.clear();
        self.accounts.clear();
        self.leases.clear();
        self.attached.clear();
        self.removes.clear();
        self.parents = 0;
        self.subjects.clear();
    }

    /// The attributes of an object that changes at `wall_ns`.
    pub(super) fn change(&mut self, at: usize, wall_ns: i64) -> &mut Attr {
        let touched = &mut self.touched[at];
        if touched.fate == Fate::Shown {
            touched.fate = Fate::Changed;
            touched.record.attr.version += 1;
        }
        touched.record.attr.ctime_ns = wall_ns;
        &mut touched.record.attr
    }

    /// Changes the entries of a directory, which has so many more or fewer of them and of subdirectories.
    pub(super) fn change_entries(&mut self, at: usize, wall_ns: i64, entries: i64, subdirectories: i32) {
        let attr = self.change(at, wall_ns);
        attr.mtime_ns = wall_ns;
        attr.size = attr.size.saturating_add_signed(entries);
        attr.nlink = attr.nlink.saturating_add_signed(subdirectories);
    }

    /// What a name names from now on.
    pub(super) fn put_entry(&mut self, dir: ObjectId, name: &[u8], entry: Option<EntryRecord>) {
        match self.entries.iter_mut().find(|known| known.0 == dir && known.1 == name) {
            Some(known) => known.2 = entry,
            None => self.entries.push((dir, Bytes::copy_from_slice(name), entry)),
        }
    }

    /// A new object under a name; its number.
    pub(super) fn make(
        &mut self,
        view: &View<'_>,
        parent: ObjectId,
        name: &[u8],
        birth: &Birth,
        frame: &Frame<'_>,
    ) -> Result<ObjectId, ReadError> {
        let wall_ns = frame.wall_ns;
        let object = ObjectId(view.counter(Counter::NextObject)? + self.made());
        let Birth { kind, mode, uid, gid, nlink, size, owner, realm } = *birth;
        let (atime_ns, mtime_ns, ctime_ns) = (wall_ns, wall_ns, wall_ns);
        let attr = Attr { object, version: 1, kind, mode, nlink, uid, gid, size, atime_ns, mtime_ns, ctime_ns, owner, realm };
        self.put_entry(parent, name, Some(EntryRecord { object, kind }));
        let record = ObjectRecord { attr, parent, name: Bytes::copy_from_slice(name), xattrs: 0, creator: frame.asker.who() };
        self.touched.push(Touched { before: 0, record, fate: Fate::Made });
        Ok(object)
    }

    /// Notes that an object loses a name: an advisory lock on it may protect it.
    pub(super) fn loses_name(&mut self, at: usize, force: bool) {
        if self.touched[at].before > 0 {
            let item = u16::try_from(self.subjects.len()).unwrap_or(u16::MAX);
            let Attr { object, realm, .. } = self.touched[at].record.attr;
            self.removes.push(Removal { object, item, force, realm });
        }
    }

    /// Takes a name of an object away: with the last one (of a directory: its only one) the object goes.
    pub(super) fn take_name(&mut self, view: &View<'_>, at: usize, wall_ns: i64, force: bool) -> Result<(), ReadError> {
        self.loses_name(at, force);
        let attr = self.change(at, wall_ns);
        attr.nlink = if attr.kind == ObjectKind::Directory { 0 } else { attr.nlink.saturating_sub(1) };
        if attr.nlink == 0 {
            let (object, kind, size) = (attr.object, attr.kind, attr.size);
            self.drop_xattrs(view, at)?;
            let touched = &mut self.touched[at];
            touched.fate = if touched.before == 0 { Fate::Never } else { Fate::Gone };
            if kind != ObjectKind::Directory {
                self.fill(object, Content::Drop { size });
            }
        }
        Ok(())
    }

    /// Something happens to contents, by the item at hand.
    pub(super) fn fill(&mut self, object: ObjectId, content: Content) {
        self.contents.push(Filling { object, content, item: self.subjects.len() });
    }

    /// How the sum of the sizes of all files, symbolic links and extended attributes changes: what is added, what is taken away.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let contents = self.contents.iter().map(|filling| filling.content.sizes());
        let xattrs = self.xattrs.iter().map(|x| (x.before, x.record.as_ref().map_or(0, XattrRecord::values_len)));
        contents.chain(xattrs).fold((0, 0), |(more, less), (before, after)| (more + after, less + before))
    }

    pub(super) fn count(&self, fate: Fate) -> u64 {
        self.touched.iter().filter(|touched| touched.fate == fate).fold(0, |count, _| count + 1)
    }

    /// How many object numbers it uses up.
    pub(super) fn made(&self) -> u64 {
        self.count(Fate::Made) + self.count(Fate::Never)
    }

    /// Whether nothing is to be changed.
    pub(super) fn is_idle(&self) -> bool {
        self.touched.iter().all(|touched| touched.fate == Fate::Shown)
    }

    /// Whether an object is new: nothing of it is in the store.
    fn is_new(&self, object: ObjectId) -> bool {
        self.own(object).is_some_and(|touched| touched.before == 0)
    }

    /// Makes sure that everything that committing reads is in memory.
    pub(super) fn check(&mut self, view: &View<'_>) -> Result<(), PlanError> {
        let counters = super::join(view.counter(Counter::NextObject), view.counter(Counter::Bytes));
        super::join(counters, view.counter(Counter::Objects))?;
        let old = self.contents.iter().filter(|filling| !self.is_new(filling.object));
        old.map(|filling| filling.content.check(view, filling.object)).try_for_each(|checked| checked)?;
        // All of it, or none, is in the tree's realm, most often, and made by who has no account.
        let counts = |record: &ObjectRecord| record.attr.realm != Realm::TREE || record.creator != PrincipalId::ANYBODY;
        if self.touched.iter().any(|touched| counts(&touched.record)) { self.count_uses(view) } else { Ok(()) }
    }

    /// Writes all of it into the open batch; [`Self::check`] has made sure that nothing lacks. `data`: what each item brings.
    pub(super) fn commit(&self, view: &mut View<'_>, data: &[&[u8]], maker: SessionId) -> Result<(), ReadError> {
        if self.is_idle() {
            return Ok(());
        }
        let objects = view.counter(Counter::Objects)?;
        let next = view.counter(Counter::NextObject)?;
        let bytes = view.counter(Counter::Bytes)?;
        // Nothing is written before this line, and nothing can be lacking after it.
        for Filling { object, content, item } in &self.contents {
            content.commit(view, *object, data.get(*item).copied().unwrap_or_default(), self.is_new(*object))?;
        }
        self.commit_objects(view, maker);
        self.realms.iter().for_each(|(realm, record)| view.put_realm(*realm, *record));
        self.accounts.iter().for_each(|(who, record)| view.put_account(*who, *record));
        for Xattrs { object, record, .. } in &self.xattrs {
            view.put_xattrs(*object, record.clone());
        }
        for (dir, name, entry) in self.entries.iter().filter(|(dir, ..)| self.own(*dir).is_none_or(|dir| dir.fate != Fate::Never)) {
            match entry {
                Some(entry) => view.put_entry(*dir, name, *entry),
                None => view.delete_entry(*dir, name),
            }
        }
        let (used, made, gone, (more, less)) = (self.made(), self.count(Fate::Made), self.count(Fate::Gone), self.bytes());
        if used + gone > 0 {
            view.set_counter(Counter::NextObject, next + used);
            view.set_counter(Counter::Objects, (objects + made).saturating_sub(gone));
        }
        if let Some(next) = self.next_realm() {
            view.set_counter(Counter::NextRealm, next);
        }
        if more != less {
            view.set_counter(Counter::Bytes, (bytes + more).saturating_sub(less));
        }
        Ok(())
    }

    fn commit_objects(&self, view: &mut View<'_>, maker: SessionId) {
        for touched in &self.touched {
            let attr = &touched.record.attr;
            match touched.fate {
                Fate::Shown | Fate::Never => {}
                Fate::Gone => {
                    view.delete_object(attr.object);
                    if attr.is_ephemeral() {
                        view.bind_ephemeral(attr.owner, attr.object, None);
                    }
                }
                Fate::Changed => {
                    view.put_object(touched.record.clone());
                    if let Some(lease) = self.lease_of(attr.object) {
                        view.bind_ephemeral(attr.owner, attr.object, Some(Bound::Lease(lease)));
                    }
                }
                Fate::Made => {
                    view.put_object(touched.record.clone());
                    if attr.kind == ObjectKind::Directory {
                        view.new_directory(attr.object);
                    }
                    //= wire-spec.md#11-7-restart-and-recovery
                    //# An ephemeral object MUST name its owner's session durably, and be bound to the new one that reclaims it.
                    if attr.is_ephemeral() {
                        let bound = self.lease_of(attr.object).map_or(Bound::Session(maker), Bound::Lease);
                        view.bind_ephemeral(attr.owner, attr.object, Some(bound));
                    }
                }
            }
        }
    }
}

impl Draft {
    /// The object that a request names: by its number, or as what an item before was about. ESTALE if there is no such item.
    pub(super) fn named(&self, object: ObjectId) -> Result<ObjectId, Status> {
        match object.maker() {
            Some(item) => self.subjects.get(item).copied().ok_or(Status::ESTALE),
            None => Ok(object),
        }
    }

    /// What is drafted of an object.
    pub(super) fn own(&self, object: ObjectId) -> Option<&Touched> {
        self.touched.iter().find(|touched| touched.record.attr.object == object)
    }

    /// An object's record; `None`: there is no such object.
    pub(super) fn object<'d>(&'d self, view: &'d View<'_>, object: ObjectId) -> Result<Option<&'d ObjectRecord>, ReadError> {
        match self.own(object) {
            Some(touched) => Ok(touched.exists().then_some(&touched.record)),
            None => view.object(object),
        }
    }

    /// An object named by its id, to be changed.
    pub(super) fn known(&self, view: &View<'_>, frame: &Frame<'_>, object: ObjectId) -> Result<Attr, ReadError> {
        let attr = self.object(view, object)?.map(|record| record.attr).ok_or(Status::ESTALE)?;
        frame.asker.check(&attr, Rights::WRITE)?;
        Ok(attr)
    }

    /// A directory named by its id, to be changed.
    pub(super) fn directory(&self, view: &View<'_>, frame: &Frame<'_>, dir: ObjectId) -> Result<Attr, ReadError> {
        let attr = self.known(view, frame, dir)?;
        if attr.kind == ObjectKind::Directory { Ok(attr) } else { Err(ReadError::Failed(Status::ENOTDIR)) }
    }

    /// An object that an entry names: it must be there.
    pub(super) fn entered<'d>(&'d self, view: &'d View<'_>, object: ObjectId) -> Result<&'d ObjectRecord, ReadError> {
        self.object(view, object)?.ok_or(ReadError::Failed(Status::EIO))
    }

    /// What a name in a directory names; `None`: it does not exist.
    pub(super) fn entry(&self, view: &View<'_>, dir: ObjectId, name: &[u8]) -> Result<Option<EntryRecord>, ReadError> {
        match self.entries.iter().find(|entry| entry.0 == dir && entry.1 == name) {
            Some((_, _, entry)) => Ok(*entry),
            None if self.own(dir).is_some_and(|dir| matches!(dir.fate, Fate::Made | Fate::Never)) => Ok(None),
            None => view.entry(dir, name),
        }
    }

    /// Takes an existing object in; gives its place in the draft.
    pub(super) fn show(&mut self, view: &View<'_>, object: ObjectId) -> Result<usize, ReadError> {
        if let Some(at) = self.touched.iter().position(|touched| touched.record.attr.object == object) {
            return Ok(at);
        }
        let record = view.object(object)?.ok_or(ReadError::Failed(Status::ESTALE))?.clone();
        self.touched.push(Touched { before: record.attr.version, record, fate: Fate::Shown });
        Ok(self.touched.len() - 1)
    }
}
