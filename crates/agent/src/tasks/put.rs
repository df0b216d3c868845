//! Write and Put: contents, from the message itself where they fit, otherwise staged in pieces and written once, whole.
//!
//! Decides: when contents are staged, how many pieces are on their way, and when staging begins again.
//! Place in the walk: after `resolve`. Implements `wire-spec.md` sections 6.2 (STAGE, WRITE) and 11.5. Invariant: the WRITE that names a
//! stage is sent only after every piece was acknowledged, for requests have no order among them (section 11.2).
//! Leaves to others: suspension and sessions that end (`task`), the cache (`effects`).

use super::change::{checked, is_overtaken};
use super::effects;
use super::request::{Mutation, Request};
use super::task::{Call, Desk, Flow, Stage, Task};
use crate::api::{Command, Output};
use crate::tasks::walk::NOT_AN_ANSWER;
use bytes::Bytes;
use cistern_wire::limits::{CONTENT_MAX, DATAGRAM_DEFAULT, DATAGRAM_MIN, HEADER_LEN, MESSAGE_HEADER_LEN, TAG_LEN};
use cistern_wire::{ObjectId, ObjectKind, Reply, Status};

/// Pieces on their way at once: half of the default window W, so that one large file leaves slots to others.
pub(super) const PIECES_AT_ONCE: usize = 32;
/// How often contents are staged before the caller is told that the server does not keep them (NOT_STAGED).
pub(super) const STAGINGS_MAX: u32 = 4;
/// What a datagram needs beside the body of its one message.
const ENVELOPE: usize = HEADER_LEN + MESSAGE_HEADER_LEN + TAG_LEN;
/// STAGE without its data: ask 12, stage 8, total 4, offset 4, length 2.
pub(super) const STAGE_FIELDS: usize = 30;
/// WRITE without its data and what it expects: ask 12, object 8, offset 8, truncate 1, stage 8, length 2, terms 21 and one lock of 16.
const WRITE_FIELDS: usize = 76;

/// Room for the fields of one request. Whatever datagrams the session allows, a single request stays within what every IPv6 path
/// carries, for a request cannot be cut in two when large datagrams turn out to be lost (section 3.7).
pub(super) fn room(desk: &Desk<'_, '_>) -> usize {
    desk.office.datagram.clamp(DATAGRAM_MIN, DATAGRAM_DEFAULT) - ENVELOPE
}

/// Contents being written.
#[derive(Debug)]
pub(super) struct Putting {
    /// Where they go; `None` while the file is being made.
    object: Option<ObjectId>,
    offset: u64,
    truncate: bool,
    data: Bytes,
    /// The stage in use; 0: none.
    stage: u64,
    /// How many bytes have been sent to it.
    sent: usize,
    stagings: u32,
}

impl Task {
    pub(super) fn put(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let (offset, truncate, data) = match &self.command {
            Command::Write { offset, data, truncate, .. } => (*offset, *truncate, data.clone()),
            Command::Put { data, .. } => (0, true, data.clone()),
            _ => return Flow::failed(NOT_AN_ANSWER),
        };
        if offset.saturating_add(data.len() as u64) > CONTENT_MAX as u64 {
            return Flow::failed(Status::EFBIG);
        }
        let object = self.object();
        match object {
            Some((_, Some(ObjectKind::Directory))) => return Flow::failed(Status::EISDIR),
            Some((_, Some(ObjectKind::Symlink))) => return Flow::failed(Status::EINVAL),
            _ => {}
        }
        let object = object.map(|(object, _)| object);
        self.stage = Stage::Putting(Putting { object, offset, truncate, data, stage: 0, sent: 0, stagings: 0 });
        if object.is_some() { self.write(desk) } else { self.make_file(desk) }
    }

    fn make_file(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let Command::Put { owner, .. } = self.command else { return Flow::failed(NOT_AN_ANSWER) };
        let made = self.name(0, |_| Status::EISDIR).and_then(|name| Ok((name, checked(owner)?)));
        match made {
            Ok(((dir, name), owner)) => {
                self.ask_change(desk, Mutation::Create { dir, name, exclusive: false, ephemeral: false, owner });
                Flow::Wait
            }
            Err(status) => Flow::failed(status),
        }
    }

    /// Writes from the message itself if the contents fit it, otherwise begins to stage them.
    fn write(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let room = room(desk).saturating_sub(self.expect_len());
        let Stage::Putting(putting) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        //= wire-spec.md#11-5-caching-and-metadata
        //# Contents and values of several datagrams MUST be staged, and take effect whole by one mutation.
        putting.stagings += 1;
        if putting.stagings > STAGINGS_MAX {
            return Flow::failed(Status::NOT_STAGED);
        }
        putting.stage = 0;
        if putting.data.len() <= room - WRITE_FIELDS {
            return self.finish(desk);
        }
        desk.office.stages += 1;
        putting.stage = desk.office.stages;
        putting.sent = 0;
        let (first, bytes) = (putting.stage, putting.data.len());
        if !self.enter_staging(desk, first, 1, bytes) {
            return Flow::Wait;
        }
        self.next_pieces(desk)
    }

    pub(super) fn next_pieces(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let piece = room(desk) - STAGE_FIELDS;
        while self.calls_out() < PIECES_AT_ONCE {
            let Stage::Putting(putting) = &mut self.stage else { break };
            let length = piece.min(putting.data.len() - putting.sent);
            if length == 0 {
                break;
            }
            let request = Request::Stage { stage: putting.stage, data: putting.data.clone(), offset: putting.sent, length };
            putting.sent += length;
            self.ask(desk, request);
        }
        if self.is_waiting() {
            return Flow::Wait;
        }
        self.finish(desk)
    }

    /// Everything is there: writes it.
    fn finish(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let Stage::Putting(putting) = &self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        let Some(object) = putting.object else { return Flow::failed(NOT_AN_ANSWER) };
        let change = Mutation::Write {
            object,
            offset: putting.offset,
            truncate: putting.truncate,
            stage: putting.stage,
            data: putting.data.clone(),
        };
        self.ask_change(desk, change);
        Flow::Wait
    }

    pub(super) fn heard_putting(&mut self, desk: &mut Desk<'_, '_>, call: &Call, reply: &Reply<'_>) -> Flow {
        let effects = match (&call.request, reply) {
            (Request::Stage { .. }, Reply::Done(_)) => return self.next_pieces(desk),
            (Request::Change { .. }, Reply::Changed(changed)) => changed.effects,
            (Request::Change { .. }, Reply::Failed(failed)) if failed.status == Status::NOT_STAGED => return self.write(desk),
            (Request::Change { change, .. }, Reply::Failed(failed)) if is_overtaken(change, failed.status) => return Flow::Again,
            (_, Reply::Failed(failed)) if failed.status == Status::ESTALE => return self.stale(),
            (_, Reply::Failed(failed)) => return Flow::failed(failed.status),
            _ => return Flow::failed(NOT_AN_ANSWER),
        };
        let Request::Change { change, .. } = &call.request else { return Flow::failed(NOT_AN_ANSWER) };
        match (change, effects::subject(change, effects)) {
            (Mutation::Write { .. }, Some(attr)) => Flow::End(Ok(Output::Attr(attr))),
            (Mutation::Create { .. }, Some(attr)) => self.made(desk, attr.object),
            _ => Flow::failed(NOT_AN_ANSWER),
        }
    }

    /// The file exists now.
    fn made(&mut self, desk: &mut Desk<'_, '_>, object: ObjectId) -> Flow {
        let Stage::Putting(putting) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        putting.object = Some(object);
        self.write(desk)
    }
}
