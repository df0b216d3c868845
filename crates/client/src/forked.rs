//! Whether this is the process that made the client, or a fork of it.
//!
//! Decides: that what was made before a fork is of no use after it in the child (R44). The child has a copy of the memory, of the sockets
//! and of the packet numbers, and none of the threads: an answer from that cache would rest on a lease that nobody there renews or loses,
//! a datagram would repeat a packet number, and a lock of the library may be held by a thread that is not there. Place in the walk:
//! asked before anything else is touched, locks included. Implements `wire-spec.md` section 11.6.
//! A fork is told by a handler that the C library runs in the child, which costs nothing until then, where a system call for the process
//! id would cost more than an answer from cache. A child made without the C library (a bare `clone`) is found out by its process id before
//! anything is waited for. Leaves to others: what to do about it (the application: make a client in the process that uses it).

use crate::error::Error;
use forkguard::atfork::Guard;

/// The process that made a client.
#[derive(Debug)]
pub(crate) struct Home {
    process: u32,
    /// None where the C library takes no more handlers.
    guard: Option<Guard>,
}

impl Home {
    /// This process.
    pub(crate) fn here() -> Self {
        Self { process: std::process::id(), guard: Guard::try_new().ok() }
    }

    /// Whether this process is a fork of the one that made the client.
    pub(crate) fn is_elsewhere(&self) -> bool {
        // A copy: what one asks must not be answered differently for the next.
        self.guard.clone().map_or_else(|| self.is_another_process(), |mut guard| guard.detected_fork())
    }

    /// The same by the process id, which costs a system call.
    fn is_another_process(&self) -> bool {
        std::process::id() != self.process
    }

    /// An error, if this process is a fork of the one that made the client.
    pub(crate) fn check(&self) -> Result<(), Error> {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The state of a session MUST NOT be usable in a forked child.
        if self.is_elsewhere() { Err(Error::Forked { made_in: self.process }) } else { Ok(()) }
    }

    /// The same before something is waited for, beside which a system call costs nothing.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.is_another_process() { Err(Error::Forked { made_in: self.process }) } else { Ok(()) }
    }
}
