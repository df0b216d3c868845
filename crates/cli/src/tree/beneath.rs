//! Files below a directory of this machine, reached only through open directories.
//!
//! Decides: how a tree is entered. Every directory is opened from the one above it by a single name, and never through a symbolic
//! link, so that nothing that somebody puts into the tree meanwhile leads a read or a write out of it. Files and links are written
//! beside their name and renamed over it: nobody sees half of one, and what had the name before is replaced, never followed.
//! Leaves to others: which names there are, and what is copied (`import`, `export`).

use crate::local::Failure;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::fs::{fchmod, fstat, futimens, mkdirat, openat, readlinkat, renameat, statat, symlinkat, unlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Longest content that is read, one byte more than a file can hold: who reads so much knows that there is more.
const READ_MAX: u64 = cistern_wire::limits::CONTENT_MAX as u64 + 1;
/// For a file while it is written.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A directory that is open.
#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

/// What a name in a directory stands for.
pub(super) enum Entry {
    Directory,
    File(Meta, Vec<u8>),
    Symlink(OsString),
}

/// What is copied of a file or directory beside its contents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    /// Permission bits, with set-uid, set-gid and sticky bits.
    pub(super) mode: u16,
    /// Time of the last change, in nanoseconds since 1970.
    pub(super) mtime_ns: i64,
}

impl Directory {
    /// Opens the top of a tree. Whoever named it may have named a link.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(CWD, path, DIRECTORY, Mode::empty())?))
    }

    /// Opens a directory that is so many names below this one.
    pub(super) fn descend(&self, names: &Path) -> io::Result<Self> {
        let mut at = Self(self.0.try_clone()?);
        for name in names.components() {
            at = match name {
                Component::Normal(name) => at.enter(name)?,
                Component::CurDir => at,
                _ => return Err(io::ErrorKind::InvalidInput.into()),
            };
        }
        Ok(at)
    }

    fn enter(&self, name: &OsStr) -> io::Result<Self> {
        match openat(&self.0, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(fd) => Ok(Self(fd)),
            Err(e @ (Errno::NOTDIR | Errno::LOOP)) if self.kind(name)? == FileType::Symlink => {
                Err(io::Error::other(format!("{name:?} is a symbolic link where a directory is to be, and is not followed: {e}")))
            }
            Err(e) => Err(e.into()),
        }
    }

    fn kind(&self, name: &OsStr) -> io::Result<FileType> {
        Ok(FileType::from_raw_mode(statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode))
    }

    /// Its names, in byte order.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Permission bits of a directory in it; `None`: the name is no directory's.
    pub(super) fn mode_of_directory(&self, name: &OsStr) -> Option<u16> {
        let stat = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        (FileType::from_raw_mode(stat.st_mode) == FileType::Directory).then(|| meta(&stat).mode)
    }

    /// What a name stands for; of a file, what is in it.
    pub(super) fn read(&self, name: &OsStr) -> Result<Entry, Failure> {
        let failed = |e: io::Error| Failure::failed(e.to_string());
        match self.kind(name).map_err(failed)? {
            FileType::Directory => Ok(Entry::Directory),
            FileType::Symlink => {
                let target = readlinkat(&self.0, name, Vec::new()).map_err(|e| failed(e.into()))?;
                Ok(Entry::Symlink(OsString::from_vec(target.into_bytes())))
            }
            FileType::RegularFile => {
                let (file, stat) = self.open_file(name).map_err(failed)?;
                let mut bytes = Vec::new();
                file.take(READ_MAX).read_to_end(&mut bytes).map_err(failed)?;
                if bytes.len() as u64 == READ_MAX {
                    let size = u64::try_from(stat.st_size).unwrap_or(0).max(READ_MAX);
                    return Err(Failure::failed(format!("{size} bytes are more than a file can hold (1 MiB)")));
                }
                Ok(Entry::File(meta(&stat), bytes))
            }
            _ => Err(Failure::failed("neither file, directory nor symbolic link")),
        }
    }

    /// Opens what was a file when it was looked at. By now it may be another thing: a link is not followed, and a pipe is not waited for.
    fn open_file(&self, name: &OsStr) -> io::Result<(File, Stat)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(&self.0, name, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("is no file any more"));
        }
        Ok((File::from(fd), stat))
    }

    /// Makes a directory of these permission bits, less the umask; what is there already is left as it is, if it is a directory.
    pub(super) fn make(&self, name: &OsStr, mode: u16) -> io::Result<()> {
        match mkdirat(&self.0, name, Mode::from_raw_mode(u32::from(mode & 0o777 | 0o700))) {
            Err(Errno::EXIST) => self.enter(name).map(drop),
            other => Ok(other?),
        }
    }

    /// Writes a file, for its owner alone until it is whole.
    pub(super) fn put(&self, name: &OsStr, bytes: &[u8], meta: Meta) -> io::Result<()> {
        self.beside(name, |beside| {
            let file = self.create(beside)?;
            (&file).write_all(bytes)?;
            let changed = Timespec { tv_sec: meta.mtime_ns.div_euclid(1_000_000_000), tv_nsec: meta.mtime_ns.rem_euclid(1_000_000_000) };
            let unchanged = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            futimens(&file, &Timestamps { last_access: unchanged, last_modification: changed })?;
            Ok(fchmod(&file, Mode::from_raw_mode(u32::from(meta.mode)))?)
        })
    }

    /// An empty file under a name that nobody has, for its owner alone.
    fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.0, name, flags, PRIVATE)?))
    }

    /// Makes a symbolic link, if it is not there as it is to be.
    pub(super) fn link(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        if readlinkat(&self.0, name, Vec::new()).is_ok_and(|there| there.to_bytes() == target.as_bytes()) {
            return Ok(());
        }
        self.beside(name, |beside| Ok(symlinkat(target, &self.0, beside)?))
    }

    /// Makes something under a name that nobody has, and gives it its own name then.
    fn beside(&self, name: &OsStr, make: impl FnOnce(&str) -> io::Result<()>) -> io::Result<()> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let beside = format!(".cistern-{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let made = make(&beside).and_then(|()| Ok(renameat(&self.0, &*beside, &self.0, name)?));
        if made.is_err() {
            // What keeps it from being removed kept it from being made, too.
            let _ = unlinkat(&self.0, &*beside, AtFlags::empty());
        }
        made
    }
}

