//! ServerStatus and Ping: how the server is, and how far away.
//!
//! Decides: what they ask. Place in the walk: they name no object, so they begin here. Implements `wire-spec.md` section 6.2.
//! Invariant: both are answered by the server's application, never from cache; neither asks for a lock.
//! Leaves to others: round trips for retransmission (the protocol half); a ping is a person's question.

use super::request::Request;
use super::task::{Desk, Flow, Stage, Task};
use crate::api::{Command, Output};
use crate::tasks::walk::NOT_AN_ANSWER;
use cistern_wire::limits::ROOT;
use cistern_wire::{ObjectId, Reply, Want};

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
