//! The store on etcd as the server's loop sees it: work in, events out, a thread with a runtime behind.
//!
//! Decides: what a store says that is over, and how long a start waits. Place in the walk: as `cistern_store::DurableStore`.
//! Invariant: whatever ends the thread, the server is told.
//! Leaves to others: everything that is written (`sequencer`), the thread's loop (`engine`), etcd's client (`connection`).

mod connection;
mod counts;
mod engine;
mod probe;
mod space;
mod stopped;

pub use probe::probe;
pub use stopped::{StoppedEtcd, create};

use crate::reason::Reason;
use crate::record::ServerList;
use crate::sequencer::Sequencer;
use crate::target::Target;
use bytes::Bytes;
use cistern_server::store::{BatchId, StoreEvent, StoreWork};
use cistern_store::{CommitStats, OpenError, Problem};
use cistern_wire::StoreId;
use connection::Members;
use counts::Counts;
use engine::{Engine, Opened};
use space::Space;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Time that a former owner is given to notice that it was replaced, before the new one begins to wait for its leases: more than it takes to
/// ask twice ([`engine`]).
const SETTLE: Duration = Duration::from_secs(1);
/// How long a start waits silently for etcd.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whether this server may still take the store from whoever has it: asked before each step of that.
type MayTake = Box<dyn Fn() -> bool + Send>;

/// What the thread is given.
enum Work {
    Store(StoreWork),
    /// Makes this etcd the store's own; durable as this batch.
    Adopt(BatchId),
    /// Changes the servers of the group.
    ChangeServers(ServerList),
}

/// What the thread shares with the server's loop.
struct Shared {
    name: String,
    wake: Box<dyn Fn() + Send + Sync>,
    counts: Counts,
    was_superseded: AtomicBool,
}

impl Shared {
    fn ended(&self, reason: &Reason) {
        self.was_superseded.fetch_or(matches!(reason, Reason::Superseded(_)), Ordering::AcqRel);
    }
}

