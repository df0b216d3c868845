//! What is taken over from former sessions: their locks, after a restart of the server, and what became of their mutations (`wire-spec.md` 11.2,
//! 11.7).
//!
//! Until the hand-over everything is used under the old lease alone, which nothing renews any more, and only RECLAIM, RECLAIM_COMPLETE and OUTCOME
//! are asked. A lock whose release or conversion was begun is not named; when RECLAIM_COMPLETE goes out, nothing of the old session is used
//! but what was reclaimed. Of a mutation that was on its way commands are told the reply that there was, that it was not executed and never will
//! be, or that nobody knows; a question stands as long as its command runs, and ends with it.

use crate::agent::Agent;
use crate::agent::discard::Exit;
use crate::api::Event;
use crate::call::{self, Answer, Origin, TaskId, Timer};
use crate::session::Users;
use crate::session::reclaim::{Batch, Completion, Source};
use crate::transport::{Flights, Lane};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_link::Question;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{
    Ask, Failed, Fate, Field, List, LockClass, LockId, Outcome, OutcomeTold, Reader, ReclaimComplete, ReclaimedItem, Reply, SessionFate,
    SessionId, Status,
};
use log::{debug, info, warn};

/// Locks.
impl Agent {
    /// Another session is open, and takes the place of the present one, if there is one. What the server says of that decides: its locks
    /// are reclaimed, or it is over, and with it those that are being reclaimed.
    pub(super) fn leave_session(&mut self, fates: &BTreeMap<SessionId, SessionFate>) {
        let Some(present) = self.sessions.present() else { return };
        let is_reclaimable = |session: SessionId| fates.get(&session) == Some(&SessionFate::Reclaimable);
        if !self.sessions.sources().map(|source| source.0).chain([present]).any(is_reclaimable) {
            let why = match fates.get(&present) {
                Some(SessionFate::Ended) => "it has ended at the server, which has opened another",
                _ => "the server takes its locks back, and has opened another",
            };
            return self.session_over(why, &Fates::default());
        }
        info!("{}: the server was started anew; the locks of session {present} are reclaimed", self.who);
        //= wire-spec.md#11-7-restart-and-recovery
        //# Before it makes its list of reclaims the agent MUST stop taking messages of the old session.
        self.discard(Exit::Source, &Fates::default());
        self.leave_lost_sources(fates);
        self.settle();
    }

    /// Each lock that is held belongs to one of the sources: the present session has all that were not still in an earlier one.
    pub(super) fn divide_locks(&mut self, present: SessionId) {
        let mut rest: BTreeSet<LockId> = self.cache.locks().chain(self.locks.locks()).collect();
        for (id, source) in self.sessions.sources_mut() {
            if id == present {
                source.unnamed = core::mem::take(&mut rest);
            } else {
                rest.retain(|lock| !source.unnamed.contains(lock));
            }
        }
    }

    /// Nothing can be reclaimed from some of the sources: what they have is lost.
    fn leave_lost_sources(&mut self, fates: &BTreeMap<SessionId, SessionFate>) {
        let shown_until = self.lease.valid_until();
        let is_reclaimable = |id: &SessionId| fates.get(id) == Some(&SessionFate::Reclaimable);
        self.sessions.sources_mut().filter(|(id, _)| is_reclaimable(id)).for_each(|(_, source)| source.may_have_ended = false);
        let over = self.sessions.sources_mut().filter(|(id, _)| !is_reclaimable(id));
        let over: Vec<(SessionId, BTreeSet<LockId>)> = over.map(|(id, source)| (id, core::mem::take(&mut source.unnamed))).collect();
        for (over, locks) in over {
            if fates.get(&over) != Some(&SessionFate::TimingOut) {
                self.sessions.source_ended(over);
            }
            locks.into_iter().for_each(|lock| self.lose_lock(lock));
            let holders = self.reclaim.as_ref().map(|reclaim| reclaim.stopping.clone()).unwrap_or_default();
            self.sessions.lose(&mut self.timers, &Users { holders, shown_until }, |id| id == over);
        }
    }

