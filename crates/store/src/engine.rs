//! The engine: fjall, one keyspace, one transaction and one sync for each group of batches.
//!
//! Decides how the engine is set up and what its errors are called. Place in the walk: below the threads (`durable`), above the files.
//! Invariants: transactions have consecutive numbers, each in its own record; a panic of the engine is an error of its caller.
//! Leaves to others: what the engine does not check of its files (`guard`), threads (`durable`).

use crate::error::{OpenError, Problem};
use crate::guard::{self, MARK_KEY, Mark};
use crate::place::StoreDirectory;
use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable as _, Slice, Snapshot};
use std::fs;
use std::io;
use std::ops::Bound::{Excluded, Unbounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Name of the one keyspace.
const NAME: &str = "values";
/// Bytes in memory of what is in a journal and not yet in tables, if a store is not made with other ones; the largest part of what a
/// start has to read.
pub(crate) const MEMTABLE: u64 = 32 << 20;
/// Bytes of journals that may be kept: with the above, what a start has to read at most.
const JOURNALS: u64 = 128 << 20;
/// Tables of the first level from which on the engine merges them into the next, as it is set by default.
const L0_TABLES: usize = 4;
/// Bytes that such a merge is expected to need at most: those of the first level.
const REWRITTEN_MAX: u64 = L0_TABLES as u64 * MEMTABLE;
/// Bytes for lists of tables, blocks at the ends of files, names.
const SLACK: u64 = 8 << 20;
/// Time between two looks whether what was in memory is in tables.
const FLUSH_POLL: Duration = Duration::from_millis(10);
/// Files that are kept open.
const FILES: usize = 256;

/// New values by key; `None`: deleted. Of a key that is put several times the last value counts: the engine is told of each key once.
#[derive(Default)]
pub(crate) struct Writes {
    /// In the order in which they were put. A key of up to 20 bytes, as almost all are, stands in its slice, without memory of its own.
    puts: Vec<(Slice, Option<Bytes>)>,
}

impl Writes {
    pub(crate) fn put(&mut self, key: &[u8], value: Option<Bytes>) {
        self.puts.push((Slice::new(key), value));
    }

    /// Each key once, in their order, in which the engine finds their places in memory fastest.
    fn settled(self) -> Vec<(Slice, Option<Bytes>)> {
        let mut puts = self.puts;
        // Stable: of one key's values the last stays last.
        puts.sort_by(|a, b| a.0.cmp(&b.0));
        puts.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                earlier.1 = later.1.take();
            }
            same
        });
        puts
    }
}

/// What a transaction wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Committed {
    /// Keys written or deleted.
    pub(crate) keys: u64,
    /// Those deleted.
    pub(crate) removed: u64,
}

/// A database of the engine.
pub(crate) struct Engine {
    /// `None`: it was closed to be made smaller, and could not be opened again.
    files: RwLock<Option<Files>>,
    /// Where they are.
    data: PathBuf,
    /// Memory for blocks, in bytes.
    cache: u64,
    /// Held by each [`Frozen`]: the files stay open for it.
    frozen: Arc<()>,
}

/// The engine's handles of its open files.
#[derive(Clone)]
struct Files {
    database: Database,
    values: Keyspace,
}

impl Engine {
    /// Makes the engine's files, empty and durable; it will keep so many bytes in memory before they become a table.
    pub(crate) fn make(data: &Path, memtable: u64) -> Result<(), OpenError> {
        Self::make_with(data, memtable, std::iter::empty()).map_err(|what| OpenError::new(Problem::Io, data, what))
    }

    /// Makes the engine's files, durable, with entries that come in the order of their keys.
    pub(crate) fn make_with(data: &Path, memtable: u64, entries: impl Iterator<Item = Entry>) -> Result<(), String> {
        let engine = Self::start(data, 8 << 20, memtable).map_err(|e| e.what)?;
        let mut entries = entries.peekable();
        if entries.peek().is_some() {
            engine.fill(entries)?;
        }
        engine.commit(Writes::default(), 1)?;
        drop(engine);
        guard::sync_names(data).map_err(|e| e.to_string())
    }

