//! The threads of a store: one writes, some read, one watches, one wins space back.
//!
//! Decides: what is one transaction (all that waits, up to a bound), in which order things are said, how trouble is noticed while nobody
//! writes. Place in the walk: between the queues (`durable`) and the engine. Implements `wire-spec.md` section 11.7.
//! Invariant: only the writer writes, so transactions are in the order of the batches; an answer is read after its question was asked.
//! Leaves to others: everything on disk (`engine`).

use super::{DurableStore, Shared, bucket, lock};
use crate::engine::{Committed, Writes};
use crate::space::free;
use crate::witness::Witness;
use bytes::Bytes;
use cistern_server::store::{Answer, Batch, Key, KeyError, Loaded, Query, StoreEvent};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Bytes after which a transaction takes in no further batch: bounds its time on a slow disk.
const GROUP_BYTES: usize = 8 << 20;
/// Bytes written after which the space that the store takes is counted again.
const COUNT_AFTER: usize = 16 << 20;
/// Bytes written after which the space that is left is looked at, and the longest time between two looks as long as something is written.
const LOOK_AFTER: usize = 256 << 10;
const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// Time between two looks of the watching thread.
const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// Shortest time between two attempts to win space back.
const REWRITE_PERIOD: Duration = Duration::from_secs(10);
/// Bytes of free space that go in a second when somebody fills the disk.
const SHRINKS_BY: u64 = 4 << 20;
/// An attempt is followed by so many times its own duration without one, for it takes the disk from everybody.
const REWRITE_REST: u32 = 10;

impl DurableStore {
    pub(super) fn start(&mut self, batches: Receiver<Batch>, witness: Witness, number: u64, readers: usize) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let removed = Arc::new(AtomicU64::new(0));
        let (looked, removed_by) = (Instant::now(), Arc::clone(&removed));
        let writer = Writer { shared, witness, number, uncounted: 0, unlooked: 0, looked, removed: removed_by };
        self.threads.push(Builder::new().name("store-writer".to_owned()).spawn(move || writer.run(&batches))?);
        for n in 0..readers {
            let shared = Arc::clone(&self.shared);
            self.threads.push(Builder::new().name(format!("store-reader-{n}")).spawn(move || shared.read())?);
        }
        let shared = Arc::clone(&self.shared);
        self.threads.push(Builder::new().name("store-watch".to_owned()).spawn(move || shared.watch())?);
        let shared = Arc::clone(&self.shared);
        self.threads.push(Builder::new().name("store-rewrite".to_owned()).spawn(move || shared.win_back(&removed))?);
        Ok(())
    }
}

struct Writer {
    shared: Arc<Shared>,
    witness: Witness,
    /// Of the newest transaction.
    number: u64,
    /// Bytes written since the space was counted.
    uncounted: usize,
    /// Bytes written since it was looked at, and when that was.
    unlooked: usize,
    looked: Instant,
    /// Keys removed since the start.
    removed: Arc<AtomicU64>,
}

/// Batches that become one transaction.
#[derive(Default)]
struct Group {
    writes: Writes,
    batches: u64,
    last: u64,
    bytes: usize,
}

impl Group {
    /// `encoded`: where keys are encoded.
    fn take(&mut self, batch: Batch, encoded: &mut Vec<u8>) {
        self.batches += 1;
        self.last = batch.id;
        for (key, value) in batch.writes {
            encoded.clear();
            key.put(encoded);
            self.bytes += encoded.len() + value.as_ref().map_or(0, Bytes::len);
            self.writes.put(encoded, value);
        }
    }
}

impl Writer {
    fn run(mut self, batches: &Receiver<Batch>) {
        let mut encoded = Vec::new();
        while let Ok(first) = batches.recv() {
            let mut group = Group::default();
            group.take(first, &mut encoded);
            while group.bytes < GROUP_BYTES
                && let Ok(next) = batches.try_recv()
            {
                group.take(next, &mut encoded);
            }
            //= wire-spec.md#11-7-restart-and-recovery
            //# After a write or a sync of the store has failed the server MUST stop.
            if self.shared.is_broken() {
                return;
            }
            match self.shared.wait_for_space(group.bytes).and_then(|on| if on { self.commit(group).map(|()| true) } else { Ok(false) }) {
                Ok(true) => {}
                // The store is being dropped, with what was promised to nobody.
                Ok(false) => return,
                Err(what) => return self.shared.broke(&what),
            }
        }
    }

