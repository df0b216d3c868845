//! List, GetXattr, ListXattr, ListLocks and Admin: what comes in pages.
//!
//! Decides: what is asked next, how pages are put together, when reading begins again because the object changed, and when a directory is known
//! completely. Invariants: what is told of an object is of one version of it; a directory is cached as complete only if it was read wholly under a
//! lock that was not broken; a name that a server tells is a component of a path, or nothing is told, for users make local files of them.
//! Extended attributes are not cached: they are read seldom, and their bytes would crowd out contents (`wire-spec.md` 6.2, 11.5).

use super::request::Request;
use super::task::{Call, Desk, Flow, Stage, Task};
use super::upload::check_attribute;
use crate::api::{Command, Listed, LockInfo, OpError, Output, RealmInfo};
use crate::cache::{Body, Directory, View};
use crate::tasks::walk::NOT_AN_ANSWER;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::{MESSAGE_HEADER_LEN, XATTR_VALUE_MAX, XATTRS_MAX};
use cistern_wire::{
    Admin, Attr, Field as _, Form, Listing, LockRow, LockRows, ObjectId, ObjectKind, Realm, Reply, Status, Xattr, XattrNames, is_name,
};
use core::cmp::Ordering;

/// How often reading begins again because what is read changed between two pages, before the caller is told (VERSION_CHANGED).
const VERSIONS_MAX: u32 = 16;
/// Most names of a directory that a listing gives, so that a server that never comes to an end fills no memory; E2BIG beyond.
const ENTRIES_MAX: usize = 1 << 20;
/// Most rows of one listing: as many as a server has locks at the very most. More are pages without an end.
const ROWS_MAX: usize = 1 << 20;
/// Longest answer to an operator's line, in bytes: as long as a server's may be.
const LINE_ANSWER_MAX: usize = 4 << 20;
/// Bytes of a datagram besides an operator's line, which is given in sealed sessions alone.
const LINE_AROUND: usize = Form::Record.around() + MESSAGE_HEADER_LEN + Admin::MIN_LEN;

/// A directory being read.
#[derive(Debug)]
pub(super) struct DirPages {
    dir: ObjectId,
    detail: bool,
    /// How many versions were begun with.
    versions: u32,
    /// The directory as the first page told it; `None` until then.
    attr: Option<Attr>,
    entries: Vec<Listed>,
    /// Whether every page so far was installed under one unbroken lock.
    unbroken: bool,
}

impl Task {
    pub(super) fn list(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let &Command::List { detail, .. } = &self.command else { return Flow::failed(NOT_AN_ANSWER) };
        let Some((dir, kind)) = self.object() else { return Flow::failed(NOT_AN_ANSWER) };
        if kind.is_some_and(|kind| kind != ObjectKind::Directory) {
            return Flow::failed(Status::ENOTDIR);
        }
        if let Some(done) = from_cache(&mut self.view(desk), dir, detail) {
            return Flow::End(done);
        }
        self.stage = Stage::Listing(DirPages { dir, detail, versions: 0, attr: None, entries: Vec::new(), unbroken: true });
        self.next_entries(desk);
        Flow::Wait
    }

    /// Asks for the page after the last name seen.
    fn next_entries(&mut self, desk: &mut Desk<'_, '_>) {
        let Stage::Listing(pages) = &self.stage else { return };
        let request = Request::ReadDir {
            dir: pages.dir,
            after: pages.entries.last().map(|entry| entry.name.clone()).unwrap_or_default(),
            version: pages.attr.map_or(0, |attr| attr.version),
            detail: pages.detail,
        };
        self.ask(desk, request);
    }

    pub(super) fn heard_listing(&mut self, desk: &mut Desk<'_, '_>, call: &Call, reply: &Reply<'_>) -> Flow {
        match reply {
            Reply::Listing(page) => self.entries(desk, call, page),
            Reply::Failed(failed) if failed.status == Status::VERSION_CHANGED => self.list_again(desk),
            Reply::Failed(failed) if failed.status == Status::ESTALE => self.stale(),
            Reply::Failed(failed) => Flow::failed(failed.status),
            _ => Flow::failed(NOT_AN_ANSWER),
        }
    }

