//! The sealed mode of a server: its keys, the threads that compute handshakes with them, and the first operator.
//!
//! Decides: a server with a key speaks sealed only, unless it was told to speak in clear. Place in the walk: beside the store, after the machine took
//! what had arrived, so that what a thread has done leaves with the turn that it wakes.
//! Leaves to others: who costs the server a Diffie-Hellman (`cistern_server`), the computing (`cistern_driver::SealWorkers`).

use super::kept::Bell;
use crate::execute::EXIT_SOFTWARE;
use crate::local::Failure;
use cistern_credentials::{OPERATOR_FILE, ServerKeys};
use cistern_driver::SealWorkers;
use cistern_link::Instant;
use cistern_seal::{Cipher, KeySink, PublicKey, SecretKey};
use cistern_server::principals::Rights;
use cistern_server::{Server, ServerRoster};
use cistern_trust::Pinned;
use cistern_wire::Realm;
use std::path::Path;

/// The keys in a server's state directory, if there are any, and the server is not to speak in clear.
///
/// # Errors
/// They cannot be used: then nothing is served.
pub(super) fn read_keys_of(state: &Path, insecure: bool) -> Result<Option<ServerKeys>, Failure> {
    if insecure { Ok(None) } else { Ok(ServerKeys::read(state)?) }
}

/// What agents are told of the cluster.
fn roster_of(pinned: &Pinned) -> ServerRoster {
    let (cluster, signed) = (*pinned.cluster().as_bytes(), pinned.signed());
    ServerRoster { cluster, version: signed.roster().version, signed: signed.as_bytes().into() }
}

/// The name of the first operator.
const OPERATOR: &str = "operator";

/// What a server in the sealed mode has besides.
#[derive(Debug)]
pub(super) struct Sealing {
    workers: SealWorkers,
    /// Is to be admitted as soon as the server serves.
    operator: Option<PublicKey>,
}

impl Sealing {
    /// Starts the threads, and puts the server into the sealed mode.
    ///
    /// # Errors
    /// There is no room for a thread.
    pub(super) fn start(
        keys: &ServerKeys,
        log: Option<&KeySink>,
        server: Server,
        bell: &Bell,
        now: Instant,
    ) -> Result<(Self, Server), Failure> {
        let bell = bell.clone();
        let wake = move || {
            // Before the loop runs, nothing was asked.
            if let Some(handle) = bell.get() {
                handle.wake();
            }
        };
        let workers = SealWorkers::start(&keys.keys, log, wake)
            .map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, format!("threads for handshakes: {e}")))?;
        let public: Vec<PublicKey> = keys.keys.iter().map(SecretKey::public).collect();
        let mut server = server.sealed(&public, Cipher::default());
        server.set_roster(now, roster_of(&keys.pinned));
        Ok((Self { workers, operator: keys.operator }, server))
    }

    /// Admits the first operator, who may do everything, unless it is known or was revoked.
    fn admit_operator(&mut self, server: &mut Server, now: Instant) {
        if let Some(key) = self.operator.take_if(|_| server.is_serving()) {
            let rights = [(Realm::TREE, Rights::ALL)];
            if let Err(status) = server.admit_key(now, OPERATOR.as_bytes(), *key.as_bytes(), true, &rights) {
                log::warn!(
                    "the key in {OPERATOR_FILE} is not that of an operator: {status}; `cistern admin admit --operator` admits another"
                );
            }
        }
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
        self.admit_operator(server, now);
        self.hand_over(server);
    }
}
