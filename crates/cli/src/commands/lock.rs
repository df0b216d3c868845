//! `cistern lock`: a command under a lock.
//!
//! Decides: that the guardian of the command always knows until when the lock is certain, that the lock is given back only when nothing of
//! the command is left, and then at once, and the exit status.
//! Implements section 11.6 with `cistern-run`, which stops the command in time even when this process is killed. The lock belongs to an
//! agent of this process's own, or to the host's agent. In the first case the lease ends when this process is gone; in the second the agent
//! keeps the lock until the last instant that the guardian can have been told. Without a server it belongs to this host's member of a group, which
//! is asked as the host's agent is.
//! Leaves to others: stopping processes (`cistern-run`), obtaining the lock (`obtain`), whose it is (`held`).

mod held;
mod obtain;

use super::Run;
use crate::capture;
use crate::contact;
use crate::ctx::Ctx;
use crate::group::GroupList;
use crate::holder::PlaceWatch;
use crate::local::Failure;
use crate::show;
use crate::signals::{Caught, End, end_by};
use crate::text::Text;
use cistern_run::{Control, EXIT_FAILURE, EXIT_LOST, Event, Runner, Running};
use cistern_text::duration;
use clap::Args;
use held::{Held, Look};
pub(crate) use obtain::TRY_TIME;
use obtain::{LockAgent, NoLock, Obtaining};
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

const LOCK_HELP: &str = "\
PATH is created as an empty file if it is missing; its parent directories are not.

Through the host's agent (--agent) that agent holds the lock; the guarantee below is the same.

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
  cistern lock --group a:7312,b:7312,c:7312 nightly -- ./backup.sh";

/// Run a command under a lock
#[derive(Args, Debug)]
#[command(after_help = LOCK_HELP)]
pub(crate) struct Lock {
    /// Shared with other shared holders
    #[arg(long)]
    shared: bool,
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
        let path = Text::from(self.path.as_os_str());
        let agent = LockAgent::open(self, ctx).map_err(own)?;
        let obtained = Obtaining::new(self, ctx.options(), &path, &agent, signals.end()).run();
        let result = obtained.and_then(|held| run(self, &path, held, &signals));
        // A place in the queue that is left behind would hold up whoever is next.
        close(&agent);
        match result {
            Ok(code) => Failure::of_status(code),
            Err(NoLock::Failed(failure)) => Err(failure),
            Err(NoLock::Ended) => {
                capture::finish();
                Err(end_by(signals.signal().unwrap_or(0)))
            }
        }
    }
}

/// Ends the session of an agent of this process's own, and with it everything that it holds or waits for.
fn close(agent: &LockAgent) {
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

fn run(args: &Lock, path: &Text, mut held: Held, signals: &Caught) -> Result<u8, NoLock> {
    let basis = held.basis();
    log::info!("{path}: locked, token {}{}", held.token(), basis.map_or_else(String::new, |basis| format!(" ({basis})")));
    let lost = || Failure::new("LOST", EXIT_LOST, format!("{path}: the lock was lost before the command was started; nothing was run"));
    let first = match held.look(signals.end()).map_err(own)? {
        Some(Look::Certain(until)) if !signals.end().is_asked() => until,
        Some(Look::Uncertain | Look::Lost) => return Err(lost().into()),
        Some(Look::Certain(_)) | None => {
            held.give_back();
            return Err(NoLock::Ended);
        }
    };
    let (command, rest) = args.command.split_first().ok_or_else(|| own(Failure::usage("no command is named")))?;
    let runner = Runner::new(command).args(rest).env("CISTERN_TOKEN", held.token().to_string()).env("CISTERN_LOCK", path.as_os());
    let runner = basis.map_or(runner.clone(), |basis| runner.env("CISTERN_TOKEN_BASIS", basis.name()));
    let running = match runner.start(first) {
        Ok(running) => running,
        Err(e) => {
            held.give_back();
            return Err(Failure::new("NOT_RUN", e.code(), e.to_string()).into());
        }
    };
    let control = running.control();
    if let Some(signal) = signals.signal() {
        // It came when the command was not there yet to get it.
        let _ = control.stop(signal);
    }
    // From here on the signals are the command's.
    signals.release();
    let place = args.group.is_none().then(|| PlaceWatch::begin(held.looker(), path, held.object()));
    let (feeder, stop) = match feed(held, control) {
        Ok(feeder) => feeder,
        Err(failure) => {
            // The command is stopped before the lock is given back.
            drop(running);
            return Err(failure.into());
        }
    };
    let code = watch(running, path);
    drop((stop, place));
    // Its panic has no effect on the outcome; the lock then goes with the session or the connection.
    if let Ok(held) = feeder.join() {
        held.give_back();
    }
    Ok(code)
}

/// Tells the guardian until when the lock is certain, each time that changes, and at once when it is lost; until the other value is dropped.
fn feed(mut held: Held, control: Control) -> Result<(JoinHandle<Held>, UnixStream), Failure> {
    let (end, stop) = End::pair()?;
    let work = move || {
        let mut last = None;
        while let Ok(Some(look)) = held.look(&end) {
            if last != Some(look) {
                let told = match look {
                    Look::Certain(until) => control.certain_until(until),
                    Look::Uncertain => control.uncertain(),
                    Look::Lost => control.lost(),
                };
                // What a guardian that does not read was not told is told again.
                last = told.map_err(|e| log::debug!("the guardian was not told: {e}")).ok().map(|()| look);
            }
            if end.is_asked() {
                break;
            }
            // Events come at once; renewals are no events, so the instant is looked at in steps.
            held.wait(&end, held.step());
        }
        held
    };
    let thread = std::thread::Builder::new().name("cistern-feed".to_owned());
    let thread = thread.spawn(work).map_err(|e| Failure::new("START", EXIT_FAILURE, format!("no thread to be had: {e}")))?;
    Ok((thread, stop))
}

/// Waits for the end of the command and of all that it started, and tells a person what is done to it.
fn watch(mut running: Running, path: &Text) -> u8 {
    loop {
        let Some(event) = running.wait_event(None) else { continue };
        match event {
            Event::Stopping(reason) => tell(path, &format!("stopping the command: {}", reason.text())),
            Event::Killing(reason) => tell(path, &format!("killing the command: {}", reason.text())),
            Event::GuardianGone => tell(path, "the guardian of the command was killed; stopping what is left"),
            Event::StoodStill(late) => {
                let late = late.as_millis();
                tell(
                    path,
                    &format!(
                        "the guardian of the command stood still and was {late} ms late; the lease was renewed meanwhile, and the command goes on"
                    ),
                );
            }
            Event::Survivors(survivors) => {
                for s in survivors {
                    tell(path, &format!("process {} ({}) cannot be killed; the fencing token has to keep it out", s.pid, s.name));
                }
            }
            Event::StopUndone => tell(path, "cannot be suspended: a stopped process renews no lease; it goes on"),
            Event::Ended(_) | Event::PassedOn(_) => log::debug!("{path}: {event:?}"),
            Event::TreeGone(outcome) => {
                if !outcome.in_time {
                    tell(path, "the command was gone only after its lock had ceased to be certain; the fencing token has to keep it out");
                }
                return outcome.code();
            }
        }
    }
}

fn tell(path: &Text, what: &str) {
    show::error("cistern", &Failure::new("LOCK", EXIT_LOST, format!("{path}: {what}")));
}
