//! The command lines of what a lease is for: running under a lock, listing locks, watching, being a member.
//!
//! Decides: names of their flags, their help, their examples. Leaves to others: what they do (`lock`, `locks`, `watch`, `member`).

use super::Common;
use super::{duration, octal};
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::time::Duration;

pub(super) const LOCKS_HELP: &str = "\
AT MOST bounds the time until the lock is free: for a holder that is timing out, the rest of its wait; for one that answers (`if gone`), how long \
others would wait if it failed now. The latter follows from the holder's lease period.";

pub(super) const LOCK_HELP: &str = "\
PATH is created as an empty file if it is missing; its parent directories are not.

With --agent or CISTERN_AGENT the host's agent holds the lock; the guarantee below is the same.

COMMAND gets the fencing token in CISTERN_TOKEN and the path in CISTERN_LOCK.

When the lease is not renewed, COMMAND and everything that it started get SIGTERM 20 % of the lease period before the lock becomes \
uncertain, and SIGKILL 12 % before: all of it has ended before the lock can be anyone else's, also when `cistern` itself is killed.

Exit status: COMMAND's own, or 128 + the signal that ended it; and
  71   parts of COMMAND could not be killed
  75   not obtained (--try), or no answer from the server within 2 s
  79   the lock was lost, and COMMAND was stopped
  124  not obtained in time (--wait), whether others held it or no server answered
  125  cistern itself failed: no server (without --wait and --try), wrong usage
  126  COMMAND cannot be run
  127  COMMAND was not found

Examples:
  cistern lock /jobs/nightly -- ./backup.sh
  cistern lock --try /jobs/nightly -- ./backup.sh || echo 'another host holds it'
  cistern lock --shared --wait 10 /site -- rsync -a /srv/site/ web:/srv/site/";

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

const JOIN_HELP: &str = "\
PATH is created as an ephemeral file; its parent directories must exist. If another member's ephemeral file has that name, the command waits until it \
is gone. The file is removed at once when this command ends, and within 3.8 s plus commits by default when it or its host dies while someone watches. \
The command rejoins after every interruption, and prints the reason on standard error. Before it has joined for the first time, it fails (status 1) \
on permanent errors: no such directory, not a directory, a file of that name that is not ephemeral.

With --agent or CISTERN_AGENT the file belongs to the host's agent, which removes it as soon as this command ends or is killed.

Prints joined, uncertain, certain and lost, each with the path. Ends by SIGINT or SIGTERM: exit status 0.

Examples:
  cistern mkdir -p /group
  cistern member join /group/$(hostname) &
  cistern member join --data \"$(hostname -I)\" /group/$(hostname)
  cistern member watch /group";

#[derive(Args, Debug)]
pub(crate) struct Lock {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Shared with other shared holders
    #[arg(long)]
    pub(crate) shared: bool,
    /// Fail at once if the lock is held
    #[arg(long = "try", conflicts_with = "wait")]
    pub(crate) try_once: bool,
    /// Longest wait for the lock, the server's silence included; a plain number is seconds
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Path to lock
    pub(crate) path: OsString,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Locks {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Only locks on this path
    pub(crate) path: Option<OsString>,
}

/// Groups, whose members are ephemeral files in a directory.
#[derive(Debug, Subcommand)]
pub(crate) enum Member {
    /// Join a group: keep an ephemeral file while this command runs
    #[command(after_help = JOIN_HELP)]
    Join(Join),
    /// Print each change of files and directories as it happens
    #[command(after_help = WATCH_HELP)]
    Watch(Watch),
}

#[derive(Args, Debug)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Paths to watch; symbolic links are followed
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Join {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Contents of the file: what other members should know
    #[arg(long, value_name = "TEXT")]
    pub(crate) data: Option<OsString>,
    /// Permission bits, octal
    #[arg(long, value_parser = octal, default_value = "644")]
    pub(crate) mode: u16,
    /// Path of the ephemeral file
    pub(crate) path: OsString,
}
