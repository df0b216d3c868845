//! SetXattr, RemoveXattr and Batch: mutations that may bring more than one message carries.
//!
//! Decides: what of it is staged, and when it is staged anew. Place in the walk: after `resolve`, as `put` for contents. Implements
//! `wire-spec.md` sections 6.2 (STAGE, SETXATTR, BATCH) and 11.5. Invariant: the mutation is sent only after every piece of every stage was
//! acknowledged (section 11.2).
//! Leaves to others: which objects it is about (`resolve`, `batch`), suspension and sessions that end (`task`).

use super::effects;
use super::put::{PIECES_AT_ONCE, STAGE_FIELDS, STAGINGS_MAX, room};
use super::request::{Mutation, Request};
use super::staging::{STAGED_MAX, STAGES_MAX};
use super::task::{Call, Desk, Flow, Stage, Task};
use crate::api::{Command, OpError, Output};
use crate::tasks::walk::NOT_AN_ANSWER;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::{XATTR_NAME_MAX, XATTR_VALUE_MAX};
use cistern_wire::{BatchFailed, Reply, Status};

/// A mutation and what is staged for it.
#[derive(Debug)]
pub(super) struct Carrying {
    change: Mutation,
    /// What is staged, each under its number.
    staged: Vec<(u64, Bytes)>,
    /// Which of these is being sent, and how many bytes of it have been.
    at: usize,
    sent: usize,
    stagings: u32,
}

impl Task {
    pub(super) fn carry(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let made = match &self.command {
            Command::SetXattr { name, value, rule, .. } => self.object().ok_or(NOT_AN_ANSWER).and_then(|(object, _)| {
                check_attribute(name, value)?;
                Ok(Mutation::SetXattr { object, name: name.clone(), rule: *rule, stage: 0, value: value.clone() })
            }),
            Command::RemoveXattr { name, .. } => self.object().ok_or(NOT_AN_ANSWER).and_then(|(object, _)| {
                check_attribute(name, &Bytes::new())?;
                Ok(Mutation::RemoveXattr { object, name: name.clone() })
            }),
            Command::Batch { items } => match self.to_batch(items) {
                Ok(changes) => Ok(Mutation::Batch { items: changes }),
                Err((item, status)) => return Flow::End(Err(OpError::Item { item, status })),
            },
            _ => Err(NOT_AN_ANSWER),
        };
        match made {
            Ok(change) => {
                self.stage = Stage::Carrying(Carrying { change, staged: Vec::new(), at: 0, sent: 0, stagings: 0 });
                self.load_up(desk)
            }
            Err(status) => Flow::failed(status),
        }
    }

    /// Stages the largest of what the mutation brings until the rest of it fits a message.
    fn load_up(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let room = room(desk).saturating_sub(self.expect_len());
        let Stage::Carrying(carrying) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        carrying.stagings += 1;
        if carrying.stagings > STAGINGS_MAX {
            return Flow::failed(Status::NOT_STAGED);
        }
        (carrying.at, carrying.sent) = (0, 0);
        carrying.staged.clear();
        carrying.change.unstage();
        while carrying.change.len_most(desk.ctx.cache) > room {
            desk.office.stages += 1;
            match carrying.change.stage_largest(desk.office.stages) {
                Some(data) if carrying.staged.len() < STAGES_MAX => carrying.staged.push((desk.office.stages, data)),
                _ => return Flow::failed(Status::E2BIG),
            }
        }
        let bytes = carrying.staged.iter().map(|(_, data)| data.len()).sum::<usize>();
        if bytes > STAGED_MAX {
            return Flow::failed(Status::E2BIG);
        }
        let first = carrying.staged.first().map_or(0, |staged| staged.0);
        let stages = carrying.staged.len();
        if !self.enter_staging(desk, first, stages, bytes) {
            return Flow::Wait;
        }
        self.next_loads(desk)
    }

    pub(super) fn next_loads(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let piece = room(desk) - STAGE_FIELDS;
        while self.calls_out() < PIECES_AT_ONCE {
            let Stage::Carrying(carrying) = &mut self.stage else { break };
            let Some((stage, data)) = carrying.staged.get(carrying.at) else { break };
            let length = piece.min(data.len() - carrying.sent);
            let request = Request::Stage { stage: *stage, data: data.clone(), offset: carrying.sent, length };
            carrying.sent += length;
            if carrying.sent == data.len() {
                (carrying.at, carrying.sent) = (carrying.at + 1, 0);
            }
            self.ask(desk, request);
        }
        if self.is_waiting() {
            return Flow::Wait;
        }
        let Stage::Carrying(carrying) = &self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        let change = carrying.change.clone();
        self.ask_change(desk, change);
        Flow::Wait
    }

    pub(super) fn heard_carrying(&mut self, desk: &mut Desk<'_, '_>, call: &Call, reply: &Reply<'_>) -> Flow {
        match (&call.request, reply) {
            (Request::Stage { .. }, Reply::Done(_)) => self.next_loads(desk),
            (Request::Change { change, .. }, Reply::Changed(changed)) => match effects::subject(change, changed.effects) {
                Some(attr) => Flow::End(Ok(Output::Attr(attr))),
                None => Flow::failed(NOT_AN_ANSWER),
            },
            (Request::Change { change: Mutation::Batch { items }, .. }, Reply::Batched(done)) if done.items.len() == items.len() => {
                Flow::End(Ok(Output::Batched(done.items.iter().collect())))
            }
            (Request::Change { change: Mutation::Batch { .. }, .. }, Reply::BatchFailed(BatchFailed { status, item })) => match *status {
                Status::NOT_STAGED => self.load_up(desk),
                Status::ESTALE if self.may_walk_again() => self.stale(),
                status => Flow::End(Err(OpError::Item { item: *item, status })),
            },
            (Request::Change { .. }, Reply::Failed(failed)) if failed.status == Status::NOT_STAGED => self.load_up(desk),
            (_, Reply::Failed(failed)) if failed.status == Status::ESTALE => self.stale(),
            (_, Reply::Failed(failed)) => Flow::failed(failed.status),
            _ => Flow::failed(NOT_AN_ANSWER),
        }
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
