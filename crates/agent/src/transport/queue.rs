//! Requests that were never sent, in lanes; they outlive sessions.

use super::Gate;
use crate::call::{Asker, Outbound};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_wire::Message;

/// Which requests go first: those of recovery before those for locks and watches, and operations last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// RECLAIM, RECLAIM_COMPLETE, OUTCOME.
    Recovery,
    /// LOCK, WATCH, UNWATCH.
    Lock,
}

/// Requests that were never sent.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    recovery: VecDeque<(Asker, Vec<u8>)>,
    lock: VecDeque<(Asker, Vec<u8>)>,
    /// Those of operations; they stay when a session ends, and go out in the next.
    pub(crate) tasks: VecDeque<Outbound>,
}

impl SendQueue {
    /// Adds a request.
    pub(crate) fn push(&mut self, lane: Lane, asker: Asker, request: &Message<'_>) {
        self.lane(lane).push_back((asker, request.to_bytes()));
    }

    /// Takes a request back that was not sent. Whether there was one.
    pub(crate) fn withdraw(&mut self, lane: Lane, asker: Asker) -> bool {
        let lane = self.lane(lane);
        let place = lane.iter().position(|(asked, _)| *asked == asker);
        place.and_then(|place| lane.remove(place)).is_some()
    }

    /// The session is over: what only it could answer is not asked any more.
    pub(crate) fn session_over(&mut self) {
        self.recovery.clear();
        self.lock.clear();
    }

    /// Whether there is a request that this gate lets through; one of an operation counts if it is at most so long.
    pub(super) fn has_next(&self, gate: Gate, longest: usize) -> bool {
        let fits = |out: &Outbound| out.message.len() <= longest;
        let ordinary = gate == Gate::Open && (!self.lock.is_empty() || self.tasks.front().is_some_and(fits));
        !self.recovery.is_empty() || ordinary
    }

    /// The first request of a lane, if it is at most so long.
    pub(super) fn pop(&mut self, lane: Lane, longest: usize) -> Option<(Asker, Vec<u8>)> {
        self.lane(lane).pop_front_if(|(_, message)| message.len() <= longest)
    }

    /// The first request of an operation, if it is at most so long.
    pub(super) fn pop_task(&mut self, longest: usize) -> Option<Outbound> {
        self.tasks.pop_front_if(|out| out.message.len() <= longest)
    }

    const fn lane(&mut self, lane: Lane) -> &mut VecDeque<(Asker, Vec<u8>)> {
        match lane {
            Lane::Recovery => &mut self.recovery,
            Lane::Lock => &mut self.lock,
        }
    }
}
