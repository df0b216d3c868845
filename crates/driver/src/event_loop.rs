//! The loop: what it owns, how it sleeps, how it is woken and ended.
//!
//! Decides when the thread sleeps and for how long; what it does when awake is `turn`. Used in two ways: the
//! server owns its machine ([`Owned`]) and runs on its main thread; the agent's machine is behind
//! `Arc<Mutex<_>>`, turned by one thread, used by the application's threads, which wake the loop by a [`Handle`].
//! Invariants: an idle loop sleeps without a timeout; no lock is held while it sleeps; it never spins on a socket
//! that has no room or only errors, and otherwise only for as long after a datagram as its machine asks for. Leaves to `turn`: the order of calls; to the machine: what there is to wait for.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cistern_link::{Instant, Machine};
use mio::{Events, Poll, Token, Waker};

use crate::clock::Clock;
use crate::overflow::Overflow;
use crate::receive_pool::ReceivePool;
use crate::services::{SERVICE_TOKENS_END, Services};
use crate::socket::UdpPort;
use crate::stats::Stats;
use crate::tap::{Tap, Tapped};
use crate::tx_batch::{HOLD_MAX, TxBatch};

const WAKER: Token = Token(usize::MAX);
const FIRST_PORT: usize = SERVICE_TOKENS_END;

/// Shortest sleep while datagrams wait for a socket, unless it becomes writable: a machine with more to send asks for
/// another turn at once, but could send nothing in it. Short beside the smallest retransmission timeout (20 ms).
const BLOCKED_SLEEP_MIN: Duration = Duration::from_millis(10);

/// Shortest sleep after a socket gave nothing but errors.
const TROUBLE_SLEEP_MIN: Duration = Duration::from_millis(10);

/// Gives access to a machine: directly, or through a lock shared with other threads.
pub trait Owner {
    /// The machine.
    type M: Machine;

    /// Whether nobody but the loop gives the machine the time: then what the loop read last is still the latest that it knows, and need
    /// not be read anew for each call. So a service must give the machine no other time than the one that it is called with.
    const ALONE: bool = false;

    /// Runs `f` on the machine; the lock, if any, is held as long as `f` runs and no longer.
    fn with<R>(&mut self, f: impl FnOnce(&mut Self::M) -> R) -> Result<R, Poisoned>;
}

/// A machine that the loop has for itself.
#[derive(Debug)]
pub struct Owned<M>(pub M);

impl<M: Machine> Owner for Owned<M> {
    type M = M;

    const ALONE: bool = true;

    fn with<R>(&mut self, f: impl FnOnce(&mut M) -> R) -> Result<R, Poisoned> {
        Ok(f(&mut self.0))
    }
}

impl<M: Machine> Owner for Arc<Mutex<M>> {
    type M = M;

    fn with<R>(&mut self, f: impl FnOnce(&mut M) -> R) -> Result<R, Poisoned> {
        Ok(f(&mut *self.lock().map_err(|_| Poisoned)?))
    }
}

/// A thread panicked while it held the machine, so its state cannot be trusted with a lease any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a thread panicked while it used the protocol machine; its locks can no longer be vouched for")]
pub struct Poisoned;

/// How a loop is set up; the defaults suit server and agent.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// Who logs: role, node and incarnation, such as `server 3` or `agent a1b2/7`.
    pub name: String,
    /// Most datagrams taken in one turn before answers are sent, at least 1; a batch may run a little over.
    pub datagrams_per_turn: usize,
    /// For how long after a datagram came or went the loop goes on looking for the next one before it sleeps; zero: it sleeps at once.
    pub spin: Duration,
    /// Who sees every datagram, for a capture; without one it costs nothing.
    pub tap: Option<Arc<dyn Tap>>,
}

impl Default for LoopOptions {
    fn default() -> Self {
        Self {
            name: "driver".to_owned(),
            // Some receive batches: a few hundred microseconds of work, after which answers must leave.
            datagrams_per_turn: 256,
            spin: Duration::ZERO,
            tap: None,
        }
    }
}

