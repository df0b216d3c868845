//! Consequences: what a change of the locks leads to, what is due, and what every turn looks after.
//!
//! All three stand here once. Effects are carried out before the call that made them returns; a deadline has one arm; upkeep is a list of
//! level-triggered rules, each of which looks at how things stand and not at what has happened.

use crate::agent::{Agent, Closing, Waiting};
use crate::api::{Event, LockEvent, OpId, Output, Wait};
use crate::call::{Answer, Origin, Timer};
use crate::locks::Effect;
use crate::transport::{Channel, Cx, Gate, Lane};
use crate::users::{WatchEffect, Watches};
use alloc::vec::Vec;
use cistern_link::{Instant, Path, Question};
use cistern_wire::{Ask, Fate, Lock, ObjectId, Unwatch, Watch};

impl Agent {
    /// Carries out what changes of the locks lead to, until they lead to nothing more. Whether there was anything.
    pub(super) fn settle(&mut self) -> bool {
        let mut any = false;
        while let Some(effect) = self.cache.poll_release().map(Effect::Release).or_else(|| self.locks.poll_effect()) {
            any = true;
            self.carry_out(effect);
        }
        any
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Release(item) => {
                if let Some(channel) = self.sessions.channel_mut() {
                    channel.release(item);
                }
            }
            Effect::Ask { object, mode, wait } => {
                self.queue.push(Lane::Lock, Origin::Lock(object), &Lock { ask: Ask::NONE, object, mode, wait }.into());
            }
            Effect::Cancel { object } => self.take_back(object),
            Effect::Rest { object, span } => {
                self.timers.set(Timer::LockRetry(object), self.now.plus(span), Question::Waited);
                self.wait_on(object);
            }
            Effect::Waits { op, wait } => self.wait(op, wait),
            Effect::Done { op, result } => {
                self.waits.remove(&op);
                self.timers.cancel(Timer::Wait(op));
                self.events.push_back(Event::Done { op, result: result.map(Output::Locked) });
            }
            Effect::Tell { holder, object, what } => {
                if let (Some(reclaim), LockEvent::Lost) = (&mut self.reclaim, what) {
                    reclaim.stopping.insert(holder);
                }
                self.events.push_back(Event::Lock { holder, object, what });
            }
        }
    }

    /// A request for a lock is taken back: before it was sent without a message, afterwards by CANCEL.
    fn take_back(&mut self, object: ObjectId) {
        if self.queue.withdraw(Lane::Lock, Origin::Lock(object)) {
            self.locks.unasked(self.permit(), object);
        } else if let (Some(nonce), Some(channel)) = (self.locks.nonce_of(object), self.sessions.channel_mut()) {
            channel.cancel(nonce, object);
        }
    }

    /// Lets the watches change, and carries out what that leads to.
    pub(super) fn with_watches<R>(&mut self, change: impl FnOnce(&mut Watches) -> R) -> R {
        let result = change(&mut self.watches);
        while let Some(effect) = self.watches.poll_effect() {
            match effect {
                WatchEffect::Watch(object) => {
                    self.queue.push(Lane::Lock, Origin::Watch(object), &Watch { ask: Ask::NONE, object }.into());
                }
                WatchEffect::Unwatch(object) => {
                    self.queue.push(Lane::Lock, Origin::Unwatch(object), &Unwatch { ask: Ask::NONE, object }.into());
                }
                WatchEffect::Rest(object, span) => {
                    self.timers.set(Timer::Again(Origin::Watch(object)), self.now.plus(span), Question::Waited);
                }
                WatchEffect::RestNoMore(object) => {
                    self.timers.cancel(Timer::Again(Origin::Watch(object)));
                }
                WatchEffect::Gone(object) => self.sessions.ephemeral_gone(object),
                WatchEffect::Tell(event) => self.events.push_back(event),
            }
        }
        result
    }

    fn wait(&mut self, op: OpId, wait: Wait) {
        let limit = match wait {
            // It began with the command, which may have been on its way to the lock since.
            Wait::AtMost(span) => self.timers.get(Timer::Wait(op)).or_else(|| Some(self.now.plus(span))),
            Wait::Try | Wait::Forever => None,
        };
        self.waits.entry(op).or_insert(Waiting { since: self.now, limit, patient: wait != Wait::Try });
        self.time_wait(op);
    }

    /// Does what is due.
    pub(super) fn run_timers(&mut self) {
        while let Some(timer) = self.timers.due(self.now) {
            match timer {
                Timer::Request(nonce) => self.request_is_overdue(nonce),
                Timer::Control(serial) => self.control_is_overdue(serial),
                Timer::Handshake => self.hello_is_due(),
                // All are looked after once in each turn, which follows.
                Timer::Phase | Timer::Lease => {}
                Timer::Roster => self.roster_is_due(),
                Timer::Former(session) => self.sessions.timed_out(session),
                Timer::Again(origin) => self.ask_again(origin),
                Timer::GiveUp => self.give_up_commands(),
                Timer::Closing => self.closed(),
                Timer::Wait(op) => self.wait_is_over(op),
                Timer::LockRetry(object) => self.locks.rested(self.permit(), object),
                Timer::CallRetry(task, call) => self.with_tasks(|tasks, ctx| tasks.retry(ctx, task, call)),
            }
            self.settle();
        }
    }

    /// Looks after everything that a turn may have changed.
    pub(super) fn upkeep(&mut self) {
        if self.closing != Closing::No {
            return self.continue_closing();
        }
        self.bound_cache();
        self.remake_large();
        self.continue_reclaim();
        self.surrender_former();
        self.renew_lease();
        self.verify_if_silent();
        self.tell_lease();
        self.time_commands();
        self.open_if_needed();
    }

    /// Tells the holders of locks what the lease is that covers them.
    pub(super) fn tell_holders(&mut self) {
        self.holders_told.lease_changed(self.now, &self.lease, self.locks.holders(), &mut self.events);
    }

    /// Tells everybody what the lease is that covers all locks, and sets the timer for its next end.
    fn tell_lease(&mut self) {
        self.tell_holders();
        let certain = self.lease.certain(self.now);
        self.with_watches(|watches| watches.lease_changed(certain));
        let stopping = self.reclaim.as_ref().is_some_and(|reclaim| !reclaim.stopping.is_empty());
        let is_heeded = self.locks.counts().holders > 0 || self.watches.has_users() || stopping;
        let next = if is_heeded { self.lease.next_end(self.now) } else { None };
        self.time(Timer::Lease, next, Question::LeaseOver);
    }

    /// What would never go on by itself, if anything: nothing may be left to be sent when nothing is due, and all that is waited for has a
    /// deadline, or an answer that has one.
    pub(super) fn stuck(&self) -> Option<&'static str> {
        if self.dirty || self.output_due || self.closing == Closing::Done {
            return None;
        }
        let is_timed = |timer| self.timers.get(timer).is_some();
        let hello = self.handshake.as_ref().is_some_and(|opening| opening.is_due() || !is_timed(Timer::Handshake));
        let channel = self.sessions.channel();
        let renews = |channel: &Channel| is_timed(Timer::Phase) || channel.is_keeping() || channel.is_awaiting() || channel.is_confirming();
        let sends = |channel: &Channel| channel.has_next(self.now, &self.queue, self.gate());
        [
            ("a handshake", hello),
            ("the want of a session", channel.is_none() && self.handshake.is_none() && self.needs_session() && !self.servers.is_empty()),
            ("the lease", self.sessions.is_open() && self.has_user() && !channel.is_some_and(renews)),
            ("a datagram", channel.is_some_and(sends) || self.sessions.has_end_due()),
            ("an answer", channel.is_some_and(|channel| !channel.is_live(&self.timers))),
            ("a command", self.tasks.oldest().is_some() && !is_timed(Timer::GiveUp)),
            ("closing", self.closing != Closing::No && !is_timed(Timer::Closing)),
        ]
        .into_iter()
        .find_map(|(what, is_stuck)| is_stuck.then_some(what))
    }

    /// Sets or forgets a deadline; one that stays is left alone.
    pub(super) fn time(&mut self, timer: Timer, at: Option<Instant>, question: Question) {
        match at {
            Some(at) if self.timers.get(timer) == Some(at) => {}
            Some(at) => self.timers.set(timer, at, question),
            None => {
                self.timers.cancel(timer);
            }
        }
    }
}

