//! The agent as the application's threads and the driver's thread share it: one lock around the agent and those who wait.
//!
//! Decides: that the check of the lease, the answer from cache, the local grant and the handling of demands are one critical
//! section (R17): all of them run under the hub's lock. Place in the walk: the driver turns the hub as its machine; the hub
//! turns the agent and hands its events to calls and guards.
//! Invariants: tasks are woken when the hub's lock is free again, for a waker may run anything; when the driver's thread has ended,
//! however it did, nobody waits any more.
//! Leaves to others: what the events mean to a caller (`call`, `guard`).

use crate::call::{Call, Finish, Slot};
use crate::error::Error;
use crate::forked::Home;
use crate::guard::GuardShared;
use crate::watcher::{Seen, WatcherShared};
use cistern_agent::Agent;
use cistern_agent::api::{Command, Event, HolderId, LockEvent, Locked, OpError, OpId, Output, Submitted, WatchEvent, WatchId};
use cistern_driver::{Clock, Handle, Owner, Poisoned, Registry, Services, Sources, Stats, Token};
use cistern_link::{Instant, Machine, Path};
use cistern_wire::{AgentId, ObjectId};
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, LockResult, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
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
    watches: BTreeMap<WatchId, (ObjectId, Arc<WatcherShared>)>,
    /// To be woken when the lock is free.
    wakers: Vec<Waker>,
    /// When the driver wakes by itself, as it was told last; none: not before it is woken.
    wakes_at: Option<Instant>,
    /// The driver's thread has ended.
    over: bool,
    name: String,
    /// The server's addresses, for messages.
    servers: String,
    /// How long an operation may take, for messages.
    give_up_after: Duration,
}

impl Hub {
    pub(crate) fn new(agent: Agent, name: String, servers: String, give_up_after: Duration) -> Self {
        let (slots, guards, watches) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { agent, slots, guards, watches, wakers: Vec::new(), wakes_at: None, over: false, name, servers, give_up_after }
    }

    /// Whether the driver, which may be asleep, has to be woken after a command: there is something to send, or an earlier time to wake.
    fn must_wake(&mut self, now: Instant) -> bool {
        if !self.agent.take_stirred() {
            return false;
        }
        let earlier = |at: Instant| self.wakes_at.is_none_or(|wakes_at| at.raw_ns < wakes_at.raw_ns);
        self.agent.wake_after(now).is_some_and(|span| span.is_zero() || earlier(now.plus(span)))
    }

    /// Hands everything that the agent has to tell to those who wait for it.
    fn dispatch(&mut self) {
        while let Some(event) = self.agent.poll_event() {
            match event {
                Event::Done { op, result } => {
                    let done = self.done(result);
                    if let Some(slot) = self.slots.remove(&op) {
                        self.wakers.extend(slot.fill(done));
                    }
                }
                Event::Lock { holder, object, what } => self.tell(holder, object, what),
                Event::Watch { watch, object, what } => self.tell_watcher(watch, Seen { object, what }),
                Event::SessionOpened { session } => log::debug!("{}: session {session} is open", self.name),
                Event::SessionReclaimed { from, to, kept, lost } => {
                    log::info!("{}: session {to} has taken over {kept} locks of session {from}, {lost} were lost", self.name);
                }
                Event::SessionEnded { session, why } => log::debug!("{}: session {session} has ended: {why}", self.name),
                Event::NoSession { error } => {
                    let error = Error::of(error, "", &self.servers, self.give_up_after);
                    log::warn!("{}: no session: {error}", self.name);
                }
            }
        }
    }

    fn tell(&mut self, holder: HolderId, object: ObjectId, what: LockEvent) {
        log::debug!("{}: lock on {object}: {what:?}", self.name);
        let Some(guard) = self.guards.get(&holder) else { return };
        self.wakers.extend(guard.push(what));
        if what == LockEvent::Lost {
            self.guards.remove(&holder);
        }
    }

