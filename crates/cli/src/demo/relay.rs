//! The network between agent A and the server, which can be cut.
//!
//! Decides: that datagrams pass in both directions unless cut. One thread, one socket towards each side.
//! Leaves to others: every other kind of fault.

use crate::local::Failure;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a thread sleeps in a receive call before it looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

/// A relay of UDP datagrams.
pub(crate) struct Relay {
    /// Where agents send to.
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    cut: AtomicBool,
    ended: AtomicBool,
    dropped: AtomicU64,
    /// The port of the agent, 0 while none was seen.
    agent_port: AtomicU64,
}

impl Relay {
    pub(crate) fn start(server: SocketAddr) -> Result<Self, Failure> {
        Self::open(server).map_err(|e| Failure::failed(format!("the relay in front of agent A: {e}")))
    }

    fn open(server: SocketAddr) -> io::Result<Self> {
        let towards_agent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let towards_server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        towards_server.connect(server)?;
        let address = towards_agent.local_addr()?;
        let shared = Arc::new(Shared::default());
        let up = {
            let (from, to, shared) = (towards_agent.try_clone()?, towards_server.try_clone()?, Arc::clone(&shared));
            move |buf: &mut [u8]| {
                let (len, agent) = from.recv_from(buf)?;
                shared.agent_port.store(agent.port().into(), Ordering::Release);
                shared.pass(|| to.send(&buf[..len]))
            }
        };
        let down = {
            let (from, to, shared) = (towards_server.try_clone()?, towards_agent.try_clone()?, Arc::clone(&shared));
            move |buf: &mut [u8]| {
                let len = from.recv(buf)?;
                let port = u16::try_from(shared.agent_port.load(Ordering::Acquire)).unwrap_or(0);
                shared.pass(|| to.send_to(&buf[..len], (Ipv4Addr::LOCALHOST, port)))
            }
        };
        towards_agent.set_read_timeout(Some(LOOK))?;
        towards_server.set_read_timeout(Some(LOOK))?;
        let threads = vec![spawn(&shared, up), spawn(&shared, down)];
        Ok(Self { address, shared, threads })
    }

    /// From now on nothing passes, in either direction.
    pub(crate) fn cut(&self) {
        self.shared.cut.store(true, Ordering::Release);
    }

    /// Datagrams pass again.
    pub(crate) fn heal(&self) {
        self.shared.cut.store(false, Ordering::Release);
    }

    /// Datagrams that were lost in the cut.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Acquire)
    }
}

impl Shared {
    fn pass(&self, send: impl FnOnce() -> io::Result<usize>) -> io::Result<()> {
        if self.cut.load(Ordering::Acquire) {
            self.dropped.fetch_add(1, Ordering::AcqRel);
            return Ok(());
        }
        send().map(|_| ())
    }
}

fn spawn(shared: &Arc<Shared>, mut step: impl FnMut(&mut [u8]) -> io::Result<()> + Send + 'static) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let mut buf = vec![0; 1 << 16];
        while !shared.ended.load(Ordering::Acquire) {
            // A timeout is the time to look again; a refused port is a process that has ended, which is no fault of the relay.
            if let Err(e) = step(&mut buf) {
                log::trace!("relay: {e}");
            }
        }
    })
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
