//! A server in this process, on a loopback address, and clients of it.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cistern_client::{Client, Config};
use cistern_driver::{Clock, EventLoop, Handle, LoopOptions, Owned, PortOptions, Services, UdpPort};
use cistern_server::Server;
use cistern_store::MemoryStore;
use cistern_wire::StoreId;

/// Longer than anything here takes on the slowest machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// τ of the servers here: short, so that what waits for a lease does not take long.
pub(crate) const LEASE: Duration = Duration::from_millis(600);

pub(crate) struct World {
    pub(crate) address: SocketAddr,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

struct Store(MemoryStore);

impl Services<Server> for Store {
    fn after_turn(&mut self, server: &mut Server, now: cistern_client::Instant) -> ControlFlow<()> {
        while let Some(work) = server.poll_effect() {
            for event in self.0.take(work) {
                server.store_event(now, event);
            }
        }
        ControlFlow::Continue(())
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap())
    }

    fn at(address: SocketAddr) -> Self {
        let port = UdpPort::open(address, &PortOptions::default()).unwrap();
        let clock = Clock::new().unwrap();
        let seed = cistern_driver::seed().unwrap();
        let mut store = [0; 16];
        store.copy_from_slice(&seed[..16]);
        let config = cistern_server::Config { volatile: true, new_cluster: true, ..cistern_server::Config::for_lease(LEASE) };
        let server = Server::new(clock.now(), 0, StoreId(store), config, cistern_driver::seed().unwrap()).unwrap();
        let mut event_loop = EventLoop::new(vec![port], Owned(server), Store(MemoryStore::new()), clock, LoopOptions::default()).unwrap();
        let address = event_loop.local_addrs().next().unwrap();
        let handle = event_loop.handle();
        let thread = std::thread::spawn(move || {
            event_loop.run().unwrap();
        });
        Self { address, handle, thread: Some(thread) }
    }

    /// The server is gone; nothing answers at its address.
    pub(crate) fn stop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Another server, with an empty store, at the same address.
    pub(crate) fn restart(&mut self) {
        self.stop();
        *self = Self::at(self.address);
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(Config::default())
    }

    pub(crate) fn client_with(&self, config: Config) -> Client {
        Client::builder().server(self.address.to_string()).config(config).connect().unwrap()
    }

    /// A client, and a file to lock.
    pub(crate) fn with_file(path: &str) -> (Self, Client) {
        let world = Self::new();
        let client = world.client();
        client.create_new(path).wait().unwrap();
        (world, client)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits until it is so.
pub(crate) fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
