//! Who is there, and who is told: ephemeral files and watches (I2, I8, I10, I15).
//!
//! Decides from the store that an ephemeral file goes only by the batch that ends the session to which it is bound, or when that session is
//! over (I10), and not long after that once faults are (I15). Of watches: what is told is durable (I8), and a watcher that counts on being told is not long behind what is
//! durable (I2): it is told of the change, or that nothing is certain.
//! Invariant: users never take ephemeral files away, so the server does whenever one goes; spans are generous, for notices are sent
//! again with growing pauses, and time in which a machine stands still does not count.
//! Leaves to others: whom the server may probe (packet scripts of the server), delivery (`delivery`).

use super::case::{Case, Verdict, at, violated};
use super::sessions::Record;
use super::{Facts, Family};
use crate::observe::{Node, Seen, True};
use bytes::Bytes;
use cistern_agent::api::{Command, Event, WatchEvent, WatchId};
use cistern_server::store::{Bound, EphemeralRecord, Key};
use cistern_wire::{Message, ObjectId, Reply, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What comes on top of the formula, for retransmissions, queues and commits.
const SLACK: Duration = Duration::from_millis(300);

/// An ephemeral file.
#[derive(Clone, Copy, Debug)]
struct Ephemeral {
    bound: SessionId,
    /// Since when its session was seen to be over, and the server could have removed it.
    over: Option<True>,
}

/// A user's watch.
#[derive(Clone, Copy, Debug)]
struct Watching {
    object: ObjectId,
    /// The version told last, while the user counts on being told more; and since when it does.
    certain: Option<(u64, True)>,
}

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Presence {
    ephemerals: BTreeMap<ObjectId, Ephemeral>,
    watches: BTreeMap<(usize, WatchId), Watching>,
    /// When each machine, or the server, was seen standing still or down last.
    stood_still: BTreeMap<Node, True>,
    restored: bool,
    /// Sessions whose end was handed to the store, by this start of the server.
    ending: BTreeSet<SessionId>,
    /// RECLAIM_COMPLETEs that came before that, by session and nonce; and the sessions of which the server has said that it is done.
    completing: BTreeMap<(SessionId, u64), SessionId>,
    reclaimed: BTreeSet<SessionId>,
}

impl Family for Presence {
    fn name(&self) -> &'static str {
        "presence"
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        match case.seen {
            Seen::Persisted { batch } => {
                for (key, value) in &batch.writes {
                    match key {
                        Key::Ephemeral(_, object) => self.written(case, facts, *object, value.as_ref())?,
                        Key::Session(session) if value.is_none() => {
                            self.ending.insert(*session);
                        }
                        _ => {}
                    }
                }
            }
            Seen::Started { node: Node::Server, .. } => {
                self.ending.clear();
                self.completing.clear();
                self.load(case);
            }
            Seen::Received { by: Node::Server, .. } | Seen::Sent { from: Node::Server, .. } => self.note_reclaims(case),
            Seen::Restored => self.restored = true,
            Seen::Crashed { node: Node::Agent(agent) } => self.watches.retain(|(of, _), _| of != agent),
            Seen::Submitted { agent, command: Command::Unwatch { watch }, .. } => {
                self.watches.remove(&(*agent, *watch));
            }
            Seen::Told { agent, event: Event::Watch { watch, object, what } } => {
                self.told(case, facts, (*agent, *watch), *object, *what)?;
            }
            Seen::Settled => {
                self.note_stops(case, facts);
                self.left_behind(case, facts)?;
                return self.behind(case, facts);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Ephemeral files.
impl Presence {
    /// What was reclaimed from a session before that could end belongs to the new one.
    fn note_reclaims(&mut self, case: &Case<'_>) {
        if let Some(packet) = case.received_by_server() {
            for message in &packet.messages {
                if let Message::ReclaimComplete(complete) = message
                    && !self.ending.contains(&complete.from)
                {
                    self.completing.insert((packet.session(), complete.ask.nonce), complete.from);
                }
            }
        }
        if let Some(packet) = case.sent_by_server() {
            for message in &packet.messages {
                if let Some((nonce, Reply::Done(_))) = message.reply()
                    && let Some(from) = self.completing.get(&(packet.session(), nonce))
                {
                    self.reclaimed.insert(*from);
                }
            }
        }
    }

    /// Whether a session has ended or does so by the batch at hand, and not by a reclaim from it.
    fn is_over(&self, case: &Case<'_>, facts: &Facts, session: SessionId) -> bool {
        let ends = self.ending.contains(&session);
        let is_over = facts.sessions.get(session).is_none_or(|known| ends || known.is_over(case.server_now()));
        is_over && !self.reclaimed.contains(&session)
    }

    fn written(&mut self, case: &Case<'_>, facts: &Facts, object: ObjectId, value: Option<&Bytes>) -> Verdict {
        if let Some(bound) = value.and_then(|bytes| bound_to(bytes)) {
            self.ephemerals.insert(object, Ephemeral { bound, over: None });
            return Ok(());
        }
        let Some(Ephemeral { bound, .. }) = self.ephemerals.remove(&object) else { return Ok(()) };
        if !self.restored && !self.is_over(case, facts, bound) {
            let what = format!(
                "the ephemeral file {object} goes at {}, and session {bound}, to which it is bound, is not over",
                at(case.sight.now)
            );
            return violated("I10", "ephemeral-of-the-living", what);
        }
        Ok(())
    }

    /// After a start the disk tells what is left.
    fn load(&mut self, case: &Case<'_>) {
        let read = |(key, value): (&Key, &Bytes)| match key {
            Key::Ephemeral(_, object) => Some((*object, Ephemeral { bound: bound_to(value)?, over: None })),
            _ => None,
        };
        self.ephemerals = case.sight.disk.durable_values().filter_map(read).collect();
    }

    /// Once faults are over, files of sessions that are over do not stay.
    fn left_behind(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        let (now, config) = (case.sight.now, case.sight.server_config);
        let busy = case.sight.healed_at.is_none() || !facts.sessions.server_up || case.sight.server_paused || facts.sessions.in_grace();
        let span = nanos(2 * config.failover_bound(config.longest_lease()) + SLACK);
        for (object, ephemeral) in &mut self.ephemerals {
            if busy || !facts.sessions.get(ephemeral.bound).is_some_and(|session| session.record == Record::Ended) {
                ephemeral.over = None;
                continue;
            }
            let since = *ephemeral.over.get_or_insert(now);
            if now.0 - since.0 > span {
                let what = format!("the ephemeral file {object} is still there; session {} is over since {}", ephemeral.bound, at(since));
                return violated("I15", "ephemeral-left-behind", what);
            }
        }
        Ok(())
    }
}

/// Watches.
impl Presence {
    fn told(&mut self, case: &Case<'_>, facts: &Facts, who: (usize, WatchId), object: ObjectId, what: WatchEvent) -> Verdict {
        let now = case.sight.now;
        let watching = self.watches.entry(who).or_insert(Watching { object, certain: None });
        match what {
            WatchEvent::Certain { version } | WatchEvent::Changed { version } => {
                watching.certain = Some((version, now));
                let known = facts.truth.object(object);
                let durable = known.is_some_and(|known| known.durable() >= version);
                if !durable && facts.truth.restored.is_none() {
                    let what = format!("agent {} tells version {version} of {object}, which is not durable", who.0);
                    return violated("I8", "told-before-durable", what);
                }
            }
            WatchEvent::Uncertain => watching.certain = None,
            WatchEvent::Gone => {
                self.watches.remove(&who);
                if facts.truth.restored.is_none() && facts.truth.object(object).is_some_and(|known| !known.is_gone()) {
                    return violated("I2", "gone-though-there", format!("agent {} tells that {object} is gone, which it is not", who.0));
                }
            }
        }
        Ok(())
    }

    /// Whoever counts on being told is not long behind.
    fn behind(&self, case: &Case<'_>, facts: &Facts) -> Verdict {
        let (now, config) = (case.sight.now, case.sight.server_config);
        let span = nanos(2 * config.failover_bound(config.longest_lease()) + SLACK);
        if facts.truth.restored.is_some() {
            return Ok(());
        }
        for ((agent, _), watching) in &self.watches {
            let (Some((told, certain)), Some(object)) = (watching.certain, facts.truth.object(watching.object)) else { continue };
            let Some(missed) = object.first_durable_above(told) else { continue };
            let stops = [Node::Server, Node::Agent(*agent)].into_iter().filter_map(|node| self.stood_still.get(&node).copied());
            let since = stops.chain([missed, certain]).max().unwrap_or(missed);
            if now.0 - since.0 > span {
                let what = format!(
                    "a user of agent {agent} counts on version {told} of {} since {}; another is durable since {}",
                    watching.object,
                    at(certain),
                    at(missed)
                );
                return violated("I2", "watcher-not-told", what);
            }
        }
        Ok(())
    }

    fn note_stops(&mut self, case: &Case<'_>, facts: &Facts) {
        let now = case.sight.now;
        if !facts.sessions.server_up || case.sight.server_paused {
            self.stood_still.insert(Node::Server, now);
        }
        for (agent, machine) in case.sight.agents.iter().enumerate() {
            if !facts.sessions.agents[agent].up || machine.paused {
                self.stood_still.insert(Node::Agent(agent), now);
            }
        }
    }
}

/// The session in the record of an ephemeral file: its last eight bytes.
fn bound_to(bytes: &[u8]) -> Option<SessionId> {
    // What goes with a named lease is another judge's.
    match EphemeralRecord::from_bytes(bytes).ok()?.bound {
        Bound::Session(session) => Some(session),
        Bound::Lease(_) => None,
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, fired, object_record};
    use super::*;
    use cistern_wire::Handle;

    const FILE: u64 = 7;
    const OWNER: u64 = 0xAB;

    fn tell(bench: &mut Bench, judge: &mut Presence, what: WatchEvent) -> Verdict {
        let event = Event::Watch { watch: WatchId(1), object: ObjectId(FILE), what };
        bench.show(judge, &Seen::Told { agent: 0, event: &event })
    }

    /// A file with this version, durable.
    fn file(bench: &mut Bench, judge: &mut Presence, version: u64) {
        let key = Key::Object(ObjectId(FILE));
        let batch = bench.write(judge, vec![(key, Some(object_record(version, 0)))]).unwrap();
        bench.sync(judge, batch).unwrap();
    }

    fn row() -> (Key, Bytes) {
        let bound = [&[1][..], &OWNER.to_be_bytes()].concat();
        (Key::Ephemeral(Handle(OWNER), ObjectId(FILE)), bound.into())
    }

    #[test]
    fn version_that_is_not_durable_may_not_be_told() {
        let (mut bench, mut judge) = (Bench::new(1), Presence::default());
        file(&mut bench, &mut judge, 1);
        tell(&mut bench, &mut judge, WatchEvent::Certain { version: 1 }).unwrap();
        fired(tell(&mut bench, &mut judge, WatchEvent::Changed { version: 2 }), "I8", "told-before-durable");
    }

    #[test]
    fn what_is_there_may_not_be_told_gone() {
        let (mut bench, mut judge) = (Bench::new(1), Presence::default());
        file(&mut bench, &mut judge, 1);
        fired(tell(&mut bench, &mut judge, WatchEvent::Gone), "I2", "gone-though-there");
    }

    #[test]
    fn who_counts_on_being_told_may_not_be_long_behind() {
        let (mut bench, mut judge) = (Bench::new(1), Presence::default());
        file(&mut bench, &mut judge, 1);
        tell(&mut bench, &mut judge, WatchEvent::Certain { version: 1 }).unwrap();
        file(&mut bench, &mut judge, 2);
        bench.pass(100);
        bench.show(&mut judge, &Seen::Settled).unwrap();
        bench.pass(600_000);
        fired(bench.show(&mut judge, &Seen::Settled), "I2", "watcher-not-told");
        tell(&mut bench, &mut judge, WatchEvent::Uncertain).unwrap();
        bench.show(&mut judge, &Seen::Settled).unwrap();
    }

    #[test]
    fn ephemeral_file_may_not_go_while_its_session_lives() {
        let (mut bench, mut judge) = (Bench::new(1), Presence::default());
        bench.open(&mut judge, 0, OWNER).unwrap();
        let (key, record) = row();
        bench.persist(&mut judge, vec![(key.clone(), Some(record))]).unwrap();
        fired(bench.persist(&mut judge, vec![(key, None)]), "I10", "ephemeral-of-the-living");
    }

    #[test]
    fn ephemeral_file_of_an_unknown_session_may_go() {
        let (mut bench, mut judge) = (Bench::new(1), Presence::default());
        let (key, record) = row();
        bench.persist(&mut judge, vec![(key.clone(), Some(record))]).unwrap();
        bench.persist(&mut judge, vec![(key, None)]).unwrap();
    }
}
