//! The local users who wait for one advisory lock, in order of asking.
//!
//! Decides who of them may have a lock of which mode next: the head, and shared requests behind a shared head together with it; no
//! one overtakes. A request that only tries never waits behind one that it conflicts with.

use crate::api::{OpId, Wait};
use alloc::collections::VecDeque;
use cistern_wire::{LockWait, Mode};

/// A local user who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) op: OpId,
    pub(super) mode: Mode,
    pub(super) wait: Wait,
}

/// Those who wait, first come first.
#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<Waiter>);

impl Queue {
    pub(super) fn push(&mut self, waiter: Waiter) {
        self.0.push_back(waiter);
    }

    pub(super) fn head(&self) -> Option<Waiter> {
        self.0.front().copied()
    }

    pub(super) fn pop(&mut self) -> Option<Waiter> {
        self.0.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether everybody who waits could hold the lock together with one of this mode.
    pub(super) fn all_compatible(&self, mode: Mode) -> bool {
        self.0.iter().all(|waiter| waiter.mode.compatible(mode))
    }

    /// How the server is asked: a request that waits in line if anybody here would.
    pub(super) fn how(&self) -> LockWait {
        if self.0.iter().any(|waiter| waiter.wait != Wait::Try) { LockWait::Queue } else { LockWait::Try }
    }

    pub(super) fn remove(&mut self, op: OpId) -> bool {
        let before = self.0.len();
        self.0.retain(|waiter| waiter.op != op);
        self.0.len() != before
    }

    /// Takes out those who only try, or all.
    pub(super) fn take(&mut self, only_tries: bool) -> VecDeque<Waiter> {
        if !only_tries {
            return core::mem::take(&mut self.0);
        }
        let (tries, others) = self.0.iter().partition(|waiter| waiter.wait == Wait::Try);
        self.0 = others;
        tries
    }
}
