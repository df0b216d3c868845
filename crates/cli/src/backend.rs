//! Through whom a command line acts: an agent of its own, used once, or the host's agent by its control socket.
//!
//! Decides: that choice, and that both behave alike. Place in the walk: every file command makes a `Request` and calls this.
//! Leaves to others: what a request does (`execute`), the other end of the host agent's socket (`agent::run`).

use crate::contact::{self, Tries, Wanted};
use crate::execute::{EXIT_FAILED, EXIT_SOFTWARE, EXIT_UNAVAILABLE, EXIT_UNKNOWN, Own};
use crate::local::{API, Attributes, EntryRow, Event, Failure, News, Request, RequestLine, Response, Said};
use crate::options::Options;
use crate::places::agent_sockets;
use crate::settings;
use crate::signals::{End, wait_for};
use crate::text::Text;
use cistern_client::{Client, FileType};
use nix::poll::{PollFd, PollFlags};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time that a clean end of an own session is given: one round trip and a few retransmissions. What is not confirmed by then
/// ends by the lease.
const CLOSE_TIME: Duration = Duration::from_millis(500);
/// Code of a failure that never leaves this file: nothing came from the host's agent in time.
const LATE: &str = "LATE";

/// An agent to act through.
pub(crate) enum Backend {
    /// An identity of its own.
    Own(Client, Own),
    /// The host's agent.
    Host(Line),
}

/// A connection to an agent's control socket: one request at a time. An answer that was not waited for is passed over when it comes.
pub(crate) struct Line {
    path: PathBuf,
    reader: BufReader<UnixStream>,
    /// How long the answer to a call may take; none: as long as the agent gives its server.
    timeout: Option<Duration>,
    /// Of the request sent last; that of `hello` is 0.
    id: u64,
    /// What was told of watched objects and not asked for yet.
    news: VecDeque<News>,
}

impl Line {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let stream = UnixStream::connect(path).map_err(|e| {
            let hint = "is an agent running there? Start one with `cistern agent run`";
            Failure::new("NO_AGENT", EXIT_UNAVAILABLE, format!("agent socket {}: {e}: {hint}", path.display()))
        })?;
        let mut line = Self { path: path.to_owned(), reader: BufReader::new(stream), timeout: None, id: 0, news: VecDeque::new() };
        // Its answer comes before that to the first request.
        line.write(&RequestLine::new(0, Request::Hello { api: API }))?;
        Ok(line)
    }

    /// The same with a bound on each [`Self::call`].
    pub(crate) fn within(self, timeout: Option<Duration>) -> Self {
        Self { timeout, ..self }
    }

    /// One more to the same agent.
    pub(crate) fn again(&self) -> Result<Self, Failure> {
        Ok(Self::open(&self.path)?.within(self.timeout))
    }

    pub(crate) fn call(&mut self, request: &Request) -> Result<Response, Failure> {
        let span = self.timeout.map(|timeout| timeout.max(Duration::from_millis(1)));
        let stream = self.reader.get_ref();
        stream.set_write_timeout(span).and_then(|()| stream.set_read_timeout(span)).map_err(|e| self.broken(&e.to_string()))?;
        match self.send(request).and_then(|()| self.receive()) {
            Err(late) if late.code == LATE => Err(self.give_up(request, late)),
            answer => answer,
        }
    }

    /// The agent did not answer in time. What it is asked next is asked on another connection, behind nothing.
    fn give_up(&mut self, request: &Request, late: Failure) -> Failure {
        // Fails only if it has ended already.
        let _ = self.reader.get_ref().shutdown(Shutdown::Both);
        if let Ok(fresh) = self.again() {
            *self = fresh;
        }
        let (code, exit) = if request.is_change() { ("OUTCOME_UNKNOWN", EXIT_UNKNOWN) } else { ("UNREACHABLE", EXIT_UNAVAILABLE) };
        Failure { code: code.to_owned(), exit, ..late }
    }

    fn broken(&self, what: &str) -> Failure {
        Failure::new("NO_AGENT", EXIT_UNAVAILABLE, format!("agent socket {}: {what}", self.path.display()))
    }

    fn failed(&self, error: &io::Error) -> Failure {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                Failure { code: LATE.to_owned(), ..self.broken("no answer in the time of --timeout") }
            }
            _ => self.broken(&error.to_string()),
        }
    }

    /// Sends a request; its answer is the next that [`Self::receive`] gives.
    pub(crate) fn send(&mut self, request: &Request) -> Result<(), Failure> {
        self.id += 1;
        self.write(&RequestLine::new(self.id, request.clone()))
    }

    fn write(&mut self, asked: &RequestLine) -> Result<(), Failure> {
        let mut line = asked.written().map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, e.to_string()))?;
        line.push('\n');
        match self.reader.get_mut().write_all(line.as_bytes()) {
            // An agent that ended the connection has perhaps said why before: that is read with the answer.
            Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(self.failed(&e)),
            _ => Ok(()),
        }
    }

    /// The answer to the request sent last; blocks until it comes.
    pub(crate) fn receive(&mut self) -> Result<Response, Failure> {
        loop {
            if let Some(answer) = self.hear() {
                return answer;
            }
        }
    }

    /// Reads one line; what it says, if that is the answer to the request sent last, or ends the connection.
    fn hear(&mut self) -> Option<Result<Response, Failure>> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => return Some(Err(self.broken("the agent has ended the connection"))),
            Ok(_) => {}
            Err(e) => return Some(Err(self.failed(&e))),
        }
        match serde_json::from_str(&line) {
            Ok(Said { event: Some(event), .. }) => {
                if let Event::Watch(news) = event {
                    self.news.push_back(news);
                }
                None
            }
            Ok(Said { id: Some(id), error: Some(failure), .. }) if id == self.id || id == 0 => Some(Err(failure)),
            Ok(Said { id: None, error: Some(failure), .. }) => Some(Err(failure)),
            Ok(Said { id: Some(id), ok: Some(response), .. }) if id == self.id => Some(Ok(response)),
            Ok(Said { id: Some(id), .. }) if id < self.id => None,
            Ok(_) => Some(Err(self.broken(&format!("not an answer of an agent: {}", line.trim_end())))),
            Err(e) => Some(Err(self.broken(&format!("not an answer of an agent: {e}")))),
        }
    }

    /// Whether a line can be read without waiting.
    fn has_line(&self) -> bool {
        self.reader.buffer().contains(&b'\n')
    }
}

