//! I8, I10 and I11 at the server: what it shows is durable, its sessions and its incarnation are recorded first.
//!
//! Decides, at the instant at which a datagram leaves: every version in it is durable (section 11.7), so an ACK of a mutation waits for its
//! commit (I19 too: with a stalled disk there is none); a session is recorded before OPENED and before its grants; the
//! incarnation shown is recorded, and larger than that of every start before. After a start of the server, all that was
//! acknowledged is on its disk.
//! Invariant: durable means that the disk has said so before this happening.
//! Leaves to others: the order of ends and grants (`server_rule`), tokens (`tokens`).

use super::case::{Case, Packet, Verdict, grants_of, violated};
use super::truth::StoredObject;
use super::{Facts, Family};
use crate::disk::Disk;
use crate::observe::{Node, Seen};
use cistern_server::store::{Counter, Key};
use cistern_wire::{Message, ObjectId, Reader, Reply, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Durable {
    /// Newest version of each object that was acknowledged, and whether that was its end.
    acked: BTreeMap<ObjectId, (u64, bool)>,
    /// The incarnation that this start of the server shows, and the largest that earlier ones showed; with the epoch.
    shown: Option<(u8, u64)>,
    before: Option<(u8, u64)>,
}

impl Family for Durable {
    fn name(&self) -> &'static str {
        "durable"
    }

    fn needs_no_lease(&self) -> bool {
        true
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        match case.seen {
            Seen::Restored => self.acked.clear(),
            Seen::Started { node: Node::Server, .. } => {
                self.before = self.before.max(self.shown.take());
                self.survived(case.sight.disk)?;
            }
            _ => {}
        }
        let Some(packet) = case.sent_by_server() else { return Ok(()) };
        for message in &packet.messages {
            self.effects(facts, packet, message)?;
            session(case.sight.disk, packet.session(), message)?;
            if let Message::Welcome(welcome) = message {
                self.incarnation(case.sight.disk, (welcome.epoch, welcome.server_incarnation))?;
            }
            if let Some((_, Reply::ServerReport(report))) = message.reply() {
                self.incarnation(case.sight.disk, (report.epoch, report.incarnation))?;
            }
        }
        Ok(())
    }
}

impl Durable {
    /// Every state that a message shows is durable.
    fn effects(&mut self, facts: &Facts, packet: &Packet<'_>, message: &Message<'_>) -> Verdict {
        let Some((nonce, reply)) = message.reply() else { return Ok(()) };
        let acks = matches!(reply, Reply::Changed(_) | Reply::Batched(_));
        let mut verdict = Ok(());
        let mut gone = BTreeSet::new();
        reply.each_attr(|attr, _| {
            if acks && attr.nlink == 0 {
                gone.insert(attr.object);
            }
        });
        reply.each_version(|id, version| {
            let object = facts.truth.object(id);
            let durable = object.map_or(0, super::truth::Object::durable);
            if gone.contains(&id) {
                self.acked.insert(id, (version, true));
                if object.is_some_and(|object| !object.is_gone_durably()) && verdict.is_ok() {
                    let what = format!("{id} is told as gone (request {nonce} of session {}), and is not", packet.session());
                    verdict = violated("I8", "shown-before-durable", what);
                }
                return;
            }
            if version > durable && !object.is_some_and(super::truth::Object::is_gone_durably) && verdict.is_ok() {
                let what = format!(
                    "{} in session {} (request {nonce}) shows version {version} of {id}; durable is version {durable}",
                    message.kind().name(),
                    packet.session()
                );
                verdict = violated("I8", if acks { "acked-before-durable" } else { "shown-before-durable" }, what);
            }
            if acks {
                let acked = self.acked.entry(id).or_insert((version, false));
                *acked = (*acked).max((version, false));
            }
        });
        verdict
    }

    /// All that was acknowledged is on the disk from which a server starts.
    fn survived(&self, disk: &Disk) -> Verdict {
        for (object, (version, gone)) in &self.acked {
            let left = disk.durable(&Key::Object(*object)).and_then(|bytes| StoredObject::read(bytes)).map(|record| record.version);
            let kept = match left {
                Some(left) => !gone && left >= *version,
                // Taken away since; whoever did that may have died before it was acknowledged.
                None => true,
            };
            if !kept {
                let what =
                    format!("{object} has version {left:?} after a start of the server; version {version} was acknowledged (gone: {gone})");
                return violated("I8", "acked-and-lost", what);
            }
        }
        Ok(())
    }

