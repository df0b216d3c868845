//! Lock and ListLocks: the way to an advisory lock, and who holds and waits.
//!
//! Decides: on which object a lock is asked for (the walk's end), and how the pages of LIST_LOCKS are put together.
//! Place in the walk: after `resolve`. Implements `wire-spec.md` section 6.2 (LOCK, LIST_LOCKS).
//! Invariant: a command that waits is the locks' from then on, and only they tell how it ends, so it ends once.
//! Leaves to others: granting, waiting, time limits and tokens (`locks`).

use super::request::Request;
use super::task::{Desk, Flow, Stage, Task};
use crate::api::{Command, LockInfo, OpId, Output};
use crate::tasks::walk::NOT_AN_ANSWER;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{LockRow, LockRows, ObjectId, Reply};

/// Most rows of one listing: as many as a server has locks at the very most. More are pages without an end.
const ROWS_MAX: usize = 1 << 20;

/// Rows of LIST_LOCKS as they come.
#[derive(Debug)]
pub(super) struct Rows {
    object: ObjectId,
    rows: Vec<LockInfo>,
}

impl Task {
    /// From here on the locks tell how the command ends, unless that is known at once.
    pub(super) fn lock(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let (Some((object, _)), &Command::Lock { mode, wait, .. }) = (self.object(), &self.command) else {
            return Flow::failed(NOT_AN_ANSWER);
        };
        let ctx = &mut *desk.ctx;
        match ctx.locks.lock(ctx.permit, OpId(self.id.0), (object, mode, wait)) {
            Some(result) => Flow::End(result.map(Output::Locked)),
            None => Flow::Handed,
        }
    }

    pub(super) fn list_locks(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let object = self.object().map_or(ObjectId(0), |(object, _)| object);
        self.stage = Stage::Rows(Rows { object, rows: Vec::new() });
        self.ask(desk, Request::ListLocks { object, after_object: ObjectId(0), after_row: 0 });
        Flow::Wait
    }

    pub(super) fn heard_rows(&mut self, desk: &mut Desk<'_, '_>, reply: &Reply<'_>) -> Flow {
        let page = match reply {
            Reply::LockRows(page) => page,
            Reply::Failed(failed) => return Flow::failed(failed.status),
            _ => return Flow::failed(NOT_AN_ANSWER),
        };
        let Stage::Rows(rows) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
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

impl Rows {
    /// The page after this one; `None` if this one was empty, for the next would be, too.
    fn after(&self, page: &LockRows<'_>) -> Option<Request> {
        let last = page.rows.iter().last()?.lock.object;
        let seen = self.rows.iter().rev().take_while(|row| row.object == last).count();
        Some(Request::ListLocks { object: self.object, after_object: last, after_row: u32::try_from(seen).unwrap_or(u32::MAX) })
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
