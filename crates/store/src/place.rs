//! A store's directory: what it is, and who has it.
//!
//! Decides: when a directory is a store, when a new one is made in it, and that one process has it. Place in the walk: before the
//! engine sees a file. Implements `wire-spec.md` section 11.7.
//! Invariants: a store is made whole or not at all: until its record (`format`) is in place, a file `making` says that nothing in the
//! directory was ever promised to anybody. While a [`StoreDirectory`] lives no other process has one of the same directory; the lock goes with
//! the process, however it ends. A directory that is not a store is not touched.
//! Leaves to others: how one is made (`place::making`), the record's text (`format`), the engine's files (`guard`, `engine`).

mod making;
#[cfg(test)]
mod tests;

use crate::error::{OpenError, Problem};
use crate::format::{self, Record, Unreadable};
use cistern_wire::StoreId;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statfs::{FsType, statfs};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FORMAT: &str = "format";
const FORMAT_NEW: &str = "format.new";
const LOCK: &str = "lock";
const MAKING: &str = "making";
const DATA: &str = "data";
/// What a directory may hold and still be empty: file systems put it at their root.
const LOST_FOUND: &str = "lost+found";

/// Whether a store may be made where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Making {
    /// What is missing is an error.
    Never,
    /// In a directory that is missing or empty one is made, with this id, which must be a random one.
    New(StoreId),
}

/// What a directory is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be served: a copy is refused.
    Serve,
    /// To be looked at and changed by an operator's command, be it a copy or not.
    Work,
    /// To be made as a copy.
    Copy,
}

/// A store's directory, held by this process.
#[derive(Debug)]
pub(crate) struct StoreDirectory {
    dir: PathBuf,
    id: StoreId,
    new: bool,
    lock: Flock<File>,
}

impl StoreDirectory {
    /// Takes the directory. `fill` makes the engine's files in the directory that it is given, durably, if the store is new.
    pub(crate) fn take(
        dir: &Path,
        making: Making,
        purpose: Purpose,
        fill: impl FnOnce(&Path) -> Result<(), OpenError>,
    ) -> Result<Self, OpenError> {
        let made_directory = !is_directory(dir)?;
        if made_directory {
            let Making::New(_) = making else { return Err(missing(dir, "there is no such directory")) };
            make_directory(dir).map_err(|e| OpenError::io(dir, "cannot be made", &e))?;
        }
        refuse_doubtful_locks(dir)?;
        let known = read_format(dir)?;
        match known {
            Some(record) => refuse_copy(dir, record, purpose)?,
            None => refuse_what_is_no_store(dir, making)?,
        }
        let lock = lock(dir)?;
        // Another process may have made the store before this one had the lock.
        let (id, new) = match (read_format(dir)?, making) {
            (Some(record), _) => {
                refuse_copy(dir, record, purpose)?;
                // Whoever has made it may have been killed before that: a crash that took the record, and left `making`, would make it
                // one in which nothing was ever promised.
                sync_directory(dir).map_err(|e| OpenError::io(dir, "syncing it", &e))?;
                remove_if_there(&dir.join(MAKING)).map_err(|e| OpenError::io(dir, "removing `making`", &e))?;
                (record.id, false)
            }
            (None, Making::New(id)) => {
                sync_above(dir).map_err(|e| OpenError::io(dir, "syncing the directory that it is in", &e))?;
                let made = making::make(dir, Record { id, copy: purpose == Purpose::Copy }, fill);
                if made.is_err() && purpose == Purpose::Copy {
                    making::unmake(dir, made_directory);
                }
                made?;
                (id, true)
            }
            (None, Making::Never) => return Err(missing(dir, "its making was never finished, so nothing was ever in it")),
        };
        Ok(Self { dir: dir.to_owned(), id, new, lock })
    }

    /// Whether there was no store before it was taken.
    pub(crate) const fn is_new(&self) -> bool {
        self.new
    }

