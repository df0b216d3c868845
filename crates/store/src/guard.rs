//! What is checked of the engine's files before the engine looks at them.
//!
//! Decides: whether the end of a journal is what a crash leaves, to be cut off, or damage. The engine (fjall 3) checks every block of its
//! tables whenever it reads one, but three things it takes on trust: that a journal which cannot be read on ends there, that the numbers
//! at the head of a journal's batches are right, and that a list of tables is the one that was written. A byte flipped in one of these
//! would lose transactions that were promised, or show them in another order, without a word. Place in the walk: between the lock and the
//! engine. Invariant: nothing that was ever promised is cut off: what cannot be read is cut only if it is the last of the newest journal,
//! no whole transaction lies behind it and no newer one is witnessed; a copy of it is kept, and it is put back when the engine then turns
//! out to lack something ([`Cut::undo`]).
//! Leaves to others: lists of tables and names (`guard::tables`), tables and their blocks (the engine), what was promised (`witness`).
//!
//! The layouts are those of fjall 3.1 and lsm-tree 3.1, read from their sources; `format::ENGINE` names the version, and tests drive this
//! code over files that the engine wrote.
//!
//! | batch in a journal | |
//! |---|---|
//! | head | 1: u8, items: u32, sequence number: u64 |
//! | item, as often | 2: u8, kind: u8, compression: u8, keyspace: u64, key length: u16, value length: u32, stored length: u32, key, value |
//! | end | 3: u8, XXH3-64 of the items: u64, `FJL` 3 |
//!
//! Integers are little endian. The first item of each batch is the transaction's own record ([`Mark`]).

mod renew;
mod tables;

pub(crate) use renew::renew_journal;
pub(crate) use tables::sync_names;

use crate::witness;
use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::unistd::{Whence, lseek};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// The key of the record that each transaction writes of itself; no key of the server's begins so.
pub(crate) const MARK_KEY: &[u8] = &[0];
/// Where the bytes cut off a journal are kept, in the store's directory; the last ones cut, for whoever has to look into it.
const CUT: &str = "cut-off";

const VERSION: &[u8] = b"FJL\x03";
const HEAD: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const ITEM_HEAD_LEN: usize = 20;
/// In the first item of a batch: lengths of key and value (the latter twice), and the key, which is [`MARK_KEY`].
const MARK_LENGTHS_AND_KEY: [u8; 11] = [1, 0, 16, 0, 0, 0, 16, 0, 0, 0, 0];
/// Length of a batch of one item, its mark.
const BATCH_MIN: usize = 13 + 1 + ITEM_HEAD_LEN + 1 + 16 + 13;
/// Largest value that is believed; the largest written is a block of contents.
const VALUE_MAX: u32 = 1 << 20;
/// Sequence numbers that the engine may use for itself between two transactions: a few for each flush and compaction.
const STEP_MAX: u64 = 1 << 20;

/// What a transaction says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Its number: one more than that of the transaction before.
    pub(crate) number: u64,
    /// A sequence number that the engine had not given to any transaction before it.
    pub(crate) floor: u64,
}

impl Mark {
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let (first, last) = bytes.split_at_mut(8);
        first.copy_from_slice(&self.number.to_be_bytes());
        last.copy_from_slice(&self.floor.to_be_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (number, floor) = bytes.split_first_chunk()?;
        let floor = u64::from_be_bytes(*floor.first_chunk()?);
        (bytes.len() == 16).then_some(Self { number: u64::from_be_bytes(*number), floor })
    }

    /// Whether the engine can have given its transaction this sequence number.
    fn allows(self, seqno: u64) -> bool {
        seqno.checked_sub(self.floor).is_some_and(|step| step <= STEP_MAX)
    }
}

/// What is known of files that may be given to the engine.
pub(crate) struct Checked {
    /// A lower bound of the newest transaction that the engine must then have.
    pub(crate) promised: u64,
    /// What was cut off, to be put back if it has not.
    pub(crate) cut: Option<Cut>,
}

