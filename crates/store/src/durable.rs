//! The store on disk: threads around the engine, so that the server's loop waits for neither.
//!
//! Decides: that all batches which wait when a commit begins are one transaction with one sync (group commit), that questions are
//! answered by threads of their own, and what ends the store for good. Place in the walk: the driver hands it work after each turn and
//! takes its events before the next. Implements `wire-spec.md` section 11.7.
//! Invariants: a batch is reported durable after the sync of its transaction, and after all before it; after a failed write or sync
//! nothing is written and nothing reported durable any more; the directory's lock is held until the last thread has ended.
//! Leaves to others: files (`engine`, `place`), what is held back until when (`cistern_server::durability`).

mod threads;

use crate::early::Gathering;
use crate::engine::{Engine, MEMTABLE};
use crate::error::OpenError;
use crate::place::{Making, Purpose, StoreDirectory};
use crate::space::{Gauge, Seen, SpaceLimits};
use crate::spare::{Spare, make_way};
use crate::stopped::{Entries, copy};
use crate::witness::Witness;
use cistern_server::store::{Batch, Query, StoreEvent, StoreWork};
use cistern_wire::StoreId;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether it may be made.
    pub making: Making,
    /// Memory for blocks that were read, in bytes.
    pub cache_bytes: u64,
    /// If it is made: bytes of changes that are kept in memory and journals only, before they become a table; it keeps to that for good.
    pub memtable_bytes: u64,
    /// Threads that answer questions; at least 1.
    pub readers: usize,
    /// Bounds on its space.
    pub space: SpaceLimits,
}

impl Options {
    /// 128 MiB of cache, 32 MiB of changes, two readers, no bound.
    #[must_use]
    pub fn new(making: Making) -> Self {
        Self { making, cache_bytes: 128 << 20, memtable_bytes: MEMTABLE, readers: 2, space: SpaceLimits::default() }
    }
}

/// A store in a directory, held by this process until the value is dropped.
pub struct DurableStore {
    shared: Arc<Shared>,
    batches: Option<Sender<Batch>>,
    events: Receiver<StoreEvent>,
    threads: Vec<JoinHandle<()>>,
    gathering: Gathering,
}

impl std::fmt::Debug for DurableStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DurableStore").field("dir", &self.shared.place.dir()).finish_non_exhaustive()
    }
}

impl DurableStore {
    /// Opens the store in a directory, or makes it. `wake` is called from threads of the store when there are events to take; it must
    /// not block.
    ///
    /// # Errors
    /// [`OpenError`]: there is none, it is something else, a copy, damaged, in use, or may not be used; nothing was changed then.
    pub fn open(dir: &Path, options: &Options, wake: impl Fn() + Send + Sync + 'static) -> Result<Self, OpenError> {
        let place = StoreDirectory::take(dir, options.making, Purpose::Serve, |data| Engine::make(data, options.memtable_bytes))?;
        make_way(dir);
        let (engine, number) = Engine::open(&place, options.cache_bytes)?;
        let witness = Witness::open(dir).and_then(|witness| witness.saw(number).map(|()| witness));
        let witness = witness.map_err(|e| OpenError::io(dir, "writing `witness`", &e))?;
        let (batches, to_write) = channel();
        let (say, events) = channel();
        let gauge = Mutex::new(Gauge::new(options.space));
        let shared = Arc::new(Shared {
            engine,
            place,
            say,
            wake: Box::new(wake),
            questions: Mutex::default(),
            asked: Condvar::new(),
            gauge,
            spare: Spare::new(dir, options.space.reserve),
            ended: Mutex::new(false),
            end: Condvar::new(),
            broken: AtomicBool::new(false),
            counts: Counts::default(),
        });
        shared.look_at_space(true);
        let mut store = Self { shared, batches: Some(batches), events, threads: Vec::new(), gathering: Gathering::default() };
        store.start(to_write, witness, number, options.readers.max(1)).map_err(|e| OpenError::io(dir, "starting its threads", &e))?;
        Ok(store)
    }

    /// The store's id.
    #[must_use]
    pub fn id(&self) -> StoreId {
        self.shared.place.id()
    }

    /// Takes a piece of work; never waits for the disk. What comes of it are events.
    pub fn take(&mut self, work: StoreWork) {
        match work {
            StoreWork::Load(queries) => {
                lock(&self.shared.questions).waiting.extend(queries);
                self.shared.asked.notify_all();
            }
            StoreWork::Persist(batch) => {
                self.gathering.over();
                // The writer ends only when it has said why.
                let _ = self.batches.as_ref().map(|batches| batches.send(batch));
            }
        }
    }

