//! What a server keeps its store in: a directory, etcd, or memory.
//!
//! Decides: which of these is chosen on the command line, and how each is served by the loop: work out, events in, until there is
//! neither. Place in the walk: after the machine took what had arrived, before it is asked what to send.
//! Invariant: a failure of the store is known to the machine before anything more is sent (section 11.7).
//! Leaves to others: the stores (`cistern_store`).

use super::Serve;
use crate::local::Failure;
use crate::on_etcd::{self, StoredServers};
use cistern_driver::Handle;
use cistern_link::Instant;
use cistern_server::Server;
use cistern_store::{BackupSource, CommitStats, DurableStore, Making, MemoryStore, Options, SpaceLimits};
use cistern_wire::StoreId;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Wakes the loop, once there is one.
pub(super) type Bell = Arc<OnceLock<Handle>>;

/// A server's store.
#[derive(Debug)]
pub(super) enum Kept {
    /// In memory: a new one at each start.
    Volatile(MemoryStore),
    /// In a directory.
    Durable(DurableStore),
    /// On etcd.
    #[cfg(feature = "etcd")]
    Etcd(cistern_store_etcd::EtcdStore),
}

impl Kept {
    /// Opens the store that was chosen; `fresh` is the id of one in memory.
    pub(super) fn open(args: &Serve, fresh: StoreId, bell: &Bell) -> Result<(Self, StoreId), Failure> {
        let Some(dir) = &args.store else { return Ok((Self::Volatile(MemoryStore::new()), fresh)) };
        if on_etcd::is_named(dir) {
            return Self::open_etcd(args, dir, bell);
        }
        let space = SpaceLimits { limit: args.store_limit, reserve: args.store_reserve };
        let options = Options { space, ..Options::new(Making::Never) };
        let store = DurableStore::open(dir, &options, waker(bell))?;
        let id = store.id();
        Ok((Self::Durable(store), id))
    }

    #[cfg(feature = "etcd")]
    fn open_etcd(args: &Serve, name: &Path, bell: &Bell) -> Result<(Self, StoreId), Failure> {
        if args.store_limit.is_some() {
            return Err(Failure::usage(
                "--store-limit is for a store in a directory; the name of one on etcd says etcd's quota: ?quota=8G",
            ));
        }
        let store = on_etcd::open(name, waker(bell))?;
        let id = store.id();
        Ok((Self::Etcd(store), id))
    }

    /// Takes the store on etcd for a tenure of the group's lease, which these servers have granted, as long as `may_take`.
    #[cfg(feature = "etcd")]
    pub(super) fn open_elected(
        store: &Path,
        elected_by: StoredServers,
        may_take: impl Fn() -> bool + Send + 'static,
        bell: &Bell,
    ) -> Result<(Self, StoreId), Failure> {
        let store = on_etcd::open_elected(store, elected_by, may_take, waker(bell))?;
        let id = store.id();
        Ok((Self::Etcd(store), id))
    }

    #[cfg(not(feature = "etcd"))]
    pub(super) fn open_elected(
        store: &Path,
        _: StoredServers,
        _: impl Fn() -> bool + Send + 'static,
        _: &Bell,
    ) -> Result<(Self, StoreId), Failure> {
        Err(on_etcd::is_built(store).err().unwrap_or_else(|| Failure::failed("built without the store on etcd")))
    }

    #[cfg(not(feature = "etcd"))]
    fn open_etcd(_: &Serve, name: &Path, _: &Bell) -> Result<(Self, StoreId), Failure> {
        Err(on_etcd::is_built(name).err().unwrap_or_else(|| Failure::failed("built without the store on etcd")))
    }

    /// What a backup of a store in a directory is made of.
    ///
    /// # Errors
    /// The store is somewhere else: what to do instead.
    pub(super) fn backup_source(&self) -> Result<BackupSource, Failure> {
        match self {
            Self::Volatile(_) => Err(Failure::failed("the server keeps everything in memory (--volatile): there is nothing to back up")),
            Self::Durable(store) => Ok(store.backup_source()),
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => Err(Failure::failed("the store is on etcd, which makes backups of its own: `etcdctl snapshot save FILE`")),
        }
    }

    /// The servers of the group that shares the store, when it was taken.
    #[cfg_attr(not(feature = "etcd"), allow(clippy::unused_self, reason = "a directory is not shared"))]
    pub(super) fn servers(&self) -> Option<StoredServers> {
        match self {
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => store.servers().map(|list| (list.number, list.servers.clone())),
            _ => None,
        }
    }

    /// Writes the next list of these servers, as long as the store is this server's.
    #[cfg_attr(not(feature = "etcd"), allow(clippy::unused_self, unused_variables, reason = "a directory is not shared"))]
    pub(super) fn change_servers(&mut self, list: StoredServers) {
        #[cfg(feature = "etcd")]
        if let Self::Etcd(store) = self {
            store.change_servers(cistern_store_etcd::ServerList { number: list.0, servers: list.1 });
        }
    }

    /// Whether the store has failed because another server has taken it.
    #[cfg_attr(not(feature = "etcd"), allow(clippy::unused_self, reason = "a directory is locked"))]
    pub(super) fn was_superseded(&self) -> bool {
        match self {
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => store.was_superseded(),
            _ => false,
        }
    }

    /// What a store that outlives the process has done.
    pub(super) fn stats(&self) -> Option<CommitStats> {
        match self {
            Self::Volatile(_) => None,
            Self::Durable(store) => Some(store.stats()),
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => Some(store.stats()),
        }
    }

    /// Hands work over within a turn, if there is much of it already.
    pub(super) fn hand_over_early(&mut self, server: &mut Server) {
        // A store in memory works in this very thread: nothing is gained by giving it something earlier.
        let Self::Durable(store) = self else { return };
        if store.wants_early(server.pending_writes()) {
            while let Some(work) = server.poll_effect() {
                store.take(work);
            }
        }
    }

    /// Hands work over and events back, until there is neither.
    pub(super) fn serve(&mut self, server: &mut Server, now: Instant) {
        match self {
            // A store in memory answers at once, so nothing waits for the next turn.
            Self::Volatile(store) => {
                while let Some(work) = server.poll_effect() {
                    for event in store.take(work) {
                        server.store_event(now, event);
                    }
                }
            }
            Self::Durable(store) => loop {
                while let Some(event) = store.event() {
                    server.store_event(now, event);
                }
                let Some(work) = server.poll_effect() else { return };
                store.take(work);
            },
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => loop {
                while let Some(event) = store.event() {
                    server.store_event(now, event);
                }
                let Some(work) = server.poll_effect() else { return };
                store.take(work);
            },
        }
    }
}

/// What a store's threads call when there are events to take.
fn waker(bell: &Bell) -> impl Fn() + Send + Sync + 'static {
    let bell = Arc::clone(bell);
    move || {
        // Before the loop runs, nothing was asked.
        if let Some(handle) = bell.get() {
            handle.wake();
        }
    }
}
