//! Locks as applications hold them.
//!
//! Decides: what a holder sees of its lock: the token, until when it is certain, and the events when that changes (R46, R73).
//! Dropping a guard gives the lock back. Leaves to others: when the lock is certain (the agent).

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::hub::{Done, Inner};
use cistern_agent::api::{self, Command, LockEvent, Locked, Target, Wait};
use cistern_link::Instant;
use cistern_wire::{Generation, Mode, ObjectId};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Where a lock's events are put.
#[derive(Debug, Default)]
pub(crate) struct GuardShared {
    state: Mutex<Events>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct Events {
    queue: VecDeque<LockEvent>,
    lost: bool,
    /// Those who await an event, by number.
    awaiting: Vec<(u64, Waker)>,
    last_number: u64,
}

impl GuardShared {
    /// Gives whom to wake, once no lock is held. All who await something are woken: one that does not look any more takes nothing from
    /// the others.
    pub(crate) fn push(&self, event: LockEvent) -> impl Iterator<Item = Waker> + use<> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.lost |= event == LockEvent::Lost;
        // A holder that does not look sees the newest state of each kind; the queue does not grow with time.
        state.queue.retain(|queued| std::mem::discriminant(queued) != std::mem::discriminant(&event));
        state.queue.push_back(event);
        self.came.notify_all();
        std::mem::take(&mut state.awaiting).into_iter().map(|(_, waker)| waker)
    }

    fn poll(&self, number: &mut Option<u64>, waker: &Waker) -> Poll<LockEvent> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(event) = state.queue.pop_front() {
            return Poll::Ready(event);
        }
        let number = *number.get_or_insert_with(|| {
            state.last_number += 1;
            state.last_number
        });
        let former = state.take_waker(number);
        state.awaiting.push((number, waker.clone()));
        drop(state);
        drop(former);
        Poll::Pending
    }

    fn stop_awaiting(&self, number: u64) {
        let former = self.state.lock().unwrap_or_else(PoisonError::into_inner).take_waker(number);
        drop(former);
    }

    pub(crate) fn lost(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).lost
    }
}

impl Events {
    fn take_waker(&mut self, number: u64) -> Option<Waker> {
        let place = self.awaiting.iter().position(|awaiting| awaiting.0 == number)?;
        Some(self.awaiting.swap_remove(place).1)
    }
}

/// How certain a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardState {
    /// Held, for certain until the instant given, on this machine's lease clock.
    Certain {
        /// The end of the lease as it stands.
        valid_until: Instant,
        /// When operations under the lock should be ending, unless the lease is renewed before.
        suspect_at: Instant,
    },
    /// The lease is over: it may be held by somebody else already, or become certain again.
    Uncertain,
    /// Gone for good.
    Lost,
}

/// A lock held by the application; given back when dropped.
///
/// It is on the object that the path named when it was taken, not on the path. Other agents are refused to rename, replace or remove that
/// object (`EBUSY`), unless they force it. A rename of a directory above is refused to nobody and is no [`event`](Self::event): the
/// lock goes on at the object's new place, and somebody else can make and lock another object at the old path. Whoever relies on the
/// path compares now and then what it names with [`object`](Self::object):
///
/// ```no_run
/// # fn still_there(client: &cistern_client::Client, guard: &cistern_client::Guard) -> Result<bool, cistern_client::Error> {
/// Ok(client.stat("/jobs/nightly").wait()?.object == guard.object())
/// # }
/// ```
///
/// That is answered from cache, and costs messages only after a change in one of the directories above; with a lease period of its own that
/// is longer than the server's the agent has no cache, and each look asks the server.
#[derive(Debug)]
pub struct Guard {
    inner: Arc<Inner>,
    locked: Locked,
    shared: Arc<GuardShared>,
}

impl Guard {
    /// The fencing token: larger than every token that any holder of this lock was shown before, wherever. Give it to the resource that
    /// the lock protects, which refuses a smaller one than it has seen. Tokens of different locks say nothing about one another.
    #[must_use]
    pub const fn token(&self) -> u64 {
        self.locked.token
    }

    /// The locked object.
    #[must_use]
    pub const fn object(&self) -> ObjectId {
        self.locked.object
    }