    fn entries(&mut self, desk: &mut Desk<'_, '_>, call: &Call, page: &Listing<'_>) -> Flow {
        let mut view = self.view(desk);
        let installed = view.install(&page.dir, page.grant, call.covered);
        let Stage::Listing(pages) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        let first = *pages.attr.get_or_insert(page.dir);
        //= wire-spec.md#11-5-caching-and-metadata
        //# A read that needs several pages MUST give its user pages of one version only.
        if first.version != page.dir.version {
            return self.list_again(desk);
        }
        pages.unbroken &= installed;
        for entry in page.entries {
            //= wire-spec.md#11-5-caching-and-metadata
            //# The agent MUST refuse a LISTING with a name that is not one component (section 6.2), or not above the name before it.
            if !is_name(entry.name.0) || pages.entries.last().is_some_and(|last| last.name[..] >= *entry.name.0) {
                return Flow::failed(NOT_AN_ANSWER);
            }
            //= wire-spec.md#11-5-caching-and-metadata
            //# The agent MUST bound the names that it takes of one directory.
            if pages.entries.len() >= ENTRIES_MAX {
                return Flow::failed(Status::E2BIG);
            }
            if let Some(detail) = &entry.detail {
                view.install(&detail.attr, detail.grant, None);
            }
            pages.entries.push(Listed {
                name: Bytes::copy_from_slice(entry.name.0),
                object: entry.object,
                kind: entry.kind,
                attr: entry.detail.map(|detail| detail.attr),
            });
        }
        if page.end {
            return self.list_done(desk);
        }
        if page.entries.is_empty() {
            return Flow::failed(NOT_AN_ANSWER);
        }
        self.next_entries(desk);
        Flow::Wait
    }

    fn list_done(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let Stage::Listing(pages) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        let Some(dir) = pages.attr else { return Flow::failed(NOT_AN_ANSWER) };
        let entries = core::mem::take(&mut pages.entries);
        //= wire-spec.md#11-5-caching-and-metadata
        //# The agent MUST NOT call a name absent from cache unless it read the directory whole under one generation or cached that very
        //# answer under it.
        if pages.unbroken {
            desk.ctx.cache.fill(dir.object, dir.version, |body| {
                *body = Body::Directory(Directory::complete(entries.iter().map(|e| (e.name.clone(), e.object, e.kind))));
            });
        }
        Flow::End(Ok(Output::Listing { dir, entries }))
    }

    /// The directory changed between two pages.
    fn list_again(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let Stage::Listing(pages) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        pages.versions += 1;
        if pages.versions >= VERSIONS_MAX {
            return Flow::failed(Status::VERSION_CHANGED);
        }
        pages.attr = None;
        pages.entries.clear();
        pages.unbroken = true;
        self.next_entries(desk);
        Flow::Wait
    }
}

/// The whole listing, if every part of it is cached. All parts are read in this one call, so they are of one instant (section 11.5).
fn from_cache(view: &mut View<'_>, dir: ObjectId, detail: bool) -> Option<Result<Output, OpError>> {
    let cached = view.get(dir)?;
    if cached.attr.kind != ObjectKind::Directory {
        return Some(Err(OpError::Status(Status::ENOTDIR)));
    }
    let attr = cached.attr;
    let Body::Directory(directory) = &cached.body else { return None };
    let mut entries: Vec<Listed> =
        directory.listing()?.map(|(name, object, kind)| Listed { name: name.clone(), object, kind, attr: None }).collect();
    if detail {
        for entry in &mut entries {
            entry.attr = Some(view.get(entry.object)?.attr);
        }
    }
    Some(Ok(Output::Listing { dir: attr, entries }))
}

/// What was read so far.
#[derive(Debug, Default)]
pub(super) struct XattrPages {
    /// The version that the pages have; 0: none came yet.
    version: u64,
    value: Vec<u8>,
    names: Vec<Bytes>,
    versions: u32,
}

impl Task {
    pub(super) fn read_xattr(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        if let Command::GetXattr { name, .. } = &self.command
            && let Err(status) = check_attribute(name, &Bytes::new())
        {
            return Flow::failed(status);
        }
        self.stage = Stage::XattrPages(XattrPages::default());
        self.next_of_xattr(desk)
    }

    fn next_of_xattr(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let (Some((object, _)), Stage::XattrPages(so_far)) = (self.object(), &self.stage) else { return Flow::failed(NOT_AN_ANSWER) };
        let version = so_far.version;
        let request = match &self.command {
            Command::GetXattr { name, .. } => Request::GetXattr { object, name: name.clone(), offset: so_far.value.len(), version },
            _ => Request::ListXattr { object, after: so_far.names.last().cloned().unwrap_or_default(), version },
        };
        self.ask(desk, request);
        Flow::Wait
    }