    /// The next event, if there is one; never waits.
    pub fn event(&mut self) -> Option<StoreEvent> {
        self.events.try_recv().ok()
    }

    /// The next event; waits for it at most so long.
    pub fn event_within(&mut self, most: Duration) -> Option<StoreEvent> {
        self.events.recv_timeout(most).ok()
    }

    /// What a thread of its own can make a backup of while the server goes on; never waits.
    #[must_use]
    pub fn backup_source(&self) -> BackupSource {
        BackupSource { shared: Arc::clone(&self.shared) }
    }

    /// What was committed so far.
    #[must_use]
    pub fn stats(&self) -> CommitStats {
        self.shared.stats()
    }

    /// Whether a driver that calls it between two datagrams should hand over at once what the server has to write, instead of at the end
    /// of its turn; `pending` is how many keys that are.
    #[must_use]
    pub fn wants_early(&mut self, pending: usize) -> bool {
        let commit = Duration::from_nanos(self.shared.counts.last_nanos.load(Ordering::Relaxed));
        self.gathering.is_enough(pending, commit, Instant::now)
    }

    /// Ends the threads when what was handed over is written, and gives the directory up. As dropping it does.
    pub fn close(self) {}
}

impl Drop for DurableStore {
    fn drop(&mut self) {
        self.batches = None;
        lock(&self.shared.questions).over = true;
        *lock(&self.shared.ended) = true;
        self.shared.asked.notify_all();
        self.shared.end.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

/// A store of which a backup is to be made, from any thread.
pub struct BackupSource {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for BackupSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackupSource").finish_non_exhaustive()
    }
}

impl BackupSource {
    /// What is in the store at this moment. Waits while the engine is opened again, which takes as long as the disk takes: not for the
    /// server's loop.
    #[must_use]
    pub fn snapshot(self) -> Backup {
        Backup { entries: Entries::of(&self.shared.engine), shared: self.shared }
    }
}

/// All that a store had at one moment.
pub struct Backup {
    entries: Entries,
    /// The directory is this process's as long as it is read.
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Backup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backup").finish_non_exhaustive()
    }
}

impl Backup {
    /// Writes it as a copy with the same id, which no server goes on from, into a directory that is missing or empty; durable when this returns.
    /// Gives how many keys it has. Takes as long as the disk takes; the server goes on meanwhile.
    ///
    /// # Errors
    /// [`OpenError`]: the directory is not empty or cannot be written, the store cannot be read, or the copy would leave less than the
    /// reserve free on the store's own file system; what was written is removed then.
    pub fn write_to(&self, dir: &Path) -> Result<u64, OpenError> {
        let reserve = lock(&self.shared.gauge).reserve();
        copy(&self.entries, self.shared.place.id(), self.shared.place.dir(), dir, reserve)
    }
}

/// What the threads share.
struct Shared {
    // Before `place`: the files are closed before the lock is given up.
    engine: Engine,
    place: StoreDirectory,
    say: Sender<StoreEvent>,
    wake: Box<dyn Fn() + Send + Sync>,
    questions: Mutex<Questions>,
    asked: Condvar,
    gauge: Mutex<Gauge>,
    spare: Spare,
    ended: Mutex<bool>,
    end: Condvar,
    broken: AtomicBool,
    counts: Counts,
}

/// Questions that no thread has taken yet.
#[derive(Default)]
struct Questions {
    waiting: VecDeque<Query>,
    over: bool,
}

/// Buckets of spans and of sizes, by powers of two.
const BUCKETS: usize = 24;

#[derive(Default)]
struct Counts {
    commits: AtomicU64,
    batches: AtomicU64,
    writes: AtomicU64,
    bytes: AtomicU64,
    reads: AtomicU64,
    failed_reads: AtomicU64,
    nanos: AtomicU64,
    last_nanos: AtomicU64,
    spans: [AtomicU64; BUCKETS],
    sizes: [AtomicU64; BUCKETS],
}

