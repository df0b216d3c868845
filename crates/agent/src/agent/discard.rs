//! Ends: of a session, whatever ended it, and of the agent (`wire-spec.md` 11.3).
//!
//! Holders are told by name what they lost, the cache is dropped, each request is answered by what is known of it, and those who still want
//! something get it in the next session. After that nothing of the session renews, is used or is installed, in whatever order messages
//! arrive.

use crate::agent::recovery::Fates;
use crate::agent::{Agent, Closing};
use crate::api::{Event, HolderId, LockEvent, OpError};
use crate::call::Timer;
use crate::session::reclaim::Source;
use crate::session::{SessionState, Users};
use crate::stats::Dropped;
use crate::transport::{Cx, Flights};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Path, Question};
use cistern_wire::{Kind, Message, Messages, NackReason, SessionId};
use log::{debug, info, warn};

impl Agent {
    /// Looks for a NACK of this session among the messages of a datagram, and ends the session if there is one. Whether there was.
    pub(super) fn take_nacks(&mut self, messages: Messages<'_>) -> bool {
        let Some(channel) = self.sessions.channel() else { return false };
        let id = channel.session();
        let mut fates = Fates::default();
        let mut refused = None;
        for raw in messages.raw().filter(|raw| matches!(raw.kind, Kind::Nack | Kind::Result)) {
            match raw.decode() {
                Some(Message::Nack(nack)) if channel.was_sent(nack.echo) => {
                    refused = Some(nack.reason);
                    if nack.nonce != 0 {
                        fates.by_nonce.insert(nack.nonce, nack.fate);
                    }
                }
                Some(Message::Result(result)) => fates.results.push((result.nonce, result.reply)),
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
        if self.handshake.as_ref().is_some_and(|opening| opening.sent() == 0) {
            self.end_handshake();
        }
        self.session_over(why, &fates);
        self.sessions.ended(&mut self.timers, |session| reason == NackReason::Ended && session == id);
        true
    }

    /// The session is over: everything of it goes, everybody concerned is told. Without a session nothing happens.
    pub(super) fn session_over(&mut self, why: &'static str, fates: &Fates<'_>) {
        let lost = self.locks.counts().holders;
        let Some(id) = self.discard(Exit::Lost, fates) else { return };
        if lost > 0 {
            warn!("{}: session {id} is over, {lost} locks in use are lost: {why}", self.who);
        } else {
            info!("{}: session {id} is over: {why}", self.who);
        }
        self.events.push_back(Event::SessionEnded { session: id, why });
    }

    /// Nothing of the session was used for a while, and nobody waits for it: it ends, with all that is held in it. The next command
    /// opens another.
    pub(super) fn end_idle_session(&mut self) {
        let Some(id) = self.sessions.present() else { return };
        self.session_over("nothing was used for a while", &Fates::default());
        self.sessions.end(id);
    }

    /// The only way out of *open*. Gives the session that was left, if there was one.
    pub(super) fn discard(&mut self, exit: Exit, fates: &Fates<'_>) -> Option<SessionId> {
        //= wire-spec.md#11-3-failure-and-ending
        //# After an accepted NACK the agent MUST NOT renew the session, use what it holds under it, or install anything of it, in whatever
        //# order messages arrive.
        let id = self.sessions.present()?;
        // It was asked for in place of the one that is left.
        self.start_over();
        self.timers.cancel_where(Timer::is_of_session);
        let flights = match exit {
            Exit::Source => {
                let flights = self.sessions.shut(SessionState::Source(Source::default()))?;
                self.lease.hold_over();
                self.reclaim.get_or_insert_default().restart(&mut self.sessions);
                flights
            }
            Exit::Lost => {
                let flights = self.sessions.shut(SessionState::Lost)?;
                self.lose_sources(Some(id));
                flights
            }
            Exit::Closing => {
                let flights = self.sessions.close()?;
                self.lose_sources(None);
                flights
            }
        };
        self.on_discarded(id, exit, flights, fates);
        Some(id)
    }

    /// What the end of a session leads to, whatever ended it.
    fn on_discarded(&mut self, id: SessionId, exit: Exit, flights: Flights, fates: &Fates<'_>) {
        let keeps_locks = exit == Exit::Source;
        // Requests for locks are made anew for those who wait; what operations have not sent yet is sent in the next session.
        self.queue.session_over();
        if !keeps_locks {
            self.lease.close();
            self.timers.cancel(Timer::Phase);
        }
        let certain = self.lease.certain(self.now);
        self.with_watches(|watches| {
            watches.session_over();
            watches.lease_changed(certain);
        });
        self.wait_anew();
        self.remember_mutations(id, &flights, fates);
        //= wire-spec.md#11-7-restart-and-recovery
        //# A renewing answer MUST make usable only locks of its own session.
        if keeps_locks {
            //= wire-spec.md#11-7-restart-and-recovery
            //# What the agent has begun to release or convert MUST NOT be among its reclaims.
            self.cache.change_session();
            self.locks.change_session(self.permit());
        } else {
            self.lose_locks();
        }
        self.settle();
        if keeps_locks {
            self.divide_locks(id);
        } else {
            self.tell_holders();
            self.tasks.discard_all(&mut self.cache, &self.queue.tasks);
            self.tasks.go_on(&mut self.cache, self.sessions.outcomes().map(|(_, call)| call));
        }
        self.close_requests(id, flights, fates);
        self.settle();
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

    /// Nothing is reclaimed any more: the sources are lost, with the session `present`. Who held a lock, or has not stopped yet, may
    /// still act under any of them.
    fn lose_sources(&mut self, present: Option<SessionId>) {
        let shown_until = self.lease.valid_until();
        let sources: Vec<SessionId> = self.sessions.sources().map(|source| source.0).collect();
        let mut holders: BTreeSet<HolderId> = self.locks.holders().keys().copied().collect();
        if let Some(mut reclaim) = self.reclaim.take() {
            holders.append(&mut reclaim.stopping);
        }
        let users = Users { holders, shown_until };
        self.sessions.lose(&mut self.timers, &users, |id| Some(id) == present || sources.contains(&id));
    }

    /// Gives everything up, and asks the server to end the session: now, if nobody here can act under it any more, and otherwise as a
    /// surrender, when the last of them has stopped or the instant shown to it has passed.
    pub(super) fn begin_close(&mut self) {
        let in_use = self.locks.counts().holders > 0 || self.reclaim.as_ref().is_some_and(|reclaim| !reclaim.stopping.is_empty());
        self.end_handshake();
        self.end_all_commands(OpError::Closed);
        self.abandon_outcomes(None);
        self.queue.tasks.clear();
        self.closing = Closing::Asked(self.sessions.present());
        let left = self.discard(if in_use { Exit::Lost } else { Exit::Closing }, &Fates::default());
        // Watchers and waiters would ask anew in the next session, and there is none: this one is asked for its end alone.
        self.queue.session_over();
        self.queue.tasks.clear();
        for timer in [Timer::Phase, Timer::GiveUp, Timer::Lease] {
            self.timers.cancel(timer);
        }
        if left.is_none() || in_use && !self.config.surrender {
            return self.closed();
        }
        self.time(Timer::Closing, Some(self.now.plus(self.config.close_within)), Question::Waited);
        self.continue_closing();
    }

    /// Closing waits for those who may still act under the session, and then for the end of it.
    pub(super) fn continue_closing(&mut self) {
        if let Closing::Asked(Some(id)) = self.closing {
            self.surrender_former();
            if !self.sessions.contains(id) {
                self.closed();
            }
        }
    }

    /// The session has ended as asked, or will end by itself.
    pub(super) fn closed(&mut self) {
        if let Closing::Asked(session) = self.closing {
            self.closing = Closing::Done;
            self.timers.cancel(Timer::Closing);
            self.timers.cancel_where(Timer::is_of_session);
            if let Some(session) = session {
                self.sessions.forget(&mut self.timers, session);
                self.events.push_back(Event::SessionEnded { session, why: "the agent has closed it" });
            }
        }
    }
}

/// What becomes of the session that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// Its locks are taken over into the next.
    Source,
    /// All of it is lost.
    Lost,
    /// The agent closes, and nobody uses anything.
    Closing,
}

/// Former sessions: what is said of them, and what is heard.
impl Agent {
    /// A local user whose lock was lost has stopped.
    pub(super) fn has_stopped(&mut self, holder: HolderId) {
        self.sessions.has_stopped(holder);
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.stopping.remove(&holder);
        }
    }

    /// Surrenders the former sessions of which nothing can be used any more.
    pub(super) fn surrender_former(&mut self) {
        if !self.config.surrender {
            return;
        }
        for surrendered in self.sessions.surrender(self.now, &mut self.timers) {
            info!("{}: surrenders session {surrendered}", self.who);
        }
    }

    /// Makes the datagram of the first END_SESSION of a former session that is due.
    pub(super) fn next_end(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        let mut cx = Cx { now: self.now, timers: &mut self.timers, rng: &mut self.rng, cipher: &mut self.cipher };
        self.sessions.poll_transmit(&mut cx, buf)
    }

    /// A datagram of a session that is not the present one: of a former one, only its end is heard.
    pub(super) fn of_former(&mut self, session: SessionId, messages: Messages<'_>) {
        if self.sessions.hears_end(session, messages) {
            debug!("{}: session {session} has ended at the server", self.who);
            self.sessions.ended(&mut self.timers, |ended| ended == session);
            self.continue_closing();
        } else {
            self.dropped(Dropped::UnknownSession);
        }
    }
}
