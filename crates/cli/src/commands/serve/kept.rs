//! What a server keeps its store in: a directory, or memory.
//!
//! Decides: which of the two is chosen on the command line, and how each is served by the loop: work out, events in, until there is
//! neither. Place in the walk: after the machine took what had arrived, before it is asked what to send.
//! Invariant: a failure of the store is known to the machine before anything more is sent (section 11.7).
//! Leaves to others: the stores (`cistern_store`).

use super::Serve;
use crate::local::Failure;
use cistern_driver::Handle;
use cistern_link::Instant;
use cistern_server::Server;
use cistern_store::{BackupSource, CommitStats, DurableStore, Making, MemoryStore, Options, SpaceLimits};
use cistern_wire::StoreId;
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
}

impl Kept {
    /// Opens the store that was chosen; `fresh` is the id of one in memory.
    pub(super) fn open(args: &Serve, fresh: StoreId, bell: &Bell) -> Result<(Self, StoreId), Failure> {
        let Some(dir) = &args.store else { return Ok((Self::Volatile(MemoryStore::new()), fresh)) };
        let space = SpaceLimits { limit: args.store_limit, reserve: args.store_reserve };
        let options = Options { space, ..Options::new(Making::Never) };
        let bell = Arc::clone(bell);
        let store = DurableStore::open(dir, &options, move || {
            // Before the loop runs, nothing was asked.
            if let Some(handle) = bell.get() {
                handle.wake();
            }
        })?;
        let id = store.id();
        Ok((Self::Durable(store), id))
    }

    /// What a backup of a store in a directory is made of.
    pub(super) fn backup_source(&self) -> Option<BackupSource> {
        match self {
            Self::Volatile(_) => None,
            Self::Durable(store) => Some(store.backup_source()),
        }
    }

    /// What a store in a directory has done.
    pub(super) fn stats(&self) -> Option<CommitStats> {
        match self {
            Self::Volatile(_) => None,
            Self::Durable(store) => Some(store.stats()),
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
        }
    }
}
