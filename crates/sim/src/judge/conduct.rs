//! How the server conducts itself towards those who wait: notices, rescues, cancellations, the order of a queue.
//!
//! Decides: notices go to sessions in good standing only (I5); a session that failed is taken back only when every notice that it had
//! been sent by then is settled (R34); of a wait that was cancelled no grant follows (I14); and no shared request is granted past an
//! exclusive one that began to wait before it arrived (R67, I15). Place in the walk: looks at what the server sends and receives.
//! Invariant: what settles a notice is what the specification says, a receipt, a release, a newer demand, a cancellation.
//! Leaves to others: whether grants conflict (`server_rule`), how often things are sent again (`pace`).

use super::case::{Case, Verdict, at, violated};
use super::{Facts, Family};
use crate::observe::{Node, Seen, True};
use cistern_link::Instant;
use cistern_wire::{CancelOutcome, Generation, Kind, Lane, LockClass, LockId, Message, Mode, ObjectId, ReceiptAnswer, Reply, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// A notice that is not settled.
#[derive(Clone, Copy, Debug)]
struct Notice {
    kind: Kind,
    /// The lock it is about, up to which generation; of the end of a wait, nothing.
    about: Option<(LockId, Generation)>,
    nonce: Option<u64>,
    first: Instant,
}

/// A request for an advisory lock.
#[derive(Clone, Copy, Debug)]
struct Asked {
    object: ObjectId,
    mode: Mode,
    arrived: True,
    /// When it was first said to wait.
    queued: Option<True>,
    /// Whether its agent wants it back.
    cancelled: bool,
}

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Conduct {
    notices: BTreeMap<(SessionId, u64), Notice>,
    failed: BTreeMap<SessionId, Instant>,
    cancelled: BTreeSet<(SessionId, u64)>,
    asked: BTreeMap<(SessionId, u64), Asked>,
    /// Requests that were answered for good; what comes of them still is a copy.
    over: BTreeSet<(SessionId, u64)>,
}

impl Family for Conduct {
    fn name(&self) -> &'static str {
        "conduct"
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        if let Some(packet) = case.received_by_server() {
            for message in &packet.messages {
                self.heard(case, packet.session(), message);
            }
        }
        self.rescues(facts)?;
        if let Some(packet) = case.sent_by_server() {
            for message in &packet.messages {
                self.told(case, facts, packet.session(), message)?;
            }
        }
        if let Seen::Started { node: Node::Server, .. } = case.seen {
            *self = Self::default();
        }
        Ok(())
    }
}

impl Conduct {
    fn heard(&mut self, case: &Case<'_>, session: SessionId, message: &Message<'_>) {
        match message {
            Message::Receipt(receipt) => {
                let notice = self.notices.remove(&(session, receipt.seq));
                // "Not held" says so of every generation up to the one that the notice named.
                if let (Some((lock, up_to)), ReceiptAnswer::NotHeld) = (notice.and_then(|notice| notice.about), receipt.answer) {
                    self.settle(session, |other| other.about.is_some_and(|(of, generation)| of == lock && generation <= up_to));
                }
            }
            Message::Release(release) => {
                for item in release.items {
                    self.settle(session, |notice| notice.about.is_some_and(|(lock, up_to)| lock == item.lock && up_to <= item.generation));
                }
            }
            Message::ReleaseAll(all) => {
                let cache = |(lock, up_to): (LockId, Generation)| lock.class == LockClass::Cache && up_to <= all.up_to;
                self.settle(session, |notice| notice.about.is_some_and(cache));
            }
            // From here on it may be over any time, perhaps before others are told of what that gave them.
            Message::Cancel(cancel) => {
                if let Some(asked) = self.asked.get_mut(&(session, cancel.nonce)) {
                    asked.cancelled = true;
                }
            }
            Message::Lock(lock) if !self.over.contains(&(session, lock.ask.nonce)) => {
                let (object, mode, arrived) = (lock.object, lock.mode, case.sight.now);
                self.asked.entry((session, lock.ask.nonce)).or_insert(Asked { object, mode, arrived, queued: None, cancelled: false });
            }
            _ => {}
        }
    }

    fn settle(&mut self, session: SessionId, settled: impl Fn(&Notice) -> bool) {
        self.notices.retain(|of, notice| of.0 != session || !settled(notice));
    }

    /// Sessions that failed and are in good standing again.
    fn rescues(&mut self, facts: &Facts) -> Verdict {
        let failed = facts.sessions.all.iter().filter_map(|(id, session)| Some((*id, session.failed?)));
        let failed: BTreeMap<SessionId, Instant> = failed.collect();
        let before = std::mem::replace(&mut self.failed, failed);
        for (session, since) in before {
            let good = facts.sessions.standing.get(&session) == Some(&"good");
            if !good || self.failed.contains_key(&session) {
                continue;
            }
            let missing = self.notices.iter().find(|(of, notice)| of.0 == session && notice.first.raw_ns <= since.raw_ns);
            if let Some(((_, seq), notice)) = missing {
                let what = format!("session {session} is in good standing again, though {} {seq} was never receipted", notice.kind.name());
                return violated("I5", "rescued-without-receipt", what);
            }
        }
        Ok(())
    }