/// Waiting that is cut short.
impl Line {
    /// Asks; `None`: `end` was asked, or `until` has come, before there was an answer, which [`Self::answer`] still gives.
    pub(crate) fn ask(&mut self, request: &Request, end: &End, until: Option<Instant>) -> Option<Result<Response, Failure>> {
        if let Err(failure) = self.send(request) {
            return Some(Err(failure));
        }
        self.answer(end, until)
    }

    /// Asks for a change of files under a hold of this connection.
    pub(crate) fn ask_under(&mut self, hold: u64, request: &Request, end: &End, until: Instant) -> Option<Result<Response, Failure>> {
        self.id += 1;
        let asked = RequestLine { guard: Some(hold), ..RequestLine::new(self.id, request.clone()) };
        if let Err(failure) = self.write(&asked) {
            return Some(Err(failure));
        }
        self.answer(end, Some(until))
    }

    /// Waits for the answer to the request sent last, as [`Self::ask`] does; it can be waited for again.
    pub(crate) fn answer(&mut self, end: &End, until: Option<Instant>) -> Option<Result<Response, Failure>> {
        loop {
            if !self.has_line() {
                let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN), PollFd::new(end.as_fd(), PollFlags::POLLIN)];
                wait_for(&mut fds, until.map(|until| until.saturating_duration_since(Instant::now())));
                if fds[0].any() != Some(true) {
                    return None;
                }
            }
            if let Some(answer) = self.hear() {
                return Some(answer);
            }
        }
    }

    /// What has become of the watched objects since this was asked last; waits at most so long for something.
    ///
    /// # Errors
    /// The connection has ended.
    fn news(&mut self, wait: Duration) -> Result<Vec<News>, Failure> {
        let mut wait = if self.news.is_empty() { wait } else { Duration::ZERO };
        while self.has_line() || self.is_readable(wait) {
            if let Some(ended) = self.hear() {
                // Nothing was asked: what answers is not of any question.
                return ended.and_then(|response| Err(response.unexpected()));
            }
            wait = Duration::ZERO;
        }
        Ok(self.news.drain(..).collect())
    }

    fn is_readable(&self, wait: Duration) -> bool {
        let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        wait_for(&mut fds, Some(wait));
        fds[0].any() == Some(true)
    }
}

/// Readable when an answer has come, or the connection has ended.
impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.get_ref().as_fd()
    }
}

impl Backend {
    /// Opens what the command line asks for; with an agent of its own, a session, too.
    pub(crate) fn open(options: &Options) -> Result<Self, Failure> {
        match host_agent(options)? {
            Some(path) => Ok(Self::Host(Line::open(&path)?.within(options.timeout))),
            None => Ok(Self::Own(own_client(options, None)?, Own::default())),
        }
    }

