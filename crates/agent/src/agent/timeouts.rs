//! Timeouts of the session: what was not answered is sent again, with back-off, by the server's other addresses when one stays silent.
//!
//! Timers run only when the socket was found empty, so an answer that has arrived is never taken for silence.

use crate::agent::Agent;
use crate::agent::idle::SILENCE_MAX;

/// After so many timeouts without a word from the server its next address is tried.
const SILENCE_BEFORE_MOVING: u32 = 4;

impl Agent {
    pub(super) fn request_is_overdue(&mut self, nonce: u64) {
        let has_user = self.has_user();
        let Some(channel) = self.sessions.channel_mut() else { return };
        if !has_user && channel.unheard() >= SILENCE_MAX {
            // Only the outcome of a command that is over is waited for: it is asked for again when somebody is here, or there.
            channel.rest();
        }
        if channel.request_timed_out(self.now, nonce) {
            self.heard_nothing();
        }
    }

    pub(super) fn control_is_overdue(&mut self, serial: u64) {
        let has_user = self.has_user();
        let Some(channel) = self.sessions.channel_mut() else { return };
        if !has_user && channel.unheard() >= SILENCE_MAX {
            // Nobody here needs the answer: it is asked for again when somebody does, or when the server is heard.
            channel.rest();
        } else if channel.control_timed_out(serial) {
            self.heard_nothing();
        }
    }

    /// Datagrams leave from another address from now on. Until it has challenged the new address the server sends to the one proven last,
    /// so it is shown the new one at once, by a keep-alive, if the session is worth one.
    pub(super) fn moved(&mut self) {
        if let Some(channel) = self.sessions.channel_mut() {
            channel.address_changed(self.now);
        }
    }

    /// A timeout passed without a word.
    fn heard_nothing(&mut self) {
        let Some(channel) = self.sessions.channel_mut() else { return };
        if channel.heard_nothing() % SILENCE_BEFORE_MOVING == 0 && self.servers.len() > 1 {
            let next = (channel.address() + 1) % self.servers.len();
            channel.set_address(next, self.servers[next]);
        }
    }
}