/// What is sent, in this order: the handshake; the ends of former sessions; what the channel of the session carries.
impl Agent {
    /// Makes the next datagram, if there is anything to send.
    pub(super) fn next_datagram(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        self.next_hello(buf).or_else(|| self.next_end(buf)).or_else(|| self.next_of_session(buf))
    }

    fn next_of_session(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        let gate = self.gate();
        let cx = Cx { now: self.now, timers: &mut self.timers, rng: &mut self.rng, cipher: &mut self.cipher };
        let sent = self.sessions.channel_mut()?.poll_transmit(cx, &mut self.queue, gate, buf)?;
        self.stats.requests += sent.first;
        self.stats.retransmissions += sent.again;
        for (origin, nonce) in sent.asked {
            if let Origin::Lock(object) = origin {
                self.locks.asked(object, nonce);
            }
        }
        self.note_horizon();
        Some(sent.path)
    }

    /// Until all locks belong to the present session, only what that needs is asked in it.
    pub(super) const fn gate(&self) -> Gate {
        if self.reclaim.is_some() { Gate::Recovery } else { Gate::Open }
    }

    /// Whether the next datagram of the session carries a request, whose answer will renew the lease.
    pub(super) fn is_asking(&self) -> bool {
        self.sessions.channel().is_some_and(|channel| channel.is_asking(self.now, &self.queue, self.gate()))
    }

    /// Nobody wants the answer to a request any more.
    pub(super) fn give_up_request(&mut self, nonce: u64) {
        if let Some(channel) = self.sessions.channel_mut() {
            channel.give_up(&mut self.timers, nonce);
        }
    }

    /// The requests of the session have changed: what was disowned is remembered as long as any of them could bring it.
    pub(super) fn note_horizon(&mut self) {
        if let Some(channel) = self.sessions.channel() {
            let (floor, next) = channel.horizon();
            self.cache.awaited(floor, next);
        }
    }

    /// Requests that were made for larger datagrams than the path carries now are made anew.
    pub(super) fn remake_large(&mut self) {
        let Some(channel) = self.sessions.channel() else { return };
        let (size, room) = channel.path_size(self.now);
        self.tasks.set_datagram(size);
        let tasks = &mut self.queue.tasks;
        let large: Vec<_> = tasks.iter().filter(|out| out.message.len() > room).map(|out| (out.task, out.call)).collect();
        if !large.is_empty() {
            tasks.retain(|out| out.message.len() <= room);
            for (task, call) in large {
                self.with_tasks(|tasks, ctx| tasks.answer(ctx, task, call, &Answer::SessionEnded(Fate::NotExecuted)));
            }
        }
    }
}
