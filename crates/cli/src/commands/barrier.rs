//! `cistern barrier`: where hosts wait for each other.
//!
//! Decides: that a participant is in its round as long as its command runs.
//! Leaves to others: rounds (the client library), through whom they are entered (`backend`).

use super::lock;
use super::{Run, commands};
use crate::backend::Backend;
use crate::bell::wait_for_call;
use crate::ctx::Ctx;
use crate::local::{Failure, Request, What};
use crate::signals::{Caught, End, end_by};
use crate::text::Text;
use cistern_client::Entered;
use cistern_run::{EXIT_CANNOT_RUN, EXIT_NOT_FOUND, EXIT_TIMED_OUT};
use cistern_text::duration;
use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long something is waited for: as long as a signal, or the end of the command, may take to be noticed.
const WAIT: Duration = Duration::from_millis(100);

commands! {
    /// Wait for each other: at a gate, or with a fixed number of participants
    Barrier:
    Wait(Wait),
    Enter(Enter),
}

const WAIT_HELP: &str = "\
A gate is closed as long as there is a file at PATH, and open when it is removed: `cistern touch PATH` closes it, `cistern rm PATH` opens it. All who wait go on then; who comes later does not wait.

Exit status: 0; 124 if it was not opened in time (--wait).

Examples:
  cistern barrier wait /maintenance
  cistern barrier wait --wait 10 /maintenance";

/// Wait until a gate is open: until there is no file at PATH
#[derive(Args, Debug)]
#[command(after_help = WAIT_HELP)]
pub(crate) struct Wait {
    /// Longest wait; a plain number is seconds
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// The gate
    path: OsString,
}

const ENTER_HELP: &str = "\
DIR is made as a directory if it is missing; its parent directories are not. Waits until N participants are there, runs COMMAND, and ends when the COMMANDs of all have ended, with the status of its own. A participant that is gone or cut off is \
none when its lease is over: before the round has begun another takes its place, afterwards the others do not wait for it. Who comes while a round is on waits for the next. If cistern itself is killed, COMMAND goes on, and nobody waits for it.

Without COMMAND it ends when all are there.

Exit status: COMMAND's own, or 128 + the signal that ended it; 124 if the round did not begin in time (--wait); 125 if cistern itself failed; 126 or 127 if COMMAND cannot be run.

Examples:
  cistern barrier enter --parties 1 /start -- ./backup.sh
  cistern barrier enter --parties 1 --wait 10 /start";

/// Run a command when all participants are there, and end when all have ended
#[derive(Args, Debug)]
#[command(after_help = ENTER_HELP)]
pub(crate) struct Enter {
    /// How many participants a round has; all who use the barrier give the same number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    parties: u32,
    /// Longest wait for the others; a plain number is seconds
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// Directory of the barrier
    dir: OsString,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Why it goes on no more.
enum Over {
    Ended,
    Failed(Failure),
}

impl From<Failure> for Over {
    fn from(failure: Failure) -> Self {
        Self::Failed(lock::own(failure))
    }
}

fn over(result: Result<u8, Over>, signals: &Caught) -> Result<(), Failure> {
    match result {
        Ok(code) => Failure::of_status(code),
        Err(Over::Failed(failure)) => Err(failure),
        Err(Over::Ended) => Err(end_by(signals.signal().unwrap_or(0))),
    }
}

fn after(wait: Option<Duration>) -> Option<Instant> {
    wait.and_then(|wait| Instant::now().checked_add(wait))
}

/// It was given up: the process was asked to end, or time is up.
fn given_up(end: &End, what: String) -> Over {
    if end.is_asked() { Over::Ended } else { Over::Failed(Failure::new("TIMED_OUT", EXIT_TIMED_OUT, what)) }
}

impl Run for Wait {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let signals = Caught::catch().map_err(lock::own)?;
        let path = Text::from(self.path.as_os_str());
        let agent = ctx.agent().map_err(lock::own)?;
        over(gate(agent, &path, signals.end(), after(self.wait)), &signals)
    }
}