    pub(super) fn heard_xattr(&mut self, desk: &mut Desk<'_, '_>, _call: &Call, reply: &Reply<'_>) -> Flow {
        let Stage::XattrPages(so_far) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        let told = match reply {
            Reply::Xattr(page) => so_far.value_page(page),
            Reply::XattrNames(page) => so_far.names_page(page),
            //= wire-spec.md#11-5-caching-and-metadata
            //# A read that needs several pages MUST give its user pages of one version only.
            Reply::Failed(failed) if failed.status == Status::VERSION_CHANGED && so_far.versions < VERSIONS_MAX => {
                *so_far = XattrPages { versions: so_far.versions + 1, ..XattrPages::default() };
                Ok(None)
            }
            Reply::Failed(failed) => Err(failed.status),
            _ => Err(NOT_AN_ANSWER),
        };
        match told {
            Ok(None) => self.next_of_xattr(desk),
            Ok(Some(output)) => {
                let mut view = self.view(desk);
                self.told(&mut view, Ok(output))
            }
            Err(status) => {
                let mut view = self.view(desk);
                self.told(&mut view, Err(status))
            }
        }
    }
}

impl XattrPages {
    /// Takes a page of a value in; the whole, if this was the last.
    fn value_page(&mut self, page: &Xattr<'_>) -> Result<Option<Output>, Status> {
        let (total, here) = (usize::try_from(page.total).unwrap_or(usize::MAX), self.value.len());
        let fits = usize::try_from(page.offset) == Ok(here) && here + page.data.0.len() <= total && total <= XATTR_VALUE_MAX;
        if !fits || !self.is_of(page.version) || (page.data.0.is_empty() && here < total) {
            return Err(NOT_AN_ANSWER);
        }
        self.value.extend_from_slice(page.data.0);
        if self.value.len() < total {
            return Ok(None);
        }
        Ok(Some(Output::Xattr { object: page.object, version: page.version, value: core::mem::take(&mut self.value).into() }))
    }

    /// Takes a page of names in; all of them, if this was the last.
    fn names_page(&mut self, page: &XattrNames<'_>) -> Result<Option<Output>, Status> {
        let new: Vec<Bytes> = page.names.iter().map(|name| Bytes::copy_from_slice(name.0)).collect();
        let ascends = self.names.last().into_iter().chain(&new).is_sorted_by(|a, b| a < b);
        //= wire-spec.md#11-5-caching-and-metadata
        //# The agent MUST refuse XATTR_NAMES with a name that is empty, has a NUL, or is not above the name before it.
        let named = new.iter().all(|name| !name.is_empty() && !name.contains(&0));
        if !ascends || !named || !self.is_of(page.version) || (new.is_empty() && !page.end) || self.names.len() + new.len() > XATTRS_MAX {
            return Err(NOT_AN_ANSWER);
        }
        self.names.extend(new);
        if !page.end {
            return Ok(None);
        }
        Ok(Some(names_of(page.object, page.version, core::mem::take(&mut self.names))))
    }

    /// Whether a page is of the version of those before it.
    const fn is_of(&mut self, version: u64) -> bool {
        if self.version == 0 {
            self.version = version;
        }
        self.version == version
    }
}

const fn names_of(object: ObjectId, version: u64, names: Vec<Bytes>) -> Output {
    Output::XattrNames { object, version, names }
}

/// Rows of LIST_LOCKS as they come.
#[derive(Debug)]
pub(super) struct LockPages {
    object: ObjectId,
    rows: Vec<LockInfo>,
}

impl Task {
    pub(super) fn list_locks(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let object = self.object().map_or(ObjectId(0), |(object, _)| object);
        self.stage = Stage::LockPages(LockPages { object, rows: Vec::new() });
        self.ask(desk, Request::ListLocks { object, after_object: ObjectId(0), after_row: 0 });
        Flow::Wait
    }

    pub(super) fn heard_rows(&mut self, desk: &mut Desk<'_, '_>, reply: &Reply<'_>) -> Flow {
        let page = match reply {
            Reply::LockRows(page) => page,
            Reply::Failed(failed) => return Flow::failed(failed.status),
            _ => return Flow::failed(NOT_AN_ANSWER),
        };
        let Stage::LockPages(rows) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        rows.rows.extend(page.rows.iter().map(|row| info(&row)));
        if rows.rows.len() > ROWS_MAX {
            return Flow::failed(NOT_AN_ANSWER);
        }
        if page.end {
            return Flow::End(Ok(Output::Locks(core::mem::take(&mut rows.rows))));
        }
        match rows.after(page) {
            Some(request) => {
                self.ask(desk, request);
                Flow::Wait
            }
            None => Flow::failed(NOT_AN_ANSWER),
        }
    }
}

