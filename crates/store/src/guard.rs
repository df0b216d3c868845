//! What is checked of the engine's files before the engine looks at them.
//!
//! Decides: whether the end of a journal is what a crash leaves, to be cut off, or damage. The engine (fjall 3) checks every block of its
//! tables whenever it reads one, but three things it takes on trust: that a journal which cannot be read on ends there, that the numbers
//! at the head of a journal's batches are right, and that a list of tables is the one that was written. A byte flipped in one of these
//! would lose transactions that were promised, or show them in another order, without a word. Place in the walk: between the lock and the
//! engine. Invariant: nothing that was ever promised is cut off: what cannot be read is cut only if it is the last of the newest journal
//! and no newer transaction is witnessed, and a copy of it is kept.
//! Leaves to others: tables and their blocks (the engine), what was promised (`witness`).
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

use crate::witness;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// The key of the record that each transaction writes of itself; no key of the server's begins so.
pub(crate) const MARK_KEY: &[u8] = &[0];
/// Where the bytes cut off a journal are kept, in the store's directory; the last ones cut, for whoever has to look into it.
const CUT: &str = "cut-off";

const VERSION: &[u8] = b"FJL\x03";
const HEAD: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const ITEM_HEAD_LEN: usize = 20;
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
}

/// Checks what the engine would not; gives a lower bound of the newest transaction that it must then have.
///
/// # Errors
/// What is damaged, in words; nothing was changed then.
pub(crate) fn check(dir: &Path, data: &Path) -> io::Result<Result<u64, String>> {
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
    for keyspace in ["0", "1"] {
        if let Err(what) = check_tables(&data.join("keyspaces").join(keyspace))? {
            return Ok(Err(what));
        }
    }
    check_journals(dir, data, promised)
}

/// The list of tables is the one that `current` names, byte for byte.
fn check_tables(keyspace: &Path) -> io::Result<Result<(), String>> {
    let damaged = |what: &str| Ok(Err(format!("{} {what}", keyspace.display())));
    let current = match fs::read(keyspace.join("current")) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return damaged("has no list of its tables"),
        Err(e) => return Err(e),
    };
    // Number of the list, its XXH3-128, kind of checksum.
    let Some((id, sum)) = current.split_first_chunk::<8>().filter(|(_, rest)| rest.len() == 17 && rest[16] == 0) else {
        return damaged("has a damaged file `current`");
    };
    let id = u64::from_le_bytes(*id);
    match fs::read(keyspace.join(format!("v{id}"))) {
        Ok(list) if xxh3_128(&list).to_le_bytes() == sum[..16] => Ok(Ok(())),
        Ok(_) => damaged(&format!("has a list of tables `v{id}` that is not the one written")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => damaged(&format!("has no list of tables `v{id}`")),
        Err(e) => Err(e),
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
struct Seen {
    /// The newest transaction.
    mark: Option<Mark>,
    seqno: u64,
}

fn check_journals(dir: &Path, data: &Path, promised: u64) -> io::Result<Result<u64, String>> {
    let journals = journals(data)?;
    let mut seen = Seen::default();
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
        cut(dir, path, end)?;
    }
    match seen.mark {
        Some(mark) if mark.number < promised => {
            Ok(Err(format!("its journals end with transaction {}, and {promised} was promised", mark.number)))
        }
        Some(mark) => Ok(Ok(mark.number)),
        None => Ok(Ok(promised)),
    }
}

/// Cuts the torn end off a journal, keeping a copy.
fn cut(dir: &Path, path: &Path, end: u64) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    io::Seek::seek(&mut file, io::SeekFrom::Start(end))?;
    file.read_to_end(&mut bytes)?;
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut copy = File::create(dir.join(CUT))?;
    copy.write_all(&bytes[..used])?;
    copy.sync_all()?;
    log::warn!(
        "store {}: the last transaction was never finished, as a crash leaves it, and was promised to nobody: cut {used} bytes off {}, kept in \
         `{CUT}`",
        dir.display(),
        path.display()
    );
    file.set_len(end)?;
    file.sync_all()
}

/// A journal that is read from its start.
struct Journal {
    input: BufReader<File>,
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

impl Journal {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { input: BufReader::with_capacity(1 << 18, File::open(path)?), at: 0, items: Vec::new() })
    }

    /// Reads batches as long as they are whole; gives where they end. An error: whole batches that were never written so.
    fn run(&mut self, seen: &mut Seen) -> io::Result<Result<u64, String>> {
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
            if seqno < mark.floor || seqno - mark.floor > STEP_MAX || (seen.mark.is_some() && seqno <= seen.seqno) {
                return Ok(Err(format!("has a wrong sequence number at byte {start}")));
            }
            *seen = Seen { mark: Some(mark), seqno };
        }
    }

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

    /// Whether nothing was ever written from `end` on.
    fn rest_is_blank(&mut self, end: u64) -> io::Result<bool> {
        io::Seek::seek(&mut self.input, io::SeekFrom::Start(end))?;
        let mut chunk = vec![0; 1 << 16];
        loop {
            match self.input.read(&mut chunk)? {
                0 => return Ok(true),
                n if chunk[..n].iter().all(|byte| *byte == 0) => {}
                _ => return Ok(false),
            }
        }
    }
}

fn little(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