    /// One more of the same agent, for another thread.
    pub(crate) fn again(&self) -> Result<Self, Failure> {
        match self {
            Self::Own(client, _) => Ok(Self::Own(client.clone(), Own::default())),
            Self::Host(line) => line.again().map(Self::Host),
        }
    }

    pub(crate) fn call(&mut self, request: Request) -> Result<Response, Failure> {
        match self {
            Self::Own(client, own) => own.execute(client, request),
            Self::Host(line) => line.call(&request),
        }
    }

    /// What has become of the watched objects since this was asked last; waits at most so long for something.
    ///
    /// # Errors
    /// The host's agent has ended the connection.
    pub(crate) fn news(&mut self, wait: Duration) -> Result<Vec<News>, Failure> {
        match self {
            Self::Own(_, own) => Ok(own.news(wait)),
            Self::Host(line) => line.news(wait),
        }
    }

    /// Attributes of what a path names; of the target of a symbolic link, if it is followed.
    pub(crate) fn stat(&mut self, path: &Text, follow: bool) -> Result<Attributes, Failure> {
        self.change(Request::Stat { path: path.clone(), follow })
    }

    /// A request that is answered with the attributes of its object.
    pub(crate) fn change(&mut self, request: Request) -> Result<Attributes, Failure> {
        self.call(request)?.attributes()
    }

    pub(crate) fn list(&mut self, path: &Text, detail: bool) -> Result<Vec<EntryRow>, Failure> {
        self.call(Request::List { path: path.clone(), detail })?.listing()
    }

    pub(crate) fn mkdir(&mut self, path: &Text, mode: u16) -> Result<Attributes, Failure> {
        self.change(Request::Mkdir { path: path.clone(), mode, realm: false })
    }

    /// Makes a directory and those above it; an existing directory is no error.
    pub(crate) fn mkdir_parents(&mut self, path: &Text, mode: u16) -> Result<Attributes, Failure> {
        let mut at = Text(if path.0.starts_with(b"/") { b"/".to_vec() } else { Vec::new() });
        for name in path.0.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            at = if at.0.is_empty() { Text(name.to_vec()) } else { at.join(name) };
            match self.mkdir(&at, mode) {
                Err(failure) if failure.code != "EEXIST" => return Err(failure),
                _ => {}
            }
        }
        let found = self.stat(path, true)?;
        if found.is(FileType::Directory) {
            return Ok(found);
        }
        Err(Failure::new("EEXIST", EXIT_FAILED, format!("{path}: file exists and is not a directory")))
    }

    /// Ends an own session, so that nothing of it has to be timed out.
    pub(crate) fn close(self) {
        if let Self::Own(client, own) = self {
            drop(own);
            if let Err(error) = contact::close(&client, CLOSE_TIME) {
                log::debug!("the session was not closed: {error}");
            }
        }
    }
}

/// The control socket of the host's agent, if the command is to go through one: the one that is named, or where neither agent nor server is,
/// one that answers.
///
/// # Errors
/// The settings cannot be read, or the command has an option that the agent that is named has no use for.
pub(crate) fn host_agent(options: &Options) -> Result<Option<PathBuf>, Failure> {
    match options.host_agent() {
        Some(_) if options.pcap.is_some() => Err(Failure::usage(
            "--pcap: this command goes through the host's agent (--agent, CISTERN_AGENT) and sends no datagrams itself; give --pcap to \
             `cistern agent run`, or unset CISTERN_AGENT",
        )),
        Some(named) => Ok(Some(named.to_owned())),
        None if options.needs_own_agent() => Ok(None),
        None => {
            let names_none = settings::load(options.config.as_deref())?.servers(&options.server).default;
            let found = names_none.then(default_agent).flatten();
            if let Some(socket) = &found {
                log::info!("no server is named: through the host's agent at {}", socket.display());
            }
            Ok(found)
        }
    }
}

/// The control socket of an agent of this host that answers, although nobody has named it.
pub(crate) fn default_agent() -> Option<PathBuf> {
    agent_sockets().into_iter().find(|socket| UnixStream::connect(socket).is_ok())
}

/// A client with an identity of its own, and a session.
pub(crate) fn own_client(options: &Options, label: Option<String>) -> Result<Client, Failure> {
    contact::start(options, Wanted { label, ..Wanted::default() })?.open()
}

/// A client with an identity of its own, which opens a session when it needs one.
pub(crate) fn own_agent(options: &Options, label: Option<String>, tries: Tries) -> Result<Client, Failure> {
    Ok(contact::start(options, Wanted { label, ..Wanted::default() })?.unopened(tries))
}
