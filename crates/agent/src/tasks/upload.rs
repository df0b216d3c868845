//! Write, Put, SetXattr, RemoveXattr and Batch: mutations that may bring more than one message carries.
//!
//! Decides what of it is staged, how many pieces are on their way, when staging begins again, and which commands may stage: one whose
//! stages have room, all of them, beside those of the others, in order of arrival. Invariants: the mutation is sent only after every piece of
//! every stage was acknowledged, for requests have no order among them; whoever has begun has room for all that it stages, so that two
//! commands never each hold stages that the other one waits for; what counts as free is ended at the server, or about to be
//! (`wire-spec.md` sections 6.2, 11.2 and 11.5). A server whose bounds are lower, or whose stages are taken by others, answers BUSY, and is
//! asked again.

use super::change::checked;
use super::request::{Mutation, Request};
use super::task::{Call, Desk, Flow, Stage, Task};
use crate::api::{Command, OpError, Output};
use crate::call::{Answer, Outbound, TaskId};
use crate::tasks::walk::NOT_AN_ANSWER;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::{
    CONTENT_MAX, DATAGRAM_DEFAULT, DATAGRAM_MIN, HEADER_LEN, MESSAGE_HEADER_LEN, TAG_LEN, XATTR_NAME_MAX, XATTR_VALUE_MAX,
};
use cistern_wire::{BatchFailed, Failed, ObjectId, ObjectKind, Reply, Status};

/// Pieces on their way at once: half of the default window W, so that one large file leaves slots to others.
const PIECES_AT_ONCE: usize = 32;
/// How often contents are staged before the caller is told that the server does not keep them (NOT_STAGED).
const STAGINGS_MAX: u32 = 4;
/// What a datagram needs beside the body of its one message.
const ENVELOPE: usize = HEADER_LEN + MESSAGE_HEADER_LEN + TAG_LEN;
/// STAGE without its data: ask 12, stage 8, total 4, offset 4, length 2.
const STAGE_FIELDS: usize = 30;

/// Room for the fields of one request. Whatever datagrams the session allows, a single request stays within what every IPv6 path
/// carries, for a request cannot be cut in two when large datagrams turn out to be lost (section 3.7).
fn room(desk: &Desk<'_, '_>) -> usize {
    desk.office.datagram.clamp(DATAGRAM_MIN, DATAGRAM_DEFAULT) - ENVELOPE
}

/// A mutation and what is staged for it.
#[derive(Debug)]
pub(super) struct Upload {
    change: Mutation,
    /// What is staged, each under its number.
    staged: Vec<(u64, Bytes)>,
    /// Which of these is being sent, and how many bytes of it have been.
    at: usize,
    sent: usize,
    stagings: u32,
}

impl Task {
    /// Writes contents; of Put, makes the file before if there is none.
    pub(super) fn put(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let object = self.object();
        let change = match to_write(&self.command, object.map_or(ObjectId(0), |(object, _)| object)) {
            Ok(change) => change,
            Err(status) => return Flow::failed(status),
        };
        match object {
            Some((_, Some(ObjectKind::Directory))) => Flow::failed(Status::EISDIR),
            Some((_, Some(ObjectKind::Symlink))) => Flow::failed(Status::EINVAL),
            Some(_) => self.upload(desk, change),
            None => self.make_file(desk),
        }
    }

    fn make_file(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let Command::Put { owner, .. } = self.command else { return Flow::failed(NOT_AN_ANSWER) };
        match self.name(0, |_| Status::EISDIR).and_then(|name| Ok((name, checked(owner)?))) {
            Ok(((dir, name), owner)) => {
                self.stage = Stage::Making;
                self.ask_change(desk, Mutation::Create { dir, name, exclusive: false, ephemeral: false, owner });
                Flow::Wait
            }
            Err(status) => Flow::failed(status),
        }
    }

    pub(super) fn heard_making(&mut self, desk: &mut Desk<'_, '_>, call: &Call, reply: &Reply<'_>) -> Flow {
        match self.heard_change(desk, call, reply) {
            Flow::End(Ok(Output::Attr(attr))) => match to_write(&self.command, attr.object) {
                Ok(change) => self.upload(desk, change),
                Err(status) => Flow::failed(status),
            },
            flow => flow,
        }
    }

    pub(super) fn change_xattr(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let Some((object, _)) = self.object() else { return Flow::failed(NOT_AN_ANSWER) };
        match to_xattr(&self.command, object) {
            Ok(change) => self.upload(desk, change),
            Err(status) => Flow::failed(status),
        }
    }

    pub(super) fn batch(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let Command::Batch { items } = &self.command else { return Flow::failed(NOT_AN_ANSWER) };
        match self.to_batch(items) {
            Ok(items) => self.upload(desk, Mutation::Batch { items }),
            Err((item, status)) => Flow::End(Err(OpError::Item { item, status })),
        }
    }

    fn upload(&mut self, desk: &mut Desk<'_, '_>, change: Mutation) -> Flow {
        self.stage = Stage::Uploading(Upload { change, staged: Vec::new(), at: 0, sent: 0, stagings: 0 });
        self.stage_largest(desk)
    }

