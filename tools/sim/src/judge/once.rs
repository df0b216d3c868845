//! I7, at most once: each request changes things once at most, for ever, however often it arrives and whoever restarts.
//!
//! Decides from two sides. Users: a name that was never used before cannot exist already, and one that certainly exists cannot be
//! missing. The store: a file that everybody writes has as many versions as writes were asked for, less those that failed for certain;
//! and no write's bytes come back after another's.
//! Invariant: an unknown outcome counts as "maybe once" (section 11.3).
//! Leaves to others: what replies say (`outcomes`), which write a read must see (`reads`), durability (`durable`).

use super::case::{Case, Verdict, violated};
use super::{Facts, Family};
use crate::observe::{Seen, UserOp};
use crate::users::written_by;
use cistern_agent::api::{Command, OpError, Output, Target};
use cistern_server::store::Key;
use cistern_wire::{ObjectId, Status};
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

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Once {
    /// Own names that certainly exist.
    names: BTreeSet<Box<[u8]>>,
    hot: BTreeMap<Box<[u8]>, Hot>,
    /// The writes of such files that are counted and have not ended.
    counting: BTreeSet<UserOp>,
    /// Version at which each write's bytes were last seen in a file.
    writes: BTreeMap<(ObjectId, UserOp), u64>,
    restored: bool,
    /// The newest command, and the newest of before a restore: its success, told late, says nothing of the copy.
    newest: Option<UserOp>,
    before: Option<UserOp>,
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
            Seen::Submitted { op, command, .. } => {
                self.newest = self.newest.max(Some(*op));
                if let Some(path) = hot_write(command) {
                    self.hot.entry(path.into()).or_default().begun += 1;
                    self.counting.insert(*op);
                }
            }
            Seen::Ended { agent, op, result } => {
                let Some(asked) = facts.asked.get(op) else { return Ok(()) };
                // The success of a write of before a restore says nothing of the copy.
                if self.counting.remove(op) {
                    self.counted(&asked.command, *result);
                }
                if let Some(result) = result {
                    self.named(*agent, &asked.command, result, Some(*op) > self.before)?;
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
            Seen::Restored => *self = Self { restored: true, newest: self.newest, before: self.newest, ..Self::default() },
            _ => {}
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
    /// `of_this_store`: the command was asked for when the store was what it is.
    fn named(&mut self, agent: usize, command: &Command, result: &Result<Output, OpError>, of_this_store: bool) -> Verdict {
        let own = |path: &[u8]| path.starts_with(b"/u/");
        let (makes, takes): (Option<&[u8]>, Option<&[u8]>) = match command {
            // What a user makes by a batch stands first in it.
            Command::Batch { items, .. } => match items.first() {
                Some(Command::Create { path, exclusive: true, .. }) => (Some(path), None),
                _ => return Ok(()),
            },
            Command::Create { path, exclusive: true, .. } | Command::Mkdir { path, .. } => (Some(path), None),
            Command::Link { existing, path } => (Some(path), Some(existing)),
            Command::Rename { from, to, .. } => (Some(to), Some(from)),
            Command::Unlink { path, .. } | Command::Rmdir { path } => (None, Some(path)),
            _ => return Ok(()),
        };
        let (makes, takes) = (makes.filter(|path| own(path)), takes.filter(|path| own(path)));
        let existed = takes.is_some_and(|path| self.names.contains(path));
        match result {
            Err(OpError::Status(Status::EEXIST) | OpError::Item { status: Status::EEXIST, .. }) if makes.is_some() && !self.restored => {
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
        if let (Some(path), Ok(_), true) = (makes, result, of_this_store) {
            self.names.insert(path.into());
        }
        Ok(())
    }

    fn counted(&mut self, command: &Command, result: Option<&Result<Output, OpError>>) {
        let Some(hot) = hot_write(command).and_then(|path| self.hot.get_mut(path)) else { return };
        match result {
            Some(Ok(_)) => hot.done += 1,
            // It changed nothing, for certain.
            Some(Err(OpError::Status(status) | OpError::Item { status, .. })) if *status != Status::ECANCELED => {
                hot.begun = hot.begun.saturating_sub(1);
            }
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

/// The path of a file that everybody writes, if the command changes it and nothing else.
fn hot_write(command: &Command) -> Option<&[u8]> {
    match command.unconditional() {
        // All that a batch does to one file is one version of it.
        Command::Batch { items, .. } => items.first().and_then(hot_write),
        Command::Write { target: Target::Path(path), .. }
        | Command::SetAttr { target: Target::Path(path), .. }
        | Command::SetXattr { target: Target::Path(path), .. } => Some(&path[..]).filter(|path| path.starts_with(b"/hot/h")),
        _ => None,
    }
}

fn show(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, entry_record, fired, object_record};
    use super::*;
    use crate::users::content;
    use bytes::Bytes;
    use cistern_agent::api::Ownership;

    const OWNER: Ownership = Ownership { mode: 0, uid: 0, gid: 0 };
    const FILE: u64 = 7;

    fn create() -> Command {
        Command::Create { path: Bytes::from_static(b"/u/n1"), exclusive: true, ephemeral: false, owner: OWNER }
    }

    fn write() -> Command {
        let target = Target::Path(Bytes::from_static(b"/hot/h0"));
        Command::Write { target, offset: 0, data: Bytes::new(), truncate: true }
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
    fn success_told_after_a_restore_of_a_write_of_before_is_not_counted() {
        let (mut bench, mut judge) = file();
        let before = bench.submit(&mut judge, 0, &write()).unwrap();
        bench.show(&mut judge, &Seen::Restored).unwrap();
        let after = bench.submit(&mut judge, 0, &write()).unwrap();
        bench.persist(&mut judge, vec![]).unwrap();
        bench.end(&mut judge, 0, after, Err(OpError::OutcomeUnknown)).unwrap();
        bench.end(&mut judge, 0, before, Ok(Output::Done)).unwrap();
        bench.finish(&mut judge).unwrap();
    }

    #[test]
    fn name_that_was_made_before_a_restore_may_be_missing_however_late_that_was_told() {
        let (mut bench, mut judge) = (Bench::new(2), Once::default());
        let path = || Bytes::from_static(b"/u/d1");
        for (restored, right) in [(true, true), (false, false)] {
            let made = bench.submit(&mut judge, 0, &Command::Mkdir { path: path(), owner: OWNER }).unwrap();
            if restored {
                bench.show(&mut judge, &Seen::Restored).unwrap();
            }
            bench.end(&mut judge, 0, made, Ok(Output::Done)).unwrap();
            let removed = bench.submit(&mut judge, 0, &Command::Rmdir { path: path() }).unwrap();
            let verdict = bench.end(&mut judge, 0, removed, Err(OpError::Status(Status::ENOENT)));
            match right {
                true => verdict.unwrap(),
                false => fired(verdict, "I7", "done-twice"),
            }
        }
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
