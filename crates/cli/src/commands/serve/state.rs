//! A server's state directory: made if it is missing, and held by one process.
//!
//! Decides: its permissions, and what is said when it cannot be used. Invariant: while a value exists no other process has one of
//! the same directory (section 11.7); the lock goes with the process, however it ends.
//! Leaves to others: what is in it (the control socket, keys); the store, which has a directory and a lock of its own (`cistern_store`).

use crate::execute::EXIT_USAGE;
use crate::local::Failure;
use crate::places::{Daemon, make_above};
use cistern_driver::private;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A state directory that is this process's.
#[derive(Debug)]
pub(super) struct StateDir {
    path: PathBuf,
    socket: PathBuf,
    _lock: Flock<File>,
}

impl StateDir {
    /// Makes the directory if it is missing, and takes it.
    ///
    /// # Errors
    /// It cannot be made or written, is no directory, or is in use; whoever named it is at fault.
    pub(super) fn hold(named: Option<&Path>) -> Result<Self, Failure> {
        let (dir, socket) = (Daemon::Server.state(named)?, Daemon::Server.socket(named)?);
        let path = &dir;
        let unusable = |why: String| {
            Failure::new("STATE", EXIT_USAGE, format!("state directory {}: {why}; --state DIR names another", path.display()))
        };
        make(path).map_err(|e| unusable(format!("cannot be made: {e}")))?;
        private::check_directory(path).map_err(|e| unusable(format!("is not to be trusted: {e}")))?;
        let file = private::open(&path.join("lock")).map_err(|e| match e.kind() {
            io::ErrorKind::NotADirectory => unusable("is not a directory".to_owned()),
            _ => unusable(format!("cannot be written: {e}")),
        })?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| match e {
            Errno::EWOULDBLOCK => unusable("another server has it; end that one first".to_owned()),
            e => unusable(format!("cannot be locked: {e}")),
        })?;
        make_above(&socket)?;
        Ok(Self { path: dir, socket, _lock: lock })
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The control socket that goes with it.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }
}

/// Makes the directory for this user alone; those above it as usual.
fn make(path: &Path) -> io::Result<()> {
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        // What is there may still be no directory; opening the lock tells.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_missing_directory_is_made_for_this_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let state = StateDir::hold(Some(&path)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(state.socket(), path.join("control.sock"));
    }

    #[test]
    fn one_process_at_a_time_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = StateDir::hold(Some(dir.path())).unwrap();
        assert!(StateDir::hold(Some(dir.path())).unwrap_err().message.contains("another server has it"));
        drop(first);
        StateDir::hold(Some(dir.path())).unwrap();
    }

    #[test]
    fn a_file_in_its_place_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(StateDir::hold(Some(&file)).unwrap_err().message.contains("is not a directory"));
        assert!(StateDir::hold(Some(&file.join("below"))).unwrap_err().message.contains("cannot be made"));
    }
}
