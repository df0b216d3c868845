//! Waiting for calls and for descriptors at the same time.
//!
//! Decides: how the end of a call is waited for beside a signal, a socket or a moment, without a runtime.
//! Leaves to others: what a call is (`cistern_client`), what it means to be cut short.

use crate::signals::{End, wait_for};
use nix::poll::{PollFd, PollFlags};
use std::future::Future;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

/// Makes a descriptor readable when a call may have ended, so that it can be waited for beside a socket.
pub(crate) struct Bell {
    rung: UnixStream,
    rings: UnixStream,
}

impl Bell {
    pub(crate) fn new() -> io::Result<(Arc<Self>, Waker)> {
        let (rung, rings) = UnixStream::pair()?;
        rung.set_nonblocking(true)?;
        rings.set_nonblocking(true)?;
        let bell = Arc::new(Self { rung, rings });
        Ok((Arc::clone(&bell), Waker::from(bell)))
    }

    pub(crate) fn silence(&self) {
        // Whatever the reason for which nothing can be read: then it does not ring.
        while matches!((&self.rung).read(&mut [0; 16]), Ok(1..)) {}
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // A full pipe rings already.
        let _ = (&self.rings).write(&[1]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rung.as_fd()
    }
}

/// Waits for a call until it ends, the process is asked to end, or `until` has come; `None`: it goes on, and can be waited for again.
///
/// # Errors
/// When the system gives no descriptors.
pub(crate) fn wait_for_call<T>(call: &mut (impl Future<Output = T> + Unpin), end: &End, until: Option<Instant>) -> io::Result<Option<T>> {
    let (bell, waker) = Bell::new()?;
    loop {
        if let Poll::Ready(result) = Pin::new(&mut *call).poll(&mut Context::from_waker(&waker)) {
            return Ok(Some(result));
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if end.is_asked() || left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        wait_for(&mut [PollFd::new(bell.as_fd(), PollFlags::POLLIN), PollFd::new(end.as_fd(), PollFlags::POLLIN)], left);
        bell.silence();
    }
}