    /// A lock of the old session does not come along.
    fn lose_lock(&mut self, lock: LockId) {
        match lock.class {
            LockClass::Cache => self.cache.lose(lock.object),
            LockClass::Advisory => self.locks.lose(self.permit(), lock.object),
        }
        self.settle();
    }

    /// Names what is still to be named, and says that it is complete when it is.
    pub(super) fn continue_reclaim(&mut self) {
        if bugs::is(Bug::M38b) {
            self.complete_too_early();
        }
        while let Some((from, locks)) = self.reclaim.as_ref().and_then(|reclaim| reclaim.take_unnamed(&mut self.sessions)) {
            self.name_locks(from, &locks);
        }
        self.complete();
    }

    fn name_locks(&mut self, from: SessionId, locks: &[LockId]) {
        let mut items = Vec::with_capacity(locks.len());
        for lock in locks {
            let item = match lock.class {
                LockClass::Cache => self.cache.reclaim_item(lock.object),
                LockClass::Advisory => self.locks.reclaim_item(lock.object),
            };
            match item {
                Some(item) => items.push(item),
                None => self.lose_lock(*lock),
            }
        }
        let Some(reclaim) = self.reclaim.as_mut().filter(|_| !items.is_empty()) else { return };
        let batch = reclaim.name(from, items);
        self.ask_reclaim(batch);
    }

    fn ask_reclaim(&mut self, number: u32) {
        let batch = self.reclaim.as_ref().and_then(|reclaim| reclaim.batch(number));
        if let Some(Batch { from, items }) = batch {
            let message = cistern_wire::Reclaim { ask: Ask::NONE, from: *from, items: List::of(items) };
            self.queue.push(Lane::Recovery, Origin::Reclaim(number), &message.into());
        }
    }

    /// RECLAIM was answered.
    pub(super) fn reclaimed(&mut self, number: u32, reply: &Reply<'_>) {
        if let Reply::Failed(failed) = reply
            && self.ask_later(Origin::Reclaim(number), *failed)
        {
            return;
        }
        let Some(Batch { from, items }) = self.reclaim.as_mut().and_then(|reclaim| reclaim.take_batch(number)) else { return };
        let told: BTreeMap<LockId, ReclaimedItem> = match reply {
            Reply::Reclaimed(reclaimed) => reclaimed.items.into_iter().map(|item| (item.lock, item)).collect(),
            _ => BTreeMap::new(),
        };
        for item in items {
            let kept = told.get(&item.lock).filter(|told| told.status == Status::OK && told.generation == item.generation);
            match kept {
                //= wire-spec.md#11-7-restart-and-recovery
                //# The agent MUST drop cached data of another version than the reclaim was answered with.
                Some(told) if item.lock.class == LockClass::Cache => self.cache.keep_version(item.lock.object, told.version),
                Some(_) => {}
                None => {
                    let why = told.get(&item.lock).map_or(Status::NOT_HELD, |told| told.status);
                    warn!("{}: {} generation {} was not given back: {why}", self.who, item.lock, item.generation);
                    self.lose_lock(item.lock);
                }
            }
            if let Some(source) = self.sessions.source_mut(from) {
                *(if kept.is_some() { &mut source.kept } else { &mut source.lost }) += 1;
            }
        }
    }

    /// Says that the reclaim is complete before anything is named; a deliberate bug, so that the server's answer to what follows shows.
    fn complete_too_early(&mut self) {
        let open = |(_, source): &(SessionId, &Source)| source.completion == Completion::Open;
        for from in self.sessions.sources().filter(open).map(|source| source.0).collect::<Vec<_>>() {
            self.say_complete(from);
        }
    }

    fn say_complete(&mut self, from: SessionId) {
        if let Some(source) = self.sessions.source_mut(from) {
            source.completion = Completion::Asked;
            self.queue.push(Lane::Recovery, Origin::Complete(from), &ReclaimComplete { ask: Ask::NONE, from }.into());
        }
    }

