//! SIGINT, SIGTERM and SIGHUP: how the program learns that it should end.
//!
//! Decides: that the first signal asks for a clean end, with everything that was seen so far shown and summed up, and a second one ends
//! the process at once. Waiting for input and for the signals is one `poll`. Leaves to others: what a clean end is.

use crate::failure::{EXIT_IO, Failure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether the process has been asked to end.
#[derive(Clone, Debug)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    /// Readable once it has been.
    woken: Arc<UnixStream>,
}

impl Stop {
    /// Catches the signals from now on.
    ///
    /// # Errors
    /// When the system gives no handler or no pair of sockets.
    pub fn catch() -> Result<Self, Failure> {
        let (stop, waker) = Self::pair()?;
        let broken = |e: io::Error| Failure::new(EXIT_IO, format!("cannot wait for signals: {e}"));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: at the first signal the flag is not set yet when it is looked at.
            flag::register_conditional_default(signal, Arc::clone(&stop.asked)).map_err(broken)?;
            flag::register(signal, Arc::clone(&stop.asked)).map_err(broken)?;
            low_level::pipe::register(signal, waker.try_clone().map_err(broken)?).map_err(broken)?;
        }
        Ok(stop)
    }

    fn pair() -> Result<(Self, UnixStream), Failure> {
        let (woken, waker) = UnixStream::pair().map_err(|e| Failure::new(EXIT_IO, format!("no pair of sockets to be had: {e}")))?;
        Ok((Self { asked: Arc::default(), woken: Arc::new(woken) }, waker))
    }

    /// Whether the process has been asked to end.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Waits until there is something to read, the process is asked to end, or the time is over.
    pub fn wait(&self, source: Option<BorrowedFd<'_>>, span: Option<Duration>) {
        let mut fds = vec![PollFd::new(self.woken.as_fd(), PollFlags::POLLIN)];
        fds.extend(source.map(|source| PollFd::new(source, PollFlags::POLLIN)));
        let timeout = span.map_or(PollTimeout::NONE, |span| PollTimeout::try_from(span).unwrap_or(PollTimeout::MAX));
        match poll(&mut fds, timeout) {
            // A signal: whoever waits looks whether it was the end.
            Ok(_) | Err(Errno::EINTR) => {}
            // For want of kernel memory; nothing else can go wrong with a right call.
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }

    /// Whether reading would not block.
    #[must_use]
    pub fn is_ready(source: BorrowedFd<'_>) -> bool {
        let mut fds = [PollFd::new(source, PollFlags::POLLIN)];
        // What cannot be waited for is read at once; then the read says what is wrong.
        poll(&mut fds, PollTimeout::ZERO) != Ok(0)
    }
}
