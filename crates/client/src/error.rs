//! Errors: for a program what kind of thing went wrong and whether something was changed; for a person what it was about and what to do.

use crate::metadata::FileId;
use bytes::Bytes;
use cistern_agent::api::OpError;
use cistern_driver::AddressError;
use cistern_wire::sealed::OpenStatus;
use cistern_wire::{Limit, Limited, RefuseReason, Status, Whose};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest path that a subject copies in place.
const SHORT: usize = 46;

/// What an operation is about.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// So many bytes are a path: to have it at hand for an error costs an operation that succeeds no memory.
    Short(u8, [u8; SHORT]),
    Path(Bytes),
    File(FileId),
    Named(&'static str),
}

impl Subject {
    pub(crate) fn path(path: &Bytes) -> Self {
        let mut short = [0; SHORT];
        match (short.get_mut(..path.len()), u8::try_from(path.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(path);
                Self::Short(len, short)
            }
            _ => Self::Path(path.clone()),
        }
    }

    fn as_path(&self) -> Option<&Path> {
        match self {
            Self::Short(len, bytes) => bytes.get(..usize::from(*len)),
            Self::Path(path) => Some(&path[..]),
            Self::File(_) | Self::Named(_) => None,
        }
        .map(|path| Path::new(OsStr::from_bytes(path)))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(id) => write!(f, "object {id}"),
            Self::Named(name) => f.write_str(name),
            Self::Short(..) | Self::Path(_) => self.as_path().map_or(Ok(()), |path| write!(f, "{}", path.display())),
        }
    }
}

/// Which bound is reached, how far, whose it is, and what to do.
fn limited(limited: &Limited) -> String {
    let Limited { limit, whose, realm, used, bound, retry_ms } = limited;
    let whose = match whose {
        Whose::Realm => format!("realm {realm}"),
        Whose::Principal => "the agent that made it".to_owned(),
        Whose::Host => "this host".to_owned(),
        Whose::Session => "this agent".to_owned(),
        Whose::Object => "this file".to_owned(),
        Whose::Server => "the server".to_owned(),
    };
    let advice = match limit {
        _ if *retry_ms > 0 => "try again later",
        Limit::Objects | Limit::Bytes => "remove some, or ask for a larger quota",
        _ => "give some back",
    };
    format!("quota: {used} of {bound} {limit} of {whose} are used; nothing was changed; {advice}")
}

/// Why a key opens nothing, and what can be done.
const fn not_admitted(status: OpenStatus) -> &'static str {
    match status {
        OpenStatus::Revoked => "refuses this key: it was revoked, which is for ever; make another one and have it admitted",
        _ => "does not know this key: its operator admits it (`cistern key show` prints its public half)",
    }
}

