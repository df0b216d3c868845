//! Delivery failures and their undoing: D only after the agent was asked often enough, and back only when it has answered (I5, I16).
//!
//! Decides, when a session is first seen timing out: a notice in it was sent three times or more and for Td, and not receipted; or a
//! demand for a cache lock was receipted and not complied with for the compliance time (section 11.3). When it is seen in good standing
//! again: rescue is switched on, and the notice that failed has been receipted, or the lock that it asks for given back.
//! Invariant: spans are read on the server's own clock. Half of each is enough, for the server counts in turns.
//! Leaves to others: what the server may send meanwhile (`server_rule`), whether the agent was sound at all (`liveness`).

use super::case::{Case, Verdict, reading, violated};
use super::{Facts, Family};
use crate::observe::{Node, Seen};
use cistern_link::Instant;
use cistern_wire::{Generation, Keep, LockClass, LockId, Message, ReceiptAnswer, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Transmissions before a delivery may fail (section 11.3).
const TRANSMISSIONS: u32 = 3;

/// A notice that is not receipted.
#[derive(Clone, Copy, Debug)]
struct Notice {
    first: Instant,
    sent: u32,
    lock: Option<(LockId, Generation)>,
    /// What it asks for was given back or refused under another notice, which receipts it, too (section 11.3).
    implied: bool,
}

/// The notices of one session.
#[derive(Clone, Debug, Default)]
struct Notices {
    open: BTreeMap<u64, Notice>,
    /// Demands for cache locks that were receipted and not complied with, and since when.
    owed: BTreeMap<LockId, (Generation, Instant)>,
    /// The notice that failed, while the session is timing out; 0: it did not comply.
    failed: Option<u64>,
}

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    sessions: BTreeMap<SessionId, Notices>,
    failed: BTreeSet<SessionId>,
}

impl Family for Delivery {
    fn name(&self) -> &'static str {
        "delivery"
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        if matches!(case.seen, Seen::Started { node: Node::Server, .. }) {
            *self = Self::default();
        }
        if let Some(packet) = case.received_by_server() {
            // Of a session of an earlier start nothing is taken in.
            let now = case.server_now();
            let notices = self.sessions.entry(packet.session()).or_default();
            packet.messages.iter().for_each(|message| notices.heard(now, message));
        }
        if let Some(packet) = case.sent_by_server() {
            let now = case.server_now();
            let notices = self.sessions.entry(packet.session()).or_default();
            packet.messages.iter().for_each(|message| notices.told(now, message));
        }
        if matches!(case.seen, Seen::Settled | Seen::Sent { from: Node::Server, .. }) {
            return self.standings(case, facts);
        }
        Ok(())
    }
}

