//! Verification: whether the server still holds the present session (`wire-spec.md` 11.6, 11.7).
//!
//! A hint says that the server does not hold it, or the server is silent while the lease runs out: then a handshake asks that continues the
//! session. A server that holds it answers KNOWN, so asking is harmless, and keep-alives go on meanwhile. Nothing here changes the session or
//! its lease; only an answer in the session, a NACK, or WELCOME of another session does.

use crate::agent::{Agent, Closing};
use crate::api::Phase;
use crate::lease::Renewal;
use crate::stats::Dropped;
use crate::timer::Timer;
use crate::transport::Channel;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Path, Question};
use cistern_wire::Known;
use log::info;

/// After so many timeouts without a word from the server, while the lease runs out, the session is verified.
const SILENCE_IN_DOUBT: u32 = 2;
/// So long after KNOWN the session is not verified again: this part of τ.
const KNOWN_PART: u32 = 4;

impl Agent {
    /// A hint has come that the server does not hold the session. It proves nothing: a handshake will tell.
    pub(super) fn hinted(&mut self, echo: u64) -> bool {
        let Some(channel) = self.sessions.channel() else { return false };
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# An agent MUST act on a HINT only if it echoes a packet that the agent sent and still remembers.
        if channel.sent_at(echo).is_none() {
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
            self.verify();
        } else if !self.is_too_soon() {
            let (rto, begin) = (channel.rto(), self.now.plus(self.spread()));
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# An agent MUST NOT start handshakes for hints faster than once in an RTO.
            self.not_before = Some(begin.plus(rto));
            if self.timers.get(Timer::Handshake).is_some_and(|at| at.waited(begin)) {
                self.time(Timer::Handshake, Some(begin), Question::Waited);
            }
        }
        true
    }

    fn is_too_soon(&self) -> bool {
        self.not_before.is_some_and(|at| !self.now.waited(at))
    }

    /// The lease runs out, and the server is silent: it may have been started anew, and its hints been lost.
    pub(super) fn doubt_silence(&mut self) {
        let Some(channel) = self.sessions.channel() else { return };
        let asking = channel.is_awaiting() || channel.is_keeping();
        let silent = asking && !channel.is_dormant() && channel.unheard() >= SILENCE_IN_DOUBT;
        // In a reclaim the lease of before runs out in any case; what is asked for then is asked in the session that was just opened.
        let runs_out = self.lease.session_phase(self.now) != Phase::Valid;
        if silent && runs_out && self.opening.is_none() {
            self.verify();
        }
    }

    /// Asks, by a handshake that continues the session, whether the server holds it.
    fn verify(&mut self) {
        let Some(rto) = self.sessions.channel().map(Channel::rto) else { return };
        //= wire-spec.md#11-7-restart-and-recovery
        //# Handshakes after a restart SHOULD be spread at random, and begin early enough to end within τ.
        let spread = self.spread();
        let begin = self.not_before.filter(|_| self.is_too_soon()).unwrap_or(self.now).plus(spread);
        self.not_before = Some(begin.plus(rto));
        self.begin_opening(Some(begin));
    }

    /// KNOWN: the server holds the session. Only an answer in it can renew, so one is asked for where KNOWN came from.
    pub(super) fn is_known(&mut self, path: Path, known: &Known) {
        let own = self.sessions.channel().is_some_and(|channel| channel.session() == known.session);
        let Some((_, sent)) = self.answer_to(known.handshake, known.echo).filter(|_| own) else {
            return self.dropped(Dropped::StrayHandshake);
        };
        self.stop_opening();
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# KNOWN MUST NOT renew a lease, move or prove an address, retire a request, stand for a receipt, or rescue or end a session.
        if bugs::is(Bug::H2) {
            self.lease.renew(sent, Renewal::Explicit);
        }
        let one_sided = self.lease.session_phase(self.now) == Phase::Expired;
        self.server_is_at(path);
        let Some(channel) = self.sessions.channel_mut() else { return };
        if one_sided {
            info!("{}: the server at {} holds session {}, but nothing is heard in it", self.who, path.remote, channel.session());
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# After KNOWN an agent MUST NOT verify the session again before τ/4 has passed.
        self.not_before = Some(self.now.plus(channel.tau() / KNOWN_PART));
        channel.keep_alive();
        channel.hurry();
    }
}
