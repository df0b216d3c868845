//! Whether there is room for more.
//!
//! Decides: when the server is told that the store is full, and when that it is so no more, by two bounds: what the store may take, and
//! what its file system must keep free. Place in the walk: asked after commits and once a second. Invariant: told early enough that what
//! is on the way, and what goes on without room (the ends of sessions, removals), still fits.
//! Leaves to others: what is refused without room (`cistern_server`).

use crate::engine::MEMTABLE;
use crate::spare::Spare;
use nix::sys::statvfs::statvfs;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Bounds on the space that a store takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceLimits {
    /// Most bytes on disk; `None`: no bound. Sensible from 256 MiB on: journals alone may take half of that for a while.
    pub limit: Option<u64>,
    /// Bytes that the file system must have free for this user: below it nothing more is taken in. What is on the way when it is
    /// reached, and the engine's own rewriting, need them.
    pub reserve: u64,
}

impl Default for SpaceLimits {
    /// No bound, 256 MiB to be kept free.
    fn default() -> Self {
        Self { limit: None, reserve: 256 << 20 }
    }
}

/// Free bytes above which commits do not look before they write.
const AMPLE: u64 = 1 << 30;

/// One look at the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Bytes that the store takes; `None`: not counted.
    used: Option<u64>,
    /// Bytes that are free.
    available: u64,
    /// Bytes that are taken in advance.
    spare: u64,
}

impl Seen {
    /// Looks at the disk, and waits for it; `count`: also at what the store takes, file by file.
    pub(crate) fn of(dir: &Path, count: bool, spare: &Spare) -> io::Result<Self> {
        let spare = spare.taken();
        let used = if count { Some(taken(dir)?.saturating_sub(spare)) } else { None };
        Ok(Self { used, available: free(dir)?, spare })
    }
}

/// What was seen of the space last.
#[derive(Debug)]
pub(crate) struct Gauge {
    limits: SpaceLimits,
    /// Bytes that the store takes, when they were counted last.
    pub(crate) used: u64,
    /// Bytes that are free.
    available: u64,
    /// Bytes that are taken in advance.
    spare: u64,
    /// What the server was told.
    pub(crate) room: bool,
}

impl Gauge {
    pub(crate) const fn new(limits: SpaceLimits) -> Self {
        Self { limits, used: 0, available: 0, spare: 0, room: true }
    }

    /// Bytes that its file system must have free.
    pub(crate) const fn reserve(&self) -> u64 {
        self.limits.reserve
    }

    /// Bytes that are free, or taken in advance.
    pub(crate) const fn free(&self) -> u64 {
        self.available.saturating_add(self.spare)
    }

    /// Takes in what was seen. Gives what to tell the server, if it changed.
    pub(crate) fn take(&mut self, seen: Seen) -> Option<bool> {
        self.used = seen.used.unwrap_or(self.used);
        (self.available, self.spare) = (seen.available, seen.spare);
        self.judge()
    }

    /// Once full, an eighth of the reserve, or a thirty-second of the limit, must be won back: otherwise each removal would let one
    /// mutation in.
    fn judge(&mut self) -> Option<bool> {
        let SpaceLimits { limit, reserve } = self.limits;
        let limit = limit.unwrap_or(u64::MAX);
        let (least, most) = if self.room { (reserve, limit) } else { (self.again().0, self.again().1.unwrap_or(limit)) };
        let room = self.used <= most && self.free() >= least;
        let changed = room != self.room;
        self.room = room;
        changed.then_some(room)
    }

    /// How many bytes must be free, and how many the store may take, before there is room again.
    pub(crate) const fn again(&self) -> (u64, Option<u64>) {
        let SpaceLimits { limit, reserve } = self.limits;
        let most = match limit {
            Some(limit) => Some(limit - limit / 32),
            None => None,
        };
        (reserve + reserve / 8, most)
    }

    /// Whether so much is free that the next commit need not look: others do not fill it between two looks.
    pub(crate) const fn is_ample(&self) -> bool {
        // Without what is taken in advance: a commit cannot write there.
        self.available > AMPLE
    }

    /// Whether everything could be rewritten without running out of space on the way, and without what is taken in advance.
    pub(crate) const fn can_rewrite(&self) -> bool {
        self.available > self.used.saturating_add(2 * MEMTABLE)
    }
}

