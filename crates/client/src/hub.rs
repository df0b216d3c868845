//! The agent as the application's threads and the driver's thread share it: one lock around the agent and those who wait.
//!
//! Decides: that the check of the lease, the answer from cache, the local grant and the handling of demands are one critical
//! section: all of them run under the hub's lock. The driver turns the hub as its machine; the hub turns the agent and hands its events
//! to calls, guards and watchers.
//! Invariants: tasks are woken when the hub's lock is free again, for a waker may run anything; when the driver's thread has ended,
//! however it did, nobody waits any more.

use crate::builder;
use crate::call::{Pending, Progress};
use crate::error::{Cause, Error, Subject};
use crate::events::Mailbox;
use crate::forked::Home;
use crate::guard::LockState;
use crate::identity::AgentIdentity;
use crate::metadata::FileId;
use crate::roster::{self, RosterKeeper};
use crate::vm_generation::VmGeneration;
use crate::watcher::WatchEvent;
use cistern_agent::Agent;
use cistern_agent::api::{self, Command, Event, HolderId, Locked, OpError, OpId, Output, Ownership, Submitted, WatchId};
use cistern_driver::{Clock, Handle, Owner, Poisoned, Registry, Services, Sources, Stats, Token};
use cistern_link::{Instant, Machine, Path};
use cistern_wire::{ObjectId, Status};
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, LockResult, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

/// How a command ended, as calls see it.
#[derive(Debug)]
pub(crate) enum Done {
    Output(Output),
    Locked(Locked, Arc<Mailbox<LockState>>),
    Failed(OpError),
}

/// The agent and those who wait for it.
pub(crate) struct Hub {
    pub(crate) agent: Agent,
    clock: Clock,
    pending: BTreeMap<OpId, Waiting>,
    guards: BTreeMap<HolderId, Arc<Mailbox<LockState>>>,
    watches: BTreeMap<WatchId, (FileId, Arc<Mailbox<WatchEvent>>)>,
    /// Those who wait for the end of the session.
    pub(crate) closers: Vec<Arc<Pending>>,
    /// To be woken when the lock is free.
    wakers: Vec<Waker>,
    /// When the driver wakes by itself, as it was told last; none: not before it is woken.
    wakes_at: Option<Instant>,
    /// A command was begun by the end of another since then.
    began_next: bool,
    /// A newer roster that the agent has fetched, until it is looked at.
    roster: Option<Vec<u8>>,
    /// One is being looked at.
    judging: bool,
    /// The driver's thread has ended.
    over: bool,
    name: String,
    /// The server's addresses, for messages.
    servers: String,
    /// How long an operation may take, for messages.
    give_up_after: Duration,
}

/// Where the end of a command is put.
struct Waiting {
    pending: Arc<Pending>,
    /// What is asked when it has ended well; then the end of that is put there.
    next: Option<Box<Command>>,
}

impl Hub {
    pub(crate) fn new(agent: Agent, clock: Clock, name: String, servers: String, give_up_after: Duration) -> Self {
        Self {
            agent,
            clock,
            pending: BTreeMap::new(),
            guards: BTreeMap::new(),
            watches: BTreeMap::new(),
            closers: Vec::new(),
            wakers: Vec::new(),
            wakes_at: None,
            began_next: false,
            roster: None,
            judging: false,
            over: false,
            name,
            servers,
            give_up_after,
        }
    }

    /// Whether the driver, which may be asleep, has to be woken after a command: there is something to send, or an earlier time to wake.
    fn must_wake(&mut self, now: Instant) -> bool {
        let earlier = |at: Instant| self.wakes_at.is_none_or(|wakes_at| at.raw_ns < wakes_at.raw_ns);
        self.agent.wake_after(now).is_some_and(|span| span.is_zero() || earlier(now.plus(span)))
    }

    /// Gives a command to the agent, and `next` when that has ended well; the end is put into `pending`, if there is one.
    fn submit(&mut self, now: Instant, command: Command, next: Option<Box<Command>>, pending: Option<Arc<Pending>>) -> Progress {
        match (self.agent.submit(now, command), next) {
            (Submitted::Now(Ok(_)), Some(next)) => self.submit(now, *next, None, pending),
            (Submitted::Now(result), _) => Progress::Ended(Some(self.done(result))),
            (Submitted::Later(op), next) => {
                let pending = pending.unwrap_or_default();
                pending.await_end_of(op);
                self.pending.insert(op, Waiting { pending: Arc::clone(&pending), next });
                Progress::Running(pending)
            }
        }
    }

