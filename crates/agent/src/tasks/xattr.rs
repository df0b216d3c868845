//! GetXattr and ListXattr: extended attributes, always from the server, in pages of one version.
//!
//! Decides: what is asked next, and when reading begins again because the object changed. Place in the walk: after `resolve`. Implements
//! `wire-spec.md` sections 6.2 (GETXATTR, LISTXATTR) and 11.5. Invariant: what is told is of one version of the object, and of an object
//! to which the path still leads when it is told.
//! Leaves to others: changing them (`carry`). Nothing is cached: they are read seldom, and their bytes would crowd out contents.

use super::carry::check_attribute;
use super::request::Request;
use super::task::{Call, Desk, Flow, Stage, Task};
use crate::api::{Command, Output};
use crate::tasks::walk::NOT_AN_ANSWER;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::{XATTR_VALUE_MAX, XATTRS_MAX};
use cistern_wire::{ObjectId, Reply, Status, Xattr, XattrNames};

/// How often reading begins again because the object has changed.
const VERSIONS_MAX: u32 = 16;

/// What was read so far.
#[derive(Debug, Default)]
pub(super) struct Attributes {
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
        self.stage = Stage::Attributes(Attributes::default());
        self.next_of_xattr(desk)
    }

    fn next_of_xattr(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let (Some((object, _)), Stage::Attributes(so_far)) = (self.object(), &self.stage) else { return Flow::failed(NOT_AN_ANSWER) };
        let version = so_far.version;
        let request = match &self.command {
            Command::GetXattr { name, .. } => Request::GetXattr { object, name: name.clone(), offset: so_far.value.len(), version },
            _ => Request::ListXattr { object, after: so_far.names.last().cloned().unwrap_or_default(), version },
        };
        self.ask(desk, request);
        Flow::Wait
    }

    pub(super) fn heard_xattr(&mut self, desk: &mut Desk<'_, '_>, _call: &Call, reply: &Reply<'_>) -> Flow {
        let Stage::Attributes(so_far) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        let told = match reply {
            Reply::Xattr(page) => so_far.value_page(page),
            Reply::XattrNames(page) => so_far.names_page(page),
            //= wire-spec.md#11-5-caching-and-metadata
            //# A read that needs several pages MUST give its user pages of one version only.
            Reply::Failed(failed) if failed.status == Status::VERSION_CHANGED && so_far.versions < VERSIONS_MAX => {
                *so_far = Attributes { versions: so_far.versions + 1, ..Attributes::default() };
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

impl Attributes {
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
