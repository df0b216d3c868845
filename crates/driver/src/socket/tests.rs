//! Sockets of this machine's loopback: what one send call takes, what the kernel refuses, and what one receive call brings.

use super::*;
use crate::tx_batch::{Carrier, TxBatch};
use cistern_link::{Instant, Machine};
use std::collections::VecDeque;
use std::net::UdpSocket as PlainSocket;
use std::time::Duration;

const NOW: Instant = Instant::new(1, 1);
/// More segments than any kernel takes in one call (64, since Linux 6.9 128).
const TOO_MANY: usize = 200;

/// Gives its datagrams one after the other, all by one path.
struct Queue(Path, VecDeque<Vec<u8>>);

impl Machine for Queue {
    fn handle_datagram(&mut self, _: Instant, _: Path, _: &[u8]) {}
    fn handle_drained(&mut self, _: Instant) {}
    fn poll_transmit(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        buf.clear();
        buf.extend_from_slice(&self.1.pop_front()?);
        Some(self.0)
    }
    fn wake_after(&mut self, _: Instant) -> Option<Duration> {
        None
    }
    fn max_datagram(&self) -> usize {
        1_232
    }
}

/// One socket, as the batch sends through it.
struct One<'a>(&'a mut UdpPort, &'a Stats);

impl Carrier for One<'_> {
    fn segments(&self, _: usize) -> usize {
        self.0.segments()
    }
    fn send(&mut self, _: usize, path: &Path, contents: &[u8], segment: Option<usize>) -> Sent {
        self.0.send(path, contents, segment, self.1)
    }
}

fn open() -> UdpPort {
    UdpPort::open(SocketAddr::from(([127, 0, 0, 1], 0)), &PortOptions::default()).expect("a free port")
}

/// Twenty datagrams of one size, each with its number.
fn numbered() -> Vec<Vec<u8>> {
    (0..20).map(|number| vec![number; 100]).collect()
}

/// Sends twenty datagrams through the batch to a plain socket; gives what that received.
fn sent_through(port: &mut UdpPort, stats: &Stats) -> Vec<Vec<u8>> {
    let receiver = PlainSocket::bind("127.0.0.1:0").expect("a free port");
    receiver.set_read_timeout(Some(Duration::from_secs(20))).expect("a read timeout");
    let mut queue = Queue(Path::to(receiver.local_addr().expect("an address")), numbered().into());
    let mut tx_batch = TxBatch::new();
    tx_batch.fill(&mut queue, NOW, |_| Some(0));
    tx_batch.flush(|| NOW, &mut One(port, stats));
    assert!(!tx_batch.is_held());
    let mut buffer = [0; 2_048];
    let mut receive = || receiver.recv(&mut buffer).map(|len| buffer[..len].to_vec()).expect("a datagram in time");
    (0..20).map(|_| receive()).collect()
}

#[test]
fn datagrams_of_one_size_leave_by_one_call_where_the_kernel_cuts_them() {
    let (mut port, stats) = (open(), Stats::default());
    let together = port.segments() >= numbered().len();
    assert_eq!(sent_through(&mut port, &stats), numbered());
    let counts = stats.read();
    assert_eq!((counts.datagrams_out, counts.segmented_sends), (20, u64::from(together)));
}

#[test]
fn after_the_kernel_has_refused_segments_everything_leaves_one_by_one() {
    let (mut port, stats) = (open(), Stats::default());
    let nobody = PlainSocket::bind("127.0.0.1:0").expect("a free port");
    let path = Path::to(nobody.local_addr().expect("an address"));
    assert_eq!(port.send(&path, &[7; TOO_MANY * 10], Some(10), &stats), Sent::Refused);
    assert_eq!((port.segments(), stats.read().datagrams_out), (1, 0));
    assert_eq!(sent_through(&mut port, &stats), numbered());
    let counts = stats.read();
    assert_eq!((counts.datagrams_out, counts.segmented_sends), (20, 0));
}

/// A socket that says that it takes segments, and through which the kernel takes none.
struct Refusing<'a>(One<'a>);

