//! Stat, ReadLink, ServerStatus, Ping and Read: one question and its answer, and contents in pages, all of one version.
//!
//! Decides when attributes, a target or contents can be told from cache, from the walk's own answer, or must be asked for; how many pages are
//! asked for at once, and when reading begins again because the file changed. The two about the server are never answered from cache, and ask
//! for no lock. Invariants: attributes asked for after the walk count only if the walk still holds, so that name and attributes are of one
//! instant; contents are cached only if a lock held at the end makes exactly their version current (`wire-spec.md` 6.2, 11.5).

use super::request::Request;
use super::resolve::{LINK_LENGTH, is_target};
use super::task::{Call, Desk, Flow, Stage, Task};
use crate::api::{Command, OpError, Output, ServerHeard};
use crate::cache::{Body, Cached, Contents, View};
use crate::tasks::walk::{Found, NOT_AN_ANSWER};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::{CONTENT_MAX, ROOT};
use cistern_wire::{Attr, Data, GroupMember, ObjectId, ObjectKind, Reply, Status, Want};
use core::time::Duration;

impl Task {
    /// The object that the command's first walk found.
    pub(super) fn object(&self) -> Option<(ObjectId, Option<ObjectKind>)> {
        self.object_at(0)
    }

    /// The object that the walk in this place found.
    pub(super) fn object_at(&self, nth: usize) -> Option<(ObjectId, Option<ObjectKind>)> {
        match self.found.get(nth) {
            Some(Some(Found::Object { object, kind, .. })) => Some((*object, *kind)),
            _ => None,
        }
    }

    pub(super) fn stat(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let Some(Found::Object { object, attr, .. }) = self.found[0] else { return Flow::failed(NOT_AN_ANSWER) };
        // The walk's last answer comes first: it is of the walk's own instant, what is cached is of now.
        if let Some(attr) = attr {
            return Flow::End(Ok(Output::Attr(attr)));
        }
        let mut view = self.view(desk);
        if let Some(attr) = view.get(object).map(|cached| cached.attr) {
            return if self.walk.is_current(&mut view) { Flow::End(Ok(Output::Attr(attr))) } else { Flow::Again };
        }
        self.stage = Stage::Asked;
        self.ask(desk, Request::GetAttr { object, want: Want::Shared });
        Flow::Wait
    }

    pub(super) fn heard_stat(&mut self, desk: &mut Desk<'_, '_>, call: &Call, reply: &Reply<'_>) -> Flow {
        let mut view = self.view(desk);
        let told = match reply {
            Reply::Stated(stated) => {
                view.install(&stated.attr, stated.grant, call.covered);
                Ok(Output::Attr(stated.attr))
            }
            Reply::Failed(failed) => Err(failed.status),
            _ => Err(NOT_AN_ANSWER),
        };
        self.told(&mut view, told)
    }

    pub(super) fn read_link(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let Some((object, kind)) = self.object() else { return Flow::failed(NOT_AN_ANSWER) };
        if kind.is_some_and(|kind| kind != ObjectKind::Symlink) {
            return Flow::failed(Status::EINVAL);
        }
        if let Some(Found::Object { attr: Some(attr), target: Some(target), .. }) = &self.found[0] {
            return Flow::End(Ok(Output::Data { attr: *attr, offset: 0, data: target.clone() }));
        }
        let mut view = self.view(desk);
        let cached = view.get(object).and_then(|cached| match &cached.body {
            Body::Link(target) => Some(Ok(Output::Data { attr: cached.attr, offset: 0, data: target.clone() })),
            _ if cached.attr.kind != ObjectKind::Symlink => Some(Err(OpError::Status(Status::EINVAL))),
            _ => None,
        });
        if let Some(result) = cached {
            return if self.walk.is_current(&mut view) { Flow::End(result) } else { Flow::Again };
        }
        self.stage = Stage::Asked;
        self.ask(desk, Request::Read { object, offset: 0, length: LINK_LENGTH, version: 0, want: Want::Shared });
        Flow::Wait
    }