impl Delivery {
    fn standings(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        for (id, standing) in &facts.sessions.standing {
            let Some(session) = facts.sessions.get(*id) else { continue };
            match (session.failed.is_some(), self.failed.contains(id)) {
                (true, false) => {
                    self.failed.insert(*id);
                    if *standing == "timing out" {
                        self.fails(case, *id, session.tau)?;
                    }
                }
                (false, true) => {
                    self.failed.remove(id);
                    self.comes_back(case, *id)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn fails(&mut self, case: &Case<'_>, id: SessionId, tau: Duration) -> Verdict {
        let (now, config) = (case.server_now(), case.sight.server_config);
        let notices = self.sessions.entry(id).or_default();
        let long_enough = |since: Instant, span: Duration| now.waited(since.plus(span / 2));
        let lost = |notice: &Notice| notice.sent >= TRANSMISSIONS && long_enough(notice.first, config.delivery_timeout_for(tau));
        notices.failed = notices.open.iter().find(|(_, notice)| lost(notice)).map(|(seq, _)| *seq);
        if notices.failed.is_some() {
            return Ok(());
        }
        notices.failed = Some(0);
        if notices.owed.values().any(|(_, since)| long_enough(*since, config.compliance_time)) {
            return Ok(());
        }
        let open: Vec<String> =
            notices.open.iter().map(|(seq, n)| format!("{seq} ({} times since {})", n.sent, reading(n.first))).collect();
        let what = format!("session {id} fails at {}; its notices not receipted: {}", reading(now), open.join(", "));
        violated("I16", "failed-too-early", what)
    }

    fn comes_back(&mut self, case: &Case<'_>, id: SessionId) -> Verdict {
        if !case.sight.server_config.rescue {
            return violated("I5", "rescued-though-off", format!("session {id} is in good standing again; rescue is switched off"));
        }
        let notices = self.sessions.entry(id).or_default();
        match notices.failed.take().filter(|seq| notices.open.get(seq).is_some_and(|notice| !notice.implied)) {
            Some(seq) => {
                let what = format!("session {id} is in good standing again, and its notice {seq} is not receipted");
                violated("I5", "rescued-without-receipt", what)
            }
            None => Ok(()),
        }
    }
}

impl Notices {
    fn told(&mut self, now: Instant, message: &Message<'_>) {
        let (seq, lock) = match message {
            Message::Demand(demand) => (demand.seq, Some((demand.lock, demand.generation))),
            Message::Grant(grant) => (grant.seq, Some((grant.lock, grant.generation))),
            Message::WaitOver(over) => (over.seq, None),
            Message::Probe(probe) => (probe.seq, None),
            Message::WatchEvent(event) => (event.seq, None),
            _ => return,
        };
        if let Some((of, up_to)) = lock {
            // A newer demand for a lock, or a newer grant of it, takes the place of what was said of it before.
            for older in self.open.range_mut(..seq).map(|(_, notice)| notice) {
                older.implied |= older.lock.is_some_and(|(lock, generation)| lock == of && generation <= up_to);
            }
        }
        let notice = self.open.entry(seq).or_insert(Notice { first: now, sent: 0, lock, implied: false });
        notice.sent += 1;
    }

    fn heard(&mut self, now: Instant, message: &Message<'_>) {
        match message {
            Message::Receipt(receipt) => {
                let Some(notice) = self.open.remove(&receipt.seq) else { return };
                let Some((lock, generation)) = notice.lock else { return };
                if receipt.answer == ReceiptAnswer::NotHeld {
                    self.given_back(lock, generation);
                } else if lock.class == LockClass::Cache {
                    self.owed.entry(lock).or_insert((generation, now));
                }
            }
            Message::Release(release) => {
                for item in release.items.iter() {
                    self.given_back(item.lock, item.generation);
                    if item.keep == Keep::Shared {
                        self.owed.remove(&item.lock);
                    }
                }
            }
            _ => {}
        }
    }

    /// A release or refusal naming a generation receipts what was said of it and of older ones.
    fn given_back(&mut self, lock: LockId, up_to: Generation) {
        for notice in self.open.values_mut() {
            notice.implied |= notice.lock.is_some_and(|(of, generation)| of == lock && generation <= up_to);
        }
        if self.owed.get(&lock).is_some_and(|(generation, _)| *generation <= up_to) {
            self.owed.remove(&lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, fired};
    use super::*;
    use cistern_wire::{ObjectId, Probe, Receipt};

    const S: u64 = 71;

    fn demand(seq: u64) -> Message<'static> {
        let lock = LockId { object: ObjectId(7), class: LockClass::Cache };
        cistern_wire::Demand { seq, lock, generation: Generation(100), keep: Keep::Nothing }.into()
    }

    fn receipt(seq: u64) -> Message<'static> {
        Receipt { seq, answer: ReceiptAnswer::Received }.into()
    }

    fn stands(bench: &mut Bench, judge: &mut Delivery, standing: &'static str) -> Verdict {
        bench.facts.sessions.standing.insert(SessionId(S), standing);
        let now = bench.server_clock.at(bench.now);
        bench.facts.sessions.note_failures(now);
        bench.show(judge, &Seen::Settled)
    }

    /// A demand sent so often, 200 ms apart, and then time to make it 600 ms.
    fn demanded(times: u64) -> (Bench, Delivery) {
        let (mut bench, mut judge) = (Bench::new(1), Delivery::default());
        bench.open(&mut judge, 0, S).unwrap();
        stands(&mut bench, &mut judge, "good").unwrap();
        for n in 0..times {
            bench.server_sends(&mut judge, S, 2 + n, &[demand(1)]).unwrap();
            bench.pass(200);
        }
        bench.pass(600 - 200 * times);
        (bench, judge)
    }

    #[test]
    fn failure_after_three_transmissions_and_td_is_clean() {
        let (mut bench, mut judge) = demanded(3);
        stands(&mut bench, &mut judge, "timing out").unwrap();
    }

    #[test]
    fn failure_after_two_transmissions_is_caught() {
        let (mut bench, mut judge) = demanded(2);
        fired(stands(&mut bench, &mut judge, "timing out"), "I16", "failed-too-early");
    }

    #[test]
    fn failure_of_one_who_has_receipted_is_caught() {
        let (mut bench, mut judge) = demanded(3);
        bench.server_gets(&mut judge, S, 3, &[receipt(1)]).unwrap();
        fired(stands(&mut bench, &mut judge, "timing out"), "I16", "failed-too-early");
    }

    #[test]
    fn failure_of_one_who_does_not_comply_is_clean_only_after_the_compliance_time() {
        for (quarters, right) in [(3, true), (1, false)] {
            let (mut bench, mut judge) = demanded(1);
            bench.server_gets(&mut judge, S, 3, &[receipt(1)]).unwrap();
            let quarter = bench.config.compliance_time / 4;
            bench.pass(u64::try_from(quarter.as_millis()).unwrap() * quarters);
            let verdict = stands(&mut bench, &mut judge, "timing out");
            if right {
                verdict.unwrap();
            } else {
                fired(verdict, "I16", "failed-too-early");
            }
        }
    }

    #[test]
    fn rescue_needs_the_receipt_of_what_failed() {
        for seq in [1, 2] {
            let (mut bench, mut judge) = demanded(3);
            bench.server_sends(&mut judge, S, 9, &[Probe { seq: 2 }.into()]).unwrap();
            stands(&mut bench, &mut judge, "timing out").unwrap();
            bench.server_gets(&mut judge, S, 3, &[receipt(seq)]).unwrap();
            let verdict = stands(&mut bench, &mut judge, "good");
            if seq == 1 {
                verdict.unwrap();
            } else {
                fired(verdict, "I5", "rescued-without-receipt");
            }
        }
    }

    #[test]
    fn rescue_that_is_switched_off_is_caught() {
        let (mut bench, mut judge) = demanded(3);
        bench.config.rescue = false;
        stands(&mut bench, &mut judge, "timing out").unwrap();
        bench.server_gets(&mut judge, S, 3, &[receipt(1)]).unwrap();
        fired(stands(&mut bench, &mut judge, "good"), "I5", "rescued-though-off");
    }
}