    /// The mode.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.locked.mode
    }

    /// The agent's grant.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.locked.generation
    }

    /// How certain the lock is now. A forked child has no lock: there it is lost.
    #[must_use]
    pub fn state(&self) -> GuardState {
        if self.inner.home.check_process().is_err() || self.shared.lost() {
            return GuardState::Lost;
        }
        let view = self.inner.with(|hub| hub.agent.holder_view(self.inner.clock.now(), self.locked.holder));
        match view.ok().flatten() {
            Some(view) if view.certain => GuardState::Certain { valid_until: view.valid_until, suspect_at: view.suspect_at },
            Some(_) => GuardState::Uncertain,
            None => GuardState::Lost,
        }
    }

    /// Whether the lock is certain at this moment: the check to make right before acting under it.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        matches!(self.state(), GuardState::Certain { .. })
    }

    /// Until when the lock is certain as things stand; `None` when it is not. Renewals move it on.
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        match self.state() {
            GuardState::Certain { valid_until, .. } => Some(valid_until),
            _ => None,
        }
    }

    /// Time left until the lock is uncertain unless it is renewed; zero when it is not certain.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.valid_until().map_or(Duration::ZERO, |until| self.inner.clock.now().until_lease_over(until))
    }

    /// Blocks until something happens to the lock, at most for `span`.
    #[must_use]
    pub fn wait_event(&self, span: Duration) -> Option<LockEvent> {
        if self.inner.home.check_process().is_err() {
            return Some(LockEvent::Lost);
        }
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut state, _) =
            self.shared.came.wait_timeout_while(state, span, |s| s.queue.is_empty()).unwrap_or_else(PoisonError::into_inner);
        state.queue.pop_front()
    }

    /// The next thing that happens to the lock, as a future. It never ends when nothing happens.
    pub const fn event(&self) -> NextEvent<'_> {
        NextEvent { guard: self, number: None }
    }

    /// The guard for mutations under this lock: they fail when this hold of it is over.
    pub(crate) const fn guard(&self) -> api::Guard {
        api::Guard { object: self.locked.object, token: self.locked.token }
    }

    /// Gives the lock back.
    pub fn release(self) {}
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.inner.unlock(self.locked.holder);
    }
}

/// Future of [`Guard::event`].
#[derive(Debug)]
pub struct NextEvent<'g> {
    guard: &'g Guard,
    /// Its number among those who await an event, once it does.
    number: Option<u64>,
}

impl Future for NextEvent<'_> {
    type Output = LockEvent;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LockEvent> {
        let this = self.get_mut();
        if this.guard.inner.home.check_process().is_err() {
            return Poll::Ready(LockEvent::Lost);
        }
        this.guard.shared.poll(&mut this.number, cx.waker())
    }
}

impl Drop for NextEvent<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number
            && self.guard.inner.home.check_process().is_ok()
        {
            self.guard.shared.stop_awaiting(number);
        }
    }
}

/// A lock about to be asked for: exclusive and waiting for as long as it takes, unless said otherwise.
#[derive(Debug)]
#[must_use = "nothing is asked for before `wait` or `call`"]
pub struct LockRequest {
    client: Client,
    target: Target,
    mode: Mode,
    wait: Wait,
}

impl LockRequest {
    pub(crate) const fn new(client: Client, target: Target) -> Self {
        Self { client, target, mode: Mode::Exclusive, wait: Wait::Forever }
    }

    /// Shared with other shared holders.
    pub const fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Fails at once when somebody else holds it.
    pub const fn try_once(mut self) -> Self {
        self.wait = Wait::Try;
        self
    }

    /// Waits at most so long.
    pub const fn at_most(mut self, span: Duration) -> Self {
        self.wait = Wait::AtMost(span);
        self
    }

    /// Asks for the lock.
    pub fn call(self) -> Call<Guard> {
        let command = Command::Lock { target: self.target.clone(), mode: self.mode, wait: self.wait };
        let what = || match &self.target {
            Target::Path(path) => String::from_utf8_lossy(path).into_owned(),
            Target::Object(object) => format!("object {object}"),
        };
        self.client.inner().submit(what, command, |inner, done| match done {
            Done::Locked(locked, shared) => Ok(Guard { inner: Arc::clone(inner), locked, shared }),
            _ => Err(Error::Broken { why: "a lock request ended as something else".to_owned() }),
        })
    }

    /// Asks for the lock and blocks until it is granted or refused.
    ///
    /// # Errors
    /// `Status(EAGAIN)` when only tried, [`Error::TimedOut`], or why it cannot be had.
    pub fn wait(self) -> Result<Guard, Error> {
        self.call().wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::tests::{child_of, client};
    use cistern_agent::api::HolderId;

    #[test]
    fn guard_is_lost_in_a_child_of_which_no_handler_told() {
        let client = client();
        let (holder, object) = (HolderId(1), ObjectId(7));
        let valid_until = client.now().plus(Duration::from_secs(60));
        let locked = Locked { holder, object, mode: Mode::Exclusive, generation: Generation(1), token: 1, valid_until };
        let guard = Guard { inner: child_of(&client), locked, shared: Arc::default() };
        assert_eq!((guard.state(), guard.wait_event(Duration::from_secs(60))), (GuardState::Lost, Some(LockEvent::Lost)));
        let polled = Pin::new(&mut guard.event()).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(LockEvent::Lost));
    }
}
