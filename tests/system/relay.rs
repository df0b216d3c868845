//! A network between an agent and the server: lossless, lossy, or cut.
//!
//! Decides: which datagrams pass. Losses and copies come from a seeded generator, so a failing run can be repeated.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    cut: AtomicBool,
    ended: AtomicBool,
    passed: AtomicU64,
    agent: AtomicU16,
    loss_percent: AtomicU32,
    copy_percent: AtomicU32,
    seed: Mutex<u64>,
}

impl Relay {
    pub(crate) fn start(server: SocketAddr) -> Self {
        let towards_agent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let towards_server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        towards_server.connect(server).unwrap();
        let look = Some(Duration::from_millis(50));
        towards_agent.set_read_timeout(look).unwrap();
        towards_server.set_read_timeout(look).unwrap();
        let address = towards_agent.local_addr().unwrap();
        let shared = Arc::new(Shared { seed: Mutex::new(0x5EED), ..Shared::default() });
        let up = {
            let (from, to, shared) = (towards_agent.try_clone().unwrap(), towards_server.try_clone().unwrap(), Arc::clone(&shared));
            move |buf: &mut [u8]| {
                let (len, agent) = from.recv_from(buf)?;
                shared.agent.store(agent.port(), Ordering::SeqCst);
                shared.pass(|| to.send(&buf[..len]))
            }
        };
        let down = {
            let (from, to, shared) = (towards_server, towards_agent, Arc::clone(&shared));
            move |buf: &mut [u8]| {
                let len = from.recv(buf)?;
                let agent = (Ipv4Addr::LOCALHOST, shared.agent.load(Ordering::SeqCst));
                shared.pass(|| to.send_to(&buf[..len], agent))
            }
        };
        let threads = vec![run(&shared, up), run(&shared, down)];
        Self { address, shared, threads }
    }

    pub(crate) fn cut(&self) {
        self.shared.cut.store(true, Ordering::SeqCst);
    }

    pub(crate) fn heal(&self) {
        self.shared.cut.store(false, Ordering::SeqCst);
    }

    /// From now on so many percent of the datagrams are lost, and so many of the others come twice.
    pub(crate) fn disturb(&self, loss_percent: u32, copy_percent: u32) {
        self.shared.loss_percent.store(loss_percent, Ordering::SeqCst);
        self.shared.copy_percent.store(copy_percent, Ordering::SeqCst);
    }

    /// Datagrams that passed in either direction.
    pub(crate) fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn chance(&self, percent: &AtomicU32) -> bool {
        let mut seed = self.seed.lock().unwrap();
        // xorshift64: any full-period generator will do, as long as the seed decides.
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed % 100 < u64::from(percent.load(Ordering::SeqCst))
    }

    fn pass(&self, send: impl Fn() -> io::Result<usize>) -> io::Result<()> {
        if self.cut.load(Ordering::SeqCst) || self.chance(&self.loss_percent) {
            return Ok(());
        }
        self.passed.fetch_add(1, Ordering::SeqCst);
        send()?;
        if self.chance(&self.copy_percent) {
            send()?;
        }
        Ok(())
    }
}

fn run(shared: &Arc<Shared>, mut step: impl FnMut(&mut [u8]) -> io::Result<()> + Send + 'static) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let mut buf = vec![0; 1 << 16];
        while !shared.ended.load(Ordering::SeqCst) {
            // Errors are time-outs, or a peer that has ended.
            let _ = step(&mut buf);
        }
    })
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
