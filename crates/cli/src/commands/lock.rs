//! `cistern lock`: a command under a lock, or in a slot of a semaphore.
//!
//! Decides: that the lock is given back only when nothing of the command is left, and then at once. The lock belongs to an
//! agent of this process's own, or to the host's agent. In the first case the lease ends when this process is gone; in the second the agent
//! keeps the lock until the last instant that the guardian can have been told. Without a server it belongs to this host's member of a group, which
//! is asked as the host's agent is.
//! Leaves to others: the command (`job`), obtaining the lock (`obtain`), whose it is (`held`).

mod held;
mod job;
mod obtain;

use super::Run;
use crate::capture;
use crate::contact;
use crate::ctx::Ctx;
use crate::execute::LockKind;
use crate::group::GroupList;
use crate::local::Failure;
use crate::signals::{Caught, end_by};
use crate::text::Text;
use cistern_run::EXIT_FAILURE;
use cistern_text::duration;
use clap::Args;
pub(crate) use held::Held;
pub(crate) use job::{Finished, GuardedCommand, tell};
pub(crate) use obtain::{LockAgent, NoLock, Obtaining, TRY_TIME, Terms};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const LOCK_HELP: &str = "\
PATH is created as an empty file if it is missing; its parent directories are not.

Through the host's agent (--agent) that agent holds the lock; the guarantee below is the same.

With --slots N at most N commands run at a time, whatever fails, and whoever waits gets a slot in its turn. PATH is a directory then, which is made if it is missing; the lock is that of a slot, CISTERN_SLOT has its number, and its token orders the holders of that slot.

With --group no server takes part: PATH is the name of a lock of that group, of 1 to 200 bytes, and this host's member of it (`cistern peer`) has the lock.

COMMAND gets the fencing token in CISTERN_TOKEN and the path in CISTERN_LOCK; with --group also, in CISTERN_TOKEN_BASIS, why the token is larger than those of earlier holders: durable (for ever), remembered (by a member of each majority) or clock (if the hosts' wall clocks agree).

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
  cistern lock --shared --wait 10 /site -- rsync -a /srv/site/ web:/srv/site/
  cistern lock --slots 3 /jobs/encode -- ./backup.sh
  cistern lock --group a:7312,b:7312,c:7312 nightly -- ./backup.sh";

/// Run a command under a lock
#[derive(Args, Debug)]
#[command(after_help = LOCK_HELP)]
pub(crate) struct Lock {
    /// Shared with other shared holders
    #[arg(long)]
    shared: bool,
    /// PATH is a semaphore, of which N may have a slot at a time; it is made as a directory. All who use it give the same N
    #[arg(long, value_name = "N", conflicts_with_all = ["shared", "group"], value_parser = clap::value_parser!(u32).range(1..=256))]
    slots: Option<u32>,
    /// Fail at once if the lock is held
    #[arg(long = "try", conflicts_with = "wait")]
    try_once: bool,
    /// Longest wait for the lock, the server's silence included; a plain number is seconds
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// Of a group without a server: its members, in their order (host:port,...), or a file with one a line
    #[arg(long, value_parser = GroupList::parse, value_name = "MEMBERS", conflicts_with = "shared")]
    group: Option<GroupList>,
    /// With --group: control socket of this host's member
    #[arg(long, requires = "group", value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// With --group: run nothing unless every member keeps tokens on disk
    #[arg(long, requires = "group")]
    require_durable_token: bool,
    /// Path to lock, or name with --group
    path: OsString,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Time for the clean end of the session: what is not confirmed by then ends by the lease.
const CLOSE_TIME: Duration = Duration::from_millis(500);

impl Run for Lock {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let signals = Caught::catch().map_err(own)?;
        let terms = Terms {
            what: match self.slots {
                Some(slots) => LockKind::Slot(slots),
                None if self.shared => LockKind::Shared,
                None => LockKind::Exclusive,
            },
            try_once: self.try_once,
            wait: self.wait,
            ..Terms::of(Text::from(self.path.as_os_str()))
        };
        let agent = match &self.group {
            Some(group) => LockAgent::of_group(group, self, ctx),
            None => LockAgent::open(&terms, ctx.options(), None),
        };
        let agent = agent.map_err(own)?;
        let obtained = Obtaining::new(&terms, ctx.options(), &agent, signals.end()).run();
        let job = GuardedCommand { path: &terms.path, command: &self.command, env: Vec::new(), watches_place: self.group.is_none() };
        let result = obtained.and_then(|held| job.run(held, &signals)).map(|Finished { code, held, .. }| {
            if let Some(held) = held {
                held.give_back();
            }
            code
        });
        // A place in the queue that is left behind would hold up whoever is next.
        close(&agent);
        end(result, &signals)
    }
}

/// How the command line ends.
pub(crate) fn end(result: Result<u8, NoLock>, signals: &Caught) -> Result<(), Failure> {
    match result {
        Ok(code) => Failure::of_status(code),
        Err(NoLock::Failed(failure)) => Err(failure),
        Err(NoLock::Ended) => {
            capture::finish();
            Err(end_by(signals.signal().unwrap_or(0)))
        }
    }
}

/// Ends the session of an agent of this process's own, and with it everything that it holds or waits for.
pub(crate) fn close(agent: &LockAgent) {
    if let LockAgent::Own(client) = agent
        && let Err(error) = contact::close(client, CLOSE_TIME)
    {
        log::debug!("the session was not closed: {error}");
    }
}

/// A failure of `cistern` itself, which must be told from the command's.
pub(crate) fn own(failure: Failure) -> Failure {
    Failure { exit: EXIT_FAILURE, ..failure }
}