    /// Stages the largest of what the mutation brings until the rest of it fits a message.
    fn stage_largest(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let room = room(desk).saturating_sub(self.expect_len());
        let Stage::Uploading(upload) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        upload.stagings += 1;
        if upload.stagings > STAGINGS_MAX {
            return Flow::failed(Status::NOT_STAGED);
        }
        (upload.at, upload.sent) = (0, 0);
        if !upload.staged.is_empty() {
            upload.staged.clear();
            upload.change.unstage();
        }
        //= wire-spec.md#11-5-caching-and-metadata
        //# Contents and values of several datagrams MUST be staged, and take effect whole by one mutation.
        while upload.change.len_most(desk.ctx.cache) > room {
            desk.office.stages += 1;
            match upload.change.stage_largest(desk.office.stages) {
                Some(data) if upload.staged.len() < STAGES_MAX => upload.staged.push((desk.office.stages, data)),
                _ => return Flow::failed(Status::E2BIG),
            }
        }
        let bytes = upload.staged.iter().map(|(_, data)| data.len()).sum::<usize>();
        if bytes > STAGED_MAX {
            return Flow::failed(Status::E2BIG);
        }
        let first = upload.staged.first().map_or(0, |staged| staged.0);
        let stages = upload.staged.len();
        if !self.enter_staging(desk, first, stages, bytes) {
            return Flow::Wait;
        }
        self.next_pieces(desk)
    }

    pub(super) fn next_pieces(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let piece = room(desk) - STAGE_FIELDS;
        while self.calls_out() < PIECES_AT_ONCE {
            let Stage::Uploading(upload) = &mut self.stage else { break };
            let Some((stage, data)) = upload.staged.get(upload.at) else { break };
            let length = piece.min(data.len() - upload.sent);
            let request = Request::Stage { stage: *stage, data: data.clone(), offset: upload.sent, length };
            upload.sent += length;
            if upload.sent == data.len() {
                (upload.at, upload.sent) = (upload.at + 1, 0);
            }
            self.ask(desk, request);
        }
        if self.is_waiting() {
            return Flow::Wait;
        }
        let Stage::Uploading(upload) = &self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        let change = upload.change.clone();
        self.ask_change(desk, change);
        Flow::Wait
    }

    pub(super) fn heard_uploading(&mut self, desk: &mut Desk<'_, '_>, call: &Call, reply: &Reply<'_>) -> Flow {
        match (&call.request, reply) {
            (Request::Stage { .. }, Reply::Done(_)) => self.next_pieces(desk),
            (
                Request::Change { .. },
                Reply::Failed(Failed { status: Status::NOT_STAGED, .. })
                | Reply::BatchFailed(BatchFailed { status: Status::NOT_STAGED, .. }),
            ) => self.stage_largest(desk),
            (Request::Change { change: Mutation::Batch { items }, .. }, Reply::Batched(done)) if done.items.len() == items.len() => {
                Flow::End(Ok(Output::Batched(done.items.iter().collect())))
            }
            (Request::Change { change: Mutation::Batch { .. }, .. }, Reply::BatchFailed(BatchFailed { status, item })) => match *status {
                Status::ESTALE if self.may_walk_again() => self.stale(),
                status => Flow::End(Err(OpError::Item { item: *item, status })),
            },
            (Request::Change { .. }, _) => self.heard_change(desk, call, reply),
            (_, Reply::Failed(failed)) if failed.status == Status::ESTALE => self.stale(),
            (_, Reply::Failed(failed)) => Flow::failed(failed.status),
            _ => Flow::failed(NOT_AN_ANSWER),
        }
    }
}

/// The contents that a command brings, into this file.
pub(super) fn to_write(command: &Command, object: ObjectId) -> Result<Mutation, Status> {
    let (offset, truncate, data) = match command {
        Command::Write { offset, truncate, data, .. } => (*offset, *truncate, data),
        Command::Put { data, .. } => (0, true, data),
        _ => return Err(NOT_AN_ANSWER),
    };
    if offset.saturating_add(data.len() as u64) > CONTENT_MAX as u64 {
        return Err(Status::EFBIG);
    }
    Ok(Mutation::Write { object, offset, truncate, stage: 0, data: data.clone() })
}

/// What a command does to the extended attributes of this object.
pub(super) fn to_xattr(command: &Command, object: ObjectId) -> Result<Mutation, Status> {
    match command {
        Command::SetXattr { name, value, rule, .. } => {
            check_attribute(name, value)?;
            Ok(Mutation::SetXattr { object, name: name.clone(), rule: *rule, stage: 0, value: value.clone() })
        }
        Command::RemoveXattr { name, .. } => {
            check_attribute(name, &Bytes::new())?;
            Ok(Mutation::RemoveXattr { object, name: name.clone() })
        }
        _ => Err(NOT_AN_ANSWER),
    }
}