    fn commit(&mut self, group: Group) -> Result<(), String> {
        let Group { writes, batches, last, bytes } = group;
        let from = Instant::now();
        let Committed { keys, removed } = self.shared.engine.commit(writes, self.number + 1)?;
        self.shared.counts.commit(from.elapsed(), batches, keys, bytes as u64);
        self.removed.fetch_add(removed, Ordering::Relaxed);
        self.number += 1;
        self.shared.tell(StoreEvent::Durable(last));
        // After the word, for it keeps nobody waiting, and never before the sync.
        self.witness.saw(self.number).map_err(|e| format!("writing `witness`: {e}"))?;
        self.look_at_space(bytes);
        Ok(())
    }

    /// Looks at the space that is left now and then, for small commits shall not pay for that each time.
    fn look_at_space(&mut self, written: usize) {
        self.uncounted += written;
        self.unlooked += written;
        let count = self.uncounted > COUNT_AFTER;
        if !count && self.unlooked < LOOK_AFTER && self.looked.elapsed() < LOOK_PERIOD {
            return;
        }
        (self.unlooked, self.looked) = (0, Instant::now());
        if count {
            self.uncounted = 0;
        }
        self.shared.look_at_space(count);
    }
}

impl super::Counts {
    fn commit(&self, span: Duration, batches: u64, writes: u64, bytes: u64) {
        let add = |count: &AtomicU64, n| {
            count.fetch_add(n, Ordering::Relaxed);
        };
        add(&self.commits, 1);
        add(&self.batches, batches);
        add(&self.writes, writes);
        add(&self.bytes, bytes);
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        add(&self.nanos, nanos);
        self.last_nanos.store(nanos, Ordering::Relaxed);
        add(&self.spans[bucket(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))], 1);
        add(&self.sizes[bucket(batches)], 1);
    }
}

/// Time without an attempt to win space back after one that took so long.
fn rest_after(attempt: Duration) -> Duration {
    attempt.saturating_mul(REWRITE_REST).max(REWRITE_PERIOD)
}

impl Shared {
    /// Answers questions until the store is dropped.
    fn read(&self) {
        loop {
            let query = {
                let mut questions = lock(&self.questions);
                loop {
                    if questions.over {
                        return;
                    }
                    match questions.waiting.pop_front() {
                        Some(query) => break query,
                        None => questions = self.asked.wait(questions).unwrap_or_else(std::sync::PoisonError::into_inner),
                    }
                }
            };
            let answer = self.answer(&query).unwrap_or_else(|what| {
                self.counts.failed_reads.fetch_add(1, Ordering::Relaxed);
                log::error!(
                    "store {}: cannot read {query:?}: {what}; run `cisternd check` on the stopped store",
                    self.place.dir().display()
                );
                Answer::Failed
            });
            self.counts.reads.fetch_add(1, Ordering::Relaxed);
            self.tell(StoreEvent::Loaded(Loaded { query, answer }));
        }
    }

    fn answer(&self, query: &Query) -> Result<Answer, String> {
        let most = |limit: &u32| usize::try_from(*limit).unwrap_or(usize::MAX);
        Ok(match query {
            Query::Get(key) => Answer::Value(self.engine.get(&key.to_bytes())?),
            Query::Scan { dir, after, limit } => {
                let prefix = Key::entry_prefix(*dir);
                let from = [&prefix[..], after].concat();
                let (entries, end) = self.engine.page(&prefix, &from, most(limit))?;
                Answer::Entries { entries, end }
            }
            Query::Records { after, limit } => {
                let from = after.to_bytes();
                let (found, end) = self.engine.page(&from[..1], &from, most(limit))?;
                let key = |rest: &[u8]| Key::from_bytes(&[&from[..1], rest].concat());
                let records: Result<_, _> = found.into_iter().map(|(rest, value)| Ok((key(&rest)?, value))).collect();
                let records = records.map_err(|_: KeyError| "there is a key of this kind that this version does not know".to_owned())?;
                Answer::Records { records, end }
            }
        })
    }

    /// Waits for the next look; whether there is to be none.
    fn over(&self) -> bool {
        let ended = lock(&self.ended);
        let (ended, _) =
            self.end.wait_timeout_while(ended, WATCH_PERIOD, |ended| !*ended).unwrap_or_else(std::sync::PoisonError::into_inner);
        *ended || self.is_broken()
    }

    /// Notices what no commit would: a failure in the background, the loss of the lock, space that is gone or back.
    fn watch(&self) {
        while !self.over() {
            //= wire-spec.md#11-7-restart-and-recovery
            //# A server that may have been superseded MUST stop renewing.
            if !self.place.is_ours() {
                self.broke("its file `lock` was replaced, so another server may have taken the store");
                return;
            }
            if let Err(what) = self.engine.health() {
                return self.broke(&what);
            }
            self.look_at_space(true);
            self.spare_again();
        }
    }

