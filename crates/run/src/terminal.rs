//! The terminal that an interactive command leaves behind when it is killed.
//!
//! Decides when to give a terminal back and in which state: a full-screen program that is killed cannot undo raw mode, and
//! a shell with job control that is killed leaves the foreground to a process group that no longer exists. Both are put
//! back as they were at the start, but only if this job had the foreground then and nobody living has it now.
//! Called by the guardian, which blocks SIGTTOU, so that setting a terminal from the background is allowed.

use std::fs::File;

use nix::errno::Errno;
use nix::sys::signal::killpg;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal as it was at the start, when the job had its foreground.
pub(crate) struct Terminal {
    tty: File,
    /// The process group of the job: the caller's process and the command. The guardian leaves it later.
    job: Pid,
    attributes: Termios,
}

impl Terminal {
    /// Remembers the controlling terminal; `None` if there is none or another job has its foreground.
    pub(crate) fn remember() -> Option<Terminal> {
        let (tty, job) = (open()?, getpgrp());
        if tcgetpgrp(&tty).ok()? != job {
            return None;
        }
        let attributes = tcgetattr(&tty).ok()?;
        Some(Terminal { tty, job, attributes })
    }

    /// Puts it back, unless a living job other than ours has the foreground. Best effort: a terminal may be gone.
    pub(crate) fn restore(&self) {
        match tcgetpgrp(&self.tty) {
            Ok(foreground) if foreground == self.job => {}
            // A job that is gone as well cannot take the foreground; then its shell does.
            Ok(foreground) if is_gone(foreground) && tcsetpgrp(&self.tty, self.job).is_ok() => {}
            _ => return,
        }
        // A failure leaves the terminal as the command left it, which is what would have happened without us.
        let _ = tcsetattr(&self.tty, SetArg::TCSANOW, &self.attributes);
    }
}

/// Whether this process's job has the foreground of its controlling terminal; `None` if it has no terminal.
pub(crate) fn in_foreground() -> Option<bool> {
    let foreground = tcgetpgrp(open()?).ok()?;
    Some(foreground == getpgrp())
}

fn is_gone(group: Pid) -> bool {
    matches!(killpg(group, None), Err(Errno::ESRCH))
}

fn open() -> Option<File> {
    File::options().read(true).write(true).open("/dev/tty").ok()
}
