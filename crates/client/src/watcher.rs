//! Watches as applications hold them.
//!
//! Decides: what a watcher sees of the objects that it watches, in which order, and that a watcher which does not look keeps no more
//! than the newest news of each kind for each object (R82). Dropping it ends its watches.
//! Leaves to others: when something is certain (the agent), what has changed (the application reads again).

use crate::error::Error;
use crate::hub::Inner;
use cistern_agent::api::{WatchEvent, WatchId};
use cistern_wire::ObjectId;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Something is known of a watched object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The object.
    pub object: ObjectId,
    /// What.
    pub what: WatchEvent,
}

/// Where the news of a watcher are put.
#[derive(Debug, Default)]
pub(crate) struct WatcherShared {
    state: Mutex<News>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct News {
    queue: VecDeque<Seen>,
    waker: Option<Waker>,
}

impl WatcherShared {
    /// Gives whom to wake, once no lock is held.
    pub(crate) fn push(&self, seen: Seen) -> Option<Waker> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = std::mem::discriminant(&seen.what);
        state.queue.retain(|queued| queued.object != seen.object || std::mem::discriminant(&queued.what) != kind);
        state.queue.push_back(seen);
        self.came.notify_all();
        state.waker.take()
    }
}

/// Watches any number of objects, and tells what becomes of them; made by [`crate::Client::watcher`].
///
/// The first news of an object is [`WatchEvent::Certain`] with its version. As long as nothing is said after that, nothing has changed:
/// the agent renews its lease while there are watches, and says [`WatchEvent::Uncertain`] when that is over. A change is told by the
/// version that the object has then, and not by what has changed: look again.
#[derive(Debug)]
pub struct Watcher {
    inner: Arc<Inner>,
    shared: Arc<WatcherShared>,
    watches: BTreeMap<ObjectId, WatchId>,
}

impl Watcher {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, shared: Arc::default(), watches: BTreeMap::new() }
    }

    /// Watches an object from now on. One that is watched already stays so.
    ///
    /// # Errors
    /// [`Error::Overloaded`] at the agent's bound, [`Error::Broken`]. That there is no such object is told as [`WatchEvent::Gone`].
    pub fn watch(&mut self, object: ObjectId) -> Result<(), Error> {
        if !self.watches.contains_key(&object) {
            let watch = self.inner.watch(object, &self.shared)?;
            self.watches.insert(object, watch);
        }
        Ok(())
    }

    /// Watches an object no more; news of it that were not looked at are gone.
    pub fn unwatch(&mut self, object: ObjectId) {
        if let Some(watch) = self.watches.remove(&object) {
            self.inner.unwatch(watch);
            if self.inner.home.check_process().is_ok() {
                let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.queue.retain(|queued| queued.object != object);
            }
        }
    }

    /// Blocks until there is something to tell, at most for `span`. In a forked child nothing is certain.
    #[must_use]
    pub fn wait_event(&mut self, span: Duration) -> Option<Seen> {
        if self.inner.home.check_process().is_err() {
            return self.uncertain();
        }
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = |news: &mut News| news.queue.is_empty();
        let (mut state, _) = self.shared.came.wait_timeout_while(state, span, waiting).unwrap_or_else(PoisonError::into_inner);
        let seen = state.queue.pop_front();
        drop(state);
        self.forget_gone(seen)
    }

    /// The next news, as a future. It never ends when there are none.
    pub const fn event(&mut self) -> NextSeen<'_> {
        NextSeen { watcher: self }
    }

    /// What a forked child hears, in which nobody tells of changes; none without watches.
    fn uncertain(&self) -> Option<Seen> {
        self.watches.keys().next().map(|object| Seen { object: *object, what: WatchEvent::Uncertain })
    }

    /// A watch of what is gone is over.
    fn forget_gone(&mut self, seen: Option<Seen>) -> Option<Seen> {
        if let Some(Seen { object, what: WatchEvent::Gone }) = seen {
            self.watches.remove(&object);
        }
        seen
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        for (_, watch) in std::mem::take(&mut self.watches) {
            self.inner.unwatch(watch);
        }
    }
}

/// Future of [`Watcher::event`].
#[derive(Debug)]
pub struct NextSeen<'w> {
    watcher: &'w mut Watcher,
}

impl Future for NextSeen<'_> {
    type Output = Seen;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Seen> {
        if self.watcher.inner.home.check_process().is_err() {
            return self.watcher.uncertain().map_or(Poll::Pending, Poll::Ready);
        }
        let mut state = self.watcher.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = state.queue.pop_front();
        let former = if seen.is_none() { state.waker.replace(cx.waker().clone()) } else { None };
        drop(state);
        // Only now: with its last waker a task may go, and with it other watchers.
        drop(former);
        self.watcher.forget_gone(seen).map_or(Poll::Pending, Poll::Ready)
    }
}
