//! List: a whole directory, from cache or in pages, all of one version.
//!
//! Decides: when a directory can be listed from cache, how its pages are put together, and when it is known completely.
//! Place in the walk: after `resolve`. Implements `wire-spec.md` sections 6.2 (READDIR) and 11.5. Invariants: all names returned are of one
//! version of the directory; it is cached as complete only if it was read wholly under a lock that was not broken.
//! A name that a server tells is a component of a path, or nothing is told: users make local files of them.
//! Leaves to others: paths (`walk`), what is kept (`cache`).

use super::request::Request;
use super::task::{Call, Desk, Flow, Stage, Task};
use crate::api::{Command, Listed, OpError, Output};
use crate::cache::{Body, Directory, View};
use crate::tasks::walk::NOT_AN_ANSWER;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{Attr, Listing, ObjectId, ObjectKind, Reply, Status, is_name};

/// How often listing begins again because the directory changed between two pages, before the caller is told (VERSION_CHANGED).
const VERSIONS_MAX: u32 = 16;

/// Most names of a directory that a listing gives, so that a server that never comes to an end fills no memory; E2BIG beyond.
const ENTRIES_MAX: usize = 1 << 20;

/// A directory being read.
#[derive(Debug)]
pub(super) struct Gathering {
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
        self.stage = Stage::Listing(Gathering { dir, detail, versions: 0, attr: None, entries: Vec::new(), unbroken: true });
        self.next_entries(desk);
        Flow::Wait
    }

    /// Asks for the page after the last name seen.
    fn next_entries(&mut self, desk: &mut Desk<'_, '_>) {
        let Stage::Listing(gathering) = &self.stage else { return };
        let request = Request::ReadDir {
            dir: gathering.dir,
            after: gathering.entries.last().map(|entry| entry.name.clone()).unwrap_or_default(),
            version: gathering.attr.map_or(0, |attr| attr.version),
            detail: gathering.detail,
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
        let Stage::Listing(gathering) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        let first = *gathering.attr.get_or_insert(page.dir);
        //= wire-spec.md#11-5-caching-and-metadata
        //# A read that needs several pages MUST give its user pages of one version only.
        if first.version != page.dir.version {
            return self.list_again(desk);
        }
        gathering.unbroken &= installed;
        for entry in page.entries {
            //= wire-spec.md#11-5-caching-and-metadata
            //# The agent MUST refuse a LISTING with a name that is not one component (section 6.2), or not above the name before it.
            if !is_name(entry.name.0) || gathering.entries.last().is_some_and(|last| last.name[..] >= *entry.name.0) {
                return Flow::failed(NOT_AN_ANSWER);
            }
            //= wire-spec.md#11-5-caching-and-metadata
            //# The agent MUST bound the names that it takes of one directory.
            if gathering.entries.len() >= ENTRIES_MAX {
                return Flow::failed(Status::E2BIG);
            }
            if let Some(detail) = &entry.detail {
                view.install(&detail.attr, detail.grant, None);
            }
            gathering.entries.push(Listed {
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
        let Stage::Listing(gathering) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        let Some(dir) = gathering.attr else { return Flow::failed(NOT_AN_ANSWER) };
        let entries = core::mem::take(&mut gathering.entries);
        //= wire-spec.md#11-5-caching-and-metadata
        //# The agent MUST NOT call a name absent from cache unless it read the directory whole under one generation or cached that very
        //# answer under it.
        if gathering.unbroken {
            desk.ctx.cache.fill(dir.object, dir.version, |body| {
                *body = Body::Directory(Directory::complete(entries.iter().map(|e| (e.name.clone(), e.object, e.kind))));
            });
        }
        Flow::End(Ok(Output::Listing { dir, entries }))
    }

    /// The directory changed between two pages.
    fn list_again(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let Stage::Listing(gathering) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        gathering.versions += 1;
        if gathering.versions >= VERSIONS_MAX {
            return Flow::failed(Status::VERSION_CHANGED);
        }
        gathering.attr = None;
        gathering.entries.clear();
        gathering.unbroken = true;
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
