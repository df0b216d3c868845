//! The end of a session, and the way to the next one.
//!
//! Decides: what is discarded, who is told, and what is done again (R8, R23, R43, R46). Implements `wire-spec.md` sections 11.3 and
//! 11.6, the agent's part. Place in the walk: `incoming` calls `end_session` on a NACK; handshake messages come here.
//! Invariants: after the end nothing of the session is used, whatever arrives later; a mutation is done again only if the server
//! said that it was not executed; every local holder is told by name.
//! Leaves to others: reclaiming locks after a restart of the server.

use crate::agent::{Agent, Closing, Fates, Timer};
use crate::api::{Event, OpError};
use crate::opening::{Known, Opening, unknown};
use crate::port::Answer;
use crate::requests::Origin;
use crate::session::Session;
use cistern_link::{Path, Question, SentLog, TimerQueue};
use cistern_wire::limits::FORMER_MAX;
use cistern_wire::{Fate, Message, Refuse, RefuseReason, SessionFate, Welcome};
use core::time::Duration;

impl Agent {
    /// Begins a handshake.
    pub(crate) fn open(&mut self) {
        if self.servers.is_empty() {
            return;
        }
        self.opening = Some(Opening::new(&mut self.rng));
        log::debug!("agent {}: opening a session", self.identity.agent);
    }

    pub(crate) fn take_handshake(&mut self, path: Path, message: &Message<'_>) {
        match message {
            Message::Challenge(challenge) => {
                let sent = self.sent.sent_at(challenge.echo).is_some();
                if let Some(opening) = self.opening.as_mut().filter(|o| sent && o.handshake == challenge.handshake) {
                    opening.challenged(challenge);
                }
            }
            Message::Welcome(welcome) => self.welcomed(path, welcome),
            Message::Refuse(refuse) => self.refused(refuse),
            _ => {}
        }
    }

    fn welcomed(&mut self, path: Path, welcome: &Welcome<'_>) {
        let Some(sent_at) = self.sent.sent_at(welcome.echo) else { return };
        if self.opening.as_ref().is_none_or(|opening| opening.handshake != welcome.handshake) {
            return;
        }
        let known = Known::of(welcome);
        if !self.known.accepts(&known) {
            log::warn!(
                "agent {}: the server at {} has store {} epoch {} incarnation {}, but {} epoch {} incarnation {} is known: refused",
                self.identity.agent,
                path.remote,
                known.store,
                known.epoch,
                known.incarnation,
                self.known.store,
                self.known.epoch,
                self.known.incarnation
            );
            self.no_session(OpError::AnotherServer);
            return;
        }
        if self.session.is_some() {
            self.end_session("the server does not know it any more", &Fates::new());
        }
        self.former.retain(|claim| {
            let told = welcome.former.iter().find(|former| former.session == claim.session);
            !told.is_some_and(|former| former.fate == SessionFate::Ended)
        });
        self.known = known;
        self.opening = None;
        self.trouble = None;
        self.timers.cancel(Timer::Opening);
        // Nothing sent before may renew this session's lease, but the HELLO that was answered.
        self.sent = SentLog::new(SentLog::DEFAULT_MAX);
        let session = Session::new(welcome, path, self.now);
        self.lease.begin(session.lease);
        self.lease.renew(sent_at);
        self.ops.set_datagram(session.max_datagram);
        self.events.push_back(Event::SessionOpened { session: session.id });
        log::info!("agent {}: session {} with {} is open, lease {} ms", self.identity.agent, session.id, path.remote, session.lease.as_millis());
        self.session = Some(session);
    }

    fn refused(&mut self, refuse: &Refuse) {
        if self.opening.as_ref().is_none_or(|opening| opening.handshake != refuse.handshake) {
            return;
        }
        log::warn!("agent {}: no session: {}", self.identity.agent, refuse.reason);
        match refuse.reason {
            RefuseReason::Busy | RefuseReason::Stopping => {
                self.trouble = Some(OpError::Refused(refuse.reason));
                let pause = Duration::from_millis(refuse.retry_ms.into()).max(crate::opening::RETRY);
                self.timers.set(Timer::Opening, self.now.plus(self.rng.between(pause, pause * 3 / 2)), Question::Waited);
            }
            RefuseReason::Version | RefuseReason::Superseded => self.no_session(OpError::Refused(refuse.reason)),
        }
    }

    /// There is no session to be had: what waits for one ends, and so does what the agent still has of an old one.
    fn no_session(&mut self, error: OpError) {
        self.opening = None;
        self.timers.cancel(Timer::Opening);
        self.events.push_back(Event::NoSession { error });
        self.trouble = Some(error);
        for task in self.ops.running().collect::<alloc::vec::Vec<_>>() {
            self.end_command(task, error);
        }
        for op in self.locks.local.all_waiting() {
            self.end_command(crate::port::TaskId(op.0), error);
        }
        self.out.clear();
        self.asks.clear();
    }

    /// The session is over for good: everything of it is discarded, everybody is told.
    //= wire-spec.md#11.3
    pub(crate) fn end_session(&mut self, why: &'static str, fates: &Fates) {
        let orphaned = self.orphaned(fates);
        let Some(session) = self.session.take() else { return };
        log::info!("agent {}: session {} is over: {why}", self.identity.agent, session.id);
        self.former.retain(|claim| claim.session != session.id);
        if self.former.len() == FORMER_MAX {
            self.former.remove(0);
        }
        self.former.push(unknown(session.id));
        self.lease.end();
        self.sent = SentLog::new(SentLog::DEFAULT_MAX);
        self.forget_session_timers();
        self.locks.discard();
        self.locks.local.session_ended(&mut self.events);
        self.ops.discard_all();
        self.asks.clear();
        self.events.push_back(Event::SessionEnded { session: session.id, why });
        if self.closing == Closing::Asked {
            self.closing = Closing::Closed;
            return;
        }
        for (pending, fate) in orphaned {
            if let Origin::Task { task, call } = pending.origin {
                let answer = if fate == Fate::Executed { Answer::Result(None) } else { Answer::SessionEnded(fate) };
                self.with_ops(|ops, ctx| ops.answer(ctx, task, call, &answer));
            }
        }
    }

    /// Timers of commands go on, all others were the session's.
    fn forget_session_timers(&mut self) {
        let mut timers = TimerQueue::new();
        for task in self.ops.running().collect::<alloc::vec::Vec<_>>() {
            if let Some(at) = self.timers.get(Timer::GiveUp(task)) {
                timers.set(Timer::GiveUp(task), at, Question::Waited);
            }
        }
        if let Some(at) = self.timers.get(Timer::Opening) {
            timers.set(Timer::Opening, at, Question::Waited);
        }
        self.timers = timers;
    }
}
