//! `cistern elect`: a command that runs where this candidate leads.
//!
//! Decides: that a candidate that has lost its leadership, and has stopped its command, is a candidate again; and that the leader is named
//! before the command starts, by a file which goes with this process or with its host.
//! Leaves to others: who leads (the lock), the command (`lock`), what the file says (docs/recipes.md).

use super::Run;
use super::lock::{self, Finished, GuardedCommand, Held, LockAgent, NoLock, Obtaining, Terms};
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use crate::signals::{Caught, End};
use crate::text::{Blob, Text};
use clap::Args;
use nix::unistd::gethostname;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// Longest time for naming the leader, or for taking the name away. The lock is renewed meanwhile.
const NAME_TIME: Duration = Duration::from_secs(10);
const UNNAME_TIME: Duration = Duration::from_millis(500);
/// Before what failed for now is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// Until another program's end has been seen by everybody.
const MOMENT: Duration = Duration::from_millis(10);

const ELECT_HELP: &str = "\
DIR is made as a directory if it is missing; its parent directories are not. `cistern leader DIR` shows who leads.

COMMAND runs while this candidate leads, with the fencing token in CISTERN_TOKEN, which is larger than that of every earlier leader. When the lease is not \
renewed, it is ended as under `cistern lock`, before anybody else can lead; this candidate then waits for its next turn, whatever has become of the server or the host's agent. When COMMAND \
ends by itself, or by a signal, the leadership ends, and so does this command, with COMMAND's status.

Exit status: COMMAND's own, or 128 + the signal that ended it; and
  71   parts of COMMAND could not be killed
  79   with --once: leadership was lost, and COMMAND was stopped
  125  cistern itself failed
  126  COMMAND cannot be run
  127  COMMAND was not found

Examples:
  cistern elect /election -- ./backup.sh
  cistern elect --data 10.0.0.7:8080 /election -- ./backup.sh";

/// Run a command on the elected leader
#[derive(Args, Debug)]
#[command(after_help = ELECT_HELP)]
pub(crate) struct Elect {
    /// What others are told of the leader; otherwise the name of this host
    #[arg(long, value_name = "TEXT")]
    data: Option<OsString>,
    /// End when leadership is lost, and be a candidate no more
    #[arg(long)]
    once: bool,
    /// Directory of the election
    dir: OsString,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How one turn of a candidate ended.
enum Turn {
    /// The command has ended by itself.
    Ended(u8),
    /// Leadership was lost, or never begun; the status of a command that was stopped.
    Lost(u8),
}

impl Run for Elect {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let mut signals = Caught::catch().map_err(lock::own)?;
        let dir = Text::from(self.dir.as_os_str());
        let terms = Terms { dir: Some(dir.clone()), patient: !self.once, ..Terms::of(dir.join(b"lock")) };
        let agent = LockAgent::open(&terms, ctx.options(), None).map_err(lock::own)?;
        let result = loop {
            let held = Obtaining::new(&terms, ctx.options(), &agent, signals.end()).run();
            match held.and_then(|held| self.lead(&terms.path, &dir.join(b"leader"), held, &mut signals)) {
                Ok(Turn::Lost(_)) if !self.once => {
                    lock::tell(&dir, "leads no more, and is a candidate again");
                    if signals.end().wait(PAUSE) {
                        break Err(NoLock::Ended);
                    }
                }
                Ok(Turn::Lost(code) | Turn::Ended(code)) => break Ok(code),
                Err(why) => break Err(why),
            }
        };
        lock::close(&agent);
        lock::end(result, &signals)
    }
}

impl Elect {
    /// Leads for as long as the lock is held and the command runs.
    fn lead(&self, path: &Text, leader: &Text, mut held: Held, signals: &mut Caught) -> Result<Turn, NoLock> {
        let named = match self.name(leader, &mut held, signals.end()) {
            Ok(named) => named,
            Err(failure) if is_passing(&failure) && !signals.end().is_asked() => {
                log::warn!("{leader}: {}", failure.message);
                held.give_back();
                return Ok(Turn::Lost(cistern_run::EXIT_LOST));
            }
            Err(failure) => {
                held.give_back();
                return Err(if signals.end().is_asked() { NoLock::Ended } else { lock::own(failure).into() });
            }
        };
        let job = GuardedCommand { path, command: &self.command, env: Vec::new(), watches_place: true };
        let done = match job.run(held, signals) {
            Err(NoLock::Failed(failure)) if failure.code == "LOST" => return Ok(Turn::Lost(failure.exit)),
            done => done?,
        };
        let Finished { code, was_stopped, was_signalled, held, running } = done;
        let was_lost = was_stopped && !was_signalled && code == cistern_run::EXIT_LOST;
        if was_lost {
            // Before they are nobody's.
            *signals = Caught::catch().map_err(lock::own)?;
        }
        drop(running);
        if let Some(mut held) = held {
            if let Ok((never, _asker)) = End::pair() {
                let left = held.call(Request::Leave { object: named }, &never, Instant::now() + UNNAME_TIME);
                log::debug!("{leader}: taken away: {left:?}");
            }
            held.give_back();
        }
        Ok(if was_lost { Turn::Lost(code) } else { Turn::Ended(code) })
    }

    /// Makes the file that names the leader; its object.
    fn name(&self, leader: &Text, held: &mut Held, end: &End) -> Result<u64, Failure> {
        let until = Instant::now() + NAME_TIME;
        let value = match &self.data {
            Some(data) => data.clone(),
            None => gethostname().unwrap_or_default(),
        };
        let data = [held.token().to_string().as_bytes(), b" ", value.as_bytes()].concat();
        loop {
            // That of the leader before is there where its session has not ended, or is just ending.
            match held.call(Request::Unlink { path: leader.clone(), force: true }, end, until) {
                Err(failure) if failure.code != "ENOENT" => return Err(failure),
                _ => {}
            }
            match held.call(Request::Join { path: leader.clone(), data: Blob(data.clone()), mode: 0o644 }, end, until) {
                // A program of the same agent has just ended, and its file with it.
                Err(failure) if failure.code == "EEXIST" && Instant::now() < until && !end.wait(MOMENT) => {}
                joined => return joined?.joined(),
            }
        }
    }
}

/// Whether the next attempt may succeed.
fn is_passing(failure: &Failure) -> bool {
    ["STALE_GUARD", "LEASE_LOST", "OUTCOME_UNKNOWN", "UNREACHABLE", "NO_AGENT", "IN_GRACE", "BUSY", "EEXIST", "FAILED"]
        .contains(&failure.code.as_str())
}
