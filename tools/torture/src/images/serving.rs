//! The programs that are recorded: a server on a store, and one opening of a store.
//!
//! Decides: that the server is the real one, with its loop, its sockets and its store, whose batches are written down before the store
//! gets them; and that what the store reports durable is said on standard output, which strace sees too, so promises stand in the log
//! where they were made. Place: hidden commands of this program. Invariant: the server ends when its standard input does.
//! Leaves to others: starting them (`recording`), the load (`worker`).

use super::judge::{extra, options};
use super::known::Ledger;
use cistern_driver::{Clock, EventLoop, Handle, LoopOptions, Owned, PortOptions, Registry, Services, UdpPort, seed};
use cistern_link::Instant;
use cistern_server::store::{StoreEvent, StoreWork};
use cistern_server::{Config, Server};
use cistern_store::DurableStore;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime};

/// The command line of the recorded server.
#[derive(clap::Args, Debug)]
pub(crate) struct ServingArgs {
    /// The directory of its store
    #[arg(long)]
    store: PathBuf,
    /// The file into which batches are written
    #[arg(long)]
    batches: PathBuf,
    /// Where it listens
    #[arg(long)]
    listen: SocketAddr,
}

/// The command line of a recorded opening.
#[derive(clap::Args, Debug)]
pub(crate) struct OpeningArgs {
    /// The directory of the store
    #[arg(long)]
    store: PathBuf,
    /// The value that is written
    #[arg(long)]
    extra: u64,
}

/// Opens a store, writes one batch, and says so.
pub(crate) fn open(args: &OpeningArgs) -> Result<(), String> {
    let mut store = DurableStore::open(&args.store, &options(), || {}).map_err(text)?;
    extra(&mut store, args.extra)?;
    writeln!(io::stdout(), "extra {}", args.extra).map_err(text)
}

/// Serves until standard input ends.
pub(crate) fn serve(args: &ServingArgs) -> Result<(), String> {
    let ledger = Ledger::open(&args.batches).map_err(|e| format!("{}: {e}", args.batches.display()))?;
    let clock = Clock::new().map_err(text)?;
    let bell = Arc::new(OnceLock::<Handle>::new());
    let store = open_store(&args.store, &bell)?;
    let config = Config { lease: Duration::from_millis(500), new_cluster: ledger.batches == 0, ..Config::default() };
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let unix_ns = i64::try_from(since_1970.as_nanos()).unwrap_or(0);
    let server = Server::new(clock.now(), unix_ns, store.id(), config, *seed().map_err(text)?).map_err(text)?;
    let port = UdpPort::open(args.listen, &PortOptions::default()).map_err(text)?;
    let address = port.local_addr();
    let kept = Kept { store, bell, before: ledger.batches, ledger, early: Ok(()) };
    let mut event_loop = EventLoop::new(vec![port], Owned(server), kept, clock, LoopOptions::default()).map_err(text)?;
    let handle = event_loop.handle();
    thread::spawn(move || {
        // An error is as good as the end.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        handle.stop();
    });
    writeln!(io::stdout(), "{address}").map_err(text)?;
    event_loop.run().map_err(text).map(drop)
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn open_store(dir: &Path, bell: &Arc<OnceLock<Handle>>) -> Result<DurableStore, String> {
    let bell = Arc::clone(bell);
    let wake = move || {
        if let Some(handle) = bell.get() {
            handle.wake();
        }
    };
    DurableStore::open(dir, &options(), wake).map_err(text)
}

/// The store of the recorded server.
struct Kept {
    store: DurableStore,
    bell: Arc<OnceLock<Handle>>,
    ledger: Ledger,
    /// Batches of earlier servers.
    before: u64,
    /// How the handing over within this turn went.
    early: io::Result<()>,
}

impl Kept {
    /// Tells the server what the store says, and everybody what it promises.
    fn tell(&mut self, server: &mut Server, now: Instant, event: StoreEvent) -> io::Result<()> {
        if let StoreEvent::Durable(batch) = &event {
            writeln!(io::stdout(), "promised {}", self.before + batch)?;
        }
        server.store_event(now, event);
        Ok(())
    }

    fn hand_over(&mut self, work: StoreWork) -> io::Result<()> {
        if let StoreWork::Persist(batch) = &work {
            self.ledger.write(batch)?;
        }
        self.store.take(work);
        Ok(())
    }

    fn serve(&mut self, server: &mut Server, now: Instant) -> io::Result<()> {
        std::mem::replace(&mut self.early, Ok(()))?;
        loop {
            while let Some(event) = self.store.event() {
                self.tell(server, now, event)?;
            }
            let Some(work) = server.poll_effect() else { return Ok(()) };
            self.hand_over(work)?;
        }
    }
}

impl Services<Server> for Kept {
    fn register(&mut self, _registry: &Registry, handle: &Handle) -> io::Result<()> {
        // Registered once, so it is empty.
        let _ = self.bell.set(handle.clone());
        Ok(())
    }

    fn between_rounds(&mut self, server: &mut Server) {
        if !self.store.wants_early(server.pending_writes()) {
            return;
        }
        while self.early.is_ok()
            && let Some(work) = server.poll_effect()
        {
            self.early = self.hand_over(work);
        }
    }

    fn after_turn(&mut self, server: &mut Server, now: Instant) -> ControlFlow<()> {
        match self.serve(server, now) {
            Ok(()) if server.failure().is_none() => ControlFlow::Continue(()),
            Ok(()) => ControlFlow::Break(()),
            Err(e) => {
                // Without a record there is nothing to be had from going on.
                let _ = writeln!(io::stderr(), "the recorded server: {e}");
                ControlFlow::Break(())
            }
        }
    }
}
