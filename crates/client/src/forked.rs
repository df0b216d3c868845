//! Whether this is the process that made the client, or a fork of it.
//!
//! Decides: that what was made before a fork is of no use after it in the child (R44). The child has a copy of the memory, of the sockets
//! and of the packet numbers, and none of the threads: an answer from that cache would rest on a lease that nobody there renews or loses,
//! a datagram would repeat a packet number, and a lock of the library may be held by a thread that is not there. Place in the walk:
//! asked before anything else is touched, locks included. Implements `wire-spec.md` section 11.6.
//! Leaves to others: what to do about it (the application: make a client in the process that uses it).

use crate::error::Error;

/// The process that made a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    process: u32,
}

impl Home {
    /// This process.
    pub(crate) fn here() -> Self {
        Self { process: std::process::id() }
    }

    /// Whether this process is a fork of the one that made the client.
    pub(crate) fn is_elsewhere(self) -> bool {
        // The system is asked each time: the C library would tell of a fork only to unsafe code.
        std::process::id() != self.process
    }

    /// An error, if this process is a fork of the one that made the client.
    pub(crate) fn check(self) -> Result<(), Error> {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The state of a session MUST NOT be usable in a forked child.
        if self.is_elsewhere() { Err(Error::Forked { made_in: self.process }) } else { Ok(()) }
    }
}
