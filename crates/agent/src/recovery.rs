//! Ends: of a session, whatever ended it, and of the agent.
//!
//! Decides what becomes of everything that belonged to the session: holders are told by name what they lost, the cache is dropped,
//! each request is answered by what is known of it (R4, R23), and those who still want something get it in the next session.
//! Place in the walk: `incoming` comes here with a NACK before anything else of its datagram acts (R12); `opening` with a WELCOME that
//! takes the session's place. Implements `wire-spec.md` section 11.3.
//! Invariant: after it nothing of the session renews, is used or is installed, in whatever order messages arrive (R8).
//! Leaves to others: opening the next session (`opening`).

use crate::agent::{Agent, Closing, Timer};
use crate::api::{Event, HolderId, LockEvent, OpError};
use crate::requests::Requests;
use crate::session::Session;
use crate::surrender::Remains;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_link::Question;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Fate, Messages, NackReason, Reply};
use log::{info, warn};

impl Agent {
    /// Looks for a NACK of this session among the messages of a datagram, and ends the session if there is one. Whether there was.
    pub(crate) fn take_nacks(&mut self, messages: Messages<'_>) -> bool {
        let Some(session) = &self.session else { return false };
        let id = session.id;
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
        // A verification that has asked nothing yet waits for longer than a session that is wanted may.
        if self.opening.as_ref().is_some_and(|opening| !opening.has_asked()) {
            self.stop_opening();
        }
        self.session_over(why, &fates, &results);
        self.have_ended(|session| reason == NackReason::Ended && session == id);
        true
    }

    /// The session is over: everything of it goes, everybody concerned is told. Without a session nothing happens.
    pub(crate) fn session_over(&mut self, why: &'static str, fates: &BTreeMap<u64, Fate>, results: &[(u64, Reply<'_>)]) {
        //= wire-spec.md#11-3-failure-and-ending
        //# After an accepted NACK the agent MUST NOT renew the session, use what it holds under it, or install anything of it, in whatever
        //# order messages arrive.
        let Some(session) = self.session.take() else { return };
        let lost = self.locks.counts().holders;
        let id = session.id;
        if lost > 0 {
            warn!("{}: session {id} is over, {lost} locks in use are lost: {why}", self.who);
        } else {
            info!("{}: session {id} is over: {why}", self.who);
        }
        let requests = self.bury(session);
        self.lease.close();
        self.own_ephemerals.clear();
        self.timers.cancel(Timer::Phase);
        // Requests for locks are made anew for those who wait; what operations have not sent yet is sent in the next session.
        self.asks.clear();
        self.recovery.clear();
        self.watches_are_over();
        self.wait_anew();
        //= wire-spec.md#11-7-restart-and-recovery
        //# A renewing answer MUST make usable only locks of its own session.
        self.lose_locks();
        self.settle();
        self.tend_holders();
        self.remember_mutations(id, &requests, fates, results);
        self.ops.discard_all(&mut self.cache, &self.out);
        self.ops.go_on(&mut self.cache, self.questions.values().copied());
        self.close_requests(id, requests, fates, results);
        self.settle();
        self.events.push_back(Event::SessionEnded { session: id, why });
    }

    /// All locks are gone; their holders hear so before anybody else can have one of them.
    fn lose_locks(&mut self) {
        //= wire-spec.md#11-3-failure-and-ending
        //# The agent MUST tell its users by name which locks they have lost when a session ends.
        self.cache.session_over();
        let lost = self.locks.session_over(self.permit());
        self.events.reserve(lost.len());
        self.events.extend(lost.into_iter().map(|(holder, object)| Event::Lock { holder, object, what: LockEvent::Lost }));
    }

    /// Keeps what is left of a session that is over, and of those that were being reclaimed in it; gives its requests.
    fn bury(&mut self, session: Session) -> Requests {
        let until = self.lease.valid_until();
        let mut holders: BTreeSet<HolderId> = self.locks.holders().keys().copied().collect();
        if let Some(mut reclaim) = self.reclaim.take() {
            self.timers.cancel(Timer::Reclaim);
            holders.append(&mut reclaim.stopping);
            // Its counts are the newer ones.
            self.lease = reclaim.lease.next();
            for remains in reclaim.into_remains() {
                self.leave_behind(remains.used_by(&holders, until));
            }
        }
        let (remains, requests) = Remains::of(session);
        self.leave_behind(remains.used_by(&holders, until));
        requests
    }

    /// Gives everything up, and asks the server to end the session: now, if nobody here can act under it any more, and otherwise as a
    /// surrender, when the last of them has stopped or the instant shown to it has passed.
    pub(crate) fn begin_close(&mut self) {
        self.closing = Closing::Asked;
        let in_use = self.locks.counts().holders > 0 || self.reclaim.as_ref().is_some_and(|reclaim| !reclaim.stopping.is_empty());
        if let Some(session) = self.session.take_if(|_| in_use) {
            self.leaving = Some(session.id);
            self.bury(session);
        }
        self.stop_opening();
        self.end_all_commands(OpError::Closed);
        self.stop_wondering(None);
        self.reclaim = None;
        self.asks.clear();
        self.recovery.clear();
        self.lose_locks();
        self.settle();
        self.asks.clear();
        self.out.clear();
        self.ops.discard_all(&mut self.cache, &self.out);
        self.lease.close();
        self.tend_holders();
        for timer in [Timer::Phase, Timer::GiveUp, Timer::Reclaim, Timer::Watches] {
            self.timers.cancel(timer);
        }
        if self.leaving.is_some() && self.config.surrender {
            self.time(Timer::Closing, Some(self.now.plus(self.config.close_within)), Question::Waited);
            return self.tend_leaving();
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

    /// Closing waits for those who may still act under the session, and then for the end of it.
    pub(crate) fn tend_leaving(&mut self) {
        let Some(leaving) = self.leaving else { return };
        self.tend_remains();
        if !self.former.iter().any(|remains| remains.session == leaving) {
            self.closed();
        }
    }

    /// The session has ended as asked, or will end by itself.
    pub(crate) fn closed(&mut self) {
        if self.closing == Closing::Asked {
            self.closing = Closing::Done;
            self.timers.cancel(Timer::Closing);
            if let Some(session) = self.session.take().map(|session| session.id).or(self.leaving.take()) {
                self.events.push_back(Event::SessionEnded { session, why: "the agent has closed it" });
            }
        }
    }
}
