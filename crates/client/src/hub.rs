//! The agent as the application's threads and the driver's thread share it: one lock around the agent and those who wait.
//!
//! Decides: that the check of the lease, the answer from cache, the local grant and the handling of demands are one critical
//! section (R17): all of them run under the hub's lock. Place in the walk: the driver turns the hub as its machine; the hub
//! turns the agent and hands its events to calls and guards.
//! Leaves to others: what the events mean to a caller (`call`, `guard`).

use crate::call::{Call, Finish, Slot};
use crate::error::Error;
use crate::guard::GuardShared;
use cistern_agent::Agent;
use cistern_agent::api::{Command, Event, HolderId, LockEvent, Locked, OpError, OpId, Output, Submitted};
use cistern_driver::{Clock, Handle, Services};
use cistern_link::{Instant, Machine, Path};
use cistern_wire::AgentId;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How a command ended, as calls see it.
#[derive(Debug)]
pub(crate) enum Done {
    Output(Output),
    Locked(Locked, Arc<GuardShared>),
    Failed(OpError),
}

/// The agent and those who wait for it.
pub(crate) struct Hub {
    pub(crate) agent: Agent,
    slots: BTreeMap<OpId, Arc<Slot>>,
    guards: BTreeMap<HolderId, Arc<GuardShared>>,
    name: String,
}

impl Hub {
    pub(crate) fn new(agent: Agent, name: String) -> Self {
        Self { agent, slots: BTreeMap::new(), guards: BTreeMap::new(), name }
    }

    /// Hands everything that the agent has to tell to those who wait for it.
    fn dispatch(&mut self) {
        while let Some(event) = self.agent.poll_event() {
            match event {
                Event::Done { op, result } => {
                    let done = self.done(result);
                    if let Some(slot) = self.slots.remove(&op) {
                        slot.fill(done);
                    }
                }
                Event::Lock { holder, object, what } => self.tell(holder, object, what),
                Event::SessionOpened { session } => log::debug!("{}: session {session} is open", self.name),
                Event::SessionEnded { session, why } => log::debug!("{}: session {session} has ended: {why}", self.name),
                Event::NoSession { error } => log::warn!("{}: no session: {error:?}", self.name),
            }
        }
    }

    fn tell(&mut self, holder: HolderId, object: cistern_wire::ObjectId, what: LockEvent) {
        log::debug!("{}: lock on {object}: {what:?}", self.name);
        let Some(guard) = self.guards.get(&holder) else { return };
        guard.push(what);
        if what == LockEvent::Lost {
            self.guards.remove(&holder);
        }
    }

    /// A lock that came gets the place where its events are put before any event of it can come.
    fn done(&mut self, result: Result<Output, OpError>) -> Done {
        match result {
            Ok(Output::Locked(locked)) => {
                let guard = Arc::new(GuardShared::default());
                self.guards.insert(locked.holder, Arc::clone(&guard));
                Done::Locked(locked, guard)
            }
            Ok(output) => Done::Output(output),
            Err(error) => Done::Failed(error),
        }
    }

    /// Nobody will be answered any more: the driver has ended.
    pub(crate) fn abandon(&mut self) {
        for (_, slot) in std::mem::take(&mut self.slots) {
            slot.fill(Done::Failed(OpError::Closed));
        }
        for (_, guard) in std::mem::take(&mut self.guards) {
            guard.push(LockEvent::Lost);
        }
    }
}

impl Machine for Hub {
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &[u8]) {
        self.agent.handle_datagram(now, path, datagram);
        self.dispatch();
    }

    fn handle_drained(&mut self, now: Instant) {
        self.agent.handle_drained(now);
        self.dispatch();
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        self.agent.poll_transmit(now, buf)
    }

    fn wake_after(&mut self, now: Instant) -> Option<Duration> {
        self.agent.wake_after(now)
    }

    fn max_datagram(&self) -> usize {
        self.agent.max_datagram()
    }
}

/// Ends the loop when the agent has closed.
pub(crate) struct UntilClosed;

impl Services<Hub> for UntilClosed {
    fn after_turn(&mut self, hub: &mut Hub, _now: Instant) -> ControlFlow<()> {
        if hub.agent.is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// What all clones of a client share.
pub(crate) struct Inner {
    pub(crate) hub: Arc<Mutex<Hub>>,
    pub(crate) clock: Clock,
    pub(crate) handle: Handle,
    pub(crate) servers: String,
    pub(crate) agent: AgentId,
    pub(crate) incarnation: u64,
    pub(crate) give_up_after: Duration,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("agent", &self.agent).field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Hub>, Error> {
        self.hub.lock().map_err(|_| Error::Broken { why: "a thread panicked while it used the agent".to_owned() })
    }

    pub(crate) fn error(&self, error: OpError, what: &str) -> Error {
        Error::of(error, what, &self.servers, self.give_up_after)
    }

    /// Gives a command to the agent: one critical section from the check of the lease to the answer (R17).
    pub(crate) fn submit<T>(self: &Arc<Self>, what: String, command: Command, finish: Finish<T>) -> Call<T> {
        let mut hub = match self.lock() {
            Ok(hub) => hub,
            Err(error) => return Call::refused(Arc::clone(self), error, finish),
        };
        let submitted = hub.agent.submit(self.clock.now(), command);
        let call = match submitted {
            Submitted::Now(result) => {
                let done = hub.done(result);
                Call::ended(Arc::clone(self), what, done, finish)
            }
            Submitted::Later(op) => {
                let slot = Arc::new(Slot::default());
                hub.slots.insert(op, Arc::clone(&slot));
                Call::running(Arc::clone(self), what, op, slot, finish)
            }
        };
        hub.dispatch();
        drop(hub);
        self.handle.wake();
        call
    }

    pub(crate) fn cancel(&self, op: OpId) {
        if let Ok(mut hub) = self.lock() {
            hub.agent.cancel(self.clock.now(), op);
            hub.dispatch();
            hub.slots.remove(&op);
        }
        self.handle.wake();
    }

    pub(crate) fn unlock(&self, holder: HolderId) {
        if let Ok(mut hub) = self.lock() {
            hub.guards.remove(&holder);
            // Its end needs no waiting for: the release is retransmitted until it is answered.
            let _ = hub.agent.submit(self.clock.now(), Command::Unlock { holder });
            hub.dispatch();
        }
        self.handle.wake();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(mut hub) = self.hub.lock() {
            hub.agent.close(self.clock.now());
            hub.dispatch();
        }
        self.handle.wake();
    }
}
