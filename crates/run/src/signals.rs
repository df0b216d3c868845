//! The caller's process and signals: which are passed on to the command, and why ^Z does not stop the holder of a lease.
//!
//! Decides, for as long as a command runs: SIGINT and SIGQUIT typed at the terminal reach the command by themselves and are ignored
//! here; sent by other means they are passed on, like SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2. A stop from the terminal
//! (SIGTSTP, SIGTTIN, SIGTTOU) would stop the process that renews the lease, and the command would be killed soon after; so
//! it is undone: the whole job is continued, after SIGTTIN and SIGTTOU as soon as it has the foreground.
//! Invariant: a signal that was ignored when the process started (`nohup`, background jobs) stays ignored, here and in the
//! command. SIGKILL and SIGSTOP cannot be handled; the guardian's clock covers them.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use crate::terminal;

const HANDLED: [i32; 9] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU];

/// What a signal to the caller's process leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The command is to get this signal.
    PassOn(i32),
    /// The terminal wanted to stop the job, which was continued.
    StopUndone,
}

/// The signals of the caller's process, caught.
pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    /// The job was stopped for using the terminal from the background, and is continued once it has the foreground.
    waits_for_terminal: bool,
}

impl Signals {
    /// Catches the signals from now on; they are caught, and do nothing, also after this has been dropped.
    pub(crate) fn catch() -> io::Result<Signals> {
        let ignored = ignored_from_start();
        let wanted = HANDLED.into_iter().filter(|signal| !ignored.contains(signal));
        // SIGCHLD says that the guardian has ended. Caught here, it is also not ignored in the guardian, as it may have been in
        // this process from the start: then nobody would learn how the command ended.
        let wanted = wanted.chain([SIGCHLD]);
        let (read, write) = UnixStream::pair()?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, wanted)?;
        Ok(Signals { delivery, waits_for_terminal: false })
    }

    /// Becomes readable when a signal comes.
    pub(crate) fn readable(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }

    /// Whether [`Signals::hear`] should be called now and then also without a signal.
    pub(crate) fn wants_turns(&self) -> bool {
        self.waits_for_terminal
    }

    /// Handles the signals that have come.
    pub(crate) fn hear(&mut self) -> Vec<Heard> {
        let mut heard = Vec::new();
        for signal in self.delivery.pending() {
            match signal {
                // Typed at the terminal of which this job has the foreground: the command got it from there.
                SIGINT | SIGQUIT if terminal::in_foreground() == Some(true) => {}
                SIGCHLD => {}
                SIGTTIN | SIGTTOU => self.waits_for_terminal = true,
                SIGTSTP => {
                    continue_job();
                    heard.push(Heard::StopUndone);
                }
                other => heard.push(Heard::PassOn(other)),
            }
        }
        if self.waits_for_terminal && terminal::in_foreground() != Some(false) {
            self.waits_for_terminal = false;
            continue_job();
        }
        heard
    }
}

/// Continues the command and whatever else is in the job, such as the other end of a pipeline.
fn continue_job() {
    // Fails only if not one process of the group may be signalled, and this process is one of them.
    let _ = killpg(getpgrp(), Signal::SIGCONT);
}

/// The numbers of the signals that are ignored in this process, lowest first.
///
/// A program that installs handlers leaves alone what was ignored when it started (for `nohup` and background jobs), so it asks
/// this before its first handler. Empty if /proc cannot be read.
#[must_use]
pub fn ignored_from_start() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(|signal| mask & (1 << (signal - 1)) != 0).collect()
}