fn meta(stat: &Stat) -> Meta {
    let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Meta {
        mode: u16::try_from(stat.st_mode & 0o7777).unwrap_or(0o600),
        mtime_ns: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(nanos),
    }
}

/// Whether a link that stands so many directories below the top of a tree leads out of it, or may: by an absolute target, by more `..` than
/// there are directories above it, or by `..` behind a name, which may be a link itself.
pub(super) fn leaves(depth: usize, target: &OsStr) -> bool {
    let mut up = 0;
    let mut down = false;
    for part in Path::new(target).components() {
        match part {
            Component::RootDir | Component::Prefix(_) => return true,
            Component::ParentDir if down => return true,
            Component::ParentDir => up += 1,
            Component::Normal(_) => down = true,
            Component::CurDir => {}
        }
    }
    up > depth
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mknodat;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    const META: Meta = Meta { mode: 0o640, mtime_ns: 1_500_000_000_000_000_001 };

    #[test]
    fn links_that_lead_out_of_the_tree_are_known() {
        for (depth, target) in [(0, "/etc"), (0, ".."), (0, "../x"), (1, "../.."), (2, "a/../x"), (1, "../a/../..")] {
            assert!(leaves(depth, OsStr::new(target)), "{target} at {depth}");
        }
        for (depth, target) in [(0, "a"), (0, "./a/b"), (1, ".."), (1, "../a"), (2, "../../a/b"), (0, "..a")] {
            assert!(!leaves(depth, OsStr::new(target)), "{target} at {depth}");
        }
    }

    #[test]
    fn no_link_is_followed_and_files_are_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("keep"), "kept").unwrap();
        symlink(&outside, inside.join("a")).unwrap();
        symlink(outside.join("keep"), inside.join("f")).unwrap();
        let top = Directory::open(&inside).unwrap();
        let refused = top.descend(Path::new("a")).unwrap_err().to_string();
        assert!(refused.contains("symbolic link"), "{refused}");
        assert!(top.make(OsStr::new("a"), 0o755).is_err());
        assert!(top.descend(Path::new("..")).is_err());
        assert!(matches!(top.read(OsStr::new("f")), Ok(Entry::Symlink(_))));
        top.put(OsStr::new("f"), b"new", META).unwrap();
        assert_eq!(fs::read(outside.join("keep")).unwrap(), b"kept");
        let meta = fs::symlink_metadata(inside.join("f")).unwrap();
        assert_eq!((meta.permissions().mode() & 0o7777, meta.mtime(), meta.mtime_nsec()), (0o640, 1_500_000_000, 1));
        top.link(OsStr::new("f"), OsStr::new("g")).unwrap();
        top.link(OsStr::new("f"), OsStr::new("g")).unwrap();
        assert_eq!(fs::read_link(inside.join("f")).unwrap(), Path::new("g"));
        assert!(top.put(OsStr::new("sub"), b"", META).is_ok() && top.make(OsStr::new("sub"), 0o755).is_err());
        assert_eq!(top.names().unwrap(), ["a", "f", "sub"], "nothing is left beside them");
    }

    #[test]
    fn a_file_is_its_owners_alone_while_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let top = Directory::open(dir.path()).unwrap();
        let file = top.create("new").unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        // Nor is it one that somebody else has made there.
        symlink(dir.path().join("elsewhere"), dir.path().join("link")).unwrap();
        for name in ["new", "link"] {
            assert_eq!(top.create(name).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        assert!(!dir.path().join("elsewhere").exists());
    }

    #[test]
    fn what_took_the_name_of_a_file_meanwhile_is_neither_followed_nor_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        symlink("secret", dir.path().join("link")).unwrap();
        mknodat(CWD, dir.path().join("pipe"), FileType::Fifo, PRIVATE, 0).unwrap();
        let top = Directory::open(dir.path()).unwrap();
        assert!(top.open_file(OsStr::new("secret")).is_ok());
        assert_eq!(top.open_file(OsStr::new("link")).unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        // Who waited for a pipe would not come back.
        let (send, came) = channel();
        thread::spawn(move || send.send(top.open_file(OsStr::new("pipe")).unwrap_err().to_string()));
        assert_eq!(came.recv_timeout(Duration::from_secs(10)).unwrap(), "is no file any more");
    }
}
