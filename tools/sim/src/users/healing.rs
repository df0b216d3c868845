//! What each agent does when the faults are over: one of everything, until it has succeeded.
//!
//! Decides the list (ping, the directory and the files if a restore or a lost setup took them away, write, read, then an exclusive lock on every hot file, each given back at once) and that a failure is
//! tried again after a pause. Place in the walk: under `Users`, from the moment of healing. Invariant: nothing is skipped; the run
//! is satisfied only when every agent is through, so a hang anywhere keeps it from ending (I15).
//! Leaves to others: how long that may take (`judge::liveness`).

use super::user::{content, hot_path};
use super::workload::Workload;
use crate::observe::{True, UserOp};
use bytes::Bytes;
use cistern_agent::api::{Command, HolderId, LockEvent, OpError, Output, Ownership, Target, Wait};
use cistern_wire::{Mode, Status};
use std::collections::VecDeque;

/// Pause before something that failed is tried again, in nanoseconds.
const PAUSE: u64 = 40_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Ping,
    Dir,
    File(usize),
    Write,
    Read,
    Lock(usize),
    Unlock(HolderId),
}

/// One agent's list.
#[derive(Clone, Debug)]
pub(super) struct Healing {
    left: VecDeque<Step>,
    running: Option<UserOp>,
    due: Option<True>,
}

impl Healing {
    pub(super) fn new(now: True, work: &Workload) -> Self {
        let locks = (0..work.hot).map(Step::Lock);
        let files = (0..work.hot).map(Step::File);
        let left = [Step::Ping, Step::Dir].into_iter().chain(files).chain([Step::Write, Step::Read]).chain(locks).collect();
        Self { left, running: None, due: Some(now) }
    }

    pub(super) fn is_done(&self) -> bool {
        self.left.is_empty() && self.running.is_none()
    }

    /// When it acts next; not before the agent's users have let go of everything.
    pub(super) fn due(&self, rest: bool) -> Option<True> {
        self.due.filter(|_| rest && self.running.is_none() && !self.left.is_empty())
    }

    pub(super) fn act(&mut self, now: True, op: UserOp, rest: bool, _work: &Workload) -> Option<Command> {
        if self.due(rest).is_none_or(|due| due > now) {
            return None;
        }
        let target = |hot: usize| Target::Path(hot_path(hot));
        let step = *self.left.front()?;
        self.running = Some(op);
        Some(match step {
            Step::Ping => Command::Ping,
            Step::Dir => Command::Mkdir { path: Bytes::from_static(b"/hot"), owner: Ownership { mode: 0o755, uid: 1, gid: 1 } },
            Step::File(hot) => Command::Create {
                path: hot_path(hot),
                exclusive: false,
                ephemeral: false,
                owner: Ownership { mode: 0o644, uid: 1, gid: 1 },
            },
            Step::Write => Command::Write { target: target(0), offset: 0, data: content(op, 0, false), truncate: true },
            Step::Read => Command::Read { target: target(0), offset: 0, length: None },
            Step::Lock(hot) => Command::Lock { target: target(hot), mode: Mode::Exclusive, wait: Wait::Forever },
            Step::Unlock(holder) => Command::Unlock { holder },
        })
    }

    pub(super) fn ended(&mut self, now: True, op: UserOp, result: Option<&Result<Output, OpError>>) {
        if self.running.take_if(|running| *running == op).is_none() {
            return;
        }
        self.due = Some(now);
        match (self.left.front(), result) {
            (Some(Step::Lock(_)), Some(Ok(Output::Locked(locked)))) => {
                self.left[0] = Step::Unlock(locked.holder);
            }
            // However it ended, the lock is not held any more; and a directory that is there need not be made.
            (Some(Step::Unlock(_)), _) | (Some(_), Some(Ok(_))) | (Some(Step::Dir), Some(Err(OpError::Status(Status::EEXIST)))) => {
                self.left.pop_front();
            }
            _ => self.due = Some(True(now.0 + PAUSE)),
        }
    }

    pub(super) fn told(&mut self, now: True, holder: HolderId, what: LockEvent) {
        if what == LockEvent::Lost && self.left.front() == Some(&Step::Unlock(holder)) {
            self.due = Some(now);
        }
    }

    pub(super) fn crashed(&mut self, now: True) {
        self.running = None;
        self.due = Some(True(now.0 + PAUSE));
        if matches!(self.left.front(), Some(Step::Unlock(_))) {
            self.left.pop_front();
        }
    }
}
