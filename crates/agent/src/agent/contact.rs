//! Contact with the server when nobody asks it anything: what the lease is worth in rest, what is done about silence, and whether the server
//! still holds the session (`wire-spec.md` 11.1, 11.6, 11.7).
//!
//! A lease that nothing opportunistic has renewed by the end of *valid* is renewed on purpose, lapses, or its session ends, by the idle policy;
//! this runs in the very turn that does the agent's work, so that a keep-alive says that the agent works. A hint, or silence while the lease
//! runs out, begins a handshake that continues the session: a server that holds it answers KNOWN, so asking is harmless, and keep-alives go on
//! meanwhile. None of it changes the session or its lease; only an answer in the session, a NACK, or OPENED of another session does. Timers
//! run only when the socket was found empty, so an answer that has arrived is never taken for silence.

use crate::agent::{Agent, Closing};
use crate::api::Phase;
use crate::call::Timer;
use crate::config::IdlePolicy;
use crate::lease::Renewal;
use crate::session::handshake::{Handshake, PAUSE_MAX};
use crate::stats::Dropped;
use crate::transport::{Channel, RTO_LONGEST};
use cistern_link::bugs::{self, Bug};
use cistern_link::{Path, Question};
use cistern_wire::Known;
use cistern_wire::limits::CALL;
use core::time::Duration;
use log::info;

/// RTO and its cap are at most this part of τ while something is held or in use, and the other part while nothing is.
const RTO_PART_HELD: u32 = 8;
const RTO_PART_FREE: u32 = 2;
/// After so many timeouts without a word from the server, an agent without a user sends nothing more by itself.
pub(super) const SILENCE_MAX: u32 = 24;
/// After so many timeouts without a word from the server, while the lease runs out, the session is verified.
const SILENCE_IN_DOUBT: u32 = 2;
/// So long after KNOWN the session is not verified again: this part of τ.
const KNOWN_PART: u32 = 4;
/// After so many timeouts without a word from the server its next address is tried.
const SILENCE_BEFORE_MOVING: u32 = 4;

/// What a lease that nothing has renewed is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worth {
    /// A keep-alive.
    Renewing,
    /// Nothing: it lapses, and what is held waits for the next answer.
    Lapsing,
    /// Nothing, and neither is what is held: the session ends.
    Ending,
}

/// The lease in rest.
impl Agent {
    /// Gives back cache locks that the bounds of the cache have made useless.
    pub(super) fn bound_cache(&mut self) {
        if self.sessions.channel().is_some() && self.reclaim.is_none() {
            self.cache.release_unused();
            self.settle();
        }
    }

    /// Whether a local user holds, waits, watches or runs something, or has made a file that goes with the session.
    pub(super) fn has_user(&self) -> bool {
        let counts = self.locks.counts();
        counts.holders > 0 || counts.waiters > 0 || self.tasks.count() > 0 || self.watches.has_users() || self.sessions.ephemerals() > 0
    }

    /// The same, or a request is out that outlives its command: a mutation whose outcome is not known.
    fn is_in_use(&self) -> bool {
        self.has_user() || self.reclaim.is_some() || self.sessions.channel().is_some_and(Channel::is_awaiting)
    }

