//! The end of grace: the ends of all sessions that did not come back, then what ends the grace itself.
//!
//! Decides in which order: from the first end on nothing can be reclaimed from any of them; they are ended in slices, so that the loop never
//! stands still; the batch after the last of them ends the grace, and batches become durable in order.
//! Implements `wire-spec.md` section 11.7. Invariant: until that batch is durable the server is in grace.
//! Leaves to others: how long grace lasts (`sessions::grace`), the files of those who have ended (`removals`).

use crate::config::micros_up;
use crate::server::Server;
use crate::server::durability::OnDurable;
use crate::sessions::SessionKey;
use crate::sessions::grace::Grace;
use crate::sessions::standing::{Cause, Event, ReclaimState, Standing};
use crate::store::Counter;
use alloc::vec::Vec;
use cistern_wire::AgentId;
use log::{info, warn};

impl Server {
    /// The time of grace is over.
    pub(crate) fn close_grace(&mut self) {
        let Some(grace) = &self.grace else {
            return;
        };
        let recorded = self.sessions.recorded().map(|(key, _)| key);
        let lost: Vec<SessionKey> = recorded.filter(|key| grace.is_over(self.now, key.id())).collect();
        for key in &lost {
            self.change(*key, Event::Missed);
        }
        if let Some(grace) = &mut self.grace {
            grace.close(lost);
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
            let Some(key) = self.grace.as_mut().and_then(Grace::next_lost) else {
                return self.write_end_of_grace();
            };
            steps = steps.saturating_sub(1 + usize::from(self.end_lost_session(key)));
        }
    }

    /// Ends one session that did not come back; gives how many outcomes go with it.
    pub(crate) fn end_lost_session(&mut self, key: SessionKey) -> u16 {
        let missed = Standing::Recorded { reclaim: ReclaimState::Missed };
        // Its agent may have said that its reclaim is complete since grace was closed.
        let Some(session) = self.sessions.get(key).filter(|session| session.standing() == missed) else {
            return 0;
        };
        let outcomes = session.outcomes;
        warn!(
            "{}: session {} of \"{}\" ({}) did not come back; its locks are lost; look at its host",
            self.who,
            session.id,
            session.label.escape_ascii(),
            session.agent
        );
        self.over(key, Cause::NotReclaimed);
        outcomes
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

    /// An agent lost its session for good: what it had before the start goes the same way, so that no later session reclaims it.
    pub(crate) fn forfeit_recorded(&mut self, agent: AgentId, incarnation: u64) {
        for key in self.sessions.of_agent(agent) {
            if self.sessions.get(key).is_some_and(|session| session.incarnation == incarnation) {
                self.forfeit(key);
            }
        }
    }

    /// The end of a session of before was decided: nothing can be reclaimed from it any more, though its lease has to be waited for.
    pub(crate) fn forfeit(&mut self, key: SessionKey) {
        if self.sessions.get(key).is_some_and(|session| session.standing().takes(Event::Forfeited)) {
            self.change(key, Event::Forfeited);
        }
    }
}
