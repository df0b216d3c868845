//! Named leases (I21): how long each lasts, who keeps it, and what goes with it.
//!
//! Decides from the store and from what users were told: no lease ends by time while the clock of somebody who was told "until then" has not come
//! to that, nor in grace, nor before the server has served for its time; it does end when its wait has passed since it was kept last; what goes
//! with it goes by its end or after it, and soon; nobody keeps it without its secret, or once it has ended.
//! Invariant: a lease that a user was about to revoke may end at any time from then on. Time in which the server stood still, was down or in
//! grace does not count.
//! Leaves to others: watchers who are told, and caches that are asked back (`presence`, `reads`).

use super::case::{Case, Verdict, at, nanos, violated};
use super::{Facts, Family};
use crate::observe::{Node, Seen, True};
use bytes::Bytes;
use cistern_agent::api::{Command, Output, Target};
use cistern_link::Instant;
use cistern_seal::LeaseSecret;
use cistern_server::store::{Batch, BatchId, Bound, EphemeralRecord, Key, LeaseRecord};
use cistern_wire::{Message, ObjectId, Reply, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What comes on top of the formulas, for turns, queues and commits.
const SLACK: Duration = Duration::from_millis(300);

/// A lease whose record is there.
#[derive(Clone, Debug)]
struct Living {
    ttl: Duration,
    /// The last component of its path, as it was made; empty: not known.
    name: Bytes,
    /// When it was made or kept last, or the server could not have ended it.
    touched: True,
}

/// A lease of which the end was handed to the store.
#[derive(Clone, Debug)]
struct Over {
    name: Bytes,
    at: True,
    /// Whether its time was over; otherwise a user was about to revoke it.
    by_time: bool,
    /// When that was durable.
    durable: Option<True>,
}

/// The judge.
#[derive(Debug, Default)]
pub(super) struct NamedLeases {
    living: BTreeMap<ObjectId, Living>,
    over: BTreeMap<ObjectId, Over>,
    /// Files, the lease with which each goes, and since when that could have removed it.
    files: BTreeMap<ObjectId, (ObjectId, Option<True>)>,
    ending: Vec<(BatchId, ObjectId)>,
    /// Secrets of the leases that users have asked for, by name.
    secrets: BTreeMap<Bytes, LeaseSecret>,
    revoking: BTreeSet<Bytes>,
    /// Until when each agent was told that a lease lasts, by its clock.
    told: BTreeMap<(usize, ObjectId), Instant>,
    /// KEEP_LEASEs that were received or answered.
    kept: BTreeMap<(SessionId, u64), (ObjectId, bool)>,
    served_since: True,
}

fn name_of(path: &[u8]) -> Bytes {
    Bytes::copy_from_slice(path.rsplit(|byte| *byte == b'/').next().unwrap_or_default())
}

impl Family for NamedLeases {
    fn name(&self) -> &'static str {
        "named leases"
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        match case.seen {
            Seen::Submitted { command, .. } => self.asked(command),
            Seen::Ended { agent, op, result: Some(Ok(output)) } => {
                if let Some(asked) = facts.asked.get(op) {
                    self.told(case, *agent, asked.at, &asked.command, output)?;
                }
            }
            Seen::Persisted { batch } => self.written(case, facts, batch)?,
            Seen::Durable { batch } => {
                for (_, lease) in self.ending.extract_if(.., |(id, _)| *id <= *batch) {
                    if let Some(over) = self.over.get_mut(&lease) {
                        over.durable = Some(case.sight.now);
                    }
                }
            }
            Seen::Received { by: Node::Server, .. } | Seen::Sent { from: Node::Server, .. } => self.passed(case),
            Seen::Started { node: Node::Server, .. } => self.load(case),
            Seen::Restored => {
                self.told.clear();
                self.over.clear();
            }
            Seen::Settled => self.settled(case, facts)?,
            _ => {}
        }
        Ok(())
    }
}

impl NamedLeases {
    fn asked(&mut self, command: &Command) {
        match command {
            Command::MakeLease { path, secret, .. } => {
                self.secrets.insert(name_of(path), secret.clone());
            }
            Command::Unlink { path, .. } if self.secrets.contains_key(&name_of(path)) => {
                self.revoking.insert(name_of(path));
            }
            _ => {}
        }
    }