fn gate(agent: &mut Backend, path: &Text, end: &End, until: Option<Instant>) -> Result<u8, Over> {
    loop {
        let object = match agent.stat(path, false) {
            Err(failure) if failure.code == "ENOENT" => return Ok(0),
            there => there?.object,
        };
        agent.call(Request::Watch { object })?;
        while !agent.news(WAIT)?.iter().any(|news| news.object == object && news.what == What::Gone) {
            if end.is_asked() || until.is_some_and(|until| until <= Instant::now()) {
                return Err(given_up(end, format!("{path}: it was not opened within the time allowed")));
            }
        }
    }
}

impl Run for Enter {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let signals = Caught::catch().map_err(lock::own)?;
        let agent = ctx.agent().map_err(lock::own)?;
        over(self.go(agent, signals.end()), &signals)
    }
}

/// A round in which this command is.
enum Inside {
    Own(Entered),
    Host(u64),
}

impl Enter {
    fn go(&self, agent: &mut Backend, end: &End) -> Result<u8, Over> {
        let inside = self.enter(agent, end)?;
        if self.command.is_empty() {
            // With the session, or the connection, it leaves.
            return Ok(0);
        }
        let code = self.run_command(end)?;
        leave(agent, inside, end)?;
        Ok(code)
    }

    fn enter(&self, agent: &mut Backend, end: &End) -> Result<Inside, Over> {
        let (path, until) = (Text::from(self.dir.as_os_str()), after(self.wait));
        let late = format!("{path}: not all were there within the time allowed");
        match agent {
            Backend::Own(client, _) => {
                let parties = usize::try_from(self.parties).unwrap_or(usize::MAX);
                let mut entering = client.barrier(path.as_os(), parties).enter();
                let entered = wait_for_call(&mut entering, end, until).map_err(|e| Failure::failed(format!("cannot wait: {e}")))?;
                Ok(Inside::Own(entered.ok_or_else(|| given_up(end, late))?.map_err(Failure::from)?))
            }
            Backend::Host(line) => {
                let request = Request::Enter { path, parties: self.parties, wait_ms: None };
                let entered = line.ask(&request, end, until).ok_or_else(|| given_up(end, late))?;
                Ok(Inside::Host(entered?.entered()?.0))
            }
        }
    }

    fn run_command(&self, end: &End) -> Result<u8, Over> {
        let (command, args) = self.command.split_first().ok_or_else(|| Failure::usage("no command is named"))?;
        let mut child = Command::new(command).args(args).spawn().map_err(|e| {
            let exit = if e.kind() == ErrorKind::NotFound { EXIT_NOT_FOUND } else { EXIT_CANNOT_RUN };
            Over::Failed(Failure::new("NOT_RUN", exit, format!("{}: cannot be run: {e}", command.display())))
        })?;
        let mut is_told = false;
        loop {
            let ended = child.try_wait().map_err(|e| Failure::failed(format!("cannot wait for the command: {e}")))?;
            if let Some(status) = ended {
                let byte = |code: i32| u8::try_from(code).unwrap_or(u8::MAX);
                return Ok(status.code().map_or_else(|| 128_u8.saturating_add(status.signal().map_or(0, byte)), byte));
            }
            if is_told {
                std::thread::sleep(WAIT);
            } else if end.wait(WAIT) {
                is_told = true;
                // Fails only if it has ended.
                let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
            }
        }
    }
}

/// Leaves, and waits for the others.
fn leave(agent: &mut Backend, inside: Inside, end: &End) -> Result<(), Over> {
    let left = match (agent, inside) {
        (Backend::Host(line), Inside::Host(hold)) => line.ask(&Request::Exit { hold }, end, None).map(|answer| answer.map(drop)),
        (_, Inside::Own(entered)) => {
            let mut leaving = entered.leave();
            let left = wait_for_call(&mut leaving, end, None).map_err(|e| Failure::failed(format!("cannot wait: {e}")))?;
            left.map(|left| left.map_err(Failure::from))
        }
        (Backend::Own(..), Inside::Host(_)) => None,
    };
    Ok(left.unwrap_or(Ok(()))?)
}
