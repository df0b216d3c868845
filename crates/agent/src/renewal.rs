//! The agent's timers: keeping the lease, and sending again.
//!
//! Decides: what happens at the end of *valid* by the idle policy (R21), and when something is sent again. A keep-alive is decided
//! here, in the turn that does the agent's work, so an agent that does not work sends none.
//! Implements `wire-spec.md` sections 11.1 and 11.2. Place in the walk: `handle_drained`, after everything that arrived was taken in.
//! Invariant: an idle agent that holds nothing has no timer and sends nothing.
//! Leaves to others: the lease itself, what is sent (`transmit`).

use crate::agent::{Agent, Closing, Fates, Timer};
use crate::api::{OpError, OpId};
use crate::config::IdlePolicy;
use crate::control::Control;
use crate::port::TaskId;
use cistern_link::Question;

/// END_SESSION is sent so often; then the lease ends what the server still has.
const CLOSE_TRIES: u32 = 8;

impl Agent {
    pub(crate) fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Opening => {
                if let Some(opening) = &mut self.opening {
                    opening.expired();
                }
            }
            Timer::Request(nonce) => self.request_expired(nonce),
            Timer::Control(serial) => self.control_expired(serial),
            Timer::Renew => self.renew_or_rest(),
            // `look_at_lease` runs in every turn; here only the next phase is waited for.
            Timer::Phase => {}
            Timer::GiveUp(task) => self.give_up_or_go_on(task),
            Timer::Silence => self.silence(),
        }
    }

    fn request_expired(&mut self, nonce: u64) {
        let Some(session) = &mut self.session else { return };
        let Some(pending) = session.requests.expired(nonce) else { return };
        if pending.executing {
            // Nothing was lost: the server is asked how far it is.
            return;
        }
        pending.lost();
        let (last_sent, limit) = (pending.last_sent, pending.limit);
        session.congestion.on_loss(self.now, last_sent);
        log::trace!("agent {}: request {nonce} is sent again, answers up to {limit} bytes", self.identity.agent);
    }

    fn control_expired(&mut self, serial: u64) {
        let Some(session) = &mut self.session else { return };
        let tries = session.controls.get(serial).map_or(0, |outgoing| outgoing.sent);
        if self.closing == Closing::Asked && tries >= CLOSE_TRIES {
            self.closing = Closing::Closed;
            return;
        }
        session.controls.expired(serial);
    }

    /// *valid* has ended without a renewal.
    fn renew_or_rest(&mut self) {
        if self.closing != Closing::No {
            return;
        }
        let worth = self.worth_renewing();
        let lazy = self.config.idle == IdlePolicy::Lazy;
        let Some(session) = &mut self.session else { return };
        if worth {
            if session.controls.keep_alive().is_none() {
                session.controls.push(Control::KeepAlive);
            }
        } else if !lazy && self.locks.any() {
            // Going silent: what is not needed goes back first, so that nobody has to wait for this lease.
            self.locks.local.give_back_unused();
            if self.locks.cache_count() > 0 {
                let up_to = self.forget_cached();
                if let Some(session) = &mut self.session {
                    session.controls.push(Control::ReleaseAll(up_to));
                }
            }
        }
    }

    /// The lease was renewed: a keep-alive that is still out has become superfluous.
    pub(crate) fn after_renewal(&mut self) {
        if let Some(session) = &mut self.session
            && let Some(serial) = session.controls.keep_alive()
            && self.lease.phase_end(0).is_some_and(|end| !self.now.lease_over(end))
        {
            session.controls.answered(serial);
            self.timers.cancel(Timer::Control(serial));
        }
        self.timers.cancel(Timer::Renew);
        self.timers.cancel(Timer::Phase);
        self.with_hall(|local, hall| local.look_at_lease(hall));
    }

    /// Sets the timers of the lease, if something depends on it.
    pub(crate) fn plan_renewal(&mut self) {
        if self.closing != Closing::No || self.session.is_none() {
            return;
        }
        let lapsed = !self.lease.usable(self.now);
        let keeps = self.locks.any() || self.in_use();
        if keeps && self.timers.get(Timer::Renew).is_none() {
            let due = self.lease.phase_end(0).filter(|end| !self.now.lease_over(*end));
            match due {
                Some(end) => self.timers.set(Timer::Renew, end, Question::LeaseOver),
                // Past *valid*: whoever starts to use something now gets the lease renewed at once.
                None if self.in_use() || !lapsed => self.renew_if_in_use(),
                None => {}
            }
        }
        if self.locks.local.holders() > 0 && self.timers.get(Timer::Phase).is_none() {
            let ends = [self.lease.phase_end(1), self.lease.expiry()];
            let next = ends.into_iter().flatten().find(|end| !self.now.lease_over(*end));
            if let Some(end) = next {
                self.timers.set(Timer::Phase, end, Question::LeaseOver);
            }
        }
    }

    fn renew_if_in_use(&mut self) {
        let in_use = self.in_use();
        if let Some(session) = &mut self.session
            && in_use
            && session.requests.is_empty()
            && session.controls.is_empty()
        {
            session.controls.push(Control::KeepAlive);
        }
    }

    /// A command has run for long: it goes on as long as the server is heard.
    fn give_up_or_go_on(&mut self, task: TaskId) {
        let op = OpId(task.0);
        let waits = self.locks.local.waits(op);
        let runs = self.locks.local.is_waiting(op) || self.ops.is_running(task);
        if !runs {
            return;
        }
        let heard = self.session.as_ref().map(|session| session.heard.plus(self.config.give_up_after));
        match heard.filter(|until| !self.now.waited(*until)) {
            Some(until) => self.timers.set(Timer::GiveUp(task), until, Question::Waited),
            // Who waits in line for a lock waits for other agents, as long as it has to.
            None if waits => self.timers.set(Timer::GiveUp(task), self.now.plus(self.config.give_up_after), Question::Waited),
            None => {
                let error = self.trouble.unwrap_or(OpError::Unreachable);
                self.end_command(task, error);
                if !self.needs_session() && self.ops.running().next().is_none() && self.locks.local.waiting() == 0 {
                    self.opening = None;
                    self.timers.cancel(Timer::Opening);
                }
            }
        }
    }

    /// The server was silent for long, and nobody waits for it: what is outstanding is given up, and the session with it.
    fn silence(&mut self) {
        let Some(session) = &self.session else { return };
        let outstanding = !session.requests.is_empty() || !session.controls.is_empty();
        let until = session.heard.plus(self.config.give_up_after * 2);
        if !outstanding {
            return;
        }
        if self.locks.local.waiting() > 0 || self.locks.local.holders() > 0 || self.ops.running().next().is_some() {
            self.timers.set(Timer::Silence, self.now.plus(self.config.give_up_after), Question::Waited);
        } else if self.now.waited(until) {
            self.end_session("the server was silent for too long", &Fates::new());
        } else {
            self.timers.set(Timer::Silence, until, Question::Waited);
        }
    }
}
