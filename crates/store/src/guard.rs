//! What is checked of the engine's files before the engine looks at them.
//!
//! Decides: whether the end of a journal is what a crash leaves, to be cut off, or damage. The engine (fjall 3) checks every block of its
//! tables whenever it reads one, but three things it takes on trust: that a journal which cannot be read on ends there, that the numbers
//! at the head of a journal's batches are right, and that a list of tables is the one that was written. A byte flipped in one of these
//! would lose transactions that were promised, or show them in another order, without a word. Place in the walk: between the lock and the
//! engine. Invariant: nothing that was ever promised is cut off: what cannot be read is cut only if it is the last of the newest journal,
//! no whole transaction lies behind it and no newer one is witnessed; a copy of it is kept, and it is put back when the engine then turns
//! out to lack something ([`Cut::undo`]).
//! Leaves to others: how the engine's files are laid out (`guard::layout`), tables and their blocks (the engine), what was promised
//! (`witness`).

mod layout;

pub(crate) use layout::{renew_journal, sync_names};

use crate::witness;
use layout::{BATCH_MIN, Broken, Journal};
use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// The key of the record that each transaction writes of itself; no key of the server's begins so.
pub(crate) const MARK_KEY: &[u8] = &[0];
/// Where the bytes cut off a journal are kept, in the store's directory; the last ones cut, for whoever has to look into it.
const CUT: &str = "cut-off";

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
    if !layout::is_known(data)? {
        return Ok(Err("the engine's file `version`".to_owned()));
    }
    sync_names(data)?;
    if let Err(what) = layout::check_lists(data)? {
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

/// What was read of all journals so far.
#[derive(Default)]
struct JournalsRead {
    /// The newest transaction.
    mark: Option<Mark>,
    seqno: u64,
}

impl JournalsRead {
    /// Reads batches as long as they are whole; gives where they end. An error: whole batches that were never written so.
    fn read(&mut self, journal: &mut Journal<BufReader<File>>) -> io::Result<Result<u64, String>> {
        loop {
            let start = journal.at();
            let (seqno, mark) = match journal.batch() {
                Ok(batch) => batch,
                Err(Broken::Torn) => return Ok(Ok(start)),
                Err(Broken::Io(e)) => return Err(e),
            };
            let Some(mark) = mark else { return Ok(Err(format!("has a transaction without a number at byte {start}"))) };
            if self.mark.is_some_and(|before| before.number + 1 != mark.number) {
                let before = self.mark.map_or(0, |before| before.number);
                return Ok(Err(format!("has transaction {} after {before} at byte {start}", mark.number)));
            }
            if !mark.allows(seqno) || (self.mark.is_some() && seqno <= self.seqno) {
                return Ok(Err(format!("has a wrong sequence number at byte {start}")));
            }
            *self = Self { mark: Some(mark), seqno };
        }
    }
}

fn check_journals(dir: &Path, data: &Path, promised: u64) -> io::Result<Result<Checked, String>> {
    let journals = layout::journals(data)?;
    let mut seen = JournalsRead::default();
    let mut torn = None;
    for (at, (_, path)) in journals.iter().enumerate() {
        let newest = at + 1 == journals.len();
        let mut journal = Journal::open(path)?;
        let end = match seen.read(&mut journal)? {
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
        if let Some((at, number)) = rest.whole_batch(&seen) {
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
    fn whole_batch(&self, seen: &JournalsRead) -> Option<(u64, u64)> {
        // Contents may look like a journal: a number that cannot follow is none of this store's.
        let most = (self.bytes.len() / BATCH_MIN) as u64 + 1;
        for at in 0..self.bytes.len() {
            let Some((seqno, mark)) = layout::whole_batch(&self.bytes[at..]) else { continue };
            let follows = seen.mark.is_none_or(|last| mark.number > last.number && mark.number - last.number <= most && seqno > seen.seqno);
            if follows && mark.allows(seqno) {
                return Some((self.start + at as u64, mark.number));
            }
        }
        None
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
