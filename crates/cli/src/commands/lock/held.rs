//! A lock as `cistern lock` holds it: by an agent of its own, or by the host's agent.
//!
//! Decides: how the command line learns until when the lock is certain, and how it gives the lock back. By the host's agent that is a
//! request on the connection to which the lock belongs; an agent that has ended the connection is about to give the lock back, or is dead:
//! from then on nothing is certain. Invariant: a lock of the host's agent is asked for with `linger`, so that a command whose `cistern` was
//! killed has ended before the agent gives the lock to anybody else.
//! Leaves to others: obtaining it (`obtain`), telling the guardian (`feed`).

use crate::backend::{Backend, Line};
use crate::bell::Bell;
use crate::execute::{EXIT_UNKNOWN, GrantedLock, Own};
use crate::local::{Failure, Hold, Request, Response, TakenItem, TokenBasis, micros};
use crate::signals::{End, wait_for};
use cistern_client::{Client, Guard, LockState};
use cistern_run::{At, Until};
use nix::poll::{PollFd, PollFlags};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, Instant};

/// Time for the host's agent to confirm an unlock. What it has not read by then it reads when it goes on.
const UNLOCK_TIME: Duration = Duration::from_millis(500);

/// How certain the lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Certain(Until),
    Uncertain,
    Lost,
}

/// A lock that is held.
pub(crate) struct Held {
    holder: Holder,
    token: u64,
    object: u64,
    /// Of a semaphore: which slot it is.
    slot: Option<u32>,
    /// Of a queue: which item it is on, until somebody takes it.
    item: Option<TakenItem>,
    /// Of a group: what the token rests on.
    basis: Option<TokenBasis>,
    /// The lease period, as seen last.
    lease: Duration,
}

enum Holder {
    Own {
        client: Client,
        own: Box<Own>,
        hold: u64,
        guard: Arc<Guard>,
    },
    Host {
        line: Line,
        hold: u64,
        /// The agent does not answer on this connection any more.
        gone: bool,
    },
}

impl Held {
    /// # Errors
    /// The client is broken.
    pub(super) fn own(client: Client, mut granted: GrantedLock) -> Result<Self, Failure> {
        let (mut own, slot, item) = (Box::<Own>::default(), granted.slot, granted.item.take());
        let (hold, guard) = own.keep(granted)?;
        let (token, object) = (guard.token().0, guard.file().0);
        Ok(Self { holder: Holder::Own { client, own, hold, guard }, token, object, slot, item, basis: None, lease: Duration::ZERO })
    }

    pub(super) const fn host(line: Line, (hold, token, object): (u64, u64, u64), basis: Option<TokenBasis>) -> Self {
        let holder = Holder::Host { line, hold, gone: false };
        Self { holder, token, object, slot: None, item: None, basis, lease: Duration::ZERO }
    }

    /// The same as a slot of a semaphore, or an item of a queue.
    pub(super) fn of_recipe(self, slot: Option<u32>, item: Option<TakenItem>) -> Self {
        Self { slot, item, ..self }
    }

    /// Of a queue: the item, once.
    pub(crate) const fn take_item(&mut self) -> Option<TakenItem> {
        self.item.take()
    }

    /// Asks the agent to do something, a change of files under this lock; `end` gives it up, and so does `until`.
    ///
    /// # Errors
    /// Why it was not done, or is not known to be.
    pub(crate) fn call(&mut self, request: Request, end: &End, until: Instant) -> Result<Response, Failure> {
        let guarded = request.takes_guard();
        let answer = match &mut self.holder {
            Holder::Own { client, own, hold, .. } => {
                return own.execute_within(client, (request, guarded.then_some(*hold)), (end, Some(until)));
            }
            Holder::Host { line, hold, .. } if guarded => line.ask_under(*hold, &request, end, until),
            Holder::Host { line, .. } => line.ask(&request, end, Some(until)),
        };
        answer.unwrap_or_else(|| Err(Failure::new("OUTCOME_UNKNOWN", EXIT_UNKNOWN, "the host's agent has not answered in time")))
    }

    /// Of a semaphore: which slot it is.
    pub(super) const fn slot(&self) -> Option<u32> {
        self.slot
    }

    /// Of a group: why the token is larger than those before it.
    pub(super) const fn basis(&self) -> Option<TokenBasis> {
        self.basis
    }

