//! `cistern member watch`: each change of files and directories as a line.
//!
//! Decides: what a change of a directory's version means (by listing it again), that the ephemeral files in a watched directory are
//! watched, too, so that the ends of their owners are found, and what is printed.
//! Leaves to others: when something is certain (the agent), through whom it is asked (`backend`).

use crate::backend::Backend;
use crate::commands::{Run, unless_unread};
use crate::ctx::Ctx;
use crate::local::{Attributes, EntryRow, Failure, News, Request, What, millis};
use crate::show;
use crate::signals::End;
use crate::text::Text;
use cistern_client::FileType;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsString;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long news are waited for: as long as a signal may take to be noticed.
const WAIT: Duration = Duration::from_millis(200);

const WATCH_HELP: &str = "\
For a directory: its entries first, then each name added or removed, and each change of an ephemeral file in it. While \
someone watches, the server detects the failure of an ephemeral file's owner (within 3.8 s plus commits by default, docs/membership.md).
For a file: each change. While nothing changes, only this agent's renewals and the probes of owners are sent.

Lines begin with: watching, present, added, removed, changed, uncertain (the lease has expired: changes may be missed), certain \
(missed changes have just been printed), gone.

Ends when everything watched is gone, or by SIGINT or SIGTERM: exit status 0.

Examples:
  cistern member watch /group
  cistern member watch --json /site /group | while read -r change; do echo \"$change\"; done";

/// Print each change of files and directories as it happens
#[derive(Args, Debug)]
#[command(after_help = WATCH_HELP)]
pub(crate) struct Watch {
    /// Paths to watch; symbolic links are followed
    #[arg(required = true)]
    paths: Vec<OsString>,
}

/// One line.
#[derive(Serialize)]
struct ChangeLine<'a> {
    event: &'static str,
    path: &'a Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ephemeral: bool,
    unix_ms: u64,
}

/// One of the paths watched.
struct Subject {
    path: Text,
    object: u64,
    directory: bool,
    /// The version that was printed; 0: none yet.
    version: u64,
    told_uncertain: bool,
    /// Of a directory, what was in it when it was listed last.
    entries: BTreeMap<Text, EntryRow>,
}

struct Watching<'b> {
    backend: &'b mut Backend,
    json: bool,
    subjects: Vec<Subject>,
    /// Ephemeral files in watched directories: the version printed last.
    members: BTreeMap<u64, u64>,
}

impl Run for Watch {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let end = End::catch()?;
        let json = ctx.is_json();
        let mut watching = Watching { backend: ctx.agent()?, json, subjects: Vec::new(), members: BTreeMap::new() };
        unless_unread(watching.begin(&self.paths).and_then(|()| watching.run(&end)))
    }
}

