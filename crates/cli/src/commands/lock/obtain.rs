//! Obtaining the lock: made if its file is missing, waited for as long as the command line says, and left at once when asked to end.
//!
//! Decides: that `--wait` and `--try` are bounds on everything, the server's silence included, and `--timeout` one on that silence and the host
//! agent's, of which a lock that others hold is none; that a person at a terminal is told who
//! holds the lock; and the exit status of a lock that was not obtained.
//! Invariant: whoever stops waiting leaves the queue: the request is cancelled before this returns or when the session is closed.
//! Leaves to others: the queue (the server), what is done with the lock (`lock`).

use super::Lock;
use super::held::Held;
use crate::backend::{Line, host_agent, own_agent};
use crate::bell::wait_for_call;
use crate::commands::peer::member_of;
use crate::contact::Tries;
use crate::ctx::Ctx;
use crate::execute::lock as request_lock;
use crate::local::{Failure, LockRow, Request, Response, millis};
use crate::options::Options;
use crate::show;
use crate::signals::End;
use crate::text::Text;
use cistern_client::{Call, Client, kinds};
use cistern_run::{EXIT_FAILURE, EXIT_NOT_OBTAINED, EXIT_TIMED_OUT};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest wait for a server with `--try`: it waits for nobody else.
pub(crate) const TRY_TIME: Duration = Duration::from_secs(2);
/// Before it is tried again what fails for now: a server that is in its grace, or does not answer.
const PAUSE: Duration = Duration::from_millis(100);
/// Before the first look at who holds the lock, and between looks.
const FIRST_LOOK: Duration = Duration::from_millis(300);
const NEXT_LOOK: Duration = Duration::from_secs(2);
/// Longest wait for the answer to such a look, in which a grant is not noticed.
const LOOK_TIME: Duration = Duration::from_millis(300);
/// Why a file that is to be locked may be made later, or has been made: making it a second time changes nothing.
const NOT_MADE_YET: [&str; 3] = ["IN_GRACE", "UNREACHABLE", "OUTCOME_UNKNOWN"];
/// Most holders that are named.
const NAMED_MAX: usize = 3;

/// The agent by which the lock is held.
pub(super) enum LockAgent {
    Own(Client),
    Host(PathBuf),
}

/// Why there is no lock.
pub(super) enum NoLock {
    /// Asked to end.
    Ended,
    Failed(Failure),
}

impl From<Failure> for NoLock {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// How long the lock is waited for.
fn bound(args: &Lock) -> Option<Duration> {
    if args.try_once { Some(TRY_TIME) } else { args.wait }
}

/// Whether a server that does not answer is tried until that time is up.
fn outlasts_silence(args: &Lock, options: &Options) -> bool {
    bound(args).is_some() && options.timeout.is_none()
}

impl LockAgent {
    pub(super) fn open(args: &Lock, ctx: &Ctx) -> Result<Self, Failure> {
        if let Some(group) = &args.group {
            let (socket, report) = member_of(group, args.socket.as_ref(), ctx)?;
            if args.require_durable_token && !report.durable_tokens {
                return Err(Failure::usage(format!(
                    "--require-durable-token: the members of {group} keep no tokens on disk (`cistern peer --state`)"
                )));
            }
            return Ok(Self::Host(socket));
        }
        let options = ctx.options();
        Ok(match host_agent(options)? {
            Some(socket) => Self::Host(socket),
            None => {
                let tries = bound(args).filter(|_| outlasts_silence(args, options)).map_or(Tries::UntilGivenUp, Tries::For);
                Self::Own(own_agent(options, None, tries)?)
            }
        })
    }
}

/// A lock request that is waited for.
enum Asked {
    Own(Client, Call<kinds::Lock>),
    Host(Line),
}

/// What has become of it.
enum Waited {
    Ended(Result<Held, Failure>),
    /// `end` was asked, or the moment has come.
    Still(Asked),
}

impl Asked {
    fn wait(self, end: &End, until: Option<Instant>) -> Waited {
        match self {
            Self::Own(client, mut call) => match wait_for_call(&mut call, end, until) {
                Ok(Some(result)) => Waited::Ended(result.map(|guard| Held::own(client, guard)).map_err(Failure::from)),
                Ok(None) => Waited::Still(Self::Own(client, call)),
                Err(e) => Waited::Ended(Err(Failure::failed(format!("cannot wait for the lock: {e}")))),
            },
            Self::Host(mut line) => match line.answer(end, until) {
                // The connection goes with the lock.
                Some(Ok(Response::Locked { hold, token, object, basis })) => {
                    Waited::Ended(Ok(Held::host(line, hold, token, object, basis)))
                }
                Some(Ok(other)) => Waited::Ended(Err(Failure::failed(format!("the agent answered a lock request with {other:?}")))),
                Some(Err(failure)) => Waited::Ended(Err(failure)),
                None => Waited::Still(Self::Host(line)),
            },
        }
    }
}

/// The way to a lock.
pub(super) struct Obtaining<'a> {
    args: &'a Lock,
    options: &'a Options,
    path: &'a Text,
    agent: &'a LockAgent,
    end: &'a End,
    /// Until when there must be an answer, whoever is silent.
    deadline: Option<Instant>,
    /// What was said last of who holds the lock.
    said: String,
    /// When to look who holds it; none: nobody is to be told.
    look_at: Option<Instant>,
    /// When to ask whether the host's agent and the server still answer; none: nobody has said in which time they must.
    ask_at: Option<Instant>,
}

