//! What takes several operations, and is one thing to its caller.
//!
//! Decides: that it goes on only while somebody waits for it or polls it, and that giving it up gives up the operation that is under way.

use crate::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Several operations, one after the other: [`wait`](Self::wait) for them, or `.await` them. Dropping this gives them up: what was asked
/// for and not yet obtained is not taken.
#[must_use = "nothing happens before `wait` or `.await`"]
pub struct Steps<T>(Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>);

impl<T> Steps<T> {
    pub(crate) fn new(steps: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self(Box::pin(steps))
    }

    /// Does them, and blocks until they have ended.
    ///
    /// # Errors
    /// Why one of them failed.
    pub fn wait(self) -> Result<T, Error> {
        block_on(self.0)
    }
}

impl<T> Future for Steps<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for Steps<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steps").finish_non_exhaustive()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}
