//! LOOKUP, GETATTR, READ and READDIR, and paths of objects for people who read lists of locks.
//!
//! Decides what a reader sees, and how much of it fits one answer. Implements `wire-spec.md` sections 6.2, 6.5 and 11.5.
//! Invariants: an answer shows one instant. Cache locks are asked for when the answer is certain, one for each object in it, so a run that
//! misses something grants nothing. Pages of a directory go by name, so a name that stays is seen once whatever changes meanwhile; a page with
//! a version other than the one asked for is refused. A path that is shown leads to the object at that instant; one list costs at most
//! [`STEPS_MAX`] look-ups of a parent.

use super::content::{block_of, within};
use super::{Namespace, check_name, directory, entered, known, readable};
use crate::principals::{Asker, Rights};
use crate::store::{BLOCK_LEN, EntryRecord, ObjectRecord, ReadError, View};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::ROOT;
use cistern_wire::{
    Attr, Bytes8, Bytes16, CacheGrant, Data, Entry, Field as _, GetAttr, GetXattr, List, ListXattr, Listing, Lookup, Message, ObjectId,
    ObjectKind, Read, ReadDir, Reply, Stated, Status, Walked, Want, Writer,
};

/// A WALKED reply without steps and target.
const WALKED_AROUND: usize = Reply::KIND_LEN + Walked::MIN_LEN;
/// A DATA reply without bytes.
const DATA_AROUND: usize = Reply::KIND_LEN + Data::MIN_LEN;

