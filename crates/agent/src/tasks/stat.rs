//! Stat, ReadLink, ServerStatus and Ping: one question and its answer.
//!
//! Decides: when attributes or a target can be told from cache, from the walk's own answer, or must be asked for; the two about the server are
//! never answered from cache, and ask for no lock. Invariant: attributes asked for after the walk count only if the walk still holds, so that
//! name and attributes are of one instant (`wire-spec.md` 6.2, 11.5).

use super::request::Request;
use super::resolve::{LINK_LENGTH, is_target};
use super::task::{Call, Desk, Flow, Stage, Task};
use crate::api::{Command, OpError, Output};
use crate::cache::{Body, View};
use crate::tasks::walk::{Found, NOT_AN_ANSWER};
use bytes::Bytes;
use cistern_wire::limits::ROOT;
use cistern_wire::{ObjectId, ObjectKind, Reply, Status, Want};

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

    pub(super) fn heard_server(&mut self, desk: &Desk<'_, '_>, reply: &Reply<'_>) -> Flow {
        match reply {
            Reply::ServerReport(report) => Flow::End(Ok(Output::Server(*report))),
            Reply::Stated(_) => Flow::End(Ok(Output::Pong { round_trip: desk.ctx.now.since(self.since) })),
            Reply::Failed(failed) => Flow::failed(failed.status),
            _ => Flow::failed(NOT_AN_ANSWER),
        }
    }
}
