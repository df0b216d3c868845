//! Files for their owner alone: captures, from which whoever reads them can forge messages, identities, and keys.
//!
//! Decides: where such a file may be made, what becomes of one that is there, and whose files are believed. Invariants: no symbolic link is
//! followed to a file that is made, written or read here; what is made is new, and no other user can read or write it; a file that is written
//! whole is there whole or not at all, durably.

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Permission to write for everybody.
const BY_OTHERS: u32 = 0o002;
/// Permission to write for the group and everybody.
const BY_GROUP_OR_OTHERS: u32 = 0o022;
/// A symbolic link is not opened.
const NO_FOLLOW: i32 = OFlags::NOFOLLOW.bits().cast_signed();
/// Opening a pipe does not wait for its other end.
const NO_WAIT: i32 = OFlags::NONBLOCK.bits().cast_signed();
const STICKY: u32 = 0o1000;

/// Makes a file at `path`, with mode 0600. A file of this user that is there is removed first: whoever has it open does not get what is
/// written now. A pipe or a device is opened as it is.
///
/// # Errors
/// The path is a symbolic link or another user's file, the directory is another user's or everybody can write in it, or it cannot be made.
pub fn create(path: &Path) -> io::Result<File> {
    check(directory_of(path), BY_OTHERS)?;
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_symlink() => {
            return Err(io::Error::other("it is a symbolic link, which is not followed; remove it, or name another file"));
        }
        Ok(meta) if meta.file_type().is_fifo() || meta.file_type().is_char_device() => {
            return OpenOptions::new().write(true).custom_flags(NO_FOLLOW).open(path);
        }
        Ok(meta) if meta.is_file() && meta.uid() != geteuid().as_raw() => {
            return Err(io::Error::other(format!("it belongs to user {}; name another file", meta.uid())));
        }
        Ok(meta) if meta.is_file() => fs::remove_file(path)?,
        // Whatever else it is keeps it from being made.
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    create_new(path)
}

/// Makes a file that is not there, with mode 0600.
///
/// # Errors
/// There is something of that name, a symbolic link, too, or it cannot be made.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Opens a file for writing, and makes it with mode 0600 if it is not there; it keeps its contents.
///
/// # Errors
/// It is a symbolic link, or cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(NO_FOLLOW).open(path)
}

/// What others may do with a file that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Nothing: it has a secret.
    Nothing,
    /// Nothing; but one of root's may be readable for its group. So systemd passes secrets to a service, which reads by an access list: the
    /// group's bits are the list's mask.
    ServiceReads,
    /// Read it: it is only believed.
    Read,
}

/// Reads a file of this user's or root's, of at most `len_max` bytes, in one buffer that never grew.
///
/// # Errors
/// [`io::ErrorKind::NotFound`]: it is not there. Else it is a symbolic link or no file, another user's, longer, or others can do more with it
/// than `others`; or it cannot be read.
pub fn read(path: &Path, others: Others, len_max: usize) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(NO_FOLLOW | NO_WAIT).open(path).map_err(not_followed)?;
    let meta = file.metadata()?;
    check_file(&meta, others)?;
    if meta.len() > len_max as u64 {
        return Err(io::Error::other(format!("it has {} bytes, and at most {len_max} are read; it is something else", meta.len())));
    }
    // Its length may change meanwhile: what is beyond the room is not read.
    let mut bytes = Vec::with_capacity(len_max.min(usize::try_from(meta.len()).unwrap_or(len_max)) + 1);
    let room = bytes.capacity();
    file.take(room as u64).read_to_end(&mut bytes)?;
    if bytes.len() == room {
        return Err(io::Error::other("it grew while it was read; try again"));
    }
    Ok(bytes)
}

