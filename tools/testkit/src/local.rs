//! A server in this process, with its store in memory, on loopback.

use cistern_driver::{Clock, EventLoop, Handle, LoopOptions, Owned, PortOptions, Services, UdpPort, seed};
use cistern_link::Instant;
use cistern_server::{Config, Server};
use cistern_store::MemoryStore;
use cistern_wire::StoreId;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::thread::JoinHandle;
use std::time::Duration;

type Trouble = Box<dyn Error + Send + Sync>;

/// The server; it ends with this.
#[derive(Debug)]
pub struct LocalServer {
    /// Where it listens.
    pub address: SocketAddr,
    lease: Duration,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

struct Store(MemoryStore);

impl Services<Server> for Store {
    fn after_turn(&mut self, server: &mut Server, now: Instant) -> ControlFlow<()> {
        while let Some(work) = server.poll_effect() {
            for event in self.0.take(work) {
                server.store_event(now, event);
            }
        }
        ControlFlow::Continue(())
    }
}

impl LocalServer {
    /// Starts one that gives leases of this length.
    ///
    /// # Errors
    ///
    /// As the system's.
    pub fn start(lease: Duration) -> Result<Self, Trouble> {
        Self::at((Ipv4Addr::LOCALHOST, 0).into(), lease)
    }

    fn at(address: SocketAddr, lease: Duration) -> Result<Self, Trouble> {
        let port = UdpPort::open(address, &PortOptions::default())?;
        let clock = Clock::new()?;
        let mut store = [0; 16];
        store.copy_from_slice(&seed()?[..16]);
        let config = Config { volatile: true, new_cluster: true, ..Config::for_lease(lease) };
        let server = Server::new(clock.now(), 0, StoreId(store), config, *seed()?)?;
        let mut event_loop = EventLoop::new(vec![port], Owned(server), Store(MemoryStore::new()), clock, LoopOptions::default())?;
        let address = event_loop.local_addrs().next().ok_or("the server listens nowhere")?;
        let handle = event_loop.handle();
        // What it dies of, its agents notice.
        let thread = std::thread::spawn(move || drop(event_loop.run()));
        Ok(Self { address, lease, handle, thread: Some(thread) })
    }

    /// Ends it: nothing answers at its address.
    pub fn stop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Another server, with an empty store, at the same address.
    ///
    /// # Errors
    ///
    /// As the system's.
    pub fn restart(&mut self) -> Result<(), Trouble> {
        self.stop();
        *self = Self::at(self.address, self.lease)?;
        Ok(())
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        self.stop();
    }
}
