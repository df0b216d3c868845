//! Space that is taken in advance, so that a store goes on where others have filled its file system.
//!
//! Decides: how much, and when it is taken and given up. A server on a full disk still has to write: sessions, removals, the tables and
//! journals that give space back. Place in the walk: made by the watching thread, given up by the writer and before a store is opened.
//! Invariant: it is no part of what is known for good: whoever has the store may remove it at any time.
//! Leaves to others: what is refused without room (`space`, `cistern_server`).

use crate::engine::MEMTABLE;
use crate::space::free;
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Name of the file in the store's directory.
const NAME: &str = "spare";

/// The file that takes the space.
#[derive(Debug)]
pub(crate) struct Spare {
    path: PathBuf,
    bytes: u64,
}

impl Spare {
    /// For a store in `dir` that keeps `reserve` free: a quarter of that is taken in advance.
    pub(crate) fn new(dir: &Path, reserve: u64) -> Self {
        Self { path: dir.join(NAME), bytes: reserve / 4 }
    }

    /// Bytes that it takes now.
    pub(crate) fn taken(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |data| data.blocks() * 512)
    }

    /// Takes the space, or what is missing of it, where the file system can do that: whoever made the file may have been killed before
    /// it was filled, have had another reserve, or have copied it without its blocks.
    ///
    /// # Errors
    /// What the system said; nothing is taken then.
    pub(crate) fn take(&self) -> io::Result<()> {
        let whole = |data: fs::Metadata| data.len() == self.bytes && data.blocks() * 512 >= self.bytes;
        if self.bytes == 0 || fs::metadata(&self.path).is_ok_and(whole) {
            return Ok(());
        }
        let len = i64::try_from(self.bytes).unwrap_or(i64::MAX);
        let file = File::options().write(true).create(true).truncate(false).open(&self.path)?;
        // The file may be longer than that.
        fallocate(&file, FallocateFlags::empty(), 0, len).map_err(io::Error::from).and_then(|()| file.set_len(self.bytes)).inspect_err(
            |_| {
                let _ = fs::remove_file(&self.path);
            },
        )
    }

    /// Bytes that must be free for it.
    pub(crate) const fn wants(&self) -> u64 {
        self.bytes
    }

    /// Gives the space up; whether there was any.
    pub(crate) fn give_up(&self) -> bool {
        fs::remove_file(&self.path).is_ok()
    }
}

/// Before the engine opens files in `dir`: gives the spare space up if the engine could not make a table of what it reads from its journals.
pub(crate) fn make_way(dir: &Path) {
    let spare = Spare { path: dir.join(NAME), bytes: 0 };
    if free(dir).is_ok_and(|free| free < 2 * MEMTABLE) && spare.give_up() {
        log::warn!("store {}: its file system is full; gives up `{NAME}`, to be able to start", dir.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_never_filled_or_has_another_size_is_made_whole() {
        let dir = tempfile::tempdir().unwrap();
        let spare = Spare::new(dir.path(), 4 << 20);
        for len in [0, 300_000, 1 << 20, 3 << 20] {
            // Without blocks, whatever its length.
            File::create(&spare.path).unwrap().set_len(len).unwrap();
            spare.take().unwrap();
            let taken = (fs::metadata(&spare.path).unwrap().len(), spare.taken());
            assert!(taken.0 == 1 << 20 && (1 << 20..2 << 20).contains(&taken.1), "of {len} bytes: {taken:?}");
        }
        Spare::new(dir.path(), 1 << 20).take().unwrap();
        assert!((256 << 10..1 << 20).contains(&spare.taken()), "{} bytes for a smaller reserve", spare.taken());
    }
}
