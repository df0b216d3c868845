//! How a command's end becomes the exit status of `cistern lock`, and the codes it has for itself.
//!
//! Decides the one table of exit codes (also in the crate's documentation and `docs/running-under-a-lock.md`). The codes
//! follow `timeout(1)` and `env(1)` (124 to 127), the shell (128 and the signal's number) and `sysexits.h` (71, 75); 79 is
//! just above the last of `sysexits.h`, so it means nothing else. A command may itself exit with any of them; then the line on
//! standard error tells the difference. Invariant: a command that was stopped because the lock could not be kept
//! never yields its own status, for a script must not take half a job for a whole one.

use rustix::process::WaitStatus;

use crate::messages::Survivor;

/// Parts of the command could not be killed in time, or not at all (`EX_OSERR`).
pub const EXIT_SURVIVORS: u8 = 71;
/// `--try`: the lock is held by someone else; the command was not run (`EX_TEMPFAIL`).
pub const EXIT_NOT_OBTAINED: u8 = 75;
/// The lock could not be kept; the command was stopped before the lock could be anyone else's.
pub const EXIT_LOST: u8 = 79;
/// `--wait`: the lock was not obtained in time; the command was not run.
pub const EXIT_TIMED_OUT: u8 = 124;
/// Cistern itself failed: no server, bad options, no guardian.
pub const EXIT_FAILURE: u8 = 125;
/// The command was found but cannot be run.
pub const EXIT_CANNOT_RUN: u8 = 126;
/// The command was not found.
pub const EXIT_NOT_FOUND: u8 = 127;

/// How the command itself ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It exited with this code, 0 to 255.
    Exited(u8),
    /// It was ended by the signal of this number.
    Signalled(u8),
}

impl Status {
    pub(crate) fn of(status: WaitStatus) -> Status {
        let byte = |n: i32| u8::try_from(n).unwrap_or(u8::MAX);
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Status::Exited(byte(code)),
            (None, signal) => Status::Signalled(signal.map_or(u8::MAX, byte)),
        }
    }

    /// The code a shell would give for it: the command's own, or 128 and the signal's number.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Status::Exited(code) => code,
            Status::Signalled(signal) => 128u8.saturating_add(signal),
        }
    }
}

/// Why a command's tree is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The lease had not been renewed when its *suspect* instant came.
    NotRenewed,
    /// The caller said that the lock is not certain any more.
    Uncertain,
    /// The caller said that the lock is lost.
    Lost,
    /// The process that held the lock ended without having said anything.
    HolderGone,
    /// The command ended by itself and left processes behind.
    LeftBehind,
    /// The guardian ended before the command; the caller's process cleaned up.
    GuardianGone,
}

impl Reason {
    /// What a person reads, as the end of the sentence "the command was stopped because …".
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Reason::NotRenewed => "the lease was not renewed in time",
            Reason::Uncertain => "the lock was no longer certain",
            Reason::Lost => "the lock was lost",
            Reason::HolderGone => "the process that held the lock ended",
            Reason::LeftBehind => "the command ended and left processes behind",
            Reason::GuardianGone => "its guardian process was killed",
        }
    }
}

/// How a run ended: what became of the command, and of what it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How the command ended; `None` if that could not be learned because the guardian was killed.
    pub status: Option<Status>,
    /// Why the command was stopped; `None` if it ended by itself, even if what it left behind had to be stopped.
    pub stopped: Option<Reason>,
    /// Whether everything was gone before the last instant until which the lock was certain. False means that the kernel could not
    /// end something in time (see `survivors` of earlier events); only the token protects what it did since.
    pub in_time: bool,
    /// Processes of the tree that are still there; empty once the tree is gone.
    pub survivors: Vec<Survivor>,
}

impl Outcome {
    /// The exit status for the command line, by the table in the crate's documentation.
    #[must_use]
    pub fn code(&self) -> u8 {
        if !self.in_time || !self.survivors.is_empty() {
            return EXIT_SURVIVORS;
        }
        match (self.stopped, self.status) {
            (Some(Reason::GuardianGone), _) => EXIT_FAILURE,
            (Some(_), _) => EXIT_LOST,
            (None, Some(status)) => status.code(),
            (None, None) => EXIT_FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: Option<Status>, stopped: Option<Reason>) -> Outcome {
        Outcome { status, stopped, in_time: true, survivors: Vec::new() }
    }

    #[test]
    fn a_command_that_ends_by_itself_gives_its_own_status() {
        assert_eq!(outcome(Some(Status::Exited(3)), None).code(), 3);
        assert_eq!(outcome(Some(Status::Signalled(15)), None).code(), 143);
    }

    #[test]
    fn a_command_stopped_for_the_lock_never_looks_like_a_success() {
        for reason in [Reason::NotRenewed, Reason::Uncertain, Reason::Lost, Reason::HolderGone] {
            assert_eq!(outcome(Some(Status::Exited(0)), Some(reason)).code(), EXIT_LOST);
        }
        assert_eq!(outcome(Some(Status::Signalled(9)), Some(Reason::GuardianGone)).code(), EXIT_FAILURE);
        assert_eq!(outcome(None, None).code(), EXIT_FAILURE);
    }

    #[test]
    fn what_could_not_be_killed_is_told_by_the_exit_status() {
        let stuck = Survivor { pid: 7, name: "cp".into(), state: 'D', denied: false };
        let ended = outcome(Some(Status::Exited(0)), None);
        assert_eq!(Outcome { survivors: vec![stuck], ..ended.clone() }.code(), EXIT_SURVIVORS);
        assert_eq!(Outcome { in_time: false, ..ended }.code(), EXIT_SURVIVORS);
    }
}