    fn tell_watcher(&mut self, watch: WatchId, seen: Seen) {
        log::debug!("{}: watched {}: {:?}", self.name, seen.object, seen.what);
        let Some((_, shared)) = self.watches.get(&watch) else { return };
        self.wakers.extend(shared.push(seen));
        if seen.what == WatchEvent::Gone {
            self.watches.remove(&watch);
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
    fn abandon(&mut self) {
        self.over = true;
        for (_, slot) in std::mem::take(&mut self.slots) {
            self.wakers.extend(slot.fill(Done::Failed(OpError::Closed)));
        }
        for (_, guard) in std::mem::take(&mut self.guards) {
            self.wakers.extend(guard.push(LockEvent::Lost));
        }
        for (_, (object, shared)) in std::mem::take(&mut self.watches) {
            self.wakers.extend(shared.push(Seen { object, what: WatchEvent::Uncertain }));
        }
    }

    /// Whether the agent has closed; an error if it never will, for there is no driver any more.
    pub(crate) fn is_closed(&self) -> Result<bool, Error> {
        self.check_driven().map(|()| self.agent.is_closed())
    }

    fn check_driven(&self) -> Result<(), Error> {
        if self.over && !self.agent.is_closed() {
            return Err(Error::Broken { why: "its thread has ended".to_owned() });
        }
        Ok(())
    }
}

/// The hub as the driver turns it.
pub(crate) struct Turned(pub(crate) Arc<Mutex<Hub>>);

impl Owner for Turned {
    type M = Hub;

    fn with<R>(&mut self, f: impl FnOnce(&mut Hub) -> R) -> Result<R, Poisoned> {
        with(self.0.lock(), f)
    }
}

/// Runs `f` on the hub, tells what has come of it, and wakes whom that concerns when the lock is free again.
fn with<R>(hub: LockResult<MutexGuard<'_, Hub>>, f: impl FnOnce(&mut Hub) -> R) -> Result<R, Poisoned> {
    let mut hub = hub.map_err(|_| Poisoned)?;
    let result = f(&mut hub);
    hub.dispatch();
    let wakers = std::mem::take(&mut hub.wakers);
    drop(hub);
    wakers.into_iter().for_each(Waker::wake);
    Ok(result)
}

/// Held by the driver's thread: with its end, also by a panic, everybody who waits is told.
pub(crate) struct UntilOver(pub(crate) Arc<Mutex<Hub>>);

impl Drop for UntilOver {
    fn drop(&mut self) {
        // After a panic the agent is not to be trusted, but who waits for it is known.
        let mut hub = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hub.abandon();
        let wakers = std::mem::take(&mut hub.wakers);
        drop(hub);
        wakers.into_iter().for_each(Waker::wake);
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
        self.agent.take_stirred();
        let span = self.agent.wake_after(now);
        self.wakes_at = span.map(|span| now.plus(span));
        span
    }

    fn max_datagram(&self) -> usize {
        self.agent.max_datagram()
    }
}

/// What else is served in the agent's loop: its end when the agent has closed, and telling the agent when this host has moved.
pub(crate) struct Guests {
    /// None where the system does not tell.
    pub(crate) sources: Option<Sources>,
}

/// The poll's token of what the kernel tells.
const SOURCES: Token = Token(0);

impl Services<Hub> for Guests {
    fn register(&mut self, registry: &Registry, _handle: &Handle) -> io::Result<()> {
        self.sources.as_ref().map_or(Ok(()), |sources| sources.register(registry, SOURCES))
    }

    fn on_ready(&mut self, hub: &mut Hub, now: Instant, _token: Token) {
        if self.sources.as_mut().is_some_and(Sources::changed) {
            log::info!("{}: this host's datagrams leave from another address from now on", hub.name);
            hub.agent.handle_moved(now);
            hub.dispatch();
        }
    }

    fn after_turn(&mut self, hub: &mut Hub, _now: Instant) -> ControlFlow<()> {
        if hub.agent.is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// What all clones of a client share.
pub(crate) struct Inner {
    pub(crate) home: Home,
    pub(crate) hub: Arc<Mutex<Hub>>,
    pub(crate) clock: Clock,
    pub(crate) handle: Handle,
    pub(crate) servers: String,
    pub(crate) agent: AgentId,
    pub(crate) incarnation: u64,
    pub(crate) give_up_after: Duration,
    /// What the sockets have met.
    pub(crate) stats: Arc<Stats>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("agent", &self.agent).field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl Inner {
    /// Runs `f` on the hub, and wakes whom that concerns. In a forked child nothing is run.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Hub) -> R) -> Result<R, Error> {
        // Before the lock, which a thread that does not exist in the child may hold.
        self.home.check()?;
        let hub = self.home.lock(&self.hub)?;
        with(hub, f).map_err(|Poisoned| {
            // The driver may be asleep: it finds out when it is woken, ends, and tells all who wait.
            self.wake();
            Error::Broken { why: "a thread panicked while it used the agent".to_owned() }
        })
    }

    /// Wakes the driver; in a forked child it is the parent's, which is left alone.
    pub(crate) fn wake(&self) {
        if self.home.check_process().is_ok() {
            self.handle.wake();
        }
    }

    pub(crate) fn error(&self, error: OpError, what: &str) -> Error {
        Error::of(error, what, &self.servers, self.give_up_after)
    }

    /// Gives a command to the agent: one critical section from the check of the lease to the answer (R17). `what` names what it is
    /// about, if an error may have to say so.
    pub(crate) fn submit<T>(self: &Arc<Self>, what: impl FnOnce() -> String, command: Command, finish: Finish<T>) -> Call<T> {
        if matches!(command, Command::Lock { .. })
            && let Err(error) = self.home.check_process()
        {
            return Call::refused(Arc::clone(self), error, finish);
        }
        // What was answered at once leaves, as a rule, nothing for the driver to do.
        let mut wake = false;
        let taken = self.with(|hub| {
            hub.check_driven()?;
            let now = self.clock.now();
            let submitted = hub.agent.submit(now, command);
            wake = hub.must_wake(now);
            Ok(match submitted {
                Submitted::Now(result) => {
                    let what = if result.is_err() { what() } else { String::new() };
                    let done = hub.done(result);
                    Call::ended(Arc::clone(self), what, done, finish)
                }
                Submitted::Later(op) => {
                    self.home.check_process()?;
                    let slot = Arc::new(Slot::default());
                    hub.slots.insert(op, Arc::clone(&slot));
                    Call::running(Arc::clone(self), what(), op, slot, finish)
                }
            })
        });
        if wake {
            self.wake();
        }
        match taken.flatten() {
            Ok(call) => call,
            Err(error) => Call::refused(Arc::clone(self), error, finish),
        }
    }

    pub(crate) fn cancel(&self, op: OpId) {
        // Its end is put where the caller still looks for a lock that came just now. After a panic there is nothing to cancel.
        self.tell(|hub| hub.agent.cancel(self.clock.now(), op));
    }

    pub(crate) fn unlock(&self, holder: HolderId) {
        let wake = self.with(|hub| {
            hub.guards.remove(&holder);
            let now = self.clock.now();
            // Its end needs no waiting for: the release is retransmitted until it is answered.
            let _ = hub.agent.submit(now, Command::Unlock { holder });
            hub.must_wake(now)
        });
        if matches!(wake, Ok(true)) {
            self.wake();
        }
    }

    /// Watches an object; its news are put where they belong before any of them can come.
    pub(crate) fn watch(&self, object: ObjectId, shared: &Arc<WatcherShared>) -> Result<WatchId, Error> {
        let taken = self.with(|hub| {
            hub.check_driven()?;
            match hub.agent.submit(self.clock.now(), Command::Watch { object }) {
                Submitted::Now(Ok(Output::Watching(watch))) => {
                    hub.watches.insert(watch, (object, Arc::clone(shared)));
                    Ok(watch)
                }
                Submitted::Now(Err(error)) => Err(self.error(error, &format!("watch of {object}"))),
                other => Err(Error::Broken { why: format!("a watch began as {other:?}") }),
            }
        })?;
        self.wake();
        taken
    }

    pub(crate) fn unwatch(&self, watch: WatchId) {
        self.tell(|hub| {
            hub.watches.remove(&watch);
            // Of what is gone there is no watch any more.
            let _ = hub.agent.submit(self.clock.now(), Command::Unwatch { watch });
        });
    }

    /// Tells the agent something that nobody waits for; a forked child tells it nothing, and leaves its driver asleep.
    fn tell<R>(&self, f: impl FnOnce(&mut Hub) -> R) {
        if self.home.check_process().is_ok() && self.with(f).is_ok() {
            self.handle.wake();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tell(|hub| hub.agent.close(self.clock.now()));
    }
}

#[cfg(test)]
pub(crate) mod tests;
