//! The roster of the cluster's servers, between the agent, which fetches a newer one, and whoever keeps it.
//!
//! Decides: that a roster is judged in a thread of its own, for files are written and names looked up on the way, and leases do not wait;
//! that a client which closes waits for it, so that a program which asks once and ends has it, too.

use crate::hub::Hub;
use cistern_link::Instant;
use cistern_seal::PublicKey;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::Builder;

/// What a [`RosterKeeper`] takes from a roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// The roster's version.
    pub version: u32,
    /// Keys by which the server may be addressed, and where, in the order in which they are tried; empty: they stay.
    pub keys: Vec<KeyAt>,
    /// Where it is, besides where it was.
    pub addresses: Vec<SocketAddr>,
}

/// A key by which a server may be addressed, and where: servers of a group each have one of their own. Nowhere: wherever the server is.
pub type KeyAt = (PublicKey, Vec<SocketAddr>);

/// Whoever keeps the roster of a cluster's servers for a client.
pub trait RosterKeeper: Debug + Send + Sync {
    /// The version that is there.
    fn version(&self) -> u32;

    /// Keys by which the server may be addressed, and where, instead of the one of [`Builder::key`](crate::Builder::key); none: that is the only one.
    fn keys(&self) -> Vec<KeyAt>;

    /// Takes a roster with its signature; `None`: it is not to be believed, or not newer. Called in a thread of its own, which may wait.
    fn take(&self, signed: &[u8]) -> Option<Servers>;
}

/// Rings when it is dropped, which a panic does, too; by then nobody counts it any more.
struct Judging<F: Fn()>(Option<Arc<()>>, F);

impl<F: Fn()> Drop for Judging<F> {
    fn drop(&mut self) {
        self.0 = None;
        (self.1)();
    }
}

/// Hands what the agent has fetched to the keeper, and what that makes of it to the agent; then rings. Gives what lives as long as that takes.
pub(crate) fn judge(
    keeper: &Arc<dyn RosterKeeper>,
    hub: Weak<Mutex<Hub>>,
    (now, ring): (impl Fn() -> Instant + Send + 'static, impl Fn() + Send + 'static),
    signed: Vec<u8>,
) -> Weak<()> {
    let (keeper, alive) = (Arc::clone(keeper), Arc::new(()));
    let under_way = Arc::downgrade(&alive);
    let judging = Judging(Some(alive), ring);
    let judged = Builder::new().name("cistern-roster".to_owned()).spawn(move || {
        let _judging = judging;
        if let (Some(Servers { version, keys, addresses }), Some(hub)) = (keeper.take(&signed), hub.upgrade()) {
            let servers = cistern_agent::Servers { version, keys, addresses };
            // After a panic the agent ends anyway.
            hub.lock().unwrap_or_else(PoisonError::into_inner).agent.set_servers(now(), servers);
        }
    });
    if let Err(error) = judged {
        log::warn!("a newer roster is not looked at: {error}");
    }
    under_way
}
