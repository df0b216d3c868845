//! The starter: the short-lived re-exec between the guardian and the command.
//!
//! Decides that the command dies with its guardian: it sets the parent-death signal to SIGKILL on itself, which survives
//! `exec` (except of set-user-id programs, where the kernel clears it), checks that the guardian had not died before that,
//! and becomes the command. Place: guardian → *starter* = command; they are one process.
//! Invariant: the command is never executed without a living guardian above it. What goes wrong is told to the guardian through
//! a pipe that a successful `exec` closes: end of file without a word means that the command runs.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::getppid;

use crate::{exit, inherit};

/// Runs the starter with the arguments after the hidden one: pipe, guardian's process id, command, its arguments.
pub(crate) fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(pipe), Some(guardian), Some(command)) = (args.next(), args.next(), args.next()) else {
        return crate::misused();
    };
    let Ok(mut pipe) = inherit::take_write(&pipe) else { return crate::misused() };
    if let Err(error) = set_pdeathsig(Signal::SIGKILL) {
        return fail(&mut pipe, error as i32);
    }
    if guardian.to_str() != Some(getppid().to_string().as_str()) {
        // The guardian ended before the kernel knew that we should end with it.
        return ExitCode::from(exit::EXIT_FAILURE);
    }
    // The guardian blocks all signals, and a mask outlives `exec`. What came meanwhile takes effect here.
    if let Err(error) = SigSet::empty().thread_set_mask() {
        return fail(&mut pipe, error as i32);
    }
    let error = Command::new(&command).args(args).exec();
    fail(&mut pipe, error.raw_os_error().unwrap_or(Errno::EINVAL as i32))
}

fn fail(pipe: &mut impl Write, errno: i32) -> ExitCode {
    // If the guardian cannot be told, it is gone, and there is nobody else to tell.
    let _ = writeln!(pipe, "{errno}");
    ExitCode::from(exit::EXIT_CANNOT_RUN)
}