/// A request that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<'a> {
    /// Walks names.
    Lookup(Lookup<'a>),
    /// Attributes.
    GetAttr(GetAttr),
    /// A page of a directory.
    ReadDir(ReadDir<'a>),
    /// A page of contents.
    Read(Read),
    /// A page of the value of an extended attribute.
    GetXattr(GetXattr<'a>),
    /// Names of extended attributes.
    ListXattr(ListXattr<'a>),
}

impl<'a> Reading<'a> {
    /// The read that a message asks for, if it asks for one.
    #[must_use]
    pub const fn of(message: &Message<'a>) -> Option<Self> {
        Some(match *message {
            Message::Lookup(m) => Self::Lookup(m),
            Message::GetAttr(m) => Self::GetAttr(m),
            Message::ReadDir(m) => Self::ReadDir(m),
            Message::Read(m) => Self::Read(m),
            Message::GetXattr(m) => Self::GetXattr(m),
            Message::ListXattr(m) => Self::ListXattr(m),
            _ => return None,
        })
    }
}

impl Namespace {
    /// Executes a read: appends its encoded reply to `out`, at most `room` bytes of it (at least 504: what the smallest datagram has
    /// for a reply). `grant` is asked once for every object in the reply, with the lock that the reader wants.
    //= wire-spec.md#11-5-caching-and-metadata
    //# Reading MUST NOT change the access time.
    // The view is shared: nothing can be written through it.
    #[inline]
    pub fn read(
        &mut self,
        view: &View<'_>,
        reading: &Reading<'_>,
        asker: Asker<'_>,
        room: usize,
        mut grant: impl FnMut(&Attr, Want) -> CacheGrant,
        out: &mut Writer,
    ) -> Result<(), ReadError> {
        match reading {
            Reading::Lookup(m) => self.lookup(view, m, asker, room, &mut grant, out),
            Reading::GetAttr(m) => readable(view, m.object, asker).map(|record| {
                let grant = grant(&record.attr, asker.wanted(&record.attr, m.want));
                Stated { attr: record.attr, grant }.put_reply(out);
            }),
            Reading::ReadDir(m) => read_dir(view, m, asker, room, &mut grant, out),
            Reading::Read(m) => self.read_contents(view, m, asker, room, &mut grant, out),
            Reading::GetXattr(m) => super::xattr::get_xattr(view, m, asker, room, out),
            Reading::ListXattr(m) => super::xattr::list_xattr(view, m, asker, room, out),
        }
    }

    #[inline]
    fn lookup(
        &mut self,
        view: &View<'_>,
        m: &Lookup<'_>,
        asker: Asker<'_>,
        room: usize,
        grant: &mut impl FnMut(&Attr, Want) -> CacheGrant,
        out: &mut Writer,
    ) -> Result<(), ReadError> {
        let most = room.saturating_sub(WALKED_AROUND) / Stated::LEN;
        if most == 0 {
            return Err(Status::EINVAL.into());
        }
        let mut last = &known(view, m.start)?.attr;
        asker.check_way(last)?;
        if last.kind == ObjectKind::File && !m.names.is_empty() {
            return Err(Status::ENOTDIR.into());
        }
        self.steps.clear();
        self.steps.push(Stated { attr: *last, grant: CacheGrant::NONE });
        let mut status = Status::OK;
        for name in m.names {
            if last.kind == ObjectKind::Symlink || self.steps.len() == most {
                break;
            }
            match next(view, last, name.0, asker) {
                Ok(record) => last = &record.attr,
                Err(ReadError::Failed(why)) if why != Status::EIO => {
                    status = why;
                    break;
                }
                Err(lack) => return Err(lack),
            }
            self.steps.push(Stated { attr: *last, grant: CacheGrant::NONE });
        }
        let left = room - WALKED_AROUND - self.steps.len() * Stated::LEN;
        // A target that does not fit beside the steps is left out; READ gives it.
        let target = match last.kind {
            ObjectKind::Symlink if last.size <= left as u64 => view.block(last.object, 0)?.map_or(&[][..], |target| target),
            _ => &[],
        };
        for step in &mut self.steps {
            step.grant = grant(&step.attr, asker.wanted(&step.attr, m.want));
        }
        Reply::Walked(Walked { status, steps: List::of(&self.steps), target: Bytes16(target) }).put(out);
        Ok(())
    }

    fn read_contents(
        &mut self,
        view: &View<'_>,
        m: &Read,
        asker: Asker<'_>,
        room: usize,
        grant: &mut impl FnMut(&Attr, Want) -> CacheGrant,
        out: &mut Writer,
    ) -> Result<(), ReadError> {
        let attr = &readable(view, m.object, asker)?.attr;
        if attr.kind == ObjectKind::Directory {
            return Err(Status::EISDIR.into());
        }
        check_version(attr, m.version)?;
        let room = room.checked_sub(DATA_AROUND).filter(|room| *room > 0).ok_or(Status::EINVAL)?;
        let most = room.min(usize::from(u16::MAX)).min(usize::try_from(m.length).unwrap_or(usize::MAX));
        let end = attr.size.min(m.offset.saturating_add(most as u64));
        gather(view, m.object, m.offset, end, &mut self.bytes)?;
        let grant = grant(attr, asker.wanted(attr, m.want));
        Reply::Data(Data { attr: *attr, grant, offset: m.offset, data: Bytes16(&self.bytes) }).put(out);
        Ok(())
    }
}

/// Whether a page may be given of an object of which the reader has seen others at `version`; 0: it has seen none.
pub(super) fn check_version(attr: &Attr, version: u64) -> Result<(), Status> {
    //= wire-spec.md#11-5-caching-and-metadata
    //# A READ, READDIR, GETXATTR or LISTXATTR that names a version other than the current one MUST fail with VERSION_CHANGED.
    if version == 0 || version == attr.version { Ok(()) } else { Err(Status::VERSION_CHANGED) }
}

/// What a name in a directory names.
#[inline]
fn next<'v>(view: &'v View<'_>, dir: &Attr, name: &[u8], asker: Asker<'_>) -> Result<&'v ObjectRecord, ReadError> {
    check_name(name)?;
    if dir.kind != ObjectKind::Directory {
        return Err(Status::ENOTDIR.into());
    }
    let has = asker.rights(dir.realm);
    //= wire-spec.md#11-9-realms-and-rights
    //# A step of LOOKUP in a directory that a principal may pass through and not read MUST fail with EACCES, whether there is such a name
    //# or not, unless it names a directory in a realm in which the principal has a right.
    let absent = if has.has(Rights::READ) { Status::ENOENT } else { Status::EACCES };
    let entry = view.entry(dir.object, name)?.ok_or(absent)?;
    let record = entered(view, entry.object)?;
    let shown = has.has(Rights::READ) && record.attr.realm == dir.realm
        || record.attr.kind == ObjectKind::Directory && !asker.rights(record.attr.realm).is_empty();
    if shown { Ok(record) } else { Err(Status::EACCES.into()) }
}

/// Collects the bytes from `offset` to `end` of an object's contents.
fn gather(view: &View<'_>, object: ObjectId, offset: u64, end: u64, bytes: &mut Vec<u8>) -> Result<(), ReadError> {
    bytes.clear();
    if offset >= end {
        return Ok(());
    }
    let mut missing = Vec::new();
    let (first, last) = (block_of(offset), block_of(end - 1));
    for n in first..=last {
        let from = if n == first { within(offset) } else { 0 };
        let to = if n == last { within(end - 1) + 1 } else { BLOCK_LEN };
        match view.block(object, n) {
            Ok(block) => {
                let block = block.map_or(&[][..], |block| block);
                let there = block.get(from.min(block.len())..to.min(block.len())).unwrap_or_default();
                let full = bytes.len() + (to - from);
                bytes.extend_from_slice(there);
                bytes.resize(full, 0);
            }
            Err(ReadError::NotCached(queries)) => missing.extend(queries),
            Err(lack) => return Err(lack),
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(ReadError::NotCached(missing)) }
}

/// A LISTING reply without entries.
const LISTING_AROUND: usize = Reply::KIND_LEN + Listing::MIN_LEN;

/// Executes READDIR, as `Namespace::read` says.
pub(super) fn read_dir(
    view: &View<'_>,
    m: &ReadDir<'_>,
    asker: Asker<'_>,
    room: usize,
    grant: &mut impl FnMut(&Attr, Want) -> CacheGrant,
    out: &mut Writer,
) -> Result<(), ReadError> {
    let dir = directory(view, m.dir, asker)?.attr;
    check_version(&dir, m.version)?;
    let mut left = room.checked_sub(LISTING_AROUND).ok_or(Status::EINVAL)?;
    // An entry without its name.
    let around = Entry::MIN_LEN + if m.detail { Stated::LEN } else { 0 };
    // One more than can fit, to know whether there is more.
    let most = left / (around + 1) + 1;
    view.know_entries(m.dir, m.after.0, most)?;
    let mut page: Vec<(&[u8], EntryRecord)> = Vec::with_capacity(most);
    let mut end = true;
    //= wire-spec.md#11-5-caching-and-metadata
    //# A READDIR page MUST begin with the first name above the cookie, in byte order, whatever happened to the directory.
    for (name, entry) in view.entries(m.dir, m.after.0).take(most) {
        let Some(rest) = left.checked_sub(around + name.len()) else {
            end = false;
            break;
        };
        left = rest;
        page.push((name, entry));
    }
    if page.is_empty() && !end {
        return Err(Status::EINVAL.into());
    }
    if m.detail {
        know_objects(view, &page)?;
    }
    let dir_grant = grant(&dir, asker.wanted(&dir, m.want));
    let mut entries: Vec<Entry<'_>> = Vec::with_capacity(page.len());
    for (name, EntryRecord { object, kind }) in page {
        let attr = if m.detail { Some(entered(view, object)?.attr) } else { None };
        // Of a directory that begins a realm the name is its directory's; all else is that realm's.
        let detail = attr.filter(|attr| !asker.rights(attr.realm).is_empty()).map(|attr| {
            // Two names of one file on one page: its one grant stands at both.
            let same = entries.iter().filter(|_| attr.nlink > 1).find(|other| other.object == object);
            let given = same.and_then(|other| other.detail).map(|detail| detail.grant);
            Stated { attr, grant: given.unwrap_or_else(|| grant(&attr, asker.wanted(&attr, m.want))) }
        });
        entries.push(Entry { name: Bytes8(name), object, kind, detail });
    }
    Reply::Listing(Listing { dir, grant: dir_grant, end, entries: List::of(&entries) }).put(out);
    Ok(())
}

/// Makes sure that the objects of a page are in memory.
fn know_objects(view: &View<'_>, page: &[(&[u8], EntryRecord)]) -> Result<(), ReadError> {
    let mut missing = Vec::new();
    for (_, entry) in page {
        match entered(view, entry.object) {
            Ok(_) => {}
            Err(ReadError::NotCached(queries)) => missing.extend(queries),
            Err(lack) => return Err(lack),
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(ReadError::NotCached(missing)) }
}

/// Longest path in a row of a list, in bytes.
const PLACE_MAX: usize = 255;
/// What stands for the beginning of a path that does not fit, or that would take too many look-ups.
const CUT: &[u8] = b"...";

/// Most look-ups of a parent in one list: about two for each of the rows that fit a datagram.
const STEPS_MAX: usize = 64;

/// The paths of one list: what was found for one object serves the others.
#[derive(Debug)]
pub struct Places {
    /// Paths of the objects that were looked up; `None`: no name leads to it.
    paths: BTreeMap<ObjectId, Option<Vec<u8>>>,
    /// Look-ups that are left.
    steps: usize,
}

impl Places {
    /// Those of a new list: nothing is known yet.
    #[must_use]
    pub(crate) const fn new() -> Self {
        Self { paths: BTreeMap::new(), steps: STEPS_MAX }
    }
}

impl Namespace {
    /// A path of an object, at most `max` bytes (at least 4): its end, after "...", if it is longer or the list has cost enough.
    /// Empty: none is known.
    pub fn place(&self, view: &View<'_>, places: &mut Places, object: ObjectId, max: usize) -> Result<Vec<u8>, ReadError> {
        place(view, places, object, max)
    }

    /// The paths of what one list names; empty where it cannot be read. Who `gives_up` takes for unreadable what is not in memory.
    pub(crate) fn places_of(
        &self,
        view: &View<'_>,
        objects: impl Iterator<Item = ObjectId>,
        gives_up: bool,
    ) -> Result<Vec<Vec<u8>>, ReadError> {
        let (mut found, mut known, mut missing) = (Vec::new(), Places::new(), Vec::new());
        for object in objects {
            found.push(match self.place(view, &mut known, object, PLACE_MAX) {
                Ok(place) => place,
                Err(ReadError::NotCached(queries)) if !gives_up => {
                    missing.extend(queries);
                    Vec::new()
                }
                Err(_) => Vec::new(),
            });
        }
        if missing.is_empty() { Ok(found) } else { Err(ReadError::NotCached(missing)) }
    }
}

fn place(view: &View<'_>, places: &mut Places, object: ObjectId, max: usize) -> Result<Vec<u8>, ReadError> {
    if object.0 == ROOT {
        return Ok(b"/".to_vec());
    }
    // From the object up to the root, or to one whose path is known.
    let (mut names, mut at) = (Vec::new(), object);
    let mut path = loop {
        if at.0 == ROOT {
            break Some(Vec::new());
        }
        if let Some(known) = places.paths.get(&at) {
            break known.clone();
        }
        let Some(left) = places.steps.checked_sub(1) else { break Some(CUT.to_vec()) };
        places.steps = left;
        let Some((parent, name)) = looked_up(view, at)? else {
            places.paths.insert(at, None);
            break None;
        };
        names.push((at, name));
        at = parent;
    };
    // Each path is made once, so that a list costs its look-ups and its own length, however deep its objects lie.
    for (object, name) in names.into_iter().rev() {
        path = path.map(|above| joined(above, &name, max));
        places.paths.insert(object, path.clone());
    }
    Ok(path.unwrap_or_default())
}

/// The path of what has a name in a directory; its end, if it is longer than `max`.
fn joined(mut path: Vec<u8>, name: &[u8], max: usize) -> Vec<u8> {
    path.push(b'/');
    path.extend_from_slice(name);
    if let Some(over) = path.len().checked_sub(max + 1) {
        path.splice(..over + 1 + CUT.len(), CUT.iter().copied());
    }
    path
}

fn looked_up(view: &View<'_>, object: ObjectId) -> Result<Option<(ObjectId, Bytes)>, ReadError> {
    let Some(record) = view.object(object)? else { return Ok(None) };
    let named = view.entry(record.parent, &record.name)?.is_some_and(|entry| entry.object == object);
    Ok(named.then(|| (record.parent, record.name.clone())))
}
