//! Passing pipe ends to a re-exec of this executable, and taking them up there, with safe calls only.
//!
//! Decides how a child learns of its pipes: the parent clears close-on-exec of one end and gives its number as an argument; the
//! child opens `/proc/self/fd/NUMBER`, which is the same pipe under a new descriptor with close-on-exec set, and closes the
//! inherited one. Invariant: no descriptor of this crate reaches the command, and the parent's own ends never leave the
//! parent, so that its death is seen as end of file. (Another thread of the parent that starts a process in the short moment
//! while the *child's* end is inheritable gives it away too; that hides nothing, for deaths are also seen by waiting.)

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};

/// Makes `end` inheritable and returns the argument by which the child takes it; the parent drops it after the start.
pub(crate) fn give(end: &impl AsFd) -> io::Result<String> {
    fcntl(end, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(end.as_fd().as_raw_fd().to_string())
}

/// Makes reads and writes return at once.
pub(crate) fn set_nonblocking(end: &impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(end, FcntlArg::F_GETFL)?);
    fcntl(end, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Takes up the read end that the parent gave as `number`, non-blocking.
pub(crate) fn take_read(number: &OsStr) -> io::Result<File> {
    take(number, OpenOptions::new().read(true))
}

/// Takes up the write end that the parent gave as `number`, non-blocking.
pub(crate) fn take_write(number: &OsStr) -> io::Result<File> {
    take(number, OpenOptions::new().write(true))
}

fn take(number: &OsStr, options: &mut OpenOptions) -> io::Result<File> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "not the number of an inherited pipe");
    let number: i32 = number.to_str().and_then(|n| n.parse().ok()).filter(|n| *n > 2).ok_or_else(wrong)?;
    let path = format!("/proc/self/fd/{number}");
    let file = options.custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if !file.metadata()?.file_type().is_fifo() {
        return Err(wrong());
    }
    nix::unistd::close(number)?;
    Ok(file)
}
