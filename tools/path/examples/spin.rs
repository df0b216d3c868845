//! What the setting `spin` is worth: latency of one GETATTR after the other at a server that sleeps at once and at one that spins, the
//! rounds of the two taking turns. Prints medians of the rounds, in microseconds.
//!
//! `cargo run --release -p cistern-path --example spin`
#![allow(clippy::print_stdout, reason = "an example prints what it has measured")]

use cistern_driver::{Clock, EventLoop, Handle, LoopOptions, Owned, PortOptions, Services, UdpPort};
use cistern_link::Instant;
use cistern_path::{Peer, ROOT, server_with};
use cistern_server::{Config, Server};
use cistern_store::MemoryStore;
use cistern_wire::{GetAttr, Want};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant as Wall};

const ROUNDS: usize = 15;
const REQUESTS: usize = 2_000;
const SPIN: Duration = Duration::from_micros(50);

struct Stored(MemoryStore);

impl Services<Server> for Stored {
    fn after_turn(&mut self, server: &mut Server, now: Instant) -> ControlFlow<()> {
        while let Some(work) = server.poll_effect() {
            for event in self.0.take(work) {
                server.store_event(now, event);
            }
        }
        ControlFlow::Continue(())
    }
}

/// A server in a thread, and a session at it.
struct Asked {
    handle: Handle,
    socket: UdpSocket,
    peer: Peer,
}

impl Asked {
    fn new(spin: Duration) -> Result<Self, Box<dyn Error>> {
        let port = UdpPort::open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &PortOptions::default())?;
        let clock = Clock::new()?;
        let machine = server_with(clock.now(), Config { spin, ..Config::default() });
        let mut event_loop = EventLoop::new(vec![port], Owned(machine), Stored(MemoryStore::new()), clock, LoopOptions::default())?;
        let address = event_loop.local_addrs().next().ok_or("one socket")?;
        let handle = event_loop.handle();
        thread::spawn(move || event_loop.run());
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        let peer = Peer::open(|datagram| exchange(&socket, datagram).expect("the server answers"));
        Ok(Self { handle, socket, peer })
    }

    /// Median and 99th percentile of a round.
    fn round(&mut self) -> Result<(Duration, Duration), Box<dyn Error>> {
        let mut spans = Vec::with_capacity(REQUESTS);
        for _ in 0..REQUESTS {
            let ask = GetAttr { ask: self.peer.ask(), object: ROOT, want: Want::Nothing };
            let datagram = self.peer.datagram(&ask.into());
            let begun = Wall::now();
            exchange(&self.socket, &datagram)?;
            spans.push(begun.elapsed());
        }
        spans.sort_unstable();
        Ok((spans[REQUESTS / 2], spans[REQUESTS * 99 / 100]))
    }
}

fn exchange(socket: &UdpSocket, datagram: &[u8]) -> std::io::Result<Vec<u8>> {
    socket.send(datagram)?;
    let mut answer = vec![0; 2_048];
    let len = socket.recv(&mut answer)?;
    answer.truncate(len);
    Ok(answer)
}

fn median(mut spans: Vec<Duration>) -> f64 {
    spans.sort_unstable();
    spans[spans.len() / 2].as_secs_f64() * 1e6
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut servers = [Asked::new(Duration::ZERO)?, Asked::new(SPIN)?];
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (server, rounds) in servers.iter_mut().zip(&mut rounds) {
            rounds.push(server.round()?);
        }
    }
    for (name, rounds) in ["sleeps at once", "spins 50 µs"].into_iter().zip(rounds) {
        let (p50, p99): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
        println!("{name:<15} p50 {:>7.1} µs  p99 {:>7.1} µs", median(p50), median(p99));
    }
    servers.iter().for_each(|server| server.handle.stop());
    Ok(())
}
