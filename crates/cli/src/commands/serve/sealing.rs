//! The sealed mode of a server: its key, and the threads that compute handshakes with it.
//!
//! Decides: a server with a key speaks sealed only, unless it was told to speak in clear. Place in the walk: beside the store, after the machine took
//! what had arrived, so that what a thread has done leaves with the turn that it wakes.
//! Leaves to others: who costs the server a Diffie-Hellman (`cistern_server`), the computing (`cistern_driver::SealWorkers`).

use super::kept::Bell;
use crate::execute::EXIT_SOFTWARE;
use crate::local::Failure;
use cistern_credentials::{SERVER_KEY, read_key};
use cistern_driver::SealWorkers;
use cistern_driver::private::Others;
use cistern_link::Instant;
use cistern_seal::key::Role;
use cistern_seal::{Cipher, PublicKey, SecretKey};
use cistern_server::Server;
use std::path::Path;

/// The key in a server's state directory, if there is one, and the server is not to speak in clear.
///
/// # Errors
/// It cannot be used: then nothing is served.
pub(super) fn read_key_of(state: &Path, insecure: bool) -> Result<Option<SecretKey>, Failure> {
    if insecure {
        return Ok(None);
    }
    match read_key(&state.join(SERVER_KEY), Role::Server, Others::Nothing) {
        Ok(key) => Ok(Some(key)),
        Err(e) if e.is_missing() => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// What a server in the sealed mode has besides.
#[derive(Debug)]
pub(super) struct Sealing {
    workers: SealWorkers,
}

impl Sealing {
    /// Starts the threads, and puts the server into the sealed mode.
    ///
    /// # Errors
    /// There is no room for a thread.
    pub(super) fn start(key: &SecretKey, server: Server, bell: &Bell) -> Result<(Self, Server), Failure> {
        let bell = bell.clone();
        let wake = move || {
            // Before the loop runs, nothing was asked.
            if let Some(handle) = bell.get() {
                handle.wake();
            }
        };
        let workers = SealWorkers::start(std::slice::from_ref(key), wake)
            .map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, format!("threads for handshakes: {e}")))?;
        let public: [PublicKey; 1] = [key.public()];
        Ok((Self { workers }, server.sealed(&public, Cipher::default())))
    }

    /// Gives the threads what they have room for; the rest keeps the turns that hosts have with the server.
    pub(super) fn hand_over(&mut self, server: &mut Server) {
        while self.workers.has_room()
            && let Some(work) = server.poll_seal_work()
        {
            self.workers.take(work);
        }
    }

    /// Hands back what is done, and over what is to be done.
    pub(super) fn serve(&mut self, server: &mut Server, now: Instant) {
        while let Some(done) = self.workers.done() {
            server.seal_done(now, done);
        }
        self.hand_over(server);
    }
}
