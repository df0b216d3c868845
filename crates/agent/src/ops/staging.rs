//! Staging: which commands have contents staged at the server now, and which wait for room there.
//!
//! Decides: when a command that needs stages may begin to fill them: when all of its stages have room beside those of the others, in order of
//! arrival. Place in the walk: asked by `put` and `carry` before the first piece; told by `Ops` when a command has ended or begins again.
//! Implements `wire-spec.md` section 11.5 (R80). Invariant: whoever has begun has room for all that it stages, so that two commands
//! never each hold stages that the other one waits for.
//! Leaves to others: a server whose bounds are lower, or whose stages are taken by others: it answers BUSY, and is asked again (`task`).

use crate::port::TaskId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Most stages of one session, as a server bounds them by default.
pub(super) const STAGES_MAX: usize = 8;
/// Most bytes staged by one session, as a server bounds them by default.
pub(super) const STAGED_MAX: usize = 4 << 20;

/// What a command stages.
#[derive(Clone, Copy, Debug)]
struct Load {
    task: TaskId,
    stages: usize,
    bytes: usize,
}

/// The commands that stage something.
#[derive(Debug, Default)]
pub(super) struct Staging {
    begun: Vec<Load>,
    waiting: VecDeque<Load>,
}

impl Staging {
    /// Whether a command may begin to stage so much; otherwise it stands in line, and [`Self::next`] names it later.
    pub(super) fn enter(&mut self, task: TaskId, stages: usize, bytes: usize) -> bool {
        self.leave(task);
        let load = Load { task, stages, bytes };
        let fits = stages == 0 || self.waiting.is_empty() && self.has_room(load);
        match (stages, fits) {
            (0, _) => {}
            (_, true) => self.begun.push(load),
            (_, false) => self.waiting.push_back(load),
        }
        fits
    }

    /// A command stages nothing any more: its mutation was answered, it has ended, or it begins again.
    pub(super) fn leave(&mut self, task: TaskId) {
        self.begun.retain(|load| load.task != task);
        self.waiting.retain(|load| load.task != task);
    }

    /// The next command in line that may begin now.
    pub(super) fn next(&mut self) -> Option<TaskId> {
        let load = self.waiting.front().copied().filter(|load| self.has_room(*load))?;
        self.waiting.pop_front();
        self.begun.push(load);
        Some(load.task)
    }

    fn has_room(&self, more: Load) -> bool {
        let (stages, bytes) = self.begun.iter().fold((more.stages, more.bytes), |(s, b), load| (s + load.stages, b + load.bytes));
        self.begun.is_empty() || stages <= STAGES_MAX && bytes <= STAGED_MAX
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
        assert!(staging.enter(task(1), 5, MIB) && staging.enter(task(2), 0, 0));
        assert!(!staging.enter(task(3), 4, MIB), "nine stages");
        assert!(!staging.enter(task(4), 1, 1), "nobody overtakes");
        assert_eq!(staging.next(), None);
        staging.leave(task(1));
        assert_eq!([staging.next(), staging.next(), staging.next()], [Some(task(3)), Some(task(4)), None]);
        assert!(!staging.enter(task(5), 1, 3 * MIB), "more than 4 MiB");
        staging.leave(task(3));
        assert_eq!(staging.next(), Some(task(5)));
        staging.leave(task(4));
        staging.leave(task(5));
        assert!(staging.enter(task(6), STAGES_MAX + 1, 2 * STAGED_MAX), "who is alone asks the server");
    }
}