    fn told(&mut self, case: &Case<'_>, facts: &Facts, session: SessionId, message: &Message<'_>) -> Verdict {
        if message.kind().lane() == Lane::Notice {
            self.notice(case, session, message)?;
        }
        match message {
            Message::Queued(queued) => {
                if let Some(asked) = self.asked.get_mut(&(session, queued.nonce)) {
                    asked.queued.get_or_insert(case.sight.now);
                }
            }
            Message::Cancelled(told) => {
                if told.outcome == CancelOutcome::Cancelled {
                    self.cancelled.insert((session, told.nonce));
                }
                self.end(session, told.nonce);
                self.settle(session, |notice| notice.nonce == Some(told.nonce));
            }
            Message::WaitOver(over) => {
                self.end(session, over.nonce);
            }
            Message::Grant(grant) => {
                if self.cancelled.contains(&(session, grant.nonce)) {
                    let what = format!("{} is granted to session {session} for request {}, which was cancelled", grant.lock, grant.nonce);
                    return violated("I14", "granted-after-cancel", what);
                }
                return self.granted(case, facts, session, grant.nonce, grant.mode);
            }
            Message::Ack(ack) => match ack.reply {
                Reply::Granted(granted) => return self.granted(case, facts, session, ack.nonce, granted.mode),
                _ => {
                    self.end(session, ack.nonce);
                }
            },
            _ => {}
        }
        Ok(())
    }

    /// A notice leaves.
    fn notice(&mut self, case: &Case<'_>, session: SessionId, message: &Message<'_>) -> Verdict {
        let now = case.server_now();
        let rows = case.sight.server.map(|server| server.sessions(now)).unwrap_or_default();
        if let Some(row) = rows.iter().find(|row| row.session == session && row.standing != "good") {
            let what = format!("{} leaves for session {session}, which is {}", message.kind().name(), row.standing);
            return violated("I5", "notice-while-failed", what);
        }
        let (seq, about, nonce) = match message {
            Message::Demand(demand) => (demand.seq, Some((demand.lock, demand.generation)), None),
            Message::Grant(grant) => (grant.seq, Some((grant.lock, grant.generation)), Some(grant.nonce)),
            Message::WaitOver(over) => (over.seq, None, Some(over.nonce)),
            Message::Probe(probe) => (probe.seq, None, None),
            _ => return Ok(()),
        };
        if let Message::Demand(demand) = message {
            // A newer demand for a lock takes the place of an older one.
            let older = |notice: &Notice| notice.kind == Kind::Demand && notice.about.is_some_and(|(lock, _)| lock == demand.lock);
            self.notices.retain(|of, notice| *of == (session, seq) || of.0 != session || !older(notice));
        }
        self.notices.entry((session, seq)).or_insert(Notice { kind: message.kind(), about, nonce, first: now });
        Ok(())
    }

    /// A request was answered for good.
    fn end(&mut self, session: SessionId, nonce: u64) -> Option<Asked> {
        let asked = self.asked.remove(&(session, nonce))?;
        self.over.insert((session, nonce));
        Some(asked)
    }

    /// A request for a lock is granted, for the first time or told again.
    fn granted(&mut self, case: &Case<'_>, facts: &Facts, session: SessionId, nonce: u64, mode: Mode) -> Verdict {
        let Some(asked) = self.end(session, nonce) else { return Ok(()) };
        if mode != Mode::Shared {
            return Ok(());
        }
        let passed = self.asked.iter().find(|((waiter, _), waits)| {
            let before = waits.queued.is_some_and(|queued| queued < asked.arrived);
            let same = waits.object == asked.object && waits.mode == Mode::Exclusive;
            *waiter != session && same && before && !waits.cancelled && in_good_standing(case, facts, *waiter)
        });
        match passed {
            Some(((waiter, waiting), waits)) => violated(
                "I15",
                "overtaken",
                format!(
                    "session {session} is granted {} shared by request {nonce}, which came at {}, although request {waiting} of session \
                     {waiter} waits for it exclusively since {}",
                    asked.object,
                    at(asked.arrived),
                    at(waits.queued.unwrap_or_default())
                ),
            ),
            None => Ok(()),
        }
    }
}

