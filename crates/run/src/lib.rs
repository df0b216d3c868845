//! Runs a command under a lock so that it has ended before the lock can be anyone else's (`wire-spec.md` section 11.6).
//!
//! This crate knows nothing of the protocol: its input is a stream of "certain until" instants ([`Until`]), its output is a
//! stream of [`Event`]s that ends with [`Event::TreeGone`]; only after that may the lock be given back. What users are told
//! is in `docs/running-under-a-lock.md`.
//!
//! ```text
//!  caller's process        holds the lease, feeds instants; handles ^C, ^Z and the like; child subreaper
//!    │ ▲ orders, reports (two pipes)
//!    ▼ │
//!  guardian                re-exec of this executable, own name, own process group, deaf to signals; child subreaper:
//!    │                     whatever the command starts stays below it. Terminates and kills by its own clocks, also
//!    ▼                     when the caller's process has been killed
//!  starter = command       re-exec that sets its parent-death signal and then becomes the command, in the caller's process
//!    └─ its descendants    group, so that it has the terminal as if there were nothing in between
//! ```
//!
//! The walk: `runner` (start) → `inherit` (pipes) → `setup`, `guardian` (the other process) → `starter` → the command; then
//! `messages` (orders, reports) → `policy` (the decision) → `tree` (the deed); `running` is the caller's view of it.
//!
//! # Exit status of a command line that runs a command
//!
//! | status | meaning |
//! |---|---|
//! | the command's | it ended by itself (128 + n: by signal n) |
//! | 71 [`EXIT_SURVIVORS`] | some of its processes could not be killed in time, or not at all |
//! | 75 [`EXIT_NOT_OBTAINED`] | `--try`: someone else holds the lock; the command was not run |
//! | 79 [`EXIT_LOST`] | it was stopped because the lock could not be kept |
//! | 124 [`EXIT_TIMED_OUT`] | `--wait`: the lock was not obtained in time; the command was not run |
//! | 125 [`EXIT_FAILURE`] | Cistern itself failed |
//! | 126 [`EXIT_CANNOT_RUN`] | the command was found but cannot be run |
//! | 127 [`EXIT_NOT_FOUND`] | the command was not found |

mod at;
mod exit;
mod guardian;
mod inherit;
mod messages;
mod orphans;
mod policy;
mod runner;
mod running;
mod setup;
mod signals;
mod starter;
mod terminal;
mod tree;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

pub use at::{At, Until};
pub use exit::{
    EXIT_CANNOT_RUN, EXIT_FAILURE, EXIT_LOST, EXIT_NOT_FOUND, EXIT_NOT_OBTAINED, EXIT_SURVIVORS, EXIT_TIMED_OUT, Outcome, Reason, Status,
};
pub use messages::Survivor;
pub use policy::Settings;
pub use runner::{RunError, Runner};
pub use running::{Control, Event, Running};
pub use signals::ignored_from_start;

/// First argument of a process that is to be a guardian.
const HIDDEN_GUARDIAN: &str = "--internal-lock-guardian";
/// First argument of a process that is to become the command.
const HIDDEN_STARTER: &str = "--internal-lock-starter";

/// This executable, also if its file has been replaced or removed since the start.
const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// Does the work of this crate's own processes; every program that uses [`Runner`] calls it first thing in `main`.
///
/// `args` are the program's arguments with its name. Returns `None` for an ordinary start, which then goes on as usual;
/// otherwise the process is a guardian or a starter and `main` returns the exit code at once. It must be called before
/// any thread is started and before anything is printed.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     if let Some(code) = cistern_run::hidden_main(std::env::args_os()) {
///         return code;
///     }
///     // the program itself
///     std::process::ExitCode::SUCCESS
/// }
/// ```
pub fn hidden_main(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    match args.next()?.to_str()? {
        HIDDEN_GUARDIAN => Some(guardian::main(args)),
        HIDDEN_STARTER => Some(starter::main(args)),
        _ => None,
    }
}

/// A person typed what only this crate writes.
fn misused() -> ExitCode {
    // Standard error may be closed; then nobody is told.
    let _ = writeln!(std::io::stderr(), "this option is used by the program itself to run a command under a lock; it does nothing by hand");
    ExitCode::from(EXIT_FAILURE)
}