    pub(super) fn heard_link(&mut self, desk: &mut Desk<'_, '_>, call: &Call, reply: &Reply<'_>) -> Flow {
        let mut view = self.view(desk);
        let told = match reply {
            Reply::Data(answer) if answer.attr.kind != ObjectKind::Symlink => Err(Status::EINVAL),
            Reply::Data(answer) if is_target(answer) => {
                let data = Bytes::copy_from_slice(answer.data.0);
                if view.install(&answer.attr, answer.grant, call.covered) {
                    let target = data.clone();
                    view.cache.fill(answer.attr.object, answer.attr.version, |body| *body = Body::Link(target));
                }
                Ok(Output::Data { attr: answer.attr, offset: 0, data })
            }
            Reply::Failed(failed) => Err(failed.status),
            _ => Err(NOT_AN_ANSWER),
        };
        self.told(&mut view, told)
    }

    /// The end of a question about one object, if the way to it is still as it was walked (section 11.5).
    pub(super) fn told(&mut self, view: &mut View<'_>, told: Result<Output, Status>) -> Flow {
        match told {
            _ if !self.walk.unchanged(view) => Flow::Again,
            Ok(output) => Flow::End(Ok(output)),
            Err(Status::ESTALE) => self.stale(),
            Err(status) => Flow::failed(status),
        }
    }
}

impl Task {
    pub(super) fn ask_server(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        self.stage = Stage::Asked;
        let request = match self.command {
            // The root is always there, and reading its attributes costs the server next to nothing.
            Command::Ping => Request::GetAttr { object: ObjectId(ROOT), want: Want::Nothing },
            _ => Request::ServerStatus,
        };
        self.ask(desk, request);
        Flow::Wait
    }

    /// Whether it was answered all the same, although the root may not be read.
    const fn is_ping_of_what_is_hidden(&self, status: Status) -> bool {
        matches!((&self.command, status), (Command::Ping, Status::EACCES | Status::ESTALE))
    }

    pub(super) fn heard_server(&mut self, desk: &Desk<'_, '_>, reply: &Reply<'_>) -> Flow {
        match reply {
            Reply::ServerReport(report) => {
                let member = |member: GroupMember<'_>| {
                    let heard = (member.heard_ms != GroupMember::NOT_HEARD).then(|| Duration::from_millis(member.heard_ms.into()));
                    ServerHeard { name: member.name.0.to_vec(), heard }
                };
                let group = report.members.iter().map(member).collect();
                Flow::End(Ok(Output::Server(Box::new(report.of_the_server()), group)))
            }
            Reply::Failed(failed) if !self.is_ping_of_what_is_hidden(failed.status) => Flow::failed(failed.status),
            Reply::Stated(_) | Reply::Failed(_) => Flow::End(Ok(Output::Pong { round_trip: desk.ctx.now.since(self.since) })),
            _ => Flow::failed(NOT_AN_ANSWER),
        }
    }
}

/// Pages asked for at once: half of the default window W, so that one long read leaves slots to others.
const PAGES_AT_ONCE: usize = 32;
/// How often reading begins again because the file changed between two pages, before the caller is told (VERSION_CHANGED).
const VERSIONS_MAX: u32 = 16;

/// Contents being read.
#[derive(Debug)]
pub(super) struct Reading {
    object: ObjectId,
    /// Where reading begins.
    offset: u64,
    /// How many versions were begun with.
    versions: u32,
    /// What the first page told; `None` until then.
    whole: Option<Whole>,
}

/// A reading whose size and version are known.
#[derive(Debug)]
struct Whole {
    attr: Attr,
    /// The bytes, zero where a page has not come yet.
    bytes: Vec<u8>,
    /// What was not asked for yet begins here, in bytes after the reading's offset.
    next: usize,
    /// Bytes that one page carries.
    page: usize,
}

impl Task {
    pub(super) fn read(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let &Command::Read { offset, length, .. } = &self.command else { return Flow::failed(NOT_AN_ANSWER) };
        let Some((object, kind)) = self.object() else { return Flow::failed(NOT_AN_ANSWER) };
        if let Some(status) = kind.and_then(unreadable) {
            return Flow::failed(status);
        }
        if let Some(done) = self.view(desk).get(object).and_then(|cached| from_cache(cached, offset, length)) {
            return Flow::End(done);
        }
        self.stage = Stage::Reading(Reading { object, offset, versions: 0, whole: None });
        self.first_page(desk, object, offset, length);
        Flow::Wait
    }