/// What a store has committed and read since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitStats {
    /// Transactions, each with one sync.
    pub commits: u64,
    /// Batches in them.
    pub batches: u64,
    /// Keys written or deleted.
    pub writes: u64,
    /// Bytes of keys and values written.
    pub bytes: u64,
    /// Questions answered.
    pub reads: u64,
    /// Questions that could not be answered.
    pub failed_reads: u64,
    /// Time spent in commits, in nanoseconds.
    pub nanos: u64,
    /// Commits that took at least 2^n and less than 2^(n+1) microseconds; the first also those below, the last also those above.
    pub spans: [u64; BUCKETS],
    /// Commits of at least 2^n and less than 2^(n+1) batches.
    pub sizes: [u64; BUCKETS],
    /// Bytes that the store takes on disk, when they were counted last.
    pub used: u64,
    /// Bytes that were free on its file system.
    pub free: u64,
    /// Whether it has room for more.
    pub room: bool,
}

impl CommitStats {
    /// Counts one commit of so many batches, which took so long; for stores whose keys, bytes and reads are counted elsewhere.
    pub fn commit(&mut self, span: Duration, batches: u64) {
        self.commits += 1;
        self.batches += batches;
        self.nanos += u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.spans[bucket(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))] += 1;
        self.sizes[bucket(batches)] += 1;
    }
}

/// The place of a number among powers of two.
fn bucket(n: u64) -> usize {
    (n.max(1).ilog2() as usize).min(BUCKETS - 1)
}

impl Shared {
    fn tell(&self, event: StoreEvent) {
        // Nobody listens any more when the store is being dropped.
        let _ = self.say.send(event);
        (self.wake)();
    }

    /// The store is over; the first reason counts.
    fn broke(&self, what: &str) {
        if !self.broken.swap(true, Ordering::AcqRel) {
            self.tell(StoreEvent::Broken(format!(
                "store {}: {what}; the server ends, and nothing that it promised is lost: find out why the disk failed, then start it again",
                self.place.dir().display()
            )));
        }
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Tells the server if there is room no more, or again.
    fn look_at_space(&self, count: bool) {
        // Without the gauge, for the server's loop reads it, and must not wait for the disk.
        let seen = match Seen::of(self.place.dir(), count, &self.spare) {
            Ok(seen) => seen,
            Err(e) => return log::warn!("store {}: its space cannot be looked at: {e}", self.place.dir().display()),
        };
        let changed = {
            let mut gauge = lock(&self.gauge);
            let changed = gauge.take(seen);
            if let Some(room) = changed {
                // With it, for two threads look, and the last word must be the last judgement. Nobody listens any more when the
                // store is being dropped.
                let _ = self.say.send(StoreEvent::Room(room));
            }
            changed
        };
        if let Some(room) = changed {
            self.log_room(room);
            (self.wake)();
        }
    }

    /// The figures behind what the server says of the room.
    fn log_room(&self, room: bool) {
        let (used, free, (least, most)) = {
            let gauge = lock(&self.gauge);
            (gauge.used, gauge.free(), gauge.again())
        };
        let dir = self.place.dir().display();
        let most = most.map_or_else(String::new, |most| format!(" and it takes at most {most}"));
        match room {
            true => log::info!("store {dir}: takes {used} bytes, {free} are free: there is room"),
            false => log::info!("store {dir}: takes {used} bytes, {free} are free; there is room again when {least} bytes are free{most}"),
        }
    }

    fn stats(&self) -> CommitStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let gauge = lock(&self.gauge);
        let counts = &self.counts;
        CommitStats {
            commits: read(&counts.commits),
            batches: read(&counts.batches),
            writes: read(&counts.writes),
            bytes: read(&counts.bytes),
            reads: read(&counts.reads),
            failed_reads: read(&counts.failed_reads),
            nanos: read(&counts.nanos),
            spans: std::array::from_fn(|n| read(&counts.spans[n])),
            sizes: std::array::from_fn(|n| read(&counts.sizes[n])),
            used: gauge.used,
            free: gauge.free(),
            room: gauge.room,
        }
    }
}

/// What a thread that panicked has left is whole: every change under these locks is one assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_begun_without_waiting_for_an_engine_that_is_being_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = DurableStore::open(dir.path(), &Options::new(Making::New(StoreId([1; 16]))), || {}).unwrap();
        let shared = Arc::clone(&store.shared);
        let closed = shared.engine.closed();
        let (say, said) = channel();
        let begun = std::thread::spawn(move || say.send(store.backup_source()));
        let source = said.recv_timeout(Duration::from_secs(30)).expect("the server's loop does not wait");
        let copy = tempfile::tempdir().unwrap();
        let to = copy.path().to_owned();
        let written = std::thread::spawn(move || source.snapshot().write_to(&to));
        drop(closed);
        assert_eq!(written.join().unwrap().unwrap(), 0);
        begun.join().unwrap().unwrap();
    }
}
