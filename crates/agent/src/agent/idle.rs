//! The lease in rest: what it is worth when nothing opportunistic has renewed it by the end of *valid*, by the idle policy.
//!
//! It is renewed on purpose, lapses, or its session ends. This runs in the very turn that does the agent's work, so that a keep-alive
//! says that the agent works. An agent that holds nothing and waits for nothing has no timer and sends nothing (`wire-spec.md` 11.1).

use crate::agent::Agent;
use crate::agent::opening::PAUSE_MAX;
use crate::api::Phase;
use crate::config::IdlePolicy;
use crate::timer::Timer;
use crate::transport::{Channel, RTO_LONGEST};
use cistern_link::Question;
use core::time::Duration;

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

/// RTO and its cap are at most this part of τ while something is held or in use, and the other part while nothing is.
const RTO_PART_HELD: u32 = 8;
const RTO_PART_FREE: u32 = 2;
/// After so many timeouts without a word from the server, an agent without a user sends nothing more by itself.
pub(super) const SILENCE_MAX: u32 = 24;

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
        counts.holders > 0 || counts.waiters > 0 || self.ops.count() > 0 || self.watches.has_users() || self.sessions.ephemerals() > 0
    }

    /// The same, or a request is out that outlives its command: a mutation whose outcome is not known.
    fn is_in_use(&self) -> bool {
        self.has_user() || self.reclaim.is_some() || self.sessions.channel().is_some_and(Channel::is_awaiting)
    }

    pub(super) fn tend_lease(&mut self) {
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