    /// Asks for the first page, which tells version and size.
    fn first_page(&mut self, desk: &mut Desk<'_, '_>, object: ObjectId, offset: u64, length: Option<u64>) {
        let length = length.unwrap_or(u64::MAX).min(CONTENT_MAX as u64);
        self.ask(desk, Request::Read { object, offset, length: clamp(length), version: 0, want: Want::Shared });
    }

    pub(super) fn heard_reading(&mut self, desk: &mut Desk<'_, '_>, call: &Call, reply: &Reply<'_>) -> Flow {
        let Request::Read { offset, length, .. } = call.request else { return Flow::failed(NOT_AN_ANSWER) };
        match reply {
            Reply::Data(data) if data.offset == offset && data.data.0.len() <= length as usize => {
                self.view(desk).install(&data.attr, data.grant, call.covered);
                self.page(desk, data)
            }
            Reply::Failed(failed) if failed.status == Status::VERSION_CHANGED => self.read_again(desk),
            Reply::Failed(failed) if failed.status == Status::ESTALE => self.stale(),
            Reply::Failed(failed) => Flow::failed(failed.status),
            _ => Flow::failed(NOT_AN_ANSWER),
        }
    }

    fn page(&mut self, desk: &mut Desk<'_, '_>, data: &Data<'_>) -> Flow {
        let Command::Read { length: wanted, .. } = self.command else { return Flow::failed(NOT_AN_ANSWER) };
        let Stage::Reading(reading) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        let whole = match &mut reading.whole {
            //= wire-spec.md#11-5-caching-and-metadata
            //# A read that needs several pages MUST give its user pages of one version only.
            Some(whole) if whole.attr.version != data.attr.version => return self.read_again(desk),
            Some(whole) => whole,
            None => match Whole::of(reading.offset, wanted, data) {
                Ok(whole) => reading.whole.insert(whole),
                Err(status) => return Flow::failed(status),
            },
        };
        // The page lies within what was asked for, which lies within the whole.
        let at = usize::try_from(data.offset - reading.offset).unwrap_or(usize::MAX);
        let Some(place) = whole.bytes.get_mut(at..).and_then(|rest| rest.get_mut(..data.data.0.len())) else {
            return Flow::failed(NOT_AN_ANSWER);
        };
        place.copy_from_slice(data.data.0);
        let missing = reading.missing(data);
        self.next_pages(desk, missing)
    }

    /// Asks for more pages, or ends: first what a page that came was short of, then what was not asked for yet.
    fn next_pages(&mut self, desk: &mut Desk<'_, '_>, missing: Result<Option<Request>, Status>) -> Flow {
        match missing {
            Err(status) => return Flow::failed(status),
            Ok(Some(rest)) => self.ask(desk, rest),
            Ok(None) => {}
        }
        while self.calls_out() < PAGES_AT_ONCE {
            let Stage::Reading(reading) = &mut self.stage else { break };
            let Some(request) = reading.next() else { break };
            self.ask(desk, request);
        }
        if self.is_waiting() {
            return Flow::Wait;
        }
        self.read_done(desk)
    }

    fn read_done(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let Stage::Reading(Reading { object, offset, whole: Some(whole), .. }) = &mut self.stage else {
            return Flow::failed(NOT_AN_ANSWER);
        };
        let (object, offset, attr) = (*object, *offset, whole.attr);
        let data = Bytes::from(core::mem::take(&mut whole.bytes));
        // The version decides: state of this version is there only under a lock that was not broken since it was installed.
        let kept = data.clone();
        desk.ctx.cache.fill(object, attr.version, |body| match body {
            Body::File(contents) => contents.learn(offset, kept),
            _ => {
                let mut contents = Contents::default();
                contents.learn(offset, kept);
                *body = Body::File(contents);
            }
        });
        Flow::End(Ok(Output::Data { attr, offset, data }))
    }

