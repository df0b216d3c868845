//! The file of a control socket: made with mode 0600 (or 0660, for a group), cleared of what a dead process left, gone at the end.
//!
//! Decides whether a path can become a control socket. Invariants: no moment at which another user could connect
//! (the mode is set before the file exists); a socket that somebody listens on is never removed.
//! Leaves to the caller: the lock of the state directory, which keeps two processes from doing this at once.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// Why a control socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Another process answers there.
    #[error(
        "cannot listen on {}: another process answers there; end it, or use another state directory",
        path.display()
    )]
    InUse {
        /// The socket file.
        path: PathBuf,
    },
    /// Something else has the name.
    #[error(
        "cannot listen on {}: a file that is not a socket is in the way; remove it, or use another state directory",
        path.display()
    )]
    InTheWay {
        /// The file.
        path: PathBuf,
    },
    /// A Unix socket's address holds 107 bytes of path.
    #[error(
        "cannot listen on {}: the path of a Unix socket has at most 107 bytes; use a state directory with a shorter path",
        path.display()
    )]
    TooLong {
        /// The path asked for.
        path: PathBuf,
    },
    /// The directory is missing.
    #[error(
        "cannot listen on {}: its directory does not exist; make it, or use another state directory",
        path.display()
    )]
    NoDirectory {
        /// The socket file.
        path: PathBuf,
    },
    /// Any other failure.
    #[error("cannot listen on {}: {step} failed: {source}", path.display())]
    Io {
        /// The socket file.
        path: PathBuf,
        /// Which step failed.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// The socket file; removed when this is dropped, unless the name has become another file's.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let still_ours = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if still_ours && let Err(error) = fs::remove_file(&self.path) {
            log::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Makes the socket file at `path` with mode 0600 and listens on it, without blocking; for programs that serve their connections
/// themselves. A file that a dead process left is replaced, as [`ControlServer::bind`](super::ControlServer::bind) does.
///
/// With a `group` (its id) the members of that group may connect, too: the file gets that group and mode 0660.
///
/// # Errors
/// [`ControlError`]: somebody listens there, the file cannot be made, or this process may not give it that group; whoever chose the path and
/// the group is at fault.
pub fn listen(path: &Path, group: Option<u32>) -> Result<(UnixListener, SocketFile), ControlError> {
    let at = |step| move |source| from_io(path, step, source);
    let address = address(path)?;
    clear_stale(path, &address)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(at("socket"))?;
    socket.set_nonblocking(true).map_err(at("O_NONBLOCK"))?;
    // Linux gives the file that bind makes the mode of the socket; setting it later would leave a gap.
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR).map_err(io::Error::from).map_err(at("fchmod"))?;
    socket.bind(&address).map_err(at("bind"))?;
    let made = fs::symlink_metadata(path).map_err(at("reading the new file"))?;
    let file = SocketFile { path: path.to_owned(), device: made.dev(), inode: made.ino() };
    if group.is_some() {
        // Nobody can connect before `listen`, so this leaves no gap.
        chown(path, None, group).map_err(at("giving the socket to the group"))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o660)).map_err(at("opening the socket to the group"))?;
    }
    socket.listen(BACKLOG).map_err(at("listen"))?;
    Ok((UnixListener::from(OwnedFd::from(socket)), file))
}

fn address(path: &Path) -> Result<SockAddr, ControlError> {
    SockAddr::unix(path).map_err(|_| ControlError::TooLong { path: path.to_owned() })
}

/// Removes a socket file on which nobody listens.
fn clear_stale(path: &Path, address: &SockAddr) -> Result<(), ControlError> {
    let at = |step| move |source| from_io(path, step, source);
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(from_io(path, "looking for an old socket", error)),
    };
    if !found.file_type().is_socket() {
        return Err(ControlError::InTheWay { path: path.to_owned() });
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(at("socket"))?;
    probe.set_nonblocking(true).map_err(at("O_NONBLOCK"))?;
    match probe.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            log::info!("removing {}, left by a process that is gone", path.display());
            fs::remove_file(path).map_err(at("removing an old socket"))
        }
        // Also when the listener's queue is full: somebody is there.
        Ok(()) => Err(in_use(path)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(in_use(path)),
        Err(error) => Err(from_io(path, "asking whether an old socket is in use", error)),
    }
}

fn in_use(path: &Path) -> ControlError {
    ControlError::InUse { path: path.to_owned() }
}

fn from_io(path: &Path, step: &'static str, source: io::Error) -> ControlError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::AddrInUse => ControlError::InUse { path },
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ControlError::NoDirectory { path },
        _ => ControlError::Io { path, step, source },
    }
}
