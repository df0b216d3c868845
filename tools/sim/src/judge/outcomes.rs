//! I7 on the wire: a request has one outcome, whatever says so and however often, and a packet is taken in once.
//!
//! Decides from replies, NACKs and answers to OUTCOME: each version of an object is the work of one request of one session; a request is
//! told to have done one thing, or to have failed for one reason, or not to have been executed, and never two of these (sections 11.2 and
//! 11.3); a packet that is answered is answered once.
//! Invariant: an answer that says nothing of the outcome (PENDING, unknown) counts for nothing.
//! Leaves to others: how often something was done (`once`), whether it is durable (`durable`).

use super::case::{Case, Verdict, violated};
use super::{Facts, Family};
use crate::observe::Seen;
use cistern_wire::{Fate, Field as _, Message, ObjectId, Reader, Reply, SessionId, Status};
use std::collections::{BTreeMap, BTreeSet};

/// Answers remembered.
const ANSWERS_MAX: usize = 65_536;

/// One object's effect as a reply tells it: object, version before, version after.
type Told = Vec<(ObjectId, u64, u64)>;

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// Whose work each version is.
    makers: BTreeMap<(ObjectId, u64), (SessionId, u64)>,
    outcomes: BTreeMap<(SessionId, u64), Told>,
    outcome_asked: BTreeMap<(SessionId, u64), (SessionId, u64)>,
    fates: BTreeMap<(SessionId, u64), Fate>,
    /// Mutations that the server has received, and those that it has told to have failed, with why.
    mutations: BTreeSet<(SessionId, u64)>,
    failures: BTreeMap<(SessionId, u64), Status>,
    /// Answers sent: session, kind, what is answered, and the packet echoed.
    answers: BTreeSet<(SessionId, u8, u64, u64)>,
}

impl Family for Outcomes {
    fn name(&self) -> &'static str {
        "outcomes"
    }

    fn needs_no_lease(&self) -> bool {
        true
    }

    fn look(&mut self, case: &Case<'_>, _facts: &Facts) -> Verdict {
        if matches!(case.seen, Seen::Restored) {
            *self = Self::default();
        }
        if let Some(packet) = case.received_by_server() {
            for message in &packet.messages {
                if let (Some(ask), true) = (message.ask(), message.terms().is_some()) {
                    self.mutations.insert((packet.session(), ask.nonce));
                }
                if let Message::Outcome(outcome) = message {
                    self.outcome_asked.insert((packet.session(), outcome.ask.nonce), (outcome.session, outcome.nonce));
                }
            }
        }
        if let Some(packet) = case.sent_by_server() {
            for message in &packet.messages {
                self.answered(packet.session(), message)?;
                self.replied(packet.session(), message)?;
            }
        }
        Ok(())
    }
}