/// Why a loop could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// The poll, its waker or a registration failed.
    #[error("event loop: {step} failed: {source}")]
    Io {
        /// Which step failed.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Answers could leave from the wrong socket.
    #[error(
        "cannot serve UDP {first} and {second} together: an answer could leave from the wrong one; give each its own IP address, or use only one"
    )]
    Ambiguous {
        /// One socket's address.
        first: SocketAddr,
        /// The other's.
        second: SocketAddr,
    },
    /// The machine is unusable.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// Why a loop ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// [`Handle::stop`] was called; the machine had one more turn to send in.
    Stopped,
    /// The services broke off; nothing was sent after that.
    ByServices,
}

/// Wakes or ends a loop from any thread.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    waker: Waker,
    stop: AtomicBool,
}

impl Handle {
    /// Makes the loop take a turn soon, also if it is just about to sleep. Call it after a change to a shared
    /// machine that gives it something to send or wait for.
    pub fn wake(&self) {
        if let Err(error) = self.shared.waker.wake() {
            log::error!("cannot wake the event loop: {error}");
        }
    }

    /// Makes the loop take one more turn and end.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether [`stop`](Self::stop) was called.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }
}

/// A machine with its sockets, its clock and its services.
pub struct EventLoop<O: Owner, S: Services<O::M>> {
    pub(crate) poll: Poll,
    events: Events,
    /// Tokens of services that became ready and were not served yet.
    pub(crate) ready: Vec<Token>,
    pub(crate) ports: Vec<UdpPort>,
    pub(crate) owner: O,
    pub(crate) services: S,
    pub(crate) clock: Clock,
    pub(crate) stats: Arc<Stats>,
    handle: Handle,
    pub(crate) pool: ReceivePool,
    pub(crate) tx_batch: TxBatch,
    pub(crate) tap: Option<Tapped>,
    pub(crate) options: LoopOptions,
    /// The last turn ended at a bound: there may be more to receive or send.
    pub(crate) more: bool,
    /// A socket gave nothing but errors in the last turn.
    pub(crate) trouble: bool,
    /// The poll said that a socket has become readable, and no turn was taken since.
    pub(crate) readable: bool,
    /// What the clock showed when the machine was told last.
    pub(crate) told: Instant,
    pub(crate) spin: Spin,
    pub(crate) overflow: Overflow,
}

/// When the loop goes on looking for datagrams instead of sleeping.
pub(crate) struct Spin {
    /// For how long after a datagram; zero: never.
    span: Duration,
    /// When a datagram came or went last, as far as it matters.
    moved: Option<Instant>,
}

impl Spin {
    /// A datagram came or went at `now`, which is asked only of a loop that spins.
    pub(crate) fn moved(&mut self, now: impl FnOnce() -> Instant) {
        if !self.span.is_zero() {
            self.moved = Some(now());
        }
    }

    /// Whether the next datagram may be near.
    fn goes_on(&mut self, clock: &Clock) -> bool {
        self.moved = self.moved.filter(|moved| clock.now().since(*moved) < self.span);
        self.moved.is_some()
    }
}

impl<O: Owner, S: Services<O::M>> EventLoop<O, S> {
    /// Puts a loop together and registers everything with the poll; nothing is received or sent yet.
    pub fn new(ports: Vec<UdpPort>, owner: O, services: S, clock: Clock, options: LoopOptions) -> Result<Self, LoopError> {
        refuse_ambiguous(&ports)?;
        let overflow = Overflow::of(&ports);
        let spin = Spin { span: options.spin, moved: None };
        let poll = Poll::new().map_err(failed("making the poll"))?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(failed("making the waker"))?;
        let told = clock.now();
        let handle = Handle { shared: Arc::new(Shared { waker, stop: AtomicBool::new(false) }) };
        let mut this = Self {
            poll,
            events: Events::with_capacity(256),
            ready: Vec::new(),
            ports,
            owner,
            services,
            clock,
            stats: Arc::default(),
            handle,
            pool: ReceivePool::new(),
            tx_batch: TxBatch::new(),
            tap: options.tap.clone().map(Tapped::new),
            options,
            more: false,
            trouble: false,
            readable: false,
            told,
            spin,
            overflow,
        };
        let registry = this.poll.registry();
        for (index, port) in this.ports.iter_mut().enumerate() {
            port.register(registry, port_token(index)).map_err(failed("registering a UDP socket"))?;
        }
        this.services.register(registry, &this.handle).map_err(failed("registering the services"))?;
        Ok(this)
    }

