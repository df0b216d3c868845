//! What the store makes of an image, and whether it may.
//!
//! Decides what must hold of every image: a server's store opens it; all that was promised is there, and what is there is what there was
//! after some batch, whole; `check` finds nothing in it; one more batch can be made durable, and is there at the next opening.
//! Place: behind `crash`. Leaves to others: which images there are.

use super::crash::Image;
use super::known::{Known, Sum};
use bytes::Bytes;
use cistern_server::store::{Answer, Batch, Key, Loaded, Query, StoreEvent, StoreWork};
use cistern_store::check::Check;
use cistern_store::{DurableStore, Making, Options, StoppedStore};
use cistern_wire::{ObjectId, StoreId};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

/// Name of the store in every directory that is recorded.
pub(super) const STORE: &str = "store";
/// The id of every store here.
pub(super) const ID: StoreId = StoreId([0xC1; 16]);
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The key that is the judge's own: a block of an object that no server will make.
pub(super) fn extra_key() -> Key {
    Key::Block(ObjectId(u64::MAX), 0)
}

/// How a store is opened: as by `cisternd`, with less memory.
pub(crate) fn options() -> Options {
    Options { cache_bytes: 4 << 20, memtable_bytes: 256 << 10, readers: 1, ..Options::new(Making::New(ID)) }
}

/// What was promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Promised {
    /// Batches.
    pub(super) batches: u64,
    /// The value of the judge's own key.
    pub(super) extra: u64,
}

/// Opens an image in `dir`, which must not exist; what it holds, and what is wrong otherwise.
pub(super) fn judge(dir: &Path, image: &Image, known: &Known, promised: Promised) -> Result<Promised, String> {
    put(dir, image).map_err(|e| format!("making the image in {}: {e}", dir.display()))?;
    let verdict = catch_unwind(AssertUnwindSafe(|| opened(&dir.join(STORE), known, promised)));
    fs::remove_dir_all(dir).map_err(|e| format!("removing {}: {e}", dir.display()))?;
    verdict.unwrap_or_else(|_| Err("a panic".to_owned()))
}

/// Makes the files of an image.
pub(super) fn put(dir: &Path, image: &Image) -> io::Result<()> {
    for path in &image.directories {
        fs::create_dir(if path.as_os_str().is_empty() { dir.to_owned() } else { dir.join(path) })?;
    }
    for (path, content) in &image.files {
        let file = File::create(dir.join(path))?;
        file.set_len(content.len)?;
        content.parts().try_for_each(|(at, bytes)| file.write_all_at(bytes, at))?;
    }
    Ok(())
}

fn opened(dir: &Path, known: &Known, promised: Promised) -> Result<Promised, String> {
    let mut store = DurableStore::open(dir, &options(), || {}).map_err(|e| format!("refused: {e}"))?;
    let there = own_value(&mut store)?;
    if there < promised.extra {
        return Err(format!("the judge's own key is {there}, and {} was promised", promised.extra));
    }
    let next = there + 1;
    extra(&mut store, next)?;
    drop(store);
    let found = look(dir, known, Some(next))?;
    if found.batches < promised.batches {
        return Err(format!("{} batches are there, and {} were promised", found.batches, promised.batches));
    }
    Ok(found)
}

/// Makes a value of the judge's own key durable.
pub(super) fn extra(store: &mut DurableStore, value: u64) -> Result<(), String> {
    let value = Bytes::copy_from_slice(&value.to_be_bytes());
    store.take(StoreWork::Persist(Batch { id: 1, writes: vec![(extra_key(), Some(value))] }));
    loop {
        match store.event_within(PATIENCE) {
            Some(StoreEvent::Durable(_)) => return Ok(()),
            Some(StoreEvent::Room(_) | StoreEvent::Loaded(_)) => {}
            Some(StoreEvent::Broken(why)) => return Err(format!("cannot be written: {why}")),
            None => return Err("nothing becomes durable".to_owned()),
        }
    }
}

/// The value of the judge's own key; 0 without one.
fn own_value(store: &mut DurableStore) -> Result<u64, String> {
    store.take(StoreWork::Load(vec![Query::Get(extra_key())]));
    loop {
        match store.event_within(PATIENCE) {
            Some(StoreEvent::Loaded(Loaded { answer: Answer::Value(value), .. })) => {
                return Ok(value.and_then(|value| Some(u64::from_be_bytes(*value.first_chunk()?))).unwrap_or(0));
            }
            Some(StoreEvent::Room(_) | StoreEvent::Durable(_)) => {}
            other => return Err(format!("cannot be read: {other:?}")),
        }
    }
}

/// Reads a store through; `extra` is what the judge's own key must have.
pub(super) fn look(dir: &Path, known: &Known, extra: Option<u64>) -> Result<Promised, String> {
    let store = StoppedStore::open(dir).map_err(|e| format!("refused the second time: {e}"))?;
    let (mut sum, mut found, own) = (Sum::default(), 0, extra_key().to_bytes());
    let report = Check { findings_max: 3 }.run(
        || {
            (sum, found) = (Sum::default(), 0);
            let entries = store.iter().filter_map(|entry| match entry {
                Ok((key, value)) if key == own => {
                    found = value.try_into().map_or(u64::MAX, u64::from_be_bytes);
                    None
                }
                Ok((key, value)) => {
                    sum.add(&key, &value);
                    Some(Ok((key, value)))
                }
                Err(e) => Some(Err(e)),
            });
            // Twice, if there are findings: the sums are then those of the last time.
            Ok::<_, String>(entries.collect::<Vec<_>>().into_iter())
        },
        |_| {},
    )?;
    if extra.is_some_and(|extra| extra != found) {
        return Err(format!("the judge's own key is {found} after {extra:?} was durable"));
    }
    let batches = known.state(sum).ok_or("what is there is not what there was after any batch")?;
    match report.findings.first() {
        Some(finding) => Err(format!("`check` finds after batch {batches}: {finding}")),
        None => Ok(Promised { batches, extra: found }),
    }
}