/// A store on etcd, which this process owns until another one takes it.
pub struct EtcdStore {
    id: StoreId,
    servers: Option<ServerList>,
    shared: Arc<Shared>,
    work: Option<UnboundedSender<Work>>,
    events: Receiver<StoreEvent>,
    thread: Option<JoinHandle<()>>,
    is_over: bool,
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl EtcdStore {
    /// Takes the store from whoever has it. `owner` names this start, and no other one. Waits for etcd as long as it takes. `wake` is
    /// called from the store's thread when there are events to take; it must not block.
    ///
    /// # Errors
    /// [`OpenError`]: there is none, it is something else, etcd was restored; nothing was changed then.
    pub fn open(target: &Target, owner: &str, wake: impl Fn() + Send + Sync + 'static) -> Result<Self, OpenError> {
        let (store, had_owner) = Self::start(target, sequencer(target, owner), || true, wake)?;
        if had_owner {
            thread::sleep(SETTLE);
        }
        Ok(store)
    }

    /// As [`Self::open`], for the server of a group that these have elected, as long as `may_take`: the lease of the group says that the former
    /// owner has stopped, so nothing is waited for.
    ///
    /// # Errors
    /// As [`Self::open`]; or it must not be taken any more.
    pub fn open_elected(
        target: &Target,
        owner: &str,
        elected_by: ServerList,
        may_take: impl Fn() -> bool + Send + 'static,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        Ok(Self::start(target, sequencer(target, owner).elected_by(elected_by), may_take, wake)?.0)
    }

    /// The servers of the group that shares it, when it was taken.
    #[must_use]
    pub const fn servers(&self) -> Option<&ServerList> {
        self.servers.as_ref()
    }

    /// Changes the servers of the group, if this is the list after the one that the store has; whoever looks sees when it is done.
    pub fn change_servers(&mut self, list: ServerList) {
        self.give(Work::ChangeServers(list));
    }

    /// Gives also whether there was an owner.
    fn start(
        target: &Target,
        sequencer: Sequencer,
        may_take: impl Fn() -> bool + Send + 'static,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<(Self, bool), OpenError> {
        let members = Arc::new(members(target)?);
        let (work, to_do) = unbounded_channel();
        let (say, events) = channel();
        let (opened, waits) = channel::<Opened>();
        let (counts, space) = (Counts::default(), Space::new(target.quota));
        counts.space(&space);
        let shared = Arc::new(Shared { name: target.to_string(), wake: Box::new(wake), counts, was_superseded: AtomicBool::new(false) });
        let engine = Engine {
            sequencer,
            members: Arc::clone(&members),
            keys: target.keys.clone(),
            work: to_do,
            say,
            opened: Some(opened),
            shared: Arc::clone(&shared),
            space,
            compacts: target.compacts,
            may_take: Box::new(may_take),
        };
        let runtime = runtime().map_err(|e| io_error(target, &e))?;
        let thread = Builder::new().name("store-etcd".to_owned()).spawn(move || runtime.block_on(engine.run()));
        let thread = thread.map_err(|e| io_error(target, &e))?;
        let (id, had_owner, servers) = loop {
            match waits.recv_timeout(PATIENCE) {
                Ok(Ok(opened)) => break opened,
                Ok(Err(reason)) => return Err(error(target, &reason)),
                Err(RecvTimeoutError::Timeout) => log::warn!("{target}: waits for etcd: {}", members.trouble()),
                Err(RecvTimeoutError::Disconnected) => return Err(error(target, &Reason::Broken("its thread has ended".to_owned()))),
            }
        };
        Ok((Self { id, servers, shared, work: Some(work), events, thread: Some(thread), is_over: false }, had_owner))
    }

    /// The store's id.
    #[must_use]
    pub const fn id(&self) -> StoreId {
        self.id
    }

    /// Takes a piece of work; never waits for etcd. What comes of it are events.
    pub fn take(&mut self, work: StoreWork) {
        self.give(Work::Store(work));
    }

    fn give(&self, work: Work) {
        // The thread ends only when it has said why.
        let _ = self.work.as_ref().map(|to| to.send(work));
    }

    /// The next event, if there is one; never waits.
    pub fn event(&mut self) -> Option<StoreEvent> {
        match self.events.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => self.gone(),
        }
    }

    /// The next event; waits for it at most so long.
    pub fn event_within(&mut self, most: Duration) -> Option<StoreEvent> {
        match self.events.recv_timeout(most) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => self.gone(),
        }
    }

    /// Without its thread nothing is durable any more; told once.
    fn gone(&mut self) -> Option<StoreEvent> {
        let is_first = !std::mem::replace(&mut self.is_over, true);
        is_first.then(|| StoreEvent::Broken(format!("store {}: its thread has ended, a defect of cistern", self.shared.name)))
    }

    /// Whether it is over because another server has taken it.
    #[must_use]
    pub fn was_superseded(&self) -> bool {
        self.shared.was_superseded.load(Ordering::Acquire)
    }

    /// What was committed so far. The space is that of etcd's database and its quota.
    #[must_use]
    pub fn stats(&self) -> CommitStats {
        self.shared.counts.stats()
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

fn sequencer(target: &Target, owner: &str) -> Sequencer {
    Sequencer::new(target.keys.clone(), Bytes::from(owner.to_owned()))
}

fn members(target: &Target) -> Result<Members, OpenError> {
    Members::new(target).map_err(|what| OpenError { problem: Problem::Permission, dir: name(target), what })
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn name(target: &Target) -> PathBuf {
    target.to_string().into()
}

fn io_error(target: &Target, e: &io::Error) -> OpenError {
    OpenError { problem: Problem::Io, dir: name(target), what: e.to_string() }
}

fn error(target: &Target, reason: &Reason) -> OpenError {
    let problem = match reason {
        Reason::Missing => Problem::Missing,
        Reason::Foreign(_) => Problem::Foreign,
        Reason::Superseded(_) | Reason::TooLate | Reason::OtherServers(_) => Problem::InUse,
        Reason::Restored | Reason::WentBack => Problem::Copy,
        Reason::Broken(_) => Problem::Io,
    };
    OpenError { problem, dir: name(target), what: reason.to_string() }
}
