//! The end of grace: the ends of all sessions that did not come back, then what ends the grace itself.
//!
//! Decides in which order: from the first end on nothing can be reclaimed from any of them; they are ended in slices, so that the loop never
//! stands still; the batch after the last of them ends the grace, and batches become durable in order.
//! Implements `wire-spec.md` section 11.7. Invariant: until that batch is durable the server is in grace.
//! Leaves to others: how long grace lasts (`sessions::grace`), the files of those who have ended (`removals`).

use crate::config::micros_up;
use crate::server::Server;
use crate::server::durability::OnDurable;
use crate::sessions::grace::{Grace, State};
use crate::store::{self, BatchId, Counter};
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{AgentId, SessionId};
use log::{info, warn};

impl Server {
    /// The time of grace is over.
    pub(crate) fn close_grace(&mut self) {
        let now = self.now;
        if let Some(grace) = &mut self.grace {
            grace.close(now);
        }
    }

    /// Whether sessions that did not come back are left to be ended, or what comes after them to be written.
    pub(crate) fn is_closing_grace(&self) -> bool {
        self.grace.as_ref().is_some_and(Grace::is_closing)
    }

    /// Ends a slice of those who did not come back; when none is left, the grace.
    pub(crate) fn end_lost(&mut self) {
        let mut steps = if self.is_closing_grace() { self.config.freed_per_turn as usize } else { 0 };
        while steps > 0 {
            let Some(id) = self.grace.as_mut().and_then(Grace::next_lost) else {
                return self.write_end_of_grace();
            };
            let window = self.end_with_grace(id);
            steps = steps.saturating_sub(1 + usize::from(window));
        }
    }

    /// Ends one session that did not come back; gives its window.
    pub(crate) fn end_with_grace(&mut self, id: SessionId) -> u16 {
        let recorded = self.grace.as_ref().and_then(|grace| grace.recorded.get(&id));
        // Its agent may have said that its reclaim is complete since grace was closed.
        let Some(session) = recorded.filter(|session| session.state == State::Lost) else {
            return 0;
        };
        let window = session.window;
        warn!(
            "{}: session {id} of \"{}\" ({}) did not come back; its locks are lost; look at its host",
            self.who,
            session.label.escape_ascii(),
            session.agent
        );
        if bugs::is(Bug::M38) {
            self.accounted_by_open_batch(id);
        } else {
            self.account_for(id);
        }
        window
    }

    fn write_end_of_grace(&mut self) {
        //= wire-spec.md#11-7-restart-and-recovery
        //# The first ordinary grant or mutation MUST come after the ends of all sessions that did not come back, but for long ones whose T
        //# has not passed, are durable.
        // Written also when nobody was lost: what was accounted for last may not be durable yet, and this batch is after that.
        self.overlay.set_counter(Counter::Restored, 0);
        self.overlay.set_counter(Counter::Wait, micros_up(self.config.wait()));
        let batch = self.overlay.open_batch();
        self.after_commit(batch, OnDurable::GraceOver);
    }

    /// The end of the grace, or of long sessions whose time after it was over, is durable.
    pub(crate) fn grace_over(&mut self) {
        let common = self.in_grace();
        if self.grace.as_mut().is_none_or(Grace::ended) {
            self.grace = None;
        }
        if common {
            info!("{}: grace is over after {:?}; locks are granted", self.who, self.now.since(self.started));
        }
        if let Some(grace) = &self.grace {
            info!(
                "{}: {} locks are kept for sessions with long leases that may still hold them, for at most {:?}",
                self.who,
                grace.withheld(),
                grace.rest(self.now).unwrap_or_default()
            );
        }
    }

    /// Deletes what the store has of a session of before.
    pub(crate) fn forget_recorded(&mut self, id: SessionId, window: u16) {
        self.overlay.put(store::Key::Session(id), None);
        for slot in 0..window {
            self.overlay.put(store::Key::Outcome(id, slot), None);
        }
    }

    /// A session of before has ended, or nothing more is reclaimed from it: deletes it, and gives the batch that does.
    pub(crate) fn account_for(&mut self, id: SessionId) -> BatchId {
        let window = self.grace.as_ref().and_then(|grace| grace.recorded.get(&id)).map_or(0, |session| session.window);
        self.forget_recorded(id, window);
        self.accounted_by_open_batch(id)
    }

    /// The open batch is the last of a session of before.
    pub(crate) fn accounted_by_open_batch(&mut self, id: SessionId) -> BatchId {
        let batch = self.overlay.open_batch();
        if let Some(grace) = &mut self.grace {
            grace.set_state(id, State::Accounting(batch));
        }
        self.after_commit(batch, OnDurable::Accounted(id));
        batch
    }

    /// The end of a session of before, or of its reclaim, is durable by `batch`.
    pub(crate) fn accounted(&mut self, id: SessionId, batch: BatchId) {
        if let Some(grace) = self.grace.as_mut().filter(|grace| grace.accounting(id).is_none_or(|last| last <= batch)) {
            grace.set_state(id, State::Accounted);
        }
        self.session_left_files(id);
    }

    /// An agent lost its session for good: what it had before the start goes the same way, so that no later session reclaims it.
    pub(crate) fn doom_recorded(&mut self, agent: AgentId, incarnation: u64) {
        let sessions = self.grace.as_ref().map(|grace| Vec::from(grace.of_agent(agent))).unwrap_or_default();
        for id in sessions {
            if self.grace.as_ref().and_then(|grace| grace.awaited_of(id, agent)) == Some(incarnation) {
                self.doom(id);
            }
        }
    }

    /// The end of a session of before was decided: nothing can be reclaimed from it any more, though its lease has to be waited for.
    pub(crate) fn doom(&mut self, id: SessionId) {
        if let Some(record) = self.grace.as_mut().and_then(|grace| grace.mark_unreclaimable(id)) {
            //= wire-spec.md#11-3-failure-and-ending
            //# An ending that no receipt can undo MUST be durable at D.
            self.overlay.put(store::Key::Session(id), Some(record.to_bytes().into()));
        }
    }
}
