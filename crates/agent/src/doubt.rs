//! Doubt: whether the server still knows the present session.
//!
//! Decides when the agent begins a handshake although it has a session: a hint says that the server does not know it, or the server
//! is silent while the lease runs out. Place in the walk: `incoming` comes here with a HINT, `Agent::tend` looks for silence.
//! Implements `wire-spec.md` sections 11.6 (hints) and 11.7. Invariant: doubt changes nothing of the session; only the authenticated
//! answer, or a NACK, does (R37, R86).
//! Leaves to others: the handshake (`opening`), what becomes of the session (`reclaim`, `recovery`).

use crate::agent::{Agent, Closing, Timer};
use crate::api::Phase;
use crate::opening::Cause;
use cistern_link::{Instant, Question};

/// After so many timeouts without a word from the server, while the lease runs out, a handshake is begun.
const SILENCE_IN_DOUBT: u32 = 2;

impl Agent {
    /// A hint has come that the server does not know the session. It proves nothing: a handshake will tell (R37, R86).
    pub(crate) fn hinted(&mut self, echo: u64) -> bool {
        let Some(session) = &self.session else { return false };
        let probing = self.opening.as_ref().is_some_and(|opening| opening.cause == Cause::Silence);
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# An agent MUST act on a HINT only if it echoes a packet that the agent sent and still remembers.
        if session.sent_at(echo).is_none() {
            return false;
        }
        if self.closing != Closing::No {
            // Whether the server has forgotten the session or never knew it: there is nothing left to close.
            self.closed();
            return true;
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A HINT MUST NOT make an agent discard, release or surrender anything.
        if let Some(opening) = self.opening.as_mut().filter(|_| probing) {
            opening.cause = Cause::Hint;
            opening.due = true;
        } else if self.opening.is_none() {
            let rto = session.rtt.rto();
            let spread = self.spread();
            let begin: Instant = self.not_before.filter(|_| self.is_too_soon()).unwrap_or(self.now).plus(spread);
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# An agent MUST NOT start handshakes for hints faster than once in an RTO.
            self.not_before = Some(begin.plus(rto));
            self.begin_opening(Some(begin), Cause::Hint);
        }
        true
    }

    fn is_too_soon(&self) -> bool {
        self.not_before.is_some_and(|at| !self.now.waited(at))
    }

    /// The lease runs out, and the server is silent: it may have been started anew, and its hints been lost.
    pub(crate) fn doubt_silence(&mut self) {
        let Some(session) = &self.session else { return };
        let asking = session.requests.len() > 0 || session.controls.is_keeping();
        let silent = asking && !session.dormant && session.silence >= SILENCE_IN_DOUBT;
        // In a reclaim the lease of before runs out in any case; what is asked for then is asked in the session that was just opened.
        let runs_out = self.session_lease().phase(self.now) != Phase::Valid;
        if !silent || !runs_out || self.opening.is_some() || self.is_too_soon() {
            return;
        }
        //= wire-spec.md#11-7-restart-and-recovery
        //# Handshakes after a restart SHOULD be spread at random, and begin early enough to end within τ.
        let rto = session.rtt.rto();
        let spread = self.spread();
        let begin = self.now.plus(spread);
        self.not_before = Some(begin.plus(rto));
        self.begin_opening(Some(begin), Cause::Silence);
    }

    /// The server is there after all, and has not said anything of the session: it has one more timeout to do so.
    pub(crate) fn ask_once_more(&mut self) {
        let Some(session) = &mut self.session else { return };
        session.controls.keep_alive();
        session.controls.wake();
        let by = self.now.plus(session.rtt.rto());
        self.time(Timer::Handshake, Some(by), Question::Waited);
    }

    /// The server knows the session. Also when HELLO has gone out with a cookie: had that arrived, the server would not say so; it was lost,
    /// and another one would only cost a session that lives.
    pub(crate) fn is_known(&mut self) {
        if self.opening.as_ref().is_some_and(|opening| opening.cause == Cause::Silence) {
            self.stop_opening();
        }
    }
}