    /// Turns the machine until [`Handle::stop`] or until the services break off.
    pub fn run(&mut self) -> Result<Ended, LoopError> {
        log::debug!("{}: event loop starts", self.options.name);
        let ended = loop {
            if self.turn()?.is_break() {
                break Ended::ByServices;
            }
            if self.handle.is_stopped() {
                break Ended::Stopped;
            }
            self.sleep(None)?;
        };
        log::debug!("{}: event loop ends: {ended:?}", self.options.name);
        Ok(ended)
    }

    /// Sleeps as the loop would, but not longer than `most`, and takes one turn; for programs with a loop of their
    /// own, which use the owner in between. Gives `None` while the loop may go on.
    pub fn turn_within(&mut self, most: Duration) -> Result<Option<Ended>, LoopError> {
        // Whoever has a loop of its own may have used the machine, or let time pass.
        self.told = self.clock.now();
        if !self.handle.is_stopped() {
            self.sleep(Some(most))?;
        }
        if self.turn()?.is_break() {
            return Ok(Some(Ended::ByServices));
        }
        Ok(self.handle.is_stopped().then_some(Ended::Stopped))
    }

    /// A handle to wake or end this loop.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The live counters.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// The addresses of the sockets, in the order in which they were given.
    pub fn local_addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.ports.iter().map(UdpPort::local_addr)
    }

    /// The owner of the machine, while the loop does not run.
    pub fn owner_mut(&mut self) -> &mut O {
        &mut self.owner
    }

    /// The services, while the loop does not run.
    pub fn services_mut(&mut self) -> &mut S {
        &mut self.services
    }

    /// Waits for something to do, at most as long as machine and services allow, and notes what became ready.
    fn sleep(&mut self, most: Option<Duration>) -> Result<(), LoopError> {
        let timeout = shorter(self.sleep_time()?, most);
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            // A signal: whoever handles it has set its flag; a turn does no harm.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(failed("waiting for events")(error)),
        }
        for event in &self.events {
            let token = event.token();
            if token.0 < SERVICE_TOKENS_END {
                self.ready.push(token);
            } else if let Some(port) = self.ports.get_mut(token.0 - FIRST_PORT) {
                // Whether there is something to receive is asked of every socket in every turn.
                self.readable |= event.is_readable();
                if event.is_writable() {
                    port.unblock();
                }
            }
        }
        Ok(())
    }

    fn sleep_time(&mut self) -> Result<Option<Duration>, LoopError> {
        if self.trouble {
            return Ok(Some(TROUBLE_SLEEP_MIN));
        }
        if self.more {
            return Ok(Some(Duration::ZERO));
        }
        let Self { owner, clock, told, .. } = self;
        // From when the machine was last asked to send: where that is a few send calls ago, the loop sleeps so much longer, and a timer may
        // be late but never early (section 11.1).
        let (now, machine) = owner.with(|machine| {
            let now = if O::ALONE { *told } else { clock.now() };
            (now, machine.wake_after(now))
        })?;
        let wanted = shorter(machine, self.services.wake_after(now));
        if self.tx_batch.is_held() {
            let wanted = wanted.unwrap_or(HOLD_MAX);
            return Ok(Some(wanted.clamp(BLOCKED_SLEEP_MIN, HOLD_MAX)));
        }
        if self.spin.goes_on(&self.clock) {
            return Ok(Some(Duration::ZERO));
        }
        Ok(wanted)
    }
}

/// The poll's token for a socket.
pub(crate) fn port_token(index: usize) -> Token {
    Token(FIRST_PORT + index)
}

pub(crate) fn failed(step: &'static str) -> impl FnOnce(io::Error) -> LoopError {
    move |source| LoopError::Io { step, source }
}

/// The shorter of two spans of which each may be endless.
fn shorter(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

/// A path names its local address but no local port, so two sockets must not share an address.
fn refuse_ambiguous(ports: &[UdpPort]) -> Result<(), LoopError> {
    for (index, second) in ports.iter().enumerate() {
        if let Some(first) = ports[..index].iter().find(|p| p.ambiguous_with(second)) {
            return Err(LoopError::Ambiguous { first: first.local_addr(), second: second.local_addr() });
        }
    }
    Ok(())
}