impl<'a> Obtaining<'a> {
    /// Begins now.
    pub(super) fn new(args: &'a Lock, options: &'a Options, path: &'a Text, agent: &'a LockAgent, end: &'a End) -> Self {
        let now = Instant::now();
        let tells = options.verbosity.verbose > 0 || (!options.verbosity.quiet && std::io::stderr().is_terminal());
        let look_at = (tells && !args.try_once).then_some(now + FIRST_LOOK);
        Self {
            args,
            options,
            path,
            agent,
            end,
            deadline: bound(args).and_then(|bound| now.checked_add(bound)),
            said: String::new(),
            look_at,
            // An agent of this process's own has that bound itself.
            ask_at: options.timeout.filter(|_| matches!(agent, LockAgent::Host(_))).map(|_| now),
        }
    }

    pub(super) fn run(&mut self) -> Result<Held, NoLock> {
        let mut made = false;
        loop {
            let failure = match self.attempt()? {
                Ok(held) => return Ok(held),
                Err(failure) => failure,
            };
            match failure.code.as_str() {
                "ENOENT" if !made => match self.make()? {
                    Ok(()) => made = true,
                    // Whether a server is there, and the file by now, says the lock, which is asked for again.
                    Err(failure) if NOT_MADE_YET.contains(&failure.code.as_str()) => self.pause()?,
                    Err(failure) => return Err(self.failed(failure).into()),
                },
                "IN_GRACE" => self.pause()?,
                "UNREACHABLE" if outlasts_silence(self.args, self.options) => self.pause()?,
                "TIMED_OUT" => return Err(self.failed(self.too_late()).into()),
                _ => return Err(self.failed(failure).into()),
            }
        }
    }

    /// One lock request, to its end.
    fn attempt(&mut self) -> Result<Result<Held, Failure>, NoLock> {
        let wait_ms =
            if self.args.try_once { Some(0) } else { self.deadline.map(|at| millis(at.saturating_duration_since(Instant::now())).max(1)) };
        let mut asked = match self.agent {
            LockAgent::Own(client) => Asked::Own(client.clone(), request_lock(client, self.path, self.args.shared, wait_ms).start()),
            LockAgent::Host(socket) => {
                let mut line = Line::open(socket).map_err(|failure| self.failed(failure))?;
                let request = Request::Lock { path: self.path.clone(), shared: self.args.shared, wait_ms, linger: true, events: false };
                line.send(&request).map_err(|failure| self.failed(failure))?;
                Asked::Host(line)
            }
        };
        loop {
            let until = [self.deadline, self.look_at, self.ask_at].into_iter().flatten().min();
            asked = match asked.wait(self.end, until) {
                Waited::Ended(result) => return Ok(result),
                Waited::Still(asked) => asked,
            };
            self.check()?;
            if self.look_at.is_some_and(|at| at <= Instant::now()) {
                self.tell_who_holds();
                self.look_at = Some(Instant::now() + NEXT_LOOK);
            }
            if self.ask_at.is_some_and(|at| at <= Instant::now()) {
                self.ask_whether_there()?;
            }
        }
    }

    /// Whether it may go on.
    fn check(&self) -> Result<(), NoLock> {
        if self.end.is_asked() {
            return Err(NoLock::Ended);
        }
        if self.deadline.is_some_and(|at| at <= Instant::now()) {
            return Err(self.failed(self.too_late()).into());
        }
        Ok(())
    }

    fn pause(&self) -> Result<(), NoLock> {
        self.end.wait(PAUSE);
        self.check()
    }

    /// Makes the file.
    fn make(&self) -> Result<Result<(), Failure>, NoLock> {
        let made = match self.agent {
            LockAgent::Own(client) => {
                let mut call = client.create(self.path.as_os()).start();
                let waited = wait_for_call(&mut call, self.end, self.deadline);
                let waited = waited.map_err(|e| self.failed(Failure::failed(format!("cannot wait for the file: {e}"))))?;
                waited.map(|result| result.map(drop).map_err(Failure::from))
            }
            LockAgent::Host(socket) => {
                let mut line = Line::open(socket).map_err(|failure| self.failed(failure))?;
                let request = Request::Create { path: self.path.clone(), exclusive: false, mode: 0o644 };
                line.ask(&request, self.end, self.deadline).map(|answer| answer.map(drop))
            }
        };
        match made {
            Some(made) => Ok(made),
            None => self.check().and_then(|()| Err(self.failed(self.too_late()).into())),
        }
    }

