//! What this crate knows of the engine's private files: all of it is here.
//!
//! Relied on, as fjall 3.1 and lsm-tree 3.1 have it in their sources (`format::ENGINE` names the version, the workspace pins it):
//! - the names `version`, `N.jnl` (the newest journal has the largest N) and `keyspaces/{0,1}/{current,vN,tables/}`;
//! - `current` names a list of tables: its N as u64, its XXH3-128, the kind of checksum 0;
//! - the engine takes an empty journal of a larger number for one that it has begun itself when all before was in tables;
//! - a journal is batches one after another, then zeros:
//!
//! | batch | |
//! |---|---|
//! | head | 1: u8, items: u32, sequence number: u64 |
//! | item, as often | 2: u8, kind: u8, compression: u8, keyspace: u64, key length: u16, value length: u32, stored length: u32, key, value |
//! | end | 3: u8, XXH3-64 of the items: u64, `FJL` 3 |
//!
//! Integers are little endian. The first item of each batch is the transaction's own record ([`Mark`]).
//!
//! Noticed, when an engine does it otherwise: by `files_of_the_engine_are_as_they_are_read` below, and what follows from it by
//! `tests/store/damage.rs` and the crash images of `tools/torture`.

use super::{MARK_KEY, Mark, from_disk};
use crate::place::sync_directory;
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Directories of the engine: its own notes, and ours.
const KEYSPACES: [&str; 2] = ["0", "1"];
const VERSION: &[u8] = b"FJL\x03";
const HEAD: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const ITEM_HEAD_LEN: usize = 20;
/// In the first item of a batch: lengths of key and value (the latter twice), and the key, which is [`MARK_KEY`].
const MARK_LENGTHS_AND_KEY: [u8; 11] = [1, 0, 16, 0, 0, 0, 16, 0, 0, 0, 0];
/// Length of a batch of one item, its mark.
pub(super) const BATCH_MIN: usize = 13 + 1 + ITEM_HEAD_LEN + 1 + 16 + 13;
/// Largest value that is believed; the largest written is a block of contents.
const VALUE_MAX: u32 = 1 << 20;

/// Whether the files are of the version that this module knows.
pub(super) fn is_known(data: &Path) -> io::Result<bool> {
    Ok(fs::read(data.join("version"))? == VERSION)
}

/// Makes the names of the engine's files durable. The engine does not for its keyspaces, and a file that a killed server has made may be
/// about to hold what is promised.
pub(crate) fn sync_names(data: &Path) -> io::Result<()> {
    let keyspaces = data.join("keyspaces");
    for keyspace in KEYSPACES {
        let keyspace = keyspaces.join(keyspace);
        let tables = keyspace.join("tables");
        // Empty until the first table is written, and lost by copies that keep files only.
        match fs::create_dir(&tables) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => sync_directory(&tables)?,
        }
        sync_directory(&keyspace)?;
    }
    sync_directory(&keyspaces)?;
    sync_directory(data)
}

/// Puts an empty journal in the place of all others. Only while the engine is closed, and after it has synced tables of all that it had.
///
/// # Errors
/// What the system said; nothing is lost.
pub(crate) fn renew_journal(data: &Path) -> io::Result<()> {
    let old = journals(data)?;
    let next = old.last().map_or(0, |(id, _)| id + 1);
    File::create_new(data.join(format!("{next}.jnl")))?.sync_all()?;
    // Without any journal the engine would give out its sequence numbers again.
    sync_directory(data)?;
    for (_, path) in old {
        fs::remove_file(path)?;
    }
    sync_directory(data)
}

/// Whether each list of tables is the one that `current` names, byte for byte; otherwise what is damaged.
pub(super) fn check_lists(data: &Path) -> io::Result<Result<(), String>> {
    for keyspace in KEYSPACES {
        if let Err(what) = check_list(&data.join("keyspaces").join(keyspace))? {
            return Ok(Err(what));
        }
    }
    Ok(Ok(()))
}

fn check_list(keyspace: &Path) -> io::Result<Result<(), String>> {
    let damaged = |what: &str| Ok(Err(format!("{} {what}", keyspace.display())));
    let read = |name: &str| {
        from_disk(&keyspace.join(name)).and_then(|mut file| {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map(|_| bytes)
        })
    };
    let current = match read("current") {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return damaged("has no list of its tables"),
        Err(e) => return Err(e),
    };
    // Number of the list, its XXH3-128, kind of checksum.
    let Some((id, sum)) = current.split_first_chunk::<8>().filter(|(_, rest)| rest.len() == 17 && rest[16] == 0) else {
        return damaged("has a damaged file `current`");
    };
    let id = u64::from_le_bytes(*id);
    match read(&format!("v{id}")) {
        Ok(list) if xxh3_128(&list).to_le_bytes() == sum[..16] => Ok(Ok(())),
        Ok(_) => damaged(&format!("has a list of tables `v{id}` that is not the one written")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => damaged(&format!("has no list of tables `v{id}`")),
        Err(e) => Err(e),
    }
}

/// Journals, oldest first.
pub(super) fn journals(data: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(data)? {
        let path = entry?.path();
        let id = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".jnl")).and_then(|id| id.parse().ok());
        found.extend(id.map(|id| (id, path)));
    }
    found.sort_unstable();
    Ok(found)
}

/// A journal that is read from its start.
pub(super) struct Journal<R> {
    input: R,
    at: u64,
    items: Vec<u8>,
}

/// Why a batch is not one.
pub(super) enum Broken {
    Io(io::Error),
    /// It ends before its end, or is not what was written.
    Torn,
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::Torn } else { Self::Io(error) }
    }
}