    /// Opens the store's data: the engine, and the number of the newest transaction.
    pub(crate) fn open(place: &StoreDirectory, cache: u64) -> Result<(Self, u64), OpenError> {
        let (dir, data) = (place.dir(), place.data());
        if !fs::exists(&data).map_err(|e| OpenError::io(dir, "looking for `data`", &e))? {
            return Err(OpenError::damaged(dir, "its directory `data` is missing"));
        }
        let reading = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => OpenError::damaged(dir, "a file of `data` is missing"),
            _ => OpenError::io(dir, "reading `data`", &e),
        };
        let checked = guard::check(dir, &data).map_err(reading)?.map_err(|what| OpenError::damaged(dir, what))?;
        Self::open_checked(dir, &data, cache, checked.promised).inspect_err(|_| {
            if let Some(Err(e)) = checked.cut.map(|cut| cut.undo()) {
                log::error!("store {}: what was cut off its journal cannot be put back: {e}; keep the file `cut-off`", dir.display());
            }
        })
    }

    /// Opens files that were checked; they are closed again if this fails.
    fn open_checked(dir: &Path, data: &Path, cache: u64, promised: u64) -> Result<(Self, u64), OpenError> {
        let engine = Self::start(data, cache, MEMTABLE).map_err(|e| OpenError { dir: dir.to_owned(), ..e })?;
        let mark = engine.get(MARK_KEY).map_err(|what| OpenError::damaged(dir, what))?;
        match mark.as_deref().and_then(Mark::from_bytes) {
            Some(mark) if mark.number >= promised => Ok((engine, mark.number)),
            Some(mark) => {
                Err(OpenError::damaged(dir, format_args!("it ends with transaction {}, and {promised} was promised", mark.number)))
            }
            None => Err(OpenError::damaged(dir, "it has no transaction at all")),
        }
    }

    /// Opens the engine's files, or makes them; those that are there keep the memtable with which they were made.
    fn start(data: &Path, cache: u64, memtable: u64) -> Result<Self, OpenError> {
        let files = RwLock::new(Some(Files::open(data, cache, memtable)?));
        Ok(Self { files, data: data.to_owned(), cache, frozen: Arc::new(()) })
    }

    /// Calls the engine; what went wrong in words.
    fn call<T>(&self, call: impl FnOnce(&Files) -> fjall::Result<T>) -> Result<T, String> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        let files = files.as_ref().ok_or("it was closed, and could not be opened again")?;
        caught(|| call(files))
    }

    /// Makes writes durable, whole or not at all, as transaction `number`; returns after the sync.
    ///
    /// # Errors
    /// What failed; nothing may be written any more (section 11.7).
    pub(crate) fn commit(&self, writes: Writes, number: u64) -> Result<Committed, String> {
        let writes = writes.settled();
        let removed = writes.iter().filter(|(_, value)| value.is_none()).count() as u64;
        let committed = Committed { keys: writes.len() as u64, removed };
        self.call(|Files { database, values }| {
            let batch = OwnedWriteBatch::with_capacity(database.clone(), 1 + writes.len());
            let mut batch = batch.durability(Some(PersistMode::SyncData));
            let mark = Mark { number, floor: database.seqno() };
            batch.insert(values, MARK_KEY, mark.to_bytes());
            for (key, value) in writes {
                match value {
                    Some(value) => batch.insert(values, key, &value[..]),
                    None => batch.remove(values, key),
                }
            }
            batch.commit()
        })?;
        Ok(committed)
    }

    /// Whether nothing has failed so far, in the background either; does not wait for the disk.
    pub(crate) fn health(&self) -> Result<(), String> {
        self.call(|files| files.database.persist(PersistMode::Buffer))
    }

    /// Bytes that must be free so that a commit of `bytes` is followed by no failure: the journal's, the table's of what is in memory, and,
    /// where it is due, of what is rewritten after that, as far as that is bounded.
    pub(crate) fn needs(&self, bytes: usize) -> Result<u64, String> {
        self.call(|Files { database, values }| {
            let (unwritten, bytes) = (database.write_buffer_size(), bytes as u64);
            let flushes = unwritten + bytes >= MEMTABLE;
            let rewritten = if flushes && values.l0_table_count() + 1 >= L0_TABLES { values.disk_space().min(REWRITTEN_MAX) } else { 0 };
            Ok(unwritten + 2 * bytes + SLACK + rewritten)
        })
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, String> {
        // Copied, for the engine's own slices hold on to the whole block that they lie in.
        self.call(|files| files.values.get(key)).map(|value| value.map(|value| Bytes::copy_from_slice(&value)))
    }

    /// The first values after `after` whose keys begin with `prefix`, at most `limit`, and whether there are no more.
    pub(crate) fn page(&self, prefix: &[u8], after: &[u8], limit: usize) -> Result<Page, String> {
        self.call(|files| {
            let mut found = Vec::new();
            for guard in files.values.range::<&[u8], _>((Excluded(after), Unbounded)) {
                let (key, value) = guard.into_inner()?;
                if !key.starts_with(prefix) {
                    break;
                }
                if found.len() == limit {
                    return Ok((found, false));
                }
                found.push((key[prefix.len()..].into(), Bytes::copy_from_slice(&value)));
            }
            Ok((found, true))
        })
    }

    /// All that there is at this moment; waits while the engine is opened again.
    pub(crate) fn snapshot(&self) -> Frozen {
        self.call(|files| Ok(Frozen { seen: Ok((files.values.clone(), files.database.snapshot())), open: Arc::clone(&self.frozen) }))
            .unwrap_or_else(|what| Frozen { seen: Err(what), open: Arc::clone(&self.frozen) })
    }

    /// Whether there is a [`Frozen`], so that [`Engine::reopen`] is not possible.
    pub(crate) fn is_frozen(&self) -> bool {
        Arc::strong_count(&self.frozen) > 1
    }

    /// As long as this is held, the engine is closed, as in the midst of [`Engine::reopen`].
    #[cfg(test)]
    pub(crate) fn closed(&self) -> impl Drop + use<'_> {
        self.files.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts values in that come in the order of their keys; only into an empty engine. Durable after the next commit.
    fn fill(&self, entries: impl Iterator<Item = Entry>) -> Result<(), String> {
        let Files { values, .. } = self.call(|files| Ok(files.clone()))?;
        let mut ingestion = caught(|| values.start_ingestion())?;
        for entry in entries {
            let (key, value) = entry?;
            caught(|| ingestion.write(key, value))?;
        }
        caught(|| ingestion.finish())
    }

    /// Rewrites all tables without what was deleted or replaced; needs as much space again while it runs, and commits and reads go on.
    /// What was there before takes its space until [`Engine::reopen`].
    pub(crate) fn compact(&self) -> Result<(), String> {
        self.health()?;
        let files = self.call(|files| Ok(files.clone()))?;
        files.flush()?;
        caught(|| files.values.major_compact())
    }

    /// Closes the engine and opens it again with an empty journal, for it gives back neither the tables of before the last compaction nor
    /// a journal of less than 64 MB while it is open. Commits and reads wait meanwhile: for a flush of what is in memory.
    ///
    /// Gives whether that was possible: it is not while there is a [`Frozen`].
    ///
    /// # Errors
    /// What failed; nothing may be written any more (section 11.7).
    pub(crate) fn reopen(&self) -> Result<bool, String> {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        // Frozen ones are made under the lock.
        if self.is_frozen() {
            return Ok(false);
        }
        let open = files.take().ok_or("it was closed, and could not be opened again")?;
        open.flush()?;
        // Whatever is in a journal is now in synced tables, so the engine would remove it too, had it begun another.
        let mark = caught(|| open.values.get(MARK_KEY))?;
        drop(open);
        guard::renew_journal(&self.data).map_err(|e| format!("beginning a new journal: {e}"))?;
        let open = Files::open(&self.data, self.cache, MEMTABLE).map_err(|e| e.what)?;
        if caught(|| open.values.get(MARK_KEY))? != mark {
            return Err("after it was opened again its newest transaction was another".to_owned());
        }
        *files = Some(open);
        Ok(true)
    }
}