    /// Takes the mark of a copy away, durably: from now on a server may go on from it.
    pub(crate) fn unmark(&self) -> io::Result<()> {
        write_format(&self.dir, Record { id: self.id, copy: false })
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The engine's directory in it.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.join(DATA)
    }

    /// Whether the lock that this process holds is still the one that another would ask for.
    pub(crate) fn is_ours(&self) -> bool {
        is_in_place(&self.lock, &self.dir)
    }

    /// The store's id.
    pub(crate) const fn id(&self) -> StoreId {
        self.id
    }
}

fn missing(dir: &Path, what: &str) -> OpenError {
    let what = format!(
        "no store here: {what}. If there was one: is its file system mounted? A lost one is replaced from a backup by `cisternd restore`, \
         or by an empty one of `cisternd init`, whose server waits for old leases first; --new-cluster is for the first server of a cluster \
         only"
    );
    OpenError::new(Problem::Missing, dir, what)
}

fn is_directory(dir: &Path) -> Result<bool, OpenError> {
    match fs::metadata(dir) {
        Ok(metadata) if metadata.is_dir() => Ok(true),
        Ok(_) => Err(OpenError::new(Problem::Foreign, dir, "not a directory, so not a store")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            Err(OpenError::new(Problem::Foreign, dir, "a part of the path is not a directory"))
        }
        Err(e) => Err(OpenError::io(dir, "cannot be looked at", &e)),
    }
}

/// Makes the directory for this user alone; those above it as usual.
fn make_directory(dir: &Path) -> io::Result<()> {
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        fs::create_dir_all(above)?;
    }
    DirBuilder::new().mode(0o700).create(dir)
}

/// Makes the name of the directory durable, which an earlier process may have made.
fn sync_above(dir: &Path) -> io::Result<()> {
    match fs::canonicalize(dir)?.parent().map_or(Ok(()), sync_directory) {
        // Where a directory was made beforehand, in one that is none of this user's business, it is durable.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

//= wire-spec.md#11-7-restart-and-recovery
//# A server MUST hold a lock on its store as long as it runs, on a file system where such locks are reliable.
fn refuse_doubtful_locks(dir: &Path) -> Result<(), OpenError> {
    let kind = statfs(dir).map_err(|e| OpenError::io(dir, "looking at its file system", &e.into()))?.filesystem_type();
    let Some(name) = doubtful(kind) else { return Ok(()) };
    let what = format!(
        "its file system is {name}, on which two hosts may both believe that they have the store to themselves; use a file system of this host"
    );
    Err(OpenError::new(Problem::FileSystem, dir, what))
}

/// File systems on which a lock may be local to one host, or be lost unnoticed while it is held.
fn doubtful(kind: FsType) -> Option<&'static str> {
    let names = [
        (0x6969, "NFS"),
        (0x517B, "SMB"),
        (0xFF53_4D42, "CIFS"),
        (0xFE53_4D42, "SMB2"),
        (0x6573_5546, "FUSE"),
        (0x0102_1997, "9P"),
        (0x00C3_6400, "Ceph"),
        (0x5346_414F, "AFS"),
        (0x6B41_4653, "AFS"),
        (0x7375_7245, "Coda"),
        (0x564C, "NCP"),
        (0x0BD0_0BD0, "Lustre"),
        (0x4750_4653, "GPFS"),
        (0x7461_636F, "OCFS2"),
        (0x0116_1970, "GFS2"),
        (0x786F_4256, "a VirtualBox share"),
    ];
    names.into_iter().find(|(magic, _)| kind.0 == *magic).map(|(_, name)| name)
}

/// Going on from a copy would give out the original's tokens and object ids a second time (sections 11.4 and 11.7).
fn refuse_copy(dir: &Path, record: Record, purpose: Purpose) -> Result<(), OpenError> {
    if !record.copy || purpose != Purpose::Serve {
        return Ok(());
    }
    let what = "a copy of a store, and no server goes on from one: it would give out tokens and ids again that its original has given \
                out. Make a store of it with `cisternd restore COPY STORE`, and serve that";
    Err(OpenError::new(Problem::Copy, dir, what))
}

/// What the store's record says; `None`: there is no record.
fn read_format(dir: &Path) -> Result<Option<Record>, OpenError> {
    let file = match File::open(dir.join(FORMAT)) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(OpenError::io(dir, "opening `format`", &e)),
    };
    let mut bytes = Vec::new();
    file.take(format::LEN_MAX as u64).read_to_end(&mut bytes).map_err(|e| OpenError::io(dir, "reading `format`", &e))?;
    match format::from_bytes(&bytes) {
        Ok(record) => Ok(Some(record)),
        Err(Unreadable::Foreign) => {
            Err(OpenError::new(Problem::Foreign, dir, "its file `format` is not a store's; name another directory"))
        }
        Err(Unreadable::Version(version)) => {
            let ours = format::FORMAT;
            let what = format!("its format is version {version}, and this is a server for version {ours}; use the server that wrote it");
            Err(OpenError::new(Problem::Newer, dir, what))
        }
        Err(Unreadable::Damaged(what)) => Err(OpenError::damaged(dir, format_args!("its record `format`: {what}"))),
    }
}

