//! I2, no stale read: what a user reads was current at some instant between asking and being answered.
//!
//! Decides by the store's own history: a read may not be older than what was durable, or shown to anybody, before it was asked for; nor
//! newer than anything written; its bytes are those of its version; a listing is the directory of its version; a name that is said to
//! be missing, or to name something, did so at some instant of the read. Reads from cache and from the server are judged alike.
//! Invariant: a write that was never durable is in no read (section 11.7), so a crash leaves every verdict as it was.
//! Leaves to others: how often a write was done (`once`), whether it survives (`durable`).

use super::case::{Case, Verdict, at, nanos, violated};
use super::truth::Naming;
use super::{Asked, Facts, Family};
use crate::observe::{Seen, True};
use bytes::Bytes;
use cistern_agent::api::{Command, Listed, OpError, Output, Target};
use cistern_wire::{Attr, Message, ObjectId, ObjectKind, Status};
use std::collections::BTreeMap;

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// For each object, which version was shown to some user by when; both grow.
    shown: BTreeMap<ObjectId, Vec<(True, u64)>>,
    /// Contents that reads have shown, by version, for those of which the store's history tells nothing.
    contents: BTreeMap<(ObjectId, u64), Bytes>,
    restored: Option<True>,
    /// When each agent last heard the server say that an object has a version.
    heard: BTreeMap<(usize, ObjectId, u64), True>,
}

