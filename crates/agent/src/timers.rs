//! Deadlines: what is done when one has passed.
//!
//! Decides by one arm for each timer of the agent and of its session. Place in the walk: `Agent::handle_drained`, when the socket was
//! found empty, so that an answer that has arrived is never taken for silence. Implements `wire-spec.md` sections 11.1 and 11.2.
//! Invariant: what is sent again is sent with back-off, by the server's other addresses when one stays silent.
//! Leaves to others: setting the timers (whoever waits), sending (`outgoing`).

use crate::agent::{Agent, Timer};
use crate::api::OpError;
use crate::idle::SILENCE_MAX;
use crate::requests;
use crate::session::Overdue;
use cistern_link::Path;

/// After so many timeouts without a word from the server its next address is tried.
const SILENCE_BEFORE_MOVING: u32 = 4;

impl Agent {
    /// Does what is due.
    pub(crate) fn run_timers(&mut self) {
        while let Some(timer) = self.timers.due(self.now) {
            match timer {
                Timer::Handshake => self.hello_is_due(),
                // All are looked after once in each turn, which follows.
                Timer::Phase | Timer::Holders | Timer::Watches | Timer::Reclaim => {}
                Timer::Remains(session) => self.remains_due(session),
                Timer::Again(asker) => self.ask_again(asker),
                Timer::GiveUp => self.give_up_commands(),
                Timer::Closing => self.closed(),
                Timer::Limit(op) => self.end_command(op, OpError::TimedOut),
                Timer::Wait(op) => self.wait_is_over(op),
                Timer::Rest(object) => self.locks.rested(self.permit(), object),
            }
            self.settle();
        }
        while let Some(overdue) = self.session.as_mut().and_then(|session| session.timers.due(self.now)) {
            match overdue {
                Overdue::Request(nonce) => self.request_is_overdue(nonce),
                Overdue::Control(serial) => self.control_is_overdue(serial),
            }
        }
        if self.ops.wake_after(self.now).is_some_and(|span| span.is_zero()) {
            self.with_ops(|ops, ctx| ops.handle_time(ctx));
            self.settle();
        }
    }

    fn request_is_overdue(&mut self, nonce: u64) {
        let has_user = self.has_user();
        let Some(session) = &mut self.session else { return };
        // Only the outcome of a command that is over is waited for: it is asked for again when somebody is here, or there.
        session.dormant |= !has_user && session.silence >= SILENCE_MAX;
        let (what, lost) = session.requests.overdue(nonce, self.now);
        if what == requests::Overdue::TakeBack {
            session.controls.cancel(nonce);
        }
        if lost {
            self.heard_nothing();
        }
    }

    fn control_is_overdue(&mut self, serial: u64) {
        let has_user = self.has_user();
        let Some(session) = &mut self.session else { return };
        if !has_user && session.silence >= SILENCE_MAX {
            // Nobody here needs the answer: it is asked for again when somebody does, or when the server is heard.
            session.dormant = true;
        } else if session.controls.overdue(serial) {
            self.heard_nothing();
        }
    }

    /// A timeout passed without a word.
    fn heard_nothing(&mut self) {
        let Some(session) = &mut self.session else { return };
        session.silence = session.silence.saturating_add(1);
        if session.silence % SILENCE_BEFORE_MOVING == 0 && self.servers.len() > 1 {
            session.address = (session.address + 1) % self.servers.len();
            session.path = Path::to(self.servers[session.address]);
        }
    }
}
