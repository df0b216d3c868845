//! `cistern watch`: a command after each change of a file or of a directory's files.
//!
//! Decides: what is one state (the versions of the path's object and, of a directory, of the files in it), that the command is run for each
//! state that is seen and not for those between, and again while it fails; and that a path which comes to name another object is followed.
//! Leaves to others: when something is certain (the agent), through whom it is asked (`backend`).

use super::Run;
use crate::backend::Backend;
use crate::ctx::Ctx;
use crate::local::{Attributes, Failure, Request};
use crate::show;
use crate::signals::End;
use crate::text::Text;
use cistern_client::FileType;
use cistern_run::{EXIT_CANNOT_RUN, EXIT_NOT_FOUND};
use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long news are waited for: as long as a signal, or the end of the command, may take to be noticed.
const WAIT: Duration = Duration::from_millis(100);
/// Before what failed for now is asked again.
const PAUSE: Duration = Duration::from_millis(500);
/// Before a command that failed is run again, the first time and at most.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(60);

const WATCH_HELP: &str = "\
COMMAND is run once at the beginning, and whenever PATH has changed since it was started last: its contents or attributes, what it names, and if it is a directory, its entries and \
the files in it (not those of directories below). Changes while it runs are one more run. It finds PATH in CISTERN_PATH.

After the last change COMMAND is run at least once with all of it, however long this host was cut off; states between may be missed. A COMMAND that fails is run again \
after 1 s, then 2 s and so on, at most 60 s, until it succeeds or PATH changes. While PATH is missing nothing is run.

Ends by SIGINT or SIGTERM, which COMMAND gets, too: exit status 0; 126 or 127 if COMMAND cannot be run.

Examples:
  cistern watch /site -- ./backup.sh
  cistern watch --changes /site/index.html -- systemctl reload nginx";

/// Run a command after each change of a file or directory
#[derive(Args, Debug)]
#[command(after_help = WATCH_HELP)]
pub(crate) struct WatchPath {
    /// Not at the beginning, only when PATH changes
    #[arg(long)]
    changes: bool,
    /// Path to watch; symbolic links are followed
    path: OsString,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Objects and their versions.
type State = BTreeMap<u64, u64>;

struct PathWatch<'a> {
    args: &'a WatchPath,
    path: Text,
    backend: &'a mut Backend,
    end: &'a End,
    watched: BTreeSet<u64>,
    /// For what the command was started last.
    started_for: Option<State>,
    running: Option<Child>,
    /// When a command that failed is run again, and how long after its failure that is.
    again: Option<(Instant, Duration)>,
}

impl Run for WatchPath {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let end = End::catch()?;
        let path = Text::from(self.path.as_os_str());
        let mut watching = PathWatch {
            args: self,
            path,
            backend: ctx.agent()?,
            end: &end,
            watched: BTreeSet::new(),
            started_for: None,
            running: None,
            again: None,
        };
        let result = watching.run();
        watching.stop();
        result
    }
}

