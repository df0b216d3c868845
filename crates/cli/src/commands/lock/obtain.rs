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
use crate::execute::{Granting, LockKind, LockTerms, Own};
use crate::group::GroupList;
use crate::local::{Failure, LockRow, Request, Response, millis};
use crate::options::Options;
use crate::show;
use crate::signals::End;
use crate::text::Text;
use cistern_client::Client;
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
/// Code of a failure that is told otherwise: the host's agent has not answered in time.
const LATE: &str = "LATE";
/// Most holders that are named.
const NAMED_MAX: usize = 3;

/// The agent by which the lock is held.
pub(crate) enum LockAgent {
    Own(Client),
    Host(PathBuf),
}

/// Why there is no lock.
pub(crate) enum NoLock {
    /// Asked to end.
    Ended,
    Failed(Failure),
}

impl From<Failure> for NoLock {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Which lock, and how it is waited for.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) path: Text,
    /// The directory of a recipe in which it is, made if it is missing.
    pub(crate) dir: Option<Text>,
    pub(crate) what: LockKind,
    pub(crate) try_once: bool,
    pub(crate) wait: Option<Duration>,
    /// A server and an agent that do not answer are waited for, too.
    pub(crate) patient: bool,
}

impl Terms {
    /// Exclusive, and waited for as long as it takes.
    pub(crate) const fn of(path: Text) -> Self {
        Self { path, dir: None, what: LockKind::Exclusive, try_once: false, wait: None, patient: false }
    }

    /// Whether its file is made if it is missing.
    fn is_file(&self) -> bool {
        matches!(self.what, LockKind::Exclusive | LockKind::Shared)
    }

    /// How long the lock is waited for.
    fn bound(&self) -> Option<Duration> {
        if self.try_once { Some(TRY_TIME) } else { self.wait }
    }

    /// Whether a server that does not answer is tried until that time is up.
    fn outlasts_silence(&self, options: &Options) -> bool {
        self.patient || (self.bound().is_some() && options.timeout.is_none())
    }
}

impl LockAgent {
    /// # Errors
    /// There is no way to a server.
    pub(crate) fn open(terms: &Terms, options: &Options, label: Option<String>) -> Result<Self, Failure> {
        Ok(match host_agent(options)? {
            Some(socket) => Self::Host(socket),
            None => {
                let tries = match terms.bound().filter(|_| terms.outlasts_silence(options)) {
                    Some(bound) => Tries::For(bound),
                    None => Tries::UntilGivenUp,
                };
                Self::Own(own_agent(options, label, tries)?)
            }
        })
    }

    /// Asks for something for which no lock is needed; `end` gives it up, and so does `until`.
    ///
    /// # Errors
    /// Why it was not done, or is not known to be.
    pub(crate) fn call(&self, request: Request, end: &End, until: Option<Instant>) -> Result<Response, Failure> {
        match self {
            Self::Own(client) => Own::default().execute_within(client, (request, None), (end, until)),
            Self::Host(socket) => match Line::open(socket)?.ask(&request, end, until) {
                Some(answer) => answer,
                None => Err(Failure::new(LATE, EXIT_FAILURE, format!("agent socket {}: no answer in time", socket.display()))),
            },
        }
    }

    /// Of a group without a server.
    pub(super) fn of_group(group: &GroupList, args: &Lock, ctx: &Ctx) -> Result<Self, Failure> {
        let (socket, report) = member_of(group, args.socket.as_ref(), ctx)?;
        if args.require_durable_token && !report.durable_tokens {
            return Err(Failure::usage(format!(
                "--require-durable-token: the members of {group} keep no tokens on disk (`cistern peer --state`)"
            )));
        }
        Ok(Self::Host(socket))
    }
}

/// A lock request that is waited for.
enum Asked {
    Own(Client, Granting),
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
                Ok(Some(result)) => Waited::Ended(result.and_then(|granted| Held::own(client, granted))),
                Ok(None) => Waited::Still(Self::Own(client, call)),
                Err(e) => Waited::Ended(Err(Failure::failed(format!("cannot wait for the lock: {e}")))),
            },
            Self::Host(mut line) => match line.answer(end, until) {
                // The connection goes with the lock.
                Some(Ok(Response::Locked { hold, token, object, basis, slot, item })) => {
                    Waited::Ended(Ok(Held::host(line, (hold, token, object), basis).of_recipe(slot, item)))
                }
                Some(Ok(other)) => Waited::Ended(Err(Failure::failed(format!("the agent answered a lock request with {other:?}")))),
                Some(Err(failure)) => Waited::Ended(Err(failure)),
                None => Waited::Still(Self::Host(line)),
            },
        }
    }
}

