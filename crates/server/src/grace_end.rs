//! The end of grace: one transaction, however many sessions did not come back.
//!
//! Decides in which order grace ends, and after it the long sessions that do not come back: whoever caches what the files of the lost are in is asked for it, then the end is decided, and then
//! one batch ends them all, written in slices so that the loop never stands still; it alone is handed to the store meanwhile (R51).
//! Place in the walk: run by the loop when `grace` says that the time has come. Implements `wire-spec.md` section 11.7.
//! Invariant: until the batch is durable the server is in grace, and a crash leaves all as it was before.
//! Leaves to others: how long grace lasts (`grace`), how ephemeral files go (`departing`).

use crate::durability::OnDurable;
use crate::grace::{Recorded, State};
use crate::parked::{Parked, Wait};
use crate::server::Server;
use crate::starting::micros_up;
use crate::store::{BatchId, Counter};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Kind, SessionId};
use core::time::Duration;
use log::{info, warn};

/// What the transaction that ends grace still has to end.
#[derive(Debug)]
pub(crate) struct Writing {
    /// Sessions, each with its window, and whether it was still awaited.
    lost: VecDeque<(SessionId, u16, bool)>,
    /// What the files of the first one lack was asked of the store.
    loading: bool,
}

impl Server {
    /// Ends the grace if it is over.
    pub(crate) fn run_grace(&mut self) {
        if self.has_grace_to_end() {
            return self.write_end_of_grace();
        }
        let Some(grace) = self.grace.as_mut() else {
            return;
        };
        if grace.rest(self.now) != Some(Duration::ZERO) {
            return;
        }
        // Whoever caches what the files of the lost are in is asked for it first; until that is done they can still come back.
        if !core::mem::replace(&mut grace.clearing, true) {
            for id in self.lost().into_iter().map(|lost| lost.0).filter(|id| self.ephemerals.any_of(*id)).collect::<Vec<_>>() {
                self.depart_with_grace(id);
            }
            self.run_departures();
        }
        let begun = self.grace.as_ref().is_none_or(|grace| grace.ending);
        if !begun && !self.departing.holds_up_grace() {
            self.begin_end_of_grace();
        }
    }

    /// The sessions that end with the grace, each with its window: those that did not come back (true), and those that are accounted for
    /// and have left files (false).
    fn lost(&self) -> Vec<(SessionId, u16, bool)> {
        let Some(grace) = &self.grace else {
            return Vec::new();
        };
        let awaited = grace.over(self.now).map(|(id, window)| (id, window, true));
        let is_gone = |id: &SessionId| self.sessions.find(*id).is_none() && grace.awaited_window(*id).is_none();
        let left = self.ephemerals.sessions().filter(is_gone);
        let left = left.map(|id| (id, grace.recorded.get(&id).map_or(0, |session| session.window), false));
        awaited.chain(left).collect()
    }

    /// The end of grace is decided: from now on no handshake finds those who did not come back, or could bring them back.
    fn begin_end_of_grace(&mut self) {
        let lost = self.lost();
        let batch = self.overlay.open_batch();
        if let Some(grace) = &mut self.grace {
            grace.ending = true;
            lost.iter().filter(|lost| lost.2).for_each(|(id, ..)| grace.set_state(*id, State::Accounting(batch)));
            grace.writing = Some(Writing { lost: lost.into(), loading: false });
        }
        self.write_end_of_grace();
    }

    /// Whether the transaction that ends grace is being written: nothing else becomes durable before it is whole.
    pub(crate) fn is_ending_grace(&self) -> bool {
        self.grace.as_ref().is_some_and(|grace| grace.writing.is_some())
    }

    /// Whether that goes on with the next turn.
    pub(crate) fn has_grace_to_end(&self) -> bool {
        self.grace.as_ref().and_then(|grace| grace.writing.as_ref()).is_some_and(|writing| !writing.loading)
    }

    /// Writes a slice of the transaction that ends grace, into the one open batch: so many sessions at once would make the loop stand still.
    pub(crate) fn write_end_of_grace(&mut self) {
        let mut steps = self.config.freed_per_turn as usize;
        while let Some(writing) = self.grace.as_mut().and_then(|grace| grace.writing.as_mut()) {
            writing.loading = false;
            let Some((id, window, awaited)) = writing.lost.front().copied() else {
                return self.hand_over_end_of_grace();
            };
            if steps == 0 {
                return;
            }
            steps = steps.saturating_sub(1 + usize::from(window) + self.ephemerals.of(id).count());
            if !self.end_with_grace(id, window, awaited) {
                return;
            }
            if let Some(writing) = self.grace.as_mut().and_then(|grace| grace.writing.as_mut()) {
                writing.lost.pop_front();
            }
        }
    }

    /// Ends one session that did not come back, or has left files. False: values of its files are being loaded.
    fn end_with_grace(&mut self, id: SessionId, window: u16, awaited: bool) -> bool {
        if bugs::is(Bug::M38) {
            return true;
        }
        let op = self.parking.next_id();
        if let Err(queries) = self.remove_lost_files(id, op) {
            let job = self.own_job(op, Kind::EndSession, 0);
            self.parking.park(Parked { job, body: Box::default(), wait: Wait::Store(queries.len()) });
            self.ask_store(op, queries);
            if let Some(writing) = self.grace.as_mut().and_then(|grace| grace.writing.as_mut()) {
                writing.loading = true;
            }
            return false;
        }
        let recorded = self.grace.as_ref().and_then(|grace| grace.recorded.get(&id));
        if let Some(Recorded { agent, label, .. }) = recorded.filter(|_| awaited) {
            warn!(
                "{}: session {id} of \"{}\" ({agent}) did not come back; its locks are lost; look at its host",
                self.who,
                label.escape_ascii()
            );
        }
        self.forget_recorded(id, window);
        true
    }

    fn hand_over_end_of_grace(&mut self) {
        //= wire-spec.md#11-7-restart-and-recovery
        //# The first ordinary grant or mutation MUST come after one transaction that ends grace and with it all sessions that did not come
        //# back, but for long ones whose T has not passed, and their ephemeral files.
        // Written also when nobody was lost: what was accounted for last may not be durable yet, and this batch is after that.
        if let Some(grace) = &mut self.grace {
            grace.writing = None;
        }
        self.overlay.set_counter(Counter::Restored, 0);
        self.overlay.set_counter(Counter::Wait, micros_up(self.config.wait()));
        let batch = self.overlay.open_batch();
        self.after_commit(batch, OnDurable::GraceOver);
    }

    /// The end of the grace, or of long sessions whose time after it was over, is durable.
    pub(crate) fn grace_over(&mut self, batch: BatchId) {
        let common = self.in_grace();
        if self.grace.as_mut().is_none_or(|grace| grace.ended(batch)) {
            self.grace = None;
        }
        self.sessions_left_files();
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
}