/// There is no record: only what is empty, or was begun and not finished, may become a store.
fn refuse_what_is_no_store(dir: &Path, wanted: Making) -> Result<(), OpenError> {
    let looking = |e: io::Error| OpenError::io(dir, "cannot be listed", &e);
    let mut others = Vec::new();
    for entry in fs::read_dir(dir).map_err(looking)? {
        let name = entry.map_err(looking)?.file_name();
        if name == MAKING {
            return making::refuse_unless_ours(dir);
        }
        if name != LOST_FOUND && name != LOCK {
            others.push(name);
        }
    }
    if others.iter().any(|name| name == DATA) {
        return Err(OpenError::damaged(dir, "its record `format` is missing"));
    }
    match (others.first(), wanted) {
        (Some(name), _) => {
            let what = format!("not a store: it has no file `format`, but {}; name another directory", name.display());
            Err(OpenError::new(Problem::Foreign, dir, what))
        }
        (None, Making::New(_)) => Ok(()),
        (None, Making::Never) => Err(missing(dir, "the directory is empty")),
    }
}

fn is_in_place(lock: &File, dir: &Path) -> bool {
    let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    fs::metadata(dir.join(LOCK)).is_ok_and(|there| lock.metadata().is_ok_and(|here| same(here, there)))
}

fn lock(dir: &Path) -> Result<Flock<File>, OpenError> {
    let opened = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(dir.join(LOCK));
    let file = opened.map_err(|e| OpenError::io(dir, "opening `lock`", &e))?;
    let mut lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(mut file, e)| match e {
        Errno::EWOULDBLOCK => {
            let mut pid = String::new();
            // Who has it is only for the message.
            let _ = file.read_to_string(&mut pid);
            let who = if pid.is_empty() { String::new() } else { format!(" (process {})", pid.trim()) };
            OpenError::new(Problem::InUse, dir, format!("another process has it{who}; end that one first"))
        }
        e => OpenError::io(dir, "locking `lock`", &e.into()),
    })?;
    // Whoever had it may have removed it at the end, as a copy that failed does.
    if !is_in_place(&lock, dir) {
        return Err(OpenError::new(Problem::InUse, dir, "another process has just removed its `lock`; try again"));
    }
    let text = format!("{}\n", std::process::id());
    lock.set_len(0).and_then(|()| lock.write_all(text.as_bytes())).map_err(|e| OpenError::io(dir, "writing `lock`", &e))?;
    Ok(lock)
}

/// Writes the record, whole or not at all; durable when this returns.
fn write_format(dir: &Path, record: Record) -> io::Result<()> {
    let new = dir.join(FORMAT_NEW);
    let mut file = File::create(&new)?;
    file.write_all(format::to_text(record).as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, dir.join(FORMAT))?;
    sync_directory(dir)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

pub(crate) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