type Source = Box<dyn std::error::Error + Send + Sync>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    #[error("{0}: {1}")]
    Status(Subject, Status),
    #[error("{subject}: item {} of the batch: {status}; nothing was changed", item + 1)]
    Item { subject: Subject, item: usize, status: Status },
    #[error("{subject}: {}", limited(limit))]
    Limited { subject: Subject, limit: Limited },
    #[error("{0}: the lock was not granted within the time allowed")]
    TimedOut(Subject),
    #[error(
        "no answer from server {servers} within {} s: is cisternd running there, and does UDP pass? A server that has a key answers only agents \
         that have one, too, and know that of the server",
        after.as_millis() as f64 / 1_000.0
    )]
    Unreachable { servers: String, after: Duration },
    #[error("{0}: the outcome is unknown: the session ended before the answer came, the change was made once or not at all")]
    OutcomeUnknown(Subject),
    #[error("{0}: the lease ran out before the operation ended")]
    LeaseLost(Subject),
    #[error("server {servers} refuses a session: {}", reason.name())]
    Refused { servers: String, reason: RefuseReason },
    #[error("server {servers} {}", not_admitted(*status))]
    NotAdmitted { servers: String, status: OpenStatus },
    #[error("server {0} is not the one this agent knows (another or an older store): use a fresh state directory if that is intended")]
    WrongServer(String),
    #[error("the client is closed")]
    Closed,
    #[error(
        "this client was made in process {made_in}, of which this process is a fork: the lease, the locks and the sockets are that \
         process's; make a client of its own here, or fork before the first is made"
    )]
    Forked { made_in: u32 },
    #[error("{0}: too many operations are in progress in this client")]
    Overloaded(Subject),
    #[error("the agent has failed inside: {0}")]
    Broken(&'static str),
    #[error("no server is named: give its address (host:port)")]
    NoServer,
    #[error("there is no key, and nothing is said in clear unless it is asked for")]
    NoKey,
    #[error("server {0}")]
    Address(#[from] AddressError),
    #[error("impossible settings: {0}")]
    Settings(#[source] Source),
    #[error("cannot start the agent: {0}")]
    Start(#[source] Source),
    #[error("no member of a group answers at {}: {source}; is `cistern peer` running there?", socket.display())]
    NoMember { socket: PathBuf, source: io::Error },
    #[error("{message}")]
    Member { code: String, message: String },
    #[error("{0}: the lock was lost as soon as it was obtained")]
    LostAtOnce(String),
    #[error("{}: {why}", path.display())]
    Recipe { path: PathBuf, why: String },
    #[error("state directory {}: {why}{}", path.display(), source.as_ref().map_or_else(String::new, |e| format!(": {e}")))]
    State { path: PathBuf, why: &'static str, source: Option<io::Error> },
}

/// Why an operation of the client failed.
///
/// Programs ask for its [`kind`](Self::kind), and whether something may have been changed all the same ([`applied`](Self::applied)). Its text
/// is for people: what was wrong, with what, and what can be done.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<Cause>);

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such file, directory or attribute.
    NotFound,
    /// The name or attribute exists.
    AlreadyExists,
    /// A directory was needed.
    NotADirectory,
    /// A directory cannot be that.
    IsADirectory,
    /// The directory has entries.
    DirectoryNotEmpty,
    /// Another user holds the lock that was tried.
    Locked,
    /// The file is protected by somebody's lock, or is in use otherwise.
    Busy,
    /// The lock was not granted in the time allowed, or the operation did not end in it.
    TimedOut,
    /// Two upgrades of one lock wait for each other.
    Deadlock,
    /// The operation was given up by its caller.
    Canceled,
    /// The file has another version than the change depends on.
    VersionChanged,
    /// The lock that guards the change is not held any more under that token.
    StaleGuard,
    /// The session ended, or the operation's time was up, before the answer came: the change was made once or not at all. As long as the
    /// session goes on it may still be made.
    OutcomeUnknown,
    /// The lease ran out before the operation ended, or the lock was lost.
    LeaseExpired,
    /// The server did not answer in the time that operations have.
    Unreachable,
    /// The server has restarted and waits for former holders of locks.
    InGrace,
    /// The server refuses a session.
    Refused,
    /// Another store than the one that this agent knows is served at the address.
    WrongServer,
    /// Too many operations, here or at the server.
    Overloaded,
    /// More than a file, a value or a batch can hold.
    TooLarge,
    /// The server's store is full.
    StorageFull,
    /// A quota of a realm is used up.
    QuotaExceeded,
    /// The names are in different realms.
    CrossesRealms,
    /// The server's store has failed.
    StorageFailed,
    /// A path, name or value that the operation does not take.
    InvalidInput,
    /// The operation is not permitted on this kind of file.
    NotPermitted,
    /// The rights in the realm do not suffice.
    PermissionDenied,
    /// The server does not do this.
    Unsupported,
    /// The client was closed.
    Closed,
    /// This process is a fork of the one that made the client.
    Forked,
    /// The settings, the server's address or the state directory cannot be used.
    Configuration,
    /// Sockets, clocks, threads, or the agent itself have failed.
    Internal,
}

/// Whether an operation that failed has changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Applied {
    /// Nothing was changed.
    No,
    /// It was changed once or not at all.
    Unknown,
}

impl Error {
    /// What kind of thing went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &*self.0 {
            Cause::Status(_, status) | Cause::Item { status, .. } => kind_of(*status),
            Cause::Limited { limit: Limited { limit: Limit::Sessions, .. }, .. } => ErrorKind::Refused,
            Cause::Limited { .. } => ErrorKind::QuotaExceeded,
            Cause::TimedOut(_) => ErrorKind::TimedOut,
            Cause::Unreachable { .. } => ErrorKind::Unreachable,
            Cause::OutcomeUnknown(_) => ErrorKind::OutcomeUnknown,
            Cause::LeaseLost(_) => ErrorKind::LeaseExpired,
            Cause::Refused { .. } | Cause::NotAdmitted { .. } => ErrorKind::Refused,
            Cause::WrongServer(_) => ErrorKind::WrongServer,
            Cause::NoMember { .. } => ErrorKind::Unreachable,
            Cause::LostAtOnce(_) => ErrorKind::LeaseExpired,
            Cause::Member { code, .. } => match code.as_str() {
                "EAGAIN" => ErrorKind::Locked,
                "TIMED_OUT" => ErrorKind::TimedOut,
                "BUSY" => ErrorKind::Overloaded,
                _ => ErrorKind::InvalidInput,
            },
            Cause::Recipe { .. } => ErrorKind::InvalidInput,
            Cause::Closed => ErrorKind::Closed,
            Cause::Forked { .. } => ErrorKind::Forked,
            Cause::Overloaded(_) => ErrorKind::Overloaded,
            Cause::Address(AddressError::Unknown { .. }) => ErrorKind::Unreachable,
            Cause::NoServer | Cause::NoKey | Cause::Address(_) | Cause::Settings(_) | Cause::State { .. } => ErrorKind::Configuration,
            Cause::Broken(_) | Cause::Start(_) => ErrorKind::Internal,
        }
    }

    /// A word for logs and scripts: the name of the result code (`ENOENT`, `IN_GRACE`), or of the kind.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match &*self.0 {
            Cause::Status(_, status) | Cause::Item { status, .. } => status.name(),
            Cause::Limited { .. } => Status::EDQUOT.name(),
            Cause::TimedOut(_) => "TIMED_OUT",
            Cause::Unreachable { .. } => "UNREACHABLE",
            Cause::OutcomeUnknown(_) => "OUTCOME_UNKNOWN",
            Cause::LeaseLost(_) => "LEASE_LOST",
            Cause::Refused { .. } => "REFUSED",
            Cause::NotAdmitted { .. } => "NOT_ADMITTED",
            Cause::WrongServer(_) => "ANOTHER_SERVER",
            Cause::NoMember { .. } => "UNREACHABLE",
            Cause::LostAtOnce(_) => "LEASE_LOST",
            Cause::Member { code, .. } => match code.as_str() {
                "EAGAIN" => "EAGAIN",
                "TIMED_OUT" => "TIMED_OUT",
                "BUSY" => "BUSY",
                _ => "USAGE",
            },
            Cause::Recipe { .. } => Status::EINVAL.name(),
            Cause::Address(AddressError::Unknown { .. }) => "UNKNOWN_HOST",
            Cause::NoServer | Cause::NoKey | Cause::Address(_) | Cause::Settings(_) | Cause::State { .. } => "USAGE",
            Cause::Closed | Cause::Forked { .. } | Cause::Overloaded(_) | Cause::Broken(_) | Cause::Start(_) => "INTERNAL",
        }
    }

    /// The path at the server that the operation was about; `None`: it was about no path.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &*self.0 {
            Cause::Status(subject, _) | Cause::TimedOut(subject) | Cause::OutcomeUnknown(subject) | Cause::LeaseLost(subject) => {
                subject.as_path()
            }
            _ => None,
        }
    }

    /// Of a batch: which of its changes could not be made, counted from 0.
    #[must_use]
    pub fn item(&self) -> Option<usize> {
        match &*self.0 {
            Cause::Item { item, .. } => Some(*item),
            _ => None,
        }
    }

    /// Whether the state directory is what cannot be used.
    #[must_use]
    pub fn is_state_directory(&self) -> bool {
        matches!(&*self.0, Cause::State { .. })
    }

    /// Whether there is neither a key nor leave to speak in clear.
    #[must_use]
    pub fn is_no_key(&self) -> bool {
        matches!(&*self.0, Cause::NoKey)
    }

    /// Whether the same operation, done again later, may succeed, and is safe to do again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Busy, Deadlock, InGrace, LeaseExpired, Locked, Overloaded, StorageFull, TimedOut, Unreachable};
        let kinds = [Busy, Deadlock, InGrace, LeaseExpired, Locked, Overloaded, StorageFull, TimedOut, Unreachable];
        kinds.contains(&self.kind()) || matches!(&*self.0, Cause::Limited { limit, .. } if limit.retry_ms > 0)
    }

    /// Whether something may have been changed.
    #[must_use]
    pub fn applied(&self) -> Applied {
        match self.kind() {
            ErrorKind::OutcomeUnknown | ErrorKind::Forked | ErrorKind::Internal => Applied::Unknown,
            _ => Applied::No,
        }
    }

    pub(crate) fn of(error: OpError, subject: Subject, servers: &str, after: Duration) -> Self {
        let servers = || servers.to_owned();
        match error {
            OpError::Status(status) => Cause::Status(subject, status),
            OpError::Limited(limit) => Cause::Limited { subject, limit },
            OpError::Item { item, status } => Cause::Item { subject, item: item.into(), status },
            OpError::TimedOut => Cause::TimedOut(subject),
            OpError::Unreachable => Cause::Unreachable { servers: servers(), after },
            OpError::OutcomeUnknown => Cause::OutcomeUnknown(subject),
            OpError::LeaseLost => Cause::LeaseLost(subject),
            OpError::Refused(reason) => Cause::Refused { servers: servers(), reason },
            OpError::NotAdmitted(status) => Cause::NotAdmitted { servers: servers(), status },
            OpError::AnotherServer => Cause::WrongServer(servers()),
            OpError::Closed => Cause::Closed,
            OpError::Overloaded => Cause::Overloaded(subject),
            _ => Cause::Broken("an operation ended for a reason that this library does not know"),
        }
        .into()
    }

    pub(crate) fn start(source: impl Into<Source>) -> Self {
        Cause::Start(source.into()).into()
    }

    /// Which change of the caller's an item was of; of none: the operation is one change to its caller.
    pub(crate) fn place(&mut self, change: impl FnOnce(usize) -> Option<usize>) {
        if let Cause::Item { subject, item, status } = &mut *self.0 {
            match change(*item) {
                Some(change) => *item = change,
                None => *self.0 = Cause::Status(subject.clone(), *status),
            }
        }
    }

    /// The same of an operation that went on after some time of its own.
    pub(crate) fn timed_out(self, subject: Subject) -> Self {
        if self.kind() == ErrorKind::Canceled { Cause::TimedOut(subject).into() } else { self }
    }
}

