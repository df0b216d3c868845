//! I5, the notices: to whom they go, and what a rescue needs.
//!
//! Decides: notices go to sessions in good standing only; a session that failed is taken back only when every notice that it had been
//! sent by then is settled (R34). Place in the walk: looks at what the server sends and receives.
//! Invariant: what settles a notice is what the specification says: a receipt, a release, "not held" about the same lock, a newer
//! demand that is sent, a cancellation.
//! Leaves to others: whether grants conflict (`server_rule`), in which order waiters are served (`queue`).

use super::case::{Case, Verdict, violated};
use super::{Facts, Family};
use crate::observe::{Node, Seen};
use cistern_link::Instant;
use cistern_wire::{Generation, Kind, Lane, LockClass, LockId, Message, ReceiptAnswer, SessionId};
use std::collections::BTreeMap;

/// A notice that is not settled.
#[derive(Clone, Copy, Debug)]
struct Notice {
    kind: Kind,
    /// The lock it is about, up to which generation; of the end of a wait, nothing.
    about: Option<(LockId, Generation)>,
    nonce: Option<u64>,
    first: Instant,
}

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Notices {
    open: BTreeMap<(SessionId, u64), Notice>,
    failed: BTreeMap<SessionId, Instant>,
}

impl Family for Notices {
    fn name(&self) -> &'static str {
        "notices"
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        if let Some(packet) = case.received_by_server() {
            for message in &packet.messages {
                self.heard(packet.session(), message);
            }
        }
        self.rescues(facts)?;
        if let Some(packet) = case.sent_by_server() {
            for message in &packet.messages {
                self.told(case, packet.session(), message)?;
            }
        }
        if let Seen::Started { node: Node::Server, .. } = case.seen {
            *self = Self::default();
        }
        Ok(())
    }
}

impl Notices {
    fn heard(&mut self, session: SessionId, message: &Message<'_>) {
        match message {
            Message::Receipt(receipt) => {
                let notice = self.open.remove(&(session, receipt.seq));
                // "Not held" says so of every generation up to the one that the notice named.
                if let (Some((lock, up_to)), ReceiptAnswer::NotHeld) = (notice.and_then(|notice| notice.about), receipt.answer) {
                    self.settle_lock(session, lock, up_to);
                }
            }
            Message::Release(release) => release.items.iter().for_each(|item| self.settle_lock(session, item.lock, item.generation)),
            Message::ReleaseAll(all) => {
                let cache = |(lock, up_to): (LockId, Generation)| lock.class == LockClass::Cache && up_to <= all.up_to;
                self.settle(session, |notice| notice.about.is_some_and(cache));
            }
            _ => {}
        }
    }

    fn settle_lock(&mut self, session: SessionId, lock: LockId, up_to: Generation) {
        self.settle(session, |notice| notice.about.is_some_and(|(of, generation)| of == lock && generation <= up_to));
    }

    fn settle(&mut self, session: SessionId, settled: impl Fn(&Notice) -> bool) {
        self.open.retain(|of, notice| of.0 != session || !settled(notice));
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
            let missing = self.open.iter().find(|(of, notice)| of.0 == session && notice.first.raw_ns <= since.raw_ns);
            if let Some(((_, seq), notice)) = missing {
                let what = format!("session {session} is in good standing again, though {} {seq} was never receipted", notice.kind.name());
                return violated("I5", "rescued-without-receipt", what);
            }
        }
        Ok(())
    }

    fn told(&mut self, case: &Case<'_>, session: SessionId, message: &Message<'_>) -> Verdict {
        if let Message::Cancelled(told) = message {
            self.settle(session, |notice| notice.nonce == Some(told.nonce));
        }
        if message.kind().lane() != Lane::Notice {
            return Ok(());
        }
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
            self.open.retain(|of, notice| *of == (session, seq) || of.0 != session || !older(notice));
        }
        self.open.entry((session, seq)).or_insert(Notice { kind: message.kind(), about, nonce, first: now });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, fired};
    use super::*;
    use cistern_wire::{Demand, Keep, ObjectId, Probe, Receipt};

    const A: u64 = 71;
    const LOCK: LockId = LockId { object: ObjectId(7), class: LockClass::Advisory };

    /// Session A fails with these notices sent, gets these messages, and is in good standing again.
    fn rescued(notices: &[Message<'_>], messages: &[Message<'_>]) -> Verdict {
        let (mut bench, mut judge) = (Bench::new(1), Notices::default());
        bench.open(&mut judge, 0, A).unwrap();
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
