//! The command lines of what a lease is for: running under a lock, listing locks, watching, being a member.
//!
//! Decides: names of their flags, their help, their examples. Leaves to others: what they do (`lock`, `locks`, `watch`, `member`).

use super::Common;
use super::{duration, octal};
use clap::Args;
use std::ffi::OsString;
use std::time::Duration;

pub(super) const LOCKS_HELP: &str = "\
AT MOST is the time within which the lock is free: of a holder that is timing out, what is left of its wait; of one that answers, with the words \
`if gone`, what others would wait for it. The latter follows from the lease period of that holder, so it is long where a long one was asked for.";

pub(super) const LOCK_HELP: &str = "\
PATH is made as an empty file if it is missing; its parent directories are not.

With --agent or CISTERN_AGENT the lock is held by the host's agent; the promise below is the same.

COMMAND finds the fencing token in CISTERN_TOKEN and the path in CISTERN_LOCK.

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
  cistern lock --try /jobs/nightly -- ./backup.sh || echo 'somebody else is at it'
  cistern lock --shared --wait 10 /site -- rsync -a /srv/site/ web:/srv/site/";

pub(super) const WATCH_HELP: &str = "\
Of a directory, what is in it is printed first, then each name that comes or goes, and each change of an ephemeral file in it: while \
somebody watches, the server finds out when the owner of an ephemeral file is gone (within 3.8 s plus commits by default, docs/membership.md).
Of a file, each change is printed. Nothing is sent while nothing changes but this agent's renewals and the probes of owners.

Lines begin with one of: watching, present, added, removed, changed, uncertain (the lease is over: changes may be missed), certain \
(what was missed has just been printed), gone.

Ends when everything that it watches is gone, or by SIGINT or SIGTERM: exit status 0.

Examples:
  cistern watch /group
  cistern watch --json /site /group | while read -r change; do echo \"$change\"; done";

pub(super) const MEMBER_HELP: &str = "\
PATH is made as an ephemeral file; its parent directories must exist. While another one's ephemeral file is there, its end is waited for. \
The file goes at once when this command ends, and within 3.8 s plus commits by default when it or its host dies while somebody watches. \
The command joins again whenever it is no member, whatever joining meets, and says why on standard error. Before it has joined for the first \
time it ends (status 1) where that is hopeless: no such directory, not a directory, a file of that name that is not ephemeral.

With --agent or CISTERN_AGENT the file belongs to the host's agent, which removes it at once when this command ends or is killed.

Prints joined, uncertain, certain and lost, each with the path. Ends by SIGINT or SIGTERM: exit status 0.

Examples:
  cistern mkdir -p /group
  cistern member /group/$(hostname) &
  cistern member --data \"$(hostname -I)\" /group/$(hostname)
  cistern watch /group";

#[derive(Args, Debug)]
pub(crate) struct Lock {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Shared with other shared holders
    #[arg(long)]
    pub(crate) shared: bool,
    /// Do not wait
    #[arg(long = "try", conflicts_with = "wait")]
    pub(crate) try_once: bool,
    /// Wait at most so long, for the server as well as for the lock; a plain number is seconds
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Say who holds the lock while it is waited for, and when it is obtained, also where standard error is no terminal
    #[arg(long, short = 'v', conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Do not say who holds the lock while it is waited for; errors, and what is done to COMMAND, are told all the same
    #[arg(long, short = 'q')]
    pub(crate) quiet: bool,
    /// What to lock
    pub(crate) path: OsString,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Locks {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Only of this object
    pub(crate) path: Option<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) common: Common,
    /// What to watch; symbolic links are followed
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Member {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Contents of the file: what others should know of this member
    #[arg(long, value_name = "TEXT")]
    pub(crate) data: Option<OsString>,
    /// Permission bits, octal
    #[arg(long, value_parser = octal, default_value = "644")]
    pub(crate) mode: u16,
    /// The file
    pub(crate) path: OsString,
}
