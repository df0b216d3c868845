//! Doubt: whether the server still knows the present session.
//!
//! Decides when the agent begins a handshake although it has a session: a hint says that the server does not know it, or the server
//! is silent while the lease runs out. Place in the walk: `incoming` comes here with a HINT, `Agent::tend` looks for silence.
//! Implements `wire-spec.md` sections 11.6 (hints) and 11.7. Invariant: doubt changes nothing of the session; only the authenticated
//! answer, or a NACK, does (R37, R86).
//! Leaves to others: the handshake (`opening`), what becomes of the session (`reclaim`, `recovery`).

use crate::agent::{Agent, Closing};
use crate::opening::Cause;
use cistern_link::Instant;

impl Agent {
    /// A hint has come that the server does not know the session. It proves nothing: a handshake will tell (R37, R86).
    pub(crate) fn hinted(&mut self, echo: u64) -> bool {
        let Some(session) = &self.session else { return false };
        let soon = self.not_before.is_some_and(|at| !self.now.waited(at));
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# An agent MUST act on a HINT only if it echoes a packet that the agent sent and still remembers.
        if session.sent_at(echo).is_none() || soon {
            return false;
        }
        if self.closing != Closing::No {
            // Whether the server has forgotten the session or never knew it: there is nothing left to close.
            self.closed();
            return true;
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A HINT MUST NOT make an agent discard, release or surrender anything.
        if self.opening.is_none() {
            let rto = session.rtt.rto();
            let spread = self.spread();
            let begin: Instant = self.now.plus(spread);
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# An agent MUST NOT start handshakes for hints faster than once in an RTO.
            self.not_before = Some(begin.plus(rto));
            self.begin_opening(Some(begin), Cause::Hint);
        }
        true
    }
}
