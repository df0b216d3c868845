//! Small machines to turn, and the loop around them on a thread of its own.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant as Wall};

use cistern_driver::{
    Clock, Counts, Ended, EventLoop, Handle, LoopError, LoopOptions, NoServices, Owned, Owner, PortOptions, Services, Stats, UdpPort,
};
use cistern_link::{Instant, Machine, Path};

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Sends back what it got, in order.
#[derive(Default)]
pub(crate) struct Echo {
    pub(crate) queue: VecDeque<(Path, Vec<u8>)>,
}

impl Machine for Echo {
    fn handle_datagram(&mut self, _: Instant, path: Path, datagram: &[u8]) {
        self.queue.push_back((path, datagram.to_vec()));
    }

    fn handle_drained(&mut self, _: Instant) {}

    fn poll_transmit(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        let (path, bytes) = self.queue.pop_front()?;
        buf.clear();
        buf.extend_from_slice(&bytes);
        Some(path)
    }

    fn wake_after(&mut self, _: Instant) -> Option<Duration> {
        None
    }

    fn max_datagram(&self) -> usize {
        1_232
    }
}

/// What a [`Recorder`] saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Datagram(Vec<u8>),
    Drained,
    Transmit,
}

/// Writes down every call, insists that time never goes back, and can send a further datagram to its own socket
/// while it handles one.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) calls: Vec<Call>,
    pub(crate) last: Option<Instant>,
    /// How many more datagrams to send to itself, and where to.
    pub(crate) chain: Option<(UdpSocket, SocketAddr, usize)>,
    /// When to be woken, by the time of the first call.
    pub(crate) alarm: Option<Duration>,
    pub(crate) first: Option<Instant>,
}

impl Recorder {
    fn note(&mut self, now: Instant, call: Call) {
        if let Some(last) = self.last {
            assert!(now.waited(last), "{call:?} at {now:?}, before the last call at {last:?}");
        }
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.calls.push(call);
    }

    pub(crate) fn position(&self, call: &Call) -> Option<usize> {
        self.calls.iter().position(|made| made == call)
    }

    pub(crate) fn datagrams(&self) -> Vec<&[u8]> {
        self.calls
            .iter()
            .filter_map(|call| match call {
                Call::Datagram(bytes) => Some(&bytes[..]),
                Call::Drained | Call::Transmit => None,
            })
            .collect()
    }

    /// Whether the alarm has rung: a timer ran at or after its time.
    pub(crate) fn alarm_is_over(&self) -> bool {
        match (self.first, self.last, self.alarm) {
            (Some(first), Some(last), Some(alarm)) => last.waited(first.plus(alarm)),
            _ => false,
        }
    }
}

impl Machine for Recorder {
    fn handle_datagram(&mut self, now: Instant, _: Path, datagram: &[u8]) {
        self.note(now, Call::Datagram(datagram.to_vec()));
        if let Some((socket, to, left)) = &mut self.chain
            && *left > 0
        {
            *left -= 1;
            socket.send_to(b"chained", *to).expect("send to itself");
        }
    }

    fn handle_drained(&mut self, now: Instant) {
        self.note(now, Call::Drained);
    }

    fn poll_transmit(&mut self, now: Instant, _: &mut Vec<u8>) -> Option<Path> {
        self.note(now, Call::Transmit);
        None
    }

    fn wake_after(&mut self, now: Instant) -> Option<Duration> {
        let end = self.first?.plus(self.alarm?);
        let left = now.until_waited(end);
        (!left.is_zero()).then_some(left)
    }

    fn max_datagram(&self) -> usize {
        1_232
    }
}

/// Opens a socket of a driver.
pub(crate) fn open(address: &str) -> UdpPort {
    let address = address.parse().expect("an address");
    UdpPort::open(address, &PortOptions::default()).expect("a free port")
}

/// A plain socket of a test, which does not wait for ever.
pub(crate) fn plain(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).expect("a free port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a read timeout");
    socket
}

/// A loop around a machine of its own.
pub(crate) fn owned<M: Machine>(ports: Vec<UdpPort>, machine: M) -> EventLoop<Owned<M>, NoServices> {
    around(ports, Owned(machine), NoServices)
}

pub(crate) fn around<O: Owner, S: Services<O::M>>(ports: Vec<UdpPort>, owner: O, services: S) -> EventLoop<O, S> {
    let clock = Clock::new().expect("both clocks");
    EventLoop::new(ports, owner, services, clock, LoopOptions::default()).expect("a loop")
}

/// A loop that has run, and how that ended.
type Run<O, S> = (EventLoop<O, S>, Result<Ended, LoopError>);

/// A loop on its own thread; it ends with the test.
pub(crate) struct Running<O: Owner, S: Services<O::M>> {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) handle: Handle,
    stats: Arc<Stats>,
    thread: Option<JoinHandle<Run<O, S>>>,
}

impl<O, S> Running<O, S>
where
    O: Owner + Send + 'static,
    S: Services<O::M> + Send + 'static,
{
    pub(crate) fn start(mut event_loop: EventLoop<O, S>) -> Self {
        Self {
            addresses: event_loop.local_addrs().collect(),
            handle: event_loop.handle(),
            stats: event_loop.stats(),
            thread: Some(thread::spawn(move || {
                let ended = event_loop.run();
                (event_loop, ended)
            })),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.stats.read()
    }

    /// Waits for a loop that ends by itself.
    pub(crate) fn join(mut self) -> Run<O, S> {
        let thread = self.thread.take().expect("joined once");
        thread.join().expect("the loop does not panic")
    }
}

impl<O: Owner, S: Services<O::M>> Drop for Running<O, S> {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the loop does not panic");
        }
    }
}

/// Waits until something is so, with a bound.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Wall::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Whether this machine has an IPv6 loopback; says so if a test is skipped for want of it.
#[expect(clippy::print_stderr, reason = "a skipped test must say that and why")]
pub(crate) fn has_ipv6(test: &str) -> bool {
    let has = UdpSocket::bind("[::1]:0").is_ok();
    if !has {
        eprintln!("skipped {test}: this machine has no ::1");
    }
    has
}