    /// Waits until a commit of `bytes` cannot be the one that fails for want of space, for after that nothing can be written any more.
    /// False: the store is being dropped.
    fn wait_for_space(&self, bytes: usize) -> Result<bool, String> {
        if lock(&self.gauge).is_ample() {
            return Ok(true);
        }
        let (dir, mut told) = (self.place.dir(), false);
        loop {
            let needs = self.engine.needs(bytes)?;
            let free = free(dir).map_err(|e| format!("looking at its free space: {e}"))?;
            if free >= needs {
                if told {
                    log::warn!("store {}: {free} bytes are free: goes on writing", dir.display());
                }
                return Ok(true);
            }
            if self.spare.give_up() {
                log::warn!("store {}: {free} bytes are free; gives up `spare`, so that removals go on", dir.display());
                continue;
            }
            if !told {
                told = true;
                log::error!(
                    "store {}: its file system is full: {free} bytes are free, and {needs} must be before anything is written; changes and \
                     new sessions wait until others make room, reads and locks that are held go on",
                    dir.display()
                );
                self.look_at_space(true);
            }
            if self.over() {
                return Ok(false);
            }
        }
    }

    /// Takes the spare space again when there is enough.
    fn spare_again(&self) {
        let gauge = lock(&self.gauge);
        let enough = gauge.room && gauge.free() >= gauge.reserve() + self.spare.wants();
        drop(gauge);
        if enough && let Err(e) = self.spare.take() {
            log::debug!("store {}: no space can be taken in advance: {e}", self.place.dir().display());
        }
    }

    /// Gives the space of removed keys back while the store is full: after every removal, and once also without, for the removals may be
    /// those before a restart.
    fn win_back(&self, removed: &AtomicU64) {
        let (mut not_before, mut done, mut last_free) = (Instant::now(), None, 0);
        while !self.over() {
            let (full, can_rewrite, free_now) = {
                let gauge = lock(&self.gauge);
                (!gauge.room, gauge.can_rewrite(), gauge.free())
            };
            // Who fills the disk right now could fill it in the midst of the rewriting, which would fail and end the server.
            let shrinks = free_now + SHRINKS_BY < std::mem::replace(&mut last_free, free_now);
            let (now, count) = (Instant::now(), removed.load(Ordering::Relaxed));
            if !full || shrinks || done == Some((count, can_rewrite)) || now < not_before {
                continue;
            }
            let can_flush = self.engine.needs(0).map(|needs| free(self.place.dir()).is_ok_and(|free| free >= needs));
            match can_flush.and_then(|can| if can { self.rewrite(can_rewrite) } else { Ok(false) }) {
                Ok(true) => done = Some((count, can_rewrite)),
                // A backup is being written, or nothing could be flushed: tried again.
                Ok(false) => {}
                Err(what) => return self.broke(&what),
            }
            not_before = Instant::now() + rest_after(now.elapsed());
            self.look_at_space(true);
        }
    }

    /// Rewrites the tables, if there is space for that, and gives back what the engine keeps of former ones and of its journal. Gives
    /// whether all of that was possible.
    fn rewrite(&self, tables: bool) -> Result<bool, String> {
        // As long as a backup is read nothing is given back, so each rewriting would take the space of one more copy.
        if self.engine.is_frozen() {
            return Ok(false);
        }
        let dir = self.place.dir().display();
        if tables {
            log::info!("store {dir}: rewrites its tables, to win back the space of what was removed");
            self.engine.compact()?;
        }
        let before = lock(&self.gauge).used;
        let reopened = self.engine.reopen()?;
        self.look_at_space(true);
        log::info!("store {dir}: took {before} bytes before, takes {} now", lock(&self.gauge).used);
        Ok(reopened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Making, Options};
    use cistern_wire::StoreId;
    use std::collections::BTreeSet;
    use std::fs;

    #[test]
    fn tables_are_rewritten_only_when_no_backup_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = DurableStore::open(dir.path(), &Options::new(Making::New(StoreId([1; 16]))), || {}).unwrap();
        let tables = || -> BTreeSet<_> {
            let tables = fs::read_dir(dir.path().join("data/keyspaces/1/tables")).unwrap();
            tables.map(|table| table.unwrap().file_name()).collect()
        };
        let before = tables();
        let backup = store.backup_source().snapshot();
        for _ in 0..3 {
            assert_eq!(store.shared.rewrite(true), Ok(false));
            assert_eq!(tables(), before, "a copy of all of it, for nothing");
        }
        drop(backup);
        assert_eq!(store.shared.rewrite(true), Ok(true));
        assert_ne!(tables(), before);
    }

    #[test]
    fn a_long_attempt_is_followed_by_a_longer_rest() {
        assert_eq!(rest_after(Duration::from_millis(3)), REWRITE_PERIOD);
        assert_eq!(rest_after(Duration::from_secs(60)), Duration::from_secs(600));
    }
}