impl Family for Reads {
    fn name(&self) -> &'static str {
        "reads"
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        if let Some((agent, packet)) = case.received_by_agent() {
            for (_, reply) in packet.messages.iter().filter_map(Message::reply) {
                reply.each_version(|object, version| {
                    self.heard.insert((agent, object, version), case.sight.now);
                });
            }
        }
        let Seen::Ended { agent, op, result: Some(result) } = case.seen else {
            if matches!(case.seen, Seen::Restored) {
                *self = Self { restored: Some(case.sight.now), ..Self::default() };
            }
            return Ok(());
        };
        let Some(asked) = facts.asked.get(op) else { return Ok(()) };
        // An older copy of the store takes writes back that were seen, and leases outlive it for a while.
        let config = case.sight.server_config;
        let settled = self.restored.map(|restored| True(restored.0 + 4 * nanos(config.wait_for(config.longest_lease()))));
        if settled.is_some_and(|settled| asked.at < settled) {
            return Ok(());
        }
        match result {
            Ok(Output::Attr(attr)) => {
                if matches!(asked.command, Command::Stat { .. }) {
                    self.under_lease(case, facts, *agent, asked, attr)?;
                }
                self.version(case, facts, *agent, asked, attr)?;
                if let Command::Stat { target: Target::Path(path), .. } = &asked.command {
                    names(case, facts, *agent, asked, path, Some(attr.object))?;
                }
            }
            Ok(Output::Data { attr, offset: 0, data }) => {
                self.under_lease(case, facts, *agent, asked, attr)?;
                self.version(case, facts, *agent, asked, attr)?;
                if matches!(asked.command, Command::Read { length: None, .. }) && attr.kind == ObjectKind::File {
                    self.content(facts, *agent, attr, data)?;
                }
            }
            Ok(Output::Listing { dir, entries }) => {
                self.under_lease(case, facts, *agent, asked, dir)?;
                self.version(case, facts, *agent, asked, dir)?;
                listing(facts, *agent, dir, entries)?;
                for attr in entries.iter().filter_map(|entry| entry.attr.as_ref()) {
                    self.version(case, facts, *agent, asked, attr)?;
                }
            }
            Err(OpError::Status(Status::ENOENT)) => {
                if let Command::Stat { target: Target::Path(path), .. } | Command::Read { target: Target::Path(path), .. } = &asked.command
                {
                    names(case, facts, *agent, asked, path, None)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Reads {
    /// What the server has not said since it was asked for comes from the cache, so only under a lease (section 11.1). The way to it may
    /// come from there in any case: an answer of the server proves that the locks on it were still this session's.
    fn under_lease(&self, case: &Case<'_>, facts: &Facts, agent: usize, asked: &Asked, attr: &Attr) -> Verdict {
        let heard = self.heard.get(&(agent, attr.object, attr.version)).is_some_and(|heard| *heard >= asked.at);
        let until = facts.sessions.agents[agent].view.valid_until;
        if heard || until.is_some_and(|until| !case.agent_now(agent).lease_over(until)) {
            return Ok(());
        }
        let what = format!(
            "agent {agent} answers {:?} at {} with version {} of {} from its cache; its lease ended at {until:?}",
            asked.command,
            at(case.sight.now),
            attr.version,
            attr.object
        );
        violated("I2", "cached-without-lease", what)
    }

    /// Not older than what was there when it was asked for, not newer than anything.
    fn version(&mut self, case: &Case<'_>, facts: &Facts, agent: usize, asked: &Asked, attr: &Attr) -> Verdict {
        let Some(object) = facts.truth.object(attr.object) else {
            return violated("I2", "never-written", format!("agent {agent} was shown {}, which the store never had", attr.object));
        };
        let (now, id, version) = (case.sight.now, attr.object, attr.version);
        let durable = object.durable_before(asked.at);
        let shown = self.shown.entry(id).or_default();
        let before = shown.partition_point(|seen| seen.0 < asked.at);
        let seen = before.checked_sub(1).map_or(0, |last| shown[last].1);
        let tell = |than: &str, newer: u64| {
            format!(
                "agent {agent} was shown version {version} of {id}, asked for at {} ({:?}); {than} {newer}",
                at(asked.at),
                asked.command
            )
        };
        if version < durable {
            return violated("I2", "older-than-durable", tell("before that the store had version", durable));
        }
        if version < seen {
            return violated("I2", "older-than-shown", tell("before that somebody was shown version", seen));
        }
        // Versions of what a batch removes in the end are never written.
        if version > object.newest() && !object.is_gone() {
            return violated("I2", "newer-than-written", tell("the store's newest is", object.newest()));
        }
        if shown.last().is_none_or(|last| last.1 < version) {
            shown.push((now, version));
        }
        Ok(())
    }

    /// The bytes are those of the version.
    fn content(&mut self, facts: &Facts, agent: usize, attr: &Attr, data: &Bytes) -> Verdict {
        let known = facts.truth.object(attr.object).and_then(|object| object.at_version(attr.version)).and_then(|v| v.content.clone());
        let known = known.or_else(|| self.contents.get(&(attr.object, attr.version)).cloned());
        match known {
            Some(known) if known != *data => {
                let what = format!(
                    "agent {agent} was shown version {} of {} as {}; it is {}",
                    attr.version,
                    attr.object,
                    excerpt(data),
                    excerpt(&known)
                );
                violated("I2", "wrong-bytes", what)
            }
            Some(_) => Ok(()),
            None => {
                self.contents.insert((attr.object, attr.version), data.clone());
                Ok(())
            }
        }
    }
}

fn excerpt(bytes: &[u8]) -> String {
    format!("{:?} ({} bytes)", bytes[..bytes.len().min(24)].escape_ascii().to_string(), bytes.len())
}

/// A listing is the directory at its version, as far as the history tells single versions apart.
fn listing(facts: &Facts, agent: usize, dir: &Attr, entries: &[Listed]) -> Verdict {
    let version = dir.version;
    for (name, namings) in facts.truth.names_of(dir.object) {
        // Changed between these two versions, but in which of them is not known: either is right.
        if namings.iter().any(|naming| naming.between.0 < version && version < naming.between.1) {
            continue;
        }
        let then = namings.iter().rev().find(|naming| naming.between.1 <= version).and_then(|naming| naming.object);
        let listed = entries.iter().find(|entry| &entry.name[..] == name).map(|entry| entry.object);
        if then != listed {
            let what = format!(
                "agent {agent} was shown {} at version {version} with {:?} as {listed:?}; it was {then:?}",
                dir.object,
                name.escape_ascii().to_string()
            );
            return violated("I2", "wrong-listing", what);
        }
    }
    Ok(())
}

/// A name named this, or nothing, at some instant between asking and now.
fn names(case: &Case<'_>, facts: &Facts, agent: usize, asked: &Asked, path: &[u8], object: Option<ObjectId>) -> Verdict {
    let Some((dir, name)) = facts.truth.place(path) else { return Ok(()) };
    let namings = facts.truth.names(dir, name);
    // What it certainly was when it was asked for: the last that was durable then. What was written later may have been seen.
    let certain = namings.iter().rposition(|naming| naming.durable.is_some_and(|durable| durable < asked.at));
    let possible = &namings[certain.unwrap_or(0)..];
    let first = if certain.is_none() { Some(None) } else { None };
    let mut could = first.into_iter().chain(possible.iter().map(|naming: &Naming| naming.object));
    if could.any(|could| could == object) {
        return Ok(());
    }
    let was = possible.last().and_then(|naming| naming.object);
    let what = format!(
        "agent {agent}, asked at {} for {:?}, said {object:?} at {}; it was {was:?} all the time",
        at(asked.at),
        path.escape_ascii().to_string(),
        at(case.sight.now)
    );
    violated("I2", if object.is_none() { "stale-absence" } else { "stale-name" }, what)
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, attr, entry_record, fired, object_record};
    use super::*;
    use cistern_server::store::Key;

    const FILE: u64 = 7;

    fn read() -> Command {
        Command::Read { target: Target::Object(ObjectId(FILE)), offset: 0, length: None }
    }

    fn stat(path: &'static [u8]) -> Command {
        Command::Stat { target: Target::Path(Bytes::from_static(path)), follow: true }
    }

    fn data(version: u64, data: &'static [u8]) -> Result<Output, OpError> {
        let attr = Attr { size: data.len() as u64, ..attr(FILE, version) };
        Ok(Output::Data { attr, offset: 0, data: Bytes::from_static(data) })
    }

    fn version(version: u64, content: &'static [u8]) -> Vec<(Key, Option<Bytes>)> {
        let block = (Key::Block(ObjectId(FILE), 0), Some(Bytes::from_static(content)));
        vec![block, (Key::Object(ObjectId(FILE)), Some(object_record(version, content.len() as u64)))]
    }

    /// Version 4 is durable.
    fn written() -> (Bench, Reads) {
        let (mut bench, mut judge) = (Bench::new(2), Reads::default());
        bench.persist(&mut judge, version(4, b"four")).unwrap();
        bench.pass(10);
        for agent in 0..2 {
            bench.facts.sessions.agents[agent].view.valid_until = Some(bench.instant(5_000));
        }
        (bench, judge)
    }

    #[test]
    fn read_of_what_is_durable_is_clean() {
        let (mut bench, mut judge) = written();
        let op = bench.submit(&mut judge, 0, &read()).unwrap();
        bench.end(&mut judge, 0, op, data(4, b"four")).unwrap();
    }

    #[test]
    fn answer_from_cache_needs_a_lease() {
        for certain in [true, false] {
            let (mut bench, mut judge) = written();
            bench.facts.sessions.agents[0].view.valid_until = Some(bench.instant(if certain { 20 } else { 10 }));
            let op = bench.submit(&mut judge, 0, &read()).unwrap();
            let verdict = bench.end(&mut judge, 0, op, data(4, b"four"));
            if certain {
                verdict.unwrap();
            } else {
                fired(verdict, "I2", "cached-without-lease");
            }
        }
    }

    #[test]
    fn answer_of_the_server_needs_none() {
        use cistern_wire::{Ack, CacheGrant, Reply, Stated};
        let (mut bench, mut judge) = written();
        bench.facts.sessions.agents[0].view.valid_until = None;
        let op = bench.submit(&mut judge, 0, &read()).unwrap();
        let reply = Reply::Stated(Stated { attr: attr(FILE, 4), grant: CacheGrant::NONE });
        bench.agent_gets(&mut judge, 0, 5, 1, &[Ack { nonce: 1, echo: 1, reply }.into()]).unwrap();
        bench.end(&mut judge, 0, op, data(4, b"four")).unwrap();
    }

    #[test]
    fn read_begun_before_a_write_may_see_either() {
        let (mut bench, mut judge) = written();
        let (a, b) = (bench.submit(&mut judge, 0, &read()).unwrap(), bench.submit(&mut judge, 1, &read()).unwrap());
        bench.persist(&mut judge, version(5, b"five")).unwrap();
        bench.end(&mut judge, 0, a, data(5, b"five")).unwrap();
        bench.end(&mut judge, 1, b, data(4, b"four")).unwrap();
    }

    #[test]
    fn read_begun_after_a_write_must_see_it() {
        let (mut bench, mut judge) = written();
        bench.persist(&mut judge, version(5, b"five")).unwrap();
        bench.pass(1);
        let op = bench.submit(&mut judge, 0, &read()).unwrap();
        fired(bench.end(&mut judge, 0, op, data(4, b"four")), "I2", "older-than-durable");
    }

    #[test]
    fn nobody_is_shown_less_than_somebody_was_shown_before() {
        let (mut bench, mut judge) = written();
        let op = bench.submit(&mut judge, 0, &read()).unwrap();
        bench.write(&mut judge, version(5, b"five")).unwrap();
        bench.end(&mut judge, 0, op, data(5, b"five")).unwrap();
        bench.pass(1);
        let op = bench.submit(&mut judge, 1, &read()).unwrap();
        fired(bench.end(&mut judge, 1, op, data(4, b"four")), "I2", "older-than-shown");
    }

    #[test]
    fn bytes_of_another_version_are_caught() {
        let (mut bench, mut judge) = written();
        let op = bench.submit(&mut judge, 0, &read()).unwrap();
        fired(bench.end(&mut judge, 0, op, data(4, b"five")), "I2", "wrong-bytes");
    }

    #[test]
    fn version_from_nowhere_is_caught() {
        let (mut bench, mut judge) = written();
        let op = bench.submit(&mut judge, 0, &read()).unwrap();
        fired(bench.end(&mut judge, 0, op, data(9, b"nine")), "I2", "newer-than-written");
    }

    /// Name "n" in the root, made at version 2 of it, taken away at version 3 if `gone`.
    fn named(gone: bool) -> (Bench, Reads) {
        let (mut bench, mut judge) = written();
        let root = |version| (Key::Object(ObjectId(1)), Some(object_record(version, 1)));
        let entry = |object| (Key::Entry(ObjectId(1), (*b"n").into()), object);
        bench.persist(&mut judge, vec![root(2), entry(Some(entry_record(FILE)))]).unwrap();
        bench.pass(5);
        if gone {
            bench.persist(&mut judge, vec![root(3), entry(None)]).unwrap();
            bench.pass(5);
        }
        (bench, judge)
    }

    #[test]
    fn names_as_they_are_are_clean() {
        for gone in [false, true] {
            let (mut bench, mut judge) = named(gone);
            let op = bench.submit(&mut judge, 0, &stat(b"/n")).unwrap();
            let told = if gone { Err(OpError::Status(Status::ENOENT)) } else { Ok(Output::Attr(attr(FILE, 4))) };
            bench.end(&mut judge, 0, op, told).unwrap();
        }
    }

    #[test]
    fn name_that_is_gone_and_absence_of_one_that_is_there_are_caught() {
        for gone in [false, true] {
            let (mut bench, mut judge) = named(gone);
            let op = bench.submit(&mut judge, 0, &stat(b"/n")).unwrap();
            let told = if gone { Ok(Output::Attr(attr(FILE, 4))) } else { Err(OpError::Status(Status::ENOENT)) };
            fired(bench.end(&mut judge, 0, op, told), "I2", if gone { "stale-name" } else { "stale-absence" });
        }
    }

    #[test]
    fn listing_is_the_directory_at_its_version() {
        let list = Command::List { target: Target::Object(ObjectId(1)), detail: false };
        let entry = || Listed { name: Bytes::from_static(b"n"), object: ObjectId(FILE), kind: ObjectKind::File, attr: None };
        for (entries, right) in [(vec![entry()], true), (vec![], false)] {
            let (mut bench, mut judge) = named(false);
            let op = bench.submit(&mut judge, 0, &list).unwrap();
            let verdict = bench.end(&mut judge, 0, op, Ok(Output::Listing { dir: attr(1, 2), entries }));
            if right {
                verdict.unwrap();
            } else {
                fired(verdict, "I2", "wrong-listing");
            }
        }
    }
}