impl Watching<'_> {
    fn begin(&mut self, paths: &[OsString]) -> Result<(), Failure> {
        for path in paths {
            let path = Text::from(path.clone());
            let attr = self.backend.stat(&path, true)?;
            let directory = attr.is(FileType::Directory);
            self.watch(attr.object)?;
            let entries = BTreeMap::new();
            self.subjects.push(Subject { path, object: attr.object, directory, version: 0, told_uncertain: false, entries });
        }
        Ok(())
    }

    fn run(&mut self, end: &End) -> Result<(), Failure> {
        while !end.is_asked() && !self.subjects.is_empty() {
            for one in self.backend.news(WAIT)? {
                self.heard(one)?;
            }
        }
        Ok(())
    }

    fn heard(&mut self, news: News) -> Result<(), Failure> {
        // One object can be watched under several paths.
        let own: Vec<usize> = (0..self.subjects.len()).filter(|at| self.subjects[*at].object == news.object).collect();
        for at in own.into_iter().rev() {
            self.subject(at, news.what)?;
        }
        if self.members.contains_key(&news.object) {
            self.member(news)?;
        }
        Ok(())
    }

    fn subject(&mut self, at: usize, what: What) -> Result<(), Failure> {
        let subject = &mut self.subjects[at];
        let (path, object) = (subject.path.clone(), subject.object);
        match what {
            What::Certain { version } => {
                let first = subject.version == 0;
                let again = std::mem::take(&mut subject.told_uncertain);
                if first {
                    subject.version = version;
                    self.print("watching", &path, Some((object, version)), false)?;
                    self.look(at, "present")?;
                } else if subject.version != version {
                    self.changed(at, version)?;
                }
                if again && !first {
                    self.print("certain", &path, Some((object, version)), false)?;
                }
                Ok(())
            }
            What::Changed { version } => self.changed(at, version),
            What::Uncertain => {
                subject.told_uncertain = true;
                self.print("uncertain", &path, None, false)
            }
            What::Gone => {
                self.print("gone", &path, None, false)?;
                let subject = self.subjects.remove(at);
                subject.entries.values().try_for_each(|row| self.forget(row))
            }
        }
    }

    fn changed(&mut self, at: usize, version: u64) -> Result<(), Failure> {
        let subject = &mut self.subjects[at];
        subject.version = version;
        if subject.directory {
            return self.look(at, "added");
        }
        let (path, object) = (subject.path.clone(), subject.object);
        self.print("changed", &path, Some((object, version)), false)
    }

    /// Something happened to an ephemeral file in a watched directory.
    fn member(&mut self, news: News) -> Result<(), Failure> {
        let at = self.subjects.iter().position(|subject| subject.entries.values().any(|row| row.object == news.object));
        match (news.what, at) {
            // The listing without it tells.
            (What::Gone, Some(at)) => self.look(at, "added"),
            (What::Certain { version } | What::Changed { version }, Some(at)) => {
                let known = self.members.insert(news.object, version);
                if known == Some(version) {
                    return Ok(());
                }
                let name = self.subjects[at].entries.iter().find(|(_, row)| row.object == news.object).map(|(name, _)| name.clone());
                let path = self.subjects[at].path.join(&name.map(|name| name.0).unwrap_or_default());
                self.print("changed", &path, Some((news.object, version)), true)
            }
            // The directory says so, too.
            (What::Uncertain, _) | (_, None) => Ok(()),
        }
    }

    /// Lists a directory and prints what is not as it was; `new` is what is said of names that were not there.
    fn look(&mut self, at: usize, new: &'static str) -> Result<(), Failure> {
        let (path, directory) = (self.subjects[at].path.clone(), self.subjects[at].directory);
        if !directory {
            return Ok(());
        }
        let rows = match self.backend.list(&path, true) {
            Ok(rows) => rows,
            Err(failure) => {
                // It will be looked at again with the next word about it.
                log::warn!("{path}: cannot be listed now: {}", failure.message);
                return Ok(());
            }
        };
        let now: BTreeMap<Text, EntryRow> = rows.into_iter().map(|row| (row.name.clone(), row)).collect();
        let before = std::mem::replace(&mut self.subjects[at].entries, now.clone());
        let is_there =
            |entries: &BTreeMap<Text, EntryRow>, row: &EntryRow| entries.get(&row.name).is_some_and(|other| other.object == row.object);
        for row in before.values().filter(|row| !is_there(&now, row)) {
            self.print_row("removed", &path, row)?;
        }
        for row in now.values().filter(|row| !is_there(&before, row)) {
            self.print_row(new, &path, row)?;
        }
        let left: Vec<&EntryRow> = before.values().filter(|row| !now.values().any(|other| other.object == row.object)).collect();
        left.into_iter().try_for_each(|row| self.forget(row))?;
        for row in now.values().filter(|row| is_ephemeral(row)) {
            if let Entry::Vacant(place) = self.members.entry(row.object) {
                place.insert(row.attr.as_ref().map_or(0, |attr| attr.version));
                self.watch(row.object)?;
            }
        }
        Ok(())
    }

    fn forget(&mut self, row: &EntryRow) -> Result<(), Failure> {
        if self.members.remove(&row.object).is_some() {
            self.backend.call(Request::Unwatch { object: row.object })?;
        }
        Ok(())
    }

    fn watch(&mut self, object: u64) -> Result<(), Failure> {
        self.backend.call(Request::Watch { object }).map(drop)
    }

    fn print_row(&self, event: &'static str, dir: &Text, row: &EntryRow) -> Result<(), Failure> {
        let version = row.attr.as_ref().map_or(0, |attr| attr.version);
        self.print(event, &dir.join(&row.name.0), Some((row.object, version)), is_ephemeral(row))
    }

    fn print(&self, event: &'static str, path: &Text, of: Option<(u64, u64)>, ephemeral: bool) -> Result<(), Failure> {
        if self.json {
            let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis);
            let (object, version) = of.unzip();
            return show::json(&ChangeLine { event, path, object, version: version.filter(|version| *version > 0), ephemeral, unix_ms });
        }
        let note = if ephemeral { " (ephemeral)" } else { "" };
        show::line(format!("{event:<9} {path}{note}"))
    }
}

fn is_ephemeral(row: &EntryRow) -> bool {
    row.attr.as_ref().is_some_and(|attr: &Attributes| attr.made_by.is_some())
}
