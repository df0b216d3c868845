//! Requests that wait for their owners' turns: how they come to wait, when they run.
//!
//! Decides which requests wait for nobody's turn: in grace those that end it. Place in the walk: between `requests` and `execute`.
//! Leaves to others: whose turn it is (`scheduler`), standing and floor when it has come (`requests`).

use crate::requests::{Blocked, Call, Origin, Task, TaskId, Wait};
use crate::scheduler::Intake;
use crate::server::Server;
use alloc::boxed::Box;
use cistern_wire::{Kind, Raw};

impl Server {
    /// Whether a request of this kind is executed as it comes as long as grace lasts: all others wait for these.
    pub(super) const fn ends_grace(kind: Kind) -> bool {
        matches!(kind, Kind::Reclaim | Kind::ReclaimComplete | Kind::Outcome)
    }

    /// Keeps a request until the turn of its owner comes.
    pub(super) fn queue_request(&mut self, call: Call, raw: Raw<'_>) {
        self.suspend(call.id, Origin::Request { call, body: Box::from(raw.body) }, Blocked::Share);
        self.scheduler.queue(call.flow, call.key.place, call.id, raw.body.len());
    }

    /// What a task waited for is there: it runs now, or, if its owner has used up what it may in this slice, when its owner's turn comes. So
    /// no answer of the store makes a turn long, however many have waited for it. Who stands in line for locks waits for the slice alone, for
    /// others wait behind it.
    pub(super) fn go_on(&mut self, id: TaskId) {
        let call = self.tasks.get(id).and_then(Task::call).copied();
        let waits = call.is_some_and(|call| {
            let at_once = self.in_grace() && Self::ends_grace(call.kind) || !self.is_good(call.key);
            let now = if call.progress.in_line { self.scheduler.enter_first() } else { self.scheduler.enter(call.flow, 0) == Intake::Now };
            !at_once && !now
        });
        if waits { self.queue_again(id) } else { self.resume(id) }
    }

    /// A request that could run waits for its owner's turn, or, if it stands in line, for a slice.
    pub(super) fn queue_again(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if let Origin::Request { call, .. } = &task.origin {
            task.wait = Wait::Share;
            if call.progress.in_line {
                self.scheduler.queue_first(call.flow, id);
            } else {
                self.scheduler.queue_again(call.flow, call.key.place, id);
            }
        }
    }

    /// A slice of what is queued.
    pub(super) fn run_queued(&mut self) {
        while let Some(id) = self.scheduler.next() {
            self.resume(id);
            self.store.close_if_large();
        }
    }
}