    /// The file changed between two pages.
    fn read_again(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let Command::Read { length, .. } = self.command else { return Flow::failed(NOT_AN_ANSWER) };
        self.drop_calls(desk);
        let Stage::Reading(reading) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        reading.versions += 1;
        reading.whole = None;
        if reading.versions >= VERSIONS_MAX {
            return Flow::failed(Status::VERSION_CHANGED);
        }
        let (object, offset) = (reading.object, reading.offset);
        self.first_page(desk, object, offset, length);
        Flow::Wait
    }
}

impl Reading {
    /// What this page was short of, although the file goes on.
    fn missing(&self, data: &Data<'_>) -> Result<Option<Request>, Status> {
        let Some(whole) = &self.whole else { return Ok(None) };
        let end = data.offset + data.data.0.len() as u64;
        // The first page sets the size of pages, so only later ones can be short of what they were asked for.
        let page_end = self.offset + (whole.page_of(data.offset - self.offset) as u64);
        if end >= page_end {
            return Ok(None);
        }
        if data.data.0.is_empty() {
            // A page without a byte, within the file: asking again would never end.
            return Err(NOT_AN_ANSWER);
        }
        Ok(Some(self.request(whole, end, page_end - end)))
    }

    /// The next page that was not asked for yet.
    fn next(&mut self) -> Option<Request> {
        let whole = self.whole.as_mut()?;
        let length = whole.page.min(whole.bytes.len() - whole.next);
        if length == 0 {
            return None;
        }
        let offset = self.offset + whole.next as u64;
        whole.next += length;
        let whole = self.whole.as_ref()?;
        Some(self.request(whole, offset, length as u64))
    }

    fn request(&self, whole: &Whole, offset: u64, length: u64) -> Request {
        // The first page brought the lock, if there is one to be had: more of the same would only cost generations.
        Request::Read { object: self.object, offset, length: clamp(length), version: whole.attr.version, want: Want::Nothing }
    }
}

impl Whole {
    /// What the first page tells of the whole.
    fn of(offset: u64, wanted: Option<u64>, first: &Data<'_>) -> Result<Self, Status> {
        if let Some(status) = unreadable(first.attr.kind) {
            return Err(status);
        }
        if first.attr.size > CONTENT_MAX as u64 {
            return Err(Status::EFBIG);
        }
        let length = span(first.attr.size, offset, wanted);
        let page = first.data.0.len();
        if page == 0 && length > 0 {
            return Err(NOT_AN_ANSWER);
        }
        let page = page.min(length);
        Ok(Self { attr: first.attr, bytes: alloc::vec![0; length], next: page, page })
    }

    /// Where the page that has this byte ends, in bytes after the reading's offset.
    fn page_of(&self, at: u64) -> usize {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let page = self.page.max(1);
        (at / page).saturating_add(1).saturating_mul(page).min(self.bytes.len())
    }
}

/// How many bytes there are to read in a file of `size`, which is at most 1 MiB.
fn span(size: u64, offset: u64, wanted: Option<u64>) -> usize {
    let left = size.saturating_sub(offset).min(CONTENT_MAX as u64);
    usize::try_from(wanted.map_or(left, |wanted| wanted.min(left))).unwrap_or(0)
}

fn clamp(length: u64) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Why an object of this kind has no contents to read.
const fn unreadable(kind: ObjectKind) -> Option<Status> {
    match kind {
        ObjectKind::File => None,
        ObjectKind::Directory => Some(Status::EISDIR),
        ObjectKind::Symlink => Some(Status::EINVAL),
    }
}

/// What a reading of a file gives; `None`: not all that it needs is cached.
pub(super) fn from_cache(cached: &Cached, offset: u64, length: Option<u64>) -> Option<Result<Output, OpError>> {
    if let Some(status) = unreadable(cached.attr.kind) {
        return Some(Err(OpError::Status(status)));
    }
    let length = span(cached.attr.size, offset, length);
    let data = match &cached.body {
        Body::File(contents) => contents.read(offset, length)?,
        _ if length == 0 => Bytes::new(),
        _ => return None,
    };
    Some(Ok(Output::Data { attr: cached.attr, offset, data }))
}