impl PathWatch<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        // What can never succeed ends it now: there is no such directory.
        self.backend.stat(&parent(&self.path), true)?;
        let mut seen = None;
        let mut is_first = true;
        let mut is_due = true;
        while !self.end.is_asked() {
            if is_due {
                match self.look() {
                    Ok(state) => {
                        if std::mem::take(&mut is_first) && self.args.changes {
                            self.started_for.clone_from(&state);
                        }
                        (seen, is_due) = (state, false);
                    }
                    Err(failure) => {
                        log::warn!("{}: cannot be looked at now: {}", self.path, failure.message);
                        self.end.wait(PAUSE);
                        self.again_if_gone(&failure);
                    }
                }
            }
            self.serve(seen.as_ref())?;
            match self.backend.news(if is_due { Duration::ZERO } else { WAIT }) {
                Ok(news) => is_due |= !news.is_empty(),
                Err(failure) => {
                    self.again_if_gone(&failure);
                    is_due = true;
                }
            }
        }
        Ok(())
    }

    /// Asks the host's agent that comes after one that has ended.
    fn again_if_gone(&mut self, failure: &Failure) {
        if failure.code == "NO_AGENT" {
            self.watched.clear();
            match self.backend.again() {
                Ok(backend) => *self.backend = backend,
                Err(_) => _ = self.end.wait(PAUSE),
            }
        }
    }

    /// What is there now, watched from now on; `None`: nothing.
    fn look(&mut self) -> Result<Option<State>, Failure> {
        // Twice if need be: what is watched first, and read then, is not missed.
        loop {
            let (state, mut wanted) = self.read()?;
            wanted.extend(self.backend.stat(&parent(&self.path), true).map(|dir| dir.object));
            let new: Vec<u64> = wanted.difference(&self.watched).copied().collect();
            for object in self.watched.difference(&wanted) {
                self.backend.call(Request::Unwatch { object: *object })?;
            }
            for object in &new {
                self.backend.call(Request::Watch { object: *object })?;
            }
            self.watched = wanted;
            if new.is_empty() {
                return Ok(state);
            }
        }
    }

    fn read(&mut self) -> Result<(Option<State>, BTreeSet<u64>), Failure> {
        let is_missing = |failure: &Failure| ["ENOENT", "ENOTDIR"].contains(&failure.code.as_str());
        let there: Attributes = match self.backend.stat(&self.path, true) {
            Err(failure) if is_missing(&failure) => return Ok((None, BTreeSet::new())),
            there => there?,
        };
        let mut state = State::from([(there.object, there.version)]);
        if there.is(FileType::Directory) {
            match self.backend.list(&self.path, true) {
                Err(failure) if is_missing(&failure) => return Ok((None, BTreeSet::new())),
                rows => state.extend(rows?.into_iter().filter_map(|row| row.attr).map(|attr| (attr.object, attr.version))),
            }
        }
        let objects = state.keys().copied().collect();
        Ok((Some(state), objects))
    }

    /// Starts the command if that is due, and looks whether it has ended.
    fn serve(&mut self, seen: Option<&State>) -> Result<(), Failure> {
        if let Some(child) = &mut self.running {
            let ended = child.try_wait().map_err(|e| Failure::failed(format!("cannot wait for the command: {e}")))?;
            let Some(status) = ended else { return Ok(()) };
            self.running = None;
            self.again = match (status.success(), self.again) {
                (true, _) => None,
                (false, last) => Some(self.later(status, last)),
            };
        }
        let Some(seen) = seen else { return Ok(()) };
        let is_new = self.started_for.as_ref() != Some(seen);
        if is_new || self.again.is_some_and(|(at, _)| at <= Instant::now()) {
            if is_new {
                self.again = None;
            }
            self.started_for = Some(seen.clone());
            self.running = Some(self.start()?);
        }
        Ok(())
    }

    /// A command has failed: when it is run again.
    fn later(&self, status: ExitStatus, last: Option<(Instant, Duration)>) -> (Instant, Duration) {
        let span = last.map_or(AGAIN, |(_, span)| (span * 2).min(AGAIN_MAX));
        let what = format!("{}: the command failed ({status}), and is run again in {} s", self.path, span.as_secs());
        show::error("cistern", &Failure::failed(what));
        (Instant::now() + span, span)
    }

    fn start(&self) -> Result<Child, Failure> {
        let (command, args) = self.args.command.split_first().ok_or_else(|| Failure::usage("no command is named"))?;
        Command::new(command).args(args).env("CISTERN_PATH", self.path.as_os()).spawn().map_err(|e| {
            let exit = if e.kind() == ErrorKind::NotFound { EXIT_NOT_FOUND } else { EXIT_CANNOT_RUN };
            Failure::new("NOT_RUN", exit, format!("{}: cannot be run: {e}", command.display()))
        })
    }

    /// Ends the command that runs.
    fn stop(&mut self) {
        if let Some(child) = &mut self.running {
            // Fails only if it has ended.
            let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
            let _ = child.wait();
        }
    }
}

/// The directory in which a path's last name is.
fn parent(path: &Text) -> Text {
    let path = path.0.strip_suffix(b"/").unwrap_or(&path.0);
    match path.iter().rposition(|byte| *byte == b'/') {
        None | Some(0) => Text(b"/".to_vec()),
        Some(at) => Text(path[..at].to_vec()),
    }
}
