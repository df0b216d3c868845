//! The other end of a control socket: a blocking client for command lines.
//!
//! Decides how long a program waits for a daemon of its own computer, and what it says when none is there.
//! Invariants: every wait has an end, by the system's ordinary clock, for no lease depends on it; a line is given
//! out whole or not at all.
//! Leaves to the caller: what lines mean.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

/// Longest line that a daemon may send, in bytes: its output bound, see `ControlLimits`.
const LINE_MAX: usize = 16 << 20;

/// How often a daemon whose queue of connections is full is tried again.
const RETRY: Duration = Duration::from_millis(10);

/// Why a daemon could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no socket, or nobody listens on it.
    #[error("nothing answers at {}: the daemon is not running, or has another state directory", path.display())]
    NotRunning {
        /// The socket file.
        path: PathBuf,
    },
    /// The socket belongs to another user.
    #[error("not permitted to use {}: run as the user that owns it", path.display())]
    Forbidden {
        /// The socket file.
        path: PathBuf,
    },
    /// The daemon took too long.
    #[error("no answer at {} within {} ms; the daemon is busy or stopped", path.display(), waited.as_millis())]
    TimedOut {
        /// The socket file.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// The daemon closed the connection.
    #[error("the daemon at {} closed the connection; see its log", path.display())]
    Closed {
        /// The socket file.
        path: PathBuf,
    },
    /// The answer is not a line of bounded length in UTF-8.
    #[error("the answer at {} is not a line of text: {what}; is it another program's socket?", path.display())]
    BadAnswer {
        /// The socket file.
        path: PathBuf,
        /// What was wrong.
        what: &'static str,
    },
    /// Any other failure.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The socket file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A connection to a daemon's control socket.
#[derive(Debug)]
pub struct ControlClient {
    stream: UnixStream,
    path: PathBuf,
    /// Bytes read that were not given out yet.
    buffer: Vec<u8>,
    /// How much of `buffer` is known to hold no line end.
    searched: usize,
}

impl ControlClient {
    /// Connects to the control socket at `path`, waiting at most `timeout` for a place in its queue.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, ClientError> {
        let start = Instant::now();
        let failed = |source| from_io(path, timeout, source);
        let address = SockAddr::unix(path).map_err(failed)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed)?;
        // A blocking connect would wait without end while the queue is full.
        socket.set_nonblocking(true).map_err(failed)?;
        loop {
            match socket.connect(&address) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && start.elapsed() < timeout => {
                    thread::sleep(RETRY);
                }
                Err(error) => return Err(failed(error)),
            }
        }
        socket.set_nonblocking(false).map_err(failed)?;
        Ok(Self { stream: UnixStream::from(OwnedFd::from(socket)), path: path.to_owned(), buffer: Vec::new(), searched: 0 })
    }

    /// Sends one line and waits for one.
    pub fn request(&mut self, line: &str, timeout: Duration) -> Result<String, ClientError> {
        self.send_line(line, timeout)?;
        self.read_line(timeout)
    }

    /// Sends one line (without line end), waiting at most `timeout` each time the daemon takes nothing.
    pub fn send_line(&mut self, line: &str, timeout: Duration) -> Result<(), ClientError> {
        let failed = |source| from_io(&self.path, timeout, source);
        self.stream.set_write_timeout(Some(at_least_1ms(timeout))).map_err(failed)?;
        let mut stream = &self.stream;
        stream.write_all(format!("{line}\n").as_bytes()).map_err(failed)
    }

    /// The next line, without its end, waiting at most `timeout`. After a time-out the next call goes on where this
    /// one stopped.
    pub fn read_line(&mut self, timeout: Duration) -> Result<String, ClientError> {
        let start = Instant::now();
        loop {
            if let Some(line) = self.take_line()? {
                return Ok(line);
            }
            if self.buffer.len() > LINE_MAX {
                return Err(self.bad("too long"));
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(ClientError::TimedOut { path: self.path.clone(), waited: timeout });
            }
            self.read_some(left, timeout)?;
        }
    }

    fn read_some(&mut self, left: Duration, timeout: Duration) -> Result<(), ClientError> {
        let failed = |source| from_io(&self.path, timeout, source);
        self.stream.set_read_timeout(Some(at_least_1ms(left))).map_err(failed)?;
        let mut chunk = [0; 16 << 10];
        let mut stream = &self.stream;
        match stream.read(&mut chunk) {
            Ok(0) => Err(ClientError::Closed { path: self.path.clone() }),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    fn take_line(&mut self) -> Result<Option<String>, ClientError> {
        let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = found.map(|at| self.searched + at) else {
            self.searched = self.buffer.len();
            return Ok(None);
        };
        self.searched = 0;
        let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
        line.pop();
        String::from_utf8(line).map(Some).map_err(|_| self.bad("not UTF-8"))
    }

    fn bad(&self, what: &'static str) -> ClientError {
        ClientError::BadAnswer { path: self.path.clone(), what }
    }
}

/// A socket's timeout of zero would mean none.
fn at_least_1ms(timeout: Duration) -> Duration {
    timeout.max(Duration::from_millis(1))
}

fn from_io(path: &Path, waited: Duration, source: io::Error) -> ClientError {
    use io::ErrorKind as Kind;
    let path = path.to_owned();
    match source.kind() {
        Kind::NotFound | Kind::ConnectionRefused | Kind::NotADirectory => ClientError::NotRunning { path },
        Kind::PermissionDenied => ClientError::Forbidden { path },
        Kind::WouldBlock | Kind::TimedOut => ClientError::TimedOut { path, waited },
        Kind::BrokenPipe | Kind::ConnectionReset | Kind::UnexpectedEof => ClientError::Closed { path },
        _ => ClientError::Io { path, source },
    }
}
