//! `cistern member join`: an ephemeral file as long as the command runs.
//!
//! Decides: what is done when the file is there already (another one's end is waited for), when it is lost (made again), and when it cannot
//! be made: tried again until asked to end, but for what can never succeed, which ends the command before it has joined once.
//! The file belongs to the session of an agent of this process's own, or of the host's agent, which removes it when this process is gone.
//! Leaves to others: making it whole (`members`), removing it with the session (the server), who hears of it (`watch`).

use crate::backend::{Backend, Line, host_agent, own_agent};
use crate::commands::{Run, unless_unread};
use crate::contact::{self, Tries};
use crate::ctx::Ctx;
use crate::execute::{EXIT_FAILED, Own};
use crate::local::{Failure, News, Request, Response, What, millis};
use crate::options::Options;
use crate::show;
use crate::signals::End;
use crate::text::{Blob, Text};
use cistern_client::Client;
use cistern_text::octal;
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time for the clean end of the session, for which the server may wait a delivery timeout where others cache the directory; what is not
/// confirmed by then ends by the lease.
const CLOSE_TIME: Duration = Duration::from_secs(2);
/// How long news are waited for at a time: as long as a signal may take to be noticed.
const STEP: Duration = Duration::from_millis(100);
/// Until another program's end has been seen by everybody.
const MOMENT: Duration = Duration::from_millis(10);
/// Between attempts to join that fail.
const PAUSE: Duration = Duration::from_millis(500);

/// What no later attempt can mend.
const HOPELESS: [&str; 9] = ["ENOENT", "ENOTDIR", "EEXIST", "ENAMETOOLONG", "ELOOP", "EINVAL", "EISDIR", "EFBIG", "ANOTHER_SERVER"];
/// Failures of this program itself, and of its output.
const OWN: [&str; 3] = ["OUTPUT", "INTERNAL", "USAGE"];

const JOIN_HELP: &str = "\
PATH is created as an ephemeral file; its parent directories must exist. If another member's ephemeral file has that name, the command waits until it \
is gone. The file is removed at once when this command ends, and within 3.8 s plus commits by default when it or its host dies while someone watches. \
The command rejoins after every interruption, and prints the reason on standard error. Before it has joined for the first time, it fails (status 1) \
on permanent errors: no such directory, not a directory, a file of that name that is not ephemeral.

Through the host's agent (--agent) the file belongs to that agent, which removes it as soon as this command ends or is killed.

Prints joined, uncertain, certain and lost, each with the path. Ends by SIGINT or SIGTERM: exit status 0.

Examples:
  cistern mkdir -p /group
  cistern member join /group/$(hostname) &
  cistern member join --data \"$(hostname -I)\" /group/$(hostname)
  cistern member watch /group";

/// Join a group: keep an ephemeral file while this command runs
#[derive(Args, Debug)]
#[command(after_help = JOIN_HELP)]
pub(crate) struct Join {
    /// Contents of the file: what other members should know
    #[arg(long, value_name = "TEXT")]
    data: Option<OsString>,
    /// Permission bits, octal
    #[arg(long, value_parser = octal, default_value = "644")]
    mode: u16,
    /// Path of the ephemeral file
    path: OsString,
}

struct Membership<'a> {
    args: &'a Join,
    options: &'a Options,
    path: Text,
    end: &'a End,
    /// The control socket of the host's agent, if the file is to be its.
    host: Option<PathBuf>,
    /// None: the host's agent has ended the connection.
    backend: Option<Backend>,
    /// It has been a member before.
    has_joined: bool,
    /// What was told last of why it cannot join.
    told: String,
}

impl Run for Join {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let end = Arc::new(End::catch()?);
        let path = Text::from(self.path.as_os_str());
        let options = ctx.options();
        let host = host_agent(options)?;
        let backend = match host {
            Some(_) => None,
            None => Some(Backend::Own(own_agent(options, Some(format!("member {path}")), Tries::UntilEnded)?, Own::default())),
        };
        let closer = backend.as_ref().and_then(|backend| close_at_end(backend, &end));
        let mut membership = Membership { args: self, options, path, end: &end, host, backend, has_joined: false, told: String::new() };
        let result = membership.run();
        match (closer, membership.backend) {
            (Some(closer), _) if end.is_asked() => _ = closer.join(),
            (_, Some(Backend::Own(client, _))) => close(&client),
            _ => {}
        }
        unless_unread(result)
    }
}

/// With the session the file goes, at once.
fn close(client: &Client) {
    if let Err(error) = contact::close(client, CLOSE_TIME) {
        log::warn!("the session was not closed, and ends by its lease: {error}");
    }
}

/// A thread that closes an agent of this process's own when the process is to end, and ends with that what is asked of it meanwhile.
fn close_at_end(backend: &Backend, end: &Arc<End>) -> Option<JoinHandle<()>> {
    let Backend::Own(client, _) = backend else { return None };
    let (client, end) = (client.clone(), Arc::clone(end));
    let wait = move || {
        while !end.wait(Duration::MAX) {}
        close(&client);
    };
    // Without it the end waits for what is under way.
    Builder::new().name("cistern-close".to_owned()).spawn(wait).ok()
}

