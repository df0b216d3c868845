//! Tokens on disk: up to where they are reserved, in a file of the member's state directory.
//!
//! Decides that a start begins above everything that was reserved before, and that the disk is written by a thread of its own: the loop goes
//! on meanwhile, and nothing above what is known to be on disk is promised. Invariant: one process has the directory.

use crate::execute::{EXIT_STORE, EXIT_USAGE};
use crate::local::Failure;
use cistern_driver::Handle;
use cistern_driver::private::{self, Others};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// The file that says up to where.
const NAME: &str = "tokens";

/// A state directory that is this process's, and the thread that writes to it.
#[derive(Debug)]
pub(super) struct Reserve {
    /// Up to where tokens were reserved before this start.
    before: u64,
    /// What is being made durable.
    asked: u64,
    wanted: Sender<u64>,
    done: Receiver<io::Result<u64>>,
    _lock: Flock<File>,
}

impl Reserve {
    /// Makes the directory if it is missing, takes it, and reads what was reserved. `handle` wakes the loop when something is durable.
    ///
    /// # Errors
    /// It cannot be used, or another process has it; whoever named it is at fault.
    pub(super) fn hold(dir: &Path) -> Result<(Self, Waking), Failure> {
        let unusable = |why: String| Failure::new("STATE", EXIT_USAGE, format!("state directory {}: {why}", dir.display()));
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| unusable(format!("cannot be made: {e}")))?;
        private::check_directory(dir).map_err(|e| unusable(format!("is not to be trusted: {e}")))?;
        let file = private::open(&dir.join("lock")).map_err(|e| unusable(format!("cannot be written: {e}")))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| match e {
            Errno::EWOULDBLOCK => unusable("another member has it; end that one first".to_owned()),
            e => unusable(format!("cannot be locked: {e}")),
        })?;
        let path = dir.join(NAME);
        let before = read(&path).map_err(|e| unusable(format!("{NAME}: {e}")))?;
        let (wanted, to_write) = channel();
        let (tell, done) = channel();
        let (waking, wake) = Waking::new();
        let write = move || {
            let handle: Option<Handle> = wake.recv().ok();
            for reserved in to_write {
                let written = private::replace(&path, format!("{reserved}\n").as_bytes()).map(|()| reserved);
                if tell.send(written).is_err() {
                    return;
                }
                if let Some(handle) = &handle {
                    handle.wake();
                }
            }
        };
        let thread = std::thread::Builder::new().name("cistern-tokens".to_owned());
        thread.spawn(write).map_err(|e| Failure::new("STATE", EXIT_STORE, format!("no thread to be had: {e}")))?;
        Ok((Self { before, asked: 0, wanted, done, _lock: lock }, waking))
    }

    /// Up to where tokens were reserved before this start; 0: this is the first.
    pub(super) const fn before(&self) -> u64 {
        self.before
    }

    /// Begins to make a reservation durable, unless that is under way.
    pub(super) fn ask(&mut self, reserved: u64) {
        if reserved > self.asked {
            self.asked = reserved;
            // Without the thread nothing is promised any more, which `taken` tells.
            let _ = self.wanted.send(reserved);
        }
    }

    /// What has become durable.
    ///
    /// # Errors
    /// The disk failed: what is promised from now on could be forgotten.
    pub(super) fn taken(&mut self) -> Result<Option<u64>, Failure> {
        match self.done.try_recv() {
            Ok(Ok(reserved)) => Ok(Some(reserved)),
            Ok(Err(e)) => Err(Failure::new("STATE", EXIT_STORE, format!("tokens cannot be reserved on disk: {e}"))),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Failure::new("STATE", EXIT_STORE, "the thread that reserves tokens has ended")),
        }
    }
}

/// Gives the writing thread its loop.
#[derive(Debug)]
pub(super) struct Waking(Sender<Handle>);

impl Waking {
    fn new() -> (Self, Receiver<Handle>) {
        let (sender, receiver) = channel();
        (Self(sender), receiver)
    }

    /// The loop to be woken.
    pub(super) fn wakes(self, handle: Handle) {
        // The thread lives as long as its directory is held.
        let _ = self.0.send(handle);
    }
}

fn read(path: &Path) -> io::Result<u64> {
    let text = match private::read(path, Others::Read, 64) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        text => text?,
    };
    let text = std::str::from_utf8(&text).map_err(io::Error::other)?;
    text.trim().parse().map_err(|_| io::Error::other("not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reserved_is_read_at_the_next_start_and_one_process_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let (mut reserve, waking) = Reserve::hold(&path).unwrap();
        assert_eq!(reserve.before(), 0);
        assert!(Reserve::hold(&path).unwrap_err().message.contains("another member has it"));
        drop(waking);
        reserve.ask(700);
        let mut taken = None;
        while taken.is_none() {
            taken = reserve.taken().unwrap();
        }
        assert_eq!(taken, Some(700));
        drop(reserve);
        assert_eq!(Reserve::hold(&path).unwrap().0.before(), 700);
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(NAME), "many").unwrap();
        assert!(Reserve::hold(dir.path()).unwrap_err().message.contains("not a number"));
    }
}
