//! Whether this is the process that made the client, or a fork of it.
//!
//! Decides: that what was made before a fork is of no use after it in the child (section 3.2). The child has a copy of the memory, of the
//! sockets and of the packet numbers, and none of the threads: an answer from that cache would rest on a lease that nobody there renews or
//! loses, a datagram would repeat a packet number, and a lock of the library may be held by a thread that is not there. Implements
//! `wire-spec.md` section 11.6. What is found out when: a child made by `fork`, and by what the C library makes of it (`daemon`,
//! `forkpty`), at every use: a handler that the C library runs in the child tells, which costs nothing until then, where a system call for
//! the process id would cost more than an answer from cache. `_Fork` and a bare `clone` run no handlers; a child made by one of them is
//! found out by its process id: when a lock is asked for, when a guard is asked how certain it is, when something goes to the server, when
//! the driver would be woken, and before a lock of this library, a call, a guard or a watcher is waited for. So nothing there has a lock,
//! waits or is sent; only what the cache holds it may read until the copied lease ends, which nobody renews.

use crate::error::{Cause, Error};
use forkguard::atfork::Guard;
use std::sync::{LockResult, Mutex, MutexGuard, TryLockError};

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

    /// Another process, of which this one is a fork without the C library's handlers having been run.
    #[cfg(test)]
    pub(crate) fn elsewhere() -> Self {
        Self { process: std::process::id() + 1, ..Self::here() }
    }

    /// Whether this process is a fork of the one that made the client, made by the C library with its handlers.
    pub(crate) fn is_elsewhere(&self) -> bool {
        // A copy: what one asks must not be answered differently for the next.
        self.guard.clone().map_or_else(|| self.is_another_process(), |mut guard| guard.detected_fork())
    }

    /// The same by the process id, which costs a system call.
    fn is_another_process(&self) -> bool {
        std::process::id() != self.process
    }

    /// An error, if this process is a fork of the one that made the client, made by the C library with its handlers.
    pub(crate) fn check(&self) -> Result<(), Error> {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The state of a session MUST NOT be usable in a forked child.
        if self.is_elsewhere() { Err(self.forked()) } else { Ok(()) }
    }

    /// The same however it was made: before something is waited for or sent, beside which a system call costs nothing, and before a lock
    /// is shown, which nobody may believe in wrongly.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        // In another namespace the process id may be the same.
        if self.is_elsewhere() || self.is_another_process() { Err(self.forked()) } else { Ok(()) }
    }

    /// Takes a lock of this library. Where that has to be waited for, in a fork perhaps for a thread that is not there, that is an error.
    pub(crate) fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> Result<LockResult<MutexGuard<'m, T>>, Error> {
        match mutex.try_lock() {
            Ok(held) => Ok(Ok(held)),
            Err(TryLockError::Poisoned(poisoned)) => Ok(Err(poisoned)),
            Err(TryLockError::WouldBlock) => self.check_process().map(|()| mutex.lock()),
        }
    }

    fn forked(&self) -> Error {
        Cause::Forked { made_in: self.process }.into()
    }
}