    /// How a command has ended; `None`: the next one has begun.
    fn ended(&mut self, result: Result<Output, OpError>, next: Option<Box<Command>>, pending: &Arc<Pending>) -> Option<Done> {
        match (result, next) {
            (Ok(_), Some(next)) => match self.submit(self.clock.now(), *next, None, Some(Arc::clone(pending))) {
                Progress::Ended(done) => done,
                _ => {
                    self.began_next = true;
                    None
                }
            },
            (result, _) => Some(self.done(result)),
        }
    }

    /// Hands everything that the agent has to tell to those who wait for it.
    fn dispatch(&mut self) {
        while let Some(event) = self.agent.poll_event() {
            match event {
                Event::Done { op, result } => {
                    if let Some(Waiting { pending, next }) = self.pending.remove(&op)
                        && let Some(done) = self.ended(result, next, &pending)
                    {
                        self.wakers.extend(pending.fill(done));
                    }
                }
                Event::Lock { holder, object, what } => self.tell(holder, object, what),
                Event::Watch { watch, object, what } => self.tell_watcher(watch, WatchEvent::of(object, what)),
                Event::SessionOpened { session } => log::debug!("{}: session {session} is open", self.name),
                Event::SessionReclaimed { from, to, kept, lost } => {
                    log::info!("{}: session {to} has taken over {kept} locks of session {from}, {lost} were lost", self.name);
                }
                Event::SessionEnded { session, why } => log::debug!("{}: session {session} has ended: {why}", self.name),
                Event::Roster { signed } => self.roster = Some(signed),
                Event::NoSession { error } => {
                    let error = Error::of(error, Subject::Named(""), &self.servers, self.give_up_after);
                    log::warn!("{}: no session: {error}", self.name);
                }
                event => log::debug!("{}: {event:?}", self.name),
            }
        }
        self.tell_closers();
    }

    /// Whether nothing is to be done any more.
    fn is_over(&self) -> bool {
        self.agent.is_closed() && !self.judging && self.roster.is_none()
    }

    fn tell_closers(&mut self) {
        if self.is_over() {
            let closers = std::mem::take(&mut self.closers);
            self.wakers.extend(closers.iter().filter_map(|closer| closer.fill(Done::Output(Output::Done))));
        }
    }

    fn tell(&mut self, holder: HolderId, object: ObjectId, what: api::LockEvent) {
        log::debug!("{}: lock on {object}: {what:?}", self.name);
        let Some(guard) = self.guards.get(&holder) else { return };
        self.wakers.extend(guard.push(LockState::of(what)));
        if what == api::LockEvent::Lost {
            self.guards.remove(&holder);
        }
    }

    fn tell_watcher(&mut self, watch: WatchId, event: WatchEvent) {
        log::debug!("{}: watched: {event:?}", self.name);
        let Some((_, mailbox)) = self.watches.get(&watch) else { return };
        self.wakers.extend(mailbox.push(event));
        if let WatchEvent::Removed(_) = event {
            self.watches.remove(&watch);
        }
    }

    /// A lock that came gets the place where its events are put before any event of it can come.
    fn done(&mut self, result: Result<Output, OpError>) -> Done {
        match result {
            Ok(Output::Locked(locked)) => {
                let mailbox = Arc::new(Mailbox::new(1));
                self.guards.insert(locked.holder, Arc::clone(&mailbox));
                Done::Locked(locked, mailbox)
            }
            Ok(output) => Done::Output(output),
            Err(error) => Done::Failed(error),
        }
    }

    /// Nobody will be answered any more: the driver has ended.
    fn abandon(&mut self) {
        self.over = true;
        self.tell_closers();
        let pending = std::mem::take(&mut self.pending).into_values().map(|waiting| waiting.pending);
        for pending in pending.chain(std::mem::take(&mut self.closers)) {
            self.wakers.extend(pending.fill(Done::Failed(OpError::Closed)));
        }
        for guard in std::mem::take(&mut self.guards).into_values() {
            self.wakers.extend(guard.push(LockState::Lost));
        }
        for (file, mailbox) in std::mem::take(&mut self.watches).into_values() {
            self.wakers.extend(mailbox.push(WatchEvent::Uncertain(file)));
            self.wakers.extend(mailbox.close());
        }
    }

    /// An error if nothing will be done any more: there is no driver, and the agent has not ended by itself.
    pub(crate) fn check_driven(&self) -> Result<(), Error> {
        if self.over && !self.agent.is_closed() {
            return Err(Cause::Broken("its thread has ended").into());
        }
        Ok(())
    }
}