/// Bytes of a copy after which the free space is looked at again.
const LOOK_AFTER: usize = 4 << 20;

/// What keeps a copy from filling the file system of the store that it is of.
#[derive(Debug)]
pub(crate) struct Frugal {
    /// What is to stay free there; `None`: the copy is on another, and may fill it.
    reserve: Option<u64>,
    /// Bytes since the last look; begins with a look.
    unseen: usize,
}

impl Frugal {
    /// For a copy in `to`, a directory that is there, of the store in `from`, for whose server `reserve` is to stay free there: twice that is, for it
    /// is to go on taking writes.
    pub(crate) fn new(from: &Path, to: &Path, reserve: u64) -> io::Result<Self> {
        let same = fs::metadata(from)?.dev() == fs::metadata(to)?.dev();
        Ok(Self { reserve: same.then_some(reserve.saturating_mul(2)), unseen: LOOK_AFTER })
    }

    /// Before so many bytes are written into `to`; an error says what is missing.
    pub(crate) fn spend(&mut self, to: &Path, bytes: usize) -> Result<(), String> {
        let Some(reserve) = self.reserve else { return Ok(()) };
        self.unseen += bytes;
        if self.unseen < LOOK_AFTER {
            return Ok(());
        }
        let unseen = std::mem::take(&mut self.unseen) as u64;
        let free = free(to).map_err(|e| format!("looking at its free space: {e}"))?;
        if free >= reserve.saturating_add(unseen) {
            return Ok(());
        }
        Err(format!(
            "stopped, and what was copied is removed: {free} bytes are free on the file system that the store is on too, and {reserve} must \
             stay free for its server; make room, or name a directory on another file system"
        ))
    }
}

/// Bytes that are free for this user on a directory's file system.
pub(crate) fn free(dir: &Path) -> io::Result<u64> {
    let disk = statvfs(dir)?;
    Ok(disk.blocks_available().saturating_mul(disk.fragment_size()))
}

/// Bytes that a directory and all in it take on the disk; files that go meanwhile do not count.
fn taken(dir: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = match entry.metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        sum += match metadata.is_dir() {
            true => taken(&entry.path()).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(0) } else { Err(e) })?,
            false => metadata.blocks() * 512,
        };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_is_told_once_and_taken_back_only_when_something_was_won() {
        let mut gauge = Gauge::new(SpaceLimits { limit: Some(3_200), reserve: 800 });
        let mut at = |used, available| gauge.take(Seen { used: Some(used), available, spare: 0 });
        assert_eq!(at(3_200, 800), None);
        assert_eq!((at(3_201, 800), at(3_300, 800)), (Some(false), None));
        assert_eq!((at(3_150, 900), at(3_100, 899), at(3_100, 900)), (None, None, Some(true)));
        assert_eq!((at(0, 799), at(0, 850), at(0, 900)), (Some(false), None, Some(true)));
        assert_eq!(gauge.take(Seen { used: None, available: 699, spare: 100 }), Some(false));
        assert_eq!((gauge.used, gauge.free()), (0, 799), "what was not counted is as it was");
    }

    #[test]
    fn what_is_taken_in_advance_counts_as_room_but_not_as_space_to_write_into() {
        const GIB: u64 = 1 << 30;
        let mut gauge = Gauge::new(SpaceLimits { limit: None, reserve: 4 * GIB });
        let mut at = |available, spare| {
            gauge.take(Seen { used: Some(3 * GIB / 2), available, spare });
            (gauge.room, gauge.is_ample(), gauge.can_rewrite())
        };
        assert_eq!(at(3 * GIB, GIB), (true, true, true));
        assert_eq!(at(3 * GIB / 2, GIB), (false, true, false), "tables of 1.5 GiB do not fit into 1.5 GiB once more");
        assert_eq!(at(GIB / 2, GIB), (false, false, false), "a commit has to look");
        assert_eq!(at(2 * GIB, 0), (false, true, true));
    }

    #[test]
    fn what_is_taken_is_what_the_files_take() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("in")).unwrap();
        fs::write(dir.path().join("in/a"), vec![1; 100_000]).unwrap();
        fs::File::create(dir.path().join("sparse")).unwrap().set_len(1 << 30).unwrap();
        let taken = taken(dir.path()).unwrap();
        assert!((100_000..1 << 20).contains(&taken), "{taken}");
    }
}