/// Opens a file of this user's for appending and reading, with mode 0600, and makes it if it is not there.
///
/// # Errors
/// It is a symbolic link, has another name besides, is no file, another user's, or others can do more with it than `others`; or it cannot be
/// opened.
pub fn append(path: &Path, others: Others) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(NO_FOLLOW | NO_WAIT);
    let file = options.open(path).map_err(not_followed)?;
    let meta = file.metadata()?;
    check_file(&meta, others)?;
    if meta.nlink() > 1 {
        return Err(io::Error::other("it has another name besides, under which others may have it; remove one of them"));
    }
    Ok(file)
}

/// Makes a file with these contents, durably; it is there whole or not at all, and replaces nothing.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`]: there is something of that name. Else the directory is another user's or everybody can write in it, or
/// the file cannot be written.
pub fn write_new(path: &Path, contents: &[u8]) -> io::Result<()> {
    written(path, contents, |beside| match renameat_with(CWD, beside, CWD, path, RenameFlags::NOREPLACE) {
        // File systems of other hosts have no such renaming, but links.
        Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(beside, path).and_then(|()| fs::remove_file(beside)),
        other => Ok(other?),
    })
}

/// Makes a file with these contents, durably, in place of the one that may be there: a crash leaves the old one or the new one.
///
/// # Errors
/// The directory is another user's or everybody can write in it, or the file cannot be written.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    written(path, contents, |beside| fs::rename(beside, path))
}

/// Written beside, synced, put in place, and the directory synced.
fn written(path: &Path, contents: &[u8], put: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let above = directory_of(path);
    check(above, BY_OTHERS)?;
    let beside = beside(path)?;
    let mut file = create_new(&beside)?;
    let made = file.write_all(contents).and_then(|()| file.sync_all()).and_then(|()| put(&beside));
    if made.is_err() {
        // What keeps it from being written may keep it from being removed; the failure tells.
        let _ = fs::remove_file(&beside);
    }
    made.and_then(|()| sync_directory(above))
}

/// Makes durable what was renamed in a directory.
///
/// # Errors
/// It cannot be opened or synced.
pub fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// A name beside a file that no other process takes at the same time.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}-{:x}.new", std::process::id(), now.as_nanos()));
    Ok(path.with_file_name(hidden))
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn not_followed(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
        return io::Error::other("it is a symbolic link, which is not followed; put the file itself there");
    }
    error
}

fn check_file(meta: &Metadata, others: Others) -> io::Result<()> {
    let own = geteuid().as_raw();
    if !meta.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if meta.uid() != own && meta.uid() != 0 {
        let what = format!("it belongs to user {}, and this is user {own}: not believed; chown it", meta.uid());
        return Err(io::Error::other(what));
    }
    let (forbidden, can, remedy) = match others {
        Others::ServiceReads if meta.uid() == 0 => (0o037, "read or write", "go-wx,o-r"),
        Others::Nothing | Others::ServiceReads => (0o077, "read or write", "go="),
        Others::Read => (BY_GROUP_OR_OTHERS, "write", "go-w"),
    };
    if meta.mode() & forbidden != 0 {
        let what = format!("other users can {can} it (mode {:04o}); chmod {remedy} it", meta.mode() & 0o7777);
        return Err(io::Error::other(what));
    }
    Ok(())
}

/// Whether a directory is this user's own: its, or the system's, and nobody else can write in it.
///
/// # Errors
/// It is not, or cannot be looked at.
pub fn check_directory(dir: &Path) -> io::Result<()> {
    check(dir, BY_GROUP_OR_OTHERS)
}

