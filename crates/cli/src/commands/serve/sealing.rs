//! The sealed mode of a server: its keys, the threads that compute handshakes with them, and the first operator.
//!
//! Decides: a server with a key speaks sealed only, unless it was told to speak in clear. Place in the walk: beside the store, after the machine took
//! what had arrived, so that what a thread has done leaves with the turn that it wakes.
//! SIGHUP has keys and roster read again, in a thread of its own: a roster that is older than the one in force, or another cluster's, changes nothing.
//! Leaves to others: who costs the server a Diffie-Hellman (`cistern_server`), the computing (`cistern_driver::SealWorkers`).

use super::kept::Bell;
use crate::execute::EXIT_SOFTWARE;
use crate::local::Failure;
use cistern_credentials::{OPERATOR_FILE, ServerKeys};
use cistern_driver::SealWorkers;
use cistern_link::Instant;
use cistern_seal::{Cipher, KeySink, PublicKey, SecretKey, StartKey};
use cistern_server::principals::Rights;
use cistern_server::{Server, ServerRoster};
use cistern_trust::{Offered, Pinned};
use cistern_wire::Realm;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    in_force: Arc<KeysInForce>,
    /// Is to be admitted as soon as the server serves.
    operator: Option<PublicKey>,
}

impl Sealing {
    /// Starts the threads, and puts the server into the sealed mode.
    ///
    /// # Errors
    /// There is no room for a thread, or no randomness.
    pub(super) fn start(
        keys: &ServerKeys,
        in_force: &Arc<KeysInForce>,
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
        let start = cistern_driver::seed()
            .map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, format!("no key of this start without randomness: {e}")))?;
        let mut server = server.sealed(&public, StartKey::from_bytes(start), Cipher::default());
        server.set_roster(now, roster_of(&keys.pinned));
        in_force.begin(keys);
        Ok((Self { workers, in_force: Arc::clone(in_force), operator: keys.operator }, server))
    }

    /// Takes up what was read again.
    fn adopt(&mut self, server: &mut Server, now: Instant) {
        let Some(keys) = self.in_force.state().1.take() else { return };
        // The threads first: what names a key that they do not have fails.
        self.workers.set_keys(&keys.keys);
        server.set_keys(now, &keys.keys.iter().map(SecretKey::public).collect::<Vec<_>>());
        server.set_roster(now, roster_of(&keys.pinned));
    }

    /// Admits the first operator, who may do everything, unless it was revoked. One that is known has what was made of it since, also if another
    /// key has followed this one.
    fn admit_operator(&mut self, server: &mut Server, now: Instant) {
        if let Some(key) = self.operator.take_if(|_| server.is_serving())
            && !server.knows_key(key.as_bytes())
        {
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
        self.adopt(server, now);
        while let Some(done) = self.workers.done() {
            server.seal_done(now, done);
        }
        self.admit_operator(server, now);
        self.hand_over(server);
    }
}

/// The keys and the roster of a running server.
#[derive(Debug)]
pub(super) struct KeysInForce {
    dir: PathBuf,
    /// The cluster, with the roster that is in force or about to be; what was read and is not taken up yet.
    state: Mutex<(Pinned, Option<ServerKeys>)>,
}

impl KeysInForce {
    /// Those of a state directory, with which nothing has started yet.
    pub(super) fn new(dir: &Path, keys: &ServerKeys) -> Arc<Self> {
        Arc::new(Self { dir: dir.to_owned(), state: Mutex::new((keys.pinned.clone(), None)) })
    }

    /// A server starts with these.
    fn begin(&self, keys: &ServerKeys) {
        *self.state() = (keys.pinned.clone(), None);
    }

    /// Reads them again, however long that takes. What is not to be taken changes nothing.
    pub(super) fn reload(&self) {
        let stay = |what: &dyn Display| log::error!("server: SIGHUP: {what}; keys and roster stay as they were");
        let dir = self.dir.display();
        let keys = match ServerKeys::read(&self.dir) {
            Ok(Some(keys)) => keys,
            Ok(None) => return stay(&format_args!("{dir} has no keys any more")),
            Err(error) => return stay(&error),
        };
        let mut state = self.state();
        let (known, pending) = &mut *state;
        if keys.pinned.cluster() != known.cluster() {
            return stay(&format_args!("the roster in {dir} is that of another cluster"));
        }
        let (before, now) = (known.roster().version, keys.pinned.roster().version);
        match known.offer(keys.pinned.signed().as_bytes()) {
            Ok(Offered::Older) => return stay(&format_args!("the roster in {dir} has version {now}, and {before} is in force")),
            Ok(Offered::Taken) => log::info!("server: SIGHUP: roster {now} is in force from now on"),
            Ok(Offered::Known) => {}
            Err(error) => return stay(&error),
        }
        *pending = Some(keys);
    }

    fn state(&self) -> MutexGuard<'_, (Pinned, Option<ServerKeys>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
