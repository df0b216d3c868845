//! Events of locks and watches: waited for by threads, awaited by tasks.
//!
//! Decides: that a receiver which does not look keeps only the newest event of each kind, so that no queue grows with time.

use crate::forked::Home;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What events must say of themselves.
pub(crate) trait Event: Copy {
    /// Whether this one makes an older one that nobody has looked at useless.
    fn replaces(self, older: Self) -> bool;
    /// Whether its source says nothing after it.
    fn is_last(self) -> bool;
}

/// Where events are put.
#[derive(Debug)]
pub(crate) struct Mailbox<E> {
    state: Mutex<MailboxState<E>>,
    came: Condvar,
}

#[derive(Debug)]
struct MailboxState<E> {
    queue: VecDeque<E>,
    /// How many sources may still say something.
    sources: usize,
    /// Those who await an event, by number.
    awaiting: Vec<(u64, Waker)>,
    last_number: u64,
}

impl<E> MailboxState<E> {
    fn take_waker(&mut self, number: u64) -> Option<Waker> {
        let place = self.awaiting.iter().position(|awaiting| awaiting.0 == number)?;
        Some(self.awaiting.swap_remove(place).1)
    }

    fn take_wakers(&mut self) -> impl Iterator<Item = Waker> + use<E> {
        std::mem::take(&mut self.awaiting).into_iter().map(|(_, waker)| waker)
    }
}

impl<E: Event> Mailbox<E> {
    pub(crate) const fn new(sources: usize) -> Self {
        let state = MailboxState { queue: VecDeque::new(), sources, awaiting: Vec::new(), last_number: 0 };
        Self { state: Mutex::new(state), came: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, MailboxState<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives whom to wake, once no lock is held. All who await something are woken: one that does not look any more takes nothing from
    /// the others.
    pub(crate) fn push(&self, event: E) -> impl Iterator<Item = Waker> + use<E> {
        let mut state = self.state();
        state.queue.retain(|queued| !event.replaces(*queued));
        state.queue.push_back(event);
        state.sources -= usize::from(event.is_last()).min(state.sources);
        self.came.notify_all();
        state.take_wakers()
    }

    /// Nothing will come any more; gives whom to wake.
    pub(crate) fn close(&self) -> impl Iterator<Item = Waker> + use<E> {
        let mut state = self.state();
        state.sources = 0;
        self.came.notify_all();
        state.take_wakers()
    }

    /// Whether every source has said its last.
    pub(crate) fn is_closed(&self) -> bool {
        self.state().sources == 0
    }

    pub(crate) fn add_source(&self) {
        self.state().sources += 1;
    }

    /// A source is given up, unless it has said its last before; its events that nobody has looked at are gone.
    pub(crate) fn remove_source(&self, is_source: bool, is_its: impl Fn(&E) -> bool) {
        let mut state = self.state();
        state.sources -= usize::from(is_source).min(state.sources);
        state.queue.retain(|queued| !is_its(queued));
    }
}

/// Events as they come. [`next`](Self::next) awaits one under any runtime, [`next_timeout`](Self::next_timeout) blocks for a time, and a
/// `for` loop blocks until the last. It is also a `futures_core::Stream`.
#[derive(Debug)]
pub struct Events<'a, E> {
    home: &'a Home,
    mailbox: &'a Mailbox<E>,
    /// What is told in a forked child, where nothing can come.
    in_child: Option<E>,
    /// Its number among those who await an event, once it does.
    number: Option<u64>,
}

#[allow(private_bounds, reason = "the kinds of events are this crate's")]
impl<'a, E: Event> Events<'a, E> {
    pub(crate) const fn new(home: &'a Home, mailbox: &'a Mailbox<E>, in_child: Option<E>) -> Self {
        Self { home, mailbox, in_child, number: None }
    }

    /// Blocks until there is an event, at most for `span`. `None`: none came, or none will come any more.
    #[must_use]
    pub fn next_timeout(&mut self, span: Duration) -> Option<E> {
        if self.home.check_process().is_err() {
            return self.in_child.take();
        }
        let waiting = |state: &mut MailboxState<E>| state.queue.is_empty() && state.sources > 0;
        let waited = self.mailbox.came.wait_timeout_while(self.mailbox.state(), span, waiting);
        waited.unwrap_or_else(PoisonError::into_inner).0.queue.pop_front()
    }

    /// The next event; `None` when none will come any more.
    pub async fn next(&mut self) -> Option<E> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for those who poll.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<E>> {
        if self.home.check_process().is_err() {
            return Poll::Ready(self.in_child.take());
        }
        let mut state = self.mailbox.state();
        let event = state.queue.pop_front();
        if event.is_some() || state.sources == 0 {
            return Poll::Ready(event);
        }
        let number = *self.number.get_or_insert_with(|| {
            state.last_number += 1;
            state.last_number
        });
        let former = state.take_waker(number);
        state.awaiting.push((number, cx.waker().clone()));
        drop(state);
        // Only now: with its last waker a task may go, and with it other receivers.
        drop(former);
        Poll::Pending
    }
}

impl<E> Drop for Events<'_, E> {
    fn drop(&mut self) {
        if let Some(number) = self.number
            && self.home.check_process().is_ok()
        {
            let former = self.mailbox.state.lock().unwrap_or_else(PoisonError::into_inner).take_waker(number);
            drop(former);
        }
    }
}

/// Blocks for each event until the last: what a `for` loop makes of [`Events`].
#[derive(Debug)]
pub struct Blocking<'a, E>(Events<'a, E>);

#[allow(private_bounds, reason = "the kinds of events are this crate's")]
impl<E: Event> Iterator for Blocking<'_, E> {
    type Item = E;

    fn next(&mut self) -> Option<E> {
        self.0.next_timeout(Duration::MAX)
    }
}

#[allow(private_bounds, reason = "the kinds of events are this crate's")]
impl<'a, E: Event> IntoIterator for Events<'a, E> {
    type Item = E;
    type IntoIter = Blocking<'a, E>;

    fn into_iter(self) -> Blocking<'a, E> {
        Blocking(self)
    }
}

#[allow(private_bounds, reason = "the kinds of events are this crate's")]
impl<E: Event + Unpin> futures_core::Stream for Events<'_, E> {
    type Item = E;

    fn poll_next(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<E>> {
        Events::poll_next(self.get_mut(), cx)
    }
}