impl LockPages {
    /// The page after this one; `None` if this one was empty, for the next would be, too.
    fn after(&self, page: &LockRows<'_>) -> Option<Request> {
        let last = page.rows.iter().last()?.lock.object;
        let seen = self.rows.iter().rev().take_while(|row| row.object == last).count();
        Some(Request::ListLocks { object: self.object, after_object: last, after_row: u32::try_from(seen).unwrap_or(u32::MAX) })
    }
}

impl Task {
    pub(super) fn list_realms(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let &Command::ListRealms { realm } = &self.command else { return Flow::failed(NOT_AN_ANSWER) };
        self.stage = Stage::RealmPages(Vec::new());
        self.ask(desk, Request::ListRealms { realm: realm.unwrap_or_default(), after: Realm(0) });
        Flow::Wait
    }

    pub(super) fn heard_realms(&mut self, desk: &mut Desk<'_, '_>, reply: &Reply<'_>) -> Flow {
        let page = match reply {
            Reply::RealmRows(page) => page,
            Reply::Failed(failed) => return Flow::failed(failed.status),
            _ => return Flow::failed(NOT_AN_ANSWER),
        };
        let Stage::RealmPages(rows) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        for row in page.rows {
            // Each is above the one before, so pages come to an end.
            if rows.last().is_some_and(|last| last.realm >= row.realm) {
                return Flow::failed(NOT_AN_ANSWER);
            }
            let place = Bytes::copy_from_slice(row.place.0);
            let cistern_wire::RealmRow { realm, parent, root, objects, objects_max, bytes, bytes_max, .. } = row;
            rows.push(RealmInfo { realm, parent, root, place, objects, objects_max, bytes, bytes_max });
        }
        let last = rows.last().map(|row| row.realm);
        match (page.end, &self.command, last.filter(|_| !page.rows.is_empty())) {
            (true, ..) => Flow::End(Ok(Output::Realms(core::mem::take(rows)))),
            (false, Command::ListRealms { realm: None }, Some(after)) => {
                self.ask(desk, Request::ListRealms { realm: Realm(0), after });
                Flow::Wait
            }
            _ => Flow::failed(NOT_AN_ANSWER),
        }
    }
}

impl Task {
    pub(super) fn administer(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let Command::Admin { line } = &self.command else { return Flow::failed(NOT_AN_ANSWER) };
        if line.len() + LINE_AROUND > desk.office.datagram {
            return Flow::failed(Status::E2BIG);
        }
        let line = line.clone();
        self.stage = Stage::AnswerPages(Vec::new());
        self.ask(desk, Request::Admin { line, answer: 0, offset: 0 });
        Flow::Wait
    }

    pub(super) fn heard_line(&mut self, desk: &mut Desk<'_, '_>, reply: &Reply<'_>) -> Flow {
        let page = match reply {
            Reply::AdminAnswer(page) => page,
            Reply::Failed(failed) => return Flow::failed(failed.status),
            _ => return Flow::failed(NOT_AN_ANSWER),
        };
        let Stage::AnswerPages(text) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        let total = page.total as usize;
        if page.offset as usize != text.len() || total > LINE_ANSWER_MAX {
            return Flow::failed(NOT_AN_ANSWER);
        }
        text.extend_from_slice(page.text.0);
        // Each page has something, so they come to an end.
        match text.len().cmp(&total) {
            Ordering::Equal => Flow::End(Ok(Output::Line(core::mem::take(text).into()))),
            Ordering::Less if !page.text.0.is_empty() => {
                let offset = u32::try_from(text.len()).unwrap_or(u32::MAX);
                self.ask(desk, Request::Admin { line: Bytes::new(), answer: page.answer, offset });
                Flow::Wait
            }
            Ordering::Less | Ordering::Greater => Flow::failed(NOT_AN_ANSWER),
        }
    }
}

fn info(row: &LockRow<'_>) -> LockInfo {
    LockInfo {
        object: row.lock.object,
        place: Bytes::copy_from_slice(row.place.0),
        class: row.lock.class,
        state: row.state,
        mode: row.mode,
        generation: row.generation,
        label: Bytes::copy_from_slice(row.label.0),
        handle: row.handle,
        since_ms: row.since_ms,
        standing: row.standing,
        bound_ms: row.bound_ms,
    }
}
