//! `cistern once`: a command once in each period, on one of many hosts.
//!
//! Decides: that a period is recorded, durably and under the lock, before its command starts, so that it is started at most once whatever
//! fails afterwards; that who waits for a former run looks now and then whether this period was run meanwhile; and that periods have an order, so that a host whose clock is behind starts no former one again.
//! Leaves to others: the lock and the command (`lock`), when the period begins for this host (cron, a timer).

use super::Run;
use super::lock::{self, Finished, GuardedCommand, Held, LockAgent, NoLock, Obtaining, TRY_TIME, Terms};
use crate::ctx::Ctx;
use crate::execute::{EXIT_FAILED, EXIT_PRECONDITION};
use crate::local::{Failure, Request, Response};
use crate::show;
use crate::signals::{Caught, End};
use crate::text::{Blob, Text};
use cistern_run::{EXIT_FAILURE, EXIT_TIMED_OUT};
use cistern_text::duration;
use clap::Args;
use nix::unistd::gethostname;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest time for a record. The lock is renewed meanwhile.
const RECORD_TIME: Duration = Duration::from_secs(10);
/// Between looks at a run that goes on.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a server that says nothing is waited for.
const SILENCE_MAX: Duration = Duration::from_secs(15);

const ONCE_HELP: &str = "\
Every host's cron or timer runs this at the same time; one of them runs COMMAND, the others end with status 0 and say nothing (-v says why). PATH is a file in which the last period is recorded, made if \
it is missing; `cistern cat PATH` shows it: its period, on which host and under which token it was begun, and COMMAND's status when it has ended.

The period is named by --every, the time at which it began by this host's clock (UTC; a day begins at midnight), or by --period. Names are compared as text, so names of a later period must be larger: `date +%F`, \
`date +%G-%V`. A period that is older than the one on record is not run: exit status 3. So hosts whose clocks differ run nothing twice.

At most once: the period is recorded before COMMAND starts. If the host dies then, or loses the lock, COMMAND is not run again in this period, \
and the record says that it has not ended; with --rerun-lost the next host runs it again. The lock is held while COMMAND runs, and COMMAND is stopped when it is lost, as under `cistern lock`; while the run of a former period goes on, a new one waits.

Exit status: 0 if the period was run already or by another host; 3 if it is older than that on record; else as `cistern lock`: COMMAND's own, 71, 75, 79, 124 to 127.

Examples:
  cistern once --every 1d /jobs/daily -- ./backup.sh
  cistern once --period \"$(date +%G-%V)\" /jobs/weekly -- ./backup.sh";

/// Run a command once in each period, on one of many hosts
#[derive(Args, Debug)]
#[command(after_help = ONCE_HELP)]
pub(crate) struct Once {
    /// Length of a period
    #[arg(long, value_name = "DURATION", value_parser = duration, required_unless_present = "period")]
    every: Option<Duration>,
    /// Name of this period
    #[arg(long, value_name = "NAME", conflicts_with = "every")]
    period: Option<String>,
    /// Run it again if the host that began it is gone before it has ended
    #[arg(long)]
    rerun_lost: bool,
    /// End at once if a former run goes on
    #[arg(long = "try", conflicts_with = "wait")]
    try_once: bool,
    /// Longest wait for a former run, the server's silence included; a plain number is seconds
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// File of the record
    path: OsString,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A period that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PeriodRecord {
    period: String,
    host: String,
    token: u64,
    /// Seconds since 1970, by the clock of that host.
    begun: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    ended: Option<u64>,
    /// Of the command, when it has ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    status: Option<u8>,
}

impl fmt::Display for PeriodRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { period, host, token, begun, .. } = self;
        write!(f, "period {period} was begun on {host} at {} under token {token}", time(*begun))?;
        match (self.ended.map(time), self.status) {
            (Some(ended), Some(status)) => write!(f, ", and ended at {ended} with status {status}"),
            _ => f.write_str(", and has not ended"),
        }
    }
}

impl Run for Once {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let signals = Caught::catch().map_err(lock::own)?;
        let path = Text::from(self.path.as_os_str());
        let period = self.period().map_err(lock::own)?;
        let terms = Terms { try_once: true, ..Terms::of(path) };
        let agent = LockAgent::open(&terms, ctx.options(), None).map_err(lock::own)?;
        let result = self.go(&terms, &period, ctx, &agent, &signals);
        lock::close(&agent);
        lock::end(result, &signals)
    }
}

impl Once {
    fn go(&self, terms: &Terms, period: &str, ctx: &Ctx, agent: &LockAgent, signals: &Caught) -> Result<u8, NoLock> {
        let begun = Instant::now();
        let mut held = loop {
            // Who need not run it waits for no lock.
            let until = Some(Instant::now() + TRY_TIME);
            let before = agent.call(Request::Read { path: terms.path.clone() }, signals.end(), until);
            if let Some(code) = self.is_done(&terms.path, period, before, false)? {
                return Ok(code);
            }
            match Obtaining::new(terms, ctx.options(), agent, signals.end()).run() {
                Err(NoLock::Failed(failure)) if !self.try_once => self.wait(failure, begun, signals.end())?,
                held => break held?,
            }
        };
        match self.begin(&terms.path, period, &mut held, signals.end()) {
            Ok(Ok(record)) => self.carry_out(&terms.path, record, held, signals),
            Ok(Err(code)) => {
                held.give_back();
                Ok(code)
            }
            Err(why) => {
                held.give_back();
                Err(if signals.end().is_asked() { NoLock::Ended } else { why })
            }
        }
    }