impl Files {
    /// Makes a table of what is in memory.
    fn flush(&self) -> Result<(), String> {
        caught(|| self.values.rotate_memtable())?;
        // The engine's own way of waiting would not end when a flush has failed, for then nothing is flushed any more.
        while self.values.sealed_memtable_count() > 0 {
            caught(|| self.database.persist(PersistMode::Buffer))?;
            std::thread::sleep(FLUSH_POLL);
        }
        Ok(())
    }

    fn open(data: &Path, cache: u64, memtable: u64) -> Result<Self, OpenError> {
        let open = || {
            let database = Database::builder(data)
                .cache_size(cache)
                .worker_threads(1)
                .max_cached_files(Some(FILES))
                .max_journaling_size(JOURNALS)
                .open()?;
            let values = database.keyspace(NAME, || KeyspaceCreateOptions::default().max_memtable_size(memtable))?;
            Ok(Self { database, values })
        };
        match catch_unwind(AssertUnwindSafe(open)) {
            Ok(Ok(engine)) => Ok(engine),
            Ok(Err(fjall::Error::Io(e) | fjall::Error::Storage(fjall::LsmError::Io(e)))) if is_system(&e) => {
                Err(OpenError::io(data, "opening it", &e))
            }
            Ok(Err(e)) => Err(OpenError::damaged(data, words(&e))),
            Err(panic) => Err(OpenError::damaged(data, panic_words(&*panic))),
        }
    }
}

