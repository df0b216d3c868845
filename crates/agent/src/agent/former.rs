//! Former sessions: what is said of them, and what is heard.

use crate::agent::Agent;
use crate::api::HolderId;
use crate::stats::Dropped;
use crate::transport::Cx;
use alloc::vec::Vec;
use cistern_link::Path;
use cistern_wire::{Messages, SessionId};
use log::{debug, info};

impl Agent {
    /// A local user whose lock was lost has stopped.
    pub(super) fn has_stopped(&mut self, holder: HolderId) {
        self.sessions.has_stopped(holder);
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.stopping.remove(&holder);
        }
    }

    /// Surrenders the former sessions of which nothing can be used any more.
    pub(super) fn tend_former(&mut self) {
        if !self.config.surrender {
            return;
        }
        for surrendered in self.sessions.surrender(self.now, &mut self.timers) {
            info!("{}: surrenders session {surrendered}", self.who);
        }
    }

    /// Makes the datagram of the first END_SESSION of a former session that is due.
    pub(super) fn next_end(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        let mut cx = Cx { now: self.now, timers: &mut self.timers, rng: &mut self.rng };
        self.sessions.poll_transmit(&mut cx, buf)
    }

    /// A datagram of a session that is not the present one: of a former one, only its end is heard.
    pub(super) fn of_former(&mut self, session: SessionId, messages: Messages<'_>) {
        if self.sessions.hears_end(session, messages) {
            debug!("{}: session {session} has ended at the server", self.who);
            self.sessions.ended(&mut self.timers, |ended| ended == session);
            self.tend_closing();
        } else {
            self.dropped(Dropped::UnknownSession);
        }
    }
}
