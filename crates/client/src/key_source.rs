//! A key that another one may follow while the agent lives.

use cistern_seal::handshake::HandshakeFailed;
use cistern_seal::work::{Beginning, Handshaker, KeyHolder};
use cistern_seal::{Chain, Entropy, SecretKey};
use std::fmt::Debug;
use std::sync::Arc;

/// Whoever keeps a client's own key.
pub trait KeySource: Debug + Send + Sync {
    /// The key as it is now; `None`: it cannot be read, and the one of before is used. Called by the agent's thread, in which leases are renewed: a small
    /// file may be read, and nothing be waited for.
    fn key(&self) -> Option<SecretKey>;
}

/// Does handshakes with the key that its source has when they begin.
pub(crate) struct CurrentKey<R> {
    pub(crate) holder: KeyHolder<R>,
    /// None: the key stays.
    pub(crate) source: Option<Arc<dyn KeySource>>,
}

impl<R: FnMut() -> Entropy> Handshaker for CurrentKey<R> {
    fn begin(&mut self, beginning: &Beginning<'_>, prologue: &[u8], payload: &[u8]) -> Result<Vec<u8>, HandshakeFailed> {
        if let Some(key) = self.source.as_ref().and_then(|source| source.key()) {
            self.holder.set_key(key);
        }
        self.holder.begin(beginning, prologue, payload)
    }

    fn finish(&mut self, message: &[u8]) -> Result<(Vec<u8>, Chain), HandshakeFailed> {
        self.holder.finish(message)
    }
}
