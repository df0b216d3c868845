//! A call in progress: to be waited for by a thread, or awaited by a task.
//!
//! Decides: how the end of a command reaches whoever waits for it, without a runtime. A call that is dropped before its end is
//! cancelled. Invariant: a call ends exactly once. Leaves to others: what runs in between (`hub`, the agent).

use crate::error::Error;
use crate::hub::{Done, Inner};
use cistern_agent::api::OpId;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Where the end of a command is put.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: Mutex<SlotState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct SlotState {
    done: Option<Done>,
    waker: Option<Waker>,
}

impl Slot {
    /// Gives whom to wake, once no lock is held: a waker may run anything, this library included.
    #[must_use]
    pub(crate) fn fill(&self, done: Done) -> Option<Waker> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.done = Some(done);
        self.ended.notify_all();
        state.waker.take()
    }

    pub(crate) fn take(&self) -> Option<Done> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).done.take()
    }

    fn wait(&self, at_most: Option<Duration>) -> Option<Done> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = |state: &mut SlotState| state.done.is_none();
        let mut state = match at_most {
            Some(span) => self.ended.wait_timeout_while(state, span, waiting).unwrap_or_else(PoisonError::into_inner).0,
            None => self.ended.wait_while(state, waiting).unwrap_or_else(PoisonError::into_inner),
        };
        state.done.take()
    }

    fn poll(&self, waker: &Waker) -> Option<Done> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let done = state.done.take();
        let former = if done.is_none() { state.waker.replace(waker.clone()) } else { None };
        drop(state);
        // Only now: with its last waker a task may go, and with it other calls.
        drop(former);
        done
    }
}

#[derive(Debug)]
enum Progress {
    Ended(Option<Done>),
    Running { op: OpId, slot: Arc<Slot> },
    Refused(Option<Error>),
}

/// Makes of the end of a command what its caller wants of it.
pub(crate) type Finish<T> = fn(&Arc<Inner>, Done) -> Result<T, Error>;

/// An operation that may still be running; `wait` for it, or `.await` it. Dropping it cancels what can be cancelled.
#[must_use = "a call that is dropped is cancelled"]
pub struct Call<T> {
    inner: Arc<Inner>,
    progress: Progress,
    what: String,
    finish: Finish<T>,
}

impl<T> Call<T> {
    pub(crate) fn ended(inner: Arc<Inner>, what: String, done: Done, finish: Finish<T>) -> Self {
        Self { inner, progress: Progress::Ended(Some(done)), what, finish }
    }

    pub(crate) fn running(inner: Arc<Inner>, what: String, op: OpId, slot: Arc<Slot>, finish: Finish<T>) -> Self {
        Self { inner, progress: Progress::Running { op, slot }, what, finish }
    }

    pub(crate) fn refused(inner: Arc<Inner>, error: Error, finish: Finish<T>) -> Self {
        Self { inner, progress: Progress::Refused(Some(error)), what: String::new(), finish }
    }

    /// Blocks until the operation has ended.
    ///
    /// # Errors
    /// What made it fail.
    pub fn wait(mut self) -> Result<T, Error> {
        self.wait_inner(None).unwrap_or(Err(Error::Closed))
    }

    /// Blocks until the operation has ended, but not longer than `span`; then it goes on, and `None` is given.
    pub fn wait_at_most(&mut self, span: Duration) -> Option<Result<T, Error>> {
        self.wait_inner(Some(span))
    }

    fn wait_inner(&mut self, at_most: Option<Duration>) -> Option<Result<T, Error>> {
        if let Err(error) = self.inner.home.check() {
            return Some(Err(error));
        }
        let done = match &mut self.progress {
            Progress::Refused(error) => return error.take().map(Err),
            Progress::Ended(done) => done.take(),
            Progress::Running { slot, .. } => match self.inner.home.check_process() {
                Ok(()) => slot.wait(at_most),
                Err(error) => return Some(Err(error)),
            },
        }?;
        Some(self.end(done))
    }

    fn end(&mut self, done: Done) -> Result<T, Error> {
        self.progress = Progress::Ended(None);
        match done {
            Done::Failed(error) => Err(self.inner.error(error, &self.what)),
            done => (self.finish)(&self.inner, done),
        }
    }
}

// Nothing in a call is address-sensitive: the slot is shared, the rest is plain data.
impl<T> Unpin for Call<T> {}

impl<T> Future for Call<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Err(error) = this.inner.home.check() {
            return Poll::Ready(Err(error));
        }
        let done = match &mut this.progress {
            Progress::Refused(error) => return Poll::Ready(Err(error.take().unwrap_or(Error::Closed))),
            Progress::Ended(done) => done.take(),
            Progress::Running { slot, .. } => match this.inner.home.check_process().map(|()| slot.poll(cx.waker())) {
                Ok(Some(done)) => Some(done),
                Ok(None) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            },
        };
        Poll::Ready(done.map_or(Err(Error::Closed), |done| this.end(done)))
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        // It may have ended already: a lock that came must not stay held by nobody.
        let unseen = match &mut self.progress {
            Progress::Running { .. } if self.inner.home.check_process().is_err() => return,
            Progress::Running { op, slot } => {
                self.inner.cancel(*op);
                slot.take()
            }
            Progress::Ended(done) => done.take(),
            Progress::Refused(_) => None,
        };
        if let Some(Done::Locked(locked, _)) = unseen {
            self.inner.unlock(locked.holder);
        }
    }
}

impl<T> std::fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("what", &self.what).field("progress", &self.progress).finish_non_exhaustive()
    }
}
