//! A call in progress: to be waited for by a thread, or awaited by a task.
//!
//! Decides: how the end of a command reaches its caller without a runtime. A call that is dropped before its end is cancelled.
//! Invariant: a call ends exactly once.

use crate::error::{Cause, Error, Subject};
use crate::hub::{Done, Inner};
use crate::op::Operation;
use cistern_agent::api::OpId;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Where the end of a command is put.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    state: Mutex<PendingState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct PendingState {
    /// The command that runs; none for the end of the client itself, which cannot be cancelled.
    op: Option<OpId>,
    done: Option<Done>,
    waker: Option<Waker>,
}

impl Pending {
    pub(crate) fn op(&self) -> Option<OpId> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).op
    }

    /// It is put here when this command has ended.
    pub(crate) fn await_end_of(&self, op: OpId) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).op = Some(op);
    }

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

    fn wait(&self, until: Option<Instant>) -> Option<Done> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = |state: &mut PendingState| state.done.is_none();
        let mut state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
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

/// How far a command has come.
#[derive(Debug)]
pub(crate) enum Progress {
    Ended(Option<Done>),
    Running(Arc<Pending>),
    Refused(Option<Error>),
}

/// An operation that has been started, and may have ended: `wait` for it, or `.await` it. Dropping it cancels what can be cancelled.
#[must_use = "a call that is dropped is cancelled"]
pub struct Call<K: Operation> {
    inner: Arc<Inner>,
    progress: Progress,
    subject: Subject,
    kind: Option<K>,
}

impl<K: Operation> Call<K> {
    pub(crate) fn new(inner: Arc<Inner>, progress: Progress, subject: Subject, kind: K) -> Self {
        Self { inner, progress, subject, kind: Some(kind) }
    }

    /// Blocks until the operation has ended.
    ///
    /// # Errors
    /// Why it failed.
    pub fn wait(mut self) -> Result<K::Output, Error> {
        self.wait_until(None).unwrap_or_else(|| Err(Cause::Closed.into()))
    }

    /// Blocks until the operation has ended, at most for `span`: then it goes on, and `None` is returned.
    pub fn wait_timeout(&mut self, span: Duration) -> Option<Result<K::Output, Error>> {
        self.wait_until(Instant::now().checked_add(span))
    }

    /// Gives the operation up, and says how it ended: with its result if that had just come, otherwise as
    /// [`Canceled`](crate::ErrorKind::Canceled), or as [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if it may have changed something.
    ///
    /// # Errors
    /// As described.
    pub fn cancel(self) -> Result<K::Output, Error> {
        if let Progress::Running(pending) = &self.progress {
            // Its end is put where `wait` finds it.
            self.inner.cancel(pending);
        }
        self.wait()
    }

    /// Nobody waits for it any more, and it goes on.
    pub(crate) fn detach(mut self) {
        self.progress = Progress::Ended(None);
    }

    fn wait_until(&mut self, until: Option<Instant>) -> Option<Result<K::Output, Error>> {
        self.look(|pending| pending.wait(until))
    }

    /// The result, as soon as `look` finds that the operation has ended.
    fn look(&mut self, look: impl Fn(&Pending) -> Option<Done>) -> Option<Result<K::Output, Error>> {
        if let Err(error) = self.inner.home.check() {
            return Some(Err(error));
        }
        let done = match &mut self.progress {
            Progress::Refused(error) => return Some(Err(error.take().unwrap_or_else(|| Cause::Closed.into()))),
            Progress::Ended(done) => done.take(),
            Progress::Running(pending) => match self.inner.home.check_process() {
                Ok(()) => Some(look(pending)?),
                Err(error) => return Some(Err(error)),
            },
        };
        self.progress = Progress::Ended(None);
        // Its end was given before.
        let (Some(done), Some(kind)) = (done, self.kind.take()) else { return Some(Err(Cause::Closed.into())) };
        Some(match done {
            Done::Failed(error) => {
                let mut error = self.inner.error(error, self.subject.clone());
                error.place(|item| kind.place(item));
                Err(error)
            }
            done => kind.output(&self.inner, done),
        })
    }
}

impl<K: Operation> Future for Call<K> {
    type Output = Result<K::Output, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut().look(|pending| pending.poll(cx.waker())) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

// Nothing in a call is address-sensitive: the pending end is shared, the rest is plain data.
impl<K: Operation> Unpin for Call<K> {}

impl<K: Operation> Drop for Call<K> {
    fn drop(&mut self) {
        // It may have ended already: a lock that came must not stay held by nobody.
        let unseen = match &mut self.progress {
            Progress::Running(_) if self.inner.home.check_process().is_err() => return,
            Progress::Running(pending) => {
                self.inner.cancel(pending);
                pending.take()
            }
            Progress::Ended(done) => done.take(),
            Progress::Refused(_) => None,
        };
        if let Some(Done::Locked(locked, _)) = unseen {
            // Nobody has seen it: there is nobody to tell that it was lost.
            let _ = self.inner.unlock(locked.holder);
        }
    }
}

impl<K: Operation> std::fmt::Debug for Call<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("subject", &self.subject).field("progress", &self.progress).finish_non_exhaustive()
    }
}
