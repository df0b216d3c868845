//! Ends: of a session, whatever ended it, and of the agent.
//!
//! Decides what becomes of everything that belonged to the session: holders are told by name what they lost, the cache is dropped,
//! each request is answered by what is known of it (R4, R23), and those who still want something get it in the next session.
//! Place in the walk: `incoming` comes here with a NACK before anything else of its datagram acts (R12); `opening` with a WELCOME that
//! takes the session's place. Implements `wire-spec.md` section 11.3.
//! Invariant: after it nothing of the session renews, is used or is installed, in whatever order messages arrive (R8).
//! Leaves to others: opening the next session (`opening`).

use crate::agent::{Agent, Closing, Timer};
use crate::api::{Event, OpError};
use crate::port::Answer;
use crate::requests::Asker;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, Question};
use cistern_wire::limits::FORMER_MAX;
use cistern_wire::{Claim, Fate, FormerClaim, Messages, NackReason, Reply};
use log::{info, warn};

impl Agent {
    /// Looks for a NACK of this session among the messages of a datagram, and ends the session if there is one. Whether there was.
    pub(crate) fn take_nacks(&mut self, messages: Messages<'_>) -> bool {
        let Some(session) = &self.session else { return false };
        let mut fates = BTreeMap::new();
        let mut results = Vec::new();
        let mut refused = None;
        for message in messages {
            match message {
                cistern_wire::Message::Nack(nack) if session.was_sent(nack.echo) => {
                    refused = Some(nack.reason);
                    if nack.nonce != 0 {
                        fates.insert(nack.nonce, nack.fate);
                    }
                }
                cistern_wire::Message::Result(result) => results.push((result.nonce, result.reply)),
                _ => {}
            }
        }
        let Some(reason) = refused.filter(|_| !bugs::is(Bug::M12)) else { return false };
        self.stats.nacks += 1;
        if self.closing != Closing::No {
            self.closed();
            return true;
        }
        let why = match reason {
            NackReason::TimingOut => "the server could not deliver a message to this agent in time, and takes its locks back",
            NackReason::Ended => "the server has ended it",
        };
        let spread = self.spread();
        self.not_before = Some(self.now.plus(spread));
        self.session_over(why, &fates, &results);
        if reason == NackReason::Ended {
            self.former.pop();
        }
        true
    }

    /// The session is over: everything of it goes, everybody concerned is told. Without a session nothing happens.
    pub(crate) fn session_over(&mut self, why: &'static str, fates: &BTreeMap<u64, Fate>, results: &[(u64, Reply<'_>)]) {
        //= wire-spec.md#11-3-failure-and-ending
        //# After an accepted NACK the agent MUST NOT renew the session, use what it holds under it, or install anything of it, in whatever
        //# order messages arrive.
        let Some(session) = self.session.take() else { return };
        let lost = self.locks.counts().holders;
        if lost > 0 {
            warn!("{}: session {} is over, {lost} locks in use are lost: {why}", self.who, session.id);
        } else {
            info!("{}: session {} is over: {why}", self.who, session.id);
        }
        self.lease.close();
        self.timers.cancel(Timer::Phase);
        self.former.push(FormerClaim { session: session.id, claim: Claim::Unknown });
        self.former.drain(..self.former.len().saturating_sub(FORMER_MAX));
        // Requests for locks are made anew for those who wait; what operations have not sent yet is sent in the next session.
        self.asks.clear();
        //= wire-spec.md#11-7-restart-and-recovery
        //# A renewing answer MUST make usable only locks of its own session.
        self.locks.session_over(self.now, &self.lease);
        self.settle();
        self.tend_holders();
        self.ops.discard_all(&self.out);
        for (nonce, flight) in session.requests.into_flights() {
            let Asker::Op(task, call) = flight.asker else { continue };
            let result = results.iter().find(|result| result.0 == nonce).map(|result| result.1);
            let answer = match (result, fates.get(&nonce)) {
                (Some(reply), _) => Answer::Result(Some(reply)),
                (None, Some(Fate::Executed)) => Answer::Result(None),
                (None, fate) => Answer::SessionEnded(fate.copied().unwrap_or(Fate::Unknown)),
            };
            self.with_ops(|ops, ctx| ops.answer(ctx, task, call, &answer));
        }
        self.settle();
        self.events.push_back(Event::SessionEnded { session: session.id, why });
    }

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
            self.begin_opening(Some(begin));
        }
        true
    }

    /// Gives everything up, and asks the server to end the session.
    pub(crate) fn begin_close(&mut self) {
        self.closing = Closing::Asked;
        self.stop_opening();
        self.end_all_commands(OpError::Closed);
        self.asks.clear();
        self.locks.session_over(self.now, &self.lease);
        self.settle();
        self.asks.clear();
        self.out.clear();
        self.ops.discard_all(&self.out);
        self.lease.close();
        self.tend_holders();
        for timer in [Timer::Phase, Timer::GiveUp] {
            self.timers.cancel(timer);
        }
        let Some(session) = &mut self.session else { return self.closed() };
        for nonce in session.requests.awaited() {
            session.forget_request(nonce);
        }
        session.cancels.clear();
        session.controls.only_end();
        session.dormant = false;
        self.time(Timer::Closing, Some(self.now.plus(self.config.close_within)), Question::Waited);
    }

    /// The session has ended as asked, or will end by itself.
    pub(crate) fn closed(&mut self) {
        if self.closing == Closing::Asked {
            self.closing = Closing::Done;
            self.timers.cancel(Timer::Closing);
            if let Some(session) = self.session.take() {
                self.events.push_back(Event::SessionEnded { session: session.id, why: "the agent has closed it" });
            }
        }
    }
}
