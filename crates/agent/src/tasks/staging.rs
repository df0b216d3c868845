//! Staging: which commands have contents staged at the server now, and which wait for room there.
//!
//! Decides: when a command that needs stages may begin to fill them: when all of its stages have room beside those of the others, in order
//! of arrival; and which stages are ended because no mutation will end them. Place in the walk: asked by `put` and `carry` before the first
//! piece; told by `Tasks` and `task` when the mutation was answered, and when a command has ended or begins again.
//! Implements `wire-spec.md` sections 6.2 (STAGE) and 11.5. Invariants: whoever has begun has room for all that it stages, so that
//! two commands never each hold stages that the other one waits for; what counts as free is ended at the server, or about to be.
//! Leaves to others: a server whose bounds are lower, or whose stages are taken by others: it answers BUSY, and is asked again (`task`).

use super::request::Request;
use crate::call::{Answer, Outbound, TaskId};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{BatchFailed, Failed, Reply, Status};

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
