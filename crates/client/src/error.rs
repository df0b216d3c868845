//! What goes wrong, in words for a person, with enough structure for a program.
//!
//! Decides: the text of every error of the library: what was wrong, with what, and what can be done.
//! Leaves to others: exit codes (the command line).

use cistern_agent::api::OpError;
use cistern_driver::AddressError;
use cistern_wire::Status;
use std::path::PathBuf;
use std::time::Duration;

/// Why an operation of the client failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server's application, or the agent with the same meaning, refused the operation.
    #[error("{what}: {status}")]
    Status {
        /// The path or object.
        what: String,
        /// The result code.
        status: Status,
    },
    /// An item of a batch could not be done, so nothing of the batch was.
    #[error("{what}: item {} of the batch: {status}; nothing was changed", item + 1)]
    Item {
        /// What the batch was called.
        what: String,
        /// Which item, counted from 0.
        item: u16,
        /// Why.
        status: Status,
    },
    /// A lock could not be had in the time allowed.
    #[error("{what}: the lock was not granted within the time allowed")]
    TimedOut {
        /// The path.
        what: String,
    },
    /// No answer.
    #[error("no answer from server {servers} within {}: is cisternd running there, and does UDP pass?", seconds(*after))]
    Unreachable {
        /// The addresses tried.
        servers: String,
        /// How long.
        after: Duration,
    },
    /// A mutation was sent, and the session ended before its outcome was known.
    #[error("{what}: the outcome is unknown: the session ended before the answer came, the change was made once or not at all")]
    OutcomeUnknown {
        /// The path or object.
        what: String,
    },
    /// The lease ran out under the operation, or the lock was lost.
    #[error("{what}: the lease ran out before the operation ended")]
    LeaseLost {
        /// The path or object.
        what: String,
    },
    /// The server refuses a session.
    #[error("server {servers} refuses a session: {reason}")]
    Refused {
        /// The addresses tried.
        servers: String,
        /// Why.
        reason: &'static str,
    },
    /// Another store answers at the address that the agent knows.
    #[error(
        "server {servers} is not the one this agent knows (another or an older store): use a fresh state directory if that is intended"
    )]
    AnotherServer {
        /// The addresses tried.
        servers: String,
    },
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// This process is a fork of the one that made the client.
    #[error(
        "this client was made in process {made_in}, of which this process is a fork: the lease, the locks and the sockets are that \
         process's; make a client of its own here, or fork before the first is made"
    )]
    Forked {
        /// The process that made it.
        made_in: u32,
    },
    /// Too many operations at once.
    #[error("{what}: too many operations are in progress in this client")]
    Overloaded {
        /// The path or object.
        what: String,
    },
    /// The thread that turns the agent has ended by a defect; nothing of it can be trusted any more.
    #[error("the agent has failed inside: {why}")]
    Broken {
        /// What is known.
        why: String,
    },
    /// No server was named.
    #[error("no server is named: give its address (host:port)")]
    NoServer,
    /// A server's address is none, or its host cannot be found.
    #[error("server {0}")]
    Address(#[from] AddressError),
    /// Impossible settings.
    #[error("impossible settings: {0}")]
    Settings(String),
    /// Sockets, clocks or threads could not be had.
    #[error("cannot start the agent: {0}")]
    Start(String),
    /// The state directory cannot be used.
    #[error("state directory {}: {why}", path.display())]
    State {
        /// The directory or file.
        path: PathBuf,
        /// What is wrong and what to do.
        why: String,
    },
}

impl Error {
    /// The result code of the server's application, if that is what failed.
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. } | Self::Item { status, .. } => Some(*status),
            _ => None,
        }
    }

    pub(crate) fn of(error: OpError, what: &str, servers: &str, after: Duration) -> Self {
        let (what, servers) = (what.to_owned(), servers.to_owned());
        match error {
            OpError::Status(status) => Self::Status { what, status },
            OpError::Item { item, status } => Self::Item { what, item, status },
            OpError::TimedOut => Self::TimedOut { what },
            OpError::Unreachable => Self::Unreachable { servers, after },
            OpError::OutcomeUnknown => Self::OutcomeUnknown { what },
            OpError::LeaseLost => Self::LeaseLost { what },
            OpError::Refused(reason) => Self::Refused { servers, reason: reason.name() },
            OpError::AnotherServer => Self::AnotherServer { servers },
            OpError::Closed => Self::Closed,
            OpError::Overloaded => Self::Overloaded { what },
        }
    }
}

fn seconds(span: Duration) -> String {
    format!("{} s", span.as_millis() as f64 / 1_000.0)
}
