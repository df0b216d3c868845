//! The network between agent A and the server, which can be cut.
//!
//! Two threads pass datagrams, one in each direction, until the relay is dropped. There is one agent: what comes from the server goes to the
//! address that was last heard on the other side.

use crate::local::Failure;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a thread sleeps at most before it looks whether the relay has been dropped.
const LOOK: Duration = Duration::from_millis(100);

/// A relay of UDP datagrams.
pub(crate) struct Relay {
    /// Where the agent sends to.
    pub(crate) address: SocketAddr,
    network: Arc<Network>,
    threads: Vec<JoinHandle<()>>,
}

struct Network {
    agent_side: UdpSocket,
    server_side: UdpSocket,
    agent: Mutex<Option<SocketAddr>>,
    cut: AtomicBool,
    lost: AtomicU64,
    ended: AtomicBool,
}

impl Relay {
    pub(crate) fn start(server: SocketAddr) -> Result<Self, Failure> {
        let network = Network::new(server).map_err(|e| Failure::failed(format!("the relay in front of agent A: {e}")))?;
        let address = network.agent_side.local_addr().map_err(|e| Failure::failed(format!("the relay in front of agent A: {e}")))?;
        let network = Arc::new(network);
        let passes: [fn(&Network, &mut [u8]); 2] = [Network::pass_up, Network::pass_down];
        let threads = passes.map(|pass| {
            let network = Arc::clone(&network);
            thread::spawn(move || {
                let mut buffer = vec![0; usize::from(u16::MAX)];
                while !network.ended.load(Ordering::Relaxed) {
                    pass(&network, &mut buffer);
                }
            })
        });
        Ok(Self { address, network, threads: threads.into() })
    }

    /// From now on nothing passes, in either direction.
    pub(crate) fn cut(&self) {
        self.network.cut.store(true, Ordering::SeqCst);
    }

    /// Datagrams pass again; gives how many were lost in the cut.
    pub(crate) fn heal(&self) -> u64 {
        self.network.cut.store(false, Ordering::SeqCst);
        self.network.lost.swap(0, Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.network.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It cannot have panicked with anything to tell.
            let _ = thread.join();
        }
    }
}

impl Network {
    fn new(server: SocketAddr) -> std::io::Result<Self> {
        let [agent_side, server_side] = [UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?];
        server_side.connect(server)?;
        agent_side.set_read_timeout(Some(LOOK))?;
        server_side.set_read_timeout(Some(LOOK))?;
        Ok(Self {
            agent_side,
            server_side,
            agent: Mutex::new(None),
            cut: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        })
    }

    // What cannot be received or sent is lost, as on any network.

    fn pass_up(&self, buffer: &mut [u8]) {
        let Ok((len, from)) = self.agent_side.recv_from(buffer) else { return };
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = Some(from);
        if self.passes() {
            let _ = self.server_side.send(&buffer[..len]);
        }
    }

    fn pass_down(&self, buffer: &mut [u8]) {
        let Ok(len) = self.server_side.recv(buffer) else { return };
        let agent = *self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(agent) = agent
            && self.passes()
        {
            let _ = self.agent_side.send_to(&buffer[..len], agent);
        }
    }

    /// Whether a datagram passes; counts it if it does not.
    fn passes(&self) -> bool {
        let cut = self.cut.load(Ordering::SeqCst);
        self.lost.fetch_add(u64::from(cut), Ordering::SeqCst);
        !cut
    }
}