const fn kind_of(status: Status) -> ErrorKind {
    match status {
        Status::ENOENT | Status::ENODATA | Status::ESTALE => ErrorKind::NotFound,
        Status::EEXIST => ErrorKind::AlreadyExists,
        Status::ENOTDIR => ErrorKind::NotADirectory,
        Status::EISDIR => ErrorKind::IsADirectory,
        Status::ENOTEMPTY => ErrorKind::DirectoryNotEmpty,
        Status::EAGAIN => ErrorKind::Locked,
        Status::EBUSY => ErrorKind::Busy,
        Status::EDEADLK => ErrorKind::Deadlock,
        Status::ECANCELED => ErrorKind::Canceled,
        Status::VERSION_CHANGED => ErrorKind::VersionChanged,
        Status::STALE_GUARD => ErrorKind::StaleGuard,
        Status::NOT_HELD => ErrorKind::LeaseExpired,
        Status::IN_GRACE => ErrorKind::InGrace,
        Status::BUSY => ErrorKind::Overloaded,
        Status::EFBIG | Status::E2BIG | Status::EMLINK => ErrorKind::TooLarge,
        Status::ENOSPC => ErrorKind::StorageFull,
        Status::EDQUOT => ErrorKind::QuotaExceeded,
        Status::EXDEV => ErrorKind::CrossesRealms,
        Status::EACCES => ErrorKind::PermissionDenied,
        Status::EIO => ErrorKind::StorageFailed,
        Status::EINVAL | Status::ERANGE | Status::ENAMETOOLONG | Status::ELOOP => ErrorKind::InvalidInput,
        Status::EPERM => ErrorKind::NotPermitted,
        Status::UNSUPPORTED => ErrorKind::Unsupported,
        _ => ErrorKind::Internal,
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Self(Box::new(cause))
    }
}