    /// Says that the reclaim is complete once nothing of the old sessions is used any more but what was reclaimed.
    fn complete(&mut self) {
        let Some(reclaim) = &self.reclaim else { return };
        if reclaim.is_waiting() || self.sessions.sources().any(|(_, source)| source.has_unnamed()) {
            return;
        }
        //= wire-spec.md#11-7-restart-and-recovery
        //# What is not reclaimed MUST NOT be used from when the agent says that its reclaim is complete.
        if !reclaim.stopping.is_empty() && self.lease.certain(self.now) {
            return;
        }
        // With the session the server forgets what became of its mutations.
        let ready = |(id, source): &(SessionId, &Source)| source.completion == Completion::Open && !self.sessions.is_asked_about(*id);
        for from in self.sessions.sources().filter(ready).map(|source| source.0).collect::<Vec<_>>() {
            self.say_complete(from);
        }
    }

    /// RECLAIM_COMPLETE was answered. From a session that could not be reclaimed any more nothing has moved: its ephemeral files are gone.
    pub(super) fn completed(&mut self, from: SessionId, reply: &Reply<'_>) {
        if let Reply::Failed(failed) = reply
            && self.ask_later(Origin::Complete(from), *failed)
        {
            return;
        }
        if !matches!(reply, Reply::Done(_)) {
            self.sessions.source_lost(from);
        }
        if let Some(source) = self.sessions.source_mut(from) {
            source.completion = Completion::Done;
        }
        if self.sessions.sources().all(|(_, source)| source.completion == Completion::Done) {
            self.hand_over();
        }
    }

    /// All that is held belongs to the present session from now on, and is covered by its lease.
    fn hand_over(&mut self) {
        let (Some(_), Some(to)) = (self.reclaim.take(), self.sessions.present()) else { return };
        //= wire-spec.md#11-7-restart-and-recovery
        //# A renewing answer MUST make usable only locks of its own session.
        self.lease.take_over();
        for (from, Source { kept, lost, .. }) in self.sessions.take_sources() {
            info!("{}: session {to} has taken over {kept} locks of session {from}, {lost} were lost", self.who);
            self.events.push_back(Event::SessionReclaimed { from, to, kept, lost });
        }
        self.tell_holders();
        self.locks.renewed(self.permit());
        self.settle();
    }

    /// A request of recovery cannot be answered now: it is made again. False if the server does not say when.
    pub(super) fn ask_later(&mut self, origin: Origin, failed: Failed) -> bool {
        let later = matches!(failed.status, Status::BUSY | Status::IN_GRACE) && failed.retry_ms > 0;
        if later {
            let at = self.now.plus(call::pause(failed.retry_ms));
            self.timers.set(Timer::Again(origin), at, Question::Waited);
        }
        later
    }

    /// The time to ask again has come.
    pub(super) fn ask_again(&mut self, origin: Origin) {
        match origin {
            Origin::Reclaim(batch) => self.ask_reclaim(batch),
            Origin::Outcome(session, nonce) => self.ask_outcome(session, nonce),
            Origin::Complete(from) => {
                if let Some(source) = self.sessions.source_mut(from) {
                    source.completion = Completion::Open;
                }
            }
            Origin::Watch(object) => self.with_watches(|watches| watches.rested(object)),
            Origin::Op(..) | Origin::Lock(_) | Origin::Unwatch(_) => {}
        }
    }
}

/// What the server has said at the end of a session of the requests that were on their way.
#[derive(Debug, Default)]
pub(super) struct Fates<'a> {
    pub(super) by_nonce: BTreeMap<u64, Fate>,
    pub(super) results: Vec<(u64, Reply<'a>)>,
}

impl<'a> Fates<'a> {
    fn of(&self, nonce: u64) -> Answer<'a> {
        let result = self.results.iter().find(|result| result.0 == nonce).map(|result| result.1);
        match (result, self.by_nonce.get(&nonce)) {
            (Some(reply), _) => Answer::Result(Some(reply)),
            (None, Some(Fate::Executed)) => Answer::Result(None),
            (None, fate) => Answer::SessionEnded(fate.copied().unwrap_or(Fate::Unknown)),
        }
    }
}