    /// Whether the host's agent, and the server through it, answer within `--timeout`: from the lock request nothing may come for long.
    fn ask_whether_there(&mut self) -> Result<(), NoLock> {
        let (LockAgent::Host(socket), Some(timeout)) = (self.agent, self.options.timeout) else { return Ok(()) };
        let begun = Instant::now();
        let until = begun.checked_add(timeout).into_iter().chain(self.deadline).min();
        let mut line = Line::open(socket).map_err(|failure| self.failed(failure))?;
        match line.ask(&Request::Ping, self.end, until) {
            Some(answer) => answer.map_err(|failure| self.failed(failure))?,
            None => {
                self.check()?;
                let what = format!("agent socket {}: no answer in the time of --timeout", socket.display());
                return Err(self.failed(Failure::new("UNREACHABLE", EXIT_FAILURE, what)).into());
            }
        };
        self.ask_at = begun.checked_add(timeout).map(|at| at.max(Instant::now() + PAUSE));
        Ok(())
    }

    /// Time is up: says for what.
    fn too_late(&self) -> Failure {
        let silent = match self.agent {
            LockAgent::Own(client) => client.lease().is_ok_and(|lease| lease.session.is_none()),
            LockAgent::Host(_) => false,
        };
        let why = if silent { "no answer from the server" } else { "the lock was not granted" };
        Failure::new("TIMED_OUT", EXIT_FAILURE, format!("{}: {why} within the time allowed", self.path))
    }

    /// A failure with the exit status of this command.
    fn failed(&self, failure: Failure) -> Failure {
        let exit = match failure.code.as_str() {
            "TIMED_OUT" | "EAGAIN" | "IN_GRACE" if self.args.try_once => EXIT_NOT_OBTAINED,
            "TIMED_OUT" | "EAGAIN" => EXIT_TIMED_OUT,
            _ => EXIT_FAILURE,
        };
        Failure { exit, ..failure }
    }

    /// Tells a person who holds the lock, when that is something new.
    fn tell_who_holds(&mut self) {
        let until = Some(Instant::now() + LOOK_TIME);
        let rows = match self.agent {
            LockAgent::Own(client) => {
                let mut call = client.locks().on(self.path.as_os()).start();
                match wait_for_call(&mut call, self.end, until) {
                    Ok(Some(Ok(rows))) => Some(rows.into_iter().map(LockRow::from).collect()),
                    _ => None,
                }
            }
            LockAgent::Host(socket) => {
                let answer =
                    Line::open(socket).map(|mut line| line.ask(&Request::Locks { path: Some(self.path.clone()) }, self.end, until));
                match answer {
                    Ok(Some(Ok(Response::Locks(rows)))) => Some(rows),
                    _ => None,
                }
            }
        };
        let (key, text) = rows.map_or_else(|| (String::new(), "no answer from the server yet".to_owned()), |rows| holders(&rows));
        let key = if key.is_empty() { text.clone() } else { key };
        if key != self.said {
            show::error("cistern", &Failure::new("WAITING", EXIT_FAILURE, format!("{}: waiting for the lock: {text}", self.path)));
            self.said = key;
        }
    }
}

/// Who holds a lock, for how long yet at most; with what of it is news when it changes.
fn holders(rows: &[LockRow]) -> (String, String) {
    let holds: Vec<&LockRow> = rows.iter().filter(|row| row.state == "holds").collect();
    if holds.is_empty() {
        return (String::new(), "it is free, or on its way".to_owned());
    }
    let one = |row: &&LockRow| {
        let label = &row.label;
        let bound = row.bound_ms.map(show::span);
        if !row.is_in_good_standing() {
            let bound = bound.map(|span| format!("; it is free in {span} at most"));
            return format!("{label} has it, and does not answer{}", bound.unwrap_or_default());
        }
        if row.since_ms == 0 {
            return format!("{label} has it");
        }
        let gone = bound.map(|span| format!("; if that is gone, it is free in {span} at most"));
        format!("{label} has had it for {}, and may keep it as long as it answers{}", show::span(row.since_ms), gone.unwrap_or_default())
    };
    let key: Vec<_> = holds.iter().map(|row| format!("{} {}", row.token, row.standing)).collect();
    let mut text: Vec<String> = holds.iter().take(NAMED_MAX).map(one).collect();
    if holds.len() > NAMED_MAX {
        text.push(format!("{} more", holds.len() - NAMED_MAX));
    }
    (key.join(","), text.join("; "))
}
