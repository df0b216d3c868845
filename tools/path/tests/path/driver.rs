//! The server in the driver's event loop, between real sockets: receive calls, timers, the store, send calls, the poll.

use crate::server::{COUNTED, WARM};
use allocation_counter::measure;
use cistern_driver::{Clock, EventLoop, Handle, LoopOptions, Owned, PortOptions, Services, UdpPort};
use cistern_link::Instant;
use cistern_path::{Peer, ROOT, message, server};
use cistern_server::Server;
use cistern_store::MemoryStore;
use cistern_wire::{GetAttr, KeepAlive, Message, Want};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest that anything here is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

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

type Loop = EventLoop<Owned<Server>, Stored>;

/// The server on a free port of loopback.
fn event_loop() -> Loop {
    let port = UdpPort::open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &PortOptions::default()).unwrap();
    let clock = Clock::new().unwrap();
    let server = Owned(server(clock.now()));
    EventLoop::new(vec![port], server, Stored(MemoryStore::new()), clock, LoopOptions::default()).unwrap()
}

/// The server in a thread of its own, as long as this lives.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub(crate) fn new() -> Self {
        let mut event_loop = event_loop();
        let address = event_loop.local_addrs().next().unwrap();
        let handle = event_loop.handle();
        let thread = std::thread::spawn(move || {
            event_loop.run().unwrap();
        });
        Self { address, handle, thread: Some(thread) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.stop();
        self.thread.take().map(JoinHandle::join);
    }
}

/// The server in the test's own thread, turned when the test says so.
struct World {
    event_loop: Loop,
    socket: UdpSocket,
    /// Allocations in the turns so far.
    allocations: u64,
}

impl World {
    fn new() -> (Self, Peer) {
        let event_loop = event_loop();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.connect(event_loop.local_addrs().next().unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut world = Self { event_loop, socket, allocations: 0 };
        world.event_loop.turn_within(Duration::ZERO).unwrap();
        let peer = Peer::open(|datagram| world.exchange(datagram));
        (world, peer)
    }

    /// Sends a datagram, and turns the loop once; gives the answer.
    fn exchange(&mut self, datagram: &[u8]) -> Vec<u8> {
        self.socket.send(datagram).unwrap();
        let turn = measure(|| drop(self.event_loop.turn_within(PATIENCE)));
        self.allocations += turn.count_total;
        let mut answer = vec![0; 2_048];
        let len = self.socket.recv(&mut answer).unwrap();
        answer.truncate(len);
        answer
    }
}

fn allocations(mut ask: impl FnMut(&mut Peer) -> Message<'static>) -> u64 {
    let (mut world, mut peer) = World::new();
    for round in 0..WARM + COUNTED {
        if round == WARM {
            world.allocations = 0;
        }
        let asked = ask(&mut peer);
        let datagram = peer.datagram(&asked);
        let answer = world.exchange(&datagram);
        assert!(matches!(message(&answer), Some(Message::Ack(_) | Message::Alive(_))), "{asked:?} was not answered");
    }
    world.allocations
}

#[test]
fn turn_of_the_loop_with_one_request_allocates_nothing() {
    assert_eq!(allocations(|peer| GetAttr { ask: peer.ask(), object: ROOT, want: Want::Nothing }.into()), 0);
}

#[test]
fn turn_of_the_loop_with_a_keep_alive_allocates_nothing() {
    assert_eq!(allocations(|peer| KeepAlive { serial: peer.serial(), clock_us: 1 }.into()), 0);
}
