//! What runs in a process under test: the server with its store in memory or in a directory, or the echo, each in the driver's event loop.
//!
//! Decides that both are turned by the same loop with the same sockets and bounds, and that the server is the real one with a
//! configuration that differs from the default only in how many sessions it takes, and in what a workload is about (`host::Setup`). Place: the hidden command of this program.
//! Invariant: the process ends when its standard input does. Leaves to others: measuring it (`host`, `cases`).

use crate::cores;
use crate::echo::Echo;
use crate::host::{AGENT_KEY, Role, SERVER_KEY, Setup, key};
use crate::scale::{FILE_BYTES, Store};
use crate::trouble::Trouble;
use cistern_driver::{
    Clock, EventLoop, Handle, LoopOptions, NoServices, Owned, PortOptions, Recorder, Registry, SealWorkers, Services, Tap, UdpPort, seed,
};
use cistern_link::{Instant, Machine};
use cistern_seal::{Cipher, StartKey};
use cistern_server::config::{CacheLimits, LockLimits};
use cistern_server::principals::Rights;
use cistern_server::store::{StoreEvent, StoreWork};
use cistern_server::{Config, Server};
use cistern_store::{DurableStore, Making, MemoryStore, Options};
use cistern_wire::{Realm, StoreId};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime};

/// Most sessions: with a million of them the server is far from the eighth of its room from which on it asks who is there.
const SESSIONS_MAX: u32 = 1 << 21;

/// The store's id; nobody else has one like it on this machine.
pub(crate) const STORE: StoreId = StoreId([0xBE; 16]);

/// Serves on a free port of loopback until standard input ends; says the address in one line first.
pub(crate) fn serve(role: Role, setup: &Setup) -> Result<(), Trouble> {
    if let Some(core) = setup.core {
        cores::pin(core)?;
    }
    let clock = Clock::new().map_err(Trouble::starting("reading the clocks"))?;
    let recorder = setup.capture.as_deref().map(Recorder::create).transpose().map_err(Trouble::starting("making the capture file"))?;
    let tap = recorder.map(|recorder| Arc::new(recorder) as Arc<dyn Tap>);
    match role {
        Role::Echo => run(Echo::default(), NoServices, clock, options(setup, tap)),
        Role::Server => {
            let server = server(clock.now(), setup, true)?;
            match setup.room {
                Some(_) => run_server(server, Stored { store: Store::default() }, clock, setup, tap),
                None => run_server(server, Stored { store: MemoryStore::new() }, clock, setup, tap),
            }
        }
        Role::Durable => durable(clock, setup, tap),
    }
}

/// The server on a store in a directory of its own, which goes with the process, or on one that was made on etcd.
fn durable(clock: Clock, setup: &Setup, tap: Option<Arc<dyn Tap>>) -> Result<(), Trouble> {
    let dir = setup.store_dir.as_deref().unwrap_or(Path::new("."));
    #[cfg(feature = "peers")]
    if let Some(name) = dir.to_str().filter(|name| name.starts_with(cistern_store_etcd::SCHEME)) {
        return on_etcd(name, clock, setup, tap);
    }
    let dir = tempfile::tempdir_in(dir).map_err(Trouble::starting("making a directory for the store"))?;
    let bell = Arc::new(OnceLock::<Handle>::new());
    let options = Options::new(Making::New(STORE));
    let store = DurableStore::open(dir.path(), &options, waker(&bell));
    let store = store.map_err(Trouble::starting("opening the store"))?;
    let server = server(clock.now(), setup, false)?;
    run_server(server, Kept { store, bell }, clock, setup, tap)
}

#[cfg(feature = "peers")]
fn on_etcd(name: &str, clock: Clock, setup: &Setup, tap: Option<Arc<dyn Tap>>) -> Result<(), Trouble> {
    let bell = Arc::new(OnceLock::<Handle>::new());
    let target = name.parse().map_err(|why| Trouble::Start { step: "reading the name of the store", why })?;
    let owner = format!("bench process {}", std::process::id());
    let store = cistern_store_etcd::EtcdStore::open(&target, &owner, waker(&bell)).map_err(Trouble::starting("opening the store"))?;
    let server = server(clock.now(), setup, false)?;
    run_server(server, Kept { store, bell }, clock, setup, tap)
}

