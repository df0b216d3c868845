//! The sweep: taking away the holds of sessions that were freed, a few in a turn.
//!
//! Decides: in which order. Holds that were demanded come first, for somebody may wait for them; the sessions take turns.
//! Invariant: a freed session gets nothing any more, so its sweep ends, and it keeps no other one's waiters waiting by how much it holds.

use super::LockTable;
use alloc::collections::VecDeque;
use cistern_link::Instant;
use cistern_link::slab::NONE;

/// Freed sessions, in order of their turns.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Those with demanded holds.
    demanded: VecDeque<u32>,
    others: VecDeque<u32>,
}

impl LockTable {
    /// Takes away at most `budget` locks of sessions that were freed, lets come whoever waited for them, and forgets sessions that have
    /// nothing left. True: there is more to do.
    pub fn reclaim_some(&mut self, now: Instant, budget: usize) -> bool {
        for _ in 0..budget {
            let Some(slot) = self.sweep.demanded.pop_front().or_else(|| self.sweep.others.pop_front()) else { return false };
            // The demanded ones stand first.
            let first = self.table.sessions[slot].first;
            if first != NONE {
                self.free(now, first);
            }
            if self.table.sessions[slot].first == NONE {
                self.table.forget_session(slot);
            } else {
                self.sweep_later(slot);
            }
        }
        self.is_sweeping()
    }

    /// Whether there is more to take away.
    #[must_use]
    pub fn is_sweeping(&self) -> bool {
        !self.sweep.demanded.is_empty() || !self.sweep.others.is_empty()
    }

    /// Gives a freed session its next turn.
    pub(super) fn sweep_later(&mut self, slot: u32) {
        let demanded = self.table.demanded_of(slot).next().is_some();
        let line = if demanded { &mut self.sweep.demanded } else { &mut self.sweep.others };
        line.push_back(slot);
    }
}