/// Outcomes.
impl Agent {
    /// A session is over, with requests on their way.
    pub(super) fn close_requests(&mut self, session: SessionId, flights: Flights, fates: &Fates<'_>) {
        for (nonce, flight) in flights {
            if let Origin::Op(task, call) = flight.origin
                && !self.sessions.is_outcome_open(session, nonce)
            {
                self.with_tasks(|tasks, ctx| tasks.answer(ctx, task, call, &fates.of(nonce)));
            }
        }
    }

    /// Remembers the mutations of a session that is over of which the server has said nothing, and for which somebody waits.
    pub(super) fn remember_mutations(&mut self, session: SessionId, flights: &Flights, fates: &Fates<'_>) {
        for (&nonce, flight) in flights.iter().filter(|(_, flight)| flight.mutation) {
            let Origin::Op(task, call) = flight.origin else { continue };
            let told = !matches!(fates.of(nonce), Answer::SessionEnded(Fate::Unknown));
            if !told && self.tasks.is_awaiting(task, call) {
                self.sessions.await_outcome(session, nonce, (task, call));
            }
        }
    }

    /// A session is open: what is not known is asked in it.
    pub(super) fn ask_outcomes(&mut self) {
        for ((session, nonce), _) in self.sessions.outcomes().collect::<Vec<_>>() {
            self.ask_outcome(session, nonce);
        }
    }

    /// Asks, unless nobody wants to know any more.
    pub(super) fn ask_outcome(&mut self, session: SessionId, nonce: u64) {
        if self.sessions.is_outcome_open(session, nonce) {
            //= wire-spec.md#11-2-delivery
            //# After NACK, session end or restart the agent MUST NOT by itself repeat an unanswered mutation, unless it was told "not
            //# executed".
            self.queue.push(Lane::Recovery, Origin::Outcome(session, nonce), &Outcome { ask: Ask::NONE, session, nonce }.into());
        }
    }

    /// OUTCOME was answered.
    pub(super) fn outcome_told(&mut self, session: SessionId, nonce: u64, reply: &Reply<'_>) {
        let answer = match reply {
            Reply::OutcomeTold(OutcomeTold { fate: Fate::Executed, reply }) => {
                let told = Reply::get(&mut Reader::new(reply.0)).ok();
                if let Some(told) = &told {
                    let call = self.sessions.outcomes().find(|(of, _)| *of == (session, nonce));
                    let made = call.map(|(_, (task, _))| self.tasks.ephemerals_made(task)).unwrap_or_default();
                    self.sessions.note_ephemerals(session, told, |at| made.contains(&at));
                }
                Answer::Result(told.filter(|_| !reply.0.is_empty()))
            }
            Reply::OutcomeTold(told) => Answer::SessionEnded(told.fate),
            Reply::Failed(failed) if self.ask_later(Origin::Outcome(session, nonce), *failed) => return,
            _ => Answer::SessionEnded(Fate::Unknown),
        };
        self.outcome_is(session, nonce, &answer);
    }

    fn outcome_is(&mut self, session: SessionId, nonce: u64, answer: &Answer<'_>) {
        if let Some((task, call)) = self.sessions.close_outcome(session, nonce) {
            self.timers.cancel(Timer::Again(Origin::Outcome(session, nonce)));
            debug!("{}: request {nonce} of session {session}: {answer:?}", self.who);
            self.with_tasks(|tasks, ctx| tasks.answer(ctx, task, call, answer));
            self.settle();
        }
    }

    /// A command is over, so nobody wants to know what became of its mutations: `None`, of all commands.
    pub(super) fn abandon_outcomes(&mut self, task: Option<TaskId>) {
        let about = self.sessions.outcomes().filter(|(_, call)| task.is_none_or(|task| call.0 == task));
        for (session, nonce) in about.map(|(of, _)| of).collect::<Vec<_>>() {
            let origin = Origin::Outcome(session, nonce);
            self.queue.withdraw(Lane::Recovery, origin);
            if let Some(question) = self.sessions.channel().and_then(|channel| channel.nonce_of(origin)) {
                self.give_up_request(question);
            }
            self.outcome_is(session, nonce, &Answer::SessionEnded(Fate::Unknown));
        }
    }
}
