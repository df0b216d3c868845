//! Keys that were revoked, in two places: the store, and a log beside the server's key.
//!
//! Decides: that both have all of them, so that neither a restore of the store nor the loss of the log revives one. Before it serves the server knows
//! what the log has; before an operator is told of a revocation the log has what the store has.
//! Leaves to others: the log (`cistern_credentials`), what follows from a revocation (`cistern_server`).

use crate::execute::EXIT_STORE;
use crate::local::Failure;
use cistern_credentials::{CredentialError, REVOKED_LOG, RevokedFile};
use cistern_link::Instant;
use cistern_seal::PublicKey;
use cistern_server::Server;
use cistern_trust::Revocations;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The log, of a server that has keys or keeps its store.
#[derive(Debug)]
pub(super) struct RevokedLog {
    file: Option<RevokedFile>,
    /// It has all that the store had when the server started.
    united: bool,
}

impl RevokedLog {
    /// Opens the log in the state directory, if it is `needed`: by a server that keeps its store, and by one that has keys, for it admits the
    /// first operator at each start, also into an empty store.
    ///
    /// # Errors
    /// The log is damaged, or cannot be used: nothing is served then, for a key that is overlooked would be good again.
    pub(super) fn open(state: &Path, needed: bool) -> Result<Self, Failure> {
        let file = if needed { Some(RevokedFile::open(&state.join(REVOKED_LOG))?) } else { None };
        Ok(Self { file, united: false })
    }

    /// Tells a server, before its first turn.
    pub(super) fn tell(&mut self, server: &mut Server, now: Instant) {
        self.united = false;
        if let Some(file) = &self.file {
            server.know_revoked(now, file.keys().iter().map(|(key, _)| *key.as_bytes()));
        }
    }

    /// Adds what the store has besides, once, when the server serves.
    ///
    /// # Errors
    /// The log cannot be written.
    pub(super) fn unite_once(&mut self, server: &Server) -> Result<(), Failure> {
        if self.united || !server.is_serving() {
            return Ok(());
        }
        self.unite(server)?;
        self.united = true;
        Ok(())
    }

    /// Adds what the store has besides.
    ///
    /// # Errors
    /// The log cannot be written.
    pub(super) fn unite(&mut self, server: &Server) -> Result<(), Failure> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut revoked = Revocations::default();
        for key in server.revoked_keys() {
            revoked.insert(PublicKey::from_bytes(key), now_s);
        }
        let failed = |e: CredentialError| {
            Failure::new(
                "STORE",
                EXIT_STORE,
                format!("{e}; what was revoked is so in the store, but a restore of a backup would revive it"),
            )
        };
        file.unite(&revoked).map(drop).map_err(failed)
    }
}