/// The hub as the driver turns it.
pub(crate) struct SharedHub(pub(crate) Arc<Mutex<Hub>>);

impl Owner for SharedHub {
    type M = Hub;

    fn with<R>(&mut self, f: impl FnOnce(&mut Hub) -> R) -> Result<R, Poisoned> {
        with(self.0.lock(), f).map(|(result, _)| result)
    }
}

/// Runs `f` on the hub, tells what has come of it, and wakes whom that concerns when the lock is free again; also whether a command has
/// begun of which the driver does not know yet.
fn with<R>(hub: LockResult<MutexGuard<'_, Hub>>, f: impl FnOnce(&mut Hub) -> R) -> Result<(R, bool), Poisoned> {
    let mut hub = hub.map_err(|_| Poisoned)?;
    let result = f(&mut hub);
    hub.dispatch();
    let began_next = hub.began_next;
    let wakers = std::mem::take(&mut hub.wakers);
    drop(hub);
    wakers.into_iter().for_each(Waker::wake);
    Ok((result, began_next))
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
        let span = self.agent.wake_after(now);
        self.wakes_at = span.map(|span| now.plus(span));
        self.began_next = false;
        span
    }

    fn max_datagram(&self) -> usize {
        self.agent.max_datagram()
    }
}

/// What else is served in the agent's loop: its end when the agent has closed, and telling the agent when this host has moved, or is a copy.
pub(crate) struct AgentServices {
    /// None where the system does not tell.
    pub(crate) sources: Option<Sources>,
    /// None where nobody keeps a roster.
    pub(crate) rosters: Option<Arc<dyn RosterKeeper>>,
    pub(crate) hub: Weak<Mutex<Hub>>,
    pub(crate) handle: Option<Handle>,
    /// Lives as long as a roster is looked at.
    pub(crate) judging: Weak<()>,
    pub(crate) generation: VmGeneration,
}

/// The poll's token of what the kernel tells.
const SOURCES: Token = Token(0);

impl Services<Hub> for AgentServices {
    fn register(&mut self, registry: &Registry, handle: &Handle) -> io::Result<()> {
        self.handle = Some(handle.clone());
        self.sources.as_ref().map_or(Ok(()), |sources| sources.register(registry, SOURCES))
    }

    fn on_ready(&mut self, hub: &mut Hub, now: Instant, _token: Token) {
        if self.sources.as_mut().is_some_and(Sources::changed) {
            log::info!("{}: this host's datagrams leave from another address from now on", hub.name);
            hub.agent.handle_moved(now);
            hub.dispatch();
        }
    }