/// What a store's threads call when there are events to take.
fn waker(bell: &Arc<OnceLock<Handle>>) -> impl Fn() + Send + Sync + 'static {
    let bell = Arc::clone(bell);
    move || {
        if let Some(handle) = bell.get() {
            handle.wake();
        }
    }
}

fn server(now: Instant, setup: &Setup, volatile: bool) -> Result<Server, Trouble> {
    let config = setup.tau_ms.map_or_else(Config::default, |tau_ms| Config::for_lease(Duration::from_millis(tau_ms)));
    let config = Config {
        volatile,
        new_cluster: true,
        sessions_max: SESSIONS_MAX,
        last_heard: setup.last_heard,
        rescue: !setup.no_rescue,
        window: setup.window.unwrap_or(config.window),
        ..config
    };
    let config = setup.room.map_or_else(|| config.clone(), |locks| with_room(locks, &config));
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let unix_ns = i64::try_from(since_1970.as_nanos()).unwrap_or(0);
    let seed = seed().map_err(Trouble::starting("drawing a seed"))?;
    Server::new(now, unix_ns, STORE, config, *seed).map_err(Trouble::starting("making the server"))
}

/// The same with room for so many locks of one host, all of whose files stay in memory, and for sessions opened as fast as it can.
fn with_room(locks: usize, config: &Config) -> Config {
    Config {
        challenges_per_second: 1_000_000_000,
        network_sessions_max: SESSIONS_MAX,
        locks: LockLimits { locks_max: locks + locks / 4 + 256, locks_per_session: locks, ..config.locks },
        cache: CacheLimits { bytes_max: (64 << 20) + locks * FILE_BYTES },
        ..config.clone()
    }
}

fn options(setup: &Setup, tap: Option<Arc<dyn Tap>>) -> LoopOptions {
    LoopOptions { tap, spin: setup.spin_us.map_or(Duration::ZERO, Duration::from_micros), ..LoopOptions::default() }
}

/// Runs a server with its store, sealed if it is to be.
fn run_server<S: Services<Server>>(
    server: Server,
    store: S,
    clock: Clock,
    setup: &Setup,
    tap: Option<Arc<dyn Tap>>,
) -> Result<(), Trouble> {
    if !setup.sealed {
        return run(server, store, clock, options(setup, tap));
    }
    let bell = Arc::new(OnceLock::<Handle>::new());
    let wake = Arc::clone(&bell);
    let keys = [key(SERVER_KEY)];
    let workers = SealWorkers::start(&keys, None, move || {
        if let Some(handle) = wake.get() {
            handle.wake();
        }
    });
    let workers = workers.map_err(Trouble::starting("starting the threads for handshakes"))?;
    let start = StartKey::from_bytes(seed().map_err(Trouble::starting("drawing the key of the start"))?);
    let server = server.sealed(&keys.map(|key| key.public()), start, Cipher::default());
    run(server, Sealing { store, workers, bell, admitted: false }, clock, options(setup, tap))
}

fn run<M: Machine, S: Services<M>>(machine: M, services: S, clock: Clock, options: LoopOptions) -> Result<(), Trouble> {
    const STARTING: &str = "starting the event loop";
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let port = UdpPort::open(address, &PortOptions::default()).map_err(Trouble::starting(STARTING))?;
    let address = port.local_addr();
    let mut event_loop = EventLoop::new(vec![port], Owned(machine), services, clock, options).map_err(Trouble::starting(STARTING))?;
    end_with_input(event_loop.handle());
    writeln!(io::stdout(), "{address}").map_err(Trouble::at("saying the address"))?;
    event_loop.run().map_err(Trouble::starting("running the event loop"))?;
    Ok(())
}

/// Ends the loop when standard input ends: whoever started this process has gone or wants no more of it.
fn end_with_input(handle: Handle) {
    thread::spawn(move || {
        // An error is as good as the end.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        handle.stop();
    });
}