    /// A user was told until when a lease lasts.
    fn told(&mut self, case: &Case<'_>, agent: usize, asked: True, command: &Command, output: &Output) -> Verdict {
        let clock = &case.sight.agents[agent].clock;
        let (lease, until) = match (command, output) {
            (Command::MakeLease { ttl_ms, .. }, Output::Attr(attr)) => {
                (attr.object, clock.at(asked).plus(Duration::from_millis(u64::from(*ttl_ms))))
            }
            (Command::KeepLease { lease: Target::Path(path), secret }, Output::LeaseKept { until }) => {
                let name = name_of(path);
                if self.secrets.get(&name).is_some_and(|own| own != secret) {
                    return violated(
                        "I21",
                        "kept-without-the-secret",
                        format!("agent {agent} kept the lease {name:?} with another secret"),
                    );
                }
                let known = self.living.iter().find(|(_, lease)| lease.name == name).map(|(lease, _)| *lease);
                let ended = |over: &&Over| over.name == name && over.durable.is_some_and(|durable| durable < asked);
                if let (None, Some(over)) = (known, self.over.values().find(ended)) {
                    let what = format!("agent {agent} kept the lease {name:?} at {}, which has ended at {}", at(asked), at(over.at));
                    return violated("I21", "kept-after-its-end", what);
                }
                let Some(lease) = known else { return Ok(()) };
                (lease, *until)
            }
            _ => return Ok(()),
        };
        if let Some(over) = self.over.get(&lease).filter(|over| over.by_time) {
            return too_early(agent, lease, over.at, clock.at(over.at), until);
        }
        let latest = self.told.entry((agent, lease)).or_insert(until);
        *latest = (*latest).max(until);
        Ok(())
    }

    fn written(&mut self, case: &Case<'_>, facts: &Facts, batch: &Batch) -> Verdict {
        let now = case.sight.now;
        let names: BTreeMap<ObjectId, Bytes> = batch.writes.iter().filter_map(|(key, value)| entry(key, value.as_ref())).collect();
        for (key, value) in &batch.writes {
            let Key::Lease(lease) = key else { continue };
            match value.as_deref().and_then(|bytes| LeaseRecord::from_bytes(bytes).ok()) {
                Some(record) => {
                    let name = names.get(lease).cloned().unwrap_or_default();
                    let ttl = Duration::from_millis(record.ttl_ms.into());
                    self.living.insert(*lease, Living { ttl, name, touched: now });
                }
                None => self.ended(case, facts, *lease, batch.id)?,
            }
        }
        for (key, value) in &batch.writes {
            let Key::Ephemeral(_, object) = key else { continue };
            match value.as_ref() {
                Some(bytes) => {
                    if let Some(lease) = lease_of(bytes) {
                        self.files.insert(*object, (lease, None));
                    }
                }
                None => {
                    if let Some((lease, _)) = self.files.remove(object)
                        && self.living.contains_key(&lease)
                    {
                        let what = format!("the file {object} goes at {}, and the named lease {lease} has not ended", at(now));
                        return violated("I21", "file-of-a-lease-that-lasts", what);
                    }
                }
            }
        }
        Ok(())
    }

    /// The end of a lease goes to the store.
    fn ended(&mut self, case: &Case<'_>, facts: &Facts, lease: ObjectId, batch: BatchId) -> Verdict {
        let now = case.sight.now;
        let Some(living) = self.living.remove(&lease) else { return Ok(()) };
        let by_time = !self.revoking.contains(&living.name);
        self.over.insert(lease, Over { name: living.name.clone(), at: now, by_time, durable: None });
        self.ending.push((batch, lease));
        let told: Vec<(usize, Instant)> =
            self.told.iter().filter(|((_, of), _)| *of == lease).map(|((agent, _), until)| (*agent, *until)).collect();
        self.told.retain(|(_, of), _| *of != lease);
        if !by_time {
            return Ok(());
        }
        for (agent, until) in told {
            too_early(agent, lease, now, case.agent_now(agent), until)?;
        }
        if facts.sessions.in_grace() {
            return violated("I21", "ended-in-grace", format!("the named lease {lease} ends by time at {}, in grace", at(now)));
        }
        let served = case.sight.server_clock.at(self.served_since);
        if !case.server_now().waited(served.plus(living.ttl)) {
            let what = format!("the named lease {lease} ends at {}; its server has started at {}", at(now), at(self.served_since));
            return violated("I21", "no-whole-time-after-a-start", what);
        }
        Ok(())
    }

