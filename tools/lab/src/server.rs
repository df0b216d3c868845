//! A volatile server in this process, on loopback, for measurements.

use crate::show::Failure;
use cistern_driver::{Clock, EventLoop, Handle, LoopOptions, Owned, PortOptions, Services, UdpPort};
use cistern_server::{Config, Server};
use cistern_store::MemoryStore;
use cistern_wire::StoreId;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::thread::JoinHandle;
use std::time::Duration;

/// The server; it ends with this.
pub(crate) struct Measured {
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

impl Measured {
    pub(crate) fn start(lease: Duration) -> Result<Self, Failure> {
        let failed = |e: &dyn std::fmt::Display| Failure::failed(format!("the server: {e}"));
        let port = UdpPort::open((Ipv4Addr::LOCALHOST, 0).into(), &PortOptions::default()).map_err(|e| failed(&e))?;
        let clock = Clock::new().map_err(|e| failed(&e))?;
        let (seed, id) = (cistern_driver::seed().map_err(|e| failed(&e))?, cistern_driver::seed().map_err(|e| failed(&e))?);
        let mut store = [0; 16];
        store.copy_from_slice(&id[..16]);
        let config = Config { volatile: true, new_cluster: true, ..Config::for_lease(lease) };
        let server = Server::new(clock.now(), 0, StoreId(store), config, seed).map_err(|e| failed(&e))?;
        let mut event_loop =
            EventLoop::new(vec![port], Owned(server), Store(MemoryStore::new()), clock, LoopOptions::default()).map_err(|e| failed(&e))?;
        let address = event_loop.local_addrs().next().ok_or_else(|| failed(&"it listens nowhere"))?;
        let handle = event_loop.handle();
        // What it dies of, the agents notice.
        let thread = std::thread::spawn(move || drop(event_loop.run()));
        Ok(Self { address, handle, thread: Some(thread) })
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