/// Checks what the engine would not.
///
/// # Errors
/// What is damaged, in words; nothing was changed then.
pub(crate) fn check(dir: &Path, data: &Path) -> io::Result<Result<Checked, String>> {
    let promised = match witness::read(dir)? {
        Some(number) => number,
        None => {
            log::warn!("store {}: the file `{}` is not what was written; it is made anew", dir.display(), witness::NAME);
            0
        }
    };
    if fs::read(data.join("version"))? != VERSION {
        return Ok(Err("the engine's file `version`".to_owned()));
    }
    sync_names(data)?;
    if let Err(what) = tables::check(data)? {
        return Ok(Err(what));
    }
    check_journals(dir, data, promised)
}

/// Opens a file to read what the disk has of it. After a failed sync the kernel may keep pages that never reached the disk and call them
/// clean; and what a killed server wrote may not be synced yet, although it is about to be counted as durable.
fn from_disk(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    file.sync_all()?;
    match posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED) {
        // Where a file system knows no such advice, it has no such pages or cannot be helped.
        Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => Ok(file),
        Err(e) => Err(e.into()),
    }
}

/// Journals, oldest first.
fn journals(data: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(data)? {
        let path = entry?.path();
        let id = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".jnl")).and_then(|id| id.parse().ok());
        found.extend(id.map(|id| (id, path)));
    }
    found.sort_unstable();
    Ok(found)
}

/// What was read of all journals so far.
#[derive(Default)]
struct JournalsRead {
    /// The newest transaction.
    mark: Option<Mark>,
    seqno: u64,
}

fn check_journals(dir: &Path, data: &Path, promised: u64) -> io::Result<Result<Checked, String>> {
    let journals = journals(data)?;
    let mut seen = JournalsRead::default();
    let mut torn = None;
    for (at, (_, path)) in journals.iter().enumerate() {
        let newest = at + 1 == journals.len();
        let mut journal = Journal::open(path)?;
        let end = match journal.run(&mut seen)? {
            Ok(end) => end,
            Err(what) => return Ok(Err(format!("{} {what}", path.display()))),
        };
        if journal.rest_is_blank(end)? {
            continue;
        }
        let last = seen.mark.map_or(0, |mark| mark.number);
        // Without any transaction to go by it may be a crash; what the engine then lacks is still missed by its number.
        if !newest || (seen.mark.is_some() && last < promised) {
            let what = format!("cannot be read from byte {end} on; its last whole transaction is {last}, and {promised} was promised");
            return Ok(Err(format!("{} {what}", path.display())));
        }
        let rest = Rest::read(path, end)?;
        // Each transaction is synced before the next is begun: a crash tears the last, and nothing lies behind it.
        if let Some((at, number)) = rest.whole_batch(&seen)? {
            let what = format!("cannot be read at byte {end}, and the whole transaction {number} follows at byte {at}");
            return Ok(Err(format!("{} {what}", path.display())));
        }
        torn = Some((path, rest));
    }
    let promised = match seen.mark {
        Some(mark) if mark.number < promised => {
            return Ok(Err(format!("its journals end with transaction {}, and {promised} was promised", mark.number)));
        }
        Some(mark) => mark.number,
        None => promised,
    };
    let cut = torn.map(|(path, rest)| rest.cut(dir, path)).transpose()?;
    Ok(Ok(Checked { promised, cut }))
}

/// What follows the last whole transaction of a journal, without the zeros at its end.
struct Rest {
    start: u64,
    /// Length of the file.
    len: u64,
    bytes: Vec<u8>,
}

impl Rest {
    fn read(path: &Path, start: u64) -> io::Result<Self> {
        let mut file = File::open(path)?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        let len = start + file.read_to_end(&mut bytes)? as u64;
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        Ok(Self { start, len, bytes })
    }

