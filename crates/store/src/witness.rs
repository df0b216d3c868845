//! A lower bound of what the store has made durable, kept beside the engine's files.
//!
//! Decides: that after each synced transaction its number is written here, without a sync of its own. The engine drops what it takes
//! for the torn end of a crash; the number tells an end that was never promised from one that was, and was damaged since.
//! Invariant: the number is never larger than that of the newest synced transaction, for it is written after the sync; after a loss
//! of power it may be older, which forgives and never accuses.
//! Leaves to others: numbering transactions (`engine`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Its name in the store directory.
pub(crate) const NAME: &str = "witness";
/// Number, then checksum; within one sector, so that no crash tears it.
const LEN: usize = 12;

/// The file, open for writing.
#[derive(Debug)]
pub(crate) struct Witness {
    file: File,
}

impl Witness {
    /// Opens or makes it.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(dir.join(NAME))?;
        Ok(Self { file })
    }

    /// Transaction `number` is durable.
    pub(crate) fn saw(&self, number: u64) -> io::Result<()> {
        self.file.write_all_at(&record(number), 0)
    }
}

/// The bound, as it was written last; 0 if there is none, `None` if the file is not what was written.
pub(crate) fn read(dir: &Path) -> io::Result<Option<u64>> {
    match std::fs::read(dir.join(NAME)) {
        // Emptied by a crash that came before its first write reached the disk.
        Ok(bytes) if bytes.is_empty() => Ok(Some(0)),
        Ok(bytes) => {
            let number = bytes.first_chunk().map(|number| u64::from_be_bytes(*number));
            Ok(number.filter(|number| bytes == record(*number)))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Some(0)),
        Err(e) => Err(e),
    }
}

fn record(number: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let (first, last) = bytes.split_at_mut(8);
    first.copy_from_slice(&number.to_be_bytes());
    last.copy_from_slice(&crc32fast::hash(&number.to_be_bytes()).to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_is_read_back_and_a_flipped_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(0));
        let witness = Witness::open(dir.path()).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(0));
        for number in [1, u64::MAX, 300] {
            witness.saw(number).unwrap();
            assert_eq!(read(dir.path()).unwrap(), Some(number));
        }
        let mut bytes = record(300).to_vec();
        bytes[7] ^= 1;
        std::fs::write(dir.path().join(NAME), &bytes).unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
    }
}
