//! The making of a store: begun, broken off, begun anew, undone.
//!
//! Decides: how a directory says that a store is being made in it, and what of an earlier attempt may be thrown away. Place in the walk:
//! under the lock, when there is no record. Invariant: nothing is removed but what a making of ours has left: the first line of `making`
//! says so, and nothing that is not ours lies beside it.
//! Leaves to others: the lock, and what the directory is otherwise (`place`).

use super::{DATA, FORMAT, FORMAT_NEW, LOCK, LOST_FOUND, MAKING, remove_if_there, sync_directory, write_format};
use crate::error::{OpenError, Problem};
use crate::format::Record;
use crate::witness;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

/// What `making` holds.
const MAGIC: &[u8] = b"cistern store in the making\n";

/// What a store that is being made may hold.
const OURS: [&str; 6] = [MAKING, LOCK, DATA, witness::NAME, FORMAT_NEW, LOST_FOUND];

/// There is a file `making`: refuses the directory unless a store of ours was begun in it, and there is nothing else.
pub(super) fn refuse_unless_ours(dir: &Path) -> Result<(), OpenError> {
    let foreign = |what: String| Err(OpenError::new(Problem::Foreign, dir, format!("not a store: {what}; name another directory")));
    let looking = |e: io::Error| OpenError::io(dir, "cannot be listed", &e);
    for name in names(dir).map_err(looking)? {
        if !OURS.iter().any(|ours| name == *ours) {
            return foreign(format!("it has no file `format`, but {}", name.display()));
        }
    }
    let text = read(dir).map_err(|e| OpenError::io(dir, "reading `making`", &e))?;
    if text == MAGIC || is_torn(&text) && is_the_engines(&dir.join(DATA)).map_err(looking)? {
        return Ok(());
    }
    foreign("its file `making` is not ours".to_owned())
}

/// Whether a crash may have left this of [`MAGIC`]: its beginning, or zeros where its bytes were not yet on the disk.
fn is_torn(text: &[u8]) -> bool {
    text.len() <= MAGIC.len() && text.iter().zip(MAGIC).all(|(byte, ours)| [*ours, 0].contains(byte))
}

/// Whether a directory is missing, or holds what the engine makes and nothing else. Asked where a crash may have taken the text of
/// `making`, but not its name.
fn is_the_engines(data: &Path) -> io::Result<bool> {
    let is_ours =
        |name: &OsStr| ["keyspaces", "lock", "version"].iter().any(|ours| name == *ours) || name.as_encoded_bytes().ends_with(b".jnl");
    match names(data) {
        Ok(names) => Ok(names.iter().all(|name| is_ours(name))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Ok(false),
        Err(e) => Err(e),
    }
}

fn names(dir: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
}

/// The text of `making`, or enough of it to see that it is another; empty without one.
fn read(dir: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    match File::open(dir.join(MAKING)) {
        Ok(file) => file.take(MAGIC.len() as u64 + 1).read_to_end(&mut text).map(|_| text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(text),
        Err(e) => Err(e),
    }
}

/// Makes the store; whatever an earlier attempt has left is thrown away.
pub(super) fn make(dir: &Path, record: Record, fill: impl FnOnce(&Path) -> Result<(), OpenError>) -> Result<(), OpenError> {
    let failed = |doing: &'static str| move |e: io::Error| OpenError::io(dir, doing, &e);
    let (making, data) = (dir.join(MAKING), dir.join(DATA));
    // One that is there stays as it is: what it vouches for may be there too.
    if read(dir).map_err(failed("reading `making`"))? != MAGIC {
        let write = |mut file: File| file.write_all(MAGIC).and_then(|()| file.sync_all());
        File::create(&making).and_then(write).map_err(failed("writing `making`"))?;
    }
    sync_directory(dir).map_err(failed("syncing it"))?;
    if data.exists() {
        fs::remove_dir_all(&data).map_err(failed("removing what an unfinished making left"))?;
    }
    remove_if_there(&dir.join(witness::NAME)).map_err(failed("removing `witness`"))?;
    fill(&data)?;
    sync_directory(dir).map_err(failed("syncing it"))?;
    write_format(dir, record).map_err(failed("writing `format`"))?;
    fs::remove_file(&making).and_then(|()| sync_directory(dir)).map_err(failed("removing `making`"))
}

/// Removes what a failed making of a copy has left, so that it takes no room; the word on it is that of the failure.
pub(super) fn unmake(dir: &Path, with_directory: bool) {
    let remove = || -> io::Result<()> {
        // While `making` is there the rest is known for what it is.
        for name in [FORMAT, FORMAT_NEW] {
            remove_if_there(&dir.join(name))?;
        }
        match fs::remove_dir_all(dir.join(DATA)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        for name in [MAKING, LOCK] {
            remove_if_there(&dir.join(name))?;
        }
        if with_directory { fs::remove_dir(dir) } else { Ok(()) }
    };
    if let Err(e) = remove() {
        log::warn!("{}: what a copy that failed has left cannot be removed: {e}", dir.display());
    }
}