impl Carrier for Refusing<'_> {
    fn segments(&self, _: usize) -> usize {
        64
    }
    fn send(&mut self, port: usize, path: &Path, contents: &[u8], segment: Option<usize>) -> Sent {
        // As many as no kernel takes: the refusal is the kernel's own.
        match segment {
            Some(_) => self.0.send(port, path, &[0; TOO_MANY], Some(1)),
            None => self.0.send(port, path, contents, None),
        }
    }
}

#[test]
fn batch_whose_segments_are_refused_arrives_whole_and_in_order() {
    let (mut port, stats) = (open(), Stats::default());
    let receiver = PlainSocket::bind("127.0.0.1:0").expect("a free port");
    receiver.set_read_timeout(Some(Duration::from_secs(20))).expect("a read timeout");
    let mut queue = Queue(Path::to(receiver.local_addr().expect("an address")), numbered().into());
    let mut tx_batch = TxBatch::new();
    tx_batch.fill(&mut queue, NOW, |_| Some(0));
    tx_batch.flush(|| NOW, &mut Refusing(One(&mut port, &stats)));
    let mut buffer = [0; 2_048];
    for expected in numbered() {
        let len = receiver.recv(&mut buffer).expect("a datagram in time");
        assert_eq!(buffer[..len], expected);
    }
    assert_eq!((stats.read().datagrams_out, stats.read().segmented_sends), (20, 0));
}

/// Receives so many datagrams; gives them, how many calls brought something, and how many buffers they filled.
fn received(port: &mut UdpPort, count: usize) -> (Vec<Vec<u8>>, usize, usize) {
    let (mut pool, mut received, mut calls, mut buffers) = (ReceivePool::new(), Vec::new(), 0, 0);
    let start = std::time::Instant::now();
    while received.len() < count {
        match port.receive(&mut pool) {
            Ok(filled) => {
                received.extend(pool.datagrams(filled).map(|(_, datagram)| datagram.to_vec()));
                calls += 1;
                buffers += filled;
            }
            Err(error) => {
                assert!(error.kind() == io::ErrorKind::WouldBlock && start.elapsed() < Duration::from_secs(20), "{error}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    (received, calls, buffers)
}

#[test]
fn datagrams_that_cannot_be_joined_come_in_batches() {
    let mut port = open();
    let sender = PlainSocket::bind("127.0.0.1:0").expect("a free port");
    // Each longer than the one before, so that no kernel joins them.
    let sent: Vec<Vec<u8>> = (1..=20).map(|len| vec![1; len]).collect();
    for datagram in &sent {
        sender.send_to(datagram, port.local_addr()).expect("send");
    }
    let (received, calls, buffers) = received(&mut port, sent.len());
    assert_eq!((received, buffers), (sent, 20));
    assert!(calls < buffers, "{calls} calls");
}

#[test]
fn datagrams_that_left_by_one_call_come_by_one_where_the_kernel_joins_them() {
    let (mut from, mut to, stats) = (open(), open(), Stats::default());
    let mut tx_batch = TxBatch::new();
    tx_batch.fill(&mut Queue(Path::to(to.local_addr()), numbered().into()), NOW, |_| Some(0));
    tx_batch.flush(|| NOW, &mut One(&mut from, &stats));
    let joined = from.segments() > 1 && to.state.gro_segments() > 1;
    let (received, _, buffers) = received(&mut to, 20);
    assert_eq!((received, buffers), (numbered(), if joined { 1 } else { 20 }));
}

/// What the calls offer until the socket is empty, while `waiting` datagrams wait.
fn offers(batch: &mut BatchSize, mut waiting: usize) -> Vec<usize> {
    let mut offers = Vec::new();
    loop {
        offers.push(batch.offer);
        let filled = waiting.min(batch.offer);
        waiting -= filled;
        batch.came(filled);
        if filled == 0 {
            return offers;
        }
    }
}

#[test]
fn receive_calls_offer_what_the_last_turn_needed_and_soon_all_buffers() {
    let mut batch = BatchSize::NEW;
    assert_eq!(offers(&mut batch, 1), [1, 4]);
    assert_eq!(offers(&mut batch, 100), [1, 4, 16, 32, 32, 32, 32]);
    assert_eq!(offers(&mut batch, 20), [32, 32]);
    assert_eq!(offers(&mut batch, 20), [20, 32]);
    assert_eq!(offers(&mut batch, 0), [20]);
    assert_eq!(offers(&mut batch, 1), [1, 4]);
}
