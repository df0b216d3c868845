//! Outcomes: what became of the mutations that were on their way when their session ended.
//!
//! Decides which of them the agent asks about in its next session (OUTCOME), and what its commands are told (R23, R24): the reply that
//! it got, that it was not executed and never will be, or that nobody knows. Place in the walk: `recovery` and `reclaim` hand over the
//! requests of a session that is over; `outgoing` sends the questions before everything else of the new session.
//! Implements `wire-spec.md` sections 11.2 and 11.7. Invariant: a question stands as long as its command runs, and ends with it.
//! Leaves to others: what the command makes of the answer (`ops`), the fence over what the mutation affects (`ops`, R70).

use crate::agent::{Agent, UNASKED};
use crate::port::{Answer, TaskId};
use crate::requests::{Asker, Requests};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cistern_wire::{Fate, Field, Message, Outcome, OutcomeTold, Reader, Reply, SessionId};
use log::debug;

/// A mutation whose outcome is not known: the session and the nonce under which it was sent, and the call that it was.
pub(crate) type Questions = BTreeMap<(SessionId, u64), (TaskId, u32)>;

impl Agent {
    /// A session is over, with requests on their way. `fates` and `results` are what the server has said of them at its end.
    pub(crate) fn close_requests(
        &mut self,
        session: SessionId,
        requests: Requests,
        fates: &BTreeMap<u64, Fate>,
        results: &[(u64, Reply<'_>)],
    ) {
        for (nonce, flight) in requests.into_flights() {
            let Asker::Op(task, call) = flight.asker else { continue };
            if self.questions.contains_key(&(session, nonce)) {
                continue;
            }
            let result = results.iter().find(|result| result.0 == nonce).map(|result| result.1);
            let answer = match (result, fates.get(&nonce)) {
                (Some(reply), _) => Answer::Result(Some(reply)),
                (None, Some(Fate::Executed)) => Answer::Result(None),
                (None, fate) => Answer::SessionEnded(fate.copied().unwrap_or(Fate::Unknown)),
            };
            self.with_ops(|ops, ctx| ops.answer(ctx, task, call, &answer));
        }
    }

    /// Remembers the mutations of a session that is over of which the server has said nothing, and for which somebody waits.
    pub(crate) fn remember_mutations(
        &mut self,
        session: SessionId,
        requests: &Requests,
        fates: &BTreeMap<u64, Fate>,
        results: &[(u64, Reply<'_>)],
    ) {
        for (nonce, task, call) in requests.mutations() {
            let told = results.iter().any(|result| result.0 == nonce) || fates.get(&nonce).is_some_and(|fate| *fate != Fate::Unknown);
            if !told && self.ops.is_awaiting(task, call) {
                self.questions.insert((session, nonce), (task, call));
            }
        }
    }

    /// A session is open: what is not known is asked in it.
    pub(crate) fn ask_outcomes(&mut self) {
        for (session, nonce) in self.questions.keys().copied().collect::<Vec<_>>() {
            self.ask_outcome(session, nonce);
        }
    }

    /// Asks, unless nobody wants to know any more.
    pub(crate) fn ask_outcome(&mut self, session: SessionId, nonce: u64) {
        if self.questions.contains_key(&(session, nonce)) {
            //= wire-spec.md#11-2-delivery
            //# After NACK, the end of its session or a restart the agent MUST NOT by itself send a mutation again that was not
            //# answered, unless it was told "not executed".
            let question = Message::from(Outcome { ask: UNASKED, session, nonce }).to_bytes();
            self.recovery.push_back((Asker::Outcome(session, nonce), question));
        }
    }

    /// OUTCOME was answered.
    pub(crate) fn outcome_told(&mut self, session: SessionId, nonce: u64, reply: &Reply<'_>) {
        let answer = match reply {
            Reply::OutcomeTold(OutcomeTold { fate: Fate::Executed, reply }) => {
                let told = Reply::get(&mut Reader::new(reply.0)).ok();
                if let Some(told) = told.as_ref().filter(|_| self.reclaim.is_some()) {
                    let made = self.questions.get(&(session, nonce)).map(|asked| self.ops.ephemerals_made(asked.0)).unwrap_or_default();
                    self.note_ephemerals(told, |at| made.contains(&at));
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
        if let Some((task, call)) = self.questions.remove(&(session, nonce)) {
            debug!("{}: request {nonce} of session {session}: {answer:?}", self.who);
            self.with_ops(|ops, ctx| ops.answer(ctx, task, call, answer));
            self.settle();
        }
    }

    /// A command is over, so nobody wants to know what became of its mutations: `None`, of all commands.
    pub(crate) fn stop_wondering(&mut self, task: Option<TaskId>) {
        let about = self.questions.iter().filter(|(_, asked)| task.is_none_or(|task| asked.0 == task));
        for (session, nonce) in about.map(|(key, _)| *key).collect::<Vec<_>>() {
            let asker = Asker::Outcome(session, nonce);
            self.recovery.retain(|(asked, _)| *asked != asker);
            if let Some(present) = &mut self.session
                && let Some(question) = present.requests.nonce_of(asker)
            {
                present.give_up_request(question);
            }
            self.outcome_is(session, nonce, &Answer::SessionEnded(Fate::Unknown));
        }
    }
}