    /// Where in the file the first whole transaction begins that may come after what was seen, and its number.
    fn whole_batch(&self, seen: &JournalsRead) -> io::Result<Option<(u64, u64)>> {
        // Contents may look like a journal: a number that cannot follow is none of this store's.
        let most = (self.bytes.len() / BATCH_MIN) as u64 + 1;
        for at in 0..self.bytes.len() {
            let bytes = &self.bytes[at..];
            // The first item, as every transaction has it, up to its keyspace and from its lengths on.
            if bytes[0] != HEAD || bytes.get(13..16) != Some(&[ITEM, 0, 0]) || bytes.get(24..35) != Some(&MARK_LENGTHS_AND_KEY) {
                continue;
            }
            let mut journal = Journal { input: bytes, at: 0, items: Vec::new() };
            let (seqno, mark) = match journal.batch() {
                Ok((seqno, Some(mark))) => (seqno, mark),
                Ok((_, None)) | Err(Broken::Torn) => continue,
                Err(Broken::Io(e)) => return Err(e),
            };
            let follows = seen.mark.is_none_or(|last| mark.number > last.number && mark.number - last.number <= most && seqno > seen.seqno);
            if follows && mark.allows(seqno) {
                return Ok(Some((self.start + at as u64, mark.number)));
            }
        }
        Ok(None)
    }

    /// Cuts it off, keeping a copy.
    fn cut(self, dir: &Path, path: &Path) -> io::Result<Cut> {
        let mut copy = File::create(dir.join(CUT))?;
        copy.write_all(&self.bytes)?;
        copy.sync_all()?;
        log::warn!(
            "store {}: the last transaction was never finished, as a crash leaves it, and was promised to nobody: cut {} bytes off {}, kept \
             in `{CUT}`",
            dir.display(),
            self.bytes.len(),
            path.display()
        );
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(self.start)?;
        file.sync_all()?;
        Ok(Cut { path: path.to_owned(), rest: self })
    }
}

/// An end that was cut off a journal.
pub(crate) struct Cut {
    path: PathBuf,
    rest: Rest,
}

impl Cut {
    /// Puts it back, for it was no torn end after all; the engine must have closed the journal.
    pub(crate) fn undo(&self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.write_all_at(&self.rest.bytes, self.rest.start)?;
        file.set_len(self.rest.len)?;
        file.sync_all()
    }
}

/// A journal that is read from its start.
struct Journal<R> {
    input: R,
    at: u64,
    items: Vec<u8>,
}

/// Why a batch is not one.
enum Broken {
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
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { input: BufReader::with_capacity(1 << 18, from_disk(path)?), at: 0, items: Vec::new() })
    }

    /// Reads batches as long as they are whole; gives where they end. An error: whole batches that were never written so.
    fn run(&mut self, seen: &mut JournalsRead) -> io::Result<Result<u64, String>> {
        loop {
            let start = self.at;
            let (seqno, mark) = match self.batch() {
                Ok(batch) => batch,
                Err(Broken::Torn) => return Ok(Ok(start)),
                Err(Broken::Io(e)) => return Err(e),
            };
            let Some(mark) = mark else { return Ok(Err(format!("has a transaction without a number at byte {start}"))) };
            if seen.mark.is_some_and(|before| before.number + 1 != mark.number) {
                let before = seen.mark.map_or(0, |before| before.number);
                return Ok(Err(format!("has transaction {} after {before} at byte {start}", mark.number)));
            }
            if !mark.allows(seqno) || (seen.mark.is_some() && seqno <= seen.seqno) {
                return Ok(Err(format!("has a wrong sequence number at byte {start}")));
            }
            *seen = JournalsRead { mark: Some(mark), seqno };
        }
    }

    /// Whether nothing was ever written from `end` on.
    fn rest_is_blank(&mut self, end: u64) -> io::Result<bool> {
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
    /// Reads one batch: its sequence number, and what it says of itself.
    fn batch(&mut self) -> Result<(u64, Option<Mark>), Broken> {
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

fn little(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