/// A key and its value, or why it cannot be read.
pub(crate) type Entry = Result<(Vec<u8>, Vec<u8>), String>;

/// What follows the prefix in each key, and its value; whether there are no more.
pub(crate) type Page = (Vec<(Box<[u8]>, Bytes)>, bool);

/// All values of one moment.
pub(crate) struct Frozen {
    /// Or why nothing can be read.
    seen: Result<(Keyspace, Snapshot), String>,
    /// Keeps the engine's files open, for what is read of them too.
    open: Arc<()>,
}

impl Frozen {
    /// Keys and values, in the order of the keys, without what transactions say of themselves.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + use<> {
        let mut entries = self.seen.as_ref().map(|(values, snapshot)| snapshot.iter(values)).map_err(Clone::clone);
        let (mut over, open) = (false, Arc::clone(&self.open));
        std::iter::from_fn(move || {
            if over {
                return None;
            }
            let _open = &open;
            let next = match &mut entries {
                Ok(entries) => caught(|| entries.next().map(fjall::Guard::into_inner).transpose()),
                Err(what) => Err(what.clone()),
            };
            over = next.is_err();
            next.map(|next| next.map(|(key, value)| (key.to_vec(), value.to_vec()))).transpose()
        })
        .filter(|entry| !matches!(entry, Ok((key, _)) if key == MARK_KEY))
    }
}

/// Runs a call of the engine; what went wrong in words.
fn caught<T>(call: impl FnOnce() -> fjall::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|e| words(&e)),
        Err(panic) => Err(panic_words(&*panic)),
    }
}

fn words(error: &fjall::Error) -> String {
    match error {
        fjall::Error::Io(e) | fjall::Error::Storage(fjall::LsmError::Io(e)) => e.to_string(),
        fjall::Error::Poisoned => "an earlier write, sync, flush or compaction failed; the log says which".to_owned(),
        fjall::Error::Storage(fjall::LsmError::ChecksumMismatch { .. }) => "a block of a table is not what was written".to_owned(),
        e => format!("the engine says {e}"),
    }
}

fn panic_words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the engine gave up: {}", text.unwrap_or("without a reason"))
}

/// Whether the system refused, rather than that bytes made no sense.
fn is_system(error: &io::Error) -> bool {
    error.raw_os_error().is_some() && error.kind() != io::ErrorKind::NotFound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_put_again_is_written_once_with_its_last_value() {
        let mut writes = Writes::default();
        let value = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        let long = [b'x'; 40];
        for (key, to) in
            [(&b"b"[..], value("1")), (&long, value("2")), (b"a", value("3")), (b"b", None), (&long, value("4")), (b"a", value("5"))]
        {
            writes.put(key, to);
        }
        let settled = writes.settled();
        let settled: Vec<_> = settled.iter().map(|(key, value)| (&key[..], value.clone())).collect();
        assert_eq!(settled, [(&b"a"[..], value("5")), (b"b", None), (&long, value("4"))]);
    }
}