    fn incarnation(&mut self, disk: &Disk, shown: (u8, u64)) -> Verdict {
        let recorded = disk.durable(&Key::Counter(Counter::Incarnation)).and_then(|bytes| number(bytes));
        if recorded.is_none_or(|recorded| recorded < shown.1) {
            return violated("I11", "not-recorded", format!("the server shows incarnation {}; on its disk is {recorded:?}", shown.1));
        }
        if self.before.is_some_and(|before| shown <= before) || self.shown.is_some_and(|now| now != shown) {
            let what =
                format!("the server shows epoch and incarnation {shown:?}; it has shown {:?} now, {:?} before", self.shown, self.before);
            return violated("I11", "not-larger", what);
        }
        self.shown = Some(shown);
        Ok(())
    }
}

/// The session's record is durable before its agent is told that it is open, or granted anything.
fn session(disk: &Disk, session: SessionId, message: &Message<'_>) -> Verdict {
    let (of, what) = match message {
        Message::Opened(_) => (session, "is open"),
        _ if !grants_of(message).is_empty() => (session, "is granted a lock"),
        _ => return Ok(()),
    };
    match disk.durable(&Key::Session(of)) {
        Some(_) => Ok(()),
        None => violated("I10", "not-recorded", format!("session {of} {what}, and its record is not durable")),
    }
}

/// The number in a counter's record.
pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    let mut r = Reader::new(bytes);
    let _format: u8 = r.get().ok()?;
    r.get().ok()
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, attr, counter_record, fired, object_record, opened, welcome_by};
    use super::*;
    use bytes::Bytes;
    use cistern_wire::{Ack, CacheGrant, Changed, Effect, List, Stated};

    fn object(version: u64) -> Vec<(Key, Option<Bytes>)> {
        vec![(Key::Object(ObjectId(7)), Some(object_record(version, 0)))]
    }

    fn acked(bench: &mut Bench, judge: &mut Durable, version: u64) -> Verdict {
        let effects = [Effect { before: version - 1, attr: attr(7, version), grant: CacheGrant::NONE }];
        let reply = Reply::Changed(Changed { effects: List::of(&effects) });
        bench.server_sends(judge, 5, 1, &[Ack { nonce: 1, echo: 1, reply }.into()])
    }

    #[test]
    fn answer_after_the_commit_is_clean() {
        let (mut bench, mut judge) = (Bench::new(1), Durable::default());
        bench.persist(&mut judge, object(3)).unwrap();
        acked(&mut bench, &mut judge, 3).unwrap();
        bench.show(&mut judge, &Seen::Started { node: Node::Server, incarnation: 2 }).unwrap();
    }

    #[test]
    fn answer_before_the_commit_is_caught() {
        let (mut bench, mut judge) = (Bench::new(1), Durable::default());
        let batch = bench.write(&mut judge, object(3)).unwrap();
        fired(acked(&mut bench, &mut judge, 3), "I8", "acked-before-durable");
        let stated = Reply::Stated(Stated { attr: attr(7, 3), grant: CacheGrant::NONE });
        let read: Message<'_> = Ack { nonce: 2, echo: 1, reply: stated }.into();
        fired(bench.server_sends(&mut judge, 5, 1, &[read]), "I8", "shown-before-durable");
        bench.sync(&mut judge, batch).unwrap();
        bench.server_sends(&mut judge, 5, 1, &[read]).unwrap();
    }

    #[test]
    fn acknowledged_write_that_a_crash_takes_is_caught() {
        let (mut bench, mut judge) = (Bench::new(1), Durable::default());
        bench.persist(&mut judge, object(3)).unwrap();
        acked(&mut bench, &mut judge, 3).unwrap();
        bench.disk = Disk::default();
        bench.put(Key::Object(ObjectId(7)), object_record(2, 0));
        fired(bench.show(&mut judge, &Seen::Started { node: Node::Server, incarnation: 2 }), "I8", "acked-and-lost");
    }

    #[test]
    fn opened_before_the_record_is_caught() {
        let (mut bench, mut judge) = (Bench::new(1), Durable::default());
        fired(bench.server_sends(&mut judge, 5, 1, &[opened(1)]), "I10", "not-recorded");
        bench.record(&mut judge, 5, true).unwrap();
        bench.server_sends(&mut judge, 5, 2, &[opened(1)]).unwrap();
    }

    #[test]
    fn incarnation_is_recorded_and_grows() {
        let (mut bench, mut judge) = (Bench::new(1), Durable::default());
        bench.record(&mut judge, 5, true).unwrap();
        fired(bench.server_sends(&mut judge, 0, 1, &[welcome_by(5, 1, 1)]), "I11", "not-recorded");
        bench.put(Key::Counter(Counter::Incarnation), counter_record(1));
        bench.server_sends(&mut judge, 0, 1, &[welcome_by(5, 1, 1)]).unwrap();
        bench.show(&mut judge, &Seen::Started { node: Node::Server, incarnation: 2 }).unwrap();
        fired(bench.server_sends(&mut judge, 0, 1, &[welcome_by(5, 1, 1)]), "I11", "not-larger");
    }
}
