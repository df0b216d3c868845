//! KeepLease and ListLeases.
//!
//! Decides from when the time of a lease counts that was kept: from when the command was given, which is before the first transmission.

use super::request::Request;
use super::task::{Desk, Flow, Stage, Task};
use crate::api::{Command, LeaseInfo, Output};
use crate::tasks::walk::NOT_AN_ANSWER;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{LeaseRow, ObjectId, Reply, Status};
use core::time::Duration;

impl Task {
    pub(super) fn keep_lease(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let (Command::KeepLease { secret, .. }, Some((lease, _))) = (&self.command, self.object()) else {
            return Flow::failed(NOT_AN_ANSWER);
        };
        let secret = secret.clone();
        self.stage = Stage::Asked;
        self.ask(desk, Request::KeepLease { lease, secret });
        Flow::Wait
    }

    pub(super) fn heard_kept(&mut self, reply: &Reply<'_>) -> Flow {
        match reply {
            //= wire-spec.md#11-11-named-leases
            //# Who keeps a lease MUST count its time from before the first transmission of the request that was answered.
            Reply::LeaseKept(kept) => {
                let until = self.since.plus(Duration::from_millis(kept.ttl_ms.into()));
                Flow::End(Ok(Output::LeaseKept { until }))
            }
            Reply::Failed(failed) if failed.status == Status::ESTALE => self.stale(),
            Reply::Failed(failed) => Flow::failed(failed.status),
            _ => Flow::failed(NOT_AN_ANSWER),
        }
    }

    pub(super) fn list_leases(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let lease = self.object().map_or(ObjectId(0), |(lease, _)| lease);
        self.stage = Stage::LeasePages(Vec::new());
        self.ask(desk, Request::ListLeases { lease, after: ObjectId(0) });
        Flow::Wait
    }

    pub(super) fn heard_leases(&mut self, desk: &mut Desk<'_, '_>, reply: &Reply<'_>) -> Flow {
        let page = match reply {
            Reply::LeaseRows(page) => page,
            Reply::Failed(failed) if failed.status == Status::ESTALE => return self.stale(),
            Reply::Failed(failed) => return Flow::failed(failed.status),
            _ => return Flow::failed(NOT_AN_ANSWER),
        };
        let of = self.object().map_or(ObjectId(0), |(lease, _)| lease);
        let Stage::LeasePages(rows) = &mut self.stage else { return Flow::failed(NOT_AN_ANSWER) };
        for row in page.rows {
            // Each is above the one before, so pages come to an end.
            if rows.last().is_some_and(|last| last.object >= row.object) {
                return Flow::failed(NOT_AN_ANSWER);
            }
            rows.push(info(&row));
        }
        match (page.end, rows.last().map(|row| row.object).filter(|_| !page.rows.is_empty())) {
            (true, _) => Flow::End(Ok(Output::Leases(core::mem::take(rows)))),
            (false, Some(after)) => {
                self.ask(desk, Request::ListLeases { lease: of, after });
                Flow::Wait
            }
            (false, None) => Flow::failed(NOT_AN_ANSWER),
        }
    }
}

fn info(row: &LeaseRow<'_>) -> LeaseInfo {
    let LeaseRow { object, lease, ttl_ms, left_ms, files, place } = *row;
    LeaseInfo { object, place: Bytes::copy_from_slice(place.0), lease, ttl_ms, left_ms, files }
}