/// The way to a lock.
pub(crate) struct Obtaining<'a> {
    terms: &'a Terms,
    options: &'a Options,
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
    pub(crate) fn new(terms: &'a Terms, options: &'a Options, agent: &'a LockAgent, end: &'a End) -> Self {
        let now = Instant::now();
        let tells = options.verbosity.verbose > 0 || (!options.verbosity.quiet && std::io::stderr().is_terminal());
        let look_at = (tells && !terms.try_once && terms.what != LockKind::Item).then_some(now + FIRST_LOOK);
        Self {
            terms,
            options,
            agent,
            end,
            deadline: terms.bound().and_then(|bound| now.checked_add(bound)),
            said: String::new(),
            look_at,
            // An agent of this process's own has that bound itself.
            ask_at: options.timeout.filter(|_| matches!(agent, LockAgent::Host(_))).map(|_| now),
        }
    }

    pub(crate) fn run(&mut self) -> Result<Held, NoLock> {
        let mut made = false;
        loop {
            let failure = match self.attempt()? {
                Ok(held) => return Ok(held),
                Err(failure) => failure,
            };
            match failure.code.as_str() {
                "ENOENT" if !made && self.terms.is_file() => match self.make()? {
                    Ok(()) => made = true,
                    // Whether a server is there, and the file by now, says the lock, which is asked for again.
                    Err(failure) if NOT_MADE_YET.contains(&failure.code.as_str()) => self.pause()?,
                    Err(failure) => return Err(self.failed(failure).into()),
                },
                "IN_GRACE" => self.pause()?,
                "NO_AGENT" | "OUTCOME_UNKNOWN" | "LEASE_LOST" if self.terms.patient => self.pause()?,
                "UNREACHABLE" if self.terms.outlasts_silence(self.options) => self.pause()?,
                "TIMED_OUT" => return Err(self.failed(self.too_late()).into()),
                _ => return Err(self.failed(failure).into()),
            }
        }
    }

    /// One lock request, to its end.
    fn attempt(&mut self) -> Result<Result<Held, Failure>, NoLock> {
        let wait_ms =
            if self.terms.try_once { Some(0) } else { self.deadline.map(|at| millis(at.saturating_duration_since(Instant::now())).max(1)) };
        let (path, what, linger, events) = (self.terms.path.clone(), self.terms.what, true, false);
        let mut asked = match self.agent {
            LockAgent::Own(client) => Asked::Own(client.clone(), LockTerms { path, what, wait_ms }.ask(client)),
            LockAgent::Host(socket) => {
                let lock = |path, shared, slots| Request::Lock { path, shared, slots, wait_ms, linger, events };
                let request = match what {
                    LockKind::Exclusive => lock(path, false, None),
                    LockKind::Shared => lock(path, true, None),
                    LockKind::Slot(slots) => lock(path, false, Some(slots)),
                    LockKind::Item => Request::Take { path, wait_ms, linger, events },
                };
                match Line::open(socket).and_then(|mut line| line.send(&request).map(|()| line)) {
                    Ok(line) => Asked::Host(line),
                    Err(failure) => return Ok(Err(failure)),
                }
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

    /// Makes the file, and the directory of a recipe.
    fn make(&self) -> Result<Result<(), Failure>, NoLock> {
        let mkdir = self.terms.dir.clone().map(|path| Request::Mkdir { path, mode: 0o755, realm: false });
        let create = Request::Create { path: self.terms.path.clone(), exclusive: false, mode: 0o644 };
        for request in mkdir.into_iter().chain([create]) {
            match self.made(request)? {
                Err(failure) if failure.code != "EEXIST" => return Ok(Err(failure)),
                _ => {}
            }
        }
        Ok(Ok(()))
    }

    /// Whether this was made, or is there.
    fn made(&self, request: Request) -> Result<Result<(), Failure>, NoLock> {
        let made = self.agent.call(request, self.end, self.deadline);
        self.check()?;
        match made {
            Err(failure) if failure.code == LATE => Err(self.failed(self.too_late()).into()),
            Err(failure) if failure.code == "NO_AGENT" => Err(self.failed(failure).into()),
            made => Ok(made.map(drop)),
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
        let why = match self.terms.what {
            _ if silent => "no answer from the server",
            LockKind::Item => "no item came",
            _ => "the lock was not granted",
        };
        Failure::new("TIMED_OUT", EXIT_FAILURE, format!("{}: {why} within the time allowed", self.terms.path))
    }

    /// A failure with the exit status of this command.
    fn failed(&self, failure: Failure) -> Failure {
        let exit = match failure.code.as_str() {
            "TIMED_OUT" | "EAGAIN" | "IN_GRACE" if self.terms.try_once => EXIT_NOT_OBTAINED,
            "TIMED_OUT" | "EAGAIN" => EXIT_TIMED_OUT,
            _ => EXIT_FAILURE,
        };
        Failure { exit, ..failure }
    }

    /// Tells a person who holds the lock, when that is something new.
    fn tell_who_holds(&mut self) {
        let until = Some(Instant::now() + LOOK_TIME);
        // The slots of a semaphore are looked for among all locks.
        let of = self.terms.is_file().then(|| self.terms.path.clone());
        let request = Request::Locks { path: of };
        let rows = match self.agent.call(request, self.end, until) {
            Ok(Response::Locks(rows)) => Some(rows.into_iter().filter(|row| self.is_of(row)).collect::<Vec<_>>()),
            _ => None,
        };
        let (key, text) = rows.map_or_else(|| (String::new(), "no answer from the server yet".to_owned()), |rows| holders(&rows));
        let key = if key.is_empty() { text.clone() } else { key };
        if key != self.said {
            show::error("cistern", &Failure::new("WAITING", EXIT_FAILURE, format!("{}: waiting for the lock: {text}", self.terms.path)));
            self.said = key;
        }
    }
}

impl Obtaining<'_> {
    /// Whether a lock is the one that is waited for, or a slot of it.
    fn is_of(&self, row: &LockRow) -> bool {
        let slot = |name: &[u8]| std::str::from_utf8(name).is_ok_and(|name| name.parse::<u32>().is_ok());
        let name = row.path.0.strip_prefix(&self.terms.path.0[..]).and_then(|rest| rest.strip_prefix(b"/"));
        self.terms.is_file() || name.is_some_and(slot)
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