    fn after_turn(&mut self, hub: &mut Hub, now: Instant) -> ControlFlow<()> {
        // Between this and the batch that is sent next nothing but sealing happens.
        if self.generation.has_changed() {
            log::warn!("{}: this machine was resumed from a snapshot: its locks are lost, and another session is opened", hub.name);
            hub.agent.handle_copied(now, *builder::fresh_seed());
            hub.dispatch();
        }
        self.judge_roster(hub);
        if hub.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl AgentServices {
    /// Has a roster looked at that the agent has fetched, one at a time.
    fn judge_roster(&mut self, hub: &mut Hub) {
        if hub.judging && self.judging.strong_count() == 0 {
            hub.judging = false;
            hub.tell_closers();
        }
        if let (false, Some(keeper), Some(handle)) = (hub.judging, &self.rosters, &self.handle)
            && let Some(signed) = hub.roster.take()
        {
            hub.judging = true;
            let (clock, handle) = (hub.clock.clone(), handle.clone());
            self.judging = roster::judge(keeper, Weak::clone(&self.hub), (move || clock.now(), move || handle.wake()), signed);
        }
    }
}

/// What all clones of a client share.
pub(crate) struct Inner {
    pub(crate) home: Home,
    pub(crate) hub: Arc<Mutex<Hub>>,
    pub(crate) clock: Clock,
    pub(crate) handle: Handle,
    pub(crate) servers: String,
    pub(crate) agent: AgentIdentity,
    /// The user and the group of this process, to whom belongs what it makes.
    pub(crate) user: (u32, u32),
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
        let (result, wake) = match with(hub, f) {
            Ok((result, began_next)) => (Ok(result), began_next),
            // The driver may be asleep: it finds out when it is woken, ends, and tells all who wait.
            Err(Poisoned) => (Err(Cause::Broken("a thread panicked while it used the agent").into()), true),
        };
        if wake {
            self.wake();
        }
        result
    }

    /// This process's user and group, as owner of what is made.
    pub(crate) const fn owning(&self, mode: u16) -> Ownership {
        Ownership { mode, uid: self.user.0, gid: self.user.1 }
    }

    /// Wakes the driver; in a forked child it is the parent's, which is left alone.
    pub(crate) fn wake(&self) {
        if self.home.check_process().is_ok() {
            self.handle.wake();
        }
    }

    pub(crate) fn error(&self, error: OpError, subject: Subject) -> Error {
        Error::of(error, subject, &self.servers, self.give_up_after)
    }

    /// Of an operation that is refused before the agent has seen it.
    pub(crate) fn refused(&self, subject: Subject, status: Status) -> Progress {
        Progress::Refused(Some(self.error(OpError::Status(status), subject)))
    }

    /// Gives a command to the agent, and `next` when that has ended well: one critical section from the check of the lease to the answer.
    pub(crate) fn begin(&self, command: Command, next: Option<Box<Command>>) -> Progress {
        if matches!(next.as_deref().unwrap_or(&command), Command::Lock { .. })
            && let Err(error) = self.home.check_process()
        {
            return Progress::Refused(Some(error));
        }
        // What was answered at once leaves, as a rule, nothing for the driver to do.
        let mut wake = false;
        let taken = self.with(|hub| {
            hub.check_driven()?;
            let now = self.clock.now();
            let progress = hub.submit(now, command, next, None);
            wake = hub.must_wake(now);
            if let Progress::Running(_) = progress {
                self.home.check_process()?;
            }
            Ok(progress)
        });
        if wake {
            self.wake();
        }
        taken.flatten().unwrap_or_else(|error| Progress::Refused(Some(error)))
    }

    pub(crate) fn cancel(&self, pending: &Pending) {
        // Its end is put where the caller still looks for a lock that came just now. After a panic there is nothing to cancel.
        self.tell(|hub| {
            // What has ended must not begin the next after that.
            hub.dispatch();
            if let Some(op) = pending.op() {
                hub.agent.cancel(self.clock.now(), op);
            }
        });
    }

    /// Gives a lock back; the agent says whether it was held until then.
    pub(crate) fn unlock(&self, holder: HolderId) -> Result<Result<(), OpError>, Error> {
        let (ended, wake) = self.with(|hub| {
            hub.guards.remove(&holder);
            let now = self.clock.now();
            // The release needs no waiting for: it is retransmitted until it is answered.
            let ended = match hub.agent.submit(now, Command::Unlock { holder }) {
                Submitted::Now(Err(error)) => Err(error),
                _ => Ok(()),
            };
            (ended, hub.must_wake(now))
        })?;
        if wake {
            self.wake();
        }
        Ok(ended)
    }

    /// Watches a file, unless `known` does; its events are put where they belong before any of them can come.
    pub(crate) fn watch(&self, file: FileId, known: Option<WatchId>, mailbox: &Arc<Mailbox<WatchEvent>>) -> Result<WatchId, Error> {
        let taken = self.with(|hub| {
            hub.check_driven()?;
            if let Some(known) = known.filter(|known| hub.watches.contains_key(known)) {
                return Ok(known);
            }
            match hub.agent.submit(self.clock.now(), Command::Watch { object: file.object() }) {
                Submitted::Now(Ok(Output::Watching(watch))) => {
                    mailbox.add_source();
                    hub.watches.insert(watch, (file, Arc::clone(mailbox)));
                    Ok(watch)
                }
                Submitted::Now(Err(error)) => Err(self.error(error, Subject::File(file))),
                _ => Err(Cause::Broken("a watch began as another kind of operation").into()),
            }
        })?;
        self.wake();
        taken
    }

    /// Ends a watch; whether anything could still come of it. `None`: in a forked child.
    pub(crate) fn unwatch(&self, watch: WatchId) -> Option<bool> {
        self.tell(|hub| {
            // Of what is gone there is no watch any more.
            let _ = hub.agent.submit(self.clock.now(), Command::Unwatch { watch });
            hub.watches.remove(&watch).is_some()
        })
    }

    /// Tells the agent something that nobody waits for; a forked child tells it nothing, and leaves its driver asleep.
    fn tell<R>(&self, f: impl FnOnce(&mut Hub) -> R) -> Option<R> {
        self.home.check_process().ok()?;
        let told = self.with(f).ok()?;
        self.handle.wake();
        Some(told)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tell(|hub| hub.agent.close(self.clock.now()));
    }
}

#[cfg(test)]
pub(crate) mod tests;