/// The store in memory, asked and answered between what has arrived and what is sent: what is durable at once is answered in the
/// same turn.
struct Stored<S> {
    store: S,
}

/// Does a piece of work at once; what comes of it, in order.
trait AtOnce {
    fn take(&mut self, work: StoreWork) -> Vec<StoreEvent>;
}

impl AtOnce for MemoryStore {
    fn take(&mut self, work: StoreWork) -> Vec<StoreEvent> {
        self.take(work)
    }
}

impl AtOnce for Store {
    fn take(&mut self, work: StoreWork) -> Vec<StoreEvent> {
        self.take(work)
    }
}

impl<S: AtOnce> Services<Server> for Stored<S> {
    fn after_turn(&mut self, server: &mut Server, now: Instant) -> ControlFlow<()> {
        while let Some(work) = server.poll_effect() {
            for event in self.store.take(work) {
                server.store_event(now, event);
            }
        }
        if server.failure().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The store of a sealed server, and the threads that compute its handshakes.
struct Sealing<S> {
    store: S,
    workers: SealWorkers,
    bell: Arc<OnceLock<Handle>>,
    /// Whether the key of who asks is known.
    admitted: bool,
}

impl<S: Services<Server>> Services<Server> for Sealing<S> {
    fn register(&mut self, registry: &Registry, handle: &Handle) -> io::Result<()> {
        // Registered once, so it is empty.
        let _ = self.bell.set(handle.clone());
        self.store.register(registry, handle)
    }

    fn between_rounds(&mut self, server: &mut Server) {
        self.store.between_rounds(server);
    }

    fn after_turn(&mut self, server: &mut Server, now: Instant) -> ControlFlow<()> {
        while let Some(done) = self.workers.done() {
            server.seal_done(now, done);
        }
        if !self.admitted && server.is_serving() {
            let (key, all) = (*key(AGENT_KEY).public().as_bytes(), [(Realm::TREE, Rights::ALL)]);
            self.admitted = server.admit_key(now, b"bench", key, false, &all).is_ok();
        }
        while self.workers.has_room()
            && let Some(work) = server.poll_seal_work()
        {
            self.workers.take(work);
        }
        self.store.after_turn(server, now)
    }
}

/// A store with threads of its own, which ring when there are events.
trait Threaded {
    fn take(&mut self, work: StoreWork);
    fn event(&mut self) -> Option<StoreEvent>;
    fn wants_early(&mut self, pending: usize) -> bool;
}

impl Threaded for DurableStore {
    fn take(&mut self, work: StoreWork) {
        self.take(work);
    }

    fn event(&mut self) -> Option<StoreEvent> {
        self.event()
    }

    fn wants_early(&mut self, pending: usize) -> bool {
        self.wants_early(pending)
    }
}

#[cfg(feature = "peers")]
impl Threaded for cistern_store_etcd::EtcdStore {
    fn take(&mut self, work: StoreWork) {
        self.take(work);
    }

    fn event(&mut self) -> Option<StoreEvent> {
        self.event()
    }

    fn wants_early(&mut self, _: usize) -> bool {
        false
    }
}

/// Such a store: work out, events in, until there is neither.
struct Kept<S> {
    store: S,
    bell: Arc<OnceLock<Handle>>,
}

impl<S: Threaded> Services<Server> for Kept<S> {
    fn register(&mut self, _registry: &Registry, handle: &Handle) -> io::Result<()> {
        // Registered once, so it is empty.
        let _ = self.bell.set(handle.clone());
        Ok(())
    }

    fn between_rounds(&mut self, server: &mut Server) {
        if self.store.wants_early(server.pending_writes()) {
            while let Some(work) = server.poll_effect() {
                self.store.take(work);
            }
        }
    }

    fn after_turn(&mut self, server: &mut Server, now: Instant) -> ControlFlow<()> {
        loop {
            while let Some(event) = self.store.event() {
                server.store_event(now, event);
            }
            let Some(work) = server.poll_effect() else { break };
            self.store.take(work);
        }
        if server.failure().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
