//! Starting a command under a lock.
//!
//! Decides the order of the start: signals caught, child subreaper, pipes, guardian, first instant, and then the word of the
//! starter that the command runs, or why it cannot. Place: caller → *runner* → guardian (another process).
//! Invariants: the command never runs without an instant by which it will have been killed, and a start that fails
//! leaves nothing running. One command at a time per process, for signals and orphans belong to the whole process.

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use thiserror::Error;

use crate::at::{At, Until};
use crate::exit::{EXIT_CANNOT_RUN, EXIT_FAILURE, EXIT_LOST, EXIT_NOT_FOUND};
use crate::messages::Lines;
use crate::policy::Settings;
use crate::running::{Failure, Running};
use crate::signals::Signals;
use crate::{inherit, setup, tree};

/// A command to be run under a lock.
#[derive(Clone, Debug)]
pub struct Runner {
    command: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    settings: Settings,
}

/// Why a command was not started. Each text says what to do where the user can do something.
#[derive(Debug, Error)]
pub enum RunError {
    /// There is no such command; exit status 127.
    #[error("{}: command not found (no such file, or the interpreter that its first line names is missing)", command.display())]
    NotFound {
        /// The command as it was given.
        command: OsString,
    },
    /// There is such a command, but the kernel will not execute it; exit status 126.
    #[error("{}: cannot be run: {source}", command.display())]
    CannotRun {
        /// The command as it was given.
        command: OsString,
        /// What the kernel said.
        source: io::Error,
    },
    /// The lock was not certain for long enough any more to start anything; exit status 79.
    #[error("the lock is no longer certain for long enough to start the command; nothing was run, try again")]
    TooLate,
    /// The process already runs a command; exit status 125, a mistake of the calling program.
    #[error("this process already runs a command under a lock; one process runs one at a time")]
    Busy,
    /// The guardian process will not work in this environment; exit status 125.
    #[error("cannot run a command under a lock here: {0}")]
    Refused(String),
    /// The guardian process ended before the command was started; exit status 125.
    #[error("the guardian process was killed before the command was started; nothing runs, try again")]
    GuardianGone,
    /// The kernel refused something that the start needs; exit status 125.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl RunError {
    /// The exit status of the command line, by the table in the crate's documentation.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            RunError::NotFound { .. } => EXIT_NOT_FOUND,
            RunError::CannotRun { .. } => EXIT_CANNOT_RUN,
            RunError::TooLate => EXIT_LOST,
            RunError::Busy | RunError::Refused(_) | RunError::GuardianGone | RunError::System { .. } => EXIT_FAILURE,
        }
    }
}

static BUSY: AtomicBool = AtomicBool::new(false);

/// The right to run the one command of this process; given back when dropped.
#[derive(Debug)]
pub(crate) struct Claim(());

impl Claim {
    fn take() -> Option<Claim> {
        (!BUSY.swap(true, Ordering::AcqRel)).then_some(Claim(()))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        BUSY.store(false, Ordering::Release);
    }
}

impl Runner {
    /// A command, looked up in `PATH` if it holds no slash.
    #[must_use]
    pub fn new(command: impl Into<OsString>) -> Runner {
        Runner { command: command.into(), args: Vec::new(), env: Vec::new(), settings: Settings::default() }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Runner {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds a variable to the environment that the command takes over from this process.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Runner {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Replaces the default [`Settings`].
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Runner {
        self.settings = settings;
        self
    }

    /// Starts the command under a lock that is certain until `first`; returns when it runs.
    ///
    /// The program must call [`crate::hidden_main`] first thing in `main`. From here on this process catches SIGHUP, SIGINT,
    /// SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 and the terminal's stop signals (see [`Running::wait_event`]) and should start no
    /// other processes until the tree is gone. Renewals that happen meanwhile are told to the [`Running`] afterwards.
    ///
    /// # Errors
    ///
    /// [`RunError`]; nothing is running then.
    pub fn start(self, first: Until) -> Result<Running, RunError> {
        let claim = Claim::take().ok_or(RunError::Busy)?;
        if first.ordered().suspect_at.reached(At::now()) {
            return Err(RunError::TooLate);
        }
        let mut running = self.spawn(first, claim)?;
        while !running.is_started() {
            match running.failure() {
                None => running.turn(Some(Duration::from_secs(1))),
                Some(failure) => {
                    let error = self.explain(failure);
                    // Nothing but the starter is there to end; when this returns it has.
                    drop(running);
                    return Err(error);
                }
            }
        }
        Ok(running)
    }

    fn spawn(&self, first: Until, claim: Claim) -> Result<Running, RunError> {
        let failed = |what| move |source: io::Error| RunError::System { what, source };
        let signals = Signals::catch().map_err(failed("catch signals"))?;
        nix::sys::prctl::set_child_subreaper(true).map_err(|e| failed("become a child subreaper")(e.into()))?;
        let spared = tree::children(nix::unistd::getpid().as_raw());

        let make = failed("make a pipe to the guardian process");
        let (guardians_orders, orders) = io::pipe().map_err(make)?;
        let (reports, guardians_reports) = io::pipe().map_err(make)?;
        inherit::set_nonblocking(&orders).and_then(|()| inherit::set_nonblocking(&reports)).map_err(make)?;
        let orders_number = inherit::give(&guardians_orders).map_err(make)?;
        let reports_number = inherit::give(&guardians_reports).map_err(make)?;
        let mut command = setup::guardian_command(&orders_number, &reports_number, self.settings, &self.command, &self.args);
        let guardian = command
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .spawn()
            .map_err(failed("start the guardian process (through /proc/self/exe)"))?;
        drop((guardians_orders, guardians_reports));
        Ok(Running::new(guardian, orders, Lines::new(reports), signals, spared, first, claim))
    }

    fn explain(&self, failure: &Failure) -> RunError {
        let command = self.command.clone();
        match failure {
            Failure::Refused(why) => RunError::Refused(why.clone()),
            Failure::GuardianGone => RunError::GuardianGone,
            Failure::Exec(errno) => match Errno::from_raw(*errno) {
                Errno::ENOENT | Errno::ENOTDIR => RunError::NotFound { command },
                _ => RunError::CannotRun { command, source: io::Error::from_raw_os_error(*errno) },
            },
        }
    }
}