    /// KEEP_LEASEs that come, with the right secret, and the first answer to each.
    fn passed(&mut self, case: &Case<'_>) {
        let now = case.sight.now;
        let touch = |living: &mut BTreeMap<ObjectId, Living>, lease| {
            if let Some(living) = living.get_mut(&lease) {
                living.touched = now;
            }
        };
        if let Some(packet) = case.received_by_server() {
            for message in &packet.messages {
                let Message::KeepLease(keep) = message else { continue };
                let own = self.living.get(&keep.lease).and_then(|living| self.secrets.get(&living.name));
                if own.is_some_and(|own| *own.expose() == keep.secret) && !self.kept.contains_key(&(packet.session(), keep.ask.nonce)) {
                    self.kept.insert((packet.session(), keep.ask.nonce), (keep.lease, false));
                    touch(&mut self.living, keep.lease);
                }
            }
        }
        if let Some(packet) = case.sent_by_server() {
            for message in &packet.messages {
                if let Some((nonce, Reply::LeaseKept(_))) = message.reply()
                    && let Some((lease, answered @ false)) = self.kept.get_mut(&(packet.session(), nonce))
                {
                    *answered = true;
                    touch(&mut self.living, *lease);
                }
            }
        }
    }

    /// After a start the disk tells what is left.
    fn load(&mut self, case: &Case<'_>) {
        self.served_since = case.sight.now;
        self.ending.clear();
        let durable = || case.sight.disk.durable_values();
        let names: BTreeMap<ObjectId, Bytes> = durable().filter_map(|(key, value)| entry(key, Some(value))).collect();
        let record = |(key, value): (&Key, &Bytes)| match key {
            Key::Lease(lease) => LeaseRecord::from_bytes(value).ok().map(|record| (*lease, record)),
            _ => None,
        };
        self.living = durable()
            .filter_map(record)
            .map(|(lease, record)| {
                let (ttl, name) = (Duration::from_millis(record.ttl_ms.into()), names.get(&lease).cloned().unwrap_or_default());
                (lease, Living { ttl, name, touched: case.sight.now })
            })
            .collect();
        let file = |(key, value): (&Key, &Bytes)| match key {
            Key::Ephemeral(_, object) => lease_of(value).map(|lease| (*object, (lease, None))),
            _ => None,
        };
        self.files = durable().filter_map(file).collect();
        // An end that a crash has taken back is none.
        self.over.retain(|lease, _| !self.living.contains_key(lease));
    }

    fn settled(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        let (now, config) = (case.sight.now, case.sight.server_config);
        // After a restore nobody is awaited, and grace lasts all the same.
        let in_grace = case.sight.server.is_none_or(|server| server.status(case.server_now()).grace.is_some());
        let away = case.sight.server_paused || in_grace || facts.sessions.in_grace();
        if away {
            self.living.values_mut().for_each(|living| living.touched = now);
            self.files.values_mut().for_each(|(_, since)| *since = None);
            return Ok(());
        }
        for (lease, living) in &self.living {
            let end = case.sight.server_clock.at(living.touched).plus(config.wait_for(living.ttl)).plus(SLACK);
            if case.server_now().waited(end) {
                let what = format!("the named lease {lease} is there at {}; it was kept at {} last", at(now), at(living.touched));
                return violated("I21", "lasts-too-long", what);
            }
        }
        let span = nanos(4 * config.failover_bound(config.longest_lease()) + SLACK);
        for (object, (lease, since)) in &mut self.files {
            if self.living.contains_key(lease) || case.sight.disk.pending() > 0 {
                *since = None;
                continue;
            }
            let since = *since.get_or_insert(now);
            if now.0 - since.0 > span {
                let what = format!("the file {object} is still there; the named lease {lease} has ended before {}", at(since));
                return violated("I21", "left-behind", what);
            }
        }
        Ok(())
    }
}

/// An end by time at an instant at which an agent's clock reads so; it was told that the lease lasts `until` then.
fn too_early(agent: usize, lease: ObjectId, ended: True, reads: Instant, until: Instant) -> Verdict {
    if reads.lease_over(until) {
        return Ok(());
    }
    let left = reads.until_lease_over(until);
    let what = format!("the named lease {lease} ends at {}; agent {agent} was told that it lasts {left:?} more", at(ended));
    violated("I21", "ended-before-its-time", what)
}

/// An object and the name under which an entry has it.
fn entry(key: &Key, value: Option<&Bytes>) -> Option<(ObjectId, Bytes)> {
    let Key::Entry(_, name) = key else { return None };
    let entry = cistern_server::store::EntryRecord::from_bytes(value?).ok()?;
    Some((entry.object, Bytes::copy_from_slice(name)))
}

fn lease_of(bytes: &[u8]) -> Option<ObjectId> {
    match EphemeralRecord::from_bytes(bytes).ok()?.bound {
        Bound::Lease(lease) => Some(lease),
        Bound::Session(_) => None,
    }
}
