//! Locks of a group without a server, through this host's member of it (`cistern peer`).
//!
//! Decides: that a lock is believed until the instant that the member told last, read again from the member when half of that time is over;
//! and that dropping the lock gives it back. Leaves to others: the group (the member's process).

use crate::error::{Cause, Error};
use crate::forked::Home;
use crate::metadata::Token;
use cistern_driver::Clock;
use cistern_link::Instant;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What makes the token of a [`PeerLock`] larger than those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TokenBasis {
    /// Every member keeps tokens on disk: it is larger for ever.
    Durable,
    /// Each member of the majority that opened remembered one: it is larger as long as one of each majority has not restarted.
    Remembered,
    /// A member of that majority had restarted: it is larger if the hosts' wall clocks differ by less than the restart wait.
    Clock,
}

/// A lock of a group that has no server; given back when dropped.
///
/// ```no_run
/// use cistern_client::PeerLock;
/// # fn run() -> Result<(), cistern_client::Error> {
/// let lock = PeerLock::acquire("/run/user/1000/cistern/peer/0123456789abcdef.sock", "nightly", None)?;
/// while lock.is_valid() {
///     // one step, with `lock.token()` for whatever the lock protects
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PeerLock {
    home: Home,
    clock: Clock,
    name: String,
    hold: u64,
    token: Token,
    basis: TokenBasis,
    member: Mutex<Connection>,
}

#[derive(Debug)]
struct Connection {
    socket: PathBuf,
    lines: BufReader<UnixStream>,
    /// Of the request sent last.
    id: u64,
    lease: Duration,
    /// As the member told last.
    until: Option<Instant>,
}

impl PeerLock {
    /// Takes the lock `name` (1 to 200 bytes) of the group of the member whose control socket this is. It waits at most for `wait`; `None`: as
    /// long as it takes; zero: not for another owner.
    ///
    /// # Errors
    /// [`Unreachable`](crate::ErrorKind::Unreachable): no member answers there. [`Locked`](crate::ErrorKind::Locked) or
    /// [`TimedOut`](crate::ErrorKind::TimedOut): it was not obtained. [`LeaseExpired`](crate::ErrorKind::LeaseExpired): it was, and lost at once.
    pub fn acquire(socket: impl AsRef<Path>, name: &str, wait: Option<Duration>) -> Result<Self, Error> {
        let home = Home::here();
        let clock = Clock::new().map_err(Error::start)?;
        let socket = socket.as_ref().to_owned();
        let no_member = |source| Cause::NoMember { socket: socket.clone(), source };
        let stream = UnixStream::connect(&socket).map_err(no_member)?;
        let mut member = Connection { socket: socket.clone(), lines: BufReader::new(stream), id: 0, lease: Duration::ZERO, until: None };
        let wait_ms = wait.map(|wait| u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX));
        member.ask(json!({ "op": "hello", "api": 1 }))?;
        let answer = member.ask(json!({ "op": "lock", "path": name, "wait_ms": wait_ms, "linger": true }))?;
        let number = |field: &str| answer["locked"][field].as_u64().ok_or_else(|| member.no_answer(&answer));
        let (hold, token) = (number("hold")?, Token(number("token")?));
        let basis = match answer["locked"]["basis"].as_str() {
            Some("durable") => TokenBasis::Durable,
            Some("remembered") => TokenBasis::Remembered,
            _ => TokenBasis::Clock,
        };
        let lock = Self { home, clock, name: name.to_owned(), hold, token, basis, member: Mutex::new(member) };
        lock.refresh()?;
        lock.is_valid().then_some(lock).ok_or_else(|| Cause::LostAtOnce(name.to_owned()).into())
    }

    /// The fencing token: larger than that of every earlier holder of this name, as far as [`basis`](Self::basis) says.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// Why the token is larger than those before it.
    #[must_use]
    pub const fn basis(&self) -> TokenBasis {
        self.basis
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether nobody else can have the lock at this moment: the check to make right before acting under it. It asks the member, by its
    /// socket, when half of the time is over that the member told last.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.valid_until().is_some()
    }

    /// Until when that is certain as things stand, on this machine's lease clock; `None`: it is not.
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        self.home.check_process().ok()?;
        let known = |lock: &Self| {
            let member = lock.member.lock().unwrap_or_else(PoisonError::into_inner);
            let now = lock.clock.now();
            (member.until.filter(|until| !now.lease_over(*until)), now, member.lease)
        };
        let (until, now, lease) = known(self);
        if until.is_some_and(|until| now.until_lease_over(until) > lease / 2) {
            return until;
        }
        // What was told before stays true where nothing can be asked.
        if let Err(error) = self.refresh() {
            log::debug!("{}: {error}", self.name);
        }
        known(self).0
    }

    /// Time left until it is not certain any more unless the member renews it; zero when it is not.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.valid_until().map_or(Duration::ZERO, |until| self.clock.now().until_lease_over(until))
    }

    /// Gives the lock back, and waits until the member has heard so.
    ///
    /// # Errors
    /// The member does not answer; the lock then ends with its lease.
    pub fn release(self) -> Result<(), Error> {
        self.home.check_process()?;
        let mut member = self.member.lock().unwrap_or_else(PoisonError::into_inner);
        member.until = None;
        member.ask(json!({ "op": "unlock", "hold": self.hold })).map(drop)
    }

    /// Reads from the member until when the lock is certain.
    fn refresh(&self) -> Result<(), Error> {
        let mut member = self.member.lock().unwrap_or_else(PoisonError::into_inner);
        let left = member.until.map_or(ANSWER_TIME, |until| self.clock.now().until_lease_over(until));
        // No longer than what is asked for is worth.
        let bound = Some(left.max(Duration::from_millis(1)));
        member.lines.get_ref().set_read_timeout(bound).map_err(Error::start)?;
        let answer = member.ask(json!({ "op": "hold", "hold": self.hold }))?;
        let hold = &answer["hold"];
        let reading = |clock: &str| hold["until"][clock].as_u64();
        member.lease = Duration::from_millis(hold["lease_ms"].as_u64().unwrap_or(0));
        member.until = match (hold["state"].as_str(), reading("clock_monotonic_raw_ns"), reading("clock_boottime_ns")) {
            (Some("certain"), Some(raw_ns), Some(boot_ns)) => Some(Instant::new(raw_ns, boot_ns)),
            (Some("lost"), ..) => None,
            _ => return Err(member.no_answer(&answer)),
        };
        Ok(())
    }
}