impl Membership<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        while !self.end.is_asked() {
            match self.once() {
                Ok(()) => {}
                // What was under way was cut short.
                Err(failure) if self.end.is_asked() && failure.code != "OUTPUT" => {}
                Err(failure) if self.is_final(&failure) => return Err(failure),
                Err(failure) => {
                    self.complain(&failure);
                    self.end.wait(PAUSE);
                }
            }
        }
        Ok(())
    }

    /// Joins, and stays until the file is gone, or until asked to end.
    fn once(&mut self) -> Result<(), Failure> {
        let Some(object) = self.join()? else { return Ok(()) };
        self.has_joined = true;
        self.told.clear();
        self.tell("joined", Some(object))?;
        match self.stay(object) {
            Ok(true) => self.leave(object),
            Err(failure) if self.end.is_asked() && failure.code != "OUTPUT" => self.leave(object),
            // What could not be asked is as uncertain as what is gone: it is found out by joining again.
            Err(failure) if OWN.contains(&failure.code.as_str()) => return Err(failure),
            Ok(false) | Err(_) => self.tell("lost", None)?,
        }
        Ok(())
    }

    fn is_final(&self, failure: &Failure) -> bool {
        let code = failure.code.as_str();
        OWN.contains(&code) || (!self.has_joined && HOPELESS.contains(&code))
    }

    /// Tells a person why it is no member yet, once for each reason.
    fn complain(&mut self, failure: &Failure) {
        if self.told != failure.message {
            self.told.clone_from(&failure.message);
            let message = format!("{}: no member yet, trying again: {}", self.path, failure.message);
            show::error("cistern", &Failure { message, ..failure.clone() });
        }
    }

    fn call(&mut self, request: Request) -> Result<Response, Failure> {
        let backend = match &mut self.backend {
            Some(backend) => backend,
            None => {
                let socket = self.host.as_ref().ok_or_else(|| Failure::usage("no agent is named"))?;
                self.backend.insert(Backend::Host(Line::open(socket)?))
            }
        };
        let result = match &mut *backend {
            Backend::Host(line) => match line.ask(&request, self.end, None) {
                Some(result) => result,
                None => Err(Failure::failed("asked to end")),
            },
            own => own.call(request),
        };
        if let (Backend::Host(_), Err(failure)) = (backend, &result)
            && failure.code == "NO_AGENT"
        {
            self.backend = None;
        }
        result
    }

    /// Makes the file; `None`: asked to end before that could be.
    fn join(&mut self) -> Result<Option<u64>, Failure> {
        let data = Blob(self.args.data.as_ref().map(|data| Text::from(data.as_os_str()).0).unwrap_or_default());
        let mut told = false;
        while !self.end.is_asked() {
            match self.call(Request::Join { path: self.path.clone(), data: data.clone(), mode: self.args.mode }) {
                Ok(response) => return response.joined().map(Some),
                Err(failure) if failure.code == "EEXIST" => {}
                // A server that was started anew lets nobody begin anything for a moment.
                Err(failure) if failure.code == "IN_GRACE" => {
                    self.end.wait(STEP);
                    continue;
                }
                Err(failure) => return Err(failure),
            }
            let there = match self.call(Request::Stat { path: self.path.clone(), follow: false }) {
                Ok(response) => response.attributes()?,
                Err(failure) if failure.code == "ENOENT" => {
                    self.end.wait(MOMENT);
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            if there.made_by.is_none() {
                let why = format!("{}: is there, and is no ephemeral file; remove it, or choose another name", self.path);
                return Err(Failure::new("EEXIST", EXIT_FAILED, why));
            }
            if !std::mem::replace(&mut told, true) {
                self.tell("waiting", Some(there.object))?;
            }
            self.wait_for_end(there.object)?;
        }
        Ok(None)
    }

    /// Waits until another one's file is gone, or until asked to end.
    fn wait_for_end(&mut self, object: u64) -> Result<(), Failure> {
        self.watch(object)?;
        while !self.end.is_asked() {
            if self.news(object)?.contains(&What::Gone) {
                break;
            }
        }
        Ok(())
    }

    /// Is a member; true: until it was asked to end; false: until the file was gone.
    fn stay(&mut self, object: u64) -> Result<bool, Failure> {
        self.watch(object)?;
        let mut uncertain = false;
        while !self.end.is_asked() {
            let news = self.news(object)?;
            // From then on they tell of this end alone.
            if self.end.is_asked() {
                break;
            }
            for what in news {
                match what {
                    What::Gone => return Ok(false),
                    What::Uncertain => {
                        uncertain = true;
                        self.tell("uncertain", Some(object))?;
                    }
                    What::Certain { .. } if std::mem::take(&mut uncertain) => self.tell("certain", Some(object))?,
                    What::Certain { .. } | What::Changed { .. } => {}
                }
            }
        }
        Ok(true)
    }

    /// Removes the file of a host agent; that of an agent of this process's own goes with its session.
    fn leave(&mut self, object: u64) {
        let Some(Backend::Host(line)) = &mut self.backend else { return };
        let Ok((never, _asker)) = End::pair() else { return };
        let until = Some(Instant::now() + CLOSE_TIME);
        let left = line.ask(&Request::Leave { object }, &never, until);
        if !matches!(left, Some(Ok(_))) {
            log::warn!("the agent removes the file later: {left:?}");
        }
    }

    fn watch(&mut self, object: u64) -> Result<(), Failure> {
        self.call(Request::Watch { object }).map(drop)
    }

    /// What has become of the object within a moment.
    fn news(&mut self, object: u64) -> Result<Vec<What>, Failure> {
        let news = match &mut self.backend {
            Some(backend) => backend.news(STEP),
            None => Ok(Vec::new()),
        };
        if news.as_ref().is_err_and(|failure| failure.code == "NO_AGENT") {
            self.backend = None;
        }
        Ok(news?.into_iter().filter(|news: &News| news.object == object).map(|news| news.what).collect())
    }

    fn tell(&self, event: &str, object: Option<u64>) -> Result<(), Failure> {
        if self.options.json {
            let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis);
            return show::json(&json!({ "event": event, "path": self.path, "object": object, "unix_ms": unix_ms }));
        }
        show::line(format!("{event:<9} {}", self.path))
    }
}
