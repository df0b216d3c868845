//! Outcomes: what became of the mutations that were on their way when their session ended (`wire-spec.md` 11.2, 11.7).
//!
//! Commands are told the reply that there was, that the mutation was not executed and never will be, or that nobody knows; what the server
//! has not said is asked in the next session before everything else. A question stands as long as its command runs, and ends with it.

use crate::agent::Agent;
use crate::call::{Answer, Asker, TaskId};
use crate::timer::Timer;
use crate::transport::{Flights, Lane, UNASKED};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cistern_wire::{Fate, Field, Outcome, OutcomeTold, Reader, Reply, SessionId};
use log::debug;

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

impl Agent {
    /// A session is over, with requests on their way.
    pub(super) fn close_requests(&mut self, session: SessionId, flights: Flights, fates: &Fates<'_>) {
        for (nonce, flight) in flights {
            if let Asker::Op(task, call) = flight.asker
                && !self.sessions.is_outcome_open(session, nonce)
            {
                self.with_ops(|ops, ctx| ops.answer(ctx, task, call, &fates.of(nonce)));
            }
        }
    }

    /// Remembers the mutations of a session that is over of which the server has said nothing, and for which somebody waits.
    pub(super) fn remember_mutations(&mut self, session: SessionId, flights: &Flights, fates: &Fates<'_>) {
        for (&nonce, flight) in flights.iter().filter(|(_, flight)| flight.mutation) {
            let Asker::Op(task, call) = flight.asker else { continue };
            let told = !matches!(fates.of(nonce), Answer::SessionEnded(Fate::Unknown));
            if !told && self.ops.is_awaiting(task, call) {
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
            self.queue.push(Lane::Recovery, Asker::Outcome(session, nonce), &Outcome { ask: UNASKED, session, nonce }.into());
        }
    }

    /// OUTCOME was answered.
    pub(super) fn outcome_told(&mut self, session: SessionId, nonce: u64, reply: &Reply<'_>) {
        let answer = match reply {
            Reply::OutcomeTold(OutcomeTold { fate: Fate::Executed, reply }) => {
                let told = Reply::get(&mut Reader::new(reply.0)).ok();
                if let Some(told) = &told {
                    let call = self.sessions.outcomes().find(|(of, _)| *of == (session, nonce));
                    let made = call.map(|(_, (task, _))| self.ops.ephemerals_made(task)).unwrap_or_default();
                    self.sessions.note_ephemerals(session, told, |at| made.contains(&at));
                }
                Answer::Result(told.filter(|_| !reply.0.is_empty()))
            }
            Reply::OutcomeTold(told) => Answer::SessionEnded(told.fate),
            Reply::Failed(failed) if self.ask_later(Asker::Outcome(session, nonce), *failed) => return,
            _ => Answer::SessionEnded(Fate::Unknown),
        };
        self.outcome_is(session, nonce, &answer);
    }

    fn outcome_is(&mut self, session: SessionId, nonce: u64, answer: &Answer<'_>) {
        if let Some((task, call)) = self.sessions.close_outcome(session, nonce) {
            self.timers.cancel(Timer::Again(Asker::Outcome(session, nonce)));
            debug!("{}: request {nonce} of session {session}: {answer:?}", self.who);
            self.with_ops(|ops, ctx| ops.answer(ctx, task, call, answer));
            self.settle();
        }
    }

    /// A command is over, so nobody wants to know what became of its mutations: `None`, of all commands.
    pub(super) fn abandon_outcomes(&mut self, task: Option<TaskId>) {
        let about = self.sessions.outcomes().filter(|(_, call)| task.is_none_or(|task| call.0 == task));
        for (session, nonce) in about.map(|(of, _)| of).collect::<Vec<_>>() {
            let asker = Asker::Outcome(session, nonce);
            self.queue.withdraw(Lane::Recovery, asker);
            if let Some(question) = self.sessions.channel().and_then(|channel| channel.nonce_of(asker)) {
                self.give_up_request(question);
            }
            self.outcome_is(session, nonce, &Answer::SessionEnded(Fate::Unknown));
        }
    }
}
