//! Files for their owner alone: captures, from which whoever reads them can forge messages, and identities.
//!
//! Decides: where such a file may be made, and what becomes of one that is there. Invariants: no symbolic link is followed to a file that
//! is made or written; what is made is new, and no other user can read or write it.

use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Permission to write for everybody.
const BY_OTHERS: u32 = 0o002;
/// Permission to write for the group and everybody.
const BY_GROUP_OR_OTHERS: u32 = 0o022;
/// A symbolic link is not opened.
const NO_FOLLOW: i32 = OFlags::NOFOLLOW.bits().cast_signed();
const STICKY: u32 = 0o1000;

/// Makes a file at `path`, with mode 0600. A file of this user that is there is removed first: whoever has it open does not get what is
/// written now. A pipe or a device is opened as it is.
///
/// # Errors
/// The path is a symbolic link or another user's file, the directory is another user's or everybody can write in it, or it cannot be made.
pub fn create(path: &Path) -> io::Result<File> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    check(above, BY_OTHERS)?;
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
