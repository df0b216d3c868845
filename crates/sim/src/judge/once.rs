//! I7, at most once: each request changes things once at most, for ever, however often it arrives and whoever restarts.
//!
//! Decides from three sides. Users: a name that was never used before cannot exist already, and one that certainly exists cannot be
//! missing. Replies: each version of an object is the work of one request of one session, and a request has one outcome. The store: a
//! file that everybody writes has as many versions as writes were asked for, less those that failed for certain; and no write's
//! bytes come back after another's.
//! Invariant: an unknown outcome counts as "maybe once" (R84).
//! Leaves to others: which write a read must see (`reads`), durability (`durable`).

use super::case::{Case, Verdict, reply_of, violated};
use super::{Facts, Family};
use crate::observe::{Seen, UserOp};
use crate::users::written_by;
use cistern_agent::api::{Command, OpError, Output, Target};
use cistern_server::store::Key;
use cistern_wire::{Fate, Field as _, Message, ObjectId, Reader, Reply, SessionId, Status};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of a file that everybody writes.
#[derive(Clone, Debug, Default)]
struct Hot {
    /// Writes begun that may have changed it, and writes that certainly did.
    begun: u64,
    done: u64,
    /// Its first version seen, less the writes that may already have been in it.
    base: u64,
    object: Option<ObjectId>,
}

/// Answers remembered.
const ANSWERS_MAX: usize = 65_536;

/// One object's effect as a reply tells it: object, version before, version after.
type Told = Vec<(ObjectId, u64, u64)>;

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Once {
    /// Own names that certainly exist.
    names: BTreeSet<Box<[u8]>>,
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
    hot: BTreeMap<Box<[u8]>, Hot>,
    /// Version at which each write's bytes were last seen in a file.
    writes: BTreeMap<(ObjectId, UserOp), u64>,
    restored: bool,
}