/// Whether a session is in good standing at this very moment.
fn in_good_standing(case: &Case<'_>, facts: &Facts, session: SessionId) -> bool {
    let rows = case.sight.server.map(|server| server.sessions(case.server_now()));
    match rows {
        Some(rows) => rows.iter().any(|row| row.session == session && row.standing == "good"),
        None => facts.sessions.get(session).is_some_and(|known| known.failed.is_none() && known.given_up.is_none()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, fired};
    use super::*;
    use cistern_wire::{
        Ack, AgentId, Ask, Bytes8, Cancelled, Demand, Grant, Granted, Holder, Keep, Lock, LockWait, Probe, Queued, Receipt, ReceiptAnswer,
        Standing,
    };

    const A: u64 = 71;
    const B: u64 = 72;
    const LOCK: LockId = LockId { object: ObjectId(7), class: LockClass::Advisory };

    fn opened() -> (Bench, Conduct) {
        let (mut bench, mut judge) = (Bench::new(2), Conduct::default());
        bench.open(&mut judge, 0, A).unwrap();
        bench.open(&mut judge, 1, B).unwrap();
        (bench, judge)
    }

    fn asks(nonce: u64, mode: Mode) -> Message<'static> {
        Lock { ask: Ask { nonce, back: 0, limit: 1_232 }, object: LOCK.object, mode, wait: LockWait::Queue }.into()
    }

    fn queued(nonce: u64) -> Message<'static> {
        let holder =
            Holder { label: Bytes8(b""), agent: AgentId([0; 16]), mode: Mode::Shared, since_ms: 0, standing: Standing::Good, bound_ms: 0 };
        Queued { nonce, echo: 5, lock: LOCK, ahead: 0, holder }.into()
    }

    fn granted(nonce: u64, mode: Mode) -> Message<'static> {
        Ack { nonce, echo: 5, reply: Reply::Granted(Granted { lock: LOCK, mode, generation: Generation(9), run: 1 }) }.into()
    }

    #[test]
    fn shared_request_past_a_waiting_exclusive_one_is_caught() {
        for later in [true, false] {
            let (mut bench, mut judge) = opened();
            if !later {
                bench.server_gets(&mut judge, B, 5, &[asks(3, Mode::Shared)]).unwrap();
            }
            bench.server_gets(&mut judge, A, 5, &[asks(1, Mode::Exclusive)]).unwrap();
            bench.server_sends(&mut judge, A, 2, &[queued(1)]).unwrap();
            bench.pass(1);
            if later {
                bench.server_gets(&mut judge, B, 6, &[asks(3, Mode::Shared)]).unwrap();
            }
            let verdict = bench.server_sends(&mut judge, B, 2, &[granted(3, Mode::Shared)]);
            if later {
                fired(verdict, "I15", "overtaken");
            } else {
                verdict.expect("it came first");
            }
        }
    }

    #[test]
    fn grant_of_a_cancelled_wait_is_caught() {
        let (mut bench, mut judge) = opened();
        let grant = Grant { seq: 1, nonce: 1, lock: LOCK, mode: Mode::Exclusive, generation: Generation(9), run: 1 };
        let cancelled = Cancelled { serial: 1, echo: 5, nonce: 1, outcome: CancelOutcome::Cancelled, generation: Generation(0) };
        bench.server_sends(&mut judge, A, 2, &[cancelled.into()]).unwrap();
        fired(bench.server_sends(&mut judge, A, 3, &[grant.into()]), "I14", "granted-after-cancel");
    }

    /// Session A fails with these notices sent, gets these messages, and is in good standing again.
    fn rescued(notices: &[Message<'_>], messages: &[Message<'_>]) -> Verdict {
        let (mut bench, mut judge) = opened();
        bench.server_sends(&mut judge, A, 2, notices).unwrap();
        bench.pass(500);
        bench.facts.sessions.standing.insert(SessionId(A), "timing out");
        let now = bench.server_clock.at(bench.now);
        bench.facts.sessions.note_failures(now);
        bench.show(&mut judge, &Seen::Settled).unwrap();
        bench.server_gets(&mut judge, A, 6, messages).unwrap();
        bench.facts.sessions.standing.insert(SessionId(A), "good");
        bench.facts.sessions.note_failures(now);
        bench.show(&mut judge, &Seen::Settled)
    }

    #[test]
    fn rescue_without_every_receipt_is_caught() {
        let demand = |seq| Message::from(Demand { seq, lock: LOCK, generation: Generation(seq), keep: Keep::Nothing });
        let receipt = |seq| Message::from(Receipt { seq, answer: ReceiptAnswer::Received });
        let both = [demand(1), Probe { seq: 2 }.into()];
        rescued(&both, &[receipt(1), receipt(2)]).unwrap();
        fired(rescued(&both, &[receipt(1)]), "I5", "rescued-without-receipt");
        rescued(&[demand(1), demand(2)], &[receipt(2)]).expect("the newer demand took the place of the older");
    }
}