    pub(super) fn renew_lease(&mut self) {
        let counts = self.locks.counts();
        let holds = self.cache.len() + counts.held > 0;
        let (has_user, in_use) = (self.has_user(), self.is_in_use());
        let valid_ends = self.lease.valid_ends().filter(|_| holds || in_use);
        let is_valid = self.lease.session_phase(self.now) == Phase::Valid;
        let worth = self.worth(in_use);
        let Some(channel) = self.sessions.channel_mut() else {
            self.timers.cancel(Timer::Phase);
            return;
        };
        //= wire-spec.md#11-2-delivery
        //# The RTO and its doubled values MUST be at most τ/8 while the agent holds locks.
        let held = (channel.tau() / RTO_PART_HELD).min(PAUSE_MAX);
        channel.set_rto_cap(if holds || in_use { held } else { RTO_LONGEST.min(channel.tau() / RTO_PART_FREE) });
        if has_user {
            channel.wake();
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# An agent whose own address has changed SHOULD send a keep-alive at once if it would renew its lease.
        let unseen = channel.is_moving() && worth == Worth::Renewing;
        if valid_ends.is_none() || is_valid && !unseen {
            channel.stop_keeping(&mut self.timers);
            return self.time(Timer::Phase, valid_ends, Question::LeaseOver);
        }
        match worth {
            Worth::Renewing => self.renew_on_purpose(),
            Worth::Lapsing => self.let_lapse(),
            Worth::Ending => self.end_idle_session(),
        }
    }

    fn worth(&self, in_use: bool) -> Worth {
        match self.config.idle {
            _ if in_use => Worth::Renewing,
            IdlePolicy::Eager => Worth::Renewing,
            IdlePolicy::Lazy => Worth::Lapsing,
            IdlePolicy::Auto if self.now.since(self.used) < self.config.idle_after => Worth::Renewing,
            IdlePolicy::Auto => Worth::Ending,
        }
    }

    /// Sends a keep-alive, unless something is about to go out, or has just gone out, whose answer renews as well (without opportunistic
    /// renewal nothing else does).
    fn renew_on_purpose(&mut self) {
        let asks = self.is_asking();
        let Some(channel) = self.sessions.channel_mut() else { return };
        if channel.is_dormant() || channel.is_keeping() {
            self.timers.cancel(Timer::Phase);
            return;
        }
        let asked = if asks { Some(self.now) } else { channel.last_asked() }.filter(|_| self.config.opportunistic);
        let answer_by = asked.map(|asked| asked.plus(channel.rto())).filter(|by| !self.now.waited(*by));
        if answer_by.is_none() {
            channel.keep_alive();
        }
        self.time(Timer::Phase, answer_by, Question::Waited);
    }

    fn let_lapse(&mut self) {
        //= wire-spec.md#11-1-lease
        //# The agent MUST keep what it holds over the end of its lease until it learns that the session has ended.
        self.timers.cancel(Timer::Phase);
        if let Some(channel) = self.sessions.channel_mut() {
            channel.stop_keeping(&mut self.timers);
        }
    }

    /// For how long a crowd of agents is spread, before a handshake that many may begin at the same moment.
    pub(super) fn spread(&mut self) -> Duration {
        let tau = self.sessions.channel().map_or(Duration::from_secs(2), Channel::tau);
        self.rng.jitter(tau / 32)
    }
}

/// Verification.
impl Agent {
    /// A hint has come that the server does not hold the session. It proves nothing: a handshake will tell.
    pub(super) fn hinted(&mut self, path: Path, echo: u64) -> bool {
        let Some(channel) = self.sessions.channel() else { return false };
        if echo == CALL {
            return self.called(path);
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# An agent MUST act on a HINT only if it echoes a packet that the agent sent and still remembers, or is a call (section 11.10).
        let Some(sent) = channel.sent_at(echo) else {
            return false;
        };
        if bugs::is(Bug::C5) {
            self.lease.renew(sent, Renewal::Explicit);
        }
        if self.closing != Closing::No {
            // Whether the server has forgotten the session or never knew it: there is nothing left to close.
            self.closed();
            return true;
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A HINT MUST NOT make an agent discard, release or surrender anything.
        if self.handshake.is_none() {
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

    /// A server says that it has taken over, and has the session in its store. Where that is so agents come at its pace, so this one at once.
    fn called(&mut self, path: Path) -> bool {
        let (Some(channel), Some(address)) = (self.sessions.channel(), self.servers.iter().position(|server| *server == path.remote))
        else {
            return false;
        };
        if self.closing != Closing::No || self.handshake.is_none() && self.is_too_soon() {
            return false;
        }
        if bugs::is(Bug::C5) {
            self.lease.renew(self.now, Renewal::Explicit);
        }
        if self.handshake.is_none() {
            self.not_before = Some(self.now.plus(channel.rto()));
            self.begin_handshake(None);
        }
        self.handshake.as_mut().is_some_and(|opening| opening.follow(address))
    }

    fn is_too_soon(&self) -> bool {
        self.not_before.is_some_and(|at| !self.now.waited(at))
    }

    /// The lease runs out, and the server is silent: it may have been started anew, and its hints been lost.
    pub(super) fn verify_if_silent(&mut self) {
        let Some(channel) = self.sessions.channel() else { return };
        let asking = channel.is_awaiting() || channel.is_keeping() || channel.is_confirming();
        let silent = asking && !channel.is_dormant() && channel.unheard() >= SILENCE_IN_DOUBT;
        // In a reclaim the lease of before runs out in any case; what is asked for then is asked in the session that was just opened.
        let runs_out = self.lease.session_phase(self.now) != Phase::Valid;
        if silent && runs_out && self.handshake.is_none() {
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
        self.begin_handshake(Some(begin));
    }

    /// KNOWN: the server holds the session. Only an answer in it can renew, so one is asked for where KNOWN came from.
    pub(super) fn known_is_said(&mut self, path: Path, known: &Known) {
        let own = self.sessions.present() == Some(known.session);
        let offer = self.handshake.as_mut().and_then(Handshake::offer).filter(|_| own);
        let Some(sent) = offer.and_then(|offer| offer.channel.sent_at(known.echo)) else {
            return self.dropped(Dropped::StrayHandshake);
        };
        // What was offered is not open, and never will be.
        self.handshake = None;
        self.timers.cancel(Timer::Handshake);
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

/// Timeouts.
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