/// Whether there can be an attribute of this name and value: as the server would say, but without asking.
pub(super) fn check_attribute(name: &Bytes, value: &Bytes) -> Result<(), Status> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(Status::ERANGE);
    }
    if name.contains(&0) {
        return Err(Status::EINVAL);
    }
    if value.len() > XATTR_VALUE_MAX { Err(Status::E2BIG) } else { Ok(()) }
}

/// Most stages of one session, as a server bounds them by default.
pub(super) const STAGES_MAX: usize = 8;
/// Most bytes staged by one session, as a server bounds them by default.
pub(super) const STAGED_MAX: usize = 4 << 20;

/// Whose the requests are that end stages: nobody waits for their answers.
const NOBODY: TaskId = TaskId(0);

/// What a command stages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Whose it is.
    pub(super) task: TaskId,
    /// The number of its first stage; the others follow it.
    pub(super) first: u64,
    /// How many stages they are.
    pub(super) stages: usize,
    /// Bytes of all of them.
    pub(super) bytes: usize,
}

/// The commands that stage something.
#[derive(Debug, Default)]
pub(super) struct Staging {
    /// Each with whether the session goes on in which it was begun.
    begun: Vec<(Load, bool)>,
    waiting: VecDeque<Load>,
}

impl Staging {
    /// Whether a command may begin to stage so much; otherwise it stands in line, and [`Self::next`] names it later.
    pub(super) fn enter(&mut self, load: Load) -> bool {
        let fits = load.stages == 0 || self.waiting.is_empty() && self.has_room(load);
        match (load.stages, fits) {
            (0, _) => {}
            (_, true) => self.begun.push((load, true)),
            (_, false) => self.waiting.push_back(load),
        }
        fits
    }

    /// A command stages nothing any more. Gives what the server may have of it.
    pub(super) fn leave(&mut self, task: TaskId) -> Option<Load> {
        self.waiting.retain(|load| load.task != task);
        let at = self.begun.iter().position(|(load, _)| load.task == task)?;
        let (load, goes_on) = self.begun.swap_remove(at);
        Some(load).filter(|_| goes_on)
    }

    /// A command stages nothing any more, and no mutation will end what the server has of it.
    pub(super) fn end(&mut self, task: TaskId, out: &mut VecDeque<Outbound>) {
        let Some(load) = self.leave(task) else { return };
        for stage in (load.first..).take(load.stages) {
            let message = Request::Stage { stage, data: Bytes::new(), offset: 0, length: 0 }.encode(&[]);
            out.push_back(Outbound { task: NOBODY, call: 0, message, mutation: false });
        }
    }

    /// The session is over, and with it all that was staged in it.
    pub(super) fn session_over(&mut self) {
        self.begun.iter_mut().for_each(|(_, goes_on)| *goes_on = false);
    }

    /// The next command in line that may begin now.
    pub(super) fn next(&mut self) -> Option<TaskId> {
        let load = self.waiting.front().copied().filter(|load| self.has_room(*load))?;
        self.waiting.pop_front();
        self.begun.push((load, true));
        Some(load.task)
    }

    fn has_room(&self, more: Load) -> bool {
        let (stages, bytes) = self.begun.iter().fold((more.stages, more.bytes), |(s, b), (load, _)| (s + load.stages, b + load.bytes));
        self.begun.is_empty() || stages <= STAGES_MAX && bytes <= STAGED_MAX
    }
}

/// Whether the server has ended the stages that a mutation named which was answered so.
pub(super) fn are_ended(answer: &Answer<'_>) -> bool {
    match answer {
        Answer::Reply(Reply::Failed(Failed { status, .. }) | Reply::BatchFailed(BatchFailed { status, .. }))
        | Answer::Result(Some(Reply::Failed(Failed { status, .. }) | Reply::BatchFailed(BatchFailed { status, .. }))) => {
            !matches!(*status, Status::BUSY | Status::IN_GRACE)
        }
        Answer::Reply(Reply::Limited(limited)) | Answer::Result(Some(Reply::Limited(limited))) => limited.retry_ms == 0,
        Answer::Reply(_) | Answer::Result(Some(_)) => true,
        Answer::Result(None) | Answer::SessionEnded(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn commands_begin_in_order_of_arrival_as_far_as_all_that_they_stage_has_room() {
        let mut staging = Staging::default();
        let task = TaskId;
        let load = |n, stages, bytes| Load { task: task(n), first: 10 * n, stages, bytes };
        assert!(staging.enter(load(1, 5, MIB)) && staging.enter(load(2, 0, 0)));
        assert!(!staging.enter(load(3, 4, MIB)), "nine stages");
        assert!(!staging.enter(load(4, 1, 1)), "nobody overtakes");
        assert_eq!(staging.next(), None);
        staging.leave(task(1));
        assert_eq!([staging.next(), staging.next(), staging.next()], [Some(task(3)), Some(task(4)), None]);
        assert!(!staging.enter(load(5, 1, 3 * MIB)), "more than 4 MiB");
        staging.leave(task(3));
        assert_eq!(staging.next(), Some(task(5)));
        staging.leave(task(4));
        staging.leave(task(5));
        assert!(staging.enter(load(6, STAGES_MAX + 1, 2 * STAGED_MAX)), "who is alone asks the server");
    }
}
