//! Threads that take stores and give them back: both may wait for etcd, and the loop must not.
//!
//! Decides that a store is taken only as long as the tenure for which it is wanted is certain by this thread's own look at the clock: the process may
//! have stood still since the loop looked. Keys are read anew for each core, for they may have changed since the last.

use super::super::guests::ServerGuests;
use super::super::kept::{Bell, Kept};
use super::super::sealing::read_keys_of;
use crate::local::Failure;
use crate::on_etcd::StoredServers;
use cistern_credentials::ServerKeys;
use cistern_driver::{Clock, Handle};
use cistern_group::TenureId;
use cistern_link::Instant;
use cistern_wire::StoreId;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

/// A store that was taken for a tenure, with the keys of its core.
pub(super) struct Opened {
    pub(super) tenure: TenureId,
    pub(super) came: Result<((Kept, StoreId), Option<ServerKeys>), Failure>,
}

/// The tenure that there is, and until when it is certain.
type Certain = Option<(TenureId, Instant)>;

/// Who takes stores.
pub(super) struct Opener {
    store: PathBuf,
    state: PathBuf,
    insecure: bool,
    bell: Bell,
    clock: Clock,
    certain: Arc<Mutex<Certain>>,
    say: Sender<Opened>,
    opened: Receiver<Opened>,
}

impl Opener {
    pub(super) fn new(store: PathBuf, state: &Path, insecure: bool, guests: &ServerGuests) -> Self {
        let (say, opened) = channel();
        let (bell, clock) = (guests.bell.clone(), guests.clock.clone());
        Self { store, state: state.to_owned(), insecure, bell, clock, certain: Arc::default(), say, opened }
    }

    /// Says which tenure there is, after each turn.
    pub(super) fn certain(&self, certain: Certain) {
        *self.certain.lock().unwrap_or_else(PoisonError::into_inner) = certain;
    }

    /// The keys of this server as they are now, and the roster of its cluster.
    pub(super) fn keys(&self) -> Result<Option<ServerKeys>, Failure> {
        read_keys_of(&self.state, self.insecure)
    }

    /// Begins to take the store for a tenure, which these servers have granted; what comes of it is told by [`Self::opened`].
    pub(super) fn open(&self, tenure: TenureId, elected_by: StoredServers) {
        let Self { store, state, insecure, bell, say, .. } = self;
        let (store, state, insecure, bell, say) = (store.clone(), state.clone(), *insecure, bell.clone(), say.clone());
        let (certain, clock) = (Arc::clone(&self.certain), self.clock.clone());
        let may_take = move || {
            let certain = *certain.lock().unwrap_or_else(PoisonError::into_inner);
            certain.is_some_and(|(of, until)| of == tenure && !clock.now().lease_over(until))
        };
        let take = move || {
            let keys = read_keys_of(&state, insecure);
            let came = keys.and_then(|keys| Ok((Kept::open_elected(&store, elected_by, may_take, &bell)?, keys)));
            // Fails only when the loop is gone.
            let _ = say.send(Opened { tenure, came });
            bell.get().into_iter().for_each(Handle::wake);
        };
        if let Err(e) = Builder::new().name("store-opener".to_owned()).spawn(take) {
            // The lease is given back when its time for that is over.
            log::error!("no thread to open the store: {e}");
        }
    }

    /// What has come of it.
    pub(super) fn opened(&self) -> Option<Opened> {
        self.opened.try_recv().ok()
    }

    /// Gives back what a core had.
    pub(super) fn close(backing: impl Send + 'static) {
        if let Err(e) = Builder::new().name("store-closer".to_owned()).spawn(move || drop(backing)) {
            log::error!("no thread to close the store: {e}");
        }
    }
}