    /// The fencing token.
    pub(crate) const fn token(&self) -> u64 {
        self.token
    }

    /// The number of the locked object.
    pub(super) const fn object(&self) -> u64 {
        self.object
    }

    /// The agent of the lock, for another thread.
    ///
    /// # Errors
    /// The host's agent takes no connection.
    pub(super) fn looker(&self) -> Result<Backend, Failure> {
        match &self.holder {
            Holder::Own { client, .. } => Ok(Backend::Own(client.clone(), Own::default())),
            Holder::Host { line, .. } => line.again().map(Backend::Host),
        }
    }

    /// How often the holder has to look, so that what it knows is never older than a small part of the lease.
    pub(super) fn step(&self) -> Duration {
        (self.lease / 20).max(Duration::from_millis(5))
    }

    /// How certain the lock is now; `None`: asked to stop before that was known.
    ///
    /// # Errors
    /// The host's agent cannot tell it in a way that this process understands.
    pub(super) fn look(&mut self, stop: &End) -> Result<Option<Look>, Failure> {
        match &mut self.holder {
            Holder::Own { client, guard, .. } => {
                self.lease = client.lease()?.lease;
                let at = |until: cistern_client::Instant| At { raw_ns: until.raw_ns, boot_ns: until.boot_ns };
                Ok(Some(match guard.valid_until() {
                    Some(until) => Look::Certain(Until::of_lease(at(until), self.lease)),
                    None if guard.state() == LockState::Lost => Look::Lost,
                    None => Look::Uncertain,
                }))
            }
            Holder::Host { gone: true, .. } => Ok(Some(Look::Uncertain)),
            Holder::Host { line, hold, gone } => match line.ask(&Request::Hold { hold: *hold }, stop, None) {
                None => Ok(None),
                Some(Ok(Response::Hold(hold))) => {
                    self.lease = Duration::from_millis(hold.lease_ms);
                    look(&hold, self.lease).map(Some)
                }
                Some(answer) => {
                    log::warn!("the host's agent does not tell how the lock stands: {answer:?}");
                    *gone = true;
                    Ok(Some(Look::Uncertain))
                }
            },
        }
    }

    /// Waits until something may have happened to the lock, at most for `span`, or until `stop`.
    pub(super) fn wait(&self, stop: &End, span: Duration) {
        match &self.holder {
            Holder::Own { guard, .. } => {
                let Ok((bell, waker)) = Bell::new() else { return std::thread::sleep(span) };
                let mut events = guard.events();
                if events.poll_next(&mut Context::from_waker(&waker)).is_pending() {
                    let fds = &mut [PollFd::new(bell.as_fd(), PollFlags::POLLIN), PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
                    wait_for(fds, Some(span));
                }
            }
            Holder::Host { gone: true, .. } => wait_for(&mut [PollFd::new(stop.as_fd(), PollFlags::POLLIN)], None),
            // Of a lock that was asked for without events an agent says nothing unasked: what can be read is the end of the connection.
            Holder::Host { line, .. } => {
                let fds = &mut [PollFd::new(line.as_fd(), PollFlags::POLLIN), PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
                wait_for(fds, Some(span));
            }
        }
    }

    /// Gives the lock back: nothing of what ran under it is left.
    pub(crate) fn give_back(self) {
        if let Holder::Host { mut line, hold, .. } = self.holder {
            let never =
                End::pair().map(|(end, asker)| (line.ask(&Request::Unlock { hold }, &end, Some(Instant::now() + UNLOCK_TIME)), asker));
            log::debug!("gave the lock back to the host's agent after {} us: {:?}", micros(UNLOCK_TIME), never.map(|(answer, _)| answer));
        }
    }
}

fn look(hold: &Hold, lease: Duration) -> Result<Look, Failure> {
    match (hold.state.as_str(), hold.until) {
        ("certain", Some(until)) => {
            let at = At { raw_ns: until.clock_monotonic_raw_ns, boot_ns: until.clock_boottime_ns };
            Ok(Look::Certain(Until::of_lease(at, lease)))
        }
        ("certain", None) => Err(Failure::failed(
            "the host's agent has other clocks than this process (another time namespace); name the server by --server, so that the lock \
             is held by an agent of this process",
        )),
        ("lost", _) => Ok(Look::Lost),
        _ => Ok(Look::Uncertain),
    }
}