impl Outcomes {
    fn replied(&mut self, session: SessionId, message: &Message<'_>) -> Verdict {
        if let Message::Nack(nack) = message
            && nack.nonce != 0
        {
            self.fate(session, nack.nonce, nack.fate)?;
        }
        match message.reply() {
            Some((nonce, Reply::Failed(failed))) if self.mutations.contains(&(session, nonce)) => {
                self.failed(session, nonce, failed.status)
            }
            Some((nonce, Reply::BatchFailed(failed))) => self.failed(session, nonce, failed.status),
            Some((nonce, Reply::Limited(_))) if self.mutations.contains(&(session, nonce)) => self.failed(session, nonce, Status::EDQUOT),
            Some((nonce, reply @ (Reply::Changed(_) | Reply::Batched(_)))) => self.changed(session, nonce, &reply),
            Some((nonce, Reply::OutcomeTold(told))) => {
                let Some((of, of_nonce)) = self.outcome_asked.get(&(session, nonce)).copied() else { return Ok(()) };
                self.fate(of, of_nonce, told.fate)?;
                match Reply::get(&mut Reader::new(told.reply.0)) {
                    Ok(reply) if !told.reply.0.is_empty() => self.changed(of, of_nonce, &reply),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// A packet is taken in once, so it is answered once.
    fn answered(&mut self, session: SessionId, message: &Message<'_>) -> Verdict {
        let (id, echo) = match message {
            Message::Ack(m) => (m.nonce, m.echo),
            Message::Queued(m) => (m.nonce, m.echo),
            Message::Alive(m) => (m.serial, m.echo),
            Message::Cancelled(m) => (m.serial, m.echo),
            _ => return Ok(()),
        };
        if self.answers.len() > ANSWERS_MAX {
            self.answers.clear();
        }
        if !self.answers.insert((session, message.kind().code(), id, echo)) {
            let what = format!("{} {id} in session {session} answers packet {echo} a second time", message.kind().name());
            return violated("I7", "packet-answered-twice", what);
        }
        Ok(())
    }

    /// A mutation that failed has failed for good, and for one reason.
    fn failed(&mut self, session: SessionId, nonce: u64, status: Status) -> Verdict {
        let first = *self.failures.entry((session, nonce)).or_insert(status);
        if first != status || self.outcomes.contains_key(&(session, nonce)) {
            let what = format!("request {nonce} of session {session} is told to have failed: {status}; before it was told otherwise");
            return violated("I7", "two-outcomes", what);
        }
        Ok(())
    }

    fn changed(&mut self, session: SessionId, nonce: u64, reply: &Reply<'_>) -> Verdict {
        let told: Told = match reply {
            Reply::Changed(changed) => {
                changed.effects.iter().map(|effect| (effect.attr.object, effect.before, effect.attr.version)).collect()
            }
            // Users' batches change all that they name.
            Reply::Batched(done) => done.items.iter().map(|item| (item.object, 0, item.version)).collect(),
            _ => return Ok(()),
        };
        // What had no effect may be said not to have been executed: nobody can tell the difference.
        if told.iter().any(|(_, before, after)| before != after) {
            self.fate(session, nonce, Fate::Executed)?;
        }
        for (object, before, after) in told.iter().filter(|(_, before, after)| before != after) {
            let maker = *self.makers.entry((*object, *after)).or_insert((session, nonce));
            if maker != (session, nonce) {
                let what = format!(
                    "version {after} of {object} (after {before}) is told as the work of request {nonce} of session {session}, and of request {} of session {}",
                    maker.1, maker.0
                );
                return violated("I7", "one-version-two-requests", what);
            }
        }
        let first = self.outcomes.entry((session, nonce)).or_insert_with(|| told.clone());
        if *first != told || self.failures.contains_key(&(session, nonce)) {
            let what = format!("request {nonce} of session {session} is told to have done {told:?}, and before {first:?}");
            return violated("I7", "two-outcomes", what);
        }
        Ok(())
    }

    /// "Executed" and "not executed" are never both said of one request (section 11.3).
    fn fate(&mut self, session: SessionId, nonce: u64, fate: Fate) -> Verdict {
        if fate == Fate::Unknown {
            return Ok(());
        }
        let first = *self.fates.entry((session, nonce)).or_insert(fate);
        // What failed had no effect either.
        if first != fate && !self.failures.contains_key(&(session, nonce)) {
            let what = format!("request {nonce} of session {session} is said to be {fate}, and before {first}");
            return violated("I7", "two-fates", what);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, attr, fired};
    use super::*;
    use cistern_wire::{Ack, CacheGrant, Changed, Effect, List, Nack, NackReason};

    const FILE: u64 = 7;

    fn changed(session: u64, nonce: u64, version: u64) -> (u64, Effect, u64) {
        (session, Effect { before: version - 1, attr: attr(FILE, version), grant: CacheGrant::NONE }, nonce)
    }

    fn tell(bench: &mut Bench, judge: &mut Outcomes, what: (u64, Effect, u64)) -> Verdict {
        bench.now.0 += 1;
        let echo = bench.now.0;
        tell_as(bench, judge, what, echo)
    }

    fn tell_as(bench: &mut Bench, judge: &mut Outcomes, (session, effect, nonce): (u64, Effect, u64), echo: u64) -> Verdict {
        let effects = [effect];
        let reply = Reply::Changed(Changed { effects: List::of(&effects) });
        bench.server_sends(judge, session, 1, &[Ack { nonce, echo, reply }.into()])
    }

    #[test]
    fn each_version_is_the_work_of_one_request() {
        let (mut bench, mut judge) = (Bench::new(1), Outcomes::default());
        tell(&mut bench, &mut judge, changed(5, 1, 3)).unwrap();
        tell(&mut bench, &mut judge, changed(5, 1, 3)).expect("the same answer again");
        tell(&mut bench, &mut judge, changed(6, 1, 4)).unwrap();
        fired(tell(&mut bench, &mut judge, changed(6, 2, 4)), "I7", "one-version-two-requests");
    }

    #[test]
    fn mutation_that_failed_does_not_succeed_later() {
        use cistern_wire::{Ask, Bytes8, Failed, Terms, Unlink};
        let (mut bench, mut judge) = (Bench::new(1), Outcomes::default());
        let ask = Ask { nonce: 1, back: 0, limit: 0 };
        let unlink = Unlink { ask, dir: ObjectId(1), name: Bytes8(b"n"), force: false, terms: Terms::NONE };
        bench.server_gets(&mut judge, 5, 1, &[unlink.into()]).unwrap();
        let failed = |echo| Ack { nonce: 1, echo, reply: Reply::Failed(Failed { status: Status::ENOENT, retry_ms: 0 }) };
        bench.server_sends(&mut judge, 5, 1, &[failed(1).into()]).unwrap();
        bench.server_sends(&mut judge, 5, 2, &[failed(2).into()]).unwrap();
        fired(tell_as(&mut bench, &mut judge, changed(5, 1, 3), 3), "I7", "two-outcomes");
    }

    #[test]
    fn packet_that_is_answered_twice_was_taken_in_twice() {
        use cistern_wire::Alive;
        let (mut bench, mut judge) = (Bench::new(1), Outcomes::default());
        let alive: Message<'_> = Alive { serial: 1, echo: 4 }.into();
        bench.server_sends(&mut judge, 5, 1, &[alive]).unwrap();
        fired(bench.server_sends(&mut judge, 5, 2, &[alive]), "I7", "packet-answered-twice");
    }

    #[test]
    fn request_has_one_outcome() {
        let (mut bench, mut judge) = (Bench::new(1), Outcomes::default());
        tell(&mut bench, &mut judge, changed(5, 1, 3)).unwrap();
        fired(tell(&mut bench, &mut judge, changed(5, 1, 4)), "I7", "two-outcomes");
        let nack = Nack { nonce: 1, echo: 1, reason: NackReason::Ended, fate: Fate::NotExecuted };
        fired(bench.server_sends(&mut judge, 5, 2, &[nack.into()]), "I7", "two-fates");
    }
}