    /// The lock was not to be had: waits before it is looked again whether somebody runs this period, if there is time.
    fn wait(&self, failure: Failure, begun: Instant, end: &End) -> Result<(), NoLock> {
        let (most, exit) = match (self.wait, failure.code.as_str()) {
            (None, "EAGAIN") => (None, EXIT_TIMED_OUT),
            (Some(wait), "EAGAIN" | "TIMED_OUT") => (Some(wait), EXIT_TIMED_OUT),
            (None, "TIMED_OUT") => (Some(SILENCE_MAX), EXIT_FAILURE),
            _ => return Err(lock::own(failure).into()),
        };
        let left = most.map(|most| most.saturating_sub(begun.elapsed()));
        if left == Some(Duration::ZERO) {
            return Err(Failure { exit, ..failure }.into());
        }
        if end.wait(left.map_or(PAUSE, |left| left.min(PAUSE))) { Err(NoLock::Ended) } else { Ok(()) }
    }

    /// The name of the period that is now.
    fn period(&self) -> Result<String, Failure> {
        match (&self.period, self.every.map(|every| every.as_secs())) {
            (Some(name), _) if name.is_empty() => Err(Failure::usage("--period: a period has a name")),
            (Some(name), _) => Ok(name.clone()),
            (None, None | Some(0)) => Err(Failure::usage("--every: a period has one second or more")),
            (None, Some(every)) => Ok(time(now() / every * every)),
        }
    }

    /// Whether there is nothing to run for this period: with which status this command ends then. `is_locked`: nobody else runs it now.
    fn is_done(&self, path: &Text, period: &str, read: Result<Response, Failure>, is_locked: bool) -> Result<Option<u8>, NoLock> {
        let data = match read {
            Err(failure) if failure.code == "ENOENT" => return Ok(None),
            // The lock is waited for as long as the command line says, and this is read again then.
            Err(_) if !is_locked => return Ok(None),
            read => read.and_then(Response::data).map_err(lock::own)?.1.0,
        };
        if data.is_empty() {
            return Ok(None);
        }
        let record: PeriodRecord = serde_json::from_slice(&data).map_err(|e| {
            let what = format!("{path}: it is not a record of `cistern once`: {e}; remove it, or name another file");
            lock::own(Failure::new("EEXIST", EXIT_FAILED, what))
        })?;
        if record.period.as_str() > period {
            let what = format!("{path}: period {period} is older than the one on record, and was not run: {record}");
            show::error("cistern", &Failure::new("OLDER_PERIOD", EXIT_PRECONDITION, what));
            return Ok(Some(EXIT_PRECONDITION));
        }
        let is_begun = record.period == period;
        if is_begun && (record.ended.is_some() || !self.rerun_lost) {
            log::info!("{path}: {record}");
            return Ok(Some(0));
        }
        Ok(None)
    }

    /// Records that the period is begun; or why it is not, as an exit status.
    fn begin(&self, path: &Text, period: &str, held: &mut Held, end: &End) -> Result<Result<PeriodRecord, u8>, NoLock> {
        let until = Instant::now() + RECORD_TIME;
        let read = held.call(Request::Read { path: path.clone() }, end, until);
        if let Some(code) = self.is_done(path, period, read, true)? {
            return Ok(Err(code));
        }
        let host = gethostname().unwrap_or_default().to_string_lossy().into_owned();
        let record = PeriodRecord { period: period.to_owned(), host, token: held.token(), begun: now(), ended: None, status: None };
        match write(path, &record, held, end) {
            // Whether it was written, its file says; who holds the lock is the only one who writes.
            Err(failure) if failure.code == "OUTCOME_UNKNOWN" => {
                let until = Instant::now() + RECORD_TIME;
                let data = held.call(Request::Read { path: path.clone() }, end, until).and_then(Response::data).map_err(lock::own)?.1.0;
                let is_there = serde_json::from_slice::<PeriodRecord>(&data).is_ok_and(|there| there == record);
                if is_there { Ok(Ok(record)) } else { Err(lock::own(failure).into()) }
            }
            written => written.map(|()| Ok(record)).map_err(|failure| lock::own(failure).into()),
        }
    }

    fn carry_out(&self, path: &Text, record: PeriodRecord, held: Held, signals: &Caught) -> Result<u8, NoLock> {
        let job = GuardedCommand {
            path,
            command: &self.command,
            env: vec![("CISTERN_PERIOD", record.period.clone().into())],
            watches_place: true,
        };
        let Finished { code, was_stopped, held, running, .. } = job.run(held, signals)?;
        drop(running);
        if let Some(mut held) = held {
            // A command that was stopped has not ended by itself: whoever runs it again is right.
            if !was_stopped && let Ok((never, _asker)) = End::pair() {
                let ended = PeriodRecord { ended: Some(now()), status: Some(code), ..record };
                if let Err(failure) = write(path, &ended, &mut held, &never) {
                    lock::tell(path, &format!("that the command has ended is not on record: {}", failure.message));
                }
            }
            held.give_back();
        }
        Ok(code)
    }
}

fn write(path: &Text, record: &PeriodRecord, held: &mut Held, end: &End) -> Result<(), Failure> {
    let mut data = serde_json::to_vec(record).map_err(|e| Failure::failed(e.to_string()))?;
    data.push(b'\n');
    let request = Request::Put { path: path.clone(), data: Blob(data), mode: 0o644, if_version: None };
    held.call(request, end, Instant::now() + RECORD_TIME).map(drop)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs())
}

/// An instant in UTC, to the second.
fn time(unix_s: u64) -> String {
    let at = i64::try_from(unix_s).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    at.unwrap_or_default().to_string()
}