impl Drop for PeerLock {
    fn drop(&mut self) {
        let member = self.member.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.home.check_process().is_ok() && member.until.is_some() {
            // Where the member does not read it, the lock ends with its lease.
            let _ = member.say(json!({ "op": "unlock", "hold": self.hold }));
        }
    }
}

/// How long the first answer to a question about a hold may take: the member gives it in the turn in which it is asked.
const ANSWER_TIME: Duration = Duration::from_secs(5);

impl Connection {
    fn say(&mut self, mut request: Value) -> io::Result<()> {
        self.id += 1;
        request["id"] = self.id.into();
        self.lines.get_mut().write_all(format!("{request}\n").as_bytes())
    }

    fn ask(&mut self, request: Value) -> Result<Value, Error> {
        let mut line = String::new();
        let asked = self.say(request).and_then(|()| self.lines.read_line(&mut line));
        let failed = |socket: &Path, source| Cause::NoMember { socket: socket.to_owned(), source };
        match asked {
            Ok(0) => return Err(failed(&self.socket, io::ErrorKind::UnexpectedEof.into()).into()),
            Ok(_) => {}
            Err(source) => {
                // An answer that comes later must not be taken for that to another question.
                let _ = self.lines.get_ref().shutdown(std::net::Shutdown::Both);
                return Err(failed(&self.socket, source).into());
            }
        }
        let mut answer: Value = serde_json::from_str(&line).map_err(|e| failed(&self.socket, e.into()))?;
        match answer.get_mut("ok").map(Value::take) {
            Some(answer) => Ok(answer),
            None => Err(self.refusal(&answer)),
        }
    }

    fn refusal(&self, answer: &Value) -> Error {
        let error = &answer["error"];
        match (error["code"].as_str(), error["message"].as_str()) {
            (Some(code), Some(message)) => Cause::Member { code: code.to_owned(), message: message.to_owned() }.into(),
            _ => self.no_answer(answer),
        }
    }

    fn no_answer(&self, answer: &Value) -> Error {
        let source = io::Error::new(io::ErrorKind::InvalidData, format!("not an answer of a member: {answer}"));
        Cause::NoMember { socket: self.socket.clone(), source }.into()
    }
}