impl Journal<BufReader<File>> {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { input: BufReader::with_capacity(1 << 18, from_disk(path)?), at: 0, items: Vec::new() })
    }

    /// Whether nothing was ever written from `end` on.
    pub(super) fn rest_is_blank(&mut self, end: u64) -> io::Result<bool> {
        let mut chunk = vec![0; 1 << 16];
        let mut at = end;
        loop {
            // A new journal is a hole of 64 MiB, which need not be read.
            at = match lseek(self.input.get_ref(), i64::try_from(at).unwrap_or(i64::MAX), Whence::SeekData) {
                Ok(data) => u64::try_from(data).unwrap_or(at).max(at),
                Err(Errno::ENXIO) => return Ok(true),
                // Where a file system knows no holes, all is read.
                Err(Errno::EINVAL | Errno::EOPNOTSUPP) => at,
                Err(e) => return Err(e.into()),
            };
            match self.input.get_ref().read_at(&mut chunk, at)? {
                0 => return Ok(true),
                n if chunk[..n].iter().all(|byte| *byte == 0) => at += n as u64,
                _ => return Ok(false),
            }
        }
    }
}

impl<R: Read> Journal<R> {
    /// Where the next batch begins.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// Reads one batch: its sequence number, and what it says of itself.
    pub(super) fn batch(&mut self) -> Result<(u64, Option<Mark>), Broken> {
        let head: [u8; 13] = self.take()?;
        if head[0] != HEAD {
            return Err(Broken::Torn);
        }
        let count = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
        let seqno = little(&head[5..]);
        self.items.clear();
        let mut mark = None;
        for n in 0..count {
            let (key, value) = self.item()?;
            if n == 0 && self.items[key.clone()] == *MARK_KEY {
                mark = Mark::from_bytes(&self.items[value]);
            }
        }
        let end: [u8; 13] = self.take()?;
        if end[0] != END || little(&end[1..9]) != xxh3_64(&self.items) || end[9..] != *VERSION {
            return Err(Broken::Torn);
        }
        Ok((seqno, mark))
    }

    /// Reads one item to the end of `items`; where its key and its value are there.
    fn item(&mut self) -> Result<(std::ops::Range<usize>, std::ops::Range<usize>), Broken> {
        let head: [u8; 1 + ITEM_HEAD_LEN] = self.take()?;
        let key_len = usize::from(u16::from_le_bytes([head[11], head[12]]));
        let value_len = u32::from_le_bytes([head[13], head[14], head[15], head[16]]);
        let stored_len = u32::from_le_bytes([head[17], head[18], head[19], head[20]]);
        if head[0] != ITEM || value_len != stored_len || value_len > VALUE_MAX {
            return Err(Broken::Torn);
        }
        self.items.extend_from_slice(&head);
        let key = self.items.len();
        let value = key + key_len;
        let end = value + value_len as usize;
        self.items.resize(end, 0);
        self.input.read_exact(&mut self.items[key..])?;
        self.at += (end - key) as u64;
        Ok((key..value, value..end))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }
}

/// The sequence number and the mark of the whole batch with which the bytes begin, if they do.
pub(super) fn whole_batch(bytes: &[u8]) -> Option<(u64, Mark)> {
    // The first item, as every transaction has it, up to its keyspace and from its lengths on.
    if bytes.first() != Some(&HEAD) || bytes.get(13..16) != Some(&[ITEM, 0, 0]) || bytes.get(24..35) != Some(&MARK_LENGTHS_AND_KEY) {
        return None;
    }
    let (seqno, mark) = Journal { input: bytes, at: 0, items: Vec::new() }.batch().ok()?;
    Some((seqno, mark?))
}

fn little(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::{DurableStore, Options};
    use crate::place::Making;
    use crate::stopped::StoppedStore;
    use bytes::Bytes;
    use cistern_wire::StoreId;

    #[test]
    fn files_of_the_engine_are_as_they_are_read() {
        let dir = tempfile::tempdir().unwrap();
        drop(DurableStore::open(dir.path(), &Options::new(Making::New(StoreId([1; 16]))), || {}).unwrap());
        let mut store = StoppedStore::open(dir.path()).unwrap();
        for n in 0..8_u8 {
            if n == 4 {
                store.compact().unwrap();
            }
            let value = Bytes::from(vec![n; 100 * usize::from(n)]);
            store.write([(vec![9, n], Some(value)), (vec![9, n / 2, 1], None)]).unwrap();
        }
        drop(store);
        let data = dir.path().join("data");
        assert!(is_known(&data).unwrap());
        assert_eq!(check_lists(&data).unwrap(), Ok(()));
        let (_, newest) = journals(&data).unwrap().pop().unwrap();
        let (bytes, mut journal) = (fs::read(&newest).unwrap(), Journal::open(&newest).unwrap());
        let (mut starts, mut marks) = (Vec::new(), Vec::new());
        let end = loop {
            let start = journal.at();
            let Ok((seqno, mark)) = journal.batch() else { break start };
            let (mark, start) = (mark.expect("the mark is the first item"), usize::try_from(start).unwrap());
            assert!(mark.allows(seqno) && journal.at() - start as u64 >= BATCH_MIN as u64);
            assert_eq!(whole_batch(&bytes[start..]), Some((seqno, mark)));
            starts.push(start);
            marks.push(mark.number);
        };
        assert!(journal.rest_is_blank(end).unwrap(), "all that was written is read");
        assert!(marks.len() >= 4 && marks.windows(2).all(|two| two[0] + 1 == two[1]), "{marks:?}");
        let found = (0..bytes.len()).filter(|at| whole_batch(&bytes[*at..]).is_some());
        assert!(found.eq(starts), "a batch is found where one begins, and nowhere else");
    }
}