impl From<AddressError> for Error {
    fn from(error: AddressError) -> Self {
        Cause::Address(error).into()
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
            ErrorKind::NotADirectory => io::ErrorKind::NotADirectory,
            ErrorKind::IsADirectory => io::ErrorKind::IsADirectory,
            ErrorKind::DirectoryNotEmpty => io::ErrorKind::DirectoryNotEmpty,
            ErrorKind::Locked => io::ErrorKind::WouldBlock,
            ErrorKind::Busy => io::ErrorKind::ResourceBusy,
            ErrorKind::TimedOut | ErrorKind::Unreachable => io::ErrorKind::TimedOut,
            ErrorKind::Deadlock => io::ErrorKind::Deadlock,
            ErrorKind::Canceled => io::ErrorKind::Interrupted,
            ErrorKind::TooLarge => io::ErrorKind::FileTooLarge,
            ErrorKind::StorageFull => io::ErrorKind::StorageFull,
            ErrorKind::QuotaExceeded => io::ErrorKind::QuotaExceeded,
            ErrorKind::CrossesRealms => io::ErrorKind::CrossesDevices,
            ErrorKind::InvalidInput | ErrorKind::Configuration => io::ErrorKind::InvalidInput,
            ErrorKind::NotPermitted | ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::Refused => io::ErrorKind::ConnectionRefused,
            ErrorKind::Closed => io::ErrorKind::NotConnected,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn every_result_code_has_a_kind_and_those_of_this_agent_are_no_mystery() {
        let internal: Vec<_> = Status::ALL.iter().filter(|status| kind_of(**status) == ErrorKind::Internal).map(|s| s.name()).collect();
        assert_eq!(internal, ["OK", "EPROTO", "NONCE_REUSED", "NOT_STAGED"]);
    }

    #[test]
    fn an_error_keeps_its_path_and_its_source_on_its_way_through_io() {
        let error = Error::from(Cause::Status(Subject::path(&Bytes::from_static(b"/a")), Status::ENOENT));
        assert_eq!((error.path(), error.applied(), error.is_retryable()), (Some(Path::new("/a")), Applied::No, false));
        for len in [0, SHORT, SHORT + 1, 300] {
            let path = Bytes::from("x".repeat(len));
            assert_eq!(Subject::path(&path).to_string().as_bytes(), path);
        }
        let io = io::Error::from(error);
        assert_eq!(io.kind(), io::ErrorKind::NotFound);
        assert_eq!(io.get_ref().and_then(|e| e.downcast_ref::<Error>()).map(Error::kind), Some(ErrorKind::NotFound));
        let error = Error::start(io::Error::other("no sockets"));
        assert_eq!((error.source().map(ToString::to_string).as_deref(), error.applied()), (Some("no sockets"), Applied::Unknown));
    }
}
