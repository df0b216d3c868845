//! Locks as applications hold them.
//!
//! Decides: what a holder sees of its lock: the token, until when it is certain, and the events when that changes. Dropping a guard gives
//! the lock back.

use crate::call::{Call, Progress};
use crate::error::Subject;
use crate::events::{Event, Events, Mailbox};
use crate::hub::{Done, Inner};
use crate::metadata::{FileId, Token};
use crate::op::kinds;
use cistern_agent::api::{self, HolderView, LockEvent, Locked, Output};
use cistern_link::Instant;
use std::sync::Arc;
use std::time::Duration;

/// How certain a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockState {
    /// Nobody else can hold it.
    Certain,
    /// The same, but the lease was not renewed in time and ends soon: what is done under it should be ending.
    Suspect,
    /// The lease is over: stop using it. It may be held by somebody else already, or become certain again under the same token.
    Uncertain,
    /// It is gone for good.
    Lost,
}

impl LockState {
    pub(crate) const fn of(event: LockEvent) -> Self {
        match event {
            LockEvent::Suspect { .. } => Self::Suspect,
            LockEvent::Uncertain => Self::Uncertain,
            LockEvent::Certain { .. } => Self::Certain,
            LockEvent::Lost => Self::Lost,
        }
    }
}

impl Event for LockState {
    fn replaces(self, older: Self) -> bool {
        self == older
    }

    fn is_last(self) -> bool {
        self == Self::Lost
    }
}

/// A lock held by the application; given back when dropped.
///
/// It is on the file that the path named when it was taken, not on the path. Other agents are refused to rename, replace or remove that
/// file ([`Busy`](crate::ErrorKind::Busy)), unless they force it. A rename of a directory above is refused to nobody and is no
/// [event](Self::events): the lock goes on at the file's new place, and somebody else can make and lock another file at the old path.
/// Whoever relies on the path compares now and then what it names with [`file`](Self::file):
///
/// ```no_run
/// # fn still_there(client: &cistern_client::Client, guard: &cistern_client::Guard) -> Result<bool, cistern_client::Error> {
/// Ok(client.metadata("/jobs/nightly").wait()?.id() == guard.file())
/// # }
/// ```
///
/// That is answered from cache, and costs messages only after a change in one of the directories above; with a lease period of its own that
/// is longer than the server's the agent has no cache, and each look asks the server.
#[derive(Debug)]
pub struct Guard {
    inner: Arc<Inner>,
    locked: Locked,
    mailbox: Arc<Mailbox<LockState>>,
    released: bool,
}

impl Guard {
    pub(crate) const fn new(inner: Arc<Inner>, locked: Locked, mailbox: Arc<Mailbox<LockState>>) -> Self {
        Self { inner, locked, mailbox, released: false }
    }

    /// The fencing token: larger than every token that any holder of this lock was shown before, wherever. Give it to the resource that
    /// the lock protects, which refuses a smaller one than it has seen. Tokens of different locks say nothing about one another.
    #[must_use]
    pub const fn token(&self) -> Token {
        Token(self.locked.token)
    }

    /// The locked file.
    #[must_use]
    pub const fn file(&self) -> FileId {
        FileId::of(self.locked.object)
    }

    /// The hold as it stands; `None`: it is lost. A forked child has no lock.
    fn view(&self) -> Option<HolderView> {
        if self.inner.home.check_process().is_err() || self.mailbox.is_closed() {
            return None;
        }
        self.inner.with(|hub| hub.agent.holder_view(self.inner.clock.now(), self.locked.holder)).ok().flatten()
    }

    /// How certain the lock is now.
    #[must_use]
    pub fn state(&self) -> LockState {
        match self.view() {
            Some(HolderView { certain: true, suspect_at, .. }) if self.inner.clock.now().lease_over(suspect_at) => LockState::Suspect,
            Some(HolderView { certain: true, .. }) => LockState::Certain,
            Some(_) => LockState::Uncertain,
            None => LockState::Lost,
        }
    }

    /// Whether the lock is certain at this moment: the check to make right before acting under it.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.valid_until().is_some()
    }

    /// Until when the lock is certain as things stand, on this machine's lease clock ([`Client::now`](crate::Client::now)); `None` when it
    /// is not. Renewals move it on.
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        self.view().filter(|view| view.certain).map(|view| view.valid_until)
    }

    /// Time left until the lock is uncertain unless it is renewed; zero when it is not certain.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.valid_until().map_or(Duration::ZERO, |until| self.inner.clock.now().until_lease_over(until))
    }

    /// The same as an instant of the standard library, for time limits of what is done under the lock; `None` when it is not certain.
    ///
    /// That clock stands still while the machine sleeps, and the lease does not: [`is_valid`](Self::is_valid) decides.
    #[must_use]
    pub fn deadline(&self) -> Option<std::time::Instant> {
        let remaining = self.remaining();
        (!remaining.is_zero()).then(|| std::time::Instant::now() + remaining)
    }

    /// The states that the lock comes to from now on, until it is [lost](LockState::Lost). Several receivers share them.
    #[must_use]
    pub fn events(&self) -> Events<'_, LockState> {
        Events::new(&self.inner.home, &self.mailbox, Some(LockState::Lost))
    }

    /// The guard for mutations under this lock: they fail when this hold of it is over.
    pub(crate) const fn guard(&self) -> api::Guard {
        api::Guard { object: self.locked.object, token: self.locked.token }
    }

    /// Gives the lock back, and says whether it was held until then: otherwise the call fails with
    /// [`LeaseExpired`](crate::ErrorKind::LeaseExpired). There is nothing to wait for.
    pub fn release(mut self) -> Call<kinds::Release> {
        self.released = true;
        let progress = match self.inner.unlock(self.locked.holder) {
            Ok(Ok(())) => Progress::Ended(Some(Done::Output(Output::Done))),
            Ok(Err(error)) => Progress::Ended(Some(Done::Failed(error))),
            Err(error) => Progress::Refused(Some(error)),
        };
        Call::new(Arc::clone(&self.inner), progress, Subject::File(self.file()), kinds::Release)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.released {
            // Nobody asks whether it was lost before.
            let _ = self.inner.unlock(self.locked.holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::tests::{child_of, client};
    use cistern_agent::api::HolderId;
    use cistern_wire::{Generation, Mode, ObjectId};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn guard_is_lost_in_a_child_of_which_no_handler_told() {
        let client = client();
        let (holder, object) = (HolderId(1), ObjectId(7));
        let valid_until = client.now().plus(Duration::from_secs(60));
        let locked = Locked { holder, object, mode: Mode::Exclusive, generation: Generation(1), token: 1, valid_until };
        let guard = Guard::new(child_of(&client), locked, Arc::new(Mailbox::new(1)));
        let told = guard.events().next_timeout(Duration::from_secs(60));
        assert_eq!((guard.state(), told), (LockState::Lost, Some(LockState::Lost)));
        let mut events = guard.events();
        let polled = pin!(events.next()).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(Some(LockState::Lost)));
    }
}