fn check(dir: &Path, forbidden: u32) -> io::Result<()> {
    let meta = fs::metadata(dir)?;
    let own = geteuid().as_raw();
    if meta.uid() != own && meta.uid() != 0 {
        let what = format!("the directory {} belongs to user {}, and this is user {own}; use one of your own", dir.display(), meta.uid());
        return Err(io::Error::other(what));
    }
    if meta.mode() & forbidden != 0 && meta.mode() & STICKY == 0 {
        let what = format!("other users can write in the directory {} (mode {:o}); chmod go-w it", dir.display(), meta.mode() & 0o7777);
        return Err(io::Error::other(what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_link_is_refused_and_its_target_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "kept").unwrap();
        symlink(&target, &link).unwrap();
        assert!(create(&link).unwrap_err().to_string().contains("symbolic link"));
        assert!(create_new(&link).is_err() && open(&link).is_err());
        assert_eq!(fs::read(&target).unwrap(), b"kept");
    }

    #[test]
    fn a_file_that_is_there_is_replaced_by_a_private_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let mut reader = File::open(&path).unwrap();
        create(&path).unwrap().write_all(b"new").unwrap();
        assert_eq!((mode(&path), fs::read(&path).unwrap()), (0o600, b"new".to_vec()));
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "old", "who had it open sees nothing of it");
    }

    #[test]
    fn only_files_of_this_user_that_others_keep_off_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("key"), dir.path().join("link"));
        assert_eq!(read(&path, Others::Nothing, 9).unwrap_err().kind(), io::ErrorKind::NotFound);
        write_new(&path, b"secret").unwrap();
        symlink(&path, &link).unwrap();
        let told = |path: &Path, others| read(path, others, 9).unwrap_err().to_string();
        assert!(told(&link, Others::Read).contains("symbolic link"));
        assert!(told(dir.path(), Others::Read).contains("no regular file"));
        assert!(read(&path, Others::Nothing, 5).unwrap_err().to_string().contains("at most 5"));
        let root = geteuid().is_root();
        // Mode, then whether it is read: by anybody but its owner, by the group of root's, as something that is only believed.
        for (mode, reads) in [
            (0o600, [true, true, true]),
            (0o400, [true, true, true]),
            (0o440, [false, root, true]),
            (0o644, [false, false, true]),
            (0o604, [false, false, true]),
            (0o620, [false, false, false]),
            (0o666, [false, false, false]),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            for (others, reads) in [Others::Nothing, Others::ServiceReads, Others::Read].into_iter().zip(reads) {
                match read(&path, others, 6) {
                    Ok(bytes) => assert!(reads && bytes == b"secret", "{mode:o} {others:?}"),
                    Err(e) => assert!(!reads && e.to_string().contains("chmod"), "{mode:o} {others:?}: {e}"),
                }
            }
        }
        if root {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            assert!(told(&path, Others::Read).contains("belongs to user 65534"));
        }
    }

    #[test]
    fn what_is_written_whole_is_private_and_nothing_is_left_beside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        write_new(&path, b"first").unwrap();
        assert_eq!(write_new(&path, b"second").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"first".to_vec(), 0o600));
        replace(&path, b"second").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"second".to_vec(), 0o600));
        // Neither is a link followed, nor what it names replaced.
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(write_new(&link, b"third").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        replace(&link, b"third").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read(&link).unwrap()), (b"second".to_vec(), b"third".to_vec()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert!(write_new(&dir.path().join("none/key"), b"").is_err());
    }

    #[test]
    fn a_file_that_grows_has_one_name_and_one_owner() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("log"), dir.path().join("other"));
        append(&path, Others::Nothing).unwrap().write_all(b"a").unwrap();
        append(&path, Others::Nothing).unwrap().write_all(b"b").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"ab".to_vec(), 0o600));
        symlink(&path, &other).unwrap();
        assert!(append(&other, Others::Nothing).unwrap_err().to_string().contains("symbolic link"));
        fs::remove_file(&other).unwrap();
        fs::hard_link(&path, &other).unwrap();
        assert!(append(&path, Others::Nothing).unwrap_err().to_string().contains("another name"));
        fs::remove_file(&other).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(append(&path, Others::Nothing).unwrap_err().to_string().contains("chmod go= it"));
        assert!(append(&path, Others::Read).is_ok());
    }

    #[test]
    fn directories_in_which_others_write_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        for (mode, captures, state) in
            [(0o700, true, true), (0o755, true, true), (0o775, true, false), (0o777, false, false), (0o1777, true, true)]
        {
            fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!((create(&shared.join("f")).is_ok(), check_directory(&shared).is_ok()), (captures, state), "{mode:o}");
        }
    }
}