impl Family for Once {
    fn name(&self) -> &'static str {
        "once"
    }

    fn needs_no_lease(&self) -> bool {
        true
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        match case.seen {
            Seen::Submitted { command, .. } => {
                if let Some(path) = hot_write(command) {
                    self.hot.entry(path.into()).or_default().begun += 1;
                }
            }
            Seen::Ended { agent, op, result } => {
                let Some(asked) = facts.asked.get(op) else { return Ok(()) };
                self.counted(&asked.command, *result);
                if let Some(result) = result {
                    self.named(*agent, &asked.command, result)?;
                }
            }
            Seen::Persisted { batch } => {
                for (key, _) in &batch.writes {
                    if let Key::Object(object) = key {
                        self.wrote(facts, *object)?;
                    }
                }
                self.grown(facts)?;
            }
            Seen::Restored => *self = Self { restored: true, ..Self::default() },
            _ => {}
        }
        if let Some(packet) = case.received_by_server() {
            for message in &packet.messages {
                if let (Some(ask), true) = (message.ask(), is_mutation(message)) {
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

    fn end(&mut self, _sight: &crate::observe::Sight<'_>, facts: &Facts) -> Verdict {
        for (path, hot) in &self.hot {
            let newest = hot.object.and_then(|object| facts.truth.object(object)).map_or(0, super::truth::Object::newest);
            if hot.object.is_some() && newest < hot.base + hot.done {
                let what = format!("{} writes of {} succeeded from version {} on; it has version {newest}", hot.done, show(path), hot.base);
                return violated("I7", "write-lost", what);
            }
        }
        Ok(())
    }
}

/// Users' names and counts.
impl Once {
    fn named(&mut self, agent: usize, command: &Command, result: &Result<Output, OpError>) -> Verdict {
        let own = |path: &[u8]| path.starts_with(b"/u/");
        let (makes, takes): (Option<&[u8]>, Option<&[u8]>) = match command {
            Command::Create { path, exclusive: true, .. } | Command::Mkdir { path, .. } => (Some(path), None),
            Command::Link { existing, path } => (Some(path), Some(existing)),
            Command::Rename { from, to, .. } => (Some(to), Some(from)),
            Command::Unlink { path, .. } | Command::Rmdir { path } => (None, Some(path)),
            _ => return Ok(()),
        };
        let (makes, takes) = (makes.filter(|path| own(path)), takes.filter(|path| own(path)));
        let existed = takes.is_some_and(|path| self.names.contains(path));
        match result {
            Err(OpError::Status(Status::EEXIST)) if makes.is_some() && !self.restored => {
                let what = format!("agent {agent}: {command:?} found its name taken, which nobody used before");
                return violated("I7", "done-twice", what);
            }
            Err(OpError::Status(Status::ENOENT)) if existed => {
                let what = format!("agent {agent}: {command:?} found its name missing, which certainly existed and was nobody else's");
                return violated("I7", "done-twice", what);
            }
            _ => {}
        }
        if !matches!(command, Command::Link { .. })
            && let Some(path) = takes
            && !matches!(result, Err(OpError::Unreachable))
        {
            self.names.remove(path);
        }
        if let (Some(path), Ok(_)) = (makes, result) {
            self.names.insert(path.into());
        }
        Ok(())
    }

    fn counted(&mut self, command: &Command, result: Option<&Result<Output, OpError>>) {
        let Some(hot) = hot_write(command).and_then(|path| self.hot.get_mut(path)) else { return };
        match result {
            Some(Ok(_)) => hot.done += 1,
            // It changed nothing, for certain.
            Some(Err(OpError::Status(status))) if *status != Status::ECANCELED => hot.begun = hot.begun.saturating_sub(1),
            Some(Err(OpError::Unreachable | OpError::Overloaded)) => hot.begun = hot.begun.saturating_sub(1),
            _ => {}
        }
    }
}

/// The store.
impl Once {
    /// No write's bytes come back after another's.
    fn wrote(&mut self, facts: &Facts, id: ObjectId) -> Verdict {
        let Some(object) = facts.truth.object(id) else { return Ok(()) };
        let Some(newest) = object.versions.last() else { return Ok(()) };
        let Some((op, _)) = newest.content.as_ref().and_then(|content| written_by(content)) else { return Ok(()) };
        let before = object.versions.len().checked_sub(2).map(|place| &object.versions[place]);
        if let Some(old) = self.writes.get(&(id, op)).copied().filter(|old| before.is_some_and(|before| *old < before.version)) {
            // A crash may have taken that version back since.
            let then = object.at_version(old).and_then(|version| version.content.as_ref()).and_then(|content| written_by(content));
            if then.is_some_and(|then| then.0 == op) {
                let what =
                    format!("write {} made version {old} of {id}, was written over, and made version {} again", op.0, newest.version);
                return violated("I7", "written-twice", what);
            }
        }
        self.writes.insert((id, op), newest.version);
        Ok(())
    }

    /// No file has more versions than writes were asked for.
    fn grown(&mut self, facts: &Facts) -> Verdict {
        for (path, hot) in &mut self.hot {
            if hot.object.is_none() {
                let object = facts.truth.object_of(path);
                hot.base = object
                    .and_then(|object| facts.truth.object(object))
                    .map_or(0, |object| object.versions.first().map_or(0, |v| v.version));
                hot.object = object;
            }
            let newest = hot.object.and_then(|object| facts.truth.object(object)).map_or(0, super::truth::Object::newest);
            if newest > hot.base + hot.begun && !self.restored {
                let what = format!(
                    "{} has version {newest}: {} writes since version {} although only {} can have been done",
                    show(path),
                    newest - hot.base,
                    hot.base,
                    hot.begun
                );
                return violated("I7", "too-many-versions", what);
            }
        }
        Ok(())
    }
}

/// Replies.
impl Once {
    fn replied(&mut self, session: SessionId, message: &Message<'_>) -> Verdict {
        if let Message::Nack(nack) = message
            && nack.nonce != 0
        {
            self.fate(session, nack.nonce, nack.fate)?;
        }
        match reply_of(message) {
            Some((nonce, Reply::Failed(failed))) if self.mutations.contains(&(session, nonce)) => {
                self.failed(session, nonce, failed.status)
            }
            Some((nonce, Reply::Changed(changed))) => self.changed(session, nonce, &Reply::Changed(changed)),
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
        let Reply::Changed(changed) = reply else { return Ok(()) };
        // What had no effect may be said not to have been executed: nobody can tell the difference.
        if changed.effects.iter().any(|effect| effect.before != effect.attr.version) {
            self.fate(session, nonce, Fate::Executed)?;
        }
        let told: Told = changed.effects.iter().map(|effect| (effect.attr.object, effect.before, effect.attr.version)).collect();
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

    /// "Executed" and "not executed" are never both said of one request (R4).
    fn fate(&mut self, session: SessionId, nonce: u64, fate: Fate) -> Verdict {
        if fate == Fate::Unknown {
            return Ok(());
        }
        let first = *self.fates.entry((session, nonce)).or_insert(fate);
        if first != fate {
            let what = format!("request {nonce} of session {session} is said to be {fate}, and before {first}");
            return violated("I7", "two-fates", what);
        }
        Ok(())
    }
}

/// The path of a file that everybody writes, if the command changes it and nothing else.
fn hot_write(command: &Command) -> Option<&[u8]> {
    match command {
        Command::Write { target: Target::Path(path), .. } | Command::SetAttr { target: Target::Path(path), .. } => {
            Some(&path[..]).filter(|path| path.starts_with(b"/hot/h"))
        }
        _ => None,
    }
}

fn is_mutation(message: &Message<'_>) -> bool {
    matches!(
        message,
        Message::SetAttr(_)
            | Message::Create(_)
            | Message::Mkdir(_)
            | Message::Symlink(_)
            | Message::Link(_)
            | Message::Unlink(_)
            | Message::Rmdir(_)
            | Message::Rename(_)
            | Message::Write(_)
    )
}

fn show(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, attr, entry_record, fired, object_record};
    use super::*;
    use crate::users::content;
    use bytes::Bytes;
    use cistern_agent::api::Ownership;
    use cistern_wire::{Ack, CacheGrant, Changed, Effect, List, Nack, NackReason};

    const OWNER: Ownership = Ownership { mode: 0, uid: 0, gid: 0 };
    const FILE: u64 = 7;

    fn create() -> Command {
        Command::Create { path: Bytes::from_static(b"/u/n1"), exclusive: true, owner: OWNER }
    }

    fn write() -> Command {
        let target = Target::Path(Bytes::from_static(b"/hot/h0"));
        Command::Write { target, offset: 0, data: Bytes::new(), truncate: true, guard: None }
    }

    fn error(status: Status) -> Result<Output, OpError> {
        Err(OpError::Status(status))
    }

    #[test]
    fn own_name_that_exists_already_was_made_twice() {
        let (mut bench, mut judge) = (Bench::new(1), Once::default());
        let op = bench.submit(&mut judge, 0, &create()).unwrap();
        fired(bench.end(&mut judge, 0, op, error(Status::EEXIST)), "I7", "done-twice");
    }

    #[test]
    fn own_name_that_is_missing_was_taken_away_twice() {
        let (mut bench, mut judge) = (Bench::new(1), Once::default());
        let op = bench.submit(&mut judge, 0, &create()).unwrap();
        bench.end(&mut judge, 0, op, Ok(Output::Done)).unwrap();
        let unlink = Command::Unlink { path: Bytes::from_static(b"/u/n1"), force: false };
        let op = bench.submit(&mut judge, 0, &unlink).unwrap();
        fired(bench.end(&mut judge, 0, op, error(Status::ENOENT)), "I7", "done-twice");
    }

    #[test]
    fn unknown_outcome_leaves_both_possible() {
        let (mut bench, mut judge) = (Bench::new(1), Once::default());
        let op = bench.submit(&mut judge, 0, &create()).unwrap();
        bench.end(&mut judge, 0, op, Err(OpError::OutcomeUnknown)).unwrap();
        let unlink = Command::Unlink { path: Bytes::from_static(b"/u/n1"), force: false };
        let op = bench.submit(&mut judge, 0, &unlink).unwrap();
        bench.end(&mut judge, 0, op, error(Status::ENOENT)).unwrap();
    }

    fn changed(session: u64, nonce: u64, version: u64) -> (u64, Effect, u64) {
        (session, Effect { before: version - 1, attr: attr(FILE, version), grant: CacheGrant::NONE }, nonce)
    }

    fn tell(bench: &mut Bench, judge: &mut Once, what: (u64, Effect, u64)) -> Verdict {
        bench.now.0 += 1;
        let echo = bench.now.0;
        tell_as(bench, judge, what, echo)
    }

    fn tell_as(bench: &mut Bench, judge: &mut Once, (session, effect, nonce): (u64, Effect, u64), echo: u64) -> Verdict {
        let effects = [effect];
        let reply = Reply::Changed(Changed { effects: List::of(&effects) });
        bench.server_sends(judge, session, 1, &[Ack { nonce, echo, reply }.into()])
    }

    #[test]
    fn each_version_is_the_work_of_one_request() {
        let (mut bench, mut judge) = (Bench::new(1), Once::default());
        tell(&mut bench, &mut judge, changed(5, 1, 3)).unwrap();
        tell(&mut bench, &mut judge, changed(5, 1, 3)).expect("the same answer again");
        tell(&mut bench, &mut judge, changed(6, 1, 4)).unwrap();
        fired(tell(&mut bench, &mut judge, changed(6, 2, 4)), "I7", "one-version-two-requests");
    }

    #[test]
    fn mutation_that_failed_does_not_succeed_later() {
        use cistern_wire::{Ask, Bytes8, Failed, Terms, Unlink};
        let (mut bench, mut judge) = (Bench::new(1), Once::default());
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
        let (mut bench, mut judge) = (Bench::new(1), Once::default());
        let alive: Message<'_> = Alive { serial: 1, echo: 4 }.into();
        bench.server_sends(&mut judge, 5, 1, &[alive]).unwrap();
        fired(bench.server_sends(&mut judge, 5, 2, &[alive]), "I7", "packet-answered-twice");
    }

    #[test]
    fn request_has_one_outcome() {
        let (mut bench, mut judge) = (Bench::new(1), Once::default());
        tell(&mut bench, &mut judge, changed(5, 1, 3)).unwrap();
        fired(tell(&mut bench, &mut judge, changed(5, 1, 4)), "I7", "two-outcomes");
        let nack = Nack { nonce: 1, echo: 1, reason: NackReason::Ended, fate: Fate::NotExecuted };
        fired(bench.server_sends(&mut judge, 5, 2, &[nack.into()]), "I7", "two-fates");
    }

    /// A file with version 1, made before anybody wrote.
    fn file() -> (Bench, Once) {
        let (mut bench, mut judge) = (Bench::new(1), Once::default());
        let entry = |dir: u64, name: &'static [u8], object| (Key::Entry(ObjectId(dir), name.into()), Some(entry_record(object)));
        let object = (Key::Object(ObjectId(FILE)), Some(object_record(1, 0)));
        bench.persist(&mut judge, vec![entry(1, b"hot", 2), entry(2, b"h0", FILE), object]).unwrap();
        (bench, judge)
    }

    fn persist(bench: &mut Bench, judge: &mut Once, version: u64, op: u64) -> Verdict {
        let content = content(UserOp(op), 0, false);
        let record = object_record(version, content.len() as u64);
        let block = (Key::Block(ObjectId(FILE), 0), Some(content));
        bench.persist(judge, vec![block, (Key::Object(ObjectId(FILE)), Some(record))])
    }

    #[test]
    fn as_many_versions_as_writes_are_clean() {
        let (mut bench, mut judge) = file();
        for n in 1..5 {
            let op = bench.submit(&mut judge, 0, &write()).unwrap();
            persist(&mut bench, &mut judge, n + 1, n).unwrap();
            bench.end(&mut judge, 0, op, Ok(Output::Done)).unwrap();
        }
        bench.finish(&mut judge).unwrap();
    }

    #[test]
    fn write_that_is_done_twice_at_once_makes_too_many_versions() {
        let (mut bench, mut judge) = file();
        bench.submit(&mut judge, 0, &write()).unwrap();
        persist(&mut bench, &mut judge, 2, 1).unwrap();
        fired(persist(&mut bench, &mut judge, 3, 1), "I7", "too-many-versions");
    }

    #[test]
    fn write_that_comes_back_after_another_is_caught() {
        let (mut bench, mut judge) = file();
        for _ in 0..3 {
            bench.submit(&mut judge, 0, &write()).unwrap();
        }
        persist(&mut bench, &mut judge, 2, 1).unwrap();
        persist(&mut bench, &mut judge, 3, 2).unwrap();
        fired(persist(&mut bench, &mut judge, 4, 1), "I7", "written-twice");
    }

    #[test]
    fn write_that_succeeded_and_is_nowhere_is_caught() {
        let (mut bench, mut judge) = file();
        let op = bench.submit(&mut judge, 0, &write()).unwrap();
        bench.persist(&mut judge, vec![]).unwrap();
        bench.end(&mut judge, 0, op, Ok(Output::Done)).unwrap();
        fired(bench.finish(&mut judge), "I7", "write-lost");
    }
}
